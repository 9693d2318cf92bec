"""A response is read alike however it is cut, and a read that is one whole chunk as httptools reads it."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.load.response import NotHttp, ResponseParser, only_chunks

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
TOKEN = b'data: {"choices":[{"text":" token"}]}\n\n'


class ByHttptools:
    """The reference: everything is fed to httptools."""

    def __init__(self) -> None:
        self.body, self.complete = b"", False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, received: bytes) -> None:
        self._parser.feed_data(received)

    def on_body(self, piece: bytes) -> None:
        self.body += piece

    def on_message_complete(self) -> None:
        self.complete = True


def chunk(content: bytes, size: str = "%x") -> bytes:
    return (size % len(content)).encode() + b"\r\n" + content + b"\r\n"


def read(pieces: list[bytes]) -> tuple[bytes, bool] | str:
    """Body and whether it is complete, or that it is not HTTP."""
    body: list[bytes] = []
    parser = ResponseParser(lambda status, headers: None, body.append)
    try:
        for piece in pieces:
            parser.feed(piece)
    except NotHttp:
        return "not HTTP"
    return b"".join(body), parser.complete


def reference(pieces: list[bytes]) -> tuple[bytes, bool] | str:
    parser = ByHttptools()
    try:
        for piece in pieces:
            parser.feed(piece)
    except httptools.HttpParserError:
        return "not HTTP"
    return parser.body, parser.complete


PIECES = st.one_of(
    st.binary(min_size=1, max_size=300).map(chunk),
    st.sampled_from(
        [
            TOKEN, chunk(TOKEN), chunk(TOKEN, "%X"), chunk(TOKEN, "%04x"), chunk(TOKEN, "%x;a=b"), chunk(chunk(TOKEN)),
            chunk(TOKEN) * 2, END, b"0\r\n", b"\r\n", b"5\r\n", b"a", chunk(b"\r\n"), b"x\r\n", b"1;\r\n",
        ]
    ),
)  # fmt: skip


@given(st.lists(PIECES, max_size=8), st.lists(st.integers(0, 400), max_size=4))
def test_whatever_comes_and_however_it_is_cut_it_is_what_httptools_reads(pieces, cuts):
    pieces = [HEAD, *pieces]
    assert read(pieces) == reference(pieces)
    stream, at = b"".join(pieces), sorted({0, *cuts})
    cut = [stream[begin:end] for begin, end in zip(at, [*at[1:], None], strict=True)]
    assert read(cut) == reference(cut)


@pytest.mark.parametrize("size", [1, 9, 15, 16, 17, 255, 256, 257, 4095, 4096, 65536])
def test_whole_chunks_are_known_at_every_length(size):
    content = b"x" * size
    assert only_chunks(chunk(content)) == content
    assert not only_chunks(chunk(content)[:-1])
    assert not only_chunks(chunk(content) + b"x")
    assert not only_chunks(b"0" + chunk(content))
    assert only_chunks(chunk(content) + chunk(b"y") + chunk(content)) == content + b"y" + content


def test_no_other_read_passes_for_chunks():
    assert not any(only_chunks(b"\r\n" * half) or only_chunks(b"f" * half) for half in range(300))


@pytest.mark.parametrize(
    "interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"]
)
def test_an_interim_response_is_read_over(interim):
    told: list[tuple[int, dict[str, str]]] = []
    body: list[bytes] = []
    parser = ResponseParser(lambda status, headers: told.append((status, headers)), body.append)
    for byte in interim * 2 + HEAD + chunk(TOKEN):
        parser.feed(bytes([byte]))
        assert not parser.complete
    parser.feed(END)
    assert told == [(200, {"transfer-encoding": "chunked"})]
    assert (b"".join(body), parser.complete, parser.reusable) == (TOKEN, True, True)
