"""`python -m dwell`: what the program does, on an engine."""

import csv
import json
import subprocess
import sys

import pyarrow.parquet as pq

SHORT = ["--quick", "--set", "run.measure=100ms", "--set", "run.warm_up=50ms"]


def command(*words, code=0):
    done = subprocess.run([sys.executable, "-m", "dwell", *map(str, words)], capture_output=True)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_sweep_is_the_programs(program, tmp_path):
    out = tmp_path / "runs.parquet"
    printed = command(
        "sim", "run", "shimamura/fig-8", *SHORT, "--on", "local", "--store", tmp_path, "--out", out, "--json"
    )
    theirs = program("sim", "run", "shimamura/fig-8", *SHORT, "--json").splitlines()
    assert {json.loads(line)["key"] for line in theirs} == {
        json.loads(line)["key"] for line in printed.splitlines()
    }
    assert set(theirs) == set(printed.splitlines())
    assert len(pq.read_table(out)) == 12


def test_shards_fill_a_store(tmp_path):
    base = ["sim", "run", "shimamura/fig-8", *SHORT, "--store", tmp_path, "--json"]
    for part in ("1/2", "2/2"):
        last = command(*base, "--shard", part)
    assert last == command(*base)
    assert b"3/16" in command(*base, "--shard", "3/2", code=2)


def test_an_archive_is_analysed(root, tmp_path):
    data, out = root / "data/captures", tmp_path / "whole.json"
    words = ["trace", "analyze", "--codec", "lz4", data / "quic.pcap", data / "nfs-write.pcap"]
    printed = command(*words, "--no-time", "--on", "local", "--store", tmp_path / "s", "--json", "--out", out)
    assert out.read_bytes() == printed
    assert len(json.loads(printed)["files"]) == 2
    (tmp_path / "broken.pcap").write_bytes(b"nothing like a capture")
    assert b"no capture" in command(*words, tmp_path / "broken.pcap", "--on", "local", code=1)
    assert b"no scenario" in command("sim", "run", "nothing/at-all", code=1)


def test_a_paper_is_an_artefact(root, tmp_path):
    folder = root / "reproduce/shimamura-2010"
    words = [folder / "run.py", "--quick", "--no-figures", "--out", tmp_path]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
    # Code that gives other numbers on purpose is no failure here: `run.py` says so to whoever checks.
    assert done.returncode in (0, 1) and "wrote" in done.stdout, done.stderr

    def named(path):
        with open(path, newline="") as file:
            return [(row["scenario"], row["place"], row["quantity"]) for row in csv.DictReader(file)]

    assert named(tmp_path / "claims.csv") == named(folder / "expected-quick.csv")
