r"""The variance components of the policy gradient, Vp between prompts, T at first order, R at
second, each with its interval; what they assume of scores, prompts and groups, and whether the data
bear it out.

They answer what group size and batch are worth: a batch of B prompts with G rollouts has mean
squared error $(V_p + T/G + R/(G(G-1)))/B$, so that $G^* = 1 + \sqrt{R/V_p}$
(`Components.group_size`). With $e = Z - V(x)$ and a prompt's own gradient $g(x)$: $V_p = E|g(X) -
g|^2$, $T = E[|s|^2e^2] - E|g(X)|^2$, $R = E[S_2\sigma^2] + E|g(X)|^2$. Everything is estimated
without bias from the inner products of scores; prompts are the independent units. It plans nothing
and draws nothing.

Scores: $|E[s|x]|^2$ is 0 for a policy's own scores. Prompts: where they are independent, ranks of
neighbours correlate by $-1/(P-1)$, with variance $1/P$. Groups: one whose rewards are equal tells
nothing of the gradient, and a few long scores hold much of Vp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Columns, Float, Places, floats, mean_ranks, of_numbers
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.moments import (
    MOMENTS,
    TOO_SMALL,
    GroupMoments,
    moments_of_gram,
    moments_of_scores,
    usable_groups,
)
from groupwise.files import table_column
from groupwise.intervals import (
    Interval,
    effective_freedom,
    mean_interval,
    percent,
    ratio_interval,
    student_quantile,
)
from groupwise.plain import (
    HOLDS,
    UNKNOWN,
    VIOLATED,
    Assumption,
    Plain,
    Said,
    Tested,
    Words,
    assumptions,
    frozen,
)
from groupwise.prompts import templates

ALARM = 4.0
"""Standard errors: a false alarm in 30,000 for a normal statistic, and far fewer than one in 100
with the tails of these.
"""
# groups with two rewards or more on either side; with fewer the intervals held Vp in 0 to 98 % of
# cases, with so many in 94 % over eight worlds and in 89 % at least
FEWEST_INFORMATIVE = 4
_PART_OF_MOST = 0.01  # of the largest group's, below which a group tells of nothing but small noise
_BLOCKS = 8  # of neighbours that resemble each other
_LIKENESS = {"value": "mean reward", "score_norm2": "score length"}  # by which they do
_FEWEST_NEIGHBOURS = 20  # prompts below which no correlation passes the alarm
# Upper halves of the intervals of Vp, T and R are longer for what a sample may not show. x is the
# relative variance, a prompt, that Vp would have over lognormal prompts: (1 + 30 x)^(1/5) times as
# long, without an end above 5; and longer by 1.6 over the group's size for each unit of rewards'
# fourth moment in their group above 4 squared variances (3 for a normal law), up to three times.
# Chosen on 80 worlds; what they do in 80 others and in named ones: lab/docs/theory/gradient.md
_PER_VARIANCE, _POWER, _MOST_VARIANCE = 30.0, 0.2, 5.0
_PERHAPS_HEAVY_TAILS, _PER_UNIT, _MOST, _FEWEST_VARYING = 4.0, 1.6, 3.0, 8
_DIFFERENT = "prompts without near-duplicates"
_LIKE = 1.25  # times, below which scores are told to be of like length


def zero_score_mean(mean: Estimate) -> Tested:
    if mean.n < 3 or not mean.standard_error > 0:
        return UNKNOWN, f"{mean.n:,} prompts cannot show whether the scores average to zero."
    errors = mean.value / mean.standard_error
    if errors <= ALARM:
        return HOLDS, (
            f"The squared norm of the mean score within prompts is {mean.value:.3g}, "
            f"{errors:.2g} standard errors from 0."
        )
    return VIOLATED, (
        "Unlike a policy's own scores, these do not average to zero within prompts: the squared "
        f"norm of their mean is {mean.value:.3g}, {errors:.2g} standard errors from 0. Check "
        "whether the rollouts came from another checkpoint, temperature or top-p, or the scores "
        "were divided by length. To drop the assumption, use zero_mean=False or --any-mean."
    )


def independent_prompts(moment_P: Columns, prompts: int) -> Tested:
    if prompts < _FEWEST_NEIGHBOURS:
        return (
            UNKNOWN,
            f"At least {_FEWEST_NEIGHBOURS} prompts are needed to test their independence.",
        )
    correlation, quantity = _likeness(moment_P, prompts)
    most = ALARM / math.sqrt(prompts)
    measured = f"the {quantity} of neighbouring prompts has a rank correlation of {correlation:.2g}"
    if correlation <= most:
        return (
            HOLDS,
            f"Prompts do not resemble their neighbours: {measured}; the limit is {most:.2g}.",
        )
    length = block_length(moment_P, prompts)
    return VIOLATED, (
        f"Prompts resemble their neighbours: {measured}, and the limit for independent prompts "
        f"is {most:.2g}. Therefore the intervals use {prompts // length} blocks of {length} "
        "neighbours. Measure fewer steps with --steps A:B."
    )


def different_prompts(cluster_P: Places | None) -> Tested:
    if cluster_P is None:
        return UNKNOWN, (
            "The prompts have no texts here, so near-duplicates among them cannot be found: with "
            "eight of each, intervals of T and R would hold .7 of the truths, not .95. Give the "
            "texts with text_N=."
        )
    size_B, prompts = np.bincount(cluster_P), len(cluster_P)
    independent = prompts**2 / (size_B @ size_B)
    differ = f"{len(size_B):,} of {prompts:,} prompts differ in more than numbers and names"
    if 2 * independent > prompts:
        return HOLDS, f"{differ}."
    return VIOLATED, (
        f"Only {differ}. The intervals leave near-duplicates out together, and are those of about "
        f"{independent:,.0f} prompts. Measure other prompts."
    )


def block_length(moment_P: Columns, prompts: int) -> int:
    """Neighbours that are left out together, an eighth of the prompts where they resemble the next
    one.
    """
    limit = ALARM / math.sqrt(prompts)
    alike = prompts >= _FEWEST_NEIGHBOURS and _likeness(moment_P, prompts)[0] > limit
    return prompts // _BLOCKS if alike else 1


def _likeness(moment_P: Columns, prompts: int) -> tuple[float, str]:
    """The largest rank correlation of neighbours, above what independent values have, and of
    what.
    """
    likeness = []
    for key, text in _LIKENESS.items():
        rank_P = mean_ranks(moment_P[key]) - (prompts + 1) / 2
        squares = float(rank_P @ rank_P) or math.inf
        likeness.append((float(rank_P[1:] @ rank_P[:-1]) / squares + 1 / (prompts - 1), text))
    return max(likeness)


@frozen
class Unseen:
    """What a sample of prompts may not show of the laws of scores and rewards."""

    pseudo_PC: Float  # of each prompt
    cluster_P: Places | None  # one number for near-duplicates
    rollouts: int

    @property
    def moment_P(self) -> Columns:  # noqa: N802
        """The moments of each prompt."""
        return dict(zip(QUANTITIES, self.pseudo_PC.T, strict=True))

    @property
    def moment_B(self) -> Columns:  # noqa: N802
        """The moments of those that differ: of near-duplicates the first's."""
        if self.cluster_P is None:
            return self.moment_P
        first_B = np.unique(self.cluster_P, return_index=True)[1]
        return {name: value_P[first_B] for name, value_P in self.moment_P.items()}

    @property
    def prompts(self) -> int:
        """Prompts that differ."""
        return len(self.moment_B["vp"])

    @property
    def size(self) -> float:
        """Rollouts of each prompt."""
        return self.rollouts / len(self.pseudo_PC)

    @property
    def opens_vp(self) -> bool:
        """Whether nothing bounds Vp but R/2: then no size is the best."""
        return self.informative < FEWEST_INFORMATIVE or math.isinf(self.widening)

    @property
    def informative(self) -> int:
        """Groups that tell of |g(x)|^2: at least a hundredth of what one may whose rewards differ
        most, each from all others. In one that differs but for small noise in a single reward, the
        four rollouts of |g(x)|^2 nearly cancel.
        """
        part_B = self.moment_B
        told_B = np.abs(part_B["within_gradient_norm2"])
        most_B = np.maximum(part_B["reward_variance"] * part_B["score_norm2"], 1 / LARGEST)
        least = _PART_OF_MOST * most_B.max() * (told_B / most_B).max()
        return int(np.count_nonzero(told_B > least))

    @property
    def widening(self) -> float:
        """How many times as long the upper halves of intervals are."""
        above = _PER_UNIT / self.size * (self.kurtosis - _PERHAPS_HEAVY_TAILS)
        return self.of_lengths * (1 + min(max(0.0, above), _MOST - 1))  # 0 for nan

    @property
    def of_lengths(self) -> float:
        """The part of unlike lengths in the widening, infinite where they hide most."""
        variance = self.relative_variance / self.prompts
        return (1 + _PER_VARIANCE * variance) ** _POWER if variance <= _MOST_VARIANCE else math.inf

    @property
    def relative_variance(self) -> float:
        """Of Vp, were prompts lognormal in the length of their scores: it goes with the square of
        E|s|^2, and exp(2uz) has the relative variance exp(4u^2) - 1.
        """
        return math.expm1(min(4 * self.unlikeness**2, 100.0))

    @property
    def unlikeness(self) -> float:
        """Standard deviation of the logarithm of E|s|^2 over prompts whose rewards differ, without
        those of a hundredth of the mean: short scores are unlike and hold nothing. No other counts
        more than the next, or a sample without the longest would look like one of like lengths.
        """
        part_P = self.moment_P
        length_P = part_P["score_norm2"]
        long_P = length_P > _PART_OF_MOST * length_P.mean()
        length_P = length_P[long_P & (part_P["reward_variance"] > 0)]
        return float(np.log(length_P).std()) if self.prompts > 2 and length_P.size else 0.0

    @property
    def kurtosis(self) -> float:
        """Fourth moment of rewards over squared variance, were the spread of the groups' variances
        that of samples of one law: 0 for rewards of 0 and 1, which have no tail, nan where too few
        groups differ to tell.
        """
        variance_P = self.moment_P["reward_variance"]
        differ_P = variance_P > 0
        if np.count_nonzero(differ_P) < _FEWEST_VARYING:
            return math.nan
        size, value_P = self.size, self.moment_P["value"]
        if np.allclose(variance_P * (size - 1), size * value_P * (1 - value_P), atol=1e-9):
            return 0.0
        variance_P = variance_P[differ_P]
        return 1 + size * float(variance_P.var() / variance_P.mean() ** 2)


def scores_of_like_length(sample: Unseen) -> Tested:
    factor = f"E|s|^2 by a factor of {math.exp(sample.unlikeness):.2g} in both directions"
    if sample.of_lengths < _LIKE:
        return HOLDS, f"The scores of the prompts have similar norms ({factor})."
    differ = f"The scores of the prompts differ strongly in norm ({factor}), so unseen prompts may "
    if math.isinf(sample.of_lengths):
        return VIOLATED, (
            f"{differ}contribute most of Vp, T and R: their intervals have no upper end. Measure "
            "more prompts."
        )
    return UNKNOWN, (
        f"{differ}contribute much of Vp, T and R: the upper halves of their intervals are "
        f"{sample.of_lengths:.2g} times as long for this reason."
    )


def rewards_of_light_tails(sample: Unseen) -> Tested:
    """Whether few rewards hold most of the variance of the groups that have any."""
    kurtosis = sample.kurtosis
    spread = math.sqrt(max(kurtosis - 1, 0.0) / sample.size)
    measured = f"the variances of groups have a spread of {spread:.2g} times their mean"
    if math.isnan(kurtosis):
        return (
            UNKNOWN,
            f"At least {_FEWEST_VARYING} groups with mixed rewards are needed for a test.",
        )
    if not kurtosis:
        return HOLDS, "The rewards are 0 or 1."
    if kurtosis < _PERHAPS_HEAVY_TAILS:
        return HOLDS, f"No sign of a heavy tail of the rewards: {measured}."
    return UNKNOWN, (
        f"Rewards may have heavier tails than the sample shows, or a few prompts much larger ones: "
        f"{measured}. The upper halves of the intervals of Vp, T and R are up to three times as "
        "long for this reason. Measure more prompts."
    )


def informative_groups(sample: Unseen) -> Tested:
    """Whether enough groups have two successes and two failures, or rewards that all differ: with
    fewer on either side the four rollouts of |g(x)|^2 cancel.
    """
    measured = (
        f"{sample.informative:,} of {sample.prompts:,} prompts have groups with at least 2 rewards "
        "on each side that differ as clearly as elsewhere"
    )
    if sample.informative >= FEWEST_INFORMATIVE:
        return HOLDS, f"{measured}."
    # over strange worlds T and R were held in .95 of batches with two groups that differ, in .78
    # with a single one
    differ = np.count_nonzero(sample.moment_B["reward_variance"])
    return UNKNOWN if differ > 1 else VIOLATED, (
        f"Only {measured}, such as two successes and two failures, and Vp depends on these alone. "
        f"With fewer than {FEWEST_INFORMATIVE} its interval is from 0 to R/2, the maximum for any "
        "policy. Measure more prompts (--groups N), or prompts that are sometimes solved."
    )


QUANTITIES = ("vp", "t", "r", "gradient_norm2", "within_gradient_norm2", *MOMENTS[3:])
"""What is estimated, in the order of `Components.estimate_C`: the three components, |g|^2,
E|g(X)|^2, then the other moments of groups.
"""

SYMBOLS = {"vp": "Vp", "t": "T", "r": "R", "gradient_norm2": "|g|^2"}
SIGNED = {"kappa", "value", "score_mean_norm2"}
"""Quantities that may be negative, or are expected to be zero."""


# what each quantity is, in words
MEANINGS = table_column("estimators/quantities.tsv", "name", "meaning")


LARGEST = 1e60
"""Of an estimate or a pseudo-value: the intervals need fourth powers. What is not zero has to be
larger than 1/LARGEST likewise.
"""
# Factor of the upper half of Vp's interval and of the best size's quantile where prompts have four
# rollouts: |g(x)|^2 is then one product, whose tail a sample seldom shows. Without it Vp was held
# in 88 to 95 % of cases, with it in 92 to 98 % (lab/docs/theory/gradient.md)
_ONE_PRODUCT = 1.25
# The same where Vp cannot be told from 0: its spread is then that of the noise, which a small
# estimate shows too small. Without it Vp was held in 87 to 91 % of cases in two of three worlds
_UNTOLD = 1.5
# Of the largest remainder: what is smaller is the rounding of sums, and no squared gradient.
_ROUNDING = 1e-14


@frozen
class Estimate(Plain):
    """One estimated quantity."""

    KEYS = "*interval standard_error n meaning status"

    symbol: str  # its short name
    meaning: str  # what it is, in words
    # value with interval; a variance may come out negative, and is handed over as it came
    interval: Interval
    # of the value, by the jackknife over prompts; not a number with fewer than three prompts
    standard_error: float
    n: int  # prompts
    status: str  # a sentence

    @property
    def value(self) -> float:
        """The estimate itself."""
        return self.interval.value

    @property
    def distinguishable(self) -> bool:
        """Whether the interval lies above zero: below it lies no variance, only chance."""
        return self.interval.low > 0


@frozen
class Sample:
    """What an estimate was made from."""

    rollouts: int  # in the groups used
    left_out: int  # rollouts in groups of fewer than four
    zero_mean: bool  # whether the scores were taken to have mean zero, given the prompt
    # one number for the prompts that are like one another, from 0 on; None where that is not known
    cluster_P: Places | None = None


@frozen
class Components(Said):
    """The variance components of one policy, on one distribution of prompts.

    Args:
        vp: E|g(X) - g|^2.
        t: E T_o(X).
        r: E R(X).
        gradient_norm2: |g|^2.
        others: further quantities by name.
        prompts: groups used, near-duplicates counted once.
        rollouts: rollouts in them.
        left_out: rollouts in groups of fewer than four.
        method: how the intervals were made.
        zero_mean: whether the scores were taken to have mean zero, given the prompt.
        estimate_C: all quantities, in the order of `QUANTITIES`.
        covariance_CC: of those estimates.
        pseudo_PC: jackknife pseudo-values, one row a group.
        cluster_P: one number for prompts that are near-duplicates; None where nobody looked.
        notes: sentences on what to know before the numbers are used.

    Example:
        >>> import numpy as np
        >>> from groupwise import components
        >>> rng = np.random.default_rng(0)
        >>> score_ND, reward_N = rng.normal(size=(256, 4)), rng.integers(2, size=256)
        >>> measured = components(reward_N, np.arange(256) // 8, score_ND=score_ND)
        >>> measured.prompts, measured.rollouts
        (32, 256)
    """

    KEYS = (
        "vp t r gradient_norm2 *others group_size prompts rollouts left_out method zero_mean "
        "status notes"
    )

    vp: Estimate
    t: Estimate
    r: Estimate
    gradient_norm2: Estimate
    others: dict[str, Estimate]
    prompts: int
    rollouts: int
    left_out: int
    method: str
    zero_mean: bool
    estimate_C: Float
    covariance_CC: Float
    pseudo_PC: Float
    cluster_P: Places | None
    notes: Words

    def __str__(self) -> str:
        """What is known of them, in a sentence."""
        return self.status

    @property
    def level(self) -> float:
        """Coverage of the intervals."""
        return self.vp.interval.level

    @property
    def vtr(self) -> Float:
        """Vp, T and R as they were estimated."""
        return self.estimate_C[_VTR]

    @property
    def positive_vtr(self) -> Float:
        """Vp, T and R, negative ones counted as zero."""
        return np.maximum(self.vtr, 0.0)

    def check_assumptions(self) -> tuple[Assumption, ...]:
        """Check what the estimate assumes of scores, prompts and groups.

        Returns:
            One `Assumption` each; its sentence has the numbers, and of a violation the line that
            mends it.

        Example:
            >>> rng = np.random.default_rng(1)
            >>> score, reward = rng.normal(size=(512, 4)), rng.integers(2, size=512)
            >>> measured = components(reward, np.repeat(np.arange(64), 8), score_ND=score)
            >>> for assumption in measured.check_assumptions():
            ...     print(assumption.name, assumption.status.value)
            scores with a mean of 0 within prompts holds
            prompts without near-duplicates unknown
            independent prompts holds
            scores of similar norm holds
            rewards without heavy tails holds
            enough informative groups holds
        """
        sample = self.unseen
        judged = {
            "scores with a mean of 0 within prompts": zero_score_mean(
                self.others["score_mean_norm2"]
            ),
            _DIFFERENT: different_prompts(self.cluster_P),
            "independent prompts": independent_prompts(sample.moment_B, self.prompts),
            "scores of similar norm": scores_of_like_length(sample),
            "rewards without heavy tails": rewards_of_light_tails(sample),
            "enough informative groups": informative_groups(sample),
        }
        return assumptions(judged)[not self.zero_mean :]

    @property
    def unseen(self) -> Unseen:
        """What the sample may not show of scores and rewards."""
        return Unseen(self.pseudo_PC, self.cluster_P, self.rollouts)

    @property
    def independent_BC(self) -> Float:  # noqa: N802
        """What each independent block of prompts says."""
        return independent_rows(self.unseen)

    def of(self, name: str) -> float:
        """Return the estimate of one of `QUANTITIES`."""
        return float(self.estimate_C[QUANTITIES.index(name)])

    def quantile(self, weight: Float) -> float:
        """Return Student's quantile for a weighted sum of the components; its pseudo-values give
        the degrees of freedom.
        """
        return student_quantile(
            self.level, effective_freedom(self.independent_BC[:, : len(weight)] @ weight)
        )

    @property
    def group_size(self) -> Interval:
        """The group size of least error of the next update, with free prompts and exact division,
        1 + sqrt(R/Vp), through the interval of the ratio.
        """
        vp, r = self.vp.value, max(self.r.value, 0.0)
        relative = weights(vp=1 / vp if vp > 0 else 1.0, r=-1 / r if r > 0 else 0.0)
        unseen, covariance = self.unseen, self.covariance_CC[np.ix_([2, 0], [2, 0])]  # of R and Vp
        quantile = _widening(unseen.size) * self.quantile(relative)
        wide = min(unseen.widening, _ONE_PRODUCT)
        # The prompts that a sample lacks add to Vp: unlike lengths move the lower end alone.
        lower, upper = (
            ratio_interval(r, vp, covariance, factor * quantile, level=self.level)
            for factor in (max(unseen.of_lengths, wide), wide)
        )
        ends = [upper.value, lower.low, upper.high]
        if not self.vp.distinguishable:  # its own interval allows for skewness, and for R/2 at most
            least = max(2.0, min(r / max(self.vp.interval.high, 1 / LARGEST), lower.low))
            ends[1:] = min(least, upper.value), math.inf
        value, low, high = (1 + math.sqrt(end) for end in ends)
        return Interval(value, low, high, self.level)

    @property
    def status(self) -> str:
        """What the numbers say, in one sentence."""
        interval = self.group_size
        upper = f"{interval.high:.3g}" if math.isfinite(interval.high) else "no upper limit"
        span = f"{interval.low:.3g} to {upper}"
        if not self.vp.distinguishable:
            left = (
                f"; the data allow {span} ({percent(interval.level)})"
                if interval.low > 2  # the smallest group that has a baseline of its own
                else ""
            )
            unsure = (
                "Vp, the variance between prompts, does not differ from zero within its error "
                f"for {self.prompts} prompts"
            )
            return f"The group size of the smallest error cannot be estimated: {unsure}{left}."
        # near 1 + sqrt(2), where Vp is R/2
        wall = "; no policy has a best size below 2.41" if interval.low < 2.5 else ""
        return (
            f"The next update has its smallest error at a group size of {interval.value:.3g} "
            f"({span}, {percent(interval.level)}{wall})."
        )


_VTR = slice(QUANTITIES.index("vp"), QUANTITIES.index("r") + 1)


def weights(**weight_of: float) -> Float:
    """Return the weights of all quantities in a combination of some, given by name."""
    return np.array([weight_of.get(name, 0.0) for name in QUANTITIES])


@of_numbers("a run needs its model: groupwise components RUN --model CHECKPOINT")
def components(
    reward_N: ArrayLike,
    prompt_N: ArrayLike,
    *,
    score_ND: ArrayLike | None = None,
    gram_NN: ArrayLike | None = None,
    text_N: Sequence[str] | None = None,
    zero_mean: bool = True,
    level: float = 0.95,
) -> Components:
    r"""Estimate Vp, T and R from rollouts: B prompts with four or more rollouts each, groups of any
    size.

    $\widehat{|g(x)|^2}$ averages $\langle h(i,j), h(k,l)\rangle$ over all four different rollouts,
    with $h(i,j) = \tfrac12 (s_i - s_j)(z_i - z_j)$; $\widehat{|g|^2}$ averages inner products of
    gradients across prompts; then $V_p = \overline{|g(x)|^2} - |g|^2$, $T = \overline{|s|^2 e^2} -
    \overline{|g(x)|^2}$, $R = \overline{S_2\sigma^2} + \overline{|g(x)|^2}$.

    Args:
        reward_N: one reward a rollout.
        prompt_N: the label of its prompt.
        score_ND: scores or sketches of them; or
        gram_NN: their inner products.
        text_N: the text of its prompt, by which near-duplicates are found.
        zero_mean: whether E[s|x] = 0; see `moments_of_scores`.
        level: coverage of the intervals.

    Returns:
        The components with intervals (jackknife over prompts, corrected for skewness), the best
        group size, and what they came from.

    Raises:
        InvalidArgumentError: neither or both of scores and Gram matrix, shapes that do not fit, a
            Gram matrix that is not symmetric, NaN or infinity, numbers so large or so small that
            their products are not.
        InsufficientDataError: fewer than two prompts with four rollouts.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> score, reward = rng.normal(size=(512, 4)), rng.integers(2, size=512)
        >>> found = components(reward, np.repeat(np.arange(64), 8), score_ND=score)
        >>> found.prompts, found.t.interval.covers(1.0)
        (64, True)

    Source: quantities of arXiv 2603.01162, sections 3 and 4; the estimators are derived here
    (lab/docs/theory/gradient.md).
    """
    if score_ND is not None and gram_NN is None:
        moments = moments_of_scores(score_ND, reward_N, prompt_N, zero_mean=zero_mean)
    elif gram_NN is not None and score_ND is None:
        moments = moments_of_gram(gram_NN, reward_N, prompt_N, zero_mean=zero_mean)
    else:
        raise InvalidArgumentError(
            "expected either score_ND or gram_NN: give the scores (or sketches) or their inner "
            "products, one of the two"
        )
    text_P = None
    if text_N is not None:
        if not all(isinstance(text, str) for text in text_N):
            raise InvalidArgumentError("expected texts in text_N: give that of each prompt")
        groups = usable_groups(prompt_N, floats(reward_N), len(text_N), "text_N")
        text_P = groups.sorted(np.array([*text_N], dtype=object))[groups.start_P].tolist()
    return components_of_moments(moments, text_P=text_P, level=level)


def components_of_moments(
    moments: GroupMoments, *, text_P: Sequence[str] | None = None, level: float = 0.95
) -> Components:
    """Estimate the components from the moments of groups, of one batch or of several that were
    added up, with the texts of their prompts where they are known.
    """
    sample = Sample(
        int(moments.size_P.sum()),
        moments.left_out,
        moments.zero_mean,
        None if text_P is None else templates(text_P),
    )
    return components_of_pseudo_values(pseudo_values(moments), sample, level=level)


def components_of_pseudo_values(
    pseudo_PC: Float, sample: Sample, *, level: float = 0.95
) -> Components:
    r"""Estimate the components from what each prompt says: the mean of its pseudo-values, with the
    covariance of that mean; near-duplicates are left out together.

    $\hat\theta = \bar\theta_p$, $\widehat{Cov} = \frac{1}{P(P-1)}\sum_p (\theta_p -
    \hat\theta)(\theta_p - \hat\theta)^\top$.

    Source: Tukey (1958).
    """
    refuse_extremes(pseudo_PC)
    unseen = Unseen(pseudo_PC, sample.cluster_P, sample.rollouts)
    prompts = unseen.prompts
    if prompts < 2:
        raise InsufficientDataError(
            "expected at least two prompts that differ, got one text: measure other prompts"
        )
    block_BC = independent_rows(unseen)
    blocks = len(block_BC)
    covariance_CC = np.full((len(QUANTITIES),) * 2, np.nan)
    if blocks > 2:
        covariance_CC = np.cov(block_BC, rowvar=False) / blocks
    signal_B = block_BC @ weights(r=1.0, within_gradient_norm2=-1.0)  # E[S2 sigma2]
    value_of = dict(zip(QUANTITIES, block_BC.T, strict=True)) | {"score_reward_variance": signal_B}
    intervals = _intervals(value_of, unseen, level)
    estimates = {
        name: estimate_of(
            name,
            intervals[name],
            float(value_B.std(ddof=1)) / math.sqrt(blocks) if blocks > 2 else math.nan,
            prompts,
        )
        for name, value_B in value_of.items()
        if name in MEANINGS
    }
    result = Components(
        **{name: estimates.pop(name) for name in SYMBOLS},
        others=estimates,
        prompts=prompts,
        rollouts=sample.rollouts,
        left_out=sample.left_out,
        method="jackknife",
        zero_mean=sample.zero_mean,
        estimate_C=block_BC.mean(axis=0),
        covariance_CC=covariance_CC,
        pseudo_PC=pseudo_PC,
        cluster_P=sample.cluster_P,
        notes=(),
    )
    notes = [
        assumption.sentence
        for assumption in result.check_assumptions()
        if assumption.status is VIOLATED
        or (assumption.status, assumption.name) == (UNKNOWN, _DIFFERENT)
    ]
    if sample.left_out:
        notes.insert(
            0,
            f"{sample.left_out:,} rollouts were left out because their groups have fewer than "
            "four. This causes no bias unless the group size depends on the prompt.",
        )
    return replace(result, notes=tuple(notes))


def _intervals(value_of: Columns, unseen: Unseen, level: float) -> dict[str, Interval]:
    """The intervals of all quantities, longer above for what the sample may not show."""
    intervals = {name: mean_interval(value_B, level=level) for name, value_B in value_of.items()}
    factor = _UNTOLD if intervals["vp"].low <= 0 else _widening(unseen.size)
    for name, longer in (("vp", factor), ("t", 1.0), ("r", 1.0)):
        part = intervals[name]
        if part.width:
            half = part.high - part.value
            intervals[name] = replace(part, high=part.value + longer * unseen.widening * half)
    if unseen.opens_vp:  # from 0 to the most that any policy has, R/2 - |g|^2 (Cauchy-Schwarz)
        vp, most = intervals["vp"], intervals["r"].high / 2
        intervals["vp"] = replace(vp, low=min(vp.low, 0.0), high=max(vp.high, most))
    return intervals


def _widening(size: float) -> float:
    return _ONE_PRODUCT if size < 5 else 1.0


def independent_rows(sample: Unseen) -> Float:
    """What independent blocks of prompts say, so that their mean is that of the prompts: blocks of
    near-duplicates, and of neighbours that resemble each other.

    Pairs within a block, a share q of all, say |g(x)|^2 in place of |g|^2 where prompts of a block
    are copies: |g|^2 less q E|g(x)|^2 over 1 - q is free of them. A block counts by what its
    prompts say beyond the mean of all, or large blocks would differ from small ones.
    """
    prompts, different = len(sample.pseudo_PC), sample.prompts
    length = block_length(sample.moment_B, different)
    if different // length == prompts:
        return sample.pseudo_PC
    # The last block holds what is left over.
    block_P = np.arange(prompts) if sample.cluster_P is None else sample.cluster_P
    block_P = np.minimum(block_P // length, different // length - 1)
    size_B = np.bincount(block_P)
    share = size_B @ (size_B - 1) / (prompts * (prompts - 1))
    columns = {**sample.moment_P}
    columns["vp"] = columns["vp"] / (1 - share)
    columns["gradient_norm2"] = columns["within_gradient_norm2"] - columns["vp"]
    value_PC = np.column_stack([columns[name] for name in QUANTITIES])
    estimate_C, total_BC = value_PC.mean(axis=0), np.zeros((len(size_B), len(QUANTITIES)))
    np.add.at(total_BC, block_P, value_PC - estimate_C)
    return np.asarray(estimate_C + total_BC * (len(size_B) / prompts))


def refuse_extremes(value_C: Float) -> None:
    """Refuse numbers whose powers overflow, or underflow to a zero that would be taken for the
    truth.
    """
    if not np.isfinite(value_C).all() or np.abs(value_C).max() > LARGEST:
        raise InvalidArgumentError(
            "expected rewards and scores whose products can be added up, got an overflow: divide "
            "them by a constant"
        )
    if 0 < np.abs(value_C[..., QUANTITIES.index("r")]).max() < 1 / LARGEST:
        raise InvalidArgumentError(
            f"{TOO_SMALL}, got rewards and scores whose products underflow: multiply them by a "
            "constant"
        )


def pseudo_values(moments: GroupMoments) -> Float:
    r"""Jackknife pseudo-values of all quantities, one row a prompt; their mean is the estimate.

    $P\hat\theta - (P-1)\hat\theta_{(-p)}$; for a mean over prompts it is the prompt's own moment.

    Source: Tukey (1958); |g|^2 is a mean over pairs of prompts, derived here.
    """
    prompts, total = len(moments.size_P), moments.cross_P.sum()
    if prompts < 2:
        raise InsufficientDataError(
            f"expected at least two prompts with four rollouts each, got {prompts}: one prompt "
            "shows nothing about the variance between prompts"
        )
    # With two prompts nothing is left of the pair once one is gone; the estimate stands, its
    # interval does not.
    gradient = np.full(prompts, total / (prompts * (prompts - 1)))
    if prompts > 2:
        gradient += 2 * (moments.cross_P - total / prompts) / (prompts - 2)
    within, oracle, remainder, *others = moments.moment_PC.T
    # Sums that cancel to 0, as those of groups with a single success do, leave a rounding of what
    # was added up.
    rounding = _ROUNDING * np.abs(remainder).max()
    within, gradient = (np.where(np.abs(part) > rounding, part, 0.0) for part in (within, gradient))
    return np.column_stack([within - gradient, oracle, remainder, gradient, within, *others])


def estimate_of(name: str, interval: Interval, error: float, prompts: int) -> Estimate:
    """Return one quantity with its sentence."""
    symbol = SYMBOLS.get(name, name)
    text = (
        f"{symbol} = {interval.value:.4g} ({interval.low:.4g} to {interval.high:.4g}, "
        f"{percent(interval.level)}, {prompts} prompts)"
    )
    if not interval.bounded:
        few = "there are too few prompts for an interval, which needs three"
        text += f": {few if prompts < 3 else 'the data do not limit it'}"
    elif name in SIGNED:
        pass
    elif interval.covers(0.0):
        text += f": not different from zero within its error{_enough(interval, error, prompts)}"
    elif interval.high < 0:
        text += (
            ": it is below zero, which is impossible for this quantity; this is chance, or "
            "rewards and scores do not belong together"
        )
    return Estimate(symbol, MEANINGS[name], interval, error, prompts, text)


def _enough(interval: Interval, error: float, prompts: int) -> str:
    """How many prompts would tell the value from zero, were it as large as estimated, or as the
    interval allows.
    """
    size = interval.value if interval.value > 0 else interval.high
    if not (size > 0 and error > 0):
        return ""
    # The standard error falls with the square root of the number of prompts, so that number goes
    # with the square.
    needed = math.ceil(
        prompts * (student_quantile(interval.level, max(prompts - 1, 1)) * error / size) ** 2
    )
    supposed = (
        "the true value equals the estimate"
        if interval.value > 0
        else f"the true value is {size:.3g}"
    )
    return f"; if {supposed}, about {max(needed, prompts + 1):,} prompts would show it"
