"""Pages that are not where they belong, after nodes have come or gone, or weights have changed. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Literal

from kvbench.store.cluster import Role
from kvbench.store.directory import Directory
from kvbench.store.keys import PageKey
from kvbench.store.moves import Drop, Move, MoveSource, has_room
from kvbench.store.placement import Strategy

Unit = tuple[PageKey, ...]


class Rebalance(MoveSource):
    """Brings every page to where the placement wants it, unit by unit, and deletes copies that nobody wants.

    The unit is the page; or the session, all pages of a prefix that go the same way, as a whole (claim C11). Each
    change of the cluster begins a pass over all pages: so the work is resumable, from whatever state it is left in.
    `spared` are the pages of which more copies are wanted than the placement says. `since`: the cluster's epoch since
    which all pages are where they belong; none at first.
    """

    def __init__(
        self,
        placement: Strategy,
        unit: Literal["page", "session"] = "page",
        spared: Container[PageKey] = (),
        since: int = -1,
    ) -> None:
        self._placement, self._unit, self._spared = placement, unit, spared
        self._epoch = since
        self._todo: deque[Unit] = deque()
        self._later: list[Unit] = []  # units with pages that were busy

    def next(self, now_ns: int, directory: Directory, busy: Container[PageKey]) -> Move | Drop | None:
        if directory.cluster.epoch != self._epoch:
            self._epoch = directory.cluster.epoch
            self._todo, self._later = deque(self._units(directory)), []
        elif not self._todo:
            self._todo, self._later = deque(self._later), []
        while self._todo:
            unit = self._todo.popleft()
            free = tuple(page for page in unit if page not in busy)
            if len(free) < len(unit):
                self._later.append(tuple(page for page in unit if page in busy))
            step = self._first_step(free, directory)
            if isinstance(step, Move) and not has_room(step, directory.cluster):
                self._todo.appendleft(step.pages)
                return None
            if step:
                return step
        return None

    def has_more(self, directory: Directory) -> bool:
        return directory.cluster.epoch != self._epoch or bool(self._todo or self._later)

    def _units(self, directory: Directory) -> Iterable[Unit]:
        if self._unit == "page":
            return ((page,) for page in directory.pages())
        sessions: dict[bytes, list[PageKey]] = {}
        for page in directory.pages():
            sessions.setdefault(directory.prefix(page) or page.file_name.encode(), []).append(page)
        return map(tuple, sessions.values())

    def _first_step(self, pages: Unit, directory: Directory) -> Move | Drop | None:
        """The step that the first misplaced page needs, together with all pages of the unit that need the same."""
        steps = ((page, self._step(page, directory)) for page in pages)
        misplaced = [(page, step) for page, step in steps if step]
        if not misplaced:
            return None
        first = misplaced[0][1]
        if isinstance(first, Drop):
            self._again(page for page, _ in misplaced)
            return first
        along = [page for page, step in misplaced if isinstance(step, Move) and _way(step) == _way(first)]
        self._again(page for page, _ in misplaced if page not in along or len(directory.live(page)) > 1)
        return replace(first, pages=tuple(along))

    def _again(self, pages: Iterable[PageKey]) -> None:
        if rest := tuple(pages):
            self._later.append(rest)

    def _step(self, page: PageKey, directory: Directory) -> Move | Drop | None:
        cluster, prefix = directory.cluster, directory.prefix(page)
        live = directory.live(page)
        if not live:
            return None
        role = Role.KV if any(cluster.roles[node] is Role.KV for node in live) else cluster.roles[live[0]]
        if role is Role.KV:
            wanted = self._placement.place(page, prefix, cluster)
            kept = [node for node in live if node in wanted or self._placement.keeps(page, prefix, node, cluster)]
        else:  # below the flash tier, or beside it: one node is as good as another
            wanted = tuple(node for node in (cluster.emptiest(role),) if node is not None)
            kept = [node for node in live if node in cluster.targets(role)]
        missing = [node for node in wanted if node not in directory.replicas(page)]
        surplus = [node for node in live if node not in kept]
        if len(kept) < len(wanted) and missing:
            return Move((page,), surplus[0], missing[0]) if surplus else Move((page,), kept[0], missing[0], True)
        if kept and page not in self._spared:
            unwanted = surplus + (kept[len(wanted) :] if wanted else [])
            return Drop(page, unwanted[0]) if unwanted else None
        return None


def _way(move: Move) -> tuple[int, int, bool]:
    return move.source, move.target, move.keeps_source
