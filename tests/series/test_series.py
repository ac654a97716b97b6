"""One metric out of a record: its clock, and what its groups say about its noise."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest
from tests.golden.sentences import says

from groupwise.errors import InvalidArgumentError, MissingMetricError
from groupwise.record.run import Meaning, RunConfig, RunRecord, Source, steps_table
from groupwise.record.table import rollouts_table
from groupwise.series.metric import metric_series

ROWS = 40
STEPS = list(range(1, ROWS + 1))
GROUPS = {"group_size": 8, "prompts_per_step": 4}


def record(
    columns: dict[str, list[float]],
    *,
    settings: dict | None = None,
    meanings: tuple[Meaning, ...] = (),
    **parts: object,
) -> RunRecord:
    """A run of forty steps."""
    steps = parts.pop("steps", None)
    table = steps if isinstance(steps, pl.DataFrame) else steps_table(STEPS, columns)
    config = RunConfig().with_settings(settings or {}, "test")
    return RunRecord("run", table, config=config, meanings=meanings, **parts)  # type: ignore[arg-type]


def binomial(count: int, level: float = 0.3) -> list[float]:
    """Means of 0/1 rewards over this many rollouts."""
    return [float(v) / count for v in np.random.default_rng(0).binomial(count, level, ROWS)]


def test_rows_without_a_value_are_left_out() -> None:
    values = [0.1 * step for step in STEPS]
    values[3], values[9] = float("nan"), float("inf")
    series = metric_series(record({"reward": values}))
    assert series.step_T.tolist() == [step for step in STEPS if step not in (4, 10)]
    assert np.isfinite(series.value_T).all()
    assert series.time_T.size == series.value_T.size == ROWS - 2


def test_a_metric_that_is_not_there_is_refused_with_the_list() -> None:
    with pytest.raises(MissingMetricError, match="reward"):
        metric_series(record({"reward": [0.1] * ROWS}), "accuracy")


def test_unknown_groups_are_no_variance_and_a_sentence_that_says_what_to_give() -> None:
    series = metric_series(record({"reward": binomial(32)}))
    assert series.variance_T is None
    assert series.noise_source.startswith(
        "unavailable, because the group size or the number of prompts per step is unknown"
    )
    assert "--set group_size=G" in series.noise_source


@pytest.mark.parametrize("settings", [{"group_size": 8}, {"prompts_per_step": 4}])
def test_one_of_the_two_numbers_is_not_enough(settings: dict) -> None:
    assert metric_series(record({"reward": binomial(32)}, settings=settings)).variance_T is None


def test_binomial_noise_is_recognised_and_is_p_times_one_minus_p() -> None:
    series = metric_series(record({"reward": binomial(32)}, settings=GROUPS))
    assert series.noise_source.startswith("binomial variance p(1-p)/(B G) with B G = 32")
    assert series.bounds == (0.0, 1.0)
    assert series.variance_T is not None
    assert float(series.variance_T.mean()) == pytest.approx(0.3 * 0.7 / 32, rel=0.15)
    value = series.value_T
    level = value[15:26].mean()
    assert series.variance_T[20] == pytest.approx(level * (1 - level) / 32)


def test_a_reward_that_is_always_zero_still_has_a_variance() -> None:
    """A rate of 0 of 32 is not a rate known exactly."""
    series = metric_series(record({"reward": [0.0] * ROWS}, settings=GROUPS))
    assert series.variance_T is not None
    assert float(series.variance_T.min()) > 0


@pytest.mark.parametrize(
    "values",
    [
        [0.013 * step for step in STEPS],
        [v - 0.5 for v in binomial(32)],
        [2 * v for v in binomial(32, 0.8)],
    ],
    ids=["continuous", "negative", "above one"],
)
def test_a_reward_that_is_not_zero_or_one_is_not_binomial(values: list[float]) -> None:
    series = metric_series(record({"reward": values}, settings=GROUPS))
    assert series.variance_T is None
    says("series/series/1", series.noise_source)


def rollouts(steps: list[int], groups: int = 3, size: int = 4) -> pl.DataFrame:
    """Completions whose reward is their number in the group times the group's own factor."""
    rows = [
        {
            "step": step,
            "prompt_id": group,
            "reward": float(number * (group + 1)),
            "reward/check": float(number % 2),
        }
        for step in steps
        for group in range(groups)
        for number in range(size)
    ]
    table = rollouts_table(rows)
    assert table is not None
    return table


def test_rollouts_give_the_variance_of_a_mean_over_prompts_and_completions() -> None:
    """The group means are 1.5, 3 and 4.5: variance 2.25 over B = 3 prompts."""
    series = metric_series(record({"reward": [0.1] * ROWS}, rollouts=rollouts(STEPS)))
    expected = 2.25 / 3
    says("series/series/2", series.noise_source)
    assert series.bounds is None
    assert series.variance_T == pytest.approx(np.full(ROWS, expected))


def test_rollouts_are_preferred_to_the_binomial() -> None:
    series = metric_series(
        record({"reward": binomial(32)}, settings=GROUPS, rollouts=rollouts(STEPS))
    )
    says("series/series/3", series.noise_source)


def test_one_reward_function_takes_its_own_rollouts() -> None:
    meaning = Meaning("rewards/check/mean", "reward/check", "mean of the check")
    run = record(
        {"rewards/check/mean": [0.5] * ROWS}, meanings=(meaning,), rollouts=rollouts(STEPS)
    )
    series = metric_series(run, "rewards/check/mean")
    # All groups have the same mean: what is left is sum s^2 / G over B^2.
    assert series.variance_T == pytest.approx(np.full(ROWS, (1 / 3) / 4 / 3))
    assert series.bounds == (0.0, 1.0)
    assert series.healthy == "up"


def test_steps_without_rollouts_take_the_mean_of_the_others() -> None:
    series = metric_series(record({"reward": [0.1] * ROWS}, rollouts=rollouts(STEPS[::2])))
    assert series.variance_T is not None
    assert np.ptp(series.variance_T) == pytest.approx(0, abs=1e-12)
    assert series.variance_T.size == ROWS


def test_rollouts_of_a_few_steps_say_nothing_about_the_run() -> None:
    series = metric_series(record({"reward": [0.1] * ROWS}, rollouts=rollouts(STEPS[:3])))
    assert series.variance_T is None


def test_groups_of_one_say_nothing() -> None:
    series = metric_series(record({"reward": [0.1] * ROWS}, rollouts=rollouts(STEPS, size=1)))
    assert series.variance_T is None


def test_groups_of_two_count_and_single_rollouts_beside_them_do_not() -> None:
    """The group means are 0.5 and 2: variance 1.125 over B = 2 groups."""
    rewards = {0: (0.0, 1.0), 1: (2.0, 2.0), 2: (9.0,)}
    rows = [
        {"step": step, "prompt_id": group, "reward": reward}
        for step in STEPS
        for group, values in rewards.items()
        for reward in values
    ]
    series = metric_series(record({"reward": [0.1] * ROWS}, rollouts=rollouts_table(rows)))
    assert series.variance_T == pytest.approx(np.full(ROWS, 1.125 / 2))


@pytest.mark.parametrize(
    ("quantity", "words"),
    [
        ("reward_std_within_group", "within-group"),
        ("reward_std_batch", "batch-wide"),
        ("reward_std_ambiguous", "the log cannot tell"),
    ],
)
def test_a_logged_deviation_gives_the_variance_and_says_which_it_is(
    quantity: str, words: str
) -> None:
    values = [0.013 * step - 1 for step in STEPS]
    meanings = (Meaning("reward_std", quantity, "a deviation"),)
    series = metric_series(
        record({"reward": values, "reward_std": [0.4] * ROWS}, settings=GROUPS, meanings=meanings)
    )
    assert words in series.noise_source
    assert "32 rollouts per row" in series.noise_source
    assert series.variance_T == pytest.approx(np.full(ROWS, 0.16 / 32))


def test_a_missing_deviation_takes_the_mean_of_the_others() -> None:
    values, deviation = [0.013 * step - 1 for step in STEPS], [0.4] * ROWS
    deviation[7] = float("nan")
    meanings = (Meaning("reward_std", "reward_std_within_group", "a deviation"),)
    series = metric_series(
        record({"reward": values, "reward_std": deviation}, settings=GROUPS, meanings=meanings)
    )
    assert series.variance_T == pytest.approx(np.full(ROWS, 0.16 / 32))


@pytest.mark.parametrize("window", [5, 10])
def test_a_window_divides_the_variance(window: int) -> None:
    """Binomial, rollouts and deviations alike: a row over `window` updates holds as many times
    the rollouts.
    """
    table = steps_table(
        [window * step for step in STEPS],
        {"reward": [0.013 * step - 1 for step in STEPS], "reward_std": [0.4] * ROWS},
    )
    table = table.with_columns(pl.lit(float(window)).alias("window"))
    meanings = (Meaning("reward_std", "reward_std_within_group", "a deviation"),)
    series = metric_series(record({}, steps=table, settings=GROUPS, meanings=meanings))
    assert series.window == window
    assert series.variance_T == pytest.approx(np.full(ROWS, 0.16 / 32 / window))
    drawn = table.with_columns(pl.Series("reward", binomial(32 * window)))
    counted = metric_series(record({}, steps=drawn, settings=GROUPS))
    assert counted.variance_T is not None
    assert float(counted.variance_T.mean()) == pytest.approx(0.21 / 32 / window, rel=0.15)
    assert counted.bounds == (0.0, 1.0)  # a share of right answers
    logged = rollouts([window * step for step in STEPS])
    whole = metric_series(record({}, steps=table, rollouts=logged)).variance_T
    assert whole == pytest.approx(np.full(ROWS, 2.25 / 3 / window))


def test_other_metrics_have_no_sampling_noise_and_may_fall() -> None:
    series = metric_series(
        record({"reward": binomial(32), "entropy": binomial(32)}, settings=GROUPS), "entropy"
    )
    assert series.variance_T is None
    says("series/series/4", series.noise_source)
    assert series.healthy == "any"
    assert metric_series(record({"reward": binomial(32)})).healthy == "up"


def test_the_clock_is_that_of_the_optimiser_updates() -> None:
    table = steps_table(STEPS, {"reward": binomial(32)}).with_columns(
        (pl.col("step") * 4.0).alias("optimizer_updates")
    )
    assert metric_series(record({}, steps=table)).time_T.tolist() == [4.0 * step for step in STEPS]


@pytest.mark.parametrize(
    "bad",
    [[None, *(4.0 * step for step in STEPS[1:])], [7.0] * ROWS],
    ids=["unknown at first", "standing still"],
)
def test_a_clock_that_is_not_one_falls_back_to_the_steps(bad: list[float | None]) -> None:
    table = steps_table(STEPS, {"reward": binomial(32)}).with_columns(
        pl.Series("optimizer_updates", bad, dtype=pl.Float64)
    )
    assert metric_series(record({}, steps=table)).time_T.tolist() == STEPS


def test_seconds_are_given_where_they_are_known_throughout() -> None:
    seconds: list[float | None] = [2.0 * step for step in STEPS]
    seconds[5] = None
    table = steps_table(STEPS, {"reward": binomial(32)}).with_columns(
        pl.Series("seconds", seconds, dtype=pl.Float64),
    )
    assert metric_series(record({}, steps=table)).seconds_T is None
    filled = table.with_columns(pl.Series("seconds", [2.0 * step for step in STEPS]))
    seconds_T = metric_series(record({}, steps=filled)).seconds_T
    assert seconds_T is not None
    assert seconds_T.tolist() == [2.0 * step for step in STEPS]


@pytest.mark.parametrize(("every", "given"), [(1, True), (2, True), (3, True), (5, False)])
def test_a_rate_that_is_logged_by_turns_is_known_between(every: int, given: bool) -> None:
    rate = [1e-6 * (1 - step / 100) if at % every == 0 else None for at, step in enumerate(STEPS)]
    table = steps_table(STEPS, {"reward": binomial(32)}).with_columns(
        pl.Series("learning_rate", rate, dtype=pl.Float64),
    )
    rate_T = metric_series(record({}, steps=table)).rate_T
    assert (rate_T is not None) is given
    if rate_T is not None:
        assert rate_T[:-2] == pytest.approx([1e-6 * (1 - step / 100) for step in STEPS][:-2])


def test_a_metric_without_any_value_is_empty_and_not_an_error() -> None:
    series = metric_series(
        record({"reward": [float("nan")] * ROWS, "entropy": [1.0] * ROWS}, settings=GROUPS)
    )
    assert series.value_T.size == series.step_T.size == series.time_T.size == 0


def test_variances_are_of_the_rows_of_the_values() -> None:
    """Missing rows shift nothing: the variance of a row stays that of its own step."""
    values = [0.013 * step - 1 for step in STEPS]
    values[0] = values[20] = float("nan")
    deviation = [0.2] * 20 + [0.8] * 20
    meanings = (Meaning("reward_std", "reward_std_within_group", "a deviation"),)
    series = metric_series(
        record({"reward": values, "reward_std": deviation}, settings=GROUPS, meanings=meanings)
    )
    assert series.variance_T is not None
    assert series.variance_T.size == ROWS - 2
    assert series.variance_T[0] == pytest.approx(0.04 / 32)
    assert series.variance_T[-1] == pytest.approx(0.64 / 32)


def test_a_trainers_own_log_is_raw_and_an_export_may_be_smoothed() -> None:
    trl, table = (Source("trainer_state.json", "trl", 10, ROWS), Source("run.csv", "csv", 10, ROWS))
    assert metric_series(record({"reward": binomial(32)}, sources=(trl,))).smoothing == 1
    assert metric_series(record({"reward": binomial(32)}, sources=(table,))).smoothing is None
    console = dataclasses.replace(trl, reader="verl_console")
    for source, smoothing in ((console, 1), (table, None)):
        reward = {"reward": binomial(32)}
        run = record(reward, settings={"framework": "verl"}, sources=(source,))
        assert metric_series(run).smoothing == smoothing
    assert (
        metric_series(
            record({"reward": binomial(32)}, settings={"smoothing": 20}, sources=(trl,))
        ).smoothing
        == 20
    )


def test_a_clock_counts_updates_or_steps() -> None:
    run = record({"reward": binomial(32)})
    assert metric_series(run, clock="steps").time_T.tolist() == [float(step) for step in STEPS]
    with pytest.raises(InvalidArgumentError, match="clock"):
        metric_series(run, clock="seconds")  # type: ignore[arg-type]


def test_a_logged_mean_above_one_has_no_bounds_whatever_the_rollouts_say() -> None:
    meaning = Meaning("rewards/check/mean", "reward/check", "mean of the check")
    run = record(
        {"rewards/check/mean": [1.5] * ROWS}, meanings=(meaning,), rollouts=rollouts(STEPS)
    )
    assert metric_series(run, "rewards/check/mean").bounds is None


@pytest.mark.parametrize(
    ("rewards", "most", "range_of_it"),
    [
        ([0.0, 1.1], [], (0.0, 1.1)),  # correct + 0.1 brief
        ([-0.5, 1.0], [], (-0.5, 1.0)),
        ([0.0, 0.4, 1.0], [], (0.0, 1.0)),
        ([], [1.25, float("nan")], (0.0, 1.25)),
        ([], [0.75, 1.0], (0.0, 1.0)),
    ],
)
def test_a_mean_between_0_and_1_may_go_as_far_as_logged_completions_do(
    rewards: list[float], most: list[float], range_of_it: tuple[float, float]
) -> None:
    meanings = (Meaning("reward", "reward", "mean"), Meaning("most", "reward_max", "largest"))
    table = rollouts_table(
        [{"step": 1, "prompt_id": 0, "reward": reward} for reward in rewards] * 4
    )
    columns = {"reward": [0.25, 0.625] * (ROWS // 2)} | (
        {"most": most * (ROWS // 2)} if most else {}
    )
    run = record(columns, meanings=meanings[: len(columns)], rollouts=table)
    assert metric_series(run).likely_bounds == range_of_it


@pytest.mark.parametrize(
    ("least", "most", "range_of_it"),
    [
        ([-1.0, -1.0], [1.0, 1.0], (-1.0, 1.0)),
        ([-1.0, float("nan")], [1.0, 1.0], (-1.0, 1.0)),  # a row of an evaluation alone
        ([-1.0, -1.0], [0.5, 1.0], None),  # it still grows
        ([-1.0, -0.9], [1.0, 1.0], None),
        ([-1.0, -1.0], [], None),
        ([0.0, 0.0], [1.0, 1.0], None),  # the mean is below
        ([-1.0, -1.0], [0.5, 0.5], (-1.0, 1.0)),  # a mean of 0.625 lies within 0 to 1
    ],
)
def test_a_mean_goes_no_farther_than_the_rewards_that_are_the_same_in_all_rows(
    least: list[float], most: list[float], range_of_it: tuple[float, float] | None
) -> None:
    meanings = [Meaning("reward", "reward", "mean"), Meaning("least", "reward_min", "smallest")]
    columns = {"reward": [-0.25, 0.625] * (ROWS // 2), "least": least * (ROWS // 2)}
    if most:
        meanings.append(Meaning("most", "reward_max", "largest"))
        columns["most"] = most * (ROWS // 2)
    assert metric_series(record(columns, meanings=tuple(meanings))).likely_bounds == range_of_it


@pytest.mark.parametrize(
    ("logged", "others", "range_of_it"),
    [
        (1, {}, None),
        (ROWS, {}, (-1.0, 1.0)),
        (ROWS, {"task": -1.0}, (-1.0, 1.0)),  # with and without a penalty, alike
        (ROWS, {"task": 0.0}, None),
    ],
)
def test_a_range_needs_half_of_the_rows_and_a_single_smallest_reward(
    logged: int, others: dict[str, float], range_of_it: tuple[float, float] | None
) -> None:
    ends = {"least": -1.0, "most": 1.0}
    columns = {"reward": [-0.25, 0.625] * (ROWS // 2)} | {
        name: [end] * logged + [float("nan")] * (ROWS - logged)
        for name, end in (ends | others).items()
    }
    meanings = (
        Meaning("reward", "reward", "mean"),
        Meaning("most", "reward_max", "largest"),
        *(Meaning(name, "reward_min", "smallest") for name in ("least", *others)),
    )
    assert metric_series(record(columns, meanings=meanings)).bounds == range_of_it


def adaptive(**columns: list[float]) -> RunRecord:
    """A run whose group size changes at eight rollouts a step, as its columns or its completions
    say, and no setting.
    """
    share = [number % 9 / 8 for number in range(40)]
    steps = steps_table(list(range(1, 41)), {"reward": share, **columns})
    return RunRecord("demo", steps, meanings=(Meaning("reward", "reward", ""),))


def test_the_columns_tell_the_rollouts_of_a_step_where_no_setting_does() -> None:
    silent = metric_series(adaptive(), "reward")
    assert silent.variance_T is None
    assert "unknown; give --set group_size=G" in silent.noise_source
    series = metric_series(
        adaptive(group_size=[2.0] * 20 + [4.0] * 20, prompts=[4.0] * 20 + [2.0] * 20), "reward"
    )
    assert series.noise_source.startswith("binomial variance p(1-p)/(B G) with B G = 8")
    assert series.bounds == (0.0, 1.0)


@pytest.mark.parametrize("whole", [True, False])
def test_completions_of_whole_steps_tell_it_too_and_a_few_of_each_do_not(whole: bool) -> None:
    record = adaptive(group_size=[2.0] * 20 + [4.0] * 20)
    rows = [
        {"step": step, "prompt_id": n // 2, "reward": float(n < (step - 1) % 9)}
        for step in (1, 5, 10)
        for n in range(8 if whole else 4)
    ]
    series = metric_series(dataclasses.replace(record, rollouts=rollouts_table(rows)), "reward")
    assert series.noise_source.startswith(
        "binomial variance p(1-p)/(B G) with B G = 8" if whole else "unavailable"
    )
