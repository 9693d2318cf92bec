"""The roofline of a simulated instance: all of its ranks as one device. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from kvbench import content
from kvbench.engine import catalog
from kvbench.engine.cost import CostModel
from kvbench.errors import UsageError


@cache
def cost(asked_by: str, model: str, accelerator: str, tensor_parallel: int, slowdown: float = 1.0) -> CostModel:
    """An instance that takes `slowdown` times as long as its roofline. Raises UsageError for what kvbench does not
    know."""
    shapes = content.model_shapes()
    accelerators = catalog.accelerators(content.content_root() / "workloads" / "accelerators.yaml")
    for what, name, known in (("model", model, shapes), ("accelerator", accelerator, accelerators)):
        if name not in known:
            raise UsageError(f"{asked_by}: there is no {what} {name!r}", f"one of: {', '.join(known)}")
    return _as_one(CostModel(shapes[model], accelerators[accelerator], tensor_parallel), slowdown)


def _as_one(cost: CostModel, slowdown: float) -> CostModel:
    """A single device of the ranks' joint size: they read in lockstep, so one page stands for one of each.

    Raises UsageError where ranks keep copies of each other's values, so that this does not hold.
    """
    device, ranks = cost.accelerator, cost.tensor_parallel
    if cost.shape.replication(ranks) > 1:
        raise UsageError(
            f"{cost.shape.id} on {ranks} ranks keeps values more than once, which simulations do not model",
            "a model with at least as many KV heads as ranks",
        )
    pace = ranks / slowdown
    joint = replace(
        device,
        bf16_flops_per_s=device.bf16_flops_per_s * pace,
        fp8_flops_per_s=device.fp8_flops_per_s and device.fp8_flops_per_s * pace,
        memory_bytes=device.memory_bytes * ranks,
        memory_bytes_per_s=round(device.memory_bytes_per_s * pace),
    )
    return CostModel(cost.shape, joint, 1)
