"""The cold-recovery wave: N long sessions, stored once, return at the same moment and are read once, cold.

Protocol: docs/method.md, "The cold-recovery protocol". One call is one round of one cell of one arm: populate →
settle → prove cold → wave → collect. Both arms go through the same phases; an arm that recomputes stores nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from kvbench import clock, content, kv, plan, process
from kvbench.engine.lifecycle import EngineHandle
from kvbench.errors import StepError
from kvbench.host import engine_metrics
from kvbench.host.blockdev import BlockDevice, Medium, medium_of, read_counters
from kvbench.host.pagecache import Eviction, Residency, evict, residency
from kvbench.host.pressure import pressure_share
from kvbench.host.telemetry import Sampler, bytes_read_between, peak_bandwidth, wait_idle
from kvbench.load import client, figures, prompts, rows
from kvbench.load.evidence import Expected, Observed, common_metrics, storage_metrics
from kvbench.model import Arm, Measurement, Metric, Step
from kvbench.probes import ColdRecoveryParams, Context

_DRAIN_TIMEOUT_S = 300.0
_QUIET_S = 1.0
_POLL_S = 0.1
_WARM_UP_TOKENS = 32  # less than a page, so that nothing of it can be stored
_UNKNOWN_VOCABULARY = 30_000  # for a model that is not in models.yaml: ids that every current vocabulary has


@dataclass(frozen=True, slots=True)
class _Setup:
    """What is fixed before the wave: its sessions, where their KV will lie, and what must be read back."""

    step: Step
    context: Context
    arm: Arm
    engine: EngineHandle
    params: ColdRecoveryParams
    sessions: tuple[tuple[int, ...], ...]  # token ids
    media: tuple[Medium, ...]
    expected: Expected

    @property
    def stores_kv(self) -> bool:
        return self.arm.kv == "storage"

    @property
    def devices(self) -> tuple[BlockDevice, ...]:
        return tuple({device.name: device for medium in self.media for device in medium.devices}.values())

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
    residency: Residency | None
    idle_read_bytes: int | None


def measure(step: Step, context: Context) -> Measurement:
    """Run one wave. Raises StepError when a phase before it fails; failed requests of the wave itself are counted."""
    start = clock.stamp()
    overhead: dict[str, float] = {}
    setup = _set_up(step, context)
    with _phase("populate", overhead, context):
        _populate(setup)
    with _phase("settle", overhead, context):
        settled = _settle(setup)
    with _phase("wave", overhead, context):
        metrics, facts = _wave(setup, settled)
    raw_files = (str(file.relative_to(context.run_dir)) for file in context.raw_dir.rglob("*") if file.is_file())
    return Measurement(
        step_id=step.id,
        attempt=context.attempt,
        basis=setup.engine.basis,
        start=start,
        end=clock.stamp(),
        boot_id=clock.boot_id(),
        metrics=metrics,
        series={name: _source(setup, f"{name}.parquet") for name in ("requests", "devices")},
        raw_files=tuple(sorted(raw_files)),
        overhead=overhead,
        facts=facts,
    )


def _set_up(step: Step, context: Context) -> _Setup:
    arm, engine = context.arm, context.engine
    if arm is None or engine is None:
        raise StepError(f"step {step.id}: a wave needs an arm with an engine", "give the gate step `engine: restart`")
    params: ColdRecoveryParams = plan.parse_params(step)
    shape = content.model_shapes().get(arm.engine.model)
    sessions = prompts.session_prompts(
        seed=step.seed,
        salt=f"{step.id}/{context.attempt}",
        count=params.concurrency,
        tokens=params.session_tokens,
        vocabulary=shape.vocabulary if shape else _UNKNOWN_VOCABULARY,
    )
    pages = kv.full_pages(params.session_tokens, params.chunk_tokens) if arm.kv == "storage" else 0
    tensor_parallel = arm.engine.tensor_parallel
    page_bytes = shape.page_bytes(tensor_parallel, params.chunk_tokens) * tensor_parallel if shape else 0
    return _Setup(
        step=step,
        context=context,
        arm=arm,
        engine=engine,
        params=params,
        sessions=tuple(map(tuple, sessions)),
        media=tuple(medium_of(folder) for folder in context.data_dirs),
        expected=Expected(
            hit_tokens=params.concurrency * pages * params.chunk_tokens,
            read_bytes=params.concurrency * pages * page_bytes,
        ),
    )


def _populate(setup: _Setup) -> None:
    """Store every session once, by asking for one token of each; then wait until the engine has written all of it."""
    if not setup.stores_kv:
        return
    requests = setup.requests(setup.sessions, 1, "populate")
    result = client.run(setup.engine.urls, requests, concurrency=len(requests), limits=_limits(setup))
    failed = [row for row in result.rows if row.error_class]
    if failed:
        raise StepError(f"populate: {len(failed)} of {len(result.rows)} requests failed: {failed[0].error_text}")
    _wait(lambda: not _engine_counters(setup).get("stores_pending"), "the engine to write out its pages")


def _settle(setup: _Setup) -> _Settled:
    """Empty every tier above the storage, and let the device fall silent; the same dwell on every arm."""
    stored = [file.stat().st_size for folder in setup.context.data_dirs for file in folder.rglob("*") if file.is_file()]
    setup.engine.restart()
    warm_up = prompts.session_prompts(setup.step.seed, "warm-up", 1, _WARM_UP_TOKENS, _UNKNOWN_VOCABULARY)
    client.run(setup.engine.urls, setup.requests(warm_up, 1, "warm-up"), concurrency=1, limits=_limits(setup))
    eviction = evict(setup.context.data_dirs)
    wait_idle(setup.devices, _QUIET_S, _DRAIN_TIMEOUT_S)
    before = read_counters(setup.devices)
    clock.sleep_s(setup.params.settle_dwell_s)
    idle_read_bytes = bytes_read_between(before, read_counters(setup.devices)) if setup.devices else None
    resident = residency(setup.context.data_dirs) if setup.stores_kv else None
    return _Settled(sum(stored), len(stored), eviction, resident, idle_read_bytes)


def _wave(setup: _Setup, settled: _Settled) -> tuple[dict[str, Metric], dict[str, Any]]:
    """All sessions at once; what they, the device and the engine say about it."""
    context, raw_dir = setup.context, setup.context.raw_dir
    _run_hook(context)
    requests = setup.requests(setup.sessions, setup.params.output_tokens, "wave")
    engine_before = _engine_counters(setup, "engine-before.prom")
    with Sampler(setup.devices, setup.engine.pids) as sampler:
        before = read_counters(setup.devices)
        result = client.run(setup.engine.urls, requests, due_offsets_ns=[0] * len(requests), limits=_limits(setup))
        after = read_counters(setup.devices)
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
        medium_proven=all(medium.proven for medium in setup.media),
    )
    facts = _facts(setup, settled, seen, asdict(result.client))
    (raw_dir / "evidence.json").write_text(json.dumps(facts, indent=1, default=str))
    source = {
        "requests": _source(setup, "requests.parquet"),
        "devices": _source(setup, "devices.parquet"),
        "host": _source(setup, "host.parquet"),
        "engine": _source(setup, "engine-after.prom"),
        # the emulated engine names every bad page; others only count
        "faults": _source(setup, next((f.name for f in raw_dir.glob("engine-faults.jsonl")), "engine-after.prom")),
        "files": _source(setup, "evidence.json"),
    }
    metrics = figures.wave_metrics(result, source["requests"]) | common_metrics(seen, source, len(requests))
    if setup.stores_kv:
        metrics |= storage_metrics(setup.expected, seen, source, len(requests))
    return metrics, facts


def _run_hook(context: Context) -> None:
    if hook := context.target.hooks.get("before_wave"):
        done = process.run(hook, timeout_s=_DRAIN_TIMEOUT_S)
        if done.returncode:
            raise StepError(
                f"the hook before_wave ended with exit code {done.returncode}: {done.stderr.strip()[-200:]}"
            )


def _facts(setup: _Setup, settled: _Settled, seen: Observed, client_self: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "engine_model": setup.engine.model,
        "engine_epoch": setup.engine.epoch,
        "devices": [device.name for device in setup.devices],
        "medium_unproven": sorted({medium.why_unproven for medium in setup.media if medium.why_unproven}),
        "stored_files": settled.files,
        "eviction": asdict(settled.eviction),
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


def _limits(setup: _Setup) -> client.Limits:
    return client.Limits(first_token_s=setup.params.request_timeout_s, total_s=setup.params.request_timeout_s)


def _source(setup: _Setup, name: str) -> str:
    return f"raw/{setup.step.id}/{name}"


@contextmanager
def _phase(name: str, overhead: dict[str, float], context: Context) -> Iterator[None]:
    context.progress(name, None)
    began_ns = clock.monotonic_ns()
    yield
    overhead[name] = (clock.monotonic_ns() - began_ns) / 1e9


def _wait(done: Any, what: str) -> None:
    """Poll until `done()`. Raises StepError when it is not within the time that a drain may take."""
    began_ns = clock.monotonic_ns()
    while not done():
        if clock.monotonic_ns() - began_ns > _DRAIN_TIMEOUT_S * 1e9:
            raise StepError(f"waited {_DRAIN_TIMEOUT_S:g} s for {what}")
        clock.sleep_s(_POLL_S)
