"""A response is read alike however it is cut, and whether or not reads of whole chunks are taken as they are."""

from __future__ import annotations

import re

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.load.response import NotHttp, ResponseParser

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


def whole_chunks(received: bytes) -> list[bytes]:
    """The contents of the chunks that it begins with."""
    contents, at = [], 0
    while (found := re.compile(rb"[0-9a-f]+\r\n([^\r]+)\r\n").match(received, at)) and found[0] == chunk(found[1]):
        contents.append(found[1])
        at = found.end()
    return contents


def read(pieces: list[bytes], offered: list[bytes] | None = None) -> tuple[bytes, bool] | str:
    """Body and whether it is complete, or that it is not HTTP. Chunks are taken where they are `offered`."""
    body: list[bytes] = []

    def take(received: bytes) -> int:
        body.extend(contents := whole_chunks(received))
        if offered is not None:
            offered.append(received)
        return sum(len(chunk(content)) for content in contents)

    parser = ResponseParser(lambda *head: None, body.append, take)
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


def test_chunks_are_offered_only_where_one_can_begin():
    stream = [HEAD, chunk(TOKEN), chunk(TOKEN)[:9], chunk(TOKEN)[9:], chunk(TOKEN) * 2 + chunk(TOKEN)[:9]]
    offered: list[bytes] = []
    assert read([*stream, chunk(TOKEN)[9:], END], offered) == (TOKEN * 5, True)
    assert offered == [stream[2], stream[4], END]


@pytest.mark.parametrize(
    ("reads", "known"),
    [
        ([HEAD], len(HEAD)),
        ([HEAD + chunk(TOKEN)], len(HEAD)),
        ([HEAD[:9], HEAD[9:]], len(HEAD)),
        ([HEAD[:-2], HEAD[-2:] + chunk(TOKEN) + chunk(b"\r\n\r\n") + END], len(HEAD)),
    ],
)
def test_the_length_of_the_head_is_told(reads, known):
    told: list[int] = []
    parser = ResponseParser(lambda status, headers, head_bytes: told.append(head_bytes), bytes, len)
    for piece in reads:
        parser.feed(piece)
    assert told == [known]


@pytest.mark.parametrize(
    "interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"]
)
def test_an_interim_response_is_read_over(interim):
    told: list[tuple[int, dict[str, str]]] = []
    body: list[bytes] = []
    parser = ResponseParser(
        lambda status, headers, head_bytes: told.append((status, headers)), body.append, lambda received: 0
    )
    for byte in interim * 2 + HEAD + chunk(TOKEN):
        parser.feed(bytes([byte]))
        assert not parser.complete
    parser.feed(END)
    assert told == [(200, {"transfer-encoding": "chunked"})]
    assert (b"".join(body), parser.complete, parser.reusable) == (TOKEN, True, True)
