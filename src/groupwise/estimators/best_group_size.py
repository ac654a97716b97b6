r"""The planner: which group size and how many prompts a budget is best spent on, how flat the
optimum is, and how sure that is.

Minimises $\mathrm{MSE}(G, B) = (V_p + T/G + R/(G(G-1)))/B$ over integers with $B =
\lfloor\text{budget}/(c_p + c_r G)\rfloor$; with estimated components the interval of the best size
comes from draws of them (`GroupSizePlan.group_size_interval`). The gradient is that of
leave-one-out or mean-centred advantages, unclipped and not divided by the group's deviation. It
estimates nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.components import Components
from groupwise.intervals import Interval, percent
from groupwise.plain import Plain, Said

Sizes = NDArray[np.integer]

EVERY_SIZE_UP_TO = 256
"""Every group size up to this one is on the curve; beyond it 16 a factor of two."""

_STEPS_A_DOUBLING = 16
_MOST_SIZES = 2_000_000  # larger groups are not looked at
_MOST_RIVALS = 1000
_DRAWS = 2000
_INDIFFERENT = 0.05
_NEVER_MIND = 0.1
_MANY_TIMES = 9.0  # beyond this an excess is told as "times", not in per cent


@dataclass(frozen=True, slots=True)
class Budget(Plain):
    """What one optimiser step may cost, and what prompts and rollouts cost.

    Args:
        amount: of one step, in `unit`.
        prompt_cost: of one prompt (prefill), in `unit`.
        rollout_cost: of one rollout (decoding and training), in `unit`.
        unit: rollouts, tokens or seconds.
        prompt_pool: number of different prompts there are, of which a step draws without
            replacement; None for no limit.

    Example:
        >>> Budget(1024).prompts(8)
        128
    """

    KEYS: ClassVar = ("amount", "unit", "prompt_cost", "rollout_cost", "prompt_pool")

    amount: float
    prompt_cost: float = 0.0
    rollout_cost: float = 1.0
    unit: str = "rollouts"
    prompt_pool: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, value in (("budget", self.amount), ("rollout cost", self.rollout_cost)):
            if not (math.isfinite(value) and value > 0):
                raise InvalidArgumentError(f"the {name} has to be a positive number; got {value}")
        if not (math.isfinite(self.prompt_cost) and self.prompt_cost >= 0):
            raise InvalidArgumentError(
                f"the prompt cost has to be zero or a positive number; got {self.prompt_cost}"
            )
        if self.unit not in {"rollouts", "tokens", "seconds"}:
            raise InvalidArgumentError(
                f"the unit of a budget is rollouts, tokens or seconds; got {self.unit!r}"
            )
        if self.prompt_pool is not None and self.prompt_pool < 2:
            raise InvalidArgumentError(
                f"a pool of prompts has at least two; got {self.prompt_pool}"
            )
        if self.largest_group < 2:
            least_cost = self.prompt_cost + 2 * self.rollout_cost
            raise InvalidArgumentError(
                f"the budget has to pay for one prompt with two rollouts, {least_cost:g} "
                f"{self.unit}; got {self.amount:g}: raise it"
            )

    @property
    def largest_group(self) -> int:
        """The largest group that one prompt could have."""
        return int(_whole(np.array((self.amount - self.prompt_cost) / self.rollout_cost)))

    def prompts(self, group_size: int) -> int:
        """Prompts a step with groups of this size."""
        return int(self.prompts_of(np.array([group_size]))[0])

    def prompts_of(self, group_size: Sizes) -> Float:
        """Prompts a step with groups of each of these sizes, as whole numbers."""
        prompts = _whole(self.amount / (self.prompt_cost + self.rollout_cost * group_size))
        return prompts if self.prompt_pool is None else np.minimum(prompts, self.prompt_pool)


@dataclass(frozen=True, slots=True)
class CurvePoint(Plain):
    """One group size."""

    group_size: int  # G
    prompts: int  # B that the budget pays for
    mse: float  # mean squared error of the gradient
    low: float | None = None  # lower end of its band; None without an interval of the components
    high: float | None = None  # upper end
    # share of the components' draws in which no other size is better; None without them, or where
    # no best size can be told
    probability_best: float | None = None
    expected_regret: float | None = (
        None  # mean excess over the best over the draws, where no best size can be told; else None
    )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, of what is known."""
        return {key: value for key, value in Plain.as_dict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Present(Plain):
    """The group size in use, held against the best."""

    group_size: int  # G in use
    prompts: int  # what the same budget pays for with it
    mse: float  # with it
    regret: Interval  # its mean squared error over the best, minus 1, with interval
    prompts_saved: (
        int  # prompts of the best plan that could go before its error is that of this size
    )
    gain_lost: (
        float | None
    )  # share of the guaranteed gain of one step that it forgoes; None where |g|^2 is unknown


@dataclass(frozen=True, slots=True, repr=False)
class GroupSizePlan(Said):
    """The best use of a budget.

    Args:
        group_size: the best G.
        prompts: the best B.
        mse: mean squared error of the gradient with them.
        budget: what was to be spent.
        curve: error over group size.
        within_2_percent: smallest and largest G that cost at most 2 % more than the best.
        within_10_percent: the same for 10 %.
        every_size_within_10_percent: whether all sizes between those two do; where the budget
            divides badly, some do not.
        group_size_interval: smallest and largest G that are best for components the data allow;
            None without data.
        signal_to_noise: |g|^2 over the error of the best plan; None where unknown.
        present: the size in use against the best, or None.
        components: what was estimated, or None where the three numbers were given.
        notes: sentences on what to know before the plan is followed.
        expected_regret: where Vp cannot be told from zero and more than one size may be the best
            none is; then `group_size` has the smallest excess over the best, on average over what
            the data allow, and this is that excess. Else None.
    """

    KEYS: ClassVar = (
        *(
            "group_size",
            "prompts",
            "mse",
            "curve",
            "within_2_percent",
            "within_10_percent",
            "every_size_within_10_percent",
        ),
        *(
            "budget",
            "status",
            "notes",
            "components",
            "signal_to_noise",
            "group_size_interval",
            "present",
            "expected_regret",
        ),
    )

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
    expected_regret: float | None = None

    def __str__(self) -> str:
        """The best size, in a sentence."""
        return self.status

    @property
    def status(self) -> str:
        """What to do, in words: what is best, how flat it is, what the size in use costs,
        whether it matters at all.
        """
        return " ".join(_sentences(self))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what rests on data only where there are any."""
        known = Plain.as_dict(self)
        if self.components is None:
            del known["components"], known["signal_to_noise"]
        return {
            key: value
            for key, value in known.items()
            if value is not None or key not in {"group_size_interval", "present", "expected_regret"}
        }


def plan_group_size(
    vp: float,
    t: float,
    r: float,
    budget: Budget,
    *,
    present: int | None = None,
    gradient_norm2: float | None = None,
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
        InvalidArgumentError: a component that is negative or not finite, or a group size below 2 or
            beyond the budget.

    Example:
        >>> plan_group_size(1.0, 0.0, 49.0, Budget(1024)).group_size
        8

    Source: the exact error is derived here; arXiv 2603.01162, Theorem 7, has its form with an
    unknown c3.
    """
    values = np.array([vp, t, r], dtype=np.float64)
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        raise InvalidArgumentError(
            f"the components Vp, T and R have to be zero or positive, and not all zero; got {vp}, "
            f"{t}, {r}"
        )
    return _plan(_Question(values, budget, present, gradient_norm2))


def plan_from_components(
    components: Components,
    budget: Budget,
    *,
    present: int | None = None,
    rng: np.random.Generator | None = None,
    draws: int = _DRAWS,
) -> GroupSizePlan:
    r"""Best integer group size and number of prompts from estimated components, with what their
    uncertainty does to the answer.

    Prompts are drawn anew (bootstrap of the jackknife's pseudo-values; a normal law where only sums
    were kept); each draw has its own curve, best size and regret. A component that comes out
    negative counts as zero, and the plan says so. Where the interval of Vp reaches zero no size is
    recommended: the one told has the smallest excess over the best on average over the draws.

    Args:
        components: as estimated.
        budget: of one step.
        present: the group size in use.
        rng: of the draws; a fixed seed where None, so that one file gives one answer.
        draws: how many.

    Returns:
        The plan, with bands.

    Raises:
        InvalidArgumentError: the errors of `plan_group_size`, or all components are negative.

    Example:
        >>> from groupwise.estimators.components import components
        >>> rng = np.random.default_rng(1)
        >>> score, reward = rng.normal(size=(512, 4)), rng.integers(2, size=512)
        >>> found = components(reward, np.repeat(np.arange(64), 8), score_ND=score)
        >>> plan_from_components(found, Budget(1024), present=8).present.regret.low >= 0
        True
    """
    if not components.positive_vtr.any():
        raise InvalidArgumentError(
            "expected a component above zero, got none: every group had rewards without variance, "
            "or there were far too few groups; measure more prompts"
        )
    drawn = _drawn_components(components, np.random.default_rng(0) if rng is None else rng, draws)
    norm2 = max(components.gradient_norm2.value, 0.0)
    return _plan(_Question(components.positive_vtr, budget, present, norm2, components, drawn))


def error_of(values: Float, size: Sizes, budget: Budget) -> Float:
    """Return the mean squared error of the gradient at each group size, for one set of Vp, T and
    R or for many.
    """
    error: Float = values @ weights_of(size, budget)
    return error


def weights_of(size: Sizes, budget: Budget) -> Float:
    """Return what each of Vp, T and R counts in the error at each group size: 1/B, 1/(BG) and
    1/(BG(G-1)).
    """
    prompts = budget.prompts_of(size)
    between = 1 / prompts
    if budget.prompt_pool is not None:
        between = (budget.prompt_pool - prompts) / (prompts * (budget.prompt_pool - 1))
    return np.stack([between, 1 / (prompts * size), 1 / (prompts * size * (size - 1.0))])


@dataclass(frozen=True, slots=True)
class _Question:
    """What is to be planned, and from what."""

    values: Float  # Vp, T and R
    budget: Budget
    present: int | None
    gradient_norm2: float | None
    components: Components | None = None
    draws: Float | None = None  # of Vp, T and R, one a row

    @property
    def level(self) -> float:
        """Coverage of the intervals."""
        return 0.95 if self.components is None else self.components.level

    def error(self, size: Sizes) -> Float:
        """The error at these sizes."""
        return error_of(self.values, size, self.budget)


def _drawn_components(components: Components, rng: np.random.Generator, draws: int) -> Float | None:
    """Draws of (Vp, T, R), negative ones set to zero, or None where too few prompts allow none."""
    if components.prompts < 3:
        return None
    pseudo = components.pseudo_PC
    if pseudo is None:
        drawn = rng.multivariate_normal(
            components.vtr, components.vtr_covariance, size=draws, method="eigh"
        )
    else:
        weight = rng.multinomial(
            len(pseudo), np.full(len(pseudo), 1 / len(pseudo)), size=draws
        ) / len(pseudo)
        drawn = weight @ pseudo[:, : len(components.vtr)]
    if "vp" in components.left_open:  # anything from 0 to R/2, above which no policy lies
        drawn[:, 0] = rng.random(len(drawn)) * drawn[:, 2] / 2
    positive: Float = np.maximum(drawn, 0.0)
    # A draw of nothing but zeros has no best size.
    some: Float = positive[positive.sum(axis=1) > 0]
    return some


def _plan(question: _Question) -> GroupSizePlan:
    """The plan from three numbers, and draws of them where there are any."""
    budget, present = question.budget, question.present
    most = min(budget.largest_group, _MOST_SIZES)
    if present is not None and not 2 <= present <= most:
        raise InvalidArgumentError(
            f"the group size in use has to lie between 2 and {most:,}, which the budget pays for; "
            f"got {present}"
        )
    size = np.arange(2, most + 1)
    error = question.error(size)
    rivals = _rivals(size, budget)
    interval = _group_size_interval(question, rivals)
    undecided = (
        None
        if interval is not None and interval[0] == interval[1]
        else _undecided(question, rivals)
    )
    place = int(np.argmin(error)) if undecided is None else int(np.searchsorted(size, undecided[0]))
    best, least = int(size[place]), float(error[place])
    shown = _shown(size, place, present)
    plausible = (
        () if interval is None else rivals[(rivals >= interval[0]) & (rivals <= interval[1])]
    )
    within_10, every_size = _within(size, error, 0.10)
    signal = None
    if question.gradient_norm2 is not None:
        signal = float(question.gradient_norm2 / least) if least > 0 else math.inf
    return GroupSizePlan(
        group_size=best,
        prompts=budget.prompts(best),
        mse=least,
        budget=budget,
        curve=_curve(question, size[shown], error[shown], None if undecided is None else rivals),
        within_2_percent=_within(size, error, 0.02)[0],
        within_10_percent=within_10,
        every_size_within_10_percent=every_size,
        group_size_interval=interval,
        signal_to_noise=signal,
        present=None
        if present is None
        else _present(question, present, best, plausible, None if undecided is None else rivals),
        components=question.components,
        notes=tuple(_notes(question.components, budget)),
        expected_regret=None if undecided is None else undecided[1],
    )


def _undecided(question: _Question, rivals: Sizes) -> tuple[int, float] | None:
    """The size with the smallest mean regret over the draws, and that regret; None where Vp is
    above zero, or without draws.

    Of four rules this one stays closest to the truth over worlds with and without differences
    between prompts (lab/experiments/gradient/open_plans.py): the estimates alone put everything on
    one prompt where Vp comes out below zero.
    """
    if (
        question.components is None
        or question.draws is None
        or question.components.vp.distinguishable
        or not len(question.draws)
    ):
        return None
    mean = _regrets(question.draws, rivals, question.budget).mean(axis=0)
    return (int(rivals[mean.argmin()]), float(mean.min())) if np.isfinite(mean).any() else None


def _regrets(draws: Float, size: Sizes, budget: Budget) -> Float:
    """The excess over the best of these sizes at each of them, one row a draw."""
    error = error_of(draws, size, budget)
    least = error.min(axis=1, keepdims=True)
    return np.asarray(
        np.divide(error, least, out=np.where(error > 0, np.inf, 1.0), where=least > 0) - 1
    )


def _shown(size: Sizes, best: int, present: int | None) -> NDArray[np.intp]:
    """Which sizes to put on the curve: each small one, a few of the large, and those that the
    plan speaks of.
    """
    wanted = [
        np.arange(2, EVERY_SIZE_UP_TO + 1),
        [size[best], size[-1]],
        [] if present is None else [present],
    ]
    if size[-1] > EVERY_SIZE_UP_TO:
        doublings = math.log2(size[-1] / EVERY_SIZE_UP_TO)
        wanted.append(
            np.geomspace(EVERY_SIZE_UP_TO, size[-1], 2 + int(_STEPS_A_DOUBLING * doublings)).astype(
                np.int64
            )
        )
    asked = np.unique(np.concatenate([np.asarray(part, dtype=np.int64) for part in wanted]))
    return np.flatnonzero(np.isin(size, asked))


def _within(size: Sizes, error: Float, share: float) -> tuple[tuple[int, int], bool]:
    """The smallest and the largest size that cost at most `share` more than the best, and
    whether all between do.
    """
    near = np.flatnonzero(error <= error.min() * (1 + share))
    return (int(size[near[0]]), int(size[near[-1]])), bool(near[-1] - near[0] + 1 == len(near))


def _curve(
    question: _Question, size: Sizes, error: Float, open_to: Sizes | None
) -> tuple[CurvePoint, ...]:
    """The points to show, with a band where there are draws, and the chance to be best, or the mean
    excess where none can be told.

    Draws pile up at Vp = 0: there most of them agree on a size that the interval of Vp does not
    single out.
    """
    columns = [size.tolist(), question.budget.prompts_of(size).astype(int).tolist(), error.tolist()]
    if question.draws is not None:
        drawn = error_of(question.draws, size, question.budget)
        low, high = np.quantile(drawn, [0.5 - question.level / 2, 0.5 + question.level / 2], axis=0)
        columns += [low.tolist(), high.tolist()]
        if open_to is None:
            columns.append(
                (np.bincount(drawn.argmin(axis=1), minlength=len(size)) / len(drawn)).tolist()
            )
        else:
            regret = _regrets(question.draws, np.append(open_to, size), question.budget)[
                :, len(open_to) :
            ].mean(axis=0)
            columns += [[None] * len(size), regret.tolist()]
    return tuple(CurvePoint(*row) for row in zip(*columns, strict=True))


def _rivals(size: Sizes, budget: Budget) -> Sizes:
    """Sizes that could be best for some components: for each number of prompts only the largest,
    thinned where there are very many.
    """
    prompts = budget.prompts_of(size)
    last = np.append(prompts[1:] != prompts[:-1], True)
    rivals = size[last | (size <= EVERY_SIZE_UP_TO)]
    if len(rivals) <= _MOST_RIVALS:
        return rivals
    return rivals[np.unique(np.geomspace(1, len(rivals), _MOST_RIVALS).astype(np.int64)) - 1]


def _group_size_interval(question: _Question, rivals: Sizes) -> tuple[int, int] | None:
    """The interval of the best size: over the draws, and over what the interval of 1 + sqrt(R/Vp)
    allows.

    Draws that count negative components as zero pile up at the ends; Fieller's set, which knows no
    such bound, is the wider one there.
    """
    if question.draws is None or question.components is None:
        return None
    best = rivals[error_of(question.draws, rivals, question.budget).argmin(axis=1)]
    low, high = np.quantile(
        best, [0.5 - question.level / 2, 0.5 + question.level / 2], method="inverted_cdf"
    )
    free = question.components.group_size
    ends = [_best_at(end, question, rivals) for end in (free.low, free.high)]
    return int(min(low, *ends)), int(max(high, *ends))


def _best_at(free: float, question: _Question, rivals: Sizes) -> int:
    """The best size where it would be `free` with prompts that cost nothing, all else being as
    estimated.
    """
    vp, t, r = question.values.tolist()
    if math.isinf(free):
        vp = 0.0
    elif vp > 0:
        r = (free - 1) ** 2 * vp
    elif free > 1:
        vp = r / (free - 1) ** 2
    values = np.array([vp, t, r])
    place = error_of(values, rivals, question.budget).argmin() if values.any() else -1
    return int(rivals[place])


def _present(
    question: _Question, present: int, best: int, plausible: ArrayLike, open_to: Sizes | None
) -> Present:
    """Hold the size in use against the best, and against the sizes that the interval of the best
    leaves, or against all where none is.
    """
    error, least = question.error(np.array([present, best])).tolist()
    excess = error / least - 1 if least > 0 else 0.0 if error == 0 else math.inf
    regret = Interval(excess, excess, excess)
    if open_to is not None and question.draws is not None:
        regrets = _regrets(question.draws, np.append(open_to, present), question.budget)[:, -1]
        low, high = np.quantile(regrets, [0.5 - question.level / 2, 0.5 + question.level / 2])
        regret = Interval(float(regrets.mean()), float(low), float(high), question.level)
    elif question.components is not None and np.size(plausible) and least > 0:
        others = np.asarray(plausible)
        regret = _regret(
            question.components,
            present,
            np.append(others[others != present], best),
            question.budget,
        )
        if others.min() <= present <= others.max():  # what may be the best size may cost nothing
            regret = replace(regret, low=0.0)
    norm2 = question.gradient_norm2
    lost_gain = None if not norm2 else 1 - (norm2 + least) / (norm2 + error)
    return Present(
        present,
        question.budget.prompts(present),
        error,
        regret,
        _prompts_saved(question, best, error),
        lost_gain,
    )


def _prompts_saved(question: _Question, best: int, error: float) -> int:
    """How many prompts fewer than the best plan's reach this error with the best size."""
    vp, t, r = question.values.tolist()
    # Without replacement the error is whole/B - shared, with B of P prompts; shared vanishes for an
    # unlimited pool.
    pool = question.budget.prompt_pool
    shared = 0.0 if pool is None else vp / (pool - 1)
    whole = float(vp + shared + t / best + r / (best * (best - 1.0)))
    if error + shared <= 0:
        return 0
    return question.budget.prompts(best) - max(1, math.ceil(whole / (error + shared) * (1 - 1e-12)))


def _regret(components: Components, present: int, rivals: Sizes, budget: Budget) -> Interval:
    """The size in use against the best one, the last of the rivals (lower end), and against each
    (upper end), on the logarithm.
    """
    ratio, contrast, error = log_ratio(components, np.array([present]), rivals, budget)
    # One quantile serves all: rivals that may be best are alike.
    half = components.quantile(contrast[:, -1]) * error
    value = float(ratio[-1]) - 1
    low, high = float(ratio[-1] * np.exp(-half[-1])) - 1, float(np.max(ratio * np.exp(half))) - 1
    return Interval(value, max(0.0, low), max(high, value), components.level)


def log_ratio(
    components: Components, size: Sizes, other: Sizes, budget: Budget
) -> tuple[Float, Float, Float]:
    """Return the error at some sizes over that at others, the weights of Vp, T and R in its
    logarithm, and that one's standard error.
    """
    weight, reference = weights_of(size, budget), weights_of(other, budget)
    error, least = components.positive_vtr @ weight, components.positive_vtr @ reference
    contrast = weight / error - reference / least
    variance = np.einsum("cm,cd,dm->m", contrast, components.vtr_covariance, contrast)
    return error / least, contrast, np.sqrt(np.maximum(variance, 0.0))


def _notes(components: Components | None, budget: Budget) -> Iterator[str]:
    """What to know before the plan is followed."""
    if components is not None:
        yield from (
            f"{estimate.status}."
            for estimate in (components.vp, components.t, components.r)
            if not estimate.distinguishable
        )
        yield from components.notes
        yield (
            "The best size is that of one update of the policy that was measured: measure again "
            "once its rewards have moved."
        )
    if budget.prompt_pool is not None:
        yield f"Prompts are drawn without replacement from {budget.prompt_pool:,}."


def _sentences(plan: GroupSizePlan) -> Iterator[str]:
    """The plan in words."""
    where = "of one prompt" if plan.prompts == 1 else f"of each of {plan.prompts:,} prompts"
    if plan.expected_regret is not None:
        yield from _undecided_in_words(plan, where, plan.expected_regret)
        return
    yield (
        f"Best for {plan.budget.amount:,.10g} {plan.budget.unit}: {plan.group_size} rollouts "
        f"{where}."
    )
    yield _flatness_in_words(plan)
    if plan.group_size_interval is not None and plan.components is not None:
        first, last = plan.group_size_interval
        left = f"the best size between {first} and {last}" if first < last else "no other size"
        yield f"The data leave {left} ({percent(plan.components.level)})."
    if plan.present is not None:
        yield _present_in_words(plan, plan.present)
    if plan.signal_to_noise is not None:
        known = plan.components is None or plan.components.gradient_norm2.distinguishable
        yield _signal_in_words(plan.signal_to_noise if known else 0.0)


def _undecided_in_words(plan: GroupSizePlan, where: str, regret: float) -> Iterator[str]:
    """What is open where Vp cannot be told from zero, and what is the least to be regretted."""
    assert plan.components is not None
    yield (
        "No best size can be told: Vp, the variance between prompts, cannot be told from zero "
        f"with {plan.components.prompts:,} prompts."
    )
    span = ""
    if plan.group_size_interval is not None:
        first, last = plan.group_size_interval
        span = (
            f"; the best may lie anywhere from {first:,} to {last:,} "
            f"({percent(plan.components.level)})"
        )
    yield (
        f"Of {plan.budget.amount:,.10g} {plan.budget.unit} the smallest expected regret, "
        f"{percent(regret)} more variance than the best, has {plan.group_size} rollouts "
        f"{where}{span}."
    )
    if plan.present is not None and plan.present.group_size != plan.group_size:
        yield f"G = {plan.present.group_size} in use has {percent(plan.present.regret.value)}."


def _flatness_in_words(plan: GroupSizePlan) -> str:
    """How flat the optimum is.

    Where floor(N/G) drops a prompt a size in the middle may cost more than those around it.
    """
    low, high = plan.within_10_percent
    if low == high:
        return "Every other group size costs over 10 % more variance."
    if plan.every_size_within_10_percent:
        return f"Any group size from {low} to {high} costs at most 10 % more variance."
    return (
        f"The group sizes that cost at most 10 % more variance lie between {low} and {high}, but "
        "not all between do: some divide the budget badly."
    )


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
    if not present.prompts_saved:
        return cost + "."
    saved = (
        f"the best size reaches the same error with {plan.prompts - present.prompts_saved:,} of "
        f"its {plan.prompts:,} prompts"
    )
    return (
        cost
        + f"; {saved}"
        + (
            "."
            if regret.value > _NEVER_MIND
            else ", little beside the half that doubling the batch would cut."
        )
    )


def _excess(regret: float) -> str:
    """An excess over the best, in per cent or as a multiple."""
    return (
        f"{1 + regret:,.3g} times the variance of"
        if regret > _MANY_TIMES
        else f"{percent(regret)} more variance than"
    )


def _range(regret: Interval) -> str:
    """The interval of an excess, in the unit of its value."""
    if regret.value > _MANY_TIMES or regret.high > 10 * _MANY_TIMES:
        return f"{1 + regret.low:,.3g} to {1 + regret.high:,.3g} times"
    return f"{percent(regret.low)} to {percent(regret.high)}"


def _signal_in_words(signal: float) -> str:
    """Whether the group size matters at this budget."""
    if signal <= 0:
        return (
            "The squared gradient cannot be told from zero: more prompts would tell whether the "
            "batch is large enough."
        )
    if math.isinf(signal):
        return (
            "The batch has no error: it takes every prompt of the pool, and nothing is left to "
            "chance."
        )
    if signal > 1 / _NEVER_MIND:
        return (
            f"The squared gradient is {signal:.3g} times the batch's error: at this budget the "
            "group size no longer matters."
        )
    return (
        f"The batch's error is {1 / signal:.3g} times the squared gradient: the noise still limits "
        "each step."
    )


def _whole(ratio: NDArray[np.floating]) -> Float:
    """Round down, but not for a rounding error: 0.3/0.1 is 2.9999999999999996, and a budget that
    divides evenly loses no prompt to that.
    """
    whole: Float = np.floor(ratio + np.minimum(ratio * 1e-12, 1e-6)).astype(np.float64)
    return whole
