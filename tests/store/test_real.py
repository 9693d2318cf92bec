"""The page store on real files: what goes wrong on a disk is found, named, and never taken for a hit."""

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from kvbench.errors import KvbenchError
from kvbench.store import fileindex, pagefile
from kvbench.store.cluster import ClusterView
from kvbench.store.content import FaultKind, PageContent
from kvbench.store.core import Arrive, Copy, Delete, Done, Finish, PageStore, Read, Status, Sync, Write
from kvbench.store.hashing import Modulo, Rendezvous
from kvbench.store.keys import PageKey, chain
from kvbench.store.placement import ByPage
from kvbench.store.queues import Queues
from kvbench.store.real import FaultReport, RateLimit, RealNodes

PAGE_BYTES = 64 * 1024
FILE_BYTES = PageContent(PAGE_BYTES).file_bytes
PAGES = [PageKey(digest, 0) for digest in chain("m", 1, 1, range(12))]
PAGE, OTHER = PAGES[:2]


class Driver:
    """Real nodes behind a core, carrying out one operation at a time."""

    def __init__(self, root: Path, nodes: int = 1, **options) -> None:
        self.directories = [root / f"node{number}" for number in range(nodes)]
        self.dones: SimpleQueue[Done] = SimpleQueue()
        self.faults: list[FaultReport] = []
        self.core = PageStore(ClusterView(nodes), ByPage(Rendezvous()))
        self.log: list[tuple] = []
        self.nodes = RealNodes(
            self.directories, PAGE_BYTES, on_done=self.dones.put, on_fault=self.faults.append, **options
        )
        self.core.load(self.nodes.scan())

    def do(self, kind: str, *pages: PageKey) -> Finish:
        event = Arrive(len(self.log), kind, pages)
        while True:
            commands = self.core.step(len(self.log), event)
            self.log.append((len(self.log), event, commands))
            for command in commands:
                if isinstance(command, Finish):
                    return command
                self.nodes.submit(command)
            event = self.dones.get(timeout=30)

    def raw(self, command) -> Done:
        self.nodes.submit(command)
        return self.dones.get(timeout=30)

    def path(self, page: PageKey = PAGE) -> Path:
        return next(path for node in self.directories if (path := node / page.file_name).exists())

    def files(self) -> list[str]:
        """But for the indexes."""
        return sorted(path.name for node in self.directories for path in node.iterdir() if path.name != fileindex.NAME)


@contextmanager
def driving(root: Path, **options):
    driver = Driver(root, **{"direct": False, "workers_per_node": 2, **options})
    with driver.nodes:
        yield driver


@pytest.fixture(params=[True, False], ids=["direct", "buffered"])
def direct(request, tmp_path):
    try:
        pagefile.prepare_directory(tmp_path, request.param)
    except KvbenchError as error:
        pytest.skip(error.message)
    return request.param


@pytest.fixture
def store(tmp_path, direct):
    with driving(tmp_path, direct=direct) as driver:
        yield driver


def test_what_is_written_is_read_back_on_every_node_and_after_a_restart(tmp_path, direct):
    with driving(tmp_path, nodes=3, direct=direct) as store:
        assert store.do("write", *PAGES).status is Status.OK
        assert store.do("read", *PAGES).status is Status.OK
        assert {path.parent for path in map(store.path, PAGES)} == set(store.directories)
        assert store.path().stat().st_size == FILE_BYTES
    with driving(tmp_path, nodes=3, direct=direct) as again:
        assert again.core.contains_prefix(PAGES) == len(PAGES)
        assert again.do("read", *PAGES).status is Status.OK
        assert again.faults == []


def test_the_log_of_a_real_run_gives_the_same_commands_in_a_fresh_core(tmp_path):
    with driving(tmp_path, nodes=2) as store:
        store.do("write", *PAGES)
        store.path(PAGES[3]).unlink()
        store.do("read", *PAGES)
        store.do("read", *PAGES)
        fresh = PageStore(ClusterView(2), ByPage(Rendezvous()))
        assert [fresh.step(now_ns, event) for now_ns, event, _ in store.log] == [commands for *_, commands in store.log]


def test_transfers_that_come_in_parts_are_continued(store, monkeypatch):
    preadv, pwritev = os.preadv, os.pwritev
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: preadv(fd, [buffers[0][:8192]], offset))
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: pwritev(fd, [buffers[0][:8192]], offset))
    assert store.do("write", PAGE).status is Status.OK
    assert store.do("read", PAGE).status is Status.OK


# ---------------------------------------------------------------- runs, and pages that move


@contextmanager
def in_runs(root: Path, nodes: int = 1, **options):
    """A driver whose store writes and reads four pages at a time."""
    with driving(root, nodes=nodes, run_pages=4, **options) as driver:
        driver.core = PageStore(ClusterView(nodes), ByPage(Modulo()), queues=Queues(run_pages=4))
        driver.core.load(driver.nodes.scan())
        yield driver


def ios(driver: Driver, kind: type) -> list[int]:
    """How many pages each command of a kind had."""
    return [1 + len(command.more) for *_, commands in driver.log for command in commands if isinstance(command, kind)]


def test_a_run_is_one_file_that_is_read_in_one_go_also_after_a_restart(tmp_path, direct, monkeypatch):
    with in_runs(tmp_path, direct=direct) as store:
        assert store.do("write", *PAGES[:8]).status is Status.OK
        assert store.files() == ["00000001.run", "00000002.run"]
    with in_runs(tmp_path, direct=direct) as again:
        sizes, read = [], pagefile.read

        def reading(path, buffer, *arguments):
            sizes.append(len(buffer))
            return read(path, buffer, *arguments)

        monkeypatch.setattr(pagefile, "read", reading)
        assert again.do("read", *PAGES[:8]).status is Status.OK
        assert ios(again, Read) == [4, 4]
        assert sizes == [4 * FILE_BYTES, 4 * FILE_BYTES]
        assert again.do("read", PAGES[2]).status is Status.OK
        assert sizes[2:] == [FILE_BYTES]
        assert again.faults == []


def test_a_damaged_page_of_a_run_is_named_and_the_others_are_good(tmp_path):
    with in_runs(tmp_path) as store:
        store.do("write", *PAGES[:4])
        flip_a_byte(2 * FILE_BYTES + 5000)(store.directories[0] / "00000001.run")
        finish = store.do("read", *PAGES[:4])
        assert (finish.status, finish.bad) == (Status.CORRUPT, (PAGES[2],))
        assert [(fault.key, fault.kind) for fault in store.faults] == [(PAGES[2], FaultKind.CORRUPTED)]


def test_a_run_that_ends_early_has_its_last_pages_short(tmp_path):
    with in_runs(tmp_path) as store:
        store.do("write", *PAGES[:4])
        os.truncate(store.directories[0] / "00000001.run", 2 * FILE_BYTES + 100)
        finish = store.do("read", *PAGES[:4])
        assert (finish.status, finish.bad) == (Status.SHORT, tuple(PAGES[2:4]))


def test_a_page_of_a_run_that_is_deleted_gives_its_space_back_and_stays_away(tmp_path):
    with in_runs(tmp_path) as store:
        store.do("write", *PAGES[:4])
        run = store.directories[0] / "00000001.run"
        blocks = run.stat().st_blocks
        assert store.raw(Delete(90, 0, PAGES[1])).status is Status.OK
        assert (blocks - run.stat().st_blocks) * 512 == pytest.approx(FILE_BYTES, abs=8192)
    with in_runs(tmp_path) as again:
        assert [again.core.holds(page) for page in PAGES[:4]] == [True, False, True, True]
        assert again.do("read", *PAGES[2:4]).status is Status.OK
        assert again.raw(Delete(91, 0, PAGES[0], tuple(PAGES[2:4]))).status is Status.OK
        assert again.files() == []
        assert again.faults == []


def test_a_page_that_is_written_alone_after_it_was_in_a_run_is_there_once(tmp_path):
    with in_runs(tmp_path) as store:
        store.do("write", *PAGES[:2])
        assert store.raw(Write(90, 0, PAGES[0])).status is Status.OK
        assert store.raw(Write(91, 0, PAGES[1])).status is Status.OK
        assert store.files() == sorted(page.file_name for page in PAGES[:2])
        assert store.raw(Write(92, 0, PAGES[0], (PAGES[1],))).status is Status.OK
        assert store.files() == ["00000002.run"]


def test_pages_are_copied_from_node_to_node_and_checked_on_the_way(tmp_path):
    with in_runs(tmp_path, nodes=2) as store:
        assert store.raw(Write(80, 0, PAGES[0], tuple(PAGES[1:6]))).status is Status.OK  # longer than a run
        assert store.raw(Copy(81, 1, PAGES[0], 0, tuple(PAGES[1:6]))).status is Status.OK
        assert store.raw(Read(82, 1, PAGES[0], tuple(PAGES[1:6]))).status is Status.OK
        flip_a_byte(5000)(store.directories[0] / "00000001.run")
        done = store.raw(Copy(83, 1, PAGES[0], 0, (PAGES[1],)))
        assert (done.status, done.bad) == (Status.CORRUPT, (PAGES[0],))
        assert store.raw(Copy(84, 1, PAGES[8], 0)).status is Status.EIO


# ---------------------------------------------------------------- pages that are not what they should be


def flip_a_byte(offset: int):
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[offset] ^= 0xFF
        path.write_bytes(content)

    return damage


def end_after(size_bytes: int):
    return lambda path: os.truncate(path, size_bytes)


def leave_a_hole(path: Path) -> None:
    os.truncate(path, 8192)
    os.truncate(path, FILE_BYTES)


def become(page: PageKey, salt: bytes = b""):
    def damage(path: Path) -> None:
        buffer = bytearray(FILE_BYTES)
        PageContent(PAGE_BYTES, salt).fill(memoryview(buffer), page)
        path.write_bytes(buffer)

    return damage


def become_unreadable(path: Path) -> None:
    path.unlink()
    path.symlink_to("/proc/self/mem")  # opens, and then answers EIO: nothing is mapped at address 0


def become_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


END = FILE_BYTES - 1
DAMAGES = {
    "a wrong byte": (flip_a_byte(12_345), Status.CORRUPT, FaultKind.CORRUPTED, 12_345),
    "a wrong last byte": (flip_a_byte(END), Status.CORRUPT, FaultKind.CORRUPTED, END),
    "a damaged header": (flip_a_byte(20), Status.CORRUPT, FaultKind.TORN, 0),
    "a hole": (leave_a_hole, Status.CORRUPT, FaultKind.TORN, 8192),
    "a page of another session": (become(OTHER), Status.CORRUPT, FaultKind.FOREIGN, 0),
    "a page of another attempt": (become(PAGE, b"attempt 0"), Status.CORRUPT, FaultKind.STALE, 0),
    "a file that ends early": (end_after(END), Status.SHORT, FaultKind.SHORT, END),
    "a file that ends at a block": (end_after(8192), Status.SHORT, FaultKind.SHORT, 8192),
    "an empty file": (end_after(0), Status.SHORT, FaultKind.SHORT, 0),
    "a missing file": (Path.unlink, Status.EIO, FaultKind.MISSING, 0),
    "an I/O error": (become_unreadable, Status.EIO, FaultKind.ERROR, 0),
    "a directory in its place": (become_a_directory, Status.EIO, FaultKind.ERROR, 0),
}


@pytest.mark.parametrize(("damage", "status", "kind", "offset"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_page_is_named_with_its_place_and_is_no_hit(store, damage, status, kind, offset):
    store.do("write", PAGE, OTHER)
    path = store.path()
    damage(path)
    finish = store.do("read", OTHER, PAGE)
    assert (finish.status, finish.bad) == (status, (PAGE,))
    (fault,) = store.faults
    assert (fault.key, fault.node, fault.path, fault.kind) == (PAGE, 0, path, kind)
    assert 0 <= fault.offset - offset < 8  # the first bytes of a hole may have been zero before
    assert fault.detail
    assert [store.core.holds(page) for page in (PAGE, OTHER)] == [False, True]


def test_a_read_that_brings_nothing_is_not_taken_for_the_page_that_was_in_memory_before(tmp_path, monkeypatch):
    with driving(tmp_path, workers_per_node=1) as store:
        store.do("write", PAGE)
        monkeypatch.setattr(pagefile, "read", lambda path, buffer, *_: len(buffer))
        assert [store.raw(Read(io, 0, PAGE)).status for io in (90, 91)] == [Status.CORRUPT, Status.CORRUPT]


@pytest.mark.parametrize(
    "damage",
    ["a damaged header", "a page of another session", "a file that ends early", "an empty file", "an I/O error"],
)
def test_a_restart_does_not_count_what_is_no_whole_page(tmp_path, damage):
    with driving(tmp_path) as store:
        store.do("write", PAGE, OTHER)
        DAMAGES[damage][0](store.path())
    with driving(tmp_path) as again:
        assert [again.core.holds(page) for page in (PAGE, OTHER)] == [False, True]
        assert [fault.key for fault in again.faults] == [PAGE]


def test_pages_of_an_earlier_attempt_are_not_taken_over(tmp_path):
    with driving(tmp_path, salt=b"attempt 1") as store:
        store.do("write", PAGE)
    with driving(tmp_path, salt=b"attempt 2") as again:
        assert not again.core.holds(PAGE)
        assert [fault.kind for fault in again.faults] == [FaultKind.STALE]


def test_a_bad_page_can_be_written_anew(store):
    store.do("write", PAGE)
    flip_a_byte(5000)(store.path())
    store.do("read", PAGE)
    store.do("write", PAGE)
    assert store.do("read", PAGE).status is Status.OK


def test_a_deleted_page_is_gone(store):
    store.do("write", PAGE)
    assert store.raw(Delete(90, 0, PAGE)).status is Status.OK
    assert store.files() == []
    assert store.raw(Delete(91, 0, PAGE)).status is Status.EIO


def test_a_node_whose_directory_is_gone_fails_every_command_and_loses_none(store):
    shutil.rmtree(store.directories[0])
    for io, command in enumerate((Read(0, 0, PAGE), Write(1, 0, PAGE), Delete(2, 0, PAGE), Sync(3, 0))):
        done = store.raw(command)
        assert (done.io, done.status) == (io, Status.EIO)
    assert [fault.key for fault in store.faults] == [PAGE, PAGE, PAGE, None]


# ---------------------------------------------------------------- a disk that is full


@contextmanager
def files_at_most(size_bytes: int):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_page_that_does_not_fit_leaves_nothing_behind(store):
    store.do("write", OTHER)
    with files_at_most(FILE_BYTES // 2):
        finish = store.do("write", PAGE)
    assert (finish.status, finish.bad) == (Status.FULL, (PAGE,))
    assert store.files() == [OTHER.file_name]
    assert [fault.kind for fault in store.faults] == [FaultKind.FULL]
    assert not store.core.holds(PAGE)
    assert store.do("write", PAGE).status is Status.OK


def test_a_full_file_system_keeps_the_pages_that_fitted(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", f"size={8 * FILE_BYTES + 4096}", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        with driving(tmp_path, workers_per_node=1) as store:
            finish = store.do("write", *PAGES)
            assert (finish.status, finish.bad) == (Status.FULL, tuple(PAGES[8:]))
            assert store.files() == sorted(page.file_name for page in PAGES[:8])
            assert store.do("read", *PAGES[:8]).status is Status.OK
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


# ---------------------------------------------------------------- crashes

_WRITER = """
import sys
from pathlib import Path
from queue import SimpleQueue
from kvbench.store.core import Write
from kvbench.store.keys import PageKey, chain
from kvbench.store.real import RealNodes

dones = SimpleQueue()
with RealNodes([Path(sys.argv[1])], int(sys.argv[2]), on_done=dones.put, direct=False) as nodes:
    for io, digest in enumerate(chain("m", 1, 1, range(100_000))):
        nodes.submit(Write(io, 0, PageKey(digest, 0)))
        if io >= 4:
            print(dones.get().io, flush=True)
"""


def test_a_writer_that_is_killed_leaves_whole_pages_alone(tmp_path):
    rng = random.Random(2)
    for _ in range(4):
        argv = [sys.executable, "-c", _WRITER, str(tmp_path / "node0"), str(PAGE_BYTES)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
            stored = {int(writer.stdout.readline()) for _ in range(rng.randrange(1, 100))}
            writer.send_signal(signal.SIGKILL)
        with driving(tmp_path) as store:
            found = [PageKey.from_file_name(name) for name in store.files()]
            assert None not in found  # nothing half-written is left
            assert len(found) >= len(stored)
            assert all(map(store.core.holds, found))
            assert store.do("read", *found).status is Status.OK
            assert store.faults == []


def test_files_that_a_killed_writer_had_not_finished_are_removed(tmp_path):
    with driving(tmp_path) as store:
        store.do("write", PAGE)
        store.path().rename(store.directories[0] / f"{OTHER.file_name}.7.part")
    with driving(tmp_path) as again:
        assert again.files() == []


# ---------------------------------------------------------------- nodes that come and go


def test_a_node_that_comes_takes_pages_and_gives_them_back(store, tmp_path):
    assert store.nodes.add(tmp_path / "later") == 1
    assert store.raw(Write(0, 1, PAGE)).status is Status.OK
    assert (tmp_path / "later" / PAGE.file_name).exists()
    assert store.raw(Copy(1, 0, PAGE, 1)).status is Status.OK
    assert store.raw(Read(2, 0, PAGE)).status is Status.OK


def test_nothing_is_done_any_more_on_a_node_that_has_failed_nor_copied_from_it(tmp_path):
    with driving(tmp_path, nodes=2) as store:
        store.raw(Write(0, 0, PAGE))
        store.nodes.fail(0)
        for command in (Read(1, 0, PAGE), Write(2, 0, OTHER), Delete(3, 0, PAGE), Copy(4, 1, PAGE, 0)):
            assert store.raw(command) == Done(command.io, Status.EIO, 0)
        assert store.files() == [PAGE.file_name]
        assert store.faults == []
        assert store.raw(Write(5, 1, OTHER)).status is Status.OK


# ---------------------------------------------------------------- memory, medium, refusals


def test_buffers_are_aligned_to_huge_pages():
    for size_bytes in (4096, FILE_BYTES, 3 * 2**20):
        buffer = pagefile.aligned_buffer(size_bytes)
        assert len(buffer) == size_bytes
        assert np.frombuffer(buffer, dtype=np.uint8).ctypes.data % 2**21 == 0


def test_a_rate_limit_lets_bytes_pass_one_after_the_other():
    limit = RateLimit(bytes_per_s=1000)
    assert limit.pass_at_ns(0, 500) == 500_000_000
    assert limit.pass_at_ns(0, 500) == 1_000_000_000  # had to wait for the first
    assert limit.pass_at_ns(3_000_000_000, 250) == 3_250_000_000  # idle time is not saved up


def test_a_limited_node_takes_the_time_of_its_medium(tmp_path):
    with driving(tmp_path, rate_limit_bytes_per_s=FILE_BYTES * 50, workers_per_node=1) as store:
        done = store.raw(Write(0, 0, PAGE))
        assert done.service_ns >= 10**9 // 50


def test_a_directory_that_cannot_be_written_to_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "node0").write_text("a file")
    with pytest.raises(KvbenchError, match=f"cannot keep pages in {tmp_path / 'node0'}: File exists"):
        Driver(tmp_path)


def test_a_file_system_without_direct_io_is_refused_with_the_way_out(tmp_path, monkeypatch):
    opened = os.open

    def refusing(path, flags, mode=0o777):
        fd = opened(path, flags & ~os.O_DIRECT, mode)
        if flags & os.O_DIRECT:  # as the kernel does: the file is there, the call fails
            os.close(fd)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return fd

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(KvbenchError) as refusal:
        Driver(tmp_path, direct=True)
    assert refusal.value.message == f"the file system of {tmp_path / 'node0'} refuses direct I/O (O_DIRECT)"
    assert "`direct: false`" in refusal.value.hint
    assert list((tmp_path / "node0").iterdir()) == []
