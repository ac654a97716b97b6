"""Checks hand on facts: no module of the room branches on the wording of another, and every fact is
stated somewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.cases import each_case

import groupwise.diagnostics
from groupwise.diagnostics.judgement import Fact, stated
from groupwise.files import table_rows

MODULES = sorted(Path(groupwise.diagnostics.__file__).parent.glob("*.py"))
LABORATORY = Path(__file__).parents[2] / "lab/src/groupwise_lab/cli/probe.py"  # `probe kick`
COLUMNS = {"reward", "length", "entropy", "advantage", "environment"}
# Facts, and the words of their names but those of columns.
WORDS = {fact.value for fact in Fact} | {
    word for fact in Fact for word in fact.name.lower().split("_") if word not in COLUMNS
}
# A fact whose name begins so is computed from that quantity: "not logged" is said of it alone.
COMPUTED_FROM = {
    "LENGTH": "completion_length",
    "TRUNCATED": "truncated_share",
    "ENTROPY": "entropy",
    "GRADIENT": "gradient_norm",
    "RATE": "learning_rate",
    "KL": "kl",
}
# Attributes that hold sentences for people.
SENTENCES = {"message", "headline", "definition", "source", "words", "advice", "do"}


def test_a_fact_needs_the_quantity_that_it_is_computed_from() -> None:
    for row in table_rows("diagnostics/facts.tsv"):
        quantity = COMPUTED_FROM.get(row["fact"].split("_")[0])
        assert quantity is None or quantity in row["quantities"].split(), row


def texts_in(node: ast.expr) -> Iterator[str]:
    """The texts that a side of a comparison is, itself or one by one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for part in getattr(node, "elts", getattr(node, "values", [])):
        yield from texts_in(part)


def branches(tree: ast.Module) -> Iterator[tuple[int, list[ast.expr], bool]]:
    """Line and parts of every comparison and of every look at how a text begins or ends."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            inside = any(isinstance(way, ast.In | ast.NotIn) for way in node.ops)
            yield node.lineno, [node.left, *node.comparators], inside
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("startswith", "endswith", "find", "index")
        ):
            yield node.lineno, [node.func.value, *node.args], True


def wordings(source: str) -> list[str]:
    """Comparisons of a module with a phrase, with the word of a fact, or with a sentence."""
    wrong = []
    for line, parts, inside in branches(ast.parse(source)):
        texts = [text for part in parts for text in texts_in(part)]
        phrases = [text for text in texts if text in WORDS or " " in text.strip(" ,;")]
        sentences = [
            part.attr
            for part in parts
            if inside and isinstance(part, ast.Attribute) and part.attr in SENTENCES
        ]
        wrong += [f"line {line}: {text!r}" for text in (*phrases, *sentences)]
    return wrong


@each_case("path", MODULES)
def test_no_module_branches_on_wording(path: Path) -> None:
    own = {"verifier": 1}  # where the drop was told to begin, by its own words
    assert len(wordings(path.read_text(encoding="utf-8"))) <= own.get(path.stem, 0)


@each_case(
    "source",
    [
        'finding.fact("drop") == "constant at once"',
        'behaviour != "changed"',
        'fall.startswith(("function", "decline"))',
        '"old" in meaning.definition',
        'series.source.startswith("from")',
    ],
)
def test_comparisons_with_wording_are_seen(source: str) -> None:
    assert wordings(source)


def test_every_fact_is_stated_by_a_check() -> None:
    """In its code, or in the table of what a gap may go with, which one check reads."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in (*MODULES, LABORATORY))
    code += "".join(f"Fact.{row['fact']}\n" for row in table_rows("diagnostics/companions.tsv"))
    assert [fact.name for fact in Fact if f"Fact.{fact.name}" not in code] == []


def test_what_is_not_known_is_not_stated() -> None:
    assert stated(None, Fact.DECLINE, None) == (Fact.DECLINE,)
