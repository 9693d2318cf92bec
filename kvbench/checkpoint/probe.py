"""The probe `store.checkpoint`: checkpoints saved by several ranks, models loaded cold, and models that are switched.

After MLPerf Storage (mlcommons/storage, Rules.md, "Checkpointing"): every rank writes its own file and ends with fsync;
the time is that of the slowest rank, the throughput of a rank the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from threading import Event
from typing import Any

from kvbench import plan
from kvbench.checkpoint import figures, shards, torch_save
from kvbench.checkpoint.ranks import together
from kvbench.checkpoint.shards import CHUNK_BYTES, Moved, Shard
from kvbench.host.activity.arraycache import ArrayCache, array_cache
from kvbench.host.activity.cold import DRAIN_TIMEOUT_S, QUIET_S, Settled, settle
from kvbench.host.activity.pressure import pressure_share, read_pressure
from kvbench.host.activity.telemetry import bytes_read_between, bytes_written_between, wait_idle
from kvbench.host.machine.blockdev import BlockDevice, Media, media_of, read_counters
from kvbench.model import Step
from kvbench.pages import filler
from kvbench.probes.context import Context, Measured
from kvbench.probes.params import CheckpointParams
from kvbench.store import pagefile


@dataclass(slots=True)
class _Setup:
    """What is fixed before the first byte, and what is gathered along the way."""

    context: Context
    params: CheckpointParams
    media: Media
    cache: ArrayCache
    shards: tuple[Shard, ...]
    evicted_bytes: int = 0
    settled: Settled | None = None

    @property
    def devices(self) -> tuple[BlockDevice, ...]:
        return self.media.devices


def measure(step: Step, context: Context) -> Measured:
    """Save, load or switch once. Raises StepError when a rank fails or hangs, with its own words.

    Where torch is to write and is not installed, nothing is measured, and every figure says so.
    """
    setup = _set_up(step, context)
    why_not = torch_save.why_unavailable(setup.params.python) if setup.params.writer == "torch" else ""
    pressure = read_pressure()
    moved, device_bytes = ((), None) if why_not else (_save if setup.params.access == "save" else _load)(setup)
    seen = figures.Seen(
        moved=moved,
        device_bytes=device_bytes if setup.devices else None,
        idle_read_bytes=setup.settled.idle_read_bytes if setup.settled else None,
        residency_before=setup.settled.residency if setup.settled else None,
        cpu_pressure_share=pressure_share(pressure, read_pressure()),
        medium_proven=setup.media.proven,
    )
    facts = _facts(setup, moved, why_not)
    source = context.keep("evidence.json", facts)
    return Measured(
        metrics=figures.metrics(setup.params, seen, source, why_not)
        | {"array_cache_evicted_ratio": setup.cache.metric(setup.evicted_bytes, source)},
        facts=facts,
    )


def _set_up(step: Step, context: Context) -> _Setup:
    params: CheckpointParams = plan.parse_params(step)
    storage, folders = context.storage, context.data_dirs
    for folder in folders:
        pagefile.prepare_directory(folder, params.io == "direct")
    chunks = max(1, -(-params.moved_bytes // params.ranks // CHUNK_BYTES))
    salt = f"{context.run_dir.name}/{step.id}/{context.attempt}".encode()
    files = tuple(
        Shard(folders[rank % len(folders)] / f"{rank + 1:05}-of-{params.ranks:05}.safetensors", chunks, salt, params.io)
        for rank in range(params.ranks)
    )
    media = media_of(folders)
    return _Setup(context, params, media, array_cache(media.each, storage.array_cache_bytes), files)


# ---------------------------------------------------------------- the accesses: what each rank moved, and the devices


def _save(setup: _Setup) -> tuple[Sequence[Moved], int]:
    setup.context.progress("saving", None)
    wait_idle(setup.devices, QUIET_S, DRAIN_TIMEOUT_S)
    before = read_counters(setup.devices)
    if setup.params.writer == "torch":
        moved = torch_save.save(setup.params.python, _rank_bytes(setup), setup.params.ranks, setup.context)
    else:
        moved = _at_once(setup, setup.shards, shards.write)
    return moved, bytes_written_between(before, read_counters(setup.devices))


def _load(setup: _Setup) -> tuple[Sequence[Moved], int]:
    """All models at once, or one after the other."""
    _make_cold(setup)
    setup.context.progress("loading", None)
    before = read_counters(setup.devices)
    turns = [[shard] for shard in setup.shards] if setup.params.access == "switch" else [setup.shards]
    moved = [one for turn in turns for one in _at_once(setup, turn, shards.read)]
    return moved, bytes_read_between(before, read_counters(setup.devices))


def _make_cold(setup: _Setup) -> None:
    """Write the models, and have nothing of them in any memory above the storage."""
    with setup.context.phase("populate"):
        _at_once(setup, setup.shards, shards.write)
    with setup.context.phase("settle"):
        setup.evicted_bytes = filler.read_through(setup.cache, setup.context)
        setup.settled = settle(setup.context.data_dirs, setup.devices, setup.params.settle_dwell_s)


def _at_once(setup: _Setup, files: Sequence[Shard], act: Callable[[Shard, Event], Moved]) -> list[Moved]:
    return together([partial(act, shard) for shard in files], setup.context.left_s)


def _rank_bytes(setup: _Setup) -> int:
    return setup.shards[0].chunks * CHUNK_BYTES


# ---------------------------------------------------------------- evidence


def _facts(setup: _Setup, moved: Sequence[Moved], why_not: str) -> dict[str, Any]:
    params = setup.params
    return {
        "writer": params.writer,
        "not_available": why_not,
        "io": params.io,
        "ranks": params.ranks,
        "total_bytes": params.total_bytes,
        "scale": params.scale,
        "switches_per_hour": params.switches_per_hour,
        "compressible_share": 0.0,
        **setup.cache.facts(),
        "array_cache_evicted_bytes": setup.evicted_bytes,
        **setup.media.facts(),
        "moved": [asdict(one) for one in moved],
    }
