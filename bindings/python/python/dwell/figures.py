"""Figures of scenarios with matplotlib, and the paper's points on them."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple

from dwell._dwell import Error

__all__ = ["drawn", "paper_points"]

Points = List[Tuple[float, float]]


def drawn(results: Any, figure: Optional[str]) -> Any:
    """Returns a figure of the results, or all of them side by side."""
    from matplotlib.figure import Figure

    figures = results.figures()
    if figure is not None:
        figures = [it for it in figures if it["id"] == figure]
    if not figures:
        known = ", ".join(it["id"] for it in results.figures()) or "none"
        raise Error(f"{results.scenario.id} has no such figure; there are: {known}")
    canvas = Figure(figsize=(6.4 * len(figures), 4.8), layout="constrained")
    canvas.suptitle(f"{results.scenario.title} ({results.scenario.paper} {results.scenario.figure})")
    for at, it in enumerate(figures):
        _draw(canvas.add_subplot(1, len(figures), at + 1), it, paper_points(results, it))
    return canvas


def paper_points(results: Any, figure: Dict[str, Any]) -> Points:
    """Returns the numbers of the paper that are about a figure's points: those whose value of ours is drawn.

    A claim says a number of one point. It belongs to a figure if ours, of which it speaks, is one of the figure's
    points (changes against another point, in percent, never are).
    """
    out: Points = []
    for claim in results.claims():
        stated, ours = claim["paper_value"], claim["ours"]
        if isinstance(stated, list):
            stated = sum(stated) / len(stated)
        if not isinstance(stated, (int, float)) or ours is None or not math.isfinite(ours):
            continue
        for series in figure["series"]:
            for x, y, _, _ in series["points"]:
                if y is not None and y != 0 and math.isclose(y, ours, rel_tol=1e-9):
                    out.append((x, float(stated)))
    return sorted(set(out))


def _draw(axes: Any, figure: Dict[str, Any], paper: Points) -> None:
    x, y = figure["x"], figure["y"]
    floor = y["floor"]
    for series in figure["series"]:
        points = [it for it in series["points"] if it[0] is not None and it[1] is not None]
        xs = [it[0] for it in points]
        ys = [max(it[1], floor) if floor else it[1] for it in points]
        bars = [[_gap(it[1], it[2]) for it in points], [_gap(it[3], it[1]) for it in points]]
        style = {"line": "-", "points": "", "steps": "-"}.get(series["kind"], "-")
        options = {"drawstyle": "steps-post"} if series["kind"] == "steps" else {}
        marker = "o" if len(points) <= 50 else ""
        axes.errorbar(
            xs, ys, yerr=bars, label=series["name"] or None, linestyle=style, marker=marker, capsize=2, **options
        )
    if paper:
        axes.plot(
            [it[0] for it in paper],
            [max(it[1], floor) if floor else it[1] for it in paper],
            linestyle="",
            marker="D",
            markerfacecolor="none",
            markeredgecolor="black",
            label="the paper",
        )
    for axis, scale in ((x, axes.set_xscale), (y, axes.set_yscale)):
        if axis["log"]:
            scale("log")
    if x["range"]:
        axes.set_xlim(*x["range"])
    if y["range"]:
        axes.set_ylim(*y["range"])
    axes.set_xlabel(x["label"])
    axes.set_ylabel(y["label"])
    axes.set_title(figure["title"])
    if axes.get_legend_handles_labels()[0]:
        axes.legend()


def _gap(upper: Optional[float], lower: Optional[float]) -> float:
    return 0.0 if upper is None or lower is None else max(0.0, upper - lower)
