"""The probe `load.scaling`: cold waves on one engine, and in the second of them a storage node comes or goes.

The waves are of sessions of their own, stored and settled together: one before the change, one in which it happens, one
after, when all pages have moved. The change is the target's hook; where it has none, the embedded engine's own pool of
directories gets another node, or loses one. Pages move no faster than a share of what the first wave read, and wait
while the TTFT is near the edge of the band that the first wave sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kvbench import clock, plan
from kvbench.engine import endpoint, lifecycle
from kvbench.engine.lifecycle import EngineHandle
from kvbench.errors import StepError
from kvbench.host.activity import cold
from kvbench.host.activity.pressure import pressure_share, read_pressure
from kvbench.load import client, engine_metrics, figures, rows, schedule
from kvbench.load.cold_sessions import Settled, Setup, counters, populate, set_up, settle, wait_for
from kvbench.load.evidence import counter_metric, pressure_metric, residency_metric
from kvbench.load.moves import Moves, Reading, rebalance_s, table
from kvbench.model import Metric, Step
from kvbench.pages.fault import Hook, run_command
from kvbench.probes.context import Context, Measured
from kvbench.probes.params import ScalingParams
from kvbench.stats import percentile
from kvbench.store.keys import PageKey, chain

_WAVES = ("before", "during", "after")
_OWN_POOL = (
    "Scaling was tried on kvbench's own pool: a directory more, or one less, for the embedded engine's pages. It says "
    "nothing about nodes of the storage under test."
)
HOOKS: Mapping[str, str] = {"add": "node_add", "fail": "node_remove"}
BAND = 1.10  # × the TTFT p50 before the change: where moves wait

Pages = frozenset[PageKey]


@dataclass(frozen=True, slots=True)
class _Pool:
    """Directories of the embedded engine's own, each for a node. The last one is the one that comes, or fails."""

    scaling: str
    directories: tuple[Path, ...]

    @property
    def at_first(self) -> tuple[Path, ...]:
        return self.directories[:-1] if self.scaling == "add" else self.directories

    def change(self, engine: EngineHandle, pace: Mapping[str, int | float]) -> None:
        last = len(self.directories) - 1
        what = {"add": str(self.directories[last])} if self.scaling == "add" else {"fail": last}
        endpoint.post(f"{engine.urls[0]}/kvbench/nodes", engine.key, {**what, **pace})

    def lost(self) -> Pages:
        """What lies on the node that will fail."""
        names = (file.name for file in self.directories[-1].iterdir()) if self.scaling == "fail" else ()
        return frozenset(key for name in names if (key := PageKey.from_file_name(name)))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What came of the three waves, and of the change in the second."""

    scaling: str
    waves: Mapping[str, client.LoadResult]
    changed_ns: int
    pace: Mapping[str, int | float]
    lost: Pages | None  # what lay on the node that failed; None: nobody knows
    readings: list[Reading]
    engine: Mapping[str, float | None]  # growth of its counters over all three; wrong pages since its start
    pressure_share: float | None  # in the second

    @property
    def rows(self) -> list[client.RequestRow]:
        return [row for wave in self.waves.values() for row in wave.rows]


def measure(step: Step, context: Context) -> Measured:
    """Raises StepError when a phase before the waves fails, the change does, or the wave is over before it."""
    params: ScalingParams = plan.parse_params(step)
    arm = context.arm
    if arm is None or not context.data_dirs:
        raise StepError(f"step {step.id}: nodes come and go on an arm with storage", "give the gate step `arms: dut`")
    pool = None if context.target.has_node_hooks else _pool(params, context.data_dirs)
    directories = pool.at_first if pool else context.data_dirs
    with lifecycle.running(arm, directories, context.raw_dir, context.survivors) as engine:
        setup = set_up(step, replace(context, engine=engine), params, waves=3)
        with context.phase("populate"):
            populate(setup)
        with context.phase("settle"):
            settled = settle(setup)
        with context.phase("waves"):
            seen = _waves(setup, params, pool)
        return _measured(setup, params, settled, seen, pool)


def _pool(params: ScalingParams, data_dirs: Sequence[Path]) -> _Pool:
    """As many directories as asked, in turn on the arm's nodes."""
    places = (data_dirs[number % len(data_dirs)] / f"node-{number}" for number in range(params.pool_nodes))
    return _Pool(params.scaling, tuple(places))


# ---------------------------------------------------------------- the waves


def _waves(setup: Setup, params: ScalingParams, pool: _Pool | None) -> _Seen:
    lost = pool.lost() if pool else None
    counted = counters(setup, "engine-before.prom")
    waves = {}
    with Moves(lambda: counters(setup)) as moves:
        cold.run_hook(setup.context.target)
        waves["before"] = _wave(setup, "before")
        pace = _pace(setup, params, waves["before"]) if pool else {}
        hook = _hook(setup, params, waves["before"], pool, pace)
        pressure = read_pressure()
        try:
            waves["during"] = _wave(setup, "during", lambda progress: hook.poll(clock.monotonic_ns()))
        finally:
            hook.ended()  # a change that has begun is not left to the next step
        share = pressure_share(pressure, read_pressure())
        began_ns, ended_ns = _changed(hook, setup.step)
        wait_for(lambda: moves.have_ended(ended_ns), "the pages to move", setup.context.left_s)
        cold.fall_silent(setup.devices, params.settle_dwell_s)
        waves["after"] = _wave(setup, "after")
    after = counters(setup, "engine-after.prom")
    engine = engine_metrics.delta(counted, after) | {"content_mismatches": after["content_mismatches"]}
    return _Seen(params.scaling, waves, began_ns, pace, lost, moves.readings, engine, share)


def _sessions(setup: Setup, name: str) -> tuple[tuple[int, ...], ...]:
    return setup.sessions[_WAVES.index(name) :: len(_WAVES)]


def _wave(
    setup: Setup, name: str, on_progress: Callable[[client.Progress], None] = lambda progress: None
) -> client.LoadResult:
    requests = setup.returning(_sessions(setup, name), name)
    return setup.run(requests, due_offsets_ns=schedule.wave(len(requests)), on_progress=on_progress)


def _span_ns(wave: client.LoadResult) -> int:
    """Up to the last first token. Raises StepError when there is none."""
    stamps = [row.first_token_ns for row in wave.rows if row.first_token_ns is not None]
    if not stamps:
        raise StepError(f"no request of a wave succeeded: {wave.rows[0].error_text}")
    return max(stamps) - wave.start_ns


def _pace(setup: Setup, params: ScalingParams, before: client.LoadResult) -> dict[str, int | float]:
    """How fast the pool may move pages, by what the first wave shows; empty: as it likes."""
    if not params.move_share:
        return {}
    bytes_per_s = setup.expected.read_bytes / len(_WAVES) / (_span_ns(before) / 1e9)
    limit_s = BAND * _p50_s(before)
    return {"bytes_per_s": max(1, int(params.move_share * bytes_per_s)), "ttft_limit_s": limit_s}


def _hook(
    setup: Setup, params: ScalingParams, before: client.LoadResult, pool: _Pool | None, pace: Mapping[str, int | float]
) -> Hook:
    """The change, at its share of what the first wave took."""
    act: Callable[[], object] = partial(run_command, setup.context.target.hooks.get(HOOKS[params.scaling], ()))
    if pool:
        act = partial(pool.change, setup.engine, pace)
    due_ns = clock.monotonic_ns() + round(params.at_share * _span_ns(before))
    return Hook(HOOKS[params.scaling], act, due_ns)


def _changed(hook: Hook, step: Step) -> tuple[int, int]:
    """When the change began, and when it was done. Raises StepError when it failed, or was never due."""
    done = hook.ended()
    if hook.why_failed:
        raise StepError(f"{step.id}: the nodes could not be changed: {hook.why_failed}")
    if not done or hook.ended_ns is None:
        raise StepError(f"{step.id}: the second wave was over before the nodes were to change", "lower at_share")
    return done[0].at_ns, hook.ended_ns


# ---------------------------------------------------------------- what it says


def _measured(setup: Setup, params: ScalingParams, settled: Settled, seen: _Seen, pool: _Pool | None) -> Measured:
    context = setup.context
    rows.write(seen.rows, context.raw_dir / "requests.parquet")
    source = {"requests": context.source("requests.parquet"), "engine": context.source("engine-after.prom")}
    if seen.readings:
        source["moves"] = context.keep_rows("moves.parquet", table(seen.readings, _page_bytes(setup)))
    facts = _facts(setup, params, settled, seen, pool)
    source["evidence"] = context.keep("evidence.json", facts)
    return Measured(
        basis=setup.engine.basis,
        metrics=_of_the_change(setup, seen, source)
        | _misses(setup, seen, source["requests"])
        | _admissible(setup, settled, seen, source),
        series={name: source[name] for name in ("requests", "moves") if name in source},
        facts=facts,
        warnings=(_OWN_POOL,) if pool else (),
    )


def _of_the_change(setup: Setup, seen: _Seen, source: Mapping[str, str]) -> dict[str, Metric]:
    """The figures of the wave in which the nodes changed, the waves' beside it, and what moved."""
    during = seen.waves["during"]
    by_wave = {name: figures.wave_metrics(wave, source["requests"]) for name, wave in seen.waves.items()}
    moved, where = seen.engine.get("moved_pages"), source.get("moves", source["engine"])
    uncounted = "" if moved is not None else "the engine does not count what moves between nodes"
    lost = None if seen.lost is None else len(seen.lost)
    changed = moved if seen.scaling == "add" else lost
    return by_wave["during"] | {
        "requests_failed": Metric(sum(not row.ok for row in seen.rows), "count", len(seen.rows), source["requests"]),
        "ttft_before_p50_s": by_wave["before"]["ttft_p50_s"],
        "ttft_after_p50_s": by_wave["after"]["ttft_p50_s"],
        "change_at_share": Metric(
            (seen.changed_ns - during.start_ns) / _span_ns(during), "share", len(during.rows), source["evidence"]
        ),
        "changed_pages": Metric(changed, "count", 1, where, "" if changed is not None else "nobody counts them"),
        "moved_bytes": Metric(None if moved is None else moved * _page_bytes(setup), "B", 1, where, uncounted),
        "rebalance_s": Metric(rebalance_s(seen.readings, seen.changed_ns), "s", 1, where, uncounted),
    }


def _admissible(setup: Setup, settled: Settled, seen: _Seen, source: Mapping[str, str]) -> dict[str, Metric]:
    """What shows that the waves were cold and whole."""
    n, evidence = len(seen.rows), source["evidence"]
    return {
        "content_mismatches": counter_metric(seen.engine, "content_mismatches", source["engine"], n),
        "preemptions": counter_metric(seen.engine, "preemptions", source["engine"], n),
        "residency_before_share": residency_metric(settled.residency, n, evidence),
        "array_cache_evicted_ratio": setup.array_cache.metric(settled.array_cache_bytes, evidence),
        "cpu_pressure_share": pressure_metric(seen.pressure_share, evidence),
        "medium_proven": Metric(float(setup.media.proven), "count", 1, evidence),
    }


def _misses(setup: Setup, seen: _Seen, source: str) -> dict[str, Metric]:
    """Hits that requests lacked, and which of them had fewer than what is left of their pages explains."""
    missed = unexplained = told = 0
    for name, wave in seen.waves.items():
        for row, session in zip(wave.rows, _sessions(setup, name), strict=True):
            if row.cached_tokens is None or row.expected_cached_tokens is None:
                continue
            told += 1
            missed += row.expected_cached_tokens - row.cached_tokens if name != "before" else 0
            lost = seen.lost if name != "before" else None
            left = _left_tokens(setup, session, lost) if lost else row.expected_cached_tokens
            unexplained += not left <= row.cached_tokens <= row.expected_cached_tokens
    silent = len(seen.rows) - told
    note = f"usage of {silent} of {len(seen.rows)} requests has no cached_tokens" if silent else ""
    return {
        "missed_tokens": Metric(missed if told else None, "count", told, source, note),
        "unexplained_misses": Metric(None if silent else unexplained, "count", told, source, note),
    }


def _left_tokens(setup: Setup, session: Sequence[int], lost: Pages) -> int:
    """The tokens of a session's full pages before the first that is lost; the last token is always computed."""
    chunk, ranks = setup.params.chunk_tokens, setup.arm.engine.tensor_parallel
    digests = chain(setup.engine.model, chunk, ranks, session[: (len(session) - 1) // chunk * chunk])
    pages = ([PageKey(digest, rank) for rank in range(ranks)] for digest in digests)
    return chunk * next((at for at, page in enumerate(pages) if not lost.isdisjoint(page)), len(digests))


def _page_bytes(setup: Setup) -> int:
    """Of one rank."""
    pages = setup.expected.hit_tokens // setup.params.chunk_tokens * setup.arm.engine.tensor_parallel
    return setup.expected.read_bytes // pages if pages else 0


def _p50_s(wave: client.LoadResult) -> float:
    return percentile([ttft for row in wave.rows if row.ok and (ttft := figures.ttft_s(row)) is not None], 50)


def _facts(setup: Setup, params: ScalingParams, settled: Settled, seen: _Seen, pool: _Pool | None) -> dict[str, Any]:
    by = f"kvbench's own pool of {params.pool_nodes} directories" if pool else f"the hook {HOOKS[params.scaling]}"
    return {
        "engine": setup.engine.about and dict(setup.engine.about),
        **setup.media.facts(),
        **setup.array_cache.facts(),
        "own_pool": pool is not None,
        "changed_by": by,
        "changed_ns": seen.changed_ns,
        "changed_node": str(pool.directories[-1]) if pool else "",
        "pace": dict(seen.pace),
        "lost_pages": None if seen.lost is None else len(seen.lost),
        "stored_files": settled.files,
        "residency_before": settled.residency and asdict(settled.residency),
        "engine_counters": dict(seen.engine),
        "waves": {
            name: {"start_ns": wave.start_ns, "client": asdict(wave.client)} for name, wave in seen.waves.items()
        },
    }
