"""Runs side by side: the set-up first, then figures over rounds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders import DUT, LOCAL, TARGET, make_measurement, make_plan, make_run, make_step
from typer.testing import CliRunner

from kvbench import content, plan, stats
from kvbench.cli.main import app
from kvbench.compare import Comparison, Run, compare
from kvbench.errors import UsageError
from kvbench.journal import RunFolder
from kvbench.model import Engine, Measurement, Metric, Plan, Storage

FILES = {"gates/g3.yaml": "a" * 64}


def a_run(name: str = "first", made: Plan | None = None, content: dict[str, str] = FILES, **values: float) -> Run:
    made = made or make_plan(cells=(8,))
    return Run(name, made, tuple(make_run(made, **values).values()), content)


def differing(comparison: Comparison) -> dict[str, tuple[str, ...]]:
    return {one.what: one.values for one in comparison.differences}


def test_runs_of_the_same_set_up_differ_in_nothing() -> None:
    assert compare([a_run(), a_run()]).differences == ()


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (a_run(content={"gates/g3.yaml": "b" * 64}), {"content gates/g3.yaml": ("a" * 12, "b" * 12)}),
        (a_run(made=replace(make_plan(cells=(8,)), kvbench_version="0.2.0")), {"kvbench": ("0.1.0", "0.2.0")}),
        (a_run(made=make_plan(cells=(8,), quick=True)), {"plan.quick": ("False", "True")}),
        (a_run(made=make_plan(cells=(8,), rounds=5)), {"plan.rounds": ("3", "5")}),
        (
            a_run(made=make_plan(cells=(8,), target=replace(TARGET, arms=(replace(DUT, engine=Engine()), LOCAL)))),
            {
                "target.arms.dut.engine.kind": ("launch", "emulated"),
                "target.arms.dut.engine.command": ("serve, --port, {port}", ""),
            },
        ),
        (
            a_run(
                made=make_plan(
                    cells=(8,), target=replace(TARGET, arms=(replace(DUT, storage=Storage(("/mnt/other",))), LOCAL))
                )
            ),
            {"target.arms.dut.storage.nodes": ("/mnt/array", "/mnt/other")},
        ),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
)
def test_what_differs_in_the_set_up_is_named(other: Run, expected: dict[str, tuple[str, str]]) -> None:
    assert differing(compare([a_run(), other])) == expected


def test_of_the_machine_only_what_lasts_is_compared() -> None:
    def on(kernel: str, free_bytes: int) -> Run:
        facts = {"machine": {"kernel": kernel}, "pressure": {"cpu_share": free_bytes}, "free_bytes": free_bytes}
        step = make_step("environment")
        run = a_run(made=replace(make_plan(), steps=(step,)))
        return replace(run, measurements=(make_measurement(step, {}, facts=facts),))

    assert differing(compare([on("6.8.0", 5), on("6.12.0", 7)])) == {"machine.kernel": ("6.8.0", "6.12.0")}


def test_figures_are_means_over_rounds_with_an_interval_and_a_ratio_to_the_first_run() -> None:
    first, other = a_run(), a_run("other", ttft_p50_s=0.6)
    comparison = compare([first, other])
    assert comparison.runs == ("first", "other")
    row = next(row for row in comparison.rows if (row.arm, row.metric) == ("dut", "ttft_p50_s"))
    values = [m.metrics["ttft_p50_s"].value or 0.0 for m in first.measurements if m.step_id.endswith("c8-dut")]
    mine, theirs = row.figures
    assert mine and theirs and mine.low and mine.high
    assert (mine.n, mine.mean, mine.ratio) == (3, pytest.approx(sum(values) / 3), 1.0)
    assert (mine.high - mine.mean, mine.mean - mine.low) == pytest.approx([stats.mean_half_width(values)] * 2)
    assert (theirs.low, theirs.high, theirs.ratio) == pytest.approx((0.6, 0.6, 0.6 / mine.mean))


def test_the_interval_of_a_mean_is_that_of_students_t() -> None:
    assert stats.mean_half_width([1.0, 2.0, 3.0]) == pytest.approx(4.302653 / 3**0.5)
    with pytest.raises(ValueError, match="two values"):
        stats.mean_half_width([1.0])


def test_one_round_has_no_interval_and_a_mean_of_zero_no_ratio() -> None:
    made = make_plan(cells=(8,), rounds=1)
    rows = {(row.arm, row.metric): row for row in compare([a_run(made=made), a_run(made=made)]).rows}
    ttft, failed = rows["dut", "ttft_p50_s"].figures[1], rows["dut", "requests_failed"].figures[1]
    assert ttft and failed
    assert (ttft.n, ttft.low, ttft.high, ttft.ratio) == (1, None, None, 1.0)
    assert (failed.mean, failed.ratio) == (0.0, None)


def test_what_was_not_measured_is_absent_and_not_zero() -> None:
    def broken(measurement: Measurement) -> Measurement:
        return replace(measurement, error="no endpoint") if "dut" in measurement.step_id else measurement

    without_dut = replace(a_run(), measurements=tuple(broken(one) for one in a_run().measurements))
    absent = {"ttft_p50_s": Metric(None, "s", 0, note="no request was answered")}
    without_figure = replace(
        a_run(), measurements=tuple(replace(one, metrics={**one.metrics, **absent}) for one in a_run().measurements)
    )
    for other in (without_dut, without_figure):
        row = next(r for r in compare([a_run(), other]).rows if (r.arm, r.metric) == ("dut", "ttft_p50_s"))
        assert row.figures[0] is not None
        assert row.figures[1] is None


def test_rows_that_a_check_looks_at_are_marked_and_arms_stand_side_by_side() -> None:
    judged = [(row.kind, row.metric, row.arm) for row in compare([a_run(), a_run()]).rows if row.judged]
    assert ("ceiling", "read_bandwidth_bytes_per_s", "dut") in judged  # divides a wave's bandwidth
    assert ("wave", "ttft_p90_s", "dut") not in judged
    place = judged.index(("wave", "ttft_p50_s", "dut"))
    assert judged[place + 1] == ("wave", "ttft_p50_s", "local")


def folder(path: Path, made: Plan) -> RunFolder:
    run = RunFolder.create(path, made, content.load_gate("G3").files, content.content_root() / "gates" / "g3.yaml")
    for measurement in make_run(made).values():
        run.finish(measurement)
    return run


def test_the_command_says_the_set_up_before_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, rounds in (("one", 3), ("two", 1)):
        folder(tmp_path / name, make_plan(cells=(8,), rounds=rounds))
    done = CliRunner().invoke(app, ["compare", "one", "two", "--json", "both.json"])
    assert done.exit_code == 0
    assert done.output.index("plan.rounds") < done.output.index("ttft_p50_s")
    line = next(line for line in done.output.splitlines() if line.split()[:4] == ["wave", "c8", "dut", "ttft_p50_s"])
    assert [word for word in line.split() if word.startswith("n=")] == ["n=3", "n=1"]
    both = json.loads((tmp_path / "both.json").read_text())
    assert both["runs"] == ["one", "two"]
    assert {"what": "plan.rounds", "values": ["3", "1"]} in both["differences"]


def test_bad_input_is_one_clear_message(tmp_path: Path) -> None:
    made = plan.replace(make_plan(), steps=())
    folder(tmp_path / "one", made)
    for args, message in (
        ([str(tmp_path / "one")], "one run has nothing to be compared with"),
        ([str(tmp_path / "one"), str(tmp_path / "none")], "is not a run folder"),
    ):
        result = CliRunner().invoke(app, ["compare", *args])
        assert isinstance(result.exception, UsageError)
        assert message in str(result.exception)
