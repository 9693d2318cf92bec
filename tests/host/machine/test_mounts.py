"""Which mount a path is on."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from kvbench.host.machine.mounts import mount_of, parse_mountinfo

ROOT = "20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"


@pytest.mark.parametrize(
    ("lines", "path", "device"),
    [
        ((ROOT,), "/srv/kv", "8:1"),
        ((ROOT, "21 20 8:2 / /srv rw - xfs /dev/sda2 rw"), "/srv/kv", "8:2"),
        ((ROOT, "21 20 8:2 / /srv rw - xfs /dev/sda2 rw"), "/srv-other", "8:1"),
        ((ROOT, "21 20 8:2 /data/kv /mnt/kv rw - xfs /dev/sda2 rw"), "/mnt/kv/a", "8:2"),  # a bind mount
        ((ROOT, "21 20 8:2 / /mnt rw - xfs /dev/b rw", "22 21 8:3 / /mnt rw - xfs /dev/c rw"), "/mnt/kv", "8:3"),
        ((ROOT, "21 20 8:2 / /mnt rw - xfs /dev/b rw", "22 20 8:3 / /mnt rw - xfs /dev/c rw"), "/mnt/kv", "8:3"),
        ((ROOT, "21 20 8:2 / /a/b rw - xfs /dev/b rw", "22 20 8:3 / /a rw - xfs /dev/c rw"), "/a/b/c", "8:3"),  # hidden
        ((ROOT, "21 20 8:2 / /a rw - xfs /dev/b rw", "22 21 8:3 / /a/b rw - xfs /dev/c rw"), "/a/b/c", "8:3"),
        (("1 1 0:2 / / rw - rootfs none rw", "20 1 8:1 / / rw - ext4 /dev/sda1 rw"), "/srv", "8:1"),
        ((ROOT, r"21 20 8:2 / /mnt/two\040words rw - xfs /dev/b rw"), "/mnt/two words/kv", "8:2"),
        ((ROOT, r"21 20 8:2 / /mnt/back\134slash rw - xfs /dev/b rw"), "/mnt/back\\slash", "8:2"),
        ((ROOT, "21 20 8:2 / /mnt/北京 rw - xfs /dev/b rw"), "/mnt/北京/kv", "8:2"),
        ((ROOT, "21 20 8:2 / /srv rw shared:2 master:1 unbindable - xfs /dev/b rw"), "/srv", "8:2"),
        (("21 20 8:2 / /srv rw - xfs /dev/b rw",), "/srv/kv", "8:2"),  # a root folder that is no mount (chroot)
    ],
)
def test_the_mount_of_a_path_is_the_one_that_the_kernel_would_reach(
    lines: tuple[str, ...], path: str, device: str
) -> None:
    found = mount_of(PurePath(path), parse_mountinfo("\n".join(lines)))
    assert found is not None
    assert found.device == device


def test_every_field_of_a_line_has_its_name() -> None:
    line = r"36 35 0:44 /sub /mnt/c\040d ro,noatime master:1 - overlay overlay rw,lowerdir=/l,upperdir=/u"
    (mount,) = parse_mountinfo(line)
    assert (mount.id, mount.parent, mount.device, mount.root, mount.point) == (36, 35, "0:44", "/sub", "/mnt/c d")
    assert (mount.fs_type, mount.source, mount.options) == ("overlay", "overlay", "ro,noatime")
    assert mount.fs_options == "rw,lowerdir=/l,upperdir=/u"


@pytest.mark.parametrize("line", ["", "36 35", "36 35 98:0 / /mnt rw shared:1", "a b 98:0 / /mnt rw - xfs /dev/b rw"])
def test_a_line_that_is_cut_off_is_left_out(line: str) -> None:
    assert [mount.device for mount in parse_mountinfo(f"{ROOT}\n{line}\n")] == ["8:1"]


def test_no_mount_covers_a_path_outside_all_of_them() -> None:
    assert mount_of(PurePath("/srv"), parse_mountinfo("21 20 8:2 / /mnt rw - xfs /dev/b rw")) is None
