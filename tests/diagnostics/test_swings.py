"""Swings: where they begin, and whether they widen; a constant one is not said to.

Sampling tests run on fixed random numbers; each states how often it would fail on others.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import f

from groupwise.diagnostics.instability import _scatter, check
from groupwise.diagnostics.judgement import Finding, Status
from groupwise.diagnostics.signals import Evidence, signal_of
from groupwise.diagnostics.swings import _alternations, _line, _memory, course_of
from groupwise.record.run import Meaning, RunRecord, steps_table

N = 400
STEP = np.arange(N)


def swinging(seed: int, *, onset: int = 100, grows: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    ability = -0.4 * np.exp(-STEP / 40) + 0.2
    height = 0.3 + 1.3 * np.maximum(STEP - onset, 0) / (N - onset) if grows else 1.2
    ability = ability + np.where(onset <= STEP, height * np.sin(2 * np.pi * (STEP - onset) / 30), 0.0)
    right = rng.binomial(128, 1 / (1 + np.exp(-ability)))
    return np.asarray(right / 128)


def finding(reward: np.ndarray) -> Finding:
    record = RunRecord("test", steps_table(range(1, N + 1), {"reward": reward}), meanings=(Meaning("reward", "reward", "test"),))
    return check(Evidence(record))


@pytest.mark.parametrize("seed", range(8))
def test_a_constant_swing_keeps_swinging_and_begins_where_it_does(seed: int) -> None:
    # The worst of 20 such runs was off by 4 rows.
    found = finding(swinging(seed))
    assert found.status is Status.CRITICAL
    assert "keeps swinging" in found.message
    assert "wider" not in found.message
    assert found.step is not None
    assert abs(found.step - 101) <= 12


@pytest.mark.parametrize("seed", range(4))
def test_a_swing_that_grows_is_said_to(seed: int) -> None:
    found = finding(swinging(seed, grows=True))
    assert "swings ever wider" in found.message
    assert found.step is not None
    assert abs(found.step - 101) <= N // 10


def test_a_swing_from_the_start_begins_there() -> None:
    reward = 0.5 + 0.2 * np.sin(STEP / 4) + 0.04 * np.random.default_rng(1).standard_normal(N)
    found = course_of(reward, 25.0)
    assert found.row <= 12
    assert found.widening.covers(1.0)


def test_the_widening_of_a_line_without_noise_is_exact() -> None:
    # Whole turns in both halves, the second three times as high; the period is found on the grid that holds it.
    reward = np.where(STEP < 200, 1.0, 3.0) * np.sin(2 * np.pi * STEP / 20)
    assert course_of(reward, 20.0).widening.value == pytest.approx(3.0, abs=0.05)


def test_the_onset_of_a_line_without_noise_is_its_first_row() -> None:
    """A cosine that starts at its height: of a row before it and of one after it no line explains all."""
    assert course_of(np.where(STEP >= 120, np.cos(2 * np.pi * (STEP - 120) / 20), 0.0), 20.0).row == 120


def test_a_change_of_scale_and_level_changes_nothing() -> None:
    reward = swinging(3)
    plain, other = course_of(reward, 30.0), course_of(5 - 2 * reward, 30.0)
    assert plain.row == other.row
    assert plain.widening.value == pytest.approx(other.widening.value, rel=1e-6)


def test_rows_are_averaged_over_half_of_the_rows_after_which_they_have_forgotten_their_sign() -> None:
    """A cosine of P rows comes back to 0 after P/4, and eight rows are left of each of its turns; five rows tell nothing."""
    for period, size in ((24, 3), (40, 5), (4, 1)):
        assert _memory(np.cos(2 * np.pi * np.arange(240) / period)) == size
    assert _memory(np.arange(5.0) ** 3) == 1


@pytest.mark.parametrize(("left", "times"), [([2.0, 0.1, 2.0, -0.1, 2.0], 0), ([2.0, 0.1, -2.0, 0.0, 2.0, -2.0], 3), ([0.5, -0.5], 0)])
def test_a_series_alternates_only_from_beyond_a_level_to_beyond_its_negative(left: list[float], times: int) -> None:
    assert _alternations(np.array(left), 1.0) == times


def test_the_chance_of_one_bin_by_hand() -> None:
    """Bin 8 of 20 holds 30, the others 1: P(F > 30) of 2 and 38 degrees of freedom is (1 + 60/38)^-19, for 20 bins and two widths."""
    spectrum = np.ones(20)
    spectrum[8] = 30.0
    place, chance = _line(spectrum)
    assert place == 8
    assert chance == pytest.approx(40 * (98 / 38) ** -19.0)


def test_a_scatter_that_grew_by_hand() -> None:
    """Rows 10 ± 0.1, from row 70 on 10 ± 0.5: second differences of 0.4 and 2, a ratio of 25; of 20 and 50 of them 18 in 35 count."""
    reward = 10 + np.where(np.arange(100) < 70, 0.1, 0.5) * (-1.0) ** np.arange(100)
    found = _scatter(signal_of("reward", np.arange(1, 101), reward))
    assert found is not None
    low, high = (25 / float(f.ppf(p, 20 * 18 / 35, 50 * 18 / 35)) for p in (0.975, 0.025))
    assert [found.value.value, found.value.low, found.value.high] == pytest.approx([25.0, low, high])
    assert (found.said, found.step) == ("the scatter from row to row has grown 25 times in variance", 81)
