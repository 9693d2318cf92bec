"""What the page store's core takes in and gives out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from kvbench.store.cluster import Role
from kvbench.store.keys import PageKey


class Status(StrEnum):
    """How an I/O ended, from harmless to grave: an operation takes the gravest status of its pages."""

    OK = "ok"
    FULL = "full"
    EIO = "eio"
    SHORT = "short"
    CORRUPT = "corrupt"


# ---------------------------------------------------------------- events: what happened


@dataclass(frozen=True, slots=True)
class Arrive:
    """An operation on whole pages begins. `op` is the caller's, and unique among those under way.

    A "checkpoint" is a write that goes to the checkpoint nodes where there are any, and has a queue of its own
    everywhere. `prefix` (`keys.prefix_of`) names the group of sessions that the pages of a write belong to.
    """

    op: int
    kind: Literal["read", "write", "checkpoint"]
    pages: tuple[PageKey, ...]
    prefix: bytes = b""


@dataclass(frozen=True, slots=True)
class Done:
    """A command has been carried out; `service_ns` is the time of the I/O alone, without queueing and verification.

    `bad` are those pages of a run that the status is about; empty: all of them.
    """

    io: int
    status: Status
    service_ns: int
    bad: tuple[PageKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Timer:
    """The timer of a `SetTimer` has run out."""

    id: int


@dataclass(frozen=True, slots=True)
class NodeUp:
    """A node is back, with the pages that it held; or, with the next number, a new one has come."""

    node: int
    role: Role = Role.KV  # of a new one


@dataclass(frozen=True, slots=True)
class NodeDown:
    """A node is gone: what is in flight to it has failed, and its pages are no hits until it is back."""

    node: int


@dataclass(frozen=True, slots=True)
class NodeLeave:
    """A node is to be taken away: its pages move to the others, and are hits on it until they have."""

    node: int


@dataclass(frozen=True, slots=True)
class FirstToken:
    """A request has had its first token: what the pace of background work has to heed."""

    ttft_ns: int


@dataclass(frozen=True, slots=True)
class MovePace:
    """How fast pages may move from now on. None: as fast as they go; whatever becomes of the TTFT."""

    bytes_per_s: int | None = None
    ttft_limit_ns: int | None = None


Event = Arrive | Done | Timer | NodeUp | NodeDown | NodeLeave | FirstToken | MovePace

# ---------------------------------------------------------------- commands: what to do


@dataclass(frozen=True, slots=True)
class Read:
    """Read a page, and with it `more`: its neighbours in the order in which they were written, in one large I/O."""

    io: int
    node: int
    page: PageKey
    more: tuple[PageKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Write:
    """Write a page, and with it `more`: they become neighbours, in this order."""

    io: int
    node: int
    page: PageKey
    more: tuple[PageKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """Write pages to `node` as they are read from `source`, and check them on the way; they become neighbours there.

    A source that has gone ends it with an error.
    """

    io: int
    node: int
    page: PageKey
    source: int
    more: tuple[PageKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    io: int
    node: int
    page: PageKey
    more: tuple[PageKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Sync:
    """Make durable what this node has written so far."""

    io: int
    node: int


@dataclass(frozen=True, slots=True)
class SetTimer:
    id: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Finish:
    """An operation has ended. `bad` are the pages that were not read, or not stored.

    `away` are those of them that are on nodes which have gone: a read of such a page is a miss, and no fault of it.
    """

    op: int
    latency_ns: int
    status: Status
    bad: tuple[PageKey, ...]
    away: tuple[PageKey, ...] = ()


Io = Read | Write | Copy | Delete | Sync
Command = Io | SetTimer | Finish
