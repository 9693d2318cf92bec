"""`kvbench advise`: which layers of the page store a load is worth."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvbench.cli.options import Json, quantity
from kvbench.cli.sim import Nodes, Requests, Seed
from kvbench.errors import Exit, UsageError
from kvbench.units import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvbench import stats
    from kvbench.sim.advise import Advice, Combination, Load, Statistics
    from kvbench.sim.site import Site

_SITE = "tiers"  # the one that can show all layers
_NO_WIDTH = 5e-4  # an interval that three figures do not show
_OTHERS = {"output_tokens_per_s": "tok/s", "hits": "share", "moved_bytes": "B"}  # that are shown beside the TTFT


TraceOrRun = Annotated[
    str,
    typer.Argument(
        metavar="TRACE|RUN", help="A trace in Mooncake's format, a run folder of gate G3, or a workload's name."
    ),
]
TtftLimit = Annotated[
    float,
    typer.Option(parser=quantity(parse_seconds), metavar="TIME", help="What the TTFT p99 has to stay within, like 2s."),
]
OnSite = Annotated[
    str | None,
    typer.Option(
        "--site",
        metavar="NAME",
        help=f"Engines and nodes, of workloads/sim, or a file (default: {_SITE}). A run tells its own.",
    ),
]
Seeds = Annotated[int, typer.Option(metavar="N", min=2, help="How many seeds: each is a run with other luck.")]


def advise(
    load: TraceOrRun,
    ttft_limit: TtftLimit,
    site: OnSite = None,
    nodes: Nodes = None,
    requests: Requests = None,
    seeds: Seeds = 5,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Say which layers of the page store a load is worth.

    Every set of prefix hashing, dynamic weights and tiers is simulated: on models that are calibrated on the run, or
    that a site's file states. Exit code: 0 if the advised set meets the limit, 1 if it misses it, 3 if the interval
    does not tell.

    Example:  kvbench advise trace.jsonl --ttft-limit 2s --requests 2000
    """
    import os

    from kvbench.cli import show
    from kvbench.sim import advise as core

    if ttft_limit <= 0:
        raise UsageError("--ttft-limit is above 0", "like --ttft-limit 2s")
    made, place, before_s, error, basis = _models(load, site, nodes, requests)
    chosen = range(seed, seed + seeds)
    processes = os.cpu_count() or 1
    with _counting() as done:
        found = core.advise(
            made, place, ttft_limit, chosen, processes=processes, before_s=before_s, error=error, done=done
        )
    for line in _workload(found.statistics):
        show.say(line)
    show.say(f"the articles' rule: {core.name_of(found.rule)}")
    _say_combinations(found)
    _say_gains(found)
    for line in _conclusion(found, ttft_limit, error):
        show.say(line)
    for line in (f"simulated, {basis}; {seeds} seeds", *_assumed(place)):
        show.say(line)
    show.write_json({"load": load, "models": basis, "seeds": list(chosen)} | _document(found, place, ttft_limit), json)
    exits = {core.Limit.MET: Exit.PASS, core.Limit.MISSED: Exit.FAIL, core.Limit.UNDECIDED: Exit.INCONCLUSIVE}
    raise typer.Exit(exits[found.advised.limit])


def _models(
    name: str, site: str | None, nodes: int | None, requests: int | None
) -> tuple[Load, Site, float, float, str]:
    """The load, the site, the seconds before each first token, what the models are known to miss, and their basis."""
    from math import inf
    from statistics import median

    from kvbench import journal
    from kvbench.sim import site as sites
    from kvbench.sim.measured import of_run
    from kvbench.sim.simulate import Source

    path = Path(name)
    if not path.is_dir():
        is_trace = path.is_file() and path.suffix not in (".yaml", ".yml")
        source = Source("" if is_trace else name, name if is_trace else "", requests)
        return source, sites.load(site or _SITE, nodes), 0.0, 0.0, f"site {site or _SITE}, not calibrated"
    if site or requests:
        raise UsageError(f"{name} is a run: it tells its site and its load", "leave --site and --requests out")
    folder = journal.RunFolder.open(path)
    run = of_run(name, folder.plan, folder.measurements(), nodes)
    errors = run.calibration.errors
    fits = "none of its cells can be predicted by the others"
    if errors:
        fits = f"its cells by the others: {median(errors):.1%} off in the median, {max(errors):.1%} at worst"
    return run.wave, run.site, run.before_s, max(errors, default=inf), f"calibrated on {name}; {fits}"


# ---------------------------------------------------------------- for people


@contextmanager
def _counting() -> Iterator[Callable[[int], None]]:
    """How many simulations are done, and when they all will be; on a terminal alone."""
    from rich.progress import Progress

    from kvbench.cli import show

    with Progress(console=show.console, transient=True, disable=not show.console.is_terminal) as progress:
        task = progress.add_task("simulating", total=None)
        yield lambda runs: progress.update(task, total=runs, advance=1)


def _workload(found: Statistics) -> Iterator[str]:
    yield (
        f"{found.requests:,} requests; prompts p50 {found.prompt_tokens_p50:,.0f}, p99 {found.prompt_tokens_p99:,.0f}, "
        f"at most {found.prompt_tokens_most:,} tokens, {found.long_context_share:.1%} of them above 128K"
    )
    yield (
        f"lengths {'long-tailed' if found.is_long_tailed else 'not long-tailed'}: coefficient of variation "
        f"{found.prompt_tokens_cv:.2f}, where more than 1 is"
    )
    yield (
        f"concurrency {'stable' if found.is_stable else 'not stable'}: {found.in_flight:.1f} in flight, coefficient of "
        f"variation {found.in_flight_cv:.2f}, where up to 0.5 is"
    )
    yield (
        f"{'hot and cold' if found.has_disparity else 'no hot'} pages: a tenth of them has {found.hot_uses_share:.0%} "
        f"of the uses, where half is hot; a cache without end hits {found.reused_share:.0%}"
    )


def _say_combinations(found: Advice) -> None:
    from rich.table import Table

    from kvbench.cli import show

    table = Table("layers", box=None, pad_edge=False)
    for heading in (_quantile(found), "÷ limit", "", "÷ none", "output", "hits", "moved"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in found.combinations:
        gain = _interval(each.column.ratios["ttft_p99_s"]) if each.layers else "–"
        ttft = _figure(each, "ttft_p99_s", "s")
        others = (_figure(each, name, unit) for name, unit in _OTHERS.items())
        table.add_row(each.name, ttft, _interval(each.to_limit), each.limit, gain, *others)
    show.print_table(table)


def _say_gains(found: Advice) -> None:
    from rich.table import Table

    from kvbench.cli import show

    table = Table("layer", "by the rule", f"{_quantile(found)}, with ÷ without", "", box=None, pad_edge=False)
    for gain in found.gains:
        table.add_row(gain.layer, "yes" if gain.in_rule else "no", _interval(gain.ratio), gain.worth)
    show.print_table(table)
    show.say("with and without it, on top of what else is advised; 95 % intervals over seeds")


def _conclusion(found: Advice, limit_s: float, error: float) -> Iterator[str]:
    from kvbench.sim.advise import Limit
    from kvbench.units import format_seconds

    advised = found.advised
    yield ""
    if len(found.combinations) == 1:
        yield "advised: nothing, since no layer could be simulated; --nodes N asks what the same rate does on N nodes"
    else:
        yield f"advised: {'none of the layers' if not advised.layers else advised.name}"
    ttft, to_limit = _figure(advised, "ttft_p99_s", "s"), _interval(advised.to_limit)
    yield f"{_quantile(found)} {ttft}, {to_limit} of the limit: {format_seconds(limit_s)} is {advised.limit}"
    if advised.limit is Limit.UNDECIDED and error:
        known = (
            f"miss measured cells by up to {error:.0%}" if error < float("inf") else "were tried on no measured cell"
        )
        yield f"the models {known}: a TTFT within that of the limit is undecided"
    if found.rule != advised.layers and len(found.combinations) > 1:
        yield f"the rule's set has {_interval(found.rule_ratio)} of that TTFT"


def _quantile(found: Advice) -> str:
    """A p99 of fewer than 100 requests is their worst."""
    requests = found.statistics.requests
    return "TTFT p99" if requests >= 100 else f"TTFT max of {requests}"


def _figure(each: Combination, name: str, unit: str) -> str:
    from kvbench.units import format_value

    figure = each.column.figures[name]
    is_wide = figure.half_width and figure.half_width > _NO_WIDTH * abs(figure.mean)
    spread = f" ± {format_value(figure.half_width, unit)}" if figure.half_width and is_wide else ""
    return f"{format_value(figure.mean, unit)}{spread}"


def _interval(ratio: stats.RatioInterval | None) -> str:
    if ratio is None:
        return "–"
    return f"×{ratio.ratio:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _assumed(site: Site) -> Iterator[str]:
    from kvbench.sim.advise import FLASH_PRICE, without_tiers
    from kvbench.units import format_bytes

    alone = without_tiers(site).capacity
    if site.capacity and site.capacity.nodes and alone:
        yield (
            f"without tiers: {format_bytes(alone.flash)} of flash alone, at equal cost where a byte of it costs "
            f"{FLASH_PRICE} times one below"
        )


# ---------------------------------------------------------------- for machines


def _document(found: Advice, site: Site, limit_s: float) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "version": 1,
        "basis": "simulated",
        "site": asdict(site),
        "ttft_limit_s": limit_s,
        "statistics": asdict(found.statistics),
        "rule": {"layers": sorted(found.rule), "ttft_ratio": asdict(found.rule_ratio)},
        "combinations": [
            {
                "layers": sorted(each.layers), "limit": each.limit, "ttft_to_limit": asdict(each.to_limit),
                "figures": {name: asdict(figure) for name, figure in each.column.figures.items()},
            }
            for each in found.combinations
        ],
        "layers": [
            {
                "layer": gain.layer, "by_rule": gain.in_rule, "worth": gain.worth.name.lower(),
                "ttft_ratio": gain.ratio and asdict(gain.ratio),
            }
            for gain in found.gains
        ],
        "advised": {"layers": sorted(found.advised.layers), "limit": found.advised.limit},
    }  # fmt: skip
