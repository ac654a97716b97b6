"""The page of both papers: every function, test and script that it names exists, and every row
says what came out.
"""

from __future__ import annotations

import ast
import re
from importlib import import_module, util
from pathlib import Path
from typing import Any

from tests.cases import each_case

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "lab" / "docs"
PAGE = (DOCS / "papers.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ")
]
STATEMENTS = [row for row in ROWS if row[0] != "in the paper"]
OUTCOMES = ("holds", "holds with a condition", "differs", "not reproduced")


def resolved(dotted: str) -> Any:
    """The module, or the attribute of one, that a dotted name means."""
    if util.find_spec(dotted.rpartition(".")[0]) and not hasattr(
        import_module(dotted.rpartition(".")[0]), dotted.rpartition(".")[2]
    ):
        return import_module(dotted)
    return getattr(import_module(dotted.rpartition(".")[0]), dotted.rpartition(".")[2])


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_page_has_both_papers() -> None:
    assert [len(row) for row in ROWS] == [5] * len(ROWS)
    for label in (
        "Lemma 1",
        "Theorem 2",
        "Proposition 3",
        "Corollary 4",
        "Corollary 5",
        "Lemma 6",
        "Theorem 7",
        "Theorem 8",
    ):
        assert any(label in row[0] for row in STATEMENTS)
    assert len(STATEMENTS) > 30


@each_case("row", STATEMENTS)
def test_every_name_in_a_row_exists(row: list[str]) -> None:
    _, functions, tests, script, outcome = row
    assert named(functions)
    assert named(tests)
    for name in named(functions):
        assert name.startswith(("groupwise.", "groupwise_lab."))
        assert resolved(name) is not None
    for name in named(tests):
        path, _, function = name.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert not function or function in {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef)
        }, name
    assert all((ROOT / name).is_file() for name in named(script))
    assert outcome.startswith(OUTCOMES)


@each_case("link", sorted(set(re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE))))
def test_every_page_that_is_linked_exists(link: str) -> None:
    assert (DOCS / link).is_file()
