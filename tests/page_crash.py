"""A page store on directories that writes and reads for ever, to be killed: what it has acknowledged goes to stdout.

python page_crash.py WORK FOLDER FIRST
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from queue import SimpleQueue

from kvbench.store.cluster import ClusterView, Role
from kvbench.store.core import Arrive, Done, Event, Finish, NodeLeave, NodeUp, PageStore, Status
from kvbench.store.drive import Driver
from kvbench.store.hashing import Ring
from kvbench.store.keys import PageKey
from kvbench.store.moves import Mover
from kvbench.store.placement import ByPage
from kvbench.store.policy import Lru
from kvbench.store.queues import Queues
from kvbench.store.real import RealNodes
from kvbench.store.rebalance import Rebalance
from kvbench.store.tiering import Tiered, Tiering

PAGE_BYTES = 8192
NODES = 4
PAGES = 4  # of an operation
FLASH_PAGES = 32


def flat() -> PageStore:
    """Four nodes alike, with pages that follow the placement, in runs."""
    placement = ByPage(Ring())
    return PageStore(ClusterView(NODES), placement, queues=Queues(run_pages=PAGES), mover=Mover([Rebalance(placement)]))


def tiered() -> PageStore:
    """A small flash tier over a large one: nothing is given up, much goes down and up again."""
    flash = ByPage(Ring())
    cluster = ClusterView(NODES, dict.fromkeys((2, 3), Role.CAPACITY), {Role.KV: FLASH_PAGES})
    mover = Mover([Tiering(flash, Lru(), Lru(), promote_after=2), Rebalance(Tiered(flash))])
    return PageStore(cluster, Tiered(flash), queues=Queues(run_pages=PAGES), mover=mover)


def populate(first: int) -> Iterator[Event]:
    """Nothing but new pages."""
    for number in count(first):
        yield Arrive(number, "write", pages(number))


def migrate(first: int) -> Iterator[Event]:
    """New pages, while one node after the other leaves and is taken back."""
    for number in count(first):
        yield Arrive(number, "write", pages(number))
        if number % 8 == 0:
            node = number // 16 % NODES
            yield NodeLeave(node) if number % 16 == 0 else NodeUp(node)


def demote(first: int) -> Iterator[Event]:
    """New pages and reads of old ones, in turns. Reads have numbers below 0."""
    rng = random.Random(first)
    for number in count(first):
        yield Arrive(number, "write", pages(number))
        yield Arrive(-number - 1, "read", pages(rng.randint(first, number)))


WORK: Mapping[str, tuple[Callable[[], PageStore], Callable[[int], Iterator[Event]]]] = {
    "populate": (flat, populate),
    "migrate": (flat, migrate),
    "demote": (tiered, demote),
}


def pages(number: int) -> tuple[PageKey, ...]:
    """Those of an operation."""
    return tuple(PageKey(number.to_bytes(8, "big") + page.to_bytes(8, "big"), 0) for page in range(PAGES))


@contextmanager
def driving(work: str, folder: Path) -> Iterator[tuple[PageStore, Driver]]:
    """A store for some work over the directories of a folder, with what is on them taken over."""
    store, events = WORK[work][0](), SimpleQueue[Done]()
    directories = [folder / f"node{node}" for node in range(NODES)]
    with RealNodes(directories, PAGE_BYTES, on_done=events.put, direct=False, run_pages=PAGES) as nodes:
        yield store, Driver(store, nodes, events)


def serve(work: str, folder: Path, first: int) -> None:
    """Keep a few operations under way, and say of every write when it is durable."""
    under_way: set[int] = set()
    with driving(work, folder) as (_, driver):
        for event in WORK[work][1](first):
            finished = driver.give(event)
            if isinstance(event, Arrive):
                under_way.add(event.op)
            _say(finished, under_way)
            while len(under_way) >= 4:
                _say(driver.wait(), under_way)


def _say(finished: Sequence[Finish], under_way: set[int]) -> None:
    for finish in finished:
        under_way.discard(finish.op)
        if finish.op >= 0 and finish.status is Status.OK:
            print(finish.op, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
