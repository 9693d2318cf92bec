"""Runs one core in real time: its steps by the event loop's timers, its storage by `RealNodes`, its tokens to streams.

Steps end at absolute moments that the core sets, so a late timer delays one token and never the ones after it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kvbench import clock
from kvbench.engine.pool import Places, Pool
from kvbench.engine.protocol import (
    Abort,
    Command,
    Emit,
    EngineConfig,
    Event,
    FinishRequest,
    StartStep,
    StepDone,
    Submit,
)
from kvbench.engine.scheduler import EngineCore
from kvbench.errors import KvbenchError
from kvbench.store.cluster import ClusterView
from kvbench.store.content import FaultKind
from kvbench.store.core import PageStore
from kvbench.store.hashing import Rendezvous
from kvbench.store.moves import Mover
from kvbench.store.placement import ByPage
from kvbench.store.protocol import Done, Io, SetTimer, Timer
from kvbench.store.real import FaultReport, RealNodes
from kvbench.store.rebalance import Rebalance

_WRONG_CONTENT = frozenset(FaultKind) - {FaultKind.MISSING, FaultKind.FULL, FaultKind.ERROR}


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Where and how the engine keeps its pages: one directory a node; none for an engine that recomputes.

    `salt` goes into every page's content, so that the pages of another run are found out. `fault_log` takes one JSON
    line for every page that could not be read or written, or was wrong.
    """

    directories: tuple[Path, ...] = ()
    direct: bool = True
    rate_limit_bytes_per_s: int | None = None
    salt: str = ""
    fault_log: Path | None = None


class Driver:
    """A core and its streams. All methods but `post` are for the thread of the event loop."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self.pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._streams: dict[int, asyncio.Queue[Emit | FinishRequest]] = {}
        self._next_request = 0

    async def generate(
        self, digests: tuple[bytes, ...], prompt_tokens: int, max_tokens: int
    ) -> AsyncGenerator[Emit | FinishRequest, None]:
        """Every output token of a request as it comes, then its end. Closing the generator aborts the request."""
        request = self._next_request
        self._next_request += 1
        stream = self._streams[request] = asyncio.Queue()
        self.feed(Submit(request, digests, prompt_tokens, max_tokens))
        ended = False
        try:
            while not ended:
                item = await stream.get()
                ended = isinstance(item, FinishRequest)
                yield item
        finally:
            del self._streams[request]
            if not ended:
                self.feed(Abort(request))

    def post(self, done: Done) -> None:
        """Take in what a worker thread has done."""
        with suppress(RuntimeError):  # the loop has closed: the server has stopped before its last writes
            assert self._loop, "a page was moved before any request came"
            self._loop.call_soon_threadsafe(self.feed, done)

    def feed(self, event: Event) -> None:
        """Hand an event to the core, and carry out what follows."""
        self._loop = asyncio.get_running_loop()
        for command in self.core.step(clock.monotonic_ns(), event):
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Emit(request) | FinishRequest(request):
                self._streams[request].put_nowait(command)
            case StartStep(ends_ns):
                self._feed_at(ends_ns, StepDone())
            case SetTimer(id, at_ns):
                self._feed_at(at_ns, Timer(id))
            case _ if self.pool and isinstance(command, Io):
                self.pool.nodes.submit(command)

    def _feed_at(self, at_ns: int, event: Event) -> None:
        loop = asyncio.get_running_loop()
        left_s = (at_ns - clock.monotonic_ns()) / 1e9
        if left_s > 0:
            loop.call_later(left_s, self._feed_at, at_ns, event)  # a timer may be early: its clock counts milliseconds
        else:
            loop.call_soon(self.feed, event)


@contextmanager
def driver(config: EngineConfig, storage: StorageOptions) -> Iterator[Driver]:
    """An engine with the pages that its directories hold already.

    Raises KvbenchError when the model does not fit the accelerators, or a directory cannot be used.
    """
    if config.cost.kv_budget_bytes() < config.page_bytes:
        cost = config.cost
        raise KvbenchError(
            f"{cost.shape.id} leaves no memory for KV on {cost.tensor_parallel} × {cost.accelerator.id}",
            "raise --tensor-parallel, or name a larger accelerator",
        )
    if not storage.directories:
        yield Driver(EngineCore(config, None))
        return
    cluster, placement = ClusterView(len(storage.directories)), ByPage(Rendezvous())
    rank_page_bytes = config.page_bytes // config.ranks
    mover = Mover([Rebalance(placement, since=cluster.epoch)], page_bytes=rank_page_bytes)
    pages = PageStore(cluster, placement, mover=mover)
    driver = Driver(EngineCore(config, pages))
    with Places() as places, closing(_FaultLog(storage.fault_log)) as log:
        places.take(storage.directories)
        with RealNodes(
            storage.directories,
            rank_page_bytes,
            on_done=driver.post,
            on_fault=log.report,
            direct=storage.direct,
            rate_limit_bytes_per_s=storage.rate_limit_bytes_per_s,
            salt=storage.salt.encode(),
        ) as nodes:
            pages.load(nodes.scan())
            driver.core.counters.content_mismatches = log.wrong_pages
            driver.pool = Pool(nodes, cluster, driver.feed, storage.rate_limit_bytes_per_s, places)
            yield driver


class _FaultLog:
    """A file of JSON lines, one for each fault. Called from any thread: an append in one write does not tear."""

    def __init__(self, path: Path | None) -> None:
        self.wrong_pages = 0
        self._file: BinaryIO | None = None
        try:
            self._file = path.open("ab", buffering=0) if path else None
        except OSError as error:
            raise KvbenchError(f"cannot write the fault log {path}: {error.strerror}") from None

    def report(self, fault: FaultReport) -> None:
        self.wrong_pages += fault.kind in _WRONG_CONTENT
        if self._file:
            line = {
                "wall": clock.stamp().wall,
                "kind": fault.kind,
                "page": fault.key.file_name if fault.key else None,
                "node": fault.node,
                "path": str(fault.path),
                "offset": fault.offset,
                "detail": fault.detail,
            }
            with suppress(OSError):  # where the disk is full, the count says it alone, and the worker goes on
                self._file.write(json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        if self._file:
            self._file.close()
