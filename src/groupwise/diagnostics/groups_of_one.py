"""Groups of one: the advantage is the reward itself, so that nothing is compared.

Where no groups are wanted (PPO) nothing is said.
"""

from __future__ import annotations

import numpy as np

from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.judgement import Finding, Status, no_sign, not_logged
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal

NAME = "groups_of_one"
# What trainers call a loss or an estimator that wants no groups.
WITHOUT_GROUPS = frozenset({"ppo", "gae", "reinforce", "reinforce_plus_plus", "remax"})
# Mean advantages count tokens and mean rewards rollouts: where the means differ the ends tell.
_STATISTICS = (("",), ("_max", "_min"))


def check(evidence: Evidence) -> Finding:
    """Look for advantages that are the rewards themselves, and for a group size of 1."""
    size, loss = evidence.setting("group_size"), str(evidence.setting("loss")).lower()
    if loss in WITHOUT_GROUPS:
        return no_sign(NAME, "No groups are wanted.")
    undefined = _undefined(evidence)
    if undefined:
        why = f"{undefined} is not a number in any row: a deviation of one rollout divides it"
        return Finding(NAME, Status.WARNING, f"groups of one: {why}", facts=(Fact.GROUPS_OF_ONE,))
    advantages = [evidence.quantity(f"advantage{part}") for part in ("", "_max", "_min")]
    logged = any(signal is not None for signal in advantages)
    if not logged and size is None:
        return not_logged(NAME, "Neither the group size nor advantages are in the log.")
    fact = Fact.GROUPS_OF_ONE
    same = next(
        (pair for kind in ("reward", "reward_after_kl") if (pair := _same(evidence, kind))), None
    )
    if same is not None:
        why = f"{same[0].column} is {same[1].column} in all {len(same[0])} rows"
    elif size == 1 and not logged and not evidence.rewards_differ:
        why = f"the group size is 1 ({evidence.record.config.group_size.source})"
    elif _all_zero(evidence, advantages[1:]):
        fact = Fact.ADVANTAGES_ZERO
        why = "or all rewards of each group are equal: advantages are 0 in all rows"
    else:
        return no_sign(NAME, "No sign of it.")
    message = f"groups of one: no baseline, {why}"
    return Finding(NAME, Status.WARNING, message, facts=(fact,))


def _undefined(evidence: Evidence) -> str:
    """The column of advantages that holds no number although rewards do; "" where none."""
    steps, reward = evidence.record.steps, evidence.reward
    columns = [
        meaning.column
        for meaning in evidence.record.meanings
        if meaning.quantity.startswith("advantage") and meaning.column in steps.columns
    ]
    undefined = (name for name in columns if not steps[name].count())
    return "" if reward is None else next(undefined, "")


def _same(evidence: Evidence, kind: str) -> tuple[Signal, Signal] | None:
    """Advantages and the rewards that they are, row for row; None of a reward that never moves,
    which tells nothing.
    """
    for parts in _STATISTICS:
        pairs = [
            (evidence.quantity(f"advantage{part}"), evidence.quantity(f"{kind}{part}"))
            for part in parts
        ]
        logged_pairs = [
            (first, other) for first, other in pairs if first is not None and other is not None
        ]
        moves = any(len(reward) >= FEWEST_ROWS and reward.span > 0 for _, reward in logged_pairs)
        if (
            len(logged_pairs) == len(parts)
            and moves
            and all(equal_in_print(*pair) for pair in logged_pairs)
        ):
            return logged_pairs[0]
    return None


def equal_in_print(first: Signal, other: Signal) -> bool:
    """Whether two columns hold the same numbers in the same rows, as far as their digits tell."""
    unit = max(first.resolution, other.resolution)
    alike = np.array_equal(first.step_T, other.step_T)
    return alike and bool(np.allclose(first.value_T, other.value_T, rtol=1e-5, atol=1.01 * unit))


def _all_zero(evidence: Evidence, advantages: list[Signal | None]) -> bool:
    """Whether the largest and smallest advantages are 0 although rewards differ from row to row,
    and nothing says that those of each group are equal.
    """
    reward, logged = evidence.reward, [signal for signal in advantages if signal is not None]
    if reward is None or not reward.span or evidence.groups.zero_variance.known:
        return False
    return bool(logged) and all(signal.is_zero.all() for signal in logged)
