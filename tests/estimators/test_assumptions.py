"""What components assume, on data that bear it out and on data that violate each of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from groupwise.estimators.assumptions import FEWEST_INFORMATIVE
from groupwise.estimators.components import Components, components
from groupwise.plain import Assumption, AssumptionStatus
from groupwise.scores.sums import score_sums

HOLDS, VIOLATED, UNKNOWN = AssumptionStatus
SCORES, PROMPTS, GROUPS = (
    "scores with a mean of 0 within prompts",
    "independent prompts",
    "enough informative groups",
)
SIZE, WIDTH = 8, 5


def measured(
    level_P: np.ndarray, *, shift: float = 0.0, varying: int | None = None, zero_mean: bool = True
) -> Components:
    """Normal scores and rewards around a level a prompt; only the first groups' rewards vary."""
    rng = np.random.default_rng(3)
    prompts = len(level_P)
    score = rng.normal(size=(prompts * SIZE, WIDTH)) + shift
    varies_P = np.arange(prompts) < (prompts if varying is None else varying)
    reward_PG = level_P[:, None] + rng.normal(size=(prompts, SIZE)) * varies_P[:, None]
    label = np.repeat(np.arange(prompts), SIZE)
    return components(reward_PG.ravel(), label, score_ND=score, zero_mean=zero_mean)


def by_name(estimate: Components) -> dict[str, Assumption]:
    return {assumption.name: assumption for assumption in estimate.check_assumptions()}


def independent(prompts: int) -> np.ndarray:
    return np.random.default_rng(4).normal(size=prompts)


def test_data_that_bear_all_out_have_no_note() -> None:
    estimate = measured(independent(64))
    assumptions = estimate.check_assumptions()
    assert [(entry.name, entry.status) for entry in assumptions] == [
        (SCORES, HOLDS),
        (PROMPTS, HOLDS),
        (GROUPS, HOLDS),
    ]
    assert str(assumptions[2]) == "64 of 64 groups have rewards that differ."
    assert estimate.notes == ()


def test_scores_of_another_policy_violate_the_first_alone() -> None:
    estimate = measured(independent(64), shift=1.0)
    violated = by_name(estimate).pop(SCORES)
    assert violated.status is VIOLATED
    mean = estimate.others["score_mean_norm2"]
    assert f"{mean.value:.3g}, {mean.value / mean.standard_error:.2g} standard" in str(violated)
    assert "zero_mean=False, --any-mean in a command." in violated.sentence
    assert estimate.notes == (violated.sentence,)
    free = measured(independent(64), shift=1.0, zero_mean=False)
    assert SCORES not in by_name(free)
    assert free.notes == ()


def test_families_of_prompts_violate_the_second_alone() -> None:
    families = np.repeat(independent(16), 4) * 3
    estimate = measured(families)
    violated = by_name(estimate)[PROMPTS]
    rank = stats.rankdata(estimate.moment_of_prompts("value"))
    pairs = (rank[1:] - 32.5) @ (rank[:-1] - 32.5) / ((rank - 32.5) ** 2).sum()
    assert violated.status is VIOLATED
    assert (
        f"mean reward of neighbouring prompts has a rank correlation of {pairs + 1 / 63:.2g},"
        in (violated.sentence)
    )
    assert "independent ones at most 0.5" in violated.sentence
    assert "components(reward_N, kind_N, ...)" in violated.sentence
    assert estimate.notes == (violated.sentence,)
    shuffled = np.random.default_rng(0).permutation(families)
    assert by_name(measured(shuffled))[PROMPTS].status is HOLDS


def test_prompts_whose_score_lengths_come_in_families_violate_the_second_too() -> None:
    rng = np.random.default_rng(5)
    length_P = np.repeat(np.exp(0.3 * rng.normal(size=16)), 4)
    label = np.repeat(np.arange(64), SIZE)
    score = rng.normal(size=(len(label), WIDTH)) * length_P[label, None]
    estimate = components(rng.normal(size=len(label)), label, score_ND=score)
    assert by_name(estimate)[PROMPTS].status is VIOLATED
    assert "the score length of neighbouring prompts" in by_name(estimate)[PROMPTS].sentence


@pytest.mark.parametrize(
    ("varying", "status"),
    [(FEWEST_INFORMATIVE - 1, VIOLATED), (FEWEST_INFORMATIVE, HOLDS), (1, VIOLATED)],
)
def test_groups_of_equal_rewards_violate_the_third(varying: int, status: AssumptionStatus) -> None:
    estimate = measured(independent(64), varying=varying)
    assumption = by_name(estimate)[GROUPS]
    assert assumption.status is status
    assert f"{varying} of 64 groups have rewards that differ" in assumption.sentence
    assert (assumption.sentence in estimate.notes) == (status is VIOLATED)
    assert ("--groups N" in assumption.sentence) == (status is VIOLATED)


def test_few_prompts_and_sums_leave_open_what_they_do_not_hold() -> None:
    few = by_name(measured(independent(2)))
    assert (few[SCORES].status, few[PROMPTS].status) == (UNKNOWN, UNKNOWN)
    rng = np.random.default_rng(6)
    label = np.repeat(np.arange(64), SIZE)
    sums = score_sums(rng.normal(size=(512, WIDTH)), rng.normal(size=512), label)
    statuses = {name: entry.status for name, entry in by_name(sums.components()).items()}
    assert statuses == {SCORES: HOLDS, PROMPTS: UNKNOWN, GROUPS: UNKNOWN}


def test_independent_prompts_raise_no_alarm() -> None:
    """Of 300 batches of 40 prompts with skewed values none: a chance of 1 % for all together."""
    rng = np.random.default_rng(7)
    label = np.repeat(np.arange(40), 4)
    for _ in range(300):
        reward = (rng.random(160) < np.repeat(rng.beta(0.3, 0.3, 40), 4)).astype(float)
        estimate = components(reward, label, score_ND=rng.normal(size=(160, 2)))
        assert by_name(estimate)[PROMPTS].status is HOLDS
