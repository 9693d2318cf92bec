"""Every oddity of a stream, read whole, a byte at a time, and in random pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.load.reply import Reply
from kvbench.load.sse import EventParser

STREAMS = Path(__file__).parents[1] / "fixtures" / "sse"
CASES = Path(__file__).parents[3] / "shared" / "cases" / "files" / "own-sse"


@dataclass(frozen=True)
class Expected:
    """`first`: the place of the first event with text; `usage`: prompt, completion and cached tokens."""

    events: int
    first: int | None
    tokens: int
    usage: tuple[int | None, int | None, int | None] = (None, None, None)
    finish: str = "stop"
    failure: str = ""


OURS = {
    "role-first.sse": Expected(5, 1, 2, (7, 2, 4)),
    "reasoning-only.sse": Expected(5, 1, 2, (7, 2, 4), finish="length"),
    "tool-call.sse": Expected(5, 1, 2, finish="tool_calls"),
    "keepalive-comments.sse": Expected(3, 0, 2),
    "crlf.sse": Expected(4, 0, 2, (7, 2, 4)),
    "cr.sse": Expected(3, 0, 2),
    "byte-order-mark.sse": Expected(2, 0, 1),
    "no-space-after-colon.sse": Expected(3, 0, 2),
    "several-data-lines.sse": Expected(2, 0, 1),
    "error-in-200.sse": Expected(3, 0, 1, finish="", failure="error_event"),
    "no-done-no-finish.sse": Expected(2, 0, 2, finish="", failure="truncated"),
    "finish-without-done.sse": Expected(1, 0, 1, finish="length"),
    "usage-in-every-chunk.sse": Expected(3, 0, 2, (7, 6, None)),
    "count-with-empty-text.sse": Expected(3, 0, 1, (7, 40, None), finish="length"),
    "text-completion.sse": Expected(4, 0, 2, (7, 2, 4), finish="length"),
    "chinese.sse": Expected(4, 0, 3),
    "usage-only.sse": Expected(2, None, 0, (7, 3, 4), finish="", failure="empty"),
    "broken-json.sse": Expected(4, 0, 2, failure="malformed"),
    "cut-in-an-event.sse": Expected(1, 0, 1, finish="", failure="truncated"),
    "not-a-stream.body": Expected(0, None, 0, finish="", failure="truncated"),
}
SHARED = {
    "01-role-first.sse": Expected(6, 1, 3, (5, 3, None)),
    "02-reasoning-only-then-length.sse": Expected(5, 1, 2, (5, 3, None), finish="length"),
    "03-keepalive-comments.sse": Expected(4, 0, 2, (5, 3, None)),
    "04-crlf.sse": Expected(4, 0, 2, (5, 3, None)),
    "05-error-in-200.sse": Expected(3, 0, 1, finish="", failure="error_event"),
    "07-eof-no-done-no-finish.sse": Expected(2, 0, 2, finish="", failure="truncated"),
    "09-three-tokens-per-chunk.sse": Expected(3, 0, 2, (5, 6, None)),
    "16-plain-json-not-sse.body": Expected(0, None, 0, finish="", failure="truncated"),
    "17-chinese.sse": Expected(4, 0, 3),
}


def whole(stream: bytes) -> Iterator[bytes]:
    yield stream


def bytewise(stream: bytes) -> Iterator[bytes]:
    return (stream[i : i + 1] for i in range(len(stream)))


def at_random(stream: bytes) -> Iterator[bytes]:
    rng, at = Random(len(stream)), 0
    while at < len(stream):
        size = rng.randrange(1, 40)
        yield stream[at : at + size]
        at += size


def events_of(pieces: Iterator[bytes]) -> list[bytes]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def check(stream: bytes, split, expected: Expected) -> None:
    events = events_of(split(stream))
    assert len(events) == expected.events
    reply = Reply()
    for place, event in enumerate(events):
        reply.add([event], place)
    assert reply.first_token_ns == expected.first
    assert reply.token_events == expected.tokens
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == expected.usage
    assert reply.finish_reason == expected.finish
    assert reply.failure(None)[0] == expected.failure


@pytest.mark.parametrize("split", [whole, bytewise, at_random])
@pytest.mark.parametrize("name", OURS)
def test_each_stream_is_read_alike_however_it_is_split(name, split):
    check((STREAMS / name).read_bytes(), split, OURS[name])


@pytest.mark.parametrize("split", [whole, bytewise, at_random])
@pytest.mark.parametrize("name", SHARED)
def test_each_collected_case_is_read_alike_however_it_is_split(name, split):
    if not CASES.is_dir():
        pytest.skip("the collected cases are not here")
    check((CASES / name).read_bytes(), split, SHARED[name])


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\ndata:  b\n\n", [b"a", b" b"]),
        (b"data: a\r\rdata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b": ping\n\n:\n\n", []),
        (b"event: x\nid: 3\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"database: a\n\n", []),
        (b"data: a\n", []),
    ],
)
def test_lines_fields_and_comments_follow_the_standard(stream, events):
    assert events_of(whole(stream)) == events
    assert events_of(bytewise(stream)) == events


@given(st.lists(st.sampled_from([b"data: a", b"data:b", b": c", b"", b"id: 1", b"\n", b"\r", b"\r\n"])), st.randoms())
def test_where_a_stream_is_split_never_matters(parts, rng):
    stream = b"".join(parts)
    cut = rng.randint(0, len(stream))
    assert events_of(iter((stream[:cut], stream[cut:]))) == events_of(bytewise(stream))
