"""The components against enumeration of every outcome, against brute force over tuples, and
against their own other forms.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.cases import each_case
from tests.enumeration import enumerate_groups
from tests.golden.sentences import says

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.components import (
    QUANTITIES,
    Components,
    Sample,
    components,
    components_of_pseudo_values,
    estimate_of,
    pseudo_values,
)
from groupwise.estimators.moments import MOMENTS, GroupMoments, moments_of_gram, moments_of_scores
from groupwise.intervals import Interval, mean_interval
from groupwise_lab.worlds.bandit import BanditWorld, random_world, softmax_world

NEAR = 1e-10


def small_world(seed: int, outcomes: int = 3) -> BanditWorld:
    """Two prompts with three arms each, shared features and rewards that are not binary: kappa
    and V are not zero.
    """
    rng = np.random.default_rng(seed)
    return softmax_world(
        rng.normal(size=(2, outcomes, 4)), rng.normal(size=4), rng.normal(size=(2, outcomes)) + 0.5
    )


def truth_of(world: BanditWorld, prompt: int) -> dict[str, float]:
    """Moments of one prompt, from sums over its outcomes written here."""
    probability, score, reward = (
        world.probability_PO[prompt],
        world.score_POD[prompt],
        world.reward_PO[prompt],
    )
    value = probability @ reward
    error, norm = reward - value, (score**2).sum(axis=1)
    gradient = (probability * error) @ score
    own = gradient @ gradient
    sigma2, s2 = probability @ error**2, probability @ norm
    return {
        "gradient_norm2": own,
        "oracle_variance": probability @ (norm * error**2) - own,
        "remainder": s2 * sigma2 + own,
        "score_norm2": s2,
        "kappa": probability @ (norm * error),
        "score_norm2_reward": probability @ (norm * reward),
        "score_norm2_reward2": probability @ (norm * reward**2),
        "reward_variance": sigma2,
        "value": value,
        "score_mean_norm2": 0.0,
    }


def moments_of_every_group(
    world: BanditWorld, prompt: int, size: int, *, zero_mean: bool, shift: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Probability and estimated moments of every group that the prompt can have."""
    groups = enumerate_groups(world, size, prompt=prompt)
    count = len(groups.probability_M)
    score = groups.score_MGD.reshape(count * size, -1) + shift
    moments = moments_of_scores(
        score, groups.reward_MG.ravel(), np.repeat(np.arange(count), size), zero_mean=zero_mean
    )
    return groups.probability_M, moments.moment_PC


@each_case("size", [4, 5, 6])
@each_case("zero_mean", [True, False])
@each_case("prompt", [0, 1])
def test_moments_are_unbiased_over_all_outcomes(size: int, zero_mean: bool, prompt: int) -> None:
    world = small_world(3)
    probability, moments = moments_of_every_group(world, prompt, size, zero_mean=zero_mean)
    truth = truth_of(world, prompt)
    expected = probability @ moments
    for column, name in enumerate(MOMENTS):
        assert expected[column] == pytest.approx(truth[name], abs=NEAR), name


def test_without_the_assumption_a_shift_of_the_scores_changes_nothing() -> None:
    world = small_world(4)
    probability, plain = moments_of_every_group(world, 0, 4, zero_mean=False)
    _, shifted = moments_of_every_group(world, 0, 4, zero_mean=False, shift=0.7)
    assert np.abs(plain[:, :3] - shifted[:, :3]).max() < NEAR
    # The control: with the assumption, scores that do break it bias T and R.
    _, wrong = moments_of_every_group(world, 0, 4, zero_mean=True, shift=0.7)
    assert abs(probability @ (wrong[:, 1] - plain[:, 1])) > 0.1


def test_the_squared_gradient_across_prompts_is_unbiased() -> None:
    """Two groups of different draws: the mean of the product is the product of the means,
    weighted as prompts are drawn.
    """
    world = small_world(5)
    means = []
    for prompt in (0, 1):
        groups = enumerate_groups(world, 4, prompt=prompt)
        centred = groups.reward_MG - groups.reward_MG.mean(axis=1, keepdims=True)
        gradient = np.einsum("mg,mgd->md", centred, groups.score_MGD) / 3
        means.append(groups.probability_M @ gradient)
    rng = np.random.default_rng(0)
    score, reward = rng.normal(size=(8, 4)), rng.normal(size=8)
    moments = moments_of_scores(score, reward, np.repeat([0, 1], 4))
    halves = [
        score[:4].T @ (reward[:4] - reward[:4].mean()) / 3,
        score[4:].T @ (reward[4:] - reward[4:].mean()) / 3,
    ]
    assert moments.cross_P == pytest.approx([halves[0] @ halves[1]] * 2, abs=NEAR)
    assert (world.weight_P @ np.array(means)) == pytest.approx(world.moments().gradient_D, abs=NEAR)


def by_tuples(score: np.ndarray, reward: np.ndarray) -> tuple[float, float, float]:
    """|g(x)|^2, T and R by visiting every tuple of different rollouts: definitions, no closed
    form.
    """
    quadruples = list(permutations(range(len(reward)), 4))
    triples = list(permutations(range(len(reward)), 3))

    def kernel(i: int, j: int) -> np.ndarray:
        return np.asarray((score[i] - score[j]) * (reward[i] - reward[j]) / 2)

    own = np.mean([kernel(i, j) @ kernel(k, l) for i, j, k, l in quadruples])
    second = np.mean(
        [
            score[i] @ score[i] * (reward[i] - reward[j]) * (reward[i] - reward[k])
            for i, j, k in triples
        ]
    )
    apart = np.mean([score[i] @ score[i] * (reward[j] - reward[k]) ** 2 / 2 for i, j, k in triples])
    return float(own), float(second - own), float(apart + own)


@each_case("size", [4, 5, 7])
def test_closed_forms_equal_the_sums_over_tuples(size: int) -> None:
    rng = np.random.default_rng(size)
    score, reward = rng.normal(size=(size, 3)), rng.normal(size=size)
    moment_PC = moments_of_scores(score, reward, np.zeros(size)).moment_PC[0, :3]
    assert moment_PC == pytest.approx(by_tuples(score, reward), abs=NEAR)


def batch(
    seed: int = 0, prompts: int = 12, rollouts: int = 6, dimensions: int = 5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return random_world(np.random.default_rng(9), prompts=30, dimensions=dimensions).sample(
        prompts, rollouts, np.random.default_rng(seed)
    )


def same(estimate: Components, other: Components) -> None:
    scale = np.abs(estimate.estimate_C) + 1e-3
    assert (np.abs(estimate.estimate_C - other.estimate_C) / scale).max() < NEAR
    assert np.abs(estimate.covariance_CC - other.covariance_CC).max() < NEAR * (
        1 + np.abs(estimate.covariance_CC).max()
    )


@each_case("zero_mean", [True, False])
def test_scores_and_gram_say_the_same(zero_mean: bool) -> None:
    score, reward, prompt = batch()
    plain = components(reward, prompt, score_ND=score, zero_mean=zero_mean)
    same(plain, components(reward, prompt, gram_NN=score @ score.T, zero_mean=zero_mean))


def test_order_of_rollouts_and_ragged_groups() -> None:
    rng = np.random.default_rng(1)
    sizes = np.array([4, 9, 5, 7, 4, 6])
    prompt = np.repeat(np.array(["f", "b", "a", "c", "e", "d"]), sizes)
    score, reward = rng.normal(size=(len(prompt), 3)), rng.normal(size=len(prompt))
    mixed = rng.permutation(len(prompt))
    estimate = components(reward, prompt, score_ND=score)
    other = components(
        reward[mixed], prompt[mixed], gram_NN=(score @ score.T)[np.ix_(mixed, mixed)]
    )
    same(estimate, other)
    assert (estimate.prompts, estimate.rollouts) == (6, 35)


def test_batches_add_up_exactly() -> None:
    """Moments of scores see the inner products across batches; a Gram matrix does not, and says
    so.
    """
    score, reward, prompt = batch(prompts=20)
    cut = prompt < 7
    first = moments_of_scores(score[cut], reward[cut], prompt[cut])
    rows = GroupMoments.joined([first, moments_of_scores(score[~cut], reward[~cut], prompt[~cut])])
    assert pseudo_values(rows) == pytest.approx(
        pseudo_values(moments_of_scores(score, reward, prompt)), abs=NEAR
    )
    gram = moments_of_gram(score[cut] @ score[cut].T, reward[cut], prompt[cut])
    with pytest.raises(InvalidArgumentError, match="one Gram matrix of all rollouts"):
        GroupMoments.joined([gram, rows])
    with pytest.raises(InvalidArgumentError, match="one width"):
        GroupMoments.joined([rows, moments_of_scores(score[:, :2], reward, prompt)])


@each_case(("spread", "expected"), [(1.1, True), (0.2, False)])
def test_prompts_whose_scores_differ_much_in_length_are_told(spread: float, expected: bool) -> None:
    """E|s|^2 as exp(2 x spread x z): its logarithm has twice the spread, and 1.15 is the limit."""
    rng = np.random.default_rng(7)
    prompt = np.repeat(np.arange(64), 8)
    score = rng.normal(size=(512, 8)) * np.exp(spread * rng.standard_normal(64))[prompt, None]
    reward = rng.normal(size=512)
    of_scores = components(reward, prompt, score_ND=score)
    assert any("differ strongly in norm" in note for note in of_scores.notes) == expected


@pytest.mark.slow
def test_intervals_hold_where_scores_differ_in_length_as_a_lognormal_law() -> None:
    """T of 64 prompts of 8, with the spread of rewards in proportion: .905 before the skewness
    unseen was counted, at least .93 now.
    """
    rng = np.random.default_rng(3)
    width, prompts, scale = 8, 64, 0.5
    second, fourth = np.exp(2 * scale**2), np.exp(8 * scale**2)
    truth = second * width + fourth * 0.18 * (width + 1)
    held = 0
    for _ in range(600):
        slope = 0.3 * (np.eye(width)[0] + rng.standard_normal((prompts, width)) / width**0.5)
        score = np.exp(scale * rng.standard_normal((prompts, 1, 1))) * rng.standard_normal(
            (prompts, 8, width)
        )
        reward = np.einsum("pmd,pd->pm", score, slope) + rng.standard_normal((prompts, 8))
        held += components(
            reward.ravel(), np.repeat(np.arange(prompts), 8), score_ND=score.reshape(-1, width)
        ).t.interval.covers(truth)
    assert held >= 0.925 * 600


def test_pseudo_values_are_those_of_leaving_each_prompt_out() -> None:
    score, reward, prompt = batch(prompts=8)
    whole = components(reward, prompt, score_ND=score).estimate_C
    pseudo = pseudo_values(moments_of_scores(score, reward, prompt))
    for left in range(8):
        rest = prompt != left
        without = components(reward[rest], prompt[rest], score_ND=score[rest]).estimate_C
        assert pseudo[left] == pytest.approx(8 * whole - 7 * without, abs=1e-9)


def test_directions_of_a_basis_add_up_to_the_trace() -> None:
    score, reward, prompt = batch()
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    parts = [components(reward, prompt, score_ND=score @ basis[:, [column]]) for column in range(5)]
    whole = components(reward, prompt, score_ND=score)
    assert sum(part.estimate_C[:4] for part in parts) == pytest.approx(
        whole.estimate_C[:4], abs=NEAR
    )
    world = random_world(np.random.default_rng(9), prompts=30, dimensions=5)
    assert world.projected(basis[:1].T).moments().score_norm2_P.shape == (30,)


def test_large_batch_meets_the_truth() -> None:
    """Within five standard errors: a false alarm in about 1 of 500,000 for each of four
    quantities.
    """
    world = random_world(
        np.random.default_rng(2), prompts=500, arms=5, dimensions=6, rewards="binary"
    )
    score, reward, prompt = world.sample(4000, 8, np.random.default_rng(3))
    estimated = components(reward, prompt, score_ND=score, text_N=prompt.astype(str).tolist())
    for estimate, truth in (
        (estimated.vp, world.vp),
        (estimated.t, world.t),
        (estimated.r, world.r),
    ):
        assert abs(estimate.value - truth) < 5 * estimate.standard_error
        assert estimate.standard_error < 0.1 * truth
    assert estimated.group_size.covers(1 + np.sqrt(world.r / world.vp))
    assert not estimated.notes


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from groupwise.estimators import moments

    score, reward, prompt = batch()
    whole = [
        components(reward, prompt, score_ND=score),
        components(reward, prompt, gram_NN=score @ score.T),
    ]
    monkeypatch.setattr(moments, "_CHUNK_BYTES", 1)
    same(whole[0], components(reward, prompt, score_ND=score))
    same(whole[1], components(reward, prompt, gram_NN=score @ score.T))


def test_single_precision_scores_lose_nothing_that_matters() -> None:
    score, reward, prompt = batch()
    exact, single = (
        components(reward, prompt, score_ND=score),
        components(reward, prompt, score_ND=score.astype(np.float32)),
    )
    assert single.estimate_C == pytest.approx(exact.estimate_C, rel=1e-4, abs=1e-5)


def test_scores_that_are_not_the_policys_own_are_noticed() -> None:
    score, reward, prompt = batch(prompts=100)
    text = prompt.astype(str).tolist()
    assert not components(reward, prompt, score_ND=score, text_N=text).notes
    note = components(reward, prompt, score_ND=score + 1.0, text_N=text).notes[0]
    assert "average to zero" in note
    assert "zero_mean=False" in note
    assert "--any-mean" in note
    free = components(reward, prompt, score_ND=score + 1.0, text_N=text, zero_mean=False)
    assert not free.notes


def test_a_variance_that_is_not_there_is_said_to_be_indistinguishable() -> None:
    rng = np.random.default_rng(4)
    estimate = components(
        rng.normal(size=256), np.repeat(np.arange(32), 8), score_ND=rng.normal(size=(256, 6))
    )
    assert estimate.vp.interval.covers(0.0)
    assert "not different from zero within its error; if the true value is" in estimate.vp.status
    assert "prompts would show it" in estimate.vp.status
    assert estimate.group_size.high == np.inf


def test_all_rewards_equal_is_zero_and_no_number_out_of_nothing() -> None:
    score, _, prompt = batch()
    estimate = components(np.ones(len(prompt)), prompt, score_ND=score)
    assert estimate.vp.value == estimate.t.value == estimate.r.value == 0.0
    assert estimate.group_size.value == np.inf
    assert "does not differ from zero" in estimate.status


def test_two_prompts_give_numbers_without_intervals() -> None:
    score, reward, prompt = batch(prompts=2)
    estimate = components(reward, prompt, score_ND=score)
    assert np.isfinite(estimate.vp.value)
    assert not estimate.vp.interval.bounded
    assert "too few prompts for an interval" in estimate.vp.status


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "NaN reward": (
        {"reward_N": [np.nan, *range(7)]},
        "expected finite numbers in reward_N, got nan at [0]",
    ),
    "infinite score": ({"score": np.inf}, "expected finite numbers in score_ND, got inf at [3, 1]"),
    "groups of one": (
        {"prompt_N": range(8)},
        "expected groups of at least 4 rollouts of one prompt, got 1 at most",
    ),
    "groups of three": ({"prompt_N": [0, 0, 0, 1, 1, 1, 2, 2]}, "got 3 at most"),
    "one prompt": (
        {"prompt_N": [0] * 8},
        "expected at least two prompts with four rollouts each, got 1",
    ),
    "labels": ({"prompt_N": [0] * 7}, "got 7 labels for 8 rollouts"),
    "rewards": (
        {"reward_N": range(7)},
        "expected as many rewards as rows of score_ND, got 7 and 8",
    ),
    "text": ({"reward_N": ["a"] * 8}, "expected numbers in reward_N"),
}


@each_case("case", BAD)
def test_bad_input_is_refused_in_a_sentence(case: str) -> None:
    changes, message = BAD[case]
    score = np.random.default_rng(0).normal(size=(8, 2))
    if "score" in changes:
        score[3, 1] = changes["score"]
    reward, prompt = changes.get("reward_N", range(8)), changes.get("prompt_N", [0] * 4 + [1] * 4)
    with pytest.raises((InvalidArgumentError, InsufficientDataError)) as caught:
        components(list(reward), list(prompt), score_ND=score)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_gram_is_refused() -> None:
    rng = np.random.default_rng(0)
    score, reward, prompt = rng.normal(size=(8, 3)), rng.normal(size=8), np.repeat([0, 1], 4)
    gram = score @ score.T
    for wrong, message in (
        (np.triu(gram), "expected a symmetric gram_NN"),
        (gram[:, :5], "expected a square matrix"),
        (
            np.where(np.eye(8) > 0, np.nan, gram),
            "expected finite numbers in gram_NN, got nan at [0, 0]",
        ),
    ):
        with pytest.raises(
            InvalidArgumentError, match=message.replace("[", r"\[").replace("]", r"\]")
        ):
            components(reward, prompt, gram_NN=wrong)
    with pytest.raises(InvalidArgumentError, match="either score_ND or gram_NN"):
        components(reward, prompt)
    with pytest.raises(InvalidArgumentError, match="either score_ND or gram_NN"):
        components(reward, prompt, gram_NN=gram, score_ND=score)


def large_gram() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fifty groups of eight: of 400 rollouts the sample of entries that is looked at first holds
    64.
    """
    rng = np.random.default_rng(4)
    score = rng.normal(size=(400, 6))
    return score @ score.T, rng.normal(size=400), np.repeat(np.arange(50), 8)


@each_case("order", ["C", "F"])
@each_case("place", [(3, 2), (3, 201), (398, 5)])
def test_one_entry_of_a_gram_matrix_that_has_no_mirror_image_is_enough(
    place: tuple[int, int], order: Any
) -> None:
    """Within a group and across groups, away from the entries that are compared one by one."""
    gram, reward, prompt = large_gram()
    components(reward, prompt, gram_NN=np.asarray(gram, order=order))
    gram[place] += 1.0
    with pytest.raises(InvalidArgumentError, match="expected a symmetric gram_NN"):
        components(reward, prompt, gram_NN=np.asarray(gram, order=order))


def test_products_of_two_kinds_of_scores_are_no_gram_matrix() -> None:
    gram, reward, prompt = large_gram()
    other = np.random.default_rng(5).normal(size=(400, 3))
    other[::2] = 0.0
    for wrong in (
        np.roll(gram, 8, axis=0),
        gram - gram.mean(axis=1, keepdims=True),
        gram + other @ np.ones((3, 400)),
    ):
        with pytest.raises(InvalidArgumentError, match="expected a symmetric gram_NN"):
            components(reward, prompt, gram_NN=wrong)


@each_case("kind", [np.float16, np.float32, np.float64, np.int64])
def test_a_gram_matrix_may_be_rounded(kind: Any) -> None:
    gram, reward, prompt = large_gram()
    noise = np.random.default_rng(6).normal(size=gram.shape) * 1e-4
    rounded = (
        (gram * 16).round().astype(kind) if kind is np.int64 else (gram * (1 + noise)).astype(kind)
    )
    assert components(reward, prompt, gram_NN=rounded).prompts == 50


@each_case("place", [(3, 3), (3, 201), (398, 5), (0, 9)])
@each_case("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_found_wherever_it_stands(place: tuple[int, int], bad: float) -> None:
    """Also between groups of equal rewards, which get no weight."""
    gram, reward, prompt = large_gram()
    gram[place] = bad
    for rewards in (reward, np.where(prompt < 2, 1.0, reward)):
        with pytest.raises(InvalidArgumentError, match="expected finite numbers in gram_NN"):
            components(rewards, prompt, gram_NN=gram)


def test_a_squared_length_below_zero_is_refused() -> None:
    gram, reward, prompt = large_gram()
    gram[3, 3] = -gram[3, 3]
    with pytest.raises(
        InvalidArgumentError,
        match=r"squared norms on the diagonal of gram_NN, got -.* at \[3, 3\]",
    ):
        components(reward, prompt, gram_NN=gram)


def test_small_groups_are_left_out_and_counted() -> None:
    score, reward, prompt = batch()
    more = np.concatenate([prompt, [99, 99, 100]])
    estimate = components(
        np.append(reward, [1.0, 2.0, 3.0]), more, score_ND=np.vstack([score, np.ones((3, 5))])
    )
    same(estimate, components(reward, prompt, score_ND=score))
    assert estimate.left_out == 3
    assert "3 rollouts were left out" in estimate.notes[0]


def test_plain_data_has_every_quantity() -> None:
    score, reward, prompt = batch()
    plain = components(reward, prompt, score_ND=score).as_dict()
    assert {"value", "low", "high"} <= set(plain["vp"])
    assert set(QUANTITIES) - {"score_norm2_reward", "score_norm2_reward2"} <= set(plain)


def test_a_component_below_zero_is_not_left_without_a_word() -> None:
    """Groups whose gradients point apart by construction: pairs of prompts of opposite gradients
    and no variance within.
    """
    low = estimate_of("vp", Interval(-0.2, -0.4, -0.01), 0.1, 12)
    assert "below zero, which is impossible for this quantity" in low.status
    assert not low.distinguishable
    assert "below zero" not in estimate_of("kappa", Interval(-0.2, -0.4, -0.01), 0.1, 12).status


def test_numbers_too_large_to_add_up_are_refused() -> None:
    score, reward, prompt = batch()
    for scale in (1e80, 1e200):
        with pytest.raises(InvalidArgumentError, match="overflow"):
            components(reward * scale, prompt, score_ND=score)


@each_case(("kind", "near"), [(np.float32, 1e-6), (np.float16, 1e-6)])
def test_squared_lengths_of_many_small_numbers_add_up(kind: Any, near: float) -> None:
    """A quarter of a million of them beside a large one: a sum in single precision drops those
    that it meets after that.
    """
    score = np.random.default_rng(1).normal(1.0, 0.1, size=(8, 2**18)).astype(kind)
    score[:, :64] = 1e4
    reward, prompt = np.arange(8.0), np.repeat([0, 1], 4)
    exact = components(reward, prompt, score_ND=score.astype(np.float64))
    estimate = components(reward, prompt, score_ND=score)
    assert estimate.others["score_norm2"].value == pytest.approx(
        exact.others["score_norm2"].value, rel=near
    )
    assert estimate.r.value == pytest.approx(exact.r.value, rel=1e-3)


@each_case("scale", [1e-40, 1e-100, 1e-170])
def test_numbers_too_small_to_multiply_are_refused(scale: float) -> None:
    score, reward, prompt = batch()
    with pytest.raises(InvalidArgumentError, match=r"underflow.*: multiply them by a constant"):
        components(reward, prompt, score_ND=score * scale)
    assert components(reward, prompt, score_ND=score * 1e-20).r.value > 0


def test_sums_too_large_to_add_up_are_refused() -> None:
    score, reward, prompt = batch()
    with pytest.raises(InvalidArgumentError, match="overflow"):
        components(reward, prompt, score_ND=score * 1e40)


def pseudo_of(**columns: np.ndarray) -> np.ndarray:
    """Pseudo-values of sixteen informative prompts, zero but for some quantities."""
    table = np.zeros((16, len(QUANTITIES)))
    table[:, QUANTITIES.index("within_gradient_norm2")] = 1.0
    for name, values in columns.items():
        table[:, QUANTITIES.index(name)] = values
    return table


VP = np.array([1.0, 2, 0, 3, 1, 2, 1, 0, 4, 1, 2, 2, 1, 0, 1, 3])
R = np.array([9.0, 4, 12, 2, 8, 7, 11, 9, 3, 6, 8, 10, 9, 5, 40, 7])
SIXTEEN = Sample(128, 5, zero_mean=True, cluster_P=np.arange(16))


def test_estimate_and_error_are_mean_and_standard_error_of_the_pseudo_values() -> None:
    pseudo = pseudo_of(vp=VP, t=VP * R, r=R, within_gradient_norm2=np.sqrt(R))
    estimate = components_of_pseudo_values(pseudo, SIXTEEN)
    assert estimate.vtr == pytest.approx([VP.mean(), (VP * R).mean(), R.mean()], rel=1e-14)
    assert estimate.covariance_CC[:3, :3] == pytest.approx(np.cov([VP, VP * R, R]) / 16, rel=1e-12)
    assert (estimate.r.value, estimate.r.standard_error) == pytest.approx(
        (R.mean(), stats.sem(R)), rel=1e-12
    )
    assert (estimate.prompts, estimate.rollouts, estimate.left_out, estimate.zero_mean) == (
        16,
        128,
        5,
        True,
    )
    assert estimate.of("within_gradient_norm2") == pytest.approx(np.sqrt(R).mean())
    signal = estimate.others["score_reward_variance"]
    assert signal.value == pytest.approx((R - np.sqrt(R)).mean())
    assert signal.standard_error == pytest.approx(stats.sem(R - np.sqrt(R)))
    assert signal.interval == mean_interval(R - np.sqrt(R))


def test_the_interval_of_the_best_size_by_hand() -> None:
    """Delta method on the logarithm of R/Vp, with the freedom of the contrast r_p/R - v_p/Vp;
    then 1 + sqrt of its ends.
    """
    estimate = components_of_pseudo_values(pseudo_of(vp=VP, r=R), SIXTEEN, level=0.9)
    contrast = R / R.mean() - VP / VP.mean()
    freedom = np.clip(32 / (stats.kurtosis(contrast, fisher=False) - 1), 2, 15)
    assert freedom < 15
    assert freedom != pytest.approx(
        np.clip(32 / (stats.kurtosis(R / R.mean() + VP / VP.mean(), fisher=False) - 1), 2, 15)
    )
    half = stats.t.ppf(0.95, freedom) * stats.sem(contrast)
    ratio = R.mean() / VP.mean() * np.exp([0.0, -half, half])
    size = estimate.group_size
    assert (size.value, size.low, size.high) == pytest.approx(tuple(1 + np.sqrt(ratio)), rel=1e-10)
    assert size.level == estimate.level == 0.9


def test_too_few_prompts_give_a_best_size_without_limits() -> None:
    two = Sample(16, 0, zero_mean=True)
    estimate = components_of_pseudo_values(pseudo_of(vp=VP, r=R)[:2], two)
    assert (estimate.group_size.value, estimate.group_size.low, estimate.group_size.high) == (
        1 + np.sqrt(6.5 / 1.5),
        1 + np.sqrt(2),
        np.inf,
    )
    assert components_of_pseudo_values(pseudo_of(vp=-VP, r=R)[:2], two).group_size.value == np.inf
    assert np.isnan(estimate.vp.standard_error)


@each_case(("errors", "expected"), [(3.9, False), (4.1, True), (-4.1, False)])
def test_the_alarm_of_the_scores_mean_is_at_four_standard_errors(
    errors: float, expected: bool
) -> None:
    spread = np.array([-1.0, 1.0] * 8)
    mean = pseudo_of(vp=VP, r=R, score_mean_norm2=spread + errors * stats.sem(spread))
    notes, free = (
        components_of_pseudo_values(mean, Sample(128, 0, zero_mean, np.arange(16))).notes
        for zero_mean in (True, False)
    )
    assert (len(notes) == 1 and "do not average to zero" in notes[0]) == expected
    assert not free


def test_how_many_prompts_would_show_it() -> None:
    """Half as large a value needs four times the prompts: P (t s/x)^2, here 32 (2.0395 x 1/.5)^2
    = 532.4.
    """
    assert estimate_of("vp", Interval(0.5, -1.0, 2.0), 1.0, 32).status.endswith(
        "32 prompts): not different from zero within its error; if the true value "
        "equals the estimate, about 533 prompts would show it"
    )
    assert "about 134 prompts" in estimate_of("vp", Interval(1.0, -1.0, 2.0), 1.0, 32).status
    assert estimate_of("vp", Interval(-0.5, -1.0, 2.0), 1.0, 32).status.endswith(
        "if the true value is 2, about 34 prompts would show it"  # 33.3, rounded up
    )
    assert (
        "about 33 prompts" in estimate_of("vp", Interval(9.0, 0.0, 2.0), 1.0, 32).status
    )  # at least one more than there are
    assert estimate_of("vp", Interval(0.0, 0.0, 0.0), 0.0, 32).status.endswith(
        "not different from zero within its error"
    )


def test_the_sentences_of_estimates() -> None:
    says("estimators/components/1", estimate_of("t", Interval(1.5, 1.25, 2.0), 0.1, 64).status)
    says("estimators/components/2", estimate_of("kappa", Interval(0.0, -1.0, 1.0), 0.1, 64).status)
    assert estimate_of("r", Interval(1.0, 0.0, 2.0), 0.1, 64).distinguishable is False
    estimate = components_of_pseudo_values(pseudo_of(vp=VP, r=R), SIXTEEN)
    says("estimators/components/3", estimate.status, size=f"{estimate.group_size.value:.3g}")
    assert estimate.notes[0].startswith(
        "5 rollouts were left out because their groups have fewer than four. This "
        "causes no bias unless"
    )
    assert len(estimate.notes) == 1


def test_a_gradient_of_groups_with_one_success_is_0_and_no_rounding() -> None:
    """Of two disjoint pairs of rollouts one has no success: every product is 0, and a best size
    of 1e9 would be made of rounding.
    """
    rng = np.random.default_rng(3)
    for width in (3, 300):
        estimate = components(
            np.arange(256) == 37,
            np.repeat(np.arange(16), 16),
            score_ND=rng.normal(size=(256, width)),
        )
        assert (estimate.vp.value, estimate.gradient_norm2.value, estimate.group_size.value) == (
            0.0,
            0.0,
            np.inf,
        )
        assert estimate.r.value > 0


def test_texts_that_are_none_or_all_one_are_refused() -> None:
    rng, label = np.random.default_rng(1), np.repeat(np.arange(16), 8)
    score, reward = rng.normal(size=(128, 3)), rng.integers(2, size=128)
    with pytest.raises(InsufficientDataError, match="two prompts that differ, got one text"):
        components(reward, label, score_ND=score, text_N=["solve this for me"] * 128)
    with pytest.raises(InvalidArgumentError, match="expected texts in text_N"):
        components(reward, label, score_ND=score, text_N=label)  # type: ignore[arg-type]
