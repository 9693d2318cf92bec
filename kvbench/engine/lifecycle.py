"""Engines, real and emulated, for as long as a step needs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatch
from pathlib import Path
from subprocess import STDOUT, Popen
from typing import Any, Protocol

from kvbench import api_key, clock, process
from kvbench.api_key import NO_KEY, ApiKey
from kvbench.engine import endpoint, launch, recipe
from kvbench.engine.launch import Launch, Program
from kvbench.errors import StepError
from kvbench.model import Arm, Basis, Engine
from kvbench.process import Survivors

_POLL_S = 0.05
_LOG_LINES = 5  # of an engine that failed, in the error


class EngineHandle(Protocol):
    """A running engine. `urls` are its OpenAI-compatible instances; `epoch` counts its starts within the step.

    `about` is what it tells of itself and must be the same on every arm: version, flags, model; None where it tells
    nothing. `chunk_tokens` is the page that it stores, where its recipe knows. `key` is what its requests carry.
    """

    urls: tuple[str, ...]
    model: str
    basis: Basis
    epoch: int
    pids: tuple[int, ...]
    about: Mapping[str, Any] | None
    chunk_tokens: int | None
    key: ApiKey

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

    def make() -> Launch:
        if emulated:
            return launch.emulated(arm, data_dirs, log_dir)
        return launch.by_recipe(arm, data_dirs, log_dir) if arm.engine.recipe else launch.by_command(arm, data_dirs)

    engine = _Started(arm, make, "emulated" if emulated else "measured", log_dir, survivors)
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
        self.key = api_key.from_environment(engine.api_key_env)
        self.urls = tuple(endpoint.base_url(url) for url in engine.urls)
        self.model = engine.model
        for url in self.urls:
            self.model = _served_model(url, engine.model, self.key)
        self.basis: Basis = "measured"
        self.epoch = 1
        self.pids: tuple[int, ...] = ()
        self.about: Mapping[str, Any] | None = None
        self.chunk_tokens: int | None = None

    def restart(self) -> None:
        """Empty the tiers above storage: by the target's flush_command, or by vLLM's /reset_prefix_cache."""
        if not self._engine.flush_command:
            for url in self.urls:
                try:
                    endpoint.post(f"{url}/reset_prefix_cache", self.key)
                except StepError as error:
                    raise StepError(
                        f"the engine cannot be emptied: {error.message}", "give the target a flush_command"
                    ) from None
            return
        done = process.run(self._engine.flush_command, self._engine.start_timeout_s, dict(self._engine.env))
        if done.returncode:
            raise StepError(f"flush_command ended with exit code {done.returncode}: {done.stderr.strip()[-200:]}")

    def metrics_text(self) -> str:
        return _expositions((f"{url}/metrics" for url in self.urls), self.key)


def _served_model(url: str, wanted: str, key: ApiKey) -> str:
    """The name under which the endpoint serves the model: its own, or that of the only one there is."""
    names = endpoint.model_names(url, key)
    if wanted in names:
        return wanted
    if len(names) == 1:
        return names[0]
    raise StepError(
        f"{url} serves {', '.join(names) or 'no model'}, and not {wanted}", "name one of them in the target"
    )


def _expositions(urls: Iterable[str], key: ApiKey) -> str:
    return "\n".join(endpoint.get(url, key) for url in urls)


# ---------------------------------------------------------------- engines that we start


class _Started:
    """An engine of one or several programs, each of which leads a process group of its own."""

    def __init__(self, arm: Arm, make: Callable[[], Launch], basis: Basis, log_dir: Path, survivors: Survivors) -> None:
        self._arm, self._engine, self._make = arm, arm.engine, make
        self._log_dir, self._survivors = log_dir, survivors
        self._stack = ExitStack()
        self._launch: Launch | None = None
        self.urls: tuple[str, ...] = ()
        self.model = arm.engine.model
        self.basis: Basis = basis
        self.epoch = 0
        self.pids: tuple[int, ...] = ()
        self.about: Mapping[str, Any] | None = None
        self.chunk_tokens: int | None = None
        self.key = NO_KEY

    def start(self) -> None:
        """Start the programs in order, each when the one before it is up. Raises StepError with a log's last lines."""
        made = self._launch = self._make()
        self.epoch += 1
        for program in made.programs:
            url = self._start(program)
            if program.name == made.serves:
                self.urls = (url,)
        self.model = _served_model(self.urls[0], self._engine.model, self.key)
        self.chunk_tokens = made.chunk_tokens
        if made.about is not None:
            self.about = {**made.about, "version": _version(made.version_url)}
        if made.recipe and self._arm.kv == "storage" and not recipe.exports_hits(made.recipe, self.metrics_text()):
            raise StepError(
                f"the engine exports none of {', '.join(made.recipe.hits)}, so no hit could be proven",
                "is the connector loaded? Its log lies beside this step's evidence",
            )

    def stop(self) -> None:
        try:
            if self.pids and self._engine.stop_command:
                process.run(self._engine.stop_command, env=self._engine.env)
        finally:
            self._end()

    def _end(self) -> None:
        patterns = self._launch.recipe.leftovers if self._launch and self._launch.recipe else ()
        mapped = {file for pid in self.pids for file in process.mapped_files(pid)} if patterns else set()
        self.urls, self.pids = (), ()
        self._stack.close()
        for file in mapped:
            if any(fnmatch(str(file), pattern) for pattern in patterns):
                file.unlink(missing_ok=True)

    def restart(self) -> None:
        self.stop()
        self.start()

    def metrics_text(self) -> str:
        exporting = self._launch.metrics_urls if self._launch else ()
        return _expositions(exporting or (f"{url}/metrics" for url in self.urls), self.key)

    def _start(self, program: Program) -> str:
        """Start one program, wait until it is up, and return its address."""
        if program.ready_file:
            program.ready_file.unlink(missing_ok=True)
        path = self._log_dir / f"{program.name}-{self.epoch}.log"
        log = self._stack.enter_context(path.open("wb"))
        child = self._stack.enter_context(
            process.start(program.argv, stdout=log, stderr=STDOUT, env=program.env, survivors=self._survivors)
        )
        self.pids = (*self.pids, child.pid)
        return self._await(child, program, path)

    def _await(self, child: Popen[bytes], program: Program, log: Path) -> str:
        deadline_ns = clock.monotonic_ns() + int(self._engine.start_timeout_s * 1e9)
        what = "the engine" if program.name == "engine" else f"{program.name}, a part of the engine,"
        while clock.monotonic_ns() < deadline_ns:
            url = program.url or _ready_url(program.ready_file)
            health_url = program.health_url or (url and f"{url}{self._engine.health_path}")
            if health_url and endpoint.answers(health_url):
                return url
            if child.poll() is not None:
                raise StepError(f"{what} ended with exit code {child.returncode}: {_last_lines(log)}")
            clock.sleep_s(_POLL_S)
        raise StepError(
            f"{what} did not answer within {self._engine.start_timeout_s:g} s: {_last_lines(log)}",
            "raise start_timeout_s in the target, or look into its log",
        )


def _ready_url(ready_file: Path | None) -> str:
    if ready_file is None or not ready_file.exists():
        return ""
    return str(json.loads(ready_file.read_text())["url"])


def _version(url: str) -> str:
    """The engine's own word on its version, or "" where it does not give one as JSON."""
    try:
        return str(json.loads(endpoint.get(url))["version"])
    except (StepError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def _last_lines(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-_LOG_LINES:]) or f"nothing in {log.name}"
