"""The probe `kv.pages`: whole pages written and read by the store's own workers, each cold and read exactly once.

Whatever the access, pages are written first, leave memory, and are shown to have left it. Every byte read is checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from kvbench import clock, plan, process
from kvbench.errors import StepError
from kvbench.host.activity.arraycache import ArrayCache, array_cache
from kvbench.host.activity.cold import DRAIN_TIMEOUT_S, QUIET_S, Settled, settle
from kvbench.host.activity.pagecache import residency
from kvbench.host.activity.pressure import pressure_share
from kvbench.host.activity.telemetry import Sampler, bytes_read_between, bytes_written_between, wait_idle
from kvbench.host.machine.blockdev import BlockDevice, Medium, medium_of, read_counters
from kvbench.model import Arm, Measurement, Metric, Step
from kvbench.pages import figures, filler
from kvbench.pages.figures import Seen, Transfer
from kvbench.pages.loop import ClosedLoop
from kvbench.probes.context import Context
from kvbench.probes.params import KvPagesParams
from kvbench.store.keys import DIGEST_BYTES, PageKey
from kvbench.store.protocol import Delete, Io, Read, Write
from kvbench.store.real import FaultReport, RealNodes

_SPARE_WORKERS = 2  # a node: they fill and check pages while others are in their I/O


@dataclass(frozen=True, slots=True)
class _Pages:
    """The pages of one phase: where they lie, and how large and how many they are."""

    folder: str
    count: int
    page_bytes: int

    def key(self, number: int) -> PageKey:
        return PageKey(blake2b(f"{self.folder}/{number}".encode(), digest_size=DIGEST_BYTES).digest(), 0)


@dataclass(slots=True)
class _Setup:
    """What is fixed before the first I/O, and what is gathered along the way."""

    step: Step
    context: Context
    arm: Arm
    params: KvPagesParams
    media: tuple[Medium, ...]
    array_cache: ArrayCache
    evicted_bytes: int = 0
    faults: list[FaultReport] = field(default_factory=list)
    transfers: dict[str, Transfer] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    overhead: dict[str, float] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[BlockDevice, ...]:
        return tuple({device.name: device for medium in self.media for device in medium.devices}.values())

    def source(self, name: str) -> str:
        return f"raw/{self.step.id}/{name}"


class _Result(NamedTuple):
    """The figures of one access, and the counters and settling that are evidence for them."""

    metrics: Mapping[str, Metric]
    bandwidth: float | None
    reads: tuple[Transfer, ...]
    device_bytes: int
    page_bytes: int
    moved: str
    settled: Settled | None = None


def measure(step: Step, context: Context) -> Measurement:
    """Drive one access. Raises StepError when pages cannot be written, or the device does not become idle."""
    start = clock.stamp()
    setup = _set_up(step, context)
    with Sampler(setup.devices) as sampler:
        result = _ACCESS[setup.params.access](setup)
    seen = Seen(
        device_bytes=result.device_bytes if setup.devices else None,
        moved=result.moved,
        page_bytes=result.page_bytes,
        idle_read_bytes=result.settled.idle_read_bytes if result.settled else None,
        residency_before=result.settled.residency if result.settled else None,
        residency_after=residency(context.data_dirs) if result.settled else None,
        cpu_pressure_share=pressure_share(sampler.samples[0].pressure, sampler.samples[-1].pressure),
        link_bytes_per_s=setup.arm.storage.link_bytes_per_s if setup.arm.storage else None,
        medium_proven=all(medium.proven for medium in setup.media),
    )
    _save(setup, seen, sampler)
    pages = sum(len(transfer.ended) for transfer in result.reads)
    metrics = {
        **result.metrics,
        **figures.content(result.reads, setup.source("pages.parquet")),
        "array_cache_evicted_ratio": setup.array_cache.metric(setup.evicted_bytes, setup.source("evidence.json")),
        **figures.evidence(
            seen, result.bandwidth, pages, setup.source("devices.parquet"), setup.source("evidence.json")
        ),
    }
    return Measurement(
        step_id=step.id,
        attempt=context.attempt,
        basis="measured",
        start=start,
        end=clock.stamp(),
        boot_id=clock.boot_id(),
        metrics=figures.complete(metrics, setup.params.access),
        series={name: setup.source(f"{name}.parquet") for name in ("pages", "devices")},
        raw_files=tuple(sorted(str(file.relative_to(context.run_dir)) for file in context.raw_dir.iterdir())),
        overhead=setup.overhead,
        facts=setup.facts,
    )


def _set_up(step: Step, context: Context) -> _Setup:
    params: KvPagesParams = plan.parse_params(step)
    if context.arm is None or not context.data_dirs:
        raise StepError(f"{step.id}: the arm has no storage to drive", "give the arm a storage with nodes")
    if not params.page_bytes:
        raise StepError(f"{step.id}: the page of the arm's model is not known", "name a model of workloads/models.yaml")
    media = tuple(medium_of(folder) for folder in context.data_dirs)
    storage = context.arm.storage
    cache = array_cache(media, storage.array_cache_bytes if storage else None)
    return _Setup(step, context, context.arm, params, media, cache)


# ---------------------------------------------------------------- the accesses


def _cold_read(setup: _Setup) -> _Result:
    pages = _Pages("pages", setup.params.page_count, setup.params.page_bytes)
    _populate(setup, pages)
    settled = _settle(setup)
    before = read_counters(setup.devices)
    reads = _read(setup, "read", pages, range(pages.count), setup.params.concurrency)
    device_bytes = bytes_read_between(before, read_counters(setup.devices))
    metrics = figures.side("read", reads, setup.source("pages.parquet"))
    return _Result(metrics, reads.bandwidth, (reads,), device_bytes, reads.bytes, "read", settled)


def _burst(setup: _Setup) -> _Result:
    """Write as populating does, wait until the device is idle, then read all of it back."""
    pages = _Pages("pages", setup.params.page_count, setup.params.page_bytes)
    wait_idle(setup.devices, QUIET_S, DRAIN_TIMEOUT_S)
    before = read_counters(setup.devices)
    writes = _write(setup, "write", pages, setup.params.concurrency)
    device_bytes = bytes_written_between(before, read_counters(setup.devices))  # acknowledged pages have been sent
    with _phase(setup, "drain"):
        wait_idle(setup.devices, QUIET_S, DRAIN_TIMEOUT_S)
    drain_s = max(0.0, (clock.monotonic_ns() - writes.span_ns[1]) / 1e9 - QUIET_S)
    settled = _settle(setup)
    reads = _read(setup, "read back", pages, range(pages.count), setup.params.concurrency)
    source = setup.source("pages.parquet")
    metrics = figures.side("write", writes, source) | {
        "drain_s": Metric(
            drain_s if setup.devices else None,
            "s",
            1,
            setup.source("devices.parquet"),
            "by this host's counters" if setup.devices else "no device",
        )
    }
    return _Result(metrics, writes.bandwidth, (reads,), device_bytes, writes.bytes, "written", settled)


def _read_beside_writes(setup: _Setup) -> _Result:
    """Half of the pages are read alone, then the other half while others are written and the oldest deleted."""
    params = setup.params
    pages = _Pages("pages", params.page_count, params.page_bytes)
    _populate(setup, pages)
    settled = _settle(setup)
    half = pages.count // 2
    before = read_counters(setup.devices)
    alone = _read(setup, "read alone", pages, range(half), params.concurrency)
    beside = _Pages("beside", params.write_pages_kept, params.write_page_bytes)
    pool = setup.context.data_dirs if params.write_pool == "same" else setup.context.checkpoint_dirs
    if not pool:
        raise StepError("the arm has no pool of checkpoints", "give its storage checkpoint_nodes, or write_pool: same")
    with _nodes(setup, beside, params.write_concurrency, _ring(beside, len(pool)), pool) as loop:
        reads = _read(setup, "read beside", pages, range(half, pages.count), params.concurrency)
        loop.stop()
        loop.wait(_left_s(setup))
    device_bytes = bytes_read_between(before, read_counters(setup.devices))
    writes = _whole(setup, "write beside", _taken(setup, "write beside", beside, loop))
    metrics = figures.beside(alone, reads, writes, setup.source("pages.parquet"))
    return _Result(metrics, reads.bandwidth, (alone, reads), device_bytes, alone.bytes + reads.bytes, "read", settled)


def _one_session(setup: _Setup) -> _Result:
    """The pages of a session read one by one, many at once, and stored several to a file: each way a copy of its own,
    since none is read twice."""
    params = setup.params
    merged_count = params.page_count // params.merge_pages
    copies = {
        "serial": (_Pages("serial", merged_count * params.merge_pages, params.page_bytes), 1),
        "parallel": (_Pages("parallel", merged_count * params.merge_pages, params.page_bytes), params.concurrency),
        "merged": (_Pages("merged", merged_count, params.page_bytes * params.merge_pages), 1),
    }
    for pages, _ in copies.values():
        _populate(setup, pages)
    settled = _settle(setup)
    before = read_counters(setup.devices)
    ways = {way: _read(setup, way, pages, range(pages.count), depth) for way, (pages, depth) in copies.items()}
    device_bytes = bytes_read_between(before, read_counters(setup.devices))
    metrics = figures.session(ways, setup.source("pages.parquet"))
    fastest, reads = max(way.bandwidth or 0.0 for way in ways.values()), tuple(ways.values())
    return _Result(metrics, fastest, reads, device_bytes, sum(way.bytes for way in reads), "read", settled)


_ACCESS: Mapping[str, Callable[[_Setup], _Result]] = {
    "read": _cold_read,
    "write": _burst,
    "beside": _read_beside_writes,
    "session": _one_session,
}


# ---------------------------------------------------------------- the I/O


def _populate(setup: _Setup, pages: _Pages) -> None:
    _write(setup, f"populate {pages.folder}", pages, max(4, setup.params.concurrency))


def _write(setup: _Setup, phase: str, pages: _Pages, depth: int) -> Transfer:
    """Write all pages. Raises StepError when one of them could not be."""
    nodes = len(setup.context.data_dirs)
    commands = (Write(number, number % nodes, pages.key(number)) for number in range(pages.count))
    return _whole(setup, phase, _carried_out(setup, phase, pages, depth, commands))


def _whole(setup: _Setup, phase: str, writes: Transfer) -> Transfer:
    if bad := len(writes.ended) - len(writes.good):
        first = setup.faults[0]
        raise StepError(
            f"{phase}: {bad} of {len(writes.ended)} pages could not be written: {first.path.name}: {first.detail}"
        )
    return writes


def _read(setup: _Setup, phase: str, pages: _Pages, numbers: Sequence[int], depth: int) -> Transfer:
    nodes = len(setup.context.data_dirs)
    commands = (Read(number, number % nodes, pages.key(number)) for number in numbers)
    return _carried_out(setup, phase, pages, depth, commands)


def _ring(pages: _Pages, nodes: int) -> Iterator[Io]:
    """Writes without end, each a new page; the pages from `count` writes ago are deleted."""
    for io in count():
        number, is_delete = divmod(io, 2)
        if not is_delete:
            yield Write(io, number % nodes, pages.key(number))
        elif number >= pages.count:
            yield Delete(io, (number - pages.count) % nodes, pages.key(number - pages.count))


def _carried_out(setup: _Setup, phase: str, pages: _Pages, depth: int, commands: Iterator[Io]) -> Transfer:
    with _phase(setup, phase), _nodes(setup, pages, depth, commands) as loop:
        loop.wait(_left_s(setup))
    return _taken(setup, phase, pages, loop)


@contextmanager
def _nodes(
    setup: _Setup, pages: _Pages, depth: int, commands: Iterator[Io], pool: Sequence[Path] = ()
) -> Iterator[ClosedLoop]:
    """The arm's nodes, or those of a pool, with `depth` I/Os under way, and the loop that keeps them so."""
    storage, folders = setup.arm.storage, [folder / pages.folder for folder in pool or setup.context.data_dirs]
    workers = -(-depth // len(folders)) + _SPARE_WORKERS
    loop = ClosedLoop(commands, workers * len(folders))
    with RealNodes(
        folders,
        pages.page_bytes,
        on_done=loop.on_done,
        on_fault=setup.faults.append,
        on_io=loop.on_io,
        direct=storage.direct if storage else True,
        rate_limit_bytes_per_s=storage.rate_limit_bytes_per_s if storage else None,
        workers_per_node=workers,
        queue_depth=depth,
        salt=f"{setup.step.seed}/{setup.step.id}/{setup.context.attempt}".encode(),
        compressible_share=setup.params.compressible_share,
    ) as nodes:
        loop.start(nodes)
        yield loop
        loop.stop()


def _taken(setup: _Setup, phase: str, pages: _Pages, loop: ClosedLoop) -> Transfer:
    transfer = Transfer(pages.page_bytes, tuple(io for io in loop.ended if not isinstance(io.command, Delete)))
    setup.transfers[phase] = transfer
    return transfer


def _settle(setup: _Setup) -> Settled:
    context = setup.context
    if hook := context.target.hooks.get("before_wave"):
        done = process.run(hook, timeout_s=DRAIN_TIMEOUT_S)
        if done.returncode:
            raise StepError(
                f"the hook before_wave ended with exit code {done.returncode}: {done.stderr.strip()[-200:]}"
            )
    if setup.array_cache.filler_bytes:
        with _phase(setup, "array cache"):
            setup.evicted_bytes = filler.read_through(setup.array_cache, context)
    with _phase(setup, "settle"):
        return settle(context.data_dirs, setup.devices, setup.params.settle_dwell_s)


@contextmanager
def _phase(setup: _Setup, name: str) -> Iterator[None]:
    setup.context.progress(name, None)
    began_ns = clock.monotonic_ns()
    yield
    setup.overhead[name] = (clock.monotonic_ns() - began_ns) / 1e9


def _left_s(setup: _Setup) -> float:
    return (setup.context.deadline_ns - clock.monotonic_ns()) / 1e9


# ---------------------------------------------------------------- evidence


def _save(setup: _Setup, seen: Seen, sampler: Sampler) -> None:
    """Every I/O as a row, the devices second by second, and what was done and seen around them."""
    raw_dir = setup.context.raw_dir
    _write_pages(setup, raw_dir / "pages.parquet")
    sampler.write_devices(raw_dir / "devices.parquet")
    setup.facts |= {
        "compressible_share": setup.params.compressible_share,
        **setup.array_cache.facts(),
        "array_cache_evicted_bytes": setup.evicted_bytes,
        "devices": [device.name for device in setup.devices],
        "medium_unproven": sorted({medium.why_unproven for medium in setup.media if medium.why_unproven}),
        "pages": {phase: len(transfer.ended) for phase, transfer in setup.transfers.items()},
        "faults": [f"{fault.path.name} at {fault.offset}: {fault.kind}, {fault.detail}" for fault in setup.faults[:20]],
        "seen": asdict(seen),
    }
    (raw_dir / "evidence.json").write_text(json.dumps(setup.facts, indent=1))


def _write_pages(setup: _Setup, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "phase": phase,
            "node": io.command.node,
            "page_bytes": transfer.page_bytes,
            "began_ns": io.began_ns,
            "ended_ns": io.ended_ns,
            "status": str(io.status),
        }
        for phase, transfer in setup.transfers.items()
        for io in transfer.ended
    ]
    pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")
