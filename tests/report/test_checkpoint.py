"""What the report shows of checkpoints and models, and the published figures beside it."""

from __future__ import annotations

from dataclasses import replace

from builders import make_measurement

from kvbench import content, plan
from kvbench.model import Arm, Engine, Metric, Storage, Target
from kvbench.probes.metrics import CHECKPOINT_METRICS
from kvbench.report import checkpoint
from kvbench.report.document import Run, Series

TARGET = Target(
    "disk",
    (Arm("dut", "dut", Engine(), storage=Storage(("/mnt/a",))), Arm("base", "baseline", Engine(), kv="recompute")),
)
PLAN = plan.make_plan(content.load_gate("R1"), TARGET, content.model_shapes(), plan.Options(quick=True))
FACTS = {
    "writer": "plain",
    "not_available": "",
    "io": "buffered",
    "ranks": 8,
    "total_bytes": 105 * 10**9,
    "scale": 0.01,
}


def run_of(kind: str, **facts: object) -> Run:
    steps = [step for step in PLAN.steps if step.kind == kind]
    metrics = {
        name: Metric(2.0 if name == "save_s" else None, unit, 8, "raw/x/evidence.json", "absent")
        for name, unit in CHECKPOINT_METRICS.items()
    }
    measured = [replace(make_measurement(step, metrics), facts=FACTS | facts) for step in steps]
    return Run(PLAN, {one.step_id: one for one in measured}, Series())


def sections(kind: str, **facts: object) -> list:
    gate_step = next(step for step in PLAN.gate.steps if step.id == kind)
    return checkpoint.sections(gate_step, run_of(kind, **facts))


def test_a_step_states_its_size_scale_and_way_of_writing() -> None:
    (section,) = sections("save")
    assert section.notes[0] == (
        "8 files, 105 GB at a scale of 0.01, through the page cache; time is that of the slowest."
    )
    assert "2 s" in [entry.text for entry in section.tables[0].rows[0]]


def test_a_writer_that_is_not_there_is_said() -> None:
    (section,) = sections("save-torch", writer="torch", not_available="not available here: no torch")
    assert section.notes[0] == "Writer torch: not available here: no torch."


def test_published_figures_stand_beside_with_what_does_not_fit_together() -> None:
    *_, section = sections("switch")
    assert [row[-1].text for row in section.tables[0].rows].count("I10") == 1
    assert [note.partition(":")[0] for note in section.notes] == ["I10", "I11"]


def test_the_published_inconsistencies_are_those_of_the_figures() -> None:
    told = checkpoint.published()
    assert {note for figure in told.figures for note in figure.notes} == set(told.inconsistencies)
    assert round(178 * 3.26) == 580 and round(94 * 6.40) == 602 and round(525 / 94 / (525 / 178) - 1, 2) == 0.89
    assert round(9.30 * 5.23 / (37.97 * 0.98), 2) == 1.31
