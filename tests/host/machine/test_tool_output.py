"""What storage and accelerator tools print, with every oddity seen in the field, becomes the right values.

The fixtures are named after the cases that they keep.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.errors import KvbenchError
from kvbench.host.machine.gpu import (
    Gpu,
    parse_amd_smi,
    parse_lspci,
    parse_npu_smi,
    parse_nvidia_smi,
    parse_rocm_smi,
    parse_topology,
)
from kvbench.host.machine.identity import Identity
from kvbench.host.machine.lsblk import Disk, parse_lsblk
from kvbench.host.machine.numa import NumaNode, parse_numactl
from kvbench.host.machine.nvme import parse_list, parse_smart_log
from kvbench.host.machine.ports import parse_route
from kvbench.host.machine.rdma import RdmaPort, parse_ibstat
from kvbench.host.machine.smart import Smart, parse_smartctl

FIXTURES = Path(__file__).parents[2] / "fixtures" / "host"
SHARED = Path(__file__).parents[4] / "shared" / "cases" / "files"

Parser = Callable[[str], Any]
MIB = 2**20
X1 = Identity("Acme X1", "S1", "F2", 4096000, 512)
ARRAY = Identity("Acme X1", "S2", "F1", 8192000, 4096)

CASES: list[tuple[Parser, str, Any]] = [
    (parse_list, "N01-flat.json", {"nvme0n1": X1, "nvme1n1": ARRAY}),
    (parse_list, "N01-nested.json", {"nvme0n1": X1, "nvme1n1": ARRAY}),
    (parse_list, "N01-empty.json", {}),
    (parse_list, "N04-path-nodes.json", {"nvme0n1": Identity("Acme X1", "S1", "F1", 8192000, 4096)}),
    (
        parse_smart_log,
        "N06-kelvin.json",
        Smart(0, 0, 1.0, 0.1, 0.03, 7, 28.0, read_bytes=1_024_000, written_bytes=2_048_000, power_on_hours=12),
    ),
    (parse_smart_log, "N06-impossible-temperature.json", Smart(critical_warning=0)),
    (
        parse_smart_log,
        "N08-text-and-objects.json",
        Smart(4, 2, 0.09, 0.1, 1.04, None, 37.0, read_bytes=1_024_000, written_bytes=2_048_000),
    ),
    (parse_smart_log, "N01-empty.json", Smart(why_absent="nvme smart-log gave no health log")),
    (
        parse_smartctl,
        "N09-threshold-passed-in-the-past.json",
        (
            Identity("Acme D1", "S9", "0D1K4", 4096000, 512),
            Smart(
                critical_warning=0,
                media_errors=4,
                error_log_entries=2,
                temperature_c=36.0,
                power_on_hours=5,
                notes=("an attribute was below its threshold in the past",),
            ),
        ),
    ),
    (
        parse_smartctl,
        "N09-not-opened.json",
        (Identity(), Smart(why_absent="Smartctl open device: /dev/sda failed: Permission denied")),
    ),
    (
        parse_smartctl,
        "N09-failing-nvme.json",
        (
            Identity("Acme X1", "S1", "F2"),
            Smart(
                4,
                1,
                0.04,
                0.05,
                1.01,
                0,
                29.0,
                512_000,
                1_024_000,
                9,
                notes=("a warning", "the drive says that it is failing"),
            ),
        ),
    ),
    (
        parse_smartctl,
        "scsi-uncorrected.json",
        (
            Identity("ACME S1", "S3", "HPC3"),
            Smart(critical_warning=1, media_errors=3, wear_share=0.06, temperature_c=28.0),
        ),
    ),
    (parse_lsblk, "N13-mountpoint.json", {"sda": Disk(Identity("Acme D1", "S9", "", 4096000, 512), ("/boot", "/"))}),
    (
        parse_lsblk,
        "N13-mountpoints.json",
        {"vda": Disk(Identity(), ()), "vdb": Disk(Identity(capacity_bytes=8192), ("/a", "/b"))},
    ),
    (
        parse_amd_smi,
        "N15-permission-warning.txt",
        (Gpu("0", "Acme MI300X", "0000:05:00.0", 2 * MIB, "6.8.5"), Gpu("1", "")),
    ),
    (
        parse_rocm_smi,
        "rocm-units-in-keys.json",
        (Gpu("0", "Acme MI100", "0000:1E:00.0", 2 * MIB, "6.2.4"), Gpu("1", "0x73df", driver="6.2.4")),
    ),
    (parse_npu_smi, "N18-npu-smi.txt", (Gpu("1", "910A", "0000:81:00.0", 2 * MIB, "23.0.rc3", "Warning"),)),
    (
        parse_nvidia_smi,
        "nvidia-smi.csv",
        (
            Gpu("0", "Acme H100 80GB", "00000000:1B:00.0", 2 * MIB, "550.54.15"),
            Gpu("1", "Acme H100 80GB", "00000000:43:00.0", None, "550.54.15"),
        ),
    ),
    (
        parse_topology,
        "nvidia-topo.txt",
        {
            "GPU0": {"GPU0": "X", "GPU1": "NV18", "NIC0": "PIX"},
            "GPU1": {"GPU0": "NV18", "GPU1": "X", "NIC0": "SYS"},
            "NIC0": {"GPU0": "PIX", "GPU1": "SYS", "NIC0": "X"},
        },
    ),
    (
        parse_ibstat,
        "ibstat.txt",
        (
            RdmaPort("mlx5_0", 1, "Active", 400.0, "Ethernet", "28.39.1002"),
            RdmaPort("mlx5_1", 1, "Down", 40.0, "InfiniBand", "22.1"),
        ),
    ),
    (parse_numactl, "numactl.txt", (NumaNode(0, (0, 1, 4, 5), 2 * MIB, (10, 21)), NumaNode(1, (), 3 * MIB, (21, 10)))),
    (
        parse_lspci,
        "lspci.txt",
        (
            "06:00.0 3D controller [0302]: Acme GA102GL [A10] [10de:2236] (rev a1)",
            "0001:07:00.0 Processing accelerators [1200]: Huawei Device [19e5:d801]",
        ),
    ),
    (parse_route, "ip-route.json", "ens1f0"),
]


@pytest.mark.parametrize(("parse", "file", "expected"), CASES, ids=[f"{p.__name__}-{file}" for p, file, _ in CASES])
def test_every_oddity_is_read_as_what_it_means(parse: Parser, file: str, expected: Any) -> None:
    assert parse((FIXTURES / file).read_text()) == expected


def test_the_exit_status_that_was_seen_counts_more_than_the_one_in_the_report() -> None:
    text = (FIXTURES / "N09-threshold-passed-in-the-past.json").read_text()
    assert parse_smartctl(text, 64)[1].notes == ("its error log holds errors",)
    assert parse_smartctl(text, -9)[1].why_absent  # it was killed


REAL: list[tuple[Parser, str, Callable[[Any], object], Any]] = [
    (parse_list, "nvme/netdata-v2.3-nvme-list.json", list, ["nvme0n1", "nvme1n1"]),
    (parse_list, "nvme/netdata-v2.11-nvme-list.json", list, ["nvme0n1", "nvme1n1", "nvme2n1"]),
    (parse_smart_log, "nvme/netdata-v2.3-nvme-smart-log.json", lambda s: (s.temperature_c, s.wear_share), (37.0, 0.02)),
    (
        parse_smartctl,
        "smartctl/netdata-device-nvme0.json",
        lambda r: (r[1].temperature_c, r[1].error_log_entries),
        (39.0, 4),
    ),
    (parse_smartctl, "smartctl/scrutiny-smart-fail.json", lambda r: "Open failed" in r[1].why_absent, True),
    (
        parse_smartctl,
        "smartctl/scrutiny-smart-megaraid0.json",
        lambda r: (r[0].model, r[1].media_errors),
        ("WD4000FYYX", 0),
    ),
    (
        parse_smartctl,
        "smartctl/smartctl_exporter-HP_73.4G.json",
        lambda r: (r[0].firmware, r[1].temperature_c),
        ("HPC3", 28.0),
    ),
    (
        parse_smartctl,
        "smartctl/smartctl_exporter-INTEL_SSDPE2KX080T8_1.json",
        lambda r: (r[0].capacity_bytes, r[1].written_bytes),
        (None, 184919244 * 512_000),
    ),
    (parse_smartctl, "own-tools/smartctl-nosuch.json", lambda r: "No such device" in r[1].why_absent, True),
    (parse_smartctl, "own-tools/smartctl-devnull.json", lambda r: "Unable to detect" in r[1].why_absent, True),
    (parse_lsblk, "own-tools/lsblk-J.json", lambda disks: disks["vda"].mounted_at, ("/",)),
    (parse_lsblk, "lsblk/gpud-lsblk.1.json", lambda disks: disks["nvme0n1"].identity.capacity_bytes, 960197124096),
    (parse_lsblk, "lsblk/jc-centos-7.7-lsblk.out", dict, {}),
    (parse_ibstat, "ibstat/gpud-ibstat.47.0.h100.some.down.1", lambda ps: [p.state for p in ps].count("Down"), 2),
    (parse_rocm_smi, "rocm-smi/telegraf-mi100_rocm571.json", len, 6),
    (parse_rocm_smi, "rocm-smi/telegraf-vega-20-WKS-GL-XE.json", len, 1),
    (parse_rocm_smi, "rocm-smi/telegraf-rx6700xt_rocm430.json", lambda gpus: gpus[0].memory_bytes, 12868124672),
    (parse_npu_smi, "npu-smi/npu-smi-23.0.rc3-910A-warning.txt", lambda gpus: gpus[0].health, "Warning"),
    (parse_topology, "nvidia-smi/pkb-nvidia_smi_topo.txt", lambda links: links["GPU2"]["GPU3"], "OK"),
    (parse_numactl, "numa/hwbench-numa-8domains-stdout", len, 8),
    (parse_lspci, "lspci/gpud-lspci.nn.a10", len, 1),
    (parse_lspci, "lspci/gpud-lspci.nn.a100", len, 8),
]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the captured files are not beside the checkout")
@pytest.mark.parametrize(("parse", "file", "of", "expected"), REAL, ids=[file for _, file, _, _ in REAL])
def test_captured_output_of_real_tools(parse: Parser, file: str, of: Callable[[Any], object], expected: Any) -> None:
    assert of(parse((SHARED / file).read_text(errors="replace"))) == expected


TEXTS = [(parse, (FIXTURES / file).read_bytes()) for parse, file, _ in CASES]
PUT = [b"", b"null", b"-nan", b"[", b"{", b'"', b"9" * 400, b"\xff", b"1e999", b"|", b"true", b"\n", b" ", b"-5"]
EDIT = st.tuples(st.integers(0, 1000), st.integers(0, 30), st.sampled_from(PUT))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(TEXTS), st.lists(EDIT, min_size=1, max_size=6))
def test_no_bytes_make_a_parser_raise_anything_of_its_own(
    case: tuple[Parser, bytes], edits: list[tuple[int, int, bytes]]
) -> None:
    parse, data = case
    for at, length, put in edits:
        where = at * len(data) // 1000
        data = data[:where] + put + data[where + length :]
    with suppress(KvbenchError):
        parse(data.decode(errors="replace"))
