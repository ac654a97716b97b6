r"""Training and held-out reward side by side: the coupling of their gains, and where they began to part.

The onset is that of a ramp in their difference, $g_m = \alpha + \beta\,\mathrm{clip}((t_m-\kappa)/L, 0, 1)$, by profile likelihood over
$\kappa$ and L. It judges nothing: numbers beside `hacking`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.diagnostics.findings import Measure
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, long_run_deviation
from groupwise.intervals import Interval

FloatArray = NDArray[np.float64]
NAME = "reward_hacking"
LOG = 'a reward on held-out prompts as you train (TRL: eval_strategy="steps"; verl: trainer.test_freq), best graded by another verifier'
FEWEST_PAIRS = 5
# Onsets that are tried along the log, and lengths of the ramp as shares of it.
_ONSETS = 61
_LENGTHS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 1.0)
_MOST = 400
# Beyond this a reward beside a share is in per cent, or in units of its own; sums of a few reward functions stay below.
_TENS = 10.0
OTHER_UNITS = "training and held-out reward are in different units (one is a share, the other goes far beyond 1)"
IN_SHARES = ", per cent taken as shares"
LOG_UNITS = "both rewards in the same units"


@dataclass(frozen=True, slots=True)
class Pair:
    """Training and held-out reward at the same steps."""

    step_M: NDArray[np.int64]  # steps at which the held-out reward is known
    train_M: FloatArray  # mean training reward about each
    held_M: FloatArray  # held-out reward
    train_deviation: float  # noise of one value of `train_M`
    held_deviation: float  # noise of one value of `held_M`
    name: str  # of the held-out one
    percent: bool = False  # whether one of the two was in per cent, and was divided by 100

    @property
    def told(self) -> str:
        """The held-out one as a clause begins."""
        return f"the {self.name}," if "," in self.name else f"the {self.name}"


def weights_of(evidence: Evidence) -> Mapping[str, float]:
    """Return the weight of each reward function in the total, where the total is a weighted sum of them; else nothing."""
    reward, functions = evidence.reward, evidence.functions
    if reward is None or len(functions) < 2 or any(len(f) != len(reward) for f in functions.values()) or len(reward) < len(functions) + 2:
        return {}
    design = np.column_stack([f.value_T for f in functions.values()])
    moving = np.ptp(design, axis=0) > 0
    weight = np.zeros(len(functions))
    solution, *_ = np.linalg.lstsq(design[:, moving], reward.value_T, rcond=None)
    weight[moving] = solution
    left = reward.value_T - design @ weight
    scale = float(np.abs(reward.value_T).max()) or 1.0
    if float(np.abs(left).max()) > 5e-3 * scale:
        return {}
    # Where the log is rounded a function that hardly varies has no weight that can be told.
    spread = design.std(axis=0)
    unsure = moving & (float(left.std()) > 0.003 * np.sqrt(len(reward)) * spread)
    return {name: w for name, w, open_ in zip(functions, weight.tolist(), unsure, strict=True) if not open_}


def pair_of(evidence: Evidence) -> Pair | None:
    """Return training and held-out reward side by side, or None where there is no held-out one."""
    reward, weights = evidence.reward, weights_of(evidence)
    if reward is None:
        return None
    held, name = evidence.held_out, "held-out reward"
    if held is None or len(held) < FEWEST_PAIRS:
        unrewarded = [f for f, w in weights.items() if abs(w) < 0.01 and float(np.ptp(evidence.functions[f].value_T)) > 0]
        if not unrewarded or len(reward) < FEWEST_ROWS:
            return None
        name, held = f"{unrewarded[0]}, which has no weight in the total", evidence.functions[unrewarded[0]]
    if held.column == reward.column:
        return None
    edges = np.concatenate([[-np.inf], (held.step_T[1:] + held.step_T[:-1]) / 2, [np.inf]])
    place = np.digitize(reward.step_T, edges) - 1
    counts = np.bincount(place, minlength=len(held))
    with np.errstate(invalid="ignore"):
        train = np.bincount(place, weights=reward.value_T, minlength=len(held)) / counts
    keep = counts > 0
    if keep.sum() < FEWEST_PAIRS:
        return None
    scales = _scales(reward.value_T, held.value_T)
    if scales is None:
        return None
    train, value = train / scales[0], held.value_T[keep] / scales[1]
    noise = max(long_run_deviation(value), 1e-12)
    spread = reward.deviation / scales[0] / np.sqrt(float(np.median(counts[keep])))
    return Pair(held.step_T[keep], train[keep], value, max(spread, 1e-12), noise, name, scales != (1.0, 1.0))


def unlike_scales(evidence: Evidence) -> bool:
    """Return whether there is a held-out reward that cannot be held against the training reward, because one of them is in other units."""
    reward, held = evidence.reward, evidence.held_out
    return reward is not None and held is not None and _scales(reward.value_T, held.value_T) is None


def _scales(train_T: FloatArray, held_T: FloatArray) -> tuple[float, float] | None:
    """What to divide both by: 100 for the one in per cent beside a share; None where one is a share and the other nothing of the kind."""

    def share(value_T: FloatArray) -> bool:
        return bool(value_T.min() >= 0.0 and value_T.max() <= 1.0)

    def percent(value_T: FloatArray) -> bool:
        return bool(value_T.min() >= 0.0 and _TENS < value_T.max() <= 100.0)

    if share(held_T) and float(np.abs(train_T).max()) > _TENS:
        return (100.0, 1.0) if percent(train_T) else None
    if share(train_T) and float(np.abs(held_T).max()) > _TENS:
        return (1.0, 100.0) if percent(held_T) else None
    return 1.0, 1.0


def few_of(pair: Pair) -> int:
    """Return how many values make a stretch."""
    return max(2, len(pair.step_M) // 6) if len(pair.step_M) > FEWEST_PAIRS else 1


def coupling_of(pair: Pair, early: slice, late: slice) -> Interval | None:
    """Return the held-out gain over the training gain with its 95 % interval; None where training did not move beyond its noise."""
    gain_held, error_held = gain_of(pair.held_M, pair.held_deviation, early, late)
    gain_train, error_train = gain_of(pair.train_M, pair.train_deviation, early, late)
    if not abs(gain_train) > 4 * error_train:
        return None
    ratio, g = gain_held / gain_train, (1.96 * error_train / gain_train) ** 2
    half = 1.96 / abs(gain_train) * np.sqrt(max((1 - g) * error_held**2 + ratio**2 * error_train**2, 0.0)) / (1 - g)
    centre = ratio / (1 - g)
    return Interval(ratio, float(centre - half), float(centre + half))


def gain_of(value_M: FloatArray, deviation: float, early: slice, late: slice) -> tuple[float, float]:
    """Return the later mean minus the earlier, and its standard error."""
    first, last = value_M[early], value_M[late]
    return float(last.mean() - first.mean()), float(deviation * np.sqrt(1 / first.size + 1 / last.size))


def _limit(n: int) -> float:
    """By how much the log likelihood of n rows may fall within the range of an onset."""
    from scipy.stats import f as variance_ratio

    left = max(n - 4, 1)  # mean, height, onset and length are fitted
    return 0.5 * n * float(np.log1p(2 * variance_ratio.ppf(0.95, 2, left) / left))


def measures(evidence: Evidence) -> tuple[Measure, ...]:
    r"""Return the gap of progress and the coupling of the gains, from the first stretch both have in common to the last.

    The gap is $\Delta\text{training} - \Delta\text{held out}$, in units of the reward.
    """
    pair = pair_of(evidence)
    if pair is None:
        if unlike_scales(evidence):
            return (Measure(NAME, "progress_gap", None, OTHER_UNITS, LOG_UNITS),)
        return (Measure(NAME, "progress_gap", None, "no held-out or true reward beside the training reward", LOG),)
    few = few_of(pair)
    early, late = slice(0, few), slice(len(pair.step_M) - few, len(pair.step_M))
    train, error_train = gain_of(pair.train_M, pair.train_deviation, early, late)
    held, error_held = gain_of(pair.held_M, pair.held_deviation, early, late)
    half = 1.96 * float(np.hypot(error_train, error_held))
    gap = Interval(train - held, train - held - half, train - held + half)
    said = (
        f"from step {pair.step_M[0]:,} to {pair.step_M[-1]:,} the training reward gained {train:.3g}, {pair.told} {held:.3g}: "
        f"a gap of {gap.value:.3g} ({gap.low:.3g} to {gap.high:.3g}){IN_SHARES if pair.percent else ''}"
    )
    coupling = coupling_of(pair, early, late)
    if coupling is None:
        why = "the training reward has not moved beyond four standard errors, so that a ratio of gains tells nothing"
        return (Measure(NAME, "progress_gap", gap, said), Measure(NAME, "coupling", None, why))
    ratio = f"held-out gain over training gain is {coupling.value:.2g} ({coupling.low:.2g} to {coupling.high:.2g})"
    return (Measure(NAME, "progress_gap", gap, said), Measure(NAME, "coupling", coupling, ratio))


def parting_of(pair: Pair) -> tuple[int, int, int]:
    r"""Return the step from which training gains on the held-out reward, with its range, by profile likelihood.

    The range leaves $\frac n2\ln\bigl(1 + \frac{2F_{0.95}(2, n-4)}{n-4}\bigr)$ of log likelihood: the joint 95 % region of onset and
    length of the ramp for independent normal rows of unknown variance. Of simulated runs, which are no ramps, it holds fewer.
    """
    size = int(np.ceil(len(pair.step_M) / _MOST))
    keep = len(pair.step_M) // size * size
    time, gap = (value[:keep].astype(float).reshape(-1, size).mean(axis=1) for value in (pair.step_M, pair.train_M - pair.held_M))
    span = float(time[-1] - time[0])
    onset_K = np.linspace(time[0], time[-1] - 0.1 * span, _ONSETS)
    left = gap - gap.mean()
    total = float(left @ left)
    rest_K = np.full(_ONSETS, total)
    for length in _LENGTHS:
        ramp_KM = np.clip((time[None, :] - onset_K[:, None]) / (length * span), 0.0, 1.0)
        ramp_KM -= ramp_KM.mean(axis=1, keepdims=True)
        shared_K, own_K = ramp_KM @ left, (ramp_KM**2).sum(axis=1)
        rest_K = np.minimum(rest_K, total - np.maximum(shared_K, 0.0) ** 2 / np.maximum(own_K, 1e-300))
    if not float(rest_K.min()) < total:
        return (int(pair.step_M[0]),) * 3
    floor = max(1e-12 * total, 1e-300)
    drop_K = 0.5 * len(time) * np.log(np.maximum(rest_K, floor) / max(float(rest_K.min()), floor))
    inside = onset_K[drop_K <= _limit(len(time))]
    place = np.searchsorted(pair.step_M, np.array([onset_K[int(rest_K.argmin())], inside[0], inside[-1]]) - 0.5 * span / _ONSETS)
    best, first, last = (int(step) for step in pair.step_M[np.minimum(place, len(pair.step_M) - 1)])
    return best, first, last
