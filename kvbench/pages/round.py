"""One round of one strategy on real directories: sessions written, then read back while the site's changes happen.

Requests ask for a session's pages, as far as the store has them without a gap. What it lacks an engine would compute:
here it is written as soon as the request has been served. Where the load says how long computing takes, an emulated
engine does it, one prompt after the other, and the time to the first token ends with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any

from kvbench import clock, stats
from kvbench.pages.prefill import Prefill
from kvbench.pages.site import Site
from kvbench.sim import strategies
from kvbench.sim.serving import IoWatch, Seen
from kvbench.sim.site import event
from kvbench.store.cluster import Role
from kvbench.store.drive import Driver
from kvbench.store.keys import PageKey
from kvbench.store.protocol import Arrive, Copy, Done, Finish, FirstToken, Io, NodeDown, Read, Status
from kvbench.store.real import RealNodes

# name → unit. `to_before`: of the requests that count, against those before a change; `moving_s`: from the first
# change to the last copy's begin
FIGURES = {
    "hits": "share",
    "flash_hits": "share",
    "capacity_hits": "share",
    "read_p50_s": "s",
    "read_p99_s": "s",
    "ttft_p50_s": "s",
    "ttft_p99_s": "s",
    "p50_to_before": "ratio",
    "p99_to_before": "ratio",
    "read_bytes_per_s": "B/s",
    "requests_per_s": "1/s",
    "hidden_reads": "share",
    "nodes_per_request": "count",
    "ios_per_request": "count",
    "imbalance": "ratio",
    "moved_bytes": "B",
    "moving_s": "s",
    "checkpoint_bytes_per_s": "B/s",
    "failed_reads": "count",
    "requests": "count",
}
_RUN_PAGES = 4


@dataclass(frozen=True, slots=True)
class Place:
    """Where pages go, and each directory's rate limit in bytes per second."""

    nodes: tuple[Path, ...]
    direct: bool
    rates: tuple[int | None, ...]


@dataclass(slots=True)
class _Request:
    number: int
    keys: tuple[PageKey, ...]
    seen: Seen  # its stamps are those of the monotonic clock
    wanted: tuple[PageKey, ...] = ()
    computed_ns: int = 0  # for how long prompts had been computed when its read began
    is_cut: bool = False  # a node failed while it was read


@dataclass(slots=True)
class _Counted:
    """What was seen since the counted part of the round began."""

    began_ns: int
    read_pages: dict[Role, int]  # of the store, until then
    node_pages: dict[int, int] = field(default_factory=dict)
    saved_pages: int = 0


class Round:
    """`seed` makes the luck of the placement, the lengths of sessions, and which are read."""

    def __init__(self, strategy: str, site: Site, seed: int) -> None:
        self.rows: list[dict[str, Any]] = []
        self._site, self._load, self._seed = site, site.load, seed
        layers = strategies.parse(strategy).layers
        self._cluster = site.cluster(apart="apart" in layers)
        if "device" in layers:
            self._cluster.weigh(dict(enumerate(site.shares())))
        self._store = strategies.build(
            strategy,
            self._cluster,
            self._load.page_bytes,
            seed,
            has_tiers=site.below is not None,
            background=site.background,
        )
        self._lazy = "lazy" in layers
        self._prefill, self._computes = Prefill(), bool(self._load.compute or self._load.compute_page)
        self._watch = IoWatch(self._load.page_bytes)
        self._counted = _Counted(0, {})
        self._writes = 0  # operations that nobody waits for have numbers below 0
        self._saves: set[int] = set()  # of those, the checkpoint pages under way
        self._waiting: deque[_Request] = deque()
        self._reading: dict[int, _Request] = {}
        self._computing: deque[_Request] = deque()
        self._seen: list[Seen] = []  # of requests whose pages have come
        self._failed = 0
        self._changed_ns = self._copied_ns = 0  # the first change, and the last copy to begin

    def on(self, folders: Sequence[Path], place: Place, salt: str) -> dict[str, float]:
        """The figures, all of FIGURES."""
        events = SimpleQueue[Done]()
        with RealNodes(
            [folder / "pages" for folder in folders],
            self._load.page_bytes,
            on_done=events.put,
            direct=place.direct,
            rate_limit_bytes_per_s=place.rates,
            workers_per_node=self._site.ios,
            run_pages=_RUN_PAGES,
            salt=salt.encode(),
        ) as nodes:
            self._driver = Driver(self._store, nodes, events, self._see)
            for number in self._load.order(self._seed):
                pages = self._load.session(number, self._seed)
                self._write(pages, pages[0].digest)
            self._driver.settle()
            span_s = self._serve()
            self._driver.settle()
        return self._figures(span_s)

    # ------------------------------------------------------------ requests

    def _serve(self) -> float:
        """All requests; from the first that counts to the end of the last, in seconds."""
        for _ in range(self._load.checkpoint_pages):
            self._save()
        for number, session in enumerate(self._load.draw(Random(self._seed))):
            self._happen(number)
            keys = self._load.session(session, self._seed)
            self._waiting.append(_Request(number, keys, Seen(clock.monotonic_ns(), 0, len(keys))))
            self._admit()
            while self._under_way >= self._load.at_once:
                self._wait()
        while self._under_way:
            self._wait()
        return (clock.monotonic_ns() - self._counted.began_ns) / 1e9

    @property
    def _under_way(self) -> int:
        return len(self._waiting) + len(self._reading) + len(self._computing)

    def _happen(self, number: int) -> None:
        """What the site has before the read with this number."""
        if number == round(self._site.counted * self._load.reads):
            self._counted = _Counted(clock.monotonic_ns(), dict(self._store.read_pages))
        for change in self._site.changes:
            if number != round(change.at * self._load.reads):
                continue
            self._changed_ns = self._changed_ns or clock.monotonic_ns()
            told = event(change.what, change.node, self._cluster.nodes)
            for request in self._reading.values():
                request.is_cut |= isinstance(told, NodeDown)
            self._note(self._driver.give(told))

    def _admit(self) -> None:
        while self._waiting and not (self._lazy and (self._reading or self._computing)):
            request = self._waiting.popleft()
            request.wanted = request.keys[: self._store.contains_prefix(request.keys)]
            self._watch.want(request.wanted, request.seen)
            self._reading[request.number] = request
            request.computed_ns = self._prefill.computed_ns(clock.monotonic_ns())
            self._note(self._driver.give(Arrive(request.number, "read", request.wanted)))

    def _wait(self) -> None:
        self._note(self._driver.wait(self._computing[0].seen.first_ns if self._computing else None))
        self._serve_computed(clock.monotonic_ns())
        self._admit()

    def _read_ended(self, finish: Finish) -> None:
        request, now_ns = self._reading.pop(finish.op), clock.monotonic_ns()
        seen, load, bad = request.seen, self._load, set(finish.bad)
        seen.read_pages = next((count for count, key in enumerate(request.wanted) if key in bad), len(request.wanted))
        seen.reading_s = finish.latency_ns / 1e9
        seen.hidden_s = (self._prefill.computed_ns(now_ns) - request.computed_ns) / 1e9
        self._seen.append(seen)
        self._failed += finish.status is not Status.OK and not request.is_cut
        row = {
            "request": request.number, "latency_ns": finish.latency_ns, "status": finish.status.value,
            "pages": seen.pages, "hits": seen.read_pages, "nodes": sorted(seen.nodes), "ios": seen.ios,
        }  # fmt: skip
        self.rows.append(row)
        time_s = load.compute + load.compute_page * (seen.pages - seen.read_pages)
        seen.first_ns = self._prefill.add(now_ns, round(1e9 * time_s))
        self._computing.append(request)
        self._serve_computed(now_ns)

    def _serve_computed(self, now_ns: int) -> None:
        """The store is told of prompts that have been computed, and writes what it lacked of them."""
        while self._computing and self._computing[0].seen.first_ns <= now_ns:
            request = self._computing.popleft()
            self._note(self._driver.give(FirstToken(request.seen.first_ns - request.seen.due_ns)))
            keys = request.keys
            if lacking := tuple(key for key in keys if not self._store.holds(key)):
                self._write(lacking, keys[0].digest)

    # ------------------------------------------------------------ what nobody waits for

    def _write(self, pages: tuple[PageKey, ...], prefix: bytes) -> None:
        self._writes += 1
        self._note(self._driver.give(Arrive(-self._writes, "write", pages, prefix)))

    def _save(self) -> None:
        """Write the next page of a checkpoint."""
        self._writes += 1
        self._saves.add(-self._writes)
        page = PageKey.named(f"{self._seed}/checkpoint/{self._writes}")
        self._note(self._driver.give(Arrive(-self._writes, "checkpoint", (page,))))

    def _note(self, finished: Sequence[Finish]) -> None:
        """What has ended: reads, and checkpoint pages, each of which the next one follows."""
        for finish in finished:
            if finish.op >= 0:
                self._read_ended(finish)
            elif finish.op in self._saves and finish.status is Status.OK:
                self._saves.remove(finish.op)
                self._counted.saved_pages += 1
                self._save()

    def _see(self, command: Io) -> None:
        self._watch(command)
        if isinstance(command, Read):
            node_pages = self._counted.node_pages
            node_pages[command.node] = node_pages.get(command.node, 0) + 1 + len(command.more)
        elif isinstance(command, Copy):
            self._copied_ns = clock.monotonic_ns()

    # ------------------------------------------------------------ figures

    def _figures(self, span_s: float) -> dict[str, float]:
        """Of the requests that count; moves are those of the whole round."""
        seen = [each for each in self._seen if each.due_ns >= self._counted.began_ns]
        readers = [each for each in seen if each.read_pages] or seen
        reading_s, ttft_s = [each.reading_s for each in readers], [each.ttft_s for each in seen]
        before_s = [each.ttft_s for each in self._seen if each.due_ns < self._counted.began_ns]
        has_before = bool(before_s and self._site.changes)
        pages, hits = sum(each.pages for each in seen), sum(each.read_pages for each in seen)
        below = self._store.read_pages[Role.CAPACITY] - self._counted.read_pages[Role.CAPACITY]
        capacity_hits = min(below, hits) / pages
        nodes = self._cluster.targets()
        loads = [self._counted.node_pages.get(node, 0) for node in nodes]
        return {
            "hits": hits / pages,
            "flash_hits": (hits / pages - capacity_hits) if self._site.below else 0.0,
            "capacity_hits": capacity_hits,
            **{f"read_p{q}_s": stats.percentile(reading_s, q) for q in (50, 99)},
            **{f"ttft_p{q}_s": stats.percentile(ttft_s, q) if self._computes else 0.0 for q in (50, 99)},
            **{
                f"p{q}_to_before": stats.percentile(ttft_s, q) / stats.percentile(before_s, q) if has_before else 0.0
                for q in (50, 99)
            },
            "read_bytes_per_s": hits * self._load.page_bytes / span_s,
            "requests_per_s": len(seen) / span_s,
            "hidden_reads": fsum(each.hidden_s for each in readers) / (fsum(reading_s) or 1.0),
            "nodes_per_request": fsum(len(each.nodes) for each in readers) / len(readers),
            "ios_per_request": fsum(each.ios for each in readers) / len(readers),
            "imbalance": max(loads) * len(loads) / (sum(loads) or 1),
            "moved_bytes": float(self._watch.copied_bytes),
            "moving_s": max(0.0, (self._copied_ns - self._changed_ns) / 1e9) if self._changed_ns else 0.0,
            "checkpoint_bytes_per_s": self._counted.saved_pages * self._load.page_bytes / span_s,
            "failed_reads": float(self._failed),
            "requests": float(len(seen)),
        }
