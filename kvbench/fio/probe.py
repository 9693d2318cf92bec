"""The probe `fio.profile`: lays files out on the arm's nodes, drives them with fio, reads what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from kvbench import plan
from kvbench.fio import hosts, jobfile, runner
from kvbench.fio.result import FioJob, FioTotal
from kvbench.fio.total import total
from kvbench.model import Metric, Step
from kvbench.probes.context import Context, Measured
from kvbench.probes.metrics import FIO_METRICS
from kvbench.probes.params import FioParams
from kvbench.units import format_bytes


def measure(step: Step, context: Context) -> Measured:
    """Drive one profile on all nodes of the arm at once, from here or from all of its hosts.

    Its files were written in full before.

    Raises StepError when fio fails, hangs or ends early, with its own words; KvbenchError when fio is missing or older
    than 3.1; UsageError when the profile cannot be a job file. Leaves no process.
    """
    params = cast(FioParams, plan.parse_params(step))
    fio = runner.require_fio()
    name, salt, among = jobfile.profile_name(params), f"{step.seed}/{context.attempt}", hosts.parts(context)
    profile = hosts.jobs(
        among, lambda p: jobfile.profile_job(p.of(params), p.paths, p.salt(salt), p.rate_limit(context.storage))
    )
    if params.lay_out:
        doing = f"writing {format_bytes(params.size_bytes)} for {name}"
        layout = runner.Run("layout", doing, runner.limit_s(params.size_bytes))
        written = hosts.jobs(among, lambda p: jobfile.layout_job(p.of(params), p.paths, p.salt(salt)))
        with context.phase("lay_out"):
            runner.run_sound(fio, layout, written, context)
    run = runner.Run("profile", f"fio {name}", params.runtime_s + runner.MARGIN_S, expected_s=params.runtime_s)
    result = runner.run_sound(fio, run, profile, context)
    return Measured(
        metrics=metrics(result.jobs, context.source("profile.json")),
        facts={"fio": result.version, "profile": name, "options": dict(result.jobs[0].options)}
        | {"compressible_share": params.compressible_share, "hosts": [part.host for part in among if part.host]},
        warnings=result.warnings,
    )


def metrics(jobs: Sequence[FioJob], source: str) -> dict[str, Metric]:
    """The probe's metrics from the measured jobs; None with the reason where a direction was not driven or trusted."""
    read, write = total(jobs, "read"), total(jobs, "write")
    untrusted = "" if all(job.trusted for job in jobs) else "reads may have come from the page cache"
    runtimes = [part.runtime_s for part in (read, write) if part.runtime_s is not None]
    return {
        **_side("read", "read_bytes", read, untrusted, source),
        **_side("write", "written_bytes", write, "", source),
        "runtime_s": Metric(max(runtimes, default=None), "s", len(jobs), source),
    }


def _side(side: str, bytes_name: str, part: FioTotal, untrusted: str, source: str) -> dict[str, Metric]:
    absent = untrusted if part.jobs else f"fio reported no {side}s"

    def metric(name: str, value: float | None, n: int, note: str) -> tuple[str, Metric]:
        if absent or value is None:
            return name, Metric(None, FIO_METRICS[name], n, source, absent or part.note or "fio gave no such figure")
        return name, Metric(value, FIO_METRICS[name], n, source, note)

    kind = "submission and completion latency" if part.latency_kind == "lat" else "completion latency"
    latency_s = {percentile: value_ns / 1e9 for percentile, value_ns in part.latency_ns.items()}
    return dict(
        [
            metric(bytes_name, part.bytes, part.ios, ""),
            metric(f"{side}_bandwidth_bytes_per_s", part.bandwidth_bytes_per_s, part.ios, f"bytes ÷ {part.window}"),
            metric(f"{side}_iops", part.iops, part.ios, f"I/Os ÷ {part.window}"),
            metric(f"{side}_latency_p50_s", latency_s.get(50), part.latency_n, kind),
            metric(f"{side}_latency_p99_s", latency_s.get(99), part.latency_n, kind),
        ]
    )
