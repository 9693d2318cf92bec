"""Carries the page store's commands out on real nodes, with worker threads in long reads and writes.

A worker owns an aligned buffer of one page, or of a run of them. It stamps `service_ns` around the I/O alone, and then
checks every byte that it has read. Whatever is not `Status.OK` comes with a `FaultReport`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from queue import SimpleQueue
from threading import BoundedSemaphore, Lock, Thread
from types import TracebackType

from kvbench import clock
from kvbench.errors import KvbenchError
from kvbench.store import pagefile
from kvbench.store.content import BLOCK_BYTES, Fault, FaultKind, PageContent
from kvbench.store.device import DevicePages
from kvbench.store.deviceindex import is_store
from kvbench.store.extents import Extents, Piece
from kvbench.store.keys import PageKey
from kvbench.store.protocol import Copy, Delete, Done, Io, Read, Status, Sync, Write

Faults = dict[PageKey | None, Fault]  # page → what is wrong with it; None: the node itself
Slots = AbstractContextManager[bool | None]  # one for every I/O that may be under way

_HANG_NS = 10 * 10**9  # no I/O that still ends takes longer
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STATUS = {FaultKind.SHORT: Status.SHORT, FaultKind.FULL: Status.FULL} | dict.fromkeys(
    (FaultKind.MISSING, FaultKind.ERROR), Status.EIO
)  # the others are wrong content


@dataclass(frozen=True, slots=True)
class FaultReport:
    """What was wrong with one page. `key` is None when a whole node failed; `offset` counts bytes of file or device."""

    key: PageKey | None
    node: int
    path: Path
    offset: int
    kind: FaultKind
    detail: str

    def __str__(self) -> str:
        page = self.key.file_name if self.key else str(self.path)
        return f"{page} on node {self.node} at {self.offset}: {self.kind}, {self.detail}"


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
    """The memory of a run of pages, and the I/O of one command at a time.

    `nodes` are the files and the rate limits of all nodes: a copy reads from one and writes to another.
    """

    def __init__(
        self, nodes: Sequence[_Node], content: PageContent, run_pages: int, slots: Slots, verify: bool
    ) -> None:
        self._nodes, self._content, self._run_pages, self._slots = nodes, content, run_pages, slots
        self._verify = verify
        self._slot_bytes = content.file_bytes
        self._buffer = pagefile.aligned_buffer(content.file_bytes * run_pages)

    def carry_out(self, command: Io) -> tuple[int, int, Faults]:
        """Returns when the I/O began and ended (monotonic), and what was wrong with it or with its pages.

        What is longer than a run goes in several, whose checks then lie within that time.
        """
        stamps: list[int] = []
        faults: Faults = {}
        for pages in _runs(command, self._run_pages):
            if isinstance(command, Write):
                for slot, page in enumerate(pages):
                    self._content.fill(self._slot(slot), page)
            elif isinstance(command, Copy) or (isinstance(command, Read) and self._verify):
                for slot in range(len(pages)):
                    self._content.spoil(self._slot(slot))
            with self._slots:
                stamps.append(clock.monotonic_ns())
                found = self._do(command, pages, stamps[-1])
                stamps.append(clock.monotonic_ns())
            if isinstance(command, Read) and self._verify:
                found = self._check(pages, found)
            faults |= found
        return stamps[0], stamps[-1], faults

    def _do(self, command: Io, pages: Sequence[PageKey], began_ns: int) -> Faults:
        """Move the bytes, no faster than the nodes may."""
        node = self._nodes[command.node]
        match command:
            case Read():
                return self._read(node, pages, began_ns)
            case Write(io):
                return self._write(io, node, pages, began_ns)
            case Copy(io, _, _, source):
                faults = self._check(pages, self._read(self._nodes[source], pages, began_ns))
                return faults or self._write(io, node, pages, began_ns)
            case Delete():
                return {page: fault for page in pages if (fault := _tried(node.files.delete, page))}
            case Sync():
                fault = _tried(node.files.sync)
                return {None: fault} if fault else {}

    def _read(self, node: _Node, pages: Sequence[PageKey], began_ns: int) -> Faults:
        faults: Faults = {}
        done = moved = 0
        for piece in node.files.pieces(pages):
            buffer = self._slot(done, len(piece.pages))
            done += len(piece.pages)
            try:
                count = node.files.read(piece, buffer)
            except OSError as error:
                faults |= dict.fromkeys(piece.pages, _os_fault(error))
                continue
            moved += count
            for slot, page in enumerate(piece.pages):
                here = count - slot * self._slot_bytes
                if here < self._slot_bytes:
                    detail = f"the file ends after {max(0, here)} of {self._slot_bytes} bytes"
                    faults[page] = Fault(FaultKind.SHORT, max(0, here), detail)
        node.pause(began_ns, moved)
        return faults

    def _write(self, io: int, node: _Node, pages: Sequence[PageKey], began_ns: int) -> Faults:
        """All pages of a run are written, or none."""
        buffer = self._slot(0, len(pages))
        fault = _tried(node.files.write, io, pages, buffer)
        node.pause(began_ns, 0 if fault else len(buffer))
        return dict.fromkeys(pages, fault) if fault else {}

    def _check(self, pages: Sequence[PageKey], faults: Faults) -> Faults:
        """What is wrong with the pages that were read: their I/O, or else their content."""
        found = {
            page: faults.get(page) or self._content.verify(self._slot(slot), page) for slot, page in enumerate(pages)
        }
        return {page: fault for page, fault in found.items() if fault}

    def _slot(self, first: int, count: int = 1) -> memoryview:
        return self._buffer[first * self._slot_bytes : (first + count) * self._slot_bytes]


@dataclass(frozen=True, slots=True)
class _Node:
    files: Extents | DevicePages
    limit: RateLimit | None

    def pause(self, began_ns: int, size_bytes: int) -> None:
        """Let an I/O that began then end no earlier than on the slower medium."""
        if self.limit:
            clock.sleep_s((self.limit.pass_at_ns(began_ns, size_bytes) - clock.monotonic_ns()) / 1e9)


class RealNodes:
    """Directories and block devices that are storage nodes. Nothing else may write to them meanwhile.

    `on_done` and `on_fault` are called from worker threads, a fault before its `Done`, and before
    both `on_io` with the I/O's number, begin and end. With `queue_depth`, so many I/Os are under way at most, over all
    nodes; workers beyond that fill or check pages meanwhile. Without `verify` what is read is not checked: for a
    benchmark of the driver alone. A rate limit is that of each node; or there is one for each, in their order.
    Raises KvbenchError when a directory cannot be written to or refuses direct I/O where `direct` asks for it, and when
    a device was not made a store (`deviceindex.prepare`), or a place is named twice.
    """

    def __init__(
        self,
        places: Sequence[Path],
        page_bytes: int,
        *,
        on_done: Callable[[Done], None],
        on_fault: Callable[[FaultReport], None] | None = None,
        on_io: Callable[[int, int, int], None] | None = None,
        direct: bool = True,
        rate_limit_bytes_per_s: int | Sequence[int | None] | None = None,
        workers_per_node: int = 4,
        queue_depth: int | None = None,
        run_pages: int = 1,
        salt: bytes = b"",
        compressible_share: float = 0.0,
        verify: bool = True,
    ) -> None:
        make_content = partial(PageContent, page_bytes, salt, compressible_share)
        self._content = make_content()
        self._on_done, self._on_fault, self._on_io = on_done, on_fault, on_io
        self._direct, self._workers_per_node = direct, workers_per_node
        slots: Slots = BoundedSemaphore(queue_depth) if queue_depth else nullcontext()
        self._make_worker: Callable[[], _Worker] = lambda: _Worker(
            self._nodes, make_content(), run_pages, slots, verify
        )
        self._abandoned = False
        self._gone: set[int] = set()
        for place, other in combinations(places, 2):
            if _same(place, other):
                raise KvbenchError(f"{other} is {place} once more", "name each node once")
        limits = rate_limit_bytes_per_s
        if limits is None or isinstance(limits, int):
            limits = [limits] * len(places)
        self._nodes: list[_Node] = []
        self._queues: list[SimpleQueue[Io | None]] = []
        self._threads: list[Thread] = []
        with ExitStack() as opened:  # where one is refused, those before it are closed
            nodes_files = [opened.enter_context(closing(self._files(place))) for place in places]
            opened.pop_all()
        for files, limit in zip(nodes_files, limits, strict=True):
            self._start(files, limit)

    def _files(self, place: Path) -> Extents | DevicePages:
        how = self._content.file_bytes, self._direct, self._content.owner
        if place.is_block_device() or is_store(place):
            return DevicePages(place, *how)
        pagefile.prepare_directory(place, self._direct)
        return Extents(place, *how)

    def _start(self, files: Extents | DevicePages, limit: int | None) -> int:
        """A node with its workers, under the next number."""
        self._nodes.append(_Node(files, RateLimit(limit) if limit else None))
        queue: SimpleQueue[Io | None] = SimpleQueue()
        self._queues.append(queue)
        for _ in range(self._workers_per_node):
            thread = Thread(target=self._work, args=(self._make_worker(), queue), daemon=True)
            self._threads.append(thread)
            thread.start()
        return len(self._queues) - 1

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
        self._close_files()

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
        if not any(thread.is_alive() for thread in self._threads):
            self._close_files()

    def _close_files(self) -> None:
        for node in self._nodes:
            node.files.close()

    def add(self, place: Path, rate_limit_bytes_per_s: int | None = None) -> int:
        """A node comes; returns its number, which is the next. Raises KvbenchError as the constructor does."""
        return self._start(self._files(place), rate_limit_bytes_per_s)

    def has(self, place: Path) -> bool:
        """Whether a node keeps its pages there, by whatever path; one that is gone does not."""
        nodes = (node.files.path for number, node in enumerate(self._nodes) if number not in self._gone)
        return any(_same(path, place) for path in nodes)

    def fail(self, node: int) -> None:
        """A node is gone: what has not begun there is not done any more, and nothing is copied from it."""
        self._gone.add(node)

    def submit(self, command: Io) -> None:
        """Queue a command at its node; a `Done` with its `io` follows."""
        self._queues[command.node].put(command)

    def scan(self) -> list[tuple[tuple[PageKey, ...], int]]:
        """The whole pages on the nodes, by their index or by size and header: those of each file in their order, and
        their node.

        To be called before anything is submitted. Unfinished files are removed. Any other page is reported as a fault,
        and left where it is.
        """
        block = pagefile.aligned_buffer(BLOCK_BYTES)
        return [
            (pages, number)
            for number, node in enumerate(self._nodes)
            for pages in node.files.scan(partial(self._look, number, block))
        ]

    def _look(self, number: int, block: memoryview, piece: Piece) -> tuple[PageKey | None, bool]:
        """The page of a slot, None when there is none or it is not right; and whether all is right with the slot."""
        try:
            left_bytes = piece.path.stat().st_size - piece.offset
            self._nodes[number].files.read(piece, block)
        except OSError as error:
            self._report(piece.pages[0] if piece.pages else None, number, piece, _os_fault(error))
            return None, False
        key = piece.pages[0] if piece.pages else self._content.key_of(block)
        if key is None:
            return None, True  # the hole that a deleted page has left
        if left_bytes < self._content.file_bytes:
            detail = f"{left_bytes} of {self._content.file_bytes} bytes"
            fault: Fault | None = Fault(FaultKind.SHORT, left_bytes, detail)
        else:
            fault = self._content.verify_header(block, key)
        if fault:
            self._report(key, number, piece, fault)
            return None, False
        return key, True

    def _work(self, worker: _Worker, queue: SimpleQueue[Io | None]) -> None:
        while (command := queue.get()) and not self._abandoned:
            if not self._gone.isdisjoint(_touched(command)):
                self._on_done(Done(command.io, Status.EIO, 0))
                continue
            gone = self._pieces(command) if isinstance(command, Delete) else None
            began_ns, ended_ns, faults = worker.carry_out(command)
            if self._abandoned:
                break
            if self._on_io:
                self._on_io(command.io, began_ns, ended_ns)
            if faults:
                self._report_all(command, faults, gone or self._pieces(command))
            self._on_done(_done(command, ended_ns - began_ns, faults))
        queue.put(None)  # for the next worker

    def _report_all(self, command: Io, faults: Faults, pieces: dict[PageKey, Piece]) -> None:
        node = Piece(self._nodes[command.node].files.path, 0, ())
        for page, fault in faults.items():
            self._report(page, command.node, pieces.get(page, node) if page else node, fault)

    def _pieces(self, command: Io) -> dict[PageKey, Piece]:
        """Where the pages of a command lie, or will lie."""
        files = self._nodes[command.source if isinstance(command, Copy) else command.node].files
        return {page: piece for page in _pages(command) for piece in files.pieces((page,))}

    def _report(self, key: PageKey | None, node: int, piece: Piece, fault: Fault) -> None:
        if self._on_fault:
            offset = piece.offset + fault.offset
            self._on_fault(FaultReport(key, node, piece.path, offset, fault.kind, fault.detail))


def _same(one: Path, other: Path) -> bool:
    return one == other or (one.exists() and other.exists() and one.samefile(other))


def _touched(command: Io) -> tuple[int, ...]:
    return (command.node, command.source) if isinstance(command, Copy) else (command.node,)


def _pages(command: Io) -> tuple[PageKey, ...]:
    return () if isinstance(command, Sync) else (command.page, *command.more)


def _runs(command: Io, run_pages: int) -> list[tuple[PageKey, ...]]:
    """The pages of a command in pieces that fit a worker's memory; one without pages where it has none."""
    pages = _pages(command)
    return [pages[at : at + run_pages] for at in range(0, len(pages), run_pages)] or [()]


def _done(command: Io, service_ns: int, faults: Faults) -> Done:
    if not faults:
        return Done(command.io, Status.OK, service_ns)
    statuses = {_STATUS.get(fault.kind, Status.CORRUPT) for fault in faults.values()}
    gravest = max(statuses, key=list(Status).index)
    return Done(command.io, gravest, service_ns, tuple(page for page in faults if page))


def _tried(act: Callable[..., object], *arguments: object) -> Fault | None:
    try:
        act(*arguments)
    except OSError as error:
        return _os_fault(error)
    return None


def _os_fault(error: OSError) -> Fault:
    if error.errno in _FULL:
        return Fault(FaultKind.FULL, 0, os.strerror(error.errno))
    kind = FaultKind.MISSING if isinstance(error, FileNotFoundError) else FaultKind.ERROR
    return Fault(kind, 0, error.strerror or str(error))
