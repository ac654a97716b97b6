"""Draw a chart with matplotlib, for papers, slides and notebooks; pages draw theirs with
`assets/panel.js`.

matplotlib is imported when the first figure is drawn, without pyplot. Texts are never read as
formulas.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.analysis.charts import Chart, Line
from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.files import PYTHON, free_target, write_whole
from groupwise.wording import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _MUTED, _RULE = "#22262b", "#5d636c", "#e2e4e8"
_FIRST, _SECOND, _THIRD, _FOURTH, _BAD = (
    "#0064a4",
    "#c2500a",
    "#00795a",
    "#a3447f",
    "#b3261e",
)  # of the pages: Okabe and Ito, darkened
_SHADE = 0.09  # opacity of a failure
_NAMELESS = {  # metadata that would date a file, or that only say who made it
    "pdf": ("CreationDate", "Creator", "Producer"),
    "png": ("Software",),
    "svg": ("Date", "Creator", "Format", "Type"),
}
_STYLE: Any = {
    "svg.hashsalt": "groupwise",
    "text.parse_math": False,
    "font.size": 10,
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "text.color": _INK,
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class Look:
    """How a line of a role is drawn."""

    colour: str
    width: float = 0.0  # of the line, 0 for none
    dash: Any = "-"  # as matplotlib takes it
    band: float = 0.0  # opacity of its band
    dots: float = 0.0  # their size, 0 for none


_LOOKS = {
    "observed": Look("#a9b3bf", width=0.8),
    "smooth": Look(_FIRST, width=2.0),
    "law": Look(_FIRST, width=2.0, band=0.22),
    "rival": Look(_FOURTH, width=1.4, dash=":"),
    "second_rival": Look(_FOURTH, width=1.4, dash="-."),
    "forecast": Look(_THIRD, width=2.0, dash="--", band=0.2),
    "plateau": Look(_THIRD, width=1.2, dash=":"),
    "held_out": Look(_SECOND, dots=3.0),
    "evaluation": Look(_SECOND, width=1.6, dots=3.0),
    "beside": Look(_FOURTH, width=1.6),
    "expected": Look(_INK, width=1.4, dash="--"),
    "limit": Look("#a9b3bf", band=0.3),
    "stem": Look(_FIRST, dots=4.0),
    "unstable": Look(_BAD, band=0.12),
    "unsafe": Look(_BAD, band=0.4),
    "here": Look(_SECOND, dots=9.0),
    "first_run": Look(_FIRST, width=1.1),
    "second_run": Look(_SECOND, width=1.1, dash="--"),
    "first_level": Look(_FIRST, width=2.8, band=0.25),
    "second_level": Look(_SECOND, width=2.8, dash=(0, (3, 0.8)), band=0.25),
}


def figure_of(chart: Chart) -> Figure:
    """Draw a chart as a matplotlib figure, which saves itself as PDF, SVG or PNG."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise GroupwiseError(
            "expected matplotlib to draw with, got none: pip install 'groupwise[plot]'"
        ) from None

    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's matplotlibrc says
        mpl.rcParams.update(_STYLE)
        figure = Figure(figsize=(8.4, 4.2), layout="constrained")
        axes = figure.add_subplot(xlabel=chart.x_label, ylabel=chart.unit)
        axes.set_title(
            chart.title, loc="left", pad=20 if chart.marks else 8
        )  # labels of marks stand between title and axes
        named: set[str] = set()
        for line in chart.lines:
            key = line.name if line.role == "beside" else line.role
            _paint(axes, line, named=key not in named)
            named.add(key)
        _scales(axes, chart)
        if chart.shade is not None:
            start, end = chart.shade
            last = max((line.x[-1] for line in chart.lines if line.x), default=start)
            axes.axvspan(start, last if end is None else end, color=_BAD, alpha=_SHADE, linewidth=0)
        for mark in chart.marks:
            axes.axvline(mark.x, color=_MUTED, linewidth=1.0, linestyle=":")
            axes.annotate(
                mark.label,
                (mark.x, 1),
                xytext=(3, 3),
                xycoords=axes.get_xaxis_transform(),
                textcoords="offset points",
            )
        if len(named) > 1:
            figure.legend(loc="outside lower left", ncols=2, fontsize=9)
    return figure


def standalone(chart: Chart) -> str:
    """Draw a chart as a whole SVG document."""
    drawn = drawn_as(chart, "svg").decode()
    return drawn[drawn.index("<svg") :]


def drawn_as(chart: Chart, kind: str) -> bytes:
    """Draw a chart as the content of a file, the same every time: pdf, png or svg."""
    figure, buffer = figure_of(chart), io.BytesIO()
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "groupwise", "svg.fonttype": "none", "pdf.fonttype": 42}):
        figure.savefig(buffer, format=kind, dpi=200, metadata=dict.fromkeys(_NAMELESS[kind]))
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart that saves itself; a notebook shows it.

    Args:
        chart: what is drawn.
    """

    chart: Chart

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the figure.

        Args:
            path: a name that ends in .pdf, .png or .svg.
            force: whether to replace a file that is there.

        Returns:
            The path.

        Raises:
            InvalidArgumentError: another ending.
            OverwriteError: a file is there already.
            GroupwiseError: it cannot be written, or matplotlib is missing.
        """
        target = Path(path)
        kind = target.suffix.lower().removeprefix(".")
        if kind not in _NAMELESS:
            raise InvalidArgumentError(
                f"expected a name that ends in .pdf, .png or .svg, got {target.name!r}: choose one "
                "of them"
            )
        free_target(target, (), force=force, way=PYTHON)
        write_whole(target, drawn_as(self.chart, kind), force=force, way=PYTHON)
        return target

    def figure(self) -> Figure:
        """Return the figure of matplotlib, to change it."""
        return figure_of(self.chart)

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return standalone(self.chart)

    def __str__(self) -> str:
        """What is drawn, and how to get it."""
        return f'{self.chart.title} by {self.chart.x_label}: .save("curve.pdf") writes it.'

    def __repr__(self) -> str:
        """What is drawn."""
        return f"Plot({self.chart.title!r})"


def _values(line: Line, name: str = "y") -> Any:
    """Return a column of a line as floats, missing ones as nan."""
    return np.array(
        [math.nan if value is None else value for value in getattr(line, name)], dtype=float
    )


def _paint(axes: Axes, line: Line, *, named: bool) -> None:
    """Draw a line as its role looks; runs of one role have one name in the legend."""
    look, y = _LOOKS[line.role], _values(line)
    label = (f"{line.name}, {line.band}" if line.band else line.name) if named else "_"
    if look.band and line.low:
        only = not np.isfinite(y).any()
        ends = _values(line, "low"), _values(line, "high")
        axes.fill_between(
            line.x,
            *ends,
            color=look.colour,
            alpha=look.band,
            linewidth=0,
            label=label if only else "_",
        )
        if only:
            return
    style: dict[str, Any] = {
        "color": look.colour,
        "label": label,
        "linewidth": look.width,
        "linestyle": look.dash if look.width else "none",
    }
    axes.plot(line.x, y, marker="o" if look.dots else "", markersize=look.dots, **style)


def _scales(axes: Axes, chart: Chart) -> None:
    """Set the scales, the ordinates that the chart asks for, and ticks without rounding noise."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    if chart.x_scale == "log2":
        axes.set_xscale("log", base=2)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    if chart.y_scale == "log10":
        axes.set_yscale("log", base=10)
    if chart.y_range is not None:
        axes.set_ylim(*chart.y_range)
    for axis, scale in ((axes.xaxis, chart.x_scale), (axes.yaxis, chart.y_scale)):
        axis.set_major_formatter(FuncFormatter(_tick))
        if scale != "linear":
            axis.set_minor_locator(NullLocator())


def _tick(value: float, _position: int | None = None) -> str:
    """Write a tick."""
    if 0 < abs(value) < 1e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{number(float(mantissa))}e{int(exponent)}".replace("-", "−")
    return number(value, digits=4)
