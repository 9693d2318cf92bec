"""What the doctor says of a machine, and that it says it anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.doctor import Facts, FolderFacts, diagnose, why_not_direct
from kvbench.host.machine.blockdev import BlockDevice, Medium
from kvbench.host.machine.mounts import parse_mountinfo
from kvbench.host.machine.system import TOOLS, Machine, Tool

DRIVE = BlockDevice("nvme1n1", "259:1", "PM9A3", "S1", False, False, "", "nvme-pcie", 512)
MEDIUM = Medium(parse_mountinfo("20 1 259:1 / /mnt/kv rw - xfs /dev/nvme1n1 rw")[0], (DRIVE,), "")
FOLDER = FolderFacts("/mnt/kv", MEDIUM, "", "")
TMPFS = replace(
    FOLDER,
    medium=Medium(None, (), "tmpfs is memory"),
    why_not_direct="O_DIRECT: Invalid argument",
    why_not_counted="tmpfs is memory",
)
MACHINE = Machine("6.8.0", "x86_64", "Debian", "EPYC", False, 64, 2**38, 2, ("performance",), "tsc", True)
GOOD = Facts(
    machine=MACHINE,
    tools={name: Tool(f"/usr/sbin/{name}", f"{name}-3.33") for name in TOOLS},
    why_no_fio="",
    fio_engines=("libaio", "io_uring"),
    can_drop_caches=True,
    has_cachestat=True,
    dies_with_parent=True,
    why_no_pdf="",
    has_cjk_font=True,
    cpu_pressure_share=0.0,
    folders=(FOLDER,),
)


def test_a_machine_with_everything_needs_no_fix() -> None:
    assert {(line.state, line.fix) for line in diagnose(GOOD)} == {("OK", "")}


@pytest.mark.parametrize(
    ("change", "subject", "state", "words"),
    [
        ({"tools": {**GOOD.tools, "fio": None}}, "fio", "missing", "apt-get install fio"),
        ({"why_no_fio": "/opt/fio is fio-2.2, which is too old"}, "fio", "missing", "newer fio"),
        ({"fio_engines": ("libaio",)}, "fio engines", "warn", "libaio run, io_uring cannot"),
        ({"fio_engines": ()}, "fio engines", "missing", "libaio, io_uring cannot run"),
        ({"tools": {**GOOD.tools, "nvme": None}}, "nvme-cli", "missing", "apt-get install nvme-cli"),
        ({"tools": {**GOOD.tools, "smartctl": None}}, "smartctl", "missing", "apt-get install smartmontools"),
        ({"tools": {**GOOD.tools, "lspci": None}}, "lspci", "missing", "apt-get install pciutils"),
        ({"can_drop_caches": False}, "drop caches", "warn", "run as root"),
        ({"has_cachestat": False}, "page cache", "warn", "Linux 6.5"),
        ({"dies_with_parent": False}, "child processes", "warn", "util-linux"),
        ({"folders": (TMPFS,)}, "direct I/O in /mnt/kv", "missing", "Invalid argument"),
        ({"folders": (TMPFS,)}, "medium of /mnt/kv", "warn", "unproven: tmpfs is memory"),
        ({"folders": (TMPFS,)}, "block counters of /mnt/kv", "missing", "no byte ledger"),
        ({"why_no_pdf": "cannot load library 'pango'"}, "PDF", "missing", "apt-get install libpango"),
        ({"has_cjk_font": False}, "Chinese font", "warn", "fonts-noto-cjk"),
        ({"machine": replace(MACHINE, clock_source="hpet")}, "clock source", "warn", "clocksource=tsc"),
        ({"machine": replace(MACHINE, clock_synchronised=False)}, "clock synchronised", "warn", "chrony"),
        ({"machine": replace(MACHINE, clock_synchronised=None)}, "clock synchronised", "warn", "chrony"),
        ({"machine": replace(MACHINE, governors=("performance", "powersave"))}, "CPU governor", "warn", "cpupower"),
        ({"machine": replace(MACHINE, virtual=True)}, "virtual machine", "warn", "bare machine"),
        ({"cpu_pressure_share": 0.3}, "CPU pressure", "warn", "30.0 %"),
        ({"cpu_pressure_share": None}, "CPU pressure", "missing", "psi=1"),
    ],
)
def test_what_is_not_there_is_named_with_its_fix(change: dict[str, Any], subject: str, state: str, words: str) -> None:
    (line,) = (line for line in diagnose(replace(GOOD, **change)) if line.subject == subject)
    assert line.state == state
    assert line.fix
    assert words in f"{line.found}; {line.fix}"


def test_a_kernel_that_sets_no_frequency_has_nothing_to_fix() -> None:
    assert all(line.state == "OK" for line in diagnose(replace(GOOD, machine=replace(MACHINE, governors=()))))


def test_every_folder_gets_its_own_lines() -> None:
    subjects = [line.subject for line in diagnose(replace(GOOD, folders=(FOLDER, replace(FOLDER, path="/mnt/b"))))]
    assert len(subjects) == len(set(subjects))
    assert {"medium of /mnt/kv", "medium of /mnt/b"} <= set(subjects)


def test_nothing_is_said_of_the_disk_above_a_folder_that_is_not_there() -> None:
    lines = [
        line for line in diagnose(replace(GOOD, folders=(replace(FOLDER, exists=False),))) if "/mnt/kv" in line.subject
    ]
    assert [(line.state, line.found) for line in lines] == [("missing", "does not exist")]
    assert "mount" in lines[0].fix


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    assert why_not_direct(tmp_path / "gone") == "cannot write there: No such file or directory"


def test_the_trial_of_direct_io_leaves_nothing(tmp_path: Path) -> None:
    assert isinstance(why_not_direct(tmp_path), str)
    assert list(tmp_path.iterdir()) == []


def test_it_answers_in_an_empty_environment_and_exits_0(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from kvbench.cli.main import main; main()", "doctor", str(tmp_path)]
    file = tmp_path / "doctor.json"
    done = subprocess.run(
        ["env", "-i", "PATH=/usr/bin:/bin", *command, "--json", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = json.loads(file.read_text())
    assert len(done.stdout.splitlines()) == len(lines)  # plain: one line an ability, never wrapped
    assert {line["state"] for line in lines} <= {"OK", "warn", "missing"}
    assert all(line["fix"] for line in lines if line["state"] != "OK")
    found = {line["subject"]: line["found"] for line in lines}
    for tool, subject in (("nvme", "nvme-cli"), ("smartctl", "smartctl")):
        if Path(f"/usr/sbin/{tool}").exists():
            assert f"/usr/sbin/{tool}" in found[subject]
