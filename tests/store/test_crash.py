"""A store that is killed in the middle of its work: what it has acknowledged is there afterwards, and nothing else is.

Killed is the process, not the machine: what the kernel has taken survives, as it does when a serving process dies.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import page_crash
import pytest
from page_crash import NODES, PAGE_BYTES, WORK, driving, pages

from kvbench.store import deviceindex, fileindex
from kvbench.store.content import PageContent
from kvbench.store.core import Arrive, Status
from kvbench.store.keys import PageKey
from kvbench.store.pagefile import UNFINISHED

FILE_BYTES = PageContent(PAGE_BYTES).file_bytes


def killed(work: str, folder: Path, first: int, rng: random.Random) -> list[int]:
    """Let a store work on a folder and kill it at a random moment; the operations that it has acknowledged."""
    argv = [sys.executable, page_crash.__file__, work, str(folder), str(first)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(rng.randrange(1, 40))]
        process.kill()
        said += process.stdout.readlines()
    assert process.returncode == -9
    return [int(line) for line in said if line.endswith("\n")]


@pytest.fixture(params=["directories", "devices"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where nodes are made, or have been."""
    if request.param == "devices":
        for node in range(NODES):
            with (tmp_path / f"node{node}").open("wb") as file:
                file.truncate(256 * 2**20)
            deviceindex.prepare(tmp_path / f"node{node}", "test")
    return tmp_path


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("crashes", [2, pytest.param(34, marks=pytest.mark.slow)])  # of each kind of work
def test_what_was_acknowledged_is_there_after_a_crash_and_no_space_leaks(nodes: Path, work: str, crashes: int) -> None:
    rng, acknowledged = random.Random(work), set[int]()
    for crash in range(crashes):
        acknowledged.update(killed(work, nodes, 10_000 * crash, rng))
        with driving(work, nodes) as (store, driver):
            finished = driver.settle()
            for number in acknowledged:
                finished += driver.give(Arrive(number, "read", pages(number)))
            finished += driver.settle()
            assert Counter(finish.status for finish in finished) == {Status.OK: len(acknowledged)}
            index = store.directory
            copies = {page: index.replicas(page) for page in index.pages()}
        assert all(len(on) == 1 for on in copies.values())
        assert_space_is_that_of(copies, nodes)


def assert_space_is_that_of(copies: dict[PageKey, tuple[int, ...]], folder: Path) -> None:
    """What is on the nodes: no unfinished file, and the blocks of the pages of the index alone."""
    for node in range(NODES):
        stored_bytes = FILE_BYTES * sum(nodes == (node,) for nodes in copies.values())
        if (folder / f"node{node}").is_file():
            assert sum(deviceindex.page_sizes(folder / f"node{node}")) == stored_bytes
            continue
        files = [path for path in (folder / f"node{node}").iterdir() if path.name != fileindex.NAME]
        assert not [path for path in files if path.suffix == UNFINISHED]
        used = sum(path.stat().st_blocks * 512 for path in files)
        assert used == stored_bytes
