#!/usr/bin/env python3
"""The cost of statistics: runs with all of them beside runs that only count, in turns; `./x bench sim statistics` calls it.

    validate/statistics_cost.py PROGRAM [ROUNDS]

PROGRAM is the example `against_ns2`. A line for each workload: the median CPU time (user and system) of both, and the
median and the quartiles of the ratios of neighbouring runs. Which of two comes first alternates.
"""

import os
import statistics
import sys

WORKLOADS = ["plain", "none", "packet", "dumbbell", "chumq"]


def cpu_s(program, words):
    """Returns the CPU time of a run."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(program, [program, *words], os.environ, file_actions=quiet)
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"{program} {' '.join(words)} failed")
    return usage.ru_utime + usage.ru_stime


def main(program, rounds=16):
    """Measures and prints."""
    print(f"{'CPU seconds':<10} {'all':>8} {'counts':>8} {'ratio':>8} {'quartiles':>16}")
    for workload in WORKLOADS:
        with_all, counts = [], []
        for number in range(int(rounds)):
            pair = [(with_all, []), (counts, ["counts"])]
            for times, more in pair if number % 2 else reversed(pair):
                times.append(cpu_s(program, ["speed", workload, str(number % 4 + 1), *more]))
        ratios = [a / b for a, b in zip(with_all, counts)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        medians = [statistics.median(times) for times in (with_all, counts)]
        print(f"{workload:<10} {medians[0]:>8.3f} {medians[1]:>8.3f} {middle:>8.3f} {low:>8.3f} {high:>7.3f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
