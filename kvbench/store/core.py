"""The page store, sans-I/O: events in, commands out. Pure.

The core reads no clock, opens no file and starts no thread. A driver (`store/real.py` on files) carries the commands
out and reports each as `Done`; so the event log of a run, replayed through a fresh core, gives the same commands.

A read ends when every page has come or failed; a page whose copy failed is read from another one, where there is
one. A write ends when its pages are durable: after the last `Write` of an operation each node that took one gets a
`Sync`. A page that failed is named in `Finish.bad` and is no hit any more.

Where pages go is the placement's to say, when and in which pieces they go out the queues', what moves without being
asked for the mover's, and how much each node gets the weights'.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kvbench.store.cluster import ClusterView, Role
from kvbench.store.directory import Directory
from kvbench.store.keys import PageKey
from kvbench.store.moves import Mover
from kvbench.store.placement import Strategy
from kvbench.store.protocol import (
    Arrive,
    Command,
    Copy,
    Delete,
    Done,
    Event,
    Finish,
    FirstToken,
    MovePace,
    NodeDown,
    NodeLeave,
    NodeUp,
    Read,
    SetTimer,
    Status,
    Sync,
    Timer,
    Write,
)
from kvbench.store.queues import Action, Lane, Queues, Work
from kvbench.store.weights import DynamicWeights

_GRAVITY = {status: order for order, status in enumerate(Status)}
_LANES = {"write": Lane.POPULATE, "checkpoint": Lane.CHECKPOINT}


@dataclass(slots=True)
class _Op:
    """An operation under way. `written` are the pages that a write has stored on each node and not yet synced."""

    began_ns: int
    lane: Lane
    prefix: bytes
    in_flight: int = 0  # pages, each counted once for every node that it is written to
    status: Status = Status.OK
    bad: dict[PageKey, None] = field(default_factory=dict)  # a set that keeps its order
    away: dict[PageKey, None] = field(default_factory=dict)  # those of them that are on nodes which have gone
    written: dict[int, list[PageKey]] = field(default_factory=dict)


class PageStore:
    """Pages on the nodes of a cluster: where each is, and what is under way. The cluster's view is the store's own."""

    def __init__(
        self,
        cluster: ClusterView,
        placement: Strategy,
        *,
        queues: Queues | None = None,
        mover: Mover | None = None,
        weights: DynamicWeights | None = None,
    ) -> None:
        self.directory = Directory(cluster)
        self.read_pages = dict.fromkeys(Role, 0)  # hits, by what their node is for
        self._cluster, self._placement = cluster, placement
        self._queues, self._mover, self._weights = queues or Queues(), mover or Mover(), weights
        self._ops: dict[int, _Op] = {}
        self._ios: dict[int, tuple[Work, int]] = {}  # what is in flight, and since when
        self._writing: dict[PageKey, int] = {}  # pages that are being written and not durable → on how many nodes
        self._blocked: dict[PageKey, list[int]] = {}  # pages that are written or moved → other writes of them
        self._freed: list[PageKey] = []  # pages that are written or moved no more
        self._next_io = self._next_timer = 0
        self._timer_at_ns: int | None = None

    def load(self, found: Iterable[tuple[Sequence[PageKey], int]]) -> None:
        """Take over the pages that were found: those that lie one after the other, and their node."""
        for pages, node in found:
            self.directory.layout.append(node, pages)
            for page in pages:
                self.directory.add(page, node)
                self._mover.stored(page, node, self.directory)

    @property
    def moved_pages(self) -> int:
        return self._mover.counters.moved

    @property
    def is_moving(self) -> bool:
        """Whether pages are on their way to another node, or may be when the pace allows."""
        return self._mover.is_moving(self.directory)

    def holds(self, page: PageKey) -> bool:
        """Whether a read of the page would be a hit: it is stored on a node that is up."""
        return bool(self.directory.live(page))

    def contains_prefix(self, keys: Sequence[PageKey]) -> int:
        """How many of `keys`, from the first on, are hits without a gap."""
        return next((count for count, key in enumerate(keys) if not self.holds(key)), len(keys))

    def step(self, now_ns: int, event: Event) -> list[Command]:
        """Take one event in; returns the commands that follow from it, in order.

        A `Done` of a command that is no longer in flight (its node went down meanwhile) changes nothing.
        """
        finished: list[Command] = []
        match event:
            case Arrive():
                self._arrive(now_ns, event, finished)
            case Done(io, status, _, bad):
                self._done(now_ns, io, status, bad, finished)
            case NodeUp(node, role):
                self._cluster.join(node, role)
            case NodeLeave(node):
                self._cluster.leave(node)
            case NodeDown(node):
                self._lose(now_ns, node, finished)
            case FirstToken(ttft_ns):
                self._mover.first_token(now_ns, ttft_ns)
            case MovePace():
                self._mover.pace(event)
            case Timer(number) if number == self._next_timer - 1:
                self._timer_at_ns = None
            case Timer():  # of an earlier wake, or of another core with which the driver's timers are shared
                pass
        self._go_on(now_ns, finished)
        return finished + self._issue(now_ns) + self._set_timer(now_ns)

    # ------------------------------------------------------------ operations

    def _arrive(self, now_ns: int, event: Arrive, finished: list[Command]) -> None:
        op = self._ops[event.op] = _Op(now_ns, _LANES.get(event.kind, Lane.READ), event.prefix)
        if event.kind == "read":
            for page in event.pages:
                self._read(now_ns, event.op, page, Status.EIO)
        else:
            self._write(event.op, tuple(dict.fromkeys(event.pages)))
        if not op.in_flight:
            self._settle(now_ns, event.op, finished)

    def _read(self, now_ns: int, number: int, page: PageKey, status: Status) -> None:
        """Read a page from one of its copies; where there is none, it has failed with `status`."""
        live = self.directory.live(page)
        if not live:
            op = self._ops[number]
            _fail(op, status, (page,))
            if self.directory.replicas(page):
                op.away[page] = None
            return
        node = self._placement.route(page, live, self._cluster) if len(live) > 1 else live[0]
        self._ops[number].in_flight += 1
        self.directory.begin_read(page, node)
        self._queues.read(now_ns, node, page, number)
        self._mover.read(now_ns, page, node, self.directory)

    def _write(self, number: int, pages: Sequence[PageKey]) -> None:
        op = self._ops[number]
        placed: dict[int, list[PageKey]] = {}
        for page in pages:
            if page in self._writing or page in self._mover.busy:  # it may be stored then, or a copy be deleted first
                self._blocked.setdefault(page, []).append(number)
                op.in_flight += 1
                continue
            if self.holds(page):
                continue
            nodes = self._nodes_for(page, op)
            if not nodes:
                _fail(op, Status.EIO, (page,))
            for node in nodes:
                placed.setdefault(node, []).append(page)
                self._cluster.count(node, 1)
                self._writing[page] = self._writing.get(page, 0) + 1
                op.in_flight += 1
        size = self._queues.run_pages
        for node, run in placed.items():
            for at in range(0, len(run), size):
                self._queues.put(_work(op.lane, Action.WRITE, node, run[at : at + size], number))

    def _nodes_for(self, page: PageKey, op: _Op) -> tuple[int, ...]:
        if op.lane is Lane.CHECKPOINT and (node := self._cluster.emptiest(Role.CHECKPOINT)) is not None:
            return (node,)
        return self._placement.place(page, op.prefix, self._cluster)

    def _settle(self, now_ns: int, number: int, finished: list[Command]) -> None:
        """What follows when nothing of an operation is in flight any more: the syncs of a write, then its end."""
        op = self._ops[number]
        written, op.written = op.written, {}
        for node, pages in written.items():
            if node in self._cluster.up:
                op.in_flight += len(pages)
                self._queues.put(_work(op.lane, Action.SYNC, node, pages, number))
            else:
                _fail(op, Status.EIO, pages)
                self._is_written(pages)
        if not op.in_flight:
            del self._ops[number]
            finished.append(Finish(number, now_ns - op.began_ns, op.status, tuple(op.bad), tuple(op.away)))

    # ------------------------------------------------------------ what ends

    def _done(self, now_ns: int, io: int, status: Status, bad: tuple[PageKey, ...], finished: list[Command]) -> None:
        if io not in self._ios:
            return
        work, issued_ns = self._ios.pop(io)
        self._cluster.in_flight[work.node] -= 1
        self._queues.ended(work.node, work.lane)
        if self._weights:
            size_bytes = self._queues.page_bytes * len(work.pages)
            self._weights.observe(now_ns, work.node, size_bytes, now_ns - issued_ns, self._cluster)
        self._end(now_ns, work, status, bad, finished)

    def _lose(self, now_ns: int, node: int, finished: list[Command]) -> None:
        """A node is gone: what was in flight to it, or waiting for it, has failed."""
        self._cluster.lose(node)
        lost = [io for io, (work, _) in self._ios.items() if work.node == node]
        waiting = self._queues.drop(node)
        for io in lost:
            if (work := self._ios[io][0]).action is Action.WRITE:
                self._mover.owe(work.pages, node, self.directory)
            self._done(now_ns, io, Status.EIO, (), finished)
        for work in waiting:
            self._end(now_ns, work, Status.EIO, (), finished)

    def _end(self, now_ns: int, work: Work, status: Status, bad: tuple[PageKey, ...], finished: list[Command]) -> None:
        if work.lane is Lane.BACKGROUND:
            self._mover.done(work.owners[0][0], status, self.directory, self._queues)
            return
        good = work.pages if status is Status.OK else tuple(page for page in work.pages if bad and page not in bad)
        if work.action is Action.READ:
            self._end_read(now_ns, work, status, good)
        else:
            self._end_write(work, status, good)
        for number in dict.fromkeys(owner for owners in work.owners for owner in owners):
            if not self._ops[number].in_flight:
                self._settle(now_ns, number, finished)

    def _end_read(self, now_ns: int, work: Work, status: Status, good: tuple[PageKey, ...]) -> None:
        self.read_pages[self._cluster.roles[work.node]] += len(good)
        failed = () if status is Status.OK else [page for page in work.pages if page not in good]
        self._distrust(failed, work.node)
        for page, owners in zip(work.pages, work.owners, strict=True):
            for number in owners:
                self._ops[number].in_flight -= 1
                self.directory.end_read(page, work.node)
                if page in failed:
                    self._read(now_ns, number, page, status)

    def _end_write(self, work: Work, status: Status, good: tuple[PageKey, ...]) -> None:
        """A write, or the sync of several; pages that were written are hits before they are durable."""
        op = self._ops[work.owners[0][0]]
        op.in_flight -= len(work.pages)
        if work.action is Action.WRITE:
            self._cluster.count(work.node, -len(work.pages))
            if good:
                self.directory.layout.append(work.node, good)
                op.written.setdefault(work.node, []).extend(good)
            for page in good:
                self.directory.add(page, work.node)
                self.directory.group(page, op.prefix)
                self._mover.stored(page, work.node, self.directory)
        failed = [page for page in work.pages if page not in good]
        if failed:
            _fail(op, status, failed)
            self._distrust(failed, work.node)
        self._is_written(failed if work.action is Action.WRITE else work.pages)

    def _is_written(self, pages: Sequence[PageKey]) -> None:
        """Nothing more is to be done on a node for pages of a write: they are durable, or have failed."""
        for page in pages:
            self._writing[page] -= 1
            if not self._writing[page]:
                del self._writing[page]
                self._freed.append(page)

    def _distrust(self, pages: Sequence[PageKey], node: int) -> None:
        """Forget the copies on this node. A node that is down keeps its pages: they are hits again when it is back."""
        if node in self._cluster.up:
            for page in pages:
                self.directory.discard(page, node)

    # ------------------------------------------------------------ what follows

    def _go_on(self, now_ns: int, finished: list[Command]) -> None:
        """What nobody has asked for: new weights, pages that move, and the writes that waited for those."""
        if self._weights and self._mover.is_at_rest and (weights := self._weights.decide(now_ns, self._cluster)):
            self._cluster.weigh(weights)
        goes_on = True
        while goes_on:
            freed = self._freed + self._mover.ended
            self._freed, self._mover.ended = [], []
            for page in freed:
                for number in self._blocked.pop(page, ()):
                    self._ops[number].in_flight -= 1
                    self._write(number, (page,))
                    if not self._ops[number].in_flight:
                        self._settle(now_ns, number, finished)
            self._mover.begin(now_ns, self.directory, self._queues, self._writing)
            goes_on = bool(self._freed or self._mover.ended)

    def _issue(self, now_ns: int) -> list[Command]:
        commands: list[Command] = []
        for work in self._queues.take(now_ns, self.directory.layout):
            self._ios[self._next_io] = work, now_ns
            self._cluster.in_flight[work.node] += 1
            commands.append(_command(self._next_io, work))
            self._next_io += 1
        return commands

    def _set_timer(self, now_ns: int) -> list[Command]:
        """A timer for the moment at which something can go on that cannot now, unless one runs out before it."""
        wakes = [at_ns for at_ns in (self._queues.wakes_at_ns, self._mover.wakes_at_ns) if at_ns is not None]
        if not wakes or (self._timer_at_ns is not None and self._timer_at_ns <= min(wakes)):
            return []
        self._timer_at_ns = min(wakes)
        self._next_timer += 1
        return [SetTimer(self._next_timer - 1, self._timer_at_ns)]


def _work(lane: Lane, action: Action, node: int, pages: Sequence[PageKey], op: int) -> Work:
    return Work(lane, action, node, tuple(pages), ((op,),) * len(pages))


def _command(io: int, work: Work) -> Command:
    page, *more = work.pages
    match work.action:
        case Action.READ:
            return Read(io, work.node, page, tuple(more))
        case Action.WRITE:
            return Write(io, work.node, page, tuple(more))
        case Action.COPY:
            return Copy(io, work.node, page, work.source, tuple(more))
        case Action.DELETE:
            return Delete(io, work.node, page, tuple(more))
        case Action.SYNC:
            return Sync(io, work.node)


def _fail(op: _Op, status: Status, pages: Sequence[PageKey]) -> None:
    op.status = max(op.status, status, key=_GRAVITY.__getitem__)
    op.bad.update(dict.fromkeys(pages))
