"""Python files as trees, parsed once for all tests that read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_HOLDERS = ast.stmt | ast.excepthandler | ast.match_case


@cache
def tree(path: Path) -> ast.Module:
    """The tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file."""
    return tuple(ast.walk(tree(path)))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """A node and the statements in it, at any depth."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _HOLDERS):
            yield from statements(child)
