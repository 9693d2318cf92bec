"""Engines, real and emulated, for as long as a step needs them."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT, Popen
from typing import Protocol

from kvbench import clock, process
from kvbench.engine import endpoint
from kvbench.errors import StepError
from kvbench.model import Arm, Basis, Engine
from kvbench.process import Survivors

_POLL_S = 0.05
_LOG_LINES = 5  # of an engine that failed, in the error


class EngineHandle(Protocol):
    """A running engine. `urls` are its OpenAI-compatible instances; `epoch` counts its starts within the step."""

    urls: tuple[str, ...]
    model: str
    basis: Basis
    epoch: int
    pids: tuple[int, ...]

    def restart(self) -> None:
        """Stop and start again, so that no tier above storage holds anything. Raises StepError."""

    def metrics_text(self) -> str:
        """The Prometheus exposition of all instances, one after another. Raises StepError when it is not exported."""


@contextmanager
def running(arm: Arm, data_dirs: tuple[Path, ...], log_dir: Path, survivors: Survivors) -> Iterator[EngineHandle]:
    """Start the arm's engine (or check that it answers), yield it, and stop what was started.

    `data_dirs` are where an arm with KV on storage keeps its pages; `log_dir` takes the engine's output.
    Raises StepError when the engine does not become healthy, with the last lines of its log.
    """
    if arm.engine.kind == "openai":
        yield _Endpoints(arm.engine)
        return
    emulated = arm.engine.kind == "emulated"

    def make() -> _Command:
        return _emulated(arm, data_dirs, log_dir) if emulated else _launched(arm.engine, data_dirs)

    engine = _Process(arm.engine, make, "emulated" if emulated else "measured", log_dir, survivors)
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()


# ---------------------------------------------------------------- endpoints that somebody else has started


class _Endpoints:
    """Endpoints that answer already. They cannot be restarted, only flushed."""

    def __init__(self, engine: Engine) -> None:
        if not engine.urls:
            raise StepError("the engine of kind openai names no urls", "write urls: [http://host:8000] in the target")
        self._engine = engine
        self.urls = tuple(endpoint.base_url(url) for url in engine.urls)
        self.model = engine.model
        for url in self.urls:
            self.model = _served_model(url, engine.model)
        self.basis: Basis = "measured"
        self.epoch = 1
        self.pids: tuple[int, ...] = ()

    def restart(self) -> None:
        """Empty the tiers above storage: by the target's flush_command, or by vLLM's /reset_prefix_cache."""
        if not self._engine.flush_command:
            for url in self.urls:
                try:
                    endpoint.post(f"{url}/reset_prefix_cache")
                except StepError as error:
                    raise StepError(
                        f"the engine cannot be emptied: {error.message}", "give the target a flush_command"
                    ) from None
            return
        done = process.run(self._engine.flush_command, self._engine.start_timeout_s, dict(self._engine.env))
        if done.returncode:
            raise StepError(f"flush_command ended with exit code {done.returncode}: {done.stderr.strip()[-200:]}")

    def metrics_text(self) -> str:
        return _metrics_text(self.urls)


def _served_model(url: str, wanted: str) -> str:
    """The name under which the endpoint serves the model: its own, or that of the only one there is."""
    names = endpoint.model_names(url)
    if wanted in names:
        return wanted
    if len(names) == 1:
        return names[0]
    raise StepError(
        f"{url} serves {', '.join(names) or 'no model'}, and not {wanted}", "name one of them in the target"
    )


def _metrics_text(urls: tuple[str, ...]) -> str:
    return "\n".join(endpoint.get(f"{url}/metrics") for url in urls)


# ---------------------------------------------------------------- engines that we start


@dataclass(frozen=True, slots=True)
class _Command:
    """How to start an engine. Its address is `url`, or what it writes to `ready_file` itself."""

    argv: tuple[str, ...]
    url: str = ""
    ready_file: Path | None = None


def _emulated(arm: Arm, data_dirs: tuple[Path, ...], log_dir: Path) -> _Command:
    engine, storage = arm.engine, arm.storage
    ready_file = log_dir / "engine-ready.json"
    argv = [sys.executable, "-m", "kvbench", "engine", "serve", "--port", "0", "--ready-file", str(ready_file)]
    argv += ["--model", engine.model, "--accelerator", engine.accelerator]
    argv += ["--tensor-parallel", str(engine.tensor_parallel), "--host-memory", f"{engine.host_memory_bytes} B"]
    if arm.kv == "recompute":
        return _Command((*argv, "--recompute"), ready_file=ready_file)
    for directory in data_dirs:
        argv += ["--kv-dir", str(directory)]
    argv += ["--salt", ":".join(map(str, data_dirs)), "--fault-log", str(log_dir / "engine-faults.jsonl")]
    if storage and not storage.direct:
        argv.append("--no-direct")
    if storage and storage.rate_limit_bytes_per_s:
        argv += ["--rate-limit", f"{storage.rate_limit_bytes_per_s} B/s"]
    return _Command(tuple(argv), ready_file=ready_file)


def _launched(engine: Engine, data_dirs: tuple[Path, ...]) -> _Command:
    """The target's command with `{port}`, `{kv_dir}` (several: separated by commas) and `{python}` filled in."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])  # free a moment ago; the engine says so itself if it is taken by then
    values = {"{port}": port, "{kv_dir}": ",".join(map(str, data_dirs)), "{python}": sys.executable}
    argv = list(engine.command)
    for name, value in values.items():
        argv = [part.replace(name, value) for part in argv]
    return _Command(tuple(argv), url=f"http://127.0.0.1:{port}")


class _Process:
    """An engine that leads a process group of its own."""

    def __init__(
        self, engine: Engine, make: Callable[[], _Command], basis: Basis, log_dir: Path, survivors: Survivors
    ) -> None:
        self._engine, self._make, self._log_dir, self._survivors = engine, make, log_dir, survivors
        self._stack = ExitStack()
        self.urls: tuple[str, ...] = ()
        self.model = engine.model
        self.basis: Basis = basis
        self.epoch = 0
        self.pids: tuple[int, ...] = ()

    def start(self) -> None:
        """Start, and wait until it answers. Raises StepError with the last lines of its log."""
        command = self._make()
        if not command.argv:
            raise StepError("the engine of kind launch has no command", "write its command in the target")
        if command.ready_file:
            command.ready_file.unlink(missing_ok=True)
        self.epoch += 1
        path = self._log_dir / f"engine-{self.epoch}.log"
        log = self._stack.enter_context(path.open("wb"))
        child = self._stack.enter_context(
            process.start(command.argv, stdout=log, stderr=STDOUT, env=self._engine.env, survivors=self._survivors)
        )
        url = self._await(child, command, path)
        self.urls, self.pids = (url,), (child.pid,)
        self.model = _served_model(url, self._engine.model)

    def stop(self) -> None:
        if self.pids and self._engine.stop_command:
            process.run(self._engine.stop_command, env=self._engine.env)
        self.urls, self.pids = (), ()
        self._stack.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def metrics_text(self) -> str:
        return _metrics_text(self.urls)

    def _await(self, child: Popen[bytes], command: _Command, log: Path) -> str:
        deadline_ns = clock.monotonic_ns() + int(self._engine.start_timeout_s * 1e9)
        while clock.monotonic_ns() < deadline_ns:
            url = command.url or _ready_url(command.ready_file)
            if url and endpoint.answers(f"{url}{self._engine.health_path}"):
                return url
            if child.poll() is not None:
                raise StepError(f"the engine ended with exit code {child.returncode}: {_last_lines(log)}")
            clock.sleep_s(_POLL_S)
        raise StepError(
            f"the engine did not answer within {self._engine.start_timeout_s:g} s: {_last_lines(log)}",
            "raise start_timeout_s in the target, or look into its log",
        )


def _ready_url(ready_file: Path | None) -> str:
    if ready_file is None or not ready_file.exists():
        return ""
    return str(json.loads(ready_file.read_text())["url"])


def _last_lines(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-_LOG_LINES:]) or f"nothing in {log.name}"
