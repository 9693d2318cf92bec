"""The arguments and options that several commands share, each said once."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from kvbench.errors import UsageError
from kvbench.units import parse_seconds

RUNS = Path("kvbench-runs")
File = TypeVar("File", str, Path)
Quantity = TypeVar("Quantity")


def quantity(parse: Callable[[object], Quantity]) -> Callable[[str], Quantity]:
    """A parser of `units` for the value of an option: what is wrong with it is said as of every other option."""

    def parsed(text: str) -> Quantity:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parsed


def writable(option: typer.CallbackParam, file: File | None) -> File | None:
    """Found out before anything runs, and not when its result would be lost."""
    if file is not None and str(file) != "-":
        path = Path(file)
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UsageError(
                f"--{option.name} {file}: no file can be written there", "name a file in a folder that exists"
            )
    return file


def for_machines(context: typer.Context, option: typer.CallbackParam, file: str | None) -> str | None:
    """Where the result goes to standard output, nothing else does."""
    if file == "-":
        from kvbench.cli import show

        context.with_resource(show.aside())
    return writable(option, file)


Gate = Annotated[
    str, typer.Argument(metavar="GATE", help="G1, G2, G3, G4, beside them R1 and S1, or the path of a gate file.")
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
TargetFile = Annotated[
    Path | None,
    typer.Option(
        "--target", metavar="FILE", help="Target file (kvbench init writes one). None: a demonstration on this disk."
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer rounds and cells: minutes. The verdict says so.")]
Rounds = Annotated[
    int | None, typer.Option("--rounds", metavar="N", min=1, help="Rounds per cell, instead of the gate's own.")
]
Duration = Annotated[
    float | None,
    typer.Option(
        "--duration", parser=quantity(parse_seconds), metavar="TIME", help="How long a gate that lasts runs, as 72h."
    ),
]
Slice = Annotated[
    float | None,
    typer.Option(
        "--slice", parser=quantity(parse_seconds), metavar="TIME", help="How long each slice of it is, as 10m."
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of prompts, data and the order of arms.")]
DestroyData = Annotated[
    list[str] | None,
    typer.Option(
        "--destroy-data", metavar="SERIAL", help="Write over the drive of this serial number: a node that is a device."
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Run folder to make (default: kvbench-runs/DATE-NAME).")
]
InCampaign = Annotated[
    Path | None,
    typer.Option("--campaign", metavar="DIR", help="Run it in this campaign: its target, its ladder, its folder."),
]
Party = Annotated[str, typer.Option("--party", metavar="NAME", help="Whose run it is, in an independent campaign.")]
Ungated = Annotated[
    str, typer.Option("--ungated", metavar="REASON", help="Run although the gate below has not passed.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", callback=for_machines, help="The result for machines; - is stdout."),
]
