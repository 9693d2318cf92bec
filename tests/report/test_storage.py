"""What the report shows of the storage by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import make_measurement

from kvbench import content, plan
from kvbench.model import Arm, Engine, GateStep, Measurement, Metric, Plan, Step, Storage, Target
from kvbench.probes.metrics import PAGE_METRICS, STEADY_METRICS
from kvbench.report import storage
from kvbench.report.charts import svg
from kvbench.report.document import Run, Series
from kvbench.report.tables import notes_on

TARGET = Target(
    "disk",
    (Arm("dut", "dut", Engine(), storage=Storage(("/mnt/a",))), Arm("base", "baseline", Engine(), kv="recompute")),
)
PLAN = plan.make_plan(content.load_gate("G2"), TARGET, content.model_shapes(), plan.Options(quick=True))


def gate_step(kind: str) -> GateStep:
    return next(step for step in PLAN.gate.steps if step.id == kind)


def page_read(step: Step, **values: float | None) -> Measurement:
    figures = {
        "read_bandwidth_bytes_per_s": step.params["concurrency"] * 1e8,
        "read_latency_p99_s": 0.004 * step.params["concurrency"],
        "ledger_ratio": 1.0,
        **values,
    }
    source = f"raw/{step.id}/pages.parquet"
    metrics = {name: Metric(figures.get(name), unit, 64, source, "absent") for name, unit in PAGE_METRICS.items()}
    return make_measurement(step, metrics)


def run_of(measured: list[Measurement], rounds: dict[str, Any] | None = None, planned: Plan = PLAN) -> Run:
    return Run(planned, {one.step_id: one for one in measured}, Series(rounds=rounds or {}))


def steps(kind: str) -> list[Step]:
    return [step for step in PLAN.steps if step.kind == kind]


def test_a_line_for_every_page_size_over_queue_depth() -> None:
    (section,) = storage.pages(gate_step("page-read"), run_of([page_read(step) for step in steps("page-read")]))
    bandwidth, p99 = section.charts
    assert [line.label for line in bandwidth.lines] == ["256KiB", "8126464B", "model, 33.6 MB"]
    assert {(line.x, line.y) for line in bandwidth.lines} == {((1.0, 8.0), (0.1, 0.8))}
    assert {line.y for line in p99.lines} == {(4.0, 32.0)}
    assert "GB/s" in bandwidth.y_label
    assert "<svg" in svg(bandwidth)


def test_the_table_has_a_row_a_cell_and_a_column_for_what_was_measured() -> None:
    (section,) = storage.pages(gate_step("page-read"), run_of([page_read(step) for step in steps("page-read")]))
    (table,) = section.tables
    assert table.columns == ("Arm", "Page bytes", "Depth", "Read", "Read p99", "Ledger", "Source")
    assert [(row[1].text, row[2].text) for row in table.rows][:2] == [("262,144", "1"), ("262,144", "8")]
    assert table.rows[0][3].n == 64
    assert table.rows[0][4].note == "max of 64"


def test_a_figure_that_is_absent_has_no_point_and_a_step_that_failed_has_its_reason() -> None:
    first, second, *rest = steps("page-read")
    failed = replace(make_measurement(first, {}), error="the disk has gone")
    absent = page_read(second, read_bandwidth_bytes_per_s=None)
    (section,) = storage.pages(gate_step("page-read"), run_of([failed, absent, *map(page_read, rest)]))
    assert len(section.charts[0].lines) == 2
    assert section.tables[0].rows[0][-1].note == "the disk has gone"


def test_cells_of_one_depth_have_a_table_and_no_chart() -> None:
    (section,) = storage.pages(gate_step("page-write"), run_of([page_read(step) for step in steps("page-write")]))
    assert (section.charts, len(section.tables[0].rows)) == ((), 1)


@pytest.mark.parametrize(("reached", "label"), [(True, "steady window"), (False, "not steady")])
def test_the_window_of_steady_rounds_is_shaded(reached: bool, label: str) -> None:
    (step,) = steps("steady-write")
    figures = {name: Metric(5.0, unit, 7, "raw/x/rounds.parquet") for name, unit in STEADY_METRICS.items()}
    measured = make_measurement(
        step, figures, facts={"window": [3, 7], "reached": reached, "purge": "not purged: a file"}
    )
    rounds = {step.id: [{"round": number, "bandwidth_bytes_per_s": 1e9} for number in range(1, 8)]}
    (section,) = storage.steady(gate_step("steady-write"), run_of([measured], rounds))
    (chart,) = section.charts
    assert (chart.band, chart.band_label, chart.lines[0].y) == ((3.0, 7.0), label, (1.0,) * 7)
    assert section.notes == ("dut: not purged: a file.",)
    assert section.tables[0].columns[1:3] == ("Steady bandwidth", "Rounds")


@pytest.mark.parametrize(("kind", "build"), [("page-read", storage.pages), ("steady-read", storage.steady)])
def test_nothing_measured_is_said(kind: str, build: Any) -> None:
    (section,) = build(gate_step(kind), run_of([]))
    assert (section.charts, section.tables) == ((), ())
    assert section.notes == ("No step of this kind was measured.",)


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([0.0, 0.0], ["Written data: nothing of a block compresses away, and none repeats."]),
        ([0.15], ["Written data: 15 % of a block compresses away, and none repeats."]),
        ([None], []),
    ],
)
def test_it_is_said_how_compressible_the_written_data_was(shares: list[float | None], said: list[str]) -> None:
    taken = [
        (step, replace(page_read(step), facts={} if share is None else {"compressible_share": share}))
        for step, share in zip(steps("page-read"), shares, strict=False)
    ]
    assert list(notes_on(taken)) == said
