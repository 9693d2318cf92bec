"""One instance of an engine: its address, and the connections to it that are open."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kvbench import clock
from kvbench.api_key import NO_KEY, ApiKey
from kvbench.errors import UsageError
from kvbench.load.connection import Connection, KernelClock
from kvbench.load.poller import Poller
from kvbench.load.tls import TlsSession


@dataclass(slots=True)
class Endpoint:
    """One instance: where it is, and its connections that wait for a request."""

    url: str
    host: str
    port: int
    authority: str
    prefix: str
    tls: ssl.SSLContext | None
    key: ApiKey = NO_KEY
    knows_stream_options: bool = True
    tokens_a_chunk: float = 1.0  # the most that its replies had
    ends_early: bool = False  # its last reply had fewer chunks than were to come
    head_bytes: int | None = None  # the shortest of its replies; 0 once one of them was no stream
    chunk_bytes: float | None = None  # of one with text, in the mean of the reply with the shortest
    idle: list[Connection] = field(default_factory=list)

    @classmethod
    def of(cls, url: str, key: ApiKey = NO_KEY) -> Endpoint:
        """Raises UsageError for what is not an http or https address."""
        wrong = UsageError(f"{url!r} is not the address of an endpoint", "write it like http://127.0.0.1:8000")
        try:
            parts = urlsplit(url)
            port = parts.port
            (parts.hostname or "").encode("idna")  # as it is looked up
        except ValueError:
            raise wrong from None
        if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
            raise wrong
        secure = parts.scheme == "https"
        tls = ssl.create_default_context() if secure else None
        authority = parts.netloc.rpartition("@")[2]
        return cls(url, parts.hostname, port or (443 if secure else 80), authority, parts.path.rstrip("/"), tls, key)

    def head(self, path: str, request_id: str, body_bytes: int) -> bytes:
        """The head of a POST."""
        key = "".join(f"{name}: {value}\r\n" for name, value in self.key.headers.items())
        return (
            f"POST {self.prefix}{path} HTTP/1.1\r\nHost: {self.authority}\r\n"
            f"Content-Type: application/json\r\nAccept: text/event-stream\r\nX-Request-Id: {request_id}\r\n"
            f"{key}Content-Length: {body_bytes}\r\n\r\n"
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
                tls = await TlsSession.open(sock, self.tls, self.host) if self.tls else None
            except OSError as error:
                problem = error
                sock.close()
            except BaseException:  # cancelled by the connect limit
                sock.close()
                raise
            else:
                return Connection(sock, tls, poller, kernel, clock.monotonic_ns() - began_ns)
        raise problem
