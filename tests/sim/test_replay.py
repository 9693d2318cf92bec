"""One strategy, two clocks: what a core decided on real files, a fresh core decides again from the same events."""

from queue import SimpleQueue
from random import Random

import pytest

from kvbench import clock
from kvbench.sim.replay import Recorded, first_difference
from kvbench.store.cluster import ClusterView
from kvbench.store.core import Arrive, Finish, NodeDown, NodeUp, PageStore, SetTimer, Status, Timer
from kvbench.store.hashing import BoundedLoadRing, Modulo, Ring, TwoChoices
from kvbench.store.keys import PageKey
from kvbench.store.placement import ByPage, PrefixAware
from kvbench.store.queues import Lane, Limit, Queues
from kvbench.store.real import RealNodes
from kvbench.store.weights import DynamicWeights, WeightRule

PAGE_BYTES = 4096
NODES = 4
OPERATIONS = 20_000
SESSIONS = [tuple(PageKey(bytes([session]) * 15 + bytes([i]), 0) for i in range(8)) for session in range(200)]

STORES = {
    "prefix-aware, weighted, paced": lambda: PageStore(
        ClusterView(NODES),
        PrefixAware(Ring()),
        queues=Queues(
            PAGE_BYTES, wait_ns=100_000, limits={Lane.READ: Limit(depth=8), Lane.POPULATE: Limit(4, 2**26, 2**16)}
        ),
        weights=DynamicWeights(WeightRule(interval_ns=10**8)),
    ),
    "by page, bounded": lambda: PageStore(ClusterView(NODES), ByPage(BoundedLoadRing(Ring(), 1.1))),
}


def run(root, store, operations):
    """Drive a store on directories with 16 operations at once, while files are torn, lost and nodes go and come."""
    rng, events = Random(7), SimpleQueue()
    core, directories = Recorded(store), [root / f"node{node}" for node in range(NODES)]
    timers, finished, under_way, given = [], [], 0, 0
    with RealNodes(directories, PAGE_BYTES, on_done=events.put, direct=False, workers_per_node=2) as nodes:
        event = None
        while given < operations or under_way:
            if under_way < 16 and given < operations:
                event = operation(given, rng)
                given, under_way = given + 1, under_way + 1
                spoil(directories, rng)
                if given % 2000 in (1000, 1100):
                    node = given // 2000 % NODES
                    given_up = core.step(clock.monotonic_ns(), NodeDown(node) if given % 2000 == 1000 else NodeUp(node))
                    under_way -= handle(given_up, nodes, timers, finished)
            else:
                event = next_event(events, timers)
            under_way -= handle(core.step(clock.monotonic_ns(), event), nodes, timers, finished)
    return core.log, finished


def operation(number, rng):
    session = SESSIONS[int(rng.paretovariate(0.6)) % len(SESSIONS)]
    kind = "write" if rng.random() < 0.15 else "read"
    return Arrive(number, kind, session[: rng.randint(1, 3)], session[0].digest)


def spoil(directories, rng):
    """Now and then a file is cut off, damaged, or removed behind the store's back."""
    if rng.random() > 0.02:
        return
    path = rng.choice(directories) / rng.choice(SESSIONS)[0].file_name
    if not path.exists():
        return
    match rng.randrange(3):
        case 0:
            path.write_bytes(path.read_bytes()[:1000])
        case 1:
            path.write_bytes(b"wrong" + path.read_bytes()[5:])
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


@pytest.mark.parametrize("name", STORES)
def test_a_real_run_replayed_gives_identical_commands(tmp_path, name):
    operations = OPERATIONS if name == "prefix-aware, weighted, paced" else OPERATIONS // 10
    log, finished = run(tmp_path, STORES[name](), operations)
    assert len(finished) == operations
    assert operations < OPERATIONS or {finish.status for finish in finished} > {
        Status.EIO,
        Status.SHORT,
        Status.CORRUPT,
    }
    assert first_difference(log, STORES[name]()) is None


def test_another_strategy_does_not_replay(tmp_path):
    log, _ = run(tmp_path, PageStore(ClusterView(NODES), ByPage(Modulo())), 300)
    difference = first_difference(log, PageStore(ClusterView(NODES), ByPage(TwoChoices())))
    assert difference is not None
