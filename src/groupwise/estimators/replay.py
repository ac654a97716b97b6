r"""What a run's groups would have cost under other choices, at the policy that was logged.

A choice changes how many rollouts of a group are drawn, or which groups. What is drawn of a group
are subsets of its logged rollouts, so that the chance of a live group (one whose rewards differ)
needs no law up to the size sampled; beyond it the law is a beta's and the interval takes everything
from no group more to every group live. An interval is that of another draw of as many prompts:
twice the variance between prompts, linearised. How the policy would have moved is not in a log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float, Places, finite_array, floats, groups_of
from groupwise.errors import InsufficientDataError
from groupwise.estimators.zero_variance import RewardCounts, beta_share, group_columns
from groupwise.intervals import Interval, effective_freedom, hull, student_quantile, wilson
from groupwise.plain import Plain, Words, frozen

SIZES = (2, 4, 8, 16, 32)  # groups replayed, and rollouts after which a conformal stop looks
_LEVEL = 0.95  # of intervals
_MISS = 0.05  # of conformal sets
_LARGEST = 4  # times the usual size that an allocation may give a prompt
_LONGEST = 0.75  # quantile of lengths from which an answer is long
NEEDS_NAMES = "Rules by earlier groups need prompts that come back: log their texts or numbers."
NEEDS_TWO = "A knapsack rule and a conformal stop need rewards with two values."


class Choice(StrEnum):
    """What is chosen otherwise."""

    DYNAMIC = "dynamic sampling"
    SIZE = "another group size"
    SPREAD = "rollouts by predicted spread"
    KNAPSACK = "rollouts by predicted live groups"
    SOLVED = "skipping solved prompts"
    FLAT = "skipping prompts without spread"
    CONFORMAL = "a conformal stop"


class ReplayStatus(StrEnum):
    """What a number rests on."""

    MEASURED = "measured"  # subsets of the logged rollouts
    EXTRAPOLATED = "extrapolated"  # a law of pass rates beyond the size sampled


@frozen
class Replayed(Plain):
    """One choice; ratios are over the run as it was logged."""

    choice: Choice
    status: ReplayStatus
    group_size: int | None  # of the choice of another size
    live: Interval  # share of the groups drawn that are live
    rollouts: Interval  # ratio of rollouts drawn
    cost: Interval  # ratio of rollouts a live group
    variance: Interval | None  # ratio of the proxy; None where the rule looks at rewards

    def saved(self, whole: float = 1.0) -> Interval:
        """The part of a whole without which as many groups would have been live."""
        cost = self.cost
        return Interval(*(whole * (1 - end) for end in (cost.value, cost.high, cost.low)))


@frozen
class DynamicSampling(Plain):
    """Groups drawn until a batch holds as many live ones as it has groups now."""

    drawn: Interval  # groups a live group, mean over the updates
    batches: float  # the same where whole batches are drawn and what is too much is dropped


@frozen
class Denominator(Plain):
    """What one denominator of the loss makes of zero-variance groups and of long answers."""

    name: str
    rate: Interval  # the update's length over that of the same batch with every group live
    longest: Interval  # share of the loss's weight on the longest quarter of the answers


@frozen
class Replay(Plain):
    """Every choice, replayed."""

    groups: int
    prompts: int  # groups where prompts are not known again
    rollouts: int
    group_size: int  # the usual one
    live_groups: int
    live: Interval  # share of the groups
    dynamic: DynamicSampling
    choices: tuple[Replayed, ...]
    denominators: tuple[Denominator, ...]  # none without lengths
    notes: Words  # which choices are missing, and why

    @property
    def rows(self) -> tuple[Replayed, ...]:
        """Dynamic sampling and the choices."""
        same, drawn, measured = Interval(1.0, 1.0, 1.0), self.dynamic.drawn, ReplayStatus.MEASURED
        dynamic = Replayed(Choice.DYNAMIC, measured, None, same, drawn, same, None)
        return (dynamic, *self.choices)


@frozen
class LoggedGroups:
    """The rollouts of a run by group."""

    counts: RewardCounts
    reward_N: Float  # group by group
    tokens_N: Float | None
    start_P: Places  # first rollout of each group
    size_P: Float
    spread_P: Float  # unbiased variance within the group
    live_P: Float  # whether rewards differ
    prompt_P: Places  # numbers from 0 on; each group its own where prompts are not known
    step_P: Places  # numbers from 0 on

    @classmethod
    def of(
        cls,
        reward_N: ArrayLike,
        group_N: ArrayLike,
        step_N: ArrayLike,
        *,
        prompt_N: ArrayLike | None = None,
        tokens_N: ArrayLike | None = None,
    ) -> LoggedGroups:
        """Sort rollouts into groups; of step and prompt the first of each group counts."""
        groups, reward = groups_of(group_N), finite_array("reward_N", reward_N, dimensions=1)
        if groups.size_P.min() < 2:
            raise InsufficientDataError(
                "expected groups of at least two rollouts, got a single one: drop it"
            )
        group_N = groups.group_of_row
        reward = groups.sorted(reward)
        _, spread, flat = group_columns(reward, groups)
        prompt, step = (
            np.unique(groups.sorted(np.asarray(label_N))[groups.start_P], return_inverse=True)[1]
            for label_N in (group_N if prompt_N is None else prompt_N, step_N)
        )
        tokens = None
        if tokens_N is not None:
            tokens = groups.sorted(finite_array("tokens_N", tokens_N, dimensions=1))
        return cls(
            RewardCounts.of(reward, group_N),
            reward,
            tokens,
            groups.start_P,
            groups.size_P.astype(float),
            spread * (1 - flat),
            1 - flat,
            prompt,
            step,
        )

    def sums(self, value_N: Float) -> Float:
        """Return the sum of a value over each group's rollouts."""
        return np.add.reduceat(value_N, self.start_P)

    def share(self, part_P: Float, whole_P: Float) -> Interval:
        r"""Return a share of sums, with the interval of another draw of as many prompts.

        Wilson's, at the number of trials $n = r(1 - r)/2v$ that has the variance $v$ between
        prompts of the ratio $r$ (Kish's design effect), less what Student's quantile asks for.
        """
        whole = float(whole_P.sum()) or 1.0
        value = min(float(part_P.sum()) / whole, 1.0)
        variance, freedom = self._variance((part_P - value * whole_P) / whole)
        if not freedom:
            return Interval(value, 0.0, 1.0)
        trials = (freedom + 1) / 2
        if variance > 0 and 0 < value < 1:
            trials = value * (1 - value) / variance
        wide = student_quantile(_LEVEL, math.inf) / student_quantile(_LEVEL, freedom)
        return wilson(value * trials * wide**2, trials * wide**2)

    def ratio(self, *sum_P: Float) -> Interval:
        """Return a / b, or a / b times c / d, of sums, by the delta method on the logarithm."""
        totals = [float(part_P.sum()) for part_P in sum_P]
        over, under = math.prod(totals[::2]), math.prod(totals[1::2])
        if not (over and under):
            return Interval(0.0 if under else math.inf, 0.0, math.inf)
        influence_P = np.zeros(len(self.size_P))
        for place, (part_P, total) in enumerate(zip(sum_P, totals, strict=True)):
            influence_P += (-1) ** place * part_P / total
        variance, freedom = self._variance(influence_P)
        if not freedom:
            return Interval(over / under, 0.0, math.inf)
        factor = math.exp(min(student_quantile(_LEVEL, freedom) * math.sqrt(variance), 700.0))
        return Interval(over / under, over / under / factor, over / under * factor)

    def _variance(self, influence_P: Float) -> tuple[float, float]:
        """Return the variance between two draws, and its degrees of freedom; 0 of one prompt."""
        # of one prompt alone, between its groups
        cluster_P = self.prompt_P if self.prompt_P.any() else np.arange(len(influence_P))
        sum_C = np.bincount(cluster_P, influence_P).astype(float)
        spread = 2 * float((sum_C**2).sum()) / max(1 - 1 / len(sum_C), 0.5)
        return spread, effective_freedom(sum_C)

    @property
    def right_N(self) -> Float:  # noqa: N802
        """Whether each rollout earned the highest reward of the run."""
        return floats(self.reward_N == self.reward_N.max())

    def earlier(self, value_P: Float, prompt_P: Places) -> Float:
        """Return the sum of a value over the groups of the same prompt at earlier steps."""
        steps = int(self.step_P.max()) + 1
        visit_P = prompt_P * steps + self.step_P
        order = np.argsort(visit_P, kind="stable")
        visit, total = visit_P[order], np.concatenate([[0.0], np.cumsum(value_P[order])])
        here, first = (np.searchsorted(visit, at) for at in (visit, visit // steps * steps))
        return np.asarray((total[here] - total[first])[np.argsort(order)])

    def predicted(self, value_P: Float, weight_P: Float) -> Float:
        """Return a mean that earlier steps foretell: of the prompt's own groups, and with the
        weight of one rollout of those of all prompts.
        """
        every_P = np.zeros(len(value_P), dtype=np.intp)
        value, weight = (self.earlier(part_P, every_P) for part_P in (value_P, weight_P))
        pooled = np.where(weight > 0, value / np.maximum(weight, 1), 0.5)
        own, weight = (self.earlier(part_P, self.prompt_P) for part_P in (value_P, weight_P))
        return (own + pooled) / (weight + 1)


def replay_groups(groups: LoggedGroups, *, seed: int = 0) -> Replay:
    """Replay every choice.

    Args:
        groups: the rollouts.
        seed: of the order in which a conformal stop sees a group's rollouts.

    Returns:
        The choices with their intervals.

    Raises:
        InsufficientDataError: no group is live.

    Example:
        >>> answers = [1, 0, 1, 1, 0, 0, 0, 1] * 4
        >>> groups = LoggedGroups.of(answers, np.arange(32) // 2, np.arange(32) // 8)
        >>> replay_groups(groups).live.value
        0.5
    """
    if not groups.live_P.any():
        raise InsufficientDataError(
            f"expected groups whose rewards differ, got none in {len(groups.live_P):,}: no "
            "sampling choice gives a gradient; check the reward or the prompts"
        )
    usual, ones = groups.counts.usual_size, np.ones_like(groups.live_P)
    two, back = groups.counts.rate_P is not None, groups.earlier(ones, groups.prompt_P).any()
    choices = [at_size(groups, size) for size in sorted({*SIZES, usual})]
    if back:
        choices += [skipping(groups, Choice.SOLVED), skipping(groups, Choice.FLAT)]
        choices += [by_spread(groups), *([by_live_groups(groups)] if two else [])]
    if two:
        choices.append(conformal_stop(groups, np.random.default_rng(seed)))
    needs = {NEEDS_NAMES: back, NEEDS_TWO: two}
    return Replay(
        len(ones),
        int(groups.prompt_P.max()) + 1,
        len(groups.reward_N),
        usual,
        int(groups.live_P.sum()),
        groups.share(groups.live_P, ones),
        dynamic_sampling(groups),
        tuple(choices),
        denominators(groups),
        tuple(need for need, met in needs.items() if not met),
    )


def dynamic_sampling(groups: LoggedGroups) -> DynamicSampling:
    r"""Draw groups until a batch of B holds B live ones.

    At a share $s$ of live groups that takes $1/s$ groups, or $G/s$ rollouts, a live group: as many
    as now, since a group that is not live is drawn either way. What it saves are the updates and
    the training on such groups. Drawn in whole batches it takes $\sum_m P(Bin(mB, s) < B)$. Both
    are means over the updates, of shares over neighbouring steps with 50 live groups.

    Source: DAPO (arXiv 2503.14476); verl drops what is too much of the last batch.
    """
    from scipy.special import bdtr

    live_P = groups.live_P
    live = groups.share(live_P, np.ones_like(live_P))
    share_B, updates_B = _shares_along(groups)
    drawn = float(updates_B @ (1 / share_B))
    batch = round(float(np.median(np.bincount(groups.step_P))))
    many_M1 = np.arange(1, 1 + math.ceil(50 / share_B.min()))[:, None]
    return DynamicSampling(
        Interval(
            drawn,
            drawn * live.value / live.high,
            drawn * live.value / live.low if live.low else math.inf,
        ),
        1 + float(updates_B @ bdtr(batch - 1, many_M1 * batch, share_B).sum(axis=0)),
    )


def _shares_along(groups: LoggedGroups) -> tuple[Float, Float]:
    """The share of live groups in stretches of steps with 50 of them, and each stretch's part of
    the updates.
    """
    groups_T = np.bincount(groups.step_P)
    live_T = np.bincount(groups.step_P, groups.live_P)
    stretch_T = np.minimum((live_T.cumsum() - live_T) // 50, max(live_T.sum() // 50 - 1, 0))
    stretch_T = np.unique(stretch_T, return_inverse=True)[1]
    if not live_T[stretch_T == stretch_T[-1]].any():  # steps without any at the end
        stretch_T = np.minimum(stretch_T, stretch_T[-1] - 1)
    share_B = np.bincount(stretch_T, live_T) / np.bincount(stretch_T, groups_T)
    return share_B, np.bincount(stretch_T) / len(stretch_T)


def at_size(groups: LoggedGroups, size: int) -> Replayed:
    r"""Draw groups of another size at as many rollouts.

    A group of m has live subsets of size G with probability $1 - \sum_v \binom{n_v}{G} /
    \binom{m}{G}$. The proxy of the gradient's variance is $\sigma_x^2 G/(G-1)$ a rollout: the law
    of `components` where scores have one norm, without the part between prompts, which speaks for
    smaller groups.

    Source: Hoeffding (1948) for the subsets; `zero_variance_of_groups` beyond the size sampled.
    """
    own, spread, counts = groups.size_P, groups.spread_P, groups.counts
    variance = groups.ratio(own * spread * size / (size - 1), own * spread * own / (own - 1))
    usual = counts.usual_size
    equal_P, stays = counts.equal_subsets(min(size, usual)), [1.0]
    if size > usual:
        then, now = counts.share_at(size, _LEVEL).share, float(equal_P.mean()) or 1.0
        stays = [min(end / now, 1.0) for end in (then.value, then.high, then.low)]
    cases = [(1 - equal_P * stay, own) for stay in stays]
    return _replayed(groups, Choice.SIZE, cases, own / size, variance, size)


def _replayed(
    groups: LoggedGroups,
    choice: Choice,
    cases: Sequence[tuple[Float, Float]],
    drawn_P: Float,
    variance: Interval | None = None,
    group_size: int | None = None,
) -> Replayed:
    """Return a choice from each group's chance to be live and its rollouts, or three cases of
    them, the likely one first; `drawn_P` is how many are drawn in its place.
    """
    own, live_P = groups.size_P, groups.live_P
    spans = [
        (
            groups.share(chance_P * drawn_P, drawn_P),
            # a budget that is kept is no estimate
            Interval(1.0, 1.0, 1.0) if spent_P is own else groups.share(spent_P, own),
            groups.ratio(spent_P, own, live_P, chance_P * drawn_P),
        )
        for chance_P, spent_P in cases
    ]
    status = ReplayStatus.MEASURED
    if len(cases) > 1 and choice is not Choice.CONFORMAL:
        status = ReplayStatus.EXTRAPOLATED
    live, rollouts, cost = map(hull, zip(*spans, strict=True))
    return Replayed(choice, status, group_size, live, rollouts, cost, variance)


def by_spread(groups: LoggedGroups) -> Replayed:
    r"""Give each step's rollouts to its prompts by predicted spread: VIP.

    The variance of prompt x's leave-one-out gradient is $\sigma_x^2/(n_x - 1)$ in units of a
    score's norm, so that $n_x - 1 \propto \hat\sigma_x$, for right and wrong
    $\sqrt{\hat p(1 - \hat p)}$, over whole numbers of at least 2. VIP predicts by a Gaussian
    process; here the mean of the prompt's earlier groups does.

    Source: arXiv 2602.01601; the greedy optimum is Fox's (1966).
    """
    freedom = groups.size_P - 1
    spread_P = groups.predicted(groups.spread_P * freedom, freedom)[:, None]
    return _allocated(groups, Choice.SPREAD, _given(groups, lambda n: spread_P / (n * (n - 1))))


def by_live_groups(groups: LoggedGroups) -> Replayed:
    r"""Give each step's rollouts to its prompts so that most groups are live: a knapsack.

    The rollout after n makes a group live with probability $\hat p^n(1 - \hat p) + (1 - \hat p)^n
    \hat p$, which falls with n for two and more together; $\hat p$ is that of earlier steps.

    Source: arXiv 2509.25849, whose value of a live group is left out here.
    """
    right = _rate(groups)[:, None]
    return _allocated(
        groups,
        Choice.KNAPSACK,
        _given(groups, lambda n: right**n * (1 - right) + (1 - right) ** n * right),
    )


def _rate(groups: LoggedGroups) -> Float:
    """The pass rate of each group's prompt as earlier steps foretell it."""
    right_P = groups.sums(groups.right_N)
    return np.clip(groups.predicted(right_P, groups.size_P), 1e-6, 1 - 1e-6)


def _given(groups: LoggedGroups, gain: Callable[[Float], Float]) -> Float:
    """Allocate each step's rollouts where each gains most, at least two a prompt."""
    most = _LARGEST * groups.counts.usual_size
    gain_PK = gain(np.arange(2, most, dtype=float))
    order = np.argsort(groups.step_P, kind="stable")
    given_P = groups.size_P.copy()
    for step in np.split(order, np.cumsum(np.bincount(groups.step_P))[:-1]):
        extra = int(groups.size_P[step].sum()) - 2 * len(step)
        if extra < gain_PK[step].size:
            best = np.argpartition(-gain_PK[step], extra, axis=None)[:extra]
            given_P[step] = 2 + np.bincount(best // gain_PK.shape[1], minlength=len(step))
    return given_P


def _allocated(groups: LoggedGroups, choice: Choice, given_P: Float) -> Replayed:
    """Return an allocation: subsets up to a group's own rollouts; beyond them the beta law of what
    is foretold of its prompt, between no group more and every group live.
    """
    own, spread = groups.size_P, groups.spread_P
    variance = groups.ratio(spread / (given_P - 1), spread / (own - 1))
    equal_P = groups.counts.equal_subsets(given_P)
    chances, beyond = [1 - equal_P], given_P > own
    if beyond.any():
        stays_P = np.ones_like(own)
        if groups.counts.rate_P is not None:
            rate, weight = _rate(groups), groups.earlier(own, groups.prompt_P) + 1
            then, now = (beta_share(rate, weight, size) for size in (np.maximum(given_P, own), own))
            stays_P = then / np.maximum(now, 1e-300)
        chances = [1 - equal_P * stays_P, *chances, np.where(beyond, 1.0, 1 - equal_P)]
    return _replayed(groups, choice, [(each, own) for each in chances], np.ones_like(own), variance)


def skipping(groups: LoggedGroups, choice: Choice) -> Replayed:
    """Skip a prompt for good once its last three groups were solved, or had no spread.

    Solved is a group that earned the highest reward of the run throughout.
    """
    done_P = 1 - groups.live_P
    if choice is Choice.SOLVED:
        done_P = done_P * groups.right_N[groups.start_P]
    order = np.lexsort((groups.step_P, groups.prompt_P))
    prompt, done = groups.prompt_P[order], done_P[order]
    thrice_P = np.zeros(len(order))
    thrice_P[order[2:]] = (prompt[2:] == prompt[:-2]) * done[2:] * done[1:-1] * done[:-2]
    kept_P = (groups.earlier(thrice_P, groups.prompt_P) == 0).astype(float)
    return _replayed(groups, choice, [(groups.live_P, groups.size_P * kept_P)], kept_P)


def conformal_stop(groups: LoggedGroups, rng: np.random.Generator) -> Replayed:
    r"""Stop a group at the first of 2, 4, 8, 16 rollouts that fix its outcome.

    The outcome is the more frequent of two rewards; after k rollouts its score is how many of them
    have the other. An outcome stays possible where its score is at most the $\lceil 0.95(m +
    1)\rceil$-th smallest of those that the m groups of earlier steps had; a group stops where one
    alone is possible. The order within a group is drawn at random. The interval takes in what
    another draw of the m groups makes of that rank.

    Source: split-conformal prediction (Vovk et al. 2005), as trl-cgrpo stops by it; there the
    outcome is an answer, and calibrated on held-out prompts.
    """
    own, right_N = groups.size_P, groups.right_N
    group_N = np.repeat(np.arange(len(own)), own.astype(np.intp))
    order = np.argsort(group_N + rng.random(len(right_N)))  # faster than a sort by two keys
    total = np.concatenate([[0], np.cumsum(right_N[order])])
    often_P = 2 * groups.sums(right_N) >= own
    wide = math.sqrt(2) * student_quantile(_LEVEL, math.inf)
    cases = []
    for deviations in (0.0, -wide, wide):
        stop_P, live_P = own.copy(), groups.live_P.copy()
        for drawn in SIZES:
            looked = np.flatnonzero(own > drawn)
            first = total[groups.start_P[looked] + drawn] - total[groups.start_P[looked]]
            score = np.where(often_P[looked], drawn - first, first)
            allowed = _thresholds(score, groups.step_P[looked], drawn, deviations)
            alone = (drawn - first <= allowed) != (first <= allowed)
            ends = alone & (stop_P[looked] == own[looked])
            stop_P[looked[ends]] = drawn
            live_P[looked[ends]] = (first[ends] > 0) & (first[ends] < drawn)
        cases.append((live_P, stop_P))
    return _replayed(groups, Choice.CONFORMAL, cases, np.ones_like(own))


def _thresholds(score_P: Float, step_P: Places, most: int, deviations: float) -> Places:
    """The largest score that an outcome may have, by the groups of earlier steps."""
    steps = int(step_P.max(initial=0)) + 1
    place_P = step_P * (most + 1) + score_P.astype(np.intp)
    times_TK = np.bincount(place_P, minlength=steps * (most + 1)).reshape(steps, most + 1)
    below_TK = (np.cumsum(times_TK, axis=0) - times_TK).cumsum(axis=1)
    many_T1 = below_TK[:, -1:]
    error_T1 = deviations * np.sqrt(many_T1 * _MISS * (1 - _MISS))
    enough_TK = below_TK >= np.ceil((1 - _MISS) * (many_T1 + 1) + error_T1)
    return np.where(enough_TK[:, -1], enough_TK.argmax(axis=1), most)[step_P]


def denominators(groups: LoggedGroups) -> tuple[Denominator, ...]:
    """Return what each denominator of the loss does: a sequence's tokens, the batch's, a constant.

    Zero-variance groups add nothing to the sum and count in the denominator: the rate is that of
    the live part. TRL's `grpo` is per sequence, its default `dapo` per token, `dr_grpo` a constant,
    here the longest answer logged.

    Source: DAPO (arXiv 2503.14476), Dr. GRPO (arXiv 2503.20783).
    """
    tokens_N, live_P = groups.tokens_N, groups.live_P
    if tokens_N is None or not tokens_N.max() > 0:
        return ()
    long_N, one_N = tokens_N >= np.quantile(tokens_N, _LONGEST), np.ones_like(tokens_N)
    weights = {
        "per sequence": (one_N, one_N),
        "per token": (tokens_N, tokens_N),
        "constant": (tokens_N, one_N * tokens_N.max()),
    }
    return tuple(
        Denominator(
            name,
            groups.share(groups.sums(weight_N) * live_P, groups.sums(whole_N)),
            groups.share(groups.sums(weight_N * long_N) * live_P, groups.sums(weight_N) * live_P),
        )
        for name, (weight_N, whole_N) in weights.items()
    )
