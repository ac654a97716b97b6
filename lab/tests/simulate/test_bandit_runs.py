"""The simulated training against a naive loop, its expectation against enumeration, its
reproducibility, and its known thresholds.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from lab.tests.simulate.naive import gradient, softmax, train
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError
from groupwise_lab.simulate import bandit_runs
from groupwise_lab.simulate.bandit_runs import (
    BLOCK,
    ArmCounter,
    Records,
    drawn_arms_of,
    expectation_method,
    expected_coefficients,
    expected_path,
    simulate_bandit,
    thresholds,
)
from groupwise_lab.simulate.softmax_bandit import Bandit, Training, bandit

THREE = bandit([0.2, 1.0, -0.3], reference_A=[0.5, 0.2, 0.3], kl_weight=0.3)
TWO = bandit([0, 1], reference_A=[0.7, 0.3], kl_weight=0.5)
ADVANTAGES = ("vanilla", "full_group_mean", "leave_one_out", "std_normalised", "batch_std")
LAGS = (("none", 1), ("fixed", 3), ("refresh", 4), ("async", 3))
EVERYTHING: tuple[Any, ...] = ("value", "reward", "reward_std", "dead_share", "kl", "entropy")


def changed(training: Training, **settings: Any) -> Training:
    return dataclasses.replace(training, **settings)


def uniforms(seed: int, block: int, training: Training, steps: int) -> np.ndarray:
    """The stream of one block as documented: 32-bit halves, low first, of SFC64 seeded by (seed,
    block).
    """
    size = training.group_size * training.prompts * BLOCK
    word = np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(block,))).random_raw(
        steps * size // 2
    )
    halves = np.stack([word & 0xFFFFFFFF, word >> np.uint64(32)], axis=1).ravel()
    return np.asarray(halves.reshape(steps, training.group_size, training.prompts, BLOCK) / 2.0**32)


def agree_with_naive(training: Training, *, task: Bandit = THREE, replicate: int = 3) -> None:
    steps = 25
    runs = simulate_bandit(
        task, training, steps=steps, replicates=BLOCK + 5, seed=7, records=Records(EVERYTHING)
    )
    block, column = divmod(replicate, BLOCK)
    logit_TA, reward_T = train(task, training, uniforms(7, block, training, steps)[..., column])
    policy_TA = np.array([softmax(logit) for logit in logit_TA])
    np.testing.assert_allclose(
        runs.logit_AS[:, replicate] - runs.logit_AS[0, replicate],
        logit_TA[-1] - logit_TA[-1, 0],
        atol=1e-10,
    )
    np.testing.assert_allclose(runs.value[:, replicate], policy_TA @ task.reward_A, atol=1e-11)
    np.testing.assert_allclose(runs.series["reward"][:, replicate], reward_T, atol=1e-12)
    log_TA = np.log(policy_TA)
    np.testing.assert_allclose(
        runs.series["kl"][:, replicate],
        (policy_TA * (log_TA - np.log(task.reference_A))).sum(axis=1),
        atol=1e-11,
    )
    np.testing.assert_allclose(
        runs.series["entropy"][:, replicate], -(policy_TA * log_TA).sum(axis=1), atol=1e-11
    )


BASE = Training(0.4, group_size=4, prompts=2, momentum=0.6)


@pytest.mark.thinned(8)
@pytest.mark.parametrize("kl_place", ["loss", "reward"])
@pytest.mark.parametrize("ratio", ["none", "exact", "clipped"])
@pytest.mark.parametrize(("lag", "interval"), LAGS)
def test_every_lag_and_ratio_is_that_of_a_naive_loop(
    lag: Any, interval: int, ratio: Any, kl_place: Any
) -> None:
    agree_with_naive(changed(BASE, lag=lag, interval=interval, ratio=ratio, kl_place=kl_place))


@each_case("advantage", ADVANTAGES)
@each_case("ratio", ["none", "exact", "clipped"])
def test_every_advantage_is_that_of_a_naive_loop(advantage: Any, ratio: Any) -> None:
    agree_with_naive(
        changed(BASE, advantage=advantage, ratio=ratio, lag="refresh", interval=4),
        replicate=BLOCK + 2,
    )


def test_adam_is_that_of_a_naive_loop() -> None:
    agree_with_naive(
        changed(
            BASE,
            optimizer="adam",
            learning_rate=0.05,
            momentum=0.9,
            beta2=0.95,
            lag="async",
            interval=2,
        )
    )


def test_clipping_does_clip() -> None:
    """The comparison above would pass for a clip that never acts."""
    clipped, exact = (
        simulate_bandit(
            THREE,
            changed(BASE, lag="refresh", interval=8, ratio=ratio, clip=0.05),
            steps=20,
            seed=1,
        ).value
        for ratio in ("clipped", "exact")
    )
    assert np.abs(clipped - exact).max() > 0.01


def test_two_arms_are_the_one_parameter_bandit() -> None:
    r"""$\dot\theta = 2\eta p(1-p)[1 - \beta(\theta - \theta_0)]$ for $\theta = l_1 - l_0$."""
    theta = start = np.log(0.3 / 0.7)
    path = expected_path(TWO, Training(0.2), steps=50)
    for _ in range(50):
        p = 1 / (1 + np.exp(-theta))
        theta += 2 * 0.2 * p * (1 - p) * (1 - 0.5 * (theta - start))
    assert path.logit_AS[1, 0] - path.logit_AS[0, 0] == pytest.approx(theta, abs=1e-12)


# -- expectation
# --------------------------------------------------------------------------------------------------


def by_enumeration(
    task: Bandit, training: Training, now: np.ndarray, then: np.ndarray
) -> np.ndarray:
    """The expected gradient over every possible batch, arm by arm."""
    total, sampler = np.zeros(task.arms), softmax(then)
    for arms in itertools.product(range(task.arms), repeat=training.prompts * training.group_size):
        arm_PG = np.array(arms).reshape(training.prompts, training.group_size)
        total += sampler[arm_PG].prod() * gradient(arm_PG, now, then, task, training)
    return total


def one_step(task: Bandit, training: Training, now: np.ndarray, then: np.ndarray) -> np.ndarray:
    """The expected gradient as the simulator sees it, at parameters and sampling policy of one's
    own.
    """
    from groupwise_lab.simulate.bandit_runs import Update

    update = Update(
        task,
        changed(training, momentum=0.0, learning_rate=1.0, lag="refresh", interval=2),
        then[:, None].copy(),
    )
    update.choose_sampling_policy()
    update.apply(None)
    update.logit_AS[:, 0] = now
    update._look()
    update.choose_sampling_policy()
    before = update.logit_AS.copy()
    update.apply(None)
    return np.asarray((update.logit_AS - before)[:, 0])


@each_case("kl_place", ["loss", "reward"])
@each_case("ratio", ["none", "exact", "clipped"])
@each_case("advantage", ADVANTAGES)
def test_the_expected_gradient_is_that_over_every_batch(
    advantage: Any, ratio: Any, kl_place: Any
) -> None:
    now, then = np.array([0.3, -0.2, 0.1]), np.array([-0.1, 0.4, 0.0])
    training = Training(1.0, group_size=3, advantage=advantage, ratio=ratio, kl_place=kl_place)
    np.testing.assert_allclose(
        one_step(THREE, training, now, then), by_enumeration(THREE, training, now, then), atol=1e-12
    )


@pytest.mark.parametrize("ratio", ["none", "exact"])
def test_the_expectation_of_batch_std_over_several_groups(ratio: Any) -> None:
    now, then = np.array([0.3, -0.2, 0.1]), np.array([-0.1, 0.4, 0.0])
    training = Training(1.0, group_size=3, prompts=2, advantage="batch_std", ratio=ratio)
    np.testing.assert_allclose(
        one_step(THREE, training, now, then), by_enumeration(THREE, training, now, then), atol=1e-12
    )


def test_the_expected_gradient_is_the_exact_one() -> None:
    """Leave-one-out without lag: the gradient of the objective itself, whatever G."""
    from groupwise_lab.simulate.softmax_bandit import exact_gradient

    logit = np.array([0.3, -0.2, 0.1])
    np.testing.assert_allclose(
        one_step(THREE, Training(1.0, ratio="exact"), logit, np.array([1.0, 0, 0])),
        exact_gradient(THREE, logit),
        atol=1e-14,
    )


def test_what_cannot_be_enumerated_is_refused() -> None:
    assert (
        expectation_method(2, Training(1.0, advantage="std_normalised"))
        == "enumeration of 9 count vectors"
    )
    assert expectation_method(2, Training(1.0)) == "closed form"
    with pytest.raises(InvalidArgumentError, match="not clipped across a batch"):
        expected_path(
            THREE,
            Training(1.0, group_size=3, prompts=2, advantage="batch_std", ratio="clipped"),
            steps=1,
        )
    with pytest.raises(
        InvalidArgumentError, match="got 1,329,890,705"
    ):  # of 64 rollouts over 8 arms
        expected_path(
            bandit([0.0] * 7 + [1.0]),
            Training(1.0, group_size=64, advantage="std_normalised"),
            steps=1,
        )


def test_the_sampled_mean_is_the_expectation() -> None:
    """One update of 40,000 replicates, three arms, five advantages: 4.5 standard errors are
    passed by chance once in 10,000 tests.
    """
    for advantage in ADVANTAGES:
        training = Training(0.3, group_size=4, prompts=2, advantage=advantage)  # type: ignore[arg-type]
        step_AS = simulate_bandit(THREE, training, steps=1, replicates=40_000, seed=5).logit_AS
        exact_A = expected_path(THREE, training, steps=1).logit_AS[:, 0]
        error = (step_AS.mean(axis=1) - exact_A) / (step_AS.std(axis=1, ddof=1) / 200)
        assert np.abs(error).max() < 4.5, advantage


# -- random numbers
# --------------------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_bits_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    training = changed(BASE, advantage="std_normalised", lag="refresh", interval=3, ratio="clipped")

    def run(most: int, replicates: int = 1600) -> np.ndarray:
        monkeypatch.setattr(bandit_runs, "_MOST_CHUNK", most)
        runs = simulate_bandit(THREE, training, steps=40, replicates=replicates, seed=3)
        assert runs.chunk_size <= most
        return np.asarray(runs.value)

    whole = run(1750)
    for most in (250, 500, 1000, 8000):
        assert np.array_equal(run(most), whole), most
    assert np.array_equal(run(8000, replicates=1), whole[:, :1])
    assert np.array_equal(run(8000, replicates=301), whole[:, :301])
    other = simulate_bandit(THREE, training, steps=40, replicates=1600, seed=4).value
    assert not np.array_equal(other, whole)


def test_random_numbers_are_common_to_all_settings() -> None:
    """With a learning rate of almost nothing the policy stays, so the rollouts of different
    settings must be the very same.
    """
    settings: list[dict[str, Any]] = [
        {},
        {"learning_rate": 1e-13, "momentum": 0.0},
        {"optimizer": "adam"},
        {"lag": "async", "interval": 5},
        {"ratio": "exact", "lag": "fixed", "interval": 2},
        {"advantage": "batch_std"},
        {"kl_place": "reward"},
    ]
    training = changed(BASE, learning_rate=1e-12)
    rewards = [
        simulate_bandit(
            THREE,
            changed(training, **setting),
            steps=30,
            replicates=300,
            seed=2,
            records=Records(("reward",)),
        ).series["reward"]
        for setting in settings
    ]
    assert all(np.array_equal(reward, rewards[0]) for reward in rewards)


def test_common_random_numbers_take_the_noise_out_of_a_difference() -> None:
    """Two learning rates 2 % apart: the difference of values varies far less than with seeds of
    their own.
    """

    def value(rate: float, seed: int) -> np.ndarray:
        return np.asarray(
            simulate_bandit(TWO, Training(rate, momentum=0.5), steps=60, seed=seed).value[-1]
        )

    assert np.std(value(0.102, 1) - value(0.1, 1)) < 0.2 * np.std(value(0.102, 2) - value(0.1, 1))


def test_draws_have_the_probabilities_of_the_policy() -> None:
    """Chi-square of 400,000 draws over 4 arms, 3 degrees of freedom: 23 is passed by chance once
    in 25,000 tests.
    """
    policy_A = np.array([0.1, 0.2, 0.3, 0.4])
    uniform = np.random.default_rng(1).integers(2**32, size=(8, 1, 50_000), dtype=np.uint32)
    policy_AS: np.ndarray = np.repeat(policy_A[:, None], 50_000, axis=1)
    count = (
        ArmCounter(4, 8, (1, 50_000))
        .count(uniform, thresholds(policy_AS))
        .sum(axis=(1, 2), dtype=float)
    )
    assert ((count - 400_000 * policy_A) ** 2 / (400_000 * policy_A)).sum() < 23
    arm_PGS = (uniform >= thresholds(policy_AS)[:, None, None]).sum(axis=0).swapaxes(0, 1)
    assert np.array_equal(np.bincount(arm_PGS.ravel()), count)


def test_counts_of_large_groups_and_certain_arms() -> None:
    """More than 255 rollouts do not overflow, and a policy of one arm draws it always: also the
    first and the last.
    """
    uniform = np.random.default_rng(1).integers(2**32, size=(700, 2, 30), dtype=np.uint32)
    for certain in range(3):
        policy_AS = np.zeros((3, 30))
        policy_AS[certain] = 1
        count = ArmCounter(3, 700, (2, 30)).count(uniform, thresholds(policy_AS))
        assert count[certain].min() == 700
        assert (count.sum(axis=0) == 700).all()


def test_how_finely_probabilities_are_met() -> None:
    """The last arm of a policy that leaves it out: one number of 2^32."""
    policy_AS: np.ndarray = np.array([[0.25], [0.75], [0.0]])
    assert thresholds(policy_AS)[:, 0].tolist() == [2**30, 2**32 - 1]


def test_the_arms_of_the_first_replicate() -> None:
    training = changed(BASE, group_size=3, lag="refresh", interval=4)
    arm_TPG = drawn_arms_of(THREE, training, steps=12, seed=9)
    reward = simulate_bandit(
        THREE,
        training,
        steps=12,
        replicates=1,
        seed=9,
        records=Records(("reward", "reward_std", "dead_share")),
    )
    reward_TPG = THREE.reward_A[arm_TPG]
    dead_TP = np.ptp(reward_TPG, axis=2) == 0
    assert 0 < dead_TP.sum() < dead_TP.size
    np.testing.assert_allclose(
        reward.series["reward"][:, 0], reward_TPG.mean(axis=(1, 2)), atol=1e-12
    )
    np.testing.assert_allclose(
        reward.series["reward_std"][:, 0], reward_TPG.std(axis=2, ddof=1).mean(axis=1), atol=1e-12
    )
    np.testing.assert_allclose(reward.series["dead_share"][:, 0], dead_TP.mean(axis=1), atol=1e-12)


# -- thresholds
# --------------------------------------------------------------------------------------------------


def located(lag: Any, low: float, high: float, *, steps: int = 6000, **settings: Any) -> float:
    """Learning rate times K at which a kick of 0.0001 from the fixed point begins to grow
    instead of dying out, by two nested grids: to a thousandth.
    """
    target = 1 / (1 + np.exp(-(np.log(3 / 7) + 2)))
    stiffness = 2 * 0.5 * target * (1 - target)
    start = np.log([0.7, 0.3]) + np.array([0.0, 2.0 + 1e-4])
    training = Training(1.0, momentum=0.9, lag=lag, interval=8, **settings)
    for _ in range(2):
        force = np.linspace(low, high, 17)
        path = expected_path(
            TWO, training, steps=steps, start_AS=start, learning_rate_S=force / stiffness
        )
        distance = np.abs(path.value - target)
        late, middle = (
            distance[-steps // 3 :].max(axis=0),
            distance[steps // 3 : -steps // 3].max(axis=0),
        )
        grows = (late > middle) | (
            late > 30 * distance[0]
        )  # beyond the threshold it ends in a cycle of constant size
        first = int(np.argmax(grows))
        assert first > 0, "the threshold lies outside the grid"
        low, high = force[first - 1], force[first]
    return float((low + high) / 2)


def linear_threshold(lag: str, *, reward_delayed: bool, kl_delayed: bool) -> float:
    """The same from a linear recursion written here: the reward pulls with weight A at a delay, the
    KL term with B at another.

    Differentiating 2 pq - 2 beta pq (theta - theta0) at the fixed point, where beta (theta -
    theta0) = 1: the reward part gives 2 pq (1-2p), the KL part -2 beta pq - 2 pq (1-2p); here both
    over K = 2 beta pq with beta = 0.5.
    """
    p = 1 / (1 + np.exp(-(np.log(3 / 7) + 2)))
    reward_part, kl_part = 2 * (1 - 2 * p), -1 - 2 * (1 - 2 * p)

    def radius(force: float) -> float:
        """Growth per update over many blocks, from the recursion itself."""
        history, speed, level = [1.0], 0.0, 0.0
        for step in range(4000):
            block = step - step % 8
            then = history[
                max({"none": step, "fixed": step - 8, "refresh": block, "async": block - 8}[lag], 0)
            ]
            now = history[-1]
            pull = reward_part * (then if reward_delayed else now) + kl_part * (
                then if kl_delayed else now
            )
            speed = 0.9 * speed + force * pull
            history.append(now + speed)
            if step == 2000:
                level = max(map(abs, history[-300:]))
            if abs(history[-1]) > 1e100:
                return 2.0
        return max(map(abs, history[-300:])) / level

    low, high = 0.001, 4.5
    for _ in range(22):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if radius(middle) > 1 else (middle, high)
    return float(low)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("lag", "kl_place", "ratio", "closed_form", "around"),
    [
        ("refresh", "reward", "none", 0.0339, (0.03, 0.038)),
        ("fixed", "reward", "none", 0.01394, (0.012, 0.016)),
        ("async", "reward", "none", 0.01023, (0.009, 0.012)),
        ("refresh", "loss", "none", 0.0323, (0.03, 0.036)),
        ("fixed", "loss", "none", 0.01334, (0.012, 0.016)),
        ("async", "loss", "none", 0.00976, (0.009, 0.012)),
        ("refresh", "loss", "exact", 3.80, (3.5, 4.1)),
        ("refresh", "reward", "exact", 0.0339, (0.03, 0.038)),
    ],
)
def test_the_thresholds_of_the_theory(
    lag: Any, kl_place: Any, ratio: Any, closed_form: float, around: tuple[float, float]
) -> None:
    """Located on the exact expected dynamics; the known numbers are rounded to three or four
    digits.
    """
    threshold = located(
        lag, *around, steps=240 if closed_form > 1 else 6000, ratio=ratio, kl_place=kl_place
    )
    stale = ratio == "none" or kl_place == "reward"
    assert threshold == pytest.approx(
        linear_threshold(
            lag if stale else "none", reward_delayed=stale, kl_delayed=kl_place == "reward"
        ),
        rel=0.005,
    )
    assert threshold == pytest.approx(closed_form, rel=0.005)


# -- edges
# --------------------------------------------------------------------------------------------------


def test_progress_is_told_and_ends_with_everything() -> None:
    seen: list[tuple[int, int]] = []
    simulate_bandit(
        TWO,
        Training(0.1),
        steps=1000,
        replicates=900,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert len(seen) > 3
    assert seen == sorted(seen)
    assert seen[-1] == (1_000_000, 1_000_000)
    seen.clear()
    expected_path(
        TWO,
        Training(0.1),
        steps=500,
        learning_rate_S=[0.1, 0.2],
        progress=lambda done, total: seen.append((done, total)),
    )
    assert len(seen) > 2
    assert seen[-1] == (1000, 1000)


def test_records_every_few_updates() -> None:
    runs = simulate_bandit(
        TWO, Training(0.1), steps=25, replicates=3, records=Records(("value", "reward"), every=10)
    )
    every = simulate_bandit(
        TWO, Training(0.1), steps=25, replicates=3, records=Records(("value", "reward"))
    )
    assert runs.step_T.tolist() == [0, 10, 20, 25]
    assert np.array_equal(runs.value, every.value[[0, 10, 20, 25]])
    assert np.array_equal(runs.series["reward"], every.series["reward"][[0, 10, 20]])


@each_case(
    ("settings", "words"),
    [
        ({"momentum": 1.0}, "momentum to be a number of at least 0 and below 1"),
        ({"momentum": -0.1}, "momentum to be a number of at least 0 and below 1"),
        ({"learning_rate": 0.0}, "learning_rate to be a number above 0"),
        ({"learning_rate": float("nan")}, "learning_rate to be a number above 0"),
        ({"interval": 0}, "interval to be a whole number of at least 1"),
        ({"group_size": 1}, "group_size to be a whole number of at least 2"),
        ({"lag": "often"}, "none, fixed, refresh, async"),
        ({"advantage": "best"}, "vanilla, full_group_mean, leave_one_out"),
        ({"ratio": "some"}, "none, exact, clipped"),
        ({"prompts": 100_000}, "at most 65536 rollouts"),
    ],
)
def test_settings_outside_their_domain_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        Training(**{"learning_rate": 0.1, **settings})


def test_bandits_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="rewards that differ"):
        bandit([1, 1])
    with pytest.raises(InvalidArgumentError, match="at least 2 arms"):
        bandit([1])
    with pytest.raises(InvalidArgumentError, match="positive probabilities"):
        bandit([0, 1], reference_A=[1.0, 0.0])
    with pytest.raises(InvalidArgumentError, match="KL weight"):
        bandit([0, 1], kl_weight=-1)
    with pytest.raises(InvalidArgumentError, match="expected steps to be a whole number"):
        simulate_bandit(TWO, Training(0.1), steps=0)
    with pytest.raises(InvalidArgumentError, match="quantities"):
        expected_path(TWO, Training(0.1), steps=1, records=Records(("reward",)))
    with pytest.raises(InvalidArgumentError, match="finite logits"):
        expected_path(TWO, Training(0.1), steps=1, start_AS=[0.0])
    with pytest.raises(InvalidArgumentError, match="positive learning rate"):
        expected_path(TWO, Training(0.1), steps=1, learning_rate_S=[-1.0])
    with pytest.raises(InvalidArgumentError, match="as many learning rates as starts, got 3 and 2"):
        expected_path(
            TWO, Training(0.1), steps=1, start_AS=np.zeros((2, 2)), learning_rate_S=[0.1, 0.2, 0.3]
        )
    with pytest.raises(InvalidArgumentError, match="expected steps to be a whole number"):
        drawn_arms_of(TWO, Training(0.1), steps=0)


@each_case(
    ("settings", "words"),
    [
        ({"seed": -1}, "seed to be a whole number of at least 0"),
        ({"seed": 0.5}, "seed to be a whole number of at least 0"),
        ({"start_A": np.zeros((2, 3))}, "one start for all replicates, got 3"),
        ({"replicates": 0}, "expected replicates to be a whole number"),
        ({"records": Records(every=0)}, "expected every to be a whole number"),
    ],
)
def test_runs_that_cannot_be_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        simulate_bandit(TWO, Training(0.1), steps=3, **settings)


@pytest.mark.slow
def test_a_long_fixed_lag_makes_chunks_smaller_and_a_longer_one_is_refused() -> None:
    """Every update of a fixed lag keeps a policy of each replicate."""
    short, long = (
        simulate_bandit(
            TWO,
            Training(0.1, lag="fixed", interval=interval),
            steps=2000,
            replicates=4000,
            records=Records(every=2000),
        )
        for interval in (1, 2000)
    )
    assert (short.chunk_size, long.chunk_size) == (4000, 2000)
    with pytest.raises(InvalidArgumentError, match="policies fit into memory"):
        simulate_bandit(
            bandit(np.arange(1000)),
            Training(0.1, lag="fixed", interval=1000),
            steps=1000,
            replicates=1,
        )


def test_memory_is_bounded_by_chunks() -> None:
    """Five times the replicates take no more than their own records more; NumPy's own
    allocations are traced.
    """
    import tracemalloc

    task, training = bandit(np.linspace(0, 1, 10)), Training(0.05)
    peaks = []
    for replicates in (16_000, 80_000):
        tracemalloc.start()
        simulate_bandit(task, training, steps=5, replicates=replicates, records=Records(every=5))
        peaks.append(tracemalloc.get_traced_memory()[1] - 8 * replicates * (10 + 2))
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


def test_certain_arms_do_no_harm() -> None:
    """A policy that has become certain keeps finite weights and logits."""
    training = Training(50.0, momentum=0.9, lag="async", interval=3, ratio="exact")
    with np.errstate(all="raise", under="ignore"):
        runs = simulate_bandit(bandit([0, 1, 0.5]), training, steps=300, replicates=50)
    assert np.isfinite(runs.value).all()
    assert np.isfinite(runs.logit_AS).all()


def test_expected_coefficients_take_any_number_of_replicates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blocks of replicates in the enumeration do not show: here 13 at a time, 325 count vectors
    of 3 arms each.
    """
    monkeypatch.setattr("groupwise_lab.simulate.bandit_runs._MOST_NUMBERS", 13 * 3 * 325)
    policy_AS = np.random.default_rng(0).dirichlet([1, 1, 1], size=60).T
    training = Training(1.0, group_size=24, advantage="std_normalised")
    whole = expected_coefficients(policy_AS, THREE.reward_A[:, None], None, training)
    alone = [
        expected_coefficients(policy_AS[:, [seed]], THREE.reward_A[:, None], None, training)
        for seed in range(60)
    ]
    np.testing.assert_allclose(whole, np.concatenate(alone, axis=1), atol=1e-13)
