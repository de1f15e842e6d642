"""Where tasks run: threads here, Ray, Dask, Slurm, or any ``concurrent.futures`` executor.

Tasks are functions of their argument alone. An engine runs them, and runs those again whose worker died; nothing
here schedules or retries. ``on`` names an engine, or is a client of one:

* ``"local"``: threads of this process, as many as there are processors;
* ``"ray"``: the cluster that ``ray.init`` finds or starts; or the module ``ray``;
* ``"dask"``: a ``LocalCluster`` of processes; or a ``distributed.Client``;
* ``"slurm"``: array jobs of ``sbatch``; or a :class:`Slurm` with options;
* an object with ``submit``, as ``concurrent.futures.ProcessPoolExecutor``.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

from dwell._dwell import Error

__all__ = ["Failed", "Slurm"]

RETRIES = 3
"""How often an engine runs a task again whose worker died."""


class Failed(NamedTuple):
    """A task that gave no result."""

    why: str


Ended = Tuple[int, Any]
"""The place of a task among its siblings, and its result or :class:`Failed`."""


class Engine:
    """What runs tasks."""

    workers = 1
    """About as many tasks run at once."""
    is_elsewhere = True
    """Tasks may run on machines that see only what they are given."""

    def run(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Ended]:
        """Yields each task's result as it comes. What a task raises is :class:`Failed`."""
        raise NotImplementedError

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: Any) -> None:
        """Ends what was begun for it; clients that were given stay."""

    @property
    def _window(self) -> int:
        """No more tasks are with the engine at once: the driver's memory does not grow with their number."""
        return 4 * self.workers + 4


def guarded(function: Callable[[Any], Any], item: Any) -> Any:
    """Calls a function; what it raises is its result, so that an engine does not run it again."""
    try:
        return function(item)
    except Error as error:
        return Failed(str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
        return Failed(f"{type(error).__name__}: {error}")


class _Futures(Engine):
    """What gives a future for each task, which can be cancelled."""

    def run(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Ended]:
        running: Dict[Any, int] = {}
        try:
            yield from self._each(function, iter(enumerate(items)), running)
        finally:
            # After an interrupt; else there are none.
            for future in running:
                future.cancel()

    def _each(
        self, function: Callable[[Any], Any], waiting: Iterator[Tuple[int, Any]], running: Dict[Any, int]
    ) -> Iterator[Ended]:
        raise NotImplementedError


class _Executor(_Futures):
    def __init__(self, executor: Any, workers: int, *, is_elsewhere: bool = True) -> None:
        self._executor, self.workers, self.is_elsewhere = executor, workers, is_elsewhere

    def _each(
        self, function: Callable[[Any], Any], waiting: Iterator[Tuple[int, Any]], running: Dict[Any, int]
    ) -> Iterator[Ended]:
        while True:
            for at, item in waiting:
                try:
                    running[self._executor.submit(guarded, function, item)] = at
                except futures.BrokenExecutor as error:
                    # It takes no more tasks, and says so for each.
                    yield at, Failed(f"its worker ended: {error!r}")
                if len(running) >= self._window:
                    break
            if not running:
                return
            done, _ = futures.wait(running, return_when=futures.FIRST_COMPLETED)
            for future in done:
                at, failure = running.pop(future), future.exception()
                yield at, Failed(f"its worker ended: {failure!r}") if failure else future.result()


_here = threading.local()
"""What a thread of :class:`_Threads` knows of its engine."""


def check_stop() -> None:
    """Raises an error in a thread whose engine was ended early: compiled code asks while it works."""
    stop = getattr(_here, "stop", None)
    if stop is not None and stop.is_set():
        raise KeyboardInterrupt


class _Threads(_Executor):
    """Threads of this process, which end with the engine."""

    def __init__(self, workers: int) -> None:
        self._stop = threading.Event()
        threads = futures.ThreadPoolExecutor(workers, initializer=self._begin)
        super().__init__(threads, workers, is_elsewhere=False)

    def _begin(self) -> None:
        _here.stop = self._stop

    def __exit__(self, kind: Any = None, *_: Any) -> None:
        if kind is not None:
            self._stop.set()
        self._executor.shutdown()


class _Ray(Engine):
    def __init__(self, ray: Any) -> None:
        if not ray.is_initialized():
            ray.init(log_to_driver=False)
        self._ray = ray
        self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def run(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Ended]:
        running: Dict[Any, int] = {}
        try:
            yield from self._each(function, iter(enumerate(items)), running)
        finally:
            for reference in running:
                self._ray.cancel(reference, force=True)

    def _each(
        self, function: Callable[[Any], Any], waiting: Iterator[Tuple[int, Any]], running: Dict[Any, int]
    ) -> Iterator[Ended]:
        ray = self._ray
        remote = ray.remote(guarded).options(num_cpus=1, max_retries=RETRIES)
        while True:
            for at, item in waiting:
                running[remote.remote(function, item)] = at
                if len(running) >= self._window:
                    break
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            for reference in done:
                at = running.pop(reference)
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayError as error:
                    result = Failed(f"its worker ended: {type(error).__name__}")
                yield at, result


CALM = {
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.tick.interval": "500ms",
    "distributed.scheduler.work-stealing-interval": "500ms",
    "distributed.worker.memory.monitor-interval": "500ms",
    "distributed.worker.profile.enabled": False,
}
"""Of a Dask cluster that is begun here. What it otherwise measures of itself, up to a hundred times a second in each
process, takes a tenth of two processors while the tasks work."""


class _Dask(_Futures):
    def __init__(self, client: Any, *, is_ours: bool = False) -> None:
        self._client, self._is_ours = client, is_ours
        self.workers = max(1, sum(client.nthreads().values()))

    def __exit__(self, *_: Any) -> None:
        if self._is_ours:
            cluster = self._client.cluster
            self._client.close()
            cluster.close()

    def _each(
        self, function: Callable[[Any], Any], waiting: Iterator[Tuple[int, Any]], running: Dict[Any, int]
    ) -> Iterator[Ended]:
        from distributed import as_completed

        completed = as_completed()
        while True:
            for at, item in waiting:
                future = self._client.submit(
                    guarded, function, item, pure=False, retries=RETRIES
                )
                running[future] = at
                completed.add(future)
                if len(running) >= self._window:
                    break
            if not running:
                return
            future = next(completed)
            at = running.pop(future)
            try:
                result = future.result()
            except Exception as error:  # noqa: BLE001 - Dask's, as all others are results
                result = Failed(f"its worker ended: {error!r}")
            future.release()
            yield at, result


class Slurm(Engine):
    """Array jobs of ``sbatch``.

    :param directory: a directory that all nodes see, for tasks and results; removed afterwards. Without it, one in the
        present directory.
    :param options: further words for ``sbatch``, as ``["--partition=short", "--mem=2G"]``.
    :param workers: the most tasks at once (``--array=…%workers``).
    :param python: the interpreter on the nodes.
    """

    ARRAY_MAX = 1000
    ASK_S = 5.0
    """How often Slurm is asked whether the job is still there."""
    UNANSWERED_MAX = 60
    """After so many questions without an answer, one after another, what is left has failed."""

    def __init__(
        self,
        directory: Optional[str] = None,
        *,
        options: Sequence[str] = (),
        workers: int = 64,
        python: str = sys.executable,
    ) -> None:
        self.directory, self.options = directory, list(options)
        self.workers, self.python = workers, python

    def run(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Ended]:
        """Yields each task's result as its file appears."""
        items = list(items)
        if not items:
            return
        at = os.path.abspath(self.directory or os.getcwd())
        os.makedirs(at, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=at, prefix="dwell-slurm-") as directory:
            jobs = min(len(items), self.ARRAY_MAX)
            for job in range(jobs):
                # Each by itself: what a node can't read is that task's failure.
                numbers = range(job, len(items), jobs)
                part = [(n, pickle.dumps((function, items[n]))) for n in numbers]
                with open(os.path.join(directory, f"{job}.tasks"), "wb") as file:
                    pickle.dump(part, file)
            number = self._submit(directory, jobs)
            try:
                yield from self._results(directory, number, len(items))
            finally:
                subprocess.run(["scancel", number], capture_output=True, check=False)

    def _submit(self, directory: str, jobs: int) -> str:
        # Whoever runs again what died is Slurm.
        script = f"""#!/bin/sh
'{self.python}' -m dwell._slurm '{directory}' "$SLURM_ARRAY_TASK_ID" && exit
[ "${{SLURM_RESTART_COUNT:-0}}" -ge {RETRIES} ] || scontrol requeue "$SLURM_JOB_ID"
"""
        words = [
            "sbatch",
            "--parsable",
            "--requeue",
            "--job-name=dwell",
            f"--array=0-{jobs - 1}%{self.workers}",
            f"--output={directory}/%a.log",
            "--open-mode=append",
            *self.options,
        ]
        try:
            done = subprocess.run(words, input=script, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise Error("sbatch is missing: this machine submits no jobs to Slurm (Debian: slurm-client)") from None
        if done.returncode != 0:
            raise Error(f"sbatch: {done.stderr.strip()}")
        return done.stdout.strip().split(";")[0]

    def _results(self, directory: str, number: str, count: int) -> Iterator[Ended]:
        left = set(range(count))
        pause, unanswered, why = 0.05, 0, ""
        ask_at = time.monotonic() + self.ASK_S
        while left:
            found = left & {
                int(it[: -len(".result")]) for it in os.listdir(directory) if it.endswith(".result")
            }
            for n in sorted(found):
                path = os.path.join(directory, f"{n}.result")
                with open(path, "rb") as file:
                    result = pickle.load(file)
                left.discard(n)
                yield n, result
            if left and why:
                for n in sorted(left):
                    yield n, Failed(why)
                return
            if not left:
                return
            pause = 0.05 if found else min(2 * pause, 2.0)
            time.sleep(pause)
            if time.monotonic() < ask_at:
                continue
            ask_at = time.monotonic() + self.ASK_S
            is_known, said = self._is_known(number)
            unanswered = unanswered + 1 if is_known is None else 0
            # Results that were written between the two looks are found by another one.
            if is_known is False:
                why = "its worker ended, and Slurm did not run it to its end"
            elif unanswered >= self.UNANSWERED_MAX:
                why = f"squeue failed {unanswered} times, at last with: {said}"

    @staticmethod
    def _is_known(number: str) -> Tuple[Optional[bool], str]:
        """Asks whether a job still waits or runs; None, and the reason, if Slurm can't say so now."""
        words = ["squeue", "--noheader", "--jobs", number]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, str(error)
        if done.returncode == 0:
            return bool(done.stdout.strip()), ""
        # What ended some minutes ago is forgotten.
        said = done.stderr.strip()
        return (False if "Invalid job id" in said else None), said


def engine(on: Any, jobs: Optional[int] = None) -> Engine:
    """Returns the engine that an argument ``on`` means.

    :param jobs: the most tasks at once, of an engine that is begun here.
    :raises ImportError: if the engine's package is missing; the message has the remedy.
    :raises ValueError: if it means none.
    """
    if isinstance(on, Engine):
        return on
    workers = jobs or len(os.sched_getaffinity(0))
    if on == "local":
        return _Threads(workers)
    if on == "ray":
        return _Ray(_package("ray"))
    if on == "dask":
        distributed = _package("distributed", "dask")
        with _package("dask").config.set(CALM):
            cluster = distributed.LocalCluster(
                processes=True,
                threads_per_worker=1,
                n_workers=workers,
                dashboard_address=None,
                # Without a dashboard there still is a server, which would warn where another cluster has its usual port.
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            )
            client = distributed.Client(cluster)
        return _Dask(client, is_ours=True)
    if on == "slurm":
        return Slurm(workers=jobs or 64)
    module = type(on).__module__.split(".")[0]
    if getattr(on, "__name__", None) == "ray":
        return _Ray(on)
    if module == "distributed":
        return _Dask(on)
    if hasattr(on, "submit"):
        is_here = isinstance(on, (futures.ThreadPoolExecutor, futures.ProcessPoolExecutor))
        return _Executor(on, jobs or getattr(on, "_max_workers", None) or workers, is_elsewhere=not is_here)
    raise ValueError(f'there is no engine {on!r}: "local", "ray", "dask", "slurm" or a client of one')


def _package(name: str, extra: Optional[str] = None) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name != name:
            raise
        raise ImportError(
            f"the engine's package {name} is missing: pip install {name!r}, or dwell[{extra or name}]", name=name
        ) from None
