"""The planner against trying every size, and its words and bands against what they claim."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.arrays import Float
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.best_group_size import (
    Budget,
    ceiling,
    component_weights,
    error_of,
    plan_from_components,
    plan_group_size,
    rate_factor,
    safe_sizes,
    speed_lost,
    worst_excess,
)
from groupwise.estimators.components import (
    Components,
    components,
)
from groupwise.intervals import mean_interval
from groupwise_lab.worlds.bandit import random_world

POWERS, EVERY = np.array([2, 4, 8, 16, 32]), np.arange(2, 33)
EVEN = Budget(float(math.lcm(*range(2, 65))))  # every size divides it

# Recorded components: SmolLM2 zero-shot and behind three examples, and addition.
ZERO_SHOT, BEHIND, ADDITION = (0, 108.130, 136.422), (8.947, 51.808, 38.546), (45, 196.4, 381.3)


@each_case(
    ("components_", "sizes", "tie", "size", "excess"),
    [
        ((0, 1, 1), POWERS, 0.0, 4, 7 / 24),
        ((0, 1, 1), EVERY, 0.1, 5, 0.25),
        *(
            ((0, t, 1), np.array([2, 3, 4, 5, 6, 8, 12, 16, 32, 64]), 0.0, size, excess)
            for t, size, excess in (
                (0.3, 6, 0.583),
                (0.5, 5, 0.454),
                (1, 5, 0.25),
                (2, 4, 0.157),
                (4, 4, 0.079),
            )
        ),
        (ZERO_SHOT, POWERS, 0.1, 4, 0.365),
        (ZERO_SHOT, EVERY, 0.1, 5, 0.269),
        (BEHIND, POWERS, 0.0, 2, 0.078),
        (BEHIND, POWERS, 0.1, 4, 0.100),
        (ADDITION, POWERS, 0.1, 4, 0.133),
    ],
)
def test_the_safe_size_by_hand(
    components_: tuple[float, float, float], sizes: Any, tie: float, size: int, excess: float
) -> None:
    worst = worst_excess(*components_, sizes, EVEN)
    chosen = int(safe_sizes(worst, sizes, tie=tie)[-1])
    assert chosen == size
    assert worst[list(sizes).index(chosen)] == pytest.approx(excess, abs=6e-4)


@given(
    low=st.floats(0, 10),
    t=st.floats(0.01, 100),
    r=st.floats(0.1, 100),
    budget=st.integers(4, 600),
)
def test_the_worst_excess_is_that_of_every_vp(low: float, t: float, r: float, budget: int) -> None:
    """Two ends suffice, also where the budget divides badly."""
    sizes = np.arange(2, max(3, budget // 2 + 1))
    worst = worst_excess(low, t, r, sizes, Budget(budget))
    top = max(r / 2, low)
    for vp in np.linspace(low, top, 9):
        error = [(vp + t / G + r / (G * (G - 1))) / (budget // G) for G in sizes]
        assert (np.array(error) / min(error) - 1 <= worst * (1 + 1e-9) + 1e-9).all()


def test_speed_and_its_price_by_hand() -> None:
    error_of_sizes = error_of(np.array([1.0, 1.0, 3.0]), np.array([4]), EVEN) * EVEN.amount
    assert error_of_sizes[0] == pytest.approx(6)  # N times the error of one gradient
    error = error_of(np.array([1.0, 1.0, 1.0]), np.array([8, 4]), Budget(64))
    assert float(speed_lost(error[0], error[1])) == pytest.approx(0.2362373842)
    assert ceiling(2) == 1
    assert 1 + np.sqrt(2 / ceiling(2)) == pytest.approx(1 + np.sqrt(2))
    assert rate_factor(4.0, 1.0) == 2
    for size, now, at_most in (
        (32, -0.168, 0.569),
        (8, -0.097, 0.204),
        (16, -0.145, 0.406),
    ):
        plan = plan_group_size(*ZERO_SHOT, Budget(64), present=size)
        assert plan.group_size == 4
        assert plan.present is not None
        price = plan.present
        assert (price.now.value, price.at_most) == pytest.approx((now, at_most), abs=6e-4)


def test_critical_rollouts_by_hand() -> None:
    for norm2, critical in ((0.202, 631.8), (0.470, 271.5), (0.805, 158.5)):
        error = float(error_of(np.array(ZERO_SHOT), np.array([8]), Budget(64))[0])
        assert 64 * error / norm2 == pytest.approx(critical, abs=0.1)
    plan = plan_group_size(*ZERO_SHOT, Budget(64), gradient_norm2=0.47)
    assert plan.critical is not None
    assert plan.speed is not None
    assert plan.critical.value == pytest.approx(64 * plan.mse / 0.47)
    assert plan.speed.value == pytest.approx(64 / (64 + plan.critical.value))
    assert plan.doubled == pytest.approx(
        2 * (64 + plan.critical.value) / (128 + plan.critical.value)
    )
    assert plan.rate_factor == pytest.approx(np.sqrt((0.47 + plan.mse) / (0.47 + plan.mse / 2)))
    assert "Noise equals signal at 327 rollouts." in plan.status
    unknown = plan_group_size(*ZERO_SHOT, Budget(64), gradient_norm2=0.0)
    assert unknown.critical is not None
    assert unknown.critical.value == np.inf
    assert "does not differ from zero" in unknown.status
    assert unknown.as_dict()["critical"]["value"] is None


def sampled_components(prompts: int = 128, rollouts: int = 8) -> Components:
    world = random_world(
        np.random.default_rng(2), prompts=500, arms=5, dimensions=6, rewards="binary"
    )
    score, reward, prompt = world.sample(prompts, rollouts, np.random.default_rng(3))
    return components(reward, prompt, score_ND=score)


def random_bandits(rng: np.random.Generator) -> Iterator[tuple[float, float, float]]:
    """Vp, |g|^2 and R of softmax policies with random scores and rewards, exactly."""
    for _ in range(60):
        prompts, answers, dimension = rng.integers(1, 6), rng.integers(2, 6), rng.integers(1, 5)
        probability = rng.dirichlet(np.full(answers, rng.choice([0.2, 1, 5])), size=prompts)
        features = rng.normal(size=(prompts, answers, dimension)) * rng.choice([0.1, 1, 10])
        reward = rng.choice([0.0, 1.0], size=(prompts, answers))
        if rng.integers(2):
            reward = rng.normal(size=(prompts, answers))
        score = features - (probability[..., None] * features).sum(1, keepdims=True)
        value = (probability * reward).sum(1, keepdims=True)
        gradient = np.einsum("pa,pad->pd", probability * (reward - value), score)
        spread = (probability * (reward - value) ** 2).sum(1)
        norm2 = (probability * (score**2).sum(2)).sum(1)
        own = (gradient**2).sum(1)
        common = float((gradient.mean(0) ** 2).sum())
        yield float(own.mean()) - common, common, float((norm2 * spread + own).mean())


def test_vp_never_passes_half_of_r() -> None:
    """Vp <= R/2 - |g|^2 for every policy, prompt set and reward."""
    for vp, norm2, r in random_bandits(np.random.default_rng(20)):
        assert vp + norm2 <= r / 2 * (1 + 1e-9) + 1e-12


def test_vp_reaches_half_of_r_with_two_answers_and_orthogonal_prompts() -> None:
    """Two answers, p = .3, a score difference of length 1: |g(x)|^2 = .0441, R = .0882, T_o =
    .0336; of P orthogonal prompts Vp = (1 - 1/P) |g(x)|^2.
    """
    p, prompts = 0.3, 7
    score = np.array([1 - p, -p])  # of the answers, along the difference
    reward = np.array([1.0, 0.0])
    weight = np.array([p, 1 - p])
    error = reward - p
    gradient = float(weight @ (score * error))
    r = float((weight @ score**2) * (weight @ error**2)) + gradient**2
    assert gradient**2 == pytest.approx(0.0441)
    assert r == pytest.approx(0.0882)
    assert float(weight @ (score * error) ** 2) - gradient**2 == pytest.approx(0.0336)
    vp = (1 - 1 / prompts) * gradient**2
    assert vp == pytest.approx(ceiling(r, gradient**2 / prompts))


def test_no_plan_is_of_one_prompt_and_what_is_left_over_is_told() -> None:
    for vp, t, r, budget in ((0, 0, 1, 64), (0, 0.01, 5, 17), (0, 1, 1, 4), (1, 1, 1, 66)):
        plan = plan_group_size(vp, t, r, Budget(budget))
        assert plan.prompts >= 2
        assert max(point.group_size for point in plan.curve) == budget // 2
        rest = budget - plan.group_size * plan.prompts
        assert (f"with {rest} left over" in plan.status) == (rest > 0)
    assert plan_group_size(1, 1, 1, Budget(2)).prompts == 1  # all that the budget pays for
    whole = plan_group_size(*ZERO_SHOT, Budget(64))
    assert whole.group_size == 4  # 5 would leave 4 rollouts over
    assert whole.safe_sizes == (4, 5)


def test_components_bring_the_interval_of_the_price() -> None:
    plan = plan_from_components(sampled_components(), Budget(1024), present=64)
    again = plan_from_components(sampled_components(), Budget(1024), present=64)
    assert plan.as_dict() == again.as_dict()
    price = plan.present
    assert price is not None
    assert price.now.low < price.now.value < price.now.high <= 1
    assert 0 < price.at_most <= 1
    assert plan.critical is not None
    assert plan.critical.low < plan.critical.value
    assert plan.safe_sizes[0] <= plan.group_size <= plan.safe_sizes[1]
    saved = sampled_components()
    same = plan_from_components(saved, Budget(1024), present=plan.group_size).present
    assert same is not None
    assert (same.now.value, same.at_most, same.rate_factor) == (0, 0, 1)


@each_case(("prompts", "present"), [(8, 64), (12, 512)])
def test_a_price_is_at_most_what_its_interval_holds_or_more(prompts: int, present: int) -> None:
    """The first had .660 below .672, the second an end above 1."""
    price = plan_from_components(sampled_components(prompts), Budget(1024), present=present).present
    assert price is not None
    assert price.now.high <= price.at_most <= 1


def test_the_interval_of_the_price_holds_what_leaving_out_each_prompt_tells() -> None:
    """It is the hull of that interval, made prompt by prompt, and of the one of prompts that are
    drawn anew, which alone is too narrow; its upper part is longer for what a sample hides.
    """
    measured = sampled_components(prompts=64)
    plan = plan_from_components(measured, Budget(1024), present=64)
    assert plan.present is not None
    sizes, now = np.array([64, plan.group_size]), plan.present.now

    def lost(mean_C: Float) -> float:
        values = np.maximum(mean_C[:4], 0)
        own, theirs = error_of(values[:3], sizes, Budget(1024))
        return float(speed_lost(own, theirs, float(values[3])))

    pseudo = measured.independent_BC
    whole, count = lost(pseudo.mean(axis=0)), len(pseudo)
    assert whole == pytest.approx(now.value)
    left_out = np.array([lost(np.delete(pseudo, row, axis=0).mean(axis=0)) for row in range(count)])
    by_hand = mean_interval(count * whole - (count - 1) * left_out)
    drawn = np.random.default_rng(5).integers(count, size=(4000, count))
    redrawn = np.quantile([lost(pseudo[rows].mean(axis=0)) for rows in drawn], [0.025, 0.975])
    longer = measured.unseen.widening
    assert 1 < longer < 1.5
    above = now.value + longer * (max(by_hand.high, redrawn[1]) - now.value)
    ends = min(by_hand.low, redrawn[0]), above
    assert (now.low, now.high) == pytest.approx(ends, abs=0.002)
    assert now.width > 1.05 * (redrawn[1] - redrawn[0])


@pytest.mark.parametrize("prompts", [16, 512])
def test_the_size_of_the_next_update_has_its_interval_or_no_number(prompts: int) -> None:
    measured = sampled_components(prompts=prompts)
    assert measured.vp.distinguishable == (prompts == 512)
    assert measured.status in plan_from_components(measured, Budget(1024)).status
    assert ("cannot be estimated" in measured.status) == (prompts == 16)
    costly = plan_from_components(measured, Budget(1024, prompt_cost=4))
    assert measured.status not in costly.status  # that size is for prompts without a cost


@pytest.mark.parametrize("share", [0.2, 0.6, 1.0, 1.8])
def test_a_size_is_named_where_no_course_of_the_run_makes_it_cost_much(share: float) -> None:
    """By every Vp from that of now to the ceiling; elsewhere sizes are given, and none is named."""
    for vp in (0.0, 0.02, 0.2, 0.5):
        plan = plan_group_size(vp, share, 1.0, Budget(512))
        size = np.array([point.group_size for point in plan.curve])
        cost = max(
            float(error[size == plan.group_size][0] / error.min()) - 1
            for vp_later in np.linspace(vp, 0.5, 60)
            if (error := error_of(np.array([vp_later, share, 1.0]), size, Budget(512))).any()
        )
        assert plan.named == (cost <= 0.15)
        assert plan.status.startswith("A group size of" if plan.named else "No single group size")


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_no_size_is_named_at_a_runs_start(slope: float) -> None:
    """The policy is uniform: Vp is 0 and T is R, where a size of 4 costs a third more than the
    best; it was named by chance in a twentieth of batches. Where Vp is told it is named.
    """
    rng, label, named = np.random.default_rng(3), np.repeat(np.arange(16), 16), 0
    for _ in range(100):
        score = rng.normal(size=(len(label), 12))
        part = np.einsum("nd,nd->n", score, rng.normal(size=(16, 12))[label])
        reward = (slope * part + rng.normal(size=len(label)) > 1.0).astype(float)
        measured = components(reward, label, score_ND=score)
        named += plan_from_components(measured, Budget(512)).named
    assert named == 0 if slope == 0 else named > 60


def test_components_of_which_t_or_r_may_be_zero_give_no_plan() -> None:
    rng = np.random.default_rng(1)
    score, reward = rng.normal(size=(24, 4)), np.arange(24) < 2  # one prompt of six teaches
    few = components(reward, np.repeat(np.arange(6), 4), score_ND=score)
    assert not (few.t.distinguishable and few.r.distinguishable)
    with pytest.raises(InsufficientDataError, match="expected T and R above zero"):
        plan_from_components(few, Budget(64))


def test_a_batch_without_replacement_by_hand() -> None:
    budget = Budget(40, prompt_pool=9)
    plan = plan_group_size(2.0, 3.0, 5.0, budget, present=4, gradient_norm2=0.5)
    assert plan.present is not None
    assert plan.present.prompts == 9
    assert plan.present.mse == pytest.approx((3 / 4 + 5 / 12) / 9)  # every prompt is in the batch
    assert component_weights(np.array([8]), budget)[:, 0] == pytest.approx(
        [4 / (5 * 8), 1 / 40, 1 / 280]
    )
    assert plan.notes == ("Prompts are drawn without replacement from 9.",)
    whole = plan_group_size(1.0, 0.0, 0.0, Budget(100, prompt_pool=10), present=20)
    assert whole.mse == 0


def test_the_words_of_a_plan() -> None:
    plan = plan_group_size(*ZERO_SHOT, Budget(64), present=32, gradient_norm2=0.47)
    says("estimators/best_group_size/1", plan.status)
    assert list(plan.as_dict()) == [
        "status",
        "group_size",
        "prompts",
        "mse",
        "excess",
        "safe_sizes",
        "critical",
        "speed",
        "doubled",
        "rate_factor",
        "present",
        "curve",
        "budget",
        "notes",
    ]
    assert list(plan.as_dict()["budget"]) == [
        "amount",
        "prompt_cost",
        "rollout_cost",
        "unit",
        "prompt_pool",
    ]


def test_large_budgets_are_shown_thinned() -> None:
    plan = plan_group_size(1.0, 1.0, 1.0, Budget(100_000), present=77_777)
    sizes = [point.group_size for point in plan.curve]
    assert sizes[:255] == list(range(2, 257))
    assert sizes[-1] == 50_000
    assert len(sizes) == pytest.approx(255 + 16 * np.log2(50_000 / 256), abs=3)


def test_large_budgets_round_to_the_whole_number_below() -> None:
    assert Budget(10**12 - 1).prompts(2) == (10**12 - 1) // 2
    assert Budget(2e12 - 1, rollout_cost=2.0).largest_group == 10**12 - 1


def test_cost_that_divides_evenly_loses_no_prompt_to_rounding() -> None:
    assert Budget(0.3, rollout_cost=0.05).prompts(2) == 3
    assert Budget(3 * 0.1, rollout_cost=0.1).largest_group == 3


@each_case(
    ("values", "message"),
    [
        ((-1, 1, 1), "of zero or more"),
        ((0, 0, 0), "above zero"),
        ((np.nan, 1, 1), "of zero or more"),
        ((1, np.inf, 1), "of zero or more"),
    ],
)
def test_bad_components_are_refused(values: tuple[float, float, float], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        plan_group_size(*values, Budget(64))


def test_bad_budgets_are_refused() -> None:
    for arguments, message in (
        ({"amount": 1}, "has to pay for one prompt with two rollouts, 2 rollouts; got 1"),
        ({"amount": 6, "prompt_cost": 3, "rollout_cost": 2}, "two rollouts, 7 rollouts; got 6"),
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


def test_the_planner_and_the_table_of_laws_state_one_error() -> None:
    """Two places hold the law of leave-one-out; they must not drift apart."""
    from groupwise_lab.theory.mse import mse

    for size in (2, 5, 64):
        expected = mse(0.3, 1.7, 2.9, group_size=size, prompts=7)
        assert error_of(np.array([0.3, 1.7, 2.9]), np.array([size]), Budget(7 * size))[
            0
        ] == pytest.approx(expected, rel=1e-12)


def test_a_budget_is_no_bare_number() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"expected a budget, got 64: write Budget\(64\)"
    ):
        plan_group_size(0.0, 1.0, 1.0, 64)  # type: ignore[arg-type]
