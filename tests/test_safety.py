from dataclasses import replace
from pathlib import Path

import pytest
from soaks import make_plan

from kvbench import safety
from kvbench.errors import KvbenchError, UsageError
from kvbench.host.machine import rawdevice


def test_a_claimed_folder_is_made_taken_up_again_and_removed(tmp_path: Path) -> None:
    folder = safety.claim(tmp_path, "run-1")
    assert safety.claim(tmp_path, "run-1") == folder
    (folder / "pages").mkdir()
    (folder / "pages" / "p").write_bytes(b"x")
    safety.release(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_a_kill_left_without_its_marker_is_taken_up_again(tmp_path: Path) -> None:
    (tmp_path / "kvbench-run-1").mkdir()
    safety.release(safety.claim(tmp_path, "run-1"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_ours_is_neither_used_nor_removed(tmp_path: Path) -> None:
    theirs = tmp_path / "kvbench-run-1"
    theirs.mkdir()
    (theirs / "precious").write_text("x")
    with pytest.raises(KvbenchError, match="was not made by kvbench"):
        safety.claim(tmp_path, "run-1")
    safety.release(theirs)
    with pytest.raises(KvbenchError, match="was not made by kvbench"):
        safety.empty(theirs)
    assert (theirs / "precious").exists()


def test_a_link_in_a_claimed_folder_is_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (tmp_path / "node").mkdir()
    folder = safety.claim(tmp_path / "node", "run-1")
    (folder / "link").symlink_to(outside)
    safety.release(folder)
    assert (outside / "precious").exists()


def test_a_link_in_place_of_our_folder_is_refused(tmp_path: Path) -> None:
    elsewhere = safety.claim(tmp_path, "elsewhere")
    (tmp_path / "kvbench-run-1").symlink_to(elsewhere)
    with pytest.raises(KvbenchError, match="was not made by kvbench"):
        safety.claim(tmp_path, "run-1")


def test_a_node_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(KvbenchError, match="is not a directory"):
        safety.claim(tmp_path / "nowhere", "run-1")


def test_a_serial_number_without_a_device_is_a_mistake() -> None:
    plan = replace(make_plan(1, 1), destroy_data=("S1",))
    with pytest.raises(UsageError, match="--destroy-data S1: no node of the target is a block device"):
        safety.refuse(plan)


def test_a_device_is_refused_for_steps_that_keep_pages_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rawdevice, "devices", tuple)
    with pytest.raises(KvbenchError, match=r"/mnt/array is a block device, and step .* keeps its pages in files"):
        safety.refuse(make_plan(1, 1))


def test_a_device_is_its_own_file(tmp_path: Path) -> None:
    assert safety.data_file(tmp_path, "fio.data") == tmp_path / "fio.data"
    for device in (node for node in Path("/dev").glob("[vs]d[a-z]") if node.is_block_device()):
        assert safety.data_file(device, "fio.data") == device
        assert safety.claim(device, "run-1") == device


def test_a_node_is_held_against_another_run_by_whatever_path_until_the_first_is_over(tmp_path: Path) -> None:
    node, link = tmp_path / "node", tmp_path / "link"
    node.mkdir()
    link.symlink_to(node)
    refused = pytest.raises(KvbenchError, match=f"another kvbench is measuring on {node}")
    with safety.alone_on([node, node, tmp_path]), refused, safety.alone_on([link]):
        pass
    with safety.alone_on([link]):
        pass


def test_a_link_that_leads_nowhere_is_no_directory_to_hold(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    refused = pytest.raises(KvbenchError, match=f"{loop} is not a directory")
    with refused, safety.alone_on([loop]):
        safety.claim(loop, "run-1")
