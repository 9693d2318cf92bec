"""Pages on a block device, without a file system: any sizes side by side, each in whole blocks.

A page is durable before it is in the index, and has left the index before its space is taken again: so whenever a
process or a machine dies, what was acknowledged is there, and the rest of the space is free.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from threading import Lock

from kvbench.errors import KvbenchError
from kvbench.store import pagefile
from kvbench.store.content import BLOCK_BYTES
from kvbench.store.deviceindex import DeviceIndex, take
from kvbench.store.extents import Look, Piece
from kvbench.store.index import Change, Entry
from kvbench.store.keys import PageKey
from kvbench.store.space import Space

_devices: dict[Path, Device] = {}  # that are in use; two of one would take the same space
_using = Lock()


class Device:
    """A store on a device, with the pages of whoever uses it in this process. Several threads may."""

    def __init__(self, path: Path, direct: bool) -> None:
        self.path, self.users = path, 0
        self._lock = Lock()
        with ExitStack() as stack:
            self.fd = stack.enter_context(pagefile.opened(path, os.O_RDWR, direct))
            index_fd = stack.enter_context(pagefile.opened(path, os.O_RDWR | os.O_DSYNC, direct))
            self._index = DeviceIndex(path, index_fd)
            self._held = self._index.read()
            self._space = Space(*self._index.page_blocks)
            for entry in self._held.values():
                if not self._space.take_at(entry.block, entry.blocks):
                    raise KvbenchError(f"the index of {path} has two pages in one place", "look at its health")
            self._index.write(self._held)
            self._files = stack.pop_all()
        self._is_broken = False

    @property
    def is_current(self) -> bool:
        """Whether it is still the store that was opened, and not one that was prepared since."""
        return self._index.is_current

    def find(self, owner: bytes, page: PageKey) -> Entry | None:
        return self._held.get((owner, page))

    def entries(self, owner: bytes) -> list[Entry]:
        """As they lie."""
        with self._lock:
            found = [entry for (of, _), entry in self._held.items() if of == owner]
        return sorted(found, key=lambda entry: entry.block)

    def reserve(self, blocks: int) -> int:
        """The first of so many blocks. Raises OSError when nowhere there are so many."""
        with self._lock:
            self._check_index()
            begin = self._space.take(blocks)
        if begin is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return begin

    def give_back(self, begin: int, blocks: int) -> None:
        with self._lock:
            self._space.give(begin, blocks)

    def note(self, change: Change) -> None:
        """Pages have come, durably, or have gone; then the space that they had before is free. Raises OSError."""
        keys = [(change.owner, entry.key) for entry in change.entries]
        with self._lock:
            before = {key: entry for key in keys if (entry := self._held.get(key))}
            take(self._held, change)
            try:
                self._write_down(change)
            except OSError:
                for key in keys:
                    self._held.pop(key, None)
                self._held |= before
                raise
            for entry in before.values():
                self._space.give(entry.block, entry.blocks)

    def _check_index(self) -> None:
        """One copy may have a change that failed in the other: the space that it gives to a page is left alone."""
        if self._is_broken:
            raise OSError(errno.EIO, "the index could not be written before")

    def _write_down(self, change: Change) -> None:
        self._check_index()
        try:
            if not self._index.append(change):
                self._index.write(self._held)
        except OSError as error:
            self._is_broken = error.errno != errno.ENOSPC
            raise

    def close(self) -> None:
        self._files.close()


class DevicePages:
    """The pages of one owner on a device, all of one size. Raises KvbenchError when it is no store."""

    def __init__(self, path: Path, slot_bytes: int, direct: bool, owner: bytes) -> None:
        self.path, self._owner, self._slot_bytes = path, owner, slot_bytes
        self._blocks = slot_bytes // BLOCK_BYTES
        self._device = _use(path, direct)
        self._is_open = True

    def pieces(self, pages: Sequence[PageKey]) -> list[Piece]:
        """Where pages lie, those that follow each other in one piece. One that is not there has a path of its own."""
        pieces: list[Piece] = []
        for page in pages:
            entry, last = self._device.find(self._owner, page), pieces[-1] if pieces else None
            if entry is None:
                pieces.append(Piece(self.path / page.file_name, 0, (page,)))
            elif last and last.offset + len(last.pages) * self._slot_bytes == entry.block * BLOCK_BYTES:
                pieces[-1] = Piece(self.path, last.offset, (*last.pages, page))
            else:
                pieces.append(Piece(self.path, entry.block * BLOCK_BYTES, (page,)))
        return pieces

    def read(self, piece: Piece, buffer: memoryview) -> int:
        """The bytes that were read. Raises OSError."""
        if piece.path != self.path:
            raise FileNotFoundError(errno.ENOENT, "the page is not on the device", str(piece.path))
        return pagefile.read_all(self._device.fd, buffer, piece.offset)

    def write(self, io: int, pages: Sequence[PageKey], buffer: memoryview) -> None:
        """Write pages that lie one after the other in `buffer`. Raises OSError, leaving nothing behind."""
        begin = self._device.reserve(len(pages) * self._blocks)
        entries = tuple(Entry(page, begin + at * self._blocks, self._blocks) for at, page in enumerate(pages))
        try:
            pagefile.write_all(self._device.fd, buffer, begin * BLOCK_BYTES)
            os.fdatasync(self._device.fd)
            self._device.note(Change(io, 0, self._owner, entries))
        except OSError:
            self._device.give_back(begin, len(pages) * self._blocks)
            raise

    def delete(self, page: PageKey) -> None:
        """Raises OSError."""
        entry = self._device.find(self._owner, page)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "the page is not on the device", str(self.path))
        self._device.note(Change(0, 0, self._owner, (entry,), is_gone=True))

    def sync(self) -> None:
        """Raises OSError."""
        os.fdatasync(self._device.fd)

    def scan(self, look: Look) -> list[tuple[PageKey, ...]]:
        """The pages that are there, neighbours together. They are looked into when they are read."""
        entries = self._device.entries(self._owner)
        found = [[entry.key] for entry in entries[:1]]
        for one, other in pairwise(entries):
            if one.block + one.blocks == other.block:
                found[-1].append(other.key)
            else:
                found.append([other.key])
        return [tuple(pages) for pages in found]

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            _leave(self._device)


def _use(path: Path, direct: bool) -> Device:
    """The device, as others in this process have it open, if they have. Raises KvbenchError."""
    with _using:
        device = _devices.get(path)
        try:
            if device is None or not device.is_current:
                device = _devices[path] = Device(path, direct)
        except OSError as error:
            raise KvbenchError(f"cannot keep pages on {path}: {error.strerror}", "look at the device") from None
        device.users += 1
        return device


def _leave(device: Device) -> None:
    with _using:
        device.users -= 1
        if not device.users:
            device.close()
            if _devices.get(device.path) is device:
                del _devices[device.path]
