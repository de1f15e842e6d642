"""Networks in virtual time: scenarios, sweeps, and the figures of the papers.

>>> import dwell.sim
>>> results = dwell.sim.run("shimamura/fig-8", quick=True)
>>> results.to_pandas()                                    # doctest: +SKIP
>>> results.claims()[0]["place"]
'5.3.3'

A scenario is the name of one that dwell carries with it (:func:`names`), the path of a file, TOML, or a
dictionary with the same tables. Runs depend on the scenario, the point and the seed alone: results are the
same to the last bit on any machine, with any number of jobs and on any engine.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from dwell import _dwell
from dwell._dwell import ScenarioError, Table
from dwell._files import replace

__all__ = ["Interval", "Point", "Results", "Scenario", "Summary", "Task", "names", "run", "sweep"]

Source = Union[str, "os.PathLike[str]", Mapping[str, Any], "Scenario"]
Values = Union[Mapping[str, Any], Sequence[str], None]


def names() -> List[str]:
    """Returns the names of the scenarios that dwell carries with it: those of the papers' figures, and worked examples.

    >>> "shimamura/fig-8" in names() and "worked/lte" in names()
    True
    """
    return _dwell.scenario_names()


class Task(NamedTuple):
    """A run to do."""

    key: str
    """The hash of everything that its result follows from. Tasks with the same key are the same run."""
    point: int
    """The index of its point."""
    seed: int
    """Its seed."""
    effort: float
    """Its estimated work, in millions of packets on links."""


@dataclass(frozen=True)
class Spec:
    """All that a scenario is read from; the same on another machine."""

    text: str
    file: str
    id: str
    settings: Tuple[str, ...]
    quick: bool
    files: Tuple[Tuple[str, bytes], ...]

    def read(self) -> _dwell.Scenario:
        """Reads it."""
        files = dict(self.files)

        def read(name: str) -> bytes:
            if name not in files:
                raise FileNotFoundError("there is no such file")
            return files[name]

        return _dwell.Scenario(
            self.text,
            file=self.file,
            id=self.id,
            settings=self.settings,
            quick=self.quick,
            read=read,
        )


class Scenario:
    """What to simulate, and what to show of it.

    :param source: a name, the path of a file, TOML, a dictionary, or a scenario to change.
    :param set: values by the dotted paths of their keys; or words as after ``--set`` of the program, ``KEY=VALUE``.
    :param grid: values to sweep, by the dotted paths of their keys.
    :param quick: the quick variant: fewer and shorter runs.
    :param replications: the number of runs of each point.
    :param seed: the first seed.
    :param files: what the files that the scenario names contain: text, or rows of numbers, as an array or a data frame of
        shape (n, 2) for ``[traffic] kind = "trace"`` (seconds and bytes), or (n, 3) for ``[compress] file``
        (bytes, ratio and microseconds); or bytes, of a capture for instance. Other names are files beside the scenario.
    :raises ScenarioError: with all that is wrong with it.
    """

    def __init__(
        self,
        source: Source,
        *,
        set: Values = None,
        grid: Optional[Mapping[str, Iterable[Any]]] = None,
        quick: Optional[bool] = None,
        replications: Optional[int] = None,
        seed: Optional[int] = None,
        files: Optional[Mapping[str, Any]] = None,
    ) -> None:
        base = _base(source)
        settings = list(base.settings)
        settings.extend(_settings(set))
        for path, whole in (("run.replications", replications), ("run.seed", seed)):
            if whole is not None:
                settings.append(f"{path}={int(whole)}")
        contents = dict(base.files)
        contents.update({name: _bytes(rows) for name, rows in (files or {}).items()})
        directory = os.path.dirname(base.file)

        def read(name: str) -> bytes:
            if name not in contents:
                with open(os.path.join(directory, name), "rb") as file:
                    contents[name] = file.read()
            return contents[name]

        is_quick = base.quick if quick is None else quick

        def parse(text: str) -> _dwell.Scenario:
            return _dwell.Scenario(
                text, file=base.file, id=base.id, settings=settings, quick=is_quick, read=read
            )

        text = base.text
        self._inner = parse(text)
        if grid:
            swept = json.loads(self._inner.points_json())[0]
            for path, steps in grid.items():
                steps = _toml(list(steps))
                if path in swept:
                    settings.append(f"{path}={steps}")
                else:
                    text += f"\n[[sweep]]\n{path} = {steps}\n"
            self._inner = parse(text)
        files_read = tuple(sorted(contents.items()))
        self.spec = Spec(text, base.file, base.id, tuple(settings), is_quick, files_read)
        self._tasks: Optional[List[Task]] = None

    def __reduce__(self) -> Tuple[Any, ...]:
        return _from_spec, (self.spec,)

    @property
    def id(self) -> str:
        """The name that results have."""
        return self._inner.id

    @property
    def title(self) -> str:
        """The title."""
        return self._inner.title

    @property
    def paper(self) -> str:
        """The paper that it comes from; may be empty."""
        return self._inner.paper

    @property
    def figure(self) -> str:
        """The figure, table or equation of the paper; may be empty."""
        return self._inner.figure

    @property
    def note(self) -> str:
        """Notes for readers; may be empty."""
        return self._inner.note

    @property
    def points(self) -> List[Dict[str, Any]]:
        """The swept values of each point."""
        return json.loads(self._inner.points_json())

    @property
    def tasks(self) -> List[Task]:
        """All runs, point after point."""
        if self._tasks is None:
            self._tasks = [Task(*task) for task in self._inner.tasks()]
        return self._tasks

    def check(self, metric: str) -> None:
        """Checks that some of its runs can have a value for a metric, or a formula over metrics.

        :raises ValueError: with the name that none can have, and the nearest one that there is.
        """
        self._inner.check(metric)

    def __repr__(self) -> str:
        return f"<dwell.sim.Scenario {self.id}: {len(self.points)} points, {len(self.tasks)} runs>"


class Summary(NamedTuple):
    """The runs of a point together."""

    count: int  # type: ignore[assignment]
    mean: float
    confidence: Optional[float]
    """Half of the 95 % interval of the mean (Student's t); none of one run."""
    min: float
    max: float


class Point(NamedTuple):
    """A point of a sweep and a metric of its runs."""

    values: Dict[str, Any]
    summary: Optional[Summary]
    """None if no run has a value for it."""


@dataclass(frozen=True)
class Interval:
    """When a point has enough runs: the 95 % interval of a metric's mean is narrow enough.

    :param metric: a formula over metrics, as in scenarios.
    :param relative: half the interval, as a share of the mean.
    :param absolute: half the interval, in the metric's unit. With both, one of them suffices.
    :param at_least: the number of replications to begin with.
    """

    metric: str
    relative: Optional[float] = None
    absolute: Optional[float] = None
    at_least: int = 3

    def __post_init__(self) -> None:
        widths = [width for width in (self.relative, self.absolute) if width is not None]
        if not widths or not all(width > 0 for width in widths):
            raise ValueError("an interval has a relative or an absolute width, greater than zero")
        if self.at_least < 2:
            raise ValueError("an interval takes at least two runs")

    def missing(self, values: Sequence[float]) -> float:
        """Returns the factor by which the interval of these values is too wide; 1 or less if it is not."""
        summary = _dwell.summary(values)
        if summary is None:
            return math.inf
        _, mean, half, _, _ = summary
        if half is None:
            return math.inf
        allowed = max(self.absolute or 0.0, (self.relative or 0.0) * abs(mean))
        if half <= allowed:
            return 1.0
        return half / allowed if allowed > 0 else math.inf


class Results:
    """The runs of a scenario that are done. An Arrow table with a row for each, and more."""

    def __init__(self, scenario: Scenario, inner: _dwell.Results) -> None:
        self.scenario = scenario
        self._inner = inner

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object:
        return self.table().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return len(self._inner)

    def table(self) -> Table:
        """Returns a row for each run: names, seed, swept values, metrics (schema ``dwell-runs/1``)."""
        return self._inner.table()

    def series(self) -> Table:
        """Returns the time lines and distributions that the figures draw: key, series, x, y."""
        return self._inner.series()

    def to_arrow(self) -> Any:
        """Returns the table of runs as a ``pyarrow.Table``, without copies."""
        return self.table().to_arrow()

    def to_pandas(self) -> Any:
        """Returns the table of runs as a ``pandas.DataFrame``."""
        return self.table().to_pandas()

    def to_polars(self) -> Any:
        """Returns the table of runs as a ``polars.DataFrame``."""
        return self.table().to_polars()

    def to_parquet(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the table of runs. Equal results give equal bytes (with the same pyarrow)."""
        import pyarrow.parquet

        pyarrow.parquet.write_table(self.to_arrow(), path, compression="zstd")

    def to_jsonl(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the runs as the program does (``results.jsonl``), which goes on from there."""
        replace(path, self._inner.lines())

    def to_csv(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the runs as the program does (``results.csv``)."""
        replace(path, self._inner.csv().encode())

    def to_directory(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes what the program writes with ``--out DIR``: ``results.jsonl``, ``results.csv``, ``report.html`` and
        ``figures/*.svg``.
        """
        figures = os.path.join(path, "figures")
        os.makedirs(figures, exist_ok=True)
        self.to_jsonl(os.path.join(path, "results.jsonl"))
        self.to_csv(os.path.join(path, "results.csv"))
        replace(os.path.join(path, "report.html"), self.html().encode())
        for figure in self.figures():
            name = f"{self.scenario.id.replace('/', '-')}-{figure['id']}.svg"
            replace(os.path.join(figures, name), self.svg(figure["id"]).encode())

    def lines(self) -> bytes:
        """Returns the runs as lines of JSON."""
        return self._inner.lines()

    def claims(self) -> List[Dict[str, Any]]:
        """Returns the numbers that the paper states, beside ours."""
        return json.loads(self._inner.claims_json())

    def figures(self) -> List[Dict[str, Any]]:
        """Returns the scenario's figures: axes, and series of points (x, y, low, high)."""
        return json.loads(self._inner.figures_json())

    def svg(self, figure: str) -> str:
        """Returns a figure as the program draws it."""
        return self._inner.svg(figure)

    def plot(self, figure: Optional[str] = None) -> Any:
        """Draws a figure, or all of them side by side, with matplotlib; what the paper states about a point of it is
        drawn as a hollow diamond.

        :returns: a ``matplotlib.figure.Figure``, to show or to save.
        """
        from dwell import figures

        return figures.drawn(self, figure)

    def text(self) -> str:
        """Returns a table of the points' means."""
        return self._inner.text()

    def report(self) -> str:
        """Returns what the program prints: the title, the points' means, and what the paper says beside them."""
        return self._inner.report()

    def html(self) -> str:
        """Returns the report as a page with charts."""
        return self._inner.html()

    def points(self, metric: str) -> List[Point]:
        """Returns each point with a summary of a metric, or of a formula over metrics."""
        values = self._inner.values(metric)
        return [
            Point(point, Summary(*summary) if (summary := _dwell.summary(runs)) else None)
            for point, runs in zip(self.scenario.points, values)
        ]

    def __repr__(self) -> str:
        return f"<dwell.sim.Results of {self.scenario.id}: {len(self)} of {self._all()} runs>"

    def _all(self) -> int:
        return len({task.key for task in self.scenario.tasks})


def run(
    scenario: Source,
    *,
    set: Values = None,
    quick: Optional[bool] = None,
    replications: Optional[int] = None,
    seed: Optional[int] = None,
    files: Optional[Mapping[str, Any]] = None,
    jobs: Optional[int] = None,
    on: Any = None,
    store: Any = None,
    shard: Optional[Tuple[int, int]] = None,
) -> Results:
    """Runs a scenario; see :class:`Scenario` for what it may be. The interpreter is free meanwhile.

    :param jobs: the number of threads; without it, one for each processor.
    :param on: an engine: ``"local"``, ``"ray"``, ``"dask"``, ``"slurm"``, or a client of one (:mod:`dwell.engines`).
    :param store: where runs are kept, so that only those are done that are missing: a directory, a URL of
        fsspec, or a :class:`dwell.store.Store`.
    :param shard: (i, n): only the runs of the i-th of n shards, from 1, where there is no engine. Which runs those are
        follows from the runs alone.
    """
    built = Scenario(
        scenario, set=set, quick=quick, replications=replications, seed=seed, files=files
    )
    results = Results(built, built._inner.no_results())
    for execute in _executor(results, on, store, jobs, shard):
        execute(None)
    return results


def sweep(
    scenario: Source,
    grid: Mapping[str, Iterable[Any]],
    *,
    replications: Optional[int] = None,
    stop_at: Optional[Interval] = None,
    set: Values = None,
    quick: Optional[bool] = None,
    seed: Optional[int] = None,
    files: Optional[Mapping[str, Any]] = None,
    jobs: Optional[int] = None,
    on: Any = None,
    store: Any = None,
    shard: Optional[Tuple[int, int]] = None,
) -> Results:
    """Runs a scenario for all combinations of values.

    :param grid: the values by the dotted paths of their keys, as in
        ``{"compress.ratio": [0.7, 0.9], "scheme.preset": ["none", "packet"]}``. What the scenario itself
        sweeps beside them, it goes on sweeping.
    :param replications: the number of runs of each point; with ``stop_at``, the most (100 if not given).
    :param stop_at: goes on with further seeds until each point's interval is narrow enough. Which runs
        are done follows from results alone, so it is the same everywhere. A point gets no more if none of its runs
        has a value for the metric.
    :param on: an engine, ``store``, ``shard``: as in :func:`run`.
    :raises ValueError: if no run can have a value for the metric of ``stop_at``; nothing was run then.
    """
    if stop_at is not None and replications is None:
        replications = 100
    built = Scenario(
        scenario,
        set=set,
        grid=grid,
        quick=quick,
        replications=replications,
        seed=seed,
        files=files,
    )
    if stop_at is not None and shard is not None:
        raise ValueError("a shard knows too few runs to stop at an interval: leave one of them out")
    if stop_at is not None:
        built.check(stop_at.metric)
    results = Results(built, built._inner.no_results())
    for execute in _executor(results, on, store, jobs, shard):
        if stop_at is None:
            execute(None)
        else:
            for places in _rounds(results, stop_at):
                execute(places)
    return results


def _executor(
    results: Results,
    on: Any,
    store: Any,
    jobs: Optional[int],
    shard: Optional[Tuple[int, int]],
) -> Iterator[Callable[[Optional[List[int]]], None]]:
    """Yields a function that does runs at some places, or all, once; an engine that was begun ends afterwards."""
    inner = results.scenario._inner
    if on is None and store is None and shard is None:
        yield lambda places: results._inner.add_lines(inner.run(places, jobs=jobs).lines())
        return
    from dwell import campaign, engines
    from dwell.store import opened

    kept = opened(store)
    if kept is not None:
        campaign.restore(results, kept)
    with engines.engine(on or "local", jobs) as engine:
        yield lambda places: campaign.execute(results, engine, kept, places, shard)


def _rounds(results: Results, stop_at: Interval) -> Iterable[List[int]]:
    """Yields the places of the runs to do next, round after round, until no point needs more."""
    by_point: Dict[int, List[int]] = {}
    for place, task in enumerate(results.scenario.tasks):
        by_point.setdefault(task.point, []).append(place)
    wanted = {point: min(stop_at.at_least, len(all)) for point, all in by_point.items()}
    done = {point: 0 for point in by_point}
    while True:
        places = [
            place for point, all in by_point.items() for place in all[done[point] : wanted[point]]
        ]
        if not places:
            return
        yield places
        done.update(wanted)
        values = results._inner.values(stop_at.metric)
        for point, all in by_point.items():
            # More runs would not help.
            if not values[point]:
                continue
            # The interval narrows with the root of the number of runs; at most four times as many at once.
            factor = min(stop_at.missing(values[point][: done[point]]), 2.0)
            if factor > 1.0:
                wanted[point] = min(max(done[point] + 1, math.ceil(done[point] * factor**2)), len(all))


def _settings(given: Values) -> List[str]:
    """Returns values as words of a command line."""
    if isinstance(given, str):
        raise TypeError("set takes a dictionary, or a list of words such as compress.ratio=0.8")
    if isinstance(given, Mapping):
        return [f"{path}={_toml(value)}" for path, value in given.items()]
    return list(given or ())


def _from_spec(spec: Spec) -> Scenario:
    scenario = Scenario.__new__(Scenario)
    scenario.spec, scenario._inner, scenario._tasks = spec, spec.read(), None
    return scenario


def _base(source: Source) -> Spec:
    """Returns what a scenario is read from before anything is set."""
    if isinstance(source, Scenario):
        return source.spec
    if isinstance(source, Mapping):
        text = _dwell.toml_of_json(json.dumps(_nested(source)))
        return Spec(text, "scenario", "scenario", (), False, ())
    name = os.fspath(source)
    if "\n" in name:
        return Spec(name, "scenario", "scenario", (), False, ())
    carried = _dwell.scenario_text(name)
    if carried is not None:
        return Spec(carried, f"{name}.toml", name, (), False, ())
    if not os.path.exists(name) and not name.endswith(".toml"):
        raise ScenarioError(
            f'there is no scenario "{name}": dwell.sim.names() lists those that need no file'
        )
    with open(name, encoding="utf-8") as file:
        text = file.read()
    return Spec(text, name, os.path.splitext(os.path.basename(name))[0], (), False, ())


_CONDITIONS = ("where", "against")


def _nested(scenario: Mapping[str, Any]) -> Dict[str, Any]:
    """Turns dotted keys of tables into tables, where TOML would."""
    out = _expanded({key: scenario[key] for key in scenario if key not in ("figure", "paper")})
    for name in ("figure", "paper"):
        if name in scenario:
            out[name] = [
                {key: _expanded(it) if key in _CONDITIONS else it for key, it in item.items()}
                for item in scenario[name]
            ]
    return out


def _expanded(value: Any) -> Any:
    if isinstance(value, Mapping):
        out: Dict[str, Any] = {}
        for path, item in value.items():
            *tables, key = path.split(".")
            at = out
            for table in tables:
                at = at.setdefault(table, {})
            item = _expanded(item)
            if isinstance(item, dict) and isinstance(at.get(key), dict):
                at[key].update(item)
            else:
                at[key] = item
        return out
    if isinstance(value, (list, tuple)):
        return [_expanded(item) for item in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    """Returns numbers of numpy and the like as Python's."""
    return value.item() if hasattr(value, "item") and not isinstance(value, (str, bytes)) else value


def _toml(value: Any) -> str:
    """Returns a value as it is written in TOML."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, (list, tuple, range)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    raise TypeError(f"a scenario has no values like {value!r}: write a string with its unit, or a number")


def _bytes(rows: Any) -> bytes:
    """Returns a file's contents: bytes and text as they are, rows of numbers as lines."""
    if isinstance(rows, (bytes, bytearray, memoryview)):
        return bytes(rows)
    if isinstance(rows, str):
        return rows.encode()
    if hasattr(rows, "to_pydict"):
        # A table of Arrow.
        rows = zip(*rows.to_pydict().values())
    elif not hasattr(rows, "tolist") and hasattr(rows, "to_numpy"):
        # A data frame of pandas or polars.
        rows = rows.to_numpy()
    rows = rows.tolist() if hasattr(rows, "tolist") else rows
    return "".join(",".join(_number(value) for value in row) + "\n" for row in rows).encode()


def _number(value: Any) -> str:
    value = _plain(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return repr(value)
