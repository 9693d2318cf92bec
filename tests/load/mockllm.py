"""The server that stamps what it sends (../shared/loadgen), built and started for a test, and its word on a load."""

from __future__ import annotations

import csv
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection, socket

import pytest

from kvbench import clock, process

SOURCE = Path(__file__).parents[3] / "shared" / "loadgen" / "mockllm.c"


@dataclass
class Mock:
    url: str
    folder: Path

    def set(self, **options: object) -> None:
        self._ask("set?" + "&".join(f"{key}={value}" for key, value in options.items()))

    def truth(self) -> dict[str, dict[str, str]]:
        """What the server recorded of each request since the last `forget`, by the client's request id."""
        path = self.folder / "truth.csv"
        self._ask(f"dump?path={path}")
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        found = list(csv.DictReader(lines))
        by_id = {row["rid"]: row for row in found}
        assert len(by_id) == len(found), "a request came twice"
        return by_id

    def forget(self) -> None:
        self._ask("reset")

    def _ask(self, what: str) -> None:
        urllib.request.urlopen(f"{self.url}/ctl/{what}", timeout=30).read()


@contextmanager
def mock_server(folder: Path) -> Iterator[Mock]:
    """Skips the test where the source or a compiler is missing."""
    if not SOURCE.exists() or process.find_tool("gcc") is None:
        pytest.skip("the server's source or a C compiler is not here")
    program = folder / "mockllm"
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
        yield Mock(f"http://127.0.0.1:{port}", folder)
