"""What holds under any sequence of operations, nodes that come, go and fail, and pages that move."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.sim.agenda import Agenda
from kvbench.sim.device import NodeModel
from kvbench.sim.drive import Driver
from kvbench.sim.nodes import SimNodes
from kvbench.store.cluster import ClusterView
from kvbench.store.core import Arrive, Finish, NodeDown, NodeLeave, NodeUp, PageStore, Status
from kvbench.store.hashing import BoundedLoadRing, Modulo, Rendezvous, Ring, TwoChoices
from kvbench.store.hot import HotPages
from kvbench.store.keys import PageKey
from kvbench.store.moves import Mover
from kvbench.store.pace import TokenBucket
from kvbench.store.placement import ByPage, PrefixAware
from kvbench.store.queues import Queues
from kvbench.store.rebalance import Rebalance
from kvbench.store.weights import DynamicWeights, WeightRule

MS = 10**6
PAGE_BYTES = 1 << 20
MODEL = NodeModel(read_rate=10**9, write_rate=5 * 10**8, channels=4, latency=1e-4)
HASHINGS = {
    "modulo": Modulo,
    "ring": lambda: Ring(virtual_nodes=16),
    "bounded": lambda: BoundedLoadRing(Ring(virtual_nodes=16)),
    "rendezvous": Rendezvous,
    "two choices": TwoChoices,
}


class World:
    """A store with everything that moves pages, on four modelled nodes."""

    def __init__(self, hashing, seed=0, fault_share=0.0, hot=False, unit="page"):
        placement = (PrefixAware if unit == "session" else ByPage)(HASHINGS[hashing]())
        self.agenda = Agenda()
        self.cluster = ClusterView(4)
        sources = [HotPages()] if hot else []
        rebalance = Rebalance(placement, unit, spared=sources[0].replicated if hot else ())
        self.store = PageStore(
            self.cluster,
            placement,
            queues=Queues(PAGE_BYTES, wait_ns=MS // 10, run_pages=4),
            mover=Mover([*sources, rebalance], page_bytes=PAGE_BYTES, budget=TokenBucket(2 * 10**8, PAGE_BYTES)),
        )
        model = NodeModel(10**9, 5 * 10**8, 4, 1e-4, fault_share=fault_share)
        self.nodes = SimNodes(self.agenda, [model] * 4, PAGE_BYTES, seed)
        self.driver = Driver(self.agenda, self.nodes, self.store, self.told)
        self.finished = {}
        self.stored, self.asked = {}, {}

    def told(self, finish):
        self.finished[finish.op] = finish
        kind, pages = self.asked[finish.op]
        if kind == "write":
            self.stored |= {page: self.agenda.now_ns for page in pages if page not in finish.bad}

    def at(self, at_ns, event):
        if isinstance(event, Arrive):
            self.asked[event.op] = event.kind, event.pages
        if isinstance(event, NodeUp) and event.node == len(self.nodes.nodes):
            self.nodes.add(MODEL)
        self.agenda.at(at_ns, self.driver.give, event)


def pages_of(session, count):
    return tuple(PageKey(bytes([session]) * 15 + bytes([i]), 0) for i in range(count))


operations = st.lists(
    st.tuples(st.sampled_from(["read", "write"]), st.integers(0, 9), st.integers(1, 6), st.integers(0, 400)),
    min_size=5,
    max_size=40,
)
changes = st.lists(
    st.tuples(st.sampled_from(["down", "up", "leave", "new"]), st.integers(0, 3), st.integers(0, 400)), max_size=8
)


def play(world, operations, changes):
    for number, (kind, session, count, at_ms) in enumerate(operations):
        pages = pages_of(session, count)
        world.at(at_ms * MS, Arrive(number, kind, pages, pages[0].digest))
    new = 4
    for what, node, at_ms in sorted(changes, key=lambda change: change[2]):
        match what:
            case "down":
                world.at(at_ms * MS, NodeDown(node))
            case "up":
                world.at(at_ms * MS, NodeUp(node))
            case "leave":
                world.at(at_ms * MS, NodeLeave(node))
            case "new":
                world.at(at_ms * MS, NodeUp(new))
                new += 1
    world.agenda.run()
    for node in range(new):  # and at last everybody comes back
        world.at(world.agenda.now_ns, NodeUp(node))
        world.agenda.run()


@given(st.sampled_from(list(HASHINGS)), operations, changes, st.booleans(), st.sampled_from(["page", "session"]))
@settings(max_examples=120)
def test_no_page_is_lost_or_left_over(hashing, operations, changes, hot, unit):
    world = World(hashing, hot=hot, unit=unit)
    play(world, operations, changes)
    assert set(world.finished) == set(world.asked), "every operation ends"
    for page in world.stored:
        assert world.store.holds(page), "an acknowledged page is found"
    on_nodes = {(page, node) for node, held in enumerate(world.nodes.held) for page in held}
    known = {(page, node) for page in world.store.directory.pages() for node in world.store.directory.replicas(page)}
    assert known == on_nodes, "the directory knows what is there, and nothing is there that it does not know"
    assert sum(world.cluster.stored) == len(on_nodes), "no room is taken by nothing"


@given(st.sampled_from(list(HASHINGS)), operations, changes)
@settings(max_examples=30)
def test_the_same_seed_gives_the_same_run(hashing, operations, changes):
    runs = [World(hashing, seed=3, fault_share=0.1) for _ in range(2)]
    for world in runs:
        play(world, operations, changes)
    assert runs[0].finished == runs[1].finished
    assert runs[0].agenda.now_ns == runs[1].agenda.now_ns


def test_a_read_of_a_page_that_the_node_lost_fails_and_is_no_hit():
    world = World("ring")
    page = pages_of(1, 1)
    world.at(0, Arrive(0, "write", page))
    world.agenda.run()
    for held in world.nodes.held:
        held.clear()
    world.at(world.agenda.now_ns, Arrive(1, "read", page))
    world.agenda.run()
    assert isinstance(world.finished[1], Finish)
    assert world.finished[1].status is Status.EIO
    assert not world.store.holds(page[0])


class Steady:
    """Reads at a constant rate, half of what four nodes can serve, of which the first is half as fast as the others."""

    def __init__(self, rule, page_bytes):
        self.agenda, self.cluster = Agenda(), ClusterView(4)
        placement = PrefixAware(Ring())
        self.store = PageStore(
            self.cluster,
            placement,
            queues=Queues(PAGE_BYTES),
            weights=DynamicWeights(rule, page_bytes),
            mover=Mover([Rebalance(placement)]),
        )
        fast, slow = (NodeModel(rate, rate, channels=4, latency=1e-4) for rate in (10**8, 5 * 10**7))
        nodes = SimNodes(self.agenda, [slow, fast, fast, fast], PAGE_BYTES, 1)
        self.driver = Driver(self.agenda, nodes, self.store, lambda finish: None)
        self.weights = []

    def run(self, seconds, reads_per_s=160):
        pages = [pages_of(session, 2) for session in range(200)]
        for session, run in enumerate(pages):
            self.driver.give(Arrive(-1 - session, "write", run, run[0].digest))
        self.agenda.run()
        began_ns = self.agenda.now_ns
        for number in range(seconds * reads_per_s):
            page = pages[number * 79 % 200][number % 2]
            at_ns = began_ns + number * 10**9 // reads_per_s
            self.agenda.at(at_ns, self.driver.give, Arrive(number, "read", (page,)))
            if number % reads_per_s == 0:
                self.agenda.at(at_ns, lambda: self.weights.append(tuple(self.cluster.weights)))
        self.agenda.run()


@pytest.mark.parametrize("page_bytes", [0, PAGE_BYTES], ids=["moves are free", "moves have a price"])
def test_weights_come_to_rest_under_constant_load(page_bytes):
    world = Steady(WeightRule(), page_bytes)
    world.run(seconds=60)
    assert world.weights[0] != world.weights[30], "a node of half the speed makes weights move"
    assert world.weights[30] == world.weights[-1], "and then they stay"
    assert world.cluster.weights[0] < min(world.cluster.weights[1:]), "the slow node has the least weight"
