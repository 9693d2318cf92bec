"""Sections of gate G1: what the storage is, how its drives are, and whether it keeps what it is given. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kvbench.judge.as_ordered import said
from kvbench.model import GateStep, Outcome
from kvbench.report.document import Entry, Run, Section, Table
from kvbench.report.figures import ABSENT, code, figure, number, text
from kvbench.report.tables import NOT_MEASURED, metrics_by_step, told_by
from kvbench.units import format_bytes

Fact = Mapping[str, Any]
Facts = Sequence[tuple[str, Fact]]  # arm, and what one step found of it


def inventory(gate_step: GateStep, run: Run) -> list[Section]:
    """What was ordered and found, then what the arms live on, from the file system down."""
    taken = run.steps(gate_step.id)
    facts: Facts = [(step.arm, measured.facts) for step, measured in taken if not measured.error]
    tables = (
        _table("What was ordered", _ORDERED, facts, lambda fact: fact["expectations"]),
        _table("File systems", _NODES, facts, lambda fact: fact["inventory"]["nodes"]),
        _table("Devices", _DEVICES, facts, lambda fact: fact["inventory"]["devices"]),
        _table("NVMe paths", _PATHS, facts, _paths),
        _table("Ports on the way to a fabric target", _PORTS, facts, lambda fact: fact["inventory"]["ports"]),
        _table("Accelerators", _GPUS, facts, lambda fact: fact["inventory"]["gpus"]),
    )
    notes = [f"Arm {step.arm}: not measured: {measured.error}" for step, measured in taken if measured.error]
    absent = dict.fromkeys(why for _, fact in facts for why in fact["not_available"].values())
    notes += [f"Not available here: {'; '.join(absent)}."] if absent else []
    return [Section("Inventory", gate_step.why, tables=tuple(filter(None, tables)), notes=(*notes, *told_by(taken)))]


_Columns = Sequence[tuple[str, Callable[[Fact], Entry]]]


def _table(title: str, columns: _Columns, facts: Facts, rows_of: Callable[[Fact], Iterable[Fact]]) -> Table | None:
    """A row a thing, behind the name of its arm; None where no arm has such a thing."""
    rows = [(text(arm), *(say(row) for _, say in columns)) for arm, fact in facts for row in rows_of(fact)]
    return Table(title, ("Arm", *(heading for heading, _ in columns)), tuple(rows)) if rows else None


def _told(key: str) -> Callable[[Fact], Entry]:
    return lambda fact: text(_words(fact[key]))


def _size(key: str) -> Callable[[Fact], Entry]:
    return lambda fact: Entry(number(fact[key], "B"), numeric=True)


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value)) or ABSENT
    return ABSENT if value in (None, "") else str(value)


def _identity(say: Callable[[Fact], Entry]) -> Callable[[Fact], Entry]:
    return lambda device: say(device["identity"])


def _ok(held: Fact) -> Entry:
    outcome = {True: Outcome.PASS, False: Outcome.FAIL, None: Outcome.INCONCLUSIVE}[held["ok"]]
    return Entry(str(outcome), outcome=outcome)


def _link(link: Fact) -> str:
    """`16 GT/s ×4`, and what it could be where it is less."""
    runs, could = (f"{link[f'{m}speed_gt_s']:g} GT/s ×{link[f'{m}width']}" for m in ("", "max_"))
    return runs if runs == could else f"{runs}, could be {could}"


def _links(device: Fact) -> Entry:
    return text("; ".join(_link(link) for link in device["links"]) or ABSENT)


def _paths(fact: Fact) -> Iterator[Fact]:
    """Of devices that more than one controller, or a fabric, leads to."""
    for device in fact["inventory"]["devices"]:
        if len(device["paths"]) > 1 or any(path["transport"] != "pcie" for path in device["paths"]):
            yield from (
                {**path, "device": device["name"], "policy": device["multipath_policy"]} for path in device["paths"]
            )


def _port_link(port: Fact) -> Entry:
    return text(_link(port["link"]) if port["link"] else ABSENT)


def _rdma(port: Fact) -> Entry:
    return text(
        f"{port['rdma']['device']} port {port['rdma']['port']}, {port['rdma']['state']}" if port["rdma"] else ABSENT
    )


def _trouble(port: Fact) -> Entry:
    counters = port["rdma"]["counters"] if port["rdma"] else {}
    return text(", ".join(f"{name} {value:,}" for name, value in counters.items() if value) or ABSENT)


_ORDERED: _Columns = (
    ("What", lambda held: code(held["key"])),
    ("Ordered", lambda held: text(said(held["key"], held["expected"]))),
    ("Found", lambda held: text(ABSENT if held["found"] is None else said(held["key"], held["found"]))),
    ("Finding", _ok),
    ("Looked for in", lambda held: code(held["source"])),
)
_NODES: _Columns = (
    ("Folder", lambda node: code(node["path"])),
    ("File system", _told("fs_type")),
    ("Source", _told("source")),
    ("Size", _size("size_bytes")),
    ("Free", _size("free_bytes")),
    ("Devices", _told("devices")),
    ("Mount options", _told("mount_options")),
    ("Medium", lambda node: text(f"unproven: {node['why_unproven']}" if node["why_unproven"] else "proven")),
)
_DEVICES: _Columns = (
    ("Device", lambda device: code(device["name"])),
    ("Model", _identity(_told("model"))),
    ("Serial", _identity(_told("serial"))),
    ("Firmware", _identity(_told("firmware"))),
    ("Capacity", _identity(_size("capacity_bytes"))),
    ("Block", _identity(_size("logical_block_bytes"))),
    ("Transport", _told("transport")),
    ("PCIe link", _links),
    ("NUMA", _told("numa_node")),
    ("Scheduler", _told("scheduler")),
    ("Mounted at", _told("mounted_at")),
)
_PATHS: _Columns = (
    ("Device", lambda path: code(path["device"])),
    ("Controller", lambda path: code(path["controller"])),
    ("Transport", _told("transport")),
    ("Address", lambda path: code(path["address"])),
    ("State", _told("state")),
    ("ANA", _told("ana_state")),
    ("Policy", _told("policy")),
)
_PORTS: _Columns = (
    ("Interface", lambda port: code(port["interface"])),
    ("MTU", _told("mtu")),
    ("Gbit/s", _told("rate_gbit_s")),
    ("PCIe link", _port_link),
    ("RDMA", _rdma),
    ("Errors and congestion since boot", _trouble),
)
_GPUS: _Columns = (
    ("No", _told("index")),
    ("Name", _told("name")),
    ("Bus", lambda gpu: code(gpu["bus_id"])),
    ("Memory", _size("memory_bytes")),
    ("Driver", _told("driver")),
    ("Health", _told("health")),
)


# ---------------------------------------------------------------- health

_HEALTH = (
    ("Critical warning", "critical_warning"),
    ("Media errors", "media_errors_total"),
    ("Spare above its threshold", "spare_margin_share"),
    ("Wear", "wear_share"),
    ("Wear left of what was agreed", "wear_margin_share"),
    ("Error log entries", "error_log_entries"),
    ("Highest temperature", "temperature_max_c"),
    ("Written in the drives' lives", "lifetime_written_bytes"),
    ("Settings declared", "settings_declared"),
)
_DIGESTS = (
    ("Declared settings, SHA-256", "settings_declared_digest"),
    ("Shown settings, SHA-256", "settings_shown_digest"),
)


def health(gate_step: GateStep, run: Run) -> list[Section]:
    """One section for all steps that look at health, their figures side by side."""
    kinds = [step.id for step in run.plan.gate.steps if step.probe == gate_step.probe]
    if gate_step.id != kinds[0]:
        return []
    columns = [{step.arm: measured for step, measured in run.steps(kind)} for kind in kinds]
    arms = dict.fromkeys(arm for column in columns for arm in column)
    rows: list[tuple[Entry, ...]] = []
    for arm in arms:
        taken = [column.get(arm) for column in columns]
        for label, name in _HEALTH:
            rows.append((text(arm), text(label), *(figure(m.metrics.get(name) if m else None) for m in taken)))
        for label, name in _DIGESTS:
            shown = (m.facts.get(name, "")[:16] if m else "" for m in taken)
            rows.append((text(arm), text(label), *(code(digest or ABSENT) for digest in shown)))
    table = Table("Worst of each arm's drives", ("Arm", "Figure", *kinds), tuple(rows))
    looked = [step for kind in kinds for step in run.steps(kind)]
    notes = told_by(looked) if rows else NOT_MEASURED
    return [Section("Health and settings", gate_step.why, tables=(table,) if rows else (), notes=notes)]


# ---------------------------------------------------------------- integrity

_VERIFIED = (
    ("Blocks wrong", "verify_errors"),
    ("Read back", "verified_bytes"),
    ("Share of the capacity", "verified_share"),
)


def verified(gate_step: GateStep, run: Run) -> list[Section]:
    """What was written, read back, and came back wrong."""
    taken = run.steps(gate_step.id)
    checksums = {str(m.facts["checksum"]): int(m.facts["block_bytes"]) for _, m in taken if "checksum" in m.facts}
    note = "; ".join(f"{name} in every block of {format_bytes(size)}" for name, size in checksums.items())
    table = metrics_by_step("Written and read back", note, _VERIFIED, taken)
    notes = () if taken else NOT_MEASURED
    return [Section("Integrity", gate_step.why, tables=(table,) if table else (), notes=notes)]
