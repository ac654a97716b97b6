"""Collapse: a reward, or one of its functions, that lost most of its height for good.

The null is that a row falls below half of the height reached so far in at most one of five cases, whatever came before: a rise, a plateau
and slow noise about one respect it, and so do rows that depend on each other. Why it collapsed is the verdict's business.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.diagnostics.data_order import level_of
from groupwise.diagnostics.findings import Finding, Healthy, Outcome, Unavailable
from groupwise.diagnostics.sequential import CRITICAL, WARNING, alarm, rare_event_factors
from groupwise.diagnostics.signals import FEWEST_ROWS, LOG_REWARD, Evidence, Signal, blocks, counted
from groupwise.diagnostics.verifier import behaviour_change
from groupwise.intervals import Interval

FloatArray = NDArray[np.float64]
NAME = "collapse"
# What the number of a fall is.
LOST = "share of the height lost"
HALF = 0.5
# Chance in health of a row below half of the height. Rows are averaged until half of the height is three standard deviations.
USUAL = 0.2
_CLEAR = 6.0
# A height is the lower 97.5 % limit of a mean of neighbouring blocks, so that a lucky row makes none.
_LUCK = 1.96
# Completions of a tenth of their length are no longer the same answers; healthy public runs shortened to a quarter at most.
_TENTH = 0.1


@dataclass(frozen=True, slots=True)
class Fall:
    """A fall from a height.

    Args:
        row: of the signal, where it began.
        height: level before.
        end: level since, or of the lowest stretch where it recovered.
        lost: share of the height lost, with its interval.
        lasts: whether it holds to the last row.
    """

    row: int
    height: float
    end: float
    lost: Interval
    lasts: bool


def check(evidence: Evidence) -> Outcome:
    """Look for a collapse of the reward, of a reward function, or of the answers themselves.

    Args:
        evidence: of the run.

    Returns:
        Critical where the fall lasts to the end, a warning where it was made good or is partial.
    """
    reward = evidence.reward
    if reward is None:
        return Unavailable(NAME, evidence.no_reward, LOG_REWARD)
    found = [(name, signal, fall) for name, signal in _watched(evidence) if (fall := find_fall(signal)) is not None]
    lasting = [item for item in found if item[2].lasts]
    if lasting:
        return _collapsed(evidence, *min(lasting, key=lambda item: (item[0] != "reward", item[2].row)))
    short = _shortened(evidence)
    if short is not None:
        return short
    decline = _decline(level_of(reward)[0])
    if decline is not None:
        return decline
    if found:
        return _recovered(*found[0])
    if row_size(reward) is None:
        return Unavailable(NAME, _too_noisy(reward), "more rows, or the rollouts with their rewards")
    return Healthy(NAME, "The reward holds its height.", {"fall": "none"})


def _watched(evidence: Evidence) -> list[tuple[str, Signal]]:
    """The reward, the held-out reward, then each of its functions."""
    signals = [("reward", evidence.reward), ("held-out reward", evidence.held_out), *evidence.functions.items()]
    # What comes round with the order of the data is no fall.
    return [(name, level_of(signal)[0]) for name, signal in signals if signal is not None]


def floor_of(signal: Signal) -> float:
    """Return the level that counts as nothing: 0 for a reward that is never negative, else the lowest level seen."""
    lowest = float(signal.value_T.min())
    if lowest >= 0:
        return 0.0
    few = max(3, len(signal) // 20)
    smooth = np.convolve(signal.value_T, np.ones(few) / few, "valid") if len(signal) >= few else signal.value_T
    return float(smooth.min())


def row_size(signal: Signal) -> int | None:
    """Return how many rows to average so that noise hides no half of the height; None where even an eighth of the log does not do."""
    few = max(3, len(signal) // 15)
    if len(signal) < FEWEST_ROWS:
        return None
    smooth = np.convolve(signal.value_T, np.ones(few) / few, "valid")
    span = float(smooth.max()) - _LUCK * signal.scatter / np.sqrt(few) - floor_of(signal)
    if span <= 0:
        return None
    size = max(1, int(np.ceil((_CLEAR * signal.scatter / span) ** 2)))
    return size if len(signal) // size >= FEWEST_ROWS else None


def heights(value_T: FloatArray, deviation: float) -> FloatArray:
    """Return the height reached before each row: the largest lower limit of a mean of neighbouring rows.

    Args:
        value_T: rows.
        deviation: of one row's noise.

    Returns:
        Shape (T,); minus infinity where there are too few rows yet.
    """
    few = max(3, len(value_T) // 15)
    out = np.full(len(value_T), -np.inf)
    if len(value_T) <= few:
        return out
    smooth = np.convolve(value_T, np.ones(few) / few, "valid") - _LUCK * deviation / np.sqrt(few)
    out[few:] = np.maximum.accumulate(smooth)[: len(value_T) - few]
    return out


def find_fall(signal: Signal, *, rate: float = CRITICAL) -> Fall | None:
    """Find the last fall below half of the height.

    Args:
        signal: of a reward.
        rate: false-alarm rate over the whole run.

    Returns:
        The fall, or None.
    """
    size = row_size(signal)
    if size is None:
        return None
    value, first = blocks(signal, size)
    deviation, floor = signal.scatter / np.sqrt(size), floor_of(signal)
    height = heights(value, deviation)
    usable = height - floor >= _CLEAR * deviation
    usable &= height > floor
    below = value < floor + HALF * (np.where(usable, height, np.inf) - floor)
    factors = np.where(usable, rare_event_factors(below, USUAL), 0.0)
    found = alarm(factors, rate=rate)
    if found is None:
        return None
    start = found.onset
    after = value[start:]
    # Where the evidence has fallen below the threshold again, or the last rows stand high again, it was made good.
    tail = below[-max(2, len(value) // 20) :]
    lasts = found.lasts and bool(tail.mean() >= HALF)
    top = float(np.max(height[start])) if np.isfinite(height[start]) else float(height.max())
    end = float(after.mean()) if lasts else float(after[below[start:]].mean())
    if floor < 0 and top - end < 2 * _CLEAR * deviation / np.sqrt(max(3, len(after))):
        return None  # where 0 is no floor slow noise reaches the lowest level too
    half = _LUCK * deviation / np.sqrt(max(len(after), 1))
    span = top - floor
    share = float((top - end) / span)
    lost = Interval(share, float(max(0.0, share - half / span)), float(min(1.0, max(share + half / span, share))))
    return Fall(_closer(signal, int(first[start]), size, (top + end) / 2), top, end, lost, lasts)


def _closer(signal: Signal, row: int, size: int, middle: float) -> int:
    """Place an onset within its block, or before it: back over the rows that were below the middle already."""
    if size > 1:
        low, high = max(0, row - size), min(len(signal), row + size)
        gain = np.cumsum(signal.value_T[low:high] - middle)
        row = low + int(np.argmax(gain)) + 1 if float(gain.max()) > 0 else low
        return min(row, len(signal) - 1)
    while row > 1 and signal.value_T[row - 1] < middle and signal.value_T[row - 2 : row].mean() < middle:
        row -= 1
    return row


def _collapsed(evidence: Evidence, name: str, signal: Signal, fall: Fall) -> Finding:
    """Report a collapse that lasts."""
    step = int(signal.step_T[fall.row])
    message = f"The {name} collapsed: it had reached {fall.height:.3g} at least, and stands at {fall.end:.2g} since step {step:,}."
    advice = "Stop, go back to a checkpoint before this step, and look at the verdict for the cause before you start again."
    known = {"fall": "lasting"} if name == "reward" else {"fall": "function"}
    known["behaviour"] = behaviour_change(evidence, step)[0]
    return Finding(NAME, "critical", step, fall.lost, HALF, message, advice, known, what=LOST)


def _recovered(name: str, signal: Signal, fall: Fall) -> Finding:
    """Report a fall that was made good."""
    step = int(signal.step_T[fall.row])
    message = (
        f"From step {step:,} the {name} stood below half of its height for a while "
        f"({fall.end:.2g}, from {fall.height:.2g} at least) and came back."
    )
    advice = "Look at the completions of those steps; a run that fell once tends to fall again, so keep a checkpoint from before."
    return Finding(NAME, "warning", step, fall.lost, HALF, message, advice, {"fall": "recovered"}, what=LOST)


def _decline(reward: Signal) -> Finding | None:
    """Report a reward that ends significantly below its height without losing half of it."""
    n = len(reward)
    few = max(5, n // 8)
    if n < 4 * few:
        return None
    floor = floor_of(reward)
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
    share = Interval(-lost.value / height, max(0.0, -lost.high / height), max(min(1.0, -lost.low / height), -lost.value / height))
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
