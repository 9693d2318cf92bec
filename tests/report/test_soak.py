"""What the report tells of three days of slices, and of a few minutes of them."""

from dataclasses import replace

from three_days import PLAN, once, plan_of, run_of

from kvbench.model import Measurement, Plan
from kvbench.report import soak
from kvbench.report.document import Run, Section, Series


def section_of(made: Plan, run: dict[str, Measurement], kind: str = "churn") -> Section:
    gate_step = next(step for step in made.gate.steps if step.id == kind)
    (section,) = soak.sections(gate_step, Run(made, run, Series()))
    return section


def table(section: Section, title: str) -> list[list[str]]:
    (found,) = [table for table in section.tables if table.title == title]
    return [[entry.text for entry in row] for row in found.rows]


def test_three_days_are_told_hour_by_hour_with_the_worst_of_each() -> None:
    section = section_of(PLAN, run_of(change=once("churn", 2, longest_stall_s=59.0, io_errors=3)))
    rows = table(section, "Hour by hour")
    assert len(rows) == 75
    assert rows[0][:2] == ["1", "6"]
    assert "59 s" in rows[0]
    assert "3" in rows[0]
    assert section.charts[0].x_label == "time of the run (hours)"
    assert [len(line.x) for line in section.charts[0].lines] == [75, 75]


def test_the_time_adds_up_and_an_outage_has_a_row() -> None:
    rows = table(section_of(PLAN, run_of(gaps_s={"churn-r200-dut": 70})), "Where the time went")
    assert [row[0] for row in rows] == [
        "environment", "churn", "wave", "gaps up to a minute", "without service, after churn-r200-dut", "the whole run",
    ]  # fmt: skip
    assert rows[4][1] == "1 min 10 s"
    assert rows[5][2] == "100 %"


def test_a_few_minutes_are_told_slice_by_slice() -> None:
    short = plan_of(duration_s=240.0, slice_s=60.0)
    section = section_of(short, run_of(short))
    assert len(table(section, "Slices")) == 4
    assert section.charts[0].x_label == "time of the run (minutes)"


def test_faults_are_told_with_outage_and_recovery() -> None:
    faulty = plan_of(hooks=("fault_failover",), duration_s=240.0, slice_s=60.0)
    run = run_of(faulty)
    slices = [step.id for step in faulty.steps if step.kind == "fault"]
    fault = {"name": "fault_failover", "kind": "hook", "at_s": 20.0, "outage_s": 12.0, "recovery_s": None}
    run[slices[0]] = replace(run[slices[0]], facts={"faults": [fault]})
    (row,) = table(section_of(faulty, run, "fault"), "Faults")
    assert row[:5] == ["fault_failover", "hook of the target", f"{slices[0]}, 20 s", "12 s", "–"]


def test_without_hooks_there_is_no_section_of_faults() -> None:
    gate_step = next(step for step in PLAN.gate.steps if step.id == "fault")
    assert soak.sections(gate_step, Run(PLAN, run_of(), Series())) == []
