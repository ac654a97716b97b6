"""Build HTML so that forgetting to escape is a type error: text and markup are two types."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from importlib import resources

from groupwise.plain import frozen
from groupwise.wording import clean

_LONGEST = 4000


@frozen
class Markup:
    """Markup that is safe already."""

    source: str

    def __str__(self) -> str:
        """Return the markup itself."""
        return self.source


def text(content: object) -> Markup:
    """Escape text, whatever it holds; a percent sign stays with its number."""
    return Markup(
        html.escape(clean(content, longest=_LONGEST), quote=True).replace(" %", "\u00a0%")
    )


def isolated(content: object) -> Markup:
    """Escape text from a log and keep its writing direction to itself."""
    return Markup(f"<bdi>{text(content)}</bdi>")


def breakable(name: str) -> Markup:
    """Escape a name that may be broken across lines after its punctuation."""
    parts = map(text, re.split(r"(?<=[_/.-])", clean(name)))
    return Markup(f"<bdi>{join(parts, '<wbr>')}</bdi>")


def join(parts: Iterable[Markup], separator: str = "") -> Markup:
    """Put markup together."""
    return Markup(separator.join(part.source for part in parts))


def tag(name: str, content: Markup, **attributes: str) -> Markup:
    """Wrap markup in an element."""
    pairs = (
        (key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value
    )
    written = "".join(f' {key}="{html.escape(value, quote=True)}"' for key, value in pairs)
    return Markup(f"<{name}{written}>{content.source}</{name}>")


def page_file(name: str) -> str:
    """Return one of the files beside this module, or of those under assets/."""
    return resources.files("groupwise.pages").joinpath(*name.split("/")).read_text(encoding="utf-8")
