"""Charts as SVG, by matplotlib: the same bytes for the same chart, readable in black and white.

Text stays text, so that it can be searched and any script has its glyphs. Colours are those of Okabe and Ito (2008);
every style has a marker and a dash of its own besides. matplotlib is imported on the first drawing.
"""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING, Any

from kvbench.report.document import Chart, Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLES = (
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", "--"),
    ("#009E73", "^", "-."),
    ("#CC79A7", "D", ":"),
    ("#56B4E9", "v", (0, (5, 1))),
    ("#E69F00", "P", (0, (3, 1, 1, 1))),
)
_INK, _FAINT = "#1b1f24", "#d0d5da"
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kvbench",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "text.parse_math": False,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": "#6b737c",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "path.simplify": False,
}
_SIZE_INCHES = (4.2, 2.7)
_PAGE_FONTS = "font-family: Arial, 'Liberation Sans', 'Noto Sans CJK SC', sans-serif"


def svg(chart: Chart) -> str:
    """The chart as an `<svg>` element without ids of groups, scripts or dates, to stand inline in a page."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    out = io.StringIO()
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's fonts draw the text, not matplotlib's
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        FigureCanvasSVG(figure)
        _draw(figure.add_subplot(), chart)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(out.getvalue())


def _draw(axes: Axes, chart: Chart) -> None:
    if chart.band:
        axes.axvspan(*chart.band, facecolor="#e9edf1", edgecolor="none", zorder=0, label=chart.band_label)
        for edge in chart.band:
            axes.axvline(edge, color="#6b737c", linewidth=0.7, linestyle=(0, (2, 2)))
    for line in chart.lines:
        _draw_line(axes, line)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    highest = axes.dataLim.y1
    axes.set_ylim(0, 1.06 * highest if highest > 0 else 1)  # room above a line that hardly moves
    if chart.x_ticks:
        axes.set_xticks(chart.x_ticks, [f"{tick:g}" for tick in chart.x_ticks])
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.figure.legend(loc="outside upper left", ncols=min(4, len(handles)), handlelength=2.4, columnspacing=1.2)


def _draw_line(axes: Axes, line: Line) -> None:
    colour, marker, dash = _STYLES[line.style % len(_STYLES)]
    label = line.label.lstrip("_") or None  # a leading _ would hide it
    match line.draw:
        case "points":
            axes.plot(line.x, line.y, linestyle="", marker=marker, markersize=3.6, markerfacecolor="none",
                      markeredgecolor=colour, markeredgewidth=0.8, label=label)  # fmt: skip
        case "medians":
            axes.hlines(line.y, [x - 0.11 for x in line.x], [x + 0.11 for x in line.x], colors=_INK, linewidth=1.6)
        case "steps":
            axes.plot(line.x, line.y, color=colour, linestyle=dash, linewidth=1.2, marker=marker, markersize=3,
                      drawstyle="steps-pre", label=label)  # fmt: skip
        case "line":
            below = [y - low for y, low in zip(line.y, line.low or line.y, strict=True)]
            above = [high - y for y, high in zip(line.y, line.high or line.y, strict=True)]
            axes.errorbar(line.x, line.y, yerr=(below, above), color=colour, linestyle=dash, linewidth=1.4,
                          marker=marker, markersize=4.5, capsize=3, elinewidth=0.9, label=label)  # fmt: skip


def _inline(document: str) -> str:
    element = document[document.index("<svg") :]
    element = re.sub(r'<g id="[^"]*">', "<g>", element)
    element = re.sub(r'(<svg [^>]*?)width="[^"]*" height="[^"]*"', r"\1", element, count=1)
    element = re.sub(r"font-family: [^;\"]*", _PAGE_FONTS, element)
    return re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL).strip()
