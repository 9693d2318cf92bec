"""Where pages go: even shares, few moves when nodes come and go, and bounds that hold."""

from collections import Counter
from math import ceil
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.store.cluster import ClusterView, Role
from kvbench.store.hashing import BoundedLoadRing, Modulo, Rendezvous, Ring, TwoChoices
from kvbench.store.keys import PageKey, chain, prefix_of
from kvbench.store.placement import ByPage, PrefixAware, page_point

PAGES = [PageKey(digest, rank) for digest in chain("m", 1, 2, range(2000)) for rank in range(2)]
METHODS = {
    "modulo": Modulo,
    "ring": Ring,
    "bounded ring": lambda: BoundedLoadRing(Ring()),
    "rendezvous": Rendezvous,
    "two choices": TwoChoices,
}
EVERY_METHOD = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())


def place_all(hashing, cluster: ClusterView, pages=PAGES) -> dict[PageKey, int]:
    """Each page in turn, counted on its node as the core does."""
    placed = {}
    for page in pages:
        placed[page] = hashing.node(page_point(page), cluster)
        cluster.count(placed[page], 1)
    return placed


def moved_share(make_hashing, nodes: int, pages=PAGES[:800]) -> float:
    hashing, cluster = make_hashing(), ClusterView(nodes)
    before = [hashing.node(page_point(page), cluster) for page in pages]
    cluster.join(nodes)
    after = [hashing.node(page_point(page), cluster) for page in pages]
    return mean(one != other for one, other in zip(before, after, strict=True))


# ---------------------------------------------------------------- every method


@EVERY_METHOD
def test_every_node_gets_its_share(method):
    counts = Counter(place_all(method(), ClusterView(4)).values())
    assert sorted(counts) == [0, 1, 2, 3]
    assert max(counts.values()) < 1.3 * len(PAGES) / 4


@EVERY_METHOD
def test_no_node_is_chosen_when_none_takes_pages(method):
    cluster = ClusterView(2, {1: Role.CAPACITY})
    cluster.lose(0)
    assert ByPage(method()).place(PAGES[0], b"", cluster) == ()


@EVERY_METHOD
def test_a_node_that_is_down_or_about_to_leave_gets_nothing(method):
    cluster = ClusterView(4)
    cluster.lose(1)
    cluster.leave(2)
    assert set(place_all(method(), cluster).values()) == {0, 3}


@EVERY_METHOD
def test_a_page_may_stay_where_it_was_just_placed(method):
    hashing, cluster = method(), ClusterView(5)
    for page in PAGES[:300]:
        node = hashing.node(page_point(page), cluster)
        cluster.count(node, 1)
        assert hashing.keeps(page_point(page), node, cluster)


@EVERY_METHOD
def test_the_same_pages_go_to_the_same_nodes_in_every_process(method):
    assert place_all(method(), ClusterView(7)) == place_all(method(), ClusterView(7))


@pytest.mark.parametrize("method", [Ring, Rendezvous, lambda: BoundedLoadRing(Ring())])
def test_a_node_of_three_times_the_weight_gets_three_times_the_pages(method):
    cluster = ClusterView(4)
    cluster.weigh({2: 3.0})
    counts = Counter(place_all(method(), cluster).values())
    assert counts[2] == pytest.approx(len(PAGES) / 2, rel=0.15)


# ---------------------------------------------------------------- what moves


@pytest.mark.parametrize("nodes", [4, 16])
@pytest.mark.parametrize("method", [Ring, Rendezvous])
def test_a_node_that_joins_takes_its_share_and_nothing_else_moves(method, nodes):
    """In the mean of 50 seeds within 10 % of 1 ÷ (N + 1)."""
    shares = [moved_share(lambda seed=seed: method(seed.to_bytes(2, "little")), nodes) for seed in range(50)]
    assert mean(shares) == pytest.approx(1 / (nodes + 1), rel=0.1)


@pytest.mark.parametrize("nodes", [4, 16])
def test_by_modulo_nearly_every_page_moves(nodes):
    assert moved_share(Modulo, nodes, PAGES) == pytest.approx(nodes / (nodes + 1), rel=0.05)


@pytest.mark.parametrize("method", [Ring, Rendezvous])
def test_a_node_that_goes_moves_its_own_pages_alone_and_spreads_them(method):
    hashing, cluster = method(), ClusterView(4)
    before = {page: hashing.node(page_point(page), cluster) for page in PAGES}
    cluster.lose(2)
    after = {page: hashing.node(page_point(page), cluster) for page in PAGES}
    moved = {page: node for page, node in after.items() if node != before[page]}
    assert moved.keys() == {page for page, node in before.items() if node == 2}
    assert set(moved.values()) == {0, 1, 3}


def test_a_weight_that_grows_moves_pages_to_its_node_alone():
    hashing, cluster = Ring(), ClusterView(4)
    before = {page: hashing.node(page_point(page), cluster) for page in PAGES}
    cluster.weigh({1: 1.5})
    after = {page: hashing.node(page_point(page), cluster) for page in PAGES}
    assert {node for page, node in after.items() if node != before[page]} == {1}


# ---------------------------------------------------------------- bounds


@given(st.integers(1, 12), st.floats(1.01, 3), st.integers(0, 400), st.binary(max_size=4))
def test_no_node_is_above_its_bound_after_any_number_of_pages(nodes, bound, pages, seed):
    cluster = ClusterView(nodes)
    hashing = BoundedLoadRing(Ring(seed, virtual_nodes=8), bound)
    for placed, page in enumerate(PAGES[:pages], start=1):
        cluster.count(hashing.node(page_point(page), cluster), 1)
        assert max(cluster.stored) <= ceil(bound * placed / nodes)


@given(st.lists(st.floats(0.2, 5), min_size=2, max_size=6), st.integers(1, 300))
def test_with_weights_the_bound_is_each_nodes_share(weights, pages):
    cluster = ClusterView(len(weights))
    cluster.weigh(dict(enumerate(weights)))
    place_all(BoundedLoadRing(Ring(virtual_nodes=8)), cluster, PAGES[:pages])
    for node, weight in enumerate(weights):
        assert cluster.stored[node] <= ceil(1.25 * pages * weight / sum(weights) * (1 + 1e-9))


def test_two_choices_are_more_even_than_one():
    spread = {name: ClusterView(64) for name in ("ring", "two choices")}
    for name, cluster in spread.items():
        place_all(METHODS[name](), cluster)
    assert max(spread["two choices"].stored) <= len(PAGES) / 64 + 4 < max(spread["ring"].stored)


# ---------------------------------------------------------------- prefixes


def test_all_pages_of_a_prefix_go_to_one_node_and_prefixes_spread():
    placement, cluster = PrefixAware(Ring()), ClusterView(8)
    nodes = []
    for session in range(200):
        digests = chain("m", 1, 1, [session, *range(20)])
        prefix = prefix_of(digests, 4)
        placed = {placement.place(PageKey(digest, 0), prefix, cluster) for digest in digests}
        assert len(placed) == 1
        nodes += placed
    assert len(set(nodes)) == 8


def test_sessions_that_begin_alike_are_one_group_down_to_the_chosen_depth():
    one, other = chain("m", 1, 1, [1, 2, 3, 4]), chain("m", 1, 1, [1, 2, 3, 5])
    assert prefix_of(one, 3) == prefix_of(other, 3) == one[2]
    assert prefix_of(one, 4) != prefix_of(other, 4)
    assert prefix_of(one, 99) == one[-1]
    assert prefix_of((), 3) == b""


def test_a_page_whose_prefix_is_not_known_stays_where_it_is():
    placement, cluster = PrefixAware(Ring()), ClusterView(3)
    assert all(placement.keeps(PAGES[0], b"", node, cluster) for node in range(3))
    cluster.leave(1)
    assert not placement.keeps(PAGES[0], b"", 1, cluster)


def test_a_page_is_read_from_the_replica_with_the_least_to_do():
    cluster = ClusterView(4)
    cluster.in_flight[1] = 3
    assert ByPage(Ring()).route(PAGES[0], (1, 3), cluster) == 3
    assert ByPage(Ring()).route(PAGES[0], (1,), cluster) == 1
