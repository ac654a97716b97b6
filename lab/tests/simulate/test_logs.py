"""Logs of simulated runs: what a kind says of itself is in its numbers, and the same seed gives
the same log.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError
from groupwise.record.run import RunRecord
from groupwise_lab.worlds.logs import HEALTHY, ILL, KINDS, Truth, _stands, _world, run_of

Float = np.ndarray


def column(record: RunRecord, quantity: str) -> Float:
    return record.steps[record.column(quantity)].cast(pl.Float64).to_numpy()


def around(record: RunRecord, truth: Truth, quantity: str) -> tuple[float, float]:
    """The mean over the ten rows before the first sign, and over the last ten."""
    assert truth.signs is not None
    value = column(record, quantity)
    return float(np.nanmean(value[max(truth.signs[0] - 10, 0) : truth.signs[0]])), float(
        np.nanmean(value[-10:])
    )


@pytest.mark.thinned(12)
@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_a_sound_record_of_as_many_rows_as_wanted(kind: str) -> None:
    record, truth = run_of(kind, 5, rows=40)
    record.validate()
    assert len(record.steps) == 40
    assert record.steps.equals(run_of(kind, 5, rows=40)[0].steps)
    assert not record.steps.equals(run_of(kind, 6, rows=40)[0].steps)
    assert np.isfinite(column(record, "reward")).all()
    assert truth.kind == kind
    assert (truth.label in ("healthy", "recovered")) == (kind in HEALTHY)
    if kind in ILL:
        assert truth.signs is not None
        assert truth.onset is not None
        assert 0 <= truth.signs[0] <= truth.signs[1] < 40
        assert 0 <= truth.onset < 40


def test_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(
        InvalidArgumentError, match="expected a kind of run, got 'ill': use one of steady"
    ):
        run_of("ill", 0)


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    "kind", ["length_runaway", "length_collapse", "policy_collapse", "numerics"]
)
def test_a_collapse_takes_most_of_the_reward(kind: str) -> None:
    for seed in range(12):
        record, truth = run_of(kind, seed, rows=150)
        before, after = around(record, truth, "reward")
        lowest = column(record, "reward").min()
        assert after - lowest < 0.5 * (before - lowest)


def test_lengths_run_away_and_shrink() -> None:
    for seed in range(8):
        record, truth = run_of("length_runaway", seed, rows=150)
        before, after = around(record, truth, "completion_length")
        cut = (
            column(record, "truncated_share")[-10:].mean()
            if "truncated_share" in {m.quantity for m in record.meanings}
            else 0.0
        )
        assert after > 2 * before or cut > 0.3
        record, truth = run_of("length_collapse", seed, rows=150)
        before, after = around(record, truth, "completion_length")
        assert after < 0.6 * before
        before, _ = around(record, truth, "entropy")
        assert np.nanmax(column(record, "entropy")[truth.onset :]) > 1.4 * before


def test_harder_data_fails_whole_prompts_and_a_broken_verifier_fails_scattered_answers() -> None:
    """Of the groups with a right answer as many are right throughout as before where prompts
    fail, and hardly any where answers do.
    """

    def right_throughout(record: RunRecord, since: int) -> tuple[float, float]:
        assert record.rollouts is not None
        rollouts = record.rollouts.with_columns(late=pl.col("step") > since)
        groups = rollouts.group_by("late", "step", "prompt_id").agg(
            best=pl.col("reward").max(), worst=pl.col("reward").min()
        )
        live = groups.filter(pl.col("best") > rollouts["reward"].min() + 1e-9)  # type: ignore[operator]
        shares = {
            late: float((part["best"] - part["worst"] < 1e-9).mean())  # type: ignore[arg-type]
            for (late,), part in live.group_by("late")
        }
        return shares[False], shares[True]

    for kind in ("harder_data", "verifier_broken"):
        seen = 0
        for seed in range(25):
            record, truth = run_of(kind, seed, rows=100)
            if record.rollouts is None or record.rollouts["reward"].n_unique() != 2:
                continue
            assert truth.causes == (kind if kind == "harder_data" else "verifier",)
            assert truth.onset is not None
            before, after = right_throughout(record, int(record.steps["step"][truth.onset - 1]))
            if before > 0.1:
                assert (after > 0.5 * before) == (kind == "harder_data")
                seen += 1
        assert seen >= 2


def test_numbers_end_where_the_truth_says() -> None:
    """The first column without numbers, or a gradient norm beyond 1,000 times its own, begins in
    the row of the first sign.
    """
    for seed in range(12):
        record, truth = run_of("numerics", seed, rows=100)
        assert truth.signs is not None
        gone = [
            np.flatnonzero(np.isnan(column(record, quantity)))
            for quantity in ("gradient_norm", "loss", "kl")
            if any(m.quantity == quantity for m in record.meanings)
        ]
        norm = column(record, "gradient_norm")
        first = min(
            (int(rows[0]) for rows in gone if rows.size),
            default=int(np.argmax(norm > 1000 * norm[0])),
        )
        assert abs(first - truth.signs[0]) <= 1


def test_the_noise_of_a_row_is_that_of_the_mean_of_its_completions() -> None:
    """Of runs that stand still the variance from row to row is the one of independent prompts,
    within a third.
    """
    ratios = []
    for seed in range(30):
        record, _ = run_of("flat", seed, rows=250)
        reward, config = column(record, "reward"), record.config
        prompts, window = config.value("prompts_per_step"), float(record.steps["window"][0])
        if record.rollouts is None:
            continue
        assert prompts is not None
        within = record.rollouts.group_by("step", "prompt_id").agg(mean=pl.col("reward").mean())[
            "mean"
        ]
        ratios.append(float(reward.var() / (within.var() / prompts / window)))
    assert len(ratios) >= 3
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.33)


@each_case(("later", "stands"), [(0.0, True), (0.14, True), (0.16, False), (1.0, False)])
def test_a_run_stands_whose_second_half_gains_less_than_a_tenth(later: float, stands: bool) -> None:
    """By thirds of the second half: of .15 of the gain of before a tenth of all falls between
    the first and the last.
    """
    world = _world(np.random.default_rng(0), 60, window=1)
    world.spread, world.ease = 1e-6, np.zeros(60)
    world.ability = 0.01 * np.interp(np.arange(60), [0, 30, 59], [0.0, 1.0, 1.0 + later])
    assert _stands(world) is stands
