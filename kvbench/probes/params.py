"""The params of each probe: the schema of a step's `params` in a gate file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kvbench import kv
from kvbench.model import Storage
from kvbench.units import Count, RateBytes, Seconds, SizeBytes

_STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}


def check_compressible(share: float) -> None:
    """Raise ValueError unless so much of every block that is written can compress away: 0, and less than all of it."""
    if not 0 <= share <= 0.9:
        raise ValueError("compressible_share is a share from 0 to 0.9")


@dataclass(frozen=True, slots=True)
class EnvironmentParams:
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class InventoryParams:
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class HealthParams:
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class VerifyParams:
    """`size_bytes` 0: `capacity_share` of the file systems under the arm's nodes."""

    size_bytes: SizeBytes = 0
    capacity_share: float = 0.01

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class FioParams:
    """`options` go into the job file unchanged; `{page_bytes}` in a value is the arm's page size in bytes.

    `lay_out` writes the files in full first. A profile that reads cannot do without: blocks that were never written
    are answered from nowhere.
    """

    profile: str
    options: Mapping[str, str | int]
    size_bytes: SizeBytes
    runtime_s: Seconds
    lay_out: bool = True
    compressible_share: float = 0.0
    page_bytes: int = 0

    def __post_init__(self) -> None:
        check_compressible(self.compressible_share)
        if not self.lay_out and self.reads:
            raise ValueError("lay_out is false, and the profile reads: it would read blocks that were never written")

    @property
    def reads(self) -> bool:
        kind = str(self.options.get("rw", self.options.get("readwrite", "read"))).partition(":")[0]
        return kind not in ("write", "randwrite", "trim", "randtrim", "trimwrite", "randtrimwrite")

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class ColdRecoveryParams:
    """The G3 protocol (docs/method.md): N sessions stored, settled, proven cold, and read once at the same moment."""

    workload: str
    concurrency: Count
    session_tokens: Count
    output_tokens: Count = 64
    reference_tokens: Count = 8  # of every session while it is stored: what the wave's answers are held against
    chunk_tokens: Count = kv.PAGE_TOKENS
    settle_dwell_s: Seconds = 2.0
    request_timeout_s: Seconds = 600.0

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class ScalingParams(ColdRecoveryParams):
    """Three such waves, of sessions of their own, on one engine; a storage node comes or goes in the second.

    `scaling`   which of the two; a gate step's own key of that name fills it in. By the target's hook `node_add` or
                `node_remove`, or by a pool of the embedded engine's own: `pool_nodes` directories on the arm's nodes.
    `at_share`  when, of the time that the first wave took to its last first token.
    `move_share` paces what the pool moves then: of the bandwidth of the first wave. 0: as fast as it goes.
    """

    scaling: Literal["add", "fail"] = field(kw_only=True)
    at_share: float = 0.5
    pool_nodes: Count = 4
    move_share: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.at_share < 1:
            raise ValueError("at_share is above 0 and below 1")
        if not 0 <= self.move_share <= 1:
            raise ValueError("move_share is a share from 0 to 1")
        if self.pool_nodes < 2:
            raise ValueError("pool_nodes is 2 or more")

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class SteadyParams:
    """Rounds of one fio profile after preconditioning, until they are steady (docs/method.md, Storage steady state).

    `size_bytes` is first written over `precondition_passes` times, sequentially. A round lasts `runtime_s`, or moves
    `round_bytes` where that is given, for a target that should not be written to for long.
    """

    profile: str
    options: Mapping[str, str | int]
    size_bytes: SizeBytes
    runtime_s: Seconds
    round_bytes: SizeBytes = 0
    precondition_passes: int = 2
    compressible_share: float = 0.0
    page_bytes: int = 0

    def __post_init__(self) -> None:
        check_compressible(self.compressible_share)

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class KvPagesParams:
    """Whole pages through the store's own reader and writer, `concurrency` I/Os under way at any moment.

    `access`  `read`: pages are written, settled, proven cold, and each read once. `write`: a burst, its drain, and the
              pages read back. `beside`: half of the pages read alone, the other half beside a stream of writes.
              Writes go to the same nodes, or with `write_pool: checkpoints` to the arm's pool of checkpoints.
              `session`: the pages of one session read one by one, many at once, and stored `merge_pages` to a file.
    """

    pages: str
    access: Literal["read", "write", "beside", "session"]
    total_bytes: SizeBytes
    concurrency: Count = 1
    page_bytes: SizeBytes = 0
    settle_dwell_s: Seconds = 1.0
    write_page_bytes: SizeBytes = 16 * 2**20
    write_concurrency: Count = 4
    write_pool: Literal["same", "checkpoints"] = "same"
    merge_pages: Count = 4
    compressible_share: float = 0.0

    def __post_init__(self) -> None:
        check_compressible(self.compressible_share)

    __pydantic_config__ = _STRICT

    @property
    def page_count(self) -> int:
        """Pages of `total_bytes`, and in any case enough for several at every place of the queue."""
        return max(self.total_bytes // self.page_bytes, 4 * self.concurrency, self.merge_pages)

    @property
    def write_pages_kept(self) -> int:
        """Pages that the writes beside the reads leave on storage; older ones are deleted."""
        return 8 * self.write_concurrency


@dataclass(frozen=True, slots=True)
class ChurnParams:
    """One slice of pages that come and go: each is written, read once when it is the oldest, deleted, and replaced.

    `rate_bytes_per_s` paces the reads, and with them the writes; 0: as fast as they go. `hook` is a hook of the
    target that is run in the course of the slice; a gate step's own key of that name fills it in.
    """

    pages: str
    slice_s: Seconds
    working_set_bytes: SizeBytes
    queue_depth: Count = 8
    rate_bytes_per_s: RateBytes = 0
    page_bytes: SizeBytes = 0
    compressible_share: float = 0.0
    hook: str = ""

    def __post_init__(self) -> None:
        check_compressible(self.compressible_share)

    __pydantic_config__ = _STRICT

    def kept_bytes(self, storage: Storage | None) -> int:
        """The working set: twice the array's declared cache at least, and enough for several at every queue place."""
        cache_bytes = storage.array_cache_bytes or 0 if storage else 0
        return max(self.working_set_bytes, 2 * cache_bytes, 4 * self.queue_depth * self.page_bytes)


@dataclass(frozen=True, slots=True)
class CheckpointParams:
    """A checkpoint saved by `ranks` ranks, or as many models loaded, each a file of its own in the safetensors format.

    `access`  `save`: all ranks at once, each with fsync. `load`: all models at once, cold. `switch`: one after the
              other, cold; `switches_per_hour` of them are held against an hour.
    `total_bytes` is of all files together, and `scale` of it is moved.
    `io`      how the files are written or read: past the page cache, through it, or through a mapping.
    `writer`  `torch`: torch.distributed.checkpoint saves, in a process a rank, where torch is installed for `python`
              ("": the Python that runs kvbench).
    """

    pages: str
    access: Literal["save", "load", "switch"]
    total_bytes: SizeBytes
    scale: float = 1.0
    ranks: Count = 8
    io: Literal["direct", "buffered", "mmap"] = "buffered"
    writer: Literal["plain", "torch"] = "plain"
    python: str = ""
    switches_per_hour: float = 20.0
    settle_dwell_s: Seconds = 1.0

    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise ValueError("scale is above 0 and at most 1")

    @property
    def moved_bytes(self) -> int:
        return int(self.total_bytes * self.scale)


@dataclass(frozen=True, slots=True)
class FakeParams:
    """A wave made of arithmetic, for tests of everything around the probes. Basis: simulated.

    `effect` scales the dut's TTFT and the inverse of its throughput; `round_cv` is the spread of rounds.
    `without` names metrics to leave out, and `overrides` sets others.
    """

    concurrency: Count = 8
    effect: float = 0.6
    round_cv: float = 0.01
    without: tuple[str, ...] = ()
    overrides: Mapping[str, float] = field(default_factory=dict)
    work: Literal["none", "files"] = "none"  # files: also write a data file in small fsynced pieces, to be killed in
    slice_s: Seconds = 0.0  # how long it takes, as a slice of a gate that lasts

    __pydantic_config__ = _STRICT
