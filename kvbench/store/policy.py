"""Which page goes when room is needed: the policies of every tier, in memory and on storage. Pure.

A policy orders the pages that may go. `insert` and `hit` are told to it, `evict` asks it; `remove` takes a page out of
the order that must not go (it is in use, or has gone without being asked for). What it knows of a page it forgets
with `evict` alone, so that a page that was in use takes up its place again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappop, heappush
from math import log2
from typing import Protocol

Page = Hashable


class Policy(Protocol):
    def insert(self, page: Page) -> None:
        """A page may go from now on: it has come, or is not in use any more."""

    def hit(self, page: Page) -> None:
        """A page that may go has been used."""

    def remove(self, page: Page) -> None:
        """A page must not go any more."""

    def evict(self) -> Page:
        """The page that goes first of those that may; it is forgotten. Raises KeyError when none may."""

    def __len__(self) -> int:
        """How many pages may go."""

    def __contains__(self, page: Page) -> bool:
        """Whether a page may go."""


class Lru:
    """The page that has not been used for longest."""

    def __init__(self) -> None:
        self._order: OrderedDict[Page, None] = OrderedDict()

    def insert(self, page: Page) -> None:
        self._order[page] = None

    def hit(self, page: Page) -> None:
        self._order.move_to_end(page)

    def remove(self, page: Page) -> None:
        del self._order[page]

    def evict(self) -> Page:
        return self._order.popitem(last=False)[0]

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, page: Page) -> bool:
        return page in self._order


class _Ranked:
    """Pages by a rank, lowest first; of equals, the one that got its rank first. A heap with stale entries."""

    def __init__(self) -> None:
        self._ranks: dict[Page, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, Page]] = []
        self._sequence = 0

    def rank(self, page: Page, rank: float) -> None:
        self._sequence += 1
        self._ranks[page] = rank, self._sequence
        heappush(self._heap, (rank, self._sequence, page))
        if len(self._heap) > 64 + 4 * len(self._ranks):
            self._heap = sorted((*order, page) for page, order in self._ranks.items())

    def move(self, page: Page, other: _Ranked) -> None:
        """To another order, under the same rank."""
        rank, _ = self._ranks.pop(page)
        other.rank(page, rank)

    def remove(self, page: Page) -> None:
        del self._ranks[page]

    def pop(self) -> Page:
        while self._heap:
            rank, sequence, page = heappop(self._heap)
            if self._ranks.get(page) == (rank, sequence):
                del self._ranks[page]
                return page
        raise KeyError("no page may go")

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, page: Page) -> bool:
        return page in self._ranks


class Lfu:
    """The page that has been used least often since it came; of equals, the one that was used first."""

    def __init__(self) -> None:
        self._uses: dict[Page, int] = {}
        self._order = _Ranked()

    def insert(self, page: Page) -> None:
        self.hit(page)

    def hit(self, page: Page) -> None:
        self._uses[page] = self._uses.get(page, 0) + 1
        self._order.rank(page, self._uses[page])

    def remove(self, page: Page) -> None:
        self._order.remove(page)

    def evict(self) -> Page:
        page = self._order.pop()
        del self._uses[page]
        return page

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, page: Page) -> bool:
        return page in self._order


class S3Fifo:
    """Three queues: newcomers pass through a small one, what was used there more than once gets into the main one.

    What falls out of the small queue leaves its name in a ghost queue as long as the main one; if it comes back soon,
    it goes to the main queue at once. In the main queue each use, up to 3, buys another round. Until something has
    gone, the main queue takes what the small one, a tenth of all, has no room for. `capacity` is in pages.
    Source: Yang et al., FIFO queues are all you need for cache eviction, SOSP 2023; the start as in their libCacheSim.
    """

    def __init__(self, capacity: int) -> None:
        self._small_share = capacity // 10
        self._main_share = capacity - self._small_share
        self._small: OrderedDict[Page, None] = OrderedDict()
        self._main: OrderedDict[Page, None] = OrderedDict()
        self._ghosts: OrderedDict[Page, None] = OrderedDict()
        self._uses: dict[Page, int] = {}
        self._promoted: set[Page] = set()  # those that belong into the main queue, in it or in use
        self._has_evicted = False

    def insert(self, page: Page) -> None:
        if page in self._uses:  # it was in use
            self._uses[page] += 1
        else:
            self._uses[page] = 0
            is_small_full = len(self._small) >= self._small_share
            if page in self._ghosts or (is_small_full and not self._has_evicted):
                self._ghosts.pop(page, None)
                self._promoted.add(page)
        (self._main if page in self._promoted else self._small)[page] = None

    def hit(self, page: Page) -> None:
        self._uses[page] += 1

    def remove(self, page: Page) -> None:
        del (self._main if page in self._promoted else self._small)[page]

    def evict(self) -> Page:
        self._has_evicted = True
        if len(self._main) <= self._main_share:
            while self._small:
                page, _ = self._small.popitem(last=False)
                if self._uses[page] < 2:
                    self._remember(page)
                    return self._forget(page)
                self._promoted.add(page)
                self._uses[page] = 0
                self._main[page] = None
        while True:
            page, _ = self._main.popitem(last=False)
            if not self._uses[page]:
                return self._forget(page)
            self._uses[page] = min(3, self._uses[page]) - 1
            self._main[page] = None

    def _remember(self, page: Page) -> None:
        self._ghosts[page] = None
        while len(self._ghosts) > self._main_share:
            self._ghosts.popitem(last=False)

    def _forget(self, page: Page) -> Page:
        del self._uses[page]
        self._promoted.discard(page)
        return page

    def __len__(self) -> int:
        return len(self._small) + len(self._main)

    def __contains__(self, page: Page) -> bool:
        return page in self._small or page in self._main


class Heat:
    """The page with the lowest heat: its uses, each halved for every `half_life_uses` uses of any page since.

    Compared without touching pages that rest: a use at time t adds 2^(t ÷ half-life), and only the sums are compared,
    as logarithms. Source: forward decay, Cormode et al., ICDE 2009; LRFU, Lee et al., SIGMETRICS 1999.
    """

    def __init__(self, half_life_uses: int) -> None:
        self._half_life_uses = half_life_uses
        self._heat: dict[Page, float] = {}  # log2 of the sum
        self._order = _Ranked()
        self._now = 0

    def insert(self, page: Page) -> None:
        self.hit(page)

    def hit(self, page: Page) -> None:
        self._now += 1
        added = self._now / self._half_life_uses
        held = self._heat.get(page)
        self._heat[page] = added if held is None else added + log2(1 + 2.0 ** max(held - added, -1000.0))
        self._order.rank(page, self._heat[page])

    def remove(self, page: Page) -> None:
        self._order.remove(page)

    def evict(self) -> Page:
        page = self._order.pop()
        del self._heat[page]
        return page

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, page: Page) -> bool:
        return page in self._order


class LeavesFirst:
    """The least recently used leaf of the prefix tree: no page goes while one that continues it is here.

    A page is worth nothing without those before it, so this keeps no page that cannot be hit. `parent` names the page
    before; None for the first of a prompt. Where all that may go have children in use, the least recently used goes.
    Source: the eviction of SGLang's RadixAttention, Zheng et al., NeurIPS 2024 (arXiv:2312.07104).
    """

    def __init__(self, parent: Callable[[Page], Page | None]) -> None:
        self._parent = parent
        self._children: dict[Page, int] = {}  # those that may go
        self._leaves, self._inner = _Ranked(), _Ranked()
        self._now = 0

    def insert(self, page: Page) -> None:
        parent = self._parent(page)
        if parent is not None:
            self._children[parent] = self._children.get(parent, 0) + 1
            if parent in self._leaves:
                self._leaves.move(parent, self._inner)
        self.hit(page)

    def hit(self, page: Page) -> None:
        self._now += 1
        (self._inner if page in self._children else self._leaves).rank(page, self._now)

    def remove(self, page: Page) -> None:
        (self._inner if page in self._inner else self._leaves).remove(page)
        self._left(page)

    def evict(self) -> Page:
        page = (self._leaves or self._inner).pop()
        self._left(page)
        return page

    def _left(self, page: Page) -> None:
        parent = self._parent(page)
        if parent is None:
            return
        self._children[parent] -= 1
        if not self._children[parent]:
            del self._children[parent]
            if parent in self._inner:
                self._inner.move(parent, self._leaves)

    def __len__(self) -> int:
        return len(self._leaves) + len(self._inner)

    def __contains__(self, page: Page) -> bool:
        return page in self._leaves or page in self._inner


class Belady:
    """The page whose next use is farthest away: the offline oracle that no policy beats.

    Told the whole sequence of uses in advance; each `hit` or `insert` is the next one of it.
    Source: Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5(2), 1966.
    """

    def __init__(self, uses: Sequence[Page]) -> None:
        self._next: list[float] = [float("inf")] * len(uses)
        seen: dict[Page, int] = {}
        for at in range(len(uses) - 1, -1, -1):
            self._next[at] = seen.get(uses[at], float("inf"))
            seen[uses[at]] = at
        self._order = _Ranked()
        self._now = 0

    def insert(self, page: Page) -> None:
        self.hit(page)

    def hit(self, page: Page) -> None:
        self._order.rank(page, -self._next[self._now])
        self._now += 1

    def remove(self, page: Page) -> None:
        self._order.remove(page)

    def evict(self) -> Page:
        return self._order.pop()

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, page: Page) -> bool:
        return page in self._order


def hits(policy: Policy, capacity: int, uses: Iterable[Page]) -> int:
    """How many uses hit a tier of `capacity` pages that takes in every page that it misses."""
    count = 0
    for page in uses:
        if page in policy:
            count += 1
            policy.hit(page)
            continue
        if len(policy) == capacity:
            policy.evict()
        policy.insert(page)
    return count
