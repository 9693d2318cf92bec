"""`kvbench fio import`: what somebody else measured with fio, read with the same care as our own."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kvbench.errors import Exit

app = typer.Typer(
    no_args_is_help=True,
    help="Read results of fio.\n\nExample:  kvbench fio import results/*.json",
)


@app.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="What fio printed or wrote with --output-format=json (or json+)."),
    ],
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with every percentile, instead of a table.")
    ] = False,
) -> None:
    """Read fio's JSON of any version, mixed with other text or not. Exit code: 3 if a file holds no sound result.

    Latencies in the table are of completion (clat); one marked lat includes submission, where fio told no other.

    Example:  kvbench fio import node1.json node2.json --json
    """
    from kvbench.cli import show
    from kvbench.fio.importer import import_files

    entries = import_files(files)
    if json:
        show.write_json(entries, "-")
    else:
        for entry in entries:
            _print(entry)
    raise typer.Exit(Exit.PASS if all(entry["ok"] for entry in entries) else Exit.INCONCLUSIVE)


def _print(entry: dict[str, Any]) -> None:
    from rich.text import Text

    from kvbench.cli import show

    show.say(f"{entry['file']}: {entry['version'] or 'unknown version'}, {'sound' if entry['ok'] else entry['reason']}")
    for warning in entry["warnings"]:
        show.say(f"  note: {warning}")
    if not entry["jobs"]:
        show.say("  try: give what fio printed or wrote with --output-format=json")
        return
    table = show.columns("job", "", right=("bytes", "runtime", "bandwidth", "IOPS", "clat p50", "clat p99", "n"))
    rows = [(_job_name(job), job["direction"], job) for job in entry["jobs"]]
    rows += [(f"all {total['jobs']}", name, total) for name, total in entry["total"].items() if total["jobs"] > 1]
    for name, direction, figures in rows:
        table.add_row(*(Text(cell) for cell in (name, direction, *_cells(figures))))
    show.print_table(table)


def _job_name(job: dict[str, Any]) -> str:
    return f"{job['name']} @ {job['host']}" if job["host"] else str(job["name"])


def _cells(figures: dict[str, Any]) -> tuple[str, ...]:
    """Readable figures; – where there is none. Latency is completion latency unless the cell says `lat`."""
    from kvbench.cli.show import figure

    def latency(percentile: str) -> str:
        value_ns = figures["latency_ns"].get(percentile)
        mark = " lat" if figures["latency_kind"] == "lat" else ""
        return "–" if value_ns is None else figure(value_ns / 1e9, "s") + mark

    return (
        figure(figures["bytes"], "B"),
        figure(figures["runtime_s"], "s"),
        figure(figures["bandwidth_bytes_per_s"], "B/s"),
        figure(figures["iops"], "count"),
        latency("50"),
        latency("99"),
        figure(figures["latency_n"] or None, "count"),
    )
