"""What Prometheus reads of a soak: one text file, replaced whole, for node_exporter's textfile collector.

Every figure is a gauge, since its source is the run folder and not this process. Names end in the base unit, as
Prometheus asks: seconds, bytes, ratio (docs/soak.md lists them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.errors import KvbenchError
from kvbench.model import Measurement
from kvbench.soak.status import Status

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

# name → what it says, and where it stands in a status; None is not exported
SOAK: Mapping[str, tuple[str, Callable[[Status], float | None]]] = {
    "kvbench_soak_planned_seconds": ("Length of the soak, as planned", lambda s: s.planned_s),
    "kvbench_soak_done_seconds": ("Length of the slices that are done", lambda s: s.lasted_s),
    "kvbench_soak_slices_planned": ("Slices, as planned", lambda s: s.slices_planned),
    "kvbench_soak_slices_done": ("Slices of which all steps are measured", lambda s: s.slices_done),
    "kvbench_soak_steps_failed": ("Steps that could not be measured", lambda s: s.steps_failed),
    "kvbench_soak_available_ratio": ("Share of the time with service", lambda s: s.available_share),
    "kvbench_soak_unavailable_seconds": ("Time without service: gaps above 60 s", lambda s: s.unavailable_s),
    "kvbench_soak_revivals": ("How often a dead run was started again", lambda s: s.revivals),
    "kvbench_soak_longest_stall_seconds": ("Longest stall, so far", lambda s: s.longest_stall_s),
    "kvbench_soak_io_errors": ("I/O errors, so far", lambda s: s.io_errors),
    "kvbench_soak_media_errors": ("Media errors, so far", lambda s: s.media_errors),
    "kvbench_soak_content_mismatches": ("Wrong pages, so far", lambda s: s.content_mismatches),
    "kvbench_soak_requests_failed": ("Failed requests, so far", lambda s: s.requests_failed),
    "kvbench_soak_left_seconds": ("Time to the end, estimated", lambda s: s.left_s),
    "kvbench_soak_last_measured_timestamp_seconds": (
        "When the last step ended",
        lambda s: datetime.fromisoformat(s.last_measured).timestamp() if s.last_measured else None,
    ),
}
FREE = "kvbench_soak_free_bytes"
_BASE_UNITS = {"_per_s": "_per_second", "_s": "_seconds", "_share": "_ratio", "_c": "_celsius"}


def exported_name(metric: str) -> str:
    """`ttft_p50_s` → `kvbench_ttft_p50_seconds`: a metric's name as Prometheus writes names."""
    for ending, base in _BASE_UNITS.items():
        if metric.endswith(ending):
            return f"kvbench_{metric.removesuffix(ending)}{base}"
    return f"kvbench_{metric}"


def registry(run: str, status: Status, latest: Mapping[tuple[str, str, str], Measurement]) -> CollectorRegistry:
    """The status of the soak `run`, and all figures of the last measurement of every (kind of step, cell, arm)."""
    from prometheus_client import CollectorRegistry, Gauge

    found = CollectorRegistry()
    for name, (about, value_of) in SOAK.items():
        value = value_of(status)
        if value is not None:
            Gauge(name, about, ("run",), registry=found).labels(run).set(value)
    free = Gauge(
        FREE, "Free space: of an arm's fullest node; without an arm, of the run folder", ("run", "arm"), registry=found
    )
    for arm, free_bytes in status.free_bytes.items():
        free.labels(run, arm).set(free_bytes)
    gauges: dict[str, Gauge] = {}
    for (step, cell, arm), measurement in latest.items():
        for metric, figure in measurement.metrics.items():
            if figure.value is None:
                continue
            if metric not in gauges:
                about = f"{metric} [{figure.unit}] of the last measurement"
                gauges[metric] = Gauge(exported_name(metric), about, ("run", "step", "cell", "arm"), registry=found)
            gauges[metric].labels(run, step, cell, arm).set(figure.value)
    return found


def write(found: CollectorRegistry, files: Iterable[Path]) -> None:
    """Replace each file as a whole. Raises KvbenchError where one cannot be written."""
    from prometheus_client import write_to_textfile

    for file in files:
        try:
            write_to_textfile(str(file), found)
        except OSError as error:
            raise KvbenchError(f"{file} cannot be written: {error.strerror}", "choose another --textfile DIR") from None
