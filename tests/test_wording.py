"""Words and numbers: nothing hidden, nothing longer than needed, JSON that every parser takes."""

from __future__ import annotations

import json
import math
import unicodedata
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from groupwise.diagnostics.signals import arrow
from groupwise.intervals import Interval, percent
from groupwise.plain import plain, to_json
from groupwise.wording import (
    alike,
    clean,
    count,
    duration,
    file_size,
    number,
    ranged,
    short,
    shortest_paths,
    shown_argument,
    tokens,
)


@given(st.text(max_size=300))
def test_cleaned_text_has_one_line_and_nothing_unseen(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned) <= 200
    assert not {unicodedata.category(c) for c in cleaned} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    cleaned.encode("utf-8")


@each_case("hidden", ["\x1b", "\x00", "\u202e", "\u2066", "\u200b", "\ud800", "\u2028", "\x9b"])
def test_characters_that_hide_or_move_become_visible(hidden: str) -> None:
    assert clean(f"a{hidden}b") == "a\ufffdb"


def test_long_text_is_cut_and_says_so() -> None:
    assert clean("x" * 1000) == "x" * 199 + "…"


def test_other_scripts_pass() -> None:
    assert clean("奖励 награда مكافأة 🎯") == "奖励 награда مكافأة 🎯"


@each_case(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.74301, "0.743"),
        (12.0, "12"),
        (99.96, "100"),
        (1234.5, "1,234"),
        (-0.5, "−0.5"),
        (math.nan, "–"),
        (None, "–"),
        (3e-9, "3e−9"),
    ],
)
def test_numbers_are_written_short(value: float | None, text: str) -> None:
    assert number(value) == text


@given(st.floats(-1e12, 1e12))
def test_a_written_number_is_the_number_to_three_digits(value: float) -> None:
    read = float(number(value).replace("−", "-").replace(",", ""))
    assert read == pytest.approx(value, rel=6e-3, abs=1e-300)


@given(st.lists(st.floats(-1e5, 1e5), min_size=2, max_size=5))
def test_numbers_that_stand_together_keep_their_order(values: list[float]) -> None:
    texts = alike(*values)
    read = [float(text.replace("−", "-").replace(",", "")) for text in texts]
    spread = max(values) - min(values)
    for before, after in zip(values, read, strict=True):
        assert after == pytest.approx(before, abs=0.11 * spread + 6e-3 * abs(before) + 1e-300)


def test_infinite_ends_are_written() -> None:
    assert alike(0.5, -math.inf, math.inf)[1:] == ("−∞", "∞")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_is_strict_and_ascii(value: object) -> None:
    document = to_json(value)
    assert document.isascii()

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(document, parse_constant=refuse) == json.loads(
        json.dumps(plain(value), allow_nan=False)
    )


def test_unknown_things_become_their_text() -> None:
    import numpy as np

    assert plain({"a": np.float64(math.nan), "b": np.int64(3), "c": object}) == {
        "a": None,
        "b": 3,
        "c": str(object),
    }


def test_small_words() -> None:
    assert (
        count(1, "row"),
        count(1200, "row"),
        percent(0.081),
        percent(0.5),
        percent(math.nan),
    ) == (
        "1 row",
        "1,200 rows",
        "8 %",
        "50 %",
        "–",
    )
    assert (file_size(12), file_size(12_345), file_size(2.5e6), file_size(3e9)) == (
        "12 bytes",
        "12.3 kB",
        "2.5 MB",
        "3 GB",
    )


@each_case(
    ("value", "text"),
    [
        (950.0, "950 tokens"),
        (999_700.0, "1 M tokens"),
        (1_808_551.0, "1.8 M tokens"),
        (3.04e12, "3,000 G tokens"),
    ],
)
def test_tokens_have_two_digits(value: float, text: str) -> None:
    assert tokens(value) == text


def test_what_is_small_is_not_written_as_0() -> None:
    assert [*map(percent, (0.0, 4e-4, 3e-7, 0.012, 0.97))] == [
        "0 %",
        "0.04 %",
        "0.00003 %",
        "1 %",
        "97 %",
    ]
    assert [*map(short, (0.0, 0.0031, 3e-7, 4e-4, 0.078))] == [
        "0.00",
        "0.0031",
        "3e−7",
        "0.0004",
        "0.078",
    ]
    assert arrow(0.27, 50.4) == "0.27 → 50.4"
    assert arrow(0.86, 0.0031) == "0.86 → 0.0031"


def test_paths_are_as_short_as_tells_them_apart() -> None:
    paths = ["/work/a/log.jsonl", "/work/b/log.jsonl", "/work/c.csv"]
    assert shortest_paths([*map(PurePosixPath, paths)]) == [
        "a/log.jsonl",
        "b/log.jsonl",
        "work/c.csv",
    ]
    assert shortest_paths([*map(PurePosixPath, paths[:2])]) == ["a", "b"]
    assert shortest_paths([PurePosixPath("log"), PurePosixPath("a/log")]) == ["log", "a/log"]
    assert shortest_paths([PurePosixPath("/work/runs/a")] * 2) == ["a", "a"]
    assert shortest_paths([]) == []


@each_case(
    ("hours", "text"),
    [(0.001, "3.6 s"), (0.5, "30 min"), (4.7, "4.7 h"), (48.0, "48 h"), (75.6, "3.15 days")],
)
def test_a_time_is_written_in_the_unit_that_suits_it(hours: float, text: str) -> None:
    assert duration(hours) == text


def test_a_value_at_the_end_of_a_unit_is_written_in_the_next() -> None:
    assert (file_size(999), file_size(1000)) == ("999 bytes", "1 kB")
    assert (tokens(999.0), tokens(999.5)) == ("1,000 tokens", "1 k tokens")
    assert (short(-0.001), short(0.0), alike(50.0)) == ("−0.001", "0.00", ("50",))


@each_case(
    ("argument", "shown"),
    [
        ("--config=/home/me/run.yaml", "--config=run.yaml"),
        ("-o/home/me/page.html", "-opage.html"),
        ("/home/me/run.csv", "run.csv"),
        ("--level=0.9", "--level=0.9"),
    ],
)
def test_an_argument_keeps_its_option_and_loses_the_folders_of_others(
    argument: str, shown: str
) -> None:
    assert shown_argument(argument) == shown


def test_an_end_below_one_keeps_its_digits_beside_a_far_end() -> None:
    """Rounded to the digits of the distance, the lower end would lie above the value."""
    assert ranged(Interval(0.756, 0.525, 97.9)) == "0.756 (0.525 to 98)"
    assert ranged(Interval(3.0, 1.2, 97.9)) == "3 (1 to 98)"
