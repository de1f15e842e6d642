"""Compressed byte streams over file objects and asyncio: what waits is compressed meanwhile.

>>> import io
>>> from dwell import stream
>>> pipe = io.BytesIO()
>>> with stream.Writer(pipe, strategy="all") as writer:
...     _ = writer.write(b"dwell time is time to compress, " * 1000)
>>> len(pipe.getvalue()) < 1000
True
>>> stream.Reader(io.BytesIO(pipe.getvalue())).read(31)
b'dwell time is time to compress,'

The format is that of ``dwell proxy`` and of the library for Rust and C (docs/stream-wire.md).
"""

from __future__ import annotations

import asyncio
import io
import socket
from typing import Any, Optional

from dwell._dwell import Receiver, Sender

__all__ = ["AsyncReader", "AsyncWriter", "Reader", "Writer", "Receiver", "Sender"]

PIECE = 64 * 1024


def _is_socket(transport: Any) -> bool:
    return isinstance(transport, socket.socket)


class Writer(io.RawIOBase):
    """A file object that compresses what is written to it.

    Over a socket, blocks are compressed while it takes no more. Other file objects are written to as if they took
    everything at once: with the strategy ``"all"`` every block is compressed.

    :param transport: a binary file object, or a connected socket.
    :param strategy: ``"hull"``, ``"all"`` and the others of docs/streams.md.
    :param codec: one instead of the strategy's.
    """

    def __init__(self, transport: Any, *, strategy: str = "hull", codec: Optional[str] = None) -> None:
        super().__init__()
        self._transport = transport
        self._sender = Sender(strategy, codec=codec)
        self._is_socket = _is_socket(transport)

    def writable(self) -> bool:
        """Returns true."""
        return True

    def write(self, data: Any) -> int:
        """Takes all of it, and writes what the transport takes."""
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            at += self._sender.accept(bytes(view[at : at + PIECE]))
            self._pump()
        return len(view)

    def flush(self) -> None:
        """Writes all that waits."""
        if self.closed:
            return
        self._pump()
        while not self._sender.is_idle:
            self._pump()
        if not self._is_socket:
            self._transport.flush()

    def close(self) -> None:
        """Ends the stream; the transport stays open."""
        if self.closed:
            return
        self._sender.finish()
        while not self._sender.is_finished:
            self._pump()
        if not self._is_socket:
            self._transport.flush()
        super().close()

    @property
    def counts(self) -> "tuple[int, int]":
        """The bytes that were written to it, and those that it wrote."""
        return self._sender.counts

    def _pump(self) -> None:
        """Writes until nothing is left to write or to compress."""
        while True:
            data = self._sender.wire(PIECE)
            if not data:
                if not self._sender.compress():
                    return
                continue
            written = self._send(data)
            self._sender.wrote(written)
            if written < len(data):
                self._sender.blocked()
                # The kernel sends meanwhile.
                if not self._sender.compress():
                    self._wait()
                self._sender.unblocked()

    def _send(self, data: bytes) -> int:
        if not self._is_socket:
            written = self._transport.write(data)
            return len(data) if written is None else written
        try:
            return self._transport.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def _wait(self) -> None:
        import select

        if self._is_socket:
            poller = select.poll()
            poller.register(self._transport, select.POLLOUT)
            poller.poll()


class Reader(io.RawIOBase):
    """A file object that restores a stream.

    :param transport: a binary file object, or a connected socket.
    """

    def __init__(self, transport: Any) -> None:
        super().__init__()
        self._transport = transport
        self._receiver = Receiver()
        self._left = b""

    def readable(self) -> bool:
        """Returns true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer; 0 at the end.

        :raises Error: if the stream is damaged, or was cut off.
        """
        view = memoryview(buffer).cast("B")
        while not self._receiver.available:
            if self._receiver.is_finished:
                return 0
            if not self._left:
                self._left = self._receive()
                if not self._left:
                    self._receiver.end()
                    return 0
            self._left = self._left[self._receiver.feed(self._left) :]
        data = self._receiver.take(len(view))
        view[: len(data)] = data
        return len(data)

    def _receive(self) -> bytes:
        if _is_socket(self._transport):
            return self._transport.recv(PIECE)
        if hasattr(self._transport, "read1"):
            return self._transport.read1(PIECE)
        return self._transport.read(PIECE) or b""


class AsyncWriter:
    """The same over an ``asyncio.StreamWriter``."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        *,
        strategy: str = "hull",
        codec: Optional[str] = None,
    ) -> None:
        self._writer = writer
        self._sender = Sender(strategy, codec=codec)
        # What asyncio holds can't be compressed any more.
        writer.transport.set_write_buffer_limits(high=PIECE)

    async def write(self, data: bytes) -> None:
        """Takes all of it; waits while the connection takes no more."""
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            at += self._sender.accept(bytes(view[at : at + PIECE]))
            await self._pump()

    async def finish(self) -> None:
        """Ends the stream; the connection stays open."""
        self._sender.finish()
        while not self._sender.is_finished:
            await self._pump()
        await self._writer.drain()

    async def _pump(self) -> None:
        while True:
            data = self._sender.wire(PIECE)
            if not data:
                if not self._sender.compress():
                    return
                continue
            self._writer.write(data)
            self._sender.wrote(len(data))
            if self._writer.transport.get_write_buffer_size() > PIECE:
                self._sender.blocked()
                # Threads of their own for blocks would cost more than a block.
                while self._sender.compress():
                    await asyncio.sleep(0)
                await self._writer.drain()
                self._sender.unblocked()


class AsyncReader:
    """The same over an ``asyncio.StreamReader``."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._receiver = Receiver()
        self._left = b""

    async def read(self, n: int = PIECE) -> bytes:
        """Returns at most n bytes, as soon as there are any; none at the end.

        :raises Error: if the stream is damaged, or was cut off.
        """
        while not self._receiver.available:
            if self._receiver.is_finished:
                return b""
            if not self._left:
                self._left = await self._reader.read(PIECE)
                if not self._left:
                    self._receiver.end()
                    return b""
            self._left = self._left[self._receiver.feed(self._left) :]
        return self._receiver.take(n)
