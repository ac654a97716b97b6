"""Replayed choices against enumeration, identities and numbers by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.cases import each_case

from groupwise.errors import InsufficientDataError
from groupwise.estimators.replay import (
    NEEDS_NAMES,
    NEEDS_TWO,
    Choice,
    LoggedGroups,
    Replay,
    Replayed,
    ReplayStatus,
    _given,
    _rate,
    at_size,
    by_live_groups,
    by_spread,
    conformal_stop,
    dynamic_sampling,
    replay_groups,
    skipping,
)

GROUPS = ((1, 0, 0, 1), (1, 1, 1, 0), (1, 1, 1, 1), (0, 0, 0, 0), (0, 0, 1, 0), (1, 1, 1, 1))


def logged(
    *rewards: tuple[float, ...], prompts: list[int] | None = None, per_step: int = 2
) -> LoggedGroups:
    """Groups in the order of their steps."""
    group = np.repeat(np.arange(len(rewards)), [len(each) for each in rewards])
    prompt = None if prompts is None else np.array(prompts)[group]
    return LoggedGroups.of(np.concatenate(rewards), group, group // per_step, prompt_N=prompt)


def row(made: Replay, choice: Choice, size: int | None = None) -> Replayed:
    (chosen,) = (
        each for each in made.choices if each.choice is choice and each.group_size in (size, None)
    )
    return chosen


@each_case("size", [2, 3, 4])
def test_a_smaller_size_is_the_mean_over_all_subsets(size: int) -> None:
    live = [
        np.mean([len(set(subset)) > 1 for subset in itertools.combinations(group, size)])
        for group in GROUPS
    ]
    choice = at_size(logged(*GROUPS), size)
    assert choice.status is ReplayStatus.MEASURED
    assert_allclose(choice.live.value, np.mean(live))
    assert_allclose(choice.cost.value, size / np.mean(live) / (4 / 0.5))
    assert_allclose(choice.variance.value, size / (size - 1) / (4 / 3))  # type: ignore[union-attr]


def test_the_size_sampled_gives_back_the_log() -> None:
    made = replay_groups(logged(*GROUPS))
    same = row(made, Choice.SIZE, 4)
    assert (same.live.value, same.rollouts.value, same.cost.value) == (0.5, 1, 1)
    assert (made.live_groups, made.live.value, made.dynamic.drawn.value) == (3, 0.5, 2)
    assert row(made, Choice.SIZE, 8).status is ReplayStatus.EXTRAPOLATED
    assert made.notes == (NEEDS_NAMES,)
    assert replay_groups(logged((0.1, 0.2), (0.3, 0.2))).notes == (NEEDS_NAMES, NEEDS_TWO)


def test_dynamic_sampling_in_whole_batches_takes_those_that_enumeration_says() -> None:
    """Batches of two, half of the groups live: one batch with 1/4, two with 7/16 more, ..."""
    expected = sum(
        sum(
            np.prod([0.5] * 2 * many)
            for draws in itertools.product((0, 1), repeat=2 * many)
            if sum(draws) < 2
        )
        for many in range(9)
    )
    assert_allclose(replay_groups(logged(*GROUPS)).dynamic.batches, expected, atol=1e-3)


def test_where_every_group_is_live_nothing_is_saved() -> None:
    alive = logged(*[(1, 0, 0, 1)] * 12, prompts=[0, 1, 2, 3] * 3, per_step=4)
    made = replay_groups(alive)
    assert (made.dynamic.drawn.value, made.dynamic.batches) == (1, 1)
    assert made.live.high == 1 > made.live.low > 0
    for choice in (Choice.SOLVED, Choice.FLAT, Choice.SPREAD):
        replayed = row(made, choice)
        assert (replayed.live.value, replayed.rollouts.value, replayed.cost.value) == (1, 1, 1)


def test_a_log_without_a_live_group_is_refused() -> None:
    with pytest.raises(InsufficientDataError, match="got none in 2"):
        replay_groups(logged((1, 1), (0, 0)))
    with pytest.raises(InsufficientDataError, match="got a single one"):
        logged((1, 0), (1,))


def test_prompts_are_skipped_after_the_third_visit_for_good() -> None:
    """Prompt 0 is solved three times, then live; prompt 1 is wrong three times; prompt 2 twice."""
    visits = {0: "ssslf", 1: "wwwl", 2: "swsl"}
    kinds = {"s": (1, 1), "w": (0, 0), "l": (1, 0), "f": (1, 1)}
    rounds = [
        (prompt, kinds[letters[turn]])
        for turn in range(5)
        for prompt, letters in visits.items()
        if turn < len(letters)
    ]
    groups = logged(
        *[group for _, group in rounds], prompts=[prompt for prompt, _ in rounds], per_step=3
    )
    solved, flat = (skipping(groups, choice) for choice in (Choice.SOLVED, Choice.FLAT))
    assert_allclose([solved.rollouts.value, flat.rollouts.value], [11 / 13, 9 / 13])
    assert_allclose([solved.live.value, flat.live.value], [2 / 11, 0])


def test_rollouts_go_where_the_past_says_and_never_by_the_group_itself() -> None:
    first = [(1, 0, 1, 0), (1, 1, 1, 1)]
    chosen = []
    for later in ([(1, 1, 1, 1), (1, 0, 1, 0)], [(1, 0, 0, 1), (0, 0, 0, 0)]):
        groups = logged(*first, *later, prompts=[0, 1, 0, 1])
        predicted = groups.predicted(groups.spread_P * 3, groups.size_P - 1)
        assert_allclose(predicted[2:], [(1 + 1 / 6) / 4, (1 / 6) / 4])
        chosen.append(by_spread(groups))
    # of eight rollouts of the second step the first prompt is given five or six
    assert chosen[0].status is ReplayStatus.EXTRAPOLATED
    assert chosen[0].rollouts.value == chosen[1].rollouts.value == 1


def test_a_knapsack_gives_the_rare_success_more_than_the_even_one() -> None:
    """After 1 of 8 and 4 of 8 right, the even prompt is surely live with few rollouts."""
    past = [(1, *[0] * 7), (1, 0) * 4]
    groups = logged(*past, *past, prompts=[0, 1, 0, 1])
    assert by_live_groups(groups).status is ReplayStatus.EXTRAPOLATED
    rate = _rate(groups)[:, None]
    given = _given(groups, lambda n: rate**n * (1 - rate) + (1 - rate) ** n * rate)
    assert given[2] > given[3]
    assert given[2] + given[3] == 16


@each_case("rule", ["spread", "live"])
def test_no_other_allocation_of_the_same_rollouts_does_better(rule: str) -> None:
    """VIP's sum of variances sigma / (n - 1) is the least, the knapsack's live groups the most."""
    for seed in range(20):
        chance_P = np.random.default_rng(seed).uniform(0.02, 0.98, 3)
        groups = logged(*[(1, 0, 0, 0)] * 3, per_step=3)
        spread_P = chance_P * (1 - chance_P)

        def gain(n: np.ndarray, p: np.ndarray = chance_P[:, None]) -> np.ndarray:
            spread = np.asarray(p * (1 - p) / (n * (n - 1)))
            return spread if rule == "spread" else p**n * (1 - p) + (1 - p) ** n * p

        def worth(n_P: np.ndarray, p: np.ndarray = chance_P, s: np.ndarray = spread_P) -> float:
            live = (1 - p**n_P - (1 - p) ** n_P).sum()
            return -float((s / (n_P - 1)).sum()) if rule == "spread" else float(live)

        every = [
            worth(np.array(n)) for n in itertools.product(range(2, 9), repeat=3) if sum(n) == 12
        ]
        assert_allclose(worth(_given(groups, gain)), max(every))


def test_a_conformal_stop_is_that_of_a_calculation_by_hand() -> None:
    """Thirty groups whose first two rollouts agree with the outcome calibrate: a score of 0 is
    allowed. Then two equal rollouts end a group, two unlike ones leave it open."""
    calm = [(1, 1, 1, 1)] * 15 + [(0, 0, 0, 0)] * 15
    groups = logged(*calm, (1, 1, 1, 1), (0, 0, 0, 0), per_step=30)
    stop = conformal_stop(groups, np.random.default_rng(0))
    assert_allclose(stop.rollouts.value, (30 * 4 + 2 * 2) / (32 * 4))
    open_group = logged(*calm, (1, 0, 1, 0), per_step=30)
    stops = {
        conformal_stop(open_group, np.random.default_rng(seed)).rollouts.value for seed in range(9)
    }
    assert_allclose(sorted(stops), [(120 + 2) / 124, 1])


def test_denominators_by_hand() -> None:
    """Tokens 1, 3 live and 2, 2 not: per token half is live, per sequence half, of the longest 1/3."""
    groups = LoggedGroups.of([1, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0], tokens_N=[1, 3, 2, 2])
    rate = {
        row.name: (row.rate.value, row.longest.value) for row in replay_groups(groups).denominators
    }
    assert_allclose(rate["per sequence"], (0.5, 0.5))
    assert_allclose(rate["per token"], (0.5, 0.75))
    assert_allclose(rate["constant"], (1 / 3, 0.75))


def test_groups_of_one_prompt_count_as_one() -> None:
    """Copies of the same groups under the same prompts narrow no interval."""
    once = logged(*GROUPS, prompts=list(range(6)))
    thrice = logged(*GROUPS * 3, prompts=list(range(6)) * 3)
    apart = logged(*GROUPS * 3)
    widths = [replay_groups(groups).live.width for groups in (once, thrice, apart)]
    assert_allclose(widths[0], widths[1])
    assert widths[2] < 0.75 * widths[0]


def test_of_one_prompt_the_interval_is_over_its_groups() -> None:
    alone, apart = (
        replay_groups(logged(*GROUPS * 9, prompts=each)) for each in ([0] * 54, list(range(54)))
    )
    assert alone.live == apart.live
    assert row(alone, Choice.SIZE, 4).cost.width == 0


def test_dynamic_sampling_is_a_mean_over_updates_and_not_of_the_run() -> None:
    """Half of the updates have one live group in ten, the others live ones alone."""
    live = np.concatenate([np.tile([1] + 9 * [0], 500), np.ones(5000)])
    reward = np.stack([np.zeros(10000), live], axis=1).ravel()
    groups = LoggedGroups.of(reward, np.arange(20000) // 2, np.arange(20000) // 200)
    assert dynamic_sampling(groups).drawn.value == pytest.approx((10 + 1) / 2)
