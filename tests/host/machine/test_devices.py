"""A leaf device as a small /sys describes it: link, paths, firmware; and the ports on the way to a fabric target."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_system import FakeSystem

from kvbench.host.machine import devices, ports, rdma
from kvbench.host.machine.blockdev import medium_of
from kvbench.host.machine.devices import Device, Link, NvmePath

KV = Path("/mnt/kv")


@pytest.fixture
def system(tmp_path: Path) -> FakeSystem:
    fake = FakeSystem(tmp_path / "root")
    fake.mount("0:1", "/", "tmpfs")
    fake.mount("259:1", "/mnt/kv")
    return fake


def only_device(system: FakeSystem) -> Device:
    (leaf,) = medium_of(KV, system.root).devices
    return devices.observe(leaf, system.root)


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


PCI = "pci0000:00/0000:01:00.0"


def drive(system: FakeSystem, **function: str) -> Device:
    """A local NVMe drive on a PCI function with these attributes."""
    system.device(f"{PCI}/nvme/nvme1/nvme1n1", "259:1", size="8", queue__scheduler="[none] mq-deadline kyber")
    controller = system.root / "sys/devices" / PCI / "nvme/nvme1"
    write(controller, firmware_rev="GDC5302Q ", transport="pcie", address="0000:01:00.0", state="live")
    (system.root / "sys/devices" / PCI / "nvme/nvme1/nvme1n1/device").symlink_to(controller)
    write(system.root / "sys/devices" / PCI, **function)
    return only_device(system)


GEN4_X4 = {
    "current_link_speed": "16.0 GT/s PCIe",
    "max_link_speed": "16.0 GT/s PCIe",
    "current_link_width": "4",
    "max_link_width": "4",
}


def test_a_local_drive_has_firmware_capacity_scheduler_link_and_node(system: FakeSystem) -> None:
    device = drive(system, **GEN4_X4, numa_node="1")
    assert (device.identity.firmware, device.identity.capacity_bytes, device.scheduler) == ("GDC5302Q", 4096, "none")
    assert device.links == (Link("0000:01:00.0", 16.0, 4, 16.0, 4),)
    assert not device.links[0].degraded
    assert device.numa_node == 1
    assert device.paths == (NvmePath("nvme1", "pcie", "0000:01:00.0", "live", ""),)


@pytest.mark.parametrize(
    "below",
    [{"current_link_speed": "8.0 GT/s PCIe"}, {"current_link_width": "2"}, {"current_link_speed": "2.5 GT/s"}],
)
def test_a_link_below_what_both_ends_can_do_is_degraded(system: FakeSystem, below: dict[str, str]) -> None:
    assert drive(system, **{**GEN4_X4, **below}).links[0].degraded


@pytest.mark.parametrize("unknown", [{"current_link_speed": "Unknown"}, {"current_link_width": "0"}])
def test_a_link_that_does_not_say_is_none(system: FakeSystem, unknown: dict[str, str]) -> None:
    assert drive(system, **{**GEN4_X4, **unknown}).links == ()


def test_one_numa_node_is_no_node(system: FakeSystem) -> None:
    assert drive(system, numa_node="-1").numa_node is None


@pytest.fixture
def namespace(system: FakeSystem) -> Device:
    """A namespace of an array over two TCP paths, of which one reconnects."""
    head = "virtual/nvme-subsystem/nvme-subsys0/nvme0n1"
    system.device(head, "259:1", device__iopolicy="round-robin", device__model="FX100")
    fabric = system.root / "sys/devices/virtual/nvme-fabrics/ctl"
    for number, state, ana in ((0, "live", "optimized"), (1, "connecting", "inaccessible")):
        controller = fabric / f"nvme{number}"
        address = f"traddr=10.0.{number}.1,trsvcid=4420,src_addr=10.0.{number}.2"
        write(controller, transport="tcp", state=state, firmware_rev="2.1.0", address=address)
        write(controller / f"nvme0c{number}n1", ana_state=ana)
        (system.root / "sys/devices" / head / f"device/nvme{number}").symlink_to(controller)
    return only_device(system)


def test_a_fabric_namespace_has_paths_with_state_and_ana_and_a_policy(namespace: Device) -> None:
    assert [(path.controller, path.state, path.ana_state) for path in namespace.paths] == [
        ("nvme0", "live", "optimized"),
        ("nvme1", "connecting", "inaccessible"),
    ]
    assert (namespace.multipath_policy, namespace.identity.firmware, namespace.links) == ("round-robin", "2.1.0", ())


def test_a_hidden_path_tells_its_own_ana_state(system: FakeSystem) -> None:
    """Before Linux 6.3 it is the path that counts bytes, and that stands for its namespace."""
    system.device("virtual/nvme-fabrics/ctl/nvme3/nvme0c3n1", "259:1", ana_state="optimized")
    controller = system.root / "sys/devices/virtual/nvme-fabrics/ctl/nvme3"
    write(controller, transport="tcp", state="live", address="traddr=10.0.0.1,trsvcid=4420")
    (controller / "nvme0c3n1/device").symlink_to(controller)
    (path,) = only_device(system).paths
    assert (path.controller, path.state, path.ana_state) == ("nvme3", "live", "optimized")


def test_the_far_ends_of_its_paths_lead_to_ports(namespace: Device, system: FakeSystem) -> None:
    assert [end["traddr"] for end in ports.far_ends([namespace])] == ["10.0.0.1", "10.0.1.1"]
    card = system.root / "sys/devices/pci0000:00/0000:05:00.0"
    write(card, **GEN4_X4)
    write(card / "net/ens1", mtu="9000", speed="100000")
    (system.root / "sys/class/net").mkdir()
    (system.root / "sys/class/net/ens1").symlink_to(card / "net/ens1")
    port = ports.observe("ens1", (), system.root)
    assert (port.mtu, port.rate_gbit_s, port.link) == (9000, 100.0, Link("0000:05:00.0", 16.0, 4, 16.0, 4))


def test_a_port_that_is_down_has_no_rate(system: FakeSystem) -> None:
    write(system.root / "sys/class/net/ens2", mtu="1500", speed="-1")
    port = ports.observe("ens2", (), system.root)
    assert (port.mtu, port.rate_gbit_s, port.link, port.rdma) == (1500, None, None, None)


def test_an_rdma_port_has_state_rate_interface_and_the_counters_that_tell_of_trouble(system: FakeSystem) -> None:
    device = system.root / "sys/class/infiniband/mlx5_0"
    write(device, fw_ver="28.39.1002")
    write(device / "device/net/ens1")
    write(device / "ports/1", state="4: ACTIVE", rate="400 Gb/sec (4X NDR)", link_layer="Ethernet")
    write(device / "ports/1/counters", port_rcv_errors="3", port_rcv_data="999")
    write(device / "ports/1/hw_counters", out_of_sequence="7", np_cnp_sent="9")
    (port,) = rdma.rdma_ports(system.root)
    assert (port.device, port.port, port.state, port.rate_gbit_s) == ("mlx5_0", 1, "Active", 400.0)
    assert (port.interface, port.firmware) == ("ens1", "28.39.1002")
    assert port.counters == {"port_rcv_errors": 3, "np_cnp_sent": 9, "out_of_sequence": 7}
    assert ports.observe("ens1", (port,), system.root).rate_gbit_s == 400.0
