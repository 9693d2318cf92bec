"""How a node's index is written down: changes one after the other, each there as a whole or not at all. Pure.

A change says what has come to lie somewhere, or is there no more. It ends with a checksum, and a log of them is read up
to the first that is not whole: one that a crash has torn, or that was damaged. So all that is read is right, and only
what came last may be lacking. Nothing in a log is ever altered; it is written anew, shorter, by who keeps it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from kvbench.store.keys import PageKey

FORMAT_VERSION = 1

_HEAD = struct.Struct("<HHIQQ8s")  # version, is gone, pages, number, file, owner
_ENTRY = struct.Struct("<16sIIQ")  # digest, rank, blocks, first block
_CHECKSUM = struct.Struct("<Q")  # XXH3-64 of head and entries


class Entry(NamedTuple):
    """A page, and the blocks of 4 KiB that it has from `block` on."""

    key: PageKey
    block: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Change:
    """`entries` have come to lie in a file, or have gone from it. `owner` tells whose pages they are."""

    number: int
    file: int
    owner: bytes
    entries: tuple[Entry, ...]
    is_gone: bool = False


def encode(change: Change, generation: int = 0) -> bytes:
    """`generation` tells a log from the one that lay in its place before."""
    head = _HEAD.pack(FORMAT_VERSION, change.is_gone, len(change.entries), change.number, change.file, change.owner)
    entries = (_ENTRY.pack(*entry.key, entry.blocks, entry.block) for entry in change.entries)
    body = b"".join((head, *entries))
    return body + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(body, generation))


def encoded_bytes(change: Change) -> int:
    return _HEAD.size + len(change.entries) * _ENTRY.size + _CHECKSUM.size


def decode(log: bytes | memoryview, generation: int = 0) -> Iterator[Change]:
    """The changes of a log, as far as they are whole."""
    at = 0
    while at + _HEAD.size <= len(log):
        version, is_gone, pages, number, file, owner = _HEAD.unpack_from(log, at)
        end = at + _HEAD.size + pages * _ENTRY.size
        if version != FORMAT_VERSION or end + _CHECKSUM.size > len(log):
            return
        if _CHECKSUM.unpack_from(log, end)[0] != xxhash.xxh3_64_intdigest(log[at:end], generation):
            return
        entries = _ENTRY.iter_unpack(log[at + _HEAD.size : end])
        found = tuple(Entry(PageKey(digest, rank), block, blocks) for digest, rank, blocks, block in entries)
        yield Change(number, file, owner, found, bool(is_gone))
        at = end + _CHECKSUM.size
