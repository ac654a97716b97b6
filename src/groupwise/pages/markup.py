"""Build HTML in which nothing can be left unescaped: whatever becomes a part of an element and is
no markup is escaped there.
"""

import html
import re
from importlib import resources

from groupwise.files import table_rows
from groupwise.plain import frozen
from groupwise.wording import clean

_LONGEST = 4000
# The files of which a page's styles and its script are made; a list draws no chart.
FILES = {row["part"]: row["files"].split() for row in table_rows("pages/files.tsv")}


@frozen
class Markup:
    """Markup that is safe already."""

    source: str

    def __str__(self) -> str:
        """Return the markup itself."""
        return self.source


def isolated(content: object) -> Markup:
    """Keep the writing direction of a text from a log to itself."""
    return tag("bdi", content)


def breakable(name: str) -> Markup:
    """Let a name be broken across lines after its punctuation."""
    return tag("bdi", join(*re.split(r"(?<=[_/.-])", clean(name)), separator="<wbr>"))


def join(*parts: object, separator: str = "") -> Markup:
    """Put markup together, and texts, whatever they hold; a percent sign stays with its number."""
    return Markup(
        separator.join(
            part.source
            if isinstance(part, Markup)
            else html.escape(clean(part, longest=_LONGEST)).replace(" %", "\u00a0%")
            for part in parts
        )
    )


def tag(name: str, *content: object, **attributes: str) -> Markup:
    """Wrap texts and markup in an element."""
    pairs = (
        (key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value
    )
    written = "".join(f' {key}="{html.escape(value)}"' for key, value in pairs)
    return Markup(f"<{name}{written}>{join(*content)}</{name}>")


def page_file(name: str) -> str:
    """Return one of the files beside this module, or of those under assets/."""
    return resources.files("groupwise.pages").joinpath(*name.split("/")).read_text(encoding="utf-8")


def filled(file: str, /, **places: object) -> Markup:
    """Return the markup of a file with its places, such as {{heading}}, filled by texts and
    markup.
    """
    source = page_file(file).rstrip("\n")
    return Markup(re.sub(r"\{\{(\w+)\}\}", lambda place: join(places[place[1]]).source, source))
