"""Bad input through the command line: one clear message, the exit code of docs/exit-codes.md, nothing half-written."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import command_line
import pytest
from command_line import Said
from small_runs import execute

from kvbench import content, plan, process, safety
from kvbench.journal import RunFolder
from kvbench.judge.verdict import judge
from kvbench.report import pdf

FAKE_GATE = Path(__file__).parent / "fixtures" / "gates" / "fake.yaml"
G3 = Path(__file__).parents[1] / "gates" / "g3.yaml"
USAGE, ENVIRONMENT, INTERRUPTED = 2, 4, 130
PATIENCE_S = 120.0
PIPE_BYTES = 4096  # the least there is
TARGET = """version: 1
name: a disk
session_tokens: 2049
arms:
  - name: dut
    role: dut
    storage: {nodes: ["node"], rate_limit_bytes_per_s: 2 GB/s}
    engine: {model: llama-3.1-8b, accelerator: L4, tensor_parallel: 1}
  - name: recompute
    role: baseline
    kv: recompute
    engine: {}
"""
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


Kvbench = Callable[..., Said]


@pytest.fixture
def kvbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kvbench:
    """The command line in a folder that holds target.yaml, gate.yaml and the target's node."""
    monkeypatch.chdir(tmp_path)
    Path("node").mkdir()
    Path("target.yaml").write_text(TARGET)
    Path("gate.yaml").write_bytes(FAKE_GATE.read_bytes())
    monkeypatch.setattr(pdf, "pdf", lambda html: b"")  # it takes seconds, and none of these looks at it
    return command_line.kvbench


def edit(name: str, before: str, after: str) -> None:
    text = Path(name).read_text()
    assert before in text
    Path(name).write_text(text.replace(before, after, 1))


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*")}


def refuses(said: Said, code: int, *words: str) -> None:
    """One message, with these words, and that exit code."""
    assert said.code == code, said
    for word in words:
        assert word in said.err
    assert "Traceback" not in said.err and "internal error" not in said.err
    assert len(said.err.strip().splitlines()) <= 6, said.err


RUN = ("run", "gate", "gate.yaml", "--target", "target.yaml", "--out", "run", "--yes")

# ---------------------------------------------------------------- what is wrong with a file


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("role: dut", "rolle: dut", ("target.yaml:6: unknown key arms.0.rolle",)),
        ("2 GB/s", "2 GB", ("target.yaml:7", "rate_limit_bytes_per_s", "is not a rate; write it like '2.5 GB/s'")),
        ("2 GB/s", "2 Gigs/s", ("target.yaml:7", "is not a size; write a number and one of B, kB")),
        ("2 GB/s", "-2 GB/s", ("target.yaml:7", "is not a size")),
        ("2 GB/s", "0 B/s", ("target.yaml:7", "rate_limit_bytes_per_s", "is not a rate above 0")),
        ("2 GB/s", "1e300 GB/s", ("target.yaml:7", "is not a whole, positive number of bytes")),
        ("2 GB/s", "1e999 GB/s", ("target.yaml:7", "is not a whole, positive number of bytes")),
        ("2 GB/s", ".nan", ("target.yaml:7", "is not a size")),
        ("session_tokens: 2049", "session_tokens: -1", ("target.yaml:3", "session_tokens", "1 or more")),
        ("session_tokens: 2049", "session_tokens: 0", ("target.yaml:3", "session_tokens", "1 or more")),
        ("session_tokens: 2049", "session_tokens: .nan", ("target.yaml:3", "session_tokens", "1 or more")),
        ("session_tokens: 2049", f"session_tokens: {10**400}", ("target.yaml:3", "session_tokens", "too large")),
        ("session_tokens: 2049", "session_tokens: " + 5000 * "9", ("target.yaml", "not valid YAML")),
        ("tensor_parallel: 1", "tensor_parallel: 0", ("target.yaml:8", "tensor_parallel", "1 or more")),
        ("model: llama-3.1-8b", "model: lama", ("arm dut", "'lama'", "llama-3.1-8b")),
        ("accelerator: L4", "accelerator: L5", ("arm dut", "'L5'", "L4")),
        ("engine: {}", "engine: {start_timeout_s: .nan}", ("target.yaml:12", "start_timeout_s")),
        ("engine: {}", "engine: {start_timeout_s: -5}", ("target.yaml:12", "start_timeout_s")),
        ('nodes: ["node"]', "nodes: []", ("arm dut", "no storage.nodes")),
        ('nodes: ["node"]', 'nodes: ["node", "node"]', ("arm dut", "a directory twice")),
        ('nodes: ["node"]', 'nodes: ["node", "./node/"]', ("arm dut", "a directory twice")),
        ('nodes: ["node"]', 'nodes: [""]', ("arm dut", "a directory without a name")),
        ("arms:", "arms: [", ("target.yaml", "not valid YAML")),
        (TARGET, "", ("target.yaml:1", "empty")),
        (TARGET, "\0\1\2", ("target.yaml", "not valid YAML")),
        (TARGET, "- a\n- b\n", ("target.yaml:1",)),
        ("    role: dut", "\trole: dut", ("target.yaml:6: not valid YAML", "indent with blanks")),
        (TARGET, "just words\n", ("target.yaml:1",)),
        (TARGET, BOMB, ("target.yaml: more than 100,000 values", "use fewer aliases")),
        ("name: a disk", "name: 2026-13-13", ("target.yaml: not valid YAML: month must be in 1..12",)),
        (TARGET, "[" * 1_000, ("target.yaml: not valid YAML: nested too deeply",)),
    ],
)  # fmt: skip
def test_a_bad_target(kvbench: Kvbench, before: str, after: str, words: tuple[str, ...]) -> None:
    edit("target.yaml", before, after)
    there = files()
    refuses(kvbench(*RUN), USAGE, *words)
    assert files() == there


def test_a_binary_target(kvbench: Kvbench) -> None:
    Path("target.yaml").write_bytes(bytes(range(256)))
    refuses(kvbench(*RUN), USAGE, "target.yaml: cannot be read", "utf-8")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("concurrency: [8, 16]", "concurrency: [0]", ("gate.yaml:12", "concurrency", "1 or more")),
        ("concurrency: [8, 16]", "concurrency: [-8]", ("gate.yaml:12", "concurrency", "1 or more")),
        ("rounds: 4", "rounds: 0", ("gate.yaml:6", "rounds", "1 or more")),
        ("quick_rounds: 2", "quick_rounds: two", ("gate.yaml:7", "quick_rounds")),
        ("metric: ttft_p50_s", "metric: ttft_p51_s", ("check ttft-reduction", "yields no metric 'ttft_p51_s'")),
        ("limit: 0.75", "limit: .nan", ("gate.yaml:17", "limit", "finite")),
        ("limit: [0.99, 1.05]", "limit: [1.05, 0.99]", ("check byte-ledger", "limit", "lower number first")),
        ("probe: fake.wave", "probe: fake.weave", ("gate.yaml", "no probe 'fake.weave'")),
        ("effect: 0.6", "effekt: 0.6", ("gate.yaml", "step wave", "effekt")),
        ("id: wave", "id: ../../wave", ("gate FAKE: step id '../../wave'",)),
        ("version: 1", "version: 2", ("gate.yaml:2", "version")),
    ],
)  # fmt: skip
def test_a_bad_gate(kvbench: Kvbench, before: str, after: str, words: tuple[str, ...]) -> None:
    edit("gate.yaml", before, after)
    there = files()
    refuses(kvbench(*RUN), USAGE, *words)
    assert files() == there


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run", "gate", "gate.yaml", "--target", "none.yaml"), ("none.yaml: no such file",)),
        (("run", "gate", "none.yaml"), ("none.yaml: no such file",)),
        (("run", "gate", "G9"), ("there is no gate 'G9'",)),
        (("run", "gate", "G3", "--quik"), ("No such option: --quik",)),
        (("plan", "gate", "G4", "--duration", "soon"), ("Invalid value for '--duration': 'soon' is not a duration",)),
        (("runs", "list", "--in", "nowhere"), ("nowhere is not a directory",)),
        (("init", "gate.yaml"), ("gate.yaml is not a directory",)),
        (("load", "--url", "x", "--rate", "1", "--requests", "1"), ("'x' is not the address of an endpoint",)),
        (("load", "--url", "http://h", "--json", "nowhere/x"), ("--json nowhere/x: no file can be written there",)),
        (("load", "--url", "http://h", "--rows", "."), ("--rows .: no file can be written there",)),
        (("engine", "serve", "--host-memory", "4 potatoes"), ("'--host-memory': '4 potatoes' is not a size",)),
        (("engine", "serve", "--rate-limit", "4 GB"), ("'--rate-limit': '4 GB' is not a rate",)),
        (("store", "bench", ".", "--bytes", "-1"), ("Invalid value for '--bytes': '-1' is not a size",)),
        (("sim", "scale", "ring", "--nodes", "4,²"), ("--nodes 4,²: not numbers from 1 to 1000",)),
        (("nonsense",), ("No such command 'nonsense'",)),
        (("run", "gate", "gate.yaml", "--target", "node"), ("node: cannot be read",)),
        (("run", "gate", "gate.yaml", "--rounds", "0"), ("Invalid value for '--rounds'",)),
        (("run", "gate", "gate.yaml", "--seed", "lucky"), ("--seed", "valid integer")),
        (("run", "gate", "gate.yaml", "--out", "node"), ("node exists\n  try: choose another --out",)),
        ((*RUN, "--json", "none/out.json"), ("--json none/out.json: no file can be written there",)),
        ((*RUN, "--json", "node"), ("--json node: no file can be written there",)),
        (("resume", "node"), ("node is not a run folder",)),
        (("judge", "node"), ("node is not a run folder",)),
        (("report", "nowhere"), ("nowhere is not a run folder",)),
        (("engine", "serve", "--model", "lama", "--accelerator", "L4", "--recompute"), ("no model 'lama'",)),
        (("engine", "serve", "--model", "llama-3.1-8b", "--accelerator", "L5", "--recompute"), ("accelerator 'L5'",)),
    ],
)  # fmt: skip
def test_a_bad_command_line(kvbench: Kvbench, args: tuple[str, ...], words: tuple[str, ...]) -> None:
    there = files()
    refuses(kvbench(*args), USAGE, *words)
    assert files() == there


# ---------------------------------------------------------------- what is wrong with the machine


def test_storage_that_another_run_measures_on_is_refused_before_a_run_folder_is_made(kvbench: Kvbench) -> None:
    there = files()
    with safety.alone_on([Path("node")]):
        refuses(kvbench(*RUN), ENVIRONMENT, "another kvbench is measuring on")
    assert files() == there


def test_nodes_that_are_missing_are_named_by_the_plan_and_refused_before_a_run_folder_is_made(kvbench: Kvbench) -> None:
    edit("target.yaml", '["node"]', '["node", "nowhere", "gate.yaml"]')
    there = files()
    planned = kvbench("plan", "gate", "gate.yaml", "--target", "target.yaml")
    assert planned.code == 0
    told = [line for line in planned.out.splitlines() if line.startswith("note: ")]
    assert told == [
        f"note: {node} is not a directory; before the run, mount the storage there, or correct `nodes` in the target"
        for node in ("nowhere", "gate.yaml")
    ]
    refuses(kvbench(*RUN), ENVIRONMENT, "nowhere is not a directory\ngate.yaml is not a directory\n  try: mount")
    assert files() == there


def test_a_hook_whose_program_is_missing(kvbench: Kvbench) -> None:
    edit("target.yaml", "arms:", "hooks: {before_wave: [./flush.sh, now]}\narms:")
    there = files()
    assert "note: hook before_wave: there is no program ./flush.sh" in kvbench("plan", *RUN[1:5]).out
    refuses(kvbench(*RUN), ENVIRONMENT, "hook before_wave: there is no program ./flush.sh", "correct `hooks`")
    assert files() == there


def test_a_node_that_cannot_be_written(kvbench: Kvbench) -> None:
    Path("node").chmod(0o500)
    if os.access("node", os.W_OK):  # root may write anywhere but here
        edit("target.yaml", '"node"', '"/proc"')
    refuses(kvbench(*RUN), ENVIRONMENT, "cannot be written", "check its mount options and owner")


def test_an_output_folder_that_cannot_be_made(kvbench: Kvbench) -> None:
    said = kvbench("run", "gate", "gate.yaml", "--target", "target.yaml", "--out", "/proc/run", "--yes")
    refuses(said, ENVIRONMENT, "/proc/run", "choose another folder with --out")


def test_too_little_space(kvbench: Kvbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "free_bytes", lambda path: 1_000_000)
    refuses(kvbench(*RUN), ENVIRONMENT, "there are 1.00 MB", "make room")
    assert list(Path("node").iterdir()) == []


@pytest.fixture
def ceiling(kvbench: Kvbench) -> Kvbench:
    """The gate is one that begins with fio."""
    text = G3.read_text().replace("2147483648, runtime_s: 8", "1048576, runtime_s: 1")
    Path("gate.yaml").write_text(text)
    return lambda *args: kvbench(*args, "--quick")


def test_fio_is_missing(ceiling: Kvbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(process, "_EXTRA_PATH", ())
    refuses(ceiling(*RUN), ENVIRONMENT, "fio is not installed", "apt-get install fio")
    assert list(Path("node").iterdir()) == []


def test_fio_is_old(ceiling: Kvbench, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("bin").mkdir()
    Path("bin/fio").write_text("#!/bin/sh\necho fio-2.2\n")
    Path("bin/fio").chmod(0o755)
    monkeypatch.setenv("PATH", f"{Path('bin').resolve()}:{os.environ['PATH']}")
    refuses(ceiling(*RUN), ENVIRONMENT, "bin/fio is fio-2.2, which is too old", "install fio 3.1 or newer")


def test_a_port_that_is_taken(kvbench: Kvbench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        engine = ("engine", "serve", "--model", "llama-3.1-8b", "--accelerator", "L4", "--recompute")
        said = kvbench(*engine, "--port", port)
    refuses(said, ENVIRONMENT, f"cannot listen on 127.0.0.1:{port}: Address already in use", "choose another --port")


class _Garbage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>a login page</html>")

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def endpoint(kvbench: Kvbench) -> Callable[[str], Said]:
    """Runs waves of G3 against an endpoint."""

    def call(url: str) -> Said:
        edit("target.yaml", "    engine: {}", f"    engine: {{kind: openai, urls: ['{url}']}}")
        edit("target.yaml", "engine: {model", f"engine: {{kind: openai, urls: ['{url}'], model")
        gate = G3.read_text().split("  - id: ceiling")[0] + "  - id: wave" + G3.read_text().split("  - id: wave")[1]
        head, _, tail = gate.partition("  - id: baseline-not-held-back")
        Path("gate.yaml").write_text(head + "  - id: client-error" + tail.partition("  - id: client-error")[2])
        return kvbench(*RUN)

    return call


def test_an_endpoint_that_refuses(endpoint: Callable[[str], Said]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    refuses(endpoint(url), ENVIRONMENT, f"2 steps failed alike: {url}/v1/models cannot be reached: Connection refused")
    assert Path("run/journal.jsonl").exists()


def test_an_endpoint_that_sends_garbage(endpoint: Callable[[str], Said]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Garbage) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        said = endpoint(f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
    refuses(said, ENVIRONMENT, "does not answer as OpenAI's API does", "a login page")


# ---------------------------------------------------------------- what is wrong with a run folder


@pytest.fixture
def done(kvbench: Kvbench) -> Path:
    loaded = content.load_gate("gate.yaml")
    target = content.load_target(Path("target.yaml"))
    made = plan.make_plan(loaded, target, content.model_shapes(), plan.Options())
    folder = RunFolder.create(Path("run"), made, loaded.files, loaded.source.resolve())
    execute(folder)
    folder.save_verdict(judge(made, folder.measurements()))
    return Path("run")


@pytest.mark.parametrize("command", ["resume", "judge", "report"])
def test_a_run_of_a_newer_version(kvbench: Kvbench, done: Path, command: str) -> None:
    saved = json.loads((done / "plan.json").read_text())
    (done / "plan.json").write_text(json.dumps(saved | {"version": 99, "kvbench_version": "9.9"}))
    refuses(kvbench(command, "run"), USAGE, "run was written by a newer kvbench (format 99", "use kvbench 9.9 or later")


def test_a_gate_that_is_edited_under_its_run(kvbench: Kvbench, done: Path) -> None:
    edit("gate.yaml", "limit: 0.75", "limit: 0.01")
    said = kvbench("resume", "run")
    assert said.code == 0
    assert "gate.yaml was edited after this run began; the run keeps its copy" in said.out
    assert "kvbench judge" in said.out


def test_a_copy_of_the_content_that_is_edited(kvbench: Kvbench, done: Path) -> None:
    edit("run/content/gates/gate.yaml", "limit: 0.75", "limit: 0.01")
    refuses(kvbench("resume", "run"), ENVIRONMENT, "run/content was changed after the run began", "restore the files")


@pytest.mark.parametrize("command", ["resume", "judge", "report"])
def test_a_journal_that_cannot_be_read(kvbench: Kvbench, done: Path, command: str) -> None:
    (done / "journal.jsonl").unlink()
    (done / "journal.jsonl").mkdir()
    refuses(kvbench(command, "run"), ENVIRONMENT, "run/journal.jsonl", "Is a directory")


@pytest.mark.parametrize("name", ["plan.json", "verdict.json"])
def test_a_damaged_file_of_a_run(kvbench: Kvbench, done: Path, name: str) -> None:
    (done / name).write_text("{")
    refuses(kvbench("report", "run"), ENVIRONMENT, f"run/{name} is damaged")


# ---------------------------------------------------------------- who interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_so_and_is_resumed(
    kvbench: Kvbench, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit("gate.yaml", "rounds: 4", "rounds: 20")
    command = [sys.executable, "-m", "kvbench", *RUN]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pipesize=PIPE_BYTES
    ) as child:  # nobody reads what it says about its steps, so it cannot come to its end before it is interrupted
        give_up = time.monotonic() + PATIENCE_S
        journal = Path("run/journal.jsonl")
        while not (journal.exists() and b"measured" in journal.read_bytes()):
            assert child.poll() is None and time.monotonic() < give_up
            time.sleep(0.01)
        child.send_signal(number)
        _, err = child.communicate(timeout=PATIENCE_S)
    refuses(
        Said(child.returncode, "", err),
        INTERRUPTED,
        "interrupted; the run keeps what it measured",
        "kvbench resume run",
    )
    assert list(Path("node").iterdir()) == []
    assert 0 < len(journal.read_bytes().splitlines()) < 160
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # durability is specified elsewhere, and takes time
    assert kvbench("resume", "run").code == 0
    assert "every step has been measured before" in kvbench("resume", "run").out
