"""Runs of simulations on an engine, with a store: what is there already is not done again."""

from __future__ import annotations

import functools
import hashlib
import io
import json
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from dwell._dwell import Error
from dwell.engines import Engine, Failed
from dwell.sim import Results, Scenario, Spec
from dwell.store import Store

__all__ = ["execute", "restore"]

SCHEMA = "dwell-store-runs/2"
"""The version of the code is the partition, so that it is no column of a file: readers refuse one that is both."""
EFFORT_PER_BATCH = 4.0
"""Millions of packets on links, a second or so: beside it, what an engine takes for a task is little."""
BATCHES_PER_WORKER = 4
"""At least so many, so that workers end at the same time."""


class Batch(NamedTuple):
    """Some runs of a scenario: a task."""

    spec: Spec
    places: Tuple[int, ...]
    store: Optional[Store]


def restore(results: Results, store: Store) -> None:
    """Adds the runs of the scenario that the store has."""
    wanted = {task.key for task in results.scenario.tasks}
    names = [name for name in store.names(_directory()) if name.endswith(".parquet")]
    for data in store.read_each(names):
        keys = _column(data, "key")
        if wanted.isdisjoint(keys):
            continue
        lines = (line for key, line in zip(keys, _column(data, "record")) if key in wanted)
        results._inner.add_lines("".join(f"{line}\n" for line in lines).encode())


def execute(
    results: Results,
    engine: Engine,
    store: Optional[Store],
    places: Optional[Sequence[int]] = None,
    shard: Optional[Tuple[int, int]] = None,
) -> None:
    """Does the runs that the results lack, of all or of those at some places, and adds them.

    :raises Error: if some gave no result; all others are there, and in the store, by then.
    """
    scenario = results.scenario
    missing = results._inner.missing()
    if places is not None:
        keys = {scenario.tasks[place].key for place in places}
        missing = [place for place in missing if scenario.tasks[place].key in keys]
    if shard is not None:
        missing = [place for place in missing if _is_of(scenario.tasks[place].key, shard)]
    batches = [
        Batch(scenario.spec, tuple(batch), store) for batch in _batched(scenario, missing, engine)
    ]
    failed: List[str] = []
    for at, ended in engine.run(run_batch, batches):
        if isinstance(ended, Failed):
            failed.append(f"{len(batches[at].places)} runs: {ended.why}")
        else:
            results._inner.add_lines(_lines(ended, store))
    if failed:
        raise Error(f"{len(failed)} of {len(batches)} tasks gave no result; the first: {failed[0]}")


def _is_of(key: str, shard: Tuple[int, int]) -> bool:
    """Whether a run is of the shard i of n, from 1. It follows from the run alone, whatever else is swept."""
    part, of = shard
    return int(key[:16], 16) % of == part - 1


def _batched(scenario: Scenario, places: Sequence[int], engine: Engine) -> List[List[int]]:
    efforts = [scenario.tasks[place].effort for place in places]
    batches = BATCHES_PER_WORKER * engine.workers
    limit = min(EFFORT_PER_BATCH, sum(efforts) / batches) if places else 0.0
    # Long runs first, so that no worker is left alone with one at the end.
    order = sorted(range(len(places)), key=lambda at: -efforts[at])
    out: List[List[int]] = []
    effort = limit
    for at in order:
        if effort >= limit:
            out.append([])
            effort = 0.0
        out[-1].append(places[at])
        effort += efforts[at]
    return out


@functools.lru_cache(maxsize=8)
def _scenario(spec: Spec) -> Any:
    return spec.read()


def run_batch(batch: Batch) -> Any:
    """Does the runs of a batch, and returns them as lines, or the name of their file in the store."""
    results = _scenario(batch.spec).run(list(batch.places), jobs=1)
    lines = results.lines()
    return lines if batch.store is None else _write(batch.store, lines)


def _write(store: Store, lines: bytes) -> str:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    records = sorted(lines.decode().splitlines())
    runs = [json.loads(record) for record in records]
    schema = pa.schema(
        [
            ("key", pa.string()),
            ("scenario", pa.string()),
            ("seed", pa.uint64()),
            ("source_packets", pa.uint64()),
            ("point", pa.string()),
            ("metrics", pa.map_(pa.string(), pa.float64())),
            ("record", pa.string()),
        ],
        metadata={"dwell.schema": SCHEMA},
    )
    columns = {
        **{name: [run[name] for run in runs] for name in ("key", "scenario", "seed")},
        "source_packets": [run["source_packets"] for run in runs],
        "point": [json.dumps(run["point"], sort_keys=True) for run in runs],
        "metrics": [list(run["metrics"].items()) for run in runs],
        "record": records,
    }
    out = io.BytesIO()
    parquet.write_table(pa.table(columns, schema=schema), out, compression="zstd")
    digest = hashlib.sha256("\n".join(columns["key"]).encode()).hexdigest()[:32]
    name = f"{_directory()}/{digest}.parquet"
    store.write(name, out.getvalue())
    return name


def _lines(ended: Any, store: Optional[Store]) -> bytes:
    if store is None:
        return ended
    return "".join(f"{record}\n" for record in _column(store.read(ended), "record")).encode()


def _column(data: bytes, name: str) -> List[str]:
    """Returns a column of a file. Arrow's own threads are left out: they gain nothing on files this small, and one
    that still runs when the process exits aborts it (apache/arrow#34314)."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    file = parquet.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    return file.read(columns=[name], use_threads=False)[name].to_pylist()


def _directory() -> str:
    from dwell._dwell import CODE

    return f"runs/code={CODE}"
