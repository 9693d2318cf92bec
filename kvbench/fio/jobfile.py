"""A storage profile → the text of a fio job file. Pure.

Two files for a profile: one lays the files out, writing every block once, and one drives them. Reads of blocks that
were never written are answered from nowhere by file systems, thin-provisioned and deduplicating arrays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from kvbench.errors import UsageError
from kvbench.probes.params import FioParams, SteadyParams

LAYOUT_BLOCK_BYTES = 1 << 20
CHECKSUM = "crc32c"
PRECONDITION_BLOCK_BYTES = 128 << 10  # SNIA Solid State Storage Performance Test Specification 2.0
_OURS = {
    "filename": "kvbench places the files",
    "directory": "kvbench places the files",
    "size": "size_bytes",
    "runtime": "runtime_s",
    "randseed": "kvbench derives it from the step's seed",
    "filesize": "size_bytes; no block beyond is laid out",
    "offset": "what is laid out begins at 0, and ends at size_bytes",
    "offset_increment": "what is laid out begins at 0, and ends at size_bytes",
    "buffer_compress_percentage": "compressible_share, which is that of what is laid out too",
}
_COMPRESSED_BYTES = 4096  # the unit in which a stated share of what is written is zeros
_SIZES = ("bs", "blocksize", "bsrange", "ba", "io_size", "rate")
_OFFSETS = 1 << 20  # of a verified file: up to 1 TiB
_PLAIN = re.compile(r"[0-9,:/%-]+")
_HEADER = """\
; Sizes are plain bytes: what a suffix means to fio depends on kb_base.
; Every job has a randseed of its own, derived from the step's. With fio's default seed (randrepeat=1) two runs write
; the same bytes even with refill_buffers, and a deduplicating array would keep one copy; with randrepeat=0 the seed
; would not be known afterwards.
; thread=1: fio is one process, so that nothing of it outlives a kill.
"""


def profile_job(params: FioParams, paths: Sequence[Path], salt: str, rate_limit_bytes_per_s: int | None = None) -> str:
    """The job file that drives the profile, one job a path, all at the same time, options unchanged.

    `size_bytes` is spread evenly over the paths; `rate_limit_bytes_per_s` holds each of them back, for an arm that
    stands for a slower medium. `salt` is of this step and attempt alone. Raises UsageError for an option that kvbench
    sets itself, a size with a suffix, or `{page_bytes}` on an arm without a model.
    """
    options = {
        **_bytes_of(params),
        **{name: _filled(params, name, str(value)) for name, value in params.options.items()},
        "runtime": f"{round(params.runtime_s * 1000)}ms",
        **({"rate": str(rate_limit_bytes_per_s)} if rate_limit_bytes_per_s else {}),
    }
    return _job_file(profile_name(params), options, paths, params.size_bytes // len(paths), salt)


def layout_job(params: FioParams, paths: Sequence[Path], salt: str) -> str:
    """The job file that writes every block of the profile's files once, with bytes that never repeat."""
    blocks = -(-params.size_bytes // len(paths) // LAYOUT_BLOCK_BYTES)  # rounded up: direct I/O writes whole blocks
    options = {
        "rw": "write",
        "bs": str(LAYOUT_BLOCK_BYTES),
        "ioengine": "psync",
        "direct": str(params.options.get("direct", 1)),
        **_bytes_of(params),
        "end_fsync": "1",
    }
    return _job_file("layout", options, paths, blocks * LAYOUT_BLOCK_BYTES, salt)


def precondition_job(params: SteadyParams, paths: Sequence[Path], salt: str) -> str:
    """The job file that writes over the files sequentially in 128 KiB blocks, as often as asked, each time anew."""
    blocks = -(-params.size_bytes // len(paths) // PRECONDITION_BLOCK_BYTES)
    options = {
        "rw": "write",
        "bs": str(PRECONDITION_BLOCK_BYTES),
        "ioengine": "libaio",
        "iodepth": "16",
        "direct": str(params.options.get("direct", 1)),
        **_bytes_of(params),
        "loops": str(params.precondition_passes),
        "end_fsync": "1",
    }
    return _job_file("precondition", options, paths, blocks * PRECONDITION_BLOCK_BYTES, salt)


def verify_offset(salt: str, room_bytes: int | None) -> int:
    """Where verified blocks begin, by `salt`: within `room_bytes`, or within what every file system takes if None."""
    blocks = _OFFSETS if room_bytes is None else max(1, room_bytes // LAYOUT_BLOCK_BYTES)
    return (randseed(salt, "offset") % blocks) * LAYOUT_BLOCK_BYTES


def verify_job(
    rw: Literal["write", "read"], size_bytes: int, offset_bytes: int, paths: Sequence[Path], salt: str
) -> str:
    """The job file that writes blocks with a checksum, or the one that reads them back and goes on after a wrong one.

    The blocks begin at an offset of the attempt's own: fio finds a block whose header has another one.
    """
    blocks = -(-size_bytes // len(paths) // LAYOUT_BLOCK_BYTES)
    options = {
        "rw": rw,
        "bs": str(LAYOUT_BLOCK_BYTES),
        "offset": str(offset_bytes),
        "fallocate": "none",  # the file has a hole before the offset
        "ioengine": "libaio",
        "iodepth": "16",
        "direct": "1",
        "refill_buffers": "1",
        "verify": CHECKSUM,
        "do_verify": "0" if rw == "write" else "1",
        "continue_on_error": "verify",
        "verify_state_save": "0",
        "end_fsync": "1",
    }
    return _job_file("verify", options, paths, blocks * LAYOUT_BLOCK_BYTES, salt)


def profile_name(params: FioParams | SteadyParams) -> str:
    """The profile's name, also where the gate names it by a path."""
    return Path(params.profile).stem


def randseed(salt: str, job: str) -> int:
    """A seed for fio, 1 to 2**31: the same for the same salt and job name, and different otherwise."""
    return 1 + int.from_bytes(hashlib.blake2b(f"{salt}/{job}".encode(), digest_size=4).digest()) // 2


def _bytes_of(params: FioParams | SteadyParams) -> dict[str, str]:
    """What is written: new bytes in every block, of which as much as is stated compresses away."""
    if not params.compressible_share:
        return {"refill_buffers": "1"}
    percentage = str(round(100 * params.compressible_share))
    chunk = str(_COMPRESSED_BYTES)
    return {"refill_buffers": "1", "buffer_compress_percentage": percentage, "buffer_compress_chunk": chunk}


def _job_file(name: str, options: Mapping[str, str], paths: Sequence[Path], size_bytes: int, salt: str) -> str:
    lines = [_HEADER + "[global]", "thread=1", *(_line(key, value) for key, value in options.items())]
    for number, path in enumerate(paths):
        job = f"{name}.{number}"
        filename = str(path).replace(":", "\\:")  # fio splits a list of files at colons
        lines += ["", f"[{job}]", _line("filename", filename), f"size={size_bytes}", f"randseed={randseed(salt, job)}"]
    return "\n".join(lines) + "\n"


def _line(key: str, value: str) -> str:
    if {"\n", "\r"} & {*key, *value}:
        raise UsageError(f"{key}={value!r}: fio's job files cannot hold a line break", "write it on one line")
    return f"{key}={value}"


def _filled(params: FioParams, name: str, value: str) -> str:
    if name in _OURS:
        raise UsageError(f"profile {params.profile}: option {name} is not for a profile to set", _OURS[name])
    if "{page_bytes}" in value:
        if not params.page_bytes:
            raise UsageError(
                f"profile {params.profile}: option {name}: the arm has no model, so {{page_bytes}} is not known",
                "give the arm an engine with a model, or write the size in bytes",
            )
        value = value.replace("{page_bytes}", str(params.page_bytes))
    if name in _SIZES and not _PLAIN.fullmatch(value):
        raise UsageError(
            f"profile {params.profile}: option {name}: {value!r} has a suffix that fio reads in two ways",
            "write plain bytes: 4096, and not 4k",
        )
    return value
