"""The probe `fio.verify`: writes a share of the capacity with a checksum in every block, reads it back, counts errors.

The first block lies at an offset of this attempt's own. fio checks the offset that a block's header holds, so a block
that an earlier run left at the same place of the medium, because a write was lost, does not pass for this run's.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from kvbench import plan, safety
from kvbench.errors import StepError
from kvbench.fio import jobfile, runner
from kvbench.fio.hosts import HERE
from kvbench.fio.result import FioJob, FioResult
from kvbench.fio.total import total
from kvbench.host.activity import pagecache
from kvbench.host.machine import rawdevice
from kvbench.host.machine.blockdev import space_of
from kvbench.model import Metric, Step
from kvbench.probes.context import Context, Measured
from kvbench.probes.metrics import VERIFY_METRICS
from kvbench.probes.params import VerifyParams
from kvbench.units import format_bytes


def measure(step: Step, context: Context) -> Measured:
    """Write and read back on all nodes at once. Blocks that differ are counted; anything else that fails is an error.

    Raises StepError when the arm has no storage, or fio fails in another way; KvbenchError when fio is missing.
    """
    params = cast(VerifyParams, plan.parse_params(step))
    fio = runner.require_fio()
    paths = [safety.data_file(place, "verify.data") for place in context.data_dirs]
    capacity_bytes = _capacity_bytes([Path(node) for node in context.storage.nodes])
    size_bytes = params.size_bytes or int(params.capacity_share * capacity_bytes)
    _refuse_what_does_not_fit(size_bytes, context.data_dirs)
    write = _run("write", "writing", size_bytes)
    salt = _salt(step, context)
    offset_bytes = jobfile.verify_offset(salt, _room_bytes(size_bytes, paths))
    jobs = {HERE: jobfile.verify_job("write", size_bytes, offset_bytes, paths, salt)}
    runner.run_sound(fio, write, jobs, context)
    pagecache.evict(paths)
    read = _run("verify", "verifying", size_bytes)
    jobs = {HERE: jobfile.verify_job("read", size_bytes, offset_bytes, paths, salt)}
    result = runner.run_job(fio, read, jobs, context)
    wrong = wrong_blocks(result)
    if not result.ok and not wrong:
        raise runner.unsound(result, read, context)
    return Measured(
        metrics=metrics(result.jobs, wrong, capacity_bytes, context.source("verify.json")),
        facts={"fio": result.version, "checksum": jobfile.CHECKSUM, "block_bytes": jobfile.LAYOUT_BLOCK_BYTES},
        warnings=result.diagnostics[:3] if wrong else (),
    )


def _salt(step: Step, context: Context) -> str:
    return f"{step.seed}/{context.attempt}"


def _run(stem: str, doing: str, size_bytes: int) -> runner.Run:
    return runner.Run(stem, f"{doing} {format_bytes(size_bytes)}", runner.limit_s(size_bytes))


def _capacity_bytes(folders: Sequence[Path]) -> int:
    """Size of the file systems under the folders, and of block devices, each counted once."""
    sizes = {folder.stat().st_rdev or folder.stat().st_dev: space_of(folder)[0] for folder in folders}
    return sum(sizes.values())


def _refuse_what_does_not_fit(size_bytes: int, folders: Sequence[Path]) -> None:
    part = size_bytes // len(folders)
    for folder in folders:
        if (free := safety.free_bytes(folder)) < part:
            raise StepError(
                f"verifying needs {format_bytes(part)} at {folder}, and there are {format_bytes(free)} free",
                "make room, or state a smaller size_bytes or capacity_share in the gate file",
            )


def _room_bytes(size_bytes: int, paths: Sequence[Path]) -> int | None:
    """How far from the beginning the first block may lie; None for files, which have holes before it."""
    devices = rawdevice.devices(paths)
    return min(space_of(device)[0] for device in devices) - size_bytes // len(paths) if devices else None


def wrong_blocks(result: FioResult) -> int:
    """Blocks whose checksum or header was not what had been written: fio counts them with the errno EILSEQ."""
    return sum(job.errors for job in result.jobs if job.error == errno.EILSEQ)


def metrics(jobs: Sequence[FioJob], wrong: int, capacity_bytes: int, source: str) -> dict[str, Metric]:
    """Errors, and what was read back, in bytes and as a share of the capacity."""
    read = total(jobs, "read")
    values = {
        "verify_errors": float(wrong),
        "verified_bytes": read.bytes,
        "verified_share": read.bytes / capacity_bytes if read.bytes is not None and capacity_bytes else None,
    }
    return {
        name: Metric(value, VERIFY_METRICS[name], read.ios, source, "" if value is not None else "fio told no bytes")
        for name, value in values.items()
    }
