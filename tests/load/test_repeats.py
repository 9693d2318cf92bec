"""Chunks of events that differ in their text alone are taken from the beginning of a read, and nothing else is."""

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
    assert texts(read, BEFORE, AFTER) == (said, len(read))
    assert texts(read + b"0\r\n\r\n", BEFORE, AFTER) == (said, len(read))
    assert texts(read[:-1], BEFORE, AFTER) == (said[:-1], len(read) - len(chunk(literals[-1])))
    for damaged in (read[1:], b"0" + read, read.replace(b"\r\n", b"\n")):
        assert texts(damaged, BEFORE, AFTER) == ([], 0)


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
        chunk(b'a",["b') + chunk(b"c") + chunk(b'd"],"e'),  # three values of a list, too, but not three texts
        chunk(b"\\ud83d"),
        chunk(b"\xe7"),
        chunk(b"a\n"),
        chunk(b"a\\"),
        b": ping\r\n",
    ],
)
def test_what_is_otherwise_is_left_to_the_layers_with_all_that_follows(other):
    assert texts(other + chunk(b"a"), BEFORE, AFTER) == ([], 0)
    taken, taken_bytes = texts(chunk(b"a") + other + chunk(b"b"), BEFORE, AFTER)
    assert (taken, taken_bytes) in ((["a"], len(chunk(b"a"))), ([], 0))
