"""Page files on a file system: whole reads, atomic durable writes, aligned memory."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from kvbench.errors import KvbenchError
from kvbench.store.content import BLOCK_BYTES

UNFINISHED = ".part"  # ends the name of a file that is being written; never that of a page

_HUGE_PAGE_BYTES = 2 * 2**20


def aligned_buffer(size_bytes: int) -> memoryview:
    """Memory for direct I/O: aligned to 2 MiB, in huge pages where the kernel has them, touched in advance."""
    area = mmap.mmap(-1, size_bytes + _HUGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared: never huge
    with suppress(OSError):  # a kernel without transparent huge pages
        area.madvise(mmap.MADV_HUGEPAGE)
    start = -np.frombuffer(area, dtype=np.uint8).ctypes.data % _HUGE_PAGE_BYTES
    buffer = memoryview(area)[start : start + size_bytes]
    np.frombuffer(buffer, dtype=np.uint8)[:] = 0
    return buffer


def read_all(fd: int, buffer: memoryview, offset: int) -> int:
    """Fill `buffer` from an open file; returns the bytes read, fewer only at the file's end. Raises OSError."""
    done = 0
    while done < len(buffer) and (count := os.preadv(fd, [buffer[done:]], offset + done)):
        done += count
    return done


def write_all(fd: int, buffer: memoryview, offset: int) -> None:
    done = 0
    while done < len(buffer):
        done += os.pwritev(fd, [buffer[done:]], offset + done)


def read(path: Path, buffer: memoryview, direct: bool, offset: int = 0) -> int:
    """Fill `buffer` from a file; returns the bytes read, fewer only at the file's end. Raises OSError."""
    with opened(path, os.O_RDONLY, direct) as fd:
        return read_all(fd, buffer, offset)


def write(path: Path, unfinished: Path, buffer: memoryview, direct: bool) -> None:
    """Write a file durably under another name, then give it its own: it is there as a whole, or not at all.

    The name itself is durable after `sync_directory`. Raises OSError, leaving nothing behind.
    """
    try:
        with opened(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, direct) as fd:
            write_all(fd, buffer, 0)
            os.fdatasync(fd)
        unfinished.rename(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY, direct=False) as fd:
        os.fsync(fd)


def prepare_directory(path: Path, direct: bool) -> None:
    """Create a node's directory and try a write in it as pages are written.

    What it lies in must be there: below a mount point that has lost its file system, pages would go to another disk.

    Raises KvbenchError when the directory cannot be written to, or its file system refuses direct I/O.
    """
    trial = path / f"trial{UNFINISHED}"
    try:
        path.mkdir(exist_ok=True)
        write(trial, trial, aligned_buffer(BLOCK_BYTES), direct)
        trial.unlink()
    except OSError as error:
        if direct and error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            raise KvbenchError(
                f"the file system of {path} refuses direct I/O (O_DIRECT)",
                "set `direct: false` for this storage; reads may then come from the page cache, and the run says so",
            ) from error
        raise KvbenchError(f"cannot keep pages in {path}: {error.strerror}", "name a directory to write to") from error


@contextmanager
def opened(path: Path, flags: int, direct: bool) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC | (os.O_DIRECT if direct else 0), 0o644)
    try:
        yield fd
    finally:
        os.close(fd)
