"""The group size of least error: against a fine grid, in its closed forms, and how flat it is."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError
from groupwise_lab.theory.mse import between_prompts, mse, optimal_group_size


def error_times_cost(
    vp: float, t: float, r: float, size: np.ndarray, cost_ratio: float = 0.0
) -> np.ndarray:
    return np.asarray((vp + t / size + r / (size * (size - 1))) * (cost_ratio + size))


def test_without_a_cost_of_prompts_it_is_the_closed_form() -> None:
    """N MSE = Vp G + T + R/(G-1) with minimum Vp + T + 2 sqrt(R Vp), whatever N."""
    vp, t, r = 0.3, 1.1, 4.7
    best = float(optimal_group_size(vp, r))
    assert best == 1 + np.sqrt(r / vp)
    for rollouts in (64.0, 1e6):
        assert rollouts * float(mse(vp, t, r, best, rollouts / best)) == pytest.approx(
            vp + t + 2 * np.sqrt(r * vp), rel=1e-12
        )
        assert all(
            mse(vp, t, r, best + step, rollouts / (best + step))
            > mse(vp, t, r, best, rollouts / best)
            for step in (-0.1, 0.1)
        )


@each_case("cost_ratio", [0.0, 0.5, 6.0, 100.0])
@each_case(
    ("vp", "t", "r"),
    [(1.0, 1.0, 1.0), (0.01, 0.0, 3.0), (0.2, 40.0, 1.0), (0.001, 2.0, 2.0), (1.0, 0.3, 2.0)],
)
def test_with_a_cost_of_prompts_it_is_the_lowest_point_of_a_grid(
    vp: float, t: float, r: float, cost_ratio: float
) -> None:
    best = float(optimal_group_size(vp, r, t=t, cost_ratio=cost_ratio))
    grid = 1 + np.geomspace(1e-3, 1e5, 400_001)
    assert best == pytest.approx(
        grid[error_times_cost(vp, t, r, grid, cost_ratio).argmin()], rel=1e-4
    )
    ends = sorted(1 + np.sqrt(np.array([r * (1 + cost_ratio), r + cost_ratio * t]) / vp))
    assert ends[0] * (1 - 1e-12) <= best <= ends[1] * (1 + 1e-12)
    assert vp == pytest.approx(
        r * (1 + cost_ratio) / (best - 1) ** 2 + cost_ratio * (t - r) / best**2, rel=1e-9
    )


def test_the_leading_order_with_costs_is_poor_at_small_groups() -> None:
    """Vp = T = R = 1 and a prompt that costs six rollouts: sqrt((R + cT)/Vp) = 2.65, and it is
    one too few: 3.65; the best integer is 4.
    """
    assert np.sqrt((1 + 6 * 1) / 1) == pytest.approx(2.6458, abs=1e-4)
    assert float(optimal_group_size(1.0, 1.0, t=1.0, cost_ratio=6.0)) == pytest.approx(
        1 + np.sqrt(7), abs=1e-12
    )
    sizes = np.arange(2, 40)
    assert sizes[error_times_cost(1.0, 1.0, 1.0, sizes, 6.0).argmin()] == 4


@pytest.mark.parametrize("prompt_set", [20.0, 500.0])
def test_a_finite_set_of_prompts_moves_the_optimum(prompt_set: float) -> None:
    """N = 1000 rollouts; the grid ends where the set is used up, G = N/P."""
    vp, t, r, rollouts = 0.4, 1.0, 9.0, 1000.0
    grid = np.linspace(max(1.01, rollouts / prompt_set), 200, 200_001)
    error = (
        between_prompts(vp, np.minimum(rollouts / grid, prompt_set), prompt_set=prompt_set)
        + (t + r / (grid - 1)) / rollouts
    )
    best = float(optimal_group_size(vp, r, prompt_set=prompt_set, rollouts=rollouts))
    assert best == pytest.approx(grid[error.argmin()], abs=2e-3)
    free = 1 + np.sqrt(r * (prompt_set - 1) / (prompt_set * vp))
    assert best == pytest.approx(max(free, rollouts / prompt_set), rel=1e-12)


def excess_over_optimum(vp: float, t: float, r: float, size: int) -> float:
    """sqrt(R Vp)(f + 1/f - 2)/(Vp + T + 2 sqrt(R Vp)), f = (G-1)/(G*-1)."""
    f = (size - 1) / (float(optimal_group_size(vp, r)) - 1)
    return float(np.sqrt(r * vp) * (f + 1 / f - 2) / (vp + t + 2 * np.sqrt(r * vp)))


def test_how_flat_the_optimum_is() -> None:
    """Twice and half of G*: below 2 % at G* = 32 and 64 where T = R; 25 to 27 % where T = 0; 20
    % and more at G* = 3.
    """
    for best in (32, 64):
        r = float((best - 1) ** 2)
        for size in (best // 2, 2 * best):
            assert excess_over_optimum(1.0, r, r, size) < 0.02
            assert 0.24 < excess_over_optimum(1.0, 0.0, r, size) < 0.28
    assert [excess_over_optimum(1.0, t, 4.0, 6) for t in (4.0, 0.0)] == pytest.approx([0.2, 0.36])
    assert [excess_over_optimum(1.0, t, 4.0, 2) for t in (4.0, 0.0)] == pytest.approx([1 / 9, 0.2])


def test_the_excess_is_the_ratio_of_errors_at_one_budget() -> None:
    vp, t, r, rollouts = 0.3, 1.1, 4.7, 1000.0
    best = float(optimal_group_size(vp, r))
    for size in (2, 5, 40):
        ratio = float(mse(vp, t, r, size, rollouts / size) / mse(vp, t, r, best, rollouts / best))
        assert excess_over_optimum(vp, t, r, size) == pytest.approx(ratio - 1, rel=1e-10)


def test_prompts_that_do_not_differ_call_for_one_large_group() -> None:
    assert optimal_group_size([0.0, 1.0], [1.0, 0.0]).tolist() == [np.inf, 1.0]
    assert float(optimal_group_size(0.0, 1.0, t=1.0, cost_ratio=2.0)) == np.inf


def test_shapes_go_together() -> None:
    both = optimal_group_size([[1.0], [4.0]], [4.0, 16.0], t=1.0, cost_ratio=2.0)
    assert both.shape == (2, 2)
    assert both[1, 0] == float(optimal_group_size(4.0, 4.0, t=1.0, cost_ratio=2.0))


def test_bad_input_is_refused_in_one_line() -> None:
    with pytest.raises(InvalidArgumentError, match="at least 0"):
        optimal_group_size(-1.0, 1.0)
    with pytest.raises(InvalidArgumentError, match="at least 2 prompts, got 1"):
        optimal_group_size(1.0, 1.0, prompt_set=1)
    with pytest.raises(InvalidArgumentError, match="`prompt_set` along with `rollouts`"):
        optimal_group_size(1.0, 1.0, rollouts=100)
