"""`kvbench load`: the load generator by itself, against any OpenAI-compatible endpoint."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvbench.cli.options import Json, quantity, writable
from kvbench.errors import Exit, KvbenchError
from kvbench.units import parse_seconds

if TYPE_CHECKING:
    from kvbench.load.client import Progress
    from kvbench.load.standalone import Load
    from kvbench.load.workload import Turn


Urls = Annotated[
    list[str],
    typer.Option(
        "--url", metavar="URL", help="Instance; repeat it. It is sent token ids; name /v1/chat/completions for text."
    ),
]
Concurrency = Annotated[int | None, typer.Option(metavar="N", min=1, help="Closed loop: requests in flight.")]
Rate = Annotated[float | None, typer.Option(metavar="N", min=0.001, help="Open loop: Poisson arrivals a second.")]
Requests = Annotated[int | None, typer.Option(metavar="N", min=1, help="How many requests.")]
Duration = Annotated[
    float | None,
    typer.Option(parser=quantity(parse_seconds), metavar="TIME", help="How long to send, as 30s or 5m."),
]
PromptTokens = Annotated[int, typer.Option(metavar="N", min=1, help="Tokens a prompt; words, for chat.")]
OutputTokens = Annotated[int, typer.Option(metavar="N", min=1, help="Tokens a reply.")]
Workload = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Makes the requests: conversations, shared-prefixes …, or a file."),
]
Trace = Annotated[Path | None, typer.Option(metavar="FILE", help="A trace in Mooncake's format, instead.")]
Spread = Annotated[bool, typer.Option("--spread", help="Of a trace: spread the requests of one instant.")]
Model = Annotated[str | None, typer.Option(metavar="NAME", help="Default: the first that is listed.")]
Objectives = Annotated[
    str | None, typer.Option("--slo", metavar="LIST", help="Objectives, as ttft=2s,tpot=100ms: gives goodput.")
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="The same prompts again. Default: new ones.")]
Processes = Annotated[
    int, typer.Option(metavar="N", min=1, help="Processes that send; one does for a thousand streams.")
]
Rows = Annotated[
    Path | None, typer.Option(metavar="FILE", callback=writable, help="A row for each request, as Parquet.")
]


def load(
    url: Urls,
    concurrency: Concurrency = None,
    rate: Rate = None,
    requests: Requests = None,
    duration: Duration = None,
    prompt_tokens: PromptTokens = 512,
    output_tokens: OutputTokens = 64,
    workload: Workload = None,
    trace: Trace = None,
    spread: Spread = False,
    model: Model = None,
    slo: Objectives = None,
    seed: Seed = None,
    processes: Processes = 1,
    json: Json = None,
    rows: Rows = None,
) -> None:
    """Drive an endpoint and measure it. Exit code: 1 if a request failed, 4 if every connection was refused.

    An API key is taken from the environment: KVBENCH_API_KEY.

    Example:  kvbench load --url http://127.0.0.1:8000 --concurrency 16 --requests 200
    """
    from kvbench.load import standalone

    turns = standalone.turns_of(workload, trace, spread=spread, first=requests, seed=seed or 0)
    urls, path = standalone.locate(url)
    asked = standalone.Load(
        urls=urls,
        path=path,
        model=model or "",
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        seed=standalone.fresh_seed() if seed is None else seed,
        concurrency=concurrency,
        rate_per_s=rate,
        requests=requests,
        duration_s=duration,
        workload=workload or (str(trace) if trace else ""),
    )
    standalone.check(asked, turns, processes)
    raise typer.Exit(_drive(asked, turns, standalone.parse_objectives(slo) if slo else {}, processes, json, rows))


def _drive(
    asked: "Load",
    turns: "list[Turn] | None",
    objectives_s: dict[str, float],
    processes: int,
    json: str | None,
    rows: Path | None,
) -> Exit:
    from dataclasses import replace

    from kvbench import api_key
    from kvbench.cli import show
    from kvbench.load import rows as request_rows
    from kvbench.load import standalone, workers

    key, first = api_key.from_environment(), asked.urls[0]
    asked = replace(asked, model=asked.model or standalone.first_model(first, key))
    with _live_line() as on_progress:
        result = workers.drive(asked, turns, key, processes, on_progress)
    document = standalone.summary(asked, result, objectives_s, turns)
    if rows is not None:
        request_rows.write(result.rows, rows)
    show.write_json(document, json)
    if json != "-":
        _print(document)
    if document["requests"]["failed"].get("refused") == document["requests"]["sent"]:
        raise KvbenchError(f"{first}: {result.rows[0].error_text}", "check that the engine runs and listens there")
    return Exit.FAIL if document["requests"]["failed"] else Exit.PASS


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
    from kvbench.cli import show

    names = ("p50", "p90", "p99", "mean", "max")
    table = show.columns("", right=(*names, "n"))
    for label, key in (("TTFT", "ttft_s"), ("TPOT", "tpot_s")):
        spread = document[key]
        table.add_row(label, *(_figure(spread, name) for name in names), str(spread["n"]))
    show.print_table(table)
    for line in _lines(document):
        show.say(line)


def _figure(spread: dict[str, Any], name: str) -> str:
    """A p99 of fewer than 100 requests is their maximum, and is called so."""
    from kvbench.cli import show
    from kvbench.stats import P99_NEEDS

    n = spread["n"]
    return f"max of {n}" if name == "p99" and 0 < n < P99_NEEDS else show.figure(spread[name], "s")


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
        within = f"{goodput['requests']} of {requests['sent']} requests within the objectives"
        yield f"goodput: {within}, {goodput['requests_per_s']:.4g} a second"
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
