"""A block device as a store of pages: what makes it one, and the index of what lies where.

    superblock | index | index, once more | pages

The superblock is written by `prepare` alone, when all that the device held may go. The index is there twice, so that a
write that is torn, or a block that is damaged, does no harm. Both are written anew, shorter, when a store is opened and
when they are full: one after the other, so that one of them is whole at any moment.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import xxhash

from kvbench.errors import KvbenchError
from kvbench.store import pagefile
from kvbench.store.blocklog import BlockLog
from kvbench.store.content import BLOCK_BYTES
from kvbench.store.index import Change, Entry, decode, encode, encoded_bytes
from kvbench.store.keys import PageKey

_MAGIC = b"kvbench pages 1\n"
_SUPERBLOCK = struct.Struct("<16sQQQ")  # magic, which store this is, its bytes, those of one index
_HEAD = struct.Struct("<QQ")  # of an index: generation, bytes of its first changes, which tell all that there was
_CHECKSUM = struct.Struct("<Q")  # XXH3-64 of the rest of the block
_LEAST_INDEX_BYTES = 2**20
_INDEX_SHARE = 4096  # of the device, a byte in so many
_CHUNK_BYTES = 2**20
_MOST_ENTRIES = 1000  # of a change, which then is shorter than a chunk
_HINT = "keep pages in a directory, or name the device in a target and its serial number with --destroy-data"

Held = dict[tuple[bytes, PageKey], Entry]  # what lies where, by owner and page


def prepare(path: Path, name: str) -> None:
    """Make a device an empty store of that name: all that it held is lost. Raises KvbenchError.

    Whether it may be written over is for the caller to know (`host.machine.rawdevice`).
    """
    try:
        with path.open("r+b", buffering=0) as file:
            size_bytes = file.seek(0, os.SEEK_END) // BLOCK_BYTES * BLOCK_BYTES
            index_bytes = max(_LEAST_INDEX_BYTES, size_bytes // _INDEX_SHARE // BLOCK_BYTES * BLOCK_BYTES)
            if size_bytes <= BLOCK_BYTES + 2 * index_bytes:
                raise KvbenchError(f"{path} has {size_bytes:,} bytes, too few to keep pages on", "name a larger device")
            which = xxhash.xxh3_64_intdigest(name.encode())
            for start in (BLOCK_BYTES, BLOCK_BYTES + index_bytes):
                os.pwrite(file.fileno(), _sealed(_HEAD.pack(0, 0)) + bytes(BLOCK_BYTES), start)
            os.pwrite(file.fileno(), _sealed(_SUPERBLOCK.pack(_MAGIC, which, size_bytes, index_bytes)), 0)
            _out_of_memory(file.fileno())
    except OSError as error:
        raise KvbenchError(f"{path} cannot be written: {error.strerror}", _HINT) from None


def forget(path: Path) -> None:
    """A device is no store any more: its pages stay, and nothing leads to them. Raises OSError."""
    with path.open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), bytes(BLOCK_BYTES), 0)
        _out_of_memory(file.fileno())


def is_store(path: Path) -> bool:
    """Whether a path leads to a device that is a store, or to a file that stands for one. Raises OSError."""
    if not path.is_block_device() and not path.is_file():
        return False
    block = pagefile.aligned_buffer(BLOCK_BYTES)
    with pagefile.opened(path, os.O_RDONLY, path.is_block_device()) as fd:  # what is read by the cache stays there
        pagefile.read_all(fd, block, 0)
    return _unsealed(bytes(block), _SUPERBLOCK.size) is not None


def page_sizes(path: Path) -> list[int]:
    """The bytes of every page in a store, which another process may be writing to. Raises KvbenchError, OSError."""
    with pagefile.opened(path, os.O_RDONLY, path.is_block_device()) as fd:
        return [entry.blocks * BLOCK_BYTES for entry in DeviceIndex(path, fd).read().values()]


def first_page_at(path: Path) -> int:
    """Where pages begin in a store, in bytes. Raises KvbenchError, OSError."""
    with pagefile.opened(path, os.O_RDONLY, path.is_block_device()) as fd:
        return DeviceIndex(path, fd).page_blocks[0] * BLOCK_BYTES


def take(held: Held, change: Change) -> None:
    """Let what is held follow a change."""
    for entry in change.entries:
        if change.is_gone:
            held.pop((change.owner, entry.key), None)
        else:
            held[change.owner, entry.key] = entry


class DeviceIndex:
    """The index of a store that is open. Raises KvbenchError where there is none."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path, self._fd = path, fd
        self._block = pagefile.aligned_buffer(BLOCK_BYTES)
        found = self._sealed_at(0, _SUPERBLOCK.size)
        if found is None or os.lseek(fd, 0, os.SEEK_END) < _SUPERBLOCK.unpack(found)[2]:
            raise KvbenchError(f"{path} is a device that is no store of pages", _HINT)
        self._superblock = found
        self._which: int
        self._size_bytes: int
        self._index_bytes: int
        _, self._which, self._size_bytes, self._index_bytes = _SUPERBLOCK.unpack(found)
        self._starts = BLOCK_BYTES, BLOCK_BYTES + self._index_bytes
        self._generation = 0
        self._logs: list[BlockLog] = []

    @property
    def is_current(self) -> bool:
        """Whether the device is still this store."""
        return self._sealed_at(0, _SUPERBLOCK.size) == self._superblock

    @property
    def page_blocks(self) -> tuple[int, int]:
        """The first block that may be a page's, and the end of them."""
        return 1 + 2 * self._index_bytes // BLOCK_BYTES, self._size_bytes // BLOCK_BYTES

    def read(self) -> Held:
        """What lies where, by the copy that tells more. Raises KvbenchError when neither can be read."""
        copies = [found for start in self._starts if (found := self._read(start))]
        if not copies:
            raise KvbenchError(f"both copies of the index of {self._path} are damaged", "look at the device's health")
        self._generation, _, held = max(copies, key=lambda copy: copy[:2])
        return held

    def write(self, held: Held) -> None:
        """Write both copies anew. Raises OSError; ENOSPC, with nothing written, when it does not fit."""
        seed, room_bytes = self._seed(self._generation + 1), self._index_bytes - BLOCK_BYTES
        data = b"".join(encode(change, seed) for change in _summary(held))
        if len(data) > room_bytes:
            raise OSError(errno.ENOSPC, "the index is full")
        self._generation += 1
        self._logs = []
        for start in self._starts:
            log = BlockLog(self._fd, start + BLOCK_BYTES, room_bytes)
            log.append(data)
            self._block[:] = _sealed(_HEAD.pack(self._generation, len(data)))
            pagefile.write_all(self._fd, self._block, start)
            self._logs.append(log)

    def append(self, change: Change) -> bool:
        """Whether there was room for it; where not, nothing was written. Raises OSError."""
        data = encode(change, self._seed(self._generation))
        if any(log.free_bytes < len(data) for log in self._logs):
            return False
        for log in self._logs:
            log.append(data)
        return True

    def _read(self, start: int) -> tuple[int, int, Held] | None:
        """Generation, bytes and what is held, by one copy; None when what it began with is not whole."""
        head = self._sealed_at(start, _HEAD.size)
        if head is None:
            return None
        generation, least_bytes = _HEAD.unpack(head)
        held: Held = {}
        used_bytes = 0
        for change in self._changes(start + BLOCK_BYTES, self._seed(generation)):
            used_bytes += encoded_bytes(change)
            take(held, change)
        return (generation, used_bytes, held) if used_bytes >= least_bytes else None

    def _changes(self, start: int, seed: int) -> Iterator[Change]:
        buffer, data = pagefile.aligned_buffer(_CHUNK_BYTES), b""
        for at in range(0, self._index_bytes - BLOCK_BYTES, _CHUNK_BYTES):
            count = pagefile.read_all(self._fd, buffer, start + at)
            data += bytes(buffer[:count])
            used_bytes = 0
            for change in decode(data, seed):
                used_bytes += encoded_bytes(change)
                yield change
            if not used_bytes:
                return
            data = data[used_bytes:]

    def _sealed_at(self, at: int, size: int) -> bytes | None:
        pagefile.read_all(self._fd, self._block, at)
        return _unsealed(bytes(self._block), size)

    def _seed(self, generation: int) -> int:
        """Tells the changes of one writing from those that lay there before."""
        return (self._which + generation) % 2**64


def _summary(held: Held) -> Iterator[Change]:
    """As few changes as tell all."""
    for owner in dict.fromkeys(owner for owner, _ in held):
        entries = (entry for (of, _), entry in held.items() if of == owner)
        while some := tuple(islice(entries, _MOST_ENTRIES)):
            yield Change(0, 0, owner, some)


def _sealed(fields: bytes) -> bytes:
    """A block that begins with some fields and ends with the checksum of the rest of it."""
    rest = fields.ljust(BLOCK_BYTES - _CHECKSUM.size, b"\0")
    return rest + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(rest))


def _unsealed(block: bytes, size: int) -> bytes | None:
    """The fields of a block, or None when it is not whole."""
    if len(block) < BLOCK_BYTES or block != _sealed(block[: BLOCK_BYTES - _CHECKSUM.size]):
        return None
    return block[:size]


def _out_of_memory(fd: int) -> None:
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
