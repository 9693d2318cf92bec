"""What is in a page's file, and how a wrong page is found. Pure.

A file is a run of 4 KiB blocks: one that begins with the header, and the page rounded up to whole blocks. Every byte
after the header follows from key and salt: one block of random bytes, XORed in each block with a 64-bit word of its
own. So data is incompressible, no block is like another (nothing for compression or deduplication to save), and a
page that is torn, damaged, misplaced or left over from an earlier attempt is told from the right one.
KV of 16 bit is in truth slightly compressible: where that is to be so, the end of every block is zeros.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b, shake_256

import numpy as np
import xxhash
from numpy.typing import NDArray

from kvbench.store.keys import PageKey

BLOCK_BYTES = 4096
FORMAT_VERSION = 1

# magic, version, digest, rank, salt, page_bytes, XXH3-64 of all that follows the header; then XXH3-64 of these fields
_FIELDS = struct.Struct("<8sI16sI8sQQ")
_CHECKSUM = struct.Struct("<Q")
_HEADER_BYTES = _FIELDS.size + _CHECKSUM.size
_MAGIC = b"kvbpage\n"

_WORDS = BLOCK_BYTES // 8
_BASE = np.frombuffer(shake_256(b"kvbench page content 1").digest(BLOCK_BYTES), dtype="<u8")
_CHUNK_BLOCKS = 256  # compared at a time: 1 MiB stays in cache, and the interpreter lock is taken rarely

_GAMMA = np.uint64(0x9E3779B97F4A7C15)

Words = NDArray[np.uint64]


class FaultKind(StrEnum):
    """What is wrong with a page. The first four are told from its content, the others by the file system."""

    TORN = "torn"  # no whole header, one of another length, or blocks that were never written
    CORRUPTED = "corrupted"  # the right page, with a wrong byte
    FOREIGN = "foreign"  # the page of another session, or of another rank
    STALE = "stale"  # the right page of an earlier attempt
    SHORT = "short"
    MISSING = "missing"
    FULL = "full"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Fault:
    """`offset` is that of the first wrong byte in the file."""

    kind: FaultKind
    offset: int
    detail: str


class PageContent:
    """Fills and verifies buffers of `file_bytes`. One per thread: it keeps scratch.

    `salt` names the run and attempt that the pages belong to; `owner` stands for it and the size of the pages.
    `compressible_share` of every block is zeros.
    """

    def __init__(self, page_bytes: int, salt: bytes = b"", compressible_share: float = 0.0) -> None:
        self._page_bytes = page_bytes
        self._random_words = _WORDS - round(compressible_share * _WORDS)
        self._blocks = 1 + -(-page_bytes // BLOCK_BYTES)
        self.file_bytes = self._blocks * BLOCK_BYTES
        self._salt = blake2b(salt, digest_size=8).digest()
        self.owner = blake2b(self._salt + page_bytes.to_bytes(8, "little"), digest_size=8).digest()
        self._scratch = np.zeros((min(_CHUNK_BLOCKS, self._blocks), _WORDS), dtype="<u8")

    def fill(self, buffer: memoryview, key: PageKey) -> None:
        """Write the page's header and content into `buffer`."""
        rows = _rows(buffer)
        self._expect(rows, self._block_words(key))
        rows[:, self._random_words :] = 0
        payload_checksum = xxhash.xxh3_64_intdigest(buffer[_HEADER_BYTES:])
        fields = _FIELDS.pack(
            _MAGIC, FORMAT_VERSION, key.digest, key.rank, self._salt, self._page_bytes, payload_checksum
        )
        buffer[:_HEADER_BYTES] = fields + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(fields))

    def spoil(self, buffer: memoryview) -> None:
        """Damage each block, so that a read which brings nothing is not taken for the page that was there before."""
        _rows(buffer)[:, 0] += _GAMMA

    def verify(self, buffer: memoryview, key: PageKey) -> Fault | None:
        """Check every byte of `buffer` against what `fill` writes; None when all are right."""
        if fault := self.verify_header(buffer, key):
            if fault.kind is FaultKind.TORN:
                return fault
            whole = _FIELDS.unpack_from(buffer)[-1] == xxhash.xxh3_64_intdigest(buffer[_HEADER_BYTES:])
            return replace(fault, detail=f"{fault.detail}; it is {'intact' if whole else 'damaged'}")
        return self._first_difference(_rows(buffer), self._block_words(key))

    def key_of(self, buffer: memoryview) -> PageKey | None:
        """The page that a header names; None where there is no header."""
        magic, _, digest, rank, *_ = _FIELDS.unpack_from(buffer)
        return PageKey(digest, rank) if magic == _MAGIC else None

    def verify_header(self, buffer: memoryview, key: PageKey) -> Fault | None:
        """Check the header alone: `buffer` needs to hold no more than the first block."""
        magic, version, digest, rank, salt, page_bytes, _ = _FIELDS.unpack_from(buffer)
        (checksum,) = _CHECKSUM.unpack_from(buffer, _FIELDS.size)
        if magic != _MAGIC or checksum != xxhash.xxh3_64_intdigest(buffer[: _FIELDS.size]):
            found = "a damaged header" if any(buffer[:_HEADER_BYTES]) else "zeros"
            return Fault(FaultKind.TORN, 0, f"the file begins with {found}")
        if version != FORMAT_VERSION:
            return Fault(FaultKind.TORN, 0, f"page format {version}; this version reads {FORMAT_VERSION}")
        if page_bytes != self._page_bytes:
            return Fault(FaultKind.TORN, 0, f"a page of {page_bytes} bytes where {self._page_bytes} are expected")
        if PageKey(digest, rank) != key:
            return Fault(FaultKind.FOREIGN, 0, f"this is page {PageKey(digest, rank).file_name}")
        if salt != self._salt:
            return Fault(FaultKind.STALE, 0, "this page was written by another run or attempt")
        return None

    def _block_words(self, key: PageKey) -> Words:
        """One word per block, by SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom generators, 2014)."""
        seed = blake2b(key.digest + key.rank.to_bytes(4, "little"), key=self._salt, digest_size=8).digest()
        words = np.frombuffer(seed, dtype="<u8") + _GAMMA * np.arange(1, self._blocks + 1, dtype="<u8")
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))

    def _expect(self, rows: Words, words: Words) -> None:
        """Fill blocks but for the zeros at their ends."""
        random = self._random_words
        np.bitwise_xor(_BASE[:random], words[:, None], out=rows[:, :random])

    def _first_difference(self, rows: Words, words: Words) -> Fault | None:
        for first in range(0, self._blocks, _CHUNK_BLOCKS):
            found = rows[first : first + _CHUNK_BLOCKS]
            expected = self._scratch[: len(found)]
            self._expect(expected, words[first : first + len(found)])
            if first == 0:
                expected[0, : _HEADER_BYTES // 8] = found[0, : _HEADER_BYTES // 8]  # has been verified by itself
            if not np.array_equal(found, expected):
                return _corruption(first * BLOCK_BYTES, found, expected)
        return None


def _rows(buffer: memoryview) -> Words:
    return np.frombuffer(buffer, dtype="<u8").reshape(-1, _WORDS)


def _corruption(chunk_offset: int, found: Words, expected: Words) -> Fault:
    found_bytes, expected_bytes = found.reshape(-1).view(np.uint8), expected.reshape(-1).view(np.uint8)
    wrong = np.flatnonzero(found_bytes != expected_bytes)
    at = int(wrong[0])
    block = found_bytes[at // BLOCK_BYTES * BLOCK_BYTES :][:BLOCK_BYTES]
    if not block.any():
        return Fault(FaultKind.TORN, chunk_offset + at, "a block of zeros, as if it had never been written")
    detail = f"0x{found_bytes[at]:02x} where 0x{expected_bytes[at]:02x} was written"
    return Fault(FaultKind.CORRUPTED, chunk_offset + at, detail)
