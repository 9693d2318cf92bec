"""A flash tier over a capacity tier: what is written where, what goes down, and what comes up. Pure.

A page is on one of the two. Writes go to the flash tier while it has room, and to the capacity tier otherwise. The
flash tier's policy says what goes down, so that room is kept free; the capacity tier's what is given up. Pages that go
the same way at the same time go as one run, so that a session's are neighbours below too: they can be read in one
I/O there, and when one is hit, those that follow it come up with it.
Source: the tiered, storage-aware scheduling of both articles (claims C6 and C8).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from dataclasses import replace
from itertools import islice

from kvbench.store.cluster import ClusterView, Role
from kvbench.store.directory import Directory
from kvbench.store.keys import PageKey
from kvbench.store.moves import Drop, Move, MoveSource
from kvbench.store.placement import Strategy
from kvbench.store.policy import Policy

_PENDING = 1024  # promotions that wait; older ones are out of date
_WINDOW_PAGES = 64  # of those, how many are looked at for a run


class Tiered:
    """A placement over two tiers: `flash` places pages while there is room, then the emptiest capacity node."""

    def __init__(self, flash: Strategy) -> None:
        self._flash = flash

    def place(self, page: PageKey, prefix: bytes, cluster: ClusterView) -> tuple[int, ...]:
        if cluster.room(Role.KV) > 0:
            return self._flash.place(page, prefix, cluster)
        node = cluster.emptiest(Role.CAPACITY)
        return (node,) if node is not None and cluster.room(Role.CAPACITY) > 0 else ()

    def keeps(self, page: PageKey, prefix: bytes, node: int, cluster: ClusterView) -> bool:
        return self._flash.keeps(page, prefix, node, cluster)

    def route(self, page: PageKey, replicas: tuple[int, ...], cluster: ClusterView) -> int:
        """The flash tier before the other one."""
        flash = tuple(node for node in replicas if cluster.roles[node] is Role.KV)
        return self._flash.route(page, flash or replicas, cluster)


class Tiering(MoveSource):
    """Moves pages down, up and out. `placement` is that of the flash tier; the budgets are the cluster's.

    `free_pages`      room that is kept free in each tier for what is being written.
    `batch_pages`     how many pages go down when that room is gone, and the longest run that comes up.
    `promote_after`   hits below that bring a page up.
    `prefetch_pages`  how many pages that follow it come with it.
    """

    def __init__(
        self,
        placement: Strategy,
        flash_policy: Policy,
        capacity_policy: Policy,
        *,
        free_pages: int = 8,
        batch_pages: int = 1,
        promote_after: int = 1,
        prefetch_pages: int = 0,
    ) -> None:
        self._placement = placement
        self._policies = {Role.KV: flash_policy, Role.CAPACITY: capacity_policy}
        self._free_pages, self._batch_pages = free_pages, batch_pages
        self._promote_after, self._prefetch_pages = promote_after, prefetch_pages
        self._hits: dict[PageKey, int] = {}  # below, of pages that have not come up yet
        self._promotions: dict[PageKey, None] = {}  # a queue
        self._demotions: deque[Move | Drop] = deque()  # runs that are to go down, copies that are not needed
        self._going: dict[Role, list[PageKey]] = {role: [] for role in self._policies}  # that will make room
        self._epoch, self._were_up = 0, set[int]()

    def stored(self, page: PageKey, node: int, directory: Directory) -> None:
        policy = self._policies.get(directory.cluster.roles[node])
        if policy is not None and page not in policy:
            policy.insert(page)

    def read(self, now_ns: int, page: PageKey, node: int, directory: Directory) -> None:
        role = directory.cluster.roles[node]
        policy = self._policies.get(role)
        if policy is not None and page in policy:
            policy.hit(page)
        if role is not Role.CAPACITY:
            return
        self._hits[page] = self._hits.get(page, 0) + 1
        if self._hits[page] >= self._promote_after:
            del self._hits[page]
            self._promotions[page] = None
            self._promotions |= dict.fromkeys(directory.layout.following(node, page, self._prefetch_pages))
            while len(self._promotions) > _PENDING:
                del self._promotions[next(iter(self._promotions))]

    def next(self, now_ns: int, directory: Directory, busy: Container[PageKey]) -> Move | Drop | None:
        if self._epoch != directory.cluster.epoch:
            self._take_back(directory)
        self._going = {role: [page for page in pages if page in busy] for role, pages in self._going.items()}
        return self._out(directory, busy) or self._down(directory, busy) or self._up(directory, busy)

    def _take_back(self, directory: Directory) -> None:
        """Pages of nodes that have come back may go again: while they were away, searches for room passed them over."""
        cluster = directory.cluster
        back = cluster.up - self._were_up
        self._epoch, self._were_up = cluster.epoch, set(cluster.up)
        for page in directory.pages() if back else ():
            for node in directory.replicas(page):
                if node in back:
                    self.stored(page, node, directory)

    def _out(self, directory: Directory, busy: Container[PageKey]) -> Drop | None:
        if not self._is_full(Role.CAPACITY, directory) or not (victim := self._victim(Role.CAPACITY, directory, busy)):
            return None
        self._going[Role.CAPACITY].append(victim[0])
        self._hits.pop(victim[0], None)
        return Drop(*victim, is_last=True)

    # ------------------------------------------------------------ down

    def _down(self, directory: Directory, busy: Container[PageKey]) -> Move | Drop | None:
        below = directory.cluster.emptiest(Role.CAPACITY)
        if below is None:
            return self._give_up(directory, busy)
        if not self._demotions and self._is_full(Role.KV, directory):
            self._demotions += self._runs_down(below, directory, busy)
        while self._demotions and (room := directory.cluster.room(Role.CAPACITY)) > 0:
            run = self._demotions.popleft()
            if isinstance(run, Drop):
                self._going[Role.KV].append(run.page)
                return run
            if len(run.pages) > room:
                self._demotions.appendleft(replace(run, pages=run.pages[room:]))
            if pages := self._can_go(run.pages[:room], run.source, directory, busy):
                self._going[Role.KV] += pages
                return replace(run, pages=pages, target=below)
        return None

    def _runs_down(self, below: int, directory: Directory, busy: Container[PageKey]) -> list[Move | Drop]:
        """The pages that go first, in that order; those of one node and one prefix together.

        Of a page with other copies, one is deleted: another is on flash, or lies below already.
        """
        drops: list[Move | Drop] = []
        runs: dict[tuple[int, bytes], list[PageKey]] = {}
        for _ in range(min(self._batch_pages, directory.cluster.room(Role.CAPACITY))):
            if victim := self._victim(Role.KV, directory, busy):
                page, node = victim
                if len(directory.live(page)) > 1:
                    drops.append(Drop(page, node))
                else:
                    runs.setdefault((node, directory.prefix(page)), []).append(page)
        return drops + [Move(tuple(pages), node, below) for (node, _), pages in runs.items()]

    def _can_go(
        self, pages: Sequence[PageKey], node: int, directory: Directory, busy: Container[PageKey]
    ) -> tuple[PageKey, ...]:
        """Those of a run that has waited which are still there alone and not busy; what stays is its policy's again."""
        going = tuple(page for page in pages if page not in busy and directory.live(page) == (node,))
        for page in pages:
            if page not in going and node in directory.live(page):
                self.stored(page, node, directory)
        return going

    def _give_up(self, directory: Directory, busy: Container[PageKey]) -> Drop | None:
        """Without a tier below, what would go down is deleted."""
        for run in self._demotions:
            if isinstance(run, Move):
                for page in self._can_go(run.pages, run.source, directory, busy):
                    self.stored(page, run.source, directory)
        self._demotions.clear()
        if not self._is_full(Role.KV, directory) or not (victim := self._victim(Role.KV, directory, busy)):
            return None
        self._going[Role.KV].append(victim[0])
        return Drop(*victim, is_last=True)

    def _is_full(self, role: Role, directory: Directory) -> bool:
        """Whether a tier has less room than is to be free, with what is going already."""
        return directory.cluster.room(role) + len(self._going[role]) < self._free_pages

    def _victim(self, role: Role, directory: Directory, busy: Container[PageKey]) -> tuple[PageKey, int] | None:
        """The page of a tier that goes next, and the node that it goes from. Copies that have gone are passed over.

        One with other copies stays in the order: their turn comes later.
        """
        policy, passed = self._policies[role], []
        found = None
        while len(policy) and not found:
            page = policy.evict()
            assert isinstance(page, PageKey)
            nodes = [node for node in directory.live(page) if directory.cluster.roles[node] is role]
            if nodes and page in busy:
                passed.append(page)
            elif nodes:
                found = page, nodes[0]
        if found and len(directory.live(found[0])) > 1:
            passed.append(found[0])
        for page in passed:
            policy.insert(page)
        return found

    # ------------------------------------------------------------ up

    def _up(self, directory: Directory, busy: Container[PageKey]) -> Move | None:
        """The next page that is to come up, with those soon after it that go the same way."""
        most, run = min(self._batch_pages, directory.cluster.room(Role.KV)), list[PageKey]()
        first: tuple[int, int] | None = None
        while self._promotions and most > 0 and not first:
            for page in list(islice(self._promotions, _WINDOW_PAGES)):
                way = self._way_up(page, directory, busy)
                if way is None or way == (first := first or way):
                    del self._promotions[page]
                    run += [page] if way else []
                if len(run) == most:
                    break
        for page in run:
            if page in self._policies[Role.CAPACITY]:
                self._policies[Role.CAPACITY].remove(page)
        return Move(tuple(run), *first) if first else None

    def _way_up(self, page: PageKey, directory: Directory, busy: Container[PageKey]) -> tuple[int, int] | None:
        """From which node to which a page comes up; None: it is not below, or under way already."""
        cluster, live = directory.cluster, directory.live(page)
        if page in busy or len(live) != 1 or cluster.roles[live[0]] is not Role.CAPACITY:
            return None
        return next(((live[0], node) for node in self._placement.place(page, directory.prefix(page), cluster)), None)
