"""A node that comes and one that fails in mid-wave, for real: G3 made small, with its own checks and thresholds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import execute, folder_on_disk, small_gate

from kvbench import content, plan
from kvbench.host.activity import cold
from kvbench.journal import RunFolder
from kvbench.judge.verdict import judge
from kvbench.model import Arm, Engine, Outcome, Storage, Target
from kvbench.report import load
from kvbench.report.view import build_view

pytestmark = pytest.mark.slow

PAGES, SESSIONS, ROUNDS = 8, 4, 3
NODE_RATE = 400_000_000  # bytes/s: slower than any disk, so that a wave lasts, and faster than computing
INTEGRITY = {"scaling-failed-requests", "scaling-content", "scaling-pages-kept"}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(cold, "QUIET_S", 0.05)
    with folder_on_disk(tmp_path) as folder:
        yield folder


def test_a_node_comes_and_one_fails_while_sessions_return(disk: Path) -> None:
    session_tokens = 256 * PAGES + 1
    gate = small_gate(disk / "small.yaml", SESSIONS, ROUNDS, {"session_tokens": session_tokens})
    arms = (
        Arm("dut", "dut", Engine(), storage=Storage((str(disk),), rate_limit_bytes_per_s=NODE_RATE)),
        Arm("recompute", "baseline", Engine(), kv="recompute"),
    )
    target = Target("this disk", arms, session_tokens=session_tokens)
    loaded = content.load_gate(str(gate))
    made = plan.make_plan(loaded, target, content.model_shapes(), plan.Options())
    folder = RunFolder.create(disk / "run", made, loaded.files, loaded.source)
    execute(folder)
    measured = {m.step_id: m for m in folder.measurements() if m.step_id.startswith("scaling")}
    assert [step for step, m in measured.items() if m.error] == []
    assert len(measured) == 2 * ROUNDS
    verdict = judge(folder.plan, folder.measurements())
    assert {f.outcome for f in verdict.findings if f.check in INTEGRITY} == {Outcome.PASS}, verdict.why
    assert {f.outcome for f in verdict.findings if f.check == "scaling-took-effect"} == {Outcome.PASS}
    for step, measurement in measured.items():
        figures = {name: metric.value for name, metric in measurement.metrics.items()}
        added = "-add-" in step
        assert (figures["missed_tokens"] == 0) is added, step
        assert (figures["moved_bytes"] > 0) is added, step
    assert any("kvbench's own pool" in warning for warning in verdict.warnings)
    assert not any("Scaling was not part" in warning for warning in verdict.warnings)
    series = load.load(folder.path, folder.measurements())
    view = build_view(folder.plan, folder.measurements(), verdict, series)
    sections = [section for section in view.sections if section.title.startswith("Scaling, ")]
    assert [len(section.charts) for section in sections] == [2, 1]
