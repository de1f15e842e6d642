"""An archive of captures to measure with, and the measurement of its analysis.

    python benchmarks/archive.py make /tmp/archive --size 20e9
    python benchmarks/archive.py measure /tmp/archive --on dask

`make` repeats the captures of `data/captures` with other addresses each time (IPv4 and IPv6, check sums kept right) and
times that go on, in files of uneven size, some of them broken in one of four ways. Equal arguments give equal bytes.

`measure` analyses the archive in one process with one thread, then on an engine into an empty store, then once more,
each in a process of its own, and says whether the results are equal to the bit, how long it took and how much memory
the driver had. What codecs alone take is measured by the analysis itself: of a sample of the captures, first in one
process, then in as many at once as the engine has workers, all with the same sample. The second is what the engine is
compared with: two processors that work at the same time are slower, each, than one that works alone. Processor time is
that of a process and of all that it started; where other work goes on beside the measurement, it says more than time.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import pathlib
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
from typing import Iterator, List, NamedTuple, Tuple

import numpy as np

CAPTURES = pathlib.Path(__file__).resolve().parents[3] / "data/captures"
HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
ETHERNET = 1
BEGIN_S = 1_700_000_000
AT_ONCE = 64
"""So many repetitions are made at a time."""
BROKEN_WAYS = ("cut", "nothing", "empty", "header")


# --- The packets that are repeated ---


class Block(NamedTuple):
    """Records of a pcap one after another, and the places in them that each repetition changes."""

    data: np.ndarray
    seconds: np.ndarray
    """Of records' seconds, 32 bits each."""
    networks: np.ndarray
    """Of the 16 bits of addresses that change."""
    sums: np.ndarray
    """For each of them, the place of a check sum over it: one or two rows, -1 for none."""
    lasts_s: int


def records(path: pathlib.Path) -> Iterator[Tuple[float, bytes]]:
    """Yields time and bytes of each packet of a pcap of Ethernet; nothing of others."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">"}.get(data[:4])
    if order is None or struct.unpack_from(f"{order}I", data, 20)[0] != ETHERNET:
        return
    at = 24
    while at + 16 <= len(data):
        seconds, micros, captured, length = struct.unpack_from(f"{order}IIII", data, at)
        if captured == length:
            yield seconds + micros / 1e6, data[at + 16 : at + 16 + captured]
        at += 16 + captured


def addresses(packet: bytes) -> Tuple[List[int], List[List[int]]]:
    """Returns the places of addresses' networks in a packet, and those of the check sums over each."""
    kind = int.from_bytes(packet[12:14], "big")
    if kind == 0x0800 and packet[14] >> 4 == 4:
        size, protocol, networks = 4 * (packet[14] & 15), packet[23], [14 + 12, 14 + 16]
        sums, is_first = [14 + 10], int.from_bytes(packet[20:22], "big") & 0x1FFF == 0
    elif kind == 0x86DD:
        size, protocol, networks, sums, is_first = 40, packet[20], [14 + 10, 14 + 26], [], True
    else:
        return [], []
    place = 14 + size + {6: 16, 17: 6, 58: 2}.get(protocol, 0)
    has_sum = protocol in (6, 17, 58) and is_first and place + 2 <= len(packet)
    if has_sum and not (protocol == 17 and packet[place : place + 2] == b"\0\0"):
        sums.append(place)
    return networks, [sums, sums]


def block(captures: pathlib.Path) -> Block:
    """Returns the packets of all captures in a directory, one capture after another."""
    out, seconds, networks, sums, offset = bytearray(), [], [], [], 0.0
    for path in sorted(captures.iterdir()):
        begin = None
        for at, packet in records(path):
            begin = at if begin is None else begin
            whole = int(now := max(0.0, at - begin) + offset)
            seconds.append(len(out))
            places, of_sums = addresses(packet)
            base = len(out) + 16
            networks += [base + place for place in places]
            sums += [[base + place for place in row] + [-1] * (2 - len(row)) for row in of_sums]
            out += struct.pack("<IIII", whole, int((now - whole) * 1e6), len(packet), len(packet)) + packet
            last = now
        offset = last + 0.1 if begin is not None else offset
    data = np.frombuffer(bytes(out), np.uint8)
    return Block(data, np.array(seconds), np.array(networks), np.array(sums).T, int(offset) + 1)


def word(rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns the 16 bits at each place of each row."""
    return rows[:, places].astype(np.uint32) << 8 | rows[:, places + 1]


def put_word(rows: np.ndarray, places: np.ndarray, words: np.ndarray) -> None:
    """Writes 16 bits to each place of each row."""
    rows[:, places], rows[:, places + 1] = words >> 8, words & 0xFF


def repeated(it: Block, first: int, count: int) -> np.ndarray:
    """Returns some repetitions, each with its own addresses and later times."""
    rows = np.tile(it.data, (count, 1))
    number = np.arange(first, first + count, dtype=np.uint32)[:, None]
    old = word(rows, it.networks)
    new = (old + number * 257) & 0xFFFF
    put_word(rows, it.networks, new)
    for places in it.sums:
        has = places >= 0
        # RFC 1624: the sum changes by what was taken out and put in; two addresses share a sum, one after the other.
        for part in (np.flatnonzero(has)[::2], np.flatnonzero(has)[1::2]):
            at = places[part]
            total = (~word(rows, at) & 0xFFFF) + (~old[:, part] & 0xFFFF) + new[:, part]
            total = (total & 0xFFFF) + (total >> 16)
            put_word(rows, at, ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)
    times = rows[:, it.seconds[:, None] + np.arange(4)].copy().view("<u4")[..., 0]
    later = (times + BEGIN_S + number * it.lasts_s).astype("<u4")
    rows[:, it.seconds[:, None] + np.arange(4)] = later[..., None].view(np.uint8).reshape(*later.shape, 4)
    return rows


# --- The archive ---


def make(directory: pathlib.Path, size: float, files: int, broken: int, seed: int) -> None:
    """Makes the archive."""
    directory.mkdir(parents=True)
    rng, it, number = random.Random(seed), block(CAPTURES), 0
    weights = [rng.lognormvariate(0, 1.3) for _ in range(files)]
    bad = set(rng.sample(range(files), broken))
    for at, weight in enumerate(weights):
        path = directory / f"part-{at:04}.pcap"
        left = max(1, round(size * weight / sum(weights) / len(it.data)))
        with open(path, "wb") as file:
            file.write(HEADER)
            while left:
                count = min(left, AT_ONCE)
                file.write(repeated(it, number, count).tobytes())
                number, left = number + count, left - count
        if at in bad:
            damage(path, BROKEN_WAYS[at % len(BROKEN_WAYS)])


def damage(path: pathlib.Path, way: str) -> None:
    """Breaks a capture: within a packet, from its first byte on, all of it, or at a packet's length."""
    with open(path, "r+b") as file:
        if way == "cut":
            file.truncate(path.stat().st_size // 2)
        elif way == "nothing":
            file.write(b"nothing")
        elif way == "empty":
            file.truncate(0)
        else:
            file.seek(len(HEADER) + 8)
            file.write(b"\xff" * 8)


# --- The measurement ---


def analyze(arguments: argparse.Namespace) -> dict:
    """Analyses the archive, or each `sample`-th capture of it, and returns what became of it."""
    from dwell import trace

    options = {"codecs": arguments.codec.split(","), "blocks": None, "contexts": None, "bound": False}
    if arguments.on:
        options.update(on=arguments.on, store=arguments.store, jobs=arguments.jobs)
    else:
        options.update(sides="each", jobs=1)
    captures = sorted(arguments.directory.iterdir())[:: arguments.sample]
    begin = time.monotonic()
    analysis = trace.analyze(captures, measure_time=arguments.times, **options)
    document = analysis.to_json()
    elapsed = time.monotonic() - begin
    sums = json.loads(document)["summary"]["codecs"]
    return {
        "seconds": elapsed,
        "cpu_seconds": sum(sum(resource.getrusage(of)[:2]) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)),
        "driver_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "sha256": hashlib.sha256(document).hexdigest(),
        "json_bytes": len(document),
        "packets": analysis.packets,
        "bytes": analysis.bytes,
        "unreadable": len(analysis.unreadable),
        "left_out": len(analysis.left_out),
        "codec_seconds": sum(it["all"]["ns"] for it in sums) / 1e9,
    }


def begun(arguments: argparse.Namespace, *words: str) -> subprocess.Popen:
    """Begins one part of the measurement in a process of its own, so that its memory is known."""
    command = [sys.executable, __file__, "analyze", str(arguments.directory), "--codec", arguments.codec, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ended(name: str, process: subprocess.Popen) -> dict:
    """Waits for it, and prints its result."""
    output, _ = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    result = json.loads(output.splitlines()[-1])
    shown = {key: round(it, 1) if isinstance(it, float) else it for key, it in result.items()}
    print(f"{name}: {shown}", flush=True)
    return result


def part(name: str, arguments: argparse.Namespace, *words: str) -> dict:
    """Does one part of the measurement by itself."""
    return ended(name, begun(arguments, *words))


class Cost(NamedTuple):
    """What codecs take for a byte."""

    seconds: float
    cpu_seconds: float


def of_codecs(arguments: argparse.Namespace) -> Tuple[Cost, Cost]:
    """Returns what codecs take in one process alone, and in each of several at once."""
    words = ["--times", "--sample", str(arguments.sample)]
    alone = part("codecs, sample, alone", arguments, *words)
    # All at work before the first is waited for.
    processes = [begun(arguments, *words) for _ in range(arguments.jobs)]
    at_once = [ended("codecs, sample, at once", process) for process in processes]
    return cost([alone]), cost(at_once)


def cost(parts: List[dict]) -> Cost:
    """Returns the mean of some processes. Of their processor time codecs have the same share as of their time."""
    size = sum(it["bytes"] for it in parts)
    cpu = sum(it["codec_seconds"] / it["seconds"] * it["cpu_seconds"] for it in parts)
    return Cost(sum(it["codec_seconds"] for it in parts) / size, cpu / size)


def measure(arguments: argparse.Namespace) -> int:
    """Measures; returns 1 if results differ."""
    size = sum(path.stat().st_size for path in arguments.directory.iterdir())
    print(f"{size / 1e9:.2f} GB in {len(list(arguments.directory.iterdir()))} files", flush=True)
    alone, at_once = of_codecs(arguments)
    if not arguments.only_engine:
        whole = part("one thread", arguments)
    with tempfile.TemporaryDirectory(dir=arguments.directory.parent) as store:
        words = ["--on", arguments.on, "--jobs", str(arguments.jobs), "--store", store]
        first = part(f"{arguments.on}, first", arguments, *words)
        second = part(f"{arguments.on}, second", arguments, *words)
        in_store = sum(path.stat().st_size for path in pathlib.Path(store).rglob("*") if path.is_file())
    print(f"store: {in_store / 1e6:.1f} MB")
    is_same = first["sha256"] == second["sha256"]
    if not arguments.only_engine:
        is_same = is_same and first["sha256"] == whole["sha256"]
        print(f"one thread / {arguments.on}: {whole['seconds'] / first['seconds']:.3f}")
    for name, each in (("at once", at_once), ("alone", alone)):
        took, cpu = each.seconds * first["bytes"] / arguments.jobs, each.cpu_seconds * first["bytes"]
        print(f"{arguments.on} / codecs, {name}: {first['seconds'] / took:.3f} of {took:.1f} s on {arguments.jobs}, ", end="")
        print(f"{first['cpu_seconds'] / cpu:.3f} of {cpu:.1f} s of processors")
    print("equal to the bit" if is_same else "NOT equal")
    return int(not is_same)


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    maker = commands.add_parser("make", help="make an archive")
    maker.add_argument("directory", type=pathlib.Path)
    maker.add_argument("--size", type=float, default=20e9, help="bytes (20e9)")
    maker.add_argument("--files", type=int, default=500)
    maker.add_argument("--broken", type=int, default=10)
    maker.add_argument("--seed", type=int, default=1)
    for name in ("measure", "analyze"):
        it = commands.add_parser(name)
        it.add_argument("directory", type=pathlib.Path)
        it.add_argument("--codec", default="lz4,zstd:1")
        it.add_argument("--on", default="dask" if name == "measure" else None, help="local, ray, dask or slurm")
        it.add_argument("--jobs", type=int, default=2)
        it.add_argument("--sample", type=int, default=10 if name == "measure" else 1, help="each so many-th capture")
        it.add_argument("--store")
        it.add_argument("--times", action="store_true")
        it.add_argument("--only-engine", action="store_true", help="no run of one thread to compare with")
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.directory, arguments.size, arguments.files, arguments.broken, arguments.seed)
    elif arguments.command == "measure":
        return measure(arguments)
    else:
        print(json.dumps(analyze(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
