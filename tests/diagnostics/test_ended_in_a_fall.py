"""Of a run that ended: a fall in its last rows, too few for the usual test, is a collapse; what
looks like one is not.
"""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.diagnostics.falls import _ends_in, fall_of, level_changes, reward_level
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import State
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import Meaning, RunRecord
from groupwise.record.table import steps_table

FELL = np.linspace(0.55, 0.05, 8)


def log(reward: np.ndarray) -> RunRecord:
    table = steps_table(range(1, len(reward) + 1), {"reward": reward})
    return RunRecord("run", table, meanings=(Meaning("reward", "reward", "test"),))


def healthy(rows: int, noise: float, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 0.2 + 0.4 * np.minimum(np.arange(rows) / 100, 1) + noise * rng.standard_normal(rows)


@pytest.mark.parametrize("rows", [150, 300, 1000])
def test_a_run_that_ends_in_a_fall_collapsed(rows: int) -> None:
    reward = np.concatenate([healthy(rows, 0.05), FELL])
    judgement = judge(log(reward))
    assert judgement.state is State.FAILED
    assert judgement.now == pytest.approx(0.05, abs=0.1)
    assert judgement.since_step == pytest.approx(rows + 5, abs=2)
    goes_on = judge(log(reward), ended=False)
    assert goes_on.state is State.OK
    assert goes_on.headline.endswith(f"→ 0.19 since step {rows + 4:,}, which may be a dip")


@pytest.mark.parametrize(
    ("noise", "end"),
    [
        (0.18, FELL[3:]),  # rows as low are noise
        (0.05, [0.0]),  # a last batch that is not whole
        (0.05, [0.3, 0.0, 0.05]),  # or a short outage
        (0.05, np.linspace(0.55, 0.38, 8)),  # a part of the height
    ],
)
def test_what_looks_like_a_fall_at_the_end_is_none(noise: float, end: list[float]) -> None:
    reward = np.concatenate([healthy(300, noise), end])
    assert fall_of(Evidence(log(reward))) is None


def test_a_dip_as_deep_as_one_that_came_back_is_none() -> None:
    reward = healthy(300, 0.05)
    reward[150:158] = reward[292:] = FELL
    fall = fall_of(Evidence(log(reward)))
    assert fall is None or not fall.lasts


def test_slow_noise_that_ends_low_is_no_fall() -> None:
    """Of 60 runs with a memory of 0.9 none that ends at its lowest is said to have collapsed."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        noise_T = rng.standard_normal(400)
        for row in range(1, 400):
            noise_T[row] = 0.9 * noise_T[row - 1] + 0.44 * noise_T[row]
        wander_T = noise_T[: 60 + int(noise_T[60:].argmin()) + 1]
        reward = 0.5 + 0.12 * wander_T
        seen = Evidence(log(reward))
        assert _ends_in(seen, reward_level(seen)[0], 0.0) is None


@pytest.mark.parametrize(
    ("low", "entropy", "state"),
    [
        (np.full(6, 0.3), 0.8, State.WARNING),  # harder prompts, perhaps
        (np.full(6, 0.02), 0.8, State.FAILED),  # near nothing
        (np.linspace(0.62, 0.2, 8), 0.8, State.FAILED),  # it goes on falling
        (np.full(6, 0.3), 0.2, State.FAILED),  # another signal moved
    ],
)
def test_six_rows_at_half_of_the_height_alone_are_no_collapse(
    low: np.ndarray, entropy: float, state: State
) -> None:
    rng = np.random.default_rng(3)
    columns = {
        "reward": np.append(0.2 + 0.55 * np.minimum(np.arange(294) / 120, 1), low),
        "entropy": np.append(np.full(294, 0.8), np.full(len(low), entropy)),
    }
    noisy = {
        name: value + 0.02 * rng.standard_normal(len(value)) for name, value in columns.items()
    }
    table = steps_table(range(1, 295 + len(low)), noisy)
    meanings = tuple(Meaning(name, name, "test") for name in noisy)
    assert judge(RunRecord("run", table, meanings=meanings)).state is state


@pytest.mark.parametrize(("deep", "state"), [(0.2, State.WARNING), (0.65, State.FAILED)])
def test_a_fall_as_four_that_came_back_is_a_warning(deep: float, state: State) -> None:
    reward = 0.2 + 0.55 * np.minimum(np.arange(300) / 120, 1)
    for row in (130, 170, 210, 250):
        reward[row : row + 7] = deep
    reward[293:] = 0.02
    reward += 0.02 * np.random.default_rng(9).standard_normal(300)
    assert judge(log(reward)).state is state


@pytest.mark.parametrize(("stood", "since"), [(0, 306), (1, 307), (12, 308)])
def test_the_level_after_a_fall_is_that_of_three_rows_or_more(stood: int, since: int) -> None:
    reward = np.concatenate([healthy(300, 0.02), FELL, np.full(stood, 0.05)])
    change = level_changes(Evidence(log(reward)))["reward"]
    assert change.since == since
    assert change.after == pytest.approx(reward[since - 1 :].mean())


@pytest.mark.parametrize(("low", "first"), [(0.28, 75), (0.39, 112)])
def test_what_stood_low_before_its_last_rows_fell_began_to_fall_as_it_slid(
    low: float, first: int
) -> None:
    """Rows behind a lucky one are those of the slide; what stood near its height had not fallen."""
    slid = np.interp(np.arange(112), [74, 95], [0.43, low])
    reward = np.concatenate([slid, [0.43], np.full(38, 0.27)])
    reward += 0.01 * np.random.default_rng(4).standard_normal(151)
    reward[-3:] -= 0.04
    cut = np.where(np.arange(151) < 85, 0.05, 0.75)
    table = steps_table(range(151), {"reward": reward, "cut": cut})
    names = (("reward", "reward"), ("cut", "truncated_share"))
    meanings = tuple(Meaning(column, quantity, "test") for column, quantity in names)
    change = level_changes(Evidence(RunRecord("run", table, meanings=meanings)))["reward"]
    assert change.before == pytest.approx(reward[first - 20 : first].mean(), abs=0.03)
    assert change.first == pytest.approx(first, abs=2)
