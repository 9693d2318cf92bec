"""What was ordered against what was found: met, not met, or not to be found out."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from kvbench.host.machine.devices import Device, Link, NvmePath
from kvbench.host.machine.expectations import Found, Node, hold
from kvbench.host.machine.identity import Identity, merge
from kvbench.host.machine.ports import Port
from kvbench.model import Expect

LINK = Link("0000:01:00.0", 16.0, 4, 16.0, 4)
PATHS = (NvmePath("nvme0", "tcp", "", "live", "optimized"), NvmePath("nvme1", "tcp", "", "live", "optimized"))
FIRST = Device(
    name="nvme0n1",
    identity=Identity("FX 100", "S1", "2.1.0", 1000, 4096),
    transport="nvme-tcp",
    scheduler="none",
    numa_node=0,
    links=(LINK,),
    paths=PATHS,
    multipath_policy="round-robin",
    why_unproven="",
)
SECOND = replace(FIRST, name="nvme1n1", identity=replace(FIRST.identity, serial="S2"))
NODE = Node("/mnt/a", "xfs", "/dev/md0", ("rw", "noatime", "attr2"), 2000, 1000, ("nvme0n1", "nvme1n1"), "")
FOUND = Found((NODE,), (FIRST, SECOND), (Port("ens1", 9000, 100.0, LINK, None),))
MET = Expect(
    device_count=2,
    model="FX  100",
    serials=("S2", "S1"),
    firmware="2.1.0",
    capacity_bytes=2000,
    logical_block_bytes=4096,
    transport="nvme-tcp",
    pcie_speed_gt_s=16.0,
    pcie_width=4,
    paths=2,
    ana_state="optimized",
    multipath_policy="round-robin",
    numa_node=0,
    scheduler="none",
    fs_type="xfs",
    mount_options=("noatime", "rw"),
    mtu=9000,
    port_rate_gbit_s=100.0,
)
NOT_MET = Expect(
    device_count=3,
    model="FX200",
    serials=("S1", "S3"),
    firmware="2.1.1",
    capacity_bytes=2001,
    logical_block_bytes=512,
    transport="nvme-rdma",
    pcie_speed_gt_s=32.0,
    pcie_width=8,
    paths=4,
    ana_state="non-optimized",
    multipath_policy="queue-depth",
    numa_node=1,
    scheduler="mq-deadline",
    fs_type="ext4",
    mount_options=("noatime", "discard"),
    mtu=1500,
    port_rate_gbit_s=200.0,
)
KEYS = [field.name for field in fields(Expect)]


def only(expect: Expect, key: str) -> Expect:
    return replace(Expect(), **{key: getattr(expect, key)})


@pytest.mark.parametrize("key", KEYS)
def test_every_key_of_the_target_is_held(key: str) -> None:
    for expect, ok in ((MET, True), (NOT_MET, False)):
        (held,) = hold(only(expect, key), FOUND)
        assert (held.key, held.expected, held.ok) == (key, getattr(expect, key), ok)
        assert held.found is not None
        assert held.source


@pytest.mark.parametrize("key", [key for key in KEYS if key != "device_count"])
def test_what_cannot_be_found_out_is_neither_met_nor_missed(key: str) -> None:
    (held,) = hold(only(MET, key), Found((), (), ()))
    assert (held.found, held.ok) == (None, None)


def test_what_is_not_ordered_is_not_held() -> None:
    assert hold(Expect(), FOUND) == ()


@pytest.mark.parametrize(
    ("second", "key", "found", "ok"),
    [
        ({"scheduler": "kyber"}, "scheduler", ("none", "kyber"), False),  # one thing that differs is enough
        ({"scheduler": ""}, "scheduler", "none", None),  # one that is not known leaves it open
        ({"paths": (*PATHS[:1], replace(PATHS[1], state="connecting"))}, "paths", (2, 1), False),
        (
            {"paths": (*PATHS[:1], replace(PATHS[1], ana_state="inaccessible"))},
            "ana_state",
            ("optimized", "inaccessible"),
            False,
        ),
        ({"identity": Identity(serial="S2")}, "capacity_bytes", None, None),  # no sum of some
        ({"identity": Identity()}, "serials", None, None),
    ],
)
def test_every_device_has_to_meet_it(second: dict[str, Any], key: str, found: object, ok: bool | None) -> None:
    (held,) = hold(only(MET, key), replace(FOUND, devices=(FIRST, replace(SECOND, **second))))
    assert (held.found, held.ok) == (found, ok)


def test_a_better_link_port_or_capacity_than_ordered_is_met() -> None:
    expect = Expect(pcie_speed_gt_s=8.0, pcie_width=2, paths=1, port_rate_gbit_s=25.0, capacity_bytes=1)
    assert all(held.ok for held in hold(expect, FOUND))


def test_a_fabric_target_is_held_by_the_links_of_its_ports() -> None:
    remote = tuple(replace(device, links=()) for device in FOUND.devices)
    (held,) = hold(Expect(pcie_width=8), replace(FOUND, devices=remote))
    assert (held.found, held.ok) == (4, False)


def test_the_first_source_that_tells_a_thing_is_believed_and_contradictions_are_said() -> None:
    identity, contradictions = merge(
        {
            "the kernel": Identity(model="PM9A3", serial="S1", firmware="GDC5"),
            "lsblk": Identity(serial="S1", capacity_bytes=1000),
            "nvme list": Identity(model="SAMSUNG PM9A3", serial="S2", firmware="GDC5302Q", capacity_bytes=1000),
        }
    )
    assert identity == Identity("PM9A3", "S1", "GDC5", 1000, None)
    assert contradictions == ["serial: the kernel says S1, nvme list says S2"]  # GDC5 is GDC5302Q, cut off
