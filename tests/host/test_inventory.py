"""The probe that tells what an arm lives on: all of it kept, nothing required."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_context

from kvbench import process
from kvbench.errors import StepError
from kvbench.host import inventory
from kvbench.host.machine.blockdev import BlockDevice, Medium
from kvbench.host.machine.devices import Device, Link
from kvbench.host.machine.expectations import Found, Node
from kvbench.host.machine.identity import Identity
from kvbench.model import Arm, Engine, Expect, Step, Storage
from kvbench.probes.context import Measured
from kvbench.probes.metrics import INVENTORY_METRICS

STEP = Step("inventory-dut", "inventory", "host.inventory", "dut", "", 0, {}, 1, "none")
FULL = Link("0000:01:00.0", 16.0, 4, 16.0, 4)
DEVICE = Device("nvme0n1", Identity(), "nvme-pcie", "none", 0, (FULL,), (), "", "")
NODE = Node("/mnt/a", "xfs", "/dev/nvme0n1", (), 1, 1, ("nvme0n1",), "")


def measure(run_dir: Path, storage: Storage | None) -> Measured:
    arm = Arm("dut", "dut", Engine(), storage=storage)
    return inventory.measure(STEP, make_context(run_dir, STEP.id, arm))


def test_this_machine_is_told_with_every_answer_kept(tmp_path: Path) -> None:
    measured = measure(tmp_path, Storage((str(tmp_path),), expect=Expect(fs_type="no such file system")))
    assert {name: metric.unit for name, metric in measured.metrics.items()} == dict(INVENTORY_METRICS)
    kept = json.loads((tmp_path / "raw/inventory-dut/inventory.json").read_text())
    assert kept == json.loads(json.dumps(measured.facts))
    (node,) = kept["inventory"]["nodes"]
    assert (node["path"], node["size_bytes"] > 0) == (str(tmp_path), True)
    (held,) = kept["expectations"]
    assert (held["key"], held["ok"], held["found"]) == ("fs_type", False, node["fs_type"])
    assert measured.metrics["expectations"].value == 1


def test_without_any_tool_it_still_tells_and_names_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "find_tool", lambda name: None)
    measured = measure(tmp_path, Storage((str(tmp_path),)))
    assert "arm dut: lspci is not installed (package pciutils)" in measured.warnings
    assert "arm dut: nvme is not installed (package nvme-cli)" in measured.warnings
    assert measured.facts["not_available"]["nvidia-smi"] == "nvidia-smi is not installed (comes with the NVIDIA driver)"
    assert not any("nvidia" in warning for warning in measured.warnings)  # a machine without GPUs lacks nothing
    assert (measured.metrics["expectations"].value, measured.metrics["expectations"].note) == (
        None,
        "the target has no storage.expect",
    )


def test_an_arm_without_storage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="the arm has no storage"):
        measure(tmp_path, None)


def test_a_namespace_that_nvme_list_does_not_name_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leaf = BlockDevice("nvme7n1", "259:7", "Acme X1", "S7", False, False, "", "nvme-pcie", 4096)
    monkeypatch.setattr(inventory, "medium_of", lambda path: Medium(None, (leaf,), ""))
    monkeypatch.setattr(process, "find_tool", lambda name: "/bin/true" if name == "nvme" else None)
    monkeypatch.setattr(
        process, "run", lambda argv, timeout_s: process.Completed(tuple(argv), 0, '{"Devices": []}', "")
    )
    measured = measure(tmp_path, Storage((str(tmp_path),)))
    assert "nvme list names no namespace, and the kernel has nvme7n1" in measured.warnings


@pytest.mark.parametrize(
    ("devices", "node", "values"),
    [
        ((DEVICE,), NODE, {"devices": 1, "pcie_degraded_devices": 0, "medium_proven": 1}),
        (
            (DEVICE, replace(DEVICE, links=(replace(FULL, width=2),))),
            NODE,
            {"devices": 2, "pcie_degraded_devices": 1, "medium_proven": 1},
        ),
        (
            (replace(DEVICE, links=()),),
            replace(NODE, why_unproven="a virtual disk"),
            {"devices": 1, "pcie_degraded_devices": None, "medium_proven": 0},
        ),
    ],
)
def test_links_and_media_as_figures(devices: tuple[Device, ...], node: Node, values: dict[str, float | None]) -> None:
    metrics = inventory.metrics(Found((node,), devices, ()), 3, "raw/x")
    assert {name: metric.value for name, metric in metrics.items()} == {"expectations": 3, **values}
    assert bool(metrics["pcie_degraded_devices"].note) is (values["pcie_degraded_devices"] is None)
