"""What Python adds: `sim.run` against the program, and packets into Arrow.

    python benchmarks/overhead.py --dwell target/release/dwell

The same runs on one thread, by the program and by `sim.run` in this process, in turns: wall-clock time, medians. Then packets of a
capture that is made for it, from the page cache, as Arrow batches by one thread. Beside both is the processors' time, which says
more where other work goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from archive import make
from dwell import sim, trace

SCENARIO = "shimamura/fig-9"
SET = {"run.warm_up": "100ms", "run.measure": "20s"}


def against_the_program(dwell: str, rounds: int) -> None:
    """Prints medians of both, and their ratio."""
    words = [f"--set={key}={value}" for key, value in SET.items()]
    command = [dwell, "sim", "run", SCENARIO, "--quick", "--json", "--jobs", "1", *words]
    theirs, ours = [], []
    for _ in range(rounds):
        begin = clocks()
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        theirs.append(since(begin))
        begin = clocks()
        results = sim.run(SCENARIO, quick=True, set=SET, jobs=1)
        ours.append(since(begin))
    same = by_key(lines) == by_key(results.lines())
    for at, what in enumerate(("", ", processors' time")):
        theirs_s, ours_s = (statistics.median(it[at] for it in times) for times in (theirs, ours))
        print(f"{len(results)} runs of {SCENARIO}{what}: ", end="")
        print(f"program {theirs_s:.3f} s, sim.run {ours_s:.3f} s, ratio {ours_s / theirs_s:.3f}")
    print("the same runs" if same else "NOT the same runs: is the program of the same version?")


def clocks() -> tuple:
    """Returns the time, and the processors' time of this process and of those that it waited for."""
    return time.perf_counter(), sum(os.times()[:4])


def since(begin: tuple) -> tuple:
    """Returns what both clocks have gone on."""
    return tuple(now - then for now, then in zip(clocks(), begin))


def by_key(lines: bytes) -> dict:
    """Returns the numbers of runs by their keys; the program prints a run at each point that it stands for."""
    runs = map(json.loads, lines.splitlines())
    return {run["key"]: run["metrics"] for run in runs}


def packets(size: float, rounds: int) -> None:
    """Prints how many packets come into Arrow in a second."""
    with tempfile.TemporaryDirectory() as directory:
        captures = pathlib.Path(directory) / "captures"
        make(captures, size, 1, 0, 1)
        (capture,) = captures.iterdir()
        for _ in range(rounds):
            begin, count = clocks(), 0
            for batch in trace.packets(str(capture)):
                count += len(batch)
            took, processors = since(begin)
            size = capture.stat().st_size
            print(f"{count} packets of {size / count:.0f} bytes: {count / took / 1e6:.1f} million/s, {size / took / 1e9:.1f} GB/s; ", end="")
            print(f"{count / processors / 1e6:.1f} million for each second of a processor")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dwell", default="dwell", help="the program")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", type=float, default=600e6, help="bytes of the capture (600e6)")
    arguments = parser.parse_args()
    against_the_program(arguments.dwell, arguments.rounds)
    packets(arguments.size, 3)


if __name__ == "__main__":
    main()
