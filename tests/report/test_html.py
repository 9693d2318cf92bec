"""The page: stable, self-contained, escaped."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kvbench.model import Metric
from kvbench.report import charts, html, markdown
from kvbench.report.document import Chart
from kvbench.report.view import build_view

Make = Callable[..., Any]

GOLDEN = Path(__file__).parents[1] / "golden" / "report.html"
ATTACK = "<script>alert(1)</script>"


def drawn(chart: Chart) -> str:
    """A stand-in, so that the golden page does not depend on the version of matplotlib."""
    return f"<svg><!-- {len(chart.lines)} lines --></svg>"


class Page(HTMLParser):
    """Tags, attributes and ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_page_is_the_golden_page(synthetic: Make) -> None:
    """After a wanted change: UPDATE_GOLDEN=1 pytest tests/report, then read the difference."""
    page = html.page(build_view(*synthetic().view_arguments()), drawn)
    page = re.sub(r"<style>.*?</style>", "<style></style>", page, flags=re.DOTALL)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(page, encoding="utf-8")
    assert page == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(("shift", "stamp"), [(1.0, "PASS"), (1.2, "INCONCLUSIVE"), (1.6, "FAIL")])
def test_every_outcome_has_its_stamp(synthetic: Make, shift: float, stamp: str) -> None:
    page = html.page(build_view(*synthetic(shift=shift).view_arguments()), drawn)
    assert f'<p class="stamp">{stamp}</p>' in page
    assert f'<section class="verdict {stamp.lower()}"' in page


def test_a_demonstration_says_so_in_a_banner_and_a_real_run_does_not(synthetic: Make) -> None:
    run = synthetic()
    assert "<b>DEMONSTRATION</b> emulated engine, recompute baseline." in html.page(
        build_view(*run.view_arguments()), drawn
    )
    real = replace(run, verdict=replace(run.verdict, basis=()))
    assert "DEMONSTRATION" not in html.page(build_view(*real.view_arguments()), drawn)


def test_a_rejudged_run_names_the_other_gate_file(synthetic: Make) -> None:
    run = synthetic()
    again = replace(run, verdict=replace(run.verdict, rejudged="loose.yaml"))
    assert "<b>RE-JUDGED</b> with loose.yaml" in html.page(build_view(*again.view_arguments()), drawn)


def test_an_ungated_run_gives_its_reason_in_a_banner(synthetic: Make) -> None:
    run = synthetic()
    ungated = build_view(*replace(run, plan=replace(run.plan, ungated=ATTACK)).view_arguments())
    assert "<b>UNGATED</b> The gate below had not passed" in html.page(ungated, drawn)
    assert "**UNGATED:" in markdown.page(ungated)
    assert ATTACK not in html.page(ungated, drawn)
    assert "UNGATED" not in html.page(build_view(*run.view_arguments()), drawn)


def test_page_asks_for_nothing_outside_itself(synthetic: Make) -> None:
    page = html.page(build_view(*synthetic().view_arguments()))
    parsed = Page(page)
    links = {
        a for _, attrs in parsed.tags for name, a in attrs.items() if name in ("src", "href", "data", "xlink:href")
    }
    assert all(link and link.startswith("#") for link in links)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in parsed.tags}
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_pictures_have_words_and_the_page_has_title_and_language(synthetic: Make) -> None:
    page = html.page(build_view(*synthetic().view_arguments()), drawn)
    parsed = Page(page)
    assert all(attrs.get("aria-label") for _, attrs in parsed.tags if attrs.get("role") == "img")
    assert ("html", {"lang": "en"}) in parsed.tags
    assert "<title>G3 this machine: PASS (demonstration: emulated engine, recompute baseline)</title>" in page


def attacked(run: Any) -> Any:
    """The run with a script in every text that comes from outside."""
    plan, verdict = run.plan, run.verdict
    names = {arm.name: arm.name + ATTACK for arm in plan.target.arms}
    arms = tuple(
        replace(
            arm,
            name=names[arm.name],
            engine=replace(arm.engine, model=ATTACK, accelerator=ATTACK),
            storage=arm.storage and replace(arm.storage, nodes=(ATTACK,)),
        )
        for arm in plan.target.arms
    )
    steps = tuple(
        replace(step, arm=names.get(step.arm, ""), cell=step.cell and step.cell + ATTACK) for step in plan.steps
    )
    measurements = [
        replace(
            measured,
            metrics={name: replace(metric, source=ATTACK, note=ATTACK) for name, metric in measured.metrics.items()},
            raw_files=(ATTACK,),
            facts={ATTACK: ATTACK},
            warnings=(ATTACK,),
            error=ATTACK if place == 3 else "",
        )
        for place, measured in enumerate(run.measurements)
    ]
    measurements[2] = replace(measurements[2], metrics={**measurements[2].metrics, "ttft_p50_s": Metric(1, ATTACK, 8)})
    findings = tuple(
        replace(f, check=f.check + ATTACK, cell=ATTACK, arm=ATTACK, reason=ATTACK) for f in verdict.findings
    )
    return replace(
        run,
        plan=replace(plan, target=replace(plan.target, name=ATTACK, arms=arms), steps=steps),
        measurements=measurements,
        verdict=replace(verdict, why=ATTACK, basis=(ATTACK,), warnings=(ATTACK,), findings=findings, title=ATTACK,
                        rejudged=ATTACK),
        series=replace(run.series, problems=(ATTACK,), digests={ATTACK: ATTACK}),
    )  # fmt: skip


def test_no_text_of_a_run_becomes_markup(synthetic: Make) -> None:
    view = build_view(*attacked(synthetic()).view_arguments())
    page = html.page(view)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 50
    assert "<script" not in markdown.page(view)


def test_a_chart_is_the_same_each_time_and_keeps_text_as_text(synthetic: Make) -> None:
    chart = build_view(*synthetic().view_arguments()).sections[0].charts[0]
    chart = replace(chart, lines=(replace(chart.lines[0], label="智算 $x$ <b>"), *chart.lines[1:]))
    first = charts.svg(chart)
    assert first == charts.svg(chart)
    assert first.startswith("<svg")
    assert "智算 $x$ &lt;b&gt;</text>" in first
    assert "TTFT (s)</text>" in first
