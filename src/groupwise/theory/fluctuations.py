r"""How far the mean reward of a settled run swings about its fixed point: the link between both papers.

Gradient noise of variance $s^2$ a batch drives each mode, and its stationary variance is temperature over stiffness. $s^2$ is the error of
the batch's gradient *along the mode*: traces over all parameters are far too large.
"""

from __future__ import annotations

import math

from groupwise.errors import InvalidArgumentError
from groupwise.theory.mse import mse


def reward_band(
    components: tuple[float, float, float],
    unit_variance: float,
    *,
    group_size: int,
    prompts: int,
    gain: float,
    reward_variance: float = 0.0,
    value_variance: float = 0.0,
) -> tuple[float, float]:
    r"""Return the standard deviation of a settled run's true mean reward, and of the measured batch mean, with nothing fitted.

    $s^2 = (V_p + T/G + R/(G(G-1)))/B$ drives the mode; the reward moves by `gain` a unit of the mode's coordinate. The measured mean
    adds $\sigma^2/(BG)$ of rollouts and the prompts' $Var(V)/B$.

    Source: derived here: the link between arXiv 2603.01162 and 2606.30789.
    """
    if group_size < 2 or prompts < 1:
        raise InvalidArgumentError(f"expected a group size of at least 2 and at least one prompt, got {group_size} and {prompts}")
    true = gain**2 * max(float(mse(*components, group_size, prompts)), 0.0) * unit_variance
    return math.sqrt(true), math.sqrt(true + reward_variance / (prompts * group_size) + value_variance / prompts)


def variance_ratio(vp: float, t: float, r: float, group_size: int, other: int) -> float:
    r"""Return by what the fluctuation's variance falls from one group size to another at fixed B: 1/G only if T alone counts.

    Source: derived here; $20(3+\rho)/(15+\rho)$ for 4 : 16 with $\rho = R/T$ and no part between prompts.
    """
    if min(group_size, other) < 2:
        raise InvalidArgumentError(f"expected group sizes of at least 2, got {min(group_size, other)}")
    return float(mse(vp, t, r, group_size, 1) / mse(vp, t, r, other, 1))
