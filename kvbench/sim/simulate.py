"""One simulation: a workload on a site under a strategy and a seed, and its figures. Deterministic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import fsum, sqrt
from pathlib import Path
from random import Random

from kvbench import content, stats
from kvbench.engine.protocol import EngineConfig
from kvbench.load import trace
from kvbench.load.workload import Turn
from kvbench.sim import strategies
from kvbench.sim.agenda import Agenda
from kvbench.sim.nodes import SimNodes
from kvbench.sim.serving import FluidServing, IoWatch, SchedulerServing, Seen, Storage
from kvbench.sim.site import Change, Site, event
from kvbench.store.cluster import ClusterView, Role

# name → unit; in the order in which people read them. `hits` are shares of all whole pages of all prompts;
# `hidden_reads` is the share of the time of reads in which their instance computed other prompts; `in_flight` the mean
# of requests under way while requests come, and its coefficient of variation over that time
FIGURES: Mapping[str, str] = {
    "hits": "share",
    "host_hits": "share",
    "flash_hits": "share",
    "capacity_hits": "share",
    "nodes_per_request": "count",
    "ios_per_request": "count",
    "imbalance": "ratio",
    "ttft_p50_s": "s",
    "ttft_p90_s": "s",
    "ttft_p99_s": "s",
    "hidden_reads": "share",
    "output_tokens_per_s": "tok/s",
    "checkpoint_save_s": "s",
    "read_bytes": "B",
    "moved_bytes": "B",
    "in_flight": "count",
    "in_flight_cv": "ratio",
    "requests": "count",
}


@dataclass(frozen=True, slots=True)
class Source:
    """Where requests come from: a workload by name, or a trace's file; the first `requests` of them."""

    workload: str = ""
    trace: str = ""
    requests: int | None = None

    @property
    def unseen(self) -> int:
        """How many of the turns only fill the storage: none."""
        return 0

    def turns(self, seed: int) -> list[Turn]:
        """A workload draws its arrivals and lengths from the seed; a trace is what it is. Raises UsageError."""
        if not self.trace:
            return content.request_workload(self.workload).make(Random(seed))[: self.requests]
        return _of_trace(self.trace)[: self.requests]


@lru_cache(maxsize=1)
def _of_trace(path: str) -> list[Turn]:
    """Read once a process: simulations of the same trace follow each other."""
    return trace.load(Path(path))


@dataclass(frozen=True, slots=True)
class Task:
    site: Site
    source: Source
    strategy: str
    seed: int


def simulate(task: Task) -> dict[str, float]:
    """The figures of one run, all of FIGURES. Raises UsageError."""
    return serve(task.site, task.source.turns(task.seed), task.strategy, task.seed)


def serve(site: Site, turns: Sequence[Turn], strategy: str, seed: int, unseen: int = 0) -> dict[str, float]:
    """The same for turns that are there already. The first `unseen` to come fill the storage, and are in no figure
    of requests."""
    agenda, config = Agenda(), _config(site)
    page_bytes = config.page_bytes
    layers = strategies.parse(strategy).layers
    cluster = _cluster(site, page_bytes, apart="apart" in layers)
    if "device" in layers:
        cluster.weigh({node: model.read_rate / site.node.read_rate for node, model in enumerate(site.node_models())})
    store = strategies.build(
        strategy, cluster, page_bytes, seed, has_tiers=site.capacity is not None, background=site.background
    )
    link_rate, nodes_per_link = (site.link.rate, site.link.nodes) if site.link else (0, 1)
    nodes = SimNodes(agenda, site.node_models(), page_bytes, seed, link_rate=link_rate, nodes_per_link=nodes_per_link)
    storage = Storage(agenda, nodes, store, IoWatch(page_bytes))
    serving: FluidServing | SchedulerServing
    if site.engine == "scheduler":
        serving = SchedulerServing(storage, config, turns)
    else:
        serving = FluidServing(storage, config, site.instances, turns, lazy="lazy" in layers)
        if site.checkpoints:
            serving.save(site.checkpoints, round(1e9 * max(turn.due_s or 0.0 for turn in turns)))
    for change in site.changes:
        agenda.at(round(1e9 * change.at), _change, change, site, nodes, serving)
    agenda.run()
    return _figures(serving.seen[unseen:], serving.saves_s, storage)


def _config(site: Site) -> EngineConfig:
    return EngineConfig(
        site.cost(),
        page_tokens=site.page_tokens,
        step_tokens=site.step_tokens,
        host_memory_bytes=site.host_memory,
        prefix_depth=site.prefix_pages,
    )


def _cluster(site: Site, page_bytes: int, *, apart: bool) -> ClusterView:
    aside = range(site.nodes - site.checkpoints.nodes, site.nodes) if apart and site.checkpoints else ()
    if not site.capacity:
        return ClusterView(site.nodes, dict.fromkeys(aside, Role.CHECKPOINT))
    below = range(site.nodes, site.nodes + site.capacity.nodes)
    budgets = {Role.KV: site.capacity.flash // page_bytes, Role.CAPACITY: site.capacity.capacity // page_bytes}
    roles = dict.fromkeys(below, Role.CAPACITY) | dict.fromkeys(aside, Role.CHECKPOINT)
    return ClusterView(site.nodes + site.capacity.nodes, roles, budgets)


def _change(change: Change, site: Site, nodes: SimNodes, serving: FluidServing | SchedulerServing) -> None:
    told = event(change.what, change.node, len(nodes.nodes))
    if change.what == "new":
        nodes.add(site.node)
    serving.give(told)


def _figures(seen: Sequence[Seen], saves_s: Sequence[float], storage: Storage) -> dict[str, float]:
    pages = sum(each.pages for each in seen) or 1
    readers = [each for each in seen if each.read_pages]
    roles = storage.store.directory.cluster.roles
    reads = [node.bytes_read for node, role in zip(storage.nodes.nodes, roles, strict=True) if role is Role.KV]
    ttft_s = [each.ttft_s for each in seen]
    span_s = (max(each.done_ns for each in seen) - min(each.due_ns for each in seen)) / 1e9
    host, capacity = sum(each.host_pages for each in seen), storage.store.read_pages[Role.CAPACITY]
    hits = host + sum(each.read_pages for each in seen)
    in_flight, in_flight_cv = _in_flight(seen)
    return {
        "hits": hits / pages,
        "host_hits": host / pages,
        "flash_hits": (hits - host - capacity) / pages,
        "capacity_hits": capacity / pages,
        "nodes_per_request": fsum(len(each.nodes) for each in readers) / max(1, len(readers)),
        "ios_per_request": fsum(each.ios for each in readers) / max(1, len(readers)),
        "imbalance": max(reads) * len(reads) / (sum(reads) or 1),
        **{f"ttft_p{q}_s": stats.percentile(ttft_s, q) for q in (50, 90, 99)},
        "hidden_reads": fsum(each.hidden_s for each in seen) / (fsum(each.reading_s for each in seen) or 1.0),
        "output_tokens_per_s": sum(each.output_tokens for each in seen) / span_s,
        "checkpoint_save_s": fsum(saves_s) / (len(saves_s) or 1),
        "read_bytes": float(sum(node.bytes_read for node in storage.nodes.nodes)),
        "moved_bytes": float(storage.watch.copied_bytes),
        "in_flight": in_flight,
        "in_flight_cv": in_flight_cv,
        "requests": float(len(seen)),
    }


def _in_flight(seen: Sequence[Seen]) -> tuple[float, float]:
    """How many requests were under way, from the first to come to the last: mean over time, and variation about it."""
    last_ns = max(each.due_ns for each in seen)
    steps = [(each.due_ns, 1) for each in seen] + [(each.done_ns, -1) for each in seen if each.done_ns < last_ns]
    steps.sort()
    if steps[0][0] == last_ns:
        return float(len(seen)), 0.0
    count = time_ns = area = squares = 0
    for (at_ns, step), (until_ns, _) in pairwise(steps):
        count, passed_ns = count + step, until_ns - at_ns
        time_ns, area, squares = time_ns + passed_ns, area + count * passed_ns, squares + count**2 * passed_ns
    mean = area / time_ns
    return mean, sqrt(max(0.0, squares / time_ns - mean**2)) / mean
