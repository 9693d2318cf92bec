"""The load generator: one process, one loop, as many streams as asked.

Everything that can be done before the first request is: bodies are ready, connections are open, garbage collection
is off. While it runs, the client watches itself, because its own lateness would pass for the server's.
"""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import uvloop

from kvbench import clock
from kvbench.api_key import NO_KEY, ApiKey
from kvbench.load import schedule
from kvbench.load.connection import Connection, KernelClock
from kvbench.load.endpoint import Endpoint
from kvbench.load.exchange import Exchange
from kvbench.load.poller import Poller
from kvbench.load.result import ClientSelf, Limits, LoadResult, Request, RequestRow

__all__ = ["ClientSelf", "Limits", "LoadResult", "Progress", "Request", "RequestRow", "run"]

_WARM_WINDOW_NS = 1_000_000_000  # open loop: those due within a second are likely to be in flight together
_CHECK_S = 0.1  # how often limits are checked
_TIMER_NS = 2_000_000  # the loop's timers are that coarse: what is left to a due time is waited for awake
_SPARE_FILES = 64
_STREAMS_A_TOKEN = 16  # so many more streams let one more token of a stream be read at once
_WARM_AT_ONCE = 64  # connections opened together: less than the backlog of any server


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a load is. `total` is None when time ends it."""

    total: int | None
    done: int
    failed: int
    in_flight: int


def run(
    urls: Sequence[str],
    requests: Sequence[Request],
    due_offsets_ns: Sequence[int | None] | None = None,
    limits: Limits | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    *,
    concurrency: int | None = None,
    duration_s: float | None = None,
    key: ApiKey = NO_KEY,
    before_start: Callable[[], None] = lambda: None,
) -> LoadResult:
    """Send every request and return when each has its row.

    Open loop: request i is due `due_offsets_ns[i]` after the start (ascending), whatever the server does; None for
    one that follows another (`Request.after`).
    Closed loop: `concurrency` requests are in flight, and the next is due when one is done. Give one of the two.
    With `duration_s` a closed loop sends no more after that time; what was not sent has no row.
    `before_start` is called when the connections are open, and may wait. Instances take turns, unless a request names
    its own. No failure of a request is raised; a wrong URL is, as UsageError.
    """
    if (due_offsets_ns is None) == (concurrency is None):
        raise ValueError("give either due_offsets_ns or concurrency")
    load = _Load(
        [Endpoint.of(url, key) for url in urls],
        requests,
        due_offsets_ns=due_offsets_ns,
        concurrency=concurrency,
        duration_s=duration_s,
        limits=limits or Limits(),
    )
    with _quiet_collector(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(load.measure(on_progress or (lambda progress: None), before_start))


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """No garbage collection: with thousands of live objects it would stop the loop for milliseconds."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _allow_open_files(needed: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))


class _Load:
    """One load in progress."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        requests: Sequence[Request],
        *,
        due_offsets_ns: Sequence[int | None] | None,
        concurrency: int | None,
        duration_s: float | None,
        limits: Limits,
    ) -> None:
        self._endpoints, self._requests, self._limits = endpoints, requests, limits
        self._concurrency, self._duration_s = concurrency, duration_s
        self._due = [(place, due_ns) for place, due_ns in enumerate(due_offsets_ns or ()) if due_ns is not None]
        self._due_offsets_ns = [due_ns for _, due_ns in self._due]
        self._followers: dict[str, list[int]] = {}
        for place in range(len(requests) if due_offsets_ns is not None else 0):
            if leader := requests[place].after:
                self._followers.setdefault(leader, []).append(place)
        self._asked = concurrency or schedule.busiest(self._due_offsets_ns, 1)
        self._kernel = KernelClock()
        self._rows: dict[int, RequestRow] = {}
        self._in_flight: set[Exchange] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._places = iter(range(len(requests)))  # closed loop: the requests to come
        self._reached = self._connections = self._failed = self._tokens = self._shared_reads = 0
        self._outstanding = 0  # dispatched, and without a row
        self._nothing_outstanding = asyncio.Event()

    async def measure(self, on_progress: Callable[[Progress], None], before_start: Callable[[], None]) -> LoadResult:
        """Warm up, run, close."""
        self._poller = Poller()
        await self._warm_up()
        before_start()
        cpu_ns, start_ns = clock.cpu_ns(), clock.monotonic_ns()
        await self._run_to_the_end(start_ns, on_progress)
        client = ClientSelf(
            cpu_s=(clock.cpu_ns() - cpu_ns) / 1e9,
            tokens=self._tokens,
            tainted_tokens=self._shared_reads,
            in_flight_reached=self._reached,
            in_flight_asked=self._asked,
            connections=self._connections,
        )
        on_progress(self._progress())
        return LoadResult(tuple(row for _, row in sorted(self._rows.items())), client, start_ns)

    async def _run_to_the_end(self, start_ns: int, on_progress: Callable[[Progress], None]) -> None:
        """Send and watch; whatever is raised meanwhile, in a callback too, ends the load and is raised here."""
        loop = asyncio.get_running_loop()
        raised: asyncio.Future[None] = loop.create_future()

        def on_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if not raised.done():
                raised.set_exception(context.get("exception") or RuntimeError(context["message"]))

        loop.set_exception_handler(on_exception)
        sending = loop.create_task(self._send_all(start_ns))
        watching = loop.create_task(self._watch(on_progress))
        try:
            ended, _ = await asyncio.wait((raised, watching, sending), return_when=asyncio.FIRST_COMPLETED)
            for one in ended:
                one.result()
        finally:
            watching.cancel()
            sending.cancel()
            self._close()

    # before

    async def _warm_up(self) -> None:
        """Open the connections that will be in flight together, a few at a time; what fails now fails again later."""
        together = self._concurrency or schedule.busiest(self._due_offsets_ns, _WARM_WINDOW_NS)
        places = range(min(together, len(self._requests)))
        _allow_open_files(2 * together + _SPARE_FILES)
        for first in range(0, len(places), _WARM_AT_ONCE):
            opening = [self._connect(self._endpoint_of(place)) for place in places[first : first + _WARM_AT_ONCE]]
            for place, opened in zip(
                places[first:], await asyncio.gather(*opening, return_exceptions=True), strict=False
            ):
                if isinstance(opened, Connection):
                    self._endpoint_of(place).idle.append(opened)
                elif not isinstance(opened, OSError):
                    raise opened

    def _endpoint_of(self, place: int) -> Endpoint:
        index = self._requests[place].url_index
        return self._endpoints[place % len(self._endpoints) if index is None else index]

    async def _connect(self, endpoint: Endpoint) -> Connection:
        async with asyncio.timeout(self._limits.connect_s):
            connection = await endpoint.connect(self._poller, self._kernel)
        self._connections += 1
        return connection

    # during

    async def _send_all(self, start_ns: int) -> None:
        """Send what is due when it is due, and wait until all of it has its row."""
        self._stop_ns = None if self._duration_s is None else start_ns + round(self._duration_s * 1e9)
        for place in islice(self._places, self._concurrency or 0):
            self._dispatch(place, start_ns)
        for place, offset_ns in self._due:
            await _until(start_ns + offset_ns)
            self._dispatch(place, start_ns + offset_ns)
        if self._outstanding:
            self._nothing_outstanding.clear()
            await self._nothing_outstanding.wait()

    def _dispatch(self, place: int, due_ns: int) -> None:
        self._outstanding += 1
        endpoint = self._endpoint_of(place)
        tokens_a_read = max(self._asked, len(self._in_flight)) // _STREAMS_A_TOKEN
        exchange = Exchange(self._requests[place], endpoint, due_ns, partial(self._finished, place), tokens_a_read)
        while endpoint.idle:
            connection = endpoint.idle.pop()
            if connection.open:
                self._send(exchange, connection)
                return
        task = asyncio.create_task(self._open_and_send(exchange))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open_and_send(self, exchange: Exchange) -> None:
        try:
            connection = await self._connect(exchange.endpoint)
        except TimeoutError:
            exchange.fail("refused", f"no connection within {self._limits.connect_s:g} s", clock.monotonic_ns())
        except OSError as error:
            exchange.fail("refused", str(error), clock.monotonic_ns())
        else:
            self._send(exchange, connection)

    def _send(self, exchange: Exchange, connection: Connection) -> None:
        self._in_flight.add(exchange)
        self._reached = max(self._reached, len(self._in_flight))
        exchange.send(connection)

    def _finished(self, place: int, exchange: Exchange) -> None:
        self._in_flight.discard(exchange)
        if (connection := exchange.connection) is not None:
            if connection.open and not connection.busy:
                exchange.endpoint.idle.append(connection)
            else:
                connection.close()
        row = self._rows[place] = exchange.row()
        self._failed += not row.ok
        self._tokens += exchange.reply.token_events
        self._shared_reads += exchange.reply.shared_reads
        self._outstanding -= 1
        if self._concurrency:
            self._dispatch_following(clock.monotonic_ns())
        for follower in self._followers.pop(row.request_id, ()):
            self._outstanding += 1  # while its sender thinks
            task = asyncio.create_task(self._dispatch_after(follower, row.done_ns + self._requests[follower].think_ns))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        if not self._outstanding:
            self._nothing_outstanding.set()

    async def _dispatch_after(self, place: int, due_ns: int) -> None:
        await _until(due_ns)
        self._outstanding -= 1
        self._dispatch(place, due_ns)

    def _dispatch_following(self, now_ns: int) -> None:
        if self._stop_ns is None or now_ns < self._stop_ns:
            for place in islice(self._places, 1):
                self._dispatch(place, now_ns)

    async def _watch(self, on_progress: Callable[[Progress], None]) -> None:
        """Hold every request to its limits, and tell how far the load is."""
        limits = self._limits
        pause_s = min(_CHECK_S, limits.first_token_s / 4, limits.stall_s / 4, limits.total_s / 4)
        while True:
            await asyncio.sleep(pause_s)
            self._kernel.refresh()
            now_ns = clock.monotonic_ns()
            for exchange in tuple(self._in_flight):
                exchange.expire(now_ns, limits)
            on_progress(self._progress())

    def _progress(self) -> Progress:
        total = len(self._requests) if self._duration_s is None else None
        return Progress(total, len(self._rows), self._failed, len(self._in_flight))

    # after

    def _close(self) -> None:
        for task in self._opening:
            task.cancel()
        for exchange in self._in_flight:
            if exchange.connection is not None:
                exchange.connection.close()
        for endpoint in self._endpoints:
            for connection in endpoint.idle:
                connection.close()
        self._poller.close()


async def _until(due_ns: int) -> None:
    """Wait for a moment: asleep as long as the loop's timer is fine enough, awake for the rest."""
    while (left_ns := due_ns - clock.monotonic_ns()) > 0:
        await asyncio.sleep(max(0, left_ns - _TIMER_NS) / 1e9)
