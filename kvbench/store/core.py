"""The page store, sans-I/O: events in, commands out. Pure.

The core reads no clock, opens no file and starts no thread. A driver (`store/real.py` on files) carries the commands
out and reports each as `Done`; so the event log of a run, replayed through a fresh core, gives the same commands.

A read ends when every page has come or failed. A write ends when its pages are durable: after the last `Write` of an
operation each node that took one gets a `Sync`. A page that failed is named in `Finish.bad` and is no hit any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvbench.store.cluster import ClusterView
from kvbench.store.keys import PageKey
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

__all__ = [
    "Arrive",
    "Command",
    "Copy",
    "Delete",
    "Done",
    "Event",
    "Finish",
    "FirstToken",
    "NodeDown",
    "NodeLeave",
    "NodeUp",
    "PageStore",
    "Read",
    "SetTimer",
    "Status",
    "Sync",
    "Timer",
    "Write",
]

_GRAVITY = {status: order for order, status in enumerate(Status)}


@dataclass(slots=True)
class _Op:
    """An operation under way. `written` are the pages that a write has stored on each node and not yet synced."""

    began_ns: int
    in_flight: int = 0
    status: Status = Status.OK
    bad: dict[PageKey, None] = field(default_factory=dict)  # a set that keeps its order
    written: dict[int, list[PageKey]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Io:
    """A command in flight, and the pages that are bad if it fails."""

    op: int
    command: Read | Write | Sync
    pages: tuple[PageKey, ...]


class PageStore:
    """Pages on the nodes of a cluster: where each is, and what is under way. The cluster's view is the store's own."""

    def __init__(self, cluster: ClusterView, placement: Strategy) -> None:
        self._cluster = cluster
        self._placement = placement
        self._replicas: dict[PageKey, tuple[int, ...]] = {}
        self._ops: dict[int, _Op] = {}
        self._ios: dict[int, _Io] = {}
        self._next_io = 0

    def load(self, index: Mapping[PageKey, int]) -> None:
        """Take over the pages that were found on the nodes: page → node."""
        for page, node in index.items():
            self._add(page, node)

    def holds(self, page: PageKey) -> bool:
        """Whether a read of the page would be a hit: it is stored on a node that is up."""
        return any(node in self._cluster.up for node in self._replicas.get(page, ()))

    def contains_prefix(self, keys: Sequence[PageKey]) -> int:
        """How many of `keys`, from the first on, are hits without a gap."""
        return next((count for count, key in enumerate(keys) if not self.holds(key)), len(keys))

    def step(self, now_ns: int, event: Event) -> list[Command]:
        """Take one event in; returns the commands that follow from it, in order.

        A `Done` of a command that is no longer in flight (its node went down meanwhile) changes nothing.
        """
        match event:
            case Arrive():
                return self._arrive(now_ns, event)
            case Done(io, status):
                return self._done(now_ns, io, status)
            case NodeUp(node, role):
                self._cluster.join(node, role)
            case NodeLeave(node):
                self._cluster.leave(node)
            case NodeDown(node):
                self._cluster.lose(node)
                lost = [io for io, flight in self._ios.items() if flight.command.node == node]
                return [command for io in lost for command in self._done(now_ns, io, Status.EIO)]
            case (
                Timer() | FirstToken()
            ):  # this form sets none; the driver's one timer heap is shared with the engine's core
                pass
        return []

    def _arrive(self, now_ns: int, event: Arrive) -> list[Command]:
        op = self._ops[event.op] = _Op(now_ns)
        commands: list[Command] = []
        for page in event.pages:
            if event.kind == "read":
                commands += self._read(event.op, op, page)
            elif not self.holds(page):
                commands += self._write(event.op, op, page, event.prefix)
        return commands + self._settle(now_ns, event.op)

    def _read(self, number: int, op: _Op, page: PageKey) -> list[Command]:
        replicas = tuple(node for node in self._replicas.get(page, ()) if node in self._cluster.up)
        if not replicas:
            _fail(op, Status.EIO, (page,))
            return []
        node = self._placement.route(page, replicas, self._cluster)
        return [self._issue(number, Read(self._next_io, node, page), (page,))]

    def _write(self, number: int, op: _Op, page: PageKey, prefix: bytes) -> list[Command]:
        nodes = self._placement.place(page, prefix, self._cluster)
        if not nodes:
            _fail(op, Status.EIO, (page,))
        return [self._issue(number, Write(self._next_io, node, page), (page,)) for node in nodes]

    def _issue(self, number: int, command: Read | Write | Sync, pages: tuple[PageKey, ...]) -> Command:
        self._ios[command.io] = _Io(number, command, pages)
        self._ops[number].in_flight += 1
        self._next_io += 1
        return command

    def _done(self, now_ns: int, io: int, status: Status) -> list[Command]:
        flight = self._ios.pop(io, None)
        if flight is None:
            return []
        op, node = self._ops[flight.op], flight.command.node
        op.in_flight -= 1
        if status is not Status.OK:
            _fail(op, status, flight.pages)
            self._distrust(flight.pages, node)
        elif isinstance(flight.command, Write):
            self._add(flight.command.page, node)
            op.written.setdefault(node, []).append(flight.command.page)
        return self._settle(now_ns, flight.op)

    def _settle(self, now_ns: int, number: int) -> list[Command]:
        """What follows when nothing of an operation is in flight any more: the syncs of a write, then its end."""
        op = self._ops[number]
        if op.in_flight:
            return []
        syncs: list[Command] = []
        written, op.written = op.written, {}
        for node, pages in written.items():
            if node in self._cluster.up:
                syncs.append(self._issue(number, Sync(self._next_io, node), tuple(pages)))
            else:
                _fail(op, Status.EIO, tuple(pages))
        if syncs:
            return syncs
        del self._ops[number]
        return [Finish(number, now_ns - op.began_ns, op.status, tuple(op.bad))]

    def _add(self, page: PageKey, node: int) -> None:
        replicas = self._replicas.get(page, ())
        if node not in replicas:
            self._replicas[page] = (*replicas, node)

    def _distrust(self, pages: tuple[PageKey, ...], node: int) -> None:
        """Forget the copies on this node. A node that is down keeps its pages: they are hits again when it is back."""
        if node not in self._cluster.up:
            return
        for page in pages:
            left = tuple(other for other in self._replicas.get(page, ()) if other != node)
            if left:
                self._replicas[page] = left
            else:
                self._replicas.pop(page, None)


def _fail(op: _Op, status: Status, pages: tuple[PageKey, ...]) -> None:
    op.status = max(op.status, status, key=_GRAVITY.__getitem__)
    op.bad.update(dict.fromkeys(pages))
