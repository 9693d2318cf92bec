"""What fio is told. The golden files are what a storage engineer would review."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvbench.errors import UsageError
from kvbench.fio.jobfile import LAYOUT_BLOCK_BYTES, layout_job, precondition_job, profile_job, randseed, verify_offset
from kvbench.probes.params import FioParams, SteadyParams

GOLDEN = Path(__file__).parents[1] / "golden" / "fio"
NODES = [Path("/mnt/node0/step/fio.data"), Path("/mnt/node:1/step/fio.data")]
PAGE_READ = FioParams(
    profile="page-read",
    options={"rw": "randread", "bs": "{page_bytes}", "direct": 1, "ioengine": "libaio", "iodepth": 16, "time_based": 1},
    size_bytes=8 << 30,
    runtime_s=30.0,
    page_bytes=8_126_464,
)
STEADY_WRITE = SteadyParams(
    profile="steady-write", options={"rw": "randwrite", "bs": 2097152, "direct": 1}, size_bytes=64 << 30, runtime_s=60.0
)
MIXED = FioParams(
    profile="profiles/mixed.yaml",
    options={"rw": "randrw", "rwmixread": 70, "bs": 16384, "direct": 1, "numjobs": 4, "refill_buffers": 0},
    size_bytes=(1 << 30) + 1,
    runtime_s=1.5,
)


@pytest.mark.parametrize(
    ("golden", "text"),
    [
        ("page-read.fio", profile_job(PAGE_READ, NODES, "1/1")),
        ("page-read-layout.fio", layout_job(PAGE_READ, NODES, "1/1")),
        ("page-read-throttled.fio", profile_job(PAGE_READ, NODES[:1], "1/1", rate_limit_bytes_per_s=500_000_000)),
        ("steady-write-precondition.fio", precondition_job(STEADY_WRITE, NODES, "1/1")),
        ("mixed.fio", profile_job(MIXED, NODES[:1], "7/2")),
        ("mixed-layout.fio", layout_job(MIXED, NODES[:1], "7/2")),
    ],
)
def test_job_files_are_as_reviewed(golden: str, text: str) -> None:
    assert text == (GOLDEN / golden).read_text()


def test_seeds_differ_between_steps_attempts_and_jobs_and_are_the_same_again() -> None:
    seeds = [randseed(salt, job) for salt in ("1/1", "1/2", "2/1") for job in ("layout.0", "layout.1", "page-read.0")]
    assert len(set(seeds)) == len(seeds)
    assert all(0 < seed <= 2**31 for seed in seeds)
    assert randseed("1/1", "layout.0") == seeds[0]


@pytest.mark.parametrize("size_bytes", [2, (1 << 20) - 1, 1 << 20, (5 << 20) + 3])
def test_the_files_that_are_laid_out_hold_whatever_is_read(size_bytes: int) -> None:
    params = replace(PAGE_READ, size_bytes=size_bytes)
    written = [int(line[5:]) for line in layout_job(params, NODES, "1/1").splitlines() if line.startswith("size=")]
    read = [int(line[5:]) for line in profile_job(params, NODES, "1/1").splitlines() if line.startswith("size=")]
    assert all(0 <= w - r < 1 << 20 and w % (1 << 20) == 0 for w, r in zip(written, read, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"options": {"filename": "/dev/sda"}}, "option filename is not for a profile to set"),
        ({"options": {"size": "8g"}}, "option size is not for a profile to set"),
        ({"options": {"bs": "4ki"}}, "option bs: '4ki' has a suffix that fio reads in two ways"),
        ({"page_bytes": 0}, "the arm has no model, so {page_bytes} is not known"),
        ({"options": {"rw": "read\nfilename=/dev/sda"}}, "fio's job files cannot hold a line break"),
    ],
)
def test_what_cannot_be_a_job_file_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        profile_job(replace(PAGE_READ, **change), NODES, "1/1")
    assert message in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("room_bytes", [0, 1, LAYOUT_BLOCK_BYTES, 100 * LAYOUT_BLOCK_BYTES, None])
def test_verified_blocks_begin_at_a_whole_block_within_their_room(room_bytes: int | None) -> None:
    offsets = {verify_offset(f"1/{attempt}", room_bytes) for attempt in range(200)}
    assert all(offset % LAYOUT_BLOCK_BYTES == 0 for offset in offsets)
    assert max(offsets) <= (1 << 40 if room_bytes is None else room_bytes)
    assert len(offsets) > (50 if room_bytes is None or room_bytes > 50 * LAYOUT_BLOCK_BYTES else 0)
