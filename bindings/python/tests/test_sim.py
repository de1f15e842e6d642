"""Scenarios and sweeps: the same runs as the program's, in columns."""

import json
import pathlib
import pickle
import resource

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dwell
from dwell import sim

CAPTURES = pathlib.Path(__file__).resolve().parents[3] / "data/captures"
SHORT = {"run.warm_up": "100ms", "run.measure": "200ms", "run.drain": "100ms"}


@pytest.fixture(scope="module")
def results():
    return sim.run("shimamura/fig-8", quick=True, set=SHORT)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def rows(results):
    return results.to_arrow().to_pylist()


def test_runs_are_those_of_the_program(program, results):
    words = [f"--set={key}={value}" for key, value in SHORT.items()]
    lines = program("sim", "run", "shimamura/fig-8", "--quick", "--json", *words).splitlines()
    theirs = {line["key"]: line for line in map(json.loads, lines)}
    ours = {line["key"]: line for line in map(json.loads, results.lines().splitlines())}
    assert ours == theirs


def test_the_table_has_the_runs_numbers(results):
    by_key = {run["key"]: run for run in map(json.loads, results.lines().splitlines())}
    table = rows(results)
    assert len(table) == len(results.scenario.tasks) == 12
    assert len(results) == len(by_key) < 12, "points without effect on a run share it"
    for row, task in zip(table, results.scenario.tasks):
        run = by_key[row["key"]]
        assert (row["key"], row["seed"], row["scenario"]) == (task.key, task.seed, "shimamura/fig-8")
        assert row["compress.ratio"] == results.scenario.points[task.point]["compress.ratio"]
        metrics = {name: row[name] for name in run["metrics"]}
        assert metrics == run["metrics"]
    assert results.to_arrow().schema.metadata[b"dwell.schema"] == b"dwell-runs/1"


def test_columns_are_handed_over_without_copies(results):
    table = results.table()
    first, again = pa.table(table), pa.table(table)
    address = first.column("seed").chunk(0).buffers()[1].address
    assert again.column("seed").chunk(0).buffers()[1].address == address
    del table
    assert first.column("seed").to_pylist()[0] == 1, "the columns outlive the table"


def test_a_capsule_that_nobody_takes_is_freed(results):
    for _ in range(100):
        results.table().__arrow_c_stream__()
    before, rounds = resident_bytes(), 1000
    for _ in range(rounds):
        results.table().__arrow_c_stream__()
    # Capsules that were kept would hold their columns.
    assert resident_bytes() - before < rounds * results.to_arrow().nbytes / 2


def test_a_dictionary_is_a_scenario_too():
    scenario = {
        "about": {"title": "Two sources"},
        "run": {"warm_up": "10ms", "measure": "100ms", "replications": 2},
        "topology": {"kind": "parking-lot", "relays": 2, "rate": "100mbit", "buffer_packets": 100},
        "traffic": {"kind": "poisson", "packet_bytes": 500, "rate": "60mbit"},
        "scheme": {"preset": "packet"},
        "compress": {"ratio": 0.9, "time": "20us"},
        "sweep": [{"compress.ratio": [0.5, 0.9]}],
        "paper": [
            {
                "place": "nowhere",
                "quantity": "discards",
                "where": {"compress.ratio": 0.5},
                "metric": "target.discard",
                "value": 0.0,
            }
        ],
    }
    results = sim.run(scenario)
    assert [point["compress.ratio"] for point in results.scenario.points] == [0.5, 0.9]
    assert len(results) == 4
    assert results.claims()[0]["ours"] == results.points("target.discard")[0].summary.mean


def test_sources_and_compressors_come_as_arrays():
    numpy = pytest.importorskip("numpy", reason="arrays are numpy's here")
    times = numpy.arange(1000) * 1e-4
    arrivals = numpy.column_stack([times, numpy.full(1000, 500.0)])
    samples = numpy.array([[100, 0.9, 5.0], [1500, 0.5, 20.0]])
    text = """
[about]
title = "as recorded"
[run]
warm_up = "0ms"
measure = "100ms"
[topology]
kind = "graph"
[link.l]
from = "a"
to = "b"
rate = "30mbit"
queue = "port"
buffer_packets = 100
[flow.f]
from = "a"
to = "b"
kind = "trace"
file = "arrivals.csv"
[scheme]
preset = "packet"
[compress]
file = "samples.csv"
"""
    results = sim.run(text, files={"arrivals.csv": arrivals, "samples.csv": samples})
    names = ["x", "y", "z"]
    table = pa.table(dict(zip(names, samples.T)))
    as_tables = {"arrivals.csv": arrivals.tolist(), "samples.csv": table}
    assert sim.run(text, files=as_tables).lines() == results.lines()

    class Frame:
        """What data frames have in common."""

        def to_numpy(self):
            return samples

    assert sim.run(text, files={"arrivals.csv": arrivals, "samples.csv": Frame()}).lines() == results.lines()
    (row,) = rows(results)
    assert row["f.sent"] == 1000
    again = sim.run(pickle.loads(pickle.dumps(results.scenario)))
    assert again.lines() == results.lines()


CAPTURED = """
[about]
title = "A capture over a slow link"
[run]
measure = "2s"
[topology]
kind = "graph"
[link.l]
from = "a"
to = "b"
rate = "200kbit"
queue = "port"
frames = "relay"
[flow.f]
from = "a"
to = "b"
kind = "trace"
file = "office.pcap"
[scheme]
preset = "packet"
[compress]
ratio = 0.5
time = "3us"
"""


def test_captures_come_with_or_without_their_contents():
    capture = (CAPTURES / "nfs-write.pcap").read_bytes()
    (sizes,) = rows(sim.run(CAPTURED, files={"office.pcap": capture}))
    assert sizes["f.sent"] == 152
    real = CAPTURED.replace("ratio = 0.5", 'codec = "zstd:1"').replace("pcap\"", "pcap\"\ncontents = true")
    results = sim.run(real, files={"office.pcap": capture})
    (contents,) = rows(results)
    assert contents["f.sent"] == 152
    assert contents["l.frame_bytes_mean"] != sizes["l.frame_bytes_mean"]
    again = sim.run(pickle.loads(pickle.dumps(results.scenario)))
    assert again.lines() == results.lines()
    with pytest.raises(dwell.ScenarioError, match="codec"):
        sim.run(real.replace("zstd:1", "zsdt"), files={"office.pcap": capture})


def test_what_is_wrong_is_said():
    with pytest.raises(dwell.ScenarioError, match="shimamura/fig-8"):
        sim.run("shimamura/fig-88")
    with pytest.raises(dwell.ScenarioError, match="compress.rati"):
        sim.run("shimamura/fig-8", set={"compress.rati": 0.5})
    with pytest.raises(dwell.ScenarioError, match="no such file|No such file"):
        sim.run("[about]\ntitle = 'x'\n[compress]\nfile = 'y'\n")
    with pytest.raises(ValueError):
        sim.run("shimamura/fig-8", quick=True, jobs=0)
    with pytest.raises(TypeError):
        sim.run("shimamura/fig-8", set={"compress.ratio": object()})


def test_a_grid_is_crossed():
    grid = {"compress.ratio": [0.5, 0.6, 0.7], "scheme.preset": ["none", "packet"]}
    results = sim.sweep("shimamura/fig-8", grid, quick=True, replications=1, set=SHORT)
    assert len(results.scenario.points) == 6
    assert {row["scheme.preset"] for row in rows(results)} == {"none", "packet"}


def test_keys_that_nothing_sweeps_can_be_in_a_grid():
    grid = {"topology.relays": [2, 3], "scheme.preset": ["packet"]}
    values = {"compress.ratio": 0.9, **SHORT}
    results = sim.sweep("shimamura/fig-8", grid, quick=True, replications=1, set=values)
    assert [point["topology.relays"] for point in results.scenario.points] == [2, 3]
    again = sim.run(pickle.loads(pickle.dumps(results.scenario)))
    assert again.lines() == results.lines()


def test_jobs_make_no_difference():
    lines = [
        sim.run("shimamura/fig-8", quick=True, set=SHORT, jobs=jobs).lines() for jobs in (1, 3)
    ]
    assert lines[0] == lines[1]


def test_a_sweep_stops_at_its_interval():
    interval = sim.Interval("target.delay_mean_s", relative=0.1, at_least=3)
    results = sim.sweep(
        "shimamura/fig-8",
        {"compress.ratio": [0.7, 0.95]},
        set={"scheme.preset": "packet", **SHORT},
        quick=True,
        replications=20,
        stop_at=interval,
    )
    points = results.points("target.delay_mean_s")
    for point in points:
        enough = point.summary.confidence <= 0.1 * point.summary.mean
        assert enough or point.summary.count == 20
    assert min(point.summary.count for point in points) < 20
    # Those that were done are the first seeds, so others can do them again.
    seeds = {row["seed"] for row in rows(results) if row["compress.ratio"] == 0.7}
    assert seeds == set(range(1, len(seeds) + 1))
    with pytest.raises(ValueError):
        sim.Interval("x")
    for metric, said in {"target.dealy_mean_s": "did you mean `target.delay_mean_s`", "(": "\\("}.items():
        with pytest.raises(ValueError, match=said):
            sim.sweep("shimamura/fig-8", {}, quick=True, stop_at=sim.Interval(metric, relative=0.1))


def test_equal_results_are_equal_files(tmp_path, results):
    results.to_parquet(tmp_path / "one.parquet")
    sim.run("shimamura/fig-8", quick=True, set=SHORT).to_parquet(tmp_path / "two.parquet")
    one = (tmp_path / "one.parquet").read_bytes()
    assert one == (tmp_path / "two.parquet").read_bytes()
    assert pq.read_table(tmp_path / "one.parquet").equals(results.to_arrow())


def test_the_program_goes_on_with_our_files(program, tmp_path, results):
    results.to_jsonl(tmp_path / "results.jsonl")
    words = [f"--set={key}={value}" for key, value in SHORT.items()]
    out = ["--out", tmp_path / "results.jsonl", "--json"]
    printed = program("sim", "run", "shimamura/fig-8", "--quick", *words, *out)
    assert (tmp_path / "results.jsonl").read_bytes() == results.lines()
    assert {json.loads(line)["key"] for line in printed.splitlines()} == {
        task.key for task in results.scenario.tasks
    }


def test_series_and_figures_are_there():
    results = sim.run("sawabe/fig-11", quick=True)
    series = results.series().to_arrow()
    assert series.column_names == ["key", "series", "x", "y"] and len(series) > 10
    figure = results.figures()[0]
    assert figure["series"] and len(figure["series"][0]["points"][0]) == 4
    assert results.svg(figure["id"]).startswith("<svg")
