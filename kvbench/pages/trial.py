"""Strategies on real directories: the page stores that simulations compare, timed on a target's own nodes.

Each round of each strategy begins with empty folders. Sessions are written; then sessions are read back as a whole,
a few at once, some far more often than others. Rounds of all strategies take turns, in a changing order. There is no
engine: a request is the read of a session's pages, from its coming to its last page. Every byte read is checked.

Where one of the strategies keeps writes apart from reads, all of them are read beside checkpoint writes: a few pages
are always under way, in each round of each strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from hashlib import blake2b
from math import fsum
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any

from kvbench import clock, safety, stats
from kvbench.sim import strategies
from kvbench.sim.serving import IoWatch, Seen
from kvbench.store.cluster import ClusterView, Role
from kvbench.store.core import Arrive
from kvbench.store.drive import Driver
from kvbench.store.keys import DIGEST_BYTES, PageKey
from kvbench.store.protocol import Done, Finish, Io, Read, Status
from kvbench.store.real import RealNodes

FIGURES = {
    "read_p50_s": "s",
    "read_p99_s": "s",
    "read_bytes_per_s": "B/s",
    "nodes_per_request": "count",
    "ios_per_request": "count",
    "imbalance": "ratio",
    "moved_bytes": "B",
    "checkpoint_bytes_per_s": "B/s",
    "failed_reads": "count",
    "requests": "count",
}
_RUN_PAGES = 4
_APART = frozenset(("separate", "apart"))  # layers that keep checkpoint writes from reads


@dataclass(frozen=True, slots=True)
class Place:
    """Where pages go: nodes of a target, and how its file says they are used."""

    nodes: tuple[Path, ...]
    direct: bool
    rate_limit_bytes_per_s: int | None


@dataclass(frozen=True, slots=True)
class Load:
    """`reads` of whole sessions, `at_once` at any moment; which session, by Zipf's law with exponent `skew`.

    `checkpoint_pages` are those that are written at any moment beside them.
    """

    sessions: int = 24
    pages: int = 8
    page_bytes: int = 256 * 1024
    reads: int = 128
    at_once: int = 8
    skew: float = 1.0
    checkpoint_pages: int = 0

    def session(self, number: int) -> tuple[PageKey, ...]:
        return tuple(_page(f"{number}/{page}") for page in range(self.pages))

    def draw(self, rng: Random) -> list[int]:
        """The sessions that are read, in order."""
        weights = [(1 + number) ** -self.skew for number in range(self.sessions)]
        return rng.choices(range(self.sessions), weights, k=self.reads)


def load_for(names: Sequence[str]) -> Load:
    """What strategies are compared under: with checkpoint writes, where one of them is about those."""
    layers = frozenset[str]().union(*(strategies.parse(name).layers for name in names))
    return Load(checkpoint_pages=8 if layers & _APART else 0)


def run(
    names: Sequence[str], place: Place, load: Load, rounds: int, *, run_id: str, tell: Callable[[dict[str, Any]], None]
) -> dict[str, list[dict[str, float]]]:
    """The figures of every round of each strategy. `tell` is given a row for every request.

    Raises KvbenchError where a node is no directory, or cannot be written to.
    """
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with _claimed(place.nodes, run_id) as folders:
        for number in range(rounds):
            turn = number % len(names)
            for name in (*names[turn:], *names[:turn]):
                trial = _Trial(name, load, number)
                found[name].append(trial.on(folders, place, f"{run_id}/{name}/{number}"))
                for row in trial.rows:
                    tell({"strategy": name, "round": number, **row})
                for folder in folders:
                    safety.empty(folder)
    return found


@contextmanager
def _claimed(nodes: Sequence[Path], run_id: str) -> Iterator[list[Path]]:
    with ExitStack() as stack:
        folders = []
        for node in nodes:
            folders.append(safety.claim(node, run_id))
            stack.callback(safety.release, folders[-1])
        yield folders


class _Trial:
    """One round of one strategy."""

    def __init__(self, name: str, load: Load, number: int) -> None:
        self.rows: list[dict[str, Any]] = []
        self._name, self._load, self._number = name, load, number
        self._watch = IoWatch(load.page_bytes)
        self._node_pages: dict[int, int] = {}
        self._seen: dict[int, Seen] = {}
        self._saves = self._saved_pages = 0  # pages of checkpoints: begun, and written

    def on(self, folders: Sequence[Path], place: Place, salt: str) -> dict[str, float]:
        load, events = self._load, SimpleQueue[Done]()
        cluster = self._cluster(len(folders))
        store = strategies.build(self._name, cluster, load.page_bytes, self._number)
        with RealNodes(
            [folder / "pages" for folder in folders],
            load.page_bytes,
            on_done=events.put,
            direct=place.direct,
            rate_limit_bytes_per_s=place.rate_limit_bytes_per_s,
            run_pages=_RUN_PAGES,
            salt=salt.encode(),
        ) as nodes:
            driver = Driver(store, nodes, events, self._see)
            for number in range(load.sessions):
                pages = load.session(number)
                driver.give(Arrive(-1 - number, "write", pages, pages[0].digest))
            driver.settle()
            self._node_pages.clear()
            span_s = self._read(driver)
            driver.settle()
        return self._figures(len(cluster.targets()), span_s)

    def _cluster(self, nodes: int) -> ClusterView:
        apart = "apart" in strategies.parse(self._name).layers and nodes > 1
        return ClusterView(nodes, {nodes - 1: Role.CHECKPOINT} if apart else None)

    def _read(self, driver: Driver) -> float:
        """All reads, beside checkpoint writes; from the first to the end of the last, in seconds."""
        began_ns, under_way = clock.monotonic_ns(), 0
        for _ in range(self._load.checkpoint_pages):
            under_way -= self._save(driver)
        for number, session in enumerate(self._load.draw(Random(self._number))):
            pages = self._load.session(session)
            self._seen[number] = Seen(clock.monotonic_ns(), 0, len(pages))
            self._watch.want(pages, self._seen[number])
            under_way += 1 - self._note(driver, driver.give(Arrive(number, "read", pages)))
            while under_way >= self._load.at_once:
                under_way -= self._note(driver, driver.wait())
        while under_way:
            under_way -= self._note(driver, driver.wait())
        return (clock.monotonic_ns() - began_ns) / 1e9

    def _save(self, driver: Driver) -> int:
        """Begin to write the next page of a checkpoint; how many reads have ended by it."""
        self._saves += 1
        page = _page(f"checkpoint/{self._saves}")
        return self._note(driver, driver.give(Arrive(-1 - self._load.sessions - self._saves, "checkpoint", (page,))))

    def _see(self, command: Io) -> None:
        self._watch(command)
        if isinstance(command, Read):
            self._node_pages[command.node] = self._node_pages.get(command.node, 0) + 1 + len(command.more)

    def _note(self, driver: Driver, finished: Sequence[Finish]) -> int:
        """Write down what has ended, and let one checkpoint page follow the other; how many reads have ended."""
        ended = 0
        for finish in finished:
            if finish.op < 0:
                if finish.status is Status.OK:
                    self._saved_pages += 1
                    ended += self._save(driver)
                continue
            ended += 1
            seen = self._seen[finish.op]
            row = {
                "request": finish.op, "latency_ns": finish.latency_ns, "status": finish.status.value,
                "nodes": sorted(seen.nodes), "ios": seen.ios,
            }  # fmt: skip
            self.rows.append(row)
        return ended

    def _figures(self, nodes: int, span_s: float) -> dict[str, float]:
        latencies_s = [row["latency_ns"] / 1e9 for row in self.rows]
        pages, count = sum(self._node_pages.values()), len(self.rows)
        return {
            "read_p50_s": stats.percentile(latencies_s, 50),
            "read_p99_s": stats.percentile(latencies_s, 99),
            "read_bytes_per_s": count * self._load.pages * self._load.page_bytes / span_s,
            "nodes_per_request": fsum(len(row["nodes"]) for row in self.rows) / count,
            "ios_per_request": fsum(row["ios"] for row in self.rows) / count,
            "imbalance": max(self._node_pages.values()) * nodes / pages,
            "moved_bytes": float(self._watch.copied_bytes),
            "checkpoint_bytes_per_s": self._saved_pages * self._load.page_bytes / span_s,
            "failed_reads": float(sum(row["status"] != Status.OK for row in self.rows)),
            "requests": float(count),
        }


def _page(name: str) -> PageKey:
    return PageKey(blake2b(name.encode(), digest_size=DIGEST_BYTES).digest(), 0)


def document(place: Place, load: Load, basis: str, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """What a run folder keeps: what was asked for, and the figures of every round."""
    return {
        "version": 1,
        "basis": basis,
        "nodes": [str(node) for node in place.nodes],
        "direct": place.direct,
        "rate_limit_bytes_per_s": place.rate_limit_bytes_per_s,
        "load": asdict(load),
        "units": FIGURES,
        "rounds": found,
    }
