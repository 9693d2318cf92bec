"""A reply says the same whether or not events that are like one before are taken together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvbench.load.endpoint import Endpoint
from kvbench.load.exchange import Exchange
from kvbench.load.reply import Reply
from kvbench.load.response import ResponseParser
from kvbench.load.result import Request

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FIGURES = [name for name in Reply.__slots__ if name not in ("_before", "_after")]


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def event(text: bytes, more: bytes = b"", before: bytes = b"data: ", line_end: bytes = b"\n") -> bytes:
    return before + b'{"choices":[{"text":%b}]%b}' % (text, more) + 2 * line_end


def said(reads: list[bytes], together: bool) -> list[object]:
    exchange = Exchange(Request("r", b""), Endpoint.of("http://host"), 0, finished=lambda exchange: None)
    stamp_ns = 0
    parser = ResponseParser(
        exchange.on_status,
        lambda piece: exchange.on_body(piece, stamp_ns, None),
        lambda received: exchange.take_chunks(received, stamp_ns, None) if together else 0,
    )
    for received in reads:
        stamp_ns += 1
        parser.feed(received)
    return [getattr(exchange.reply, name) for name in FIGURES]


PARTS = [b"a", b'"', b"\\", b"\\n", b"\\ud83d", b"\n", b"\xe7", "缓".encode(), b'","', b'",["', b'"],"']
STRINGS = st.lists(st.sampled_from(PARTS), max_size=3).map(lambda parts: b'"%b"' % b"".join(parts))
TEXTS = st.one_of(st.sampled_from([b'"a"', b'"bc"', b'"text"', b"null"]), STRINGS)
EVENTS = st.one_of(
    st.builds(event, TEXTS),
    st.builds(event, TEXTS, st.sampled_from([b',"usage":{"completion_tokens":1}', b',"x":\n1', b',"x":\ndata: 1'])),
    st.builds(event, TEXTS, before=st.sampled_from([b"data:", b"id: 1\ndata: ", b"\xef\xbb\xbfdata: "])),
    st.builds(event, TEXTS, line_end=st.sampled_from([b"\r", b"\r\n"])),
    st.sampled_from([b": ping\n\n", b"data", b"data: ", b"\r", b'data: {"usage":{"completion_tokens":2}}\n\n']),
)


@given(st.lists(st.lists(EVENTS.map(chunk), min_size=1, max_size=5).map(b"".join), max_size=5), st.integers(0, 999))
def test_events_are_read_alike_together_and_one_by_one(reads, cut):
    stream = b"".join(reads)
    for some in (reads, [piece for piece in (stream[:cut], stream[cut:]) if piece]):
        assert said([HEAD, *some], together=True) == said([HEAD, *some], together=False)


class Awaiting:
    """A connection that says how many bytes it was told to await."""

    connect_ns, awaited_bytes = 0, 0

    def send(self, message: bytes, receiver: Exchange, awaited_bytes: int) -> int:
        return 0

    def await_bytes(self, count: int) -> None:
        self.awaited_bytes = count

    def unread_ns(self) -> int:
        return 0


def like_a_servers(text: bytes) -> bytes:
    return chunk(event(text, b',"id":"%b"' % (200 * b"x")))


def awaited_tokens(endpoint: Endpoint, tokens: int, text: bytes = b'"abc"') -> list[int]:
    """How many tokens are read at once, of a reply of which each read brings no more than was awaited."""
    exchange = Exchange(
        Request("r", b"", expected_completion_tokens=tokens), endpoint, 0, lambda exchange: None, tokens_a_read=tokens
    )
    exchange.send(connection := Awaiting())
    parser = ResponseParser(
        exchange.on_status,
        lambda piece: exchange.on_body(piece, tokens - left, None),
        lambda received: exchange.take_chunks(received, tokens - left, None),
    )
    parser.feed(HEAD)
    left, read, one = tokens, [], like_a_servers(text)
    while left > 0:
        read.append(-(-connection.awaited_bytes // len(one)))
        parser.feed(one * read[-1])
        left -= read[-1]
    exchange.on_end(tokens, "")
    return read


def test_what_replies_were_like_lets_most_of_the_next_be_read_at_once_and_its_last_tokens_by_themselves():
    endpoint = Endpoint.of("http://host")
    assert awaited_tokens(endpoint, 64) == [1, 23, 31, 9]
    assert awaited_tokens(endpoint, 64) == [1, 53, 10]


def test_no_more_is_awaited_than_there_is_of_a_reply_with_shorter_chunks_than_those_before():
    endpoint = Endpoint.of("http://host")
    long, short = b'"%b"' % (64 * b"a"), b'"a"'
    for text in (long, short, long):
        assert sum(awaited_tokens(endpoint, 120, text)) == 120
    assert endpoint.chunk_bytes == len(like_a_servers(short))
