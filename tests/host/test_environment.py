"""The probe that describes the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import make_context

from kvbench.host import environment
from kvbench.model import Arm, Engine, Step, Storage, Target
from kvbench.probes.context import Context
from kvbench.probes.table import PROBES

STEP = Step("environment", "environment", "host.environment", "", "", 0, {}, 1, "none")


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setattr(environment, "_PRESSURE_S", 0.01)
    engine = Engine(env={"API_KEY": "hunter2"})
    disk = Arm("dut", "dut", engine, storage=Storage((str(tmp_path / "not/yet/there"),)))
    memory = Arm("memory", "reference", engine, storage=Storage(("/dev/shm",)))
    recompute = Arm("recompute", "baseline", engine, kv="recompute")
    target = Target("t", (disk, memory, recompute))
    return make_context(tmp_path / "run", STEP.id, None, target=target)


def test_what_it_promises_and_where_it_comes_from(context: Context) -> None:
    measured = environment.measure(STEP, context)
    assert {name: metric.unit for name, metric in measured.metrics.items()} == dict(PROBES[STEP.probe].metrics)
    assert all((metric.value or 0) > 0 for metric in measured.metrics.values())
    assert {metric.source for metric in measured.metrics.values()} == {"raw/environment/environment.json"}


def test_the_facts_are_kept_as_json(context: Context) -> None:
    measured = environment.measure(STEP, context)
    kept = json.loads((context.raw_dir / "environment.json").read_text())
    assert kept == json.loads(json.dumps(measured.facts))
    assert kept["versions"].keys() >= {"kvbench", "python", "pyarrow"}
    assert kept["arms"].keys() == {"dut", "memory"}  # an arm that recomputes has no medium
    assert kept["arms"]["dut"][0]["mount"]["fs_type"]
    assert kept["pressure"].keys() == {"cpu_share", "memory_share", "io_share"}


def test_an_unproven_medium_is_a_warning_that_names_arm_and_folder(context: Context) -> None:
    warnings = environment.measure(STEP, context).warnings
    assert "arm memory, /dev/shm: medium unproven: tmpfs is memory, not a storage medium" in warnings


def test_no_secret_gets_into_the_run_folder(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "swordfish")
    measured = environment.measure(STEP, context)
    text = (context.raw_dir / "environment.json").read_text() + repr(measured)
    assert "swordfish" not in text
    assert "hunter2" not in text
