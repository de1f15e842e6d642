"""Measures what Pu and Singaravelu 2005 claim of fine-grain mixing; README.md says how."""

import csv
import json
import math
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from artefact import bench  # noqa: E402 - it lies beside the directory

RATES = ["10mbit", "20mbit", "50mbit", "70mbit", "100mbit", "200mbit", "500mbit"]
QUICK = ["10mbit", "50mbit", "100mbit"]
STRATEGIES = ["all", "switch", "mix", "mix-2in", "mix-2out"]
CODEC = "deflate"
STUDENT_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
COLUMNS = ["rate_mbps", "contender", "mbps", "low", "high", "estimated_maximum_mbps"]


def goodputs(runs):
    """Returns Mbit/s of each run by rate and contender, and of each rate the speed and ratio of the codec."""
    found, speeds = {}, {}
    for run in runs:
        rate, measured = run["place"]["rate_bps"] / 1e6, run["measured"]
        mbps = 8e3 * measured["application_bytes"] / measured["window_ns"]
        found.setdefault((rate, run["contender"].split("/")[0]), []).append(mbps)
        speeds[rate] = next(it for it in measured["speeds"] if it["codec"] == CODEC)
    return found, speeds


def estimated_maximum(bandwidth, speed):
    """Returns the paper's EstMax: what the compressor takes, and raw what it leaves of the bandwidth, in Mbit/s."""
    taken = 8e3 / speed["cost_ns"]
    given = taken * speed["ratio"]
    return bandwidth / speed["ratio"] if given >= bandwidth else taken + bandwidth - given


def interval(values):
    """Returns mean and 95 % interval (Student's t)."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.nan, math.nan
    half = STUDENT_95.get(len(values), 2.571) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def table(runs):
    """Returns rows of rate, contender, mean, interval and EstMax."""
    found, speeds = goodputs(runs)
    rows = []
    for (rate, contender), values in sorted(found.items()):
        bandwidth = statistics.fmean(found[rate, "plain"])
        rows.append([rate, contender, *interval(values), estimated_maximum(bandwidth, speeds[rate])])
    return rows


def claims(rows):
    """Yields what the paper says, and whether it is so at each rate."""
    by = {(row[0], row[1]): row for row in rows}
    for rate in sorted({row[0] for row in rows}):
        mix = by[rate, "mix"]
        most, plain = mix[5], by[rate, "plain"][2]
        best = max(by[rate, it][2] for it in ("mix", "mix-2in", "mix-2out"))
        if rate <= 100:
            off = most - best
            yield f"{rate:g} Mbit/s: best mixing within 4.8 Mbit/s of EstMax", f"{off:.2f}", off <= 4.8
        yield f"{rate:g} Mbit/s: mixing is no slower than TCP", f"{mix[2] / plain:.3f}", mix[2] >= 0.97 * plain
        simple = by[rate, "switch"][2]
        yield f"{rate:g} Mbit/s: mixing is no slower than simple switching", f"{mix[2] / simple:.3f}", mix[2] >= 0.97 * simple


def draw(rows, path):
    """Draws throughput by available bandwidth, as the paper does, with EstMax."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = canvas.add_subplot()
    for name in dict.fromkeys(row[1] for row in rows):
        points = [row for row in rows if row[1] == name]
        errors = [0 if math.isnan(row[3]) else row[4] - row[2] for row in points]
        axes.errorbar([row[0] for row in points], [row[2] for row in points], errors, marker="o", capsize=2, label=name)
    most = sorted({(row[0], row[5]) for row in rows})
    axes.plot(*zip(*most), linestyle=":", color="black", label="the paper's EstMax")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("available bandwidth, Mbit/s")
    axes.set_ylabel("throughput, Mbit/s")
    axes.legend()
    canvas.savefig(path)


def main():
    """Measures, compares and draws."""
    arguments, program = bench(__doc__, HERE)
    runs = arguments.out / "runs.jsonl"
    words = [program, "stream", "--strategy", ",".join(STRATEGIES), "--codec", CODEC, "--workload", "text"]
    words += ["--rate", ",".join(QUICK if arguments.quick else RATES), "--runs", "3" if arguments.quick else "5"]
    words += ["--seconds", "1" if arguments.quick else "3", "--no-others", "--json", str(runs.resolve()), "--resume"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=HERE.parents[1])
    rows = table(json.loads(line) for line in runs.read_text().splitlines())
    with open(arguments.out / "throughput.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([*row[:2], *(f"{value:.2f}" for value in row[2:])] for row in rows)
    failed = 0
    for claim, value, holds in claims(rows):
        print(f"{'holds' if holds else 'FAILS'}  {claim}: {value}")
        failed += not holds
    draw(rows, arguments.out / "throughput.svg")
    print(f"wrote {arguments.out}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
