"""Pages that are read more than a node can stand, found and given more copies. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container, Hashable
from dataclasses import dataclass
from math import ceil
from typing import Generic, TypeVar

from kvbench.store.cluster import Role
from kvbench.store.directory import Directory
from kvbench.store.keys import PageKey
from kvbench.store.moves import Drop, Move, MoveSource

_Item = TypeVar("_Item", bound=Hashable)


class SpaceSaving(Generic[_Item]):
    """The most frequent items of a stream, in `size` counters, O(1) for each item.

    A count is never too low, and too high by at most `error`, which is at most the stream's length ÷ `size`.
    Source: Metwally, Agrawal and El Abbadi, Efficient computation of frequent and top-k elements in data streams,
    ICDT 2005 (the stream summary: counters in buckets of equal count).
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._counts: dict[_Item, tuple[int, int]] = {}  # count, error
        self._buckets: dict[int, OrderedDict[_Item, None]] = {}
        self._least = 0

    def add(self, item: _Item) -> int:
        """Count an item; returns how often it has come at least."""
        if item in self._counts:
            count, error = self._remove(item)
        elif len(self._counts) < self._size:
            count = error = 0
        else:
            count, _ = self._remove(next(iter(self._buckets[self._least])))
            error = count
        self._insert(item, count + 1, error)
        return count + 1 - error

    def at_least(self, item: _Item) -> int:
        """How often an item has come at least; 0 for one that has no counter."""
        count, error = self._counts.get(item, (0, 0))
        return count - error

    def count(self, item: _Item) -> tuple[int, int]:
        """An item's count, and by how much it may be too high."""
        return self._counts.get(item, (0, 0))

    def halve(self) -> None:
        """Forget half of every count, and the items of which nothing is left. O(size)."""
        halved = {item: (count // 2, error // 2) for item, (count, error) in self._counts.items()}
        self._counts, self._buckets, self._least = {}, {}, 0
        for item, (count, error) in halved.items():
            if count:
                self._insert(item, count, error)

    def _insert(self, item: _Item, count: int, error: int) -> None:
        self._counts[item] = count, error
        self._buckets.setdefault(count, OrderedDict())[item] = None
        if len(self._counts) == 1 or count < self._least:
            self._least = count

    def _remove(self, item: _Item) -> tuple[int, int]:
        """Take out an item that will come back with a count one higher, or make room for one that does."""
        count, error = self._counts.pop(item)
        bucket = self._buckets[count]
        del bucket[item]
        if not bucket:
            del self._buckets[count]
            if count == self._least:
                self._least = count + 1
        return count, error


@dataclass(frozen=True, slots=True)
class HotRule:
    """`share`: a page gets as many copies as keep each below this share of the reads that an average node has."""

    share: float = 0.5
    most_copies: int = 4
    counters: int = 1024
    half_life_ns: int = 10 * 10**9
    least_reads: int = 16  # before that a page is not called hot


class HotPages(MoveSource):
    """Copies hot pages to the nodes that have been read least, and takes copies away when they are hot no more.

    Reads are counted in half-lives: at the end of each, all counts are halved. A copy goes when even with half the
    reads' share it would not be wanted, so that a page at the border does not come and go.
    Source: the hotspot replication of the article on KV-cache load balancing (claim C4).
    """

    def __init__(self, rule: HotRule | None = None) -> None:
        self._rule = rule or HotRule()
        self.replicated: dict[PageKey, None] = {}  # pages with more copies than one; `Rebalance` spares them
        self._counters: SpaceSaving[PageKey] = SpaceSaving(self._rule.counters)
        self._reads: dict[int, int] = {}  # of each node
        self._all_reads = 0
        self._hot: deque[PageKey] = deque()
        self._cooled: deque[PageKey] = deque()
        self._asked: set[PageKey] = set()
        self._halves_at_ns: int | None = None

    def read(self, now_ns: int, page: PageKey, node: int, directory: Directory) -> None:
        if self._halves_at_ns is None:
            self._halves_at_ns = now_ns + self._rule.half_life_ns
        elif now_ns >= self._halves_at_ns:
            self._halves_at_ns = now_ns + self._rule.half_life_ns
            self._halve(directory)
        self._reads[node] = self._reads.get(node, 0) + 1
        self._all_reads += 1
        reads = self._counters.add(page)
        if reads < self._rule.least_reads or page in self._asked:
            return
        if self._wanted(reads, self._rule.share, directory) > len(directory.live(page)):
            self._ask(page)

    def stored(self, page: PageKey, node: int, directory: Directory) -> None:
        """A page that has got one copy more may want another one."""
        if page in self.replicated and page not in self._asked:
            self._ask(page)

    def next(self, now_ns: int, directory: Directory, busy: Container[PageKey]) -> Move | Drop | None:
        while self._cooled:
            page = self._cooled.popleft()
            if page not in busy and (live := directory.live(page)) and len(live) > 1:
                return Drop(page, max(live[1:], key=lambda node: self._reads.get(node, 0)))
        for _ in range(len(self._hot)):
            page = self._hot.popleft()
            if page in busy:
                self._hot.append(page)
                continue
            self._asked.discard(page)
            if move := self._copy(page, directory):
                self.replicated[page] = None
                return move
        return None

    def _ask(self, page: PageKey) -> None:
        self._asked.add(page)
        self._hot.append(page)

    def _copy(self, page: PageKey, directory: Directory) -> Move | None:
        live, holders = directory.live(page), directory.replicas(page)
        others = [node for node in directory.cluster.targets() if node not in holders]
        wanted = self._wanted(self._counters.at_least(page), self._rule.share, directory)
        if not live or not others or len(live) >= wanted or directory.cluster.room(Role.KV) < 1:
            return None
        target = min(others, key=lambda node: (self._reads.get(node, 0), directory.cluster.stored[node], node))
        return Move((page,), directory.cluster.least_busy(live), target, keeps_source=True)

    def _wanted(self, reads: int, share: float, directory: Directory) -> int:
        """How many copies a page should have that has been read so often."""
        per_node = self._all_reads / max(1, len(directory.cluster.targets()))
        return min(self._rule.most_copies, max(1, ceil(reads / (share * per_node))))

    def _halve(self, directory: Directory) -> None:
        self._counters.halve()
        self._all_reads //= 2
        self._reads = {node: reads // 2 for node, reads in self._reads.items()}
        for page in list(self.replicated):
            copies = len(directory.live(page))
            if copies < 2:
                del self.replicated[page]
            elif not self._all_reads or copies > self._wanted(
                self._counters.at_least(page), self._rule.share / 2, directory
            ):
                self._cooled.append(page)
