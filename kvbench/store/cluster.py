"""What a strategy may look at: the nodes, what each is for, what each holds and has to do. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum


class Role(StrEnum):
    """What a node is for."""

    KV = "kv"  # pages are placed here: the flash tier
    CAPACITY = "capacity"  # the tier below: takes the pages that the flash tier has no room for
    CHECKPOINT = "checkpoint"  # takes checkpoint writes, so that they disturb no reads


class ClusterView:
    """`nodes` nodes, numbered from 0 and all up. The core updates it in place; a strategy only reads.

    `up`        nodes that answer.
    `weights`   a node's share of the pages, relative to the others'; 1 at first.
    `stored`    pages that take room on a node: those that are being written to it or deleted from it too.
    `target_weight`, `target_pages`: the sums of those two over the nodes that KV pages are placed on.
    `in_flight` I/Os that a node has been given and not answered.
    `epoch`     grows whenever `targets` or `weights` change: what was computed from them is stale then.
    """

    def __init__(
        self, nodes: int, roles: Mapping[int, Role] | None = None, budgets: Mapping[Role, int] | None = None
    ) -> None:
        """`budgets`: the most pages that all nodes of a role hold together; unlimited where none is given."""
        roles = roles or {}
        self._budgets = budgets or {}
        self._role_pages = dict.fromkeys(Role, 0)
        self.roles = [roles.get(node, Role.KV) for node in range(nodes)]
        self.up = set(range(nodes))
        self.leaving: set[int] = set()
        self.weights = [1.0] * nodes
        self.stored = [0] * nodes
        self.in_flight = [0] * nodes
        self.epoch = 0
        self._changed()

    @property
    def nodes(self) -> int:
        return len(self.roles)

    def targets(self, role: Role = Role.KV) -> tuple[int, ...]:
        """The nodes of a role that take new pages, in order: up, and not about to leave."""
        return self._targets[role]

    def room(self, role: Role) -> int:
        """How many pages more the nodes of a role may hold."""
        return self._budgets.get(role, sys.maxsize) - self._role_pages[role]

    def emptiest(self, role: Role) -> int | None:
        """The node of a role that holds the fewest pages for its weight; None when none takes any."""
        return min(self._targets[role], key=lambda node: (self.stored[node] / self.weights[node], node), default=None)

    def least_busy(self, nodes: tuple[int, ...]) -> int:
        """The node with the fewest I/Os under way; the first of equals."""
        return nodes[0] if len(nodes) == 1 else min(nodes, key=self.in_flight.__getitem__)

    # ------------------------------------------------------------ for the core alone

    def join(self, node: int, role: Role = Role.KV) -> None:
        """A node comes, a new one with the next number, or back. One that was leaving stays."""
        if node == self.nodes:
            self.roles.append(role)
            self.weights.append(1.0)
            self.stored.append(0)
            self.in_flight.append(0)
        self.up.add(node)
        self.leaving.discard(node)
        self._changed()

    def lose(self, node: int) -> None:
        self.up.discard(node)
        self._changed()

    def leave(self, node: int) -> None:
        """Place nothing on this node any more; what it holds can be read, and moves away."""
        self.leaving.add(node)
        self._changed()

    def weigh(self, weights: Mapping[int, float]) -> None:
        """New weights of some nodes, each above 0."""
        for node, weight in weights.items():
            self.weights[node] = weight
        self._changed()

    def count(self, node: int, pages: int) -> None:
        """Pages more, or fewer, on a node."""
        self.stored[node] += pages
        self._role_pages[self.roles[node]] += pages
        if node in self._kv_targets:
            self.target_pages += pages

    def _changed(self) -> None:
        self.epoch += 1
        there = [node for node in range(self.nodes) if node in self.up and node not in self.leaving]
        self._targets = {role: tuple(node for node in there if self.roles[node] is role) for role in Role}
        self._kv_targets = frozenset(self._targets[Role.KV])
        self.target_weight = sum(self.weights[node] for node in self._kv_targets)
        self.target_pages = sum(self.stored[node] for node in self._kv_targets)
