"""Hot pages are found in a stream, get copies where there is least to do, and lose them when they have cooled."""

from collections import Counter

from disks import Disks
from hypothesis import given
from hypothesis import strategies as st

from kvbench.store.cluster import ClusterView, Role
from kvbench.store.core import PageStore
from kvbench.store.hashing import Ring
from kvbench.store.hot import HotPages, HotRule, SpaceSaving
from kvbench.store.keys import PageKey, chain
from kvbench.store.moves import Mover
from kvbench.store.placement import ByPage
from kvbench.store.rebalance import Rebalance

PAGES = [PageKey(digest, 0) for digest in chain("m", 1, 1, range(64))]
HOT = PAGES[0]


@given(st.lists(st.integers(0, 30), max_size=400), st.integers(1, 12))
def test_counts_are_never_too_low_and_too_high_by_no_more_than_their_error(stream, size):
    counters, exact = SpaceSaving(size), Counter()
    for item in stream:
        exact[item] += 1
        assert counters.add(item) <= exact[item]
    for item in range(31):
        count, error = counters.count(item)
        if count:
            assert count - error <= exact[item] <= count
            assert error <= len(stream) / size
        else:
            assert exact[item] <= len(stream) / size  # what is more frequent has a counter


@given(st.lists(st.integers(0, 5), max_size=100))
def test_with_room_for_all_the_counts_are_exact_and_halved_to_the_floor(stream):
    counters = SpaceSaving(6)
    for item in stream:
        counters.add(item)
    counters.halve()
    assert {item: counters.at_least(item) for item in range(6)} == {
        item: Counter(stream)[item] // 2 for item in range(6)
    }


def hotspot(rule: HotRule | None = None, nodes: int = 8, room: int = 1000) -> Disks:
    """Every page read once, and then one of them alone."""
    placement, hot = ByPage(Ring()), HotPages(rule)
    mover = Mover([hot, Rebalance(placement, spared=hot.replicated)])
    cluster = ClusterView(nodes, budgets={Role.KV: len(PAGES) + room})
    disks = Disks(PageStore(cluster, placement, mover=mover), nodes)
    disks.write(*PAGES)
    disks.settle()
    disks.read(*PAGES)
    for _ in range(100):
        disks.read(HOT)
    disks.settle()
    return disks


def test_a_hot_page_gets_copies_up_to_the_most_there_may_be():
    disks = hotspot(HotRule(most_copies=3))
    assert len(disks.copies(HOT)) == 3
    assert all(len(disks.copies(page)) == 1 for page in PAGES[1:])


def test_a_hot_page_gets_no_more_copies_than_there_is_room_for():
    assert len(hotspot(HotRule(most_copies=4), room=1).copies(HOT)) == 2


def test_a_page_that_is_read_a_little_more_gets_none():
    placement, hot = ByPage(Ring()), HotPages()
    disks = Disks(PageStore(ClusterView(8), placement, mover=Mover([hot])), 8)
    disks.write(*PAGES)
    for _ in range(20):
        disks.read(*PAGES, HOT)
    disks.settle()
    assert all(len(disks.copies(page)) == 1 for page in PAGES)


def test_copies_go_to_the_nodes_that_are_read_least():
    disks = hotspot(HotRule(most_copies=2))
    reads = Counter(disks.copies(page)[0] for page in PAGES[1:])
    copy = next(node for node in disks.copies(HOT) if node not in ByPage(Ring()).place(HOT, b"", ClusterView(8)))
    assert reads[copy] == min(reads[node] for node in range(8) if node not in disks.copies(HOT) or node == copy)


def test_reads_of_a_hot_page_spread_over_its_copies():
    disks = hotspot()
    before = len(disks.log)
    for _ in range(40):
        disks.read(HOT)
    asked = Counter(command.node for _, _, commands in disks.log[before:] for command in commands)
    assert set(asked) == set(disks.copies(HOT))
    assert max(asked.values()) == 10


def test_a_page_that_has_cooled_loses_its_copies_but_not_the_last_one():
    disks = hotspot(HotRule(half_life_ns=10**9))
    assert len(disks.copies(HOT)) > 1
    for second in range(1, 12):
        disks.now_ns = second * 10**9 + 1
        disks.read(*PAGES[1:])
        disks.settle()
    assert len(disks.copies(HOT)) == 1
    disks.read(HOT)
    disks.settle()
    assert disks.finished[-1].bad == ()
