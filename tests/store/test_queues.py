"""What goes out, when, in which order and in how large pieces."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kvbench.store.cluster import ClusterView, Role
from kvbench.store.core import Arrive, Done, Finish, NodeDown, PageStore, Read, SetTimer, Status, Sync, Timer, Write
from kvbench.store.hashing import Modulo
from kvbench.store.keys import PageKey, chain
from kvbench.store.layout import Layout
from kvbench.store.placement import ByPage
from kvbench.store.queues import Lane, Limit, Queues

PAGES = tuple(PageKey(digest, 0) for digest in chain("m", 1, 1, range(12)))
A, B, C, D = PAGES[:4]
MB = 10**6


def store_with(pages=PAGES, **queues) -> PageStore:
    """One node, on which the pages have been written in their order, one extent each `run_pages`."""
    store = PageStore(ClusterView(1), ByPage(Modulo()), queues=Queues(MB, **queues))
    size = queues.get("run_pages", 1)
    store.load((pages[at : at + size], 0) for at in range(0, len(pages), size))
    return store


def io(commands) -> list[tuple[PageKey, ...]]:
    return [(command.page, *command.more) for command in commands if isinstance(command, Read | Write)]


# ---------------------------------------------------------------- layout


@given(st.lists(st.lists(st.integers(0, 9), unique=True, max_size=6), max_size=6), st.sets(st.integers(0, 11)))
def test_runs_hold_every_page_once_and_join_neighbours_alone(extents, asked):
    layout = Layout()
    for extent in extents:
        layout.append(0, [PAGES[number] for number in extent])
    runs = layout.runs(0, [PAGES[number] for number in sorted(asked)], 3)
    assert sorted(page.digest for run in runs for page in run) == sorted(PAGES[number].digest for number in asked)
    for run in runs:
        assert len(run) <= 3
        for page, after in pairwise(run):
            assert layout.following(0, page, 1) == [after]


def test_a_page_that_was_written_again_lies_with_its_new_neighbours():
    layout = Layout()
    layout.append(0, (A, B, C))
    layout.append(0, (B, D))
    assert layout.runs(0, (A, B, C, D), 9) == [(A,), (C,), (B, D)]
    assert layout.following(0, A, 3) == []
    layout.forget(0, D)
    assert layout.following(0, B, 3) == []


# ---------------------------------------------------------------- merging


def test_the_pages_of_a_session_are_written_and_read_in_runs():
    store = PageStore(ClusterView(1), ByPage(Modulo()), queues=Queues(run_pages=3))
    assert io(store.step(0, Arrive(1, "write", PAGES[:5]))) == [PAGES[:3], PAGES[3:5]]
    store.step(1, Done(0, Status.OK, 1))
    assert store.step(1, Done(1, Status.OK, 1)) == [Sync(2, 0)]
    store.step(1, Done(2, Status.OK, 1))
    assert io(store.step(2, Arrive(2, "read", PAGES[4::-1]))) == [PAGES[:3], PAGES[3:5]]
    assert store.step(3, Done(3, Status.OK, 1)) == []
    assert store.step(4, Done(4, Status.OK, 1)) == [Finish(2, 2, Status.OK, ())]


def test_reads_of_several_operations_gather_for_a_bounded_wait_and_go_out_together():
    store = store_with(run_pages=4, wait_ns=100)
    assert store.step(0, Arrive(1, "read", (C, A))) == [SetTimer(0, 100)]
    assert store.step(60, Arrive(2, "read", (B,))) == []
    assert store.step(100, Timer(0)) == [Read(0, 0, A, (B, C))]
    assert store.step(150, Done(0, Status.OK, 1)) == [Finish(1, 150, Status.OK, ()), Finish(2, 90, Status.OK, ())]


def test_what_fills_a_run_does_not_wait():
    store = store_with(run_pages=2, wait_ns=100)
    store.step(0, Arrive(1, "read", (A,)))
    assert io(store.step(1, Arrive(2, "read", (B,)))) == [(A, B)]


def test_a_page_that_two_operations_want_is_read_once():
    store = store_with(wait_ns=100, run_pages=4)
    store.step(0, Arrive(1, "read", (A,)))
    store.step(1, Arrive(2, "read", (A,)))
    assert io(store.step(100, Timer(0))) == [(A,)]
    assert [finish.op for finish in store.step(101, Done(0, Status.OK, 1))] == [1, 2]


def test_of_a_run_that_failed_the_pages_that_were_bad_are_bad_for_those_who_wanted_them():
    store = store_with(run_pages=4, wait_ns=100)
    store.step(0, Arrive(1, "read", (A, B)))
    store.step(0, Arrive(2, "read", (C,)))
    store.step(100, Timer(0))
    assert store.step(101, Done(0, Status.CORRUPT, 1, bad=(B,))) == [
        Finish(1, 101, Status.CORRUPT, (B,)),
        Finish(2, 101, Status.OK, ()),
    ]
    assert [store.holds(page) for page in (A, B, C)] == [True, False, True]


def test_while_a_node_is_busy_reads_gather_and_then_go_in_the_order_in_which_they_lie():
    store = store_with(run_pages=4, limits={Lane.READ: Limit(depth=1)})
    assert io(store.step(0, Arrive(1, "read", (D,)))) == [(D,)]
    for op, page in enumerate((PAGES[5], B, A), start=2):
        assert store.step(1, Arrive(op, "read", (page,))) == []
    assert io(store.step(2, Done(0, Status.OK, 1))) == [(A, B)]
    assert io(store.step(3, Done(1, Status.OK, 1))) == [(PAGES[5],)]


def test_reads_that_wait_for_a_node_that_goes_have_failed():
    store = store_with(run_pages=4, wait_ns=100)
    store.step(0, Arrive(1, "read", (A, B)))
    assert store.step(5, NodeDown(0)) == [Finish(1, 5, Status.EIO, (A, B), (A, B))]
    assert store.step(100, Timer(0)) == []


# ---------------------------------------------------------------- separation


def test_reads_do_not_wait_behind_writes_that_have_a_queue_and_a_depth_of_their_own():
    store = store_with(PAGES[:2], limits={Lane.CHECKPOINT: Limit(depth=2)})
    assert io(store.step(0, Arrive(1, "checkpoint", PAGES[2:]))) == [(C,), (D,)]
    assert io(store.step(1, Arrive(2, "read", (A, B)))) == [(A,), (B,)]
    assert io(store.step(2, Done(0, Status.OK, 1))) == [(PAGES[4],)]


@given(st.integers(1, 4), st.integers(1, 12))
def test_checkpoint_writes_stay_within_the_bytes_of_their_budget(burst, count):
    """A megabyte a second for each page of one, after the burst."""
    limit = Limit(bytes_per_s=MB, burst_bytes=burst * MB)
    store = store_with((), limits={Lane.CHECKPOINT: limit})
    commands, now_ns, written = store.step(0, Arrive(1, "checkpoint", PAGES[:count])), 0, []
    while commands:
        written += [now_ns] * len(io(commands))
        timers = [command for command in commands if isinstance(command, SetTimer)]
        if not timers:
            break
        now_ns = timers[0].at_ns
        commands = store.step(now_ns, Timer(timers[0].id))
    assert written == [max(0, number - burst + 1) * 10**9 for number in range(count)]


def test_checkpoints_go_to_nodes_of_their_own_where_there_are_any_and_pages_do_not():
    cluster = ClusterView(3, {2: Role.CHECKPOINT})
    store = PageStore(cluster, ByPage(Modulo()))
    assert {command.node for command in store.step(0, Arrive(1, "checkpoint", PAGES[:4]))} == {2}
    assert {command.node for command in store.step(0, Arrive(2, "write", PAGES[4:]))} == {0, 1}
