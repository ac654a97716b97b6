"""A hook of mkdocs: the laboratory's pages join the instrument's site under `lab/`.

A link is written as the file lies on disk, so that it works in a checkout; where it leads from one
tree to the other it is rewritten for the site. A file that is in neither tree has no page, and its
link becomes its path in code.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
TREES = {ROOT / "docs": "", ROOT / "lab" / "docs": "lab/"}
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)")


def place(path: Path) -> str | None:
    """Where a file of either tree is on the site."""
    for tree, prefix in TREES.items():
        if path.is_relative_to(tree):
            return prefix + path.relative_to(tree).as_posix()
    return None


def on_files(files: Files, *, config: Any) -> Files:
    """Add the laboratory's tree."""
    for path in sorted((ROOT / "lab" / "docs").rglob("*")):
        if path.is_file():
            files.append(File.generated(config, str(place(path)), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Write every link of a page as the site has it."""
    source = Path(page.file.abs_src_path)

    def rewritten(link: re.Match[str]) -> str:
        path = (source.parent / link["path"]).resolve()
        if not path.exists():
            return link[0]
        target = place(path)
        if target is None:
            return f"{link['text']} (`{path.relative_to(ROOT).as_posix()}`)"
        here = posixpath.relpath(target, posixpath.dirname(page.file.src_uri))
        return f"[{link['text']}]({here}{link['anchor'] or ''})"

    return LINK.sub(rewritten, markdown)
