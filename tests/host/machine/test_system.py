"""What machine this is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvbench.errors import StepError
from kvbench.host.machine.system import (
    TOOLS,
    find_tools,
    observe,
    parse_cpu_model,
    parse_distribution,
    parse_memory_bytes,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\n',
            "Debian GNU/Linux 12 (bookworm)",
        ),
        ("PRETTY_NAME='openEuler 22.03'\n", "openEuler 22.03"),
        ("PRETTY_NAME=Alpine\n", "Alpine"),
        ("ID=x\n", ""),
        ("", ""),
    ],
)
def test_the_distribution_by_its_pretty_name(text: str, name: str) -> None:
    assert parse_distribution(text) == name


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9654\n", "AMD EPYC 9654"),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        ("processor\t: 0\nBogoMIPS\t: 200.00\nCPU implementer\t: 0x48\n", ""),  # many an ARM server
        ("", ""),
    ],
)
def test_the_processor_by_the_name_that_its_architecture_gives(text: str, model: str) -> None:
    assert parse_cpu_model(text) == model


def test_memory_is_in_bytes() -> None:
    assert parse_memory_bytes("MemTotal:       24684096 kB\nMemFree:        1 kB\n") == 24684096 * 1024


def test_memory_that_is_not_told_is_no_zero() -> None:
    with pytest.raises(StepError, match="how much memory"):
        parse_memory_bytes("MemFree: 1 kB\n")


def test_governors_nodes_and_clock_source_from_sys(tmp_path: Path) -> None:
    devices = tmp_path / "sys/devices/system"
    for name, text in (
        ("cpu/cpu0/cpufreq/scaling_governor", "performance"),
        ("cpu/cpu1/cpufreq/scaling_governor", "powersave"),
        ("cpu/cpu11/cpufreq/scaling_governor", "performance"),
        ("node/node0/cpulist", "0"),
        ("node/node1/cpulist", "1"),
        ("clocksource/clocksource0/current_clocksource", "tsc"),
    ):
        (devices / name).parent.mkdir(parents=True)
        (devices / name).write_text(text + "\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 4 kB\n")
    (tmp_path / "proc/cpuinfo").write_text("flags\t\t: fpu hypervisor lahf_lm\n")
    seen = observe(tmp_path)
    assert seen.governors == ("performance", "powersave")
    assert (seen.numa_nodes, seen.clock_source, seen.virtual, seen.memory_bytes) == (2, "tsc", True, 4096)


def test_this_machine() -> None:
    seen = observe()
    assert seen.processors == len(os.sched_getaffinity(0))
    assert seen.memory_bytes > 2**28
    assert seen.kernel == os.uname().release


def test_every_tool_has_an_answer() -> None:
    assert set(find_tools()) == set(TOOLS)
