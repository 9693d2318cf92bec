"""What this machine can and cannot do for a joint test, each line with its fix.

`examine` looks (and tries, where looking does not prove it); `diagnose` turns what it saw into lines, and is pure.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kvbench import clock, process
from kvbench.errors import KvbenchError, StepError
from kvbench.fio.runner import require_fio
from kvbench.host.activity import pagecache
from kvbench.host.activity.pressure import pressure_share, read_pressure
from kvbench.host.machine import system
from kvbench.host.machine.blockdev import BlockDevice, Medium, medium_of, read_counters
from kvbench.host.machine.system import Machine, Tool
from kvbench.report.pdf import CJK_FONTS, LIBRARIES, has_cjk_font

State = Literal["OK", "warn", "missing"]

_ENGINES = ("libaio", "io_uring")  # of fio, that keep many requests in flight from one thread
_PRESSURE_LIMIT = 0.05  # of an idle machine
_PRESSURE_S = 1.0
_DIRECT_BYTES = 4096
_DROP_CACHES = "/proc/sys/vm/drop_caches"


@dataclass(frozen=True, slots=True)
class Line:
    """One ability: what was found, and what to do about it ("" when nothing is to be done)."""

    subject: str
    state: State
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """What was seen of one folder. `why_not_direct` is "" when a direct write and read came back right."""

    path: str
    medium: Medium
    why_not_direct: str
    why_not_counted: str
    exists: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was seen. `why_no_…` are "" when the ability is there; engines are those that really ran."""

    machine: Machine
    tools: Mapping[str, Tool | None]
    why_no_fio: str
    fio_engines: tuple[str, ...]
    can_drop_caches: bool
    has_cachestat: bool
    dies_with_parent: bool
    why_no_pdf: str
    has_cjk_font: bool
    cpu_pressure_share: float | None
    folders: tuple[FolderFacts, ...]


# ---------------------------------------------------------------- from facts to lines, pure


def diagnose(facts: Facts) -> tuple[Line, ...]:
    """One line per ability, in the order in which a test needs them."""
    return (
        *_driver_lines(facts),
        *_tool_lines(facts.tools),
        *_cache_lines(facts),
        *(line for folder in facts.folders for line in _folder_lines(folder)),
        *_report_lines(facts),
        *_machine_lines(facts.machine),
        _pressure_line(facts.cpu_pressure_share),
    )


def _driver_lines(facts: Facts) -> Iterator[Line]:
    fio = facts.tools["fio"]
    if fio is None:
        yield Line("fio", "missing", "not installed", "apt-get install fio, or dnf install fio")
        return
    if facts.why_no_fio:
        yield Line("fio", "missing", facts.why_no_fio, "install a newer fio")
        return
    yield Line("fio", "OK", f"{fio.version} at {fio.path}")
    run, blocked = ", ".join(facts.fio_engines), ", ".join(name for name in _ENGINES if name not in facts.fio_engines)
    if not blocked:
        yield Line("fio engines", "OK", f"{run} run")
        return
    yield Line(
        "fio engines",
        "warn" if run else "missing",
        f"{run} run, {blocked} cannot" if run else f"{blocked} cannot run",
        "a fio built with it, a kernel that has it, and no seccomp filter or kernel.io_uring_disabled against it",
    )


def _tool_lines(tools: Mapping[str, Tool | None]) -> Iterator[Line]:
    for name, subject, package, use in (
        ("nvme", "nvme-cli", "nvme-cli", "no NVMe health and paths"),
        ("smartctl", "smartctl", "smartmontools", "no health of SATA and SAS drives"),
        ("lspci", "lspci", "pciutils", "GPUs that have no tool of their own stay unnamed"),
    ):
        tool = tools[name]
        if tool:
            yield Line(subject, "OK", f"{tool.version} at {tool.path}")
        else:
            yield Line(subject, "missing", f"not installed: {use}", f"apt-get install {package}")


def _cache_lines(facts: Facts) -> Iterator[Line]:
    yield (
        Line("drop caches", "OK", f"{_DROP_CACHES} can be written")
        if facts.can_drop_caches
        else Line(
            "drop caches",
            "warn",
            f"{_DROP_CACHES} cannot be written; files are evicted one by one, cached metadata stays",
            "run as root, outside a container that mounts /proc read-only",
        )
    )
    yield (
        Line("page cache", "OK", "residency by cachestat")
        if facts.has_cachestat
        else Line(
            "page cache", "warn", "no cachestat; residency by mincore, which maps every file", "Linux 6.5 or newer"
        )
    )
    yield (
        Line("child processes", "OK", "die with kvbench, also when it is killed")
        if facts.dies_with_parent
        else Line(
            "child processes", "warn", "may outlive a killed run until it is resumed", "apt-get install util-linux"
        )
    )


def _folder_lines(folder: FolderFacts) -> Iterator[Line]:
    if not folder.exists:  # what the folder above it lies on would say nothing of the storage
        yield Line(f"folder {folder.path}", "missing", "does not exist", "mount the storage there, or correct the path")
        return
    yield (
        Line(f"direct I/O in {folder.path}", "OK", "a direct write came back by a direct read")
        if not folder.why_not_direct
        else Line(
            f"direct I/O in {folder.path}",
            "missing",
            folder.why_not_direct,
            "a folder that can be written on ext4, XFS, or another file system with O_DIRECT",
        )
    )
    medium, names = folder.medium, ", ".join(_named(device) for device in folder.medium.devices)
    kind = f"{medium.mount.fs_type} on " if medium.mount else ""
    yield (
        Line(f"medium of {folder.path}", "OK", kind + names)
        if medium.proven
        else Line(
            f"medium of {folder.path}",
            "warn",
            f"unproven: {medium.why_unproven}",
            "a file system on a physical drive or a fabric namespace; without it a run is a demonstration",
        )
    )
    yield (
        Line(f"block counters of {folder.path}", "OK", names)
        if not folder.why_not_counted
        else Line(
            f"block counters of {folder.path}",
            "missing",
            folder.why_not_counted,
            "a file system on a block device of this host; without counters there is no byte ledger",
        )
    )


def _named(device: BlockDevice) -> str:
    told = ", ".join(part for part in (device.model, device.transport) if part)
    return f"{device.name} ({told})" if told else device.name


def _report_lines(facts: Facts) -> Iterator[Line]:
    yield (
        Line("PDF", "OK", "weasyprint and its libraries load")
        if not facts.why_no_pdf
        else Line("PDF", "missing", facts.why_no_pdf, f"apt-get install {LIBRARIES}; the HTML report needs none of it")
    )
    yield (
        Line("Chinese font", "OK", "found by fontconfig")
        if facts.has_cjk_font
        else Line("Chinese font", "warn", "none: Chinese text in a PDF would be boxes", f"apt-get install {CJK_FONTS}")
    )


def _machine_lines(seen: Machine) -> Iterator[Line]:
    yield Line("kernel", "OK", f"Linux {seen.kernel}, {seen.distribution or 'unknown distribution'}")
    yield Line("processors", "OK", f"{seen.processors} × {seen.cpu_model or seen.architecture}")
    good = seen.clock_source in ("tsc", "arch_sys_counter", "timebase", "kvm-clock", "hyperv_clocksource_tsc_page")
    yield Line(
        "clock source",
        "OK" if good else "warn",
        seen.clock_source or "unknown",
        "" if good else "a slow or coarse source blurs latencies: boot with clocksource=tsc where the processor has it",
    )
    yield (
        Line("clock synchronised", "OK", "kept by NTP or PTP")
        if seen.clock_synchronised
        else Line(
            "clock synchronised",
            "warn",
            "the kernel's clock is not kept by NTP or PTP",
            "start chrony or systemd-timesyncd; durations are right without it, stamps of several hosts are not",
        )
    )
    held = [name for name in seen.governors if name != "performance"]
    yield Line(
        "CPU governor",
        "warn" if held else "OK",
        ", ".join(seen.governors) or "none: the frequency is not set by this kernel",
        "cpupower frequency-set -g performance" if held else "",
    )
    if seen.virtual:
        yield Line(
            "virtual machine",
            "warn",
            "processors and disks are the hypervisor's, and shared for all one can see",
            "a joint test belongs on the bare machine",
        )


def _pressure_line(share: float | None) -> Line:
    if share is None:
        return Line("CPU pressure", "missing", "the kernel does not count it", "boot with psi=1 (Linux 4.20 or newer)")
    busy = share > _PRESSURE_LIMIT
    found = f"tasks waited for a processor during {100 * share:.1f} % of a second"
    return Line("CPU pressure", "warn" if busy else "OK", found, "end what else is running" if busy else "")


# ---------------------------------------------------------------- looking and trying


def examine(folders: Sequence[Path]) -> Facts:
    """Look at this machine and at each folder. Writes one small file into each folder, and removes it."""
    before = read_pressure()
    clock.sleep_s(_PRESSURE_S)
    cpu_pressure_share = pressure_share(before, read_pressure())
    tools = system.find_tools()
    why_no_fio = _why_no_fio()
    return Facts(
        machine=system.observe(),
        tools=tools,
        why_no_fio=why_no_fio,
        fio_engines=() if why_no_fio else tuple(name for name in _ENGINES if _engine_runs(name)),
        can_drop_caches=os.access(_DROP_CACHES, os.W_OK),
        has_cachestat=pagecache.has_cachestat(),
        dies_with_parent=process.find_tool("setpriv") is not None,
        why_no_pdf=_why_no_pdf(),
        has_cjk_font=has_cjk_font(),
        cpu_pressure_share=cpu_pressure_share,
        folders=tuple(_look_at(folder) for folder in folders),
    )


def _why_no_fio() -> str:
    try:
        require_fio()
    except KvbenchError as error:
        return error.message
    return ""


def _engine_runs(name: str) -> bool:
    """Whether fio can read one block by this engine: a build may lack it, and a kernel or a filter forbid it."""
    argv = ["fio", "--name=doctor", f"--ioengine={name}", "--filename=/dev/zero", "--rw=read", "--size=4096"]
    try:
        return process.run(argv, timeout_s=20).returncode == 0
    except StepError:
        return False


def _why_no_pdf() -> str:
    """Tried in a process of its own, since a library that is missing may take the process with it."""
    try:
        tried = process.run([sys.executable, "-c", "import weasyprint"], timeout_s=60)
    except StepError as error:
        return error.message
    lines = tried.stderr.strip().splitlines()
    return "" if tried.returncode == 0 else lines[-1] if lines else f"weasyprint ended with {tried.returncode}"


def _look_at(folder: Path) -> FolderFacts:
    medium = medium_of(folder)
    why_not_counted = "" if medium.devices else medium.why_unproven
    try:
        read_counters(medium.devices)
    except StepError as error:
        why_not_counted = error.message
    return FolderFacts(str(folder), medium, why_not_direct(folder), why_not_counted, folder.exists())


def why_not_direct(folder: Path) -> str:
    """Write a block past the page cache, read it back the same way, compare; "" when it came back right."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=".kvbench-doctor-", dir=folder)
    except OSError as error:
        return f"cannot write there: {error.strerror}"
    os.close(descriptor)
    try:
        return _direct_trial(name)
    except OSError as error:
        return f"O_DIRECT: {error.strerror}"
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


def _direct_trial(name: str) -> str:
    descriptor = os.open(name, os.O_RDWR | os.O_DIRECT)
    try:
        with mmap.mmap(-1, _DIRECT_BYTES) as written, mmap.mmap(-1, _DIRECT_BYTES) as came_back:  # aligned to pages
            written[:] = b"kvbench " * (_DIRECT_BYTES // 8)
            moved = os.pwrite(descriptor, written, 0), os.preadv(descriptor, [came_back], 0)
            right = moved == (_DIRECT_BYTES, _DIRECT_BYTES) and came_back[:] == written[:]
    finally:
        os.close(descriptor)
    return "" if right else "what was written did not come back"
