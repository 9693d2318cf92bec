"""What Prometheus reads of a soak, and the dashboard that shows it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_measurement
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from soaks import make_plan

from kvbench import content
from kvbench.errors import KvbenchError
from kvbench.model import Metric, Stamp
from kvbench.probes.table import PROBES
from kvbench.soak import status as of_soak
from kvbench.soak import textfile

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "kvbench-soak.json"
DOCS = DASHBOARD.parents[1] / "soak.md"


def status() -> of_soak.Status:
    made = make_plan(2, 0.1)
    step = made.steps[0]
    metrics = {name: Metric(1.0, "count", 1) for name in ("content_mismatches", "longest_stall_s", "io_errors")}
    measured = make_measurement(step, metrics)
    now = Stamp(measured.end.wall, measured.end.monotonic_ns)
    around = of_soak.Surroundings(now, measured.boot_id, True, "", 2, {"": 5, "dut": 7})
    return of_soak.status(made, [measured], {step.id: 1.0 for step in made.steps}, around)


def exported(found: of_soak.Status, metrics: dict[str, Metric]) -> dict[str, list[tuple[dict[str, str], float]]]:
    step = make_plan(2, 0.1).steps[0]
    registry = textfile.registry("run-1", found, {("churn", "", "dut"): make_measurement(step, metrics)})
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def test_figures_carry_run_and_arm_and_their_unit() -> None:
    samples = exported(status(), {"ttft_p50_s": Metric(1.5, "s", 8)})
    labels = {"run": "run-1", "step": "churn", "cell": "", "arm": "dut"}
    assert samples["kvbench_ttft_p50_seconds"] == [(labels, 1.5)]
    assert samples["kvbench_soak_free_bytes"] == [({"run": "run-1", "arm": ""}, 5), ({"run": "run-1", "arm": "dut"}, 7)]
    assert samples["kvbench_soak_revivals"] == [({"run": "run-1"}, 1)]


def test_what_is_not_known_is_not_exported_as_zero() -> None:
    unknown = replace(status(), content_mismatches=None, available_share=None, last_measured="")
    samples = exported(unknown, {"ttft_p50_s": Metric(None, "s", 0, note="no wave yet")})
    absent = {"kvbench_soak_content_mismatches", "kvbench_soak_available_ratio", "kvbench_ttft_p50_seconds"}
    assert not absent & samples.keys()
    assert "kvbench_soak_last_measured_timestamp_seconds" not in samples


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("ttft_p50_s", "kvbench_ttft_p50_seconds"),
        ("output_tokens_per_s", "kvbench_output_tokens_per_second"),
        ("read_bandwidth_bytes_per_s", "kvbench_read_bandwidth_bytes_per_second"),
        ("wear_share", "kvbench_wear_ratio"),
        ("temperature_max_c", "kvbench_temperature_max_celsius"),
        ("requests_failed", "kvbench_requests_failed"),
    ],
)
def test_names_end_in_the_base_unit(metric: str, name: str) -> None:
    assert textfile.exported_name(metric) == name


def g4_names() -> set[str]:
    metrics = {name for step in content.load_gate("G4").gate.steps for name in PROBES[step.probe].metrics}
    return {textfile.exported_name(name) for name in metrics} | textfile.SOAK.keys() | {textfile.FREE}


def test_no_two_metrics_of_g4_share_a_name_with_prometheus() -> None:
    metrics = {name for step in content.load_gate("G4").gate.steps for name in PROBES[step.probe].metrics}
    assert len(g4_names()) == len(metrics) + len(textfile.SOAK) + 1


def test_the_dashboard_asks_only_for_what_is_exported_and_shows_what_g4_is_about() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\bkvbench_\w+", target["expr"])
    }
    assert asked <= g4_names()
    assert {
        "kvbench_ttft_p50_seconds",
        "kvbench_read_bandwidth_bytes_per_second",
        "kvbench_soak_available_ratio",
        "kvbench_soak_content_mismatches",
        "kvbench_longest_stall_seconds",
        "kvbench_soak_free_bytes",
    } <= asked


def test_the_dashboard_s_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    squares = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(set(squares)) == len(squares)
    assert all(0 <= x < 24 for x, _ in squares)


def test_the_documentation_lists_every_figure_of_the_soak_itself() -> None:
    assert {*textfile.SOAK, textfile.FREE} <= set(re.findall(r"`(kvbench_\w+)`", DOCS.read_text()))


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(KvbenchError, match=r"nowhere/kvbench\.prom cannot be written"):
        textfile.write(textfile.registry("run-1", status(), {}), [tmp_path / "nowhere" / "kvbench.prom"])
