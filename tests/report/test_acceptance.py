"""The sections of gate G1: inventory, health and integrity, of a made-up array with something of everything."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from builders import TARGET, load_gate, make_measurement

from kvbench.host.machine.devices import Device, Link, NvmePath
from kvbench.host.machine.expectations import Expectation, Found, Node
from kvbench.host.machine.gpu import Gpu
from kvbench.host.machine.identity import Identity
from kvbench.host.machine.ports import Port
from kvbench.host.machine.rdma import RdmaPort
from kvbench.model import Measurement, Metric, Plan, Step
from kvbench.report import acceptance
from kvbench.report.document import Run, Section, Series

GATE = load_gate("g1")
SLOW = Link("0000:05:00.0", 8.0, 4, 16.0, 4)
PATHS = (
    NvmePath("nvme0", "rdma", "traddr=10.0.0.1", "live", "optimized"),
    NvmePath("nvme1", "rdma", "traddr=10.0.1.1", "connecting", ""),
)
DEVICE = Device(
    "nvme0n1", Identity("FX100", "S1", "2.1.0", 10**12, 4096), "nvme-rdma", "none", None, (), PATHS, "round-robin", ""
)
RDMA = RdmaPort("mlx5_0", 1, "Active", 100.0, "Ethernet", "28", "ens1", {"port_rcv_errors": 3, "link_downed": 0})
FOUND = Found(
    (Node("/mnt/a", "xfs", "/dev/nvme0n1", ("rw",), 10**12, 10**11, ("nvme0n1",), ""),),
    (DEVICE,),
    (Port("ens1", 9000, 100.0, SLOW, RDMA),),
)
GPUS = [asdict(Gpu("0", "Acme H100", "0000:1B:00.0", 80 * 2**30, "550"))]
HELD = [
    asdict(Expectation("capacity_bytes", 10**12, 10**12, True, "/sys/class/block")),
    asdict(Expectation("mtu", 4200, 9000, False, "/sys/class/net")),
    asdict(Expectation("serials", ("S1", "S2"), None, None, "/sys/class/block")),
]
INVENTORY = {
    "inventory": {**asdict(FOUND), "gpus": GPUS},
    "expectations": HELD,
    "not_available": {"numactl": "numactl is not installed (package numactl)"},
}


def run_of(*taken: Measurement) -> Run:
    steps = tuple(Step(f"{s.id}-dut", s.id, s.probe, "dut", "", 0, {}, 1, "none") for s in GATE.steps)
    plan = Plan(1, "0.1.0", GATE, TARGET, steps, seed=1, quick=False, content_digest="0")
    return Run(plan, {measured.step_id: measured for measured in taken}, Series())


def measured(kind: str, metrics: dict[str, Metric], **fields: Any) -> Measurement:
    step = Step(f"{kind}-dut", kind, "", "dut", "", 0, {}, 1, "none")
    facts = json.loads(json.dumps(fields.pop("facts", {})))  # as they come back from a journal
    return make_measurement(step, metrics, facts=facts, **fields)


def step_of(kind: str) -> Any:
    return next(step for step in GATE.steps if step.id == kind)


def rows(section: Section, title: str) -> list[dict[str, str]]:
    table = next(table for table in section.tables if table.title == title)
    return [dict(zip(table.columns, (entry.text for entry in row), strict=True)) for row in table.rows]


@pytest.fixture(scope="module")
def inventory() -> Section:
    (section,) = acceptance.inventory(step_of("inventory"), run_of(measured("inventory", {}, facts=INVENTORY)))
    return section


def test_what_was_ordered_stands_beside_what_was_found(inventory: Section) -> None:
    assert [
        (row["What"], row["Ordered"], row["Found"], row["Finding"]) for row in rows(inventory, "What was ordered")
    ] == [
        ("capacity_bytes", "1.00 TB (1,000,000,000,000 B)", "1.00 TB (1,000,000,000,000 B)", "PASS"),
        ("mtu", "4200", "9000", "FAIL"),
        ("serials", "S1, S2", "–", "INCONCLUSIVE"),
    ]


def test_devices_paths_ports_and_accelerators_have_tables(inventory: Section) -> None:
    (device,) = rows(inventory, "Devices")
    assert (device["Model"], device["Serial"], device["Firmware"], device["NUMA"]) == ("FX100", "S1", "2.1.0", "–")
    assert [(p["Controller"], p["State"], p["ANA"]) for p in rows(inventory, "NVMe paths")] == [
        ("nvme0", "live", "optimized"),
        ("nvme1", "connecting", "–"),
    ]
    (port,) = rows(inventory, "Ports on the way to a fabric target")
    assert port["PCIe link"] == "8 GT/s ×4, could be 16 GT/s ×4"
    assert port["Errors and congestion since boot"] == "port_rcv_errors 3"
    assert rows(inventory, "Accelerators")[0]["Memory"] == "85.9 GB"
    assert inventory.notes == ("Not available here: numactl is not installed (package numactl).",)


def test_a_single_local_path_needs_no_table() -> None:
    local = replace(DEVICE, paths=(replace(PATHS[0], transport="pcie"),))
    facts = {**INVENTORY, "inventory": {**asdict(replace(FOUND, devices=(local,), ports=())), "gpus": []}}
    (section,) = acceptance.inventory(step_of("inventory"), run_of(measured("inventory", {}, facts=facts)))
    assert [table.title for table in section.tables] == ["What was ordered", "File systems", "Devices"]


def test_an_inventory_that_failed_says_why() -> None:
    (section,) = acceptance.inventory(step_of("inventory"), run_of(measured("inventory", {}, error="no such folder")))
    assert (section.tables, section.notes) == ((), ("Arm dut: not measured: no such folder",))


def test_health_before_and_after_stand_side_by_side() -> None:
    before = measured(
        "health-before",
        {"media_errors_total": Metric(0, "count", 1, "raw/health-before-dut/health.json")},
        facts={"settings_shown_digest": "a" * 64},
    )
    after = measured("health-after", {"media_errors_total": Metric(None, "count", 0, "", "nvme0n1: gone")}, facts={})
    run = run_of(before, after)
    (section,) = acceptance.health(step_of("health-before"), run)
    assert acceptance.health(step_of("health-after"), run) == []
    (table,) = section.tables
    told = {row[1].text: row[2:] for row in table.rows}
    assert [(entry.text, entry.note) for entry in told["Media errors"]] == [("0", ""), ("–", "nvme0n1: gone")]
    assert [entry.text for entry in told["Shown settings, SHA-256"]] == ["a" * 16, "–"]
    assert section.notes == ("From raw/health-before-dut/health.json.",)


def test_integrity_says_how_much_came_back_and_how_it_was_checked() -> None:
    values = {"verify_errors": (2, "count"), "verified_bytes": (1e9, "B"), "verified_share": (0.01, "share")}
    metrics = {name: Metric(value, unit, 954, "raw/verify-dut/verify.json") for name, (value, unit) in values.items()}
    facts = {"checksum": "crc32c", "block_bytes": 1 << 20}
    (section,) = acceptance.verified(step_of("verify"), run_of(measured("verify", metrics, facts=facts)))
    (row,) = rows(section, "Written and read back")
    assert (row["Blocks wrong"], row["Read back"], row["Share of the capacity"]) == ("2", "1.00 GB", "1 %")
    assert section.tables[0].note == "crc32c in every block of 1.05 MB"


@pytest.mark.parametrize("build", [acceptance.health, acceptance.verified])
def test_what_was_not_measured_is_said(build: Any) -> None:
    kind = "verify" if build is acceptance.verified else "health-before"
    (section,) = build(step_of(kind), run_of())
    assert (section.tables, section.notes) == ((), ("No step of this kind was measured.",))
