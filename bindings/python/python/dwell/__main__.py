"""``python -m dwell``: sweeps and archives on engines from a command line, with the options of the program.

    python -m dwell sim run shimamura/fig-8 --on ray --store s3://bucket/campaign --out runs.parquet
    python -m dwell sim run mine.toml --shard 3/16 --store /shared/campaign
    python -m dwell trace analyze '/archive/*.pcap' --on slurm --store /shared/archive --out whole.json

``dwell sim run --on …`` and ``dwell trace analyze --on …`` of the program come here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from dwell import sim, trace
from dwell._files import replace
from dwell._dwell import CODE, Error

INTERRUPTED = 130
ENDINGS = ("parquet", "jsonl", "csv")


def shard(text: str) -> Tuple[int, int]:
    """Reads ``3/16``."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    part, of = map(int, found.groups()) if found else (0, 0)
    if not 1 <= part <= of:
        raise argparse.ArgumentTypeError(f'"{text}" is no shard: write 3/16 for the third of sixteen')
    return part, of


def precision(text: str) -> sim.Interval:
    """Reads ``call.delay_p99_s=0.05``, or ``…=5%``."""
    metric, _, share = text.rpartition("=")
    try:
        width = float(share[:-1]) / 100 if share.endswith("%") else float(share)
        if not metric or not 0 < width < 1:
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'"{text}" is no metric with a share: write for instance throughput_bps=0.02'
        ) from None
    return sim.Interval(metric, relative=width)


def words(text: str) -> List[str]:
    """Reads words that commas separate."""
    return [word for word in text.split(",") if word]


def shared() -> argparse.ArgumentParser:
    """Returns what all commands understand."""
    engine = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    engine.add_argument("--on", metavar="ENGINE", help="local, ray, dask or slurm")
    engine.add_argument("--store", metavar="DIR|URL", help="keep results here, and do only what is missing")
    engine.add_argument("--shard", type=shard, metavar="I/N", help="only the I-th of N parts, from 1")
    engine.add_argument("--jobs", type=int, metavar="COUNT", help="tasks at once")
    engine.add_argument("--json", action="store_true", help="print JSON instead of text")
    return engine


def of_sim_run() -> argparse.ArgumentParser:
    """Returns the parser of ``sim run``."""
    run = argparse.ArgumentParser(
        prog="python -m dwell sim run", description="Run a scenario.", parents=[shared()], allow_abbrev=False
    )
    run.add_argument("scenario", metavar="FILE|NAME")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    run.add_argument("--seed", type=int, help="the first seed")
    run.add_argument("--replications", type=int, metavar="COUNT", help="runs of each point")
    run.add_argument("--quick", action="store_true", help="the scenario's quick variant")
    run.add_argument(
        "--precision",
        type=precision,
        metavar="METRIC=SHARE",
        help="as many runs of each point as its 95 %% interval takes to be within this share of the mean",
    )
    run.add_argument("--most", type=int, default=100, metavar="COUNT", help="the most of them (100)")
    run.add_argument(
        "--out", metavar="DIR|FILE", help="a directory, or a file that ends in .parquet, .jsonl or .csv"
    )
    run.set_defaults(do=run_scenario)
    return run


def of_trace_analyze() -> argparse.ArgumentParser:
    """Returns the parser of ``trace analyze``."""
    analyze = argparse.ArgumentParser(
        prog="python -m dwell trace analyze",
        description="Analyse captures, each as a task.",
        parents=[shared()],
        allow_abbrev=False,
    )
    analyze.add_argument("files", nargs="+", metavar="FILE|DIR|URL")
    analyze.add_argument("--codec", type=words, action="extend", metavar="CODECS", help="separated by commas")
    analyze.add_argument("--block-codec", default="zstd:1", metavar="CODEC", help="of blocks (zstd:1)")
    analyze.add_argument("--no-blocks", action="store_true", help="make no blocks")
    analyze.add_argument("--context-codec", default="zstd:1", metavar="CODEC", help="of history (zstd:1)")
    analyze.add_argument("--no-contexts", action="store_true", help="measure no history")
    analyze.add_argument("--no-bound", action="store_true", help="leave out the most that could be saved")
    analyze.add_argument("--no-codecs", action="store_true", help="compress nothing: only count")
    analyze.add_argument("--over", default="packet", choices=["packet", "payload"])
    analyze.add_argument("--rate", action="append", metavar="RATE", help="links to compute waiting times for")
    analyze.add_argument(
        "--inside",
        type=words,
        action="extend",
        metavar="PREFIXES",
        help="one side of the link; without it, each capture finds its sides",
    )
    analyze.add_argument("--no-time", action="store_true", help="measure no times: equal captures give equal bytes")
    analyze.add_argument("--out", metavar="FILE", help="write the JSON, for `dwell trace merge`")
    analyze.add_argument("--html", metavar="FILE", help="write the report as a page")
    analyze.add_argument("--exceptions", metavar="FILE", help="write the classes that a relay leaves alone")
    analyze.add_argument("--top", type=int, default=20, metavar="COUNT", help="classes to show (20)")
    analyze.set_defaults(do=analyze_captures)
    return analyze


COMMANDS: Dict[Tuple[str, str], Callable[[], argparse.ArgumentParser]] = {
    ("sim", "run"): of_sim_run,
    ("trace", "analyze"): of_trace_analyze,
}


def overview() -> argparse.ArgumentParser:
    """Returns the parser of what names no command."""
    names = " or ".join(" ".join(name) for name in COMMANDS)
    top = argparse.ArgumentParser(
        prog="python -m dwell", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("command", nargs=2, metavar="COMMAND", help=names)
    return top


def run_scenario(arguments: argparse.Namespace) -> int:
    """``sim run``."""
    ending = os.path.splitext(arguments.out or "")[1][1:]
    options = {
        "set": arguments.set,
        "quick": arguments.quick,
        "seed": arguments.seed,
        "jobs": arguments.jobs,
        "on": arguments.on,
        "store": arguments.store,
        "shard": arguments.shard,
    }
    wanted = arguments.precision
    if wanted:
        scenario = sim.Scenario(arguments.scenario, set=arguments.set, quick=arguments.quick)
        try:
            scenario.check(wanted.metric)
        except ValueError as why:
            complain(f"--precision: {why}")
            return 2
        # `replications` says with how many to begin, as in the program.
        begin = max(2, arguments.replications or wanted.at_least)
        interval = sim.Interval(wanted.metric, relative=wanted.relative, at_least=begin)
        results = sim.sweep(arguments.scenario, {}, replications=arguments.most, stop_at=interval, **options)
    else:
        results = sim.run(arguments.scenario, replications=arguments.replications, **options)
    if ending in ENDINGS:
        getattr(results, f"to_{ending}")(arguments.out)
    elif arguments.out:
        results.to_directory(arguments.out)
        print(f"wrote report and figures to {arguments.out}", file=sys.stderr)
    write(each_run(results) if arguments.json else results.report().encode())
    if wanted and all(point.summary is None for point in results.points(wanted.metric)):
        complain(f"no run has a value for {wanted.metric}: nothing of the kind happened")
        return 1
    return 0


def each_run(results: sim.Results) -> bytes:
    """Returns the line of each task's run, as the program prints them: runs that points share come with each."""
    lines = {json.loads(line)["key"]: line for line in results.lines().splitlines(keepends=True)}
    return b"".join(lines[task.key] for task in results.scenario.tasks if task.key in lines)


def analyze_captures(arguments: argparse.Namespace) -> int:
    """``trace analyze``."""
    counts_only = arguments.no_codecs
    analysis = trace.analyze(
        arguments.files,
        codecs=[] if counts_only else arguments.codec,
        blocks=None if counts_only or arguments.no_blocks else arguments.block_codec,
        contexts=None if counts_only or arguments.no_contexts else arguments.context_codec,
        over=arguments.over,
        rates=arguments.rate or trace.RATES,
        bound=not arguments.no_bound,
        sides=arguments.inside,
        measure_time=not arguments.no_time,
        jobs=arguments.jobs,
        on=arguments.on or "local",
        store=arguments.store,
        shard=arguments.shard,
    )
    for name, why in analysis.unreadable:
        complain(f"{name} is left out: {why}")
    for name in analysis.left_out:
        complain(f"{name} has the same packets as another one, and is left out")
    files = {
        arguments.out: analysis.to_json,
        arguments.html: lambda: analysis.html(arguments.top).encode(),
        arguments.exceptions: lambda: analysis.exceptions().encode(),
    }
    for path, content in files.items():
        if path:
            replace(path, content())
    write(analysis.to_json() if arguments.json else analysis.text(arguments.top).encode())
    return 1 if analysis.unreadable else 0


def write(data: bytes) -> None:
    """Writes to standard output, whatever its encoding is."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def complain(what: str) -> None:
    """Says what is wrong."""
    print(f"dwell: {what}", file=sys.stderr)


def main(given: Optional[Sequence[str]] = None) -> int:
    """Runs a command line, and returns its exit code: 0, 1 if something failed, 2 for a wrong command line."""
    given = list(sys.argv[1:] if given is None else given)
    parser = COMMANDS.get((given[0], given[1])) if len(given) > 1 else None
    if parser is None:
        top = overview()
        if given[:1] in (["-h"], ["--help"]):
            top.print_help()
            return 0
        top.error("there is no such command")
    arguments = parser().parse_intermixed_args(given[2:])
    try:
        return arguments.do(arguments)
    except BrokenPipeError:
        # Whoever read has enough; nothing is to be written at the end, either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Error, OSError, ValueError, ImportError) as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        complain("interrupted; what is in the store is not done again")
        return INTERRUPTED


def handed_over(code: str, given: Sequence[str]) -> int:
    """Runs a command line of the program, whose code has this version."""
    if code != CODE:
        complain(
            f"the program is {code} and Python's package {CODE}, whose runs are not the same: install both of one "
            "version (`./x python --release`)"
        )
        return 1
    return main(given)


if __name__ == "__main__":
    sys.exit(main())
