"""The kvbench command within this process: what it prints and how it exits, without a start of Python."""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from kvbench.cli.main import main

NO_PDF = Path(__file__).parent / "fixtures" / "no_pdf"


class Said(NamedTuple):
    code: int
    out: str
    err: str


def kvbench(*args: str) -> Said:
    """Run the command in the working folder; its handlers of signals end with it."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    code: object = None
    with (
        patch.object(sys, "argv", ["kvbench", *args]),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        try:
            main()
        except SystemExit as left:
            code = left.code
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    assert isinstance(code, int | None)
    return Said(int(code or 0), out.getvalue(), err.getvalue())


def write_no_pdf(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, commands that are started as processes find no weasyprint that works."""
    path = [str(NO_PDF), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
