"""Tables that a script prints, put into the page that shows them.

A page marks the place of each table by its title in a comment, `<!-- The policies -->`; the lines
of the table below it are replaced. What stands around them is written by hand. It computes nothing.
"""

import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs" / "studies"
_PLACE = re.compile(r"^<!-- (?P<title>.+) -->\n\n(?:(?:\|.*\n)+\n?)?", re.MULTILINE)


def printed(show: Callable[[], None]) -> str:
    """What a function prints; it is printed all the same."""
    held = io.StringIO()
    with contextlib.redirect_stdout(held):
        show()
    print(held.getvalue(), end="")
    return held.getvalue()


def tables_of(text: str) -> dict[str, str]:
    """Title -> lines of every Markdown table."""
    tables = re.findall(r"^(?P<title>[^|\n].*)\n\n(?P<table>(?:\|.*\n)+)", text, re.MULTILINE)
    return dict(tables)


def filled(page: str, tables: dict[str, str]) -> str:
    """The page with these tables in their places; other places stay as they are."""

    def put(place: re.Match[str]) -> str:
        title = place["title"]
        return f"<!-- {title} -->\n\n{tables[title]}\n" if title in tables else place[0]

    return _PLACE.sub(put, page).rstrip("\n") + "\n"


def refresh(name: str, text: str) -> None:
    """Put the tables of a printed text into a page."""
    path = DOCS / name
    path.write_text(filled(path.read_text(encoding="utf-8"), tables_of(text)), encoding="utf-8")
