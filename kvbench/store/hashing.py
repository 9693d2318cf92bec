"""From a hash to a node: the methods that are compared. Pure.

Each looks at the cluster's targets, weights and stored pages, and keeps what it has computed from the first two until
they change. A point is a 64-bit hash, evenly spread; `seed` shifts the nodes' points against it. Cost per point:
O(1) modulo and two choices, O(log n) rings, O(n) rendezvous (vectorised).
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from hashlib import blake2b
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvbench.store.cluster import ClusterView

_POINT_BYTES = 8
_POINTS_PER_HASH = 8  # BLAKE2b gives 64 bytes at a time


class Hashing(Protocol):
    """A method that gives every point a node."""

    def node(self, point: int, cluster: ClusterView) -> int | None:
        """The node of a point, one of `cluster.targets()`; None when there are none."""

    def keeps(self, point: int, node: int, cluster: ClusterView) -> bool:
        """Whether a page at this point that lies on `node` may stay there, or has to move to `self.node(point)`."""


class Modulo:
    """The static hash: point mod n. Nearly every page has another node when n changes. The baseline of the articles."""

    def node(self, point: int, cluster: ClusterView) -> int | None:
        targets = cluster.targets()
        return targets[point % len(targets)] if targets else None

    def keeps(self, point: int, node: int, cluster: ClusterView) -> bool:
        return node == self.node(point, cluster)


class Ring:
    """Consistent hashing: each node has points on a ring, and a page belongs to the next one.

    A node has `virtual_nodes` × its weight points, so that shares are even, and what leaves one spreads over all.
    Source: Karger et al., Consistent hashing and random trees, STOC 1997; weights by the number of virtual nodes:
    DeCandia et al., Dynamo, SOSP 2007.
    """

    def __init__(self, seed: bytes = b"", virtual_nodes: int = 128) -> None:
        self._seed, self._virtual_nodes = seed, virtual_nodes
        self._node_points: dict[int, list[int]] = {}
        self._built_for: tuple[ClusterView, int] | None = None
        self._points: list[int] = []
        self._owners: list[int] = []

    def node(self, point: int, cluster: ClusterView) -> int | None:
        self._build(cluster)
        if not self._owners:
            return None
        return self._owners[bisect(self._points, point) % len(self._owners)]

    def keeps(self, point: int, node: int, cluster: ClusterView) -> bool:
        return node == self.node(point, cluster)

    def walk(self, point: int, cluster: ClusterView) -> Iterator[int]:
        """The owners of the points from here on, once around; a node comes as often as it has points."""
        self._build(cluster)
        start = bisect(self._points, point)
        for step in range(len(self._owners)):
            yield self._owners[(start + step) % len(self._owners)]

    def _build(self, cluster: ClusterView) -> None:
        if self._built_for == (cluster, cluster.epoch):
            return
        self._built_for = cluster, cluster.epoch
        pairs = sorted(
            (point, node)
            for node in cluster.targets()
            for point in self._points_of(node, max(1, round(self._virtual_nodes * cluster.weights[node])))
        )
        self._points = [point for point, _ in pairs]
        self._owners = [node for _, node in pairs]

    def _points_of(self, node: int, count: int) -> list[int]:
        """The first `count` points of a node: a weight that grows adds points, and moves none."""
        points = self._node_points.setdefault(node, [])
        while len(points) < count:
            points += _hashes(self._seed, node, len(points) // _POINTS_PER_HASH)
        return points[:count]


class BoundedLoadRing:
    """A ring on which no node takes more than `bound` × its fair share of all pages: the next one with room does.

    When page m is placed, its node holds at most ⌈bound · m · weight ÷ weights⌉ pages, this one among them.
    Source: Mirrokni, Thorup and Zadimoghaddam, Consistent hashing with bounded loads, SODA 2018.
    """

    def __init__(self, ring: Ring, bound: float = 1.25) -> None:
        self._ring, self._bound = ring, bound

    def node(self, point: int, cluster: ClusterView) -> int | None:
        pages = cluster.target_pages + 1
        first = self._ring.node(point, cluster)
        if first is None or self._room(first, pages, cluster) > 0:
            return first
        return next(node for node in self._ring.walk(point, cluster) if self._room(node, pages, cluster) > 0)

    def keeps(self, point: int, node: int, cluster: ClusterView) -> bool:
        """A page stays where it is while its node is not over the bound, and none before it on the ring has room."""
        for passed in self._ring.walk(point, cluster):
            room = self._room(passed, cluster.target_pages, cluster)
            if passed == node:
                return room >= 0
            if room > 0:
                return False
        return False

    def _room(self, node: int, pages: int, cluster: ClusterView) -> int:
        """What fits on a node when there are `pages` in all: some node takes one more, for the bounds exceed them."""
        share = self._bound * pages / cluster.target_weight
        return ceil(share * cluster.weights[node]) - cluster.stored[node]


class Rendezvous:
    """Highest random weight: of all nodes, the one with the lowest −ln(hash(node, point)) ÷ weight.

    A node that leaves moves only its own pages, and they spread over the others by weight.
    Source: Thaler and Ravishankar, Using name-based mappings to increase hit rates, IEEE/ACM Trans. Networking 6(1),
    1998; weights: Schindelhauer and Schomaker, Weighted distributed hash tables, SPAA 2005 (the logarithmic method).
    """

    def __init__(self, seed: bytes = b"") -> None:
        self._seed = seed
        self._built_for: tuple[ClusterView, int] | None = None
        self._hashes: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._weights: NDArray[np.float64] = np.empty(0)

    def node(self, point: int, cluster: ClusterView) -> int | None:
        targets = cluster.targets()
        if not targets:
            return None
        if self._built_for != (cluster, cluster.epoch):
            self._built_for = cluster, cluster.epoch
            self._hashes = np.array([_hashes(self._seed, node, 0)[0] for node in targets], dtype=np.uint64)
            self._weights = np.array([cluster.weights[node] for node in targets])
        uniform = (_mix(self._hashes ^ np.uint64(point)).astype(np.float64) + 1.0) / 2.0**64
        return targets[int(np.argmin(-np.log(uniform) / self._weights))]

    def keeps(self, point: int, node: int, cluster: ClusterView) -> bool:
        return node == self.node(point, cluster)


class TwoChoices:
    """Of two nodes that the point names, the one that holds fewer pages for its weight.

    The fullest node is then above the mean by O(log log n) pages, however many there are: the reference for balance.
    What it costs: a page may be in two places, so where it is has to be remembered.
    Source: Mitzenmacher, The power of two choices in randomized load balancing, IEEE Trans. Parallel and Distributed
    Systems 12(10), 2001.
    """

    def node(self, point: int, cluster: ClusterView) -> int | None:
        choices = self._choices(point, cluster)
        return min(choices, key=lambda node: cluster.stored[node] / cluster.weights[node], default=None)

    def keeps(self, point: int, node: int, cluster: ClusterView) -> bool:
        return node in self._choices(point, cluster)

    def _choices(self, point: int, cluster: ClusterView) -> tuple[int, ...]:
        targets = cluster.targets()
        if not targets:
            return ()
        return targets[(point & 0xFFFFFFFF) % len(targets)], targets[(point >> 32) % len(targets)]


def _hashes(seed: bytes, node: int, number: int) -> list[int]:
    """Eight points of a node."""
    named = node.to_bytes(4, "little") + number.to_bytes(4, "little")
    digest = blake2b(named, key=seed, digest_size=_POINTS_PER_HASH * _POINT_BYTES).digest()
    return [int.from_bytes(digest[at : at + _POINT_BYTES], "little") for at in range(0, len(digest), _POINT_BYTES)]


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea and Flood, Fast splittable pseudorandom generators, 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
