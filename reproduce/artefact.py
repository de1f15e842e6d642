"""What the artefacts of papers have in common: runs, figures, and the papers' numbers beside ours.

A paper's directory has `run.py`, which names its scenarios, and what is expected: `expected-quick.csv`, the claims of the
quick variant with their 95 % intervals, and where it was recorded `expected.csv`, those of the paper's lengths. Chance follows
from seeds, so that equal code gives equal numbers.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import pathlib
import platform
import shutil
import sys
import time
from typing import Any, Iterator, List, Tuple

COLUMNS = ["scenario", "place", "quantity", "unit", "paper", "ours", "low", "high", "agreement"]


def rows(results: Any) -> Iterator[List[Any]]:
    """Yields the paper's numbers beside ours."""
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


def parser(doc: str, here: pathlib.Path) -> argparse.ArgumentParser:
    """Returns the parser of what all artefacts understand."""
    out = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("--quick", action="store_true", help="few and short runs")
    out.add_argument("--out", type=pathlib.Path, default=here / "out", help="where files are written (out/)")
    return out


def bench(doc: str, here: pathlib.Path) -> Tuple[argparse.Namespace, str]:
    """Returns the arguments of an artefact that is measured, and the program `dwell-bench`; the directory for files is there."""
    more = parser(doc, here)
    more.add_argument("--bench", default=os.environ.get("DWELL_BENCH"), help="the program dwell-bench")
    arguments = more.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    built = here.parents[1] / "target/release/dwell-bench"
    bench = arguments.bench or shutil.which("dwell-bench") or str(built)
    if not shutil.which(bench):
        more.error(f"{bench} is not there: cargo build --release -p dwell-bench, or --bench")
    return arguments, bench


def compare(text: str, expected: pathlib.Path) -> int:
    """Says where lines differ from what is expected, and returns 1 if some do."""
    if not expected.exists():
        print(f"there is no {expected.name} to compare with: claims.csv has the paper's numbers beside these")
        return 0
    ours, theirs = set(text.splitlines()), set(expected.read_text().splitlines())
    for line in sorted(theirs - ours):
        print(f"expected  {line}")
    for line in sorted(ours - theirs):
        print(f"found     {line}")
    print("as expected" if ours == theirs else f"{len(ours ^ theirs)} lines differ from {expected.name}")
    return int(ours != theirs)


def reproduce(doc: str, here: pathlib.Path, prefix: str) -> int:
    """Runs the scenarios whose names have a prefix, and returns 1 if something differs from what is expected."""
    from dwell import CODE, sim

    more = parser(doc, here)
    more.add_argument("--on", help="an engine: local, ray, dask or slurm")
    more.add_argument("--store", help="where runs are kept, so that none is done twice")
    more.add_argument("--no-figures", action="store_true")
    arguments = more.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    begin, text = time.monotonic(), io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name in filter(lambda name: name.startswith(prefix), sim.names()):
        results = sim.run(name, quick=arguments.quick, on=arguments.on, store=arguments.store)
        writer.writerows(rows(results))
        stem = name.replace("/", "-")
        results.to_parquet(arguments.out / f"{stem}.parquet")
        if results.figures() and not arguments.no_figures:
            results.plot().savefig(arguments.out / f"{stem}.svg")
        print(f"{name}: {len(results)} runs, {time.monotonic() - begin:.0f} s", flush=True)
    (arguments.out / "claims.csv").write_text(text.getvalue())
    user_s = sum(os.times()[:4:2])
    took = f"{time.monotonic() - begin:.0f} s, {user_s:.0f} s of processors in this process and those that it waited for"
    print(took)
    (arguments.out / "environment.txt").write_text(f"dwell {CODE}\nPython {sys.version}\n{platform.platform()}\n{took}\n")
    print(f"wrote {arguments.out}")
    return compare(text.getvalue(), here / ("expected-quick.csv" if arguments.quick else "expected.csv"))
