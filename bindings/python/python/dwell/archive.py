"""Analyses of many captures on an engine, with a store: each capture is a task, long ones are several, and sums are made
where they are."""

from __future__ import annotations

import functools
import gzip
import hashlib
import itertools
import json
import os
import tempfile
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from dwell import _dwell
from dwell.engines import Engine, Failed, guarded
from dwell.store import Store
from dwell.trace import Analysis, Place, Unreadable

__all__ = ["analyze"]

ARITY = 16
"""So many sums are added up by one task."""
TOGETHER_BYTES = 64 << 20
"""Smaller captures go to a worker together, up to so many bytes, a second or so: beside it, what an engine takes for a
task is little."""
LEAST_BYTES = 1 << 20
"""A capture counts at least so much, so that not too many go together."""
BATCHES_PER_WORKER = 8
"""At least so many, if there are as many captures, so that workers end at the same time."""
PIECE_BYTES = 64 << 20
"""A piece of a long capture has about so many bytes."""
PIECES_MIN = 4
"""A long capture has at least so many pieces; else to read it once more is not worth it."""
SHARE = 0.25
"""And at least so much of the bytes that each worker gets: who has less of them at the end keeps nobody waiting."""


class Capture(NamedTuple):
    """A capture to analyse: a task."""

    place: Place
    settings: str
    sides: Union[str, Tuple[str, ...]]
    measure_time: bool
    store: Store
    name: str
    """Of its files in the store: the hash of all that they follow from."""
    size: int
    """In bytes, as far as known."""


class Found(NamedTuple):
    """What is known of a capture that was analysed."""

    name: str
    fingerprint: str
    packets: int


class Piece(NamedTuple):
    """A piece of a long capture: a task."""

    capture: Capture
    number: int
    cut: Tuple[int, int, int]
    """Its begin and its end in bytes, and the number of its first batch."""

    @property
    def file(self) -> str:
        """The name of its file in the store."""
        return f"pieces/{self.capture.name}.{self.number}.json.gz"


class Planned(NamedTuple):
    """What is known of a long capture whose accounts were kept: :class:`Found`, and its pieces."""

    found: Found
    cuts: List[Tuple[int, int, int]]


class Join(NamedTuple):
    """The pieces of a long capture, to be added up: a task."""

    capture: Capture
    planned: Planned


class Cut(NamedTuple):
    """A long capture, to be cut: a task."""

    capture: Capture
    piece_bytes: int


Item = Union[Cut, List[Capture], Piece, Join]
"""What an engine is given: a long capture, some others, a piece of a long one, or all of its pieces."""


def analyze(
    places: Sequence[Place],
    settings: str,
    engine: Engine,
    store: Optional[Store],
    *,
    sides: Union[str, Sequence[str]],
    measure_time: bool,
    shard: Optional[Tuple[int, int]] = None,
) -> Analysis:
    """Analyses captures that the store has no analysis of, and adds all up."""
    if store is None:
        if engine.is_elsewhere:
            raise ValueError("an engine's workers need a store that all of them reach: store=…")
        with tempfile.TemporaryDirectory(prefix="dwell-") as directory:
            return analyze(
                places, settings, engine, Store(directory), sides=sides, measure_time=measure_time
            )
    sides = sides if isinstance(sides, str) else tuple(sides)
    tasks = [_task(place, settings, sides, measure_time, store) for place in places]
    if shard is not None:
        part, of = shard
        tasks = [task for at, task in enumerate(tasks) if at % of == part - 1]
    found, unreadable = _analyzed(tasks, engine, store)
    kept, left_out = _once(tasks, found)
    whole = _merged(kept, engine, store)
    inner = (
        _dwell.Analysis.from_json(_unpacked(store, whole)) if whole else _dwell.analyze(
            [], settings, sides="one-way", measure_time=False, jobs=1
        )[0]
    )
    return Analysis(inner, unreadable, left_out)


def _analyzed(
    tasks: Sequence[Capture], engine: Engine, store: Store
) -> Tuple[Dict[str, Found], List[Unreadable]]:
    """Returns what is known of each capture by the name of its file, and those that can't be read."""
    there = set(store.names("captures"))
    done = [task.name for task in tasks if _meta(task.name) in there]
    known = {name: Found(*json.loads(data)) for name, data in zip(done, store.read_each(map(_meta, done)))}
    long, short = _long([task for task in tasks if task.name not in known], engine.workers)
    work = _Work(store, known)
    items: List[Item] = [*(Cut(task, PIECE_BYTES) for task in long), *_together(short, engine.workers)]
    while items:
        following = [work.ended(items[at], result) for at, result in engine.run(do, items)]
        # The longest first, so that no worker is left alone with one at the end.
        items = sorted(itertools.chain(*following), key=_bytes, reverse=True)
    unreadable = [Unreadable(task.place[0], work.failed[task.name]) for task in tasks if task.name in work.failed]
    return known, unreadable


def do(item: Item) -> Any:
    """Does what an engine was given."""
    if isinstance(item, Cut):
        return plan_one(item)
    if isinstance(item, Piece):
        return analyze_piece(item)
    return join_pieces(item) if isinstance(item, Join) else analyze_some(item)


def _bytes(item: Item) -> int:
    if isinstance(item, Piece):
        begin, end, _ = item.cut
        return end - begin
    return sum(task.size for task in item) if isinstance(item, list) else 0


class _Work:
    """What has become of captures so far."""

    def __init__(self, store: Store, known: Dict[str, Found]) -> None:
        self.known, self._store = known, store
        self.failed: Dict[str, str] = {}
        self._pieces_left: Dict[str, int] = {}
        self._planned: Dict[str, Planned] = {}

    def ended(self, item: Item, result: Any) -> List[Item]:
        """Notes the result of a task; returns what is to be done then."""
        if isinstance(item, Cut):
            return self._cut(item.capture, result)
        if isinstance(item, Piece):
            return self._piece(item, result)
        if isinstance(item, Join):
            self._note(item.capture, result)
            return []
        if isinstance(result, Failed) and len(item) > 1:
            # The worker ended again and again: only the captures by themselves tell at which.
            return [[task] for task in item]
        for task, each in zip(item, [result] if isinstance(result, Failed) else result):
            self._note(task, each)
        return []

    def _note(self, task: Capture, result: Union[Found, Failed]) -> None:
        if isinstance(result, Failed):
            self.failed[task.name] = result.why
        else:
            self.known[task.name] = result

    def _cut(self, task: Capture, result: Union[None, Planned, Failed]) -> List[Item]:
        if isinstance(result, Failed):
            self.failed[task.name] = result.why
            return []
        if result is None:
            return [[task]]
        there = set(self._store.names("pieces"))
        missing: List[Item] = [it for it in _pieces(task, result) if it.file not in there]
        self._planned[task.name], self._pieces_left[task.name] = result, len(missing)
        return missing or [Join(task, result)]

    def _piece(self, item: Piece, result: Optional[Failed]) -> List[Item]:
        task, (begin, end, _) = item.capture, item.cut
        if isinstance(result, Failed):
            self.failed[task.name] = f"its bytes {begin} to {end}: {result.why}"
        self._pieces_left[task.name] -= 1
        is_ready = self._pieces_left[task.name] == 0 and task.name not in self.failed
        return [Join(task, self._planned[task.name])] if is_ready else []


def _long(tasks: Sequence[Capture], workers: int) -> Tuple[List[Capture], List[Capture]]:
    """Returns the captures to be analysed in pieces, and the others."""
    least = max(PIECES_MIN * PIECE_BYTES, SHARE * sum(task.size for task in tasks) / workers)
    long = [task for task in tasks if task.size >= least and _dwell.can_be_cut(task.place, task.settings)]
    return long, [task for task in tasks if task not in long]


def _together(tasks: Sequence[Capture], workers: int) -> List[List[Capture]]:
    """Returns the captures of each task of an engine. Long ones come first, so that no worker is left alone with one at
    the end; one whose size is not known is the last of its task.
    """
    limit = min(TOGETHER_BYTES, sum(task.size for task in tasks) // (BATCHES_PER_WORKER * workers))
    out: List[List[Capture]] = []
    size = limit
    for task in sorted(tasks, key=lambda task: -task.size):
        if size >= limit:
            out.append([])
            size = 0
        out[-1].append(task)
        size += max(task.size, LEAST_BYTES) if task.size else limit
    return out


def _meta(name: str) -> str:
    """Returns the name of the file that says what is known of a capture: it is written when the analysis is there."""
    return f"captures/{name}.meta.json"


def _once(
    tasks: Sequence[Capture], found: Dict[str, Found]
) -> Tuple[List[str], List[str]]:
    """Returns the analyses to add up, and the captures whose packets others have."""
    seen, kept, left_out = set(), [], []
    for task in tasks:
        it = found.get(task.name)
        if it is None:
            continue
        if it.packets > 0 and it.fingerprint in seen:
            left_out.append(task.place[0])
            continue
        seen.add(it.fingerprint)
        kept.append(f"captures/{task.name}.json.gz")
    return kept, left_out


def analyze_some(tasks: Sequence[Capture]) -> List[Union[Found, Failed]]:
    """Analyses captures, of which some may fail. What was done when their worker died is not done again."""
    # A worker begins with the first one: if that has no analysis yet, none has.
    is_again = len(tasks) > 1 and isinstance(guarded(_known, tasks[0]), Found)
    return [guarded(_analyze_unless_known if is_again else analyze_one, task) for task in tasks]


def _analyze_unless_known(task: Capture) -> Found:
    return _known(task) or analyze_one(task)


def _known(task: Capture) -> Optional[Found]:
    """Returns what the store knows of a capture."""
    data = _read(task.store, _meta(task.name))
    return Found(*json.loads(data)) if data else None


def _read(store: Store, name: str) -> Optional[bytes]:
    try:
        return store.read(name)
    except FileNotFoundError:
        return None


def analyze_one(task: Capture) -> Found:
    """Analyses a capture, and writes it to the store."""
    sides = task.sides if isinstance(task.sides, str) else list(task.sides)
    inner, unreadable, _ = _dwell.analyze(
        [task.place], task.settings, sides=sides, measure_time=task.measure_time, jobs=1
    )
    if unreadable:
        raise _dwell.CaptureError(unreadable[0][1])
    data = inner.json()
    return _written(task, data, _found(data))


def _found(data: bytes) -> Found:
    file = json.loads(data)["files"][0]
    return Found(file["name"], file["fingerprint"], file["frames"]["packets"])


def _written(task: Capture, data: bytes, found: Found) -> Found:
    task.store.write(f"captures/{task.name}.json.gz", gzip.compress(data, 1, mtime=0))
    # Last: what has it is complete.
    task.store.write(_meta(task.name), json.dumps(found).encode())
    return found


def plan_one(item: Cut) -> Optional[Planned]:
    """Reads a long capture once, for all but what its packets become, and finds its pieces; none if it can't be cut."""
    task, piece_bytes = item
    plan = _plan(task)
    done_before = _read(task.store, plan)
    if done_before:
        found, cuts = json.loads(done_before)
        return Planned(Found(*found), [tuple(cut) for cut in cuts])
    sides = task.sides if isinstance(task.sides, str) else list(task.sides)
    done = _dwell.analyze_around(
        task.place, task.settings, sides=sides, measure_time=task.measure_time, piece_bytes=piece_bytes
    )
    if done is None:
        return None
    data = done[0].json()
    planned = Planned(_found(data), done[1])
    task.store.write(_accounts(task), gzip.compress(data, 1, mtime=0))
    task.store.write(plan, json.dumps(planned).encode())
    return planned


def _plan(task: Capture) -> str:
    return f"pieces/{task.name}.plan.json"


def _accounts(task: Capture) -> str:
    return f"pieces/{task.name}.accounts.json.gz"


def _pieces(task: Capture, planned: Planned) -> Iterator[Piece]:
    return (Piece(task, number, cut) for number, cut in enumerate(planned.cuts))


def analyze_piece(piece: Piece) -> None:
    """Compresses the packets of a piece, and writes the sums to the store."""
    task = piece.capture
    inner = _dwell.analyze_piece(task.place, task.settings, piece.cut, measure_time=task.measure_time)
    task.store.write(piece.file, gzip.compress(inner.json(), 1, mtime=0))


def join_pieces(item: Join) -> Found:
    """Adds the pieces of a capture up to its analysis, and removes them."""
    task, planned = item
    # Who ended while it removed them is run again.
    found = _known(task) or _joined(item)
    for name in [_plan(task), _accounts(task), *(it.file for it in _pieces(task, planned))]:
        task.store.remove(name)
    return found


def _joined(item: Join) -> Found:
    task, planned = item
    whole = _dwell.Analysis.from_json(_unpacked(task.store, _accounts(task)))
    for piece in _pieces(task, planned):
        part = _dwell.Analysis.from_json(_unpacked(task.store, piece.file))
        whole = _dwell.Analysis.merge([whole, part])
    return _written(task, whole.json(), planned.found)


def _merged(names: List[str], engine: Engine, store: Store) -> Optional[str]:
    """Adds analyses up as a tree, in their order; returns the name of the sum."""
    known = set(store.names("merged"))
    while len(names) > 1:
        groups = [names[at : at + ARITY] for at in range(0, len(names), ARITY)]
        sums = [_sum_name(group) if len(group) > 1 else group[0] for group in groups]
        missing = [
            (store, group, name)
            for group, name in zip(groups, sums)
            if len(group) > 1 and name not in known
        ]
        for _, ended in engine.run(merge_group, missing):
            if isinstance(ended, Failed):
                raise _dwell.Error(f"analyses don't add up: {ended.why}")
        names = sums
    return names[0] if names else None


def _sum_name(group: Sequence[str]) -> str:
    return f"merged/{hashlib.sha256(chr(10).join(group).encode()).hexdigest()[:32]}.json.gz"


def merge_group(task: Tuple[Store, Sequence[str], str]) -> None:
    """Adds some analyses up, and writes the sum to the store."""
    store, names, name = task
    # Two at a time in memory.
    whole = _dwell.Analysis.from_json(_unpacked(store, names[0]))
    for part in names[1:]:
        whole = _dwell.Analysis.merge([whole, _dwell.Analysis.from_json(_unpacked(store, part))])
    store.write(name, gzip.compress(whole.json(), 1, mtime=0))


def _unpacked(store: Store, name: str) -> bytes:
    return gzip.decompress(store.read(name))


def _task(
    place: Place, settings: str, sides: Union[str, Tuple[str, ...]], measure_time: bool, store: Store
) -> Capture:
    state = _state(place)
    # All that an analysis follows from; of the capture its name, size and time.
    all_of_it = [place[0], state, settings, sides, measure_time, _build()]
    name = hashlib.sha256(json.dumps(all_of_it).encode()).hexdigest()[:32]
    return Capture(place, settings, sides, measure_time, store, name, (state and state[0]) or 0)


def _state(place: Place) -> Optional[List[Any]]:
    """Returns the size of a capture, and what changes with its contents."""
    name, source = place
    if isinstance(source, str):
        try:
            status = os.stat(source)
        except OSError:
            return None
        return [status.st_size, status.st_mtime_ns]
    file = source.__self__  # type: ignore[attr-defined]
    information = file.fs.info(file.path)
    for key in ("ETag", "etag", "md5", "mtime", "LastModified", "created"):
        if key in information:
            return [information.get("size"), str(information[key])]
    return [information.get("size"), None]


@functools.lru_cache(maxsize=1)
def _build() -> str:
    """Returns a hash of the code that analyses follow from: another build's are not taken for its own."""
    with open(_dwell.__file__, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
