"""Length runaway: completions grow to their limit and are truncated, and the reward does not rise with it.

Longer answers with a rising reward are what reasoning looks like, and no finding. It does not judge what the answers say.
"""

from __future__ import annotations

import numpy as np

from groupwise.diagnostics.former.collapse import HALF, find_fall
from groupwise.diagnostics.former.findings import Finding, Healthy, Outcome, Severity, Unavailable
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal, lasting, rare_event_factors, reward_floor, share_of

NAME = "length_runaway"
LOG = (
    "the mean length of the completions and the share that is truncated (TRL: completions/mean_length, "
    "completions/clipped_ratio; verl: response_length/mean, response_length/clip_ratio)"
)
ADVICE = (
    "Average the loss over the tokens of the batch and not over those of each answer (long wrong answers pay less there), penalise or mask "
    "answers that are truncated, and check that the end-of-sequence token is learnt; raise the limit only if the answers need it."
)


def check(evidence: Evidence) -> Outcome:
    """Look for completions that have come to be truncated."""
    cut = evidence.quantity("truncated_share")
    length = evidence.quantity("completion_length")
    if (cut is None or len(cut) < FEWEST_ROWS) and (length is None or len(length) < FEWEST_ROWS):
        return Unavailable(NAME, "neither length nor the share of truncated completions is in the log", LOG)
    signal = cut if cut is not None and len(cut) >= FEWEST_ROWS else _of_limit(evidence, length)
    if signal is None:
        return _by_length(evidence, length)
    most = signal.value_T > HALF
    early = float(most[: max(len(most) // 5, 3)].mean())
    onset = lasting(rare_event_factors(most, min(0.5, max(0.2, 2 * early))), event_T=most)
    if early > HALF or onset is None:
        late = float(signal.value_T[-max(3, len(signal) // 10) :].mean())
        return Healthy(NAME, f"{100 * late:.0f} % of the last completions are truncated.")
    step = int(signal.step_T[onset])
    value = signal.mean(slice(onset, None))
    severity, said = _effect(evidence, step)
    before = 100 * float(signal.value_T[:onset].mean())
    message = f"Since step {step:,} {100 * value.value:.0f} % of the completions are truncated, {before:.0f} % before; {said}."
    what = "share of the completions that are truncated"
    return Finding(NAME, severity, step, value, HALF, message, ADVICE, {"length": "runaway"}, what)


def _of_limit(evidence: Evidence, length: Signal | None) -> Signal | None:
    """Whether the mean length stands at the limit, where that is known: nine tenths of it."""
    limit = evidence.setting("max_completion_length")
    if limit is None or length is None:
        return None
    return share_of(length.step_T, length.value_T > 0.9 * float(limit))


def _by_length(evidence: Evidence, length: Signal | None) -> Outcome:
    """Judge by length alone: it doubled and more, and the reward fell."""
    assert length is not None
    n, few = len(length), max(4, len(length) // 6)
    change = length.change(slice(0, few), slice(n - few, None))
    first = float(length.value_T[:few].mean())
    row = int(np.argmax(length.value_T > 1.5 * first)) if (length.value_T > 1.5 * first).any() else 0
    severity, said = _effect(evidence, int(length.step_T[row]))
    if length.score(slice(0, few), slice(n - few, None)) < 5 or change.value < first or severity == "info" or row == 0:
        return Healthy(NAME, f"The completions are {float(length.value_T[-few:].mean()):.3g} tokens long, {first:.3g} at the beginning.")
    step = int(length.step_T[row])
    message = f"The completions grew from {first:.3g} to {first + change.value:.3g} tokens; {said}."
    late, what = length.mean(slice(n - few, None)), "tokens of a completion at the end"
    return Finding(NAME, "warning", step, late, 2 * first, message, ADVICE, {"length": "runaway"}, what)


def _effect(evidence: Evidence, step: int) -> tuple[Severity, str]:
    """Say what the reward did meanwhile, and how bad that makes it."""
    reward = evidence.reward
    if reward is None or len(reward) < FEWEST_ROWS:
        return "warning", "the reward is not in the log"
    fall = find_fall(reward, reward_floor(evidence))
    if fall is not None and fall.lasts:
        return "critical", "the reward lost more than half of its height"
    row, few = reward.at(step), max(3, len(reward) // 10)
    before, after = slice(max(0, row - few), row), slice(max(row, len(reward) - few), len(reward))
    score = reward.score(before, after) if row >= 3 else 0.0
    if score > 3:
        return "info", "the reward rose meanwhile"
    return "warning", "the reward fell meanwhile" if score < -3 else "the reward did not rise meanwhile"
