r"""What variance components assume of scores, prompts and groups, and whether the data bear it out.

Scores: $|E[s|x]|^2$ is 0 for a policy's own scores. Prompts: where they are independent, ranks of
neighbours correlate by $-1/(P-1)$, with variance $1/P$. Groups: one whose rewards are equal tells
nothing of the gradient, and a few long scores hold much of Vp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from groupwise.arrays import Float
from groupwise.plain import Assumption, AssumptionStatus

ALARM = 4.0
"""Standard errors: a false alarm in 30,000 for a normal statistic, and far fewer than one in 100
with the tails of these.
"""
FEWEST_INFORMATIVE = 8  # groups
_FEWEST_NEIGHBOURS = 20  # prompts below which no correlation passes the alarm
# times the relative variance that Vp would have over lognormal prompts: fewer prompts cover less
# than they say
_PROMPTS_PER_VARIANCE = 6.0


def zero_score_mean(mean_norm2: float, standard_error: float, prompts: int) -> Assumption:
    name = "scores with a mean of 0 within prompts"
    if prompts < 3 or not standard_error > 0:
        sentence = f"{prompts:,} prompts cannot tell whether the scores average to zero."
        return Assumption(name, AssumptionStatus.UNKNOWN, sentence)
    errors = mean_norm2 / standard_error
    if errors <= ALARM:
        return Assumption(
            name,
            AssumptionStatus.HOLDS,
            f"The squared length of the scores' mean within prompts is {mean_norm2:.3g}, "
            f"{errors:.2g} standard errors from 0.",
        )
    return Assumption(
        name,
        AssumptionStatus.VIOLATED,
        "The scores do not average to zero within prompts, as a policy's own scores do: the "
        f"squared length of their mean is {mean_norm2:.3g}, {errors:.2g} standard errors from 0. "
        "Were the rollouts sampled by another checkpoint, at another temperature or with top-p, or "
        "divided by their length? Do without the assumption: zero_mean=False, --any-mean in a "
        "command.",
    )


def independent_prompts(moment_P: Mapping[str, Float], prompts: int) -> Assumption:
    """Whether prompts resemble their neighbours; no moments where only their sums are kept."""
    name = "independent prompts"
    if not moment_P or prompts < _FEWEST_NEIGHBOURS:
        sentence = f"{_FEWEST_NEIGHBOURS} prompts and their own moments could tell whether "
        return Assumption(
            name, AssumptionStatus.UNKNOWN, f"{sentence}neighbouring prompts are independent."
        )
    correlation, quantity = max(
        (_neighbour_correlation(moment_P[key]), text)
        for key, text in (("value", "mean reward"), ("score_norm2", "score length"))
    )
    most = ALARM / math.sqrt(prompts)
    measured = f"the {quantity} of neighbouring prompts has a rank correlation of {correlation:.2g}"
    if correlation <= most:
        sentence = f"Prompts do not resemble their neighbours: {measured}, at most {most:.2g}."
        return Assumption(name, AssumptionStatus.HOLDS, sentence)
    return Assumption(
        name,
        AssumptionStatus.VIOLATED,
        f"Prompts resemble their neighbours: {measured}, independent ones at most {most:.2g}, so "
        "that the intervals are too short. Give prompts of one kind one label, "
        "components(reward_N, kind_N, ...), or measure fewer steps, --steps A:B in a command.",
    )


def _neighbour_correlation(value_P: Float) -> float:
    """Rank correlation of each value with the next, above what independent values have."""
    from scipy.stats import rankdata

    rank = rankdata(value_P)
    rank -= rank.mean()
    squares = float(rank @ rank)
    count = len(value_P)
    return float(rank[1:] @ rank[:-1]) / squares + 1 / (count - 1) if squares > 0 else 0.0


def informative_groups(
    moment_P: Mapping[str, Float], norm2: float, standard_error: float, prompts: int
) -> Assumption:
    name = "enough informative groups"
    unlikeness = _unlikeness(moment_P, norm2, standard_error, prompts)
    # Vp goes with the square of E|s|^2, and exp(2uz) has the relative variance exp(4u^2) - 1.
    relative_variance = math.expm1(min(4 * unlikeness**2, 100.0))
    if prompts < _PROMPTS_PER_VARIANCE * relative_variance:
        return Assumption(
            name,
            AssumptionStatus.VIOLATED,
            "The prompts' scores differ much in length (E|s|^2 by a factor of "
            f"{math.exp(unlikeness):.2g} either way), so that a few prompts not drawn may hold "
            "much of Vp: in such worlds 95 % intervals held Vp in 91 to 97 % of cases, with four "
            "rollouts a prompt in 78 to 86 %, T and R in 93 to 98 %, and the best group size in "
            "81 to 97 %. More prompts help, more rollouts of each do not.",
        )
    if not moment_P:
        sentence = "Sums over prompts do not hold how many groups had rewards that differ."
        return Assumption(name, AssumptionStatus.UNKNOWN, sentence)
    informative = np.count_nonzero(moment_P["r"])
    measured = f"{informative:,} of {prompts:,} groups have rewards that differ"
    if informative >= FEWEST_INFORMATIVE:
        return Assumption(name, AssumptionStatus.HOLDS, f"{measured}.")
    return Assumption(
        name,
        AssumptionStatus.VIOLATED,
        f"Only {measured}, and the components rest on these alone: nothing shows that intervals of "
        f"fewer than {FEWEST_INFORMATIVE} such groups cover. Measure more prompts (--groups N in a "
        "command), or prompts that are solved at times.",
    )


def _unlikeness(
    moment_P: Mapping[str, Float], norm2: float, standard_error: float, prompts: int
) -> float:
    """Standard deviation of the logarithm of prompts' E|s|^2.

    Where only sums are kept it is that of a lognormal law with their spread.
    """
    if prompts < 3 or norm2 <= 0:
        return 0.0
    if not moment_P:
        return math.sqrt(math.log1p(prompts * (standard_error / norm2) ** 2))
    each_P = moment_P["score_norm2"]
    return float(np.log(each_P[each_P > 0]).std())
