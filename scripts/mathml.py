"""A hook of mkdocs: formulas become MathML when the site is built, so that a page asks no other
machine for a script.

It knows nothing of the pages but the marks that `pymdownx.arithmatex` leaves.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Replace every formula of a page."""
    content = DISPLAY.sub(
        lambda match: f"<p>{convert(html.unescape(match[1]), display='block')}</p>", content
    )
    return INLINE.sub(lambda match: convert(html.unescape(match[1])), content)
