"""Two tiers of storage: what is written where, what goes down, what comes up, and budgets that hold."""

import pytest
from disks import Disks
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.store.cluster import ClusterView, Role
from kvbench.store.core import Copy, PageStore, Status
from kvbench.store.hashing import Ring
from kvbench.store.keys import PageKey, chain
from kvbench.store.moves import Mover
from kvbench.store.placement import ByPage
from kvbench.store.policy import Lfu, Lru, S3Fifo
from kvbench.store.queues import Queues
from kvbench.store.rebalance import Rebalance
from kvbench.store.tiering import Tiered, Tiering

PAGES = [PageKey(digest, 0) for digest in chain("m", 1, 1, range(40))]
FLASH, CAPACITY = (0, 1), (2,)


def tiers(
    flash_pages=10, capacity_pages=20, *, policy=Lru, flash_nodes=2, below=1, seed=0, rebalances=True, **options
) -> Disks:
    nodes = flash_nodes + below
    budgets = {Role.KV: flash_pages, Role.CAPACITY: capacity_pages}
    cluster = ClusterView(nodes, dict.fromkeys(range(flash_nodes, nodes), Role.CAPACITY), budgets)
    flash = ByPage(Ring())
    tiering = Tiering(flash, policy(), Lru(), free_pages=2, **options)
    mover = Mover([tiering, Rebalance(flash)] if rebalances else [tiering])
    return Disks(PageStore(cluster, Tiered(flash), queues=Queues(run_pages=4), mover=mover), nodes, seed)


def on(disks: Disks, nodes) -> set[PageKey]:
    return {page for node in nodes for page in disks.held[node]}


def test_what_is_used_least_recently_goes_down_and_room_is_kept_free():
    disks = tiers()
    disks.write(*PAGES[:8])
    disks.settle()
    assert on(disks, FLASH) == set(PAGES[:8])
    disks.read(PAGES[0])
    disks.settle()
    disks.write(*PAGES[8:10])
    disks.settle()
    assert len(on(disks, FLASH)) == 8
    assert PAGES[0] in on(disks, FLASH)
    assert len(on(disks, CAPACITY)) == 2


def test_what_the_flash_tier_has_no_room_for_is_written_below_and_what_neither_has_fails():
    disks = tiers(flash_pages=4, capacity_pages=6)
    disks.write(*PAGES[:12])
    assert sum(len(command.more) + 1 for command in disks.in_flight.values() if command.node in FLASH) == 4
    disks.settle()
    (finish,) = disks.finished
    assert finish.bad == tuple(PAGES[10:12])
    assert finish.status is Status.EIO


SESSIONS = {b"one": PAGES[:8], b"two": PAGES[10:18]}


def two_sessions(**options) -> Disks:
    """Two sessions of eight pages, then pages of others one by one until the flash node has lost the first session."""
    disks, others = tiers(20, 40, flash_nodes=1, **options), iter(PAGES[20:])
    for prefix, pages in SESSIONS.items():
        disks.write(*pages, prefix=prefix)
        disks.settle()
    while set(SESSIONS[b"one"]) & on(disks, (0,)):
        disks.write(next(others), prefix=b"others")
        disks.settle()
    return disks


def copies(disks: Disks, node: int) -> list[tuple[PageKey, ...]]:
    commands = [command for _, _, commands in disks.log for command in commands]
    return [(copy.page, *copy.more) for copy in commands if isinstance(copy, Copy) and copy.node == node]


def test_the_pages_of_a_session_go_down_together_and_can_be_read_in_one_io_there():
    alone, together = two_sessions(), two_sessions(batch_pages=8)
    assert max(map(len, copies(alone, 1))) == 1
    assert max(map(len, copies(together, 1))) == 8
    below = {disks: disks.core.directory.layout.runs(1, SESSIONS[b"one"], 8) for disks in (alone, together)}
    assert len(below[alone]) == 8
    assert len(below[together]) == 1


def test_no_run_mixes_sessions():
    runs = copies(two_sessions(batch_pages=6), 1)
    assert {len(set(run) & set(SESSIONS[b"one"])) for run in runs} == {6, 2, 0}
    assert all(len({page in SESSIONS[b"one"] for page in run}) == 1 for run in runs)


@pytest.mark.parametrize(("batch_pages", "come_up"), [(1, 1), (8, 3)])
def test_a_page_that_is_hit_below_brings_those_that_follow_it_if_they_lie_there_together(batch_pages, come_up):
    disks = two_sessions(batch_pages=batch_pages, prefetch_pages=2)
    first = SESSIONS[b"one"][0]
    disks.read(first)
    disks.settle()
    (run,) = [run for run in copies(disks, 0) if first in run]
    assert len(run) == come_up
    assert all(len(disks.copies(page)) == 1 for pages in SESSIONS.values() for page in pages)


def test_a_page_comes_up_at_the_hit_that_it_takes():
    disks = tiers(flash_pages=4, promote_after=2)
    disks.write(*PAGES[:8])
    disks.settle()
    page = next(page for page in PAGES if page in on(disks, CAPACITY))
    disks.read(page)
    disks.settle()
    assert page in on(disks, CAPACITY)
    disks.read(page)
    disks.settle()
    assert page in on(disks, FLASH)


def test_each_hit_is_counted_at_the_tier_that_it_was_read_from():
    disks = tiers(flash_pages=6)
    disks.write(*PAGES[:10])
    disks.settle()
    flash = len(on(disks, FLASH))
    disks.read(*PAGES[:10])
    disks.settle()
    assert disks.core.read_pages == {Role.KV: flash, Role.CAPACITY: 10 - flash, Role.CHECKPOINT: 0}


def test_when_both_tiers_are_full_the_oldest_below_is_given_up():
    disks = tiers(flash_pages=6, capacity_pages=6)
    for number in range(0, 40, 2):
        disks.write(*PAGES[number : number + 2])
        disks.settle()
    assert set(PAGES[-4:]) <= on(disks, FLASH)
    assert not any(disks.core.holds(page) for page in PAGES[:20])
    assert len(on(disks, (*FLASH, *CAPACITY))) >= 6


def test_pages_of_a_flash_node_that_was_down_can_go_again_when_it_is_back():
    disks = tiers()
    disks.write(*PAGES[:8])
    disks.settle()
    away = set(on(disks, (0,)))
    disks.fail(0)
    disks.write(*PAGES[10:14])  # room is looked for among all pages
    disks.settle()
    disks.revive(0)
    for page in PAGES[14:30]:
        disks.write(page)
        disks.settle()
    assert away
    assert not away & on(disks, FLASH)
    assert set(PAGES[-12:-10]) <= on(disks, FLASH)


def test_pages_that_were_on_their_way_down_when_their_node_failed_go_when_it_is_back():
    disks = tiers(flash_nodes=1, batch_pages=4)
    disks.write(*PAGES[:9])
    while not any(isinstance(command, Copy) for command in disks.in_flight.values()):
        disks.go_on()
    disks.fail(0)
    disks.settle()
    assert on(disks, (0,)) == set(PAGES[:9]), "none has gone down"
    disks.revive(0)
    for page in PAGES[20:36]:
        disks.write(page)
        disks.settle()
    assert not set(PAGES[:9]) & on(disks, (0,))


@pytest.mark.parametrize("rebalances", [True, False])
def test_pages_that_were_written_again_while_their_node_was_down_end_up_below_once(rebalances):
    disks = tiers(rebalances=rebalances)
    disks.write(*PAGES[:8])
    disks.settle()
    away = sorted(on(disks, (0,)))
    disks.fail(0)
    disks.write(*away)  # as far as flash has room, and then below
    disks.settle()
    disks.revive(0)
    for page in PAGES[14:26]:
        disks.write(page)
        disks.settle()
    assert len(away) > 2
    assert [disks.copies(page) for page in away] == [list(CAPACITY)] * len(away)


STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "read"]), st.lists(st.integers(0, 39), min_size=1, max_size=6, unique=True))
    | st.tuples(st.just("go on"), st.integers(1, 20))
    | st.tuples(st.sampled_from(["fail", "revive"]), st.integers(0, 3)),
    max_size=50,
)


@pytest.mark.parametrize("policy", [Lru, Lfu, lambda: S3Fifo(10)], ids=["LRU", "LFU", "S3-FIFO"])
@settings(deadline=None, max_examples=100)
@given(steps=STEPS, seed=st.integers(0, 2**32), batch=st.sampled_from([1, 3, 8]))
def test_no_tier_ever_holds_more_than_its_budget_and_nothing_is_left_behind(policy, steps, seed, batch):
    order = policy()
    disks = tiers(10, 12, policy=lambda: order, below=2, seed=seed, batch_pages=batch, prefetch_pages=1)
    for step, argument in steps:
        if step == "go on":
            for _ in range(argument):
                disks.go_on()
        elif step in ("fail", "revive"):
            getattr(disks, step)(argument)
        else:
            disks.ask(step, *(PAGES[number] for number in argument))
        assert sum(len(disks.held[node]) for node in (0, 1)) <= 10
        assert sum(len(disks.held[node]) for node in (2, 3)) <= 12
    for node in sorted(disks.down):
        disks.revive(node)
    disks.settle()
    for page in PAGES:
        assert sorted(disks.core.directory.replicas(page)) == disks.copies(page)
        assert len(disks.copies(page)) <= 1
    assert disks.core.directory.cluster.stored == [len(disks.held[node]) for node in range(4)]
    assert all(page in order for page in on(disks, FLASH)), "a page that never goes takes its room for good"
