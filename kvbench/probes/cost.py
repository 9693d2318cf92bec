"""What each probe will take, of time, space and bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvbench import kv
from kvbench.host.activity.arraycache import filler_bytes
from kvbench.model import Arm
from kvbench.probes.params import (
    CheckpointParams,
    ChurnParams,
    ColdRecoveryParams,
    EnvironmentParams,
    FakeParams,
    FioParams,
    HealthParams,
    InventoryParams,
    KvPagesParams,
    ScalingParams,
    SteadyParams,
    VerifyParams,
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step will take: an estimate for the plan and for the space check before it, never a measurement.

    `kept_bytes` are written once for all steps of an arm and stay until the end of the run (`pages/filler.py`).
    """

    seconds: float = 0.0
    written_bytes: int = 0
    space_bytes: int = 0  # most that it holds on the arm's nodes at any moment
    kept_bytes: int = 0
    read_bytes: int = 0
    evidence_bytes: int = 64 * 1024  # what it leaves in the run folder


# Rates assumed for estimates only; the plan says that they are assumptions.
_ASSUMED_BYTES_PER_S = 1e9
_ASSUMED_PREFILL_TOKENS_PER_S = 4000.0
_ASSUMED_DECODE_TOKEN_S = 0.06
_ENGINE_START_S: Mapping[str, float] = {"emulated": 3.0, "launch": 60.0, "openai": 0.0}  # by kind
_FIO_START_S = 0.5
_SETTLE_S = 2.0


def environment(params: EnvironmentParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    return Cost(seconds=2)


def inventory(params: InventoryParams | HealthParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    return Cost(seconds=5)


def verify(params: VerifyParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    """Without a size or an ordered capacity nothing is known before the run; the probe then looks for space itself."""
    ordered = arm.storage.expect.capacity_bytes if arm and arm.storage else None
    size = params.size_bytes or int(params.capacity_share * (ordered or 0))
    return Cost(seconds=2 * size / _ASSUMED_BYTES_PER_S, written_bytes=size, space_bytes=size, read_bytes=size)


def fio(params: FioParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    """Of a profile that is not `time_based`, one pass over its size, or as far as its runtime lets it come."""
    laid_out, rate = params.size_bytes if params.lay_out else 0, _rate_bytes_per_s(arm)
    driven = int(params.runtime_s * rate)
    if not int(params.options.get("time_based", 0)):
        driven = min(driven, params.size_bytes)
    direction = str(params.options.get("rw", "read"))
    return Cost(
        seconds=(driven + laid_out) / rate,
        written_bytes=laid_out + (driven if "write" in direction or "rw" in direction else 0),
        space_bytes=params.size_bytes,
        read_bytes=0 if direction in ("write", "randwrite") else driven,
    )


def cold_recovery(params: ColdRecoveryParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
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
        seconds=seconds + (2 * stored + filler) / _rate_bytes_per_s(arm),
        written_bytes=stored,
        space_bytes=stored + stored // 100,
        kept_bytes=filler,
        read_bytes=stored + filler,
    )


def scaling(params: ScalingParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    """Three waves, and what moves: at most the share of one node of two."""
    once = cold_recovery(params, arm, shape)
    moved = once.space_bytes * 3 // 2
    return replace(
        once,
        seconds=3 * once.seconds + (3 * moved - 2 * once.kept_bytes) / _rate_bytes_per_s(arm),
        written_bytes=3 * once.written_bytes + moved,
        space_bytes=3 * once.space_bytes + moved,
        read_bytes=3 * once.read_bytes - 2 * once.kept_bytes + 2 * moved,
    )


def _rate_bytes_per_s(arm: Arm | None) -> float:
    """Of all nodes of an arm; a node that is throttled gives no more than that."""
    storage = arm.storage if arm else None
    if storage is None or storage.rate_limit_bytes_per_s is None:
        return _ASSUMED_BYTES_PER_S
    return min(_ASSUMED_BYTES_PER_S, storage.rate_limit_bytes_per_s * len(storage.nodes))


def _filler_bytes(arm: Arm | None) -> int:
    """What is read before a cold read so that the array's cache holds nothing else."""
    return filler_bytes(arm.storage.array_cache_bytes) if arm and arm.storage else 0


def steady(params: SteadyParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
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


def pages(params: KvPagesParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
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


def checkpoint(params: CheckpointParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    size, filler = params.moved_bytes, 0 if params.access == "save" else _filler_bytes(arm)
    read = 0 if params.access == "save" else size + filler
    return Cost(
        seconds=_SETTLE_S + params.settle_dwell_s + (size + read) / _ASSUMED_BYTES_PER_S,
        written_bytes=size,
        space_bytes=size + size // 100,
        kept_bytes=filler,
        read_bytes=read,
    )


def churn(params: ChurnParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
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


def fake(params: FakeParams, arm: Arm | None, shape: kv.ModelShape | None) -> Cost:
    return Cost(seconds=params.slice_s or 0.01)
