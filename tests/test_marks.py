from pathlib import Path

import pytest

from kvbench import marks
from kvbench.errors import KvbenchError
from kvbench.marks import Mark
from kvbench.model import Stamp

FIRST = Mark("path A pulled", Stamp("2026-11-30T10:00:00+00:00", 5), "boot")
SECOND = Mark("拔出 path B", Stamp("2026-11-30T11:00:00+00:00", 9), "boot")


def test_marks_come_back_in_their_order(tmp_path: Path) -> None:
    assert marks.read(tmp_path) == []
    for mark in (FIRST, SECOND):
        marks.append(tmp_path, mark)
    assert marks.read(tmp_path) == [FIRST, SECOND]


@pytest.mark.parametrize("torn", [b'{"text": "path B', b"\0\0\0\0", b"[]", b'{"text": "x", "at": {}, "boot_id": ""}'])
def test_a_torn_mark_is_left_out(tmp_path: Path, torn: bytes) -> None:
    marks.append(tmp_path, FIRST)
    with (tmp_path / "marks.jsonl").open("ab") as file:
        file.write(torn)
    assert marks.read(tmp_path) == [FIRST]


def test_a_mark_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KvbenchError, match="the mark was not noted"):
        marks.append(tmp_path / "nowhere", FIRST)
