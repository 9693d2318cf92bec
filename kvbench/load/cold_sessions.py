"""Sessions that are stored and then cold: what comes before a wave (docs/method.md, The cold-recovery protocol).

Populate → settle → prove cold. An arm that recomputes goes through the same phases, and stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from kvbench import clock, content, kv
from kvbench.engine.lifecycle import EngineHandle
from kvbench.errors import StepError
from kvbench.host.activity import cold
from kvbench.host.activity.arraycache import ArrayCache, array_cache
from kvbench.host.activity.pagecache import Eviction, Residency, evict, residency
from kvbench.host.machine.blockdev import BlockDevice, Media, media_of
from kvbench.load import client, engine_metrics, prompts, rows
from kvbench.load.evidence import Expected
from kvbench.model import Arm, Step
from kvbench.pages import filler
from kvbench.probes.context import Context
from kvbench.probes.params import ColdRecoveryParams
from kvbench.store import deviceindex

_POLL_S = 0.1
_WARM_UP_TOKENS = 32  # less than a page, so that nothing of it can be stored
_STORED_SHARE = 0.99  # of the expected bytes: what remains is not worth waiting for, and will be found missing
_STORE_QUIET_S = 10.0  # nothing more has been stored for so long: the engine will store nothing more


@dataclass(frozen=True, slots=True)
class Setup:
    """What is fixed before a wave: the sessions, where their KV will lie, and what must be read back of them."""

    step: Step
    context: Context
    arm: Arm
    engine: EngineHandle
    params: ColdRecoveryParams
    salt: str
    vocabulary: int
    sessions: tuple[tuple[int, ...], ...]  # token ids
    media: Media
    array_cache: ArrayCache
    expected: Expected

    @property
    def stores_kv(self) -> bool:
        return self.arm.kv == "storage"

    @property
    def devices(self) -> tuple[BlockDevice, ...]:
        return self.media.devices

    def run(self, requests: Sequence[client.Request], **how: Any) -> client.LoadResult:
        limit_s = self.params.request_timeout_s
        limits = client.Limits(first_token_s=limit_s, total_s=limit_s)
        return client.run(self.engine.urls, requests, limits=limits, key=self.engine.key, **how)

    def returning(self, sessions: Sequence[Sequence[int]], name: str) -> list[client.Request]:
        """Requests of sessions that are stored, and must be hits as far as they have full pages."""
        hits = self.expected.hit_tokens // len(self.sessions)
        return self._requests(sessions, self.params.output_tokens, name, hits)

    def unstored(self, sessions: Sequence[Sequence[int]], output_tokens: int, name: str) -> list[client.Request]:
        return self._requests(sessions, output_tokens, name, None)

    def _requests(
        self, sessions: Sequence[Sequence[int]], output_tokens: int, name: str, hits: int | None
    ) -> list[client.Request]:
        return [
            client.Request(
                id=f"{name}-{number:03}",
                body=prompts.completion_body(self.engine.model, tokens, output_tokens),
                expected_prompt_tokens=len(tokens),
                expected_completion_tokens=output_tokens,
                expected_cached_tokens=hits,
            )
            for number, tokens in enumerate(sessions)
        ]


@dataclass(frozen=True, slots=True)
class Settled:
    """The state just before the wave."""

    stored_bytes: int
    files: int
    eviction: Eviction
    array_cache_bytes: int  # of other data that were read, so that the array's cache holds nothing else
    residency: Residency | None
    idle_read_bytes: int | None


def set_up(step: Step, context: Context, params: ColdRecoveryParams, waves: int = 1) -> Setup:
    """As many sessions as that many waves read. Raises StepError without an arm or an engine."""
    arm, engine = context.arm, context.engine
    if arm is None or engine is None:
        raise StepError(f"step {step.id}: a wave needs an arm with an engine", "give the gate step `engine: restart`")
    params = replace(params, chunk_tokens=engine.chunk_tokens or params.chunk_tokens)
    shapes = content.model_shapes()
    shape, vocabulary = kv.stored_shape(arm.engine, shapes), kv.vocabulary(arm.engine.model, shapes)
    salt = _salt(step, context, arm)
    count = waves * params.concurrency
    sessions = prompts.session_prompts(step.seed, salt, count, params.session_tokens, vocabulary)
    pages = kv.full_pages(params.session_tokens, params.chunk_tokens) if arm.kv == "storage" else 0
    tensor_parallel = arm.engine.tensor_parallel
    media = media_of(context.data_dirs)
    page_bytes = shape.page_bytes(tensor_parallel, params.chunk_tokens) * tensor_parallel if shape else 0
    return Setup(
        step=step,
        context=context,
        arm=arm,
        engine=engine,
        params=params,
        salt=salt,
        vocabulary=vocabulary,
        sessions=tuple(map(tuple, sessions)),
        media=media,
        array_cache=array_cache(media.each, arm.storage.array_cache_bytes if arm.storage else None),
        expected=Expected(
            hit_tokens=count * pages * params.chunk_tokens,
            read_bytes=count * pages * page_bytes,
        ),
    )


def _salt(step: Step, context: Context, arm: Arm) -> str:
    """What tells the prompts of a step from all others, and from those of its other arms not: they are compared.

    Storage of our own making is empty for every attempt. That of endpoints which somebody else has started may still
    hold what an earlier run, an earlier attempt or the other side of an A/A has stored there.
    """
    shared = f"{step.kind}/{step.round}/{step.cell}"
    if arm.engine.kind != "openai":
        return shared
    return "/".join([context.run_dir.name, shared, *(["again"] if arm.role == "again" else []), str(context.attempt)])


def populate(setup: Setup) -> tuple[client.RequestRow, ...]:
    """Store every session once, by asking for a few tokens of each; then wait until the engine has written all of it.

    The answers are returned: they come from KV that was computed, and the wave's are held against them.
    """
    if not setup.stores_kv:
        return ()
    requests = setup.unstored(setup.sessions, setup.params.reference_tokens, "populate")
    result = setup.run(requests, concurrency=len(requests))
    rows.write(result.rows, setup.context.raw_dir / "populate.parquet")
    failed = [row for row in result.rows if row.error_class]
    if failed:
        raise StepError(f"populate: {len(failed)} of {len(result.rows)} requests failed: {failed[0].error_text}")
    _await_stores(setup)
    return result.rows


def _await_stores(setup: Setup) -> None:
    """Wait until the engine says that it has written all, or, where it does not say, until all is there.

    An engine that stores too little is not waited for for long; what is missing will be found by the checks.
    """
    if counters(setup).get("stores_pending") is not None:
        wait_for(lambda: not counters(setup)["stores_pending"], "the engine to write out its pages")
        return
    stored, since_ns = -1, clock.monotonic_ns()
    while stored < _STORED_SHARE * setup.expected.read_bytes or setup.expected.read_bytes == 0:
        if (now := sum(_stored(setup))) != stored:
            stored, since_ns = now, clock.monotonic_ns()
        if clock.monotonic_ns() - since_ns > _STORE_QUIET_S * 1e9:
            return
        clock.sleep_s(_POLL_S)


def _stored(setup: Setup) -> list[int]:
    """Sizes of the files that the engine has written, or of the pages on a device, in bytes.

    One that is renamed at this moment counts 0.
    """
    sizes = []
    for place in setup.context.data_dirs:
        if place.is_block_device():
            sizes += deviceindex.page_sizes(place)
        for file in place.rglob("*"):
            with suppress(FileNotFoundError):
                sizes += [file.stat().st_size] if file.is_file() else []
    return sizes


def settle(setup: Setup) -> Settled:
    """Empty every tier above the storage, and let the device fall silent; the same dwell on every arm."""
    stored = _stored(setup)
    if setup.stores_kv:  # an engine that has stored nothing has nothing above the storage
        setup.engine.restart()
    eviction = evict(setup.context.data_dirs)
    # after the eviction, which has thrown the engine's own program out too: to read that again is not the wave's work
    warm_up = prompts.session_prompts(setup.step.seed, "warm-up", 1, _WARM_UP_TOKENS, setup.vocabulary)
    setup.run(setup.unstored(warm_up, 1, "warm-up"), concurrency=1)
    evicted_bytes = filler.read_through(setup.array_cache, setup.context)
    idle_read_bytes = cold.fall_silent(setup.devices, setup.params.settle_dwell_s)
    resident = residency(setup.context.data_dirs) if setup.stores_kv else None
    return Settled(sum(stored), len(stored), eviction, evicted_bytes, resident, idle_read_bytes)


def counters(setup: Setup, save_as: str = "") -> dict[str, float | None]:
    """What the engine says of itself, by meaning; its own words are kept among the evidence under that name."""
    text = setup.engine.metrics_text()
    if save_as:
        (setup.context.raw_dir / save_as).write_text(text)
    return dict(engine_metrics.read(text))


def wait_for(done: Callable[[], object], what: str, timeout_s: float = cold.DRAIN_TIMEOUT_S) -> None:
    """Poll until `done()`. Raises StepError when it is not within that time, by default that of a drain."""
    began_ns = clock.monotonic_ns()
    while not done():
        if clock.monotonic_ns() - began_ns > timeout_s * 1e9:
            raise StepError(f"waited {timeout_s:.0f} s for {what}")
        clock.sleep_s(_POLL_S)
