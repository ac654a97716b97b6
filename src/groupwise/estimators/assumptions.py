r"""What variance components assume of scores, prompts and groups, and whether the data bear it out.

Scores: $|E[s|x]|^2$ is 0 for a policy's own scores. Prompts: where they are independent, ranks of
neighbours correlate by $-1/(P-1)$, with variance $1/P$. Groups: one whose rewards are equal tells
nothing of the gradient, and a few long scores hold much of Vp.
"""

from __future__ import annotations

import math

import numpy as np

from groupwise.arrays import Columns, Float, mean_ranks
from groupwise.plain import HOLDS, UNKNOWN, VIOLATED, Assumption, frozen

ALARM = 4.0
"""Standard errors: a false alarm in 30,000 for a normal statistic, and far fewer than one in 100
with the tails of these.
"""
# groups with two rewards or more on either side; with fewer the intervals held Vp in 0 to 98 % of
# cases, with so many in 94 % over eight worlds and in 89 % at least
FEWEST_INFORMATIVE = 4
_FEWEST_BLOCKS = 8  # of neighbours that resemble each other
_LIKENESS = {"value": "mean reward", "score_norm2": "score length"}  # by which they do
_FEWEST_NEIGHBOURS = 20  # prompts below which no correlation passes the alarm
# times the relative variance that Vp would have over lognormal prompts: with fewer prompts the
# upper halves of intervals are longer by the cube root of what is lacking, and with fewer than the
# second they have no end
_PROMPTS_PER_VARIANCE, _FEWEST_PER_VARIANCE = 12.0, 1 / 3
# fourth moment of rewards in their group over squared variance, 3 for a normal law: from the first
# on a sample may not show its tail, and upper halves are half as long again for each unit more, up
# to three times; from the second on they have no end. Chosen on 42 worlds; what they do in others
# is in lab/docs/theory/gradient.md
_PERHAPS_HEAVY_TAILS, _HEAVY_TAILS = 4.0, 16.0
_PER_UNIT, _MOST = 0.5, 3.0


def zero_score_mean(mean_norm2: float, standard_error: float, prompts: int) -> Assumption:
    name = "scores with a mean of 0 within prompts"
    if prompts < 3 or not standard_error > 0:
        sentence = f"{prompts:,} prompts cannot tell whether the scores average to zero."
        return Assumption(name, UNKNOWN, sentence)
    errors = mean_norm2 / standard_error
    if errors <= ALARM:
        return Assumption(
            name,
            HOLDS,
            f"The squared length of the scores' mean within prompts is {mean_norm2:.3g}, "
            f"{errors:.2g} standard errors from 0.",
        )
    return Assumption(
        name,
        VIOLATED,
        "The scores do not average to zero within prompts, as a policy's own scores do: the "
        f"squared length of their mean is {mean_norm2:.3g}, {errors:.2g} standard errors from 0. "
        "Were the rollouts sampled by another checkpoint, at another temperature or with top-p, or "
        "divided by their length? Do without the assumption: zero_mean=False, --any-mean in a "
        "command.",
    )


def independent_prompts(moment_P: Columns, prompts: int) -> Assumption:
    name = "independent prompts"
    if prompts < _FEWEST_NEIGHBOURS:
        sentence = f"{_FEWEST_NEIGHBOURS} prompts could tell whether neighbours are independent."
        return Assumption(name, UNKNOWN, sentence)
    correlation, quantity = max(
        (_correlation(_ranked(moment_P[key]), lag=1), text) for key, text in _LIKENESS.items()
    )
    most = ALARM / math.sqrt(prompts)
    measured = f"the {quantity} of neighbouring prompts has a rank correlation of {correlation:.2g}"
    if correlation <= most:
        sentence = f"Prompts do not resemble their neighbours: {measured}, at most {most:.2g}."
        return Assumption(name, HOLDS, sentence)
    length = block_length(moment_P, prompts)
    return Assumption(
        name,
        VIOLATED,
        f"Prompts resemble their neighbours: {measured}, independent ones at most {most:.2g}, so "
        f"that the intervals rest on {prompts // length} blocks of {length} neighbours. Give "
        "prompts of one kind one label, components(reward_N, kind_N, ...), or measure fewer "
        "steps, --steps A:B in a command.",
    )


def block_length(moment_P: Columns, prompts: int) -> int:
    """Neighbours that are left out together: 1 where prompts do not resemble the next, else the
    first lag at which they no longer do, so that at least eight blocks remain.
    """
    if prompts < _FEWEST_NEIGHBOURS:
        return 1
    ranks = [_ranked(moment_P[key]) for key in _LIKENESS]
    most, longest = ALARM / math.sqrt(prompts), prompts // _FEWEST_BLOCKS
    if max(_correlation(rank_P, lag=1) for rank_P in ranks) <= most:
        return 1
    return next(
        (
            lag
            for lag in range(2, longest)
            if max(_correlation(rank_P, lag=lag) for rank_P in ranks) <= most / 2
        ),
        longest,
    )


def _ranked(value_P: Float) -> Float:
    """Ranks about their mean."""
    rank_P = mean_ranks(value_P)
    return np.asarray(rank_P - rank_P.mean())


def _correlation(rank_P: Float, *, lag: int) -> float:
    """Correlation of each rank with a later one, above what independent values have."""
    squares, count = float(rank_P @ rank_P), len(rank_P)
    return float(rank_P[lag:] @ rank_P[:-lag]) / squares + 1 / (count - 1) if squares > 0 else 0.0


@frozen
class Unseen:
    """What a sample of prompts may not show of the laws of scores and rewards."""

    moment_P: Columns  # of each prompt
    prompts: int
    rollouts: int

    @property
    def widening(self) -> float:
        """How many times as long the upper halves of intervals are."""
        above = _PER_UNIT * (self.kurtosis - _PERHAPS_HEAVY_TAILS)
        return self.of_lengths * (1 + min(max(above, 0.0), _MOST - 1) if above == above else 1.0)

    @property
    def of_lengths(self) -> float:
        """The part of unlike lengths in the widening."""
        lack = _PROMPTS_PER_VARIANCE * self.relative_variance / self.prompts
        return max(math.cbrt(lack), 1.0)

    @property
    def relative_variance(self) -> float:
        """Of Vp, were prompts lognormal in the length of their scores: it goes with the square of
        E|s|^2, and exp(2uz) has the relative variance exp(4u^2) - 1.
        """
        return math.expm1(min(4 * self.unlikeness**2, 100.0))

    @property
    def unlikeness(self) -> float:
        """Standard deviation of the logarithm of prompts' E|s|^2, each weighed by its root: short
        scores of solved prompts are unlike and hold nothing.
        """
        length_P = self.moment_P["score_norm2"]
        length_P = length_P[length_P > 0]
        if self.prompts < 3 or not length_P.size:
            return 0.0
        log_P, weight_P = np.log(length_P), np.sqrt(length_P)
        deviation_P = log_P - np.average(log_P, weights=weight_P)
        return math.sqrt(float(np.average(deviation_P**2, weights=weight_P)))

    @property
    def kurtosis(self) -> float:
        """Fourth moment of rewards in their groups over squared variance: 0 for rewards of 0 and 1,
        which have no tail, nan where too few groups differ to tell.
        """
        variance_P = self.moment_P["reward_variance"]
        differ_P = variance_P > 0
        if np.count_nonzero(differ_P) < _FEWEST_NEIGHBOURS:
            return math.nan
        size, value_P = self.rollouts / self.prompts, self.moment_P["value"]
        if np.allclose(variance_P * (size - 1), size * value_P * (1 - value_P), atol=1e-9):
            return 0.0
        variance_P = variance_P[differ_P]
        return 1 + size * float(variance_P.var() / variance_P.mean() ** 2)


def scores_of_like_length(sample: Unseen) -> Assumption:
    name = "scores of like length"
    factor = f"E|s|^2 by a factor of {math.exp(sample.unlikeness):.2g} either way"
    if sample.prompts >= _PROMPTS_PER_VARIANCE * sample.relative_variance:
        sentence = f"The prompts' scores are of like length ({factor})."
        return Assumption(name, HOLDS, sentence)
    differ = f"The prompts' scores differ much in length ({factor}), so that a few prompts not "
    if sample.prompts < _FEWEST_PER_VARIANCE * sample.relative_variance:
        return Assumption(
            name,
            VIOLATED,
            f"{differ}drawn may hold most of Vp, T and R: their intervals have no upper end. "
            "Measure more prompts.",
            ("vp", "t", "r"),
        )
    sentence = f"{differ}drawn may hold much of Vp, T and R: their intervals are longer for it."
    return Assumption(name, UNKNOWN, sentence)


def rewards_of_light_tails(sample: Unseen) -> Assumption:
    """Whether few rewards hold most of the variance of the groups that have any."""
    name, kurtosis = "rewards of light tails", sample.kurtosis
    measured = f"the fourth moment of rewards in their groups is {kurtosis:.2g} squared variances"
    if math.isnan(kurtosis):
        sentence = f"{_FEWEST_NEIGHBOURS} groups whose rewards differ could tell their tails."
        return Assumption(name, UNKNOWN, sentence)
    if kurtosis < _PERHAPS_HEAVY_TAILS:
        sentence = f"No heavy tail: {measured}." if kurtosis else "Rewards are 0 or 1."
        return Assumption(name, HOLDS, sentence)
    if kurtosis < _HEAVY_TAILS:
        sentence = (
            f"The tail may be heavier than these rewards show ({measured}; 3 for a normal law): "
            "the intervals of Vp, T and R are longer for it."
        )
        return Assumption(name, UNKNOWN, sentence)
    return Assumption(
        name,
        VIOLATED,
        f"A few rewards hold most of the variance ({measured}; 3 for a normal law), so that the "
        "intervals of Vp, T and R have no upper end. Bound the reward, or measure more prompts.",
        ("vp", "t", "r"),
    )


def informative_groups(moment_P: Columns, prompts: int) -> Assumption:
    """Whether enough groups have two successes and two failures, or rewards that all differ: with
    fewer on either side the four rollouts of |g(x)|^2 cancel.
    """
    name = "enough informative groups"
    informative = np.count_nonzero(moment_P["within_gradient_norm2"])
    measured = f"{informative:,} of {prompts:,} groups have two rewards or more on either side"
    if informative >= FEWEST_INFORMATIVE:
        return Assumption(name, HOLDS, f"{measured}.")
    return Assumption(
        name,
        VIOLATED,
        f"Only {measured}, as two successes and two failures, and Vp rests on these alone: with "
        f"fewer than {FEWEST_INFORMATIVE} its interval is left open, from 0 to R/2, above which "
        "no policy lies. Measure more prompts (--groups N in a command), or prompts that are "
        "solved at times.",
        ("vp",),
    )
