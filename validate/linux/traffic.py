#!/usr/bin/env python3
"""Sources and sinks for the comparison with Linux; times are seconds of CLOCK_MONOTONIC after BEGIN.

    traffic.py sink BEGIN FROM UNTIL FLOWS [BUFFER RATE EVERY]   bytes of each connection from FROM to UNTIL, and
                                                                 the largest window that was announced
    traffic.py source BEGIN AT UNTIL HOST CONTROL                one connection that never lacks data
    traffic.py receive BEGIN FROM UNTIL                          loss, run, and delays of datagrams
    traffic.py poisson BEGIN UNTIL HOST RATE BYTES SEED          datagrams by chance; BYTES with Ethernet's header

With BUFFER (bytes of SO_RCVBUF) the sink reads RATE bit/s, each EVERY seconds what it may have read by then.
"""

import random
import selectors
import socket
import struct
import sys
import time

PORT = 5000
RECEIVE_WINDOW = 232  # of struct tcp_info: tcpi_rcv_wnd
HEADERS = 42  # Ethernet, IP, UDP


def now(begin):
    return time.clock_gettime(time.CLOCK_MONOTONIC) - begin


def sleep_until(begin, at):
    time.sleep(max(0.0, at - now(begin)))


def listen(flows, buffer=None):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if buffer:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    server.bind(("", PORT))
    server.listen(flows)
    return server


def sink(begin, start, until, flows):
    server = listen(flows)
    counts = {}
    watched = selectors.DefaultSelector()
    watched.register(server, selectors.EVENT_READ)
    while (left := until - now(begin)) > 0:
        for key, _ in watched.select(left):
            if key.fileobj is server:
                connection, _ = server.accept()
                counts[connection] = 0
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 15)  # fewer wake-ups
                watched.register(connection, selectors.EVENT_READ)
                continue
            data = key.fileobj.recv(1 << 20)
            if not data:
                watched.unregister(key.fileobj)
            elif now(begin) >= start:
                counts[key.fileobj] += len(data)
    print("bytes", *counts.values())


def slow_sink(begin, start, until, buffer, rate, every):
    server = listen(1, buffer)
    connection, _ = server.accept()
    connection.setblocking(False)
    first = now(begin)
    turn, spare, count, window = 1, 0.0, 0, 0
    while (at := first + turn * every) < until:
        sleep_until(begin, at)
        turn += 1
        spare += rate / 8 * every
        while spare >= 1:
            try:
                data = connection.recv(int(spare))
            except BlockingIOError:
                spare = 0.0  # what was not there is not made up for
                break
            if not data:
                break
            spare -= len(data)
            if at >= start:
                count += len(data)
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        window = max(window, struct.unpack_from("I", info, RECEIVE_WINDOW)[0])
    print("bytes", count)
    print("window", window)


def source(begin, at, until, host, control):
    sleep_until(begin, at)
    connection = socket.socket()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    connection.connect((host, PORT))
    connection.settimeout(1)
    data = bytes(1 << 16)
    while now(begin) < until:
        try:
            connection.send(data)
        except TimeoutError:
            pass
        except OSError:
            break  # the sink has seen enough


def receive(begin, start, until):
    server = socket.socket(type=socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    server.bind(("", PORT))
    delays, runs, last, first = [], [], None, None
    while (left := until - now(begin)) > 0:
        server.settimeout(left)
        try:
            data = server.recv(2048)
        except TimeoutError:
            break
        number, sent = struct.unpack_from("!Qd", data)
        if sent < start:
            last = number
            continue
        if last is not None and number > last + 1:
            runs.append(number - last - 1)
        first = number if first is None else first
        last = number
        delays.append(now(begin) - sent)
    delays.sort()
    part = lambda share: delays[int(share * (len(delays) - 1))]
    lost = sum(runs)
    print(
        "datagrams", len(delays), lost / (lost + len(delays)), lost / max(1, len(runs)),
        sum(delays) / len(delays), part(0.5), part(0.9), part(0.99),
    )


def poisson(begin, until, host, rate, size, seed):
    chance = random.Random(seed)
    sender = socket.socket(type=socket.SOCK_DGRAM)
    sender.connect((host, PORT))
    gap, number, at = size * 8 / rate, 0, 1.0
    pad = bytes(size - HEADERS - 16)
    while at < until:
        sleep_until(begin, at)
        sender.send(struct.pack("!Qd", number, now(begin)) + pad)
        number += 1
        at += chance.expovariate(1 / gap)


def main():
    what, begin, *words = sys.argv[1:]
    begin = float(begin)
    if what == "sink" and len(words) == 3:
        sink(begin, float(words[0]), float(words[1]), int(words[2]))
    elif what == "sink":
        slow_sink(begin, float(words[0]), float(words[1]), int(words[3]), float(words[4]), float(words[5]))
    elif what == "source":
        source(begin, float(words[0]), float(words[1]), words[2], words[3])
    elif what == "receive":
        receive(begin, float(words[0]), float(words[1]))
    elif what == "poisson":
        poisson(begin, float(words[0]), words[1], float(words[2]), int(words[3]), int(words[4]))


main()
