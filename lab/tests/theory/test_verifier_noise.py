"""A verifier that errs against an enumeration of rollouts and errors: every outcome is split into
one judged well and one judged ill.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import each_case
from tests.enumeration import enumerate_groups

from groupwise.errors import InvalidArgumentError
from groupwise.estimators.components import QUANTITIES, components
from groupwise_lab.theory.mse import (
    PromptMoments,
    noisy_moments,
    optimal_group_size,
    within_prompt_variance,
)
from groupwise_lab.theory.verifier_noise import VerifierErrors, with_verifier_errors
from groupwise_lab.worlds.bandit import BanditWorld, random_world

EXACT = 1e-10
RATES = [(0.0, 0.0), (0.05, 0.0), (0.0, 0.2), (0.1, 0.3)]


def judged(world: BanditWorld, errors: VerifierErrors) -> BanditWorld:
    """The world in which the errors are outcomes of their own."""
    wrong_PO = np.where(world.reward_PO == 1, errors.false_negative, errors.false_positive)
    return BanditWorld(
        np.concatenate(
            [world.probability_PO * (1 - wrong_PO), world.probability_PO * wrong_PO], axis=1
        ),
        np.concatenate([world.score_POD, world.score_POD], axis=1),
        np.concatenate([world.reward_PO, 1 - world.reward_PO], axis=1),
        world.weight_P,
    )


def moments_of(world: BanditWorld) -> PromptMoments:
    exact = world.moments()
    return PromptMoments(
        exact.value_P,
        exact.score_norm2_P,
        exact.reward_variance_P,
        exact.kappa_P,
        exact.oracle_variance_P,
        exact.gradient_norm2_P,
    )


@pytest.fixture(name="world")
def small_world() -> BanditWorld:
    return random_world(np.random.default_rng(3), prompts=3, arms=2, dimensions=4, rewards="binary")


@each_case("rates", RATES)
def test_moments_are_those_of_every_rollout_and_every_error(
    world: BanditWorld, rates: tuple[float, float]
) -> None:
    errors = VerifierErrors(*rates)
    noisy, exact = noisy_moments(moments_of(world), errors), judged(world, errors).moments()
    assert noisy.value_P == pytest.approx(exact.value_P, abs=EXACT)
    assert noisy.reward_variance_P == pytest.approx(exact.reward_variance_P, abs=EXACT)
    assert noisy.kappa_P == pytest.approx(exact.kappa_P, abs=EXACT)
    assert noisy.oracle_variance_P == pytest.approx(exact.oracle_variance_P, abs=EXACT)
    assert noisy.degenerate == pytest.approx(exact.degenerate_P, abs=EXACT)
    assert errors.slope**2 * world.vp == pytest.approx(exact.vp, abs=EXACT)


@each_case("rates", RATES)
@each_case("baseline", ["leave_one_out", "oracle", "vanilla"])
def test_the_error_of_a_group_is_that_of_every_group_and_every_error(
    world: BanditWorld, rates: tuple[float, float], baseline: str
) -> None:
    """Groups of three, enumerated with their errors: the gradient points as it did, rho times as
    long, and varies as said.
    """
    errors = VerifierErrors(*rates)
    noisy, size = judged(world, errors), 3
    variance = within_prompt_variance(baseline, noisy_moments(moments_of(world), errors), size)
    for prompt in range(3):
        groups = enumerate_groups(noisy, size, prompt=prompt)
        value = noisy.moments().value_P[prompt]
        others = (groups.reward_MG.sum(axis=1, keepdims=True) - groups.reward_MG) / (size - 1)
        subtracted = {"leave_one_out": others, "oracle": value, "vanilla": 0.0}[baseline]
        gradient_MD = (
            np.einsum("mgd,mg->md", groups.score_MGD, groups.reward_MG - subtracted) / size
        )
        assert groups.mean(gradient_MD) == pytest.approx(
            errors.slope * world.moments().gradient_PD[prompt], abs=EXACT
        )
        assert variance[prompt] == pytest.approx(groups.variance(gradient_MD), abs=EXACT)


def test_a_hand_computed_case() -> None:
    """Two arms, parameter the log odds at p = .2: score .8 or -.2.

    S2 = .16, sigma2 = .16, g = .16, kappa = .16 (.64 - .04) = .096.
    """
    plain = PromptMoments(
        *(
            np.array([value])
            for value in (0.2, 0.16, 0.16, 0.096, 0.2 * 0.64**2 + 0.8 * 0.04**2 - 0.0256, 0.0256)
        )
    )
    noisy = noisy_moments(plain, VerifierErrors(0.1, 0.0))
    # E|s|^2 of wrong answers is .8 x .04 = .032, so T gains .09 x .032; R gains .16 x .09 x .8, and
    # both keep .81 of themselves.
    assert noisy.oracle_variance_P[0] == pytest.approx(0.81 * 0.0576 + 0.09 * 0.032)
    assert noisy.degenerate[0] == pytest.approx(0.81 * (0.16 * 0.16 + 0.0256) + 0.16 * 0.09 * 0.8)


@each_case("rates", RATES)
def test_components_follow_with_their_intervals(
    world: BanditWorld, rates: tuple[float, float]
) -> None:
    """Every quantity is the exact one under errors, within its interval, and batches kept as sums
    say the same.
    """
    errors = VerifierErrors(*rates)
    score, reward, prompt = world.sample(3000, 8, np.random.default_rng(5))
    measured = components(reward, prompt, score_ND=score, level=0.999)
    corrected, exact = with_verifier_errors(measured, errors), judged(world, errors).moments()
    for estimate, truth in (
        (corrected.vp, exact.vp),
        (corrected.t, exact.t),
        (corrected.r, exact.r),
        (corrected.others["kappa"], None),
    ):
        assert truth is None or estimate.interval.covers(truth)
    assert "if the rewards of the components had no errors" in corrected.notes[-1]


def test_components_are_the_means_of_the_moments_of_prompts(world: BanditWorld) -> None:
    """Two of the quantities, number by number."""
    errors = VerifierErrors(0.1, 0.3)
    score, reward, prompt = world.sample(40, 6, np.random.default_rng(1))
    measured = components(reward, prompt, score_ND=score)
    corrected = with_verifier_errors(measured, errors)
    of = dict(zip(QUANTITIES, measured.estimate_C, strict=True))
    added = 0.09 * (of["score_norm2"] - of["score_norm2_reward"]) + 0.21 * of["score_norm2_reward"]
    assert corrected.of("t") == pytest.approx(0.36 * of["t"] + added)
    assert corrected.of("score_norm2_reward") == pytest.approx(
        0.1 * of["score_norm2"] + 0.6 * of["score_norm2_reward"]
    )


def test_the_best_group_size_never_falls() -> None:
    """R'/Vp' is R/Vp and something that is not negative."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        world = random_world(rng, prompts=5, arms=3, dimensions=3, rewards="binary")
        noisy = judged(world, VerifierErrors(*rng.uniform(0, 0.49, 2)))
        assert optimal_group_size(noisy.vp, noisy.r) >= optimal_group_size(world.vp, world.r)


def test_what_is_no_such_verifier_or_reward_is_refused(world: BanditWorld) -> None:
    for rates, word in (
        ((-0.1, 0.0), "false positives"),
        ((0.0, 1.1), "false negatives"),
        ((0.5, 0.5), "no better than a coin"),
    ):
        with pytest.raises(InvalidArgumentError, match=word):
            VerifierErrors(*rates)
    score, reward, prompt = world.sample(40, 6, np.random.default_rng(1))
    with pytest.raises(InvalidArgumentError, match="reward of 0 and 1"):
        with_verifier_errors(components(reward * 2, prompt, score_ND=score), VerifierErrors(0.1))
    with pytest.raises(InvalidArgumentError, match="mean zero"):
        with_verifier_errors(
            components(reward, prompt, score_ND=score, zero_mean=False), VerifierErrors(0.1)
        )
