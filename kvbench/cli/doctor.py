"""`kvbench doctor`: what this machine can and cannot do."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.cli.options import Json

if TYPE_CHECKING:
    from kvbench.doctor import Line

Folders = Annotated[
    list[Path] | None,
    typer.Argument(metavar="DIR", help="Folders that a test would use; none: this one.", readable=False),
]
_STYLES = {"OK": "green", "warn": "yellow", "missing": "red"}


def doctor(folders: Folders = None, json: Json = None) -> None:
    """Say what this machine can and cannot do, each with its fix. Always exit code 0.

    Example:  kvbench doctor /mnt/dut /mnt/baseline
    """
    from dataclasses import asdict

    from kvbench.cli import show
    from kvbench.doctor import diagnose, examine

    lines = diagnose(examine(folders or [Path.cwd()]))
    if json != "-":
        _print(lines)
    show.write_json([asdict(line) for line in lines], json)


def _print(lines: "tuple[Line, ...]") -> None:
    from rich.text import Text

    from kvbench.cli import show

    if not show.console.is_terminal:
        for line in lines:
            show.say(f"{line.state:8}{line.subject}: {line.found}" + (f"; fix: {line.fix}" if line.fix else ""))
        return
    table = show.columns("", "what", "found", "fix")
    for line in lines:
        state = Text(line.state, style=_STYLES[line.state])
        table.add_row(state, Text(line.subject), Text(line.found), Text(line.fix))
    show.console.print(table)
