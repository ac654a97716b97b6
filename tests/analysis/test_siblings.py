"""Which setting separates the runs that learnt from the others, and its chance by luck."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.analysis.compare import compare
from groupwise.analysis.fleet import outcome, separation
from groupwise.record.run import RunConfig, RunRecord, Setting, steps_table


def runs_of(**columns: str) -> list[dict[str, str]]:
    """Settings of runs, a column of words for each setting."""
    cells = {name: words.split() for name, words in columns.items()}
    return [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]


@each_case(
    ("settings", "learnt", "setting", "chance"),
    [
        (runs_of(lr="1e-5 1e-5 1e-5 3e-6 3e-6"), "11100", "lr", 1 / 10),
        (runs_of(lr="1e-5 1e-5 3e-6 3e-6"), "1100", "lr", 2 / 6),
        (runs_of(lr="9e-6 1e-5 2e-5 3e-5 1e-4"), "11100", "lr", 3 / 10),  # neighbours
        (runs_of(lr="1 2 3 4 5 6"), "111000", "lr", 4 / 20),
        (runs_of(lr="1e-6 1e-6 1e-5 1e-5 1e-4 1e-4"), "001100", "lr", 3 / 15),  # in the middle
        (runs_of(lr="1 2 3 4 5 6"), "110001", None, None),  # no neighbours
        (runs_of(loss="a a b b c c c c"), "11110000", "loss", 2 / 70),
        (runs_of(loss="a b c d e"), "11100", None, None),  # each its own: luck does it always
        (runs_of(lr="1 1 1 2 2", beta="0 0 1 1 0"), "11100", "lr", 2 / 10),
        (runs_of(lr="1 1 1 2 2", beta="3 3 3 4 4"), "11100", "beta", 2 / 10),
        (runs_of(lr="1 1 1 2 2", fixed="0 0 0 0 0"), "11100", "lr", 1 / 10),
        (runs_of(lr="1 1 1 2 2"), "11010", None, None),
        (runs_of(lr="1 2 2 2"), "1000", None, None),  # one run on a side
        (runs_of(lr="1 1 2"), "110", None, None),
        (runs_of(lr="1 1 1 2 2 1"), "11100?", "lr", 1 / 10),  # one that cannot be told is left out
        ([*runs_of(lr="1 1 2 2"), {}], "11001", None, None),  # not known of every run
    ],
)
def test_a_setting_separates_with_the_chance_that_luck_has(
    settings: list[dict[str, str]], learnt: str, setting: str | None, chance: float | None
) -> None:
    answers = [{"1": True, "0": False, "?": None}[letter] for letter in learnt]
    given = separation(settings, answers)
    assert (given and given.setting) == setting
    assert given is None or given.chance == pytest.approx(chance)


@each_case("values", ["1 1 1 2 2 3", "1 2 2 3 3 3 4", "a a b b b c", "a b c c c d d"])
def test_the_chance_is_the_share_of_all_outcomes_that_the_setting_separates(values: str) -> None:
    """Every way to let so many runs learn, counted one by one."""
    settings = runs_of(x=values)
    runs = len(settings)
    for learnt in range(2, runs - 1):
        outcomes = [
            [place in chosen for place in range(runs)]
            for chosen in itertools.combinations(range(runs), learnt)
        ]
        separated = [
            separate
            for separate in (separation(settings, outcome) for outcome in outcomes)
            if separate
        ]
        expected = len(separated) / math.comb(runs, learnt)
        assert all(separate.chance == pytest.approx(expected) for separate in separated)


def test_the_sentence_has_the_counts_and_names_no_cause() -> None:
    given = separation(
        runs_of(lr="1e-5 1e-5 1e-5 3e-6 3e-6", b="x x x y y"), [True] * 3 + [False] * 2
    )
    assert given is not None
    says("analysis/siblings/1", given.sentence)
    assert given.as_dict()["sentence"] == given.sentence


def test_outcomes_follow_the_judgement() -> None:
    assert [
        outcome("failed", "learning"),
        outcome("ok", "flat"),
        outcome("warning", "learning"),
    ] == [
        False,
        False,
        True,
    ]
    assert outcome("cannot_tell", "unknown") is None


def sibling(seed: int, rate: float, *, learns: bool) -> RunRecord:
    rng = np.random.default_rng(seed)
    step = np.arange(1, 81)
    reward = (0.8 - 0.6 * 0.95**step if learns else np.full(80, 0.2)) + rng.normal(0, 0.01, 80)
    config = RunConfig(learning_rate=Setting(rate, "config"), seed=Setting(seed, "config"))
    return RunRecord(f"run{seed}", steps_table(step.tolist(), {"reward": reward}), config=config)


def test_compare_says_which_setting_separates_its_runs() -> None:
    rates = [(1e-5, True)] * 3 + [(3e-6, False)] * 2
    groups = [sibling(seed, rate, learns=learns) for seed, (rate, learns) in enumerate(rates)]
    answer = compare(*groups)
    assert answer.separates is not None
    assert answer.sentence.endswith(answer.separates.sentence)
    assert (
        "The 3 runs with learning_rate 1e-05 learnt, and the 2 with 3e-06 failed or did not"
        in str(answer)
    )
    assert answer.as_dict()["separates"]["chance"] == pytest.approx(0.1)
    assert compare(groups[0], groups[4]).as_dict()["separates"] is None
