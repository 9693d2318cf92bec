"""Two tiers of storage: what is written where, what goes down, what comes up, and budgets that hold."""

import pytest
from disks import Disks
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.store.cluster import ClusterView, Role
from kvbench.store.core import PageStore, Status
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


def tiers(flash_pages=10, capacity_pages=20, *, policy=Lru, nodes=3, seed=0, **options) -> Disks:
    cluster = ClusterView(
        nodes, dict.fromkeys(range(2, nodes), Role.CAPACITY), {Role.KV: flash_pages, Role.CAPACITY: capacity_pages}
    )
    flash = ByPage(Ring())
    mover = Mover([Tiering(flash, policy(), Lru(), free_pages=2, **options), Rebalance(flash)])
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


def test_a_page_that_is_hit_below_comes_up_with_those_that_follow_it():
    disks = tiers(flash_pages=4, prefetch_pages=2)
    disks.write(*PAGES[:4])
    disks.settle()
    disks.write(*PAGES[10:14])
    disks.settle()
    below = on(disks, CAPACITY)
    page = next(page for page in PAGES if page in below)
    follows = disks.core.directory.layout.following(2, page, 1)
    disks.read(page)
    disks.settle()
    assert {page, *follows} <= on(disks, FLASH)
    assert all(len(disks.copies(other)) == 1 for other in (*PAGES[:4], *PAGES[10:14]))


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


STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "read"]), st.lists(st.integers(0, 39), min_size=1, max_size=6, unique=True))
    | st.tuples(st.just("go on"), st.integers(1, 20))
    | st.tuples(st.sampled_from(["fail", "revive"]), st.integers(0, 3)),
    max_size=50,
)


@pytest.mark.parametrize("policy", [Lru, Lfu, lambda: S3Fifo(10)], ids=["LRU", "LFU", "S3-FIFO"])
@settings(deadline=None, max_examples=100)
@given(steps=STEPS, seed=st.integers(0, 2**32))
def test_no_tier_ever_holds_more_than_its_budget_and_nothing_is_left_behind(policy, steps, seed):
    disks = tiers(10, 12, policy=policy, nodes=4, seed=seed, prefetch_pages=1)
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
