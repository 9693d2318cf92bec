"""The probe `kv.churn`: one slice of a soak, in which pages come and go on the arm's nodes without a pause.

A slice owns its pages: it writes its working set, then reads, deletes and replaces the oldest page again and again.
Every byte that is read is checked. What is kept of it is a rollup of a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from kvbench import clock, plan, safety
from kvbench.errors import StepError
from kvbench.host.activity.pagecache import residency
from kvbench.host.activity.pressure import pressure_share, read_pressure
from kvbench.host.activity.telemetry import bytes_read_between
from kvbench.host.health import smart_counters
from kvbench.host.machine.blockdev import BlockDevice, Counters, media_of, read_counters
from kvbench.model import Step, Storage
from kvbench.pages import churn_figures as figures
from kvbench.pages.carrier import workers
from kvbench.pages.fault import Fault, Hook, marked, run_command
from kvbench.pages.timeline import Kind, Timeline
from kvbench.pages.turnover import Turnover
from kvbench.probes.context import Context, Measured
from kvbench.probes.params import ChurnParams
from kvbench.store.content import FaultKind, PageContent
from kvbench.store.keys import PageKey
from kvbench.store.protocol import Delete, Done, Read, Status, Write
from kvbench.store.real import FaultReport, RealNodes
from kvbench.units import format_bytes

KEEP_FREE_BYTES = 128 * 2**20  # a slice stops before it takes the last of a file system
FAULT_AT_SHARE = 1 / 3  # of the slice: when a hook is run, with as much before it to compare with, and more after it
_WATCH_S = 0.5
_AFTER_FAILURE_S = 0.01  # a path that is down fails I/Os at once, and without end
_DRAIN_S = 600.0  # after its end, for I/O that an outage holds back
_MOST_REPORTS = 20
_KINDS: Mapping[type, Kind] = {Read: "read", Write: "write", Delete: "delete"}


@dataclass(slots=True)
class _Slice:
    """A slice under way: the pages, their I/O so far, and what went wrong."""

    step: Step
    context: Context
    storage: Storage
    params: ChurnParams
    turnover: Turnover
    timeline: Timeline
    devices: tuple[BlockDevice, ...]
    end_ns: int
    hook: Hook | None
    events: SimpleQueue[Done | FaultReport] = field(default_factory=SimpleQueue)
    stamps: dict[int, tuple[int, int]] = field(default_factory=dict)
    reports: list[FaultReport] = field(default_factory=list)
    wrong: set[PageKey] = field(default_factory=set)
    errors: int = 0
    full_ns: int | None = None  # when the working set was written and the turnover began
    read_before: dict[str, Counters] = field(default_factory=dict)
    why_stopped: str = ""
    watched_ns: int = 0

    @property
    def deadline_ns(self) -> int:
        return min(self.context.deadline_ns, self.end_ns + int(_DRAIN_S * 1e9))

    def note_io(self, io: int, began_ns: int, ended_ns: int) -> None:
        """Called from worker threads, before the I/O's `Done`."""
        self.stamps[io] = began_ns, ended_ns

    def drive(self, nodes: RealNodes) -> None:
        """Keep pages coming and going until the slice is over and all I/O has ended. Raises StepError when it hangs."""
        while not self.turnover.is_over:
            now_ns = clock.monotonic_ns()
            if now_ns > self.deadline_ns:
                raise StepError("page I/Os did not end within the time that a slice may take")
            self._watch(now_ns)
            for command in self.turnover.ready(now_ns):
                nodes.submit(command)
            held_ns = self.turnover.wait_ns(now_ns)
            self._take_next(_WATCH_S if held_ns is None else min(_WATCH_S, held_ns / 1e9))
            if held_ns is not None:
                self.timeline.add("held", now_ns, min(now_ns + held_ns, clock.monotonic_ns()))

    def _watch(self, now_ns: int) -> None:
        """End the slice when its time is over or space runs low; run the hook when it is due."""
        if now_ns >= self.end_ns or self.why_stopped:
            self.turnover.stop()
        if self.hook:
            self.hook.poll(now_ns)
        if now_ns - self.watched_ns < _WATCH_S * 1e9:
            return
        self.watched_ns = now_ns
        self.context.progress("churn" if self.full_ns else "populate", None)
        for node, folder in zip(self.storage.nodes, self.context.data_dirs, strict=True):
            if safety.free_bytes(folder) < KEEP_FREE_BYTES:
                free = format_bytes(KEEP_FREE_BYTES)
                self.why_stopped = f"less than {free} is free at {node}; the slice stopped before it was full"

    def _take_next(self, timeout_s: float) -> None:
        try:
            event = self.events.get(timeout=timeout_s)
        except Empty:
            return
        if isinstance(event, FaultReport):
            self._take_report(event)
        else:
            self._take_done(event)

    def _take_report(self, report: FaultReport) -> None:
        if len(self.reports) < _MOST_REPORTS:
            self.reports.append(report)
        if report.kind is FaultKind.FULL:
            self.why_stopped = f"{self.storage.nodes[report.node]} is full: {report.detail}"
        elif report.kind is FaultKind.ERROR or report.key is None:
            self.errors += 1
        else:
            self.wrong.add(report.key)

    def _take_done(self, done: Done) -> None:
        now_ns = clock.monotonic_ns()
        command = self.turnover.done(now_ns, done)
        kind = _KINDS[type(command)] if done.status is Status.OK else "failed"
        self.timeline.add(kind, *self.stamps.pop(done.io))
        if done.status is not Status.OK:
            clock.sleep_s(_AFTER_FAILURE_S)
        if self.turnover.is_full and self.full_ns is None:
            self.full_ns, self.read_before = now_ns, read_counters(self.devices)


def measure(step: Step, context: Context) -> Measured:
    """Drive one slice. Raises StepError when its pages do not fit, are not written in time, or an I/O never ends."""
    began_ns, media = clock.monotonic_ns(), media_of(context.data_dirs)
    devices = media.devices
    going = _set_up(step, context, devices, began_ns)
    smart = smart_counters(devices)
    pressure, first_io_ns = read_pressure(), clock.monotonic_ns()
    _drive(going)
    end_ns = clock.monotonic_ns()
    hooked = going.hook.ended() if going.hook else ()
    full_ns = _full_ns(going)
    faults = (*hooked, *marked(context.run_dir, full_ns, end_ns))
    seen = figures.Seen(
        began_ns=began_ns,
        first_io_ns=first_io_ns,
        full_ns=full_ns,
        end_ns=end_ns,
        wrong_pages=len(going.wrong),
        io_errors=going.errors,
        file_bytes=PageContent(going.params.page_bytes).file_bytes,
        device_read_bytes=bytes_read_between(going.read_before, read_counters(devices)) if devices else None,
        residency_share=residency(context.data_dirs).share,
        cpu_pressure_share=pressure_share(pressure, read_pressure()),
        medium_proven=media.proven,
        disturbances=[going.timeline.disturbance(fault.at_ns, full_ns, end_ns) for fault in faults],
    )
    smart_after = smart_counters(devices)
    facts = _facts(going, seen, faults) | {
        **media.facts(),
        "smart": {name: asdict(after) for name, after in smart_after.items()},
    }
    context.overhead["populate"] = (full_ns - first_io_ns) / 1e9
    source = {
        "rollup": context.keep_rows("rollup.parquet", going.timeline.rollup(began_ns)),
        "evidence": context.keep("evidence.json", facts),
    }
    return Measured(
        metrics=figures.metrics(going.timeline, seen, source)
        | figures.health(smart, smart_after, going.storage, source["evidence"]),
        series={"rollup": source["rollup"]},
        facts=facts,
        warnings=_warnings(going),
    )


def _set_up(step: Step, context: Context, devices: tuple[BlockDevice, ...], began_ns: int) -> _Slice:
    params: ChurnParams = plan.parse_params(step)
    storage = context.storage
    if not params.page_bytes:
        raise StepError(f"{step.id}: the page of the arm's model is not known", "name a model of workloads/models.yaml")
    slice_ns, hook = int(params.slice_s * 1e9), None
    if params.hook:
        act = partial(run_command, context.target.hooks[params.hook])
        hook = Hook(params.hook, act, began_ns + int(FAULT_AT_SHARE * slice_ns))
    nodes = len(context.data_dirs)
    pages = -(-params.kept_bytes(storage) // params.page_bytes)
    interval_ns = params.page_bytes * 10**9 // params.rate_bytes_per_s if params.rate_bytes_per_s else 0
    return _Slice(
        step=step,
        context=context,
        storage=storage,
        params=params,
        turnover=Turnover(nodes, pages, workers(params.queue_depth, nodes) * nodes, step.seed, interval_ns),
        timeline=Timeline(params.page_bytes),
        devices=devices,
        end_ns=began_ns + slice_ns,
        hook=hook,
    )


def _drive(going: _Slice) -> None:
    """Carry the slice's I/O out. Raises StepError."""
    context, params = going.context, going.params
    with RealNodes(
        context.data_dirs,
        params.page_bytes,
        on_done=going.events.put,
        on_fault=going.events.put,
        on_io=going.note_io,
        direct=going.storage.direct,
        rate_limit_bytes_per_s=going.storage.rate_limit_bytes_per_s,
        workers_per_node=workers(params.queue_depth, len(context.data_dirs)),
        queue_depth=params.queue_depth,
        salt=f"{context.run_dir.name}/{going.step.id}/{context.attempt}".encode(),
        compressible_share=params.compressible_share,
    ) as nodes:
        going.drive(nodes)


def _full_ns(going: _Slice) -> int:
    """When the turnover began. Raises StepError when it did not, or was stopped."""
    if going.why_stopped:
        raise StepError(going.why_stopped, "make room on the storage, or lower working_set_bytes")
    if going.full_ns is None:
        kept = format_bytes(going.params.kept_bytes(going.storage))
        raise StepError(
            f"the working set of {kept} was not written within the slice",
            "lengthen slice_s, or lower working_set_bytes",
        )
    return going.full_ns


# ---------------------------------------------------------------- evidence


def _facts(going: _Slice, seen: figures.Seen, faults: Sequence[Fault]) -> dict[str, Any]:
    return {
        "compressible_share": going.params.compressible_share,
        "working_set_bytes": going.params.kept_bytes(going.storage),
        "device_read_bytes": seen.device_read_bytes,
        "bad_pages": [str(report) for report in going.reports],
        "faults": [
            {"name": fault.name, "kind": fault.kind, "at_s": (fault.at_ns - seen.began_ns) / 1e9, **asdict(what)}
            for fault, what in zip(faults, seen.disturbances, strict=True)
        ],
    }


def _warnings(going: _Slice) -> tuple[str, ...]:
    if going.hook and going.hook.why_failed:
        return (f"In {going.step.id}, hook {going.params.hook} failed: {going.hook.why_failed.rstrip('.')}.",)
    return ()
