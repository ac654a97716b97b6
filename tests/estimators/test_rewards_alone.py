"""What rewards say without a score, against counts of subsets and sums written out."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.zero_variance import reward_statistics, zero_variance_of_groups
from groupwise.intervals import mean_interval

GROUPS = [
    [0, 1, 1, 0, 0, 1],
    [1, 1, 1, 1, 1, 1],
    [0, 0, 0, 1, 0, 0],
    [1, 1, 0, 1, 1, 1],
    [0, 0, 0, 0, 0, 0],
]
REWARD, PROMPT = np.array(GROUPS, dtype=float).ravel(), np.repeat(np.arange(5), 6)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_share_at_a_smaller_size_is_that_of_all_subsets(size: int) -> None:
    (row,) = reward_statistics(REWARD, PROMPT, group_sizes=(size,)).zero_variance_shares
    each = [
        np.mean([len({group[i] for i in chosen}) == 1 for chosen in combinations(range(6), size)])
        for group in GROUPS
    ]
    expected = mean_interval(np.array(each))
    assert row.share.value == pytest.approx(np.mean(each), rel=1e-12)
    assert (row.share.low, row.share.high) == pytest.approx(
        (max(expected.low, 0), min(expected.high, 1)), rel=1e-12
    )
    assert not row.extrapolated


def test_sizes_reach_four_times_the_groups() -> None:
    """The larger ones are those of `zero_variance_of_groups`."""
    rows = {row.group_size: row for row in reward_statistics(REWARD, PROMPT).zero_variance_shares}
    outlook = zero_variance_of_groups(REWARD, PROMPT)
    assert sorted(rows) == [2, 3, 4, 6, 8, 12, 16, 24]
    assert [rows[size] for size in (6, 12, 24)] == list(outlook.shares)
    assert [size for size, row in rows.items() if row.extrapolated] == [8, 12, 16, 24]


def test_moments_of_rewards_by_hand() -> None:
    statistics = reward_statistics(REWARD, PROMPT)
    table = np.array(GROUPS, dtype=float)
    assert statistics.mean.value == pytest.approx(table.mean())
    assert statistics.within_variance.value == pytest.approx(table.var(axis=1, ddof=1).mean())
    between = table.mean(axis=1).var(ddof=1) - table.var(axis=1, ddof=1).mean() / 6
    assert statistics.between_variance.value == pytest.approx(between)
    assert (statistics.zero_variance_share.value, statistics.effective_group_size) == pytest.approx(
        (0.4, 3.6)
    )
    assert (statistics.prompts, statistics.rollouts, statistics.group_size, statistics.notes) == (
        5,
        30,
        6,
        (),
    )
    plain = statistics.as_dict()
    assert plain["zero_variance_share"]["value"] == 0.4
    assert plain["zero_variance_shares"][0]["group_size"] == 2


def test_the_interval_between_prompts_is_that_of_leaving_each_out() -> None:
    table = np.array(GROUPS, dtype=float)

    def between(rows: np.ndarray) -> float:
        return float(rows.mean(axis=1).var(ddof=1) - rows.var(axis=1, ddof=1).mean() / 6)

    pseudo = np.array(
        [5 * between(table) - 4 * between(np.delete(table, left, axis=0)) for left in range(5)]
    )
    expected, between_variance = (
        mean_interval(pseudo),
        reward_statistics(REWARD, PROMPT).between_variance,
    )
    assert (between_variance.low, between_variance.high) == pytest.approx(
        (expected.low, expected.high), rel=1e-9
    )


def test_uneven_groups_and_single_rollouts() -> None:
    statistics = reward_statistics(
        [1, 0, 1, 0.5, 0.5, 0.5, 7], ["a", "a", "a", "b", "b", "b", "c"], group_sizes=(2, 3, 8)
    )
    assert statistics.notes == ("1 groups of one rollout were left out.",)
    assert (statistics.prompts, statistics.group_size) == (2, 3)
    assert [row.group_size for row in statistics.zero_variance_shares] == [2, 3, 8]
    assert [row.share.value for row in statistics.zero_variance_shares] == pytest.approx(
        [(1 / 3 + 1) / 2, 0.5, 2 / 9]
    )
    assert reward_statistics([1, 0, 1, 0, 1], [0, 0, 1, 1, 1]).group_size is None


def test_rewards_of_one_value_and_of_no_spread_between_prompts() -> None:
    same = reward_statistics([0, 1] * 4, np.repeat(np.arange(4), 2), group_sizes=(4,))
    assert (
        same.zero_variance_shares[0].share.value == 0
    )  # a larger group is seldomer equal, and none of these is
    assert same.zero_variance_share.value == 0


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (([1.0, 2.0], [0, 1]), InsufficientDataError, "at least two rollouts"),
        (([1.0, 2.0], [0, 0, 0]), InvalidArgumentError, "got 3 labels for 2 rewards"),
        (([np.nan, 2.0], [0, 0]), InvalidArgumentError, "finite"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        reward_statistics(*arguments)
    with pytest.raises(InvalidArgumentError, match="group sizes of at least 2"):
        reward_statistics([1.0, 2.0], [0, 0], group_sizes=(1,))


def test_the_usual_size_is_the_most_frequent_and_the_larger_of_two() -> None:
    def usual(*sizes: int) -> int:
        label = np.repeat(np.arange(len(sizes)), sizes)
        return zero_variance_of_groups(np.arange(len(label)) % 2, label).group_size

    assert (usual(4, 4, 8), usual(4, 8), usual(2, 2, 4, 4, 8)) == (4, 8, 4)


def test_a_variance_within_prompts_is_not_below_nothing() -> None:
    reward_N, prompt_N = [0, 0, 1, 1] + [1] * 12, np.repeat(np.arange(4), 4)
    within = reward_statistics(reward_N, prompt_N).within_variance
    assert (within.low, round(within.value, 4)) == (0.0, 0.0833)
