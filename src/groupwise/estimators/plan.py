r"""The planner: which group size and how many prompts a budget is best spent on, how flat the optimum is, and how sure that is.

Minimises $\mathrm{MSE}(G, B) = (V_p + T/G + R/(G(G-1)))/B$ over integers with $B = \lfloor\text{budget}/(c_p + c_r G)\rfloor$. The
gradient is that of leave-one-out or mean-centred advantages, unclipped and not divided by the group's deviation. It estimates nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.components import Components, contrast_quantile
from groupwise.intervals import Interval, finite_or_none, percent

EVERY_SIZE_UP_TO = 256
"""Every group size up to this one is on the curve; beyond it 16 a factor of two."""

_STEPS_A_DOUBLING = 16
_MOST_SIZES = 2_000_000
_MOST_RIVALS = 1000
_DRAWS = 2000


def plan_group_size(
    vp: float, t: float, r: float, budget: Budget, *, present: int | None = None, gradient_norm2: float | None = None
) -> GroupSizePlan:
    r"""Best integer group size and number of prompts for given variance components.

    Args:
        vp: E|g(X) - g|^2, at least 0.
        t: E T_o(X), at least 0.
        r: E R(X), at least 0; not all three zero.
        budget: of one step.
        present: the group size in use, to be held against the best.
        gradient_norm2: |g|^2, where known: tells when the group size stops mattering.

    Returns:
        The plan.

    Raises:
        InvalidArgumentError: a component that is negative or not finite, or a group size below 2 or beyond the budget.

    Example:
        >>> plan_group_size(1.0, 0.0, 49.0, Budget(1024)).group_size
        8

    Source: the exact error is derived here; arXiv 2603.01162, Theorem 7, has its form with an unknown c3.
    """
    values = np.array([vp, t, r], dtype=np.float64)
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        raise InvalidArgumentError(f"the components Vp, T and R have to be zero or positive, and not all zero; got {vp}, {t}, {r}")
    return _plan(values, budget, draws=None, present=present, gradient_norm2=gradient_norm2, components=None)


def plan_from_components(
    components: Components, budget: Budget, *, present: int | None = None, rng: np.random.Generator | None = None, draws: int = _DRAWS
) -> GroupSizePlan:
    r"""Best integer group size and number of prompts from estimated components, with what their uncertainty does to the answer.

    Prompts are drawn anew (bootstrap of the jackknife's pseudo-values; a normal law where only sums were kept); each draw has its own
    curve, best size and regret. A component that comes out negative counts as zero, and the plan says so.

    Args:
        components: as estimated.
        budget: of one step.
        present: the group size in use.
        rng: of the draws; a fixed seed where None, so that one file gives one answer.
        draws: how many.

    Returns:
        The plan, with bands.

    Raises:
        InvalidArgumentError: as `plan_group_size`, or all components negative.

    Example:
        >>> from groupwise.estimators.components import components
        >>> rng = np.random.default_rng(1)
        >>> score, reward = rng.normal(size=(512, 4)), rng.integers(2, size=512)
        >>> found = components(reward, np.repeat(np.arange(64), 8), score_ND=score)
        >>> plan_from_components(found, Budget(1024), present=8).present.regret.low >= 0
        True

    Source: derived here.
    """
    values = np.maximum(components.estimate_C[:3], 0.0)
    if values.sum() <= 0:
        raise InvalidArgumentError(
            "expected a component above zero, got none: every group was dead, or there were far too few; measure more prompts"
        )
    drawn = _drawn_components(components, np.random.default_rng(0) if rng is None else rng, draws)
    gradient = components.gradient_norm2
    return _plan(values, budget, draws=drawn, present=present, gradient_norm2=max(gradient.value, 0.0), components=components)


def _drawn_components(components: Components, rng: np.random.Generator, draws: int) -> Float | None:
    """Draws of (Vp, T, R), negative ones set to zero, or None where too few prompts allow none."""
    if components.prompts < 3:
        return None
    pseudo = components.pseudo_PC
    if pseudo is None:
        drawn = rng.multivariate_normal(components.estimate_C[:3], components.covariance_CC[:3, :3], size=draws, method="eigh")
    else:
        weight = rng.multinomial(len(pseudo), np.full(len(pseudo), 1 / len(pseudo)), size=draws) / len(pseudo)
        drawn = weight @ pseudo[:, :3]
    positive: Float = np.maximum(drawn, 0.0)
    # A draw of nothing but zeros has no best size.
    some: Float = positive[positive.sum(axis=1) > 0]
    return some


def _plan(
    values: Float, budget: Budget, *, draws: Float | None, present: int | None, gradient_norm2: float | None, components: Components | None
) -> GroupSizePlan:
    """The plan from three numbers, and draws of them where there are any."""
    if present is not None:
        _check_present(present, budget)
    size = _sizes(budget, present)
    error = error_of(values, size, budget)
    best = int(np.argmin(error))
    shown = _shown(size, best, present)
    level = 0.95 if components is None else components.level
    best_sizes = _best_sizes(draws, size, budget, level, components)
    compared = None
    if present is not None:
        compared = _present(present, values, int(size[best]), best_sizes, size, budget, gradient_norm2, components)
    signal = None if gradient_norm2 is None else gradient_norm2 / error[best] if error[best] > 0 else math.inf
    return GroupSizePlan(
        group_size=int(size[best]),
        prompts=budget.prompts(int(size[best])),
        mse=float(error[best]),
        budget=budget,
        curve=_curve(size[shown], error[shown], draws, budget, level),
        within_2_percent=_within(size, error, 0.02),
        within_10_percent=_within(size, error, 0.10),
        every_size_within_10_percent=_unbroken(error, 0.10),
        group_size_interval=best_sizes,
        signal_to_noise=None if signal is None else float(signal),
        present=compared,
        components=components,
        notes=tuple(_notes(components, budget)),
    )


def error_of(values: Float, size: NDArray[np.integer], budget: Budget) -> Float:
    """Mean squared error of the gradient at each group size, for one set of components or for many.

    Example:
        >>> error_of(np.array([1.0, 0.0, 49.0]), np.array([8]), Budget(1024)).round(4).tolist()
        [0.0146]
    """
    error: Float = values @ weights_of(size, budget)
    return error


def weights_of(size: NDArray[np.integer], budget: Budget) -> Float:
    """What each of Vp, T and R counts in the error.

    Example:
        >>> weights_of(np.array([2]), Budget(8)).tolist()
        [[0.25], [0.125], [0.125]]
    """
    prompts = budget.prompts_of(size)
    between = 1 / prompts
    if budget.prompt_pool is not None:
        between = (budget.prompt_pool - prompts) / (prompts * (budget.prompt_pool - 1))
    return np.stack([between, 1 / (prompts * size), 1 / (prompts * size * (size - 1.0))])


def _sizes(budget: Budget, present: int | None) -> NDArray[np.integer]:
    """Every group size that the budget allows; beyond two million only the largest for each number of prompts, the others being worse."""
    largest = budget.largest_group
    if largest <= _MOST_SIZES:
        return np.arange(2, largest + 1)
    prompts = np.arange(1.0, min(budget.amount / (budget.prompt_cost + budget.rollout_cost * _MOST_SIZES), _MOST_SIZES) + 1)
    beyond = np.floor((budget.amount / prompts - budget.prompt_cost) / budget.rollout_cost).astype(np.int64)
    spoken = [largest] if present is None else [largest, present]
    return np.union1d(np.arange(2, _MOST_SIZES), np.append(beyond[beyond >= _MOST_SIZES], spoken))


def _shown(size: NDArray[np.integer], best: int, present: int | None) -> NDArray[np.intp]:
    """Which sizes to put on the curve: each small one, a few of the large, and those that the plan speaks of."""
    wanted = [np.arange(2, EVERY_SIZE_UP_TO + 1), [size[best], size[-1]], [] if present is None else [present]]
    if size[-1] > EVERY_SIZE_UP_TO:
        doublings = math.log2(size[-1] / EVERY_SIZE_UP_TO)
        wanted.append(np.geomspace(EVERY_SIZE_UP_TO, size[-1], 2 + int(_STEPS_A_DOUBLING * doublings)).astype(np.int64))
    asked = np.unique(np.concatenate([np.asarray(part, dtype=np.int64) for part in wanted]))
    return np.flatnonzero(np.isin(size, asked))


def _within(size: NDArray[np.integer], error: Float, share: float) -> tuple[int, int]:
    """The smallest and the largest size that cost at most `share` more than the best."""
    near = size[error <= error.min() * (1 + share)]
    return int(near[0]), int(near[-1])


def _unbroken(error: Float, share: float) -> bool:
    """Whether all sizes between those two do."""
    near = np.flatnonzero(error <= error.min() * (1 + share))
    return bool(near[-1] - near[0] + 1 == len(near))


def _curve(size: NDArray[np.integer], error: Float, draws: Float | None, budget: Budget, level: float) -> tuple[CurvePoint, ...]:
    """The points to show, with band and chance to be best where there are draws."""
    prompts = budget.prompts_of(size).astype(int)
    if draws is None:
        return tuple(CurvePoint(int(g), int(b), float(value)) for g, b, value in zip(size, prompts, error, strict=True))
    drawn = error_of(draws, size, budget)
    low, high = np.quantile(drawn, [0.5 - level / 2, 0.5 + level / 2], axis=0)
    chance = np.bincount(drawn.argmin(axis=1), minlength=len(size)) / len(drawn)
    rows = zip(size, prompts, error, low, high, chance, strict=True)
    return tuple(CurvePoint(int(g), int(b), float(value), float(lo), float(hi), float(share)) for g, b, value, lo, hi, share in rows)


def _rivals(size: NDArray[np.integer], budget: Budget) -> NDArray[np.integer]:
    """Sizes that could be best for some components: for each number of prompts only the largest, thinned where there are very many."""
    prompts = budget.prompts_of(size)
    last = np.append(prompts[1:] != prompts[:-1], True)
    rivals = size[last | (size <= EVERY_SIZE_UP_TO)]
    if len(rivals) <= _MOST_RIVALS:
        return rivals
    return rivals[np.unique(np.geomspace(1, len(rivals), _MOST_RIVALS).astype(np.int64)) - 1]


def _best_sizes(
    draws: Float | None, size: NDArray[np.integer], budget: Budget, level: float, components: Components | None
) -> tuple[int, int] | None:
    """The interval of the best size: over the draws, and over what the interval of 1 + sqrt(R/Vp) allows.

    Draws that count negative components as zero pile up at the ends; Fieller's set, which knows no such bound, is the wider one there.
    """
    if draws is None or components is None:
        return None
    rivals = _rivals(size, budget)
    best = rivals[error_of(draws, rivals, budget).argmin(axis=1)]
    low, high = np.quantile(best, [0.5 - level / 2, 0.5 + level / 2], method="inverted_cdf")
    ends = [_best_at(end, components, rivals, budget) for end in (components.group_size.low, components.group_size.high)]
    return int(min(low, *ends)), int(max(high, *ends))


def _best_at(free: float, components: Components, rivals: NDArray[np.integer], budget: Budget) -> int:
    """The best size where it would be `free` with prompts that cost nothing, all else being as estimated."""
    vp, t, r = (float(value) for value in np.maximum(components.estimate_C[:3], 0.0))
    if math.isinf(free):
        vp = 0.0
    elif vp > 0:
        r = (free - 1) ** 2 * vp
    elif free > 1:
        vp = r / (free - 1) ** 2
    values = np.array([vp, t, r])
    return int(rivals[-1] if values.sum() == 0 else rivals[error_of(values, rivals, budget).argmin()])


def _present(
    present: int,
    values: Float,
    best: int,
    best_sizes: tuple[int, int] | None,
    size: NDArray[np.integer],
    budget: Budget,
    gradient_norm2: float | None,
    components: Components | None,
) -> Present:
    """Hold the size in use against the best."""
    error, least = (float(value) for value in error_of(values, np.array([present, best]), budget))
    excess = error / least - 1 if least > 0 else 0.0 if error == 0 else math.inf
    regret = Interval(excess, excess, excess)
    if components is not None and best_sizes is not None and least > 0:
        rivals = _rivals(size, budget)
        plausible = rivals[(rivals >= best_sizes[0]) & (rivals <= best_sizes[1])]
        regret = _regret(present, best, plausible, budget, components)
    prompts = budget.prompts(present)
    lost_gain = None if not gradient_norm2 else 1 - (gradient_norm2 + least) / (gradient_norm2 + error)
    return Present(present, prompts, error, regret, _prompts_saved(values, best, error, budget), lost_gain)


def _prompts_saved(values: Float, best: int, error: float, budget: Budget) -> int:
    """How many prompts fewer than the best plan's reach this error with the best size."""
    vp, t, r = (float(value) for value in values)
    # Without replacement the error is whole/B - shared, with B of P prompts; shared vanishes for an unlimited pool.
    shared = 0.0 if budget.prompt_pool is None else vp / (budget.prompt_pool - 1)
    whole = vp + shared + t / best + r / (best * (best - 1.0))
    if error + shared <= 0:
        return 0
    return budget.prompts(best) - max(1, math.ceil(whole / (error + shared) * (1 - 1e-12)))


def _regret(present: int, best: int, plausible: NDArray[np.integer], budget: Budget, components: Components) -> Interval:
    """The size in use against the best one (lower end), and against each that may be the best (upper end), on the logarithm."""
    values = np.maximum(components.estimate_C[:3], 0.0)
    in_use = weights_of(np.array([present]), budget)[:, 0]
    rivals = np.append(plausible[plausible != present], best)
    weight = weights_of(rivals, budget)
    ratio = (values @ in_use) / (values @ weight)
    contrast = in_use[:, None] / (values @ in_use) - weight / (values @ weight)
    error = np.sqrt(np.maximum(np.einsum("cm,cd,dm->m", contrast, components.covariance_CC[:3, :3], contrast), 0.0))
    # One quantile serves all: rivals that may be best are alike.
    half = contrast_quantile(components.pseudo_PC, contrast[:, -1], components.prompts, components.level) * error
    value = float(ratio[-1]) - 1
    low, high = float(ratio[-1] * np.exp(-half[-1])) - 1, float(np.max(ratio * np.exp(half))) - 1
    return Interval(value, max(0.0, low), max(high, value), components.level)


def _check_present(present: int, budget: Budget) -> None:
    """Refuse a size in use that the budget has no room for."""
    if not 2 <= present <= budget.largest_group:
        raise InvalidArgumentError(
            f"the group size in use has to lie between 2 and {budget.largest_group:,}, which the budget pays for; got {present}"
        )


def _notes(components: Components | None, budget: Budget) -> list[str]:
    """What to know before the plan is followed."""
    notes = []
    if components is not None:
        notes += [estimate.status + "." for estimate in (components.vp, components.t, components.r) if not estimate.distinguishable]
        notes += components.notes
        if components.vp.value <= 0:
            notes.append("Vp was estimated as zero or less and counts as zero: one prompt then seems enough, which no one should follow.")
    if budget.prompt_pool is not None:
        notes.append(f"Prompts are drawn without replacement from {budget.prompt_pool:,}.")
    return notes


_INDIFFERENT = 0.05
_NEVER_MIND = 0.1
_MANY_TIMES = 9.0  # beyond this an excess is told as "times", not in per cent


@dataclass(frozen=True, slots=True)
class Budget:
    """What one optimiser step may cost, and what prompts and rollouts cost.

    Args:
        amount: of one step, in `unit`.
        prompt_cost: of one prompt (prefill), in `unit`.
        rollout_cost: of one rollout (decoding and training), in `unit`.
        unit: rollouts, tokens or seconds.
        prompt_pool: number of different prompts there are, of which a step draws without replacement; None for no limit.

    Example:
        >>> Budget(1024).prompts(8)
        128
    """

    amount: float
    prompt_cost: float = 0.0
    rollout_cost: float = 1.0
    unit: str = "rollouts"
    prompt_pool: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, value, least in (("budget", self.amount, 0.0), ("rollout cost", self.rollout_cost, 0.0)):
            if not (math.isfinite(value) and value > least):
                raise InvalidArgumentError(f"the {name} has to be a positive number; got {value}")
        if not (math.isfinite(self.prompt_cost) and self.prompt_cost >= 0):
            raise InvalidArgumentError(f"the prompt cost has to be zero or a positive number; got {self.prompt_cost}")
        if self.unit not in {"rollouts", "tokens", "seconds"}:
            raise InvalidArgumentError(f"the unit of a budget is rollouts, tokens or seconds; got {self.unit!r}")
        if self.prompt_pool is not None and self.prompt_pool < 2:
            raise InvalidArgumentError(f"a pool of prompts has at least two; got {self.prompt_pool}")
        if self.largest_group < 2:
            least_cost = self.prompt_cost + 2 * self.rollout_cost
            raise InvalidArgumentError(
                f"the budget has to pay for one prompt with two rollouts, {least_cost:g} {self.unit}; got {self.amount:g}: raise it"
            )

    @property
    def largest_group(self) -> int:
        """The largest group that one prompt could have."""
        return int(_whole(np.array((self.amount - self.prompt_cost) / self.rollout_cost)))

    def prompts(self, group_size: int) -> int:
        """Prompts a step with groups of this size."""
        return int(self.prompts_of(np.array([group_size]))[0])

    def prompts_of(self, group_size: NDArray[np.integer]) -> Float:
        """Prompts a step with groups of each of these sizes, as whole numbers."""
        prompts = _whole(self.amount / (self.prompt_cost + self.rollout_cost * group_size))
        return prompts if self.prompt_pool is None else np.minimum(prompts, self.prompt_pool)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One group size."""

    group_size: int  # G
    prompts: int  # B that the budget pays for
    mse: float  # mean squared error of the gradient
    low: float | None = None  # lower end of its band; None without an interval of the components
    high: float | None = None  # upper end
    # share of the components' draws in which no other size is better; None without them
    probability_best: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        known = {"group_size": self.group_size, "prompts": self.prompts, "mse": self.mse}
        extra = {"low": self.low, "high": self.high, "probability_best": self.probability_best}
        return known | {name: value for name, value in extra.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Present:
    """The group size in use, held against the best."""

    group_size: int  # G in use
    prompts: int  # what the same budget pays for with it
    mse: float  # with it
    regret: Interval  # its mean squared error over the best, minus 1, with interval
    prompts_saved: int  # prompts of the best plan that could go before its error is that of this size
    gain_lost: float | None  # share of the guaranteed gain of one step that it forgoes; None where |g|^2 is unknown

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "group_size": self.group_size,
            "prompts": self.prompts,
            "mse": self.mse,
            "regret": self.regret.as_dict(),
            "prompts_saved": self.prompts_saved,
            "gain_lost": self.gain_lost,
        }


@dataclass(frozen=True, slots=True)
class GroupSizePlan:
    """The best use of a budget.

    Args:
        group_size: the best G.
        prompts: the best B.
        mse: mean squared error of the gradient with them.
        budget: what was to be spent.
        curve: error over group size.
        within_2_percent: smallest and largest G that cost at most 2 % more than the best.
        within_10_percent: the same for 10 %.
        every_size_within_10_percent: whether all sizes between those two do; where the budget divides badly, some do not.
        group_size_interval: smallest and largest G that are best for components the data allow; None without data.
        signal_to_noise: |g|^2 over the error of the best plan; None where unknown.
        present: the size in use against the best, or None.
        components: what was estimated, or None where the three numbers were given.
        notes: sentences on what to know before the plan is followed.
    """

    group_size: int
    prompts: int
    mse: float
    budget: Budget
    curve: tuple[CurvePoint, ...]
    within_2_percent: tuple[int, int]
    within_10_percent: tuple[int, int]
    every_size_within_10_percent: bool
    group_size_interval: tuple[int, int] | None
    signal_to_noise: float | None
    present: Present | None
    components: Components | None
    notes: tuple[str, ...]

    @property
    def status(self) -> str:
        """What to do, in words."""
        return " ".join(_sentences(self))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain: dict[str, Any] = {
            "group_size": self.group_size,
            "prompts": self.prompts,
            "mse": self.mse,
            "curve": [point.as_dict() for point in self.curve],
            "within_2_percent": list(self.within_2_percent),
            "within_10_percent": list(self.within_10_percent),
            "every_size_within_10_percent": self.every_size_within_10_percent,
            "budget": {
                "amount": self.budget.amount,
                "unit": self.budget.unit,
                "prompt_cost": self.budget.prompt_cost,
                "rollout_cost": self.budget.rollout_cost,
                "prompt_pool": self.budget.prompt_pool,
            },
            "status": self.status,
            "notes": list(self.notes),
        }
        if self.components is not None:
            plain |= {"components": self.components.as_dict(), "signal_to_noise": finite_or_none(self.signal_to_noise or 0.0)}
        if self.group_size_interval is not None:
            plain["group_size_interval"] = list(self.group_size_interval)
        if self.present is not None:
            plain["present"] = self.present.as_dict()
        return plain


def _sentences(plan: GroupSizePlan) -> list[str]:
    """The plan in words: what is best, how flat it is, what the size in use costs, whether it matters at all."""
    said = [_best_in_words(plan), _flatness_in_words(plan)]
    if plan.group_size_interval is not None and plan.components is not None:
        first, last = plan.group_size_interval
        said.append(f"The data leave the best size between {first} and {last} ({percent(plan.components.level)}).")
    if plan.present is not None:
        said.append(_present_in_words(plan, plan.present))
    if plan.signal_to_noise is not None:
        known = plan.components is None or plan.components.gradient_norm2.distinguishable
        said.append(_signal_in_words(plan.signal_to_noise if known else 0.0))
    return said


def _best_in_words(plan: GroupSizePlan) -> str:
    """What is best."""
    where = "of one prompt" if plan.prompts == 1 else f"of each of {plan.prompts:,} prompts"
    return f"Best for {plan.budget.amount:,.10g} {plan.budget.unit}: {plan.group_size} rollouts {where}."


def _flatness_in_words(plan: GroupSizePlan) -> str:
    """How flat the optimum is. Where floor(N/G) drops a prompt a size in the middle may cost more than those around it."""
    low, high = plan.within_10_percent
    if low == high:
        return "Every other group size costs over 10 % more variance."
    if plan.every_size_within_10_percent:
        return f"Any group size from {low} to {high} costs at most 10 % more variance."
    return (
        f"The group sizes that cost at most 10 % more variance lie between {low} and {high}, but not all between do: "
        "some divide the budget badly."
    )


def _excess(regret: float) -> str:
    """An excess over the best, in per cent or as a multiple."""
    return f"{1 + regret:,.3g} times the variance of" if regret > _MANY_TIMES else f"{percent(regret)} more variance than"


def _range(regret: Interval) -> str:
    """The interval of an excess, in the unit of its value."""
    if regret.value > _MANY_TIMES or regret.high > 10 * _MANY_TIMES:
        return f"{1 + regret.low:,.3g} to {1 + regret.high:,.3g} times"
    return f"{percent(regret.low)} to {percent(regret.high)}"


def _present_in_words(plan: GroupSizePlan, present: Present) -> str:
    """What the group size in use costs beside the best."""
    regret = present.regret
    if present.group_size == plan.group_size:
        return f"The present size, {present.group_size}, is the best one."
    if plan.mse == 0:
        best = f"the best, {plan.group_size}, takes all prompts and leaves none"
        return f"G = {present.group_size} leaves an error of {present.mse:.3g}; {best}."
    cost = f"G = {present.group_size} costs {_excess(regret.value)} the best, {plan.group_size}"
    if regret.bounded and regret.high > regret.low:
        cost += f" ({_range(regret)})"
    # A doubled batch halves the variance: that is what the regret is to be measured by.
    if regret.value <= _INDIFFERENT:
        return cost + "; doubling the batch would cut it by half: do not bother."
    saved = f"the best size reaches the same error with {plan.prompts - present.prompts_saved:,} of its {plan.prompts:,} prompts"
    return cost + f"; {saved}" + ("." if regret.value > _NEVER_MIND else ", little beside the half that doubling the batch would cut.")


def _signal_in_words(signal: float) -> str:
    """Whether the group size matters at this budget."""
    if signal <= 0:
        return "The squared gradient cannot be told from zero: more prompts would tell whether the batch is large enough."
    if math.isinf(signal):
        return "The batch has no error: it takes every prompt of the pool, and nothing is left to chance."
    if signal > 1 / _NEVER_MIND:
        return f"The squared gradient is {signal:.3g} times the batch's error: at this budget the group size no longer matters."
    return f"The batch's error is {1 / signal:.3g} times the squared gradient: the noise still limits each step."


def _whole(ratio: NDArray[np.floating]) -> Float:
    """Round down, but not for a rounding error: 0.3/0.1 is 2.9999999999999996, and a budget that divides evenly loses no prompt to that."""
    whole: Float = np.floor(ratio + np.minimum(ratio * 1e-12, 1e-6)).astype(np.float64)
    return whole
