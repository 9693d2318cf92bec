"""What kvbench can measure: one literal table, name → ProbeSpec. Pure; a probe's module is imported on its first use.

The params classes are the schema of a step's `params` in a gate file. The metrics are a promise: `plan.py` refuses a
check on a metric that no step yields, and a probe that yields another one is an internal error.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from kvbench import kv
from kvbench.host.arraycache import filler_bytes
from kvbench.model import Arm, Measurement, Step, Storage, Target
from kvbench.units import Count, RateBytes, Seconds, SizeBytes

if TYPE_CHECKING:
    from kvbench.engine.lifecycle import EngineHandle
    from kvbench.process import Survivors

_STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class Context:
    """What a probe gets beside its step.

    `raw_dir` is empty and takes this attempt's evidence. `data_dirs` are folders of our own making on the arm's nodes,
    one a node, empty, and removed after the step; the probe may write nowhere else. A node that is a block device
    stands for itself (`ProbeSpec.on_devices`).
    `checkpoint_dirs` are such folders in the arm's pool of checkpoints, if it has one.
    `lasting_dirs` are the run's folders on the same nodes, which stay until its end: for what all its steps share.
    `engine` is running and answers, or None. `progress(text, share)` says what runs now; share is 0 to 1 or None.
    `survivors` marks the processes that the probe starts, so that a resumed run can end what outlived it.
    """

    run_dir: Path
    raw_dir: Path
    target: Target
    arm: Arm | None
    data_dirs: tuple[Path, ...]
    engine: EngineHandle | None
    attempt: int
    deadline_ns: int
    progress: Callable[[str, float | None], None]
    survivors: Survivors
    lasting_dirs: tuple[Path, ...] = ()
    checkpoint_dirs: tuple[Path, ...] = ()


class Probe(Protocol):
    """`measure` turns one step into one measurement. Raises StepError when it cannot; leaves no process behind."""

    def __call__(self, step: Step, context: Context) -> Measurement: ...


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step will take: an estimate for the plan and for the space check before it, never a measurement.

    `kept_bytes` are written once for all steps of an arm and stay until the end of the run (`store/filler.py`).
    """

    seconds: float = 0.0
    written_bytes: int = 0
    space_bytes: int = 0  # most that it holds on the arm's nodes at any moment
    kept_bytes: int = 0
    read_bytes: int = 0
    evidence_bytes: int = 64 * 1024  # what it leaves in the run folder


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """`metrics` maps each name to its unit. `cost(params, arm, shape)`: shape is the arm's model, if it has one.

    `on_devices`: the probe takes a node that is a block device as it is; the others need folders.
    """

    call: str  # "module:function"
    params: type
    metrics: Mapping[str, str]
    cost: Callable[[Any, Arm | None, kv.ModelShape | None], Cost]
    on_devices: bool = False

    def load(self) -> Probe:
        module, function = self.call.split(":")
        return cast(Probe, getattr(importlib.import_module(module), function))


# ---------------------------------------------------------------- params, the schema of a step


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


# ---------------------------------------------------------------- what each yields and costs

COLD_RECOVERY_METRICS: Mapping[str, str] = {
    "ttft_p50_s": "s",
    "ttft_p90_s": "s",
    "ttft_p99_s": "s",
    "ttft_mean_s": "s",
    "ttft_max_s": "s",
    "tpot_p50_s": "s",
    "output_tokens_per_s": "tok/s",
    "dispatch_delay_max_s": "s",
    "connect_max_s": "s",
    "requests_ok": "count",
    "requests_failed": "count",
    "completion_tokens_deviation": "count",  # largest |completion tokens − asked| of a request
    "prompt_tokens_deviation": "count",
    "client_error_s": "s",
    "client_error_share": "share",  # of the wave's own TTFT p50
    "external_hit_tokens": "count",  # as the requests' usage says
    "external_hit_ratio": "ratio",  # the engine's counter ÷ what the requests should have hit
    "hit_shortfall_requests": "count",  # requests whose cached tokens are not exactly what they should be
    "content_mismatches": "count",
    "output_divergence_share": "share",  # of sessions, those answered otherwise from stored KV than from computed KV
    "preemptions": "count",
    "host_tier_hits": "count",
    "allocation_failures": "count",
    "stored_bytes": "B",
    "stored_ratio": "ratio",  # bytes stored ÷ bytes that the sessions' full pages should take
    "device_read_bytes": "B",
    "expected_read_bytes": "B",
    "ledger_ratio": "ratio",  # the first ÷ the second
    "idle_read_share": "share",
    "residency_before_share": "share",
    "residency_after_share": "share",
    "array_cache_evicted_ratio": "ratio",  # bytes of other data that were read before ÷ the array's declared cache
    "wave_bandwidth_bytes_per_s": "B/s",
    "peak_bandwidth_bytes_per_s": "B/s",
    "link_use_share": "share",  # peak ÷ what link and medium can give
    "cpu_pressure_share": "share",
    "medium_proven": "count",  # 1: a physical medium; 0: tmpfs, loop or a virtual disk
}

FIO_METRICS: Mapping[str, str] = {
    "read_bandwidth_bytes_per_s": "B/s",
    "write_bandwidth_bytes_per_s": "B/s",
    "read_iops": "1/s",
    "write_iops": "1/s",
    "read_latency_p50_s": "s",
    "read_latency_p99_s": "s",
    "write_latency_p50_s": "s",
    "write_latency_p99_s": "s",
    "read_bytes": "B",
    "written_bytes": "B",
    "runtime_s": "s",
}

STEADY_METRICS: Mapping[str, str] = {
    "steady_bandwidth_bytes_per_s": "B/s",  # mean of the steady window; None where none was reached
    "rounds_run": "count",
    "range_share": "share",  # max − min of the window ÷ its mean
    "slope_share": "share",  # movement of the fitted line over the window ÷ its mean
    "preconditioned_bytes": "B",
}

PAGE_METRICS: Mapping[str, str] = {
    "read_bandwidth_bytes_per_s": "B/s",
    "read_latency_p50_s": "s",
    "read_latency_p99_s": "s",
    "write_bandwidth_bytes_per_s": "B/s",
    "write_latency_p50_s": "s",
    "write_latency_p99_s": "s",
    "drain_s": "s",  # from the last write acknowledged to the device idle
    "p99_inflation": "ratio",  # read p99 beside writes ÷ alone
    "bandwidth_loss_share": "share",  # of the read bandwidth, beside writes
    "serial_bandwidth_bytes_per_s": "B/s",
    "parallel_bandwidth_bytes_per_s": "B/s",
    "merged_bandwidth_bytes_per_s": "B/s",
    "parallel_gain": "ratio",  # parallel ÷ serial
    "merged_gain": "ratio",
    "content_mismatches": "count",  # pages read that were not byte for byte what was written
    "io_errors": "count",
    "ledger_ratio": "ratio",  # bytes that the device moved ÷ bytes of the pages
    "idle_read_share": "share",
    "residency_before_share": "share",
    "residency_after_share": "share",
    "array_cache_evicted_ratio": "ratio",
    "link_use_share": "share",
    "cpu_pressure_share": "share",
    "medium_proven": "count",
}

CHECKPOINT_METRICS: Mapping[str, str] = {
    "moved_bytes": "B",
    "save_s": "s",  # of the slowest rank, from opening its file to the fsync of its directory
    "save_bandwidth_bytes_per_s": "B/s",  # all bytes ÷ that
    "load_s": "s",  # of the slowest model, all at once
    "load_bandwidth_bytes_per_s": "B/s",
    "rank_bandwidth_min_bytes_per_s": "B/s",  # of the slowest rank or model
    "switch_s": "s",  # of one model, mean
    "effective_utilisation_share": "share",  # of an hour, what the stated number of switches leaves to computing
    "starved_share": "share",  # of a rank's time, waiting for bytes to be made or checked; the worst rank
    "wrong_chunks": "count",  # of 16 MiB, that were not byte for byte what was written
    "ledger_ratio": "ratio",  # bytes that the devices moved ÷ bytes of the files
    "idle_read_share": "share",
    "residency_before_share": "share",
    "array_cache_evicted_ratio": "ratio",
    "cpu_pressure_share": "share",
    "medium_proven": "count",
}

INVENTORY_METRICS: Mapping[str, str] = {
    "expectations": "count",  # keys of the target's storage.expect
    "devices": "count",
    "pcie_degraded_devices": "count",  # links below what both of their ends can do
    "medium_proven": "count",
}

HEALTH_METRICS: Mapping[str, str] = {
    "critical_warning": "count",  # NVMe's bit mask; every figure is the worst of the arm's drives
    "media_errors_total": "count",  # since the drive was made
    "spare_margin_share": "share",  # available spare − its threshold
    "wear_share": "share",
    "wear_margin_share": "share",  # the target's wear_limit_share − wear
    "error_log_entries": "count",
    "temperature_max_c": "°C",
    "lifetime_written_bytes": "B",  # of all drives together
    "settings_declared": "count",  # settings that the target declares
    "settings_fingerprint": "",  # of what the hook show_settings printed; equal figures are equal settings
}

VERIFY_METRICS: Mapping[str, str] = {
    "verify_errors": "count",  # blocks that came back wrong
    "verified_bytes": "B",
    "verified_share": "share",  # of the capacity of the arm's file systems
}

CHURN_METRICS: Mapping[str, str] = {
    "read_bandwidth_bytes_per_s": "B/s",  # while pages come and go, without the first writing of the working set
    "write_bandwidth_bytes_per_s": "B/s",
    "read_latency_p50_s": "s",  # of a whole page
    "read_latency_p99_s": "s",
    "bytes_read": "B",
    "bytes_written": "B",  # with the first writing of the working set
    "content_mismatches": "count",  # pages that came back wrong, or not at all
    "io_errors": "count",
    "duty_share": "share",  # time with an I/O under way, or held back by the stated rate alone ÷ the slice
    "longest_stall_s": "s",
    "unavailable_s": "s",  # stalls above 60 s, added up
    "ledger_ratio": "ratio",  # bytes that the devices read ÷ bytes of the pages that were read
    "residency_share": "share",  # of the pages, in the page cache at the end
    "cpu_pressure_share": "share",
    "medium_proven": "count",
    "media_errors": "count",  # new ones in this slice, of all drives together
    "media_errors_total": "count",  # the drives' own counters at its end
    "temperature_max_c": "°C",
    "wear_share": "share",
    "lifetime_written_bytes": "B",
    "fault_outage_s": "s",
    "fault_recovery_s": "s",
}

# Rates assumed for estimates only; the plan says that they are assumptions.
_ASSUMED_BYTES_PER_S = 1e9
_ASSUMED_PREFILL_TOKENS_PER_S = 4000.0
_ASSUMED_DECODE_TOKEN_S = 0.06
_ENGINE_START_S: Mapping[str, float] = {"emulated": 3.0, "launch": 60.0, "openai": 0.0}  # by kind
_FIO_START_S = 0.5
_SETTLE_S = 2.0


def _cost_environment(params: EnvironmentParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    return Cost(seconds=2)


def _cost_inventory(params: InventoryParams | HealthParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    return Cost(seconds=5)


def _cost_verify(params: VerifyParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    """Without a size or an ordered capacity nothing is known before the run; the probe then looks for space itself."""
    ordered = arm.storage.expect.capacity_bytes if arm and arm.storage else None
    size = params.size_bytes or int(params.capacity_share * (ordered or 0))
    return Cost(seconds=2 * size / _ASSUMED_BYTES_PER_S, written_bytes=size, space_bytes=size, read_bytes=size)


def _cost_fio(params: FioParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    """Of a profile that is not `time_based`, one pass over its size, or as far as its runtime lets it come."""
    laid_out = params.size_bytes if params.lay_out else 0
    driven = int(params.runtime_s * _ASSUMED_BYTES_PER_S)
    if not int(params.options.get("time_based", 0)):
        driven = min(driven, params.size_bytes)
    direction = str(params.options.get("rw", "read"))
    return Cost(
        seconds=(driven + laid_out) / _ASSUMED_BYTES_PER_S,
        written_bytes=laid_out + (driven if "write" in direction or "rw" in direction else 0),
        space_bytes=params.size_bytes,
        read_bytes=0 if direction in ("write", "randwrite") else driven,
    )


def _cost_cold_recovery(params: ColdRecoveryParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    prefill_s = params.concurrency * params.session_tokens / _ASSUMED_PREFILL_TOKENS_PER_S
    starts_s = _ENGINE_START_S[arm.engine.kind] if arm else 0.0
    seconds = starts_s + params.settle_dwell_s + prefill_s + params.output_tokens * _ASSUMED_DECODE_TOKEN_S
    if arm is not None and arm.kv == "storage":
        seconds += starts_s  # once more between populate and wave
    if arm is None or arm.kv == "recompute" or shape is None:
        return Cost(seconds=seconds)
    pages = params.concurrency * kv.full_pages(params.session_tokens, params.chunk_tokens)
    rank_bytes = shape.page_bytes(arm.engine.tensor_parallel, params.chunk_tokens)
    stored = pages * rank_bytes * arm.engine.tensor_parallel
    filler = _filler_bytes(arm)
    return Cost(
        seconds=seconds + (2 * stored + filler) / _ASSUMED_BYTES_PER_S,
        written_bytes=stored,
        space_bytes=stored + stored // 100,
        kept_bytes=filler,
        read_bytes=stored + filler,
    )


def _filler_bytes(arm: Arm | None) -> int:
    """What is read before a cold read so that the array's cache holds nothing else."""
    return filler_bytes(arm.storage.array_cache_bytes) if arm and arm.storage else 0


def _cost_steady(params: SteadyParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    """As many rounds as may be needed, all of them written."""
    rounds = 25
    moved = rounds * (params.round_bytes or int(params.runtime_s * _ASSUMED_BYTES_PER_S))
    written = params.precondition_passes * params.size_bytes
    reads = str(params.options.get("rw", "")).endswith("read")
    return Cost(
        seconds=rounds * _FIO_START_S + (written + moved) / _ASSUMED_BYTES_PER_S,
        written_bytes=written + (0 if reads else moved),
        space_bytes=params.size_bytes,
        read_bytes=moved if reads else 0,
    )


def _cost_pages(params: KvPagesParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    pages_bytes = params.page_count * params.page_bytes if params.page_bytes else params.total_bytes
    beside = params.write_pages_kept * params.write_page_bytes if params.access == "beside" else 0
    copies = 3 if params.access == "session" else 1
    written = copies * pages_bytes + (pages_bytes if beside else 0)
    filler = _filler_bytes(arm)
    read = copies * pages_bytes + filler
    return Cost(
        seconds=_SETTLE_S + params.settle_dwell_s + (written + read) / _ASSUMED_BYTES_PER_S,
        written_bytes=written,
        space_bytes=copies * pages_bytes + beside,
        kept_bytes=filler,
        read_bytes=read,
    )


def _cost_checkpoint(params: CheckpointParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    size, filler = params.moved_bytes, 0 if params.access == "save" else _filler_bytes(arm)
    read = 0 if params.access == "save" else size + filler
    return Cost(
        seconds=_SETTLE_S + params.settle_dwell_s + (size + read) / _ASSUMED_BYTES_PER_S,
        written_bytes=size,
        space_bytes=size + size // 100,
        kept_bytes=filler,
        read_bytes=read,
    )


def _cost_churn(params: ChurnParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    kept = params.kept_bytes(arm.storage if arm else None)
    rate = min(params.rate_bytes_per_s or _ASSUMED_BYTES_PER_S, _ASSUMED_BYTES_PER_S) / 2  # reads and writes share it
    turned_over = int(max(0.0, params.slice_s - kept / _ASSUMED_BYTES_PER_S) * rate)
    return Cost(
        seconds=params.slice_s,
        written_bytes=kept + turned_over,
        space_bytes=kept + 2 * params.queue_depth * params.page_bytes,
        read_bytes=turned_over,
        evidence_bytes=24 * 1024 + int(params.slice_s) * 10,
    )


def _cost_fake(params: FakeParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    return Cost(seconds=params.slice_s or 0.01)


PROBES: Mapping[str, ProbeSpec] = {
    "host.environment": ProbeSpec(
        call="kvbench.host.environment:measure",
        params=EnvironmentParams,
        metrics={"processors": "count", "memory_bytes": "B"},
        cost=_cost_environment,
    ),
    "host.inventory": ProbeSpec(
        call="kvbench.host.inventory:measure",
        params=InventoryParams,
        metrics=INVENTORY_METRICS,
        cost=_cost_inventory,
        on_devices=True,
    ),
    "host.health": ProbeSpec(
        call="kvbench.host.health:measure",
        params=HealthParams,
        metrics=HEALTH_METRICS,
        cost=_cost_inventory,
        on_devices=True,
    ),
    "fio.verify": ProbeSpec(
        call="kvbench.fio.verify:measure",
        params=VerifyParams,
        metrics=VERIFY_METRICS,
        cost=_cost_verify,
        on_devices=True,
    ),
    "fio.profile": ProbeSpec(
        call="kvbench.fio.probe:measure", params=FioParams, metrics=FIO_METRICS, cost=_cost_fio, on_devices=True
    ),
    "fio.steady": ProbeSpec(
        call="kvbench.fio.steady:measure",
        params=SteadyParams,
        metrics=STEADY_METRICS,
        cost=_cost_steady,
        on_devices=True,
    ),
    "kv.pages": ProbeSpec(
        call="kvbench.store.probe:measure", params=KvPagesParams, metrics=PAGE_METRICS, cost=_cost_pages
    ),
    "kv.churn": ProbeSpec(
        call="kvbench.store.churn:measure", params=ChurnParams, metrics=CHURN_METRICS, cost=_cost_churn
    ),
    "store.checkpoint": ProbeSpec(
        call="kvbench.store.checkpoint:measure",
        params=CheckpointParams,
        metrics=CHECKPOINT_METRICS,
        cost=_cost_checkpoint,
    ),
    "load.cold_recovery": ProbeSpec(
        call="kvbench.load.cold_recovery:measure",
        params=ColdRecoveryParams,
        metrics=COLD_RECOVERY_METRICS,
        cost=_cost_cold_recovery,
    ),
    "fake.wave": ProbeSpec(
        call="kvbench.fake:measure",
        params=FakeParams,
        metrics={**COLD_RECOVERY_METRICS, **FIO_METRICS},
        cost=_cost_fake,
    ),
}
