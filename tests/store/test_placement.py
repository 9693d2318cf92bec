"""Rendezvous hashing spreads pages evenly, and moves no more of them than it must."""

from collections import Counter

from kvbench.store.keys import PageKey, chain
from kvbench.store.placement import ClusterView, Rendezvous

PAGES = [PageKey(digest, rank) for digest in chain("m", 1, 2, range(2000)) for rank in range(2)]


def placed(cluster: ClusterView) -> dict[PageKey, int]:
    return {page: Rendezvous().place(page, cluster)[0] for page in PAGES}


def test_every_node_gets_its_share():
    counts = Counter(placed(ClusterView(4)).values())
    assert sorted(counts) == [0, 1, 2, 3]
    assert all(900 < count < 1100 for count in counts.values())  # 1000 ± 3.6 standard deviations


def test_a_node_that_leaves_moves_its_own_pages_alone_and_spreads_them():
    cluster = ClusterView(4)
    before = placed(cluster)
    cluster.up.discard(2)
    moved = {page: node for page, node in placed(cluster).items() if node != before[page]}
    assert moved.keys() == {page for page, node in before.items() if node == 2}
    assert set(moved.values()) == {0, 1, 3}


def test_no_node_is_chosen_when_none_is_up():
    cluster = ClusterView(1)
    cluster.up.clear()
    assert Rendezvous().place(PAGES[0], cluster) == ()


def test_a_page_is_read_from_one_of_its_replicas():
    nodes = {Rendezvous().route(page, (1, 3), ClusterView(4)) for page in PAGES[:100]}
    assert nodes == {1, 3}
