"""Which node keeps a page, and which of its keepers is asked. Pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

from kvbench.store.cluster import ClusterView
from kvbench.store.hashing import Hashing
from kvbench.store.keys import PageKey


class Strategy(Protocol):
    """How pages are spread and read. Decides from its arguments alone, so that a run can be replayed.

    Chance is a hash of the page and the strategy's seed: compared strategies meet identical luck, in any order.
    """

    def place(self, page: PageKey, prefix: bytes, cluster: ClusterView) -> tuple[int, ...]:
        """The nodes, of `cluster.targets()`, that a new page is written to; none when there are none.

        `prefix` is the digest of the prefix that the page's session shares with others, empty where it is not known.
        """

    def keeps(self, page: PageKey, prefix: bytes, node: int, cluster: ClusterView) -> bool:
        """Whether a page may stay on `node`, or has to move to where `place` says."""

    def route(self, page: PageKey, replicas: tuple[int, ...], cluster: ClusterView) -> int:
        """The node, one of `replicas` (at least one, all of them up), that a page is read from."""


class ByPage:
    """Every page by its own hash: the pages of one session land on all nodes."""

    def __init__(self, hashing: Hashing) -> None:
        self._hashing = hashing

    def place(self, page: PageKey, prefix: bytes, cluster: ClusterView) -> tuple[int, ...]:
        node = self._hashing.node(page_point(page), cluster)
        return () if node is None else (node,)

    def keeps(self, page: PageKey, prefix: bytes, node: int, cluster: ClusterView) -> bool:
        return self._hashing.keeps(page_point(page), node, cluster)

    def route(self, page: PageKey, replicas: tuple[int, ...], cluster: ClusterView) -> int:
        return cluster.least_busy(replicas)


class PrefixAware:
    """Two levels: the prefix decides the node, and inside it the pages lie in order, to be read in few large reads.

    So all pages behind one prefix are on one node, and only the first level moves when nodes come and go. A page
    without a prefix goes by its own digest.
    Source: the two-level routing of the article on KV-cache load balancing (claims C1 and C2).
    """

    def __init__(self, hashing: Hashing) -> None:
        self._hashing = hashing

    def place(self, page: PageKey, prefix: bytes, cluster: ClusterView) -> tuple[int, ...]:
        node = self._hashing.node(prefix_point(prefix or page.digest), cluster)
        return () if node is None else (node,)

    def keeps(self, page: PageKey, prefix: bytes, node: int, cluster: ClusterView) -> bool:
        if not prefix:  # found on a node at a start: alone it would only part from its neighbours
            return node in cluster.targets()
        return self._hashing.keeps(prefix_point(prefix), node, cluster)

    def route(self, page: PageKey, replicas: tuple[int, ...], cluster: ClusterView) -> int:
        return cluster.least_busy(replicas)


def page_point(page: PageKey) -> int:
    """The page's place among all hashes: 64 bits."""
    named = page.digest + page.rank.to_bytes(4, "little")
    return int.from_bytes(blake2b(named, digest_size=8).digest(), "little")


def prefix_point(prefix: bytes) -> int:
    return int.from_bytes(blake2b(prefix, digest_size=8).digest(), "little")
