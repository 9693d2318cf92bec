"""The page store's core: what follows from what, and what holds whatever happens."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.store.cluster import ClusterView
from kvbench.store.core import (
    Arrive,
    Command,
    Delete,
    Done,
    Event,
    Finish,
    NodeDown,
    NodeUp,
    PageStore,
    Read,
    Status,
    Sync,
    Timer,
    Write,
)
from kvbench.store.hashing import Rendezvous
from kvbench.store.keys import PageKey, chain
from kvbench.store.placement import ByPage

A, B, C, D = (PageKey(digest, 0) for digest in chain("m", 1, 1, range(4)))
FAILURES = [Status.FULL, Status.EIO, Status.SHORT, Status.CORRUPT]


@dataclass
class Everywhere:
    """Each page on every node that is up, read from the last one."""

    def place(self, page: PageKey, prefix: bytes, cluster: ClusterView) -> tuple[int, ...]:
        return cluster.targets()

    def keeps(self, page: PageKey, prefix: bytes, node: int, cluster: ClusterView) -> bool:
        return node in cluster.targets()

    def route(self, page: PageKey, replicas: tuple[int, ...], cluster: ClusterView) -> int:
        return max(replicas)


def store_with(*pages: PageKey, nodes: int = 1) -> PageStore:
    store = PageStore(ClusterView(nodes), Everywhere())
    store.load([(pages, 0)])
    return store


def test_a_read_asks_for_every_page_at_once_and_ends_with_the_last():
    store = store_with(A, B)
    assert store.step(100, Arrive(7, "read", (A, B))) == [Read(0, 0, A), Read(1, 0, B)]
    assert store.step(150, Done(1, Status.OK, 40)) == []
    assert store.step(180, Done(0, Status.OK, 70)) == [Finish(7, 80, Status.OK, ())]


def test_a_write_is_synced_before_it_ends():
    store = store_with()
    assert store.step(0, Arrive(1, "write", (A, B))) == [Write(0, 0, A), Write(1, 0, B)]
    assert store.step(1, Done(0, Status.OK, 1)) == []
    assert store.step(2, Done(1, Status.OK, 1)) == [Sync(2, 0)]
    assert store.step(9, Done(2, Status.OK, 1)) == [Finish(1, 9, Status.OK, ())]
    assert store.contains_prefix((A, B, C)) == 2


def test_a_page_that_is_held_is_not_written_again():
    assert store_with(A).step(5, Arrive(1, "write", (A,))) == [Finish(1, 0, Status.OK, ())]


def test_an_operation_without_pages_ends_at_once():
    assert store_with().step(5, Arrive(1, "read", ())) == [Finish(1, 0, Status.OK, ())]


@pytest.mark.parametrize("status", FAILURES)
def test_a_page_that_was_not_read_is_named_and_is_no_hit_any_more(status):
    store = store_with(A, B, C)
    store.step(0, Arrive(1, "read", (A, B, C)))
    store.step(1, Done(0, Status.OK, 1))
    store.step(2, Done(1, status, 1))
    assert store.step(3, Done(2, Status.OK, 1)) == [Finish(1, 3, status, (B,))]
    assert [store.holds(page) for page in (A, B, C)] == [True, False, True]
    assert store.contains_prefix((A, B, C)) == 1
    assert store.step(4, Arrive(2, "read", (B,))) == [Finish(2, 0, Status.EIO, (B,))]


@pytest.mark.parametrize("status", FAILURES)
def test_a_page_that_was_not_written_is_named_and_is_no_hit(status):
    store = store_with()
    store.step(0, Arrive(1, "write", (A, B)))
    store.step(1, Done(0, status, 1))
    assert store.step(2, Done(1, Status.OK, 1)) == [Sync(2, 0)]
    assert store.step(3, Done(2, Status.OK, 1)) == [Finish(1, 3, status, (A,))]
    assert [store.holds(page) for page in (A, B)] == [False, True]


def test_pages_whose_sync_failed_are_no_hits():
    store = store_with()
    store.step(0, Arrive(1, "write", (A,)))
    store.step(1, Done(0, Status.OK, 1))
    assert store.step(2, Done(1, Status.EIO, 1)) == [Finish(1, 2, Status.EIO, (A,))]
    assert not store.holds(A)


def test_the_gravest_status_is_the_operations():
    store = store_with(A, B, C)
    store.step(0, Arrive(1, "read", (A, B, C)))
    store.step(0, Done(0, Status.SHORT, 1))
    store.step(0, Done(1, Status.CORRUPT, 1))
    assert store.step(0, Done(2, Status.EIO, 1)) == [Finish(1, 0, Status.CORRUPT, (A, B, C))]


def test_a_node_that_goes_down_fails_what_is_in_flight_and_brings_its_pages_back_with_it():
    store = store_with(A)
    store.step(0, Arrive(1, "read", (A,)))
    assert store.step(5, NodeDown(0)) == [Finish(1, 5, Status.EIO, (A,), away=(A,))]
    assert not store.holds(A)
    assert store.step(6, Done(0, Status.OK, 6)) == []  # too late, and about nothing any more
    assert store.step(7, Arrive(2, "write", (B,))) == [Finish(2, 0, Status.EIO, (B,))]
    assert store.step(8, NodeUp(0)) == []
    assert store.holds(A)


def test_a_page_whose_node_goes_while_it_is_read_is_away_and_one_that_is_bad_is_not():
    store = PageStore(ClusterView(2), Everywhere())
    store.load([((A,), 0), ((B,), 1)])
    store.step(0, Arrive(7, "read", (A, B)))
    assert store.step(10, Done(1, Status.CORRUPT, 5)) == []
    assert store.step(20, NodeDown(0)) == [Finish(7, 20, Status.CORRUPT, (B, A), away=(A,))]
    assert store.step(30, Arrive(8, "read", (B,))) == [Finish(8, 0, Status.EIO, (B,))]


def test_a_write_ends_when_a_node_goes_down_between_its_pages_and_their_sync():
    store = store_with(nodes=2)
    store.step(0, Arrive(1, "write", (A,)))
    store.step(1, Done(0, Status.OK, 1))
    assert store.step(2, NodeDown(0)) == []
    assert store.step(3, Done(1, Status.OK, 1)) == [Sync(2, 1)]
    assert store.step(4, Done(2, Status.OK, 1)) == [Finish(1, 4, Status.EIO, (A,))]
    assert store.holds(A)  # on the node that is left


def test_a_page_whose_copy_is_bad_is_read_from_another_one():
    store = store_with(nodes=2)
    store.step(0, Arrive(1, "write", (A,)))
    for io in range(4):
        store.step(1, Done(io, Status.OK, 1))
    assert store.step(2, Arrive(2, "read", (A,))) == [Read(4, 1, A)]
    assert store.step(3, Done(4, Status.CORRUPT, 1)) == [Read(5, 0, A)]
    assert store.step(4, Done(5, Status.OK, 1)) == [Finish(2, 2, Status.OK, ())]
    assert store.step(5, Arrive(3, "read", (A,))) == [Read(6, 0, A)]


def test_a_timer_that_the_store_did_not_set_changes_nothing():
    assert store_with(A).step(0, Timer(3)) == []


# ---------------------------------------------------------------- whatever happens

NODES = 3
ARRIVALS = st.tuples(st.sampled_from(["read", "write"]), st.lists(st.sampled_from([A, B, C, D]), max_size=5))
COMPLETIONS = st.tuples(st.integers(0, 50), st.sampled_from([Status.OK] * 4 + FAILURES))
NODE_EVENTS = st.builds(NodeUp, st.integers(0, NODES - 1)) | st.builds(NodeDown, st.integers(0, NODES - 1))
HISTORIES = st.lists(ARRIVALS | COMPLETIONS | NODE_EVENTS, max_size=60)
PLACEMENTS = st.sampled_from([ByPage(Rendezvous()), Everywhere()])


class Run:
    """Drives a core as a driver does, and keeps its log. A node that is down answers nothing, or too late."""

    def __init__(self, placement) -> None:
        self.store = PageStore(ClusterView(NODES), placement)
        self.log: list[tuple[int, Event, list[Command]]] = []
        self.in_flight: dict[int, Read | Write | Delete | Sync] = {}
        self.down: set[int] = set()
        self.arrived: list[int] = []
        self.finished: list[Finish] = []

    def step(self, event: Event) -> None:
        now_ns = 10 * len(self.log)
        commands = self.store.step(now_ns, event)
        self.log.append((now_ns, event, commands))
        for command in commands:
            if isinstance(command, Finish):
                self.finished.append(command)
            else:
                assert command.node not in self.down
                assert command.io not in self.in_flight
                self.in_flight[command.io] = command

    def take(self, choice) -> None:
        match choice:
            case NodeUp(node):
                self.down.discard(node)
                self.step(choice)
            case NodeDown(node):
                self.down.add(node)
                self.step(choice)
            case (str(kind), pages):
                self.arrived.append(len(self.arrived))
                self.step(Arrive(self.arrived[-1], kind, tuple(pages)))
            case (int(pick), status) if self.in_flight:
                io = sorted(self.in_flight)[pick % len(self.in_flight)]
                del self.in_flight[io]
                self.step(Done(io, status, 5))

    def answer_what_is_up(self) -> None:
        while answers := [io for io, command in self.in_flight.items() if command.node not in self.down]:
            del self.in_flight[answers[0]]
            self.step(Done(answers[0], Status.OK, 5))


def run(placement, history) -> Run:
    run = Run(placement)
    for choice in history:
        run.take(choice)
    run.answer_what_is_up()
    return run


@settings(deadline=None)
@given(PLACEMENTS, HISTORIES)
def test_every_operation_finishes_exactly_once_whatever_fails(placement, history):
    done = run(placement, history)
    assert sorted(finish.op for finish in done.finished) == done.arrived


@settings(deadline=None)
@given(PLACEMENTS, HISTORIES)
def test_an_operation_is_ok_exactly_when_no_page_is_bad(placement, history):
    for finish in run(placement, history).finished:
        assert (finish.status is Status.OK) == (finish.bad == ())
        assert len(set(finish.bad)) == len(finish.bad)


@settings(deadline=None)
@given(PLACEMENTS, HISTORIES)
def test_no_page_is_a_hit_that_was_not_stored_or_whose_copies_all_failed(placement, history):
    """A model beside the core: copies that were written and have not failed since on a node that was up."""
    done = run(placement, history)
    copies: set[tuple[PageKey, int]] = set()
    issued: dict[int, Command] = {}
    down: set[int] = set()
    for _, event, commands in done.log:
        match event:
            case NodeDown(node):
                down.add(node)
                issued = {io: command for io, command in issued.items() if command.node != node}
            case NodeUp(node):
                down.discard(node)
            case Done(io, status) if command := issued.pop(io, None):
                if isinstance(command, Write) and status is Status.OK:
                    copies.add((command.page, command.node))
                elif not isinstance(command, Sync) and status is not Status.OK:
                    copies.discard((command.page, command.node))
        issued |= {command.io: command for command in commands if not isinstance(command, Finish)}
    hits = {page for page, node in copies if node not in down}
    assert {page for page in (A, B, C, D) if done.store.holds(page)} <= hits


@settings(deadline=None)
@given(PLACEMENTS, HISTORIES)
def test_the_log_of_a_run_gives_the_same_commands_in_a_fresh_core(placement, history):
    fresh = PageStore(ClusterView(NODES), placement)
    for now_ns, event, commands in run(placement, history).log:
        assert fresh.step(now_ns, event) == commands
