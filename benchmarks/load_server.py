"""The server that the load generators are held against: built, started, and asked for its word on every request."""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TTFT_S, INTERVAL_S = 0.2, 0.01
_HINT = "give its path with --mock or in KVBENCH_MOCKLLM"


@dataclass(frozen=True)
class Truth:
    """What the server recorded of one request. Monotonic nanoseconds."""

    arrived_ns: int
    first_ns: int
    done_ns: int
    tokens: int

    @property
    def ttft_s(self) -> float:
        return (self.first_ns - self.arrived_ns) / 1e9


@dataclass
class Server:
    url: str
    real_time: bool
    folder: Path

    def forget(self) -> None:
        """Drop the records."""
        self.ask("reset")

    def truth(self) -> dict[str, Truth]:
        """By the id that the client gave in X-Request-Id, else by the id of the reply; answered requests only."""
        path = self.folder / "truth.csv"
        self.ask(f"dump?path={path}")
        with path.open() as lines:
            rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
        return {
            row["rid"] or f"chatcmpl-{int(row['seq']):012}": Truth(
                int(row["t_arr"]), int(row["t_firstc"]), int(row["t_done"]), int(row["ntok"])
            )
            for row in rows
            if row["status"] == "200" and row["t_firstc"] != "0"
        }

    def most_connections(self) -> int:
        return int(json.loads(self.ask("stats"))["peak_conns"])

    def ask(self, what: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}/ctl/{what}", timeout=60) as answer:
            return bytes(answer.read())


def build(source: Path) -> Path:
    """Compile the server; ends the program where that cannot be."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not Path(source).is_file():
        sys.exit(f"the server's source is not at {source}: {_HINT}")
    if compiler is None:
        sys.exit("there is no C compiler to build the server: install gcc")
    program = Path(tempfile.mkdtemp(prefix="mockllm-")) / "mockllm"
    subprocess.run([compiler, "-O2", "-w", "-o", program, source], check=True)
    return program


@contextmanager
def serving(program: Path, folder: Path) -> Iterator[Server]:
    """Run the server, at real-time priority where that is permitted: else a busy client would make it late."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    child = subprocess.Popen([program, "--port", str(port), "--rt"], stderr=subprocess.DEVNULL)
    try:
        server = Server(f"http://127.0.0.1:{port}", False, folder)
        while not _listens(port):
            time.sleep(0.01)
        server.real_time = os.sched_getscheduler(child.pid) == os.SCHED_FIFO
        server.ask(f"set?ttft_us={round(TTFT_S * 1e6)}&itl_us={round(INTERVAL_S * 1e6)}&n=64&usage=2")
        yield server
    finally:
        child.kill()
        child.wait()
        shutil.rmtree(program.parent)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True
