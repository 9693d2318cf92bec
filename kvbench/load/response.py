"""One HTTP response, read from the bytes of its connection. Pure."""

from __future__ import annotations

from collections.abc import Callable

import httptools

_INTERIM = (100, 102, 103)  # the response proper follows; 101 is one
_BLANK_LINE = b"\r\n\r\n"


class NotHttp(Exception):
    """What came is not HTTP; says why."""


class ResponseParser:
    """Takes the bytes of one response and tells of status, body and end. `feed` raises NotHttp.

    `on_status` is given the status, the headers, and how long the head was, or less after an interim response.

    Between two chunks httptools has nothing to remember: a read that begins there is offered to `take_chunks` first,
    which takes as many whole chunks as it likes and returns how many bytes they are.
    """

    def __init__(
        self,
        on_status: Callable[[int, dict[str, str], int], None],
        on_body: Callable[[bytes], None],
        take_chunks: Callable[[bytes], int],
    ) -> None:
        self.complete = self.reusable = False  # `reusable`: the connection may carry another request
        self._on_status, self._on_body, self._take_chunks = on_status, on_body, take_chunks
        self._pieces: list[bytes] = []  # of the body, in the read that is fed
        self.on_body = self._pieces.append
        self._headers: dict[str, str] = {}
        self._head: bytes | None = b""  # what has come of it, until it is whole
        self._after_chunk = self._between_chunks = self._interim = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, received: bytes) -> None:
        if self._between_chunks and (taken_bytes := self._take_chunks(received)):
            received = received[taken_bytes:]
            if not received:
                return
        if self._head is not None:
            self._head += received
        try:
            self._parser.feed_data(received)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None  # what our own callbacks raised
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise NotHttp(f"not HTTP: {error}") from None
        finally:
            if self._pieces:
                self._on_body(b"".join(self._pieces))
                self._pieces.clear()
        self._between_chunks = self._after_chunk and received.endswith(b"\r\n")

    def release(self) -> None:
        """Nothing more is fed. It and httptools hold each other, and garbage is not collected while a load runs."""
        self.__dict__.pop("_parser", None)

    # what httptools calls while it is fed, `on_body` besides

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._interim = status in _INTERIM
        if not self._interim:
            head, self._head = self._head or b"", None
            self._on_status(status, self._headers, head.find(_BLANK_LINE) + len(_BLANK_LINE))

    def on_chunk_header(self) -> None:
        self._after_chunk = False

    def on_chunk_complete(self) -> None:
        self._after_chunk = True

    def on_message_complete(self) -> None:
        if self._interim:
            self._headers = {}
            return
        self.complete, self._after_chunk = True, False
        self.reusable = self._parser.should_keep_alive()  # known in here only
