"""The report as Markdown: page one and the tables, for an issue, a wiki or a terminal. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvbench.report.document import Entry, Section, Table, View

_SPECIAL = re.compile(r"([\\`*_\[\]|])")


def page(view: View) -> str:
    """The whole page. What comes from a run is escaped, for Markdown and for HTML."""
    parts = [
        f"# {_safe(view.gate)} {_safe(view.title)}: {_safe(view.headline)}",
        _safe(view.why),
        *_banner(view),
        _pairs(view.identity),
        "## What was emulated and what was measured",
        _pairs(view.bases),
        *_decider(view),
        "## Checks",
        _table(view.deciding),
        _table(view.supporting),
        "## Warnings",
        "\n".join(f"- {_safe(warning)}" for warning in view.warnings) or "None.",
        *(part for section in view.sections for part in _section(section)),
        "## Definitions",
        _pairs(view.definitions),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _banner(view: View) -> list[str]:
    banner = [f"**DEMONSTRATION: {_safe(', '.join(view.demonstration))}. Not an acceptance result.**"]
    ungated = [f"**UNGATED: the gate below had not passed. {_safe(view.ungated)}**"]
    rejudged = [f"**RE-JUDGED with {_safe(view.rejudged)}.**"]
    return banner * bool(view.demonstration) + ungated * bool(view.ungated) + rejudged * bool(view.rejudged)


def _decider(view: View) -> list[str]:
    if view.decider is None:
        return []
    one = view.decider
    figures = (("observed", one.observed), ("needed", one.needed), ("interval", one.interval), ("n", one.n))
    said = "; ".join(f"{name} {value}" for name, value in figures if value)
    return ["## What decided", _safe(f"{one.check}, {one.where}: {one.outcome}; {said}. {one.reason}")]


def _section(section: Section) -> list[str]:
    return [
        f"## {_safe(section.title)}",
        _safe(section.intro),
        *map(_safe, section.notes),
        *map(_table, section.tables),
    ]


def _table(table: Table) -> str:
    if not table.rows:
        return f"**{_safe(table.title)}**: nothing to show."
    align = ["--:" if entry.numeric else "---" for entry in table.rows[0]]
    rows = [_row(map(_safe, table.columns)), _row(align), *(_row(map(_entry, row)) for row in table.rows)]
    return "\n".join((f"**{_safe(table.title)}** {_safe(table.note)}".rstrip(), "", *rows))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _entry(entry: Entry) -> str:
    count = f"n = {entry.n}" if entry.n is not None else ""
    aside = "; ".join(filter(None, (entry.note, count)))
    return _safe(f"{entry.text} ({aside})" if aside else entry.text)


def _pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return "\n".join(f"- **{_safe(name)}**: {_safe(value)}" for name, value in pairs)


def _safe(value: str) -> str:
    escaped = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", escaped).replace("\n", "<br>")
