"""Pages that move: none is lost, none is left behind, and every one can be read at any time."""

import pytest
from disks import Disks
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.store.cluster import ClusterView
from kvbench.store.core import (
    Copy,
    Delete,
    Done,
    FirstToken,
    MovePace,
    NodeUp,
    PageStore,
    Read,
    Status,
    Sync,
    Timer,
)
from kvbench.store.hashing import BoundedLoadRing, Modulo, Rendezvous, Ring, TwoChoices
from kvbench.store.hot import HotPages, HotRule
from kvbench.store.keys import PageKey, chain, prefix_of
from kvbench.store.moves import Mover
from kvbench.store.pace import TokenBucket, TtftGuard
from kvbench.store.placement import ByPage, PrefixAware, page_point
from kvbench.store.queues import Queues
from kvbench.store.rebalance import Rebalance

PAGE_BYTES = 1000
SESSIONS = [chain("m", 1, 1, [session, *range(7)]) for session in range(4)]
PAGES = [PageKey(digest, 0) for session in SESSIONS for digest in session]
PREFIXES = {PageKey(digest, 0): prefix_of(session, 2) for session in SESSIONS for digest in session}

PLACEMENTS = {
    "modulo": lambda: ByPage(Modulo()),
    "ring": lambda: ByPage(Ring(virtual_nodes=8)),
    "bounded ring": lambda: ByPage(BoundedLoadRing(Ring(virtual_nodes=8))),
    "rendezvous": lambda: ByPage(Rendezvous()),
    "two choices": lambda: ByPage(TwoChoices()),
    "prefix": lambda: PrefixAware(Ring(virtual_nodes=8)),
}


def world(placement, *, nodes=3, unit="page", seed=0, hot=None, full_share=0.0, **mover) -> Disks:
    sources = [Rebalance(placement, unit, hot.replicated if hot else ())]
    core = PageStore(
        ClusterView(nodes),
        placement,
        queues=Queues(PAGE_BYTES, run_pages=4),
        mover=Mover([*([hot] if hot else []), *sources], page_bytes=PAGE_BYTES, **mover),
    )
    return Disks(core, nodes, seed, full_share)


def filled(placement=None, **options) -> Disks:
    disks = world(placement or ByPage(Ring()), **options)
    for session in SESSIONS:
        disks.write(*(PageKey(digest, 0) for digest in session), prefix=prefix_of(session, 2))
    disks.settle()
    return disks


# ---------------------------------------------------------------- one move


def test_a_page_is_copied_made_durable_read_back_and_only_then_deleted_where_it_was():
    page = next(page for page in PAGES if page_point(page) % 2)  # modulo two nodes it belongs to the second
    core = PageStore(ClusterView(1), ByPage(Modulo()), mover=Mover([Rebalance(ByPage(Modulo()))]))
    core.load([((page,), 0)])
    assert core.step(0, NodeUp(1)) == [Copy(0, 1, page, 0)]
    assert core.step(1, Done(0, Status.OK, 1)) == [Sync(1, 1)]
    assert core.step(2, Done(1, Status.OK, 1)) == [Read(2, 1, page)]
    assert core.directory.live(page) == (0,)
    assert core.step(3, Done(2, Status.OK, 1)) == [Delete(3, 0, page)]
    assert core.directory.live(page) == (1,)
    assert core.step(4, Done(3, Status.OK, 1)) == []


def test_a_copy_is_not_deleted_before_the_last_read_of_it_has_ended():
    disks = filled(nodes=1)
    disks.read(*PAGES)
    reads = dict(disks.in_flight)
    disks.in_flight = {}
    disks.add_node()
    disks.settle()  # all that can be done while the reads are under way
    assert len(disks.held[0]) == len(PAGES)
    disks.in_flight = reads
    disks.settle()
    assert len(disks.held[0]) + len(disks.held[1]) == len(PAGES)
    assert disks.finished[-1].status is Status.OK


@pytest.mark.parametrize("step", range(3))
@pytest.mark.parametrize("status", [Status.EIO, Status.FULL, Status.CORRUPT])
def test_a_move_that_fails_leaves_the_page_where_it_was_and_removes_what_was_begun(step, status):
    disks = filled(nodes=1, depth=1)
    disks.add_node()
    for _ in range(step):
        disks.go_on()
    (io,) = disks.in_flight
    page = next(page for page in PAGES if page in disks.core._mover.busy)
    disks.in_flight = {}
    disks.step(Done(io, status, 1))
    assert disks.core.directory.live(page) == (0,)
    assert [type(command) for command in disks.in_flight.values()] == [Delete]
    disks.settle()
    assert disks.copies(page) == [0]


# ---------------------------------------------------------------- nodes that come and go


@pytest.mark.parametrize("unit", ["page", "session"])
@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_node_that_leaves_is_emptied_and_one_that_comes_gets_pages(name, unit):
    disks = filled(PLACEMENTS[name](), unit=unit)
    disks.add_node()
    disks.settle()
    assert sum(map(len, disks.held.values())) == len(PAGES)
    disks.leave(0)
    disks.settle()
    assert not disks.held[0]
    assert all(len(disks.copies(page)) == 1 for page in PAGES)


def test_with_the_session_as_the_unit_its_pages_change_places_together():
    disks = filled(PrefixAware(Ring()), nodes=1, unit="session")
    disks.add_node()
    disks.add_node()
    disks.settle()
    copies = [command for _, _, commands in disks.log for command in commands if isinstance(command, Copy)]
    assert copies
    assert all(len((command.page, *command.more)) == len(SESSIONS[0]) for command in copies)


def test_what_a_failed_node_held_is_a_hit_again_when_it_is_back_and_copies_made_meanwhile_go():
    disks = filled()
    disks.fail(1)
    disks.settle()
    lost = [page for page in PAGES if not disks.core.holds(page)]
    assert lost
    disks.write(*lost)  # they are computed again
    disks.settle()
    assert all(map(disks.core.holds, PAGES))
    disks.revive(1)
    disks.settle()
    assert all(len(disks.copies(page)) == 1 for page in PAGES)


def test_a_restart_in_mid_migration_goes_on_from_what_is_found_on_the_nodes():
    disks = filled(nodes=2)
    disks.add_node()
    for _ in range(9):
        disks.go_on()
    placement = ByPage(Ring())
    again = Disks(PageStore(ClusterView(3), placement, mover=Mover([Rebalance(placement)])), 3)
    again.held = disks.held
    again.core.load([((page,), node) for node, held in disks.held.items() for page in held])
    again.step(Timer(0))
    again.settle()
    for page in PAGES:
        assert again.copies(page) == list(placement.place(page, b"", ClusterView(3)))


# ---------------------------------------------------------------- whatever happens

STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 3), st.integers(1, 8)),
    st.tuples(st.just("read"), st.lists(st.integers(0, len(PAGES) - 1), min_size=1, max_size=6)),
    st.tuples(st.sampled_from(["fail", "revive", "leave"]), st.integers(0, 4)),
    st.tuples(st.just("add")),
    st.tuples(st.just("weigh"), st.integers(0, 2), st.sampled_from([0.5, 1.0, 2.0])),
    st.tuples(st.just("go on"), st.integers(1, 30)),
)
HISTORIES = st.lists(STEPS, max_size=40)


def happen(disks: Disks, history) -> None:
    leaving: set[int] = set()
    for name, *arguments in history:
        match name, arguments:
            case "write", (session, count):
                digests = SESSIONS[session][:count]
                disks.write(*(PageKey(digest, 0) for digest in digests), prefix=prefix_of(SESSIONS[session], 2))
            case "read", (numbers,):
                disks.read(*(PAGES[number] for number in numbers))
            case "fail", (node,) if node in disks.held:
                disks.fail(node)
            case "revive", (node,) if node in disks.held:
                disks.revive(node)
            case "leave", (node,) if node in disks.held and len(disks.held) - len(leaving) > 1:
                leaving.add(node)
                disks.leave(node)
            case "add", () if len(disks.held) < 5:
                disks.add_node()
            case "weigh", (node, weight):
                disks.core.directory.cluster.weigh({node: weight})
            case "go on", (times,):
                for _ in range(times):
                    disks.go_on()


def come_to_rest(disks: Disks) -> None:
    for node in sorted(disks.down):
        disks.revive(node)
    disks.settle()


@pytest.mark.parametrize("unit", ["page", "session"])
@pytest.mark.parametrize("name", PLACEMENTS)
@settings(max_examples=60)
@given(history=HISTORIES, seed=st.integers(0, 2**32))
def test_no_page_is_lost_or_left_behind_whatever_comes_goes_fails_and_moves(name, unit, history, seed):
    disks = world(PLACEMENTS[name](), unit=unit, seed=seed, full_share=0.1)
    happen(disks, history)
    come_to_rest(disks)
    directory = disks.core.directory
    assert {finish.op for finish in disks.finished} == set(disks.asked)
    for page in PAGES:
        assert sorted(directory.replicas(page)) == disks.copies(page)
        assert len(disks.copies(page)) <= 1
        assert page not in disks.acknowledged() or disks.core.holds(page)
    assert directory.cluster.stored == [len(disks.held[node]) for node in sorted(disks.held)]
    assert directory.cluster.in_flight == [0] * len(disks.held)
    assert not directory._readers


@settings(deadline=None, max_examples=25)
@given(history=HISTORIES, seed=st.integers(0, 2**32))
def test_the_same_history_gives_the_same_commands(history, seed):
    one, other = (world(PrefixAware(Ring()), seed=seed, hot=HotPages(HotRule(least_reads=2))) for _ in range(2))
    happen(one, history)
    happen(other, history)
    assert one.log == other.log


@settings(deadline=None, max_examples=25)
@given(history=HISTORIES, seed=st.integers(0, 2**32))
def test_with_copies_of_hot_pages_too_nothing_is_lost_or_left_behind(history, seed):
    hot = HotPages(HotRule(least_reads=2, half_life_ns=20_000))
    disks = world(ByPage(Ring()), seed=seed, hot=hot)
    happen(disks, history)
    come_to_rest(disks)
    for page in PAGES:
        assert sorted(disks.core.directory.replicas(page)) == disks.copies(page)
        assert page not in disks.acknowledged() or disks.core.holds(page)


# ---------------------------------------------------------------- pace


def copied(disks: Disks) -> list[tuple[int, int]]:
    return [
        (now_ns, PAGE_BYTES * (1 + len(command.more)))
        for now_ns, _, commands in disks.log
        for command in commands
        if isinstance(command, Copy)
    ]


def test_migration_stays_within_its_bytes_and_ends():
    disks = filled(nodes=1, budget=TokenBucket(10**6, 2 * PAGE_BYTES))
    disks.add_node()
    disks.settle()
    moved = copied(disks)
    assert len(moved) > 8
    for at, (began_ns, _) in enumerate(moved):
        for end in range(at, len(moved)):
            passed = sum(size for _, size in moved[at : end + 1])
            assert passed <= 2 * PAGE_BYTES + (moved[end][0] - began_ns) * 10**6 / 10**9 + 1
    assert all(len(disks.copies(page)) == 1 for page in PAGES)


@given(st.integers(1, 10**10), st.integers(1, 10**8), st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**8))))
def test_in_no_time_does_a_bucket_let_more_pass_than_it_may(bytes_per_s, burst_bytes, wishes):
    bucket, now_ns, passed = TokenBucket(bytes_per_s, burst_bytes), 0, []
    for wait_ns, size in wishes:
        now_ns += wait_ns
        if bucket.take(now_ns, size):
            passed.append((now_ns, size))
        else:
            assert bucket.ready_at_ns(size) > now_ns
    for at in range(len(passed)):
        total = 0
        for ended_ns, size in passed[at:]:
            total += size
            most = max(burst_bytes, *(size for _, size in passed[at:]))
            assert total <= most + bytes_per_s * (ended_ns - passed[at][0]) / 10**9 + 1


def test_migration_pauses_while_the_ttft_is_near_its_limit_and_goes_on_after():
    disks = filled(nodes=1, guard=TtftGuard(10**9, hold_ns=5 * 10**9))
    disks.step(FirstToken(950_000_000))
    paused_ns = disks.now_ns
    disks.add_node()
    assert not copied(disks)
    disks.settle()
    assert copied(disks)[0][0] >= paused_ns + 5 * 10**9


def test_migration_does_not_pause_for_a_ttft_that_is_far_from_its_limit():
    disks = filled(nodes=1, guard=TtftGuard(10**9))
    disks.step(FirstToken(500_000_000))
    disks.add_node()
    assert copied(disks)


def test_a_new_pace_holds_for_what_moves_from_then_on():
    disks = filled(nodes=1)
    disks.step(MovePace(bytes_per_s=10**6))
    disks.add_node()
    assert disks.core.is_moving
    disks.settle()
    moved = copied(disks)
    assert len(moved) == disks.core.moved_pages > 8
    assert moved[-1][0] - moved[0][0] >= (len(moved) - 1) * PAGE_BYTES * 1000
    assert not disks.core.is_moving


def test_a_new_pace_may_heed_the_ttft_or_nothing():
    disks = filled(nodes=1)
    disks.step(MovePace(ttft_limit_ns=10**9))
    disks.step(FirstToken(950_000_000))
    disks.add_node()
    assert not copied(disks) and disks.core.is_moving
    disks.step(MovePace())
    assert copied(disks)


def test_a_guard_that_holds_nothing_back_moves_nothing():
    disks = filled(nodes=2)
    disks.step(MovePace(ttft_limit_ns=10**9))
    disks.step(FirstToken(950_000_000))
    assert not disks.core.is_moving
    disks.fail(1)
    assert disks.core.is_moving  # nobody has looked yet whether there is anything to do
    disks.settle()
    assert not disks.core.is_moving and disks.core.moved_pages == 0


def test_pages_that_are_where_they_belong_since_an_epoch_are_not_looked_at_before_the_next():
    placement, cluster = ByPage(Modulo()), ClusterView(2)
    core = PageStore(cluster, placement, mover=Mover([Rebalance(placement, since=cluster.epoch)]))
    misplaced = next(page for page in PAGES if page_point(page) % 2)
    core.load([((misplaced,), 0)])
    assert core.step(0, FirstToken(1)) == []
    assert core.step(0, NodeUp(1)) == [Copy(0, 1, misplaced, 0)]
