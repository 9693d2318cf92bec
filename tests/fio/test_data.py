"""What a real fio writes: never the same twice, as compressible as stated, and nothing is read that was not written."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kvbench import process
from kvbench.errors import UsageError
from kvbench.fio.jobfile import layout_job, precondition_job, profile_job
from kvbench.model import Step
from kvbench.plan import parse_params
from kvbench.probes.params import FioParams, SteadyParams

needs_fio = pytest.mark.skipif(process.find_tool("fio") is None, reason="fio is not installed")
BLOCK_BYTES = 4096
WRITES = FioParams(
    profile="writes",
    options={"rw": "randwrite", "bs": 65536, "ioengine": "psync", "direct": 0},
    size_bytes=2 << 20,
    runtime_s=5.0,
)
STEADY = SteadyParams("writes", WRITES.options, WRITES.size_bytes, runtime_s=5.0)


def written(folder: Path, job_text: str, paths: Sequence[Path]) -> list[bytes]:
    """What a job file leaves in its files."""
    (folder / "job.fio").write_text(job_text)
    done = process.run(["fio", str(folder / "job.fio")], timeout_s=60.0)
    assert done.returncode == 0, done.stderr
    return [path.read_bytes() for path in paths]


def blocks(contents: Sequence[bytes]) -> list[bytes]:
    return [
        hashlib.blake2b(content[at : at + BLOCK_BYTES]).digest()
        for content in contents
        for at in range(0, len(content), BLOCK_BYTES)
    ]


@needs_fio
@pytest.mark.parametrize(
    "job",
    [
        pytest.param(lambda paths, salt: layout_job(WRITES, paths, salt), id="lay-out"),
        pytest.param(lambda paths, salt: profile_job(WRITES, paths, salt), id="profile"),
        pytest.param(lambda paths, salt: precondition_job(STEADY, paths, salt), id="precondition"),
    ],
)
def test_two_runs_of_a_profile_write_no_block_alike_on_any_node(tmp_path: Path, job) -> None:
    paths = [tmp_path / f"node{number}" for number in range(2)]
    seen = [blocks(written(tmp_path, job(paths, salt), paths)) for salt in ("1/1", "1/2")]
    assert len(seen[0]) == len(seen[1]) == WRITES.size_bytes // BLOCK_BYTES
    assert len({*seen[0], *seen[1]}) == len(seen[0]) + len(seen[1])


@needs_fio
@pytest.mark.parametrize("job", [layout_job, profile_job])
@pytest.mark.parametrize("share", [0.0, 0.15, 0.5])
def test_what_is_written_compresses_by_the_stated_share(tmp_path: Path, share: float, job) -> None:
    params, path = replace(WRITES, compressible_share=share), tmp_path / "data"
    (content,) = written(tmp_path, job(params, [path], "1/1"), [path])
    assert len(zlib.compress(content)) / len(content) == pytest.approx(1 - share, abs=0.02)
    assert len(set(blocks([content]))) == WRITES.size_bytes // BLOCK_BYTES


@needs_fio
def test_after_the_lay_out_no_block_is_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "data"
    written(tmp_path, layout_job(replace(WRITES, size_bytes=(2 << 20) + 5), [path], "1/1"), [path])
    assert path.stat().st_blocks * 512 >= path.stat().st_size >= (2 << 20) + 5
    assert bytes(BLOCK_BYTES) not in [path.read_bytes()[at : at + BLOCK_BYTES] for at in range(0, 2 << 20, BLOCK_BYTES)]


@pytest.mark.parametrize("rw", ["read", "randread", "randrw:2", "rw", "readwrite"])
def test_a_profile_that_reads_without_a_lay_out_is_refused_before_anything_runs(rw: str) -> None:
    params = {"profile": "p", "options": {"rw": rw}, "size_bytes": 4096, "runtime_s": 1, "lay_out": False}
    step = Step("s", "s", "fio.profile", "dut", "", 0, params, 1, "none")
    with pytest.raises(UsageError, match="it would read blocks that were never written"):
        parse_params(step)


@pytest.mark.parametrize("option", ["offset", "offset_increment", "filesize"])
def test_what_would_read_beyond_the_lay_out_is_not_for_a_profile_to_set(option: str) -> None:
    with pytest.raises(UsageError, match=f"option {option} is not for a profile to set"):
        profile_job(replace(WRITES, options={option: 4096}), [Path("/mnt/a")], "1/1")


@pytest.mark.parametrize("share", [-0.1, 0.95])
def test_a_share_that_leaves_nothing_to_tell_blocks_apart_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"compressible_share is a share from 0 to 0\.9"):
        replace(WRITES, compressible_share=share)
