"""The probe `kv.pages`: whole pages written and read by the store's own workers, each cold and read exactly once.

Whatever the access, pages are written first, leave memory, and are shown to have left it. Every byte read is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

from kvbench import clock, plan
from kvbench.errors import StepError
from kvbench.host.activity.arraycache import ArrayCache, array_cache
from kvbench.host.activity.cold import DRAIN_TIMEOUT_S, QUIET_S, Settled, run_hook, settle
from kvbench.host.activity.pagecache import residency
from kvbench.host.activity.pressure import pressure_share
from kvbench.host.activity.telemetry import Sampler, bytes_read_between, bytes_written_between, wait_idle
from kvbench.host.machine.blockdev import BlockDevice, Media, media_of, read_counters
from kvbench.model import Metric, Step
from kvbench.pages import figures, filler
from kvbench.pages.carrier import Carrier, Pages
from kvbench.pages.figures import Seen, Transfer
from kvbench.probes.context import Context, Measured
from kvbench.probes.params import KvPagesParams


@dataclass(slots=True)
class _Setup:
    """What is fixed before the first I/O, and what is gathered along the way."""

    context: Context
    params: KvPagesParams
    media: Media
    array_cache: ArrayCache
    carrier: Carrier
    evicted_bytes: int = 0
    settled: Settled | None = None

    @property
    def devices(self) -> tuple[BlockDevice, ...]:
        return self.media.devices

    @property
    def source(self) -> str:
        """Of the figures of pages."""
        return self.context.source("pages.parquet")

    def read(self, phase: str, pages: Pages, numbers: range | None = None) -> Transfer:
        """All of the pages, or those of these numbers, at the step's own depth."""
        return self.carrier.read(phase, pages, numbers or range(pages.count), self.params.concurrency)


class _Result(NamedTuple):
    """The figures of one access, and the counters that are evidence for them."""

    metrics: Mapping[str, Metric]
    bandwidth: float | None
    reads: tuple[Transfer, ...]
    device_bytes: int
    page_bytes: int
    moved: str


def measure(step: Step, context: Context) -> Measured:
    """Drive one access. Raises StepError when pages cannot be written, or the device does not become idle."""
    setup = _set_up(step, context)
    with Sampler(setup.devices) as sampler:
        result = _ACCESS[setup.params.access](setup)
    seen = Seen(
        device_bytes=result.device_bytes if setup.devices else None,
        moved=result.moved,
        page_bytes=result.page_bytes,
        idle_read_bytes=setup.settled.idle_read_bytes if setup.settled else None,
        residency_before=setup.settled.residency if setup.settled else None,
        residency_after=residency(context.data_dirs) if setup.settled else None,
        cpu_pressure_share=pressure_share(sampler.samples[0].pressure, sampler.samples[-1].pressure),
        link_bytes_per_s=context.storage.link_bytes_per_s,
        medium_proven=setup.media.proven,
    )
    facts = {
        **setup.array_cache.facts(),
        "array_cache_evicted_bytes": setup.evicted_bytes,
        **setup.media.facts(),
        **setup.carrier.facts(),
        "seen": asdict(seen),
    }
    evidence = context.keep("evidence.json", facts)
    series = {"pages": context.keep_rows("pages.parquet", setup.carrier.rows())}
    series["devices"] = context.source("devices.parquet")
    sampler.write_devices(context.raw_dir / "devices.parquet")
    pages = sum(len(transfer.ended) for transfer in result.reads)
    metrics = {
        **result.metrics,
        **figures.content(result.reads, series["pages"]),
        "array_cache_evicted_ratio": setup.array_cache.metric(setup.evicted_bytes, evidence),
        **figures.evidence(seen, result.bandwidth, pages, series["devices"], evidence),
    }
    return Measured(metrics=figures.complete(metrics, setup.params.access), series=series, facts=facts)


def _set_up(step: Step, context: Context) -> _Setup:
    params: KvPagesParams = plan.parse_params(step)
    cache_bytes = context.storage.array_cache_bytes
    if not params.page_bytes:
        raise StepError(f"{step.id}: the page of the arm's model is not known", "name a model of workloads/models.yaml")
    media = media_of(context.data_dirs)
    salt = f"{step.seed}/{step.id}/{context.attempt}".encode()
    carrier = Carrier(context, salt, params.compressible_share)
    return _Setup(context, params, media, array_cache(media.each, cache_bytes), carrier)


# ---------------------------------------------------------------- the accesses


def _cold_read(setup: _Setup) -> _Result:
    pages = Pages("pages", setup.params.page_count, setup.params.page_bytes)
    _make_cold(setup, pages)
    before = read_counters(setup.devices)
    reads = setup.read("read", pages)
    device_bytes = bytes_read_between(before, read_counters(setup.devices))
    metrics = figures.side("read", reads, setup.source)
    return _Result(metrics, reads.bandwidth, (reads,), device_bytes, reads.bytes, "read")


def _burst(setup: _Setup) -> _Result:
    """Write as populating does, wait until the device is idle, then read all of it back."""
    pages = Pages("pages", setup.params.page_count, setup.params.page_bytes)
    wait_idle(setup.devices, QUIET_S, DRAIN_TIMEOUT_S)
    before = read_counters(setup.devices)
    writes = setup.carrier.write("write", pages, setup.params.concurrency)
    device_bytes = bytes_written_between(before, read_counters(setup.devices))  # acknowledged pages have been sent
    with setup.context.phase("drain"):
        wait_idle(setup.devices, QUIET_S, DRAIN_TIMEOUT_S)
    drain_s = max(0.0, (clock.monotonic_ns() - writes.span_ns[1]) / 1e9 - QUIET_S) if setup.devices else None
    _make_cold(setup)
    reads = setup.read("read back", pages)
    note = "by this host's counters" if setup.devices else "no device"
    drain = {"drain_s": Metric(drain_s, "s", 1, setup.context.source("devices.parquet"), note)}
    metrics = figures.side("write", writes, setup.source) | drain
    return _Result(metrics, writes.bandwidth, (reads,), device_bytes, writes.bytes, "written")


def _read_beside_writes(setup: _Setup) -> _Result:
    """Half of the pages are read alone, then the other half while others are written and the oldest deleted."""
    context, params = setup.context, setup.params
    pool = context.data_dirs if params.write_pool == "same" else context.checkpoint_dirs
    if not pool:
        raise StepError("the arm has no pool of checkpoints", "give its storage checkpoint_nodes, or write_pool: same")
    pages = Pages("pages", params.page_count, params.page_bytes)
    _make_cold(setup, pages)
    half = pages.count // 2
    before = read_counters(setup.devices)
    alone = setup.read("read alone", pages, range(half))
    others = Pages("beside", params.write_pages_kept, params.write_page_bytes)
    with setup.carrier.writing("write beside", others, params.write_concurrency, pool):
        reads = setup.read("read beside", pages, range(half, pages.count))
    device_bytes = bytes_read_between(before, read_counters(setup.devices))
    metrics = figures.beside(alone, reads, setup.carrier.transfers["write beside"], setup.source)
    return _Result(metrics, reads.bandwidth, (alone, reads), device_bytes, alone.bytes + reads.bytes, "read")


def _one_session(setup: _Setup) -> _Result:
    """The pages of a session read one by one, many at once, and stored several to a file: each way a copy of its own,
    since none is read twice."""
    params = setup.params
    merged_count = params.page_count // params.merge_pages
    copies = {
        "serial": (Pages("serial", merged_count * params.merge_pages, params.page_bytes), 1),
        "parallel": (Pages("parallel", merged_count * params.merge_pages, params.page_bytes), params.concurrency),
        "merged": (Pages("merged", merged_count, params.page_bytes * params.merge_pages), 1),
    }
    _make_cold(setup, *(pages for pages, _ in copies.values()))
    before = read_counters(setup.devices)
    ways = {way: setup.carrier.read(way, pages, range(pages.count), depth) for way, (pages, depth) in copies.items()}
    device_bytes = bytes_read_between(before, read_counters(setup.devices))
    metrics = figures.session(ways, setup.source)
    fastest, reads = max(way.bandwidth or 0.0 for way in ways.values()), tuple(ways.values())
    return _Result(metrics, fastest, reads, device_bytes, sum(way.bytes for way in reads), "read")


_ACCESS: Mapping[str, Callable[[_Setup], _Result]] = {
    "read": _cold_read,
    "write": _burst,
    "beside": _read_beside_writes,
    "session": _one_session,
}


def _make_cold(setup: _Setup, *populate: Pages) -> None:
    """Write the pages that are named, and have nothing of any in the memory above the storage."""
    context = setup.context
    for pages in populate:
        setup.carrier.write(f"populate {pages.folder}", pages, max(4, setup.params.concurrency))
    run_hook(context.target)
    if setup.array_cache.filler_bytes:
        with context.phase("array cache"):
            setup.evicted_bytes = filler.read_through(setup.array_cache, context)
    with context.phase("settle"):
        setup.settled = settle(context.data_dirs, setup.devices, setup.params.settle_dwell_s)
