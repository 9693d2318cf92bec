"""How much of a set of files is in the page cache, and getting it out of there.

By cachestat(2) (Linux 6.5), and by mincore(2) where the kernel lacks it. Neither sees the caches that a file system
keeps for itself.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np

from kvbench.errors import StepError
from kvbench.host.machine.mounts import mount_of, parse_mountinfo
from kvbench.store import deviceindex

_MAPPED_BYTES = 1 << 30  # for mincore; a file may be larger than what can be mapped at once
_SYS_CACHESTAT = 451  # the same number on every architecture
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_MOUNTS = Path("/proc/self/mountinfo")
_OWN_CACHE = {  # file systems whose cached reads the page cache does not show
    "zfs": "the ARC of ZFS answers reads, and neither cachestat nor mincore looks into it",
    "virtiofs": "the host's page cache answers reads, and this machine cannot look into it",
    "9p": "the host's page cache answers reads, and this machine cannot look into it",
}

_libc = ctypes.CDLL(None, use_errno=True)


class _Range(ctypes.Structure):
    _fields_ = (("off", ctypes.c_uint64), ("len", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted"))


@dataclass(frozen=True, slots=True)
class Residency:
    """Bytes of the files that are in the page cache, of all their bytes; `method` is `cachestat` or `mincore`.

    `why_blind` is "" unless the file system has a cache of its own, which neither method sees.
    """

    resident_bytes: int
    total_bytes: int
    method: str
    why_blind: str = ""

    @property
    def share(self) -> float | None:
        """0 to 1; None when it cannot be told, or when the files hold no byte."""
        return None if self.why_blind or not self.total_bytes else self.resident_bytes / self.total_bytes


@dataclass(frozen=True, slots=True)
class Eviction:
    """What was done to empty the cache, in words, and what could not be ("" when nothing was left)."""

    files: int
    method: str
    why_incomplete: str


def has_cachestat() -> bool:
    """Whether this kernel answers cachestat(2)."""
    return _cachestat(-1) not in (-errno.ENOSYS, -errno.EPERM)  # EPERM: a container's filter that knows no better


def residency(paths: Iterable[Path]) -> Residency:
    """Residency of files, of every file below folders, and of block devices with pages.

    Raises StepError when it cannot be told.
    """
    paths = tuple(paths)
    method, resident_pages = ("cachestat", _cachestat) if has_cachestat() else ("mincore", _mincore)
    resident = total = 0
    for path in _files(paths):
        with _opened(path) as file:
            size, pages = _held_bytes(path), resident_pages(file.fileno())
        if pages < 0:
            raise StepError(
                f"page cache of {path}: {method} says {os.strerror(-pages)}", "run as the owner of the files"
            )
        total += size
        resident += min(size, pages * mmap.PAGESIZE)
    return Residency(resident, total, method, why_blind(paths, _MOUNTS.read_text(errors="replace")))


def why_blind(paths: Iterable[Path], mountinfo: str) -> str:
    """Why the page cache does not tell what is cached of these paths; "" when it does."""
    mounts = parse_mountinfo(mountinfo)
    folders = {(path if path.is_dir() else path.parent).resolve() for path in paths}
    kinds = {mount.fs_type for folder in folders if (mount := mount_of(folder, mounts))}
    return "; ".join(sorted({_OWN_CACHE[kind] for kind in kinds & _OWN_CACHE.keys()}))


def evict(paths: Iterable[Path]) -> Eviction:
    """Write the files back and drop them from the page cache; what stays then, root drops with the whole cache.

    The whole cache is not dropped without need: every program of the machine would read itself from disk again, and
    the byte ledger would count it. Success is shown by `residency`: pages that are mapped, locked or dirty stay.
    """
    paths = tuple(paths)
    count = 0
    for path in _files(paths):
        with _opened(path) as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        count += 1
    method = f"fdatasync and fadvise(DONTNEED), file by file ({count:,})"
    if not residency(paths).resident_bytes:
        return Eviction(count, method, "")
    os.sync()
    try:
        _DROP_CACHES.write_text("3")
    except OSError as error:
        return Eviction(count, method, f"drop_caches: {error.strerror}; some pages of the files stay")
    return Eviction(count, f"{method}, then sync and drop_caches=3", "")


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (Path(folder, name) for folder, _, names in os.walk(path) for name in sorted(names))
        else:
            yield path


def _held_bytes(path: Path) -> int:
    """What a file holds, or the pages on a block device."""
    if path.is_block_device():
        return sum(deviceindex.page_sizes(path)) if deviceindex.is_store(path) else 0
    return path.stat().st_size


def _opened(path: Path) -> FileIO:
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise StepError(f"cannot open {path}: {error.strerror}", "run as the owner of the files") from None


def _cachestat(descriptor: int) -> int:
    """Pages of an open file in the cache, or a negative errno."""
    answer, whole = _CacheStat(), _Range(0, 0)
    failed = _libc.syscall(
        ctypes.c_long(_SYS_CACHESTAT), ctypes.c_uint(descriptor & 0xFFFFFFFF), ctypes.byref(whole),
        ctypes.byref(answer), ctypes.c_uint(0),
    )  # fmt: skip
    return -ctypes.get_errno() if failed else int(answer.cache)


def _mincore(descriptor: int) -> int:
    """The same through mappings, which themselves read nothing."""
    resident = 0
    for offset, size in _mappable(descriptor):
        flags = np.empty(-(-size // mmap.PAGESIZE), np.uint8)
        with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, offset=offset) as mapping:
            start = np.frombuffer(mapping, np.uint8)
            failed = _libc.mincore(
                ctypes.c_void_p(start.ctypes.data), ctypes.c_size_t(size), ctypes.c_void_p(flags.ctypes.data)
            )
            error = ctypes.get_errno()
            del start  # the mapping cannot be closed while it is pointed into
        if failed:
            return -error
        resident += int(np.count_nonzero(flags & 1))
    return resident


def _mappable(descriptor: int) -> Iterator[tuple[int, int]]:
    """Offset and size of what a file or device holds, page by page, in pieces small enough to be mapped."""
    for begin, end in _extents(descriptor):
        for piece in range(begin, end, _MAPPED_BYTES):
            yield piece, min(_MAPPED_BYTES, end - piece)


def _extents(descriptor: int) -> Iterator[tuple[int, int]]:
    """Begin and end of all but the holes, which hold nothing. A block device has none, and cannot be asked for them."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    if stat.S_ISBLK(os.fstat(descriptor).st_mode):
        yield 0, end
        return
    hole = 0
    while (data := _next_data(descriptor, hole)) is not None:
        begin = max(hole, data - data % mmap.PAGESIZE)
        hole = min(end, -(-os.lseek(descriptor, data, os.SEEK_HOLE) // mmap.PAGESIZE) * mmap.PAGESIZE)
        yield begin, hole


def _next_data(descriptor: int, offset: int) -> int | None:
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a hole, or nothing, up to the end
            return None
        raise
