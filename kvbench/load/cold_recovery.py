"""The cold-recovery wave: N long sessions, stored once, return at the same moment and are read once, cold.

Protocol: docs/method.md, "The cold-recovery protocol". One call is one round of one cell of one arm: populate →
settle → prove cold → wave → collect. Both arms go through the same phases; an arm that recomputes stores nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kvbench import plan, wording
from kvbench.host.activity import cold, data_units
from kvbench.host.activity.pagecache import residency
from kvbench.host.activity.pressure import pressure_share
from kvbench.host.activity.telemetry import Sampler, bytes_read_between, peak_bandwidth
from kvbench.host.machine.blockdev import read_counters
from kvbench.judge import outputs
from kvbench.load import client, engine_metrics, figures, rows, schedule
from kvbench.load.cold_sessions import Settled, Setup, counters, populate, set_up, settle
from kvbench.load.evidence import Observed, common_metrics, storage_metrics
from kvbench.load.scrape import scraping
from kvbench.model import Metric, Step
from kvbench.probes.context import Context, Measured


def measure(step: Step, context: Context) -> Measured:
    """Run one wave. Raises StepError when a phase before it fails; failed requests of the wave itself are counted."""
    setup = set_up(step, context, plan.parse_params(step))
    with context.phase("populate"):
        computed = populate(setup)
    with context.phase("settle"):
        settled = settle(setup)
    with context.phase("wave"):
        metrics, facts, doubts = _wave(setup, settled, computed)
    return Measured(
        basis=setup.engine.basis,
        metrics=metrics,
        series={name: context.source(f"{name}.parquet") for name in ("requests", "devices")},
        facts=facts,
        warnings=(*_warnings(setup, metrics), *doubts),
    )


def _warnings(setup: Setup, metrics: Mapping[str, Metric]) -> tuple[str, ...]:
    if not setup.stores_kv or metrics["external_hit_tokens"].value != 0:
        return ()
    where = wording.place(setup.step)
    return (f"Nothing was read from storage ({where}): no request hit anything there, all was computed again.",)


def _wave(
    setup: Setup, settled: Settled, computed: Sequence[client.RequestRow]
) -> tuple[dict[str, Metric], dict[str, Any], list[str]]:
    """All sessions at once; what they, the device and the engine say about it, and where two counts disagree."""
    context, raw_dir = setup.context, setup.context.raw_dir
    cold.run_hook(context.target)
    requests = setup.returning(setup.sessions, "wave")
    engine_before = counters(setup, "engine-before.prom")
    units_before = data_units.read_bytes(setup.devices, raw_dir / "smart-before")
    during = scraping(setup.engine.metrics_text, raw_dir / "engine-during.prom")
    with during, Sampler(setup.devices, setup.engine.pids) as sampler:
        before = read_counters(setup.devices)
        result = setup.run(requests, due_offsets_ns=schedule.wave(len(requests)))
        after = read_counters(setup.devices)
    units_after = data_units.read_bytes(setup.devices, raw_dir / "smart-after")
    engine_after = counters(setup, "engine-after.prom")
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
    counted, named = "engine-after.prom", "engine-faults.jsonl"  # every bad page, by the emulated engine alone
    faults = named if (context.raw_dir / named).exists() else counted
    names = {"engine": counted, "faults": faults, "files": "evidence.json"}
    names |= {group: f"{group}.parquet" for group in ("requests", "devices", "host")}
    return {group: context.source(name) for group, name in names.items()}


def _answers(setup: Setup, computed: Sequence[client.RequestRow], wave: Sequence[client.RequestRow]) -> dict[str, Any]:
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


def _facts(setup: Setup, settled: Settled, seen: Observed, client_self: Mapping[str, Any]) -> dict[str, Any]:
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
