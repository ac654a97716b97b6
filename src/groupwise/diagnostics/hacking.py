r"""Reward hacking: the training reward rises and the held-out or true reward does not.

The coupling $C = \Delta\text{held out}/\Delta\text{training}$ between two stretches, with an interval, wherever the training reward moved
beyond its noise. A reward function that is logged but carries no weight in the total counts as held out. No text is judged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.diagnostics.findings import Finding, Healthy, Outcome, Severity, Unavailable
from groupwise.diagnostics.sequential import CRITICAL, WARNING
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal, long_run_deviation
from groupwise.intervals import Interval

FloatArray = NDArray[np.float64]
NAME = "reward_hacking"
LOG = 'a reward on held-out prompts as you train (TRL: eval_strategy="steps"; verl: test_freq), best graded by another verifier'
ADVICE = (
    "Read the completions with the highest reward. Close the loophole in the reward function, and go back to the checkpoint at which the "
    "held-out reward was best; a KL term or fewer steps slow it down and do not cure it."
)
# Held-out gain over training gain below which a gain is called not transferred: a quarter. Where both are logged, the healthy runs of
# the log collection stand at 1.0 to 1.4 and the hacked at 0.02 and less (experiments/diagnosis/real.csv): the place matters little.
TRANSFER = 0.25
# A held-out gain that is above 0 beyond doubt is overfitting or saturation, unless it is less than a twentieth.
NEGLIGIBLE = 0.05
OVERFIT = (
    "The held-out reward still gains, and much less: overfitting, a held-out set that is nearly solved, or a verifier that is exploited in "
    "part. Read completions with a high reward, and evaluate on fresh prompts."
)
# Names of reward functions that say what is wanted; others (format, length, style) may stay at 0 in health.
_WANTED = re.compile(r"correct|accura|answer|solv|truth|success|exact|(^|_)f($|_)", re.IGNORECASE)
# A warning where it is less than a half beyond doubt: the limit is taken at a quantile that allows for every stretch that was tried.
_HALF, _MANY = 0.5, 2.8
_FEWEST = 5
# Share of the gain below which a function has earned nothing of it.
NOTHING = 0.1


@dataclass(frozen=True, slots=True)
class Pair:
    """Training and held-out reward at the same steps.

    Args:
        step_M: steps at which the held-out reward is known.
        train_M: mean training reward about each.
        held_M: held-out reward.
        train_deviation: noise of one value of `train_M`.
        held_deviation: noise of one value of `held_M`.
        name: of the held-out one.
    """

    step_M: NDArray[np.int64]
    train_M: FloatArray
    held_M: FloatArray
    train_deviation: float
    held_deviation: float
    name: str


def check(evidence: Evidence) -> Outcome:
    """Look for a training reward that rises without the held-out one, and for reward functions that part.

    Args:
        evidence: of the run.

    Returns:
        Critical where the held-out reward fell or stayed where it was while the training reward rose.
    """
    reward = evidence.reward
    if reward is None:
        return Unavailable(NAME, "the log has no reward", "the mean reward of every step")
    weights = weights_of(evidence)
    pair = pair_of(evidence)
    found = None if pair is None else _uncoupled(pair, evidence)
    if found is None:
        found = _parted(evidence, reward, weights) or _one_earns_all(evidence, reward, weights)
    if found is not None:
        return found
    if pair is None:
        return Unavailable(
            NAME, "no held-out or true reward beside the training reward, so a rise cannot be told from an exploited one", LOG
        )
    coupling = coupling_of(pair, slice(0, _few(pair)), slice(len(pair.step_M) - _few(pair), None))
    moved = (
        "The training reward has not moved beyond its noise"
        if coupling is None
        else f"Held-out gain over training gain is {coupling.value:.2g}"
    )
    return Healthy(NAME, f"{moved} ({pair.name}).", {"held_out": "follows"})


def weights_of(evidence: Evidence) -> Mapping[str, float]:
    """Return the weight of each reward function in the total, where the total is a weighted sum of them; else nothing.

    Args:
        evidence: of the run.

    Returns:
        Name -> weight.
    """
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
    if held is None or len(held) < _FEWEST:
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
    if keep.sum() < _FEWEST:
        return None
    value = held.value_T[keep]
    noise = max(long_run_deviation(value), 1e-12)
    return Pair(held.step_T[keep], train[keep], value, max(reward.deviation / np.sqrt(float(np.median(counts[keep]))), 1e-12), noise, name)


def _few(pair: Pair) -> int:
    """How many values make a stretch."""
    return max(2, len(pair.step_M) // 6) if len(pair.step_M) > _FEWEST else 1


def coupling_of(pair: Pair, early: slice, late: slice) -> Interval | None:
    """Return the held-out gain over the training gain with its 95 % interval; None where training did not move beyond its noise.

    Args:
        pair: both rewards.
        early: first stretch.
        late: last stretch.

    Returns:
        Fieller's interval, or None.
    """
    gain_held, error_held = _gain(pair.held_M, pair.held_deviation, early, late)
    gain_train, error_train = _gain(pair.train_M, pair.train_deviation, early, late)
    if not abs(gain_train) > 4 * error_train:
        return None
    ratio, g = gain_held / gain_train, (1.96 * error_train / gain_train) ** 2
    half = 1.96 / abs(gain_train) * np.sqrt(max((1 - g) * error_held**2 + ratio**2 * error_train**2, 0.0)) / (1 - g)
    centre = ratio / (1 - g)
    return Interval(ratio, float(centre - half), float(centre + half))


def _gain(value_M: FloatArray, deviation: float, early: slice, late: slice) -> tuple[float, float]:
    """Later mean minus earlier, and its standard error."""
    first, last = value_M[early], value_M[late]
    return float(last.mean() - first.mean()), float(deviation * np.sqrt(1 / first.size + 1 / last.size))


def _uncoupled(pair: Pair, evidence: Evidence) -> Finding | None:
    """Report a training gain that the held-out reward does not share: over the whole run, or since its best."""
    n, few = len(pair.step_M), _few(pair)
    late = slice(n - few, n)
    whole = coupling_of(pair, slice(0, few), late)
    rose = pair.train_M[late].mean() > pair.train_M[:few].mean()
    if whole is not None and rose and whole.high < TRANSFER:
        return _finding(pair, evidence, 0, whole, "critical" if whole.low <= 0 or whole.value < NEGLIGIBLE else "warning")
    from scipy.special import ndtri

    levels = np.convolve(pair.held_M, np.ones(few) / few, "valid")[: n - 2 * few + 1]
    if levels.size < 2:
        return None
    best = int(levels.argmax())
    early = slice(best, best + few)
    held, error_held = _gain(pair.held_M, pair.held_deviation, early, late)
    train, error_train = _gain(pair.train_M, pair.train_deviation, early, late)
    if not train > 4 * error_train:
        return _flat_since(pair, evidence, few)
    coupling = coupling_of(pair, early, late)
    assert coupling is not None
    if held < float(ndtri(CRITICAL / n)) * error_held:
        return _finding(pair, evidence, best + few // 2, coupling, "critical")
    return _flat_since(pair, evidence, few)


def _flat_since(pair: Pair, evidence: Evidence, few: int) -> Finding | None:
    """Report the stretch up to the end over which training gained most without the held-out reward."""
    n = len(pair.step_M)
    late, best = slice(n - max(few, n // 4), n), None
    total = float(np.ptp(pair.train_M))
    for start in range(few, n - 3 * few + 1):
        early = slice(start - few, start + few)
        coupling = coupling_of(pair, early, late)
        gain, _ = _gain(pair.train_M, pair.train_deviation, early, late)
        if coupling is None or not gain > 0.2 * total:
            continue
        limit = coupling.value + (coupling.high - coupling.value) * _MANY / 1.96
        if limit < _HALF and (best is None or limit < best[1]):
            best = (start, limit, coupling)
    return None if best is None else _finding(pair, evidence, best[0], best[2], "warning")


def _finding(pair: Pair, evidence: Evidence, row: int, coupling: Interval, severity: Severity) -> Finding:
    """Put the finding into words."""
    train = float(pair.train_M[-_few(pair) :].mean() - pair.train_M[row])
    held = float(pair.held_M[-_few(pair) :].mean() - pair.held_M[row])
    since = int(pair.step_M[row])
    longer = _longer(evidence, since)
    told = "fell by" if coupling.high < 0 else "moved by"
    message = f"Since step {since:,} the training reward rose by {train:.3g} and the {pair.name} {told} {abs(held):.2g}{longer}."
    known = {"held_out": "falls" if coupling.high < 0 else "flat"}
    advice = OVERFIT if coupling.low > 0 and coupling.value >= NEGLIGIBLE else ADVICE
    return Finding(NAME, severity, since, coupling, TRANSFER, message, advice, known, "2210.10760; the coupling ratio of 2606.30789")


def _longer(evidence: Evidence, since: int) -> str:
    """Say whether the answers grew along."""
    length = evidence.quantity("completion_length")
    if length is None or len(length) < FEWEST_ROWS:
        return ""
    row, few = length.at(since), max(3, len(length) // 8)
    if length.score(slice(row, row + few), slice(len(length) - few, None)) > 4:
        return ", while the completions grew longer"
    return ""


def _parted(evidence: Evidence, reward: Signal, weights: Mapping[str, float]) -> Finding | None:
    """Report a reward function that falls while the total rises."""
    n, few = len(reward), max(4, len(reward) // 6)
    if n < 3 * few or len(evidence.functions) < 2:
        return None
    from scipy.special import ndtri

    limit = -float(ndtri(WARNING / len(evidence.functions)))
    early, late = slice(0, few), slice(n - few, n)
    if reward.score(early, late) < limit:
        return None
    for name, function in evidence.functions.items():
        if len(function) != n or weights.get(name, 1.0) < 0 or function.score(early, late) > -2 * limit:
            continue
        change = function.change(early, late)
        span = float(np.ptp(function.value_T)) or 1.0
        if -change.value < 0.25 * span:
            continue
        value = Interval(change.value / span, change.low / span, change.high / span)
        step = int(function.step_T[int(np.argmax(np.cumsum(function.value_T - function.value_T.mean())))])
        message = f"The total reward rose while its function {name} fell by {-change.value:.3g}: one is earned at the other's expense."
        return Finding(NAME, "warning", step, value, 0.0, message, ADVICE, {"components": "part"})
    return None


def _one_earns_all(evidence: Evidence, reward: Signal, weights: Mapping[str, float]) -> Finding | None:
    """Report a reward function that earns the whole gain while another with weight has stayed near 0."""
    n, few = len(reward), max(4, len(reward) // 6)
    early, late = slice(0, few), slice(n - few, n)
    gain = reward.change(early, late) if n >= 3 * few else None
    if gain is None or gain.low <= 0 or reward.score(early, late) < 4 or len(weights) < 2:
        return None
    parts = {name: w * evidence.functions[name].change(early, late).value for name, w in weights.items()}
    best = max(parts, key=lambda name: parts[name])
    if parts[best] < 0.9 * gain.value:
        return None
    for name, weight in weights.items():
        function = evidence.functions[name]
        change = function.change(early, late)
        most = weight * float(function.value_T[late].mean())
        if name == best or weight < 0.01 or weight * change.high > NOTHING * gain.value or not 0 <= most < NOTHING * gain.value:
            continue
        share = Interval(parts[name] / gain.value, weight * change.low / gain.value, weight * change.high / gain.value)
        message = (
            f"The reward gained {gain.value:.3g}, {100 * parts[best] / gain.value:.0f} % of it by its function {best}; {name}, "
            f"which counts too, stands at {function.value_T[late].mean():.2g}."
        )
        severity: Severity = "warning" if _WANTED.search(name) else "info"
        return Finding(NAME, severity, None, share, NOTHING, message, ADVICE, {"components": "part"})
    return None
