"""One keep-alive connection to an endpoint: a plain socket, read once per wake-up, stamped before anything is parsed.

The kernel's own receive stamp (SO_TIMESTAMPNS) is used where there is one, so that a client that is late to read is
not late in what it reports. TLS runs over the same reads, in memory.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import struct
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

import httptools

from kvbench import clock
from kvbench.errors import UsageError
from kvbench.load.poller import Poller

_SO_TIMESTAMPNS = 35  # Linux; Python's socket module does not name it
_CONTROL_BYTES = socket.CMSG_SPACE(16)
_READ_BYTES = 256 * 1024
_TIMESPEC = struct.Struct("qq")


class Receiver(Protocol):
    """Who is told of a reply as it comes in."""

    def on_status(self, status: int, headers: dict[str, str]) -> None: ...
    def on_body(self, piece: bytes, stamp_ns: int, read_ns: int | None) -> None:
        """`stamp_ns`: arrival. `read_ns`: when it was read, if that is another moment, else None."""

    def on_end(self, stamp_ns: int, problem: str) -> None:
        """The reply is over; `problem` is "" when HTTP says that it is complete."""


class KernelClock:
    """Places the kernel's wall-clock stamps on the monotonic clock. Refreshed now and then: wall time may be set."""

    def __init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        self._offset_ns = clock.realtime_offset_ns()

    def arrival_ns(self, control: list[tuple[int, int, bytes]], not_before_ns: int, read_ns: int) -> int | None:
        """The kernel's stamp, or None where there is none or it is not between sending and reading."""
        if not control or control[0][1] != _SO_TIMESTAMPNS:
            return None
        seconds, nanoseconds = _TIMESPEC.unpack(control[0][2])
        stamp_ns: int = seconds * 1_000_000_000 + nanoseconds - self._offset_ns
        return stamp_ns if not_before_ns <= stamp_ns <= read_ns else None


@dataclass(slots=True)
class Endpoint:
    """One instance: where it is, and its connections that wait for a request."""

    url: str
    host: str
    port: int
    prefix: str
    tls: ssl.SSLContext | None
    knows_stream_options: bool = True
    idle: list[Connection] = field(default_factory=list)

    @classmethod
    def of(cls, url: str) -> Endpoint:
        """Raises UsageError for what is not an http or https address."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url!r} is not the address of an endpoint", "write it like http://127.0.0.1:8000")
        secure = parts.scheme == "https"
        tls = ssl.create_default_context() if secure else None
        return cls(url, parts.hostname, parts.port or (443 if secure else 80), parts.path.rstrip("/"), tls)

    def head(self, path: str, request_id: str, body_bytes: int) -> bytes:
        """The head of a POST."""
        return (
            f"POST {self.prefix}{path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Content-Type: application/json\r\nAccept: text/event-stream\r\nX-Request-Id: {request_id}\r\n"
            f"Content-Length: {body_bytes}\r\n\r\n"
        ).encode()

    async def connect(self, poller: Poller, kernel: KernelClock) -> Connection:
        """Open a connection. Raises OSError, also for TLS."""
        loop = asyncio.get_running_loop()
        began_ns = clock.monotonic_ns()
        problem: OSError = OSError(f"{self.host} has no address")
        for family, kind, protocol, _, address in await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            try:
                await loop.sock_connect(sock, address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                tls = await _handshake(sock, self.tls, self.host) if self.tls else None
            except OSError as error:
                problem = error
                sock.close()
            except BaseException:  # cancelled by the connect limit
                sock.close()
                raise
            else:
                return Connection(sock, tls, poller, kernel, clock.monotonic_ns() - began_ns)
        raise problem


class _Tls:
    """A TLS session in memory: bytes from the network in, plain bytes out."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def encrypt(self, plain: bytes) -> bytes:
        self.session.write(plain)
        return self._outgoing.read()

    def decrypt(self, received: bytes | memoryview) -> bytes:
        self._incoming.write(received)
        pieces = []
        try:
            while piece := self.session.read(_READ_BYTES):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        return b"".join(pieces)

    def to_send(self) -> bytes:
        return self._outgoing.read()

    def received(self, data: bytes) -> None:
        self._incoming.write(data)


async def _handshake(sock: socket.socket, context: ssl.SSLContext, host: str) -> _Tls:
    loop = asyncio.get_running_loop()
    tls = _Tls(context, host)
    while True:
        try:
            tls.session.do_handshake()
        except ssl.SSLWantReadError:
            await loop.sock_sendall(sock, tls.to_send())
            if not (data := await loop.sock_recv(sock, _READ_BYTES)):
                raise ConnectionResetError("closed during the TLS handshake") from None
            tls.received(data)
        else:
            await loop.sock_sendall(sock, tls.to_send())
            return tls


class Connection:
    """Carries one request at a time. `open` turns False when either side has ended it."""

    _buffer = memoryview(bytearray(_READ_BYTES))  # one for all: it is emptied before the next read
    _buffers = (_buffer,)

    def __init__(
        self,
        sock: socket.socket,
        tls: _Tls | None,
        poller: Poller,
        kernel: KernelClock,
        connect_ns: int,
    ) -> None:
        self._sock, self._tls, self._poller, self._kernel = sock, tls, poller, kernel
        self.connect_ns = connect_ns
        self.open = True
        self._complete = self._reusable = False
        self._receiver: Receiver | None = None
        self._unsent = memoryview(b"")
        self._sent_ns = self._stamp_ns = 0
        self._read_ns: int | None = None
        poller.add(sock.fileno(), self._on_ready)

    def send(self, message: bytes, receiver: Receiver) -> int:
        """Send a whole request; gives the moment at which its first byte was handed to the kernel."""
        self._receiver = receiver
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        data = self._tls.encrypt(message) if self._tls else message
        self._sent_ns = clock.monotonic_ns()
        self._unsent = memoryview(data)
        self._push()
        if self._unsent:
            self._poller.also_writable(self._sock.fileno(), True)
        return self._sent_ns

    @property
    def busy(self) -> bool:
        """Whether a reply is still awaited."""
        return self._receiver is not None

    def close(self) -> None:
        """End the connection; whoever waits for a reply is not told."""
        if self.open:
            self.open = False
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
        if events & select.EPOLLOUT:
            self._push()
            if not self._unsent:
                self._poller.also_writable(self._sock.fileno(), False)
        if events & ~select.EPOLLOUT:
            self._read()

    def _read(self) -> None:
        try:
            size, control, _, _ = self._sock.recvmsg_into(self._buffers, _CONTROL_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(error.strerror or str(error))
            return
        read_ns = clock.monotonic_ns()
        arrival_ns = self._kernel.arrival_ns(control, self._sent_ns, read_ns)
        self._stamp_ns, self._read_ns = (read_ns, None) if arrival_ns is None else (arrival_ns, read_ns)
        if not size:
            self._lost("the server closed the connection")
            return
        try:
            received = self._tls.decrypt(self._buffer[:size]) if self._tls else self._buffer[:size]
            if self._receiver is not None:
                self._parser.feed_data(received)
            elif received:
                self.close()  # words that nobody asked for: this connection is out of step
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None  # what our own callbacks raised
        except httptools.HttpParserError as error:
            self._lost(f"not HTTP: {error}")
        except ssl.SSLError as error:
            self._lost(f"TLS: {error.reason}")
        if self._complete:
            self._complete = False
            self._end()

    def _end(self) -> None:
        receiver, self._receiver = self._receiver, None
        if not self._reusable:
            self.close()
        if receiver is not None:
            receiver.on_end(self._stamp_ns, "")

    def _lost(self, problem: str) -> None:
        receiver, stamp_ns = self._receiver, self._stamp_ns or clock.monotonic_ns()
        self.close()
        if receiver is not None:
            receiver.on_end(stamp_ns, problem)

    # what httptools calls while it is fed

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._receiver is not None:
            self._receiver.on_status(self._parser.get_status_code(), self._headers)

    def on_body(self, piece: bytes) -> None:
        if self._receiver is not None:
            self._receiver.on_body(piece, self._stamp_ns, self._read_ns)

    def on_message_complete(self) -> None:
        self._complete = True  # acted on when the parser has returned, since the next request brings a new one
        self._reusable = self._parser.should_keep_alive()  # known in here only
