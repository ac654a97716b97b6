"""A test of many cases is as strict as one test a case."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from tests.cases import each_case


def test_every_case_runs_and_each_that_fails_is_named() -> None:
    seen = []

    @each_case(("number", "even"), [(1, False), (2, False), (3, True), (4, True)])
    def parity(number: int, even: bool) -> None:
        seen.append(number)
        assert (number % 2 == 0) is even

    with pytest.raises(ExceptionGroup, match="2 of 4 cases fail") as caught:
        parity()
    assert seen == [1, 2, 3, 4]
    assert [error.__notes__ for error in caught.value.exceptions] == [
        ["case 1: {'number': 2, 'even': False}"],
        ["case 2: {'number': 3, 'even': True}"],
    ]


def test_what_does_not_raise_where_it_should_fails() -> None:
    @each_case("text", ["1", "one"])
    def refused(text: str) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            int(text)

    with pytest.raises(BaseExceptionGroup, match="1 of 2 cases fail"):
        refused()


def test_tables_multiply_and_fixtures_stay_arguments(tmp_path: Path) -> None:
    pairs = []

    @each_case("left", [1, 2])
    @each_case("right", [3, 4])
    def product(left: int, right: int, tmp_path: Path) -> None:
        pairs.append((left, right))
        assert tmp_path.is_dir()

    assert list(inspect.signature(product).parameters) == ["tmp_path"]
    product(tmp_path=tmp_path)
    assert pairs == [(1, 3), (1, 4), (2, 3), (2, 4)]


@each_case("turn", [0, 1])
def test_a_case_finds_nothing_that_another_left(
    turn: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""
    assert not hasattr(each_case, "patched")
    (tmp_path / "file").touch()
    print(turn)
    monkeypatch.setattr(each_case, "patched", True, raising=False)


def test_rows_have_a_value_for_each_name() -> None:
    with pytest.raises(ValueError, match="expected cases of 2 values"):
        each_case(("left", "right"), [(1, 2), (3,)])
