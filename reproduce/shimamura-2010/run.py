"""Reproduces the figures and numbers of Shimamura et al. 2010; README.md says how."""

import argparse
import csv
import io
import pathlib
import sys
import time

from dwell import sim

PAPER = "shimamura/"
HERE = pathlib.Path(__file__).parent
COLUMNS = ["scenario", "place", "quantity", "unit", "paper", "ours", "low", "high", "agreement"]


def rows(results):
    """The paper's numbers beside ours."""
    for claim in results.claims():
        stated = claim["paper_value"]
        yield [
            results.scenario.id,
            claim["place"],
            claim["quantity"],
            claim["unit"],
            " to ".join(map(str, stated)) if isinstance(stated, list) else stated,
            *("" if claim[key] is None else repr(claim[key]) for key in ("ours", "low", "high")),
            claim["agreement"],
        ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few and short runs")
    parser.add_argument("--on", help="an engine: local, ray, dask or slurm")
    parser.add_argument("--store", help="where runs are kept")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "out")
    parser.add_argument("--no-figures", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    begin, text = time.monotonic(), io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name in filter(lambda name: name.startswith(PAPER), sim.names()):
        results = sim.run(name, quick=arguments.quick, on=arguments.on, store=arguments.store)
        writer.writerows(rows(results))
        stem = name.replace("/", "-")
        results.to_parquet(arguments.out / f"{stem}.parquet")
        if results.figures() and not arguments.no_figures:
            results.plot().savefig(arguments.out / f"{stem}.svg")
        print(f"{name}: {len(results)} runs, {time.monotonic() - begin:.0f} s", flush=True)
    (arguments.out / "claims.csv").write_text(text.getvalue())
    print(f"wrote {arguments.out}")
    if not arguments.quick:
        return 0
    expected = (HERE / "expected-quick.csv").read_text()
    differ = set(text.getvalue().splitlines()) ^ set(expected.splitlines())
    print("as expected" if not differ else f"{len(differ)} lines differ from expected-quick.csv")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
