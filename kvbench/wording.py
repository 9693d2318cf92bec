"""What findings say: clauses for people, made of figures and thresholds. Pure.

A clause has no full stop, so that it can stand in a table, in a warning, or in the one sentence of page one.
"""

from __future__ import annotations

import re

from kvbench.model import Check, Finding, Step
from kvbench.stats import RatioInterval
from kvbench.units import format_value

Limit = float | tuple[float, float] | None

_LABELS = {
    "ttft_p50_s": "TTFT p50",
    "ttft_max_s": "the worst TTFT",
    "tpot_p50_s": "TPOT p50",
    "output_tokens_per_s": "output throughput",
    "requests_failed": "the number of failed requests",
    "content_mismatches": "the number of wrong pages",
    "output_divergence_share": "the share of answers that stored KV changed",
    "preemptions": "the number of preemptions",
    "hit_shortfall_requests": "the number of requests with missing hits",
    "external_hit_ratio": "the engine's count of hits ÷ the requests' count",
    "external_hit_tokens": "the number of tokens hit",
    "ledger_ratio": "the byte ledger",
    "idle_read_share": "the share of idle reads before the wave",
    "residency_before_share": "the share of KV in the page cache before the wave",
    "residency_after_share": "the share of KV in the page cache after the wave",
    "array_cache_evicted_ratio": "other data read ÷ the array's declared cache",
    "stored_ratio": "the share of KV bytes that were stored",
    "host_tier_hits": "the number of hits in host memory",
    "allocation_failures": "the number of failed allocations in host memory",
    "link_use_share": "the share of link or medium in use",
    "wave_bandwidth_bytes_per_s": "bandwidth of the wave",
    "client_error_share": "the client's own error",
    "completion_tokens_deviation": "the largest deviation from the tokens asked for",
    "cpu_pressure_share": "CPU pressure",
    "unexplained_misses": "the number of requests that missed pages of nodes that are there",
    "change_at_share": "the share of the wave before the nodes changed",
    "changed_pages": "the number of pages that the change was about",
    "steady_bandwidth_bytes_per_s": "bandwidth in steady state",
    "drain_s": "the time to drain",
    "p99_inflation": "read p99 beside writes ÷ alone",
    "read_bandwidth_bytes_per_s": "read bandwidth",
    "io_errors": "the number of I/O errors",
    "wrong_chunks": "the number of wrong chunks",
    "save_s": "the time to save",
    "load_s": "the time to load",
    "effective_utilisation_share": "effective utilisation",
    "starved_share": "the share of a rank's time spent waiting for bytes",
    "media_errors": "the number of new media errors",
    "media_errors_total": "the drives' count of media errors",
    "duty_share": "the share of the slice under load",
    "residency_share": "the share of the pages in the page cache",
    "verify_errors": "the number of blocks that came back wrong",
    "verified_share": "the share of the capacity that was verified",
    "critical_warning": "the drives' critical warning",
    "spare_margin_share": "the spare above the drive's own threshold",
    "wear_margin_share": "the wear that is left of what was agreed",
    "error_log_entries": "the number of entries in an error log",
    "pcie_degraded_devices": "the number of PCIe links below their maximum",
    "expectations": "what was ordered",
    "settings_declared": "the declared settings",
    "settings_fingerprint": "the fingerprint of the array's settings",
}
_CHANGES = {"add": " while a node is added", "fail": " while a node fails"}
_UNIT_SUFFIX = re.compile(r"_(bytes_per_s|s)\Z")


def label(metric: str) -> str:
    """`ttft_p50_s` → `TTFT p50`: a metric as the subject of a sentence."""
    return _LABELS.get(metric) or _UNIT_SUFFIX.sub("", metric).replace("_", " ")


def subject(check: Check) -> str:
    """What a check observes: a metric, or one ÷ another of the same arm."""
    whose, _, divisor = check.divide_by.partition(".")
    if not whose:
        return label(check.metric)
    if whose == "datasheet":
        return f"{label(check.metric)} ÷ the data sheet's"
    return f"{label(check.metric)} ÷ {'that' if divisor == check.metric else label(divisor)} of {whose}"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def place(step: Step) -> str:
    """Where a measurement belongs: `arm dut, 8 sessions, round 2`, or the step's id where it belongs to no arm."""
    parts = (
        f"arm {step.arm}" if step.arm else f"step {step.id}",
        load(step),
        f"round {step.round}" if step.round else "",
    )
    return ", ".join(part for part in parts if part)


def load(step: Step) -> str:
    """What a step puts on its arm: `8 sessions`, `queue depth 8 with pages of 2.10 MB`, or "" for no cell."""
    concurrency, page_bytes = step.params.get("concurrency"), step.params.get("page_bytes")
    if not concurrency:
        return ""
    if not page_bytes:
        return count(concurrency, "session") + _CHANGES.get(step.params.get("scaling", ""), "")
    return f"queue depth {concurrency} with pages of {format_value(page_bytes, 'B')}"


def asked(op: str, limit: Limit, unit: str) -> str:
    """A threshold as a noun: `at most 0.1 %`, `0`, `0.99 to 1.05`."""
    if isinstance(limit, tuple):
        low, high = (format_value(end, unit) for end in limit)
        return low if low == high else f"{low} to {high}"
    text = "nothing" if limit is None else format_value(limit, unit)
    return {"<=": f"at most {text}", ">=": f"at least {text}"}.get(op, text)


def asked_change(op: str, ratio: float) -> str:
    """A threshold of a ratio as the change that it asks for: `<= 0.75` → `a fall of at least 25 %`."""
    change, down = f"{100 * abs(ratio - 1):.3g} %", op == "<="
    if ratio == 1:
        return "no rise" if down else "no fall"
    if ratio < 1:
        return f"a fall of at {'least' if down else 'most'} {change}"
    return f"a rise of at {'most' if down else 'least'} {change}"


def changed(metric: str, interval: RatioInterval) -> str:
    """`TTFT p50 fell by 41.2 % (95 % interval 38.0 to 44.1 %, 3 rounds)`."""
    sign = -1 if interval.ratio < 1 else 1
    verb = "fell" if sign < 0 else "rose"
    text = f"{label(metric)} {verb} by {_percent(sign * (interval.ratio - 1))} %"
    if interval.low is None or interval.high is None:
        return f"{text} ({count(interval.n, 'round')})"
    low, high = sorted(sign * (end - 1) for end in (interval.low, interval.high))
    return f"{text} (95 % interval {_percent(low)} to {_percent(high)} %, {count(interval.n, 'round')})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".replace("-", "−")


def sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def because(finding: Finding) -> str:
    """A finding's reason followed by the gate's own why, as one clause."""
    why = finding.why.rstrip(".")
    lower = why if why[1:2].isupper() else why[:1].lower() + why[1:]
    return f"{finding.reason}: {lower}" if why else finding.reason
