"""Small plans and healthy measurements, for tests of what is made from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from ruamel.yaml import YAML

from kvbench import clock
from kvbench.model import Arm, Check, Engine, Gate, Measurement, Metric, Plan, Stamp, Step, Storage, Target
from kvbench.probes.context import Context
from kvbench.probes.metrics import COLD_RECOVERY_METRICS, FIO_METRICS
from kvbench.process import Survivors

GATES = Path(__file__).parents[1] / "gates"
ENGINE = Engine(kind="launch", command=("serve", "--port", "{port}"))
DUT = Arm("dut", "dut", ENGINE, storage=Storage(("/mnt/array",)))
LOCAL = Arm("local", "baseline", ENGINE, storage=Storage(("/mnt/nvme",)))
RECOMPUTE = Arm("recompute", "baseline", ENGINE, kv="recompute")
TARGET = Target("array against local NVMe", (DUT, LOCAL))

PAGE_READ_BYTES_PER_S = 2e9
SESSION_BYTES = 2.0**28


@cache
def load_gate(name: str = "g3") -> Gate:
    return TypeAdapter(Gate).validate_python(YAML(typ="safe").load(GATES / f"{name}.yaml"))


def make_plan(
    cells: Iterable[int] = (8, 16),
    rounds: int = 3,
    target: Target = TARGET,
    gate: Gate | None = None,
    quick: bool = False,
) -> Plan:
    """G3 on a real target, unless told otherwise: environment, a ceiling for each storage arm, waves round by round."""
    storage = [arm.name for arm in target.arms if arm.kv == "storage"]
    steps = [make_step("environment"), *(make_step("ceiling", arm=name) for name in storage)]
    steps += [
        make_step("wave", arm=arm.name, concurrency=concurrency, round_number=number)
        for number in range(1, rounds + 1)
        for concurrency in cells
        for arm in target.arms
    ]
    gate = gate or load_gate()
    return Plan(1, "0.1.0", gate, target, tuple(steps), seed=1, quick=quick, content_digest="0" * 16)


def make_step(kind: str, arm: str = "", concurrency: int = 0, round_number: int = 0) -> Step:
    probe = {"environment": "host.environment", "ceiling": "fio.profile", "wave": "load.cold_recovery"}[kind]
    cell = f"c{concurrency}" if concurrency else ""
    parts = (kind, f"r{round_number:02}" if round_number else "", cell, arm)
    return Step(
        id="-".join(part for part in parts if part),
        kind=kind,
        probe=probe,
        arm=arm,
        cell=cell,
        round=round_number,
        params={"concurrency": concurrency} if concurrency else {},
        seed=round_number,
        engine="restart" if kind == "wave" else "none",
    )


def make_context(
    run_dir: Path, step_id: str, arm: Arm | None, data_dirs: tuple[Path, ...] = (), **fields: Any
) -> Context:
    """What a probe gets beside its step: empty folders, and a minute."""
    for folder in (run_dir / "raw" / step_id, *data_dirs):
        folder.mkdir(parents=True, exist_ok=True)
    given: dict[str, Any] = {
        "target": Target("t", (arm,) if arm else ()),
        "engine": None,
        "attempt": 1,
        "deadline_ns": clock.monotonic_ns() + 60 * 10**9,
        "progress": lambda text, share: None,
        "survivors": Survivors(run_dir / "survivors.jsonl"),
    }
    places = {"run_dir": run_dir, "raw_dir": run_dir / "raw" / step_id, "data_dirs": data_dirs}
    return Context(arm=arm, **places, **{**given, **fields})


def make_measurement(step: Step, metrics: Mapping[str, Metric], **fields: Any) -> Measurement:
    minute = step.round % 60
    stamps = [
        Stamp(f"2026-01-01T10:{minute:02}:{second:02}.000+00:00", (60 * minute + second) * 10**9) for second in (0, 30)
    ]
    defaults: dict[str, Any] = {"attempt": 1, "basis": "measured", "boot_id": "b"}
    return Measurement(step_id=step.id, start=stamps[0], end=stamps[1], metrics=metrics, **{**defaults, **fields})


def healthy_values(step: Step, ttft_s: float) -> dict[str, float]:
    """Every figure of a wave that was read from storage as it should be."""
    sessions = step.params["concurrency"]
    stored = 0.0 if step.arm == RECOMPUTE.name else sessions * SESSION_BYTES
    values = dict.fromkeys(COLD_RECOVERY_METRICS, 0.0)
    values |= {name: ttft_s for name in values if name.startswith("ttft_")}
    return values | {
        "tpot_p50_s": 0.05,
        "output_tokens_per_s": sessions * 64 / ttft_s,
        "requests_ok": float(sessions),
        "client_error_s": 0.001,
        "external_hit_tokens": sessions * 2048.0 if stored else 0.0,
        "external_hit_ratio": 1.0,
        "stored_bytes": stored,
        "stored_ratio": 1.0,
        "array_cache_evicted_ratio": 2.0,
        "device_read_bytes": stored,
        "expected_read_bytes": stored,
        "ledger_ratio": 1.0,
        "wave_bandwidth_bytes_per_s": 0.95 * PAGE_READ_BYTES_PER_S,
        "link_use_share": 0.5,
        "medium_proven": 1.0,
    }


def make_wave(step: Step, *, without: Iterable[str] = (), note: str = "", **values: float | None) -> Measurement:
    """A healthy wave, the dut at 60 % of the baseline's TTFT, rounds scattered by some 0.3 %.

    `values` replaces figures; None is a figure that could not be had, `note` says why. `without` leaves some out.
    """
    scatter = 1 + 0.003 * ((5 * step.round + 3 * len(step.arm)) % 7 - 3) / 2
    figures = healthy_values(step, ttft_s=(1.2 if step.arm == DUT.name else 2.0) * scatter) | values
    metrics = {
        name: Metric(value, COLD_RECOVERY_METRICS[name], step.params["concurrency"], f"raw/{step.id}/requests", note)
        for name, value in figures.items()
        if name not in set(without)
    }
    return make_measurement(step, metrics, facts={"answers": make_answers(step)})


def make_answers(step: Step, computed: str = "the same", read: str = "the same") -> dict[str, Any]:
    """How every session of a wave was answered, from KV that was computed and from KV that was read back."""
    sessions = [f"{number:03}" for number in range(step.params["concurrency"])]
    told = {"prompts": f"{step.kind}/{step.round}/{step.cell}", "computed": dict.fromkeys(sessions, computed)}
    return told if step.arm == RECOMPUTE.name else told | {"read": dict.fromkeys(sessions, read)}


def make_other(step: Step) -> Measurement:
    """A healthy measurement of a step that is no wave."""
    if step.kind != "ceiling":
        return make_measurement(step, {"processors": Metric(2.0, "count", 1, f"raw/{step.id}/facts")})
    values = dict.fromkeys(FIO_METRICS, 1.0) | {"read_bandwidth_bytes_per_s": PAGE_READ_BYTES_PER_S}
    source = f"raw/{step.id}/fio.json"
    return make_measurement(step, {name: Metric(values[name], unit, 1, source) for name, unit in FIO_METRICS.items()})


def make_run(plan: Plan, **values: float | None) -> dict[str, Measurement]:
    """A healthy measurement of every step of the plan, by step id; `values` replaces figures of every wave."""
    return {step.id: make_wave(step, **values) if step.kind == "wave" else make_other(step) for step in plan.steps}


def only(plan: Plan, *check_ids: str) -> tuple[Check, ...]:
    return tuple(check for check in plan.gate.checks if check.id in check_ids)
