"""fio on several hosts through its own server mode: here, two servers on the loopback stand for two hosts."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from builders import make_context

from kvbench import process
from kvbench.errors import StepError
from kvbench.fio import probe, steady
from kvbench.fio.hosts import client, parts
from kvbench.model import Arm, Engine, Step, Storage
from kvbench.probes.context import Context
from kvbench.probes.params import FioParams, SteadyParams

needs_fio = pytest.mark.skipif(process.find_tool("fio") is None, reason="fio is not installed")
READ = {"rw": "randread", "bs": 65536, "ioengine": "psync", "direct": 0}
SIZE_BYTES = 8 << 20


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, ...]]:
    """Two fio servers, ended with the tests: each serves a connection in a process of its own."""
    with ExitStack() as stack:
        found = tuple(stack.enter_context(_server()) for _ in range(2))
        yield found


class _server:
    def __enter__(self) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.process = subprocess.Popen(
            ["fio", f"--server=127.0.0.1,{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
        )
        while self.process.poll() is None:
            with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.02)
        return f"127.0.0.1:{port}"

    def __exit__(self, *_: object) -> None:
        process.end_group(self.process)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    nodes = tuple(tmp_path / f"node{number}" for number in range(2))
    arm = Arm("dut", "dut", Engine(), storage=Storage(tuple(map(str, nodes))))
    return make_context(tmp_path, "hosts", arm, nodes)


def on(hosts: tuple[str, ...], context: Context, **storage: object) -> Context:
    assert context.arm and context.arm.storage
    arm = replace(context.arm, storage=replace(context.arm.storage, hosts=hosts, **storage))
    return replace(context, arm=arm)


def step(kind: str, options: dict[str, object], **params: object) -> Step:
    given = {"profile": "p", "options": options, "size_bytes": SIZE_BYTES, "runtime_s": 5, **params}
    return Step("s-dut", "s", kind, "dut", "", 0, given, 1, "none")


@needs_fio
def test_a_profile_is_spread_over_hosts_and_nodes_and_summed_over_them(
    context: Context, servers: tuple[str, ...]
) -> None:
    measured = probe.measure(step("fio.profile", READ), on(servers, context))
    assert measured.metrics["read_bytes"].value == SIZE_BYTES
    assert measured.metrics["read_bandwidth_bytes_per_s"].value
    assert measured.metrics["read_latency_p99_s"].n == SIZE_BYTES // 65536
    assert measured.facts["hosts"] == list(servers)
    files = {path.name: path.stat().st_size for node in context.data_dirs for path in node.iterdir()}
    assert files == {"fio-0.data": SIZE_BYTES // 4, "fio-1.data": SIZE_BYTES // 4}
    contents = [path.read_bytes() for node in context.data_dirs for path in node.iterdir()]
    blocks = {content[at : at + 4096] for content in contents for at in range(0, len(content), 4096)}
    assert len(blocks) == SIZE_BYTES // 4096


@needs_fio
def test_rounds_are_driven_from_all_hosts(
    context: Context, servers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steady, "_MOST_ROUNDS", 2)  # what ends them is tested apart, and fio on hosts starts slowly
    writes = {"rw": "write", "bs": 262144, "ioengine": "psync", "direct": 0}
    given = step("fio.steady", writes, round_bytes=SIZE_BYTES, precondition_passes=1)
    measured = steady.measure(given, on(servers, context))
    assert measured.metrics["preconditioned_bytes"].value == SIZE_BYTES
    rounds = pq.read_table(context.run_dir / measured.series["rounds"]).to_pylist()
    assert [row["bytes"] for row in rounds] == [SIZE_BYTES, SIZE_BYTES]


@needs_fio
def test_a_host_that_does_not_answer_is_named(context: Context, servers: tuple[str, ...]) -> None:
    with pytest.raises(StepError, match=r"failed to connect to 127.0.0.1:9\b"):
        probe.measure(step("fio.profile", READ), on((servers[0], "127.0.0.1:9"), context))


def test_a_part_has_its_share_of_size_rate_and_rounds(context: Context) -> None:
    given = on(("a", "b:9000"), context, rate_limit_bytes_per_s=10**6)
    first, second = parts(given)
    profile = FioParams("p", READ, 1000, 1.0)  # type: ignore[arg-type]
    assert (first.of(profile).size_bytes, second.rate_limit(given.arm.storage)) == (500, 500_000)  # type: ignore[union-attr]
    assert first.of(SteadyParams("p", {}, 1000, 1.0, round_bytes=100)).round_bytes == 50
    assert first.salt("1/1") != second.salt("1/1")
    assert not set(first.paths) & set(second.paths)


@pytest.mark.parametrize(
    ("host", "option"),
    [
        ("store-1", "--client=store-1"),
        ("10.0.0.1:8766", "--client=10.0.0.1,8766"),
        ("ip6:fe80::a", "--client=ip6:fe80::a"),
    ],
)
def test_a_host_may_have_a_port(host: str, option: str) -> None:
    assert client(host) == option
