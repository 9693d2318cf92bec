"""What is done to the storage beside its load: a hook of the target, or another deed, or a mark of the operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Literal

from kvbench import clock, marks, process
from kvbench.errors import StepError

_HOOK_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done to the storage, and when (monotonic)."""

    name: str
    kind: Literal["hook", "mark"]
    at_ns: int


class Hook:
    """A deed that begins at a stated moment, in a thread of its own so that the I/O goes on.

    `act` may raise StepError: `why_failed` says so then. `ended_ns` is when it had been done.
    """

    def __init__(self, name: str, act: Callable[[], object], due_ns: int) -> None:
        self.why_failed = ""
        self.ended_ns: int | None = None
        self._name, self._act, self._due_ns = name, act, due_ns
        self._began_ns: int | None = None
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def poll(self, now_ns: int) -> None:
        """Begin it, if its moment has come."""
        if self._began_ns is None and now_ns >= self._due_ns:
            self._began_ns = now_ns
            self._thread.start()

    def ended(self) -> tuple[Fault, ...]:
        """Wait for its end; what it did, and nothing when its moment never came."""
        if self._began_ns is None:
            return ()
        self._thread.join()
        return (Fault(self._name, "hook", self._began_ns),)

    def _run(self) -> None:
        try:
            self._act()
        except StepError as error:
            self.why_failed = error.message
        self.ended_ns = clock.monotonic_ns()


def run_command(argv: Sequence[str]) -> None:
    """A hook of the target. Raises StepError when it fails."""
    done = process.run(argv, timeout_s=_HOOK_TIMEOUT_S)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise StepError(f"exit code {done.returncode}: {said[-1] if said else 'no message'}")


def marked(run_dir: Path, from_ns: int, to_ns: int) -> tuple[Fault, ...]:
    """What the operator has marked within a stretch of this boot."""
    boot_id = clock.boot_id()
    return tuple(
        Fault(mark.text, "mark", mark.at.monotonic_ns)
        for mark in marks.read(run_dir)
        if mark.boot_id == boot_id and from_ns <= mark.at.monotonic_ns <= to_ns
    )
