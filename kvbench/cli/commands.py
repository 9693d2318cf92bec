"""The commands by name: where each one is, and its line in `kvbench --help`. Only the one asked for is built."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

COMMANDS = {  # name → (module:attribute, the first sentence of its own help)
    "init": ("runs:init", "Write a commented target.yaml to edit."),
    "doctor": ("doctor:doctor", "Say what this machine can and cannot do, each with its fix."),
    "plan": ("gate:plan_app", "Say what would run."),
    "run": ("gate:run_app", "Run a gate, or strategies."),
    "resume": ("gate:resume", "Go on with a run after a crash, a kill or a reboot."),
    "judge": ("gate:judge", "Give the verdict again from what was measured."),
    "report": ("runs:report", "Write a run's report again from its folder."),
    "runs": ("runs:app", "List, show and remove runs."),
    "compare": ("compare:compare", "Set runs side by side, set-up and figures."),
    "soak": ("soak:app", "Run gate G4 for days: in the background, revived by cron."),
    "campaign": ("campaign:app", "Tie the gates of a joint test to a target, parties and dates."),
    "load": ("load:load", "Drive an endpoint and measure it."),
    "fio": ("fio:app", "Read results of fio."),
    "store": ("store:app", "Set the page store's driver beside fio."),
    "sim": ("sim:app", "Simulate strategies on modelled storage, in virtual time."),
    "advise": ("advise:advise", "Say which layers of the page store a load is worth."),
    "engine": ("engine:app", "Serve an emulated engine, or show how a real one is started."),
    "schema": ("schema:schema", "Print the JSON Schema of the files that people edit."),
}


class LazyGroup(TyperGroup):
    """Lists, completes and suggests by the table; building all 33 commands takes as long as starting Python."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is asked for, in place of its line in the table."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, build(name) if name and listed else None, rest


def enlist(app: typer.Typer) -> None:
    """Give an application whose class is `LazyGroup` the names and lines of all commands."""
    for name, (_, line) in COMMANDS.items():
        app.command(name, help=line)(_listed)


def _listed() -> None:
    """Stands for a command where only its name and line are needed."""


def build(name: str) -> Any:
    """Import and build one command, or group of commands."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    made = getattr(import_module(f"kvbench.cli.{module}"), attribute)
    alone = typer.Typer(rich_markup_mode=None)
    if isinstance(made, typer.Typer):
        alone.add_typer(made, name=name)
    else:
        alone.command(name)(made)
    return get_group(alone).commands[name]
