"""The files of one node, and where in them its pages lie.

A page that is written alone is a file by its own name. A run of pages is one file, so that neighbours are read in one
I/O. A page of a run that goes leaves a hole, and with the last one the file goes. Every file is there as a whole or not
at all, whatever happens while it is written. After a restart an index tells what lies where; headers do, where it does
not.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from threading import Lock

from kvbench.store import pagefile
from kvbench.store.fileindex import FileIndex, Slots, run_name, run_number
from kvbench.store.keys import PageKey

_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE, FALLOC_FL_KEEP_SIZE of fallocate(2)
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Piece:
    """Pages that lie one after the other in a file."""

    path: Path
    offset: int
    pages: tuple[PageKey, ...]


Look = Callable[[Piece], tuple[PageKey | None, bool]]  # which page is in a slot, and whether all is right with it


class Extents:
    """Pages of `slot_bytes` in the files of a directory. Several threads may use it at once, each for other pages.

    `owner` tells these pages from those of other attempts.
    """

    def __init__(self, directory: Path, slot_bytes: int, direct: bool, owner: bytes) -> None:
        self.path, self._slot_bytes, self._direct, self._owner = directory, slot_bytes, direct, owner
        self._lock = Lock()
        self._places: dict[PageKey, tuple[Path, int]] = {}  # of the pages in runs: file and slot
        self._left: dict[Path, int] = {}  # run → pages that are still in it
        self._next_run = 1 + max(map(run_number, directory.iterdir()), default=0)
        self._index: FileIndex | None = None  # for who has looked at what was there

    def pieces(self, pages: Sequence[PageKey]) -> list[Piece]:
        """Where pages lie, those that follow each other in one piece."""
        pieces: list[Piece] = []
        for page in pages:
            path, slot = self._places.get(page, (self.path / page.file_name, 0))
            last = pieces[-1] if pieces else None
            if (
                last
                and last.path == path
                and slot * self._slot_bytes == last.offset + len(last.pages) * self._slot_bytes
            ):
                pieces[-1] = Piece(path, last.offset, (*last.pages, page))
            else:
                pieces.append(Piece(path, slot * self._slot_bytes, (page,)))
        return pieces

    def read(self, piece: Piece, buffer: memoryview) -> int:
        """The bytes that were read. Raises OSError."""
        return pagefile.read(piece.path, buffer, self._direct, piece.offset)

    def write(self, io: int, pages: Sequence[PageKey], buffer: memoryview) -> None:
        """Write pages that lie one after the other in `buffer`. Raises OSError, leaving nothing behind."""
        path = self.path / pages[0].file_name
        if len(pages) > 1:
            with self._lock:
                path = self.path / run_name(self._next_run)
                self._next_run += 1
        pagefile.write(path, path.with_name(f"{path.name}.{io}{pagefile.UNFINISHED}"), buffer, self._direct)
        for slot, page in enumerate(pages):
            if len(pages) > 1:
                self._found(page, path, slot)
                (self.path / page.file_name).unlink(missing_ok=True)
            elif before := self._places.pop(page, None):
                self._free(page, *before)
        if self._index:
            self._index.note(path, dict(enumerate(pages)))

    def delete(self, page: PageKey) -> None:
        """Raises OSError."""
        place = self._places.pop(page, None)
        if place:
            self._free(page, *place)
        else:
            (self.path / page.file_name).unlink()

    def sync(self) -> None:
        """Raises OSError."""
        pagefile.sync_directory(self.path)

    def scan(self, look: Look) -> list[tuple[PageKey, ...]]:
        """The pages of every file, in their order. What a crash has left is removed.

        What the index does not vouch for is looked into, slot by slot. Runs come first: their pages then are in no file
        of their own.
        """
        for path in self.path.glob(f"*{pagefile.UNFINISHED}"):
            if path.is_symlink() or not path.is_dir():
                path.unlink()
        self.close()
        index = self._index = FileIndex(self.path, self._owner, self._slot_bytes, self._direct)
        files = sorted(self.path.iterdir(), key=attrgetter("name"))  # paths are compared four times as slowly
        runs = [(path, self._run(path, index, look)) for path in files if run_number(path)]
        found = [tuple(page for page in pages if self._places[page][0] == path) for path, pages in runs]
        for path in files:
            key = PageKey.from_file_name(path.name)
            if key in self._places:
                path.unlink()
            elif key and (index.recall(path) or self._look(path, [Piece(path, 0, (key,))], index, look)):
                found.append((key,))
        index.replace()
        return found

    def close(self) -> None:
        if self._index:
            self._index.close()

    def _run(self, path: Path, index: FileIndex, look: Look) -> tuple[PageKey, ...]:
        slots = index.recall(path)
        if slots is None:
            count = -(-path.stat().st_size // self._slot_bytes)
            slots = self._look(path, [Piece(path, slot * self._slot_bytes, ()) for slot in range(count)], index, look)
        for slot, page in slots.items():
            self._found(page, path, slot)
        return tuple(page for _, page in sorted(slots.items()))

    @staticmethod
    def _look(path: Path, pieces: Sequence[Piece], index: FileIndex, look: Look) -> Slots:
        """What lies in a file, by its headers. One that is not right in all of it is looked into each time."""
        looked = [look(piece) for piece in pieces]
        slots = {slot: page for slot, (page, _) in enumerate(looked) if page}
        if all(is_right for _, is_right in looked):
            index.note(path, slots)
        return slots

    def _found(self, page: PageKey, path: Path, slot: int) -> None:
        """A page lies in a run; where it lay in another one before, it is removed."""
        with self._lock:
            before = self._places.get(page)
            if before == (path, slot):
                return
            self._places[page] = path, slot
            self._left[path] = self._left.get(path, 0) + 1
        if before:
            self._free(page, *before)

    def _free(self, page: PageKey, path: Path, slot: int) -> None:
        """The index is told afterwards: until then the file, which was altered, bears no number."""
        with self._lock:
            self._left[path] -= 1
            if not self._left[path]:
                del self._left[path]
                path.unlink()
                return
            _punch_hole(path, slot * self._slot_bytes, self._slot_bytes)
            if self._index:
                self._index.note(path, {slot: page}, is_gone=True)


def _punch_hole(path: Path, offset: int, size_bytes: int) -> None:
    """Give the space back; what is read there is zeros. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        arguments = ctypes.c_int(_PUNCH_HOLE_KEEP_SIZE), ctypes.c_int64(offset), ctypes.c_int64(size_bytes)
        if _libc.fallocate(ctypes.c_int(fd), *arguments):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(fd)
