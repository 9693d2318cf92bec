"""Gate G1 judged: what was ordered, the data sheet, health, and what a demonstration leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from builders import DUT, ENGINE, LOCAL, TARGET, load_gate, make_measurement

from kvbench.judge.verdict import judge
from kvbench.model import (
    Arm,
    DataSheet,
    Engine,
    Finding,
    Measurement,
    Metric,
    Outcome,
    Plan,
    Step,
    Storage,
    Target,
    Verdict,
)
from kvbench.probes.table import PROBES

PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE
GATE = load_gate("g1")
SHEET = DataSheet(10_000_000_000, 5_000_000_000, 1e6, 2e5)
ORDERED = replace(DUT, storage=Storage(("/mnt/array",), datasheet=SHEET, settings={"cache": "64 GiB"}))
WELL: Mapping[str, Mapping[str, float]] = {
    "inventory": {"expectations": 1, "devices": 2, "pcie_degraded_devices": 0, "medium_proven": 1},
    "health-before": {"wear_margin_share": 0.04, "settings_declared": 1, "settings_fingerprint": 2**48 - 1},
    "verify": {"verify_errors": 0, "verified_bytes": 1e9, "verified_share": 0.01},
    "spec-read": {"read_bandwidth_bytes_per_s": 9.6e9},
    "spec-write": {"write_bandwidth_bytes_per_s": 4.8e9},
    "spec-random-read": {"read_iops": 1.1e6},
    "spec-random-write": {"write_iops": 1.9e5},
    "health-after": {
        "critical_warning": 0,
        "media_errors_total": 0,
        "spare_margin_share": 0.9,
        "error_log_entries": 0,
        "settings_fingerprint": 2**48 - 1,
    },
}
MET = {"key": "firmware", "expected": "2.1.0", "found": "2.1.0", "ok": True, "source": "/sys/class/block"}
MISSED = {**MET, "found": ["2.0.9", "2.1.0"], "ok": False}
UNKNOWN = {**MET, "key": "capacity_bytes", "expected": 1000, "found": None, "ok": None}


def target(dut: Arm = ORDERED, local: Arm = LOCAL) -> Target:
    return replace(TARGET, arms=(dut, local))


def steps_of(target: Target) -> tuple[Step, ...]:
    return tuple(
        Step(f"{step.id}-{arm.name}", step.id, step.probe, arm.name, "", 0, {}, 1, "none")
        for step in GATE.steps
        for arm in target.arms
        if step.arms == "storage" and arm.kv == "storage"
    )


def verdict(
    changes: Mapping[str, Mapping[str, float | None]] | None = None,
    *,
    held: tuple[Mapping[str, Any], ...] = (MET,),
    of: Target | None = None,
    check: str = "",
) -> Verdict:
    """G1, or one check of it, on a healthy target, figures of the dut's steps replaced."""
    of = of or target()
    gate = replace(GATE, checks=tuple(one for one in GATE.checks if check in ("", one.id)))
    plan = Plan(1, "0.1.0", gate, of, steps_of(of), seed=1, quick=False, content_digest="0")
    return judge(plan, [measured(step, (changes or {}).get(step.kind, {}), held) for step in plan.steps])


def measured(step: Step, changes: Mapping[str, float | None], held: tuple[Mapping[str, Any], ...]) -> Measurement:
    values = {**WELL[step.kind], **(changes if step.arm == DUT.name else {})}
    units = PROBES[step.probe].metrics
    metrics = {name: Metric(value, units[name], 1, f"raw/{step.id}/x.json") for name, value in values.items()}
    facts = {"expectations": held if step.arm == DUT.name else ()} if step.kind == "inventory" else {}
    return make_measurement(step, metrics, facts=facts, raw_files=(f"raw/{step.id}/inventory.json",))


def findings(verdict: Verdict, check: str) -> list[Finding]:
    return [finding for finding in verdict.findings if finding.check == check]


def test_storage_that_arrived_as_ordered_and_is_well_passes() -> None:
    result = verdict()
    assert (result.outcome, result.basis) == (PASS, ())
    assert {finding.check for finding in result.findings} == {check.id for check in GATE.checks}


@pytest.mark.parametrize(
    ("held", "outcome", "reason"),
    [
        ((MET,), PASS, "firmware: found 2.1.0, where 2.1.0 was ordered (arm dut, by /sys/class/block)"),
        ((MISSED,), FAIL, "firmware: found 2.0.9, 2.1.0, where 2.1.0 was ordered (arm dut, by /sys/class/block)"),
        (
            (UNKNOWN,),
            INCONCLUSIVE,
            "capacity: not all could be found out, where 1.00 kB (1,000 B) was ordered (arm dut, by /sys/class/block)",
        ),
    ],
)
def test_every_expectation_is_a_finding(held: tuple[Mapping[str, Any], ...], outcome: Outcome, reason: str) -> None:
    result = verdict(held=held)
    (finding,) = findings(result, "as-ordered")
    assert (finding.outcome, finding.reason, finding.arm) == (outcome, reason, "dut")
    assert finding.evidence == ("raw/inventory-dut/inventory.json",)
    assert result.outcome is outcome


def test_an_inventory_that_was_not_taken_proves_nothing() -> None:
    of = target()
    plan = Plan(1, "0.1.0", GATE, of, steps_of(of), seed=1, quick=False, content_digest="0")
    assert {finding.outcome for finding in findings(judge(plan, []), "as-ordered")} == {INCONCLUSIVE}
    failed = replace(measured(plan.steps[0], {}, (MET,)), error="no such device.")
    assert "could not be measured (no such device)" in findings(judge(plan, [failed]), "as-ordered")[0].reason


@pytest.mark.parametrize(
    ("kind", "metric", "value", "check", "outcome"),
    [
        ("inventory", "expectations", None, "order-stated", INCONCLUSIVE),
        ("inventory", "pcie_degraded_devices", 1, "links-full", FAIL),
        ("health-before", "settings_declared", None, "settings-declared", INCONCLUSIVE),
        ("health-before", "wear_margin_share", -0.01, "wear", FAIL),
        ("health-before", "wear_margin_share", 0.0, "wear", PASS),
        ("health-after", "settings_fingerprint", 2**48 - 2, "settings-kept", INCONCLUSIVE),  # the nearest other one
        ("health-after", "settings_fingerprint", None, "settings-kept", INCONCLUSIVE),
        ("health-after", "critical_warning", 4, "critical-warning", FAIL),
        ("health-after", "critical_warning", None, "critical-warning", INCONCLUSIVE),
        ("health-after", "media_errors_total", 1, "media-errors", FAIL),
        ("health-after", "spare_margin_share", 0.0, "spare", FAIL),
        ("health-after", "error_log_entries", 3, "error-log", INCONCLUSIVE),
        ("verify", "verify_errors", 1, "verified", FAIL),
        ("verify", "verified_share", 0.009, "verified-share", INCONCLUSIVE),
        ("spec-read", "read_bandwidth_bytes_per_s", 9.5e9, "read-bandwidth", PASS),
        ("spec-read", "read_bandwidth_bytes_per_s", 9.49e9, "read-bandwidth", FAIL),
        ("spec-random-write", "write_iops", 1.89e5, "write-iops", FAIL),
    ],
)
def test_each_threshold(kind: str, metric: str, value: float | None, check: str, outcome: Outcome) -> None:
    result = verdict({kind: {metric: value}}, check=check)
    assert [finding.outcome for finding in findings(result, check)] == [outcome]


def test_a_figure_is_held_against_the_data_sheet_of_the_plan() -> None:
    (finding,) = findings(verdict(), "read-bandwidth")
    assert (finding.observed, finding.evidence) == (0.96, ("raw/spec-read-dut/x.json", "plan.json"))


def test_without_a_data_sheet_its_check_is_open_and_says_what_to_write() -> None:
    (finding,) = findings(verdict(of=target(DUT)), "write-iops")
    assert finding.outcome is INCONCLUSIVE
    assert finding.reason == "arm dut has no storage.datasheet.write_iops in the target to be held against"


def test_a_baseline_has_no_order_and_no_data_sheet_to_meet() -> None:
    assert {finding.arm for finding in verdict().findings if finding.check in ("as-ordered", "read-iops")} == {"dut"}


UNPROVEN = {"inventory": {"medium_proven": 0}}


@pytest.mark.parametrize("change", [{}, {"health-after": {"critical_warning": None, "media_errors_total": None}}])
def test_a_demonstration_leaves_open_what_has_no_figure(change: Mapping[str, Mapping[str, float | None]]) -> None:
    result = verdict({**UNPROVEN, **change})
    assert result.headline == "PASS (demonstration: medium unproven)"
    named = "Not judged in a demonstration: critical-warning, media-errors."
    assert (named in result.warnings) is bool(change)


def test_a_demonstration_judges_what_is_known() -> None:
    assert verdict({**UNPROVEN, "health-after": {"media_errors_total": 2}}).outcome is FAIL
    assert verdict(UNPROVEN, held=(MISSED,)).outcome is FAIL


@pytest.mark.parametrize("engine", [ENGINE, Engine()])
def test_the_engines_of_a_target_are_no_matter_where_none_runs(engine: Engine) -> None:
    recompute = Arm("recompute", "baseline", engine, kv="recompute")
    assert verdict(of=target(replace(ORDERED, engine=engine), recompute)).basis == ()
