"""``python -m dwell``: sweeps and archives on engines from a command line, with the options of the program.

    python -m dwell sim run shimamura/fig-8 --on ray --store s3://bucket/campaign --out runs.parquet
    python -m dwell sim run mine.toml --shard 3/16 --store /shared/campaign
    python -m dwell trace analyze '/archive/*.pcap' --on slurm --store /shared/archive --out whole.json
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import Optional, Sequence, Tuple

from dwell import sim, trace
from dwell._dwell import Error

INTERRUPTED = 130


def shard(text: str) -> Tuple[int, int]:
    """Reads ``3/16``."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    part, of = map(int, found.groups()) if found else (0, 0)
    if not 1 <= part <= of:
        raise argparse.ArgumentTypeError(f'"{text}" is no shard: write 3/16 for the third of sixteen')
    return part, of


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(prog="python -m dwell", description=__doc__, formatter_class=form)
    subjects = top.add_subparsers(required=True, metavar="SUBJECT")
    engine = argparse.ArgumentParser(add_help=False)
    engine.add_argument("--on", metavar="ENGINE", help="local, ray, dask or slurm")
    engine.add_argument("--store", metavar="DIR|URL", help="keep results here, and do only what is missing")
    engine.add_argument("--shard", type=shard, metavar="I/N", help="only the I-th of N parts, from 1")
    engine.add_argument("--jobs", type=int, metavar="COUNT", help="tasks at once")
    engine.add_argument("--json", action="store_true", help="print JSON instead of text")

    of_sim = subjects.add_parser("sim", help="simulations").add_subparsers(required=True, metavar="COMMAND")
    run = of_sim.add_parser("run", parents=[engine], help="run a scenario")
    run.add_argument("scenario", metavar="FILE|NAME")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    run.add_argument("--seed", type=int)
    run.add_argument("--replications", type=int, metavar="COUNT")
    run.add_argument("--quick", action="store_true", help="the scenario's quick variant")
    run.add_argument("--out", metavar="FILE", help="a file that ends in .parquet, .jsonl or .csv")
    run.set_defaults(do=run_scenario)

    of_trace = subjects.add_parser("trace", help="captures").add_subparsers(required=True, metavar="COMMAND")
    analyze = of_trace.add_parser("analyze", parents=[engine], help="analyse captures")
    analyze.add_argument("files", nargs="+", metavar="FILE|URL")
    analyze.add_argument("--codec", metavar="CODECS", help="separated by commas")
    analyze.add_argument("--inside", metavar="PREFIXES", help="one side of the link, separated by commas")
    analyze.add_argument("--no-time", action="store_true", help="measure no times: equal captures give equal bytes")
    analyze.add_argument("--out", metavar="FILE", help="write the JSON, for `dwell trace merge`")
    analyze.add_argument("--html", metavar="FILE", help="write the report as a page")
    analyze.set_defaults(do=analyze_captures)
    return top


def run_scenario(arguments: argparse.Namespace) -> int:
    """``sim run``."""
    ending = arguments.out.rsplit(".", 1)[-1] if arguments.out else None
    if ending not in (None, "parquet", "jsonl", "csv"):
        raise Error(f"{arguments.out} must end in .parquet, .jsonl or .csv")
    base = sim.Scenario(arguments.scenario).spec
    base = sim.Spec(
        base.text, base.file, base.id, tuple(arguments.set), arguments.quick, base.files
    )
    results = sim.run(
        sim.Scenario(sim._from_spec(base)),
        replications=arguments.replications,
        seed=arguments.seed,
        jobs=arguments.jobs,
        on=arguments.on,
        store=arguments.store,
        shard=arguments.shard,
    )
    if ending:
        getattr(results, f"to_{ending}")(arguments.out)
    sys.stdout.write(results.lines().decode() if arguments.json else results.text())
    return 0


def analyze_captures(arguments: argparse.Namespace) -> int:
    """``trace analyze``."""
    analysis = trace.analyze(
        arguments.files,
        codecs=arguments.codec.split(",") if arguments.codec else None,
        sides=arguments.inside.split(",") if arguments.inside else None,
        measure_time=not arguments.no_time,
        jobs=arguments.jobs,
        on=arguments.on,
        store=arguments.store,
        shard=arguments.shard,
    )
    for name, why in analysis.unreadable:
        print(f"dwell: {name}: {why}", file=sys.stderr)
    for name in analysis.left_out:
        print(f"dwell: {name} has the same packets as another one, and is left out", file=sys.stderr)
    for path, data in ((arguments.out, analysis.to_json), (arguments.html, analysis.html)):
        if path:
            content = data()
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
    sys.stdout.write(analysis.to_json().decode() if arguments.json else analysis.text())
    return 1 if analysis.unreadable else 0


def main(words: Optional[Sequence[str]] = None) -> int:
    """Runs a command line, and returns its exit code: 0, 1 if something failed, 2 for a wrong command line."""
    arguments = parser().parse_args(words)
    try:
        return arguments.do(arguments)
    except (Error, OSError, ValueError, ImportError) as error:
        print(f"dwell: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
