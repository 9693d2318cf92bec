"""What machine this is: kernel, processors, memory, clock, tools. Parsers are pure; `root` is `/` outside tests."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from kvbench import process
from kvbench.errors import StepError
from kvbench.host.machine.sysfs import content

TOOLS = {
    "fio": "--version",
    "nvme": "version",
    "smartctl": "--version",
    "lspci": "--version",
}  # and what makes each say its version
_SLASH = Path("/")
_STA_UNSYNC = 0x40  # adjtimex(2): the kernel's clock is not kept by NTP or PTP


@dataclass(frozen=True, slots=True)
class Machine:
    """`processors` are those that we may run on; `governors` is empty where the kernel does not set the frequency.

    `clock_synchronised` is None where the kernel does not say.
    """

    kernel: str
    architecture: str
    distribution: str
    cpu_model: str
    virtual: bool
    processors: int
    memory_bytes: int
    numa_nodes: int
    governors: tuple[str, ...]
    clock_source: str
    clock_synchronised: bool | None


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that was found, and the first line of what it says of its version."""

    path: str
    version: str


def observe(root: Path = _SLASH) -> Machine:
    """The machine as the kernel describes it."""
    devices = root / "sys/devices/system"
    cpuinfo = content(root / "proc/cpuinfo")
    governors = {content(file) for file in devices.glob("cpu/cpu[0-9]*/cpufreq/scaling_governor")} - {""}
    return Machine(
        kernel=platform.release(),
        architecture=platform.machine(),
        distribution=parse_distribution(content(root / "etc/os-release")),
        cpu_model=parse_cpu_model(cpuinfo),
        virtual=bool(re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE)),
        processors=len(os.sched_getaffinity(0)),
        memory_bytes=parse_memory_bytes(content(root / "proc/meminfo")),
        numa_nodes=len(list(devices.glob("node/node[0-9]*"))) or 1,
        governors=tuple(sorted(governors)),
        clock_source=content(devices / "clocksource/clocksource0/current_clocksource"),
        clock_synchronised=_clock_synchronised(),
    )


def parse_distribution(os_release: str) -> str:
    """PRETTY_NAME of os-release(5), or ""."""
    match = re.search(r"""^PRETTY_NAME=["']?(.*?)["']?$""", os_release, re.MULTILINE)
    return match[1] if match else ""


def parse_cpu_model(cpuinfo: str) -> str:
    """The processor's name from /proc/cpuinfo, which calls it differently on other architectures, or ""."""
    match = re.search(r"^(?:model name|cpu model|Model|cpu)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else ""


def parse_memory_bytes(meminfo: str, key: str = "MemTotal") -> int:
    """A size of /proc/meminfo. Raises StepError."""
    match = re.search(rf"^{key}:\s*(\d+) kB$", meminfo, re.MULTILINE)
    if not match:
        raise StepError("/proc/meminfo does not say how much memory there is")
    return int(match[1]) * 1024


def available_memory_bytes() -> int:
    """Memory that programs can still take without swapping, as the kernel estimates it. Raises StepError."""
    return parse_memory_bytes(content(_SLASH / "proc/meminfo"), "MemAvailable")


def find_tools() -> dict[str, Tool | None]:
    """Each of TOOLS, looked up also where cron's PATH does not reach; None where it is not installed."""
    return {name: _tool(name, ask) for name, ask in TOOLS.items()}


def _tool(name: str, ask: str) -> Tool | None:
    path = process.find_tool(name)
    if path is None:
        return None
    try:
        said = process.run([path, ask], timeout_s=10)
    except StepError as error:
        return Tool(path, error.message)
    lines = (said.stdout.strip() or said.stderr.strip()).splitlines()
    return Tool(path, lines[0] if lines else "says no version")


class _Timex(ctypes.Structure):
    """The head of adjtimex(2)'s structure, as far as `status`, and room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def _clock_synchronised() -> bool | None:
    """Asked of the kernel, so that it does not matter which daemon keeps the time. Modes 0: nothing is set."""
    answer = _Timex()
    if ctypes.CDLL(None).adjtimex(ctypes.byref(answer)) < 0:
        return None
    return not answer.status & _STA_UNSYNC
