"""The probe `store.checkpoint`: checkpoints saved by several ranks, models loaded cold, and models that are switched.

After MLPerf Storage (mlcommons/storage, Rules.md, "Checkpointing"): every rank writes its own file and ends with fsync;
the time is that of the slowest rank, the throughput of a rank the smallest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from threading import Event
from typing import Any

from kvbench import clock, plan
from kvbench.checkpoint import figures, shards, torch_save
from kvbench.checkpoint.ranks import together
from kvbench.checkpoint.shards import CHUNK_BYTES, Moved, Shard
from kvbench.errors import StepError
from kvbench.host.activity.arraycache import ArrayCache, array_cache
from kvbench.host.activity.cold import DRAIN_TIMEOUT_S, QUIET_S, Settled, settle
from kvbench.host.activity.pressure import pressure_share, read_pressure
from kvbench.host.activity.telemetry import bytes_read_between, bytes_written_between, wait_idle
from kvbench.host.machine.blockdev import BlockDevice, Medium, medium_of, read_counters
from kvbench.model import Measurement, Step
from kvbench.pages import filler
from kvbench.probes.context import Context
from kvbench.probes.params import CheckpointParams
from kvbench.store import pagefile


@dataclass(slots=True)
class _Setup:
    """What is fixed before the first byte, and what is gathered along the way."""

    step: Step
    context: Context
    params: CheckpointParams
    media: tuple[Medium, ...]
    cache: ArrayCache
    shards: tuple[Shard, ...]
    evicted_bytes: int = 0
    settled: Settled | None = None
    overhead: dict[str, float] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[BlockDevice, ...]:
        return tuple({device.name: device for medium in self.media for device in medium.devices}.values())

    @property
    def left_s(self) -> float:
        return (self.context.deadline_ns - clock.monotonic_ns()) / 1e9

    def source(self, name: str) -> str:
        return f"raw/{self.step.id}/{name}"


def measure(step: Step, context: Context) -> Measurement:
    """Save, load or switch once. Raises StepError when a rank fails or hangs, with its own words.

    Where torch is to write and is not installed, nothing is measured, and every figure says so.
    """
    start, setup = clock.stamp(), _set_up(step, context)
    why_not = torch_save.why_unavailable(setup.params.python) if setup.params.writer == "torch" else ""
    pressure = read_pressure()
    moved, device_bytes = ((), None) if why_not else _ACCESS[setup.params.access](setup)
    seen = figures.Seen(
        moved=moved,
        device_bytes=device_bytes if setup.devices else None,
        idle_read_bytes=setup.settled.idle_read_bytes if setup.settled else None,
        residency_before=setup.settled.residency if setup.settled else None,
        cpu_pressure_share=pressure_share(pressure, read_pressure()),
        medium_proven=all(medium.proven for medium in setup.media),
    )
    facts = _facts(setup, moved, why_not)
    (context.raw_dir / "evidence.json").write_text(json.dumps(facts, indent=1))
    source = setup.source("evidence.json")
    return Measurement(
        step_id=step.id,
        attempt=context.attempt,
        basis="measured",
        start=start,
        end=clock.stamp(),
        boot_id=clock.boot_id(),
        metrics=figures.metrics(setup.params, seen, source, why_not)
        | {"array_cache_evicted_ratio": setup.cache.metric(setup.evicted_bytes, source)},
        raw_files=tuple(sorted(str(file.relative_to(context.run_dir)) for file in context.raw_dir.iterdir())),
        overhead=setup.overhead,
        facts=facts,
    )


def _set_up(step: Step, context: Context) -> _Setup:
    params: CheckpointParams = plan.parse_params(step)
    storage = context.arm.storage if context.arm else None
    if storage is None or not context.data_dirs:
        raise StepError(f"{step.id}: the arm has no storage to drive", "give the arm a storage with nodes")
    for folder in context.data_dirs:
        pagefile.prepare_directory(folder, params.io == "direct")
    chunks = max(1, -(-params.moved_bytes // params.ranks // CHUNK_BYTES))
    salt = f"{context.run_dir.name}/{step.id}/{context.attempt}".encode()
    folders = context.data_dirs
    files = tuple(
        Shard(folders[rank % len(folders)] / f"{rank + 1:05}-of-{params.ranks:05}.safetensors", chunks, salt, params.io)
        for rank in range(params.ranks)
    )
    media = tuple(medium_of(folder) for folder in folders)
    return _Setup(step, context, params, media, array_cache(media, storage.array_cache_bytes), files)


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
    _make_cold(setup)
    setup.context.progress("loading", None)
    before = read_counters(setup.devices)
    moved = _at_once(setup, setup.shards, shards.read)
    return moved, bytes_read_between(before, read_counters(setup.devices))


def _switch(setup: _Setup) -> tuple[Sequence[Moved], int]:
    _make_cold(setup)
    setup.context.progress("switching", None)
    before = read_counters(setup.devices)
    moved = [one for shard in setup.shards for one in _at_once(setup, [shard], shards.read)]
    return moved, bytes_read_between(before, read_counters(setup.devices))


_ACCESS: Mapping[str, Callable[[_Setup], tuple[Sequence[Moved], int]]] = {
    "save": _save,
    "load": _load,
    "switch": _switch,
}


def _make_cold(setup: _Setup) -> None:
    """Write the models, and have nothing of them in any memory above the storage."""
    began_ns = clock.monotonic_ns()
    setup.context.progress("writing the models", None)
    _at_once(setup, setup.shards, shards.write)
    setup.overhead["populate"] = (clock.monotonic_ns() - began_ns) / 1e9
    began_ns = clock.monotonic_ns()
    setup.evicted_bytes = filler.read_through(setup.cache, setup.context)
    setup.settled = settle(setup.context.data_dirs, setup.devices, setup.params.settle_dwell_s)
    setup.overhead["settle"] = (clock.monotonic_ns() - began_ns) / 1e9


def _at_once(setup: _Setup, files: Sequence[Shard], act: Callable[[Shard, Event], Moved]) -> list[Moved]:
    return together([partial(act, shard) for shard in files], setup.left_s)


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
        "devices": [device.name for device in setup.devices],
        "medium_unproven": sorted({medium.why_unproven for medium in setup.media if medium.why_unproven}),
        "moved": [asdict(one) for one in moved],
    }
