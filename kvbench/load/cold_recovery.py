"""The cold-recovery wave: N long sessions, stored once, return at the same moment and are read once, cold.

Protocol: docs/method.md, "The cold-recovery protocol". One call is one round of one cell of one arm: populate →
settle → prove cold → wave → collect. Both arms go through the same phases; an arm that recomputes stores nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from kvbench import clock, content, kv, plan, wording
from kvbench.engine.lifecycle import EngineHandle
from kvbench.errors import StepError
from kvbench.host.activity import cold, data_units
from kvbench.host.activity.arraycache import ArrayCache, array_cache
from kvbench.host.activity.pagecache import Eviction, Residency, evict, residency
from kvbench.host.activity.pressure import pressure_share
from kvbench.host.activity.telemetry import Sampler, bytes_read_between, peak_bandwidth
from kvbench.host.machine.blockdev import BlockDevice, Media, media_of, read_counters
from kvbench.judge import outputs
from kvbench.load import client, engine_metrics, figures, prompts, rows
from kvbench.load.evidence import Expected, Observed, common_metrics, storage_metrics
from kvbench.load.scrape import scraping
from kvbench.model import Arm, Metric, Step
from kvbench.pages import filler
from kvbench.probes.context import Context, Measured
from kvbench.probes.params import ColdRecoveryParams
from kvbench.store import deviceindex

_POLL_S = 0.1
_WARM_UP_TOKENS = 32  # less than a page, so that nothing of it can be stored
_STORED_SHARE = 0.99  # of the expected bytes: what remains is not worth waiting for, and will be found missing
_STORE_QUIET_S = 10.0  # nothing more has been stored for so long: the engine will store nothing more
_UNKNOWN_VOCABULARY = 30_000  # for a model that is not in models.yaml: ids that every current vocabulary has


@dataclass(frozen=True, slots=True)
class _Setup:
    """What is fixed before the wave: its sessions, where their KV will lie, and what must be read back."""

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

    def requests(self, sessions: Sequence[Sequence[int]], output_tokens: int, kind: str) -> list[client.Request]:
        hits = self.expected.hit_tokens // self.params.concurrency if kind == "wave" else None
        return [
            client.Request(
                id=f"{kind}-{number:03}",
                body=prompts.completion_body(self.engine.model, tokens, output_tokens),
                expected_prompt_tokens=len(tokens),
                expected_completion_tokens=output_tokens,
                expected_cached_tokens=hits,
            )
            for number, tokens in enumerate(sessions)
        ]


@dataclass(frozen=True, slots=True)
class _Settled:
    """The state just before the wave."""

    stored_bytes: int
    files: int
    eviction: Eviction
    array_cache_bytes: int  # of other data that were read, so that the array's cache holds nothing else
    residency: Residency | None
    idle_read_bytes: int | None


def measure(step: Step, context: Context) -> Measured:
    """Run one wave. Raises StepError when a phase before it fails; failed requests of the wave itself are counted."""
    setup = _set_up(step, context)
    with context.phase("populate"):
        computed = _populate(setup)
    with context.phase("settle"):
        settled = _settle(setup)
    with context.phase("wave"):
        metrics, facts, doubts = _wave(setup, settled, computed)
    return Measured(
        basis=setup.engine.basis,
        metrics=metrics,
        series={name: context.source(f"{name}.parquet") for name in ("requests", "devices")},
        facts=facts,
        warnings=(*_warnings(setup, metrics), *doubts),
    )


def _warnings(setup: _Setup, metrics: Mapping[str, Metric]) -> tuple[str, ...]:
    if not setup.stores_kv or metrics["external_hit_tokens"].value != 0:
        return ()
    where = wording.place(setup.step)
    return (f"Nothing was read from storage ({where}): no request hit anything there, all was computed again.",)


def _set_up(step: Step, context: Context) -> _Setup:
    arm, engine = context.arm, context.engine
    if arm is None or engine is None:
        raise StepError(f"step {step.id}: a wave needs an arm with an engine", "give the gate step `engine: restart`")
    params: ColdRecoveryParams = plan.parse_params(step)
    params = replace(params, chunk_tokens=engine.chunk_tokens or params.chunk_tokens)
    shape = content.model_shapes().get(arm.engine.model)
    vocabulary = shape.vocabulary if shape else _UNKNOWN_VOCABULARY
    salt = _salt(step, context, arm)
    sessions = prompts.session_prompts(step.seed, salt, params.concurrency, params.session_tokens, vocabulary)
    pages = kv.full_pages(params.session_tokens, params.chunk_tokens) if arm.kv == "storage" else 0
    tensor_parallel = arm.engine.tensor_parallel
    media = media_of(context.data_dirs)
    page_bytes = shape.page_bytes(tensor_parallel, params.chunk_tokens) * tensor_parallel if shape else 0
    return _Setup(
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
            hit_tokens=params.concurrency * pages * params.chunk_tokens,
            read_bytes=params.concurrency * pages * page_bytes,
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


def _populate(setup: _Setup) -> tuple[client.RequestRow, ...]:
    """Store every session once, by asking for a few tokens of each; then wait until the engine has written all of it.

    The answers are returned: they come from KV that was computed, and the wave's are held against them.
    """
    if not setup.stores_kv:
        return ()
    requests = setup.requests(setup.sessions, setup.params.reference_tokens, "populate")
    result = setup.run(requests, concurrency=len(requests))
    rows.write(result.rows, setup.context.raw_dir / "populate.parquet")
    failed = [row for row in result.rows if row.error_class]
    if failed:
        raise StepError(f"populate: {len(failed)} of {len(result.rows)} requests failed: {failed[0].error_text}")
    _await_stores(setup)
    return result.rows


def _await_stores(setup: _Setup) -> None:
    """Wait until the engine says that it has written all, or, where it does not say, until all is there.

    An engine that stores too little is not waited for for long; what is missing will be found by the checks.
    """
    if _engine_counters(setup).get("stores_pending") is not None:
        _wait(lambda: not _engine_counters(setup)["stores_pending"], "the engine to write out its pages")
        return
    stored, since_ns = -1, clock.monotonic_ns()
    while stored < _STORED_SHARE * setup.expected.read_bytes or setup.expected.read_bytes == 0:
        if (now := sum(_stored(setup))) != stored:
            stored, since_ns = now, clock.monotonic_ns()
        if clock.monotonic_ns() - since_ns > _STORE_QUIET_S * 1e9:
            return
        clock.sleep_s(_POLL_S)


def _stored(setup: _Setup) -> list[int]:
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


def _settle(setup: _Setup) -> _Settled:
    """Empty every tier above the storage, and let the device fall silent; the same dwell on every arm."""
    stored = _stored(setup)
    if setup.stores_kv:  # an engine that has stored nothing has nothing above the storage
        setup.engine.restart()
    eviction = evict(setup.context.data_dirs)
    # after the eviction, which has thrown the engine's own program out too: to read that again is not the wave's work
    warm_up = prompts.session_prompts(setup.step.seed, "warm-up", 1, _WARM_UP_TOKENS, setup.vocabulary)
    setup.run(setup.requests(warm_up, 1, "warm-up"), concurrency=1)
    evicted_bytes = filler.read_through(setup.array_cache, setup.context)
    idle_read_bytes = cold.fall_silent(setup.devices, setup.params.settle_dwell_s)
    resident = residency(setup.context.data_dirs) if setup.stores_kv else None
    return _Settled(sum(stored), len(stored), eviction, evicted_bytes, resident, idle_read_bytes)


def _wave(
    setup: _Setup, settled: _Settled, computed: Sequence[client.RequestRow]
) -> tuple[dict[str, Metric], dict[str, Any], list[str]]:
    """All sessions at once; what they, the device and the engine say about it, and where two counts disagree."""
    context, raw_dir = setup.context, setup.context.raw_dir
    cold.run_hook(context.target)
    requests = setup.requests(setup.sessions, setup.params.output_tokens, "wave")
    engine_before = _engine_counters(setup, "engine-before.prom")
    units_before = data_units.read_bytes(setup.devices, raw_dir / "smart-before")
    during = scraping(setup.engine.metrics_text, raw_dir / "engine-during.prom")
    with during, Sampler(setup.devices, setup.engine.pids) as sampler:
        before = read_counters(setup.devices)
        result = setup.run(requests, due_offsets_ns=[0] * len(requests))
        after = read_counters(setup.devices)
    units_after = data_units.read_bytes(setup.devices, raw_dir / "smart-after")
    engine_after = _engine_counters(setup, "engine-after.prom")
    rows.write(result.rows, raw_dir / "requests.parquet")
    sampler.write_devices(raw_dir / "devices.parquet")
    sampler.write_host(raw_dir / "host.parquet")
    first_tokens_ns = [row.first_token_ns for row in result.rows if row.first_token_ns is not None]
    link = setup.arm.storage.link_bytes_per_s if setup.arm.storage else None
    seen = Observed(
        stored_bytes=settled.stored_bytes,
        idle_read_bytes=settled.idle_read_bytes,
        device_read_bytes=bytes_read_between(before, after) if setup.devices else None,
        residency_before=settled.residency,
        residency_after=residency(context.data_dirs) if setup.stores_kv else None,
        wave_s=(max(first_tokens_ns) - result.start_ns) / 1e9 if first_tokens_ns else None,
        peak_bytes_per_s=peak_bandwidth(sampler.samples),
        cpu_pressure_share=pressure_share(sampler.samples[0].pressure, sampler.samples[-1].pressure),
        # a bad page may be found before the wave, when the restarted engine looks through its storage
        engine=engine_metrics.delta(engine_before, engine_after)
        | {"content_mismatches": engine_after.get("content_mismatches")},
        link_bytes_per_s=link,
        medium_proven=setup.media.proven,
    )
    units = data_units.between((units_before, units_after), (before, after))
    facts = _facts(setup, settled, seen, asdict(result.client)) | {
        "answers": _answers(setup, computed, result.rows),
        "smart_read": [asdict(reading) for reading in units],
    }
    context.keep("evidence.json", facts)
    source = _sources(context)
    metrics = figures.wave_metrics(result, source["requests"]) | common_metrics(seen, source, len(requests))
    if setup.stores_kv:
        metrics |= storage_metrics(setup.expected, seen, source, len(requests))
        metrics["array_cache_evicted_ratio"] = setup.array_cache.metric(settled.array_cache_bytes, source["files"])
        metrics["output_divergence_share"] = _divergence(facts["answers"], source["requests"])
    return metrics, facts, [reading.disagreement for reading in units if reading.disagreement]


def _sources(context: Context) -> dict[str, str]:
    """The raw file behind each group of metrics."""
    # the emulated engine names every bad page; others only count
    faults = next((file.name for file in context.raw_dir.glob("engine-faults.jsonl")), "engine-after.prom")
    names = {"engine": "engine-after.prom", "faults": faults, "files": "evidence.json"}
    names |= {group: f"{group}.parquet" for group in ("requests", "devices", "host")}
    return {group: context.source(name) for group, name in names.items()}


def _answers(setup: _Setup, computed: Sequence[client.RequestRow], wave: Sequence[client.RequestRow]) -> dict[str, Any]:
    """How each session's text begins, by whether its KV was computed or read; `prompts` names what they were sent."""
    first, second = _heads(computed), _heads(wave)
    told = {"computed": first, "read": second} if setup.stores_kv else {"computed": second}
    return {"prompts": setup.salt, **told}


def _heads(sent: Sequence[client.RequestRow]) -> dict[str, str]:
    """By session. That a model says nothing, of tokens that it counts, is an answer too."""
    return {row.request_id.rpartition("-")[2]: row.output_head for row in sent if row.ok or row.error_class == "empty"}


def _divergence(answers: Mapping[str, Any], source: str) -> Metric:
    shares = outputs.agreements(answers["computed"], answers["read"])
    n = len(shares)
    value = outputs.differing(shares) / n if n else None
    return Metric(value, "share", n, source, "" if n else "no session was answered twice")


def _facts(setup: _Setup, settled: _Settled, seen: Observed, client_self: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "engine": setup.engine.about and dict(setup.engine.about),
        "engine_model": setup.engine.model,
        "engine_epoch": setup.engine.epoch,
        **setup.media.facts(),
        "stored_files": settled.files,
        "eviction": asdict(settled.eviction),
        **setup.array_cache.facts(),
        "array_cache_evicted_bytes": settled.array_cache_bytes,
        "residency_before": settled.residency and asdict(settled.residency),
        "residency_after": seen.residency_after and asdict(seen.residency_after),
        "idle_read_bytes": seen.idle_read_bytes,
        "device_read_bytes": seen.device_read_bytes,
        "engine_counters": dict(seen.engine),
        "client": dict(client_self),
    }


def _engine_counters(setup: _Setup, save_as: str = "") -> dict[str, float | None]:
    text = setup.engine.metrics_text()
    if save_as:
        (setup.context.raw_dir / save_as).write_text(text)
    return dict(engine_metrics.read(text))


def _wait(done: Any, what: str) -> None:
    """Poll until `done()`. Raises StepError when it is not within the time that a drain may take."""
    began_ns = clock.monotonic_ns()
    while not done():
        if clock.monotonic_ns() - began_ns > cold.DRAIN_TIMEOUT_S * 1e9:
            raise StepError(f"waited {cold.DRAIN_TIMEOUT_S:g} s for {what}")
        clock.sleep_s(_POLL_S)
