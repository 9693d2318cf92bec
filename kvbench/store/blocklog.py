"""Appends to a stretch of a file in whole blocks, as direct I/O asks for."""

from __future__ import annotations

import errno
import os

from kvbench.store import pagefile
from kvbench.store.content import BLOCK_BYTES

_BUFFER_BYTES = 16 * BLOCK_BYTES


class BlockLog:
    """A log in `room_bytes` of an open file, from `start` on; empty at first, whatever lies there.

    A block that is not full is written once more with what comes next. What it began with is the same bytes then, so
    that a write which is torn between sectors does no harm to it.
    """

    def __init__(self, fd: int, start: int, room_bytes: int) -> None:
        self._fd, self._start, self._room_bytes = fd, start, room_bytes
        self._buffer = pagefile.aligned_buffer(_BUFFER_BYTES)
        self.used_bytes = 0

    @property
    def free_bytes(self) -> int:
        return self._room_bytes - self.used_bytes

    def append(self, data: bytes) -> None:
        """Raises OSError; ENOSPC when it does not fit."""
        if len(data) > self.free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = memoryview(data)
        while rest:
            here = self.used_bytes % BLOCK_BYTES
            part = rest[: _BUFFER_BYTES - here]
            self._write(here, part)
            rest = rest[len(part) :]

    def _write(self, here: int, part: memoryview) -> None:
        """`here` bytes of the buffer's first block are in the file already."""
        end = here + len(part)
        blocks = -(-end // BLOCK_BYTES) * BLOCK_BYTES
        self._buffer[here:end] = part
        self._buffer[end:blocks] = bytes(blocks - end)
        pagefile.write_all(self._fd, self._buffer[:blocks], self._start + self.used_bytes - here)
        last = end // BLOCK_BYTES * BLOCK_BYTES
        self._buffer[: end - last] = bytes(self._buffer[last:end])
        self.used_bytes += len(part)
