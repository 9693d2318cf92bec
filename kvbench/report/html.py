"""The report as one HTML page that needs nothing else: style and charts are in it, and it asks for no other file."""

from __future__ import annotations

from collections.abc import Callable

from kvbench.content import content_root
from kvbench.report import charts
from kvbench.report.document import Chart, View

TEMPLATES = "reports"


def page(view: View, draw: Callable[[Chart], str] = charts.svg) -> str:
    """The page as text. `draw` turns a chart into an `<svg>` element; everything else is escaped by the template."""
    from markupsafe import Markup

    return filled("report.html.j2", view=view, draw=lambda chart: Markup(draw(chart)))


def filled(template: str, **values: object) -> str:
    """One of the templates with its values, and the style sheet, as text."""
    import jinja2
    from markupsafe import Markup

    folder = content_root() / TEMPLATES
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = Markup((folder / "style.css").read_text(encoding="utf-8"))
    return environment.get_template(template).render(style=style, **values)
