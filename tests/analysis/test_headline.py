"""The verdict: every status has its sentence, and no sentence says more than the result."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest

from groupwise.analysis.fitted import Fitted
from groupwise.analysis.headline import ahead, verdict
from groupwise.intervals import Interval
from groupwise.wording import ranged

Make = Callable[..., Fitted]


def test_a_run_on_its_way_is_still_learning_and_says_until_when(made_fitted: Make) -> None:
    said = verdict(made_fitted())
    assert said.tone == "learning"
    assert said.headline == "Still learning: the reward is 0.500 at step 100 and heads for 0.80 (0.75 to 0.85), all laws averaged."
    assert said.sentences[0] == "95 % of the way from its start is done by step 126 (114 to 151)."


def test_a_run_that_has_come_95_percent_is_done_and_says_no_date(made_fitted: Make) -> None:
    said = verdict(made_fitted(time_to_95=(200.0, 150.0, 250.0)))
    assert said.tone == "done"
    assert "at its plateau of 0.80 (0.75 to 0.85)" in said.headline
    assert not any("by step" in sentence for sentence in said.sentences)


def test_a_flat_run_is_not_called_learned(made_fitted: Make) -> None:
    said = verdict(made_fitted("flat", law="constant", message="flat: no law beats a constant over 100 rows", plateau=(0.5, 0.48, 0.52)))
    assert said.headline == "Not learning: the reward stays at 0.500 (0.480 to 0.520) over 100 rows."
    assert "No law beats a constant" in said.sentences[0]


def test_too_early_gives_no_plateau_in_the_headline(made_fitted: Make) -> None:
    said = verdict(made_fitted("not_identifiable", message="not identifiable yet: the data do not limit plateau"))
    assert said.tone == "unclear"
    assert "0.80" not in said.headline
    assert "0.55 to 0.65 by step 150" in said.headline
    assert said.sentences == ("Not identifiable yet: the data do not limit plateau.",)


def test_a_collapse_is_dated_in_steps(made_fitted: Make) -> None:
    said = verdict(made_fitted("non_stationary", message="collapsed: the level falls", change_time=200.0))
    assert said.tone == "broken"
    assert said.headline.startswith("Collapsed: no law holds for the reward from step 51 on; it averages ")


def test_a_wandering_run_has_no_date(made_fitted: Make) -> None:
    said = verdict(made_fitted("non_stationary", message="non-stationary: wanders", change_time=0.0))
    assert said.headline.startswith("Not stable: the reward follows no law anywhere in the log")


def test_a_reward_that_heads_down_gets_worse_but_another_metric_only_falls(made_fitted: Make) -> None:
    down = made_fitted(plateau=(0.1, 0.05, 0.15))
    assert verdict(down).tone == "worse"
    assert verdict(down).word == "getting worse"
    entropy = verdict(made_fitted(plateau=(0.1, 0.05, 0.15), metric="entropy", quantity="entropy"))
    assert entropy.headline.startswith('Still falling: "entropy" is')
    assert entropy.word == "still falling"


def test_inertia_is_never_assumed(made_fitted: Make) -> None:
    shown = verdict(made_fitted(law="oscillator", overshoot=0.2)).sentences
    assert any("overshoots its plateau by 20 %" in sentence for sentence in shown)
    doubted = verdict(made_fitted(law="oscillator", overshoot=0.2, rivals={"logistic": 0.3})).sentences
    assert any("inertia is not shown" in sentence for sentence in doubted)
    assert not any("overshoots" in sentence for sentence in doubted)


def test_too_few_rows_say_why(made_fitted: Make) -> None:
    bare = dataclasses.replace(made_fitted(), fit=None, outlook=None, problem="expected at least 3 rows, got 1")
    assert verdict(bare).tone == "nothing"
    assert verdict(bare).sentences == ("Expected at least 3 rows, got 1.",)


def test_names_from_a_log_are_cleaned(made_fitted: Make) -> None:
    said = verdict(made_fitted(metric="x\x1b[2J\u202e", quantity=""))
    assert "\x1b" not in said.headline
    assert "\u202e" not in said.headline


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.8, 0.75, 0.85), "0.80 (0.75 to 0.85)"),
        (Interval(0.8, 0.7, math.inf), "0.80 (at least 0.70)"),
        (Interval(0.8, -math.inf, 0.9), "0.80 (at most 0.90)"),
        (Interval(0.8, -math.inf, math.inf), "0.80 (no limit either way)"),
    ],
)
def test_open_intervals_are_named(interval: Interval, text: str) -> None:
    assert ranged(interval) == text


def test_a_law_that_is_not_the_heaviest_is_not_called_the_best(made_fitted: Make) -> None:
    said = verdict(made_fitted(rivals={"oscillator": 0.6, "logistic": 0.3})).sentences
    assert any("is the simplest law that the evidence of 100 rows does not rule out (weight 0.1 of 1" in sentence for sentence in said)
    assert not any("best" in sentence for sentence in said)
    assert any("describes all 100 rows best" in sentence for sentence in verdict(made_fitted(rivals={"logistic": 0.3})).sentences)


@pytest.mark.parametrize(("r_squared", "noise"), [(0.8, False), (0.1, True)])
def test_what_another_law_explains_is_not_called_noise(made_fitted: Make, r_squared: float, noise: bool) -> None:
    flat = made_fitted("flat", law="constant", message="flat: no law beats a constant over 100 rows", rivals={"exponential": 0.4})
    assert flat.fit is not None
    candidates = tuple(dataclasses.replace(c, r_squared=r_squared if c.law == "exponential" else 0.0) for c in flat.fit.candidates)
    said = " ".join(verdict(dataclasses.replace(flat, fit=dataclasses.replace(flat.fit, candidates=candidates))).sentences)
    assert ("what moves is noise" in said) is noise
    assert ("too few or too slow to tell" in said) is not noise


def test_the_date_has_no_more_digits_than_its_interval_allows(made_fitted: Make) -> None:
    said = verdict(made_fitted(time_to_95=(3_136.0, 2_184.0, 7_632.0))).sentences[0]
    assert said == "95 % of the way from its start is done by step 780 (540 to 1,900)."


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "The reward is 0.500 at step 100 and heads for 0.80 (0.75 to 0.85), all laws averaged."),
        (
            {"time_to_95": (200.0, 150.0, 250.0)},
            "The reward is 0.500 at step 100, at its plateau of 0.80 (0.75 to 0.85), all laws averaged.",
        ),
        ({"status": "flat", "law": "constant", "plateau": (0.5, 0.48, 0.52)}, "The reward stays at 0.500 (0.480 to 0.520) over 100 rows."),
        (
            {"status": "not_identifiable"},
            "The reward is 0.500 at step 100, and its mean is forecast at 0.55 to 0.65 by step 150: too early to say where it ends.",
        ),
        ({"status": "non_stationary", "change_time": 200.0}, ""),
        (
            {"metric": "entropy", "quantity": "entropy"},
            '"entropy" is 0.500 at step 100 and heads for 0.80 (0.75 to 0.85), all laws averaged.',
        ),
    ],
)
def test_where_a_law_takes_a_metric_is_said_without_a_judgement(made_fitted: Make, given: dict[str, object], said: str) -> None:
    assert ahead(made_fitted(**given)) == said
