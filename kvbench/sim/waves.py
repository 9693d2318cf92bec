"""Waves of cold sessions on the emulated engine's scheduler, in virtual time over one modelled device.

The scheduler and the page store are those that run on real disks; here they meet a device that is a few figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from kvbench.engine.protocol import Command, Emit, EngineConfig, FinishRequest, Submit
from kvbench.engine.scheduler import EngineCore
from kvbench.sim.agenda import Agenda
from kvbench.sim.device import NodeModel
from kvbench.sim.drive import Driver
from kvbench.sim.nodes import SimNodes
from kvbench.store.cluster import ClusterView
from kvbench.store.core import PageStore
from kvbench.store.hashing import Modulo
from kvbench.store.keys import PageKey
from kvbench.store.placement import ByPage
from kvbench.store.queues import Lane, Limit, Queues

_READERS = 32  # I/Os that an instance has under way: instances share the device by turns


@dataclass(frozen=True, slots=True)
class Sessions:
    """What each session of a wave asks for; `pages` of its prompt are on the device, those of all ranks."""

    pages: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Wave:
    """`ttft_s` of each instance's requests, in ascending order; `bytes_read` from the device."""

    ttft_s: tuple[tuple[float, ...], ...]
    wall_s: float
    bytes_read: int


class Rig:
    """`instances` of an engine, each with sessions of its own on one shared device; without a device they recompute."""

    def __init__(
        self,
        config: EngineConfig,
        device: NodeModel | None,
        sessions: Sessions,
        *,
        instances: int,
        most: int,
        seed: int,
    ) -> None:
        """`most`: how many sessions there are for each instance. `seed` draws the order of arrival, and latencies."""
        self._agenda, self._sessions, self._rng = Agenda(), sessions, Random(seed)
        page_bytes = config.page_bytes // config.ranks
        self._nodes = SimNodes(self._agenda, [device] if device else [], page_bytes, seed)
        self._prompts = [[tuple(_digests(i, s, sessions.pages)) for s in range(most)] for i in range(instances)]
        self._drivers = [self._driver(config, prompts) for prompts in self._prompts]
        self._came_ns: dict[int, int] = {}
        self._finished_ns: dict[int, int] = {}
        self._requests = 0

    def wave(self, concurrency: int) -> Wave:
        """Send so many requests at once, in random order: the first sessions of each instance, an equal share each."""
        began_ns, bytes_before = self._agenda.now_ns, self._bytes_read()
        requests = [self._submit(driver, number, concurrency) for number, driver in enumerate(self._drivers)]
        self._agenda.run()
        ttft_s = tuple(
            tuple(sorted((self._came_ns[request] - began_ns) / 1e9 for request in numbers)) for numbers in requests
        )
        ended_ns = max(self._finished_ns[request] for numbers in requests for request in numbers)
        return Wave(ttft_s, (ended_ns - began_ns) / 1e9, self._bytes_read() - bytes_before)

    def _driver(self, config: EngineConfig, prompts: list[tuple[bytes, ...]]) -> Driver:
        if not self._nodes.nodes:
            return Driver(self._agenda, self._nodes, EngineCore(config, None), self._told)
        store = PageStore(ClusterView(1), ByPage(Modulo()), queues=Queues(limits={Lane.READ: Limit(_READERS)}))
        index = {PageKey(digest, rank): 0 for digests in prompts for digest in digests for rank in range(config.ranks)}
        store.load([(tuple(index), 0)])
        self._nodes.held[0].update(index)
        return Driver(self._agenda, self._nodes, EngineCore(config, store), self._told)

    def _submit(self, driver: Driver, instance: int, concurrency: int) -> range:
        prompts = self._prompts[instance][: concurrency // len(self._drivers)]
        first = self._requests
        for digests in self._rng.sample(prompts, len(prompts)):
            sessions = self._sessions
            event = Submit(self._requests, digests, sessions.prompt_tokens, sessions.output_tokens)
            self._agenda.at(self._agenda.now_ns, driver.give, event)
            self._requests += 1
        return range(first, self._requests)

    def _told(self, command: Command) -> None:
        if isinstance(command, Emit) and command.position == 0:
            self._came_ns[command.request] = self._agenda.now_ns
        elif isinstance(command, FinishRequest):
            self._finished_ns[command.request] = self._agenda.now_ns

    def _bytes_read(self) -> int:
        return sum(node.bytes_read for node in self._nodes.nodes)


def _digests(instance: int, session: int, pages: int) -> Iterator[bytes]:
    for page in range(pages):
        yield instance.to_bytes(4, "big") + session.to_bytes(4, "big") + page.to_bytes(8, "big")
