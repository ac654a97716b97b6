"""Groups: spread and dead share from completions and from columns, and the expected share held
against its definition.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest

from groupwise.estimators.zero_variance import zero_variance_of_columns, zero_variance_of_groups
from groupwise.record.run import Meaning, RunConfig, RunRecord
from groupwise.record.table import rollouts_table, steps_table
from groupwise.series.metric import group_evidence, zero_variance_outlook


def record(
    rewards: dict[tuple[int, int], list[float]], prompts: dict[tuple[int, int], str] | None = None
) -> RunRecord:
    rows = [
        {"step": step, "prompt_id": group, "reward": reward}
        | ({"prompt": prompts[step, group]} if prompts else {})
        for (step, group), values in rewards.items()
        for reward in values
    ]
    steps = sorted({step for step, _ in rewards})
    return RunRecord(
        "made", steps_table(steps, {"reward": [0.0] * len(steps)}), rollouts_table(rows)
    )


def test_spread_and_dead_share_are_means_over_the_groups_of_a_step() -> None:
    evidence = group_evidence(record({(1, 0): [0, 1], (1, 1): [1, 1], (2, 0): [0, 0]}))
    assert evidence.spread.value_T.tolist() == pytest.approx([np.sqrt(0.5) / 2, 0.0])
    assert evidence.zero_variance.value_T.tolist() == [0.5, 1.0]


def test_groups_of_one_are_no_groups() -> None:
    evidence = group_evidence(record({(1, 0): [1, 1], (1, 1): [0]}))
    assert evidence.zero_variance.value_T.tolist() == [1.0]


def test_rewards_that_differ_in_the_seventh_decimal_are_equal() -> None:
    evidence = group_evidence(record({(1, 0): [0.3, 0.3000004], (1, 1): [0.3, 0.300004]}))
    assert evidence.zero_variance.value_T.tolist() == [0.5]


@pytest.mark.thinned(1)
@pytest.mark.parametrize(("size", "groups"), [(2, 2), (3, 2), (2, 3)])
def test_expectation_of_equally_hard_prompts_is_unbiased(size: int, groups: int) -> None:
    """Averaged over every possible outcome it equals p^G + (1 - p)^G exactly."""
    p = 0.3
    total = 0.0
    for outcome in product((0.0, 1.0), repeat=size * groups):
        weight = np.prod([p if value else 1 - p for value in outcome])
        made = record({(1, g): list(outcome[g * size : (g + 1) * size]) for g in range(groups)})
        total += weight * group_evidence(made).expected.value_T[0]
    assert total == pytest.approx(p**size + (1 - p) ** size, abs=1e-12)


def test_expectation_of_three_values_is_the_sum_of_powers() -> None:
    rng = np.random.default_rng(0)
    values, chance, size = np.array([0.0, 0.5, 1.0]), np.array([0.2, 0.3, 0.5]), 4
    made = record({(1, g): rng.choice(values, size, p=chance).tolist() for g in range(5_000)})
    evidence = group_evidence(made)
    assert evidence.expected.value_T[0] == pytest.approx((chance**size).sum(), abs=0.005)
    assert evidence.zero_variance.value_T[0] == pytest.approx((chance**size).sum(), abs=0.015)


def test_prompts_that_differ_raise_the_expectation_where_they_come_again() -> None:
    """Half of the prompts are always solved, half never: every group is dead, and that is
    expected.
    """
    rewards = {(step, group): [float(group % 2)] * 4 for step in (1, 2, 3) for group in range(6)}
    prompts = {(step, group): f"p{group}" for step, group in rewards}
    groups, blind = group_evidence(record(rewards, prompts)), group_evidence(record(rewards))
    assert groups.expected.value_T.tolist() == pytest.approx([1.0, 1.0, 1.0])
    assert "each prompt just before and after" in groups.expected.source
    assert blind.expected.value_T.max() < 0.2
    assert "equally hard" in blind.expected.source


def test_a_prompt_whose_visits_move_is_compared_with_its_neighbours_only() -> None:
    """Never solved in the first half, always in the second: pooled over the run it would look
    like a coin.
    """
    rewards = {(step, 0): [float(step > 10)] * 4 for step in range(1, 21)}
    prompts = dict.fromkeys(rewards, "only")
    assert group_evidence(record(rewards, prompts)).expected.value_T[2:8].tolist() == pytest.approx(
        [1.0] * 6
    )


def test_continuous_rewards_have_no_expectation_and_say_why() -> None:
    rng = np.random.default_rng(1)
    evidence = group_evidence(record({(1, g): rng.normal(size=4).tolist() for g in range(20)}))
    assert not evidence.expected.known
    assert "80 values" in evidence.expected.source


def columns(
    config: dict[str, object], reward: list[float], *, resolution: float = 0.0
) -> RunRecord:
    table = steps_table(
        [1, 2], {"reward": reward, "reward_std": [0.4, 0.2], "frac_reward_zero_std": [0.25, 0.5]}
    )
    meanings = (
        Meaning("reward", "reward", "mean", resolution=resolution),
        Meaning("reward_std", "reward_std_ambiguous", "either", ambiguous=True),
        Meaning("frac_reward_zero_std", "dead_group_share", "share"),
    )
    return RunRecord("made", table, None, RunConfig().with_settings(config, "--set"), meanings)


def test_columns_serve_where_there_are_no_completions() -> None:
    evidence = group_evidence(columns({"group_size": 4, "prompts_per_step": 4}, [0.5, 0.75]))
    assert evidence.spread.value_T.tolist() == [0.4, 0.2]
    assert "ambiguous" in evidence.spread.source
    assert evidence.zero_variance.value_T.tolist() == [0.25, 0.5]
    assert evidence.expected.value_T.tolist() == pytest.approx([2 * 0.5**4, 0.75**4 + 0.25**4])


def test_a_count_of_right_answers_that_the_log_rounds_is_one() -> None:
    """3 and 8 of 12: .667 is no twelfth, but lies within half of the last digit of one."""
    config: dict[str, object] = {"group_size": 4, "prompts_per_step": 3}
    assert not group_evidence(columns(config, [0.25, 0.667])).expected.known
    evidence = group_evidence(columns(config, [0.25, 0.667], resolution=0.0005))
    assert evidence.expected.value_T.tolist() == pytest.approx(
        [p**4 + (1 - p) ** 4 for p in (0.25, 0.667)]
    )


@pytest.mark.parametrize("reward", [[0.5, 1.5], [0.5, 0.333], [-0.5, 0.5]])
def test_a_mean_that_is_no_count_of_right_answers_gives_no_expectation(reward: list[float]) -> None:
    evidence = group_evidence(columns({"group_size": 4, "prompts_per_step": 4}, reward))
    assert not evidence.expected.known
    assert "unavailable" in evidence.expected.source


def test_what_is_missing_is_said_with_what_to_log() -> None:
    evidence = group_evidence(RunRecord("bare", steps_table([1], {"reward": [0.5]})))
    assert not evidence.zero_variance.known
    assert "log_completions" in evidence.zero_variance.source
    assert "--set group_size" in group_evidence(columns({}, [0.5, 0.75])).expected.source


def test_without_the_total_the_functions_together_say_which_groups_are_dead() -> None:
    """Two functions that cancel in a plain sum: the group is alive, for any weights but equal
    ones.
    """
    rows = [
        {"step": 1, "prompt_id": 0, "reward/a": 1.0, "reward/b": 0.0},
        {"step": 1, "prompt_id": 0, "reward/a": 0.0, "reward/b": 1.0},
        {"step": 1, "prompt_id": 1, "reward/a": 1.0, "reward/b": 1.0},
        {"step": 1, "prompt_id": 1, "reward/a": 1.0, "reward/b": 1.0},
    ]
    steps = steps_table([1], {"reward": [1.5], "reward_std": [0.3]})
    made = RunRecord(
        "made",
        steps,
        rollouts_table(rows),
        meanings=(Meaning("reward_std", "reward_std_batch", "batch"),),
    )
    evidence = group_evidence(made)
    assert evidence.zero_variance.value_T.tolist() == [0.5]
    assert evidence.expected.known
    assert evidence.spread.value_T.tolist() == [0.3]
    assert "not the total" in evidence.spread_gap


def test_a_mean_of_many_rollouts_is_still_checked_for_being_a_count() -> None:
    """A tolerance that grows with the rollouts takes any reward for a share of right answers
    once there are a thousand.
    """
    evidence = group_evidence(
        columns({"group_size": 16, "prompts_per_step": 64}, [0.61234, 0.71853])
    )
    assert not evidence.expected.known
    assert group_evidence(
        columns({"group_size": 16, "prompts_per_step": 64}, [0.5, 512.0 / 1024 + 3 / 1024])
    ).expected.known


def logged(
    column: str, quantity: str, values: list[float], mean: list[float], **settings: int
) -> RunRecord:
    """A log of a mean reward and one more column."""
    meanings = (
        Meaning("reward", "reward", "mean reward"),
        Meaning(column, quantity, "of the groups"),
    )
    steps = steps_table(range(1, len(values) + 1), {"reward": mean, column: values})
    return RunRecord(
        "made", steps, config=RunConfig().with_settings(settings, "test"), meanings=meanings
    )


def test_the_outlook_of_completions_is_that_of_the_last_steps() -> None:
    rng = np.random.default_rng(0)
    groups = {
        (step, group): (rng.random(4) < 0.3).tolist() for step in range(1, 41) for group in range(8)
    }
    groups = {
        key: [0.0] * 4 if key[0] <= 30 else [float(value) for value in values]
        for key, values in groups.items()
    }
    outlook = zero_variance_outlook(record(groups))
    late = [values for (step, _), values in groups.items() if step > 30]
    assert outlook == zero_variance_of_groups(np.ravel(late), np.repeat(np.arange(80), 4))


def test_the_outlook_of_logged_columns() -> None:
    share, mean = [0.5, 0.25, 0.75] * 8, [5 / 16, 3 / 16, 0.25] * 8
    made = logged(
        "frac_reward_zero_std", "dead_group_share", share, mean, group_size=4, prompts_per_step=4
    )
    assert zero_variance_outlook(made) == zero_variance_of_columns(
        share[-20:], 4, mean_T=mean[-20:], groups=4
    )
    long = logged(
        "frac_reward_zero_std",
        "dead_group_share",
        share * 5,
        mean * 5,
        group_size=4,
        prompts_per_step=4,
    )
    assert zero_variance_outlook(long) == zero_variance_of_columns(
        (share * 5)[-30:], 4, mean_T=(mean * 5)[-30:], groups=4
    )
    graded = logged(
        "frac_reward_zero_std",
        "dead_group_share",
        share,
        [0.123] * 24,
        group_size=4,
        prompts_per_step=4,
    )
    assert zero_variance_outlook(graded) == zero_variance_of_columns(share[-20:], 4, groups=4)
    two_steps = replace(made, steps=made.steps.with_columns(window=pl.lit(2.0)))  # of 8 groups
    assert zero_variance_outlook(two_steps) == zero_variance_of_columns(
        share[-20:], 4, mean_T=mean[-20:], groups=8
    )
    assert (
        zero_variance_outlook(logged("frac_reward_zero_std", "dead_group_share", share, mean))
        is None
    )  # G is not known


def test_a_row_of_one_group_tells_by_its_deviation() -> None:
    right = np.array([0, 1, 3, 4, 4, 2, 0, 0, 4, 1] * 3)
    spread = [0.0 if count in {0, 4} else 0.5 for count in right.tolist()]
    made = logged(
        "reward_std",
        "reward_std_ambiguous",
        spread,
        (right / 4).tolist(),
        group_size=4,
        prompts_per_step=1,
    )
    assert zero_variance_outlook(made) == zero_variance_of_columns(
        right[-20:] % 4 == 0, 4, mean_T=right[-20:] / 4, groups=1
    )
    several = logged(
        "reward_std",
        "reward_std_ambiguous",
        spread,
        (right / 4).tolist(),
        group_size=4,
        prompts_per_step=2,
    )
    assert zero_variance_outlook(several) is None


def test_a_mean_that_is_no_count_of_all_rollouts_of_a_row_is_no_share_of_right_answers() -> None:
    """Of 4 groups of 4 it is a multiple of a sixteenth; a multiple of a 64th is graded."""
    share, mean = [0.5, 0.25, 0.75] * 8, [5 / 64, 7 / 64, 9 / 64] * 8
    made = logged(
        "frac_reward_zero_std", "dead_group_share", share, mean, group_size=4, prompts_per_step=4
    )
    assert zero_variance_outlook(made) == zero_variance_of_columns(share[-20:], 4, groups=4)


@pytest.mark.parametrize(
    ("again", "size", "by_prompt"), [(3, 4, True), (2, 4, False), (4, 8, False)]
)
def test_other_visits_of_a_prompt_tell_where_half_of_the_groups_have_some(
    again: int, size: int, by_prompt: bool
) -> None:
    """Two steps of five groups, of which some come again; a visit of fewer rollouts than the
    group has tells nothing of it.
    """
    late = {(2, group): [0.0, 1.0] * (size // 2) for group in range(5)}
    rewards = {(1, group): [0.0, 1.0] * 2 for group in range(5)} | late
    prompts = {
        (step, group): f"{group} of {0 if group < again else step}" for step, group in rewards
    }
    source = group_evidence(record(rewards, prompts)).expected.source
    assert source.startswith("from the success rate of each prompt") is by_prompt
