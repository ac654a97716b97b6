"""The planner against trying every size, and its words and bands against what they claim."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError
from groupwise.estimators.baseline_errors import compare_baselines
from groupwise.estimators.best_group_size import (
    Budget,
    error_of,
    plan_from_components,
    plan_group_size,
    weights_of,
)
from groupwise.estimators.components import (
    QUANTITIES,
    Components,
    Sample,
    components,
    components_of_pseudo_values,
    components_of_sums,
)
from groupwise_lab.worlds.bandit import random_world


def by_trying(vp: float, t: float, r: float, budget: int) -> dict[int, float]:
    """The error at every size; lines of their own."""
    return {
        size: (vp + t / size + r / (size * (size - 1))) / (budget // size)
        for size in range(2, budget + 1)
    }


@given(
    vp=st.floats(0.01, 10),
    t=st.floats(0, 100),
    r=st.floats(0, 1000),
    budget=st.integers(4, 600),
)
def test_the_best_size_is_the_best_of_all(vp: float, t: float, r: float, budget: int) -> None:
    plan, tried = plan_group_size(vp, t, r, Budget(budget)), by_trying(vp, t, r, budget)
    least = min(tried.values())
    assert plan.mse == pytest.approx(least, rel=1e-12)
    assert tried[plan.group_size] == pytest.approx(least, rel=1e-12)
    assert plan.prompts == budget // plan.group_size
    for share, span in ((0.02, plan.within_2_percent), (0.10, plan.within_10_percent)):
        near = [size for size, error in tried.items() if error <= least * (1 + share)]
        assert span == (min(near), max(near))
    assert plan.every_size_within_10_percent == (len(near) == max(near) - min(near) + 1)
    assert ("Any group size" in plan.status) == (
        plan.every_size_within_10_percent and len(near) > 1
    )


def test_a_size_in_the_middle_that_wastes_the_budget_is_not_promised() -> None:
    """100 rollouts: groups of 40 make two prompts, of 50 too; those between waste up to a fifth
    of the budget.
    """
    plan, tried = plan_group_size(0.001, 50.0, 0.0, Budget(100)), by_trying(0.001, 50.0, 0.0, 100)
    low, high = plan.within_10_percent
    assert any(tried[size] > 1.1 * min(tried.values()) for size in range(low, high + 1))
    assert "not all between do" in plan.status


@given(
    vp=st.floats(0.01, 10),
    t=st.floats(0, 100),
    r=st.floats(0, 1000),
    budget=st.integers(4, 300),
    share=st.floats(0, 1),
    pool=st.one_of(st.none(), st.integers(2, 100)),
)
def test_prompts_saved_are_those_that_the_best_size_can_spare(
    vp: float, t: float, r: float, budget: int, share: float, pool: int | None
) -> None:
    """By taking prompts away one by one until the error is above that of the size in use."""
    present = 2 + int(share * (budget - 2))
    plan = plan_group_size(vp, t, r, Budget(budget, prompt_pool=pool), present=present)
    assert plan.present is not None

    def error(size: int, prompts: int) -> float:
        between = 1 / prompts if pool is None else (pool - prompts) / (prompts * (pool - 1))
        return vp * between + (t / size + r / (size * (size - 1))) / prompts

    in_use = error(present, plan.present.prompts)
    needed = plan.prompts
    while needed > 1 and error(plan.group_size, needed - 1) <= in_use * (1 + 1e-11):
        needed -= 1
    assert plan.present.prompts_saved in {
        plan.prompts - needed,
        plan.prompts - needed - 1 * (in_use == 0),
    }


def test_a_batch_of_the_whole_pool_has_no_error() -> None:
    plan = plan_group_size(
        1.0, 0.0, 0.0, Budget(100, prompt_pool=10), present=20, gradient_norm2=1.0
    )
    assert plan.mse == 0
    assert plan.present is not None
    assert plan.present.regret.value == np.inf
    assert "leaves none" in plan.status
    assert "no error" in plan.status
    assert plan.signal_to_noise == np.inf


def test_the_interval_of_the_best_size_holds_what_the_free_one_allows() -> None:
    """Draws that count a negative Vp as zero must not narrow what the interval of 1 + sqrt(R/Vp)
    leaves open.
    """
    few = found(prompts=24, rollouts=6)
    plan = plan_from_components(few, Budget(100_000))
    assert plan.group_size_interval is not None
    low, high = plan.group_size_interval
    assert low <= max(2, np.ceil(few.group_size.low))
    assert high >= (np.floor(few.group_size.high) if np.isfinite(few.group_size.high) else 100_000)


def test_large_budgets_round_to_the_whole_number_below() -> None:
    assert Budget(10**12 - 1).prompts(2) == (10**12 - 1) // 2
    assert Budget(2e12 - 1, rollout_cost=2.0).largest_group == 10**12 - 1


def test_free_prompts_follow_the_square_root_law() -> None:
    """With a budget that every size divides well, G* = 1 + sqrt(R/Vp)."""
    for wanted in (3, 8, 17):
        assert plan_group_size(1.0, 5.0, (wanted - 1.0) ** 2, Budget(360_360)).group_size == wanted


def test_costs_of_prompts_make_groups_larger() -> None:
    """By trying all integers; theory's leading order, 2.65, is poor here: the integer optimum is
    4.
    """
    vp, t, r, prompt_cost = 1.0, 1.0, 1.0, 6.0
    error = {
        size: (vp + t / size + r / (size * (size - 1))) * (prompt_cost + size)
        for size in range(2, 50)
    }
    best = min(error, key=error.__getitem__)
    assert best == 4
    assert np.sqrt((r + t * prompt_cost) / vp) == pytest.approx(2.65, abs=0.01)
    assert plan_group_size(vp, t, r, Budget(1e5, prompt_cost=prompt_cost)).group_size == best


def test_a_small_pool_of_prompts_needs_fewer_of_them() -> None:
    """Without replacement the part between prompts vanishes once every prompt is in the batch."""
    pool, budget = 16, 256
    plan = plan_group_size(1.0, 1.0, 1.0, Budget(budget, prompt_pool=pool))
    error = {}
    for size in range(2, budget + 1):
        prompts = min(budget // size, pool)
        error[size] = (pool - prompts) / (prompts * (pool - 1)) + (
            1 / size + 1 / (size * (size - 1))
        ) / prompts
    assert plan.group_size == min(error, key=error.__getitem__) == 16
    assert plan.mse == pytest.approx(min(error.values()))


def test_cost_that_divides_evenly_loses_no_prompt_to_rounding() -> None:
    assert Budget(0.3, rollout_cost=0.05).prompts(2) == 3
    assert Budget(3 * 0.1, rollout_cost=0.1).largest_group == 3


def found(prompts: int = 128, rollouts: int = 8) -> Components:
    world = random_world(
        np.random.default_rng(2), prompts=500, arms=5, dimensions=6, rewards="binary"
    )
    score, reward, prompt = world.sample(prompts, rollouts, np.random.default_rng(3))
    return components(reward, prompt, score_ND=score)


def test_estimated_components_bring_bands() -> None:
    plan = plan_from_components(found(), Budget(1024), present=32)
    chances = [point.probability_best for point in plan.curve]
    assert sum(chance or 0 for chance in chances) == pytest.approx(1)
    assert all(
        point.low <= point.mse <= point.high
        for point in plan.curve
        if point.low is not None and point.high is not None
    )
    assert plan.group_size_interval is not None
    assert plan.group_size_interval[0] <= plan.group_size <= plan.group_size_interval[1]
    assert plan.present is not None
    assert 0 < plan.present.regret.low < plan.present.regret.value < plan.present.regret.high
    assert 0 < plan.present.prompts_saved < plan.prompts
    assert "G = 32 costs" in plan.status
    again = plan_from_components(found(), Budget(1024), present=32)
    assert again.as_dict() == plan.as_dict()


def test_sums_alone_give_bands_too() -> None:
    world = random_world(
        np.random.default_rng(2), prompts=500, arms=5, dimensions=6, rewards="binary"
    )
    score, reward, prompt = world.sample(128, 8, np.random.default_rng(3))
    estimate = components(reward, prompt, score_ND=score)
    sample = Sample(128, 1024, 0, zero_mean=True)
    sums = components_of_sums(estimate.estimate_C, estimate.covariance_CC, sample)
    plan = plan_from_components(sums, Budget(1024), present=8)
    rows = plan_from_components(found(), Budget(1024), present=8)
    assert plan.group_size == rows.group_size
    assert plan.group_size_interval is not None


def test_where_vp_may_be_zero_the_size_with_the_smallest_mean_regret_is_told() -> None:
    """Two kinds of prompts by hand: every draw is k of 40 prompts with Vp = 2 and the others
    with -2.2, at T = 1 and R = 40.
    """
    pseudo = np.zeros((40, len(QUANTITIES)))
    pseudo[:, QUANTITIES.index("vp")] = np.where(np.arange(40) % 2, 2.0, -2.2)
    pseudo[:, QUANTITIES.index("t")], pseudo[:, QUANTITIES.index("r")] = 1.0, 40.0
    pseudo[:, QUANTITIES.index("within_gradient_norm2")] = 1.0  # informative groups
    made = components_of_pseudo_values(pseudo, Sample(40, 320, 0, zero_mean=True))
    assert made.vp.value == pytest.approx(-0.1)
    plan = plan_from_components(made, Budget(64), present=4)
    weight = np.random.default_rng(0).multinomial(40, np.full(40, 1 / 40), size=2000) / 40
    size, regrets = np.arange(2, 65), []
    for vp in np.maximum(weight @ pseudo[:, QUANTITIES.index("vp")], 0):
        error = (vp + 1 / size + 40 / (size * (size - 1.0))) / (64 // size)
        regrets.append(error / error.min() - 1)
    regret = np.mean(regrets, axis=0)
    assert plan.group_size == size[regret.argmin()]
    assert plan.expected_regret == pytest.approx(regret.min(), rel=1e-10)
    assert plan.present is not None
    assert plan.present.regret.value == pytest.approx(regret[2], rel=1e-10)
    ends = np.quantile(np.array(regrets)[:, 2], [0.025, 0.975])
    assert [plan.present.regret.low, plan.present.regret.high] == pytest.approx(
        ends.tolist(), rel=1e-10
    )
    assert plan.group_size_interval is not None
    assert plan.group_size_interval[1] == 64
    first, last = plan.group_size_interval
    assert plan.status == (
        "No best size can be told: Vp, the variance between prompts, cannot be told from zero "
        f"with 40 prompts. Of 64 rollouts the smallest expected regret, {100 * regret.min():.0f} % "
        f"more variance than the best, has {plan.group_size} rollouts of each of {plan.prompts} "
        f"prompts; the best may lie anywhere from {first} to {last} (95 %). G = 4 in use has "
        f"{100 * regret[2]:.0f} %."
    )
    larger, same = (
        plan_from_components(made, Budget(64), present=present) for present in (64, plan.group_size)
    )
    assert larger.status.endswith(f" G = 64 in use has {100 * regret[62]:.0f} %.")
    assert "in use" not in same.status


def test_words_say_when_not_to_bother() -> None:
    assert "do not bother" in plan_group_size(1.0, 50.0, 49.0, Budget(1024), present=9).status
    assert "the best one" in plan_group_size(1.0, 0.0, 49.0, Budget(1024), present=8).status
    assert (
        "no longer matters"
        in plan_group_size(1.0, 1.0, 1.0, Budget(1024), gradient_norm2=1.0).status
    )
    assert (
        "noise still limits"
        in plan_group_size(1.0, 1.0, 1.0, Budget(1024), gradient_norm2=1e-6).status
    )


@each_case(
    ("values", "message"),
    [
        ((-1, 1, 1), "zero or positive"),
        ((0, 0, 0), "not all zero"),
        ((np.nan, 1, 1), "zero or positive"),
        ((1, np.inf, 1), "zero or positive"),
    ],
)
def test_bad_components_are_refused(values: tuple[float, float, float], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        plan_group_size(*values, Budget(64))


def test_bad_budgets_are_refused() -> None:
    for arguments, message in (
        ({"amount": 1}, "has to pay for one prompt with two rollouts"),
        ({"amount": -5}, "the budget has to be a positive number"),
        ({"amount": 64, "rollout_cost": 0}, "the rollout cost has to be a positive number"),
        ({"amount": 64, "prompt_cost": -1}, "the prompt cost"),
        ({"amount": 64, "unit": "dollars"}, "rollouts, tokens or seconds"),
        ({"amount": 64, "prompt_pool": 1}, "at least two"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            Budget(**arguments)
    with pytest.raises(InvalidArgumentError, match="between 2 and 64"):
        plan_group_size(1.0, 1.0, 1.0, Budget(64), present=65)


def test_baselines_at_one_batch_are_the_rows_of_the_exact_table() -> None:
    """Large sample against the judge's exact moments, within five standard errors of a ratio
    known to about 1 %.
    """
    world = random_world(
        np.random.default_rng(2), prompts=500, arms=5, dimensions=6, rewards="binary"
    )
    score, reward, prompt = world.sample(6000, 8, np.random.default_rng(3))
    rows = {
        row.name: row
        for row in compare_baselines(components(reward, prompt, score_ND=score), 4, 32)
    }
    moments, weight = world.moments(), world.weight_P
    mean = weight @ moments.value_P
    second = moments.score_norm2_P
    shift = (weight @ moments.kappa_P) / (weight @ second)
    within: dict[str, float] = {
        "leave_one_out": moments.t / 4 + moments.r / 12,
        "oracle": moments.t / 4,
        "vanilla": float(
            weight
            @ (
                moments.oracle_variance_P
                + moments.value_P**2 * second
                + 2 * moments.value_P * moments.kappa_P
            )
        )
        / 4,
        "batch_mean": float(
            weight
            @ (
                moments.oracle_variance_P
                + (moments.value_P - mean) ** 2 * second
                + 2 * (moments.value_P - mean) * moments.kappa_P
            )
        )
        / 4,
        "variance_optimal": float(
            moments.t + shift**2 * (weight @ second) - 2 * shift * (weight @ moments.kappa_P)
        )
        / 4,
    }
    for name, value in within.items():
        assert rows[name].mse.value == pytest.approx((moments.vp + value) / 32, rel=0.08), name
    full = (3 / 4) ** 2 * (
        moments.vp + within["leave_one_out"]
    ) / 32 + moments.gradient_D @ moments.gradient_D / 16
    assert rows["full_group_mean"].mse.value == pytest.approx(full, rel=0.08)
    assert rows["full_group_mean"].ratio.value == 1.0
    assert rows["oracle"].ratio.high < 1 < rows["vanilla"].ratio.low


def test_the_planner_and_the_table_of_laws_state_one_error() -> None:
    """Two places hold the law of leave-one-out; they must not drift apart."""
    from groupwise_lab.theory.mse import mse

    for size in (2, 5, 64):
        expected = mse(0.3, 1.7, 2.9, group_size=size, prompts=7)
        assert error_of(np.array([0.3, 1.7, 2.9]), np.array([size]), Budget(7 * size))[
            0
        ] == pytest.approx(expected, rel=1e-12)


def weight_by_hand(size: int, budget: int) -> np.ndarray:
    """1/B, 1/(BG), 1/(BG(G-1))."""
    prompts = budget // size
    return np.array([1 / prompts, 1 / (prompts * size), 1 / (prompts * size * (size - 1))])


def test_the_regret_by_hand() -> None:
    """On the logarithm: below against the best size, above against each that may be best, all
    with the best one's quantile.
    """
    components_, budget, present = found(), 512, 48
    plan = plan_from_components(components_, Budget(budget), present=present)
    assert plan.present is not None
    assert plan.group_size_interval is not None
    first, last = plan.group_size_interval
    in_use = weight_by_hand(present, budget)
    rivals = [size for size in range(first, last + 1) if size != present]
    ends, vtr = {}, components_.vtr
    assert vtr.min() > 0
    for size in rivals:
        other = weight_by_hand(size, budget)
        contrast = in_use / (vtr @ in_use) - other / (vtr @ other)
        ends[size] = (
            vtr @ in_use / (vtr @ other),
            np.sqrt(contrast @ components_.vtr_covariance @ contrast),
            contrast,
        )
    assert components_.pseudo_PC is not None
    told = components_.pseudo_PC[:, :3] @ ends[plan.group_size][2]
    freedom = np.clip(2 * len(told) / (stats.kurtosis(told, fisher=False) - 1), 2, len(told) - 1)
    quantile = stats.t.ppf(0.975, freedom)
    ratio, error, _ = ends[plan.group_size]
    regret = plan.present.regret
    assert regret.value == pytest.approx(ratio - 1, rel=1e-10)
    assert regret.low == pytest.approx(ratio * np.exp(-quantile * error) - 1, rel=1e-10)
    assert regret.high == pytest.approx(
        max(r * np.exp(quantile * e) for r, e, _ in ends.values()) - 1, rel=1e-10
    )
    assert regret.level == components_.level
    least = plan.mse
    norm2 = components_.gradient_norm2.value
    assert plan.signal_to_noise == pytest.approx(norm2 / least)
    assert plan.present.gain_lost == pytest.approx(1 - (norm2 + least) / (norm2 + plan.present.mse))


@each_case(("prompts", "told"), [(24, False), (128, True)])
def test_bands_and_best_sizes_are_those_of_the_draws(prompts: int, told: bool) -> None:
    """Prompts drawn again with the same generator, each draw with its own curve; the interval of
    the best size takes in Fieller's ends.

    Where no best size is told, none has a chance to be it either.
    """
    components_, budget = found(prompts), 60
    plan = plan_from_components(
        components_, Budget(budget), rng=np.random.default_rng(5), draws=300
    )
    pseudo = components_.pseudo_PC
    assert pseudo is not None
    drawn = (
        np.random.default_rng(5).multinomial(prompts, np.full(prompts, 1 / prompts), size=300)
        / prompts
        @ pseudo[:, :3]
    )
    drawn = np.maximum(drawn, 0)
    sizes = np.arange(2, budget + 1)
    error = drawn @ np.array([weight_by_hand(size, budget) for size in sizes.tolist()]).T
    low, high = np.quantile(error, [0.025, 0.975], axis=0)
    assert [point.low for point in plan.curve] == pytest.approx(low.tolist(), rel=1e-12)
    assert [point.high for point in plan.curve] == pytest.approx(high.tolist(), rel=1e-12)
    best = error.argmin(axis=1)
    chances = (
        (np.bincount(best, minlength=len(sizes)) / 300).tolist() if told else [None] * len(sizes)
    )
    assert [point.probability_best for point in plan.curve] == pytest.approx(chances)
    excess = (
        [None] * len(sizes)
        if told
        else (error / error.min(axis=1, keepdims=True) - 1).mean(axis=0).tolist()
    )
    assert [point.expected_regret for point in plan.curve] == pytest.approx(excess)
    assert plan.expected_regret == (None if told else pytest.approx(min(excess)))
    assert components_.status.startswith(
        "The best group size"
        if told
        else "No best group size can be told: Vp, the variance between prompts"
    )
    vp, t, r = components_.vtr
    ends = [np.quantile(sizes[best], share, method="inverted_cdf") for share in (0.025, 0.975)]
    for free in (components_.group_size.low, components_.group_size.high):
        values = np.array([0.0, t, r] if np.isinf(free) else [vp, t, (free - 1) ** 2 * vp])
        ends.append(
            sizes[np.argmin([values @ weight_by_hand(size, budget) for size in sizes.tolist()])]
        )
    assert plan.group_size_interval == (min(ends), max(ends))


def test_a_budget_that_leaves_one_size_has_a_best_one() -> None:
    """One prompt has Vp = 0, and of eight rollouts it takes all, whatever the data leave open."""
    world = random_world(
        np.random.default_rng(7), prompts=1, arms=5, dimensions=8, rewards="binary"
    )
    score, reward, prompt = world.sample(48, 8, np.random.default_rng(48))
    plan = plan_from_components(components(reward, prompt, score_ND=score), Budget(8.0), present=4)
    assert plan.components is not None
    assert not plan.components.vp.distinguishable
    assert (plan.group_size, plan.group_size_interval, plan.expected_regret) == (8, (8, 8), None)
    assert "The data leave no other size (95 %)." in plan.status


def test_a_batch_without_replacement_by_hand() -> None:
    budget = Budget(40, prompt_pool=9)
    plan = plan_group_size(2.0, 3.0, 5.0, budget, present=4, gradient_norm2=0.5)
    assert plan.present is not None
    assert plan.present.prompts == 9
    assert plan.present.mse == pytest.approx((3 / 4 + 5 / 12) / 9)  # every prompt is in the batch
    assert weights_of(np.array([8]), budget)[:, 0] == pytest.approx([4 / (5 * 8), 1 / 40, 1 / 280])
    assert plan.present.gain_lost == pytest.approx(1 - (0.5 + plan.mse) / (0.5 + plan.present.mse))
    assert plan.notes == ("Prompts are drawn without replacement from 9.",)


def test_the_words_of_a_plan() -> None:
    plan = plan_group_size(1.0, 0.0, 49.0, Budget(1024), present=64, gradient_norm2=0.001)
    assert plan.status == (
        "Best for 1,024 rollouts: 8 rollouts of each of 128 prompts. Any group size from 6 to 11 "
        "costs at most 10 % more variance. G = 64 costs 332 % more variance than the best, 8; the "
        "best size reaches the same error with 30 of its 128 prompts. The batch's error is 14.6 "
        "times the squared gradient: the noise still limits each step."
    )
    assert (
        "G = 512 costs 34.1 times the variance of the best, 8"
        in plan_group_size(1.0, 0.0, 49.0, Budget(1024), present=512).status
    )
    assert (
        "little beside the half"
        in plan_group_size(1.0, 0.0, 49.0, Budget(10_000), present=6).status
    )
    assert plan_group_size(0.0, 0.0, 1.0, Budget(9, unit="seconds")).status.startswith(
        "Best for 9 seconds: 9 rollouts of one prompt. Every"
    )
    assert plan.as_dict()["present"]["prompts_saved"] == 98
    assert "signal_to_noise" not in plan.as_dict()
    assert list(plan.as_dict()["budget"]) == [
        "amount",
        "unit",
        "prompt_cost",
        "rollout_cost",
        "prompt_pool",
    ]


def test_large_budgets_are_shown_thinned() -> None:
    plan = plan_group_size(1.0, 1.0, 1.0, Budget(100_000), present=77_777)
    sizes = [point.group_size for point in plan.curve]
    assert sizes[:255] == list(range(2, 257))
    assert sizes[-1] == 100_000
    assert 77_777 in sizes
    assert len(sizes) == pytest.approx(255 + 16 * np.log2(100_000 / 256), abs=3)


def test_the_table_of_baselines_by_hand() -> None:
    """From pseudo-values whose means are known: each row, its interval, and the ratio to
    leave-one-out.
    """
    rng = np.random.default_rng(8)
    pseudo = rng.gamma(4.0, size=(40, len(QUANTITIES))) * np.linspace(1.0, 3.0, len(QUANTITIES))
    made = components_of_pseudo_values(pseudo, Sample(40, 320, 0, zero_mean=True))
    q = dict(zip(QUANTITIES, pseudo.mean(axis=0), strict=True))
    rows = {row.name: row for row in compare_baselines(made, 4, 10)}
    shift = q["kappa"] / q["score_norm2"]
    vanilla = (q["score_norm2_reward2"] - q["within_gradient_norm2"]) / 4
    loo = q["vp"] + q["t"] / 4 + q["r"] / 12
    expected = {
        "leave_one_out": loo / 10,
        "oracle": (q["vp"] + q["t"] / 4) / 10,
        "full_group_mean": 9 / 16 * loo / 10 + q["gradient_norm2"] / 16,
        "batch_mean": (
            q["vp"]
            + vanilla
            + (-2 * q["value"] * q["score_norm2_reward"] + q["value"] ** 2 * q["score_norm2"]) / 4
        )
        / 10,
        "vanilla": (q["vp"] + vanilla) / 10,
        "variance_optimal": (
            q["vp"] + q["t"] / 4 + (-2 * shift * q["kappa"] + shift**2 * q["score_norm2"]) / 4
        )
        / 10,
    }
    assert {name: row.mse.value for name, row in rows.items()} == pytest.approx(expected, rel=1e-12)
    for name, combination in (("oracle", [1, 1 / 4, 0]), ("leave_one_out", [1, 1 / 4, 1 / 12])):
        each = pseudo[:, :3] @ np.array(combination) / 10
        freedom = np.clip(80 / (stats.kurtosis(each, fisher=False) - 1), 2, 39)
        half = stats.t.ppf(0.975, freedom) * stats.sem(each)
        assert (rows[name].mse.low, rows[name].mse.high) == pytest.approx(
            (each.mean() - half, each.mean() + half), rel=1e-9
        )
    one, other = (
        pseudo[:, :3] @ np.array([1, 1 / 4, 0]),
        pseudo[:, :3] @ np.array([1, 1 / 4, 1 / 12]),
    )
    each = one / one.mean() - other / other.mean()
    freedom = np.clip(80 / (stats.kurtosis(each, fisher=False) - 1), 2, 39)
    factor = np.exp(stats.t.ppf(0.975, freedom) * stats.sem(each))
    ratio = one.mean() / other.mean()
    found_ratio = rows["oracle"].ratio
    assert (found_ratio.value, found_ratio.low, found_ratio.high) == pytest.approx(
        (ratio, ratio / factor, ratio * factor), rel=1e-9
    )
    assert (rows["full_group_mean"].ratio.value, rows["leave_one_out"].ratio.width) == (1.0, 0.0)
    for wrong in ((1, 4), (4, 0)):
        with pytest.raises(InvalidArgumentError, match="at least 2 and at least 1 prompt"):
            compare_baselines(made, *wrong)


def test_where_fiellers_set_has_no_end_the_largest_group_may_be_best() -> None:
    """One prompt of sixteen carries Vp: every draw of prompts has a best size of 11 or less, but
    the data do not exclude Vp = 0.
    """
    pseudo = np.zeros((16, len(QUANTITIES)))
    pseudo[:, QUANTITIES.index("vp")] = [0.01] * 15 + [5.0]
    pseudo[:, QUANTITIES.index("r")] = 1.0 + 0.01 * np.arange(16)
    pseudo[:, QUANTITIES.index("t")] = 1.0
    made = components_of_pseudo_values(pseudo, Sample(16, 128, 0, zero_mean=True))
    assert made.group_size.high == np.inf
    interval = plan_from_components(made, Budget(1000)).group_size_interval
    assert interval is not None
    assert interval[1] == 1000


def test_a_size_that_the_data_leave_as_the_best_may_cost_nothing() -> None:
    """No interval of what the size in use costs excludes 0 beside one of the best size that
    holds it.
    """
    held = 0
    for seed in (3, 6, 8, 11):
        rng = np.random.default_rng(seed)
        lean, score = np.repeat(rng.normal(size=(64, 4)), 8, axis=0), rng.normal(size=(512, 4))
        reward = (0.3 * (score * lean).sum(axis=1) + rng.normal(size=512) > 0) * 1.0
        plan = plan_from_components(
            components(reward, np.repeat(np.arange(64), 8), score_ND=score), Budget(512), present=64
        )
        assert plan.present is not None
        assert plan.group_size_interval is not None
        first, last = plan.group_size_interval
        held += first <= 64 <= last
        assert plan.present.regret.low == 0 or not first <= 64 <= last
    assert held == 4
