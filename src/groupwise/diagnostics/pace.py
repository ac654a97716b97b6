"""Does the policy move too fast, too slowly, or on too few prompts? The three commonest faults of
settings, by what the first rows and the divergence from the reference show.

A fall in the middle of a run is not judged here.
"""

from __future__ import annotations

import numpy as np

from groupwise.arrays import median
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.judgement import Finding, Learning, Status, by_sign, exactly, no_sign
from groupwise.diagnostics.learning import progress_of
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal, counted
from groupwise.diagnostics.signs import arrow, moved
from groupwise.diagnostics.update import SMALL_NORM
from groupwise.wording import short

NAME = "pace"
# The reward of the starting policy is gone within ten updates: less than half of it is left then
# and at the end, beyond so many standard deviations of a row, and no later row comes back to three
# quarters.
SOON, HALF, SURELY, BACK = 10, 0.5, 5.0, 0.75
# What went with it: a factor of entropy or length, up or down; beyond the second fewer standard
# deviations of the reward suffice; as many show that they moved.
CHANGED, OTHER, ENOUGH = 1.33, 1.67, 3.5
# A policy that is no farther than this from its reference, nats a token, after so many steps.
NEAR, _LONG = 3e-4, 100
# Groups of 32 and more on fewer prompts than this.
LARGE_GROUP, FEW_PROMPTS = 32, 8


def check(evidence: Evidence) -> Finding:
    """Look for a step that destroys the policy, one that does not move it, and too few prompts."""
    reward = evidence.reward
    if reward is None or len(reward) < 2 * SOON:
        return no_sign(NAME, "Too few rows tell how fast the policy moves.")
    finding, progress = _destroyed(evidence, reward), progress_of(evidence)
    if finding is None and progress.learning is Learning.FLAT:
        levels = arrow(progress.before, progress.after)
        said = f"nothing learnt in {progress.steps:,} steps: reward {levels}"
        finding = _unmoved(evidence, reward, said) or _few_prompts(evidence, said)
    return finding or no_sign(NAME, "No sign of a step that is too large or too small.")


def _destroyed(evidence: Evidence, reward: Signal) -> Finding | None:
    """A reward that was there in the first row and is gone within ten, with the behaviour."""
    value, few = reward.value_T, max(5, len(reward) // 10)
    start, low = float(value[0]), 0.0 if reward.bounds is None else reward.bounds[0]
    soon, late = reward.level(slice(SOON, 2 * SOON)), reward.level_from(-few)
    if max(soon, late) - low >= HALF * (start - low):
        return None
    row = int(np.argmax(value < low + HALF * (start - low)))
    first, step = reward.step_at(0), reward.step_at(row)
    signals = map(evidence.quantity, ("entropy", "completion_length"))
    changes = [_change(signal, step) for signal in signals if signal is not None]
    most = max(changes, default=1.0)
    needed = ENOUGH if most >= OTHER else SURELY
    if most <= CHANGED or start - soon < needed * max(reward.scatter, reward.resolution):
        return None
    if value[row:].max() - low > BACK * (start - low):
        return None  # the first row was a lucky one
    if step - first > SOON:
        return None
    sign = moved("reward", first, start, progress_of(evidence).after)
    updates = counted(step - first, "update")
    message = f"{sign.words} within {updates}, and it never came back"
    return by_sign(NAME, Status.CRITICAL, message, sign, HALF * start, Fact.DESTROYED_AT_ONCE)


def _change(signal: Signal, step: int) -> float:
    """The factor, up or down, of the first row to the three from a step on, beyond the scatter of
    rows.
    """
    start, row = float(signal.value_T[0]), signal.at(step)
    now = median(signal.value_T[row : row + 3])
    moves = start > 0 and abs(now - start) > ENOUGH * signal.scatter
    return max(now / start, start / max(now, 1e-9)) if moves else 1.0


def _unmoved(evidence: Evidence, reward: Signal, said: str) -> Finding | None:
    """A policy that is where it began."""
    kl, norm = evidence.quantity("kl"), evidence.quantity("gradient_norm")
    if kl is None or len(kl) < FEWEST_ROWS:
        return None
    farthest = float(np.quantile(kl.value_T, 0.95))
    small = norm is not None and median(norm.value_T) < SMALL_NORM
    if small or not 0 < farthest < NEAR or reward.step_at(-1) < _LONG or kl.resolution:
        return None
    message = f"{said}, and the policy is {short(farthest)} nats from its reference"
    return Finding(
        NAME, Status.WARNING, message, None, exactly(farthest), NEAR, facts=(Fact.POLICY_UNMOVED,)
    )


def _few_prompts(evidence: Evidence, said: str) -> Finding | None:
    """Large groups of few prompts."""
    size, prompts = evidence.group_size, evidence.setting("prompts_per_step")
    if size is None or prompts is None or size < LARGE_GROUP or float(prompts) >= FEW_PROMPTS:
        return None
    message = f"{said}, with {float(prompts):g} prompts a step in groups of {size}"
    return Finding(NAME, Status.WARNING, message, facts=(Fact.FEW_PROMPTS,))
