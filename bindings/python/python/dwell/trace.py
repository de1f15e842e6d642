"""Captures: what is in them, what schemes would make of them, and their packets as Arrow.

>>> from dwell import trace
>>> analysis = trace.analyze("data/captures/*.pcap", codecs=["lz4"])
>>> analysis.packets
601
>>> trace.packets("data/captures/quic.pcap").read().column_names[:4]
['time', 'source', 'destination', 'protocol']

Captures are pcap or pcapng, plain or compressed with gzip, zstd, bzip2 or xz: paths, patterns, or URLs that
fsspec opens (``s3://…``). Numbers are those of ``dwell trace``.
"""

from __future__ import annotations

import builtins
import glob
import json
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from dwell import _dwell
from dwell._dwell import CaptureError, Error, Table
from dwell._files import replace

__all__ = [
    "Analysis",
    "Packets",
    "Replay",
    "Training",
    "Unreadable",
    "analyze",
    "cuts",
    "merge",
    "packets",
    "replay",
    "train",
    "verdict",
]

Paths = Union[str, "os.PathLike[str]", Iterable[Union[str, "os.PathLike[str]"]]]
Sides = Union[str, Sequence[str]]
Place = Tuple[str, Union[str, Callable[[], Any]]]

RATES = ("1mbit", "10mbit", "100mbit")


class Unreadable(NamedTuple):
    """A capture that can't be read at all."""

    name: str
    why: str


class Analysis:
    """The sums over some captures. Analyses with the same settings add up (:func:`merge`)."""

    def __init__(
        self,
        inner: _dwell.Analysis,
        unreadable: Sequence[Unreadable] = (),
        left_out: Sequence[str] = (),
    ) -> None:
        self._inner = inner
        self.unreadable: List[Unreadable] = list(unreadable)
        """The captures that can't be read at all, and why; what is broken further on was read up to there."""
        self.left_out: List[str] = list(left_out)
        """The captures that others have the same packets as."""

    @classmethod
    def from_json(cls, data: Union[builtins.bytes, str, "os.PathLike[str]"]) -> "Analysis":
        """Reads an analysis: JSON as bytes, or the path of a file that ``dwell trace analyze --out`` wrote."""
        if not isinstance(data, bytes):
            with open(data, "rb") as file:
                data = file.read()
        return cls(_dwell.Analysis.from_json(data))

    def __reduce__(self) -> Tuple[Any, ...]:
        return _unpickled, (self.to_json(), self.unreadable, self.left_out)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Analysis) and self._inner == other._inner

    @property
    def packets(self) -> int:
        """The number of IP packets."""
        return self._inner.packets

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return self._inner.bytes

    @property
    def verdict(self) -> Dict[str, Any]:
        """What the traffic says about a link: the same as in ``dwell trace analyze --json``."""
        return json.loads(self._inner.verdict_json())

    def to_json(self) -> builtins.bytes:
        """Returns the line of JSON that ``dwell trace analyze --json`` prints."""
        return self._inner.json()

    def to_dict(self) -> Dict[str, Any]:
        """Returns the same as a dictionary: ``verdict``, ``summary``, and all sums."""
        return json.loads(self.to_json())

    def classes(self) -> Table:
        """Returns a row for each class of packets and codec (schema ``dwell-classes/1``)."""
        return self._inner.classes()

    def files(self) -> Table:
        """Returns a row for each capture (schema ``dwell-captures/1``)."""
        return self._inner.files()

    def exceptions(self) -> str:
        """Returns the classes that a relay should leave alone, as its ``exceptions_file``."""
        return self._inner.exceptions()

    def text(self, top: int = 20) -> str:
        """Returns the report that the program prints, with this many classes."""
        return self._inner.text(top)

    def html(self, top: int = 20) -> str:
        """Returns the report as a page with charts."""
        return self._inner.html(top)

    def __repr__(self) -> str:
        files = len(self._inner.files())
        return f"<dwell.trace.Analysis of {files} captures, {self.packets} packets>"


def analyze(
    paths: Paths,
    *,
    codecs: Optional[Sequence[str]] = None,
    blocks: Optional[str] = "zstd:1",
    contexts: Optional[str] = "zstd:1",
    over: str = "packet",
    rates: Sequence[str] = RATES,
    bound: bool = True,
    sides: Optional[Sides] = None,
    measure_time: bool = True,
    jobs: Optional[int] = None,
    storage_options: Optional[Dict[str, Any]] = None,
    on: Any = None,
    store: Any = None,
    shard: Optional[Tuple[int, int]] = None,
) -> Analysis:
    """Returns what is in captures, and how many of their bytes could go at most.

    :param codecs: those to measure, with levels; the program's if none are given. An empty list, with
        ``blocks=None`` and ``contexts=None``, only counts.
    :param blocks: the codec to measure blocks with.
    :param contexts: the codec to measure history with.
    :param over: what is compressed: ``"packet"`` or ``"payload"``.
    :param rates: links to compute waiting times for.
    :param bound: whether to find the most that could be saved, which takes longer than all else together, and the
        verdict follows from.
    :param sides: what tells the direction of packets: ``"together"``, all captures, as the program does (the
        default here); ``"each"`` capture by itself (the default with an engine, a store or shards: each capture is a
        task); ``"one-way"``; or a list of the prefixes on one side.
    :param measure_time: without it all times that codecs take are 0, and the result follows from the captures
        alone.
    :param jobs: the number of captures at a time; one for each processor.
    :param storage_options: for fsspec, if paths are URLs.
    :param on: an engine: ``"local"``, ``"ray"``, ``"dask"``, ``"slurm"``, or a client of one (:mod:`dwell.engines`).
    :param store: where analyses are kept, by captures and sums, so that only those are made that are missing: a
        directory, a URL of fsspec, or a :class:`dwell.store.Store`.
    :param shard: (i, n): only the captures of the i-th of n shards, from 1, where there is no engine.
    """
    settings = settings_of(codecs, blocks, contexts, over, rates, bound)
    places = find(paths, storage_options)
    if not (on is None and store is None and shard is None):
        return _on_engine(places, settings, sides, measure_time, jobs, on, store, shard)
    sides = "together" if sides is None else sides
    inner, unreadable, left_out = _dwell.analyze(
        places, settings, sides=_sides(sides), measure_time=measure_time, jobs=jobs
    )
    if len(unreadable) == len(places):
        raise CaptureError("; ".join(f"{name}: {why}" for name, why in unreadable))
    return Analysis(inner, [Unreadable(*it) for it in unreadable], left_out)


def _on_engine(
    places: List[Place],
    settings: str,
    sides: Optional[Sides],
    measure_time: bool,
    jobs: Optional[int],
    on: Any,
    store: Any,
    shard: Optional[Tuple[int, int]],
) -> Analysis:
    from dwell import archive, engines
    from dwell.store import opened

    if sides == "together":
        raise ValueError('on an engine captures are tasks of their own: sides are "each" or prefixes')
    with engines.engine(on or "local", jobs) as engine:
        return archive.analyze(
            places,
            settings,
            engine,
            opened(store),
            sides=sides or "each",
            measure_time=measure_time,
            shard=shard,
        )


def merge(parts: Iterable[Union[Analysis, str, "os.PathLike[str]"]]) -> Analysis:
    """Adds analyses up: objects, or files of ``dwell trace analyze --out``. The sum is the same in any order but
    for that of the captures.

    :raises Error: if their settings differ, or two have the same capture.
    """
    read = [part if isinstance(part, Analysis) else Analysis.from_json(part) for part in parts]
    whole = Analysis(
        _dwell.Analysis.merge([part._inner for part in read]),
        [it for part in read for it in part.unreadable],
        [it for part in read for it in part.left_out],
    )
    twins = _twins(whole)
    if twins:
        raise Error(f"{twins[0][1]} has the same packets as {twins[0][0]}: they would count twice")
    return whole


def _twins(analysis: Analysis) -> List[Tuple[str, str]]:
    """Returns the names of captures with the same packets."""
    seen: Dict[str, str] = {}
    twins = []
    for file in analysis.to_dict()["files"]:
        if file["frames"]["packets"] > 0:
            first = seen.setdefault(file["fingerprint"], file["name"])
            if first != file["name"]:
                twins.append((first, file["name"]))
    return twins


class Replay:
    """What schemes make of captures on a link."""

    def __init__(self, document: Dict[str, Any], text: str, broken: List[Unreadable]) -> None:
        self.document = document
        """What ``dwell trace replay --json`` prints."""
        self.text = text
        """The verdict in words."""
        self.broken = broken
        """Captures that were not read to their end, and why."""

    @property
    def verdict(self) -> Dict[str, Any]:
        """The verdict on the busier direction."""
        return self.document["verdict"]

    @property
    def lanes(self) -> List[Dict[str, Any]]:
        """The results by scheme, the first without dwell."""
        return self.document["lanes"]

    def __repr__(self) -> str:
        return f"<dwell.trace.Replay of {len(self.lanes)} lanes: {self.verdict['answer']}>"


class Training:
    """Dictionaries for small packets, and what they gain."""

    def __init__(self, document: Dict[str, Any], dictionaries: Dict[str, bytes]) -> None:
        self.document = document
        """What ``dwell trace train --json`` prints."""
        self.dictionaries = dictionaries
        """The dictionaries that are worth it, as files, by the classes that they are for."""

    def write(self, directory: Union[str, "os.PathLike[str]"]) -> List[str]:
        """Writes each dictionary, and ``all.dict`` for relays; returns the paths."""
        os.makedirs(directory, exist_ok=True)
        files = {f"{name.replace('/', '-')}.dict": data for name, data in self.dictionaries.items()}
        if files:
            files["all.dict"] = b"".join(self.dictionaries.values())
        paths = []
        for name, data in files.items():
            path = os.path.join(directory, name)
            replace(path, data)
            paths.append(path)
        return paths


def replay(
    paths: Paths,
    rate: str,
    *,
    schemes: Union[str, Sequence[str]] = "all",
    codec: str = "zstd:1",
    compress_cost: Optional[str] = None,
    speed: float = 1.0,
    sides: Sides = "together",
    source: Sequence[str] = (),
    destination: Sequence[str] = (),
    classes: Sequence[str] = (),
    exceptions: Sequence[str] = (),
    queue_time: Optional[str] = None,
    queue_packets: Optional[int] = None,
    queue_bytes: Optional[int] = None,
    block_bytes: int = 8192,
    block_packets: Optional[int] = None,
    poor_ratio: Optional[float] = None,
    objective: str = "time",
    gather_time: str = "20ms",
    dictionaries: Union[Training, Sequence[Union[str, "os.PathLike[str]"]]] = (),
    columnar: bool = True,
    compress_min: int = 64,
    link_overhead: int = 14,
    path_mtu: int = 1500,
    sealed: bool = True,
    ipv6: bool = False,
    cost_per_mb: Optional[float] = None,
    storage_options: Optional[Dict[str, Any]] = None,
) -> Replay:
    """Replays captures over a link, with each scheme: the relay's decisions and codecs in virtual time.

    Options are those of ``dwell trace replay``, with the same defaults. With ``compress_cost="3000,4"``
    (nanoseconds for a packet and for a byte) the numbers are the same on every machine.

    :param dictionaries: what :func:`train` made, or files of it: schemes are shown with and without.
    """
    if source or destination:
        sides = "one-way"
    options = {
        "rate": rate,
        "schemes": [] if schemes == "all" else [schemes] if isinstance(schemes, str) else list(schemes),
        "codec": codec,
        "compress_cost": compress_cost,
        "speed": speed,
        "source": list(source),
        "destination": list(destination),
        "classes": list(classes),
        "exceptions": list(exceptions),
        "queue_time": queue_time,
        "queue_packets": queue_packets,
        "queue_bytes": queue_bytes,
        "block_bytes": block_bytes,
        "block_packets": block_packets,
        "poor_ratio": poor_ratio,
        "objective": objective,
        "gather_time": gather_time,
        "columnar": columnar,
        "compress_min": compress_min,
        "link_overhead": link_overhead,
        "path_mtu": path_mtu,
        "sealed": sealed,
        "ipv6": ipv6,
        "cost_per_mb": cost_per_mb,
    }
    places = find(paths, storage_options)
    document, text, broken = _dwell.replay(
        places, json.dumps(options), sides=_sides(sides), dictionaries=_dictionaries(dictionaries)
    )
    return Replay(json.loads(document), text, [Unreadable(*it) for it in broken])


def _dictionaries(
    given: Union[Training, Sequence[Union[str, "os.PathLike[str]"]]],
) -> List[Tuple[str, bytes]]:
    if isinstance(given, Training):
        return list(given.dictionaries.items())
    files = []
    for path in given:
        with open(path, "rb") as file:
            files.append((os.fspath(path), file.read()))
    return files


def verdict(paths: Paths, rate: Optional[str] = None, **options: Any) -> Dict[str, Any]:
    """Returns whether dwell would help: with the rate of the link by a :func:`replay`, without it by an
    :func:`analyze`, whose options may be given.
    """
    if rate is None:
        return analyze(paths, **options).verdict
    return replay(paths, rate, **options).verdict


def train(
    paths: Paths,
    *,
    codec: str = "zstd:1",
    size: int = 16384,
    min: int = 64,
    max: int = 1000,
    share: float = 0.7,
    measure_time: bool = True,
    storage_options: Optional[Dict[str, Any]] = None,
) -> Training:
    """Trains dictionaries for small packets, and measures what they gain on later ones."""
    document, files = _dwell.train(
        find(paths, storage_options),
        codec_name=codec,
        size=size,
        min=min,
        max=max,
        share=share,
        measure_time=measure_time,
    )
    return Training(json.loads(document), dict(files))


class Packets:
    """The packets of captures: an iterator of tables, and a stream of Arrow's (schema ``dwell-packets/1``)."""

    def __init__(
        self,
        places: List[Place],
        rows: int,
        codecs: Sequence[str],
        range: Optional[Tuple[int, int]],
    ) -> None:
        self._places = places
        self._rows = rows
        self._codecs = list(codecs)
        self._range = range
        self.troubles: Dict[str, str] = {}
        """The damage that ended captures, known when they were read."""

    def __iter__(self) -> Iterator[Table]:
        for place in self._places:
            part = self._open(place)
            yield from part
            if part.trouble:
                self.troubles[place[0]] = part.trouble

    def _open(self, place: Place) -> _dwell.Packets:
        return _dwell.Packets(place, rows=self._rows, codecs=self._codecs, range=self._range)

    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object:
        if len(self._places) == 1:
            return self._open(self._places[0]).__arrow_c_stream__(requested_schema)
        return self.reader().__arrow_c_stream__(requested_schema)

    def reader(self) -> Any:
        """Returns a ``pyarrow.RecordBatchReader`` over all packets; the memory is that of a batch."""
        import pyarrow

        def batches() -> Iterator[Any]:
            for table in self:
                yield from pyarrow.table(table).to_batches()

        schema = pyarrow.RecordBatchReader.from_stream(self._open(self._places[0])).schema
        return pyarrow.RecordBatchReader.from_batches(schema, batches())

    def read(self) -> Any:
        """Returns all packets as a ``pyarrow.Table``, whose columns of words have one dictionary."""
        import pyarrow

        return pyarrow.table(self).unify_dictionaries()

    def to_parquet(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes all packets, batch by batch."""
        import pyarrow.parquet

        reader = self.reader()
        with pyarrow.parquet.ParquetWriter(path, reader.schema, compression="zstd") as writer:
            for batch in reader:
                writer.write_batch(batch)


def packets(
    paths: Paths,
    *,
    codecs: Sequence[str] = (),
    rows: int = 65536,
    range: Optional[Tuple[int, int]] = None,
    storage_options: Optional[Dict[str, Any]] = None,
) -> Packets:
    """Returns the IP packets of captures, one capture after the other.

    :param codecs: for each, a column ``ratio.CODEC``: compressed / original of each packet alone, at most 1.
    :param rows: of a batch, at most.
    :param range: only what lies between two positions of a plain pcap, from :func:`cuts`.
    """
    places = find(paths, storage_options)
    if range is not None and len(places) != 1:
        raise ValueError("a range is one of a single capture")
    return Packets(places, rows, codecs, range)


def cuts(path: Union[str, "os.PathLike[str]"], pieces: int) -> List[Tuple[int, int]]:
    """Returns ranges of a plain pcap, cut between packets, with about as many bytes each. Read one after the other
    (:func:`packets`) they give the packets of the whole.

    Analyses are not cut so: flows, times and history go across.
    """
    positions = _dwell.packet_cuts(os.fspath(path), pieces)
    return list(zip(positions, positions[1:]))


def settings_of(
    codecs: Optional[Sequence[str]],
    blocks: Optional[str],
    contexts: Optional[str],
    over: str,
    rates: Sequence[str],
    bound: bool = True,
) -> str:
    """Returns the settings of an analysis as JSON; equal settings give equal text."""
    return _dwell.trace_settings(
        codecs=None if codecs is None else list(codecs),
        blocks=blocks,
        contexts=contexts,
        over=over,
        rates=list(rates),
        bound=bound,
    )


def find(paths: Paths, storage_options: Optional[Dict[str, Any]] = None) -> List[Place]:
    """Returns the captures that paths, patterns, directories and URLs mean, in their order, each once.

    :raises FileNotFoundError: for what means none.
    """
    names = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    places: Dict[str, Place] = {}
    for name in names:
        name = os.fspath(name)
        for place in _remote(name, storage_options) if "://" in name else _local(name):
            places.setdefault(place[0], place)
    if not places:
        raise FileNotFoundError("no captures are named")
    return list(places.values())


def _local(name: str) -> List[Place]:
    if os.path.isdir(name):
        inside = sorted(os.path.join(at, file) for at, _, files in os.walk(name) for file in files)
        return [(path, path) for path in inside if _is_capture(path)]
    if not os.path.exists(name) and glob.has_magic(name):
        found = sorted(glob.glob(name, recursive=True))
        if not found:
            raise FileNotFoundError(f"no file is like {name}")
        return [(path, path) for path in found if os.path.isfile(path)]
    return [(name, name)]


_ENDINGS = (".pcap", ".pcapng", ".cap", ".dump")
_PACKED = (".gz", ".zst", ".bz2", ".xz")


def _is_capture(path: str) -> bool:
    """Of a directory, what is named like a capture is taken."""
    stem, ending = os.path.splitext(path)
    return (stem if ending in _PACKED else path).rstrip("0123456789").endswith(_ENDINGS)


def _remote(url: str, storage_options: Optional[Dict[str, Any]]) -> List[Place]:
    import fsspec

    files = fsspec.open_files(url, mode="rb", **(storage_options or {}))
    if not files:
        raise FileNotFoundError(f"no object is like {url}")
    return [(file.full_name, file.open) for file in files]


def _sides(sides: Sides) -> Union[str, List[str]]:
    return sides if isinstance(sides, str) else list(sides)


def _unpickled(data: bytes, unreadable: List[Unreadable], left_out: List[str]) -> Analysis:
    return Analysis(_dwell.Analysis.from_json(data), unreadable, left_out)
