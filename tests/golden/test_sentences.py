"""The table of sentences holds those that tests compare, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.golden import sentences

TESTS = Path(__file__).resolve().parent.parent


def keys() -> Iterator[str]:
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "says(" in source else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "says":
                assert isinstance(node.args[0], ast.Constant)
                if path != Path(__file__):
                    yield str(node.args[0].value)


def test_every_sentence_is_compared_once_and_has_its_row() -> None:
    compared = sorted(keys())
    assert compared == sorted(sentences.read())


def test_a_sentence_is_one_line_without_what_only_programs_say() -> None:
    for key, row in sentences.read().items():
        assert row["sentence"].isprintable(), key
        assert row["sentence"].strip() == row["sentence"], key
        assert not re.search(r"\b(None|nan|inf|0x\w+)\b|[{}]", row["sentence"]), key


def test_another_sentence_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WRITE_SENTENCES", raising=False)
    key, row = next(iter(sentences.read().items()))
    sentences.says(key, row["sentence"])
    with pytest.raises(AssertionError, match=re.escape(key)):
        sentences.says(key, row["sentence"] + " ")
    with pytest.raises(KeyError):
        sentences.says("no such key", "")
