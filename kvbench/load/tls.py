"""TLS in memory: whoever owns the socket brings what it received, and takes away what is to be sent."""

from __future__ import annotations

import asyncio
import socket
import ssl

_READ_BYTES = 256 * 1024


class TlsSession:
    """One session, after its handshake: bytes from the network in, plain bytes out, and the other way round."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    @classmethod
    async def open(cls, sock: socket.socket, context: ssl.SSLContext, host: str) -> TlsSession:
        """Shake hands over a connected, non-blocking socket. Raises OSError; ssl.SSLError is one."""
        loop = asyncio.get_running_loop()
        tls = cls(context, host)
        while True:
            try:
                tls._session.do_handshake()
            except ssl.SSLWantReadError:
                await loop.sock_sendall(sock, tls._outgoing.read())
                if not (received := await loop.sock_recv(sock, _READ_BYTES)):
                    raise ConnectionResetError("closed during the TLS handshake") from None
                tls._incoming.write(received)
            else:
                await loop.sock_sendall(sock, tls._outgoing.read())
                return tls

    def encrypt(self, plain: bytes) -> bytes:
        """What is to be sent for `plain`."""
        self._session.write(plain)
        return self._outgoing.read()

    def decrypt(self, received: bytes) -> bytes:
        """What the other side has said in whole records by now. Raises ssl.SSLError."""
        self._incoming.write(received)
        pieces = []
        try:
            while piece := self._session.read(_READ_BYTES):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        return b"".join(pieces)
