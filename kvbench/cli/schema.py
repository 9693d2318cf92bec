"""`kvbench schema`: JSON Schemas for editors."""

import json
from pathlib import Path
from typing import Annotated

import typer

from kvbench.errors import KvbenchError, UsageError

NAMES = ("target", "gate", "workload", "engine", "campaign")


def schema(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(NAMES)}; none: all of them.")] = "",
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write NAME.schema.json there.")] = None,
) -> None:
    """Print the JSON Schema of the files that people edit.

    An editor completes and checks them with it.

    Example:  kvbench schema --out schemas
    """
    from kvbench.cli import show
    from kvbench.schema import schema as schema_of

    if name and name not in NAMES:
        raise UsageError(f"there is no schema {name!r}", f"one of {', '.join(NAMES)}")
    chosen = (name,) if name else NAMES
    texts = {one: json.dumps(schema_of(one), indent=1) + "\n" for one in chosen}
    if out is None:
        if not name:
            raise UsageError("which schema?", f"one of {', '.join(NAMES)}; or --out DIR for all of them")
        print(texts[name], end="")
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        for one, text in texts.items():
            (out / f"{one}.schema.json").write_text(text)
            show.say(str(out / f"{one}.schema.json"))
    except OSError as error:
        raise KvbenchError(f"{out} cannot be written: {error.strerror}", "choose another folder with --out") from None
