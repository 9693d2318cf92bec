"""What a simulation has: engines, storage nodes by figures, and what happens to them. Files of workloads/sim/. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kvbench import content
from kvbench.engine.cost import CostModel
from kvbench.errors import UsageError
from kvbench.sim.checkpoints import Snapshots
from kvbench.sim.device import NodeModel
from kvbench.sim.roofline import cost
from kvbench.sim.strategies import ON_TIERS, Background, refuse_idle
from kvbench.store.protocol import NodeDown, NodeLeave, NodeUp
from kvbench.units import RateBytes, Seconds, SizeBytes

Happening = Literal["down", "up", "leave", "new"]

_STRICT: dict[str, Any] = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Link:
    """A network port for every group of so many `nodes`, in their order."""

    rate: RateBytes
    nodes: int = 1

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class SlowNodes:
    """`count` nodes, the first ones, reach only this `share` of the others' rates."""

    count: int
    share: float

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Capacity:
    """A tier below: `nodes` of it, each by a model. `flash` and `capacity` are what the tiers hold, over all nodes."""

    nodes: int
    node: NodeModel
    flash: SizeBytes
    capacity: SizeBytes

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Change:
    """At a moment of the run a node fails (`down`), comes back (`up`), is taken away (`leave`), or is `new`."""

    at: Seconds
    what: Happening
    node: int = -1

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Site:
    """`instances` of an engine share `nodes` storage nodes. `prefix_pages`: how many first pages name a prefix.

    `host_memory` is that of an instance, which takes `slowdown` times as long as its roofline. `engine` is the
    scheduler that computes step by step (one instance), or the fluid one, which computes the same rates between two
    events and is fit for traces of any length.
    """

    id: str
    why: str
    model: str
    accelerator: str
    node: NodeModel
    nodes: int = 16
    instances: int = 4
    tensor_parallel: int = 8
    page_tokens: int = 512
    prefix_pages: int = 4
    step_tokens: int = 2048
    host_memory: SizeBytes = 0
    slowdown: float = 1.0
    engine: Literal["fluid", "scheduler"] = "fluid"
    link: Link | None = None
    slow: SlowNodes | None = None
    capacity: Capacity | None = None
    changes: tuple[Change, ...] = ()
    checkpoints: Snapshots | None = None
    background: Background = field(default_factory=Background)

    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        if min(self.nodes, self.instances, self.page_tokens, self.prefix_pages, self.step_tokens) < 1:
            raise ValueError("nodes, instances, page_tokens, prefix_pages and step_tokens are at least 1")
        if self.slowdown <= 0:
            raise ValueError("slowdown is above 0; 1 is the roofline itself")
        if self.engine == "scheduler" and self.instances != 1:
            raise ValueError("engine: scheduler is one instance; write instances: 1")
        if self.checkpoints and self.engine == "scheduler":
            raise ValueError("checkpoints need the fluid engine")
        if self.checkpoints and self.checkpoints.nodes >= self.nodes:
            raise ValueError(f"checkpoints.nodes is {self.checkpoints.nodes}, of {self.nodes} nodes")
        if self.slow and self.slow.count > self.nodes:
            raise ValueError(f"slow.count is {self.slow.count}, of {self.nodes} nodes")
        if any(change.node >= self.nodes for change in self.changes):
            raise ValueError(f"changes name a node beyond the {self.nodes} from 0 on")

    def cost(self) -> CostModel:
        """Of one instance. Raises UsageError for a model or an accelerator that kvbench does not know."""
        return cost(f"site {self.id}", self.model, self.accelerator, self.tensor_parallel, self.slowdown)

    def node_models(self) -> list[NodeModel]:
        """Of all nodes: the flash nodes, the slow ones first, then those of the tier below."""
        models = [self.node] * self.nodes
        if self.slow:
            share = self.slow.share
            slow = replace(
                self.node, read_rate=round(self.node.read_rate * share), write_rate=round(self.node.write_rate * share)
            )
            models[: self.slow.count] = [slow] * self.slow.count
        if self.capacity:
            models += [self.capacity.node] * self.capacity.nodes
        return models

    def refuse(self, name: str) -> None:
        """Raises UsageError for what is no strategy, and for one with a layer that shows nothing here."""
        needs = dict.fromkeys(ON_TIERS, (bool(self.capacity), "tiers"))
        needs |= {"device": (bool(self.slow), "uneven"), "apart": (bool(self.checkpoints), "checkpoints")}
        needs |= {"guarded": (bool(self.background.ttft_limit), "grows"), "lazy": (self.engine == "fluid", "narrow")}
        refuse_idle(name, self.id, needs)


def event(what: Happening, node: int, nodes: int) -> NodeDown | NodeUp | NodeLeave:
    """What a store is told when that happens to a node; a new one has the number that follows those of all `nodes`."""
    match what:
        case "down":
            return NodeDown(node)
        case "leave":
            return NodeLeave(node)
        case "up":
            return NodeUp(node)
        case "new":
            return NodeUp(nodes)


def load(name: str, nodes: int | None = None) -> Site:
    """A site of workloads/sim/, by name or by the path of a file; with another number of nodes. Raises UsageError."""
    path = content.workload_path("sim", name)
    site = content.read(path, Site)
    try:
        return replace(site, nodes=nodes) if nodes else site
    except ValueError as error:
        raise UsageError(f"{path} with {nodes} nodes: {error}", "more nodes, or another site") from None
