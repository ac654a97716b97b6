"""Does the policy move too fast, too slowly, or on too few prompts? The three commonest faults of
settings, by what the first rows and the divergence from the reference show.

A fall in the middle of a run is not judged here.
"""

from __future__ import annotations

import numpy as np

from groupwise.arrays import median
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.judgement import (
    Finding,
    Learning,
    Status,
    by_sign,
    exactly,
    no_sign,
)
from groupwise.diagnostics.learning import Progress, progress_of
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal, counted
from groupwise.diagnostics.signs import arrow, moved
from groupwise.diagnostics.update import SMALL_NORM
from groupwise.wording import short

NAME = "pace"
# The reward of the starting policy is gone within ten updates: less than so much of it is left then
# and at the end, beyond so many standard deviations of a row.
_SOON, LEFT, SURELY = 10, 0.4, 5.0
# What went with it: entropy or length a quarter less, or a third more.
CHANGED = 0.75
# Where any later row reaches half of the first, that one was lucky.
HALF = 0.5
# A policy that is no farther than this from its reference, nats a token, after so many steps.
NEAR, _LONG = 3e-4, 100
# Groups of 32 and more on fewer prompts than this.
LARGE_GROUP, FEW_PROMPTS = 32, 8


def check(evidence: Evidence) -> Finding:
    """Look for a step that destroys the policy, one that does not move it, and too few prompts."""
    reward = evidence.reward
    if reward is None or len(reward) < 2 * _SOON:
        return no_sign(NAME, "Too few rows tell how fast the policy moves.")
    found = _destroyed(evidence, reward) or _unmoved(evidence, reward) or _few_prompts(evidence)
    return found or no_sign(NAME, "No sign of a step that is too large or too small.")


def _destroyed(evidence: Evidence, reward: Signal) -> Finding | None:
    """A reward that was there in the first row and is gone within ten, with the behaviour."""
    value, few = reward.value_T, max(3, len(reward) // 10)
    start, low = float(value[0]), 0.0 if reward.bounds is None else reward.bounds[0]
    soon, late = float(value[_SOON : 2 * _SOON].mean()), float(value[-few:].mean())
    gone = max(soon, late) - low < LEFT * (start - low)
    if not gone or start - soon < SURELY * max(reward.scatter, reward.resolution):
        return None
    entropy, length = evidence.quantity("entropy"), evidence.quantity("completion_length")
    changes = [_change(signal) for signal in (entropy, length) if signal is not None]
    if not any(change < CHANGED or change > 1 / CHANGED for change in changes):
        return None
    row = int(np.argmax(value < low + LEFT * (start - low)))
    if float(value[row:].max()) - low > HALF * (start - low):
        return None  # the first row was a lucky one
    first, step = reward.step_at(0), reward.step_at(row)
    if step - first > _SOON:
        return None
    sign = moved("reward", first, start, progress_of(evidence).after)
    updates = counted(step - first, "update")
    message = f"{sign.words} in the first {updates}, and it never came back"
    return by_sign(NAME, Status.CRITICAL, message, sign, LEFT * start, Fact.DESTROYED_AT_ONCE)


def _change(signal: Signal) -> float:
    """What the next ten rows are of the first one."""
    start = float(signal.value_T[0])
    return median(signal.value_T[2 : 2 + _SOON]) / start if start > 0 else 1.0


def _unmoved(evidence: Evidence, reward: Signal) -> Finding | None:
    """A reward that stands, of a policy that is where it began."""
    kl, progress = evidence.quantity("kl"), progress_of(evidence)
    if kl is None or len(kl) < FEWEST_ROWS or progress.learning is not Learning.FLAT:
        return None
    farthest, steps = float(np.quantile(kl.value_T, 0.95)), reward.step_at(-1)
    norm = evidence.quantity("gradient_norm")
    small = norm is not None and median(norm.value_T) < SMALL_NORM
    if small or not 0 < farthest < NEAR or steps < _LONG or kl.resolution:
        return None
    message = f"{_nothing(progress)}, and the policy is {short(farthest)} nats from its reference"
    return Finding(
        NAME, Status.WARNING, message, None, exactly(farthest), NEAR, facts=(Fact.POLICY_UNMOVED,)
    )


def _nothing(progress: Progress) -> str:
    """Say that nothing is learnt."""
    levels = arrow(progress.before, progress.after)
    return f"nothing learnt in {progress.steps:,} steps: reward {levels}"


def _few_prompts(evidence: Evidence) -> Finding | None:
    """Large groups of few prompts, where nothing is learnt."""
    size, prompts = evidence.group_size, evidence.setting("prompts_per_step")
    if size is None or prompts is None or size < LARGE_GROUP or float(prompts) >= FEW_PROMPTS:
        return None
    progress = progress_of(evidence)
    if progress.learning is not Learning.FLAT:
        return None
    few = f"{float(prompts):g} prompts a step in groups of {size}"
    message = f"{_nothing(progress)}, with {few}"
    return Finding(NAME, Status.WARNING, message, facts=(Fact.FEW_PROMPTS,))
