"""A drive's own account of its health, and the output of smartctl. Pure; nothing that is read raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from kvbench.host.machine.identity import Identity
from kvbench.host.machine.loose import first_object, mapping, mappings, number, text, whole

DATA_UNIT_BYTES = 512_000  # NVM Express Base Specification, SMART log: a unit is a thousand times 512 bytes
_NO_DATA = 0b11  # of the exit status: the command line was wrong, or the device could not be opened
_EXIT_BITS = {
    2: "a command to the drive failed",
    3: "the drive says that it is failing",
    4: "an attribute is below its threshold now",
    5: "an attribute was below its threshold in the past",
    6: "its error log holds errors",
    7: "its self-test log holds errors",
}  # smartctl(8), EXIT STATUS
_FAILING = 0b1000
_ATA_MEDIA_ERRORS = (5, 187, 198)  # reallocated sectors, reported uncorrectable, offline uncorrectable


@dataclass(frozen=True, slots=True)
class Smart:
    """Health counters of one drive since it was made; None where it does not keep one.

    `critical_warning` is NVMe's bit mask, 0 for a drive that is well; drives of other kinds have 1 when they say that
    they fail. Wear may exceed 1. `why_absent` is "" when there is a health log at all; `notes` are its other remarks.
    """

    critical_warning: int | None = None
    media_errors: int | None = None
    available_spare_share: float | None = None
    spare_threshold_share: float | None = None
    wear_share: float | None = None
    error_log_entries: int | None = None
    temperature_c: float | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    power_on_hours: int | None = None
    why_absent: str = ""
    notes: tuple[str, ...] = ()


def parse_smartctl(output: str, exit_status: int | None = None) -> tuple[Identity, Smart]:
    """`smartctl -j -x`: who the drive is and how it is. The exit status is a bit mask; bits 2 to 7 are findings."""
    report = first_object(output)
    about = mapping(report.get("smartctl"))
    status = exit_status if exit_status is not None else whole(about.get("exit_status")) or 0
    messages = tuple(text(message.get("string")) for message in mappings(about.get("messages")))
    if not about or status < 0 or status & _NO_DATA:
        return Identity(), Smart(why_absent="; ".join(filter(None, messages)) or "smartctl gave no report")
    notes = (*messages, *(said for bit, said in _EXIT_BITS.items() if status & 1 << bit))
    log = mapping(report.get("nvme_smart_health_information_log"))
    counters = of_nvme(log, number(log.get("temperature"))) if log else _of_others(report, bool(status & _FAILING))
    missing = "" if any(value is not None for value in counters.values()) else "the drive keeps no health log"
    return _identity(report), Smart(**counters, why_absent=missing, notes=tuple(filter(None, notes)))


def _identity(report: Mapping[str, Any]) -> Identity:
    size = whole(mapping(report.get("user_capacity")).get("bytes"))
    return Identity(
        model=text(report.get("model_name")) or text(report.get("scsi_model_name")),
        serial=text(report.get("serial_number")),
        firmware=text(report.get("firmware_version")) or text(report.get("scsi_revision")),
        capacity_bytes=size or None,
        logical_block_bytes=whole(report.get("logical_block_size")) or None,
    )


def of_nvme(log: Mapping[str, Any], temperature_c: float | None) -> dict[str, Any]:
    """The NVMe health log, by nvme-cli's names or smartctl's. They give the temperature in units of their own."""
    return {
        "critical_warning": whole(log.get("critical_warning")),
        "media_errors": whole(log.get("media_errors")),
        "available_spare_share": _share(log, "avail_spare", "available_spare"),
        "spare_threshold_share": _share(log, "spare_thresh", "available_spare_threshold"),
        "wear_share": _share(log, "percent_used", "percentage_used"),
        "error_log_entries": whole(log.get("num_err_log_entries")),
        "temperature_c": temperature_c,
        "read_bytes": _data_units(log.get("data_units_read")),
        "written_bytes": _data_units(log.get("data_units_written")),
        "power_on_hours": whole(log.get("power_on_hours")),
    }


def _share(log: Mapping[str, Any], *names: str) -> float | None:
    percent = next((whole(log[name]) for name in names if name in log), None)
    return None if percent is None else percent / 100


def _data_units(units: object) -> int | None:
    found = whole(units)
    return None if found is None else found * DATA_UNIT_BYTES


def _of_others(report: Mapping[str, Any], failing: bool) -> dict[str, Any]:
    """SATA and SAS drives: the verdict of the drive, its uncorrected errors, temperature and hours."""
    passed = mapping(report.get("smart_status")).get("passed")
    return {
        "critical_warning": int(failing or passed is False) if isinstance(passed, bool) or failing else None,
        "media_errors": _ata_media_errors(report) if "ata_smart_attributes" in report else _scsi_media_errors(report),
        "wear_share": _share(report, "scsi_percentage_used_endurance_indicator"),
        "error_log_entries": _ata_error_log(report),
        "temperature_c": number(mapping(report.get("temperature")).get("current")),
        "power_on_hours": whole(mapping(report.get("power_on_time")).get("hours")),
    }


def _ata_media_errors(report: Mapping[str, Any]) -> int | None:
    table = mappings(mapping(report.get("ata_smart_attributes")).get("table"))
    found = [whole(mapping(row.get("raw")).get("value")) for row in table if row.get("id") in _ATA_MEDIA_ERRORS]
    return _known_sum(found)


def _scsi_media_errors(report: Mapping[str, Any]) -> int | None:
    log = mapping(report.get("scsi_error_counter_log"))
    found = [whole(mapping(log.get(way)).get("total_uncorrected_errors")) for way in ("read", "write", "verify")]
    return _known_sum(found)


def _known_sum(found: list[int | None]) -> int | None:
    known = [value for value in found if value is not None]
    return sum(known) if known else None


def _ata_error_log(report: Mapping[str, Any]) -> int | None:
    logs = mapping(report.get("ata_smart_error_log"))
    return next((n for log in logs.values() if (n := whole(mapping(log).get("count"))) is not None), None)


def first_told(smarts: tuple[Smart, ...]) -> Smart:
    """One account from several tools: of each counter the first that has it. Absent only when all are."""
    reasons = [smart.why_absent for smart in smarts if smart.why_absent]
    values = {
        field.name: next((v for smart in smarts if (v := getattr(smart, field.name)) is not None), None)
        for field in fields(Smart)
        if field.name not in ("why_absent", "notes")
    }
    absent = "; ".join(dict.fromkeys(reasons)) if len(reasons) == len(smarts) else ""
    return Smart(**values, why_absent=absent, notes=tuple(note for smart in smarts for note in smart.notes))
