"""Captures: the same numbers as the program's, and packets as columns."""

import gzip
import io
import json
import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dwell
from dwell import _dwell, trace


@pytest.fixture(scope="module")
def captures(root):
    names = ["smb2-small-files.pcap.gz", "nfs-write.pcap", "mysql-login.pcapng", "quic.pcap"]
    return [str(root / "data/captures" / name) for name in names]


def still(document):
    """Takes out what was measured by a clock: the times of codecs are the last or the fourth number of their sums."""
    document = json.loads(json.dumps(document))

    def walk(value, key=None):
        if isinstance(value, dict):
            return {k: walk(v, k) for k, v in value.items() if "ns" not in k.split("_")[-1:]}
        if isinstance(value, list):
            is_sums = len(value) == 4 and all(isinstance(it, int) for it in value)
            return [walk(it) for it in (value[:3] if is_sums else value)]
        return value

    # Sentences and the verdict may speak of speed.
    document.pop("verdict")
    return walk(document)


def test_an_analysis_is_the_programs(program, captures):
    theirs = json.loads(program("trace", "analyze", "--json", "--jobs", 2, *captures))
    ours = trace.analyze(captures)
    assert still(ours.to_dict()) == still(theirs)
    assert ours.verdict["answer"] == theirs["verdict"]["answer"]


def test_options_are_the_programs(program, captures):
    words = ["--codec", "lz4,zstd:3", "--no-blocks", "--over", "payload", "--rate", "2mbit"]
    inside = ["--inside", "10.0.0.0/8,192.168.0.0/16"]
    theirs = json.loads(program("trace", "analyze", "--json", *words, *inside, *captures))
    ours = trace.analyze(
        captures,
        codecs=["lz4", "zstd:3"],
        blocks=None,
        over="payload",
        rates=["2mbit"],
        sides=["10.0.0.0/8", "192.168.0.0/16"],
    )
    assert still(ours.to_dict()) == still(theirs)
    counted = json.loads(program("trace", "analyze", "--json", "--no-codecs", *captures))
    ours = trace.analyze(captures, codecs=[], blocks=None, contexts=None)
    assert ours.to_dict() == counted


def test_parts_add_up_to_the_bit(captures):
    options = {"measure_time": False, "sides": "each"}
    whole = trace.analyze(captures, **options)
    parts = [trace.analyze(capture, **options) for capture in captures]
    assert trace.merge(parts) == whole
    assert trace.merge(parts).to_json() == whole.to_json()
    pairs = [trace.merge(parts[:2]), trace.merge(parts[2:])]
    assert trace.merge(pickle.loads(pickle.dumps(pairs))).to_json() == whole.to_json()
    assert trace.analyze(captures, jobs=1, **options).to_json() == whole.to_json()


def test_the_program_merges_our_parts(program, captures, tmp_path):
    options = {"measure_time": False, "sides": "each"}
    paths = []
    for at, capture in enumerate(captures):
        paths.append(tmp_path / f"{at}.json")
        paths[-1].write_bytes(trace.analyze(capture, **options).to_json())
    assert program("trace", "merge", "--json", *paths) == trace.merge(paths).to_json()


def test_one_reading_is_as_good_as_two(program, captures, tmp_path, root):
    """Without history and bound the sides are found while a capture is read; the program looks for them before."""
    words = ["--no-bound", "--no-contexts", "--codec", "lz4,zstd:1"]
    options = {"codecs": ["lz4", "zstd:1"], "contexts": None, "bound": False, "measure_time": False}
    for path in [*captures, str(root / "data/captures/ftp-ipv6.pcap")]:
        theirs = json.loads(program("trace", "analyze", "--json", *words, path))
        ours = trace.analyze(path, sides="each", **options)
        assert ours.to_dict()["directions"] == theirs["directions"], path
        assert still(ours.to_dict()) == still(theirs)


def test_twins_count_once(captures, tmp_path):
    twin = tmp_path / "twin.pcap"
    twin.write_bytes(gzip.open(captures[0]).read())
    analysis = trace.analyze([captures[0], twin], codecs=["lz4"])
    assert analysis.left_out == [str(twin)]
    with pytest.raises(dwell.Error, match="twice"):
        trace.merge([trace.analyze(it, codecs=["lz4"]) for it in (captures[0], twin)])


def test_broken_captures_are_named_and_the_others_read(captures, tmp_path):
    cut = tmp_path / "cut.pcap"
    with open(captures[1], "rb") as file:
        cut.write_bytes(file.read()[:5000])
    nothing = tmp_path / "nothing.pcap"
    nothing.write_bytes(b"nothing like a capture")
    analysis = trace.analyze([*captures, cut, nothing], codecs=["lz4"])
    assert [it.name for it in analysis.unreadable] == [str(nothing)]
    assert "no capture" in analysis.unreadable[0].why
    files = analysis.files().to_arrow().to_pylist()
    assert [file["trouble"] is None for file in files] == [True] * 4 + [False]
    with pytest.raises(dwell.CaptureError):
        trace.analyze(nothing)
    with pytest.raises(FileNotFoundError):
        trace.analyze(str(tmp_path / "*.nothing"))
    with pytest.raises(ValueError):
        trace.analyze(captures, codecs=["zip"])


def test_urls_are_opened_by_fsspec(captures):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for at, capture in enumerate(captures[1:3]):
        with open(capture, "rb") as file:
            memory.pipe(f"/archive/{at}.pcap", file.read())
    remote = trace.analyze("memory://archive/*.pcap", measure_time=False)
    local = trace.analyze(captures[1:3], measure_time=False)
    assert remote.packets == local.packets
    assert remote.classes().to_arrow() == local.classes().to_arrow()


class Far:
    """A capture far away, which is lost after some calls."""

    def __init__(self, data, calls=1000):
        self.file, self.calls = io.BytesIO(data), calls

    def read(self, size):
        self.calls -= 1
        if self.calls < 0:
            raise OSError("the store is gone")
        return self.file.read(size)


def test_what_is_far_away_is_read_ahead_to_where_it_breaks(captures, tmp_path):
    with open(captures[1], "rb") as file:
        data = file.read()
    # Longer than all that is read ahead.
    data = data[:24] + data[24:] * (12_000_000 // len(data))
    (tmp_path / "near.pcap").write_bytes(data)
    settings = trace.settings_of(["lz4"], None, None, "packet", ["1mbit"], False)

    def analyzed(source):
        analysis, unreadable, _ = _dwell.analyze([("x", source)], settings, sides="each", measure_time=False, jobs=1)
        return analysis.json(), unreadable

    near = analyzed(str(tmp_path / "near.pcap"))
    assert analyzed(lambda: Far(data)) == near
    cut, _ = analyzed(lambda: Far(data, 7))
    [file] = json.loads(cut)["files"]
    assert "the store is gone" in file["trouble"]
    assert 6.9 * 2**20 < file["captured_bytes"] + 16 * file["frames"]["packets"] <= 7 * 2**20
    assert "the store is gone" in analyzed(lambda: Far(data, 0))[1][0][1]


def test_classes_are_those_of_the_summary(captures):
    analysis = trace.analyze(captures, codecs=["lz4", "zstd:3"])
    table = analysis.classes().to_arrow()
    summary = analysis.to_dict()["summary"]["classes"]
    assert len(table) == 2 * len(summary)
    first = table.to_pylist()[1]
    assert first["class"] == summary[0]["class"] and first["codec"] == "zstd:3"
    assert first["compressed_bytes"] == summary[0]["codecs"][1]["compressed_bytes"]
    assert analysis.text().strip() and analysis.html().startswith("<!") and analysis.exceptions()


COST = "3000,4"


def test_a_replay_is_the_programs(program, captures):
    words = ["--rate", "1mbit", "--compress-cost", COST, "--json", "--speed", "3"]
    theirs = json.loads(program("trace", "replay", *words, *captures))
    ours = trace.replay(captures, "1mbit", compress_cost=COST, speed=3)
    assert ours.document == theirs
    words = ["--rate", "512kbit", "--compress-cost", COST, "--json", "--plain", "--ipv6"]
    more = ["--scheme", "edge,edge(5,5),chumq+cea,auto", "--class", "nfs:tcp/2049:20ms"]
    theirs = json.loads(program("trace", "replay", *words, *more, "--block-bytes", 4096, *captures))
    ours = trace.replay(
        captures,
        "512kbit",
        compress_cost=COST,
        sealed=False,
        ipv6=True,
        schemes=["edge", "edge(5,5)", "chumq+cea", "auto"],
        classes=["nfs:tcp/2049:20ms"],
        block_bytes=4096,
    )
    assert ours.document == theirs
    assert trace.verdict(captures, "512kbit", compress_cost=COST)["answer"]
    with pytest.raises(ValueError):
        trace.replay(captures, "1mbit", schemes="fast")


def test_a_replay_takes_all_that_the_programs_does(program, captures, tmp_path):
    training = trace.train(captures)
    files = training.write(tmp_path)
    words = ["--rate", "256kbit", "--compress-cost", COST, "--json", "--objective", "bytes", "--gather-time", "35ms"]
    words += ["--block-packets", "7", "--poor-ratio", "0.8", "--dictionary", tmp_path / "all.dict"]
    theirs = json.loads(program("trace", "replay", *words, *captures))
    options = {"compress_cost": COST, "objective": "bytes", "gather_time": "35ms", "block_packets": 7, "poor_ratio": 0.8}
    ours = trace.replay(captures, "256kbit", dictionaries=[tmp_path / "all.dict"], **options)
    assert ours.document == theirs
    assert any(lane["name"].endswith("+dictionaries") for lane in ours.lanes), "dictionaries are lanes of their own"
    # As it was trained, and as files of classes.
    assert files and trace.replay(captures, "256kbit", dictionaries=training, **options).document == theirs
    for wrong in ({"objective": "money"}, {"poor_ratio": 2}, {"gather_time": "soon"}):
        with pytest.raises(ValueError):
            trace.replay(captures, "256kbit", **wrong)


def test_training_is_the_programs(program, captures, tmp_path):
    theirs = json.loads(program("trace", "train", "--json", "--out", tmp_path / "p", *captures))
    training = trace.train(captures)
    theirs.pop("files")
    assert still({"verdict": 0, **training.document}) == still({"verdict": 0, **theirs})
    written = {path.name: path.read_bytes() for path in (tmp_path / "p").iterdir()}
    training.write(tmp_path / "o")
    assert {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()} == written


def test_packets_are_columns(captures):
    table = trace.packets(captures, codecs=["zstd:3"], rows=100).read()
    analysis = trace.analyze(captures, codecs=["zstd:3"])
    assert len(table) == analysis.packets
    assert pc.sum(table["bytes"]).as_py() == analysis.bytes
    assert table.schema.metadata[b"dwell.schema"] == b"dwell-packets/1"
    assert table["time"].type == pa.timestamp("ns", tz="UTC")
    first = table.slice(0, 1).to_pylist()[0]
    assert first["class"].startswith("tcp/") and "." in first["source"]
    # By class, as the analysis has it: the lower port is the service's.
    by_class = {it["class"]: it for it in analysis.to_dict()["summary"]["classes"]}
    counts = pc.value_counts(table["class"].combine_chunks()).to_pylist()
    for count in counts:
        assert by_class[count["values"]]["service_packets"] == count["counts"]
    ratios = [it for it in table["ratio.zstd:3"].to_pylist() if it is not None]
    sent = sum(
        ratio * size
        for ratio, size in zip(table["ratio.zstd:3"].to_pylist(), table["bytes"].to_pylist())
        if ratio is not None
    )
    expected = analysis.to_dict()["summary"]["codecs"][0]["all"]["sent_bytes"]
    assert 0 < min(ratios) <= max(ratios) <= 1 and sent == pytest.approx(expected, rel=1e-5)


def test_batches_come_one_by_one_and_as_a_stream(captures):
    batches = list(trace.packets(captures[1], rows=10))
    assert all(len(batch) <= 10 for batch in batches)
    stream = pa.table(trace.packets(captures[1], rows=10))
    assert len(stream) == sum(len(batch) for batch in batches)
    one = trace.packets(captures[1])
    assert len(pa.table(one)) == len(stream)


def test_pieces_of_a_capture_are_the_whole(captures):
    whole = trace.packets(captures[1]).read()
    for pieces in (1, 2, 7, 1000):
        ranges = trace.cuts(captures[1], pieces)
        assert len(ranges) <= pieces
        parts = [trace.packets(captures[1], range=it).read() for it in ranges]
        for column in whole.column_names:
            together = [value for part in parts for value in part[column].to_pylist()]
            assert together == whole[column].to_pylist()
    with pytest.raises(dwell.CaptureError, match="plain pcap"):
        trace.cuts(captures[2], 2)


def test_a_damage_is_reported_with_its_place(captures, tmp_path):
    cut = tmp_path / "cut.pcap"
    with open(captures[1], "rb") as file:
        cut.write_bytes(file.read()[:5000])
    packets = trace.packets(cut)
    assert sum(len(batch) for batch in packets) > 3
    assert "at byte" in packets.troubles[str(cut)]
