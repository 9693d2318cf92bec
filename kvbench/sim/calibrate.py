"""Device and engine models fitted to a measured run, and held against the cells that they were not fitted on.

Every wave is simulated with the arm's engine. Its TTFT and its duration are nearly linear in what is not known: the
engine's time per work (× `slowdown` of the roofline), the device's time per byte, and two constants, before loading
and after the tokens. So two simulations a cell, at two rates, give the coefficients, and least squares of relative
errors give the unknowns, none of them negative. Leave one out: each cell is predicted from a fit on all the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kvbench import kv
from kvbench import plan as plans
from kvbench.engine.protocol import EngineConfig
from kvbench.errors import UsageError
from kvbench.model import Arm, Measurement, Plan, Step
from kvbench.probes.params import ColdRecoveryParams
from kvbench.sim.device import NodeModel
from kvbench.sim.roofline import cost
from kvbench.sim.waves import Rig, Sessions

PROBE = "load.cold_recovery"
_RATE = 10**9  # at which waves are simulated first, and then at half of it


@dataclass(frozen=True, slots=True)
class ObservedCell:
    """What was measured in a cell of an arm: medians over its rounds. `step` is one of them."""

    arm: Arm
    step: Step
    concurrency: int
    ttft_p50_s: float
    tokens_per_s: float
    rounds: int

    @property
    def name(self) -> str:
        return f"{self.arm.name} {self.step.cell}"


@dataclass(frozen=True, slots=True)
class Fit:
    """`rates`: bytes per second of each storage arm's device."""

    slowdown: float
    before_s: float
    after_s: float
    rates_bytes_per_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Held:
    """A cell and its prediction by the others; None where they do not tell its device's rate."""

    cell: ObservedCell
    ttft_p50_s: float | None
    tokens_per_s: float | None

    @property
    def errors(self) -> tuple[float, float] | None:
        if self.ttft_p50_s is None or self.tokens_per_s is None:
            return None
        return self.ttft_p50_s / self.cell.ttft_p50_s - 1, self.tokens_per_s / self.cell.tokens_per_s - 1


@dataclass(frozen=True, slots=True)
class Calibration:
    fit: Fit
    held: tuple[Held, ...]

    @property
    def errors(self) -> list[float]:
        """Absolute, of TTFT and throughput of all cells that could be predicted."""
        return [abs(error) for each in self.held for error in each.errors or ()]


@dataclass(frozen=True, slots=True)
class _Line:
    """Seconds of a wave = `compute_s` · slowdown + `bytes_s` ÷ rate + constants; of its TTFT, and of all of it."""

    compute_s: tuple[float, float]
    bytes_s: tuple[float, float]


def calibrate(plan: Plan, measurements: Iterable[Measurement]) -> Calibration:
    """Raises UsageError when a run has fewer than two cells of cold recovery, or an engine that is not known."""
    cells = observed(plan, measurements)
    if len(cells) < 2:
        raise UsageError(
            f"the run has {len(cells)} measured cells of {PROBE}, and two are needed: one is fitted on the other",
            "a run of gate G3, like kvbench run gate G3 --quick",
        )
    lines = [_line(cell) for cell in cells]
    held = [_hold(index, cells, lines) for index in range(len(cells))]
    return Calibration(_fit(cells, lines), tuple(held))


def observed(plan: Plan, measurements: Iterable[Measurement]) -> list[ObservedCell]:
    """The cells of a run, in the order of its plan; those without both figures are left out."""
    by_step = {measurement.step_id: measurement for measurement in measurements if not measurement.error}
    found: dict[tuple[str, str], list[tuple[Step, float, float]]] = defaultdict(list)
    for step in plan.steps:
        metrics = by_step[step.id].metrics if step.probe == PROBE and step.id in by_step else {}
        values = [metrics[name].value for name in ("ttft_p50_s", "output_tokens_per_s") if name in metrics]
        if len(values) == 2 and values[0] and values[1]:
            found[step.arm, step.cell].append((step, values[0], values[1]))
    return [
        ObservedCell(
            arm=plan.target.arm(arm),
            step=rows[0][0],
            concurrency=_params(rows[0][0]).concurrency,
            ttft_p50_s=median(ttft_s for _, ttft_s, _ in rows),
            tokens_per_s=median(rate for _, _, rate in rows),
            rounds=len(rows),
        )
        for (arm, _), rows in found.items()
    ]


def _params(step: Step) -> ColdRecoveryParams:
    params: ColdRecoveryParams = plans.parse_params(step)
    return params


# ---------------------------------------------------------------- the coefficients, by simulation


def _line(cell: ObservedCell) -> _Line:
    if cell.arm.kv == "recompute":
        return _Line(_simulated(cell, None), (0.0, 0.0))
    full, half = _simulated(cell, _RATE), _simulated(cell, _RATE // 2)
    bytes_s = tuple((slow - fast) * _RATE for slow, fast in zip(half, full, strict=True))
    compute_s = tuple(max(0.0, fast - size / _RATE) for fast, size in zip(full, bytes_s, strict=True))
    return _Line((compute_s[0], compute_s[1]), (bytes_s[0], bytes_s[1]))


def _simulated(cell: ObservedCell, rate_bytes_per_s: int | None) -> tuple[float, float]:
    """TTFT p50 and duration of the cell's wave on a device of this rate."""
    params, engine = _params(cell.step), cell.arm.engine
    config = EngineConfig(
        cost(f"arm {cell.arm.name}", engine.model, engine.accelerator, engine.tensor_parallel),
        page_tokens=params.chunk_tokens,
        host_memory_bytes=engine.host_memory_bytes,
        blocking_loads=engine.kind != "emulated",
    )
    device = NodeModel.of_rate(rate_bytes_per_s) if rate_bytes_per_s else None
    pages = kv.full_pages(params.session_tokens, params.chunk_tokens)
    sessions = Sessions(pages, params.session_tokens, params.output_tokens)
    wave = Rig(config, device, sessions, instances=1, most=cell.concurrency, seed=cell.step.seed).wave(cell.concurrency)
    return wave.ttft_s[0][(cell.concurrency - 1) // 2], wave.wall_s


# ---------------------------------------------------------------- the unknowns, by least squares


def _fit(cells: Sequence[ObservedCell], lines: Sequence[_Line]) -> Fit:
    import numpy as np
    from scipy import optimize

    arms = list(dict.fromkeys(cell.arm.name for cell in cells if cell.arm.kv == "storage"))
    rows = []
    for cell, line in zip(cells, lines, strict=True):
        on_device = [float(cell.arm.name == name) for name in arms]
        for figure, seconds in enumerate((cell.ttft_p50_s, _duration_s(cell))):
            row = [line.compute_s[figure], 1.0, float(figure), *(line.bytes_s[figure] * at for at in on_device)]
            rows.append([value / seconds for value in row])
    matrix = np.array(rows)
    scales = np.where(matrix.any(axis=0), np.abs(matrix).max(axis=0), 1.0)
    unknowns, _ = optimize.nnls(matrix / scales, np.ones(len(rows)))
    slowdown, before_s, after_s, *per_byte_s = (float(value) for value in unknowns / scales)
    rates = {name: 1 / seconds for name, seconds in zip(arms, per_byte_s, strict=True) if seconds > 0}
    return Fit(slowdown, before_s, after_s, rates)


def _hold(index: int, cells: Sequence[ObservedCell], lines: Sequence[_Line]) -> Held:
    others = [other for other in range(len(cells)) if other != index]
    fit = _fit([cells[other] for other in others], [lines[other] for other in others])
    cell, line = cells[index], lines[index]
    rate = fit.rates_bytes_per_s.get(cell.arm.name)
    if cell.arm.kv == "storage" and rate is None:
        return Held(cell, None, None)
    ttft_s, duration_s = (
        line.compute_s[figure] * fit.slowdown + (line.bytes_s[figure] / rate if rate else 0.0) + fit.before_s
        for figure in (0, 1)
    )
    tokens = cell.concurrency * _params(cell.step).output_tokens
    return Held(cell, ttft_s, tokens / (duration_s + fit.after_s))


def _duration_s(cell: ObservedCell) -> float:
    return cell.concurrency * _params(cell.step).output_tokens / cell.tokens_per_s
