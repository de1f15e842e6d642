"""A stream from Python by ctypes: compressed while a socket is full, restored and compared.

    LD_LIBRARY_PATH=/usr/local/lib python3 stream.py [FILE]

For Python itself there is the package of docs/python.md, which needs no ctypes.
"""

import ctypes
import select
import socket
import sys
import threading
import time

LIBRARY = ctypes.CDLL("libdwell_stream_c.so.0")
CLOCK = ctypes.CFUNCTYPE(ctypes.c_uint64)
LENGTH = ctypes.POINTER(ctypes.c_size_t)


def function(name, result, *arguments):
    """Returns a function of the library, with its types: without them pointers would be cut."""
    found = getattr(LIBRARY, name)
    found.restype, found.argtypes = result, arguments
    return found


pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
version = function("dwell_stream_version", text)
config_new = function("dwell_config_new", pointer)
config_free = function("dwell_config_free", None, pointer)
config_set = function("dwell_config_set", ctypes.c_int, pointer, text, text, text, size)
sender_with = function("dwell_sender_with", pointer, pointer, text, size)
sender_free = function("dwell_sender_free", None, pointer)
sender_accept = function("dwell_sender_accept", size, pointer, text, size)
sender_finish = function("dwell_sender_finish", None, pointer)
sender_wire = function("dwell_sender_wire", pointer, pointer, ctypes.c_uint64, LENGTH)
sender_wrote = function("dwell_sender_wrote", ctypes.c_int, pointer, ctypes.c_uint64, size)
sender_blocked = function("dwell_sender_blocked", None, pointer, ctypes.c_uint64)
sender_unblocked = function("dwell_sender_unblocked", None, pointer)
sender_compress = function("dwell_sender_compress", ctypes.c_int, pointer, CLOCK)
sender_is_finished = function("dwell_sender_is_finished", ctypes.c_bool, pointer)
sender_wire_bytes = function("dwell_sender_wire_bytes", ctypes.c_uint64, pointer)
receiver_new = function("dwell_receiver_new", pointer)
receiver_free = function("dwell_receiver_free", None, pointer)
receiver_feed = function("dwell_receiver_feed", ctypes.c_ssize_t, pointer, text, size)
receiver_data = function("dwell_receiver_data", pointer, pointer, LENGTH)
receiver_consume = function("dwell_receiver_consume", ctypes.c_int, pointer, size)
receiver_end = function("dwell_receiver_end", ctypes.c_int, pointer)

# It must live as long as it may be called.
now = CLOCK(time.monotonic_ns)

# What the kernel holds can't be compressed any more. Linux holds twice as much, and a sender
# assumes that.
KERNEL_HOLDS = 64 << 10
# The bytes a second that the receiver takes, in place of a slow link.
RATE = 1_000_000


def new_sender(settings):
    """Returns a sender with these settings, of which dwell_stream.h has a list."""
    why = ctypes.create_string_buffer(200)
    config = config_new()
    try:
        for name, value in settings.items():
            if config_set(config, name.encode(), value.encode(), why, len(why)) != 0:
                raise ValueError(why.value.decode())
        sender = sender_with(config, why, len(why))
    finally:
        config_free(config)
    if not sender:
        raise ValueError(why.value.decode())
    return sender


def write(sender, sock):
    """Writes until the socket takes no more, and notifies the sender; true if it took all."""
    length = size()
    while wire := sender_wire(sender, now(), length):
        if length.value == 0:
            break
        try:
            taken = sock.send(ctypes.string_at(wire, length.value))
        except BlockingIOError:
            taken = 0
        sender_wrote(sender, now(), taken)
        if taken < length.value:
            sender_blocked(sender, now())
            return False
    sender_unblocked(sender)
    return True


def send(data, sock, settings):
    """Sends everything, compressed while the socket is full; returns the bytes on the wire."""
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_HOLDS)
    sender, given = new_sender(settings), 0
    try:
        while not sender_is_finished(sender):
            given += sender_accept(sender, data[given:given + 65536], min(65536, len(data) - given))
            if given == len(data):
                sender_finish(sender)
            took_all = write(sender, sock)
            if sender_compress(sender, now) == 0 and not took_all:
                select.select([], [sock], [])
        return sender_wire_bytes(sender)
    finally:
        sender_free(sender)


def receive(sock):
    """Returns everything up to the stream's end, as slowly as RATE says."""
    receiver, got, length = receiver_new(), bytearray(), size()
    try:
        while piece := sock.recv(16384):
            time.sleep(len(piece) / RATE)
            while piece:
                taken = receiver_feed(receiver, piece, len(piece))
                if taken < 0:
                    raise ValueError("the stream is damaged")
                piece = piece[taken:]
                data = receiver_data(receiver, length)
                got += ctypes.string_at(data, length.value)
                receiver_consume(receiver, length.value)
        if receiver_end(receiver) != 0:
            raise EOFError("the stream was cut off")
        return bytes(got)
    finally:
        receiver_free(receiver)


def main():
    """Sends a file, or a text."""
    if len(sys.argv) > 1:
        with open(sys.argv[1], "rb") as file:
            data = file.read()
    else:
        data = b"from Python, through C, by Rust\n" * 50_000
    near, far = socket.socketpair()
    got = []
    reader = threading.Thread(target=lambda: got.append(receive(far)))
    reader.start()
    wire_bytes = send(data, near, {})
    near.close()
    reader.join()
    if got != [data]:
        sys.exit("it is not the same")
    print(f"version {version().decode()}: {len(data)} bytes, {wire_bytes} on the wire, and the same")


if __name__ == "__main__":
    main()
