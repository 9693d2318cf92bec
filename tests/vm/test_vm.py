"""Gates on a real NVMe controller: QEMU's emulated one, with a Debian kernel, throttled drives and kvbench's wheel.

`make test-vm`; about half an hour on two busy processors. What the drives are is known from outside: QEMU's options.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from guests import EMPTY, FAST, MAKE_FS, MODEL, SLOW, Lab, Run, acceptance, arm, device, folder
from ruamel.yaml import YAML

from kvbench.content import content_root

pytestmark = pytest.mark.slow

SESSIONS, SESSION_TOKENS = 4, 513  # two full pages each: 268 MB, thirteen seconds from the slow drive
PREDICTED_REDUCTION = 1 - SLOW.bytes_per_s / FAST.bytes_per_s
UNKNOWN_OVER_TCP = {
    "links-full", "spare",  # loopback has no PCIe link, and nvmet keeps no spare blocks
    "settings-declared", "settings-kept",  # the target states neither settings nor a data sheet
    "read-bandwidth", "write-bandwidth", "read-iops", "write-iops",
}  # fmt: skip
NQN = "nqn.2014-08.org.kvbench:tcp"
EXPORT = f"""
set -e
modprobe -a nvmet nvmet-tcp nvme-tcp
mount -t configfs configfs /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir subsystems/{NQN} subsystems/{NQN}/namespaces/1 ports/1
echo 1 >subsystems/{NQN}/attr_allow_any_host
echo KV-TCP-4 >subsystems/{NQN}/attr_serial
echo -n {device(EMPTY)} >subsystems/{NQN}/namespaces/1/device_path
echo 1 >subsystems/{NQN}/namespaces/1/enable
echo tcp >ports/1/addr_trtype
echo ipv4 >ports/1/addr_adrfam
echo 127.0.0.1 >ports/1/addr_traddr
echo 4420 >ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/{NQN} ports/1/subsystems/
nvme connect --transport=tcp --traddr=127.0.0.1 --trsvcid=4420 --nqn={NQN}
udevadm settle
"""


def firmware() -> str:
    """What QEMU's controller says of its firmware is QEMU's version, as far as 8 characters hold it."""
    told = subprocess.run(["qemu-system-x86_64", "--version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"version (\S+)", told)
    assert version
    return version[1][:8]


def ordered(**expect: Any) -> dict[str, Any]:
    return {"model": MODEL, "firmware": firmware(), "transport": "nvme-pcie", "device_count": 1} | expect


def small_g3(lab: Lab, rounds: int, waves: Sequence[int]) -> str:
    """G3 with other sizes, and without nodes that come and go."""
    gate = YAML(typ="safe").load(content_root() / "gates" / "g3.yaml")
    gate["rounds"] = rounds
    gate["steps"] = [step for step in gate["steps"] if step["id"] != "scaling"]
    gate["checks"] = [check for check in gate["checks"] if check["step"] != "scaling"]
    for step in gate["steps"]:
        step.pop("quick", None)
        if step["id"] == "ceiling":
            step["params"] = {"profile": "page-read", "size_bytes": "256 MiB", "runtime_s": 5}
        elif step["id"] == "wave":
            step["concurrency"] = list(waves)
    return lab.write(f"g3-{rounds}-{len(waves)}-{max(waves)}.yaml", gate)


def joint(dut: str, baseline: str) -> dict[str, Any]:
    """A target for G3: two folders, each on a drive."""
    arms = [arm("dut", "dut", {"nodes": [dut]}), arm("base", "baseline", {"nodes": [baseline]})]
    return {"version": 1, "name": "two NVMe drives", "session_tokens": SESSION_TOKENS, "arms": arms}


def waves(run: Run, arm_name: str = "") -> list[dict[str, Any]]:
    measured = [m for m in run.measurements if m["step_id"].startswith("wave") and m["step_id"].endswith(arm_name)]
    assert measured
    return measured


# ---------------------------------------------------------------- raw devices


@pytest.mark.parametrize(
    ("node", "words", "reason"),
    [
        (device(EMPTY), "", f"has the serial number {EMPTY.serial}, and no --destroy-data names it"),
        (device(EMPTY), "--destroy-data KV-OTHER", "and --destroy-data names KV-OTHER"),
        (device(FAST), f"--destroy-data {FAST.serial}", f"is mounted at {folder(FAST)}"),
        (device(FAST), f"--destroy-data {FAST.serial}", "holds the signature of ext4"),
        ("/dev/vda", "--destroy-data X", "does not tell its serial number"),
    ],
)
def test_a_device_that_may_not_be_written_over_is_refused(lab: Lab, node: str, words: str, reason: str) -> None:
    target = lab.write("refused.yaml", acceptance({"nodes": [node]}))
    done = lab.kvbench("run gate G1 --quick --yes --target", target, words)
    assert done.returncode == 4
    assert reason in done.stderr
    assert lab.guest.run("ls /tmp/kvbench-runs").returncode != 0


def test_a_gate_that_keeps_pages_in_files_takes_no_device(lab: Lab) -> None:
    target = lab.write("no-files.yaml", acceptance({"nodes": [device(EMPTY)]}))
    done = lab.kvbench("plan gate R1 --target", target, "--destroy-data", EMPTY.serial)
    assert (done.returncode, "keeps its pages in files" in done.stderr) == (4, True)


def test_an_empty_drive_that_is_named_is_accepted_without_a_file_system(lab: Lab) -> None:
    storage = {"nodes": [device(EMPTY)], "expect": ordered(serials=[EMPTY.serial], capacity_bytes=EMPTY.size_bytes)}
    run = lab.run_gate("g1-raw", "G1", acceptance(storage), "--quick", "--destroy-data", EMPTY.serial)
    assert run.verdict["outcome"] == "PASS", run.not_passed()


# ---------------------------------------------------------------- G1


def test_a_drive_as_ordered_is_accepted(lab: Lab) -> None:
    expect = ordered(serials=[FAST.serial], capacity_bytes=FAST.size_bytes, fs_type="ext4")
    run = lab.run_gate("g1", "G1", acceptance({"nodes": [folder(FAST)], "expect": expect}), "--quick")
    assert run.verdict["outcome"] == "PASS", run.not_passed()
    assert {f["outcome"] for f in run.findings("as-ordered")} == {"PASS"}
    assert len(run.findings("as-ordered")) == len(expect)


@pytest.mark.parametrize("wrong", [{"serials": ["KV-OTHER"]}, {"firmware": "9.9.9"}, {"capacity_bytes": 5 * 2**30}])
def test_another_drive_than_ordered_is_not(lab: Lab, wrong: dict[str, Any]) -> None:
    gate = YAML(typ="safe").load(content_root() / "gates" / "g1.yaml")
    gate["steps"] = [step for step in gate["steps"] if step["id"] == "inventory"]
    gate["checks"] = [check for check in gate["checks"] if check["step"] == "inventory"]
    (key,) = wrong
    storage = {"nodes": [folder(FAST)], "expect": ordered(serials=[FAST.serial]) | wrong}
    run = lab.run_gate(f"g1-wrong-{key}", lab.write("inventory.yaml", gate), acceptance(storage))
    assert run.verdict["outcome"] == "FAIL"
    assert [f["outcome"] for f in run.findings("as-ordered")].count("FAIL") == 1


# ---------------------------------------------------------------- G3


@pytest.fixture(scope="module")
def fast_against_slow(lab: Lab) -> Run:
    return lab.run_gate("g3", small_g3(lab, 3, (SESSIONS,)), joint(dut=folder(FAST), baseline=folder(SLOW)))


def test_the_reduction_of_ttft_is_what_the_bandwidths_predict(fast_against_slow: Run) -> None:
    (finding,) = fast_against_slow.findings("ttft-reduction")
    assert 1 - finding["observed"] == pytest.approx(PREDICTED_REDUCTION, abs=0.05)
    assert finding["outcome"] == "PASS", fast_against_slow.not_passed()


@pytest.mark.parametrize("arm_name", ["dut", "base"])
def test_drive_kernel_and_engine_agree_on_the_bytes(fast_against_slow: Run, arm_name: str) -> None:
    for wave in waves(fast_against_slow, arm_name):
        (reading,) = wave["facts"]["smart_read"]
        expected = wave["metrics"]["expected_read_bytes"]["value"]
        assert reading["block_bytes"] == pytest.approx(expected, rel=0.01)
        assert reading["smart_bytes"] == pytest.approx(expected, rel=0.01)
        assert not wave["warnings"]


def test_residency_is_told_by_mincore_where_the_kernel_has_no_cachestat(lab: Lab, fast_against_slow: Run) -> None:
    assert "False" in lab.guest.check(
        "python3 -c 'from kvbench.host.activity import pagecache; print(pagecache.has_cachestat())'"
    )
    for wave in waves(fast_against_slow):
        for moment in ("residency_before", "residency_after"):
            seen = wave["facts"][moment]
            assert (seen["method"], seen["resident_bytes"]) == ("mincore", 0)
            assert seen["total_bytes"] > 0


def test_a_drive_does_not_pass_against_itself(lab: Lab) -> None:
    run = lab.run_gate("g3-same", small_g3(lab, 2, (2,)), joint(dut=folder(SLOW), baseline=folder(SLOW)))
    (finding,) = run.findings("ttft-reduction")
    assert finding["observed"] == pytest.approx(1, abs=0.2)
    assert finding["outcome"] != "PASS"
    assert run.verdict["outcome"] != "PASS"


# ---------------------------------------------------------------- NVMe over TCP; after the tests of the empty drive


@pytest.fixture(scope="module")
def over_tcp(lab: Lab) -> str:
    """A folder on the empty drive, reached through NVMe/TCP on loopback."""
    if lab.guest.run("modprobe -a nvmet nvmet-tcp nvme-tcp").returncode:
        pytest.skip("the guest's kernel has no nvmet, nvmet-tcp or nvme-tcp")
    lab.guest.check(EXPORT)
    lab.guest.check(f"mkdir /mnt/tcp; d=/dev/disk/by-id/nvme-Linux_KV-TCP-4; {MAKE_FS} $d && mount $d /mnt/tcp")
    return "/mnt/tcp"


def test_a_namespace_over_tcp_is_as_ordered_with_its_transport_and_path(lab: Lab, over_tcp: str) -> None:
    """No demonstration: what the target does not state, and what loopback and nvmet do not have, is asked for."""
    expect = {"serials": ["KV-TCP-4"], "transport": "nvme-tcp", "paths": 1, "ana_state": "optimized"}
    run = lab.run_gate("g1-tcp", "G1", acceptance({"nodes": [over_tcp], "expect": expect}), "--quick")
    assert [f["outcome"] for f in run.findings("as-ordered")] == ["PASS"] * len(expect)
    assert run.verdict["outcome"] == "INCONCLUSIVE"
    assert run.not_passed().keys() == UNKNOWN_OVER_TCP, run.not_passed()
    (inventory,) = [m for m in run.measurements if m["step_id"].startswith("inventory")]
    (found,) = inventory["facts"]["inventory"]["devices"]
    (path,) = found["paths"]
    assert (path["transport"], path["state"]) == ("tcp", "live")
    assert "traddr=127.0.0.1" in path["address"]


def test_the_ledger_holds_over_tcp(lab: Lab, over_tcp: str) -> None:
    run = lab.run_gate("g3-tcp", small_g3(lab, 1, (2,)), joint(dut=over_tcp, baseline=folder(SLOW)))
    assert {f["outcome"] for f in run.findings("byte-ledger")} == {"PASS"}, run.not_passed()
    assert {f["outcome"] for f in run.findings("cold-hits")} == {"PASS"}
