"""A small synthetic run of every step kind that a report tells of: made of arithmetic, the same each time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.model import (
    Arm,
    Check,
    Engine,
    Finding,
    Gate,
    GateStep,
    Measurement,
    Metric,
    Outcome,
    Plan,
    Stamp,
    Step,
    Storage,
    Target,
    Verdict,
)
from kvbench.report.document import Series

PAGE_BYTES = 33_554_432  # 256 tokens of 131,072 B
PAGES = 8

DEMO = Target(
    name="this machine",
    arms=(
        Arm("dut", "dut", Engine(), "storage", Storage(("kv",))),
        Arm("recompute", "baseline", Engine(), "recompute"),
    ),
    session_tokens=2049,
)
ARRAY = Target(
    name="array A",
    arms=(
        Arm("dut", "dut", Engine("openai", "llama-3.1-70b", urls=("http://a:8000",)), "storage", Storage(("/mnt/a",))),
        Arm("nvme", "baseline", Engine("openai", "llama-3.1-70b", urls=("http://b:8000",)), "storage",
            Storage(("/mnt/b",), rate_limit_bytes_per_s=3_000_000_000)),
    ),
    hooks={"node_add": ("true",), "node_remove": ("true",)},
)  # fmt: skip


def _check(name: str, kind: Any, metric: str, rule: Any, *, op: Any, limit: Any, unit: str = "ratio") -> Check:
    return Check(name, kind, "wave", metric, rule, f"Why {name} matters.", op, limit, unit)


GATE = Gate(
    version=1,
    id="G3",
    title="Primary gate",
    why="Whether storage beats the baseline.",
    rounds=3,
    quick_rounds=3,
    steps=(
        GateStep(id="environment", probe="host.environment", why="What the machine is.", arms="none"),
        GateStep(
            id="ceiling",
            probe="fio.profile",
            why="What the medium gives.",
            arms="storage",
            params={"profile": "page-read"},
        ),
        GateStep(
            id="wave",
            probe="load.cold_recovery",
            why="N sessions return at once.",
            per_round=True,
            engine="restart",
            concurrency=(8, 16),
        ),
    ),
    checks=(
        _check("failed-requests", "integrity", "requests_failed", "each", op="==", limit=0, unit="count"),
        _check("ttft-reduction", "performance", "ttft_p50_s", "paired_log_ratio", op="<=", limit=0.75),
        _check("throughput-gain", "performance", "output_tokens_per_s", "paired_log_ratio", op=">=", limit=1.29),
        _check("repeatability", "performance", "ttft_p50_s", "cv", op="<=", limit=0.05, unit="share"),
        _check("byte-ledger", "evidence", "ledger_ratio", "each", op="in", limit=(0.99, 1.05)),
    ),
)


@dataclass(frozen=True)
class Synthetic:
    plan: Plan
    measurements: list[Measurement]
    verdict: Verdict
    series: Series

    def view_arguments(self) -> tuple[Plan, list[Measurement], Verdict, Series]:
        return self.plan, self.measurements, self.verdict, self.series

    def without_series(self) -> Synthetic:
        return replace(self, series=Series())


def _steps(gate: Gate, target: Target, rounds: int) -> tuple[Step, ...]:
    storage = [arm for arm in target.arms if arm.kv == "storage"]
    steps = [Step("environment", "environment", "host.environment", "", "", 0, {}, 1, "none")]
    steps += [Step(f"ceiling-{arm.name}", "ceiling", "fio.profile", arm.name, "", 0, {}, 1, "none") for arm in storage]
    wave = next(step for step in gate.steps if step.id == "wave")
    for concurrency in wave.concurrency:
        for number in range(1, rounds + 1):
            for arm in target.arms:
                cell = f"c{concurrency}"
                step_id = f"wave-{cell}-r{number}-{arm.name}"
                params = {"concurrency": concurrency}
                steps.append(Step(step_id, "wave", wave.probe, arm.name, cell, number, params, 1, "restart"))
    return tuple(steps)


def _stamp(seconds: float) -> Stamp:
    minutes, rest = divmod(seconds, 60)
    return Stamp(f"2026-03-02T09:{int(minutes):02d}:{rest:06.3f}+00:00", int(seconds * 1e9))


def _wave(
    step: Step, target: Target, begun_s: float
) -> tuple[dict[str, Metric], list[dict[str, Any]], list[dict[str, Any]]]:
    """Metrics, request rows and device rows of one wave."""
    random_source = random.Random(step.id)
    arm, n = target.arm(step.arm), step.params["concurrency"]
    is_dut, reads = arm.role == "dut", arm.kv == "storage"
    ttft_s = 0.09 * n * (0.6 if is_dut else 1.0) * (1 + random_source.gauss(0, 0.012))
    due_ns = int(begun_s * 1e9)
    spread = sorted(ttft_s * random_source.uniform(0.55, 1.45) for _ in range(n))
    requests = [
        {"request_id": f"r{i}", "due_ns": due_ns, "first_token_ns": due_ns + int(s * 1e9), "completion_tokens": 64}
        for i, s in enumerate(spread)
    ]
    raw = f"raw/{step.id}"
    read = n * PAGES * PAGE_BYTES * 1.004 if reads else 0.0
    wave_s = max(spread)
    devices = [
        {"at_ns": due_ns + int(t * 1e9), "device": "nvme0n1", "read_bytes": int(read * min(max(t / wave_s, 0), 1))}
        for t in (-3, -2, -1, 0, *(0.25 * k for k in range(1, 24)))
    ]
    of_requests, of_devices = f"{raw}/requests.parquet", f"{raw}/devices.parquet"
    metrics = {
        "ttft_p50_s": Metric(spread[n // 2], "s", n, of_requests),
        "ttft_p99_s": Metric(spread[-1], "s", n, of_requests),
        "ttft_max_s": Metric(spread[-1], "s", n, of_requests),
        "tpot_p50_s": Metric(0.0412, "s", n, of_requests),
        "output_tokens_per_s": Metric(n * 64 / (ttft_s + 2.6), "tok/s", n, of_requests),
        "requests_ok": Metric(n, "count", n, of_requests),
        "requests_failed": Metric(0, "count", n, of_requests),
    }
    if reads:
        metrics |= {
            "device_read_bytes": Metric(read, "B", 1, of_devices),
            "expected_read_bytes": Metric(read / 1.004, "B", n, of_requests),
            "ledger_ratio": Metric(1.004, "ratio", 1, of_devices),
            "wave_bandwidth_bytes_per_s": Metric(read / wave_s, "B/s", 1, of_devices),
            "external_hit_ratio": Metric(None, "ratio", 0, note="the engine exports no such counter"),
        }
    return metrics, requests, devices if reads else []


_FIO = {"read_bandwidth_bytes_per_s": (2.61e9, "B/s"), "read_iops": (77.8, "1/s"), "read_latency_p99_s": (0.0471, "s")}
_FACTS = {
    "kernel": "6.1.0",
    "cpu": {"model": "Example CPU", "threads": 2, "cache_bytes": 33554432, "virtual": True, "governor": None},
    "mounts": [{"at": "/", "type": "ext4"}],
}


def _measure(steps: tuple[Step, ...], target: Target) -> tuple[list[Measurement], Series]:
    measurements, requests, devices = [], {}, {}
    for place, step in enumerate(steps):
        metrics: dict[str, Metric] = {}
        series: dict[str, str] = {}
        if step.kind == "wave":
            metrics, rows, samples = _wave(step, target, 20.0 * place + 5)
            requests[step.id], series["requests"] = rows, f"raw/{step.id}/requests.parquet"
            if samples:
                devices[step.id], series["devices"] = samples, f"raw/{step.id}/devices.parquet"
        elif step.kind == "ceiling":
            metrics = {
                name: Metric(value, unit, 621, f"raw/{step.id}/fio.json") for name, (value, unit) in _FIO.items()
            }
        emulated = step.kind == "wave" and target.arm(step.arm).engine.kind == "emulated"
        measurements.append(
            Measurement(
                step.id, 1, "emulated" if emulated else "measured", _stamp(20 * place), _stamp(20 * place + 18.5),
                "boot", metrics, series, facts=_FACTS if step.kind == "environment" else {},
                overhead={"populate": 9.25, "settle": 2.0} if step.kind == "wave" else {},
            )
        )  # fmt: skip
    digests = {
        path: f"{place:064x}" for place, path in enumerate(sorted({p for m in measurements for p in m.series.values()}))
    }
    return measurements, Series(requests, devices, digests=digests)


_OBSERVED = {"ttft-reduction": 0.601, "throughput-gain": 1.47, "tpot-kept": 1.002, "worst-ttft": 0.62}


def _findings(gate: Gate, target: Target, rounds: int, shift: float) -> list[Finding]:
    """Findings as the judge words them. `shift` moves the dut's figures towards (and beyond) their thresholds."""
    findings = []
    for check in gate.checks:
        for concurrency in next(step for step in gate.steps if step.id == check.step).concurrency:
            cell = f"c{concurrency}"
            if check.rule == "paired_log_ratio":
                findings.append(_paired(check, cell, rounds, shift))
            else:
                findings += [_single(check, cell, arm.name, rounds) for arm in target.arms]
    return findings


def _paired(check: Check, cell: str, rounds: int, shift: float) -> Finding:
    assert isinstance(check.limit, int | float)
    value = _OBSERVED[check.id] * (shift if check.op == "<=" else 1 / shift)
    low, high = value * 0.94, value * 1.06
    passes, fails = (
        (high <= check.limit, low > check.limit) if check.op == "<=" else (low >= check.limit, high < check.limit)
    )
    outcome = Outcome.PASS if passes else Outcome.FAIL if fails else Outcome.INCONCLUSIVE
    reason = {
        Outcome.PASS: "the whole interval is on the passing side",
        Outcome.FAIL: "the whole interval is on the failing side",
        Outcome.INCONCLUSIVE: "the interval holds the threshold; about 9 rounds would decide",
    }[outcome]
    return Finding(
        check.id, check.kind, cell, "", outcome, reason, check.why, value, (low, high), check.op, check.limit, "ratio",
        rounds,
    )  # fmt: skip


def _single(check: Check, cell: str, arm: str, rounds: int) -> Finding:
    value = 0.013 if check.rule == "cv" else 1.004 if check.op == "in" else 0.0
    interval = (0.007, 0.081) if check.rule == "cv" else None
    return Finding(
        check.id, check.kind, cell, arm, Outcome.PASS, "holds in every round", check.why, value, interval, check.op,
        check.limit, check.unit, rounds, (f"raw/wave-{cell}-r1-{arm}",),
    )  # fmt: skip


@pytest.fixture
def synthetic() -> Callable[..., Synthetic]:
    return make


def make(target: Target = DEMO, gate: Gate = GATE, rounds: int = 3, shift: float = 1.0) -> Synthetic:
    """A run whose dut is 40 % faster; `shift` 1.25 brings it to the threshold, 1.6 beyond."""
    steps = _steps(gate, target, rounds)
    plan = Plan(1, "0.1.0", gate, target, steps, 7, True, "c0ffee" * 10 + "c0ff")
    measurements, series = _measure(steps, target)
    findings = _findings(gate, target, rounds, shift)
    outcome = max((finding.outcome for finding in findings), key=lambda one: one.severity)
    basis = ("emulated engine", "recompute baseline") if target is DEMO else ()
    why = {
        Outcome.PASS: "TTFT p50 is 39.9 % lower and throughput 47 % higher than the baseline's in every cell.",
        Outcome.INCONCLUSIVE: "ttft-reduction in c8: the interval holds the threshold; about 9 rounds would decide.",
        Outcome.FAIL: "ttft-reduction in c8: the whole interval is on the failing side.",
    }[outcome]
    warnings = ("cpu-pressure: 0.31 in c16, above 0.20 (a demonstration only warns)",)
    return Synthetic(
        plan, measurements, Verdict(1, gate.id, gate.title, outcome, basis, why, tuple(findings), warnings), series
    )


@pytest.fixture
def write_series() -> Callable[[Path, Synthetic], None]:
    return write


def write(run_dir: Path, run: Synthetic) -> None:
    """The Parquet files that the run's measurements name."""
    import pyarrow as pa
    from pyarrow import parquet

    for measurement in run.measurements:
        for name, path in measurement.series.items():
            (run_dir / path).parent.mkdir(parents=True, exist_ok=True)
            rows = getattr(run.series, name)[measurement.step_id]
            parquet.write_table(pa.Table.from_pylist(rows), run_dir / path)
