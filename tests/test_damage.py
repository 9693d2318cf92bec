"""Pages that a storage loses or changes between writing and reading: gate G2 finds each, names it and fails."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_g2 import PAGE_BYTES, PAGES, Trouble, execute, new_run

from kvbench.host.activity import cold
from kvbench.judge.verdict import judge
from kvbench.model import Finding, Outcome
from kvbench.store.content import PageContent

FILE_BYTES = PageContent(PAGE_BYTES[0]).file_bytes
AT = 12_345  # in the page
BLOCK = AT // 4096 * 4096


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a silent device: others use this one too."""
    monkeypatch.setattr(cold, "wait_idle", lambda *_: 0.0)


def flip_a_bit(pages: list[Path], patch: pytest.MonkeyPatch) -> None:
    content = bytearray(pages[0].read_bytes())
    content[AT] ^= 1
    pages[0].write_bytes(content)


def tear(pages: list[Path], patch: pytest.MonkeyPatch) -> None:
    """As after a loss of power: its end was never written."""
    os.truncate(pages[0], BLOCK)
    os.truncate(pages[0], FILE_BYTES)


def take_another_s(pages: list[Path], patch: pytest.MonkeyPatch) -> None:
    pages[0].write_bytes(pages[1].read_bytes())


def read_short(pages: list[Path], patch: pytest.MonkeyPatch) -> None:
    """The file is whole, and its reads end early."""
    _answer(pages[0], patch, lambda: 0)


def refuse_to_read(pages: list[Path], patch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    _answer(pages[0], patch, fail)


def _answer(page: Path, patch: pytest.MonkeyPatch, beyond: Callable[[], int]) -> None:
    """Put a fault below the driver: reads of a page bring its first blocks, and then this."""
    preadv = os.preadv

    def faulting(fd: int, buffers: list[memoryview], offset: int) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink() != page:
            return preadv(fd, buffers, offset)
        return preadv(fd, [buffers[0][: BLOCK - offset]], offset) if offset < BLOCK else beyond()

    patch.setattr(os, "preadv", faulting)


def lose(pages: list[Path], patch: pytest.MonkeyPatch) -> None:
    pages[0].unlink()


@pytest.mark.parametrize(
    ("damage", "check", "said"),
    [
        pytest.param(flip_a_bit, "page-content", f"at {AT}: corrupted", id="a flipped bit"),
        pytest.param(tear, "page-content", f"at {BLOCK}: torn", id="a torn page"),
        pytest.param(take_another_s, "page-content", "at 0: foreign", id="another session's page"),
        pytest.param(read_short, "page-content", f"at {BLOCK}: short", id="a short read"),
        pytest.param(refuse_to_read, "page-errors", "at 0: error, Input/output error", id="EIO"),
        pytest.param(lose, "page-errors", "at 0: missing", id="a lost page"),
    ],
)
def test_a_page_that_is_not_what_was_written_fails_the_gate(
    damage: Callable[..., None], check: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "node").mkdir()
    page, findings, evidence = damaged(tmp_path, tmp_path / "node", lambda pages: damage(pages, monkeypatch))
    assert [finding.check for finding in findings] == [check]
    (fault,) = evidence["faults"]
    assert fault.startswith(f"{page} on node 0 {said}")


def damaged(where: Path, node: Path, act: Callable[[list[Path]], None]) -> tuple[str, list[Finding], dict[str, Any]]:
    """The page that was damaged in the first step of a run, what fails, and the step's evidence. It is no hit."""
    pages: list[Path] = []

    def on_written_pages() -> None:
        pages.extend(sorted(node.rglob("*.r0")))
        act(pages)

    folder = new_run(where, node, steps=("page-read",))
    trouble = Trouble("settle", on_written_pages)
    execute(folder, trouble)
    verdict = judge(folder.plan, folder.measurements())
    assert verdict.outcome is Outcome.FAIL
    first = folder.measurements()[0]
    assert first.metrics["read_bandwidth_bytes_per_s"].n == PAGES - 1
    failed = [finding for finding in verdict.findings if finding.outcome is Outcome.FAIL]
    assert all(finding.observed == 1 for finding in failed)
    evidence = json.loads((folder.path / "raw" / trouble.step / "evidence.json").read_text())
    return pages[0].name, failed, evidence
