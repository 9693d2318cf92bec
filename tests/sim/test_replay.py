"""One strategy, two clocks: what a core decided on real files, a fresh core decides again from the same events."""

import os
from contextlib import suppress
from queue import SimpleQueue
from random import Random

import pytest

from kvbench import clock
from kvbench.store.cluster import ClusterView, Role
from kvbench.store.core import (
    Arrive,
    Copy,
    Delete,
    Finish,
    NodeDown,
    NodeLeave,
    NodeUp,
    PageStore,
    Read,
    SetTimer,
    Status,
    Timer,
    Write,
)
from kvbench.store.hashing import BoundedLoadRing, Modulo, Ring, TwoChoices
from kvbench.store.hot import HotPages, HotRule
from kvbench.store.keys import PageKey
from kvbench.store.moves import Mover
from kvbench.store.pace import TokenBucket
from kvbench.store.placement import ByPage, PrefixAware
from kvbench.store.policy import Lru
from kvbench.store.queues import Lane, Limit, Queues
from kvbench.store.real import RealNodes
from kvbench.store.rebalance import Rebalance
from kvbench.store.tiering import Tiered, Tiering
from kvbench.store.weights import DynamicWeights, WeightRule

FAULTS = {Status.EIO, Status.SHORT, Status.CORRUPT}
PAGE_BYTES = 4096
NODES = 4
RUN_PAGES = 4
SESSIONS = [tuple(PageKey(bytes([session]) * 15 + bytes([i]), 0) for i in range(8)) for session in range(200)]


def weighted_and_paced():
    limits = {Lane.READ: Limit(depth=8), Lane.POPULATE: Limit(4, 2**26, 2**16)}
    return PageStore(
        ClusterView(NODES),
        PrefixAware(Ring()),
        queues=Queues(PAGE_BYTES, wait_ns=100_000, limits=limits),
        weights=DynamicWeights(WeightRule(interval_ns=10**8)),
    )


def bounded():
    return PageStore(ClusterView(NODES), ByPage(BoundedLoadRing(Ring(), 1.1)))


def hot_and_moving():
    """In runs, with copies of hot pages, and pages that follow the nodes within a byte budget."""
    placement, hot = ByPage(Ring()), HotPages(HotRule(half_life_ns=10**8))
    sources = hot, Rebalance(placement, spared=hot.replicated)
    return PageStore(
        ClusterView(NODES),
        placement,
        queues=Queues(PAGE_BYTES, wait_ns=100_000, run_pages=RUN_PAGES, limits={Lane.READ: Limit(depth=8)}),
        mover=Mover(sources, page_bytes=PAGE_BYTES, budget=TokenBucket(2**22, 2**16)),
    )


def tiered():
    """Two flash nodes over two capacity nodes, each tier with less room than all pages take."""
    cluster = ClusterView(NODES, dict.fromkeys((2, 3), Role.CAPACITY), {Role.KV: 24, Role.CAPACITY: 60})
    flash = ByPage(Ring())
    tiering = Tiering(flash, Lru(), Lru(), prefetch_pages=2)
    return PageStore(cluster, Tiered(flash), mover=Mover([tiering], page_bytes=PAGE_BYTES))


STORES = [weighted_and_paced, bounded, hot_and_moving, tiered]


def run(root, store, operations):
    """Drive a store on directories with 16 operations at once, while files are torn, lost and nodes go and come.

    Returns its moments, events and commands, and what has finished.
    """
    rng, events = Random(7), SimpleQueue()
    directories = [root / f"node{node}" for node in range(NODES)]
    log, timers, finished, under_way, given = [], [], [], 0, 0

    def step(event):
        now_ns = clock.monotonic_ns()
        commands = store.step(now_ns, event)
        log.append((now_ns, event, list(commands)))
        return commands

    options = {"direct": False, "workers_per_node": 2, "run_pages": RUN_PAGES}
    with RealNodes(directories, PAGE_BYTES, on_done=events.put, **options) as nodes:
        event = None
        while given < operations or under_way:
            if under_way < 16 and given < operations:
                event = operation(given, rng)
                given, under_way = given + 1, under_way + 1
                spoil(directories, rng)
                if change := CHANGES.get(given % 2000):
                    under_way -= handle(step(change(given // 2000 % NODES)), nodes, timers, finished)
            else:
                event = next_event(events, timers)
            under_way -= handle(step(event), nodes, timers, finished)
    return log, finished


def first_difference(log, fresh):
    """Where a fresh core departs from a log: the entry's number; None: nowhere."""
    return next((i for i, (now_ns, event, commands) in enumerate(log) if fresh.step(now_ns, event) != commands), None)


CHANGES = {400: NodeLeave, 700: NodeUp, 1000: NodeDown, 1100: NodeUp}  # of every 2,000 operations


def operation(number, rng):
    session = SESSIONS[int(rng.paretovariate(0.6)) % len(SESSIONS)]
    kind = "write" if rng.random() < 0.15 else "read"
    return Arrive(number, kind, session[: rng.randint(1, 3)], session[0].digest)


def spoil(directories, rng):
    """Now and then a file is cut off, damaged, or removed behind the store's back."""
    if rng.random() > 0.02 or not (files := list(rng.choice(directories).iterdir())):
        return
    with suppress(FileNotFoundError):  # it has moved meanwhile
        path = rng.choice(files)
        match rng.randrange(3):
            case 0:
                os.truncate(path, 1000)
            case 1:
                with path.open("r+b") as file:
                    file.write(b"wrong")
            case 2:
                path.unlink()


def next_event(events, timers):
    """An I/O that has ended, or the timer that is due."""
    while events.empty():
        if timers and clock.monotonic_ns() >= timers[-1].at_ns:
            return Timer(timers.pop().id)
        clock.sleep_s(20e-6)
    return events.get()


def handle(commands, nodes, timers, finished):
    """Carry commands out; how many operations have finished."""
    count = 0
    for command in commands:
        if isinstance(command, Finish):
            finished.append(command)
            count += 1
        elif isinstance(command, SetTimer):
            timers.append(command)
        else:
            nodes.submit(command)
    return count


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("operations", [1_200, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_real_run_replayed_gives_identical_commands(tmp_path, store, operations):
    log, finished = run(tmp_path, store(), operations)
    assert len(finished) == operations
    statuses, commands = {finish.status for finish in finished}, {type(c) for *_, commands in log for c in commands}
    assert statuses >= (FAULTS if operations > 10_000 else {Status.EIO})
    assert commands >= ({Copy, Delete} if store in (hot_and_moving, tiered) else {Write, Read})
    assert first_difference(log, store()) is None


def test_another_strategy_does_not_replay(tmp_path):
    log, _ = run(tmp_path, PageStore(ClusterView(NODES), ByPage(Modulo())), 300)
    assert first_difference(log, PageStore(ClusterView(NODES), ByPage(TwoChoices()))) is not None
