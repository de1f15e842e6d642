"""The decision core, codecs and streams."""

import asyncio
import hashlib
import heapq
import io
import json
import socket
import threading

import pytest

import dwell
from dwell import codec, sim, stream

# --- Port ---

RATE, RATIO, TIME_NS, ROOM = 2_000_000, 0.6, 900_000, 30


def arrivals(count=3000):
    """Bursts of packets of uneven size, over a link that is too slow for some."""
    now, out = 0, []
    for n in range(count):
        now += 200_000 if n % 40 else 95_000_000
        out.append((now, 200 + 97 * (n * n % 13)))
    return out


def drive(port, packets):
    """A link and a compressor around a port; returns delays and counts, in virtual time."""
    events = [(at, 3, n) for n, (at, _) in enumerate(packets)]
    heapq.heapify(events)
    delays, counts = {}, {"compressed": 0, "dropped": 0}
    port.link_ready(0)
    while events:
        now, kind, what = heapq.heappop(events)
        if kind == 1:
            for n in what:
                delays[n] = now - packets[n][0]
            port.link_ready(now)
        elif kind == 2:
            job, names, bytes = what
            counts["compressed"] += len(names)
            port.compressed(now, job, int(bytes * RATIO), TIME_NS)
        else:
            port.arrive(now, what, packets[what][1], source="udp/9", destination="udp/9")
        while (action := port.poll(now)) is not None:
            if isinstance(action, dwell.Compress):
                job = (action.job, tuple(action.packets), action.bytes)
                heapq.heappush(events, (now + TIME_NS, 2, job))
            elif isinstance(action, dwell.Send):
                port.link_busy(now)
                names = tuple(name for unit in action.units for name in unit)
                took = -(-action.link_bytes * 8 * 10**9 // RATE)
                heapq.heappush(events, (now + took, 1, names))
            else:
                assert isinstance(action, dwell.Drop)
                counts["dropped"] += 1
    return delays, counts


@pytest.mark.parametrize("scheme", ["none", "all", "packet"])
def test_the_core_decides_as_in_the_simulator(scheme):
    packets = arrivals()
    scenario = {
        "about": {"title": "one port"},
        "run": {"warm_up": "0ms", "measure": "20s", "drain": "20s"},
        "topology": {"kind": "graph"},
        "link": {
            "l": {"from": "a", "to": "b", "rate": "2mbit", "queue": "port", "buffer_packets": ROOM}
        },
        "flow": {"f": {"from": "a", "to": "b", "kind": "trace", "file": "arrivals"}},
        "scheme": {"preset": scheme},
        "compress": {"ratio": RATIO, "time": f"{TIME_NS}ns"},
    }
    lines = "".join(f"{at / 1e9:.9f},{size}\n" for at, size in packets)
    (row,) = sim.run(scenario, files={"arrivals": lines}).to_arrow().to_pylist()
    port = dwell.Port(scheme, rate="2mbit", ratio=RATIO, time_ns=TIME_NS, queue_packets=ROOM)
    delays, counts = drive(port, packets)
    assert counts["dropped"] == row["f.dropped"]
    assert counts["compressed"] == row["l.compressed.f"]
    assert len(delays) == row["f.delivered"]
    assert sum(delays.values()) / len(delays) / 1e9 == pytest.approx(row["f.delay_mean_s"], abs=2e-9)
    assert max(delays.values()) / 1e9 == pytest.approx(row["f.delay_max_s"], abs=2e-9)
    accounts = json.loads(port.accounts_json())
    assert accounts["arrived"]["packets"] == len(packets)
    if scheme == "packet":
        assert 0 < counts["compressed"] < len(packets)


def test_a_port_refuses_what_makes_no_sense():
    with pytest.raises(ValueError, match="no scheme"):
        dwell.Port("fast")
    with pytest.raises(ValueError):
        dwell.Port("packet", ratio=0.5)
    port = dwell.Port("packet", rate="1mbit")
    with pytest.raises(ValueError):
        port.arrive(0, 1, 0)
    with pytest.raises(dwell.Error, match="not under way"):
        port.compressed(0, 7, 10, 10)
    with pytest.raises(ValueError, match="0 bytes"):
        port.compressed(0, 7, 0, 10)


def test_batches_have_their_packets():
    port = dwell.Port("auto", rate="1mbit", queue_packets=100)
    for n in range(60):
        port.arrive(0, n, 500, flow=n % 3, group=1)
    port.link_ready(0)
    seen, job, now = [], None, 0
    while len(seen) < 60 and now < 10**9:
        now += 100_000
        if job:
            port.compressed(now, job.job, job.bytes // 3, 100_000)
            job = None
        while (action := port.poll(now)) is not None:
            if isinstance(action, dwell.Compress):
                job = action
            elif isinstance(action, dwell.Send):
                seen.extend(name for unit in action.units for name in unit)
        port.link_ready(now)
    assert sorted(seen) == list(range(60))


# --- Codecs ---


@pytest.mark.parametrize("name", ["lz4", "zstd:1", "zstd:-3", "deflate"])
def test_what_is_compressed_is_restored(name):
    packet = b"GET /index.html HTTP/1.1\r\nHost: example.org\r\n" * 9
    small = codec.Compressor(name).compress(packet)
    assert len(small) < len(packet) / 2
    assert codec.Decompressor(name).decompress(small, len(packet)) == packet
    with pytest.raises(dwell.Error):
        codec.Decompressor(name).decompress(small[:-3], len(packet))
    with pytest.raises(dwell.Error):
        codec.Decompressor(name).decompress(small, len(packet) + 1)


def test_what_does_not_shrink_is_none(root):
    noise = bytes((n * n * 7919 + n * 31) >> 3 & 255 for n in range(1000))
    noise = hashlib.shake_128(noise).digest(1000)
    assert codec.Compressor().compress(noise) is None and codec.looks_random(noise)
    with pytest.raises(ValueError):
        codec.Compressor().compress(b"")
    with pytest.raises(ValueError):
        codec.Compressor("zip")


# --- Streams ---

TEXT = b"".join(b"line %d of a log that says much the same each time\n" % n for n in range(40_000))


def test_a_file_object_is_compressed_and_restored():
    pipe = io.BytesIO()
    with stream.Writer(pipe, strategy="all") as writer:
        for at in range(0, len(TEXT), 10_001):
            writer.write(TEXT[at : at + 10_001])
    assert len(pipe.getvalue()) < len(TEXT) / 5
    pipe.seek(0)
    assert io.BufferedReader(stream.Reader(pipe)).read() == TEXT


def test_a_stream_that_is_cut_or_damaged_is_refused():
    pipe = io.BytesIO()
    with stream.Writer(pipe, strategy="all") as writer:
        writer.write(TEXT[:100_000])
    data = pipe.getvalue()
    with pytest.raises(dwell.Error):
        io.BufferedReader(stream.Reader(io.BytesIO(data[:-10]))).read()
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    with pytest.raises(dwell.Error):
        io.BufferedReader(stream.Reader(io.BytesIO(bytes(damaged)))).read()


def test_a_socket_takes_compressed_blocks_while_it_is_full():
    near, far = socket.socketpair()
    got = []

    def read():
        reader = io.BufferedReader(stream.Reader(far))
        got.append(reader.read())

    thread = threading.Thread(target=read)
    writer = stream.Writer(near)
    thread.start()
    writer.write(TEXT)
    writer.close()
    thread.join(60)
    assert got == [TEXT]
    near.close()
    far.close()


def test_asyncio_has_the_same():
    async def both():
        received = asyncio.get_running_loop().create_future()

        async def serve(reader, writer):
            restored, pieces = stream.AsyncReader(reader), []
            while piece := await restored.read():
                pieces.append(piece)
            received.set_result(b"".join(pieces))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        _, writer = await asyncio.open_connection(host, port)
        compressed = stream.AsyncWriter(writer, strategy="all")
        await compressed.write(TEXT)
        await compressed.finish()
        got = await received
        writer.close()
        server.close()
        return got

    assert asyncio.run(asyncio.wait_for(both(), 60)) == TEXT
