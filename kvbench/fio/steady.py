"""The probe `fio.steady`: preconditions, then drives one profile round by round until it is steady by the SNIA rule.

The rule is `stats.steady_state`; fio's own `steadystate=` is another one, and is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from kvbench import plan, stats
from kvbench.errors import StepError
from kvbench.fio import hosts, jobfile, runner
from kvbench.fio.hosts import Part
from kvbench.fio.result import FioResult
from kvbench.fio.total import total
from kvbench.model import Metric, Step, Storage
from kvbench.probes.context import Context, Measured
from kvbench.probes.metrics import STEADY_METRICS
from kvbench.probes.params import FioParams, SteadyParams
from kvbench.units import format_bytes

_MOST_ROUNDS = 25
_PURGE = "not purged: files on a file system cannot be, and what the device held before is not known"

Row = Mapping[str, float | int | None]


def measure(step: Step, context: Context) -> Measured:
    """Write the files over, then take rounds until the last five are steady, or there have been 25.

    Raises StepError when fio fails, hangs or ends early; KvbenchError when fio is missing or older than 3.1.
    """
    params = cast(SteadyParams, plan.parse_params(step))
    fio = runner.require_fio()
    salt, among = f"{step.seed}/{context.attempt}", hosts.parts(context)
    with context.phase("precondition"):
        preconditioned_bytes = _precondition(fio, params, among, salt, context)
    rounds, warnings = _rounds(fio, params, among, salt, context)
    seen = stats.steady_state([row["bandwidth_bytes_per_s"] or 0.0 for row in rounds], at_most=_MOST_ROUNDS)
    source = context.keep_rows("rounds.parquet", rounds)
    return Measured(
        metrics=metrics(rounds, seen, preconditioned_bytes, source),
        series={"rounds": source},
        facts=_facts(params, seen, preconditioned_bytes),
        warnings=warnings,
    )


def metrics(
    rounds: Sequence[Row], seen: stats.SteadyState | None, preconditioned_bytes: int, source: str
) -> dict[str, Metric]:
    """The probe's metrics. Without a steady window there is no steady bandwidth: that of some round would be another
    one the next time."""
    n = len(rounds)
    window = rounds[seen.first : seen.last + 1] if seen else []
    mean = sum(row["bandwidth_bytes_per_s"] or 0.0 for row in window) / len(window) if window else None
    not_reached = f"no steady state in {n} rounds"
    if seen is not None and not seen.reached:
        not_reached += (
            f"; over the last {len(window)} the range was {100 * seen.range_share:.0f} % of the mean where at most "
            f"20 % is asked, and the slope {100 * seen.slope_share:.0f} % where at most 10 % is"
        )
    reached = seen is not None and seen.reached
    values = {
        "steady_bandwidth_bytes_per_s": mean if reached else None,
        "rounds_run": float(n),
        "range_share": seen.range_share if seen else None,
        "slope_share": seen.slope_share if seen else None,
        "preconditioned_bytes": float(preconditioned_bytes),
    }
    return {
        name: Metric(value, STEADY_METRICS[name], n, source, not_reached if value is None else "")
        for name, value in values.items()
    }


def _precondition(fio: str, params: SteadyParams, among: Sequence[Part], salt: str, context: Context) -> int:
    """Returns the bytes that were written."""
    if params.precondition_passes < 1:
        raise StepError("precondition_passes must be 1 or more", "blocks that were never written must not be read")
    asked_bytes = params.precondition_passes * params.size_bytes
    run = runner.Run("precondition", f"preconditioning with {format_bytes(asked_bytes)}", runner.limit_s(asked_bytes))
    jobs = hosts.jobs(among, lambda p: jobfile.precondition_job(p.of(params), p.paths, p.salt(salt)))
    result = runner.run_sound(fio, run, jobs, context)
    return sum(job.bytes or 0 for job in result.jobs)


def _rounds(
    fio: str, params: SteadyParams, among: Sequence[Part], salt: str, context: Context
) -> tuple[list[Row], tuple[str, ...]]:
    """Rounds until they are steady. Each writes bytes of its own, and has files of its own as evidence."""
    moved_bytes = params.round_bytes or int(params.runtime_s * 1e9)
    rows: list[Row] = []
    warnings: list[str] = []
    while len(rows) < _MOST_ROUNDS:
        number = len(rows) + 1
        jobs = hosts.jobs(among, partial(_round_job, params, f"{salt}/{number}", context.storage))
        name = jobfile.profile_name(params)
        run = runner.Run(
            f"round-{number:02}",
            f"{name}, round {number} of at most {_MOST_ROUNDS}",
            params.runtime_s + runner.limit_s(moved_bytes),
        )
        result = runner.run_sound(fio, run, jobs, context)
        rows.append(_row(number, result))
        warnings += result.warnings[:1]
        seen = stats.steady_state([row["bandwidth_bytes_per_s"] or 0.0 for row in rows], at_most=_MOST_ROUNDS)
        if seen is not None and seen.reached:
            break
    said = f" (and so in {len(warnings)} of {len(rows)} rounds)" if len(warnings) > 1 else ""
    return rows, tuple(f"{warning}{said}" for warning in warnings[:1])


def _round_job(params: SteadyParams, salt: str, storage: Storage, part: Part) -> str:
    profile = _of_round(part.of(params), len(part.paths))
    return jobfile.profile_job(profile, part.paths, part.salt(salt), part.rate_limit(storage))


def _of_round(params: SteadyParams, nodes: int) -> FioParams:
    """The profile as one round drives it: by time, or by bytes."""
    until = {"io_size": params.round_bytes // nodes} if params.round_bytes else {"time_based": 1}
    return FioParams(
        profile=params.profile,
        options={**params.options, **until},
        size_bytes=params.size_bytes,
        runtime_s=params.runtime_s,
        compressible_share=params.compressible_share,
        page_bytes=params.page_bytes,
    )


def _row(number: int, result: FioResult) -> Row:
    """Both directions together, over the longer of their windows."""
    sides = [part for part in (total(result.jobs, "read"), total(result.jobs, "write")) if part.bytes]
    moved = sum(part.bytes or 0 for part in sides)
    runtime_s = max((part.runtime_s for part in sides if part.runtime_s), default=None)
    return {
        "round": number,
        "bytes": moved,
        "runtime_s": runtime_s,
        "bandwidth_bytes_per_s": moved / runtime_s if runtime_s else None,
        "latency_p99_s": max((part.latency_ns[99] / 1e9 for part in sides if 99 in part.latency_ns), default=None),
    }


def _facts(params: SteadyParams, seen: stats.SteadyState | None, preconditioned_bytes: int) -> dict[str, Any]:
    return {
        "profile": jobfile.profile_name(params),
        "purge": _PURGE,
        "size_bytes": params.size_bytes,
        "compressible_share": params.compressible_share,
        "preconditioned_bytes": preconditioned_bytes,
        "preconditioning": f"{params.precondition_passes} sequential passes of 128 KiB writes",
        "window": [seen.first + 1, seen.last + 1] if seen else None,
        "reached": bool(seen and seen.reached),
    }
