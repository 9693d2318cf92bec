"""What can go wrong, said once and for a person.

Every error that a user can meet is a `KvbenchError`: one sentence of what happened and where,
and a hint of what to try. Only `kvbench.cli` turns it into text and an exit code.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command line. `docs/exit-codes.md` is the table for users."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    INCONCLUSIVE = 3
    ENVIRONMENT = 4
    INTERNAL = 70
    INTERRUPTED = 130


class KvbenchError(Exception):
    """A failure with a cause that the user can act on: exit code 4, environment or refusal."""

    exit_code = Exit.ENVIRONMENT

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.hint}" if self.hint else self.message


class UsageError(KvbenchError):
    """A wrong command line, gate, workload or target file: exit code 2. Nothing has been touched."""

    exit_code = Exit.USAGE


class StepError(KvbenchError):
    """One step could not be measured. The run goes on; the step's findings are INCONCLUSIVE."""
