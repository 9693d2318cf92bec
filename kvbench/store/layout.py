"""In which order pages lie on each node: those that were written together are neighbours. Pure.

A node writes a run of a session's pages as one extent, so that neighbours can be read in one large I/O. Where an
extent lies on the medium is the node's business; the store knows only who is next to whom.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kvbench.store.keys import PageKey


class Layout:
    """A position for every page of every node; neighbours have positions that follow each other."""

    def __init__(self) -> None:
        self._positions: dict[int, dict[PageKey, int]] = {}
        self._pages: dict[int, dict[int, PageKey]] = {}
        self._free: dict[int, int] = {}

    def append(self, node: int, pages: Sequence[PageKey]) -> None:
        """An extent of these pages, in order, has been written. One that lay elsewhere on the node lies here now."""
        positions, at = self._positions.setdefault(node, {}), self._free.get(node, 0)
        by_position = self._pages.setdefault(node, {})
        for page in pages:
            by_position.pop(positions.get(page, -1), None)
            positions[page], by_position[at] = at, page
            at += 1
        self._free[node] = at + 1  # the gap keeps extents apart

    def forget(self, node: int, page: PageKey) -> None:
        position = self._positions.get(node, {}).pop(page, None)
        if position is not None:
            del self._pages[node][position]

    def runs(self, node: int, pages: Collection[PageKey], most: int) -> list[tuple[PageKey, ...]]:
        """The pages in the order in which they lie, neighbours joined to runs of at most `most`.

        Pages whose place is not known come last, each by itself.
        """
        positions = self._positions.get(node, {})
        runs: list[list[PageKey]] = []
        last = -2
        for page in sorted((page for page in pages if page in positions), key=positions.__getitem__):
            if positions[page] == last + 1 and len(runs[-1]) < most:
                runs[-1].append(page)
            else:
                runs.append([page])
            last = positions[page]
        return [tuple(run) for run in runs] + [(page,) for page in pages if page not in positions]

    def following(self, node: int, page: PageKey, count: int) -> list[PageKey]:
        """Up to `count` pages that lie behind a page in its extent."""
        position, by_position = self._positions.get(node, {}).get(page), self._pages.get(node, {})
        after: list[PageKey] = []
        while position is not None and len(after) < count and (neighbour := by_position.get(position + 1)):
            after.append(neighbour)
            position += 1
        return after
