"""A load by itself, as `kvbench load` asks for it: requests made from a few numbers, and the result summed up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from kvbench import clock, kv
from kvbench.api_key import NO_KEY, ApiKey
from kvbench.errors import KvbenchError, StepError, UsageError
from kvbench.load import figures, prompts, schedule
from kvbench.load import trace as traces
from kvbench.load.client import LoadResult, Progress, Request, RequestRow, run
from kvbench.load.endpoint import Endpoint
from kvbench.load.replay import replay
from kvbench.load.workload import Turn, ideal_hits
from kvbench.model import Metric
from kvbench.units import parse_seconds

VERSION = 1  # of the JSON summary
_QUANTILES = (50, 90, 99)
_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"
_BOTTLENECK_SHARE = 0.05  # of the median TTFT: above it the client's own error is no longer small
_MORE_THAN_EVER = 1 << 40
_MOST_PREPARED = 5_000_000
_MOST_TOKENS = 100_000_000  # of a prompt or a reply: more than any model takes, and a prompt of it fits into memory


@dataclass(frozen=True, slots=True)
class Load:
    """What to send: `concurrency` or `rate_per_s`, and `requests` or `duration_s`; the other of each pair is None.

    With a `workload`, named for the summary, the turns say when and how much, and `requests` is how many of them.
    """

    urls: tuple[str, ...]
    path: str
    model: str
    prompt_tokens: int
    output_tokens: int
    seed: int
    concurrency: int | None
    rate_per_s: float | None
    requests: int | None
    duration_s: float | None
    workload: str = ""


def locate(addresses: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Addresses as people give them → those of the instances, and the path: text completions unless they name chat's.

    Raises UsageError for what is no address, and when they name different paths.
    """
    found = [_base_and_path(address.rstrip("/")) for address in addresses]
    for base, _ in found:
        Endpoint.of(base)
    if len({path for _, path in found}) > 1:
        raise UsageError("the instances have different paths", "give all as text completions, or all as chat")
    return tuple(base for base, _ in found), found[0][1]


def _base_and_path(address: str) -> tuple[str, str]:
    for ending, path in ((_CHAT, _CHAT), (_COMPLETIONS, _COMPLETIONS), ("/v1", _COMPLETIONS)):
        if address.endswith(ending):
            return address.removesuffix(ending), path
    return address, _COMPLETIONS


def turns_of(
    workload: str | None, trace: Path | None, *, spread: bool, first: int | None, seed: int
) -> list[Turn] | None:
    """The turns of a workload or trace, the `first` of them; None when neither was asked for."""
    if workload and trace:
        raise UsageError("--workload and --trace say the same thing", "leave one of them out")
    if spread and not trace:
        raise UsageError("--spread is said of a trace", "add --trace FILE, or leave --spread out")
    if workload:
        from kvbench import content  # other loads start sooner without

        return content.request_workload(workload).make(Random(seed))[:first]
    if trace is None:
        return None
    turns = traces.load(trace)
    return (traces.spread(turns) if spread else turns)[:first]


def check(load: Load, turns: Sequence[Turn] | None, processes: int) -> None:
    """Raises UsageError where what is asked for does not go together."""
    if turns is None and (load.concurrency is None) == (load.rate_per_s is None):
        raise UsageError("one of --concurrency or --rate is needed", "give one, or a --workload or --trace alone")
    if turns is None and (load.requests is None) == (load.duration_s is None):
        raise UsageError("one of --requests or --duration is needed", "give one, not both")
    if turns is not None and (load.concurrency or load.rate_per_s or load.duration_s):
        raise UsageError(
            "a workload or trace says itself when requests are due", "leave --concurrency, --rate and --duration out"
        )
    if load.duration_s == 0 or load.rate_per_s == math.inf:
        raise UsageError("--duration and --rate: more than 0, and finite")
    if turns is None and max((load.rate_per_s or 0) * (load.duration_s or 0), load.requests or 0) > _MOST_PREPARED:
        raise UsageError(
            f"more than {_MOST_PREPARED:,} requests are asked for, which are made before the first is sent",
            "give fewer --requests, or a shorter --duration",
        )
    if (load.concurrency or 0) > _MOST_PREPARED:
        raise UsageError(f"--concurrency: at most {_MOST_PREPARED:,}")
    if max(load.prompt_tokens, load.output_tokens) > _MOST_TOKENS:
        raise UsageError(f"--prompt-tokens and --output-tokens: at most {_MOST_TOKENS:,}")
    if load.concurrency is not None and processes > load.concurrency:
        raise UsageError(
            f"{processes} processes cannot share {load.concurrency} requests in flight", "give fewer --processes"
        )


def fresh_seed() -> int:
    """A seed that no earlier load had, so that its prompts are warm nowhere."""
    return int(clock.wall().timestamp() * 1e6)  # exact in JSON, too


def first_model(url: str, key: ApiKey) -> str:
    """The first model that the instance lists. Raises KvbenchError when it lists none, or does not answer."""
    from kvbench.engine import endpoint  # other loads start sooner without

    hint = "is the engine up there? --model NAME does without"
    try:
        names = endpoint.model_names(url, key)
    except StepError as error:
        raise KvbenchError(f"{url} does not list its models: {error.message}", hint) from None
    if not names:
        raise KvbenchError(f"{url} lists no model", hint)
    return names[0]


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a load that one of several processes sends: every `of`-th request, or session, from `number` on."""

    number: int = 0
    of: int = 1


def drive(
    load: Load,
    turns: Sequence[Turn] | None = None,
    *,
    key: ApiKey = NO_KEY,
    on_progress: Callable[[Progress], None] | None = None,
    part: Part = Part(),
    before_start: Callable[[], None] = lambda: None,
) -> LoadResult:
    """Send it: the turns of a workload when they are due, Poisson arrivals at a rate, else a closed loop.

    Bodies are made before, unless time ends the loop.
    """
    send = partial(run, load.urls, on_progress=on_progress, key=key, before_start=before_start)
    if turns is not None:
        if load.path == _CHAT:
            raise UsageError("a workload is sent as token ids, to /v1/completions", "name the instance without a path")
        made = replay(_sessions(turns, part), load.seed, load.model, vocabulary(load.model))
        return send(made.requests, made.due_offsets_ns)
    if load.rate_per_s is not None:
        count = load.requests or max(1, round(load.rate_per_s * (load.duration_s or 0)))
        offsets = schedule.poisson(load.rate_per_s, count, Random(load.seed))
        return send(list(_Requests(load, count, part)), offsets[part.number :: part.of])
    concurrency = len(range(part.number, load.concurrency or 0, part.of))
    if load.requests is not None:
        return send(list(_Requests(load, load.requests, part)), concurrency=concurrency)
    endless = _Requests(load, _MORE_THAN_EVER, part)
    return send(endless, concurrency=concurrency, duration_s=load.duration_s)


def vocabulary(model: str) -> int:
    """How many token ids a model has, which a folder's config.json says."""
    from kvbench.engine.catalog import Shapes

    return kv.vocabulary(model, Shapes({}))  # without reading the models that we know, which all have enough


def _sessions(turns: Sequence[Turn], part: Part) -> list[Turn]:
    """The turns of every `of`-th session: what follows what stays together."""
    sessions = list(dict.fromkeys(turn.session for turn in turns))
    mine = set(sessions[part.number :: part.of])
    return [turn for turn in turns if turn.session in mine]


class _Requests(Sequence[Request]):
    """The requests of a part of a load, each made when it is asked for."""

    def __init__(self, load: Load, count: int, part: Part) -> None:
        self._load, self._places = load, range(part.number, count, part.of)
        self._vocabulary = vocabulary(load.model)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        load, place = self._load, self._places[index]
        if load.path == _CHAT:
            text = prompts.session_text(load.seed, "load", place, load.prompt_tokens)
            body, prompt_tokens = prompts.chat_body(load.model, text, load.output_tokens), None
        else:
            ids = prompts.session_prompt(load.seed, "load", place, load.prompt_tokens, self._vocabulary)
            body, prompt_tokens = prompts.completion_body(load.model, ids, load.output_tokens), load.prompt_tokens
        return Request(
            f"{load.seed}-{place}",
            body,
            load.path,
            expected_prompt_tokens=prompt_tokens,
            expected_completion_tokens=load.output_tokens,
            url_index=place % len(load.urls),
        )


def parse_objectives(text: str) -> dict[str, float]:
    """`'ttft=2s,tpot=100ms'` → seconds by name. Raises UsageError."""
    objectives = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            objectives[name.strip()] = parse_seconds(value)
        except ValueError as error:
            raise UsageError(f"--slo {text}: {error}", "write it like --slo ttft=2s,tpot=100ms") from error
    if unknown := objectives.keys() - {"ttft", "tpot"}:
        raise UsageError(f"--slo {text}: no objective is called {', '.join(unknown)}", "there are ttft and tpot")
    return objectives


def summary(
    load: Load, result: LoadResult, objectives_s: dict[str, float], turns: Sequence[Turn] | None = None
) -> dict[str, Any]:
    """The result for machines. Seconds, except where a name says otherwise; what there is no figure for is null."""
    rows, good = result.rows, [row for row in result.rows if row.ok]
    metrics = figures.wave_metrics(result)
    delays_s = [row.read_delay_ns / 1e9 for row in good if row.read_delay_ns is not None]
    dispatch_s = [(row.sent_ns - row.due_ns) / 1e9 for row in rows if row.sent_ns is not None]
    document = {
        "version": VERSION,
        "load": asdict(load),
        "requests": {
            "sent": len(rows),
            "ok": len(good),
            "failed": dict(Counter(row.error_class for row in rows if not row.ok)),
            "first_texts": {row.error_class: row.error_text for row in reversed(rows) if not row.ok},
        },
        "ttft_s": _spread([value for row in good if (value := figures.ttft_s(row)) is not None]),
        "tpot_s": _spread([value for row in good if (value := figures.tpot_s(row)) is not None]),
        "output_tokens_per_s": metrics["output_tokens_per_s"].value,
        "prompt_tokens_deviation": metrics["prompt_tokens_deviation"].value,
        "tokens_estimated": any(row.tokens_estimated for row in good),
        "client": {
            **asdict(result.client),
            "tainted_share": result.client.tainted_share,
            "dispatch_delay_s": _spread(dispatch_s),
            "loop_delay_s": _spread(delays_s),
            "error_s": metrics["client_error_s"].value,
            "error_share": metrics["client_error_share"].value,
            "bottleneck": _bottleneck(result, metrics["client_error_share"]),
        },
    }
    if turns is not None:
        document["prefix_hits"] = _prefix_hits(good, turns)
    if objectives_s:
        met = figures.goodput(result, objectives_s)
        document["goodput"] = {"objectives_s": objectives_s, "requests": met.met, "requests_per_s": met.per_s}
    return document


def _prefix_hits(good: Sequence[RequestRow], turns: Sequence[Turn]) -> dict[str, float | int | None]:
    """What was hit by the requests' own usage, and what a cache without end would have hit."""
    told = [row for row in good if row.cached_tokens is not None]
    asked = sum(row.prompt_tokens or 0 for row in told)
    return {
        "page_tokens": kv.PAGE_TOKENS,
        "ideal_share": ideal_hits(turns, kv.PAGE_TOKENS).share,
        "observed_share": sum(row.cached_tokens or 0 for row in told) / asked if asked else None,
        "n": len(told),
    }


def _spread(values_s: Sequence[float]) -> dict[str, float | int | None]:
    found = figures.distribution(values_s, _QUANTILES, "")
    return {name: metric.value for name, metric in found.items()} | {"n": len(values_s)}


def _bottleneck(result: LoadResult, error_share: Metric) -> str:
    """Why the figures are the client's rather than the server's; "" when they are not."""
    client = result.client
    if error_share.value is not None and error_share.value > _BOTTLENECK_SHARE:
        return f"its own error is {100 * error_share.value:.1f} % of the median TTFT"
    reachable = min(client.in_flight_asked, len(result.rows))
    if client.in_flight_reached < reachable and all(row.ok for row in result.rows):
        return f"{client.in_flight_reached} requests were in flight at most, of {reachable} asked"
    return ""
