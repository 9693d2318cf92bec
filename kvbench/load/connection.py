"""One keep-alive connection: a plain socket, read once per wake-up, stamped before anything is parsed.

The kernel's own receive stamp (SO_TIMESTAMPNS) is used where there is one, so that a client that is late to read is
not late in what it reports. TLS runs over the same reads (tls.py).
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from typing import Protocol

from kvbench import clock
from kvbench.load.poller import Poller
from kvbench.load.response import NotHttp, ResponseParser
from kvbench.load.tls import TlsSession

_SO_TIMESTAMPNS = 35  # Linux; Python's socket module does not name it
_CONTROL_BYTES = socket.CMSG_SPACE(16)
_READ_BYTES = 256 * 1024
_AWAITED_BYTES = 32 * 1024  # at most: fits any receive window, and what lies there is then one read
_WRITABLE = select.EPOLLOUT
_TIMESPEC = struct.Struct("qq")

_Control = list[tuple[int, int, bytes]]
_Read = tuple[bytes, _Control, int, int, bool]  # received, its control messages, when, and the poller's word then


class Receiver(Protocol):
    """Who is told of a reply as it comes in."""

    def on_status(self, status: int, headers: dict[str, str], head_bytes: int) -> None: ...
    def on_body(self, piece: bytes, stamp_ns: int, read_ns: int | None) -> None:
        """`stamp_ns`: arrival. `read_ns`: when it was read, if that is another moment, else None."""

    def take_chunks(self, received: bytes, stamp_ns: int, read_ns: int | None) -> int:
        """As ResponseParser's; what is not taken comes to `on_body`."""

    def on_end(self, stamp_ns: int, problem: str) -> None:
        """The reply is over; `problem` is "" when HTTP says that it is complete."""


class KernelClock:
    """Places the kernel's wall-clock stamps on the monotonic clock. Refreshed now and then: wall time may be set.

    `awake_ns` is how long this thread had been awake by then.
    """

    def __init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        self._offset_ns, self.awake_ns = clock.realtime_offset_ns(), clock.awake_ns()

    def arrival_ns(self, control: _Control, not_before_ns: int, read_ns: int) -> int | None:
        """The kernel's stamp, or None where there is none or it is not between sending and reading."""
        if not control or control[0][1] != _SO_TIMESTAMPNS:
            return None
        seconds, nanoseconds = _TIMESPEC.unpack(control[0][2])
        stamp_ns: int = seconds * 1_000_000_000 + nanoseconds - self._offset_ns
        return stamp_ns if not_before_ns <= stamp_ns <= read_ns else None


class Connection:
    """Carries one request at a time. `open` turns False when either side has ended it."""

    _buffer = memoryview(bytearray(_READ_BYTES))  # one for all: it is emptied before the next read
    _buffers = (_buffer,)

    def __init__(
        self,
        sock: socket.socket,
        tls: TlsSession | None,
        poller: Poller,
        kernel: KernelClock,
        connect_ns: int,
    ) -> None:
        self._sock, self._tls, self._poller, self._kernel = sock, tls, poller, kernel
        self.connect_ns = connect_ns
        self.open = True
        self._awaited_bytes = 1
        self._told_bytes = 1  # what the kernel knows of that
        self._receiver: Receiver | None = None
        self._unsent = memoryview(b"")
        self._sent_ns = self._stamp_ns = 0
        self._read_ns: int | None = None
        self._looked_before_ns, self._paused = 0, False
        self._reads: list[_Read] = []  # not parsed yet
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        poller.add(sock.fileno(), self._on_ready)

    def send(self, message: bytes, receiver: Receiver, awaited_bytes: int = 1) -> int:
        """Send a whole request, and await so much of a reply.

        Gives the moment at which its first byte was handed to the kernel.
        """
        self._receiver = receiver
        self.await_bytes(awaited_bytes)
        self._tell_kernel()
        self._parser = ResponseParser(receiver.on_status, self._on_body, self._take_chunks)
        data = self._tls.encrypt(message) if self._tls else message
        self._sent_ns = clock.monotonic_ns()
        self._unsent = memoryview(data)
        self._push()
        if self._unsent:
            self._poller.also_writable(self._sock.fileno(), True)
        return self._sent_ns

    def await_bytes(self, count: int) -> None:
        """Let the kernel tell of what comes when it is so many bytes, or the end; `catch_up` takes less.

        It holds from the next request on, or from the end of what is being parsed.
        """
        self._awaited_bytes = min(count, _AWAITED_BYTES)

    def _tell_kernel(self) -> None:
        if self._awaited_bytes != self._told_bytes and self.open:
            self._told_bytes = self._awaited_bytes
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self._told_bytes)

    @property
    def awaits_more(self) -> bool:
        """Whether the kernel may keep what has come to itself."""
        return self._awaited_bytes > 1

    def unread_ns(self) -> int:
        """How long what is being parsed can have lain unread: since sockets were looked at the time before, but not
        while this thread waited, since it waits when there is nothing."""
        unseen_ns = (self._read_ns or self._stamp_ns) - max(self._sent_ns, self._looked_before_ns)
        return unseen_ns if self._paused else min(unseen_ns, clock.awake_ns() - self._kernel.awake_ns)

    @property
    def busy(self) -> bool:
        """Whether a reply is still awaited."""
        return self._receiver is not None

    def close(self) -> None:
        """End the connection; whoever waits for a reply is not told."""
        if self.open:
            self.open = False
            if self._receiver is not None:
                self._parser.release()
            self._receiver = None
            self._poller.remove(self._sock.fileno())
            self._sock.close()

    def _push(self) -> None:
        try:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = memoryview(b"")  # reading tells why, after what the server still said

    def _on_ready(self, events: int) -> None:
        if events & _WRITABLE:
            self._push()
            if not self._unsent:
                self._poller.also_writable(self._sock.fileno(), False)
        if events != _WRITABLE:
            self._read()
            self._poller.do_later(self._parse)

    def catch_up(self) -> None:
        """Read and parse what has come by now, however little, and await whatever comes next."""
        self.await_bytes(1)
        self._read()
        self._parse()

    def _read(self) -> None:
        try:
            size, control, _, _ = self._sock.recvmsg_into(self._buffers, _CONTROL_BYTES)
            read_ns = clock.monotonic_ns()
            received = self._buffer[:size].tobytes()
            if self._tls:
                received = self._tls.decrypt(received)
        except BlockingIOError:
            return
        except ssl.SSLError as error:
            self._lost(f"TLS: {error.reason}")
            return
        except OSError as error:
            self._lost(error.strerror or str(error))
            return
        if not size:
            self._lost("the server closed the connection")
            return
        self._reads.append((received, control, read_ns, self._poller.looked_before_ns, self._poller.paused))

    def _parse(self) -> None:
        reads, self._reads = self._reads, []
        for received, control, read_ns, self._looked_before_ns, self._paused in reads:
            arrival_ns = self._kernel.arrival_ns(control, self._sent_ns, read_ns)
            self._stamp_ns, self._read_ns = (read_ns, None) if arrival_ns is None else (arrival_ns, read_ns)
            self._feed(received)
        self._tell_kernel()

    def _feed(self, received: bytes) -> None:
        if self._receiver is None:
            if received:
                self.close()  # words that nobody asked for: this connection is out of step
            return
        try:
            self._parser.feed(received)
        except NotHttp as error:
            if not self._parser.complete:
                self._lost(str(error))
            self._parser.reusable = False  # else only what came after the reply is none: out of step, too
        if self._parser.complete:
            self._end()

    def _end(self) -> None:
        receiver, self._receiver = self._receiver, None
        self._parser.release()
        if self._unsent or not self._parser.reusable:  # what is unsent would go before the next request
            self.close()
        if receiver is not None:
            receiver.on_end(self._stamp_ns, "")

    def _lost(self, problem: str) -> None:
        self._parse()
        receiver = self._receiver
        self.close()
        if receiver is not None:
            receiver.on_end(clock.monotonic_ns(), problem)

    def _on_body(self, piece: bytes) -> None:
        if self._receiver is not None:
            self._receiver.on_body(piece, self._stamp_ns, self._read_ns)

    def _take_chunks(self, received: bytes) -> int:
        return self._receiver.take_chunks(received, self._stamp_ns, self._read_ns) if self._receiver else 0
