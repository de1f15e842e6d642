"""The codecs of packets, as relays use them: each packet alone, without any header.

>>> from dwell import codec
>>> packet = b"dwell time is time to compress, " * 20
>>> small = codec.Compressor("zstd:1").compress(packet)
>>> len(small) < 100
True
>>> codec.Decompressor("zstd:1").decompress(small, len(packet)) == packet
True
>>> codec.looks_random(packet)
False
"""

from dwell._dwell import Compressor, Decompressor, looks_random

__all__ = ["Compressor", "Decompressor", "looks_random"]
