"""Whether an array's own cache stands before the media, and what must be read to be sure of it: a table."""

from __future__ import annotations

import pytest

from kvbench.host.activity.arraycache import ArrayCache, array_cache
from kvbench.host.machine.blockdev import BlockDevice, Medium
from kvbench.host.machine.mounts import Mount


def device(transport: str, name: str = "nvme0n1") -> BlockDevice:
    return BlockDevice(name, "259:0", "m", "s", False, False, "", transport, 512)


def on(*devices: BlockDevice) -> Medium:
    return Medium(Mount(1, 0, "259:0", "/", "/mnt", "xfs", "/dev/x", "rw", "rw"), devices, "")


def without_device(fs_type: str) -> Medium:
    return Medium(Mount(1, 0, "0:50", "/", "/mnt", fs_type, "server:/kv", "rw", "rw"), (), "no device")


@pytest.mark.parametrize(
    ("medium", "declared_bytes", "exists", "filler_bytes", "reason"),
    [
        (on(device("nvme-pcie")), None, False, 0, "not applicable: no array stands before local drives"),
        (on(device("sata", "sda"), device("sas", "sdb")), None, False, 0, "not applicable"),
        (on(device("virtio", "vda")), None, False, 0, "not applicable"),
        (without_device("tmpfs"), None, False, 0, "not applicable"),
        (on(device("nvme-pcie")), 8, True, 16, ""),  # a controller with a cache of its own
        (on(device("nvme-tcp")), None, True, 0, "reached over nvme-tcp, and the array's own cache is not declared"),
        (on(device("nvme-rdma-tcp")), None, True, 0, "reached over nvme-rdma-tcp"),
        (on(device("iscsi", "sdc")), None, True, 0, "reached over iscsi"),
        (on(device("nvme-pcie"), device("fc", "sdd")), None, True, 0, "reached over fc"),
        (on(device("", "rbd0")), None, True, 0, "reached over rbd"),
        (without_device("nfs4"), None, True, 0, "reached over nfs4"),
        (without_device("fuse.glusterfs"), None, True, 0, "reached over fuse.glusterfs"),
        (on(device("nvme-rdma")), 64 << 30, True, 128 << 30, ""),
        (on(device("nvme-rdma")), 0, False, 0, "not applicable: it is declared to have no cache"),
    ],
)
def test_what_is_known_of_an_array_s_cache(
    medium: Medium, declared_bytes: int | None, exists: bool, filler_bytes: int, reason: str
) -> None:
    cache = array_cache([medium], declared_bytes)
    assert (cache.exists, cache.filler_bytes) == (exists, filler_bytes)
    assert cache.facts()["has_array_cache"] is exists
    metric = cache.metric(cache.filler_bytes, "raw/evidence.json")
    assert (metric.value, reason in metric.note) == (2.0 if filler_bytes else None, True)


def test_too_little_that_was_read_shows_in_the_ratio() -> None:
    assert ArrayCache("fc", 1000).metric(1500, "e").value == 1.5
