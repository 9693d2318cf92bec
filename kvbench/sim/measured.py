"""A measured run as a simulation: its dut's site, by the models that `calibrate` fits, and its largest wave as a load.

What waves do not tell is assumed: writes pass at the rate of reads, and the measured rate is shared evenly by nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvbench import plan as plans
from kvbench.errors import UsageError
from kvbench.load.workload import Block, Turn
from kvbench.model import Measurement, Plan
from kvbench.probes.params import ColdRecoveryParams
from kvbench.sim.calibrate import PROBE, Calibration, ObservedCell, calibrate, observed
from kvbench.sim.device import NodeModel
from kvbench.sim.site import Site


@dataclass(frozen=True, slots=True)
class Wave:
    """Sessions that are stored one after the other, and return at the same moment."""

    sessions: int
    prompt_tokens: int
    output_tokens: int
    settle_s: float

    @property
    def unseen(self) -> int:
        return self.sessions

    def turns(self, seed: int) -> list[Turn]:
        prompts = [(Block(f"session{number}", self.prompt_tokens),) for number in range(self.sessions)]
        stored = [
            Turn(f"store{number}", f"s{number}", prompt, 1, None if number else 0.0, f"store{number - 1}")
            for number, prompt in enumerate(prompts)
        ]
        returning = [
            Turn(f"r{number}", f"s{number}", prompt, self.output_tokens, None, stored[-1].id, self.settle_s)
            for number, prompt in enumerate(prompts)
        ]
        return stored + returning


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """`before_s`: what the fit puts before loading begins."""

    site: Site
    wave: Wave
    before_s: float
    calibration: Calibration


def of_run(name: str, plan: Plan, measurements: Iterable[Measurement], nodes: int | None = None) -> MeasuredRun:
    """`nodes`: as if so many shared the dut's rate; else as many as it has. Raises UsageError, as calibrate does."""
    measurements = list(measurements)
    calibration = calibrate(plan, measurements)
    cells = [each for each in observed(plan, measurements) if each.arm.role == "dut" and each.arm.storage]
    if not cells:
        raise UsageError(f"{name} has no measured wave of a dut with storage", f"a run with cells of {PROBE}")
    cell = max(cells, key=lambda each: each.concurrency)
    rate = calibration.fit.rates_bytes_per_s.get(cell.arm.name)
    if rate is None:
        raise UsageError(f"{name} does not tell the rate of {cell.arm.name}", "a run with more cells of that arm")
    params: ColdRecoveryParams = plans.parse_params(cell.step)
    wave = Wave(cell.concurrency, params.session_tokens, params.output_tokens, params.settle_dwell_s)
    count = nodes or (len(cell.arm.storage.nodes) if cell.arm.storage else 1)
    node = NodeModel.of_rate(round(rate / count))
    site = _site(cell, params.chunk_tokens, [node] * count, calibration.fit.slowdown)
    return MeasuredRun(site, wave, calibration.fit.before_s, calibration)


def _site(cell: ObservedCell, page_tokens: int, nodes: Sequence[NodeModel], slowdown: float) -> Site:
    engine = cell.arm.engine
    return Site(
        id=cell.name,
        why="Fitted to a measured run.",
        model=engine.model,
        accelerator=engine.accelerator,
        node=nodes[0],
        nodes=len(nodes),
        instances=max(1, len(engine.urls)),
        tensor_parallel=engine.tensor_parallel,
        page_tokens=page_tokens,
        slowdown=slowdown or 1.0,  # a fit that finds no computing at all leaves it to the roofline
    )
