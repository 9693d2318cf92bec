"""A read is taken whole where it is chunks of events that differ in their text alone, and nowhere else."""

from __future__ import annotations

import pytest

from kvbench.load.repeats import texts

BEFORE, AFTER = b'{"choices":[{"text":"', b'","finish_reason":null}]}'


def chunk(literal: bytes, before: bytes = BEFORE, after: bytes = AFTER, size: str = "%x") -> bytes:
    event = b"data: " + before + literal + after + b"\n\n"
    return (size % len(event)).encode() + b"\r\n" + event + b"\r\n"


@pytest.mark.parametrize(
    ("literals", "said"),
    [
        ([b" token"], [" token"]),
        ([b"a", b"bc", b"d" * 4000], ["a", "bc", "d" * 4000]),
        (["缓存".encode(), b"\\u7f13", b'\\"', b"\\n"], ["缓存", "缓", '"', "\n"]),
    ],
)
def test_the_texts_of_chunks_that_are_alike(literals, said):
    read = b"".join(map(chunk, literals))
    assert texts(read, BEFORE, AFTER) == said
    for damaged in (read[:-1], read[1:], b"0" + read, read + b"0\r\n\r\n", read.replace(b"\r\n", b"\n")):
        assert texts(damaged, BEFORE, AFTER) == []


@pytest.mark.parametrize(
    "other",
    [
        chunk(b""),  # no text: a role, an empty delta
        chunk(b"a", after=b'","finish_reason":"stop"}]}'),
        chunk(b"a", before=b'{"id":2,"choices":[{"text":"'),
        chunk(b"a" * 150, size="%X"),
        chunk(b"a", size="%04x"),
        chunk(b"a", size="%x;extension=1"),
        chunk(b'a","text":"b'),
        chunk(b"\\ud83d"),
        chunk(b"\xe7"),
        chunk(b"a\n"),
        chunk(b"a\\"),
        b": ping\r\n",
    ],
)
def test_one_event_that_is_otherwise_leaves_the_whole_read_to_the_layers(other):
    for read in (other, chunk(b"a") + other, other + chunk(b"a")):
        assert texts(read, BEFORE, AFTER) == []
