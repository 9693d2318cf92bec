"""What the pages say: page one, the figure that decided, what is absent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvbench.model import Metric, Outcome
from kvbench.report.document import Entry, Section, Table, View
from kvbench.report.figures import ABSENT, change, figure
from kvbench.report.view import build_view

Make = Callable[..., Any]


def section(view: View, title: str) -> Section:
    return next(one for one in view.sections if one.title.startswith(title))


def table(view: View, title: str) -> Table:
    return next(one for part in view.sections for one in part.tables if one.title.startswith(title))


def texts(row: tuple[Entry, ...]) -> list[str]:
    return [entry.text for entry in row]


@pytest.mark.parametrize(
    ("shift", "outcome", "observed"),
    [(1.0, Outcome.PASS, "+47 %"), (1.25, Outcome.FAIL, "+17.6 %"), (1.2, Outcome.INCONCLUSIVE, "−27.9 %")],
)
def test_page_one_shows_the_figure_that_decided(synthetic: Make, shift: float, outcome: Outcome, observed: str) -> None:
    view = build_view(*synthetic(shift=shift).view_arguments())
    assert view.decider is not None
    assert (view.outcome, view.decider.outcome) == (outcome, outcome)
    assert view.decider.headline == observed
    assert view.decider.n == "3 rounds"


def test_a_breach_of_integrity_is_read_before_any_performance(synthetic: Make) -> None:
    run = synthetic(shift=1.6)
    findings = [
        replace(finding, outcome=Outcome.FAIL, observed=2.0) if finding.check == "failed-requests" else finding
        for finding in run.verdict.findings
    ]
    run = replace(run, verdict=replace(run.verdict, findings=tuple(findings)))
    decider = build_view(*run.view_arguments()).decider
    assert decider is not None
    assert (decider.check, decider.headline, decider.needed) == ("failed-requests", "2", "= 0")


def test_page_one_says_what_was_emulated_computed_and_stored(synthetic: Make) -> None:
    said = dict(build_view(*synthetic().view_arguments()).bases)
    assert "no GPU was used" in said["Engine, dut, recompute"]
    assert said["KV, recompute"].startswith("None stored")
    assert "wave: emulated (12 steps)" in said["Figures"]


def test_page_one_names_planned_steps_that_were_not_run_or_not_measured(synthetic: Make) -> None:
    run = synthetic()
    broken = replace(run.measurements[1], error="fio ended with exit code 1", metrics={})
    run = replace(run, measurements=[run.measurements[0], broken])
    warnings = build_view(*run.view_arguments()).warnings
    assert warnings[0].startswith("12 of 14 planned steps not run: wave-c8-r1-dut, ")
    assert warnings[1] == "Step ceiling-dut was not measured: fio ended with exit code 1"


def test_the_ledger_prints_both_its_terms_and_their_ratio_in_every_round(synthetic: Make) -> None:
    ledger = table(build_view(*synthetic().view_arguments()), "Byte ledger")
    assert ledger.columns[2:5] == ("Device read", "Expected", "Ratio")
    assert texts(ledger.rows[0])[2:5] == ["2.16 GB", "2.15 GB", "1.004"]
    assert len(ledger.rows) == 6


def test_every_figure_has_its_n_and_its_source(synthetic: Make) -> None:
    requests = table(build_view(*synthetic().view_arguments()), "Requests of every round")
    assert requests.columns[:3] == ("Round", "Arm", "n")
    assert texts(requests.rows[0])[2] == "8"
    assert texts(requests.rows[0])[-1] == "raw/wave-c8-r1-dut/requests.parquet"


def test_a_step_that_was_not_measured_keeps_its_row_with_the_reason(synthetic: Make) -> None:
    run = synthetic()
    measurements = [
        replace(m, metrics={}, error="the engine died") if m.step_id == "wave-c8-r2-dut" else m
        for m in run.measurements
    ]
    requests = table(build_view(*replace(run, measurements=measurements).view_arguments()), "Requests of every round")
    row = requests.rows[2]
    assert texts(row) == ["2", "dut", *[ABSENT] * 8, "not measured"]
    assert row[-1].note == "the engine died"


def test_absent_series_are_named_and_their_charts_left_out(synthetic: Make) -> None:
    cell = section(build_view(*synthetic().without_series().view_arguments()), "Cell c8")
    assert cell.charts == ()
    assert cell.notes == (
        "TTFT of single requests: series not available.",
        "Bandwidth over time of dut: series not available.",
    )


def test_rows_without_the_expected_columns_are_no_series(synthetic: Make) -> None:
    run = synthetic()
    odd = {step_id: [{"other": 1}] for step_id in run.series.requests}
    run = replace(run, series=replace(run.series, requests=odd, devices=odd))
    assert section(build_view(*run.view_arguments()), "Cell c8").charts == ()


def test_bandwidth_over_time_is_the_difference_of_counters_and_marks_the_wave(synthetic: Make) -> None:
    chart = section(build_view(*synthetic().view_arguments()), "Cell c8").charts[1]
    assert chart.title == "Device reads, dut"
    line = chart.lines[0]
    assert line.x[0] < 0 < line.x[-1]
    assert line.y[0] == 0
    assert max(line.y) == pytest.approx(4.13, rel=0.01)
    assert chart.band is not None
    assert chart.band[0] == 0


def test_scaling_shows_the_mean_of_the_rounds_with_its_interval(synthetic: Make) -> None:
    scaling = section(build_view(*synthetic().view_arguments()), "Scaling")
    ttft = scaling.charts[0].lines[0]
    assert ttft.x == (8.0, 16.0)
    assert all(low < y < high for low, y, high in zip(ttft.low, ttft.y, ttft.high, strict=True))


def test_one_round_has_no_interval_and_says_so(synthetic: Make) -> None:
    rows = table(build_view(*synthetic(rounds=1).view_arguments()), "Mean of the rounds").rows
    assert rows[0][2].note == "one round: no interval"


def test_facts_of_the_machine_are_flat_and_readable(synthetic: Make) -> None:
    rows = table(build_view(*synthetic().view_arguments()), "What the machine is").rows
    facts = {fact.text: value.text for fact, value in rows}
    assert facts == {
        "kernel": "6.1.0",
        "cpu.model": "Example CPU",
        "cpu.threads": "2",
        "cpu.cache_bytes": "33.6 MB",
        "cpu.virtual": "yes",
        "cpu.governor": ABSENT,
        "mounts.0.at": "/",
        "mounts.0.type": "ext4",
    }


def test_evidence_lists_every_raw_file_with_its_digest(synthetic: Make) -> None:
    run = synthetic()
    rows = table(build_view(*run.view_arguments()), "Files").rows
    assert {texts(row)[0]: texts(row)[1] for row in rows} == dict(run.series.digests)


def test_an_empty_run_still_has_a_page(synthetic: Make) -> None:
    run = synthetic()
    verdict = replace(run.verdict, outcome=Outcome.INCONCLUSIVE, findings=())
    view = build_view(run.plan, [], verdict)
    assert view.decider is None
    assert view.forest is None
    assert ("Measured", "nothing was measured") in view.identity


@pytest.mark.parametrize(
    ("name", "metric", "text", "note"),
    [
        ("ttft_p99_s", Metric(1.42, "s", 99, "r"), "1.42 s", "max of 99"),
        ("ttft_p99_s", Metric(1.42, "s", 100, "r"), "1.42 s", ""),
        ("ttft_p50_s", Metric(1.42, "s", 8, "r"), "1.42 s", ""),
        ("requests_failed", Metric(0, "count", 8, "r"), "0", ""),
        ("stored_bytes", Metric(None, "B", 0, note="no file system"), ABSENT, "no file system"),
        ("stored_bytes", None, ABSENT, ""),
    ],
)
def test_a_figure_is_written_with_its_unit_and_absent_is_never_zero(
    name: str, metric: Metric | None, text: str, note: str
) -> None:
    entry = figure(metric, name)
    assert (entry.text, entry.note) == (text, note)


@pytest.mark.parametrize(("ratio", "text"), [(0.6, "−40 %"), (1.29, "+29 %"), (1.0, "±0 %")])
def test_a_ratio_is_told_as_the_change_that_it_stands_for(ratio: float, text: str) -> None:
    assert change(ratio) == text
