"""Against a server that stamps what it sends: the client reports when tokens came, not when it got round to them."""

from __future__ import annotations

import csv
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from socket import create_connection, socket
from statistics import median

import pytest

from kvbench import clock, process
from kvbench.load import prompts, schedule
from kvbench.load.client import Request, run

SOURCE = Path(__file__).parents[3] / "shared" / "loadgen" / "mockllm.c"
TTFT_S, STREAMS, TOKENS = 0.1, 32, 8


@pytest.fixture
def truthful_server(tmp_path) -> Iterator[str]:
    if not SOURCE.exists() or process.find_tool("gcc") is None:
        pytest.skip("the server's source or a C compiler is not here")
    program = tmp_path / "mockllm"
    assert process.run(["gcc", "-O2", "-w", "-o", str(program), str(SOURCE)]).returncode == 0
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with process.start([str(program), "--port", str(port)]):
        while True:
            try:
                create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                clock.sleep_s(0.01)
        yield f"http://127.0.0.1:{port}"


def ask(url: str) -> None:
    urllib.request.urlopen(url, timeout=10).read()


def test_time_to_first_token_is_the_servers_own(truthful_server, tmp_path):
    ask(f"{truthful_server}/ctl/set?n={TOKENS}&ttft_us={round(TTFT_S * 1e6)}&itl_us=5000&role=1")
    body = prompts.chat_body("mock", "hello", TOKENS)
    requests = [Request(f"r{i}", body, "/v1/chat/completions", None, TOKENS) for i in range(STREAMS)]
    rows = run([truthful_server], requests, schedule.wave(STREAMS)).rows
    ask(f"{truthful_server}/ctl/dump?path={tmp_path / 'truth.csv'}")
    lines = [line for line in (tmp_path / "truth.csv").read_text().splitlines() if not line.startswith("#")]
    truth = {row["rid"]: row for row in csv.DictReader(lines)}
    assert [row.error_class for row in rows] == [""] * STREAMS
    assert truth.keys() == {row.request_id for row in rows}
    errors_ns = []
    for row in rows:
        seen = truth[row.request_id]
        errors_ns.append(abs(row.first_token_ns - row.sent_ns - (int(seen["t_firstc"]) - int(seen["t_arr"]))))
    assert median(errors_ns) / 1e9 < TTFT_S / 10
