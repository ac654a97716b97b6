"""No regular expression of the package takes more than time in proportion to its text."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from tests.cases import each_case
from tests.matching import fault
from tests.sources import nodes

import groupwise

HOME = Path(groupwise.__file__).parent
CALLS = {"match": "match", "fullmatch": "fullmatch"} | dict.fromkeys(
    ("search", "sub", "subn", "split", "findall", "finditer"), "search"
)


def patterns() -> Iterator[tuple[str, str | bytes, int, str]]:  # noqa: C901
    """Where each pattern stands, what it is, its flags, and how it is tried: `match`,
    `fullmatch` or anywhere.
    """
    for path in sorted(HOME.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "import re\n" not in text and "forms(" not in text:
            continue
        name = ".".join(path.relative_to(HOME.parent).with_suffix("").parts)
        module = importlib.import_module(name.removesuffix(".__init__"))
        tried: dict[str, set[str]] = {}
        for node in nodes(path):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.attr in CALLS
            ):
                tried.setdefault(node.value.id, set()).add(CALLS[node.attr])
            if not (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in CALLS
                and node.args
            ):
                continue
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
                ignores = any(
                    "IGNORECASE" in ast.unparse(word) for word in (*node.args[2:], *node.keywords)
                )
                try:
                    pattern = eval(
                        compile(ast.Expression(node.args[0]), name, "eval"), vars(module)
                    )
                except NameError:  # made of what a call was given
                    continue
                yield (
                    f"{path.relative_to(HOME)}:{node.lineno}",
                    pattern,
                    re.IGNORECASE * ignores,
                    CALLS[node.func.attr],
                )
        for node in nodes(path):  # for pattern in PATTERNS: pattern.match(...)
            if isinstance(node, ast.For | ast.comprehension):
                names = [
                    {node.id for node in ast.walk(side) if isinstance(node, ast.Name)}
                    for side in (node.target, node.iter)
                ]
                for constant in names[1]:
                    tried.setdefault(constant, set()).update(
                        *(tried.get(target, ()) for target in names[0])
                    )
        for name, member in vars(module).items():
            for pattern in compiled(member):
                for how in tried.get(name) or {"search"}:
                    yield f"{path.relative_to(HOME)} {name}", pattern.pattern, pattern.flags, how


def compiled(pattern: object) -> Iterator[re.Pattern[str] | re.Pattern[bytes]]:
    """The patterns in a constant of a module."""
    if isinstance(pattern, re.Pattern):
        yield pattern
    elif isinstance(pattern, tuple | list | dict):
        for part in pattern.values() if isinstance(pattern, dict) else pattern:
            yield from compiled(part)


@each_case(
    ("pattern", "how", "slow"),
    [
        (r"(a+)+b", "match", True),
        (r"(?:,\d+)*x", "match", False),
        (r"\d+\.?\d+$", "match", True),
        (r"\d+(?:\.\d+)?$", "match", False),
        (r"\d+x", "search", True),
        (r"\d+x", "match", False),
        (r"(?<!\d)\d+x", "search", False),
        (r"\s*+\s*x", "match", False),
        (r"(.*)pid=(\d+).*", "fullmatch", True),
        (r"(.*)pid=(\d+)", "match", False),
    ],
)
def test_what_takes_more_than_time_in_proportion(pattern: str, how: str, slow: bool) -> None:
    assert bool(fault(pattern, 0, how)) == slow


def test_every_expression_takes_time_in_proportion_to_its_text() -> None:
    faults = {
        where: said
        for where, pattern, flags, how in patterns()
        if (said := fault(pattern, flags, how))
    }
    assert not faults
