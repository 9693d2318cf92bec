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

    `on_devices`: the probe takes a node that is a block device; the others need folders. One that `keeps_pages` takes
    it as a store of them (`store/deviceindex.py`), the others as it is.
    """

    module: str  # with the probe as `measure`
    params: type
    metrics: Mapping[str, str]
    cost: Callable[[Any, Arm | None, kv.ModelShape | None], Cost]
    on_devices: bool = False
    keeps_pages: bool = False

    def load(self) -> Probe:
        return cast(Probe, importlib.import_module(self.module).measure)


PROBES: Mapping[str, ProbeSpec] = {
    "host.environment": ProbeSpec(
        "kvbench.host.environment",
        params.EnvironmentParams,
        {"processors": "count", "memory_bytes": "B"},
        cost.environment,
    ),
    "host.inventory": ProbeSpec(
        "kvbench.host.inventory", params.InventoryParams, metrics.INVENTORY_METRICS, cost.inventory, on_devices=True
    ),
    "host.health": ProbeSpec(
        "kvbench.host.health", params.HealthParams, metrics.HEALTH_METRICS, cost.inventory, on_devices=True
    ),
    "fio.verify": ProbeSpec(
        "kvbench.fio.verify", params.VerifyParams, metrics.VERIFY_METRICS, cost.verify, on_devices=True
    ),
    "fio.profile": ProbeSpec("kvbench.fio.probe", params.FioParams, metrics.FIO_METRICS, cost.fio, on_devices=True),
    "fio.steady": ProbeSpec(
        "kvbench.fio.steady", params.SteadyParams, metrics.STEADY_METRICS, cost.steady, on_devices=True
    ),
    "kv.pages": ProbeSpec(
        "kvbench.pages.probe",
        params.KvPagesParams,
        metrics.PAGE_METRICS,
        cost.pages,
        on_devices=True,
        keeps_pages=True,
    ),
    "kv.churn": ProbeSpec(
        "kvbench.pages.churn",
        params.ChurnParams,
        metrics.CHURN_METRICS,
        cost.churn,
        on_devices=True,
        keeps_pages=True,
    ),
    "store.checkpoint": ProbeSpec(
        "kvbench.checkpoint.probe", params.CheckpointParams, metrics.CHECKPOINT_METRICS, cost.checkpoint
    ),
    "load.cold_recovery": ProbeSpec(
        "kvbench.load.cold_recovery",
        params.ColdRecoveryParams,
        metrics.COLD_RECOVERY_METRICS,
        cost.cold_recovery,
        on_devices=True,
        keeps_pages=True,
    ),
    "load.scaling": ProbeSpec("kvbench.load.scaling", params.ScalingParams, metrics.SCALING_METRICS, cost.scaling),
    "fake.wave": ProbeSpec(
        "kvbench.fake", params.FakeParams, {**metrics.COLD_RECOVERY_METRICS, **metrics.FIO_METRICS}, cost.fake
    ),
}
