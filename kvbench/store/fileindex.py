"""The index of a directory of pages: after a restart it says which files need not be looked into.

Every change has a number, and the file that it is about bears it as its time of modification, in whole seconds.
Whatever is done to a file otherwise gives it another time. So a file is as its last change has left it if it bears the
number of that change, and any other is looked into. Where the index is torn, damaged or missing, those are all that
came after, at worst every file: it can be lost, and cannot mislead. It is written anew at each start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from kvbench.store import pagefile
from kvbench.store.blocklog import BlockLog
from kvbench.store.content import BLOCK_BYTES
from kvbench.store.index import Change, Entry, decode, encode
from kvbench.store.keys import PageKey

NAME = "kvbench-index"  # no file of anybody else's is called so, which would be written over

Slots = Mapping[int, PageKey]  # of a file: what lies where

_RUN_NAME = re.compile(r"([0-9]{8,})\.run\Z")
_MOST_BYTES = 2**40


def run_name(number: int) -> str:
    return f"{number:08}.run"


def run_number(path: Path) -> int:
    """The number of a run, from 1 on; 0 of any other file."""
    match = _RUN_NAME.match(path.name)
    return int(match[1]) if match else 0


@dataclass(slots=True)
class _Known:
    number: int = 0
    slots: dict[int, PageKey] = field(default_factory=dict)


class FileIndex:
    """What an index says of the files of a directory, and the one that takes its place.

    Several threads may use it at once. One that cannot be written is done without: what is not in it is looked into.
    """

    def __init__(self, directory: Path, owner: bytes, slot_bytes: int, direct: bool) -> None:
        self._directory, self._owner, self._direct = directory, owner, direct
        self._slot_bytes = slot_bytes
        self._lock = Lock()
        self._known: dict[str, _Known] = {}  # by the file's name
        self._number = 0
        for change in self._read():
            self._take(change)
        self._fd: int | None = None
        self._log: BlockLog | None = None
        self._first: list[bytes] | None = []  # changes that are written at once, when it takes its place
        with self._done_without_on_error():
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
            self._fd = os.open(self._unfinished, flags, 0o644)
            self._log = BlockLog(self._fd, 0, _MOST_BYTES)

    def recall(self, path: Path) -> Slots | None:
        """What lies in a file; None when it has to be looked into."""
        known = self._known.get(path.name)
        if known is None or not known.slots:
            return None
        found = path.stat()
        is_whole = found.st_size % self._slot_bytes == 0 and found.st_size > max(known.slots) * self._slot_bytes
        if found.st_mtime_ns != _time_ns(known.number) or not is_whole:
            return None
        with self._lock, self._done_without_on_error():
            self._append(path, known.number, known.slots)
        return known.slots

    def note(self, path: Path, slots: Slots, *, is_gone: bool = False) -> None:
        """Pages have come to lie in a file, durably, or have gone from it."""
        with self._lock, self._done_without_on_error():
            self._number += 1
            self._append(path, self._number, slots, is_gone)
            if self._log:
                os.utime(path, ns=(_time_ns(self._number),) * 2)

    def replace(self) -> None:
        """Take the place of the index that was read."""
        with self._lock, self._done_without_on_error():
            if self._log and self._first is not None:
                self._log.append(b"".join(self._first))
                self._unfinished.rename(self._directory / NAME)
            self._first = None
        self._known.clear()

    def close(self) -> None:
        with self._lock:
            self._log = None
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    @property
    def _unfinished(self) -> Path:
        return self._directory / f"{NAME}{pagefile.UNFINISHED}"

    def _read(self) -> Iterator[Change]:
        path = self._directory / NAME
        try:
            if not path.is_file():  # a named pipe, for one, would be waited for
                return
            buffer = pagefile.aligned_buffer(-(-path.stat().st_size // BLOCK_BYTES) * BLOCK_BYTES)
            count = pagefile.read(path, buffer, self._direct)
        except OSError:
            return
        yield from decode(buffer[:count])

    def _take(self, change: Change) -> None:
        """Let what is known follow a change that was written down."""
        self._number = max(self._number, change.number)
        if change.owner != self._owner or not change.entries:
            return
        name = run_name(change.file) if change.file else change.entries[0].key.file_name
        known = self._known.setdefault(name, _Known())
        known.number = change.number
        for entry in change.entries:
            if change.is_gone:
                known.slots.pop(entry.block * BLOCK_BYTES // self._slot_bytes, None)
            else:
                known.slots[entry.block * BLOCK_BYTES // self._slot_bytes] = entry.key

    def _append(self, path: Path, number: int, slots: Slots, is_gone: bool = False) -> None:
        if not self._log:
            return
        blocks = self._slot_bytes // BLOCK_BYTES
        entries = tuple(Entry(page, slot * blocks, blocks) for slot, page in slots.items())
        data = encode(Change(number, run_number(path), self._owner, entries, is_gone))
        if self._first is None:
            self._log.append(data)
        else:
            self._first.append(data)

    @contextmanager
    def _done_without_on_error(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:  # the file has gone meanwhile, and with it what was to be said of it
            pass
        except OSError:
            self._log = None
            with suppress(OSError):
                self._unfinished.unlink(missing_ok=True)


def _time_ns(number: int) -> int:
    return number * 10**9
