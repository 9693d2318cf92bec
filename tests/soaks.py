"""Soaks on the probe made of arithmetic, for tests of what keeps them going and watches them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kvbench import content, plan
from kvbench.journal import RunFolder
from kvbench.model import Arm, Engine, Plan, Storage, Target

GATE = str(Path(__file__).parent / "fixtures" / "gates" / "fake-soak.yaml")


@cache
def make_plan(duration_s: float, slice_s: float, node: str = "/mnt/array") -> Plan:
    """The dut on `node` against recomputing: a slice of the dut in every round, a wave of both in every third."""
    arms = (
        Arm("dut", "dut", Engine(), storage=Storage((node,))),
        Arm("base", "baseline", Engine(), kv="recompute"),
    )
    options = plan.Options(duration_s=duration_s, slice_s=slice_s)
    return plan.make_plan(content.load_gate(GATE), Target("t", arms), content.model_shapes(), options)


def new_soak(where: Path, duration_s: float, slice_s: float) -> RunFolder:
    """A run folder `where/run` whose slices take `slice_s`, with a node beside it."""
    node = where / "node"
    node.mkdir()
    loaded = content.load_gate(GATE)
    return RunFolder.create(where / "run", make_plan(duration_s, slice_s, str(node)), loaded.files, loaded.source)
