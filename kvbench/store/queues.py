"""What waits for each node, by kind, and in which order and in how large pieces it goes out. Pure.

Every kind of traffic has a queue of its own at every node, with its own depth and byte budget, so that populate and
checkpoint writes cannot fill the node in front of a read. Reads of a node gather for a bounded wait, or while the
node is busy; then they go in the order in which they lie there, neighbours joined to one I/O, and a page that several
operations want is read once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from typing import NamedTuple

from kvbench.store.keys import PageKey
from kvbench.store.layout import Layout
from kvbench.store.pace import TokenBucket


class Lane(StrEnum):
    """A kind of traffic; at each node the first of these goes first."""

    READ = "read"
    POPULATE = "populate"
    CHECKPOINT = "checkpoint"
    BACKGROUND = "background"


class Action(StrEnum):
    READ = "read"
    WRITE = "write"
    COPY = "copy"
    DELETE = "delete"
    SYNC = "sync"


_MOVES_BYTES = frozenset((Action.READ, Action.WRITE, Action.COPY))


@dataclass(frozen=True, slots=True)
class Limit:
    """What a lane may have at one node: I/Os under way, and bytes by a token bucket. None: as much as comes."""

    depth: int | None = None
    bytes_per_s: int | None = None
    burst_bytes: int = 64 * 2**20


class Work(NamedTuple):
    """One I/O to be: `pages` on a node, and who waits for each: operations, or the task of the background."""

    lane: Lane
    action: Action
    node: int
    pages: tuple[PageKey, ...]
    owners: tuple[tuple[int, ...], ...]
    source: int = -1  # of a copy


@dataclass(slots=True)
class _LaneQueue:
    limit: Limit
    bucket: TokenBucket | None
    waiting: deque[Work] = field(default_factory=deque)
    in_flight: int = 0

    def has_depth(self) -> bool:
        return self.limit.depth is None or self.in_flight < self.limit.depth


@dataclass(slots=True)
class _NodeQueue:
    lanes: dict[Lane, _LaneQueue]
    gathering: dict[PageKey, list[int]] = field(default_factory=dict)
    since_ns: int = 0
    wakes_at_ns: int | None = None


class Queues:
    """The queues of all nodes. Without limits, a wait or runs everything goes out at once, page by page.

    `wait_ns`   how long a read may wait for neighbours at most, beyond the time at which its node could take it.
    `run_pages` the most pages that one read or write carries.
    """

    def __init__(
        self, page_bytes: int = 0, *, wait_ns: int = 0, run_pages: int = 1, limits: Mapping[Lane, Limit] | None = None
    ) -> None:
        self.page_bytes, self.run_pages = page_bytes, run_pages
        self._wait_ns = wait_ns
        self._limits = limits or {}
        self._nodes: dict[int, _NodeQueue] = {}
        self._dirty: dict[int, None] = {}
        self._wakes: list[tuple[int, int]] = []  # a heap of (time, node)

    @property
    def wakes_at_ns(self) -> int | None:
        """When something can go out that cannot now, if nothing happens before."""
        return self._wakes[0][0] if self._wakes else None

    def read(self, now_ns: int, node: int, page: PageKey, op: int) -> None:
        queue = self._queue(node)
        if not queue.gathering:
            queue.since_ns = now_ns
        queue.gathering.setdefault(page, []).append(op)

    def put(self, work: Work) -> None:
        self._queue(work.node).lanes[work.lane].waiting.append(work)

    def ended(self, node: int, lane: Lane) -> None:
        """An I/O is not under way any more."""
        self._queue(node).lanes[lane].in_flight -= 1

    def drop(self, node: int) -> list[Work]:
        """Everything that waits for a node, which takes it no more."""
        queue = self._queue(node)
        dropped = [Work(Lane.READ, Action.READ, node, (page,), (tuple(ops),)) for page, ops in queue.gathering.items()]
        queue.gathering = {}
        for lane in queue.lanes.values():
            dropped += lane.waiting
            lane.waiting.clear()
        return dropped

    def take(self, now_ns: int, layout: Layout) -> list[Work]:
        """What goes out now, in order."""
        while self._wakes and self._wakes[0][0] <= now_ns:
            self._queue(heappop(self._wakes)[1]).wakes_at_ns = None
        out: list[Work] = []
        dirty, self._dirty = self._dirty, {}
        for node in dirty:
            queue = self._nodes[node]
            if queue.gathering:
                self._arrange(now_ns, node, queue, layout)
            for lane in queue.lanes.values():
                if lane.waiting:
                    self._release(now_ns, node, queue, lane, out)
        return out

    def _queue(self, node: int) -> _NodeQueue:
        """The queue of a node to which something is happening."""
        self._dirty[node] = None
        if queue := self._nodes.get(node):
            return queue
        lanes = {}
        for lane in Lane:
            limit = self._limits.get(lane, Limit())
            bucket = TokenBucket(limit.bytes_per_s, limit.burst_bytes) if limit.bytes_per_s else None
            lanes[lane] = _LaneQueue(limit, bucket)
        queue = self._nodes[node] = _NodeQueue(lanes)
        return queue

    def _arrange(self, now_ns: int, node: int, queue: _NodeQueue, layout: Layout) -> None:
        """Send the reads that have gathered on their way, when the node can take one and they have waited."""
        lane = queue.lanes[Lane.READ]
        if lane.waiting or not lane.has_depth():
            return
        due_ns = queue.since_ns + self._wait_ns
        if now_ns < due_ns and len(queue.gathering) < self.run_pages:
            self._wake(node, queue, due_ns)
            return
        gathered, queue.gathering = queue.gathering, {}
        runs = [(page,) for page in gathered] if self.run_pages == 1 else layout.runs(node, gathered, self.run_pages)
        for run in runs:
            owners = tuple(tuple(gathered[page]) for page in run)
            lane.waiting.append(Work(Lane.READ, Action.READ, node, run, owners))

    def _release(self, now_ns: int, node: int, queue: _NodeQueue, lane: _LaneQueue, out: list[Work]) -> None:
        while lane.waiting and lane.has_depth():
            work = lane.waiting[0]
            size_bytes = self.page_bytes * len(work.pages) if work.action in _MOVES_BYTES else 0
            if lane.bucket and size_bytes and not lane.bucket.take(now_ns, size_bytes):
                self._wake(node, queue, lane.bucket.ready_at_ns(size_bytes))
                return
            lane.in_flight += 1
            out.append(lane.waiting.popleft())

    def _wake(self, node: int, queue: _NodeQueue, at_ns: int) -> None:
        if queue.wakes_at_ns is None or at_ns < queue.wakes_at_ns:
            queue.wakes_at_ns = at_ns
            heappush(self._wakes, (at_ns, node))
