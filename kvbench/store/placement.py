"""Which node keeps a page, and which of its keepers is asked. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

from kvbench.store.keys import PageKey


@dataclass(slots=True)
class ClusterView:
    """What a strategy may look at. The core updates it in place; a strategy only reads."""

    nodes: int
    up: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.up = set(range(self.nodes))


class Strategy(Protocol):
    """How pages are spread and read. Decides from its arguments alone, so that a run can be replayed."""

    def place(self, page: PageKey, cluster: ClusterView) -> tuple[int, ...]:
        """The nodes, all of them up, that a new page is written to; none when no node is up."""

    def route(self, page: PageKey, replicas: tuple[int, ...], cluster: ClusterView) -> int:
        """The node, one of `replicas` (at least one, all of them up), that a page is read from."""


class Rendezvous:
    """Highest random weight: the node whose hash with the page is largest keeps it.

    A node that leaves moves only its own pages, and they spread evenly over the others. The page's own digest is
    hashed, so the pages of one session land on all nodes.
    Source: Thaler and Ravishankar, Using name-based mappings to increase hit rates, IEEE/ACM Trans. Networking 6(1),
    1998.
    """

    def place(self, page: PageKey, cluster: ClusterView) -> tuple[int, ...]:
        return (self._heaviest(page, cluster.up),) if cluster.up else ()

    def route(self, page: PageKey, replicas: tuple[int, ...], cluster: ClusterView) -> int:
        return self._heaviest(page, replicas)

    def _heaviest(self, page: PageKey, nodes: set[int] | tuple[int, ...]) -> int:
        return max(nodes, key=lambda node: (_weight(page, node), node))


def _weight(page: PageKey, node: int) -> bytes:
    named = page.digest + page.rank.to_bytes(4, "little") + node.to_bytes(4, "little")
    return blake2b(named, digest_size=8).digest()
