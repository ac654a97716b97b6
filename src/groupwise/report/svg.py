"""Make a small inline SVG of matplotlib's: classes for styles, variables for colours, short numbers, no outside names.

Styles become classes of one sheet, so that a page can forbid inline styles. It draws nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_STYLE = re.compile(r' style="([^"]*)"')
_PATH = re.compile(r' d="([^"]*)"')
_ID = re.compile(r' id="([^"]+)"')
_REFERENCE = re.compile(r'(?:href="#|url\(#)([^")]+)')
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
    body = _STYLE.sub(lambda found: _as_class(sheet.class_of(found[1])), body)
    body = re.sub(r"\s*\n\s*", "", body)
    return re.sub(r"<g>((?:(?!</?g\b).)*)</g>", r"\1", body)


def _with_own_ids(body: str, prefix: str) -> str:
    """Keep only identifiers that something refers to, renamed with the prefix."""
    used = {name: f"{prefix}-{i}" for i, name in enumerate(dict.fromkeys(_REFERENCE.findall(body)))}
    body = _ID.sub(lambda found: f' id="{used[found[1]]}"' if found[1] in used else "", body)
    return re.sub(r'(href="#|url\(#)([^")]+)', lambda found: found[1] + used[found[2]], body)


def _as_class(name: str) -> str:
    """Return a class attribute, or nothing."""
    return f' class="{name}"' if name else ""


def _shorten(text: str) -> str:
    """Round every number to a tenth."""
    return _NUMBER.sub(lambda found: _tenth(found[0]), text)


def _tenth(text: str) -> str:
    """Return a number to a tenth, without a needless zero."""
    rounded = f"{float(text):.1f}"
    return rounded.removesuffix(".0").replace("-0", "0") if rounded in {"-0.0", "0.0"} else rounded.removesuffix(".0")


def _short_path(path: str) -> str:
    """Return path data with short numbers and no needless spaces."""
    shortened = _shorten(" ".join(path.split()))
    shortened = re.sub(r" ?([A-Za-z]) ?", r"\1", shortened)
    return shortened.replace(" -", "-")
