"""The `kvbench` command. Errors become one clear message and an exit code here, and nowhere else."""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Annotated, NoReturn

import typer

import kvbench
from kvbench.cli.commands import LazyGroup, enlist
from kvbench.errors import Exit, KvbenchError

app = typer.Typer(
    name="kvbench",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: the formatted one imports markdown and syntax highlighting, half of the time
    help="Acceptance tests for storage that serves the KV cache of LLM inference: four gates, one verdict, every "
    "number traceable.\n\nExample:  kvbench run gate G3 --quick",
    epilog="Exit codes: 0 pass, 1 fail, 2 usage, 3 inconclusive, 4 environment or refusal, 70 internal error, "
    "130 interrupted.",
)
enlist(app)


def _version(asked: bool) -> None:
    if asked:
        print(f"kvbench {kvbench.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


class _Interrupted(BaseException):
    """Ctrl-C or SIGTERM. Not KeyboardInterrupt, which the command-line library would turn into exit code 1: a FAIL."""


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """The first signal ends what runs; while things are put in order, no other one disturbs."""
    _on_signals(signal.SIG_IGN)
    raise _Interrupted


def _on_signals(handler: Callable[[int, FrameType | None], NoReturn] | signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def main() -> NoReturn:
    """Entry point: run the command line and leave with an exit code of the table."""
    _on_signals(_interrupt)
    try:
        app(prog_name="kvbench")
    except KvbenchError as error:
        print(f"kvbench: {error}", file=sys.stderr)
        code = error.exit_code
    except _Interrupted as interrupted:
        goes_on = getattr(interrupted, "__notes__", [])  # of a run
        kept = f"; the run keeps what it measured\n  try: {', '.join(goes_on)}" if goes_on else ""
        print(f"kvbench: interrupted{kept}", file=sys.stderr)
        code = Exit.INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.PASS
    except SystemExit:
        raise
    except OSError as error:  # a disk that is full or gone, a file that is not ours
        if os.environ.get("KVBENCH_DEBUG"):
            raise
        print(
            f"kvbench: {error.filename or 'the system says'}: {error.strerror or error}\n"
            "  try: mend its cause, and the same command again; KVBENCH_DEBUG=1 shows where it came up",
            file=sys.stderr,
        )
        code = Exit.ENVIRONMENT
    except BaseException as error:  # must never look like a FAIL
        if os.environ.get("KVBENCH_DEBUG"):
            raise
        print(
            f"kvbench: internal error: {type(error).__name__}: {error}\n"
            "  try: the same command with KVBENCH_DEBUG=1, and report what it prints",
            file=sys.stderr,
        )
        code = Exit.INTERNAL
    sys.exit(code)
