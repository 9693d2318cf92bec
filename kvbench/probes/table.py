"""The one literal table of probes, name → ProbeSpec. Pure; a probe's module is imported on its first use.

A check on a metric that no step yields is refused by `plan.py`; a probe that yields another one is an internal error.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from kvbench import kv
from kvbench.model import Arm
from kvbench.probes import cost, metrics, params
from kvbench.probes.context import Probe
from kvbench.probes.cost import Cost


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """`metrics` maps each name to its unit. `cost(params, arm, shape)`: shape is the arm's model, if it has one.

    `on_devices`: the probe takes a node that is a block device as it is; the others need folders.
    """

    call: str  # "module:function"
    params: type
    metrics: Mapping[str, str]
    cost: Callable[[Any, Arm | None, kv.ModelShape | None], Cost]
    on_devices: bool = False

    def load(self) -> Probe:
        module, function = self.call.split(":")
        return cast(Probe, getattr(importlib.import_module(module), function))


PROBES: Mapping[str, ProbeSpec] = {
    "host.environment": ProbeSpec(
        call="kvbench.host.environment:measure",
        params=params.EnvironmentParams,
        metrics={"processors": "count", "memory_bytes": "B"},
        cost=cost.environment,
    ),
    "host.inventory": ProbeSpec(
        call="kvbench.host.inventory:measure",
        params=params.InventoryParams,
        metrics=metrics.INVENTORY_METRICS,
        cost=cost.inventory,
        on_devices=True,
    ),
    "host.health": ProbeSpec(
        call="kvbench.host.health:measure",
        params=params.HealthParams,
        metrics=metrics.HEALTH_METRICS,
        cost=cost.inventory,
        on_devices=True,
    ),
    "fio.verify": ProbeSpec(
        call="kvbench.fio.verify:measure",
        params=params.VerifyParams,
        metrics=metrics.VERIFY_METRICS,
        cost=cost.verify,
        on_devices=True,
    ),
    "fio.profile": ProbeSpec(
        call="kvbench.fio.probe:measure",
        params=params.FioParams,
        metrics=metrics.FIO_METRICS,
        cost=cost.fio,
        on_devices=True,
    ),
    "fio.steady": ProbeSpec(
        call="kvbench.fio.steady:measure",
        params=params.SteadyParams,
        metrics=metrics.STEADY_METRICS,
        cost=cost.steady,
        on_devices=True,
    ),
    "kv.pages": ProbeSpec(
        call="kvbench.pages.probe:measure", params=params.KvPagesParams, metrics=metrics.PAGE_METRICS, cost=cost.pages
    ),
    "kv.churn": ProbeSpec(
        call="kvbench.pages.churn:measure", params=params.ChurnParams, metrics=metrics.CHURN_METRICS, cost=cost.churn
    ),
    "store.checkpoint": ProbeSpec(
        call="kvbench.checkpoint.probe:measure",
        params=params.CheckpointParams,
        metrics=metrics.CHECKPOINT_METRICS,
        cost=cost.checkpoint,
    ),
    "load.cold_recovery": ProbeSpec(
        call="kvbench.load.cold_recovery:measure",
        params=params.ColdRecoveryParams,
        metrics=metrics.COLD_RECOVERY_METRICS,
        cost=cost.cold_recovery,
    ),
    "fake.wave": ProbeSpec(
        call="kvbench.fake:measure",
        params=params.FakeParams,
        metrics={**metrics.COLD_RECOVERY_METRICS, **metrics.FIO_METRICS},
        cost=cost.fake,
    ),
}
