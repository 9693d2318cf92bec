"""The probe `host.health`: what an arm's drives say of their own health, and what the array's settings are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvbench.host.machine import settings
from kvbench.host.machine.blockdev import BlockDevice, media_of
from kvbench.host.machine.nvme import parse_smart_log
from kvbench.host.machine.smart import Smart, first_told, parse_smartctl
from kvbench.host.machine.tools import ask
from kvbench.model import Metric, Step, Storage
from kvbench.probes.context import Context, Measured
from kvbench.probes.metrics import HEALTH_METRICS


def measure(step: Step, context: Context) -> Measured:
    """Read every drive's health log once. Raises StepError when the arm has no storage, or the settings hook hangs."""
    storage = context.storage
    context.progress("asking the drives for their health", None)
    smarts = smart_counters(media_of(map(Path, storage.nodes)).devices, context.raw_dir)
    is_dut = context.arm is not None and context.arm.role == "dut"  # the hook is about the storage under test
    shown = settings.show(context.target.hooks.get("show_settings")) if is_dut else settings.Settings()
    settings.keep(shown, context.raw_dir)
    facts: dict[str, Any] = {
        "smart": {name: asdict(smart) for name, smart in smarts.items()},
        "settings_declared": dict(storage.settings),
        "settings_declared_digest": settings.declaration_digest(storage.settings),
        "settings_shown_digest": shown.digest,
    }
    source = context.keep("health.json", facts)
    return Measured(
        metrics={**drive_metrics(smarts, storage, source), **_settings_metrics(shown, storage, source)},
        facts=facts,
        warnings=tuple(f"{name}: {note}" for name, smart in smarts.items() for note in smart.notes),
    )


# ---------------------------------------------------------------- the drives


def smart_counters(devices: Iterable[BlockDevice], raw_dir: Path | None = None) -> dict[str, Smart]:
    """What each leaf device's health log holds, by its name; a device once. Answers are kept in `raw_dir` if given.

    A drive without a log has its reason in `why_absent`, and None for every counter.
    """
    return {name: _ask(device, raw_dir) for name, device in {device.name: device for device in devices}.items()}


def _ask(device: BlockDevice, raw_dir: Path | None) -> Smart:
    nvme = device.transport.startswith("nvme")
    if device.virtual and not nvme:  # an emulated NVMe drive has a health log
        return Smart(why_absent=f"no SMART on a {device.transport or 'virtual'} disk")
    accounts = []
    if nvme:
        answer = ask(("nvme", "smart-log", device.node, "--output-format=json"), raw_dir)
        accounts.append(parse_smart_log(answer.stdout) if answer.stdout.strip() else Smart(why_absent=answer.complaint))
        ask(("nvme", "error-log", device.node, "--output-format=json"), raw_dir)
    answer = ask(("smartctl", "-j", "-x", device.node), raw_dir)
    accounts.append(
        parse_smartctl(answer.stdout, answer.status)[1] if answer.stdout.strip() else Smart(why_absent=answer.complaint)
    )
    return first_told(tuple(accounts))


def drive_metrics(smarts: Mapping[str, Smart], storage: Storage, source: str) -> dict[str, Metric]:
    """The worst of all drives for every figure; None with the reason when one drive does not tell it."""
    figures: Mapping[str, tuple[Callable[[Smart], float | None], Callable[[Iterable[float]], float]]] = {
        "critical_warning": (lambda smart: smart.critical_warning, max),
        "media_errors_total": (lambda smart: smart.media_errors, max),
        "spare_margin_share": (_spare_margin_share, min),
        "wear_share": (lambda smart: smart.wear_share, max),
        "wear_margin_share": (lambda smart: _minus(storage.wear_limit_share, smart.wear_share), min),
        "error_log_entries": (lambda smart: smart.error_log_entries, max),
        "temperature_max_c": (lambda smart: smart.temperature_c, max),
        "lifetime_written_bytes": (lambda smart: smart.written_bytes, sum),
    }
    return {name: _worst(name, smarts, of, worst, source) for name, (of, worst) in figures.items()}


def _spare_margin_share(smart: Smart) -> float | None:
    """None where a drive gives 0 % against a threshold of 0 %, as those without spare blocks do (Linux's nvmet)."""
    if smart.available_spare_share == smart.spare_threshold_share == 0:
        return None
    return _minus(smart.available_spare_share, smart.spare_threshold_share)


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _worst(
    name: str,
    smarts: Mapping[str, Smart],
    of: Callable[[Smart], float | None],
    worst: Callable[[Iterable[float]], float],
    source: str,
) -> Metric:
    values = {device: of(smart) for device, smart in smarts.items()}
    known = [value for value in values.values() if value is not None]
    if known and len(known) == len(values):
        return Metric(worst(known), HEALTH_METRICS[name], len(known), source)
    silent = [
        f"{device}: {smarts[device].why_absent or 'it keeps no such counter'}"
        for device, value in values.items()
        if value is None
    ]
    return Metric(
        None, HEALTH_METRICS[name], len(known), source, "; ".join(silent) or "no device is known to hold the data"
    )


# ---------------------------------------------------------------- the settings


def _settings_metrics(shown: settings.Settings, storage: Storage, source: str) -> dict[str, Metric]:
    note = shown.why_none or ("" if shown.digest else "the hook show_settings is about the storage under test")
    values: Mapping[str, tuple[int | None, str]] = {
        "settings_declared": (
            len(storage.settings) or None,
            "" if storage.settings else "the target has no storage.settings",
        ),
        "settings_fingerprint": (shown.fingerprint, note),
    }
    return {name: Metric(value, HEALTH_METRICS[name], 1, source, why) for name, (value, why) in values.items()}
