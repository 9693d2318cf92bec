"""An index of pages: whatever becomes of it, and wherever a store is killed, what lies on the node is found again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kvbench.store import blocklog, extents, fileindex, pagefile
from kvbench.store.content import PageContent
from kvbench.store.extents import Extents, Piece
from kvbench.store.index import Change, Entry, decode, encode
from kvbench.store.keys import PageKey, chain

PAGES = [PageKey(digest, 0) for digest in chain("m", 1, 1, range(9))]
CONTENT = PageContent(4096)
OWNER = CONTENT.owner
CHANGES = [
    Change(1, 7, OWNER, (Entry(PAGES[0], 0, 2), Entry(PAGES[1], 2, 2))),
    Change(2, 7, OWNER, (Entry(PAGES[1], 2, 2),), is_gone=True),
    Change(3, 0, b"others'!", (Entry(PAGES[2], 2**40, 2**20),)),
]
LOG = b"".join(map(encode, CHANGES))
ENDS = [sum(map(len, map(encode, CHANGES[:count]))) for count in range(len(CHANGES) + 1)]

# ---------------------------------------------------------------- the log, pure


def test_changes_are_read_as_they_were_written_whatever_comes_after_them() -> None:
    assert list(decode(LOG)) == CHANGES
    assert list(decode(LOG + bytes(4096))) == CHANGES
    assert list(decode(LOG + encode(CHANGES[0], generation=1))) == CHANGES


def test_a_torn_or_damaged_log_holds_the_changes_before() -> None:
    for at in range(len(LOG)):
        whole = sum(at >= end for end in ENDS[1:])
        damaged = bytearray(LOG)
        damaged[at] ^= 0x41
        assert list(decode(LOG[:at])) == CHANGES[:whole]
        assert list(decode(damaged)) == CHANGES[:whole]


def test_a_log_in_blocks_is_the_bytes_that_were_appended(tmp_path: Path) -> None:
    parts = [bytes([number]) * size for number, size in enumerate((1, 4095, 4096, 100_000, 7), 1)]
    with (tmp_path / "log").open("w+b", buffering=0) as file:
        log = blocklog.BlockLog(file.fileno(), 8192, 2**20)
        for part in parts:
            log.append(part)
            size = 8192 + log.used_bytes
            assert file.seek(0, os.SEEK_END) == -(-size // 4096) * 4096
        file.seek(8192)
        assert file.read().rstrip(b"\0") == b"".join(parts)
        with pytest.raises(OSError, match="No space"):
            log.append(bytes(2**20))


# ---------------------------------------------------------------- files and their index


class Looking:
    """Reads headers, and counts how often."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def __call__(self, piece: Piece) -> tuple[PageKey | None, bool]:
        self.files.append(piece.path.name)
        with piece.path.open("rb") as file:
            file.seek(piece.offset)
            block = memoryview(bytearray(file.read(4096)))
        key = CONTENT.key_of(block)
        is_right = key is None or CONTENT.verify_header(block, key) is None
        return (key if is_right else None), is_right


class Node:
    """A directory of pages, as one life of a process after the other finds it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.looking = Looking()
        self.files = Extents(directory, CONTENT.file_bytes, False, OWNER)
        self.found = sorted(page for pages in self.files.scan(self.looking) for page in pages)

    def write(self, *pages: PageKey) -> None:
        buffer = memoryview(bytearray(len(pages) * CONTENT.file_bytes))
        for slot, page in enumerate(pages):
            CONTENT.fill(buffer[slot * CONTENT.file_bytes :][: CONTENT.file_bytes], page)
        self.files.write(0, pages, buffer)

    def delete(self, *pages: PageKey) -> None:
        for page in pages:
            self.files.delete(page)


LIFE: list[tuple[Callable[..., None], tuple[PageKey, ...]]] = [
    (Node.write, tuple(PAGES[:4])),
    (Node.write, (PAGES[4],)),
    (Node.delete, (PAGES[1],)),
    (Node.write, (PAGES[0],)),  # was in the run
    (Node.write, tuple(PAGES[4:7])),  # one of them was alone
    (Node.write, (PAGES[6], PAGES[7])),  # was in another run
    (Node.delete, (PAGES[5],)),
    (Node.delete, (PAGES[4],)),  # the last of its run
    (Node.write, (PAGES[8],)),
]
LEFT = sorted({*PAGES} - {PAGES[1], PAGES[4], PAGES[5]})


def lived(directory: Path) -> Node:
    node = Node(directory)
    for act, pages in LIFE:
        act(node, *pages)
    node.files.close()
    return node


def page_files(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if path.name != fileindex.NAME]


def space_bytes(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in page_files(directory))


def test_a_restart_looks_into_no_file_that_is_as_it_was_left(tmp_path: Path) -> None:
    lived(tmp_path / "node")
    for _ in range(2):
        node = Node(tmp_path / "node")
        assert (node.found, node.looking.files) == (LEFT, [])


def damaged(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"?")


@pytest.mark.parametrize("harm", [damaged, lambda path: os.truncate(path, 100), Path.touch])
def test_a_restart_looks_into_a_file_that_was_touched_and_into_no_other(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    lived(tmp_path / "node")
    names = [path.name for path in page_files(tmp_path / "node")]
    for name in names:
        lived(tmp_path / f"node-{name}")
        harm(tmp_path / f"node-{name}" / name)
        assert set(Node(tmp_path / f"node-{name}").looking.files) == {name}
    assert len(names) == 4


def test_pages_of_another_attempt_are_looked_into(tmp_path: Path) -> None:
    lived(tmp_path / "node")
    again = Extents(tmp_path / "node", CONTENT.file_bytes, False, PageContent(4096, b"2").owner)
    looking = Looking()
    again.scan(looking)
    assert set(looking.files) == {path.name for path in page_files(tmp_path / "node")}


def broken(index: bytes) -> Iterator[bytes]:
    """What can become of an index: torn at each byte, and here and there a byte wrong."""
    used = len(index.rstrip(b"\0"))
    yield from (index[:at] for at in range(used))
    yield from (index[:at] + bytes([index[at] ^ 0x55]) + index[at + 1 :] for at in range(0, used, 5))


def test_a_broken_index_loses_no_page_brings_none_back_and_is_right_again_after_a_restart(tmp_path: Path) -> None:
    directory = tmp_path / "node"
    lived(directory)
    whole, times = (directory / fileindex.NAME).read_bytes(), {p: p.stat().st_mtime_ns for p in page_files(directory)}
    cases = 0
    for index in broken(whole):
        (directory / fileindex.NAME).write_bytes(index)
        for path, time_ns in times.items():
            os.utime(path, ns=(time_ns, time_ns))
        assert Node(directory).found == LEFT
        cases += 1
        if cases % 50 == 0:
            again = Node(directory)
            assert (again.found, again.looking.files) == (LEFT, [])
    assert cases > 600
    assert space_bytes(directory) == len(LEFT) * CONTENT.file_bytes


def test_without_room_for_an_index_pages_are_written_and_found_by_their_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(blocklog.BlockLog, "append", full)
    lived(tmp_path / "node")
    monkeypatch.undo()
    node = Node(tmp_path / "node")
    assert node.found == LEFT
    assert node.looking.files


@pytest.mark.parametrize("name", [fileindex.NAME, f"{fileindex.NAME}{pagefile.UNFINISHED}"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("../precious")])
def test_what_stands_in_the_place_of_an_index_costs_no_page_and_nothing_outside(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    directory, precious = tmp_path / "node", tmp_path / "precious"
    precious.write_text("not ours")
    lived(directory)
    (directory / name).unlink(missing_ok=True)
    make(directory / name)
    assert Node(directory).found == LEFT
    assert Node(directory).found == LEFT
    assert precious.read_text() == "not ours"


def test_a_file_of_a_name_that_others_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("not ours")
    lived(tmp_path)
    assert Node(tmp_path).found == LEFT
    assert (tmp_path / "index").read_text() == "not ours"


# ---------------------------------------------------------------- killed at every step


class Killed(BaseException):
    """As by SIGKILL: nothing is done any more, not even what is done after an error."""


STEPS = [
    (os, "utime"), (os, "fdatasync"), (extents, "_punch_hole"), (pagefile, "write_all"), (Path, "unlink"),
    (Path, "rename"),
]  # fmt: skip


def killing(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], bool]:
    """Let a process be killed before its step number `at`; whether it came so far."""
    steps = 0

    def counted(step: Callable[..., Any]) -> Callable[..., Any]:
        def one(*arguments: Any, **options: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps > at:
                raise Killed
            return step(*arguments, **options)

        return one

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    return lambda: steps > at


def test_wherever_it_is_killed_what_was_acknowledged_is_there_and_no_space_leaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, was_killed = 0, True
    while was_killed:
        directory, there, coming, going = tmp_path / str(at), set[PageKey](), set[PageKey](), set[PageKey]()
        with monkeypatch.context() as patch:
            came_so_far = killing(patch, at)
            with suppress(Killed):
                node = Node(directory)
                for act, pages in LIFE:
                    coming, going = (set(pages), set()) if act is Node.write else (set(), set(pages))
                    act(node, *pages)
                    there = (there | coming) - going
                    coming, going = set(), set()
            was_killed = came_so_far()
        after = Node(directory)
        assert there - going <= set(after.found) <= there | coming, f"killed before step {at}"
        assert space_bytes(directory) == len(after.found) * CONTENT.file_bytes, f"killed before step {at}"
        again = Node(directory)
        assert (again.found, again.looking.files) == (after.found, []), f"killed before step {at}"
        at += 1
    assert at > 40
