"""Analyses of many captures on an engine, with a store: each capture is a task, and sums are made where they are."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import os
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

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
    batches = _together([task for task in tasks if task.name not in known], engine.workers)
    failed: Dict[str, str] = {}
    while batches:
        again: List[List[Capture]] = []
        for at, all_of_it in engine.run(analyze_some, batches):
            batch = batches[at]
            if isinstance(all_of_it, Failed) and len(batch) > 1:
                # The worker ended again and again: only the captures by themselves tell at which.
                again.extend([task] for task in batch)
                continue
            each = [all_of_it] if isinstance(all_of_it, Failed) else all_of_it
            for task, ended in zip(batch, each):
                if isinstance(ended, Failed):
                    failed[task.name] = ended.why
                else:
                    known[task.name] = ended
        batches = again
    unreadable = [Unreadable(task.place[0], failed[task.name]) for task in tasks if task.name in failed]
    return known, unreadable


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
    """Analyses captures, of which some may fail."""
    return [guarded(analyze_one, task) for task in tasks]


def analyze_one(task: Capture) -> Found:
    """Analyses a capture, and writes it to the store."""
    sides = task.sides if isinstance(task.sides, str) else list(task.sides)
    inner, unreadable, _ = _dwell.analyze(
        [task.place], task.settings, sides=sides, measure_time=task.measure_time, jobs=1
    )
    if unreadable:
        raise _dwell.CaptureError(unreadable[0][1])
    data = inner.json()
    file = json.loads(data)["files"][0]
    found = Found(file["name"], file["fingerprint"], file["frames"]["packets"])
    task.store.write(f"captures/{task.name}.json.gz", gzip.compress(data, 1, mtime=0))
    # Last: what has it is complete.
    task.store.write(_meta(task.name), json.dumps(found).encode())
    return found


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
