"""Engines, real and emulated, for as long as a step needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from kvbench.model import Arm, Basis
from kvbench.process import Survivors


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
    raise NotImplementedError
    yield
