"""Every number that a check decides by is in `limits.tsv`, and nothing else is.

0, 1, 2 and -1 are exempt: they count, halve and index. So are numbers within the text of a
message, and bounds of slices, which say where rows are.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import groupwise.diagnostics
from groupwise.files import table_rows

ROOM = Path(groupwise.diagnostics.__file__).parent
EXEMPT = {0, 1, 2}
RATES = {"convention", "mathematics", "measured", "false alarms"}
UNITS = {
    *("share", "share squared", "ratio", "relative", "per cent", "probability", "quantile"),
    *("correlation", "rank correlation", "standard errors", "standard deviations"),
    *("degrees of freedom", "twice the log-likelihood", "logarithm", "bits"),
    *("nats a token", "nats squared", "reward", "reward squared", "norm", "weight"),
    *("units of the column", "units of the column squared", "units of the last digit"),
    *("rows", "parts", "blocks", "bins", "gaps", "turns", "tries", "draws", "rounds", "values"),
    *("steps", "updates", "groups", "prompts", "rollouts", "answers", "tokens", "environments"),
    *("characters", "digits", "seconds an hour"),
    "several",  # one number with two uses, which the meaning names
    "none",  # a degree, an exponent, a factor of algebra or a place
}


def numbers(node: ast.AST, place: str) -> Iterator[tuple[str, float]]:
    """The numbers below a node, each with its function or constant."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield from numbers(child, f"{place}.{child.name}")
        elif isinstance(child, ast.Assign | ast.AnnAssign) and isinstance(node, ast.Module):
            for name, value in constants(child):
                yield from numbers(ast.Expr(value), f"{place}.{name}")
        elif isinstance(child, ast.Constant):
            number = child.value
            if isinstance(number, int | float) and number not in EXEMPT:  # and so no truth value
                yield place, float(number)
        elif not isinstance(child, ast.JoinedStr | ast.Slice):
            yield from numbers(child, place)


def constants(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[str, ast.expr]]:
    """The names that a module assigns, each with its own value where several are at once."""
    target, value = node.targets[0] if isinstance(node, ast.Assign) else node.target, node.value
    assert value is not None
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=True)
        yield from ((ast.unparse(name), each) for name, each in pairs)
    else:
        yield ast.unparse(target), value


def decided_by(source: str, module: str) -> set[tuple[str, float]]:
    """The numbers of a module that are not exempt."""
    return set(numbers(ast.parse(source), module))


TABLE = list(table_rows(ROOM / "limits.tsv"))
LISTED = {(row["name"], float(row["value"])) for row in TABLE}


@pytest.mark.parametrize("path", sorted(ROOM.glob("*.py")), ids=lambda path: path.stem)
def test_every_number_of_a_check_is_in_the_table(path: Path) -> None:
    decided = decided_by(path.read_text(encoding="utf-8"), path.stem)
    listed = {entry for entry in LISTED if entry[0].partition(".")[0] == path.stem}
    assert sorted(decided - listed) == []
    assert sorted(listed - decided) == []


def test_every_limit_says_what_it_means_and_what_set_it() -> None:
    assert len(LISTED) == len(TABLE)
    assert [row for row in TABLE if not row["meaning"] or row["rate"] not in RATES] == []
    measured = [row for row in TABLE if row["rate"] in ("measured", "false alarms")]
    assert measured
    assert [row["name"] for row in measured if not row["command"]] == []


def test_every_limit_has_a_known_unit_and_a_meaning_of_its_own() -> None:
    assert sorted({row["unit"] for row in TABLE} - UNITS) == []
    meant = Counter((row["name"].partition(".")[0], row["meaning"]) for row in TABLE)
    assert [meaning for meaning, rows in meant.items() if rows > 1] == []


def test_a_number_that_is_not_listed_is_seen() -> None:
    source = "HALF = 0.5\ndef check(x):\n    return f'{x:.3f}' if x[3:4] > 7.5 * x[0] else 2\n"
    assert decided_by(source, "module") == {("module.HALF", 0.5), ("module.check", 7.5)}
