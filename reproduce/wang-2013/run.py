"""Reproduces the tables and figure 4 of Wang et al. 2013 (TCPComp); README.md says how."""

import csv
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from artefact import bench, compare  # noqa: E402 - it lies beside the directory

TABLES = ("factors", "schemes", "targets")


def claims(directory):
    """Yields what the paper's text states, beside ours: quantity, paper, ours."""
    with open(directory / "schemes.csv", newline="") as file:
        schemes = {row["data"]: row for row in csv.DictReader(file)}
    with open(directory / "targets.csv", newline="") as file:
        targets = list(csv.DictReader(file))

    def segments(name):
        return int(schemes[name]["segments"])

    change = 100 * (segments("novel tcpcomp") / segments("novel plain") - 1)
    yield "text: segments against TCP, %", "-43.58", f"{change:.2f}"
    change = 100 * (segments("novel tcpcomp") / segments("novel kernel-level") - 1)
    yield "text: segments against the kernel-level scheme, %", "-43.74", f"{change:.2f}"
    yield "text: efficiency against TCP", "about 2", schemes["novel tcpcomp"]["efficiency"]
    change = 100 * (segments("film tcpcomp") / segments("film plain") - 1)
    yield "film: segments against TCP, %", "about 0", f"{change:.2f}"
    fewer = f"{schemes['film tcpcomp']['failures']} of {schemes['film tcpcomp without back-off']['failures']}"
    yield "film: failures with and without back-off", "fewer", fewer
    novel = [row for row in targets if row["data"] == "novel"]
    best = min(novel, key=lambda row: int(row["segments"]))
    yield "text: the target with the fewest segments, B", "1400", best["target, B"]


def draw(directory, path):
    """Draws figure 4: segments by target, with the paper's best target."""
    from matplotlib.figure import Figure

    with open(directory / "targets.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    canvas = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = canvas.add_subplot()
    for name in dict.fromkeys(row["data"] for row in rows):
        points = [(int(row["target, B"]), int(row["segments"])) for row in rows if row["data"] == name]
        axes.plot(*zip(*points), marker=".", label=name)
    axes.axvline(1400, linestyle=":", color="black", label="the paper's best target")
    axes.set_yscale("log")
    axes.set_xlabel("target, B")
    axes.set_ylabel("segments")
    axes.legend()
    canvas.savefig(path)


def main():
    """Runs the program, compares, and draws."""
    arguments, program = bench(__doc__, HERE)
    words = [program, "tcpcomp", "--output", str(arguments.out.resolve())]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=HERE.parents[1])
    for quantity, paper, ours in claims(arguments.out):
        print(f"{quantity}: paper {paper}, ours {ours}")
    draw(arguments.out, arguments.out / "figure-4.svg")
    status = 0
    for name in TABLES:
        print(f"{name}.csv: ", end="")
        status |= compare((arguments.out / f"{name}.csv").read_text(), HERE / f"expected-{name}.csv")
    return status


if __name__ == "__main__":
    sys.exit(main())
