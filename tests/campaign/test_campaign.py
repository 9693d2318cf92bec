"""The ladder of a joint test: what opens a gate, what is frozen, what a reader is told."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from builders import make_measurement, make_plan, make_run
from typer.testing import CliRunner, Result

from kvbench import content, plan, plan_summary, run
from kvbench.campaign.folder import CampaignFolder
from kvbench.campaign.ladder import (
    LADDER,
    Attempt,
    Campaign,
    Party,
    Rung,
    advice,
    changes,
    climb,
    hindrance,
    shortfall,
    standing,
)
from kvbench.cli.main import app
from kvbench.errors import KvbenchError, UsageError
from kvbench.journal import RunFolder
from kvbench.judge import verdict as judge
from kvbench.model import Measurement, Metric, Outcome, Plan, Step, Verdict
from kvbench.report import summary
from kvbench.report.render import Rendered

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "campaign-status.txt"
FAKE = content.load_gate(str(ROOT / "tests" / "fixtures" / "gates" / "fake.yaml")).gate
TOGETHER = Campaign("joint", due={"G1": date(2026, 12, 14)})
APART = Campaign("joint", "independent", (Party("vendor"), Party("centre")))
NOW = datetime(2026, 12, 1, 9, tzinfo=UTC)


# ---------------------------------------------------------------- the ladder


def attempt(
    gate: str, outcome: Outcome | None = Outcome.PASS, basis: tuple[str, ...] = (), measured: bool = True, **fields: Any
) -> Attempt:
    """A run of a gate with three rounds, as many as it asks for, on storage that is really there."""
    made = make_plan(cells=(8,), gate=replace(FAKE, id=gate, rounds=3))
    made = replace(made, **fields)
    verdict = Verdict(1, gate, "", outcome, basis, "Why.", (), ()) if outcome else None
    measurements = tuple(make_run(made).values()) if measured else ()
    return Attempt(Path(f"joint/runs/{gate}"), made, measurements, verdict)


def rungs(*attempts: Attempt, demonstration: bool = False) -> Sequence[Rung]:
    return climb(TOGETHER, demonstration, {"": attempts})


def test_each_gate_opens_the_next_one_only() -> None:
    passed = rungs(attempt("G1"), attempt("G2"))
    assert [gate for gate in LADDER if not hindrance(passed, gate, "")] == ["G1", "G2", "G3"]


@pytest.mark.parametrize(
    ("below", "demonstration", "obstacle"),
    [
        ([], False, "G1 has not passed: not run yet"),
        ([attempt("G1")], False, ""),
        ([attempt("G1", Outcome.FAIL)], False, "G1 has not passed: FAIL"),
        ([attempt("G1", Outcome.INCONCLUSIVE)], False, "G1 has not passed: INCONCLUSIVE"),
        ([attempt("G1", None, measured=False)], False, "G1 has not passed: under way, 0 of 9 steps measured"),
        ([attempt("G1", Outcome.FAIL), attempt("G1")], False, ""),
        ([attempt("G1"), attempt("G1", Outcome.FAIL)], False, "G1 has not passed: FAIL"),
        ([attempt("G1"), attempt("G1", None, measured=False)], False, ""),
        ([attempt("G1", quick=True)], False, "G1 has not passed: PASS does not count: quick run"),
        ([attempt("G1", basis=("emulated engine",))], False, "G1 has not passed: PASS does not count: demonstration"),
        ([attempt("G1", basis=("emulated engine",), quick=True)], True, ""),
        ([attempt("G1"), attempt("G1", Outcome.FAIL, quick=True)], False, ""),
    ],
)
def test_the_last_judged_run_that_counts_opens_the_next_gate(
    below: list[Attempt], demonstration: bool, obstacle: str
) -> None:
    assert hindrance(rungs(*below, demonstration=demonstration), "G2", "") == obstacle


def test_a_run_of_fewer_rounds_than_the_gate_asks_for_does_not_count() -> None:
    whole = attempt("G3")
    short = replace(whole, plan=replace(whole.plan, gate=replace(whole.plan.gate, rounds=10)))
    assert not shortfall(whole)
    assert shortfall(short) == "3 of 10 rounds"
    lasting = replace(whole.plan, gate=replace(whole.plan.gate, duration_s=6000.0), slice_s=600.0)
    assert shortfall(replace(whole, plan=lasting)) == "3 of 10 slices"


def test_independent_parties_climb_ladders_of_their_own() -> None:
    both = climb(APART, False, {"vendor": [attempt("G1")], "centre": [attempt("G1", Outcome.FAIL)]})
    assert not hindrance(both, "G2", "vendor")
    assert hindrance(both, "G2", "centre") == "G1 has not passed: FAIL"
    assert advice(both, "vendor", Path("joint"))[1] == "kvbench run gate G2 --campaign joint --party vendor"


@pytest.mark.parametrize(
    ("climbed", "demonstration", "command"),
    [
        ([], False, "kvbench run gate G1 --campaign joint"),
        ([], True, "kvbench run gate G1 --campaign joint --quick"),
        ([attempt("G1"), attempt("G2", Outcome.FAIL)], False, "kvbench run gate G2 --campaign joint"),
        ([attempt("G1", Outcome.INCONCLUSIVE)], False, "kvbench run gate G1 --campaign joint"),
        ([attempt("G1", Outcome.INCONCLUSIVE, measured=False)], False, "kvbench resume joint/runs/G1"),
        ([attempt("G1", None)], False, "kvbench resume joint/runs/G1"),
        ([attempt("G1", quick=True)], False, "kvbench run gate G1 --campaign joint"),
        ([attempt(gate) for gate in LADDER[:3]], False, "kvbench soak start --campaign joint"),
        ([attempt(gate) for gate in LADDER], False, "kvbench campaign report joint"),
    ],
)
def test_what_is_next_comes_with_its_command(climbed: list[Attempt], demonstration: bool, command: str) -> None:
    assert advice(rungs(*climbed, demonstration=demonstration), "", Path("joint"))[1] == command


def test_what_was_frozen_and_is_not_the_same_is_named() -> None:
    frozen, now = {"target.yaml": "a", "gates/g1.yaml": "b", "mode": "c"}, {"target.yaml": "x", "mode": "c", "new": "d"}
    assert changes(frozen, now) == ["target.yaml was changed", "gates/g1.yaml is gone", "new was added"]
    assert changes(frozen, frozen) == []


# ---------------------------------------------------------------- the folder


@pytest.fixture
def ladder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A content root whose four gates are made of arithmetic. Returns it; the current folder is beside it."""
    root, here = tmp_path / "content", tmp_path / "here"
    (root / "gates").mkdir(parents=True)
    here.mkdir()
    fake = (ROOT / "tests" / "fixtures" / "gates" / "fake.yaml").read_text()
    fake = fake.replace("work: files", "work: none").replace("[8, 16]", "[8]").replace("rounds: 4", "rounds: 3")
    for gate in LADDER:
        (root / "gates" / f"{gate.lower()}.yaml").write_text(fake.replace("id: FAKE", f"id: {gate}"))
    for name in ("workloads", "reports"):
        (root / name).symlink_to(ROOT / name)
    monkeypatch.setattr(content, "content_root", lambda: root)
    monkeypatch.setattr("kvbench.report.render.render", lambda *args: Rendered({}, ()))
    monkeypatch.setattr("kvbench.load.collected.collect_requests", lambda *args: None)
    moments = (NOW + timedelta(seconds=second) for second in itertools.count())
    monkeypatch.setattr("kvbench.clock.wall", lambda: next(moments))
    monkeypatch.chdir(here)
    return root


def kvbench(*args: str) -> Result:
    """The command; a refusal is raised, as the entry point alone turns it into text."""
    result = CliRunner().invoke(app, args)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_gates_run_in_order_and_each_outcome_is_told(ladder: Path) -> None:
    kvbench("campaign", "new", "joint")
    for gate in LADDER:
        assert kvbench("run", "gate", gate, "--campaign", "joint").exit_code == 0
    folder = CampaignFolder.open(Path("joint"))
    assert [standing(rung) for rung in folder.rungs()] == ["PASS (demonstration)"] * 4
    assert "all gates have passed\n  kvbench campaign report joint" in kvbench("campaign", "status", "joint").output


def test_a_skipped_gate_refuses_and_leaves_nothing(ladder: Path) -> None:
    kvbench("campaign", "new", "joint")
    with pytest.raises(KvbenchError, match="G1 has not passed: not run yet") as refused:
        kvbench("run", "gate", "G2", "--campaign", "joint")
    assert refused.value.exit_code == 4
    assert "kvbench run gate G1 --campaign joint --quick; or --ungated REASON" in refused.value.hint
    assert list(Path("joint/runs").iterdir()) == []
    assert not Path("joint/frozen.json").exists()


def test_an_ungated_run_says_so_first(ladder: Path) -> None:
    kvbench("campaign", "new", "joint")
    kvbench("run", "gate", "G2", "--campaign", "joint", "--ungated", "The drives are late.")
    (path,) = Path("joint/runs").iterdir()
    folder = RunFolder.open(path)
    assert folder.plan.ungated == "The drives are late."
    verdict = folder.load_verdict()
    assert verdict and verdict.warnings[0].startswith("Ungated: ") and "The drives are late." in verdict.warnings[0]
    status = kvbench("campaign", "status", "joint").output
    assert "    ungated: The drives are late.\n" in status


def test_ungated_is_refused_where_nothing_is_in_the_way(ladder: Path) -> None:
    kvbench("campaign", "new", "joint")
    with pytest.raises(UsageError, match="nothing keeps this gate from running"):
        kvbench("run", "gate", "G1", "--campaign", "joint", "--ungated", "why not")


@pytest.mark.parametrize("changed", ["gates/g4.yaml", "target.yaml", "mode in campaign.yaml"])
def test_after_the_first_gate_began_no_setting_may_change(ladder: Path, changed: str) -> None:
    target = Path("target.yaml")
    target.write_text(
        "version: 1\nname: t\narms:\n"
        "  - {name: dut, role: dut, storage: {nodes: [.]}, engine: {}}\n"
        "  - {name: base, role: baseline, kv: recompute, engine: {}}\n"
    )
    kvbench("campaign", "new", "joint", "--target", "target.yaml", "--party", "vendor", "--party", "centre")
    kvbench("run", "gate", "G1", "--campaign", "joint")
    files = {
        "gates/g4.yaml": ladder / "gates" / "g4.yaml",
        "target.yaml": Path("joint/target.yaml"),
        "mode in campaign.yaml": Path("joint/campaign.yaml"),
    }
    before = files[changed].read_text()
    edits = {"mode in campaign.yaml": before.replace("mode: collaborative", "mode: independent")}
    files[changed].write_text(edits.get(changed, before + "\n"))
    whose = ["--party", "vendor"] if changed.startswith("mode") else []
    with pytest.raises(KvbenchError, match=f"{changed} was changed since the settings were frozen") as refused:
        kvbench("run", "gate", "G1", "--campaign", "joint", *whose)
    assert refused.value.exit_code == 4
    assert f"changed since: {changed} was changed" in kvbench("campaign", "status", "joint").output
    files[changed].write_text(before)
    kvbench("run", "gate", "G2", "--campaign", "joint")


def test_contacts_and_dates_may_change_at_any_time(ladder: Path) -> None:
    kvbench("campaign", "new", "joint", "--party", "vendor: Ada")
    kvbench("run", "gate", "G1", "--campaign", "joint")
    file = Path("joint/campaign.yaml")
    file.write_text(file.read_text().replace("Ada", "Bo").replace("2027", "2028"))
    assert kvbench("run", "gate", "G2", "--campaign", "joint").exit_code == 0


def test_a_run_that_was_broken_off_goes_on_inside_its_campaign(ladder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = run._Loop._measure

    def breaking(loop: Any, step: Step, *args: Any) -> Measurement:
        if step.round == 3:
            raise KvbenchError("the machine went away")
        return real(loop, step, *args)

    kvbench("campaign", "new", "joint")
    monkeypatch.setattr(run._Loop, "_measure", breaking)
    with pytest.raises(KvbenchError, match="went away"):
        kvbench("run", "gate", "G1", "--campaign", "joint")
    monkeypatch.setattr(run._Loop, "_measure", real)
    (path,) = Path("joint/runs").iterdir()
    status = kvbench("campaign", "status", "joint").output
    assert "G1  under way, 4 of 6 steps measured" in status
    assert f"  kvbench resume {path}\n" in status
    kvbench("resume", str(path))
    assert "G1  PASS (demonstration)" in kvbench("campaign", "status", "joint").output


def test_independent_parties_keep_their_runs_apart(ladder: Path) -> None:
    kvbench("campaign", "new", "joint", "--mode", "independent", "--party", "vendor", "--party", "centre")
    with pytest.raises(UsageError, match="every party runs the gates itself"):
        kvbench("run", "gate", "G1", "--campaign", "joint")
    with pytest.raises(UsageError, match="there is no party 'carrier'"):
        kvbench("run", "gate", "G1", "--campaign", "joint", "--party", "carrier")
    kvbench("run", "gate", "G1", "--campaign", "joint", "--party", "vendor")
    assert [path.name for path in Path("joint/runs").iterdir()] == ["vendor"]
    with pytest.raises(KvbenchError, match="G1 has not passed"):
        kvbench("run", "gate", "G2", "--campaign", "joint", "--party", "centre")


def test_status_is_the_golden_text(ladder: Path) -> None:
    """After a wanted change: UPDATE_GOLDEN=1 pytest tests/campaign/test_campaign.py, then read the difference."""
    kvbench("campaign", "new", "joint", "--party", "vendor: Ada <ada@example.com>", "--name", "Array A")
    kvbench("run", "gate", "G1", "--campaign", "joint")
    kvbench("run", "gate", "G3", "--campaign", "joint", "--ungated", "The drives are late.")
    text = re.sub(r"T\d\d-\d\d-\d\d", "T09-00-00", kvbench("campaign", "status", "joint").output)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["campaign", "status", "nowhere"], "nowhere is not a campaign"),
        (["campaign", "new", "x", "--party", "Ada Chen"], "party name 'Ada Chen'"),
        (["campaign", "new", "x", "--party", "a", "--party", "a"], "two parties have the same name"),
        (["campaign", "new", "x", "--mode", "rivals"], "--mode rivals"),
        (["campaign", "new", "x", "--mode", "independent", "--party", "a"], "needs two parties or more"),
        (["campaign", "new", "x", "--target", "none.yaml"], "none.yaml: no such file"),
        (["run", "gate", "G1", "--ungated", "why"], "add --campaign"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_named_and_leaves_nothing(ladder: Path, args: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        kvbench(*args)
    assert message in str(refused.value)
    assert list(Path().iterdir()) == []


def test_a_campaign_brings_its_own_target_and_folder(ladder: Path) -> None:
    kvbench("campaign", "new", "joint")
    with pytest.raises(UsageError, match="brings its own target and folder"):
        kvbench("run", "gate", "G1", "--campaign", "joint", "--out", "elsewhere")
    with pytest.raises(UsageError, match="G7 is not a gate of a campaign"):
        kvbench("run", "gate", "G7", "--campaign", "joint")
    with pytest.raises(UsageError, match="holds a campaign already"):
        kvbench("campaign", "new", "joint")


# ---------------------------------------------------------------- the summary


def judged(gate: str, **fields: Any) -> Attempt:
    made = attempt(gate, **fields)
    return replace(made, verdict=judge.judge(made.plan, made.measurements))


def page(*attempts: Attempt, demonstration: bool = False) -> str:
    titles = dict.fromkeys(LADDER, "Title")
    facts = Campaign("joint", parties=(Party("vendor", "Ada <ada@example.com>"),))
    climbed = climb(facts, demonstration, {"": attempts})
    return summary.page(summary.build_summary(facts, climbed, titles, "array", None))


def test_the_summary_shows_the_figure_that_decided_each_gate() -> None:
    text = page(judged("G1"), judged("G2"))
    assert text.count('<span class="figure">−40.1 %</span><span class="needed">needed ≤ −25 %</span>') == 2
    assert "2 of 4 gates have passed; not decided: G3, G4." in text
    assert "Ada &lt;ada@example.com&gt;" in text
    assert "DEMONSTRATION" not in text


@pytest.mark.parametrize(
    ("climbed", "stamp"),
    [
        ([attempt(gate) for gate in LADDER], "PASS"),
        ([attempt(gate) for gate in LADDER[:3]], "INCONCLUSIVE"),
        ([attempt("G1"), attempt("G2", Outcome.FAIL)], "FAIL"),
        ([attempt(gate, quick=True) for gate in LADDER], "INCONCLUSIVE"),
        ([], "INCONCLUSIVE"),
    ],
)
def test_a_joint_test_passes_when_every_gate_has(climbed: list[Attempt], stamp: str) -> None:
    assert f'<p class="stamp">{stamp}</p>' in page(*climbed)


def test_the_summary_hides_neither_a_demonstration_nor_an_ungated_start_nor_a_bad_run() -> None:
    text = page(
        attempt("G1", Outcome.FAIL),
        attempt("G1", basis=("emulated engine",)),
        attempt("G2", basis=("emulated engine",), ungated="Late <drives>."),
        demonstration=True,
    )
    assert "<b>DEMONSTRATION</b> emulated engine." in text
    assert "<b>UNGATED</b> Late &lt;drives&gt;." in text
    assert "G2 was run although the gate below had not passed: Late &lt;drives&gt;." in text
    assert "replaced by a later run" in text


def test_the_summary_is_written_into_the_campaigns_folder(ladder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvbench.report.pdf.pdf", lambda text: b"%PDF-")
    kvbench("campaign", "new", "joint")
    kvbench("campaign", "report", "joint")
    assert {"summary.html", "summary.pdf"} <= {path.name for path in Path("joint").iterdir()}


# ---------------------------------------------------------------- what G2 gives to the gates above it


def test_a_soak_runs_at_a_stated_share_of_the_rate_that_g2_read_pages_at() -> None:
    from kvbench.campaign.carry import SOAK_SHARE, carried

    steps = [_page_read(cell, load, arm) for arm in ("dut", "local") for cell in ("2MiB", "model") for load in (8, 32)]
    baseline = replace(make_plan(), steps=tuple(steps))
    rates = {step.id: 1e9 * (number + 1) for number, step in enumerate(steps)}
    measurements = [
        make_measurement(step, {"read_bandwidth_bytes_per_s": Metric(rates[step.id], "B/s", 1)}) for step in steps
    ]
    gate = replace(make_plan().gate, id="G4", steps=(replace(make_plan().gate.steps[0], id="churn", probe="kv.churn"),))
    (override,) = carried(gate, baseline, measurements, "run-of-G2")["overrides"]
    assert override.params == {"rate_bytes_per_s": int(SOAK_SHARE * 4e9)}
    assert override.source == "25 % of the 4.00 GB/s of page-read-model-c32-dut in run-of-G2"
    assert carried(gate, baseline, [], "run-of-G2") == {}


def _page_read(cell: str, load: int, arm: str) -> Step:
    name = f"{cell}-c{load}"
    return Step(f"page-read-{name}-{arm}", "page-read", "kv.pages", arm, name, 0, {"concurrency": load}, 0, "none")


def test_an_override_is_in_the_steps_and_in_the_printed_plan(ladder: Path) -> None:
    from kvbench.model import Override

    override = Override("wave", {"effect": 0.5}, "measured in run-of-G2")
    made = _planned(plan.Options(overrides=(override,)))
    assert {step.params["effect"] for step in made.steps} == {0.5}
    assert "  wave: effect is 0.5, measured in run-of-G2" in plan_summary.summary(made, content.model_shapes())


def _planned(options: plan.Options) -> Plan:
    loaded, target = content.load_gate("G3"), content.demo_target(Path("x"))
    return plan.make_plan(loaded, target, content.model_shapes(), options)


def test_json_for_machines(ladder: Path) -> None:
    kvbench("campaign", "new", "joint")
    kvbench("campaign", "status", "joint", "--json", "status.json")
    rows = json.loads(Path("status.json").read_text())
    assert [(row["gate"], row["standing"], row["runs"]) for row in rows] == [(g, "not run yet", []) for g in LADDER]
