"""A probe made of arithmetic: the same figures for the same step, whatever happened before. For tests of the harness.

Its basis is "simulated", so that nothing it yields can pass for a measurement.
"""

from __future__ import annotations

import os
import random

from kvbench import clock, kv, plan
from kvbench.model import Metric, Step
from kvbench.probes.context import Context, Measured
from kvbench.probes.params import FakeParams
from kvbench.probes.table import PROBES

_TTFT_S = 2.0
_OUTPUT_TOKENS = 64
_PIECES = 5


def measure(step: Step, context: Context) -> Measured:
    """A healthy cold-recovery wave: the dut's TTFT is `effect` times the baseline's, scattered by `round_cv`."""
    params: FakeParams = plan.parse_params(step)
    if params.work == "files":
        _write_pieces(context)
    clock.sleep_s(params.slice_s)
    rng = random.Random(f"{step.seed}/{step.arm}")
    scale = params.effect if context.arm and context.arm.role == "dut" else 1.0
    ttft_s = _TTFT_S * scale * (1 + rng.gauss(0, params.round_cv))
    values: dict[str, float] = dict.fromkeys(PROBES[step.probe].metrics, 0.0)
    stored = params.concurrency * 2.0**28 if context.arm and context.arm.kv == "storage" else 0.0
    values |= {name: ttft_s for name in values if name.startswith("ttft_")}
    values |= {
        "tpot_p50_s": 0.05,
        "output_tokens_per_s": params.concurrency * _OUTPUT_TOKENS / (1.2 * ttft_s),
        "requests_ok": float(params.concurrency),
        "external_hit_tokens": params.concurrency * 2048.0 if stored else 0.0,
        "external_hit_ratio": 1.0,
        "stored_bytes": stored,
        "stored_ratio": 1.0,
        "array_cache_evicted_ratio": 2.0,
        "device_read_bytes": stored,
        "expected_read_bytes": stored,
        "ledger_ratio": 1.0,
        "wave_bandwidth_bytes_per_s": stored / ttft_s,
        "medium_proven": 1.0,
    }
    values |= params.overrides
    units = PROBES[step.probe].metrics
    return Measured(
        basis="simulated",
        metrics={
            name: Metric(value, units[name], params.concurrency, f"raw/{step.id}/fake")
            for name, value in values.items()
            if name not in params.without
        },
    )


def _write_pieces(context: Context) -> None:
    """Real, fsynced writes, so that a kill can land in the middle of a step."""
    for folder in (context.raw_dir, *context.data_dirs):
        with (folder / "fake").open("wb") as file:
            for _ in range(_PIECES):
                file.write(b"x" * kv.PAGE_TOKENS)
                file.flush()
                os.fsync(file.fileno())
