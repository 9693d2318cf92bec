"""The files of one node, and where in them its pages lie.

A page that is written alone is a file by its own name. A run of pages is one file, so that neighbours are read in one
I/O; its pages are found again by their headers. A page of a run that goes leaves a hole, and with the last one the
file goes. Every file is there as a whole or not at all, whatever happens while it is written.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from kvbench.store import pagefile
from kvbench.store.keys import PageKey

_RUN_NAME = re.compile(r"([0-9]{8,})\.run\Z")
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE, FALLOC_FL_KEEP_SIZE of fallocate(2)
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Piece:
    """Pages that lie one after the other in a file."""

    path: Path
    offset: int
    pages: tuple[PageKey, ...]


class Extents:
    """Pages of `slot_bytes` in the files of a directory. Several threads may use it at once, each for other pages."""

    def __init__(self, directory: Path, slot_bytes: int, direct: bool) -> None:
        self.directory, self._slot_bytes, self._direct = directory, slot_bytes, direct
        self._lock = Lock()
        self._places: dict[PageKey, tuple[Path, int]] = {}  # of the pages in runs: file and slot
        self._left: dict[Path, int] = {}  # run → pages that are still in it
        self._next_run = 1 + max((int(match[1]) for match in map(_run_name, directory.iterdir()) if match), default=0)

    def pieces(self, pages: Sequence[PageKey]) -> list[Piece]:
        """Where pages lie, those that follow each other in one piece."""
        pieces: list[Piece] = []
        for page in pages:
            path, slot = self._places.get(page, (self.directory / page.file_name, 0))
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

    def write(self, io: int, pages: Sequence[PageKey], buffer: memoryview) -> None:
        """Write pages that lie one after the other in `buffer`. Raises OSError, leaving nothing behind."""
        path = self.directory / pages[0].file_name
        if len(pages) > 1:
            with self._lock:
                path = self.directory / f"{self._next_run:08}.run"
                self._next_run += 1
        pagefile.write(path, path.with_name(f"{path.name}.{io}{pagefile.UNFINISHED}"), buffer, self._direct)
        for slot, page in enumerate(pages):
            if len(pages) > 1:
                self.found(page, path, slot)
                (self.directory / page.file_name).unlink(missing_ok=True)
            elif before := self._places.pop(page, None):
                self._free(*before)

    def delete(self, page: PageKey) -> None:
        """Raises OSError."""
        place = self._places.pop(page, None)
        if place:
            self._free(*place)
        else:
            (self.directory / page.file_name).unlink()

    def found(self, page: PageKey, path: Path, slot: int) -> None:
        """A page lies in a run; where it lay in another one before, it is removed."""
        with self._lock:
            before = self._places.get(page)
            if before == (path, slot):
                return
            self._places[page] = path, slot
            self._left[path] = self._left.get(path, 0) + 1
        if before:
            self._free(*before)

    def scan(self) -> Iterator[Piece]:
        """Every file of pages with its slots, each a piece of its own. What a crash has left is removed.

        Runs come first. Their pages are not known before the headers are read: those pieces come without any.
        """
        files = sorted(self.directory.iterdir())
        for path in filter(_run_name, files):
            for slot in range(-(-path.stat().st_size // self._slot_bytes)):
                yield Piece(path, slot * self._slot_bytes, ())
        for path in files:
            key = PageKey.from_file_name(path.name)
            if path.suffix == pagefile.UNFINISHED or key in self._places:
                path.unlink()
            elif key:
                yield Piece(path, 0, (key,))

    def _free(self, path: Path, slot: int) -> None:
        with self._lock:
            self._left[path] -= 1
            is_last = not self._left[path]
            if is_last:
                del self._left[path]
        if is_last:
            path.unlink()
        else:
            _punch_hole(path, slot * self._slot_bytes, self._slot_bytes)


def _run_name(path: Path) -> re.Match[str] | None:
    return _RUN_NAME.match(path.name)


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
