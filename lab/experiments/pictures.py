"""Draws the pictures of the laboratory's pages from the tables of results; runs no experiment.

    python lab/experiments/pictures.py [PICTURE ...]

A line of pictures.tsv is one curve: its picture, the panel and the labels of its axes, their
scales, Matplotlib's mark, the label, the tables (FOLDER/[PART/]NAME, where * stands for any
letters) and the query in SQL that gives x, y and, where there is one, the half-width `error`. The
column `name` holds the name of a row's table.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import polars as pl
from common import Results

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent / "docs" / "img"
# Okabe and Ito: colour-blind eyes tell them apart; each curve has its own dash or marker besides.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#e69f00", "#000000", "#56b4e9", "#cc79a7")
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "groupwise",
    "svg.fonttype": "none",
    "path.simplify_threshold": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.constrained_layout.use": True,
    "font.size": 11,
    "axes.titlesize": 11,
}
UNSEEN = re.compile(
    r'<metadata>.*?</metadata>|<!--.*?-->|<\?xml.*?\?>|<!DOCTYPE.*?>|(?<=<g) id="[^"]*"', re.DOTALL
)
CurveRow = dict[str, str]


def curves() -> dict[str, list[CurveRow]]:
    """The curves of every picture."""
    by_picture: dict[str, list[CurveRow]] = {}
    with (HERE / "pictures.tsv").open(encoding="utf-8", newline="") as lines:
        for curve in csv.DictReader(lines, delimiter="\t"):
            by_picture.setdefault(curve["picture"], []).append(curve)
    return by_picture


def points(tables: str, query: str) -> pl.DataFrame:
    """The points of a curve."""
    folder, *parts, pattern = tables.split("/")
    results = Results(HERE / folder / "results.txt")
    for part in parts:
        results = results.within(part)
    rows = [
        {"name": name, **row}
        for name, table in results.tables().items()
        if fnmatch(name, pattern)
        for row in table
    ]
    columns = {key: [None if row[key] == "" else row[key] for row in rows] for key in rows[0]}
    return pl.DataFrame(columns, strict=False).sql(query)


def draw(picture: str, picture_curves: list[CurveRow]) -> None:
    """Write a picture; the same numbers give the same file."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({**STYLE, "axes.prop_cycle": mpl.cycler(color=COLOURS)})
    panels = list(dict.fromkeys(curve["panel"] for curve in picture_curves))
    rows = math.ceil(len(panels) / 3)
    columns = math.ceil(len(panels) / rows)
    size = (1 + 4 * columns, 4 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for curve in picture_curves:
        axis = axes.flat[panels.index(curve["panel"])]
        table = points(curve["tables"], curve["query"])
        error = table["error"] if "error" in table.columns else None
        axis.errorbar(table["x"], table["y"], error, fmt=curve["mark"], label=curve["label"])
        axis.set(title=curve["panel"], xlabel=curve["x"], ylabel=curve["y"])
        for side, scale in zip((axis.xaxis, axis.yaxis), curve["scales"].split(), strict=True):
            if scale == "doublings":
                side._set_axes_scale("log", base=2)
                side.set_major_formatter("{x:g}")
            else:
                side._set_axes_scale(scale)
    handles = {curve.get_label(): curve for axis in axes.flat for curve in axis.containers}
    figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=columns + 1)
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata={"Date": None})
    plt.close(figure)
    (PICTURES / f"{picture}.svg").write_text(compact(svg.getvalue()), encoding="utf-8")


def compact(svg: str) -> str:
    """The same picture with one digit behind the point, and without what no reader looks at."""
    svg = re.sub(r"<[^>]*>", compact_tag, UNSEEN.sub("", svg))
    return re.sub(r"\s*\n\s*", "\n", svg).strip() + "\n"


def compact_tag(tag: re.Match[str]) -> str:
    """A tag with coordinates of one digit behind the point."""
    text = re.sub(r"\s+", " ", tag[0])
    text = re.sub(r"-?\d+\.\d+", lambda digits: f"{float(digits[0]):.1f}", text)
    text = re.sub(r"(?<=\d)\.0\b| L(?= [\d-])", "", text)
    text = re.sub(r"font-family: '[^;\"]*", "font-family: sans-serif", text)
    return text.replace("; ", ";").replace(": ", ":")


def main() -> None:
    """Draw the pictures that the command names, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    by_picture = curves()
    parser.add_argument("picture", nargs="*", metavar="PICTURE", help=", ".join(by_picture))
    for picture in parser.parse_args().picture or by_picture:
        draw(picture, by_picture[picture])


if __name__ == "__main__":
    main()
