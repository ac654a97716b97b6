r"""The planner: the group size that no course of a run can make bad, the price of the one in use,
and what more rollouts a step bring.

With N rollouts the squared length of a gradient estimate is $E(G) = |g|^2 + \mathrm{MSE}(G, B)$
with $\mathrm{MSE} = (V_p + T/G + R/(G(G-1)))/B$. $V_p$ rises as a run goes on, and never above
$R/2 - |g|^2$ (docs/theory/plan.md); so the safe size is that of the least worst excess of error
over all of them. It estimates nothing, and foresees the best size of no run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float, of_numbers
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.components import QUANTITIES, Components
from groupwise.files import table_rows
from groupwise.intervals import Interval, mean_interval, percent
from groupwise.plain import Plain, Said, Words, frozen
from groupwise.wording import count, number, share_ranged

Sizes = NDArray[np.integer]

EVERY_SIZE_UP_TO = 256
"""Every group size up to this one is compared; beyond it 16 a factor of two."""

_STEPS_A_DOUBLING = 16
_LARGEST = 2_000_000
_DRAWS = 2000
_AS_SAFE = 0.10  # excess of error beyond the least that is no reason for a smaller group
_SURE = 0.15  # excess above which no single size is named
_DRAWN = QUANTITIES.index("gradient_norm2") + 1
_SIMULATED = tuple(table_rows("estimators/price_of_group_size.tsv"))


@frozen
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
                f"a pool of prompts needs at least two prompts; got {self.prompt_pool}"
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

    def left(self, group_size: int) -> str:
        """What groups of this size leave over, in words; "" for nothing."""
        rest = self.amount - self.spent(np.array([group_size]))[0]
        return "" if np.isclose(rest, 0) else f", with {rest:,.3g} left over"

    def spent(self, group_size: Sizes) -> Float:
        """What a step with groups of each of these sizes costs."""
        return self.prompts_of(group_size) * (self.prompt_cost + self.rollout_cost * group_size)


@frozen
class CurvePoint(Plain):
    """One group size."""

    group_size: int  # G
    prompts: int  # B that the budget pays for
    mse: float  # mean squared error of the gradient, at the components as they are
    excess: float  # largest excess over the best size, over all that Vp may come to


@frozen
class Present(Plain):
    """The group size in use, and its price beside the safe one: shares of the speed of an update
    that it loses; below 0 it is faster.
    """

    group_size: int  # G in use
    prompts: int  # what the same budget pays for with it
    mse: float  # with it
    now: Interval  # with the components as they are
    at_most: float  # whatever Vp comes to, at a small learning rate
    simulated: Interval  # what simulated runs lost that looked alike: median, 5 to 95 %
    rate_factor: float  # of the learning rate where the safe size takes its place


@frozen
class GroupSizePlan(Said):
    """A use of a budget that no course of the run makes bad.

    Args:
        group_size: the safe G.
        prompts: B with it.
        mse: mean squared error of the gradient with them.
        excess: its largest excess of error over the best size, over all that Vp may come to.
        safe_sizes: smallest and largest G of about the least excess.
        critical: rollouts a step at which noise equals signal, $N_c$; None where |g|^2 is unknown.
        speed: of an update over one without noise, $N/(N + N_c)$; None likewise.
        doubled: speed of an update with twice the rollouts over that with these; None likewise.
        rate_factor: of the learning rate at twice the rollouts; None likewise.
        present: the size in use and its price, or None.
        curve: error and excess over group size.
        budget: what was to be spent.
        components: what was estimated, or None where the numbers were given.
        notes: sentences on what to know before the plan is followed.
    """

    group_size: int
    prompts: int
    mse: float
    excess: float
    safe_sizes: tuple[int, int]
    critical: Interval | None
    speed: Interval | None
    doubled: float | None
    rate_factor: float | None
    present: Present | None
    curve: tuple[CurvePoint, ...]
    budget: Budget
    components: Components | None
    notes: Words

    MORE = "status"

    def __str__(self) -> str:
        """The safe size, in a sentence."""
        return self.status

    @property
    def status(self) -> str:
        """What is safe, what the size in use costs, and what more rollouts bring, in words."""
        return " ".join(_sentences(self))

    @property
    def named(self) -> bool:
        """Whether the size is within 15 % of the best, however the run goes on."""
        return self.excess <= _SURE

    @property
    def shown_sizes(self) -> list[int]:
        """The group sizes that a short table shows: powers of two, and those it speaks of."""
        spoken = {self.group_size, *self.safe_sizes}
        spoken |= {self.present.group_size} if self.present else set()
        powers = {2**k for k in range(1, max(64, 8 * self.group_size).bit_length())}
        return sorted((spoken | powers) & {point.group_size for point in self.curve})

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, of what is known."""
        return {key: value for key, value in Plain.as_dict(self).items() if value is not None}


@of_numbers("plan(RUN) plans for a run")
def plan_group_size(
    vp: float,
    t: float,
    r: float,
    budget: Budget,
    *,
    present: int | None = None,
    gradient_norm2: float | None = None,
) -> GroupSizePlan:
    r"""Safe group size and number of prompts for given variance components.

    Args:
        vp: variance of the gradient between prompts, E|g(X) - g|^2, at least 0.
        t: E T_o(X), at least 0.
        r: E R(X), at least 0; not all three zero.
        budget: of one step.
        present: the group size in use, to be priced.
        gradient_norm2: |g|^2, where known: tells what more rollouts bring.

    Returns:
        The plan.

    Raises:
        InvalidArgumentError: a component that is negative or not finite, or a group size below 2 or
            beyond the budget.

    Example:
        >>> from groupwise import Budget, plan_group_size
        >>> plan_group_size(0.0, 108.13, 136.422, Budget(64)).group_size
        4

    Source: derived here (docs/theory/plan.md).
    """
    values = np.array([vp, t, r, gradient_norm2 or 0.0], dtype=float)
    if not (np.isfinite(values).all() and (values >= 0).all() and values[:3].sum() > 0):
        raise InvalidArgumentError(
            "expected Vp, T, R and gradient_norm2 of zero or more, and one of the first three "
            f"above zero, got {vp}, {t}, {r} and {gradient_norm2}"
        )
    norm2 = (
        None if gradient_norm2 is None else Interval(gradient_norm2, gradient_norm2, gradient_norm2)
    )
    return _plan(_PlanQuestion(values, vp, budget, present, norm2))


def plan_from_components(
    components: Components,
    budget: Budget,
    *,
    present: int | None = None,
) -> GroupSizePlan:
    r"""Safe group size and number of prompts from estimated components, with what their
    uncertainty does to the price of the size in use.

    Vp counts from the lower end of its interval to $R/2 - |g|^2$. The price's interval is the hull
    of two: prompts are drawn anew (bootstrap of the jackknife's pseudo-values), and left out one by
    one (their price's pseudo-values, corrected for skewness); its upper part is up to half as long
    again for what a sample may hide.

    Args:
        components: as estimated.
        budget: of one step.
        present: the group size in use.

    Returns:
        The plan, with intervals.

    Raises:
        InvalidArgumentError: the errors of `plan_group_size`.
        InsufficientDataError: T or R cannot be told from zero.

    Example:
        >>> from groupwise.estimators.components import components
        >>> rng = np.random.default_rng(1)
        >>> score, reward = rng.normal(size=(512, 4)), rng.integers(2, size=512)
        >>> measured = components(reward, np.repeat(np.arange(64), 8), score_ND=score)
        >>> plan_from_components(measured, Budget(1024), present=64).present.at_most > 0
        True
    """
    for estimate in (components.t, components.r):
        if not estimate.distinguishable:
            raise InsufficientDataError(
                f"expected T and R above zero, got a value that {components.prompts:,} prompts "
                "cannot separate from zero: measure more prompts"
            )
    norm2 = components.gradient_norm2
    return _plan(
        _PlanQuestion(
            np.append(components.positive_vtr, max(norm2.value, 0.0)),
            max(components.vp.interval.low, 0.0),
            budget,
            present,
            norm2.interval,
            components,
        )
    )


def error_of(values: Float, size: Sizes, budget: Budget) -> Float:
    """Return the mean squared error of the gradient at each group size, for one set of Vp, T and
    R or for many.
    """
    return np.asarray(values @ component_weights(size, budget))


def component_weights(size: Sizes, budget: Budget) -> Float:
    """Return what each of Vp, T and R counts in the error at each group size: 1/B, 1/(BG) and
    1/(BG(G-1)).
    """
    prompts = budget.prompts_of(size)
    between = 1 / prompts
    if budget.prompt_pool is not None:
        between = (budget.prompt_pool - prompts) / (prompts * (budget.prompt_pool - 1))
    return np.stack([between, 1 / (prompts * size), 1 / (prompts * size * (size - 1.0))])


def ceiling(r: float, gradient_norm2: float = 0.0) -> float:
    r"""Return the largest Vp of any policy, prompts and reward: $R/2 - |g|^2$."""
    return max(r / 2 - gradient_norm2, 0.0)


def worst_excess(
    low: float, t: float, r: float, size: Sizes, budget: Budget, *, gradient_norm2: float = 0.0
) -> Float:
    """Return the largest excess of each size's error over the least, over all Vp from `low` to
    its ceiling: the two ends suffice, as a line over a concave function is quasi-convex.
    """
    low = max(low, 0.0)
    ends = low, max(ceiling(r, gradient_norm2), low)
    error = error_of(np.array([[vp, t, r] for vp in ends]), size, budget)
    least = error.min(axis=1, keepdims=True)
    ratio = np.divide(error, least, out=np.where(error > 0, np.inf, 1.0), where=least > 0)
    return np.asarray(ratio.max(axis=0) - 1)


def safe_sizes(excess: Float, size: Sizes, *, tie: float = _AS_SAFE) -> Sizes:
    """Return the sizes whose worst excess is within `tie` of the least; the largest is taken."""
    return np.asarray(size[excess <= excess.min() + tie])


def speed_lost(error: Float, reference: Float, gradient_norm2: Float | float = 0.0) -> Float:
    """Return the share of an update's speed that one error loses beside another, with Adam at a
    small learning rate; 0 where neither has noise or signal.
    """
    own = gradient_norm2 + error
    ratio = np.divide(gradient_norm2 + reference, own, out=np.ones_like(own), where=own > 0)
    return 1 - np.sqrt(ratio)


def rate_factor(old: float, new: float) -> float:
    """Return the factor of the learning rate as the squared length of the estimate changes."""
    return math.sqrt(old / new) if new > 0 else 1.0


@frozen
class _PlanQuestion:
    """What is to be planned, and from what."""

    values: Float  # Vp, T, R and |g|^2
    low: float  # lower end of Vp
    budget: Budget
    present: int | None
    norm2: Interval | None  # |g|^2
    components: Components | None = None

    @property
    def surely(self) -> float:
        """The lower end of |g|^2."""
        return max(self.norm2.low, 0.0) if self.norm2 else 0.0


def _sizes(budget: Budget, present: int | None) -> Sizes:
    """The sizes to compare: those that leave two prompts, or all where the budget pays for one."""
    most = min(budget.largest_group, _LARGEST)
    if present is not None and not 2 <= present <= most:
        raise InvalidArgumentError(
            f"the group size in use has to lie between 2 and {most:,}, which the budget pays for; "
            f"got {present}"
        )
    several = np.arange(2, most + 1)
    several = several[budget.prompts_of(several) >= 2]
    most = int(several[-1]) if len(several) else most
    doublings = max(math.log2(most / EVERY_SIZE_UP_TO), 0.0)
    large = np.geomspace(EVERY_SIZE_UP_TO, most, 2 + int(_STEPS_A_DOUBLING * doublings))
    every = np.append(np.arange(2, EVERY_SIZE_UP_TO + 1), large.round().astype(np.int64))
    return np.unique(every[every <= most])


def _plan(question: _PlanQuestion) -> GroupSizePlan:
    """The plan from the components, and draws of them where there are any."""
    budget = question.budget
    if not isinstance(budget, Budget):
        raise InvalidArgumentError(f"expected a budget, got {budget!r:.60}: write Budget(64)")
    size = _sizes(budget, question.present)
    _, t, r, norm2 = question.values.tolist()
    error = error_of(question.values[:3], size, budget)
    excess = worst_excess(question.low, t, r, size, budget, gradient_norm2=question.surely)
    safe = safe_sizes(excess, size)
    # What uses the budget up comes before what leaves a rest.
    even = safe[np.isclose(budget.spent(safe), budget.amount)]
    chosen = int((even if len(even) else safe)[-1])
    place = int(np.searchsorted(size, chosen))
    least = float(error[place])
    critical, speed, doubled, factor = None, None, None, None
    if question.norm2:
        rollouts = float(chosen * budget.prompts(chosen))
        value, low, high = (
            rollouts * least / end if end > 0 else math.inf
            for end in (question.norm2.value, question.norm2.high, question.norm2.low)
        )
        critical = Interval(value, low, high, question.norm2.level)
        value, slow, fast = (rollouts / (rollouts + end) for end in (value, high, low))
        speed = Interval(value, slow, fast, critical.level)
        doubled = 2 / (1 + speed.value)
        factor = rate_factor(norm2 + least, norm2 + least / 2)
    return GroupSizePlan(
        group_size=chosen,
        prompts=budget.prompts(chosen),
        mse=least,
        excess=float(excess[place]),
        safe_sizes=(int(safe[0]), int(safe[-1])),
        budget=budget,
        curve=tuple(
            CurvePoint(*row)
            for row in zip(
                *map(np.ndarray.tolist, (size, budget.prompts_of(size).astype(int), error, excess)),
                strict=True,
            )
        ),
        critical=critical,
        speed=speed,
        doubled=doubled,
        rate_factor=factor,
        present=None if question.present is None else _priced(question, question.present, chosen),
        components=question.components,
        notes=tuple(_notes(question.components, budget)),
    )


def _priced(question: _PlanQuestion, present: int, chosen: int) -> Present:
    """The size in use beside the chosen one."""
    budget, both = question.budget, np.array([present, chosen])

    def lost(values: Float) -> Float:
        own, theirs = error_of(values[:, :3], both, budget).T
        return speed_lost(own, theirs, values[:, 3])

    _, t, r, norm2 = question.values.tolist()
    own, theirs = error_of(question.values[:3], both, budget)
    now = float(lost(question.values[None])[0])
    price, components = Interval(now, now, now), question.components
    if components and components.prompts > 2 and present != chosen:
        level, pseudo = components.level, components.independent_BC[:, :_DRAWN]
        count, rng = len(pseudo), np.random.default_rng(0)  # one file gives one answer
        drawn = rng.multinomial(count, [1 / count] * count, size=_DRAWS) / count @ pseudo
        if components.unseen.opens_vp:  # anything from 0 to R/2, above which no policy lies
            drawn[:, 0] = rng.random(len(drawn)) * drawn[:, 2] / 2
        prices = lost(np.maximum(drawn, 0.0))
        low, high = np.quantile(prices, [0.5 - level / 2, 0.5 + level / 2]).tolist()
        without = np.maximum((pseudo.sum(axis=0) - pseudo) / (count - 1), 0.0)
        left_out = mean_interval(count * now - (count - 1) * lost(without), level=level)
        # Prompts that the sample lacks cost more: with half as long an upper part, chosen on the
        # same half of strange worlds, .92 and more are held. No update loses more than its speed.
        longer = min(components.unseen.widening, 1.5) * (max(high, left_out.high) - now)
        ends = now, low, left_out.low, min(now + longer, 1.0)
        price = Interval(now, min(ends), max(ends), level)
    extremes = [[vp, t, r, question.surely] for vp in (question.low, ceiling(r, question.surely))]
    at_most = max(price.high, *lost(np.array(extremes)).tolist())
    row = next(row for row in _SIMULATED if now <= float(row["up_to"]))
    median, least, most = (float(row[name]) for name in ("median", "low", "high"))
    return Present(
        present,
        budget.prompts(present),
        float(own),
        price,
        at_most,
        Interval(median, least, most, 0.9),
        rate_factor(float(norm2 + own), float(norm2 + theirs)),
    )


def _notes(components: Components | None, budget: Budget) -> Iterator[str]:
    """What to know before the plan is followed."""
    if components:
        if not components.vp.distinguishable:
            yield f"{components.vp.status}."
        yield from components.notes
    if budget.prompt_pool is not None:
        yield f"Prompts are drawn without replacement from {budget.prompt_pool:,}."


def _sentences(plan: GroupSizePlan) -> Iterator[str]:
    """The plan in words."""
    what = f"A group size of {plan.group_size} is safe for a whole run"
    if not plan.named:
        safest = " to ".join(map(str, dict.fromkeys(plan.safe_sizes)))
        what = f"No single group size is safe for a whole run, and the safest is {safest}"
    yield (
        f"{what}: however much prompts' gradients come to differ, the error of an update with "
        f"{plan.group_size} stays within {percent(round(plan.excess, 6))} of that of the best "
        f"size. {plan.budget.amount:,.10g} {plan.budget.unit} then give {plan.group_size} rollouts "
        f"of each of {count(plan.prompts, 'prompt')}{plan.budget.left(plan.group_size)}."
    )
    if plan.components and not plan.budget.prompt_cost:
        yield plan.components.status
    if plan.present and plan.present.group_size != plan.group_size:
        yield _price_in_words(plan, plan.present)
    yield "No rule gives the best group size of a run in advance."
    if plan.critical and plan.speed and plan.doubled:
        yield _rollouts_in_words(plan, plan.critical, plan.speed, plan.doubled)


def _price_in_words(plan: GroupSizePlan, present: Present) -> str:
    """What the group size in use costs beside the safe one."""
    now, simulated, size = present.now, present.simulated, present.group_size
    ends = f" ({percent(now.low)} to {percent(now.high)})" if now.high > now.low else ""
    today = f"the current group size {size} loses {percent(now.value)} of an update's speed{ends}"
    if now.value < 0:
        ends = f" ({percent(-now.high)} to {percent(-now.low)})" if ends else ""
        today = f"the current group size {size} is {percent(-now.value)} faster at present{ends}"
    factor = number(present.rate_factor)
    move = f" From {size} to {plan.group_size}, multiply the learning rate by {factor}."
    return (
        f"Compared with {plan.group_size}, {today}. However much prompts' gradients differ later, "
        f"it loses at most {percent(max(present.at_most, 0.0))}, or twice that near the largest "
        f"stable learning rate. Simulated runs with similar numbers lost "
        f"{share_ranged(simulated)}.{move * plan.named}"
    )


def _rollouts_in_words(
    plan: GroupSizePlan, critical: Interval, speed: Interval, doubled: float
) -> str:
    """What more rollouts a step would bring."""
    if math.isinf(critical.value):
        return (
            "The squared gradient norm does not differ from zero within its error: more rollouts "
            "per step help, but the data do not show how much."
        )
    ends = f" ({number(critical.low)} to {number(critical.high)})"
    return (
        f"An update has {percent(speed.value)} of the speed that it would have without noise. "
        f"Twice the rollouts make it up to {number(doubled)} times as fast, if the learning rate "
        f"is multiplied by {number(plan.rate_factor)}. Noise equals signal at "
        f"{number(critical.value)} rollouts{ends if critical.high > critical.low else ''}."
    )


def _whole(ratio: NDArray[np.floating]) -> Float:
    """Round down, but not for a rounding error: 0.3/0.1 is 2.9999999999999996, and a budget that
    divides evenly loses no prompt to that.
    """
    return np.asarray(np.floor(ratio + np.minimum(ratio * 1e-12, 1e-6)), dtype=float)
