"""Advantages: unbiasedness by enumeration over all outcomes of small softmax bandits, closed forms,
memories, and what is refused.

The bandit is written out here, in a few lines of its own, and shares no code with what it judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import GroupwiseError, InsufficientDataError, InvalidArgumentError
from groupwise_lab.trainer.advantages import (
    ADVANTAGES,
    advantage_by_name,
    batch_mean,
    batch_std,
    constant,
    full_group_mean,
    leave_one_out,
    max_rl,
    oracle,
    std_normalised,
    vanilla,
)
from groupwise_lab.trainer.baselines import (
    DynamicBaseline,
    KernelBaseline,
    RunningBaseline,
    history,
    shrinkage,
    variance_optimal,
    weighted_leave_one_out,
)

# Two prompts that share four parameters through their features; three arms each, rewards that are
# not binary, one of them negative.
LOGITS = np.array([[0.3, -0.2, 0.8], [-0.5, 0.9, 0.1]])
REWARD = np.array([[1.0, 0.0, 0.35], [2.5, -0.7, 0.2]])
FEATURES = np.random.default_rng(5).normal(size=(2, 3, 4))
PROBABILITY = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
SCORE = FEATURES - np.einsum("pa,pad->pd", PROBABILITY, FEATURES)[:, None]
VALUE = (PROBABILITY * REWARD).sum(1)
NORM2 = (SCORE**2).sum(-1)
GRADIENT = np.einsum("pa,pa,pad->pd", PROBABILITY, REWARD, SCORE).mean(0)

# Beforehand, from rollouts of earlier steps: a memory may be as wrong as it likes.
EARLIER = np.array([[0.9, 0.1, 0.4], [1.2, -0.3, 2.0]])


def memory(kind: type[DynamicBaseline]) -> DynamicBaseline:
    baseline = kind()
    baseline.update(EARLIER, ["x", "y"], step=1)
    return baseline


def arguments_of(arms: np.ndarray, sizes: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """What the functions need beside rewards, one entry a rollout."""
    prompt = np.repeat([0, 1], sizes)
    kappa = (PROBABILITY * NORM2 * (REWARD - VALUE[:, None])).sum(1)
    return {
        "constant": {"value": 0.37},
        "oracle": {"value": VALUE[prompt]},
        "variance_optimal": {
            "value": VALUE[prompt],
            "kappa": kappa[prompt],
            "score_norm2": (PROBABILITY * NORM2).sum(1)[prompt],
        },
        "weighted_leave_one_out": {"score_norm2": NORM2[prompt, arms]},
        "running": {"baseline": memory(RunningBaseline), "step": 2},
        "kernel_smoothed": {"baseline": memory(KernelBaseline), "step": 2},
    }


def outcomes(sizes: tuple[int, ...]) -> Iterator[tuple[float, np.ndarray]]:
    """Every outcome of one group of each prompt, jointly, with its probability: for each rollout
    the arm.
    """
    prompt = np.repeat([0, 1], sizes)
    for arms in product(range(3), repeat=sum(sizes)):
        chosen = np.array(arms)
        yield float(PROBABILITY[prompt, chosen].prod()), chosen


def expected_gradient(
    advantage_of: Callable[[np.ndarray, np.ndarray], np.ndarray], sizes: tuple[int, ...]
) -> np.ndarray:
    """The exact mean of the gradient estimate: groups weigh alike, and rollouts alike within a
    group.
    """
    prompt = np.repeat([0, 1], sizes)
    weight = 1 / (2 * np.array(sizes)[prompt])
    total = np.zeros(4)
    for chance, arms in outcomes(sizes):
        total += chance * (weight * advantage_of(REWARD[prompt, arms], arms)) @ SCORE[prompt, arms]
    return total


@pytest.mark.thinned(6)
@pytest.mark.parametrize("sizes", [(2, 2), (3, 3), (2, 3), (1, 3)], ids=str)
@pytest.mark.parametrize("name", [entry.name for entry in ADVANTAGES])
def test_what_is_called_unbiased_is_and_what_is_not_is_not(
    name: str, sizes: tuple[int, ...]
) -> None:
    entry = advantage_by_name(name)
    if min(sizes) < entry.smallest_group:
        return
    labels = np.repeat(["x", "y"], sizes)

    def advantage_of(reward: np.ndarray, arms: np.ndarray) -> np.ndarray:
        extra = arguments_of(arms, sizes).get(name, {})
        shifted = (
            reward - min(entry.smallest_reward, REWARD.min())
            if entry.smallest_reward > -np.inf
            else reward
        )
        return np.asarray(entry.function(shifted + 0.1 * (shifted is not reward), labels, **extra))

    error = np.abs(expected_gradient(advantage_of, sizes) - GRADIENT).max()
    if entry.unbiased:
        assert error < 1e-10
    else:
        assert error > 1e-3


def test_the_bias_of_a_mean_with_the_own_reward_in_it_is_a_factor() -> None:
    labels = np.repeat(["x", "y"], 3)
    full = expected_gradient(lambda reward, _: full_group_mean(reward, labels), (3, 3))
    np.testing.assert_allclose(full, GRADIENT * 2 / 3, atol=1e-12)
    batch = expected_gradient(lambda reward, _: batch_mean(reward, labels), (3, 3))
    np.testing.assert_allclose(batch, GRADIENT * 5 / 6, atol=1e-12)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_max_rl_is_unbiased_for_its_own_aim(size: int) -> None:
    """Rewards 0 and 1: the mean gradient is that of -sum over k below G of (1 - p)^k / k."""
    chance = 0.3
    score = np.array([-chance, 1 - chance])  # of one Bernoulli parameter, for reward 0 and 1
    total = 0.0
    for arms in product((0, 1), repeat=size):
        reward = np.array([arms], dtype=float)
        weight = chance ** sum(arms) * (1 - chance) ** (size - sum(arms))
        total += weight * float((max_rl(reward)[0] * score[list(arms)]).mean())
    slope = sum((1 - chance) ** (k - 1) for k in range(1, size)) * chance * (1 - chance)
    assert total == pytest.approx(slope, abs=1e-12)


def test_the_memory_is_what_makes_a_group_of_one_usable() -> None:
    for kind in (RunningBaseline, KernelBaseline):
        baseline = memory(kind)

        def advantage_of(
            reward: np.ndarray, _: np.ndarray, baseline: DynamicBaseline = baseline
        ) -> np.ndarray:
            return np.asarray(baseline.advantages(reward, ["x", "y"], step=2))

        assert np.abs(expected_gradient(advantage_of, (1, 1)) - GRADIENT).max() < 1e-10


def variance(
    advantage_of: Callable[[np.ndarray, np.ndarray], np.ndarray], sizes: tuple[int, ...]
) -> float:
    """Exact trace of the covariance of the gradient estimate."""
    prompt = np.repeat([0, 1], sizes)
    weight = 1 / (2 * np.array(sizes)[prompt])
    square = sum(
        chance
        * float(
            (
                (
                    (weight * advantage_of(REWARD[prompt, arms], arms)) @ SCORE[prompt, arms]
                    - GRADIENT
                )
                ** 2
            ).sum()
        )
        for chance, arms in outcomes(sizes)
    )
    return float(square)


def test_the_variance_optimal_baseline_is_better_than_the_oracle_and_that_is_better_than_leave_one_out() -> (
    None
):
    sizes, labels = (3, 3), np.repeat(["x", "y"], 3)
    extra = arguments_of(np.zeros(6, dtype=int), sizes)
    best = variance(
        lambda reward, _: variance_optimal(reward, labels, **extra["variance_optimal"]), sizes
    )
    value = variance(lambda reward, _: oracle(reward, labels, **extra["oracle"]), sizes)
    others = variance(lambda reward, _: leave_one_out(reward, labels), sizes)
    assert best < value < others
    kappa, norm2 = (
        (PROBABILITY * NORM2 * (REWARD - VALUE[:, None])).sum(1),
        (PROBABILITY * NORM2).sum(1),
    )
    assert value - best == pytest.approx(
        float((kappa**2 / norm2).mean()) / 2 / 3, rel=1e-10
    )  # two prompts, three rollouts


def test_shrinkage_helps_where_prompts_are_alike_and_groups_small() -> None:
    """64 prompts of nearly one value, binary rewards, G = 2. The squared error of the baseline,
    over 200 batches of 128 rollouts: the ratio's standard error is below .02 (seeds 0..9 gave .54
    to .59), so the bound of .75 fails by chance less than once in a million."""
    rng = np.random.default_rng(0)
    error = np.zeros(2)
    for _ in range(200):
        value = np.clip(0.4 + 0.1 * rng.normal(size=(64, 1)), 0, 1)
        reward = (rng.random((64, 2)) < value).astype(float)
        for k, function in enumerate((shrinkage, leave_one_out)):
            error[k] += float(((reward - function(reward) - value) ** 2).sum())
    assert error[0] < 0.75 * error[1]


def test_shrinkage_leaves_a_group_alone_where_prompts_differ_and_groups_agree() -> None:
    reward = np.repeat(
        np.array([[0.0], [10.0], [20.0], [40.0]]), 4, axis=1
    ) + 1e-6 * np.random.default_rng(0).normal(size=(4, 4))
    np.testing.assert_allclose(shrinkage(reward), leave_one_out(reward), atol=1e-10)


def test_shrinkage_draws_all_the_way_where_prompts_do_not_differ() -> None:
    """A group of one has nothing of its own: it gets the mean of the other groups."""
    reward, labels = np.array([1.0, 0.0, 4.0, 2.0, 7.0]), ["a", "a", "b", "b", "c"]
    assert shrinkage(reward, labels)[4] == pytest.approx(7.0 - (0.5 + 3.0) / 2)


def test_weights_that_do_not_differ_give_leave_one_out() -> None:
    reward = np.random.default_rng(0).normal(size=(5, 6))
    np.testing.assert_allclose(
        weighted_leave_one_out(reward, score_norm2=3.0), leave_one_out(reward), atol=1e-14
    )
    np.testing.assert_allclose(
        weighted_leave_one_out(reward, score_norm2=0.0), leave_one_out(reward), atol=1e-14
    )


def test_one_long_score_among_short_ones_costs_no_digits() -> None:
    """The others of the heavy rollout weigh 1 each; taking it off a total of 1e16 would leave
    nothing of them.
    """
    reward, norm2 = np.array([[5.0, 1.0, 2.0]]), np.array([[1e16, 1.0, 1.0]])
    assert weighted_leave_one_out(reward, score_norm2=norm2)[0, 0] == pytest.approx(
        5.0 - 1.5, rel=1e-14
    )


def test_heavy_tails_stay_finite_and_centred() -> None:
    reward = np.random.default_rng(1).standard_cauchy(size=(50, 8)) * 1e12
    for entry in ADVANTAGES:
        if entry.needs or entry.smallest_reward > -np.inf:
            continue
        advantage = entry.function(reward)
        assert np.isfinite(advantage).all()
    np.testing.assert_allclose(leave_one_out(reward).sum(1) / np.abs(reward).max(1), 0, atol=1e-13)
    np.testing.assert_allclose(std_normalised(reward).std(1, ddof=1), 1, rtol=1e-12)


def test_running_memory_by_hand() -> None:
    baseline = RunningBaseline(decay=0.5, prior_rollouts=2, initial=0.25)
    assert baseline.advantages([[1.0]], ["a"], step=0).tolist() == [[0.75]]
    baseline.update([[1.0, 0.0]], ["a"], step=0)
    baseline.update([1.0, 1.0, 0.0], ["a", "a", "b"], step=1)
    everyone = (0.5 * 1 + 2) / (0.5 * 2 + 3)
    own = (0.5 * 1 + 2 + 2 * everyone) / (0.5 * 2 + 2 + 2)
    np.testing.assert_allclose(baseline.values(["a", "c"], step=2), [own, everyone])


def test_kernel_memory_by_hand() -> None:
    baseline = KernelBaseline(bandwidth=4, prior_rollouts=0)
    baseline.update([[1.0, 0.0]], ["a"], step=0)
    baseline.update([[1.0, 1.0]], ["a"], step=2)
    weight = np.array([1 - (3 / 4) ** 2, 1 - (1 / 4) ** 2])
    assert baseline.values(["a"], step=3)[0] == pytest.approx(
        float(weight @ [1.0, 2.0] / (weight @ [2.0, 2.0]))
    )
    baseline.update([[0.0, 0.0]], ["a"], step=9)  # the first two are out of reach of any later step
    assert baseline.values(["a"], step=10).tolist() == [0.0]
    assert baseline.values(["a"], step=99).tolist() == [
        0.0
    ]  # after a long pause: the initial value


def test_a_kernel_remembers_no_more_than_it_can_use() -> None:
    baseline = KernelBaseline(bandwidth=3)
    for step in range(50):
        baseline.update([[1.0, 0.0]], ["a"], step=step)
    assert len(baseline._all) == len(baseline._visits["a"]) == 3


def test_a_memory_refuses_to_be_asked_about_what_it_has_seen() -> None:
    baseline = memory(RunningBaseline)
    with pytest.raises(InvalidArgumentError, match="advantages first and update after"):
        baseline.advantages(EARLIER, ["x", "y"], step=1)
    with pytest.raises(InvalidArgumentError, match="in order"):
        baseline.update(EARLIER, ["x", "y"], step=0)
    with pytest.raises(InvalidArgumentError, match="prompt labels"):
        baseline.update(EARLIER, None, step=2)


GOOD = [[1.0, 0.0], [0.5, 0.25]]
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "nan": (lambda: leave_one_out([[1.0, np.nan]]), r"got nan at \[0, 1\]"),
    "infinity": (
        lambda: vanilla([[1.0, np.inf], [np.inf, 0.0]]),
        r"got inf at \[0, 1\] and 1 more",
    ),
    "a group of one": (
        lambda: leave_one_out([1.0, 0.0, 1.0], ["a", "a", "b"]),
        "at least 2 rollouts, the group of prompt b has 1",
    ),
    "no labels": (lambda: leave_one_out([1.0, 0.0]), "none: give N labels"),
    "labels too few": (lambda: leave_one_out([1.0, 0.0], ["a"]), "expected 2 prompt labels"),
    "unequal rows": (lambda: leave_one_out([[1.0, 0.0], [1.0]]), "rows of unequal length"),
    "text": (lambda: leave_one_out([["1", "0"]]), "expected numbers"),
    "three dimensions": (lambda: leave_one_out(np.zeros((2, 2, 2))), "reshape"),
    "nothing": (lambda: leave_one_out(np.zeros((0, 4))), "reshape"),
    "ddof": (lambda: std_normalised(GOOD, ddof=2), "ddof 0 or 1"),
    "epsilon": (lambda: std_normalised(GOOD, epsilon=-1.0), "at least 0 for epsilon, got -1.0"),
    "value": (lambda: oracle(GOOD, value=[0.1, 0.2, 0.3]), "one a rollout"),
    "value not finite": (lambda: constant(GOOD, value=np.nan), "finite numbers in value"),
    "negative reward": (lambda: max_rl([[1.0, -1.0]]), "rewards of at least 0"),
    "one prompt": (lambda: shrinkage([[1.0, 0.0]]), "one prompt: use leave_one_out"),
    "only groups of one": (lambda: shrinkage([[1.0], [0.0]]), "groups of one only"),
    "score without length": (
        lambda: variance_optimal(GOOD, value=0.0, kappa=0.0, score_norm2=0.0),
        "positive score_norm2",
    ),
    "negative weight": (
        lambda: weighted_leave_one_out(GOOD, score_norm2=-1.0),
        "score_norm2 of 0 or more",
    ),
    "name": (lambda: advantage_by_name("grpo"), "expected an advantage of vanilla"),
    "decay": (lambda: RunningBaseline(decay=1.5), "decay between 0 and 1"),
    "bandwidth": (lambda: KernelBaseline(bandwidth=0), "positive bandwidth"),
    "prior": (lambda: RunningBaseline(prior_rollouts=-1), "prior_rollouts of 0 or more"),
}


@each_case("case", REFUSED)
def test_mistakes_get_one_sentence(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(GroupwiseError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_too_small_a_group_is_a_matter_of_data() -> None:
    with pytest.raises(InsufficientDataError):
        leave_one_out([[1.0], [0.0]])


@each_case(
    ("advantage", "expected"),
    [
        (vanilla([[1.0, 0.0]]), [[1, 0]]),
        (constant([[1.0, 0.0]], value=0.25), [[0.75, -0.25]]),
        (oracle([[1.0, 0.0], [1.0, 1.0]], value=[0.5, 0.75]), [[0.5, -0.5], [0.25, 0.25]]),
        (batch_mean([[1.0, 0.0], [1.0, 1.0]]), [[0.25, -0.75], [0.25, 0.25]]),
        (full_group_mean([1.0, 0.0, 3.0, 1.0], ["a", "a", "b", "b"]), [0.5, -0.5, 1.0, -1.0]),
        (leave_one_out([[1.0, 0.0, 0.0]]), [[1.0, -0.5, -0.5]]),
        (std_normalised([[4.0, 0.0, 2.0]]), [[1.0, -1.0, 0.0]]),  # 2 over 2
        (std_normalised([[1.0, 0.0]], ddof=0, epsilon=0.5), [[0.5, -0.5]]),
        (batch_std([[1.0, -1.0], [1.0, -1.0]], ddof=0, epsilon=1.0), [[0.5, -0.5], [0.5, -0.5]]),
        (batch_std([[3.0, 1.0], [9.0, 7.0]]), np.array([[1, -1], [1, -1]]) / np.sqrt(40 / 3)),
        (max_rl([[1.0, 0.0, 0.0, 0.0]]), [[3, -1, -1, -1]]),
        (max_rl([[0.0, 0.0]]), [[0, 0]]),
        (variance_optimal([[1.0, 0.0]], value=0.5, kappa=0.5, score_norm2=2.0), [[0.25, -0.75]]),
        (
            weighted_leave_one_out([[1.0, 0.0, 0.5]], score_norm2=[[1.0, 3.0, 1.0]]),
            [[0.875, -0.75, 0.25]],
        ),
        (
            weighted_leave_one_out([[1.0, 0.0, 0.5]], score_norm2=[[0.0, 0.0, 1.0]]),
            [[0.5, -0.5, 0.0]],
        ),  # the others of the last: no weight
        (shrinkage([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), [[0.6, -0.6], [0.6, -0.6], [-0.6, 0.6]]),
        (
            history([[1.0, 0.0]], ["a"], baseline=RunningBaseline(initial=0.5), step=1),
            [[0.5, -0.5]],
        ),
    ],
)
def test_every_advantage_by_hand(advantage: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(advantage, expected, rtol=1e-12, atol=1e-12)


def test_shrinkage_by_its_definition() -> None:
    """Groups of 3, 2 and 4: the other means, the pooled variance and the variance between, each
    without the rollout itself.
    """
    groups = [[1.0, 0.2, 0.4], [0.9, 0.1], [0.3, 0.0, 0.6, 0.2]]
    reward, prompt = np.concatenate(groups), np.repeat(np.arange(3), [3, 2, 4])
    expected = []
    for p, group in enumerate(groups):
        for i, z in enumerate(group):
            rest = group[:i] + group[i + 1 :]
            left = [rest if q == p else other for q, other in enumerate(groups)]
            within = sum(np.var(part) * len(part) for part in left) / (
                sum(len(part) for part in left) - 3
            )
            means = np.array([np.mean(part) for part in left])
            value_variance = max(
                means.var(ddof=1) - within * sum(1 / len(part) for part in left) / 3, 0
            )
            others = np.delete(means, p)
            error_rest = within / len(rest)
            error_others = (
                value_variance * 3 / 2
                + within * sum(1 / len(part) for q, part in enumerate(left) if q != p) / 4
            )
            weight = error_rest / (error_rest + error_others)
            expected.append(z - weight * others.mean() - (1 - weight) * means[p])
    np.testing.assert_allclose(shrinkage(reward, prompt), expected, rtol=1e-12)
