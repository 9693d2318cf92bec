"""`kvbench load`: the load generator by itself, against any OpenAI-compatible endpoint."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvbench.errors import Exit, KvbenchError, UsageError

if TYPE_CHECKING:
    from kvbench.load.client import Progress
    from kvbench.load.workload import Turn


def register(app: typer.Typer) -> None:
    """Add this module's command to the application."""
    app.command("load")(load)


def load(
    url: Annotated[
        list[str],
        typer.Option(help="Instance, repeated for several. It is sent token ids; name /v1/chat/completions for text."),
    ],
    concurrency: Annotated[int | None, typer.Option(min=1, help="Closed loop: requests in flight.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Open loop: Poisson arrivals a second.")] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="How many requests.")] = None,
    duration: Annotated[str | None, typer.Option(help="How long to send, like 30s or 5m.")] = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each prompt; words, for chat.")] = 512,
    output_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each reply.")] = 64,
    workload: Annotated[
        str | None,
        typer.Option(help="A workload that makes the requests: conversations, shared-prefixes …, or a file."),
    ] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="A trace in Mooncake's format.")] = None,
    spread: Annotated[bool, typer.Option("--spread", help="Of a trace: spread the requests of one instant.")] = False,
    model: Annotated[str | None, typer.Option(help="Default: the first that the instance lists.")] = None,
    slo: Annotated[str | None, typer.Option(help="Objectives, like ttft=2s,tpot=100ms: gives goodput.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same prompts again. Default: new ones, never warm.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes that send; one does for a thousand streams.")] = 1,
    json: Annotated[str | None, typer.Option(metavar="FILE", help="Write the result as JSON; - for stdout.")] = None,
    rows: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a row a request, as Parquet.")] = None,
) -> None:
    """Drive an endpoint and measure it. Exit code: 1 if a request failed, 4 if every connection was refused.

    An API key is taken from the environment: KVBENCH_API_KEY.

    Example:  kvbench load --url http://127.0.0.1:8000 --concurrency 16 --requests 200
    """
    from kvbench import api_key
    from kvbench.cli import show
    from kvbench.load import rows as request_rows
    from kvbench.load import standalone, workers

    turns = _turns(workload, trace, spread, requests, seed)
    if turns is None and (concurrency is None) == (rate is None):
        raise UsageError("give either --concurrency or --rate, or a --workload or --trace")
    if turns is None and (requests is None) == (duration is None):
        raise UsageError("give either --requests or --duration")
    if turns is not None and (concurrency or rate or duration):
        raise UsageError("a workload or trace says itself when requests are due", "leave --rate and the like out")
    if concurrency is not None and processes > concurrency:
        raise UsageError(
            f"{processes} processes cannot share {concurrency} requests in flight", "give fewer --processes"
        )
    key = api_key.from_environment()
    objectives_s = standalone.parse_objectives(slo) if slo else {}
    urls, path = standalone.locate(url)
    asked = standalone.Load(
        urls=urls,
        path=path,
        model=model or standalone.first_model(urls[0], key),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        seed=standalone.fresh_seed() if seed is None else seed,
        concurrency=concurrency,
        rate_per_s=rate,
        requests=requests,
        duration_s=_seconds(duration),
        workload=workload or (str(trace) if trace else ""),
    )
    with _live_line() as on_progress:
        if processes == 1:
            result = standalone.drive(asked, turns, key=key, on_progress=on_progress)
        else:
            result = workers.drive(asked, turns, key, processes, on_progress)
    document = standalone.summary(asked, result, objectives_s, turns)
    if rows is not None:
        request_rows.write(result.rows, rows)
    show.write_json(document, json)
    if json != "-":
        _print(document)
    if document["requests"]["failed"].get("refused") == document["requests"]["sent"]:
        raise KvbenchError(f"{urls[0]}: {result.rows[0].error_text}", "check that the engine runs and listens there")
    raise typer.Exit(Exit.FAIL if document["requests"]["failed"] else Exit.PASS)


def _turns(
    workload: str | None, trace: Path | None, spread: bool, requests: int | None, seed: int | None
) -> "list[Turn] | None":
    """The turns of a workload or trace, the first `requests` of them; None when neither was asked for."""
    from random import Random

    from kvbench import content
    from kvbench.load import trace as traces

    if workload and trace:
        raise UsageError("give either --workload or --trace")
    if workload:
        return content.request_workload(workload).make(Random(seed or 0))[:requests]
    if trace is None:
        return None
    try:
        with trace.open(encoding="utf-8") as lines:
            turns = traces.read(lines, str(trace))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--trace {trace}: cannot be read: {error}") from None
    return (traces.spread(turns) if spread else turns)[:requests]


def _seconds(duration: str | None) -> float | None:
    from kvbench.units import parse_seconds

    if duration is None:
        return None
    try:
        return parse_seconds(float(duration) if duration.replace(".", "", 1).isdigit() else duration)
    except ValueError as error:
        raise UsageError(f"--duration: {error}") from error


@contextmanager
def _live_line() -> "Iterator[Callable[[Progress], None]]":
    """A line that follows the load, on a terminal. It is drawn when told to: a thread of its own would take time."""
    from rich.live import Live
    from rich.text import Text

    from kvbench.cli import show

    if not show.console.is_terminal:
        yield lambda progress: None
        return
    with Live(console=show.console, auto_refresh=False, transient=True) as live:

        def draw(progress: "Progress") -> None:
            done = f"{progress.done}" if progress.total is None else f"{progress.done}/{progress.total}"
            live.update(Text(f"{done} done, {progress.in_flight} in flight, {progress.failed} failed"), refresh=True)

        yield draw


def _print(document: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    from kvbench.cli import show
    from kvbench.units import format_seconds

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    names = ("p50", "p90", "p99", "mean", "max")
    for heading in (*names, "n"):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, key in (("TTFT", "ttft_s"), ("TPOT", "tpot_s")):
        spread = document[key]
        cells = ["–" if spread[name] is None else format_seconds(spread[name]) for name in names]
        table.add_row(label, *cells, str(spread["n"]))
    show.console.print(table)
    for line in _lines(document):
        show.say(line)


def _lines(document: dict[str, Any]) -> Iterator[str]:
    from kvbench.units import format_seconds, format_value

    requests, client, estimated = document["requests"], document["client"], document["tokens_estimated"]
    failed = "".join(f", {count} {name}" for name, count in requests["failed"].items())
    yield f"requests: {requests['ok']} ok{failed}"
    for name, text in requests["first_texts"].items():
        yield f"  {name}: {text}"
    if (rate := document["output_tokens_per_s"]) is not None:
        yield f"output: {format_value(rate, 'tok/s')}" + (" (estimated: chunks, not tokens)" if estimated else "")
    if "prefix_hits" in document:
        hits = document["prefix_hits"]
        seen = "not told" if hits["observed_share"] is None else format_value(hits["observed_share"], "share")
        yield f"prefix hits: {seen} of prompt tokens; a cache without end: {format_value(hits['ideal_share'], 'share')}"
    if "goodput" in document:
        goodput = document["goodput"]
        yield f"goodput: {goodput['requests']} requests within the objectives, {goodput['requests_per_s']:.4g} a second"
    loop_s = client["loop_delay_s"]["p99"]
    yield (
        f"client: {format_seconds(client['cpu_s'])} of processor, {client['in_flight_reached']} in flight at most, "
        f"loop delay p99 {'unknown' if loop_s is None else format_seconds(loop_s)}, "
        f"{100 * client['tainted_share']:.2g} % of tokens without a stamp of their own"
    )
    if document["prompt_tokens_deviation"]:
        yield f"note: prompts came out up to {document['prompt_tokens_deviation']:.0f} tokens longer or shorter"
    if client["bottleneck"]:
        yield f"note: the client was the bottleneck: {client['bottleneck']}"
