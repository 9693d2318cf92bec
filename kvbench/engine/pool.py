"""The storage nodes of a running engine: a directory each, and those that come and go."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from kvbench import safety
from kvbench.errors import KvbenchError
from kvbench.store.cluster import ClusterView
from kvbench.store.protocol import Event, MovePace, NodeDown, NodeUp
from kvbench.store.real import RealNodes


class Places(AbstractContextManager["Places"]):
    """Where an engine keeps its pages, held against other engines until it ends: also what failed, or never came."""

    def __init__(self) -> None:
        self._held: set[Path] = set()
        self._stack = ExitStack()

    def take(self, directories: Iterable[Path]) -> None:
        """Hold these, too. Raises KvbenchError when another engine has one of them."""
        new = {Path(os.path.realpath(directory)) for directory in directories} - self._held
        self._stack.enter_context(safety.alone_on(new, "keeps pages in"))
        self._held |= new

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Pool:
    """Nodes that carry out I/O, and the view that the page store has of them. `feed` hands it an event; `held` are
    their places."""

    def __init__(
        self,
        nodes: RealNodes,
        cluster: ClusterView,
        feed: Callable[[Event], None],
        rate_limit_bytes_per_s: int | None,
        held: Places,
    ) -> None:
        self.nodes = nodes
        self._cluster, self._feed, self._rate_limit_bytes_per_s = cluster, feed, rate_limit_bytes_per_s
        self._held, self._adding = held, asyncio.Lock()

    async def add(self, directory: Path, pace: MovePace) -> int:
        """A node comes, and pages move to it; returns its number. Raises KvbenchError."""
        async with self._adding:  # in a thread, since a busy disk would hold up every stream
            node = await asyncio.to_thread(self._add, directory)
        self._feed(pace)
        self._feed(NodeUp(node))
        return node

    def _add(self, directory: Path) -> int:
        _check_new(directory, self.nodes)
        self._held.take((directory,))
        return self.nodes.add(directory, self._rate_limit_bytes_per_s)

    def fail(self, node: int, pace: MovePace) -> None:
        """A node is gone, and what it holds is no hit any more. Raises KvbenchError when there is no such node."""
        up = self._cluster.up
        if node not in up:
            raise KvbenchError(f"there is no node {node} that is up", f"up are {', '.join(map(str, sorted(up)))}")
        self.nodes.fail(node)
        self._feed(pace)
        self._feed(NodeDown(node))


def _check_new(directory: Path, nodes: RealNodes) -> None:
    if not directory.is_absolute() or "\0" in str(directory):
        raise KvbenchError(f"{str(directory)!r} is not an absolute path")
    try:
        is_empty = not directory.exists() or not any(directory.iterdir())
        is_there = nodes.has(directory)  # it may hold no page yet
    except OSError as error:
        raise KvbenchError(f"cannot keep pages in {directory}: {error.strerror}") from None
    if not is_empty:
        raise KvbenchError(f"{directory} is not empty", "a node that comes brings no pages")
    if is_there:
        raise KvbenchError(f"{directory} is a node already")
