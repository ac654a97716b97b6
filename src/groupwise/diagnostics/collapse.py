"""Collapse: a reward, or one of its functions, that lost most of its height for good.

A reward that fell in training alone, while the held-out one stayed, is no collapse of the policy. Why it collapsed is the verdict's
business.
"""

from __future__ import annotations

import numpy as np

from groupwise.diagnostics.data_order import level_of
from groupwise.diagnostics.falls import HALF, USUAL, Fall, by_and_by, find_fall, row_size
from groupwise.diagnostics.findings import Finding, Healthy, Outcome, Severity, Unavailable
from groupwise.diagnostics.levels import floor_of, reward_floor
from groupwise.diagnostics.sequential import CRITICAL, WARNING, alarm, rare_event_factors
from groupwise.diagnostics.signals import FEWEST_ROWS, LOG_REWARD, Evidence, Signal, counted
from groupwise.diagnostics.verifier import behaviour_change, held_out_at
from groupwise.intervals import Interval

NAME = "collapse"
# What the number of a fall is.
LOST = "share of the height lost"
# Completions of a tenth of their length are no longer the same answers; healthy public runs shortened to a quarter at most.
_TENTH = 0.1


def check(evidence: Evidence) -> Outcome:
    """Look for a collapse of the reward, of a reward function, or of the answers themselves."""
    reward = evidence.reward
    if reward is None:
        return Unavailable(NAME, evidence.no_reward, LOG_REWARD)
    floor = reward_floor(evidence, reward)
    found = [(name, signal, fall) for name, signal, low in _watched(evidence, floor) if (fall := find_fall(signal, low)) is not None]
    lasting = [item for item in found if item[2].lasts]
    if lasting:
        return _collapsed(evidence, *min(lasting, key=lambda item: (item[0] != "reward", item[2].row)))
    short = _shortened(evidence)
    if short is not None:
        return short
    decline = _decline(level_of(reward)[0], floor)
    if decline is not None:
        return decline
    if found:
        return _recovered(*found[0])
    if row_size(reward, floor) is None:
        return Unavailable(NAME, _too_noisy(reward), "more rows, or the rollouts with their rewards")
    return Healthy(NAME, "The reward holds its height.", {"fall": "none"})


def _watched(evidence: Evidence, floor: float) -> list[tuple[str, Signal, float]]:
    """The reward, the held-out reward, then each of its functions, each with the level that counts as nothing."""
    # A penalty that grows as the answers get longer is the price of them; it shows in the reward where it is more.
    earned = {name: signal for name, signal in evidence.functions.items() if float(signal.value_T.min()) >= 0}
    signals = [("reward", evidence.reward), ("held-out reward", evidence.held_out), *earned.items()]
    # What comes round with the order of the data is no fall.
    levels = [(name, level_of(signal)[0]) for name, signal in signals if signal is not None]
    return [(name, signal, floor if name == "reward" else floor_of(signal)) for name, signal in levels]


def _collapsed(evidence: Evidence, name: str, signal: Signal, fall: Fall) -> Finding:
    """Report a collapse that lasts."""
    step = int(signal.step_T[fall.row])
    message = f"The {name} collapsed: it had reached {fall.height:.3g} at least, and stands at {fall.end:.2g} since step {step:,}."
    advice = "Stop, go back to a checkpoint before this step, and look at the verdict for the cause before you start again."
    known = {"fall": "lasting" if name == "reward" else "function", "behaviour": behaviour_change(evidence, step)[0]}
    known["fall"] += ", by and by" if by_and_by(signal, fall.row) else ""
    severity: Severity = "critical"
    if name != "held-out reward" and held_out_at(evidence, step, fall.end - fall.height, ever=True) == "stayed":
        severity, message = "warning", f"{message} The held-out reward did not fall with it, so that the policy is not what broke."
        known["fall"] = "of training alone"
        advice = "Look at what changed at this step, in the prompts and in the reward function, before you go on."
    return Finding(NAME, severity, step, fall.lost, HALF, message, advice, known, what=LOST)


def _recovered(name: str, signal: Signal, fall: Fall) -> Finding:
    """Report a fall that was made good."""
    step = int(signal.step_T[fall.row])
    message = (
        f"From step {step:,} the {name} stood below half of its height for a while "
        f"({fall.end:.2g}, from {fall.height:.2g} at least) and came back."
    )
    advice = "Look at the completions of those steps; a run that fell once tends to fall again, so keep a checkpoint from before."
    return Finding(NAME, "warning", step, fall.lost, HALF, message, advice, {"fall": "recovered"}, what=LOST)


def _decline(reward: Signal, floor: float) -> Finding | None:
    """Report a reward that ends significantly below its height without losing half of it."""
    n = len(reward)
    few = max(5, n // 8)
    if n < 4 * few:
        return None
    starts = np.arange(0, n - 2 * few + 1)
    levels = np.convolve(reward.value_T, np.ones(few) / few, "valid")[: len(starts)]
    best = int(levels.argmax())
    lost = reward.change(slice(best, best + few), slice(n - few, n))
    error = (lost.high - lost.low) / (2 * 1.96)
    height = float(levels[best]) - floor
    # The height is the largest of some n/few independent means: a Bonferroni correction for having chosen it.
    from scipy.special import ndtri

    limit = -float(ndtri(WARNING / max(n / few, 1)))
    if height <= 0 or not lost.value < 0 or -lost.value < limit * error or -lost.value < 0.2 * height:
        return None
    after = reward.value_T[best:]
    middle = float(levels[best]) + lost.value / 2
    onset = best + int(np.argmax(np.cumsum(after - middle))) + 1
    step = int(reward.step_T[min(onset, n - 1)])
    share = Interval(*(min(max(0.0, -loss / height), 1.0) for loss in (lost.value, lost.high, lost.low)))
    message = f"The reward fell from {levels[best]:.3g} to {levels[best] + lost.value:.3g}, beyond its noise, and ends there."
    advice = "Evaluate the checkpoint of the height and the last one on held-out prompts; if the loss is real, go back and learn slower."
    return Finding(NAME, "warning", step, share, 0.2, message, advice, {"fall": "partial"}, what=LOST)


def _shortened(evidence: Evidence) -> Finding | None:
    """Report answers that shrank to a tenth of their length and stopped teaching."""
    length = evidence.quantity("completion_length")
    if length is None or len(length) < FEWEST_ROWS:
        return None
    value = length.value_T
    earlier = np.maximum.accumulate(value)
    short = value < _TENTH * earlier
    found = alarm(rare_event_factors(short, USUAL), rate=CRITICAL)
    if found is None or not found.lasts or short[-max(2, len(value) // 20) :].mean() < HALF:
        return None
    gradient, dead = evidence.quantity("gradient_norm"), evidence.quantity("dead_group_share")
    after = length.step_T[found.onset]
    silent = [float(np.median(gradient.value_T[gradient.at(after) :])) == 0.0] if gradient is not None else []
    silent += [float(np.median(dead.value_T[dead.at(after) :])) > HALF] if dead is not None else []
    if not silent or not all(silent):
        return None
    step, before, end = int(after), float(earlier[-1]), float(np.median(value[found.onset :]))
    ratio = value[found.onset :] / before
    interval = Interval(end / before, float(np.quantile(ratio, 0.025)), float(np.quantile(ratio, 0.975)))
    message = (
        f"The completions collapsed from {before:.3g} to {end:.2g} tokens at step {step:,}, and most groups have taught nothing since."
    )
    advice = "Read the completions: short fixed answers that still earn a reward. Reward what you want beside it, and start from before."
    return Finding(
        NAME, "critical", step, interval, _TENTH, message, advice, {"fall": "answers"}, what="length of the completions over what it was"
    )


def _too_noisy(reward: Signal) -> str:
    """Say why no height can be told."""
    if len(reward) < FEWEST_ROWS:
        return f"{counted(len(reward), 'row')}: a height and a fall need {FEWEST_ROWS}"
    if float(np.ptp(reward.value_T)) == 0:
        return f"the reward is {reward.value_T[0]:.3g} in all rows: no height to fall from"
    return f"a row scatters by {reward.scatter:.2g}, so much that half of the height could be noise"
