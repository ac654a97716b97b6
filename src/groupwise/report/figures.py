"""Draw charts as inline SVG with matplotlib: one chart, one figure, colours that survive grey and dark.

matplotlib is imported when the first figure is drawn, without pyplot. No text of a log is ever given to it.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.analysis.charts import Chart, Line
from groupwise.report.markup import text
from groupwise.wording import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Light-theme colours, each standing for the CSS variable of the page; matplotlib's own output keeps them apart.
COLOURS = {
    "ink": "#22262b",
    "muted": "#6a7079",
    "rule": "#d9dce1",
    "observed": "#a3a9b3",
    "law": "#0b5cad",
    "rival": "#7d5a9e",
    "forecast": "#0b5cae",
    "evaluation": "#c2500a",
    "expected": "#22262c",
    "bad": "#b3261e",
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "groupwise",
    "font.size": 11,
    "axes.edgecolor": COLOURS["muted"],
    "axes.labelcolor": COLOURS["muted"],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "ytick.major.size": 0,
    "xtick.major.size": 3,
    "text.color": COLOURS["ink"],
    "path.simplify": False,
}
WIDE, HALF = (860, 350), (416, 250)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart as SVG, with what the page's script needs to find values on it."""

    svg: str  # content of the `<svg>` element
    width: int  # of its view box
    height: int  # of its view box
    box: tuple[float, float, float, float]  # left, top, right, bottom of the axes in the view box
    x_range: tuple[float, float]  # abscissae at the left and the right edge
    y_range: tuple[float, float]  # ordinates at the bottom and the top edge


def new_sheet() -> StyleSheet:
    """Return an empty style sheet that knows the palette."""
    return StyleSheet({colour: name for name, colour in COLOURS.items()})


def draw(chart: Chart, *, prefix: str, sheet: StyleSheet, size: tuple[int, int] | None = None) -> Drawing:
    """Draw a chart."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    width, height = size or (WIDE if chart.wide else HALF)
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's matplotlibrc says
        mpl.rcParams.update(_STYLE)
        figure = Figure(figsize=(width / 72, height / 72))
        axes = _axes(figure, chart, width, height)
        for line in chart.lines:
            if line.role != "plateau":
                _paint(axes, line)
        _limits(axes, chart)
        for line in chart.lines:
            if line.role == "plateau":
                _plateau(axes, line)  # beside the axes, so their limits must be known
        _marks(axes, chart)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    place = axes.get_position()
    box = (place.x0 * width, (1 - place.y1) * height, place.x1 * width, (1 - place.y0) * height)
    return Drawing(compact(buffer.getvalue(), prefix=prefix, sheet=sheet), width, height, box, axes.get_xlim(), axes.get_ylim())


def standalone(chart: Chart, *, prefix: str) -> str:
    """Draw a chart alone, for papers and slides: light colours, with a legend in words below."""
    sheet = new_sheet()
    drawing = draw(chart, prefix=prefix, sheet=sheet)
    css = sheet.css()
    for name, colour in COLOURS.items():
        css = css.replace(f"var(--{name})", colour)
    names = {line.role: line.name for line in reversed(chart.lines)}
    words, left = "", 50.0
    for role in dict.fromkeys(line.role for line in chart.lines if line.role in _SAMPLES):
        label = f'<text x="26" font-size="10.5" fill="{COLOURS["muted"]}">{text(names[role])}</text>'
        words += f'<g transform="translate({left:.0f} {drawing.height + 14})">{_SAMPLES[role]}{label}</g>'
        left += 46 + 5.6 * len(names[role])
    width, height = max(drawing.width, round(left)), drawing.height + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" role="img"><title>{text(chart.title)}</title><style>{css}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{drawing.svg}{words}</svg>\n'
    )


# What a line looks like in the legend of a figure that stands alone, by its role.
_SAMPLES = {
    "unstable": f'<rect width="20" height="9" y="-8" fill="{COLOURS["bad"]}" opacity=".12"/>',
    "unsafe": f'<rect width="20" height="9" y="-8" fill="{COLOURS["bad"]}" opacity=".4"/>',
    "law": f'<path d="M0-4h20" stroke="{COLOURS["law"]}" stroke-width="2"/>',
    "rival": f'<path d="M0-4h20" stroke="{COLOURS["rival"]}" stroke-width="1.6" stroke-dasharray="1.4 2.2"/>',
    "second_rival": f'<path d="M0-4h20" stroke="{COLOURS["rival"]}" stroke-width="1.6" stroke-dasharray="8 2.6 1.4 2.6"/>',
    "here": f'<circle cx="10" cy="-4" r="4.5" fill="{COLOURS["evaluation"]}" stroke="{COLOURS["ink"]}" stroke-width="1.6"/>',
    "first_run": f'<path d="M0-4h20" stroke="{COLOURS["law"]}" stroke-width="1.1"/>',
    "second_run": f'<path d="M0-4h20" stroke="{COLOURS["evaluation"]}" stroke-width="1.1" stroke-dasharray="4.4 1.8"/>',
    "first_level": (
        f'<rect width="20" height="11" y="-9.5" fill="{COLOURS["law"]}" opacity=".25"/>'
        f'<path d="M0-4h20" stroke="{COLOURS["law"]}" stroke-width="2.8"/>'
    ),
    "second_level": (
        f'<rect width="20" height="11" y="-9.5" fill="{COLOURS["evaluation"]}" opacity=".25"/>'
        f'<path d="M0-4h20" stroke="{COLOURS["evaluation"]}" stroke-width="2.8" stroke-dasharray="8.4 2.2"/>'
    ),
}


def _axes(figure: Figure, chart: Chart, width: int, height: int) -> Axes:
    """Return axes with room for their labels, thin rules and plain numbers."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    plateau = any(line.role == "plateau" for line in chart.lines)
    right = 1 - (78 if plateau else 14) / width
    head = 40 if chart.marks else 26  # the labels of marks have a row of their own, below the axis title, so that the two cannot meet
    axes = figure.add_axes((50 / width, 40 / height, right - 50 / width, 1 - (40 + head) / height))
    figure.patch.set_visible(False)
    axes.patch.set_visible(False)
    axes.grid(axis="y", color=COLOURS["rule"], linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xlabel(chart.x_label, labelpad=3)
    axes.annotate(
        chart.y_label, (0, 1), xytext=(-44, head - 17), xycoords="axes fraction", textcoords="offset points", color=COLOURS["muted"]
    )
    if chart.x_scale == "log2":
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7 if width > 600 else 5, integer=True))
    if chart.y_scale == "log10":
        axes.set_yscale("log", base=10)
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(_tick))
    return axes


def _tick(value: float, _position: int | None = None) -> str:
    """Write a tick: 12k for twelve thousand, no rounding noise."""
    if abs(value) >= 10_000:
        scale, unit = (1e6, "M") if abs(value) >= 1e6 else (1e3, "k")
        return f"{number(value / scale, digits=4)}{unit}"
    if 0 < abs(value) < 1e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{number(float(mantissa))}e{int(exponent)}".replace("-", "−")
    return number(value, digits=4)


def _values(line: Line, name: str = "y") -> Any:
    """Return a column of a line as floats, missing ones as nan."""
    return np.array([math.nan if value is None else value for value in getattr(line, name)], dtype=float)


@dataclass(frozen=True, slots=True)
class Look:
    """How a line of a role is drawn: its band, its line and its dots, each where it has a size."""

    colour: str  # a name in `COLOURS`
    width: float = 0.0  # of the line, 0 for none
    dash: Any = "-"  # as matplotlib takes it
    band: float = 0.0  # opacity of its band
    dots: float = 0.0  # their diameter, 0 for none
    above: float = 3  # what is higher is drawn over what is lower


LOOKS = {
    "observed": Look("observed", width=0.7, above=2),
    "averaged": Look("ink", dots=4.6, above=3.5),
    "law": Look("law", width=2.0, band=0.22, above=4),
    "rival": Look("rival", width=1.4, dash=(0, (1, 1.6))),
    "second_rival": Look("rival", width=1.4, dash=(0, (6, 2, 1, 2))),
    "forecast": Look("forecast", width=2.0, dash=(0, (4, 2)), band=0.25, above=4),
    "held_out": Look("evaluation", dots=3.6, above=2),
    "evaluation": Look("evaluation", width=1.6, above=4),
    "expected": Look("expected", width=1.5, dash=(0, (5, 2))),
    "limit": Look("observed", band=0.3),
    "unstable": Look("bad", band=0.12),
    "unsafe": Look("bad", band=0.35),
    "first_run": Look("law", width=1.1),
    "second_run": Look("evaluation", width=1.1, dash=(0, (4, 1.6))),
    "first_level": Look("law", width=2.8, band=0.25, above=5),
    "second_level": Look("evaluation", width=2.8, dash=(0, (3, 0.8)), band=0.25, above=5),
}
_FEW, _FEW_EVALUATIONS = 150, 80  # rows that are drawn as dots


def _paint(axes: Axes, line: Line) -> None:
    """Draw a line as its role looks."""
    value_T = _values(line)
    if line.role == "observed" and len(line.x) <= _FEW:
        _dots(axes, line, colour="observed", diameter=4.0, above=2)
        return
    if line.role == "stem":
        axes.axhline(0, color=COLOURS["muted"], linewidth=0.8)
        axes.vlines(line.x, 0, value_T, color=COLOURS["law"], linewidth=3.0, zorder=3)
        return
    if line.role == "here":  # a dot that no line hides
        _dots(axes, line, colour="ink", diameter=11.0, above=6)
        _dots(axes, line, colour="evaluation", diameter=7.0, above=6.5)
        return
    look = LOOKS[line.role]
    if look.band and line.low:
        alone = line.role == "forecast" and not np.isfinite(value_T).any()  # the band of the rows, behind that of the mean
        ends = _values(line, "low"), _values(line, "high")
        axes.fill_between(line.x, *ends, color=COLOURS[look.colour], alpha=0.1 if alone else look.band, linewidth=0, zorder=1.5)
    if look.width:
        axes.plot(line.x, value_T, color=COLOURS[look.colour], linewidth=look.width, linestyle=look.dash, zorder=look.above)
    if look.dots:
        _dots(axes, line, colour=look.colour, diameter=look.dots, above=look.above)
    if line.role == "evaluation" and len(line.x) <= _FEW_EVALUATIONS:
        _dots(axes, line, colour=look.colour, diameter=6.0, above=5)


def _dots(axes: Axes, line: Line, *, colour: str, diameter: float, above: float) -> None:
    """Draw dots as one path of round-ended points of no length: a tenth of the size of matplotlib's markers."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    x, y = np.asarray(line.x, dtype=float), _values(line)
    usable = np.isfinite(y)
    points = np.repeat(np.column_stack([x[usable], y[usable]]), 2, axis=0)
    if not len(points):
        return
    path = Path(points, np.tile(np.array([Path.MOVETO, Path.LINETO], dtype=np.uint8), len(points) // 2))
    path.should_simplify = False
    axes.add_patch(PathPatch(path, fill=False, edgecolor=COLOURS[colour], linewidth=diameter, capstyle="round", zorder=above))
    axes.update_datalim(points)


def _plateau(axes: Axes, line: Line) -> None:
    """The plateau with its interval, in the margin right of the axes."""
    place, value = axes.get_yaxis_transform(), _values(line)[0]
    bottom, top = axes.get_ylim()
    if not bottom <= value <= top:
        return
    low = max(bottom, _values(line, "low")[0]) if line.low[0] is not None else bottom
    high = min(top, _values(line, "high")[0]) if line.high[0] is not None else top
    style: dict[str, Any] = {"transform": place, "color": COLOURS["forecast"], "clip_on": False, "zorder": 5}
    axes.plot([1.018, 1.018], [low, high], linewidth=2.2, **style)
    axes.plot([1.010, 1.026], [value, value], linewidth=2.2, **style)
    axes.annotate(
        f"plateau\n{number(value)}",
        (1.018, value),
        xycoords=place,
        xytext=(9, 0),
        textcoords="offset points",
        va="center",
        color=COLOURS["forecast"],
    )


def _limits(axes: Axes, chart: Chart) -> None:
    """Set both ranges: all of the steps, and the ordinates that the chart asks for."""
    ends = [x for line in chart.lines if line.role != "plateau" for x in (line.x[:1] + line.x[-1:])]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    if chart.x_scale == "log2":
        factor = (high / low) ** 0.015 if high > low else 2.0
        axes.set_xlim(low / factor, high * factor)
    else:
        pad = 0.015 * (high - low) or 1.0
        axes.set_xlim(low - pad, high + pad)
    if chart.y_range is not None:
        axes.set_ylim(*chart.y_range)
    else:
        axes.autoscale_view(scalex=False)


def _marks(axes: Axes, chart: Chart) -> None:
    """Draw the vertical rules with their labels."""
    place_of = axes.transData + axes.transAxes.inverted()
    points = axes.bbox.width * 72 / axes.figure.dpi
    for place, mark in enumerate(chart.marks):
        axes.axvline(mark.x, color=COLOURS["muted"], linewidth=1.0, linestyle=(0, (2, 2)), zorder=2.5)
        part = float(place_of.transform((mark.x, 0.0))[0])
        room = part * points + 44 > 6 * len(mark.label)  # to the left of the rule; a letter is six points wide at most
        ends = part > 0.8 or (room and place + 1 < len(chart.marks))
        style: Any = {"xytext": (-4, 3), "ha": "right"} if ends else {"xytext": (4, 3), "ha": "left"}
        style |= {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points", "va": "bottom", "color": COLOURS["muted"]}
        axes.annotate(mark.label, (mark.x, 1), **style)


_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_STYLE_ATTRIBUTE = re.compile(r' style="([^"]*)"')
_PATH = re.compile(r' d="([^"]*)"')
_ID = re.compile(r' id="([^"]+)"')
_REFERENCE = re.compile(r'(href="#|url\(#)([^")]+)')
_NOT_NEEDED = re.compile(r"font-family|font-variant|font-stretch|stroke-linejoin: round|stroke-linecap: butt")


class StyleSheet:
    """Collects style declarations of many figures; equal ones share a class."""

    def __init__(self, colours: Mapping[str, str]) -> None:
        self._colours = dict(colours)
        self._classes: dict[str, str] = {}

    def class_of(self, style: str) -> str:
        """Return the class of a style attribute; "" where nothing of it is needed."""
        parts = [part.strip() for part in style.split(";")]
        kept = ";".join(part.replace(": ", ":") for part in parts if part and not _NOT_NEEDED.match(part))
        for colour, variable in self._colours.items():
            kept = kept.replace(colour, f"var(--{variable})")
        return self._classes.setdefault(kept, f"f{len(self._classes)}") if kept else ""

    def css(self) -> str:
        """Return the rules of all classes so far."""
        return "".join(f".{name}{{{rule}}}" for rule, name in self._classes.items())


def compact(svg: str, *, prefix: str, sheet: StyleSheet) -> str:
    """Return the content of matplotlib's SVG fit for a page."""
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href", "href").replace(' xml:space="preserve"', "")
    body = _with_own_ids(body, prefix)
    body = _PATH.sub(lambda found: f' d="{_short_path(found[1])}"', body)
    body = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", body)
    body = re.sub(r' (x|y|x1|y1|width|height)="([^"]*)"', lambda found: f' {found[1]}="{_shorten(found[2])}"', body)
    body = re.sub(r' transform="([^"]*)"', lambda found: f' transform="{_shorten(found[1])}"', body)
    body = _STYLE_ATTRIBUTE.sub(lambda found: f' class="{sheet.class_of(found[1])}"', body).replace(' class=""', "")
    body = re.sub(r"\s*\n\s*", "", body)
    return re.sub(r"<g>((?:(?!</?g\b).)*)</g>", r"\1", body)


def _with_own_ids(body: str, prefix: str) -> str:
    """Keep only identifiers that something refers to, renamed with the prefix."""
    used = {name: f"{prefix}-{i}" for i, name in enumerate(dict.fromkeys(name for _, name in _REFERENCE.findall(body)))}
    body = _ID.sub(lambda found: f' id="{used[found[1]]}"' if found[1] in used else "", body)
    return _REFERENCE.sub(lambda found: found[1] + used[found[2]], body)


def _shorten(text: str) -> str:
    """Round every number to a tenth, without a needless zero."""
    return _NUMBER.sub(lambda found: f"{round(float(found[0]), 1) + 0.0:.1f}".removesuffix(".0"), text)


def _short_path(path: str) -> str:
    """Return path data with short numbers and no needless spaces."""
    shortened = _shorten(" ".join(path.split()))
    shortened = re.sub(r" ?([A-Za-z]) ?", r"\1", shortened)
    return shortened.replace(" -", "-")
