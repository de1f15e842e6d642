"""Prints hashes of results that are the same on every machine: `python same_everywhere.py CAPTURE...`.

`./x python --release` runs it here and, with the wheel for aarch64, under qemu, and compares. It needs the package alone.
"""

import hashlib
import platform
import sys

from dwell import codec, sim, stream, trace

SHORT = {"run.warm_up": "50ms", "run.measure": "100ms", "run.drain": "50ms"}


def said(name, data):
    """Prints what became of something."""
    print(name, len(data), hashlib.sha256(data).hexdigest())


def main(captures):
    """Runs a little of everything."""
    print(platform.machine(), file=sys.stderr)
    said("runs", sim.run("shimamura/fig-8", quick=True, set=SHORT).lines())
    said("tcp", sim.run("yoshino/fig-3", quick=True, set={"run.warm_up": "50ms", "run.measure": "100ms"}).lines())
    analysis = trace.analyze(captures, codecs=["lz4", "zstd:1", "deflate"], measure_time=False)
    said("analysis", analysis.to_json())
    packet = b"POST /readings HTTP/1.1\r\n" * 20
    small = codec.Compressor("zstd:1").compress(packet)
    said("packet", small)
    assert codec.Decompressor("zstd:1").decompress(small, len(packet)) == packet
    import io

    pipe = io.BytesIO()
    with stream.Writer(pipe, strategy="all") as writer:
        writer.write(packet * 1000)
    said("stream", io.BufferedReader(stream.Reader(io.BytesIO(pipe.getvalue()))).read())


if __name__ == "__main__":
    main(sys.argv[1:])
