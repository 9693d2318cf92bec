"""Write a run's report in the formats that were asked for, into the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.errors import KvbenchError, UsageError
from kvbench.journal import write_atomically
from kvbench.model import Measurement, Plan, Verdict
from kvbench.report import forms, html, markdown, pdf
from kvbench.report.document import View
from kvbench.report.load import load
from kvbench.report.view import build_view

FORMATS = ("html", "pdf", "md", "json", "csv")


@dataclass(frozen=True, slots=True)
class Rendered:
    """What was written, by format, and sentences about what was not."""

    files: Mapping[str, Path]
    messages: tuple[str, ...]


def render(
    run_dir: Path, plan: Plan, measurements: Sequence[Measurement], verdict: Verdict, formats: Sequence[str] = FORMATS
) -> Rendered:
    """Write report.html, report.pdf … and return where they are.

    A PDF that cannot be made is a message, and the other formats are written all the same.
    Raises UsageError for an unknown format, KvbenchError when a file cannot be written.
    """
    for name in formats:
        if name not in FORMATS:
            raise UsageError(f"there is no report format {name!r}", f"one or more of: {','.join(FORMATS)}")
    view = build_view(plan, measurements, verdict, load(run_dir, measurements))
    contents, messages = _pages(view, formats)
    if "md" in formats:
        contents["md"] = markdown.page(view).encode()
    if "json" in formats:
        contents["json"] = forms.json_text(plan, measurements, verdict).encode()
    if "csv" in formats:
        contents["csv"] = forms.csv_text(plan, measurements).encode()
    return Rendered({name: _write(run_dir, name, contents[name]) for name in FORMATS if name in contents}, messages)


def _pages(view: View, formats: Sequence[str]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """HTML and PDF, of the same page. A PDF alone that fails leaves the HTML in its place."""
    if not {"html", "pdf"} & set(formats):
        return {}, ()
    page = html.page(view)
    contents = {"html": page.encode()} if "html" in formats else {}
    if "pdf" not in formats:
        return contents, ()
    try:
        contents["pdf"] = pdf.pdf(page)
    except KvbenchError as error:
        return {"html": page.encode()}, (str(error),)
    return contents, tuple(filter(None, (pdf.font_warning(page),)))


def _write(run_dir: Path, name: str, content: bytes) -> Path:
    try:
        return write_atomically(run_dir / f"report.{name}", content)
    except OSError as error:
        raise KvbenchError(
            f"{run_dir / f'report.{name}'} cannot be written: {error.strerror}",
            f"make room or give rights, then: kvbench report {run_dir}",
        ) from None
