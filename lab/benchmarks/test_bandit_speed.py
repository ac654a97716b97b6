"""Speed of the bandit simulator: 10,000 runs of 10 arms with groups of 8, beside the same loop
written for Numba and for JAX.

    make bench    (or: python -m pytest benchmarks/test_bandit_speed.py --benchmark-only -o
    addopts=)

Replicate-steps per second, and ours over each peer's, are in `extra_info` and are printed with
`-s`. The peers are measured where they are installed (`pip install numba jax`), else skipped
visibly; compiling is done before the clock starts. Each peer has the form that is fastest for it:
Numba a loop over replicates on one core, as ours, with a xorshift generator of its own; JAX the
same arms-first arrays as ours, compiled, in one scan, on all cores. Beside Numba, the faster of the
two, ours is measured once more in alternating rounds, so that whatever else the machine does falls
on both. Leave-one-out advantages, heavy ball, exact KL term in the loss; the peers in float32, ours
in float64; all must learn to the same value.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from groupwise_lab.simulate.bandit_runs import Records, simulate_bandit
from groupwise_lab.simulate.softmax_bandit import Training, bandit

ARMS, GROUP, REPLICATES, STEPS = 10, 8, 10_000, 1000
RATE, MOMENTUM, BETA = 0.05, 0.9, 0.05
PAUSE = 0.05
OURS: dict[str, float] = {}
NAME = "10 arms, G = 8, 10,000 replicates, 1,000 updates"


def measure(benchmark: BenchmarkFixture, run: Callable[[], float], *, rounds: int = 5) -> float:
    """Time a run and note its replicate-steps per second, at its best."""
    value = float(benchmark.pedantic(run, rounds=rounds, iterations=1, warmup_rounds=1))  # type: ignore[no-untyped-call]
    stats: Any = benchmark.stats
    if stats is not None:
        speed = REPLICATES * STEPS / stats.stats.min / 1e6
        benchmark.extra_info["million_replicate_steps_per_second"] = speed
        benchmark.extra_info["ours_over_this"] = OURS.setdefault("speed", speed) / speed
        print(
            f"{speed:.2f} million replicate-steps/s, ours is {OURS['speed'] / speed:.2f} times as "
            f"fast, value {value:.4f}"
        )
    return value


def expected_value() -> float:
    """What all must learn, to the sampling error of 10,000 replicates: from another seed and
    another code path for chunks.
    """
    task = bandit(np.linspace(0, 1, ARMS), kl_weight=BETA)
    training = Training(RATE, group_size=GROUP, momentum=MOMENTUM)
    return float(
        simulate_bandit(
            task,
            training,
            steps=STEPS,
            replicates=REPLICATES,
            seed=99,
            records=Records(every=STEPS),
        )
        .value[-1]
        .mean()
    )


def our_value() -> float:
    """Our loop; the mean value at its end."""
    task = bandit(np.linspace(0, 1, ARMS), kl_weight=BETA)
    training = Training(RATE, group_size=GROUP, momentum=MOMENTUM)
    runs = simulate_bandit(
        task,
        training,
        steps=STEPS,
        replicates=REPLICATES,
        seed=1,
        records=Records(every=STEPS),
    )
    return float(runs.value[-1].mean())


@pytest.mark.benchmark(group=NAME)
def test_ours(benchmark: BenchmarkFixture) -> None:
    assert measure(benchmark, our_value) == pytest.approx(expected_value(), abs=0.003)


@pytest.mark.benchmark(group=NAME)
def test_numba(benchmark: BenchmarkFixture) -> None:
    numba: Any = pytest.importorskip("numba", reason="numba is not installed")
    numba.set_num_threads(1)
    loop = numba_loop(numba)
    assert measure(benchmark, lambda: float(loop(REPLICATES, STEPS).mean())) == pytest.approx(
        expected_value(), abs=0.003
    )


@pytest.mark.benchmark(group=f"{NAME}, in turns with Numba")
def test_ours_in_turns_with_numba(benchmark: BenchmarkFixture) -> None:
    numba: Any = pytest.importorskip("numba", reason="numba is not installed")
    numba.set_num_threads(1)
    loop = numba_loop(numba)
    theirs: list[float] = []
    loop(REPLICATES, STEPS)

    def let_numba_run() -> None:
        time.sleep(PAUSE)
        start = time.perf_counter()
        loop(REPLICATES, STEPS)
        theirs.append(time.perf_counter() - start)
        time.sleep(PAUSE)  # its threads go on looking for work for a while

    benchmark.pedantic(our_value, setup=let_numba_run, rounds=15, warmup_rounds=1)  # type: ignore[no-untyped-call]
    stats: Any = benchmark.stats
    if stats is not None:
        best, middle = (
            min(theirs[1:]) / stats.stats.min,
            float(np.median(theirs[1:])) / stats.stats.median,
        )
        benchmark.extra_info |= {"numba_time_over_ours": best, "of_medians": middle}
        print(
            f"in 15 turns each, ours is {best:.2f} times as fast as Numba at its best, "
            f"{middle:.2f} times at the median"
        )
        assert best >= 1


def numba_loop(numba: Any) -> Callable[[int, int], np.ndarray]:  # noqa: C901 - one loop, as Numba likes it
    """The loop for Numba: one replicate after another, everything in registers and small stack
    arrays.
    """
    unit = np.float32(1)
    rate, momentum, beta = np.float32(RATE), np.float32(MOMENTUM), np.float32(BETA)
    scale, log_reference = np.float32(1 / (GROUP - 1)), np.float32(-np.log(ARMS))

    def loop(replicates: int, steps: int) -> np.ndarray:
        values = np.empty(replicates, np.float32)
        for replicate in numba.prange(replicates):
            logit, velocity = np.zeros(ARMS, np.float32), np.zeros(ARMS, np.float32)
            policy, cumulated, counts = (
                np.empty(ARMS, np.float32),
                np.empty(ARMS, np.float32),
                np.empty(ARMS, np.float32),
            )
            state = np.uint64(replicate + 1) * np.uint64(0x9E3779B97F4A7C15)
            for step in range(steps + 1):
                top = logit[0]
                for arm in range(1, ARMS):
                    top = max(top, logit[arm])
                total = np.float32(0)
                for arm in range(ARMS):
                    policy[arm] = np.exp(logit[arm] - top)
                for arm in range(ARMS):
                    total += policy[arm]
                    cumulated[arm] = total
                    counts[arm] = np.float32(0)
                log_normaliser, inverse = np.log(total) + top, unit / total
                value = np.float32(0)
                for arm in range(ARMS):
                    policy[arm] *= inverse
                    value += policy[arm] * np.float32(arm / (ARMS - 1))
                if step == steps:
                    values[replicate] = value
                    break
                mean = np.float32(0)
                for _ in range(GROUP):
                    state ^= state << np.uint64(13)
                    state ^= state >> np.uint64(7)
                    state ^= state << np.uint64(17)
                    mark = np.float32(state >> np.uint64(40)) * np.float32(2.0**-24) * total
                    drawn = 0
                    for arm in range(ARMS - 1):
                        drawn += mark >= cumulated[arm]
                    counts[drawn] += unit
                    mean += np.float32(drawn / (ARMS - 1))
                mean /= np.float32(GROUP)
                divergence = np.float32(0)
                for arm in range(ARMS):
                    divergence += policy[arm] * (logit[arm] - log_normaliser - log_reference)
                for arm in range(ARMS):
                    pull = policy[arm] * (logit[arm] - log_normaliser - log_reference - divergence)
                    gradient = (
                        counts[arm] * (np.float32(arm / (ARMS - 1)) - mean) * scale - beta * pull
                    )
                    velocity[arm] = momentum * velocity[arm] + rate * gradient
                    logit[arm] += velocity[arm]
        return values

    compiled: Callable[[int, int], np.ndarray] = numba.njit(parallel=True, fastmath=True)(loop)
    return compiled


@pytest.mark.benchmark(group=NAME)
@pytest.mark.parametrize("generator", ["threefry2x32", "unsafe_rbg"])
def test_jax(benchmark: BenchmarkFixture, generator: str) -> None:
    jax: Any = pytest.importorskip("jax", reason="jax is not installed")
    run = jax_loop(jax, generator)
    assert measure(benchmark, lambda: float(run().mean()), rounds=3) == pytest.approx(
        expected_value(), abs=0.003
    )


def jax_loop(jax: Any, generator: str) -> Callable[[], Any]:
    """The loop for JAX: arms first, one scan over updates, compiled as a whole."""
    jnp = jax.numpy
    reward_A1 = jnp.linspace(0, 1, ARMS, dtype=jnp.float32)[:, None]

    def update(state: Any, key: Any) -> Any:
        logit_AS, velocity_AS = state
        log_policy_AS = jax.nn.log_softmax(logit_AS, axis=0)
        policy_AS = jnp.exp(log_policy_AS)
        cumulated_AS = jnp.cumsum(policy_AS[:-1], axis=0)
        uniform_GS = jax.random.uniform(key, (GROUP, REPLICATES), jnp.float32)
        below_AS = (uniform_GS[:, None] < cumulated_AS).sum(axis=0, dtype=jnp.float32)
        count_AS = jnp.diff(below_AS, axis=0, prepend=0.0, append=float(GROUP))
        centred_AS = reward_A1 - (count_AS * reward_A1).sum(axis=0) / GROUP
        log_ratio_AS = log_policy_AS + np.float32(np.log(ARMS))
        pull_AS = policy_AS * (log_ratio_AS - (policy_AS * log_ratio_AS).sum(axis=0))
        velocity_AS = MOMENTUM * velocity_AS + RATE * (
            count_AS * centred_AS / (GROUP - 1) - BETA * pull_AS
        )
        return (logit_AS + velocity_AS, velocity_AS), None

    @jax.jit  # type: ignore[untyped-decorator]
    def whole(key: Any) -> Any:
        zero_AS = jnp.zeros((ARMS, REPLICATES), jnp.float32)
        (logit_AS, _), _ = jax.lax.scan(update, (zero_AS, zero_AS), jax.random.split(key, STEPS))
        return (jax.nn.softmax(logit_AS, axis=0) * reward_A1).sum(axis=0)

    key = jax.random.key(1, impl=generator)
    return lambda: np.asarray(whole(key))
