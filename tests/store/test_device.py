"""Pages on a block device. A file stands for the device, but in the test that makes a loop device of one."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_devices import loop_device

from kvbench.errors import KvbenchError
from kvbench.store import blocklog, deviceindex, pagefile
from kvbench.store import device as devices
from kvbench.store.content import BLOCK_BYTES, FaultKind, PageContent
from kvbench.store.core import Copy, Delete, Done, Read, Status, Sync, Write
from kvbench.store.device import DevicePages
from kvbench.store.keys import PageKey, chain
from kvbench.store.real import FaultReport, RealNodes
from kvbench.store.space import Space

MIB = 2**20
PAGE_BYTES = 64 * 1024
CONTENT = PageContent(PAGE_BYTES)
PAGES = [PageKey(digest, 0) for digest in chain("m", 1, 1, range(12))]


@pytest.fixture
def device(tmp_path: Path) -> Path:
    return made(tmp_path / "device")


def made(path: Path, size_bytes: int = 8 * MIB) -> Path:
    with path.open("wb") as file:
        file.truncate(size_bytes)
    deviceindex.prepare(path, "test")
    return path


class Nodes:
    """Real nodes that carry out one command at a time."""

    def __init__(self, nodes: RealNodes, dones: SimpleQueue[Done], faults: list[FaultReport]) -> None:
        self._nodes, self._dones, self.faults = nodes, dones, faults
        self.found = [pages for pages, _ in nodes.scan()]

    def do(self, command: Any) -> Done:
        self._nodes.submit(command)
        return self._dones.get(timeout=30)

    def write(self, page: PageKey, *more: PageKey) -> Status:
        return self.do(Write(1, 0, page, more)).status

    def read(self, page: PageKey, *more: PageKey) -> Status:
        return self.do(Read(2, 0, page, more)).status


@contextmanager
def driving(*places: Path, page_bytes: int = PAGE_BYTES, **options: Any) -> Iterator[Nodes]:
    dones, faults = SimpleQueue[Done](), list[FaultReport]()
    options = {"direct": False, "workers_per_node": 2, "run_pages": 4, **options}
    with RealNodes(places, page_bytes, on_done=dones.put, on_fault=faults.append, **options) as nodes:
        yield Nodes(nodes, dones, faults)


# ---------------------------------------------------------------- free space, pure


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=60))
def test_space_is_given_once_and_comes_back_whole(asked: list[tuple[bool, int]]) -> None:
    space, taken = Space(5, 40), list[tuple[int, int]]()
    for is_wanted, number in asked:
        if is_wanted:
            begin = space.take(number)
            used = {block for at, blocks in taken for block in range(at, at + blocks)}
            if begin is None:
                free = "".join(" " if block in used else "." for block in range(5, 40))
                assert "." * number not in free
            else:
                assert not used & set(range(begin, begin + number))
                assert 5 <= begin <= 40 - number
                taken.append((begin, number))
        elif taken:
            space.give(*taken.pop(number % len(taken)))
        assert space.free_blocks == 35 - sum(blocks for _, blocks in taken)
    for begin, blocks in taken:
        space.give(begin, blocks)
    assert space.take(35) == 5


def test_a_page_that_was_there_has_its_space_once() -> None:
    space = Space(0, 10)
    assert space.take_at(3, 4)
    assert not space.take_at(6, 2)
    assert not space.take_at(9, 2)
    assert space.take_at(7, 3)
    assert space.free_blocks == 3


# ---------------------------------------------------------------- pages


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "buffered"])
def test_what_is_written_is_read_back_also_after_a_restart(device: Path, direct: bool) -> None:
    with driving(device, direct=direct) as nodes:
        assert nodes.write(*PAGES[:4]) is Status.OK
        assert nodes.write(PAGES[4]) is Status.OK
        assert nodes.do(Sync(3, 0)).status is Status.OK
        assert nodes.read(*PAGES[:4]) is Status.OK
    with driving(device, direct=direct) as again:
        assert sorted(page for pages in again.found for page in pages) == sorted(PAGES[:5])
        assert again.read(*PAGES[:5]) is Status.OK
        assert again.faults == []


def test_a_run_is_read_in_one_go(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with driving(device) as nodes:
        nodes.write(*PAGES[:4])
        sizes, read_all = [], pagefile.read_all

        def reading(fd: int, buffer: memoryview, offset: int) -> int:
            sizes.append(len(buffer))
            return read_all(fd, buffer, offset)

        monkeypatch.setattr(pagefile, "read_all", reading)
        assert nodes.read(*PAGES[:4]) is Status.OK
        assert sizes == [4 * CONTENT.file_bytes]


def test_pages_of_several_sizes_and_attempts_lie_side_by_side(device: Path) -> None:
    other = {"page_bytes": 3 * PAGE_BYTES, "salt": b"2"}
    with driving(device) as small, driving(device, **other) as large:
        for page in PAGES[:6]:
            assert (small.write(page), large.write(page)) == (Status.OK, Status.OK)
        assert (small.read(*PAGES[:4]), large.read(*PAGES[:4])) == (Status.OK, Status.OK)
        assert small.do(Delete(3, 0, PAGES[0])).status is Status.OK
        assert large.read(PAGES[0]) is Status.OK
    with driving(device) as small, driving(device, **other) as large:
        assert [sorted(sum(nodes.found, ())) for nodes in (small, large)] == [sorted(PAGES[1:6]), sorted(PAGES[:6])]


def test_a_full_device_says_so_and_takes_pages_again_when_others_have_gone(device: Path) -> None:
    pages = [PageKey.named(str(number)) for number in range(200)]
    with driving(device) as nodes:
        statuses = [nodes.write(page) for page in pages]
        fitted = statuses.index(Status.FULL)
        room_bytes = 8 * MIB - 2 * MIB - BLOCK_BYTES
        assert fitted == room_bytes // CONTENT.file_bytes
        assert nodes.faults[0].kind is FaultKind.FULL
        assert nodes.do(Delete(3, 0, pages[7])).status is Status.OK
        assert nodes.write(pages[-1]) is Status.OK
        assert nodes.read(pages[-1]) is Status.OK
        assert nodes.write(pages[-2]) is Status.FULL
    assert deviceindex.page_sizes(device) == [CONTENT.file_bytes] * fitted


def test_a_page_that_is_written_again_takes_its_space_once(device: Path) -> None:
    with driving(device) as nodes:
        for _ in range(60):  # three times what there is room for
            assert nodes.write(*PAGES[:3]) is Status.OK
    assert len(deviceindex.page_sizes(device)) == 3


def test_a_page_that_is_not_there_is_missing(device: Path) -> None:
    with driving(device) as nodes:
        assert (nodes.read(PAGES[0]), nodes.do(Delete(3, 0, PAGES[0])).status) == (Status.EIO, Status.EIO)
        assert [fault.kind for fault in nodes.faults] == [FaultKind.MISSING, FaultKind.MISSING]


def test_a_damaged_page_is_named_with_its_place_on_the_device(device: Path) -> None:
    with driving(device) as nodes:
        nodes.write(*PAGES[:3])
        content = device.read_bytes()
        block = memoryview(bytearray(CONTENT.file_bytes))
        CONTENT.fill(block, PAGES[1])
        at = content.index(bytes(block[:BLOCK_BYTES])) + 5000
        with device.open("r+b") as file:
            file.seek(at)
            file.write(bytes([content[at] ^ 1]))
        done = nodes.do(Read(2, 0, PAGES[0], tuple(PAGES[1:3])))
        assert (done.status, done.bad) == (Status.CORRUPT, (PAGES[1],))
        (fault,) = nodes.faults
        assert (fault.key, fault.path, fault.offset, fault.kind) == (PAGES[1], device, at, FaultKind.CORRUPTED)


def test_pages_are_copied_between_a_device_and_a_directory(device: Path, tmp_path: Path) -> None:
    with driving(device, tmp_path / "node") as nodes:
        nodes.write(*PAGES[:3])
        assert nodes.do(Copy(3, 1, PAGES[0], 0, tuple(PAGES[1:3]))).status is Status.OK
        assert nodes.do(Read(4, 1, PAGES[0], tuple(PAGES[1:3]))).status is Status.OK
        nodes.do(Delete(5, 0, PAGES[0], tuple(PAGES[1:3])))
        assert nodes.do(Copy(6, 0, PAGES[0], 1, tuple(PAGES[1:3]))).status is Status.OK
        assert nodes.read(*PAGES[:3]) is Status.OK


# ---------------------------------------------------------------- the index on the device


def owned(device: Path) -> list[PageKey]:
    pages = DevicePages(device, CONTENT.file_bytes, False, CONTENT.owner)
    try:
        return sorted(page for found in pages.scan(lambda piece: (None, False)) for page in found)
    finally:
        pages.close()


def test_either_copy_of_the_index_may_be_damaged_anywhere(device: Path) -> None:
    with driving(device) as nodes:
        for page in PAGES[:6]:
            nodes.write(page)
        nodes.do(Delete(3, 0, PAGES[2]))
    whole, left = device.read_bytes()[: 2 * MIB + BLOCK_BYTES], sorted({*PAGES[:6]} - {PAGES[2]})
    rng = random.Random(1)
    for copy in range(2):
        start = BLOCK_BYTES + copy * MIB
        used = len(whole[start : start + MIB].rstrip(b"\0"))
        assert used > BLOCK_BYTES + 6 * 72
        for at in [*range(0, 24, 3), *range(BLOCK_BYTES, used, 23)]:
            harm = bytes([whole[start + at] ^ (1 << rng.randrange(8))])
            torn = bytes(used - at)
            for bad in (harm, torn):
                write_at(device, 0, whole)
                write_at(device, start + at, bad)
                assert owned(device) == left


def write_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_with_both_copies_damaged_a_device_is_refused(device: Path) -> None:
    write_at(device, BLOCK_BYTES, b"?")
    write_at(device, BLOCK_BYTES + MIB, b"?")
    with pytest.raises(KvbenchError, match=r"both copies of the index of .* are damaged"), driving(device):
        pass


def test_where_one_device_is_refused_the_one_before_it_is_closed(device: Path, tmp_path: Path) -> None:
    bad = made(tmp_path / "bad")
    write_at(bad, BLOCK_BYTES, b"?")
    write_at(bad, BLOCK_BYTES + MIB, b"?")
    with pytest.raises(KvbenchError, match="are damaged"):
        RealNodes([device, bad], PAGE_BYTES, on_done=lambda _: None)
    assert not devices._devices


def test_an_index_that_is_full_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deviceindex, "_LEAST_INDEX_BYTES", 2 * BLOCK_BYTES)
    device, there = made(tmp_path / "device", 2 * MIB), set[PageKey]()
    rng = random.Random(2)
    with driving(device, page_bytes=BLOCK_BYTES, workers_per_node=1) as nodes:
        for _ in range(200):  # 72 bytes each, into blocks of 4 KiB
            page = rng.choice(PAGES)
            done = nodes.do(Delete(3, 0, page) if page in there else Write(1, 0, page))
            assert done.status is Status.OK
            there ^= {page}
    with driving(device, page_bytes=BLOCK_BYTES) as again:
        assert set(sum(again.found, ())) == there
        assert again.read(*sorted(there)) is Status.OK


def test_after_a_failed_write_of_the_index_nothing_is_written_and_what_was_there_is_there(
    device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, appended = blocklog.BlockLog.append, []

    def failing(log: blocklog.BlockLog, data: bytes) -> None:
        appended.append(data)
        if len(appended) == 2:  # the first copy has it
            raise OSError(errno.EIO, "Input/output error")
        append(log, data)

    with driving(device) as nodes:
        assert nodes.write(*PAGES[:4]) is Status.OK
        monkeypatch.setattr(blocklog.BlockLog, "append", failing)
        assert [nodes.write(page) for page in PAGES[4:7]] == [Status.EIO] * 3
        assert nodes.read(*PAGES[:4]) is Status.OK
    monkeypatch.undo()
    with driving(device) as again:
        assert set(sum(again.found, ())) >= {*PAGES[:4]}
        assert again.read(*sum(again.found, ())) is Status.OK


def test_a_device_that_was_prepared_anew_is_empty_also_for_who_had_it_open(device: Path) -> None:
    with driving(device) as nodes:
        nodes.write(*PAGES[:4])
        deviceindex.prepare(device, "another")
        with driving(device) as again:
            assert again.found == []
    assert owned(device) == []


def test_nothing_is_written_to_a_device_that_is_no_store(tmp_path: Path) -> None:
    device = tmp_path / "device"
    device.write_bytes(bytes(8 * MIB))
    with pytest.raises(KvbenchError, match="is a device that is no store of pages"):
        DevicePages(device, CONTENT.file_bytes, False, CONTENT.owner)
    assert not any(device.read_bytes())
    deviceindex.prepare(device, "test")
    assert deviceindex.is_store(device)
    deviceindex.forget(device)
    assert not deviceindex.is_store(device)


def test_a_device_that_is_too_small_is_refused_before_it_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "device").write_bytes(bytes(2 * MIB))
    with pytest.raises(KvbenchError, match="too few to keep pages on"):
        deviceindex.prepare(tmp_path / "device", "test")
    assert not any((tmp_path / "device").read_bytes())


# ---------------------------------------------------------------- killed at every step


class Killed(BaseException):
    """As by SIGKILL: nothing is done any more, not even what is done after an error."""


def write(pages: DevicePages, *keys: PageKey) -> None:
    buffer = memoryview(bytearray(len(keys) * CONTENT.file_bytes))
    for slot, key in enumerate(keys):
        CONTENT.fill(buffer[slot * CONTENT.file_bytes :][: CONTENT.file_bytes], key)
    pages.write(0, keys, buffer)


def delete(pages: DevicePages, *keys: PageKey) -> None:
    for key in keys:
        pages.delete(key)


LIFE = [(write, tuple(PAGES[:4])), (write, (PAGES[4],)), (delete, (PAGES[1],)), (write, tuple(PAGES[:2]))]


def dying(patch: pytest.MonkeyPatch, at: int) -> None:
    """Let a process be killed before its write number `at`; what it had open goes with it."""
    write_all, steps = pagefile.write_all, 0

    def counted(*arguments: Any) -> None:
        nonlocal steps
        steps += 1
        if steps > at:
            raise Killed
        write_all(*arguments)

    patch.setattr(pagefile, "write_all", counted)
    patch.setattr("kvbench.store.device._devices", {})


def test_wherever_it_is_killed_what_was_acknowledged_is_there_and_no_space_leaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, lived = 0, False
    while not lived:
        device, there, coming, going = made(tmp_path / str(at)), set[PageKey](), set[PageKey](), set[PageKey]()
        with monkeypatch.context() as patch, suppress(Killed):
            dying(patch, at)
            pages = DevicePages(device, CONTENT.file_bytes, False, CONTENT.owner)
            for act, keys in LIFE:
                coming, going = (set(keys), set()) if act is write else (set(), set(keys))
                act(pages, *keys)
                there = (there | coming) - going
                coming, going = set(), set()
            lived = True
        found = owned(device)
        assert there - going <= set(found) <= there | coming, f"killed before write {at}"
        assert deviceindex.page_sizes(device) == [CONTENT.file_bytes] * len(found)
        at += 1
    assert at > 12


def test_a_place_that_is_named_twice_by_whatever_path_is_refused(device: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(device)
    for twice in [(device, link), (tmp_path / "new", tmp_path / "new")]:
        with pytest.raises(KvbenchError, match="once more"), driving(*twice):
            pass


# ---------------------------------------------------------------- a real one


def test_a_loop_device_keeps_pages_once_it_was_prepared(tmp_path: Path) -> None:
    with loop_device(tmp_path / "backing", 16 * MIB) as device:
        with pytest.raises(KvbenchError, match="is a device that is no store of pages"), driving(device):
            pass
        deviceindex.prepare(device, "test")
        with driving(device, direct=True) as nodes:
            assert nodes.write(*PAGES[:4]) is Status.OK
            assert nodes.read(*PAGES[:4]) is Status.OK
        with driving(device, direct=True) as again:
            assert again.found == [tuple(PAGES[:4])]
            assert again.read(*PAGES[:4]) is Status.OK
            assert again.faults == []
