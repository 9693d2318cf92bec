"""Carries the page store's commands out on directories, one per node, with worker threads in long reads and writes.

A worker owns an aligned buffer of one page. It stamps `service_ns` around the I/O alone, and then checks every byte
that it has read. Whatever is not `Status.OK` comes with a `FaultReport`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import BoundedSemaphore, Lock, Thread
from types import TracebackType

from kvbench import clock
from kvbench.store import pagefile
from kvbench.store.content import BLOCK_BYTES, Fault, FaultKind, PageContent
from kvbench.store.core import Delete, Done, Read, Status, Sync, Write
from kvbench.store.keys import PageKey

Io = Read | Write | Delete | Sync
Slots = AbstractContextManager[bool | None]  # one for every I/O that may be under way

_HANG_NS = 10 * 10**9  # no I/O that still ends takes longer
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STATUS = {FaultKind.SHORT: Status.SHORT, FaultKind.FULL: Status.FULL} | dict.fromkeys(
    (FaultKind.MISSING, FaultKind.ERROR), Status.EIO
)  # the others are wrong content


@dataclass(frozen=True, slots=True)
class FaultReport:
    """What was wrong with one page. `key` is None when a whole node failed; `offset` counts bytes of the file."""

    key: PageKey | None
    node: int
    path: Path
    offset: int
    kind: FaultKind
    detail: str


class RateLimit:
    """Lets the bytes of one node pass no faster than a rate, one I/O after the other as on a slower medium."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at_ns = 0
        self._lock = Lock()

    def pass_at_ns(self, now_ns: int, size_bytes: int) -> int:
        """When an I/O that begins now may end at the earliest."""
        with self._lock:
            self._free_at_ns = max(self._free_at_ns, now_ns) + size_bytes * 10**9 // self._bytes_per_s
            return self._free_at_ns


class _Worker:
    """One page's memory, and the I/O of one command at a time."""

    def __init__(
        self, directory: Path, content: PageContent, direct: bool, limit: RateLimit | None, slots: Slots
    ) -> None:
        self._directory, self._content, self._direct, self._limit = directory, content, direct, limit
        self._slots = slots
        self._buffer = pagefile.aligned_buffer(content.file_bytes)

    def carry_out(self, command: Io) -> tuple[int, int, Fault | None]:
        """Returns when the I/O began and ended (monotonic), and what was wrong with it or with the page."""
        if isinstance(command, Write):
            self._content.fill(self._buffer, command.page)
        elif isinstance(command, Read):
            self._content.spoil(self._buffer)
        count, fault = 0, None
        with self._slots:
            began_ns = clock.monotonic_ns()
            try:
                count = self._do(command)
            except OSError as error:
                fault = _os_fault(error)
            if self._limit:
                clock.sleep_s((self._limit.pass_at_ns(began_ns, count) - clock.monotonic_ns()) / 1e9)
            ended_ns = clock.monotonic_ns()
        if isinstance(command, Read) and fault is None:
            fault = self._check(command.page, count)
        return began_ns, ended_ns, fault

    def _do(self, command: Io) -> int:
        """Returns the bytes that were moved. Raises OSError."""
        path = _path(self._directory, command)
        match command:
            case Read():
                return pagefile.read(path, self._buffer, self._direct)
            case Write(io):
                unfinished = path.with_name(f"{path.name}.{io}{pagefile.UNFINISHED}")
                pagefile.write(path, unfinished, self._buffer, self._direct)
                return len(self._buffer)
            case Delete():
                path.unlink()
            case Sync():
                pagefile.sync_directory(path)
        return 0

    def _check(self, page: PageKey, count: int) -> Fault | None:
        if count < len(self._buffer):
            return Fault(FaultKind.SHORT, count, f"the file ends after {count} of {len(self._buffer)} bytes")
        return self._content.verify(self._buffer, page)


class RealNodes:
    """Directories that stand for storage nodes. Nothing else may write to them meanwhile.

    `on_done` and `on_fault` are called from worker threads, a fault before its `Done`, and before
    both `on_io` with the I/O's number, begin and end. With `queue_depth`, so many I/Os are under way at most, over all
    nodes; workers beyond that fill or check pages meanwhile.
    Raises KvbenchError when a directory cannot be written to, or refuses direct I/O where `direct` asks for it.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        page_bytes: int,
        *,
        on_done: Callable[[Done], None],
        on_fault: Callable[[FaultReport], None] | None = None,
        on_io: Callable[[int, int, int], None] | None = None,
        direct: bool = True,
        rate_limit_bytes_per_s: int | None = None,
        workers_per_node: int = 4,
        queue_depth: int | None = None,
        salt: bytes = b"",
        compressible_share: float = 0.0,
    ) -> None:
        for directory in directories:
            pagefile.prepare_directory(directory, direct)
        self._directories, self._direct = tuple(directories), direct
        self._content = PageContent(page_bytes, salt, compressible_share)
        self._on_done, self._on_fault, self._on_io = on_done, on_fault, on_io
        self._queues: list[SimpleQueue[Io | None]] = [SimpleQueue() for _ in directories]
        slots: Slots = BoundedSemaphore(queue_depth) if queue_depth else nullcontext()
        self._abandoned = False
        self._threads = []
        for number, directory in enumerate(directories):
            limit = RateLimit(rate_limit_bytes_per_s) if rate_limit_bytes_per_s else None
            for _ in range(workers_per_node):
                content = PageContent(page_bytes, salt, compressible_share)
                worker = _Worker(directory, content, direct, limit, slots)
                self._threads.append(Thread(target=self._work, args=(worker, self._queues[number]), daemon=True))
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> RealNodes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def close(self) -> None:
        """Finish what has been submitted, and end the workers."""
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def abandon(self) -> None:
        """End the workers after the I/O that each is in; nothing more is begun, and nothing reported.

        Workers whose I/O hangs are left to themselves after a while: they do nothing more once it ends.
        """
        self._abandoned = True
        for queue in self._queues:
            queue.put(None)
        until_ns = clock.monotonic_ns() + _HANG_NS
        for thread in self._threads:
            thread.join(max(0.0, (until_ns - clock.monotonic_ns()) / 1e9))

    def submit(self, command: Io) -> None:
        """Queue a command at its node; a `Done` with its `io` follows."""
        self._queues[command.node].put(command)

    def scan(self) -> dict[PageKey, int]:
        """The whole pages on the nodes, by name, size and header; unfinished files are removed.

        To be called before anything is submitted. Any other page is reported as a fault, and left where it is.
        """
        block = pagefile.aligned_buffer(BLOCK_BYTES)
        found: dict[PageKey, int] = {}
        for node, directory in enumerate(self._directories):
            for path in sorted(directory.iterdir()):
                if path.suffix == pagefile.UNFINISHED:
                    path.unlink()
                elif key := PageKey.from_file_name(path.name):
                    if fault := self._scan_page(path, key, block):
                        self._report(key, node, path, fault)
                    else:
                        found[key] = node
        return found

    def _scan_page(self, path: Path, key: PageKey, block: memoryview) -> Fault | None:
        try:
            size_bytes = path.stat().st_size
            pagefile.read(path, block, self._direct)
        except OSError as error:
            return _os_fault(error)
        if size_bytes < self._content.file_bytes:
            return Fault(FaultKind.SHORT, size_bytes, f"{size_bytes} of {self._content.file_bytes} bytes")
        return self._content.verify_header(block, key)

    def _work(self, worker: _Worker, queue: SimpleQueue[Io | None]) -> None:
        while (command := queue.get()) and not self._abandoned:
            began_ns, ended_ns, fault = worker.carry_out(command)
            if self._abandoned:
                break
            if self._on_io:
                self._on_io(command.io, began_ns, ended_ns)
            if fault:
                key = None if isinstance(command, Sync) else command.page
                self._report(key, command.node, _path(self._directories[command.node], command), fault)
            status = _STATUS.get(fault.kind, Status.CORRUPT) if fault else Status.OK
            self._on_done(Done(command.io, status, ended_ns - began_ns))
        queue.put(None)  # for the next worker

    def _report(self, key: PageKey | None, node: int, path: Path, fault: Fault) -> None:
        if self._on_fault:
            self._on_fault(FaultReport(key, node, path, fault.offset, fault.kind, fault.detail))


def _path(directory: Path, command: Io) -> Path:
    return directory if isinstance(command, Sync) else directory / command.page.file_name


def _os_fault(error: OSError) -> Fault:
    if error.errno in _FULL:
        return Fault(FaultKind.FULL, 0, os.strerror(error.errno))
    kind = FaultKind.MISSING if isinstance(error, FileNotFoundError) else FaultKind.ERROR
    return Fault(kind, 0, error.strerror or str(error))
