"""Residency of files in the page cache, on a real file."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from loop_devices import loop_device

from kvbench.errors import StepError
from kvbench.host.activity import pagecache
from kvbench.host.activity.pagecache import evict, residency, why_blind
from kvbench.host.machine.blockdev import medium_of

SIZE = 3 * 4096 + 5  # the last page is a part of one


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that has just been written; dropping the whole machine's cache is left out."""
    mount = medium_of(tmp_path).mount
    if mount is None or mount.fs_type in ("tmpfs", "overlay"):
        pytest.skip("pages of a memory file system cannot be evicted")
    monkeypatch.setattr(pagecache, "_DROP_CACHES", tmp_path / "no/such/file")
    path = tmp_path / "page.kv"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture(params=["cachestat", "mincore"])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "mincore":
        monkeypatch.setattr(pagecache, "has_cachestat", lambda: False)
    elif not pagecache.has_cachestat():
        pytest.skip("this kernel has no cachestat")
    return request.param


def test_a_file_just_written_is_resident_and_an_evicted_one_is_not(file: Path, method: str) -> None:
    written = residency([file])
    assert (written.resident_bytes, written.total_bytes, written.share, written.method) == (SIZE, SIZE, 1.0, method)
    evict([file])
    assert residency([file]).share == 0.0


def test_reading_one_page_back_shows(file: Path, method: str) -> None:
    evict([file])
    with file.open("rb", buffering=0) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
        opened.read(1)
    assert residency([file]).resident_bytes == 4096


def test_a_hole_of_a_tebibyte_before_the_data_does_not_matter(file: Path, method: str) -> None:
    with file.open("wb") as opened:
        opened.seek(1 << 40)
        opened.write(os.urandom(SIZE))
    assert residency([file]).resident_bytes == 4 * 4096
    evict([file])
    assert residency([file]).resident_bytes == 0


def test_a_block_device_is_looked_at_as_a_whole(tmp_path: Path, method: str) -> None:
    """What is not a page store holds no bytes of ours, so that what is cached of it is no share of them."""
    with loop_device(tmp_path / "disk", 64 * 4096) as device:
        device.read_bytes()
        assert residency([device]).share is None
        assert evict([device]).why_incomplete == ""


def test_a_file_larger_than_one_mapping_is_counted_whole(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagecache, "has_cachestat", lambda: False)
    monkeypatch.setattr(pagecache, "_MAPPED_BYTES", 2 * 4096)
    assert residency([file]).resident_bytes == SIZE


def test_a_folder_counts_every_file_below_it(file: Path) -> None:
    (file.parent / "deeper").mkdir()
    (file.parent / "deeper/other.kv").write_bytes(bytes(4096))
    assert residency([file.parent]).total_bytes == SIZE + 4096
    assert evict([file.parent]).files == 2


def test_no_bytes_have_no_share(file: Path, method: str) -> None:
    file.write_bytes(b"")
    assert residency([file]).share is None


def test_the_whole_cache_is_dropped_only_for_what_stays_and_what_could_not_be_is_said(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = tmp_path / "drop_caches"
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert len(bytes(mapped)) == SIZE  # pages that are mapped stay when the file is dropped
        assert "drop_caches" in evict([file]).why_incomplete
        monkeypatch.setattr(pagecache, "_DROP_CACHES", dropped)
        done = evict([file])
        assert (done.why_incomplete, dropped.read_text()) == ("", "3")
        assert done.method.endswith("then sync and drop_caches=3")
    dropped.unlink()
    assert evict([file]).why_incomplete == ""
    assert not dropped.exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"cannot open .*gone\.kv: No such file"):
        residency([tmp_path / "gone.kv"])


@pytest.mark.parametrize(("fs_type", "words"), [("zfs", "ARC"), ("virtiofs", "host"), ("xfs", ""), ("ext4", "")])
def test_a_file_system_with_a_cache_of_its_own_makes_residency_meaningless(
    tmp_path: Path, fs_type: str, words: str
) -> None:
    why = why_blind([tmp_path], f"20 1 0:40 / / rw - {fs_type} tank rw\n")
    assert words in why
    assert bool(why) == bool(words)
    assert pagecache.Residency(0, 4096, "cachestat", why).share == (None if words else 0.0)
