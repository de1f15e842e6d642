#!/usr/bin/env python3
"""waits.py IN OUT FROM UNTIL: the mean time from a packet's appearance in one capture to that in the other, in seconds.

Both are of tcpdump with nanoseconds. A packet is known by its addresses, identification, ports and number.
"""

import struct
import sys


def packets(path):
    with open(path, "rb") as file:
        data = file.read()
    assert struct.unpack_from("<I", data)[0] == 0xA1B23C4D, "a capture with nanoseconds"
    at = 24
    while at + 16 <= len(data):
        seconds, nanoseconds, length, size = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16 : at + 16 + length]
        at += 16 + length
        if frame[12:14] == b"\x08\x00" and size > 500:
            yield seconds + nanoseconds / 1e9, frame[14 + 4 : 14 + 6] + frame[14 + 12 : 14 + 28]


def main():
    before, behind, start, until = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    came, total, count = {}, 0.0, 0
    for at, key in packets(before):
        came[key] = at
    for at, key in packets(behind):
        if key in came and start <= at < until:
            total += at - came[key]
            count += 1
    if count == 0:
        sys.exit("waits.py: no packet is in both captures: nothing was sent, or tcpdump did not run")
    print(f"wait {total / count:.9f} {count}")


main()
