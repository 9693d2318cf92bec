"""Which nodes hold a page, which group it belongs to, and who is reading it there. Pure."""

from __future__ import annotations

from kvbench.store.cluster import ClusterView
from kvbench.store.keys import PageKey
from kvbench.store.layout import Layout


class Directory:
    """The pages of a cluster. Counts them on its nodes."""

    def __init__(self, cluster: ClusterView) -> None:
        self.cluster = cluster
        self.layout = Layout()
        self._nodes: dict[PageKey, tuple[int, ...]] = {}
        self._prefixes: dict[PageKey, bytes] = {}
        self._readers: dict[tuple[PageKey, int], int] = {}

    def add(self, page: PageKey, node: int) -> None:
        nodes = self._nodes.get(page, ())
        if node not in nodes:
            self._nodes[page] = (*nodes, node)
            self.cluster.count(node, 1)

    def discard(self, page: PageKey, node: int) -> None:
        """Forget a copy; with the last one the page is forgotten."""
        nodes = self._nodes.get(page, ())
        if node not in nodes:
            return
        self.cluster.count(node, -1)
        self.layout.forget(node, page)
        if len(nodes) > 1:
            self._nodes[page] = tuple(other for other in nodes if other != node)
        else:
            del self._nodes[page]
            self._prefixes.pop(page, None)

    def group(self, page: PageKey, prefix: bytes) -> None:
        """The page belongs to the sessions with this prefix: the first that wrote it."""
        self._prefixes.setdefault(page, prefix)

    def prefix(self, page: PageKey) -> bytes:
        return self._prefixes.get(page, b"")

    def pages(self) -> list[PageKey]:
        return list(self._nodes)

    def replicas(self, page: PageKey) -> tuple[int, ...]:
        """The nodes that hold a page, those among them that are down too."""
        return self._nodes.get(page, ())

    def live(self, page: PageKey) -> tuple[int, ...]:
        """The nodes that a page can be read from."""
        nodes = self._nodes.get(page, ())
        up = self.cluster.up
        if len(nodes) == 1:
            return nodes if nodes[0] in up else ()
        return tuple(node for node in nodes if node in up)

    # ------------------------------------------------------------ readers

    def begin_read(self, page: PageKey, node: int) -> None:
        copy = page, node
        self._readers[copy] = self._readers.get(copy, 0) + 1

    def end_read(self, page: PageKey, node: int) -> None:
        copy = page, node
        left = self._readers[copy] - 1
        if left:
            self._readers[copy] = left
        else:
            del self._readers[copy]

    def is_read(self, page: PageKey, node: int) -> bool:
        """Whether a read of this copy is queued or under way: it must not be deleted then."""
        return (page, node) in self._readers
