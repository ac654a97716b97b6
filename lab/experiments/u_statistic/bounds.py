r"""Bounds of the expected gap $\Delta_n = J^* - J(\theta_n)$ after n steps of stochastic gradient
ascent, and whether they apply.

For an objective with L-Lipschitz gradient and $|g|^2 \ge 2\mu\Delta$ (Polyak-Lojasiewicz), and a
gradient of mean squared error at most M, one step of size $\eta$ gives $E\Delta' \le (1 - 2\mu\eta
+ \mu L\eta^2)\Delta + L\eta^2M/2$. The condition on the steps is checked, and where it fails the
bound says that it is void; what the objective has to fulfil is listed as assumed. The distribution
of the gap is not here: that is `final_gap`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float, Whole
from groupwise.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Landscape:
    """The constants of the objective and of its gradient's error."""

    smoothness: (
        float  # L, Lipschitz constant of the gradient, reward units per squared parameter unit
    )
    pl: float  # $\mu$ of $|g|^2 \ge 2\mu\Delta$, same unit; never above L
    mse: float  # M, largest mean squared error of the gradient estimate
    first_gap: float  # $\Delta_0$, reward units
    # a gap that cannot be exceeded, such as the range of the reward; infinite where none is known
    largest_gap: float = math.inf

    def __post_init__(self) -> None:
        """Refuse what cannot be such constants."""
        for name, least in (
            ("smoothness", 1e-300),
            ("pl", 1e-300),
            ("mse", 0.0),
            ("first_gap", 0.0),
        ):
            if not least <= (value := getattr(self, name)) < math.inf:
                raise InvalidArgumentError(
                    f"expected `{name}` to be finite and {'positive' if least else 'at least 0'}, "
                    f"got {value:g}"
                )
        if self.pl > self.smoothness * (1 + 1e-12):
            raise InvalidArgumentError(
                f"expected mu at most L, got mu {self.pl:g} and L {self.smoothness:g}: no function "
                "has both; measure both in one place"
            )

    def leading_constant(self, scale: float) -> float:
        r"""Return the factor of 1/n that the bound with steps b/i tends to, $Lb^2M/(4\mu b -
        2)$; infinite at or below the threshold.
        """
        excess = 4 * self.pl * scale - 2
        return self.smoothness * scale**2 * self.mse / excess if excess > 0 else math.inf


@dataclass(frozen=True, slots=True)
class GapBound:
    """Bounds of the expected gap along a schedule of steps."""

    step_T: Whole  # how many updates had been made
    bound_T: Float  # bound of the expected gap then, reward units
    limit: float  # what the bound tends to: the floor of a constant step, 0 for steps b/i
    leading_constant: (
        float  # the factor of 1/n it tends to; infinite where the bound does not fall like that
    )
    condition: str  # on the steps, with its numbers, which is checked
    void: bool  # whether it fails, so that the numbers bound nothing
    assumed: tuple[str, ...]  # what is taken for granted, because the numbers given cannot tell
    # why the last bound is none worth the name, such as steps that are too long; "" where it is one
    says_nothing: str = ""

    @property
    def status(self) -> str:
        """One sentence: what fails, or where the bound ends."""
        if self.void:
            return f"{self.condition} does not hold: the bound is void."
        if self.says_nothing:
            return f"The bound says nothing: {self.says_nothing}."
        return (
            f"The expected gap after {int(self.step_T[-1])} steps is at most "
            f"{self.bound_T[-1]:.3g}."
        )


def one_step(landscape: Landscape, gap: ArrayLike, step: ArrayLike) -> Float:
    r"""Return the bound of the expected gap after one step.

    $(1 - 2\mu\eta + \mu L\eta^2)\Delta + L\eta^2M/2$ for $\eta \le 2/L$; beyond, where a step can
    lose even without noise, $(1 - L\eta)^2\Delta + \ldots$ from $|g|^2 \le 2L\Delta$. Never above
    `largest_gap`.

    Source: the paper's Lemma 6 (2603.01162); the range beyond 2/L is derived here.
    """
    gap, step = np.asarray(gap, dtype=float), np.asarray(step, dtype=float)
    if not ((gap >= 0).all() and (step >= 0).all()):
        raise InvalidArgumentError(
            "expected gaps and steps of at least 0: the gap is J* - J, and the step goes uphill"
        )
    return np.asarray(
        np.minimum(_factor(landscape, step) * gap + _noise(landscape, step), landscape.largest_gap)
    )


def _factor(landscape: Landscape, step: Float) -> Float:
    """What one step multiplies the gap by, at most."""
    gain = step - landscape.smoothness * step**2 / 2
    return 1 - 2 * np.where(gain >= 0, landscape.pl, landscape.smoothness) * gain


def _noise(landscape: Landscape, step: Float) -> Float:
    """What the gradient's error adds to the gap in one step."""
    return landscape.smoothness * step**2 * landscape.mse / 2


def constant_step_bound(landscape: Landscape, step: float, steps: int) -> GapBound:
    r"""Return the bound along `steps` updates of one size.

    $E\Delta_n \le (1 - 2\mu\eta + L\mu\eta^2)^n\Delta_0 + L\eta^2M/(4\mu\eta - 2L\mu\eta^2)$

    Source: the paper's Lemma 6 (2603.01162).
    """
    _check_schedule(step, steps)
    curve, pl = landscape.smoothness, landscape.pl
    condition = f"step {step:g} < 1/(2 L) = {1 / (2 * curve):g}"
    rate = 1 - 2 * pl * step + curve * pl * step**2
    limit = curve * step**2 * landscape.mse / (2 * (1 - rate)) if rate < 1 else math.inf
    count_T, bound_T = np.arange(steps + 1), np.full(steps + 1, landscape.largest_gap)
    if rate < 1:
        # the exact solution of the recursion: the floor is approached, and not added to the whole
        # of the first gap
        bound_T = np.minimum(limit + rate**count_T * (landscape.first_gap - limit), bound_T)
    void = step >= 1 / (2 * curve)
    return GapBound(
        count_T,
        bound_T,
        limit,
        math.inf,
        condition,
        void,
        _assumed(landscape),
        _nothing(landscape, bound_T[-1]),
    )


def decaying_step_bound(
    landscape: Landscape, scale: float, steps: int, *, offset: float = 0.0
) -> GapBound:
    r"""Return the bound along `steps` updates of size b/(i + offset), by the recursion itself.

    It is never above the lemma's $\max\{(1+\epsilon)Lb^2M/(4\mu b-2),\ c\}/n$, whose c and epsilon
    it leaves open; see `lemma_constants`.

    Source: the paper's Lemma 6 (2603.01162); the recursion in place of the closed form is derived
    here.
    """
    _check_schedule(scale, steps)
    if not offset >= 0:
        raise InvalidArgumentError(
            f"expected an offset of at least 0, got {offset:g}: it is added to the number of the "
            "step"
        )
    threshold = 1 / (2 * landscape.pl)
    condition = f"b = {scale:g} > 1/(2 mu) = {threshold:g}"
    step_T: Float = np.asarray(scale / (np.arange(1, steps + 1) + offset), dtype=np.float64)
    gap, bounds = min(landscape.first_gap, landscape.largest_gap), [landscape.first_gap]
    for factor, noise in zip(
        _factor(landscape, step_T).tolist(), _noise(landscape, step_T).tolist(), strict=True
    ):
        gap = min(factor * gap + noise, landscape.largest_gap)
        bounds.append(gap)
    leading, nothing = landscape.leading_constant(scale), _nothing(landscape, gap, step_T[0])
    return GapBound(
        np.arange(steps + 1),
        np.array(bounds),
        0.0,
        leading,
        condition,
        scale <= threshold,
        _assumed(landscape),
        nothing,
    )


def _nothing(landscape: Landscape, last: float, longest: float = 0.0) -> str:
    """Why a bound says nothing: it is the largest gap there is, or above the first because the
    first steps are too long.
    """
    if last >= landscape.largest_gap:
        return f"after all steps it is the largest gap that there is, {landscape.largest_gap:g}"
    if longest > 2 / landscape.smoothness and last > landscape.first_gap:
        return (
            f"after all steps it is {last:.3g} and the first gap was {landscape.first_gap:g}, "
            f"because the first step, {longest:g}, is longer than 2/L = "
            f"{2 / landscape.smoothness:g}: give `largest_gap`, or an `offset` with which it is not"
        )
    return ""


def lemma_constants(
    landscape: Landscape, scale: float, *, slack: float = 0.1
) -> tuple[float, float, int]:
    r"""Return explicit numbers for the lemma's closed form: $E\Delta_n \le \max\{v, c\}/n$ for
    every $n \ge i_0$.

    $v = (1+\epsilon)\frac{Lb^2M}{4\mu b - 2}$, $i_0 = \lceil\frac{(1+\epsilon)\mu
    Lb^2}{\epsilon(2\mu b-1)}\rceil$, and c is $i_0$ times the recursion's bound before update
    $i_0$.

    Source: derived here (lab/docs/theory/final-gap.md); the paper's Lemma 6 leaves c and epsilon
    open.
    """
    if not scale > 1 / (2 * landscape.pl):
        raise InvalidArgumentError(
            f"expected b above 1/(2 mu) = {1 / (2 * landscape.pl):g}, got {scale:g}: at or below "
            "it the gap falls more slowly than 1/n"
        )
    if not slack > 0:
        raise InvalidArgumentError(
            f"expected a slack above 0, got {slack:g}: the closed form needs room for the higher "
            "orders"
        )
    curve, pl = landscape.smoothness, landscape.pl
    first = max(1, math.ceil((1 + slack) * pl * curve * scale**2 / (slack * (2 * pl * scale - 1))))
    before = decaying_step_bound(landscape, scale, first).bound_T[first - 1]
    return (1 + slack) * landscape.leading_constant(scale), first * float(before), first


def _assumed(landscape: Landscape) -> tuple[str, ...]:
    """What every bound here takes for granted."""
    largest = (
        f", so that no gap exceeds {landscape.largest_gap:g}"
        if math.isfinite(landscape.largest_gap)
        else ""
    )
    return (
        f"bounded rewards{largest}",
        f"a gradient that is Lipschitz with L = {landscape.smoothness:g} wherever the run goes",
        f"|g|^2 >= 2 mu gap with mu = {landscape.pl:g} wherever the run goes",
        "a gradient estimate without bias",
        (
            f"a mean squared error of the gradient estimate of at most M = {landscape.mse:g} "
            "wherever the run goes"
        ),
    )


def _check_schedule(size: float, steps: int) -> None:
    """Refuse steps that lead nowhere."""
    if not (size > 0 and math.isfinite(size)):
        raise InvalidArgumentError(
            f"expected a positive step, got {size:g}: without one nothing moves"
        )
    if not steps >= 1:
        raise InvalidArgumentError(
            f"expected at least 1 step, got {steps}: the bound is about what steps do"
        )
