"""One HTTP response, read from the bytes of its connection. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import httptools


class NotHttp(Exception):
    """What came is not HTTP; says why."""


class ResponseParser:
    """Takes the bytes of one response and tells of status, body and end. `feed` raises NotHttp.

    A read that is one whole chunk, as servers send a token, is taken without asking httptools, when that stands between
    two chunks: there it has nothing to remember.
    """

    def __init__(self, on_status: Callable[[int, dict[str, str]], None], on_body: Callable[[bytes], None]) -> None:
        self.complete = self.reusable = False  # `reusable`: the connection may carry another request
        self.on_body = on_body
        self._on_status = on_status
        self._headers: dict[str, str] = {}
        self._after_chunk = self._between_chunks = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, received: bytes) -> None:
        if self._between_chunks and (content := only_chunk(received)):
            self.on_body(content)
            return
        try:
            self._parser.feed_data(received)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None  # what our own callbacks raised
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise NotHttp(f"not HTTP: {error}") from None
        self._between_chunks = self._after_chunk and received.endswith(b"\r\n")

    def release(self) -> None:
        """Nothing more is fed. It and httptools hold each other, and garbage is not collected while a load runs."""
        self.__dict__.pop("_parser", None)

    # what httptools calls while it is fed, `on_body` besides

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._on_status(self._parser.get_status_code(), self._headers)

    def on_chunk_header(self) -> None:
        self._after_chunk = False

    def on_chunk_complete(self) -> None:
        self._after_chunk = True

    def on_message_complete(self) -> None:
        self.complete, self._after_chunk = True, False
        self.reusable = self._parser.should_keep_alive()  # known in here only


def only_chunk(received: bytes) -> bytes:
    """The content, if these are the bytes of exactly one chunk, its length in small letters and bare; else b""."""
    head = _chunk_head(len(received))
    return received[len(head) : -2] if received.startswith(head) and received.endswith(b"\r\n") else b""


@cache
def _chunk_head(size: int) -> bytes:
    """How a chunk of `size` bytes in all begins; more than there is, for the few sizes that no chunk has."""
    for digits in range(1, size - 4):
        if len(head := b"%x\r\n" % (size - digits - 4)) == digits + 2:
            return head
    return bytes(size + 1)
