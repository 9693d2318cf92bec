"""What an arm's drives say of themselves: the worst of all, and no figure where one is silent."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_context

from kvbench import process
from kvbench.host import health
from kvbench.host.machine.blockdev import BlockDevice, Media, Medium
from kvbench.host.machine.smart import Smart
from kvbench.model import Arm, Engine, Step, Storage, Target
from kvbench.probes.context import Context
from kvbench.probes.metrics import HEALTH_METRICS

FIXTURES = Path(__file__).parents[1] / "fixtures" / "host"
WELL = Smart(0, 0, 1.0, 0.1, 0.01, 0, 30.0, 1, 10, 5)
NVME = BlockDevice("nvme0n1", "259:0", "Acme X1", "S1", False, False, "", "nvme-pcie", 4096)
VIRTIO = BlockDevice("vda", "254:0", "", "", None, True, "a virtio disk", "virtio", 512)
STORAGE = Storage(("/mnt/a",))


@pytest.mark.parametrize(
    ("name", "second", "worst"),
    [
        ("critical_warning", {"critical_warning": 4}, 4),
        ("media_errors_total", {"media_errors": 2}, 2),
        ("spare_margin_share", {"available_spare_share": 0.08}, -0.02),
        ("wear_share", {"wear_share": 0.07}, 0.07),
        ("wear_margin_share", {"wear_share": 0.07}, -0.02),
        ("error_log_entries", {"error_log_entries": 9}, 9),
        ("temperature_max_c", {"temperature_c": 71.0}, 71.0),
        ("lifetime_written_bytes", {"written_bytes": 32}, 42),
    ],
)
def test_the_worst_drive_counts_and_bytes_add_up(name: str, second: dict[str, float], worst: float) -> None:
    smarts = {"nvme0n1": WELL, "nvme1n1": replace(WELL, **second)}  # type: ignore[arg-type]
    metric = health.drive_metrics(smarts, STORAGE, "raw/x/health.json")[name]
    assert metric.value == pytest.approx(worst)
    assert (metric.n, metric.unit, metric.source) == (2, HEALTH_METRICS[name], "raw/x/health.json")


def test_a_drive_without_spare_blocks_tells_no_margin() -> None:
    """Of those, Linux's NVMe target and QEMU's controller say 0 % of 0 %."""
    smarts = {"nvme0n1": replace(WELL, available_spare_share=0.0, spare_threshold_share=0.0)}
    metric = health.drive_metrics(smarts, STORAGE, "raw/x/health.json")["spare_margin_share"]
    assert (metric.value, metric.note) == (None, "nvme0n1: it keeps no such counter")
    used_up = {"nvme0n1": replace(WELL, available_spare_share=0.0, spare_threshold_share=0.1)}
    assert health.drive_metrics(used_up, STORAGE, "")["spare_margin_share"].value == pytest.approx(-0.1)


def test_one_silent_drive_leaves_no_figure_and_is_named() -> None:
    smarts = {"nvme0n1": WELL, "sda": Smart(why_absent="smartctl is not installed (package smartmontools)")}
    metric = health.drive_metrics(smarts, STORAGE, "")["media_errors_total"]
    assert (metric.value, metric.note) == (None, "sda: smartctl is not installed (package smartmontools)")


def test_a_counter_that_a_drive_does_not_keep_is_said() -> None:
    metric = health.drive_metrics({"sda": Smart(critical_warning=0)}, STORAGE, "")["wear_share"]
    assert metric.note == "sda: it keeps no such counter"


def test_without_a_device_no_drive_is_well() -> None:
    assert {m.value for m in health.drive_metrics({}, STORAGE, "").values()} == {None}


def tool(folder: Path, name: str, output: Path | None, status: int = 0) -> None:
    script = folder / name
    script.write_text(f"#!/bin/sh\n{f'cat {output}' if output else 'echo no such device >&2'}\nexit {status}\n")
    script.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tools, and no other tool anywhere."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    find = process.find_tool
    known = ("nvme", "smartctl")
    monkeypatch.setattr(
        process, "find_tool", lambda name: find(name) if name not in known or (folder / name).exists() else None
    )
    return folder


def test_a_virtual_disk_has_no_smart_and_nobody_is_asked() -> None:
    assert health.smart_counters([VIRTIO]) == {"vda": Smart(why_absent="no SMART on a virtio disk")}


def test_without_tools_their_packages_are_named(tools: Path) -> None:
    assert health.smart_counters([NVME, NVME])["nvme0n1"].why_absent == (
        "nvme is not installed (package nvme-cli); smartctl is not installed (package smartmontools)"
    )


def test_smartctl_fills_in_what_nvme_does_not_tell_and_all_answers_are_kept(tools: Path, tmp_path: Path) -> None:
    tool(tools, "nvme", FIXTURES / "N06-impossible-temperature.json")
    tool(tools, "smartctl", FIXTURES / "N09-failing-nvme.json", 8)
    smart = health.smart_counters([NVME], tmp_path)["nvme0n1"]
    assert (smart.critical_warning, smart.temperature_c, smart.media_errors) == (0, 29.0, 1)
    assert "the drive says that it is failing" in smart.notes
    assert len(list(tmp_path.glob("*.txt"))) == 3


def test_a_tool_that_fails_is_quoted(tools: Path) -> None:
    tool(tools, "nvme", None, 1)
    tool(tools, "smartctl", FIXTURES / "N09-not-opened.json", 2)
    assert health.smart_counters([NVME])["nvme0n1"].why_absent == (
        "no such device; Smartctl open device: /dev/sda failed: Permission denied"
    )


def context(run_dir: Path, role: str) -> Context:
    arm = Arm("a", role, Engine(), storage=Storage((str(run_dir),), settings={"cache": "64 GiB"}))  # type: ignore[arg-type]
    hooks = {"show_settings": (sys.executable, "-c", "print('cache: 64 GiB')")}
    return make_context(run_dir, "health", arm, target=Target("t", (arm,), hooks))


@pytest.mark.parametrize(
    ("role", "note"), [("dut", ""), ("baseline", "the hook show_settings is about the storage under test")]
)
def test_the_step_tells_drives_and_settings(
    role: str, note: str, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tools, "nvme", FIXTURES / "N06-kelvin.json")
    monkeypatch.setattr(health, "media_of", lambda paths: Media((Medium(None, (NVME,), ""),)))
    step = Step("health", "health", "host.health", "a", "", 0, {}, 1, "none")
    here = context(tmp_path / "run", role)
    measured = health.measure(step, here)
    assert {name: metric.unit for name, metric in measured.metrics.items()} == dict(HEALTH_METRICS)
    assert measured.metrics["temperature_max_c"].value == 28.0
    assert measured.metrics["settings_declared"].value == 1
    fingerprint = measured.metrics["settings_fingerprint"]
    assert (fingerprint.value is None, fingerprint.note) == (role != "dut", note)
    assert json.loads((here.raw_dir / "health.json").read_text()) == json.loads(json.dumps(measured.facts))
    assert (here.raw_dir / "settings.txt").exists() is (role == "dut")
