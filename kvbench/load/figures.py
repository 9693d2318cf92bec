"""From rows to figures, by the definitions of docs/method.md, "Figures of inference". Pure.

Failed requests are counted and have no part in any latency. Where there is no figure, the metric says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvbench.load.result import LoadResult, RequestRow
from kvbench.model import Metric
from kvbench.stats import P99_NEEDS, percentile

_NO_REPLY = "no request succeeded"


def ttft_s(row: RequestRow) -> float | None:
    """From due to the first token with text."""
    return (row.first_token_ns - row.due_ns) / 1e9 if row.first_token_ns is not None else None


def tpot_s(row: RequestRow) -> float | None:
    """(last token − first token) ÷ (completion tokens − 1), tokens from `usage`; None for fewer than two."""
    if row.first_token_ns is None or row.last_token_ns is None or (row.completion_tokens or 0) < 2:
        return None
    assert row.completion_tokens is not None
    return (row.last_token_ns - row.first_token_ns) / 1e9 / (row.completion_tokens - 1)


def client_error_s(row: RequestRow) -> float | None:
    """How far the client itself may have moved this request's TTFT.

    The delay from due to sent, and the error of the first token's stamp: none when the kernel stamped a read that
    held one token; the time it lay unread when it held several. None without the kernel's stamp.
    """
    if row.sent_ns is None or row.read_delay_ns is None:
        return None
    return (row.sent_ns - row.due_ns + (row.read_delay_ns if row.tainted else 0)) / 1e9


def distribution(values_s: Sequence[float], quantiles: Sequence[int], why_none: str) -> dict[str, Metric]:
    """`p50` … for each quantile, `mean` and `max`; a p99 of fewer than 100 values is their maximum, and says so."""
    n = len(values_s)
    if n == 0:
        names = [*(f"p{q}" for q in quantiles), "mean", "max"]
        return {name: Metric(None, "s", 0, note=why_none) for name in names}
    figures = {
        f"p{q}": Metric(percentile(values_s, q), "s", n, note=f"max of {n}" if q == 99 and n < P99_NEEDS else "")
        for q in quantiles
    }
    return figures | {"mean": Metric(sum(values_s) / n, "s", n), "max": Metric(max(values_s), "s", n)}


def output_tokens_per_s(rows: Sequence[RequestRow]) -> Metric:
    """Σ completion tokens of what succeeded ÷ (its last completion − first due of all)."""
    good = [row for row in rows if row.ok]
    if not good:
        return Metric(None, "tok/s", 0, note=_NO_REPLY)
    tokens = sum(row.completion_tokens or 0 for row in good)
    span_ns = max(row.done_ns for row in good) - min(row.due_ns for row in rows)
    estimated = sum(row.tokens_estimated for row in good)
    note = f"{estimated} requests without usage: their chunks were counted" if estimated else ""
    return Metric(tokens / (span_ns / 1e9), "tok/s", len(good), note=note)


def wave_metrics(result: LoadResult, source: str = "") -> dict[str, Metric]:
    """The figures of a wave that its requests yield, named and measured as in `probes.COLD_RECOVERY_METRICS`.

    `source` is the path of the saved rows.
    """
    rows = result.rows
    metrics = {
        **_latencies(rows),
        "output_tokens_per_s": output_tokens_per_s(rows),
        "requests_ok": Metric(sum(row.ok for row in rows), "count", len(rows)),
        "requests_failed": Metric(sum(not row.ok for row in rows), "count", len(rows)),
        "completion_tokens_deviation": _deviation(
            [
                (row.completion_tokens, row.expected_completion_tokens)
                for row in rows
                if not row.tokens_estimated  # chunks, not tokens
            ]
        ),
        "prompt_tokens_deviation": _deviation([(row.prompt_tokens, row.expected_prompt_tokens) for row in rows]),
        **_client_error(rows),
        **_hits(rows),
    }
    return {name: _traced(metric, source, rows) for name, metric in metrics.items()}


def _traced(metric: Metric, source: str, rows: Sequence[RequestRow]) -> Metric:
    """The metric with its way back to the rows, and with a note when some of them failed."""
    failed = sum(not row.ok for row in rows)
    notes = [metric.note, f"{failed} of {len(rows)} requests failed" if failed else ""]
    return Metric(metric.value, metric.unit, metric.n, source, "; ".join(note for note in notes if note))


def _latencies(rows: Sequence[RequestRow]) -> dict[str, Metric]:
    good = [row for row in rows if row.ok]
    ttft = distribution(_known(map(ttft_s, good)), (50, 90, 99), _NO_REPLY)
    tpot = distribution(_known(map(tpot_s, good)), (50,), "no request gave two tokens")
    dispatch_s = [(row.sent_ns - row.due_ns) / 1e9 for row in rows if row.sent_ns is not None]
    connect_s = [row.connect_ns / 1e9 for row in rows if row.connect_ns is not None]
    return {
        **{f"ttft_{name}_s": metric for name, metric in ttft.items()},
        "tpot_p50_s": tpot["p50"],
        "dispatch_delay_max_s": distribution(dispatch_s, (), "no request was sent")["max"],
        "connect_max_s": distribution(connect_s, (), "no connection was made")["max"],
    }


def _client_error(rows: Sequence[RequestRow]) -> dict[str, Metric]:
    """The median of what the client may have added to each TTFT, and that as a share of the median TTFT."""
    good = [row for row in rows if row.ok]
    errors_s = _known(map(client_error_s, good))
    if not good or len(errors_s) < len(good):
        note = "the kernel gave no receive stamps: the client cannot know its error" if good else _NO_REPLY
        return {
            "client_error_s": Metric(None, "s", 0, note=note),
            "client_error_share": Metric(None, "share", 0, note=note),
        }
    error_s = percentile(errors_s, 50)
    share = error_s / percentile(_known(map(ttft_s, good)), 50)
    return {
        "client_error_s": Metric(error_s, "s", len(good)),
        "client_error_share": Metric(share, "share", len(good)),
    }


def _deviation(counts: Sequence[tuple[int | None, int | None]]) -> Metric:
    """The largest |counted − expected| of a request."""
    found = [abs(got - expected) for got, expected in counts if got is not None and expected is not None]
    if not found:
        return Metric(None, "count", 0, note="the server told no token counts, or none was expected")
    return Metric(max(found), "count", len(found))


def _hits(rows: Sequence[RequestRow]) -> dict[str, Metric]:
    """Cached tokens by the requests' own usage, and requests that did not have exactly what they should have had."""
    told = [row.cached_tokens for row in rows if row.cached_tokens is not None]
    silent = len(rows) - len(told)
    note = f"usage of {silent} of {len(rows)} requests has no cached_tokens" if silent else ""
    checked = [
        row.cached_tokens == row.expected_cached_tokens for row in rows if row.expected_cached_tokens is not None
    ]
    shortfall = Metric(checked.count(False), "count", len(checked), note=note)
    if not checked:
        shortfall = Metric(None, "count", 0, note="no request had cached tokens to expect")
    return {
        "external_hit_tokens": Metric(sum(told) if told else None, "count", len(told), note=note),
        "hit_shortfall_requests": shortfall,
    }


def _known(values: map[float | None]) -> list[float]:
    return [value for value in values if value is not None]


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests that met every objective, of all that were sent."""

    met: int
    total: int
    per_s: float


def goodput(result: LoadResult, objectives_s: dict[str, float]) -> Goodput:
    """Requests that succeeded within each of `objectives_s` (`ttft`, `tpot`), and how many of them a second.

    A request of one token has no TPOT, and so cannot miss it.
    """
    measured = {"ttft": ttft_s, "tpot": tpot_s}
    met = [
        row
        for row in result.rows
        if row.ok and all((measured[name](row) or 0.0) <= limit for name, limit in objectives_s.items())
    ]
    span_ns = max(row.done_ns for row in result.rows) - min(row.due_ns for row in result.rows)
    return Goodput(len(met), len(result.rows), len(met) / (span_ns / 1e9))
