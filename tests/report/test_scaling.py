"""How a report tells of nodes that came or went in mid-wave."""

from __future__ import annotations

from typing import Any

from kvbench.model import Arm, Engine, Gate, GateStep, Measurement, Metric, Plan, Stamp, Step, Storage, Target
from kvbench.report.document import Run, Series
from kvbench.report.scaling import sections

GATE_STEP = GateStep(id="scaling", probe="load.scaling", why="A node comes, or goes.", scaling=("add", "fail"))
TARGET = Target("t", (Arm("dut", "dut", Engine(), storage=Storage(("/mnt/a",))),))
CHANGED_NS = 100 * 10**9


def step(change: str) -> Step:
    params = {"scaling": change, "concurrency": 2}
    return Step(f"scaling-{change}", "scaling", "load.scaling", "dut", f"{change}-c2", 1, params, 1, "none")


def row(wave: str, due_s: float, ttft_s: float) -> dict[str, Any]:
    due_ns = CHANGED_NS + int(due_s * 1e9)
    return {"request_id": f"{wave}-000", "due_ns": due_ns, "first_token_ns": due_ns + int(ttft_s * 1e9)}


def run(**facts: Any) -> Run:
    steps = (step("add"), step("fail"))
    told = {"changed_ns": CHANGED_NS, "changed_by": "kvbench's own pool of 4 directories", "pace": {}} | facts
    measurements, requests, moves = {}, {}, {}
    for one in steps:
        raw = f"raw/{one.id}"
        metrics = {
            "ttft_before_p50_s": Metric(1.0, "s", 2, f"{raw}/requests.parquet"),
            "ttft_p50_s": Metric(1.2, "s", 2, f"{raw}/requests.parquet"),
            "ttft_after_p50_s": Metric(1.1, "s", 2, f"{raw}/requests.parquet"),
            "moved_bytes": Metric(3e9, "B", 1, f"{raw}/moves.parquet"),
            "rebalance_s": Metric(4.5, "s", 1, f"{raw}/moves.parquet"),
        }
        series = {name: f"{raw}/{name}.parquet" for name in ("requests", "moves")}
        stamp = Stamp("2026-01-01T10:00:00.000+00:00", 0)
        measurements[one.id] = Measurement(one.id, 1, "emulated", stamp, stamp, "b", metrics, series, facts=told)
        requests[one.id] = [row("before", -9, 1.0), row("during", -0.5, 1.25), row("after", 20, 1.1)]
        moves[one.id] = [
            {"at_ns": CHANGED_NS + int(at_s * 1e9), "moved_bytes": moved, "moving": at_s == 1}
            for at_s, moved in ((-3, 0), (1, 10**9), (4.5, 3 * 10**9))
        ]
    gate = Gate(1, "G3", "t", "w", 1, 1, (GATE_STEP,), ())
    plan = Plan(1, "0", gate, TARGET, steps, 1, False, "0" * 64)
    return Run(plan, measurements, Series(requests=requests, moves=moves))


def test_each_way_of_changing_has_its_section_and_says_who_did_it() -> None:
    add, fail = sections(GATE_STEP, run(pace={"bytes_per_s": 10**8, "ttft_limit_s": 1.5}))
    assert add.title == "Scaling, add-c2: a node is added in mid-wave, 2 sessions at once"
    assert fail.title == "Scaling, fail-c2: a node fails in mid-wave, 2 sessions at once"
    assert add.notes == (
        "Step scaling-add: the nodes were changed by kvbench's own pool of 4 directories. Pages moved at 100 MB/s at "
        "most, and waited while the TTFT was near 1.5 s.",
    )


def test_requests_stand_around_the_change_at_their_first_token() -> None:
    (ttft, moved), *_ = (section.charts for section in sections(GATE_STEP, run()))
    assert {line.label: (line.x, line.y) for line in ttft.lines} == {
        "before": ((-8.0,), (1.0,)),
        "during": ((0.75,), (1.25,)),
        "after": ((21.1,), (1.1,)),
    }
    assert ttft.band == (0.0, 4.5)
    assert "raw/scaling-add/requests.parquet" in ttft.note
    assert [(line.x, line.y) for line in moved.lines] == [((1.0, 4.5), (1.0, 3.0))]
    assert "raw/scaling-add/moves.parquet" in moved.note


def test_a_row_has_the_three_medians_and_its_source() -> None:
    table = sections(GATE_STEP, run())[0].tables[0]
    assert table.columns == ("Round", "Arm", "n", "TTFT p50 before", "during", "after", "Source")
    assert [entry.text for entry in table.rows[0]][3:] == ["1 s", "1.2 s", "1.1 s", "raw/scaling-add/requests.parquet"]


def test_without_series_there_are_tables_and_no_charts() -> None:
    told = run()
    (add, _) = sections(GATE_STEP, Run(told.plan, told.measurements, Series()))
    assert add.charts == () and len(add.tables) == 2
