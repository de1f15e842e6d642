"""The same sweep on each engine: its time, and whether the results are the same bytes.

    python benchmarks/engines.py --on threads,local,dask,ray,slurm

Each engine has two workers on this machine: two threads, two processes of Dask, two nodes of Ray, two virtual nodes of Slurm.
First a thousand short runs: what an engine takes for a task is what is left beside two threads, divided by the runs. Then
fewer and longer ones, by one worker and by two; and once more while a worker that is at work is killed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import uuid
from typing import Any, Iterator, Optional

import pyarrow.parquet
from dwell import engines, sim

ROOT = pathlib.Path(__file__).resolve().parents[1]
GRID = {"scheme.preset": ["packet"], "compress.ratio": [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]}
SHORT = {"run.warm_up": "10ms", "run.measure": "20ms", "run.drain": "10ms"}
LONG = {"run.warm_up": "100ms", "run.measure": "20s", "run.drain": "10ms"}
MARK = "DWELL_BENCHMARK"
"""In the environment of all processes that are begun here, and of no other."""


@contextlib.contextmanager
def begun(name: str, workers: int, directory: str) -> Iterator[Any]:
    """Begins an engine, and ends it."""
    if name in ("threads", "local"):
        yield None if name == "threads" else "local"
    elif name == "dask":
        import distributed

        options = {"processes": True, "threads_per_worker": 1, "dashboard_address": None}
        with distributed.LocalCluster(n_workers=workers, **options) as cluster, distributed.Client(cluster) as client:
            yield client
    elif name == "ray":
        import ray
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        for _ in range(workers - 1):
            cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        try:
            yield ray
        finally:
            ray.shutdown()
            cluster.shutdown()
    else:
        sys.path.append(str(ROOT / "tests"))
        from conftest import Cluster as Slurm

        with tempfile.TemporaryDirectory(prefix="dwell-slurm-") as at:
            os.chmod(at, 0o755)
            with Slurm(pathlib.Path(at)) as cluster:
                cluster.wait()
                yield engines.Slurm(directory, workers=workers)


def swept(on: Any, settings: dict, replications: int, workers: int) -> Any:
    """Does the sweep."""
    return sim.sweep("shimamura/fig-8", GRID, set=settings, quick=True, replications=replications, on=on, jobs=workers)


def digest(results: Any) -> str:
    """Returns the hash of the runs as Parquet, sorted by their keys."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "runs.parquet")
        pyarrow.parquet.write_table(results.to_arrow().sort_by("key"), path)
        return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]


def workers_at_work() -> Iterator[int]:
    """Yields processes that were begun here and do tasks now."""
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            at = pathlib.Path(entry.path)
            is_ours = f"{MARK}={os.environ[MARK]}".encode() in (at / "environ").read_bytes().split(b"\0")
            words = (at / "cmdline").read_bytes()
            does_tasks = any(it in words for it in (b"ray::", b"dwell._slurm", b"multiprocessing.spawn"))
            if is_ours and does_tasks and int(entry.name) != os.getpid() and runs(at):
                yield int(entry.name)


def runs(at: pathlib.Path) -> bool:
    """Returns true if a thread of a process has a processor or wants one: tasks are not in its first one."""
    states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in (at / "task").iterdir()]
    return "R" in states


def kill_one(killed: list) -> None:
    """Ends the first worker that is seen at work three times in a row."""
    last, seen, end = None, 0, time.monotonic() + 60
    while time.monotonic() < end:
        pid: Optional[int] = next(workers_at_work(), None)
        last, seen = pid, seen + 1 if pid is not None and pid == last else 1
        if pid is not None and seen == 3:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            return
        time.sleep(0.05)


def timed(name: str, what: str, rounds: int, do: Any) -> tuple:
    """Prints what each round took and the hash of its results; returns the shortest time, and the hashes."""
    times, hashes = [], set()
    for _ in range(rounds):
        begin = time.perf_counter()
        results = do()
        times.append(time.perf_counter() - begin)
        hashes.add(digest(results))
    shown = ", ".join(f"{it:.2f}" for it in times)
    print(f"{name}, {what}: {len(results)} runs in {shown} s; {' '.join(hashes)}", flush=True)
    return min(times), hashes


def main() -> int:
    """Reads the command line; returns 1 if results differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", default="threads,local,dask,ray,slurm", help="separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-kill", action="store_true", help="kill no worker")
    arguments = parser.parse_args()
    os.environ[MARK] = uuid.uuid4().hex
    short, long, base, spared = set(), set(), None, []
    for name in arguments.on.split(","):
        with tempfile.TemporaryDirectory(prefix="dwell-jobs-") as directory:
            one_s = None
            if name != "slurm":
                with begun(name, 1, directory) as on:
                    swept(on, SHORT, 1, 1)
                    one_s, hashes = timed(name, "one worker", arguments.rounds, lambda: swept(on, LONG, 3, 1))
                    long |= hashes
            with begun(name, 2, directory) as on:
                swept(on, SHORT, 1, 2)
                two_s, hashes = timed(name, "two workers", arguments.rounds, lambda: swept(on, LONG, 3, 2))
                long |= hashes
                if one_s:
                    print(f"{name}: two workers are {one_s / two_s:.2f} times as fast as one")
                took_s, hashes = timed(name, "two workers", arguments.rounds, lambda: swept(on, SHORT, 100, 2))
                short |= hashes
                base = base or took_s
                print(f"{name}: {(took_s - base):.2f} ms a run beside the first")
                if name not in ("threads", "local") and not arguments.no_kill:
                    killed: list = []
                    killer = threading.Thread(target=kill_one, args=[killed])
                    killer.start()
                    _, hashes = timed(name, "a worker killed", 1, lambda: swept(on, LONG, 3, 2))
                    killer.join()
                    spared += [] if killed else [name]
                    long |= hashes
    is_same = len(short) == len(long) == 1
    print("the same bytes everywhere" if is_same else f"NOT the same: {short} {long}")
    if spared:
        print(f"no worker was seen at work, so that none was killed: {', '.join(spared)}")
    return int(not is_same or bool(spared))


if __name__ == "__main__":
    sys.exit(main())
