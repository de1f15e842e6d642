"""Engines and stores: the same results everywhere, nothing twice, and what dies or is broken costs nothing else.

Real engines (marked `engine`) are for `./x test --all`, with DWELL_ENGINES=1.
"""

import contextlib
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
import warnings
from concurrent import futures

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import dwell
from dwell import engines, sim, trace
from dwell.store import Store

GRID = {"compress.ratio": [0.5, 0.6, 0.7, 0.8], "scheme.preset": ["none", "packet"]}
SHORT = {"run.warm_up": "50ms", "run.measure": "100ms", "run.drain": "50ms"}

engine = pytest.mark.skipif(
    not os.environ.get("DWELL_ENGINES"), reason="real engines: ./x test --all (DWELL_ENGINES=1)"
)


def sweep(**more):
    options = {"set": SHORT, "quick": True, "replications": 3, **more}
    return sim.sweep("shimamura/fig-8", GRID, **options)


@pytest.fixture(scope="module")
def expected():
    return sweep(jobs=1)


def parquet(results, tmp_path):
    results.to_parquet(tmp_path / "runs.parquet")
    return (tmp_path / "runs.parquet").read_bytes()


def test_threads_and_processes_give_the_same(expected, tmp_path):
    wanted = parquet(expected, tmp_path)
    assert parquet(sweep(on="local", jobs=2), tmp_path) == wanted
    with futures.ProcessPoolExecutor(2) as pool:
        assert parquet(sweep(on=pool), tmp_path) == wanted


def test_a_store_has_what_was_done(expected, tmp_path, monkeypatch):
    store = tmp_path / "store"
    first = sweep(store=store)
    assert first.lines() == expected.lines()
    # Another run has nothing to do.
    monkeypatch.setattr("dwell.campaign.run_batch", None)
    assert sweep(store=str(store)).lines() == expected.lines()
    monkeypatch.undo()
    # A wider grid has only the new points to do.
    done = []
    run_batch = dwell.campaign.run_batch
    monkeypatch.setattr(
        "dwell.campaign.run_batch", lambda batch: done.extend(batch.places) or run_batch(batch)
    )
    wider = {**GRID, "compress.ratio": [0.5, 0.6, 0.7, 0.8, 0.9]}
    results = sim.sweep(
        "shimamura/fig-8", wider, set=SHORT, quick=True, replications=3, store=store
    )
    assert len(done) == 3, "one new ratio of packet; none has no ratio"
    assert len(results) == len(expected) + 3


def test_the_store_is_a_data_set(expected, tmp_path):
    sweep(store=tmp_path)
    runs = ds.dataset(tmp_path / "runs", format="parquet", partitioning="hive").to_table()
    assert sorted(runs["key"].to_pylist()) == sorted({task.key for task in expected.scenario.tasks})
    assert runs.schema.metadata[b"dwell.schema"] == b"dwell-store-runs/2"
    record = json.loads(runs["record"][0].as_py())
    assert dict(runs["metrics"][0].as_py()) == record["metrics"]
    # As whoever asks for nothing in particular reads it: a column beside a partition of its name would be refused.
    plain = pq.read_table(tmp_path / "runs")
    assert plain.num_rows == runs.num_rows and set(plain["code"].to_pylist()) == {record["code"]}


def test_half_a_file_is_none(tmp_path):
    store = Store(tmp_path)
    store.write("a/b", b"whole")

    class Broken(Exception):
        pass

    def fails(*_):
        raise Broken

    replace, os.replace = os.replace, fails
    try:
        with pytest.raises(Broken):
            store.write("a/c", b"half")
    finally:
        os.replace = replace
    assert store.names("a") == ["a/b"] and os.listdir(tmp_path / "a") == ["b"]
    assert store.read("a/b") == b"whole" and store.names("nothing") == []


def test_half_a_file_is_none_by_url(tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    store = Store(f"file://{tmp_path}/store")
    store.write("a/b", b"whole")
    store.write("a/b", b"whole again")
    assert store.names("a") == ["a/b"] and store.read("a/b") == b"whole again"
    local = fsspec.filesystem("file")
    pipe_file = type(local).pipe_file

    def fails(self, path, data, **more):
        pipe_file(self, path, data[:2], **more)
        raise OSError("no space left")

    monkeypatch.setattr(type(local), "pipe_file", fails)
    with pytest.raises(OSError, match="no space"):
        store.write("a/b", b"half")
    assert store.read("a/b") == b"whole again" and os.listdir(tmp_path / "store/a") == ["b"]


def test_files_are_read_in_their_order(tmp_path, monkeypatch):
    store, read = Store(tmp_path), Store.read
    names = [f"a/{n:03}" for n in range(100)]
    for name in names:
        store.write(name, name.encode())
    at_once, most = set(), []

    def slowly(self, name):
        at_once.add(name)
        most.append(len(at_once))
        time.sleep(0.002 if name.endswith("0") else 0)
        at_once.discard(name)
        return read(self, name)

    monkeypatch.setattr(Store, "read", slowly)
    assert list(store.read_each(names)) == [name.encode() for name in names]
    assert max(most) <= dwell.store.READS and list(store.read_each([])) == []
    with pytest.raises(FileNotFoundError):
        list(store.read_each([*names, "a/none"]))


def test_a_store_may_be_a_url(expected):
    pytest.importorskip("fsspec")
    url = f"memory://sweep-{os.getpid()}"
    assert sweep(store=url).lines() == expected.lines()
    assert sweep(store=url).lines() == expected.lines()


def test_shards_are_the_whole(expected, tmp_path):
    parts = [sweep(shard=(part, 3), store=tmp_path) for part in (1, 2)]
    assert 0 < len(parts[0]) < len(expected)
    whole = sweep(shard=(3, 3), store=tmp_path)
    assert whole.lines() == expected.lines()


def test_an_interval_stops_at_the_same_runs_on_an_engine(tmp_path):
    options = {
        "stop_at": sim.Interval("target.delay_mean_s", relative=0.2),
        "set": {"scheme.preset": "packet", **SHORT},
        "replications": 12,
        "quick": True,
    }
    grid = {"compress.ratio": [0.7, 0.95]}
    here = sim.sweep("shimamura/fig-8", grid, **options)
    there = sim.sweep("shimamura/fig-8", grid, on="local", store=tmp_path, **options)
    assert there.lines() == here.lines()


def die_once(flag):
    """Ends its process the first time."""
    if not os.path.exists(flag):
        pathlib.Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


def test_a_worker_that_dies_is_reported_where_nobody_tries_again(tmp_path):
    with futures.ProcessPoolExecutor(1) as pool:
        (ended,) = engines.engine(pool).run(die_once, [str(tmp_path / "flag")])
    assert isinstance(ended[1], engines.Failed) and "worker" in ended[1].why


def die(_):
    """Ends its process."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_pool_that_broke_fails_all_that_is_left():
    with futures.ProcessPoolExecutor(1) as pool:
        it = engines.engine(pool)
        ended = dict(it.run(die, range(4 * it._window)))
    assert sorted(ended) == list(range(4 * it._window))
    assert all(isinstance(result, engines.Failed) for result in ended.values())


@pytest.fixture
def no_slurm(tmp_path, monkeypatch):
    """A Slurm that does the first task and no other; `squeue` prints one after another what is in a directory."""
    programs, answers = tmp_path / "bin", tmp_path / "answers"
    programs.mkdir()
    answers.mkdir()
    squeue = f"""#!/bin/sh
answer=$(ls '{answers}' | head -n 1)
[ -n "$answer" ] || exit 0
cat '{answers}'/"$answer" >&2
rm '{answers}'/"$answer"
exit 1
"""
    for name, text in {"squeue": squeue, "scancel": "#!/bin/sh\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def submit(self, directory, jobs):
        pathlib.Path(directory, "0.result").write_bytes(pickle.dumps("done"))
        return "7"

    monkeypatch.setattr(engines.Slurm, "_submit", submit)
    monkeypatch.setattr(engines.Slurm, "ASK_S", 0.01)
    monkeypatch.setattr(engines.Slurm, "UNANSWERED_MAX", 3)
    return answers


@pytest.mark.parametrize("errors", [0, 2])
def test_slurm_tasks_that_never_end_are_reported(no_slurm, tmp_path, errors):
    for n in range(errors):
        (no_slurm / str(n)).write_text("slurm_load_jobs error: Unable to contact slurm controller")
    ended = dict(engines.Slurm(str(tmp_path)).run(str, range(3)))
    assert ended[0] == "done" and sorted(ended) == [0, 1, 2]
    assert ended[1] == ended[2] == engines.Failed("its worker ended, and Slurm did not run it to its end")
    assert os.listdir(no_slurm) == [], "errors are no answer"


def test_slurm_that_does_not_answer_is_given_up(no_slurm, tmp_path):
    for n in range(3):
        (no_slurm / str(n)).write_text("slurm_load_jobs error: Unable to contact slurm controller")
    ended = dict(engines.Slurm(str(tmp_path)).run(str, range(2)))
    assert ended[0] == "done" and "Unable to contact" in ended[1].why
    (no_slurm / "0").write_text("slurm_load_jobs error: Invalid job id specified")
    ended = dict(engines.Slurm(str(tmp_path)).run(str, range(2)))
    assert "did not run it" in ended[1].why


def test_what_a_task_raises_is_reported():
    with engines.engine("local") as local:
        ended = dict(local.run(lambda n: 10 // n, [5, 0, 2]))
    assert ended[0] == 2 and ended[2] == 5
    assert isinstance(ended[1], engines.Failed) and "ZeroDivisionError" in ended[1].why
    with pytest.raises(ValueError, match="no engine"):
        engines.engine("clouds")


# --- Archives ---


@pytest.fixture
def archive(root, tmp_path):
    """Captures of uneven size, a twin and two broken ones."""
    directory = tmp_path / "archive"
    directory.mkdir()
    names = ["nfs-write.pcap", "quic.pcap", "ftp-ipv6.pcap", "redis-stream.pcap", "mixed-vlan-mpls.pcap"]
    for name in names:
        (directory / name).write_bytes((root / "data/captures" / name).read_bytes())
    (directory / "twin.pcap").write_bytes((directory / "quic.pcap").read_bytes())
    (directory / "cut.pcap").write_bytes((directory / "ftp-ipv6.pcap").read_bytes()[:3000])
    (directory / "zz-nothing.pcap").write_bytes(b"nothing like a capture")
    return directory


OPTIONS = {"measure_time": False, "codecs": ["lz4"]}


def check_archive(analysis, archive):
    good = sorted(set(map(str, archive.iterdir())) - {str(archive / "twin.pcap")})
    whole = trace.analyze(good, sides="each", **OPTIONS)
    assert analysis.to_json() == whole.to_json()
    assert [it.name for it in analysis.unreadable] == [str(archive / "zz-nothing.pcap")]
    assert "no capture" in analysis.unreadable[0].why
    assert analysis.left_out == [str(archive / "twin.pcap")]


def test_an_archive_is_the_sum_of_its_captures(archive, tmp_path, monkeypatch):
    monkeypatch.setattr("dwell.archive.ARITY", 2)
    check_archive(trace.analyze(archive, on="local", **OPTIONS), archive)
    store = tmp_path / "store"
    check_archive(trace.analyze(archive, on="local", store=store, **OPTIONS), archive)
    # What is broken is looked at again, all else is there.
    seen = []
    analyze_one = dwell.archive.analyze_one
    monkeypatch.setattr(
        "dwell.archive.analyze_one", lambda task: seen.append(task.place[0]) or analyze_one(task)
    )
    monkeypatch.setattr("dwell.archive.merge_group", None)
    check_archive(trace.analyze(archive, store=store, **OPTIONS), archive)
    assert seen == [str(archive / "zz-nothing.pcap")]
    with pytest.raises(ValueError, match="each"):
        trace.analyze(archive, on="local", sides="together")


class Fragile(engines.Engine):
    """A worker that ends at a capture: at the least only if it has others, too."""

    def __init__(self, at, most):
        self.at, self.most, self.batches = at, most, []

    def run(self, function, items):
        for place, item in enumerate(items):
            if isinstance(item, list):
                names = [os.path.basename(task.place[0]) for task in item]
                self.batches.append(names)
                if self.at in names and len(names) > self.most:
                    yield place, engines.Failed("its worker ended")
                    continue
            yield place, function(item)


def test_small_captures_go_together_and_fail_alone(archive, tmp_path, monkeypatch):
    monkeypatch.setattr("dwell.archive.LEAST_BYTES", 1)
    monkeypatch.setattr("dwell.archive.BATCHES_PER_WORKER", 2)
    good = Fragile("nfs-write.pcap", 1)
    check_archive(trace.analyze(archive, on=good, store=tmp_path / "one", **OPTIONS), archive)
    together = [names for names in good.batches if len(names) > 1]
    assert sorted(sum(good.batches, [])) == sorted([it.name for it in archive.iterdir()] + sum(
        (names for names in together if "nfs-write.pcap" in names), []
    ))
    assert max(map(len, together)) > 2
    bad = Fragile("nfs-write.pcap", 0)
    analysis = trace.analyze(archive, on=bad, store=tmp_path / "two", **OPTIONS)
    assert [os.path.basename(it.name) for it in analysis.unreadable] == ["nfs-write.pcap", "zz-nothing.pcap"]
    assert "its worker ended" in analysis.unreadable[0].why
    assert len(analysis.files().to_arrow()) == 5


def test_what_was_done_when_a_worker_died_is_not_done_again(archive, tmp_path, monkeypatch):
    class Forgetful(engines.Engine):
        """A worker that dies in a task's midst, at its third capture, and then when all is done."""

        def run(self, function, items):
            for place, item in enumerate(items):
                if isinstance(item, list):
                    function(item[:3])
                    function(item)
                yield place, function(item)

    monkeypatch.setattr("dwell.archive._together", lambda tasks, _: [list(tasks)] if tasks else [])
    seen, analyze_one = [], dwell.archive.analyze_one
    monkeypatch.setattr(
        "dwell.archive.analyze_one", lambda task: seen.append(task.place[0]) or analyze_one(task)
    )
    check_archive(trace.analyze(archive, on=Forgetful(), store=tmp_path / "store", **OPTIONS), archive)
    # What can't be read is not known to be so.
    again = [name for name in set(seen) if seen.count(name) > 1]
    assert again == [str(archive / "zz-nothing.pcap")]


def made(root, directory, size, files, broken):
    pytest.importorskip("numpy")
    words = [root / "bindings/python/benchmarks/archive.py", "make", directory, "--size", size]
    words += ["--files", files, "--broken", broken]
    subprocess.run([sys.executable, *map(str, words)], check=True)
    return directory


class Pieces(engines.Engine):
    """Counts the pieces of captures; its worker ends at one of them."""

    def __init__(self, at=None):
        self.at, self.done = at, []

    def run(self, function, items):
        for place, item in enumerate(items):
            if isinstance(item, dwell.archive.Piece):
                self.done.append((os.path.basename(item.capture.place[0]), item.number))
                if self.done[-1] == self.at:
                    yield place, engines.Failed("its worker ended")
                    continue
            yield place, engines.guarded(function, item)


@pytest.fixture
def long(root, tmp_path, monkeypatch):
    """Two captures that are long beside their pieces; one ends in the midst of a packet."""
    directory = made(root, tmp_path / "made", "5e6", 2, 0)
    damaged = max(directory.iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-7])
    monkeypatch.setattr("dwell.archive.PIECE_BYTES", 1 << 20)
    monkeypatch.setattr("dwell.archive.PIECES_MIN", 1)
    monkeypatch.setattr("dwell.archive.SHARE", 0.01)
    return directory


@pytest.mark.parametrize("more", [{"blocks": "lz4", "contexts": None}, {"blocks": None, "contexts": "zstd:1"}])
def test_long_captures_are_analysed_in_pieces(long, tmp_path, more):
    directory, names = long, sorted(it.name for it in long.iterdir())
    options = {"measure_time": False, "codecs": ["lz4"], "bound": False, **more}
    whole = trace.analyze(directory, sides="each", **options)
    store = tmp_path / "store"
    poisoned = Pieces((names[0], 1))
    left = trace.analyze(directory, on=poisoned, store=store, **options)
    assert [os.path.basename(it.name) for it in left.unreadable] == [names[0]]
    assert "its worker ended" in left.unreadable[0].why and "its bytes" in left.unreadable[0].why
    assert len(left.files().to_arrow()) == 1
    # Only what is missing is done then.
    again = Pieces()
    assert trace.analyze(directory, on=again, store=store, **options).to_json() == whole.to_json()
    assert again.done == [(names[0], 1)] and len(poisoned.done) > 3
    assert Store(store).names("pieces") == [], "they serve until the capture has its analysis"
    assert trace.analyze(directory, on="local", **options).to_json() == whole.to_json()


def test_pieces_that_are_gone_are_not_missed(long, tmp_path):
    class Forgetful(engines.Engine):
        """A worker that dies each time when all is done, and before anybody hears of it."""

        def run(self, function, items):
            for place, item in enumerate(items):
                engines.guarded(function, item)
                yield place, engines.guarded(function, item)

    options = {"measure_time": False, "codecs": ["lz4"], "blocks": None, "contexts": None, "bound": False}
    there = trace.analyze(long, on=Forgetful(), store=tmp_path / "store", **options)
    assert there.unreadable == [] and not os.listdir(tmp_path / "store/pieces")
    assert there.to_json() == trace.analyze(long, sides="each", **options).to_json()


def test_what_can_not_be_cut_is_analysed_whole(archive, tmp_path, monkeypatch):
    monkeypatch.setattr("dwell.archive.PIECE_BYTES", 1 << 10)
    monkeypatch.setattr("dwell.archive.PIECES_MIN", 1)
    monkeypatch.setattr("dwell.archive.SHARE", 0.0)
    # With the bound no capture can be.
    pieces = Pieces()
    check_archive(trace.analyze(archive, on=pieces, store=tmp_path / "store", **OPTIONS), archive)
    assert pieces.done == []


def test_long_captures_come_first_and_alone():
    def task(size):
        return dwell.archive.Capture(("x", "x"), "", "each", False, None, "", size)

    sizes = [3, 200, 1, 70, 40, 30, 0, 0]
    batches = dwell.archive._together([task(size << 20) for size in sizes], 1)
    # An eighth of all is 43 MiB.
    assert [[it.size >> 20 for it in batch] for batch in batches] == [[200], [70], [40, 30], [3, 1, 0], [0]]
    # Tiny ones are many, and those of unknown size are apart.
    tiny = dwell.archive._together([task(1 << 34)] + [task(1)] * 1000, 1)
    assert max(map(len, tiny)) == 64 and dwell.archive._together([task(0)] * 3, 2) == [[task(0)]] * 3


def test_a_capture_that_changed_is_analysed_again(archive, tmp_path):
    store = tmp_path / "store"
    trace.analyze(archive / "quic.pcap", store=store, **OPTIONS)
    data = (archive / "nfs-write.pcap").read_bytes()
    (archive / "quic.pcap").write_bytes(data)
    again = trace.analyze(archive / "quic.pcap", store=store, **OPTIONS)
    assert again.bytes == trace.analyze(archive / "nfs-write.pcap", **OPTIONS).bytes


def test_shards_of_an_archive_add_up(archive, tmp_path):
    def parts(of):
        options = {"sides": ["10.0.0.0/8"], "store": tmp_path / "s", **OPTIONS}
        return [trace.analyze(archive, shard=(n, of), **options) for n in range(1, of + 1)]

    whole = trace.analyze(archive, on="local", **OPTIONS)
    twin = trace.analyze(archive / "twin.pcap", **OPTIONS)
    assert whole.left_out == [str(archive / "twin.pcap")] and twin.packets > 0
    # The twins are the fifth and the seventh file: of two parts one has both, of three none has.
    together, apart = parts(2), parts(3)
    assert [part.left_out for part in together] == [whole.left_out, []]
    assert sum(part.packets for part in together) == whole.packets
    assert [part.left_out for part in apart] == [[], [], []]
    assert sum(part.packets for part in apart) == whole.packets + twin.packets


def test_a_made_archive_is_the_sum_of_its_captures_too(root, tmp_path):
    directory = made(root, tmp_path / "made", "8e6", 16, 8)
    options = {"measure_time": False, "codecs": ["lz4"], "blocks": None, "contexts": None, "bound": False}
    whole = trace.analyze(directory, sides="each", jobs=1, **options)
    shared = trace.analyze(directory, on="local", jobs=2, store=tmp_path / "store", **options)
    assert shared.to_json() == whole.to_json()
    assert shared.unreadable == whole.unreadable and shared.left_out == []
    # Empty ones and those that begin with something else can't be read; others are up to the damage.
    files = shared.files().to_arrow()
    broken = len(files) - files["trouble"].null_count
    assert len(shared.unreadable) + broken == 8 and 0 < broken < 8
    assert shared.packets == sum(files["ip_packets"].to_pylist()) > 10_000
    assert shared.verdict["answer"] == "unknown"


# --- Real engines ---


def slow_square(item):
    """A task that takes long enough to be killed in its midst, and says where it runs."""
    n, directory = item
    (pathlib.Path(directory) / f"{os.getpid()}").touch()
    time.sleep(0.3)
    return n * n


def kill_one(directory):
    """Ends a worker that is at work, as the kernel does when memory is short."""
    # On a machine that is busy with other things a worker may need a minute to begin, and be gone when it is looked at.
    end = time.monotonic() + 300
    while time.monotonic() < end:
        for name in filter(str.isdigit, os.listdir(directory)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(name), signal.SIGKILL)
                return
        time.sleep(0.02)
    raise AssertionError("no worker began")


def check_engine(on, expected, archive, long, tmp_path):
    store = tmp_path / "engine-store"
    assert parquet(sweep(on=on, store=store), tmp_path) == parquet(expected, tmp_path)
    assert parquet(sweep(on=on), tmp_path) == parquet(expected, tmp_path)
    check_archive(trace.analyze(archive, on=on, store=store, **OPTIONS), archive)
    options = {**OPTIONS, "bound": False}
    in_pieces = trace.analyze(long, on=on, store=store, **options)
    assert in_pieces.to_json() == trace.analyze(long, sides="each", **options).to_json()
    assert in_pieces.unreadable == [] and Store(store).names("pieces") == []
    began = tmp_path / "began"
    began.mkdir()
    with futures.ThreadPoolExecutor(1) as side, engines.engine(on) as it:
        killer = side.submit(kill_one, began)
        ended = dict(it.run(slow_square, [(n, str(began)) for n in range(12)]))
        killer.result()
    assert ended == {n: n * n for n in range(12)}


@engine
@pytest.mark.engine
def test_dask(expected, archive, long, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        processes=True, n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:
        client.run(sys.path.append, os.path.dirname(__file__))
        check_engine(client, expected, archive, long, tmp_path)
        # One that is begun here has a port of its own.
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Port")
            with engines.engine("dask", 1) as ours:
                assert dict(ours.run(abs, [-1])) == {0: 1}


@engine
@pytest.mark.engine
def test_ray(expected, archive, long, tmp_path):
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    # Several node processes on one machine.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    paths = {"env_vars": {"PYTHONPATH": os.path.dirname(__file__)}}
    ray.init(address=cluster.address, log_to_driver=False, runtime_env=paths)
    try:
        assert len(ray.nodes()) == 2
        check_engine(ray, expected, archive, long, tmp_path)
    finally:
        ray.shutdown()
        cluster.shutdown()


@engine
@pytest.mark.engine
def test_slurm(expected, archive, long, tmp_path, slurm, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    options = engines.Slurm(str(tmp_path / "jobs"), workers=2)
    check_engine(options, expected, archive, long, tmp_path)


@engine
@pytest.mark.engine
def test_s3(expected, archive, tmp_path):
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {
            "key": "testing",
            "secret": "testing",
            "client_kwargs": {"endpoint_url": f"http://{host}:{port}", "region_name": "us-east-1"},
        }
        import s3fs

        s3 = s3fs.S3FileSystem(**options)
        s3.call_s3("create_bucket", Bucket="bucket")
        for path in archive.iterdir():
            s3.put_file(str(path), f"bucket/captures/{path.name}")
        store = Store("s3://bucket/store", options)
        assert sweep(store=store, on="local").lines() == expected.lines()
        assert sweep(store=store).lines() == expected.lines()
        remote = trace.analyze(
            "s3://bucket/captures/*.pcap", store=store, on="local", storage_options=options, **OPTIONS
        )
        local = trace.analyze(archive, on="local", **OPTIONS)
        assert remote.packets == local.packets and len(remote.unreadable) == 1
        assert remote.classes().to_arrow() == local.classes().to_arrow()
    finally:
        server.stop()
