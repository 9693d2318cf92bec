"""An arm against its equal: twenty runs of G3 for real, small, with its own rules; none of them may pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import execute, folder_on_disk, small_gate

from kvbench import content, plan
from kvbench.journal import RunFolder
from kvbench.judge.verdict import judge
from kvbench.model import Arm, Engine, Outcome, Storage, Target

RUNS, SESSIONS, ROUNDS = 20, 4, 3

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvbench.host.activity.cold.QUIET_S", 0.05)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with folder_on_disk(tmp_path) as folder:
        yield folder


def test_twenty_runs_of_an_arm_against_its_equal_never_pass(disk: Path) -> None:
    storage = Storage((str(disk),))
    equals = (Arm("dut", "dut", Engine(), storage=storage), Arm("dut-again", "baseline", Engine(), storage=storage))
    loaded = content.load_gate(str(small_gate(disk / "small.yaml", SESSIONS, ROUNDS)))
    changes = []
    for seed in range(RUNS):
        made = plan.make_plan(loaded, Target("equal arms", equals), content.model_shapes(), plan.Options(seed=seed))
        folder = RunFolder.create(disk / f"run-{seed:02}", made, loaded.files, loaded.source)
        execute(folder)
        verdict = judge(folder.plan, folder.measurements())
        ttft = next(found for found in verdict.findings if found.check == "ttft-reduction")
        assert ttft.observed is not None, verdict.why
        assert verdict.outcome is not Outcome.PASS, (seed, verdict.why)
        changes.append(ttft.observed)
    assert len(changes) == RUNS
    print(f"TTFT of equals over {RUNS} runs of {ROUNDS} rounds: {min(changes):.3f} to {max(changes):.3f} of each other")
