r"""Reward hacking: the training reward rises and the held-out or true reward does not.

The coupling $C = \Delta\text{held out}/\Delta\text{training}$ between two stretches, with an interval, wherever the training reward moved
beyond its noise. A reward function that is logged but carries no weight in the total counts as held out. No text is judged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import numpy as np

from groupwise.diagnostics.findings import Finding, Healthy, Outcome, Severity, Unavailable
from groupwise.diagnostics.pairs import (
    IN_SHARES,
    LOG,
    LOG_UNITS,
    NAME,
    OTHER_UNITS,
    Pair,
    coupling_of,
    few_of,
    gain_of,
    pair_of,
    parting_of,
    unlike_scales,
    weights_of,
)
from groupwise.diagnostics.sequential import CRITICAL, WARNING
from groupwise.diagnostics.signals import FEWEST_ROWS, LOG_REWARD, Evidence, Signal
from groupwise.intervals import Interval

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
SOLVED = (
    "The held-out reward stood so near its top from the beginning that it could not have gained half of what training did, and tells "
    "little. Evaluate on prompts that are harder, and read completions with a high reward."
)
PRICE = (
    "The price of what is wanted, as longer answers are of a length penalty, unless the completions say otherwise: read some, and weigh "
    "the function anew where it costs too much."
)
# Names of reward functions that say what is wanted; others (format, length, style) may stay at 0 in health.
_WANTED = re.compile(r"correct|accura|answer|solv|truth|success|exact|(^|_)(acc|f)($|_)", re.IGNORECASE)
# A warning where it is less than a half beyond doubt: the limit is taken at a quantile that allows for every stretch that was tried.
_HALF, _MANY = 0.5, 2.8
REFERENCE = "2210.10760; the coupling ratio of 2606.30789"
# Share of the gain below which a function has earned nothing of it.
NOTHING = 0.1


def check(evidence: Evidence) -> Outcome:
    """Look for a training reward that rises without the held-out one, and for reward functions that part."""
    reward = evidence.reward
    if reward is None:
        return Unavailable(NAME, evidence.no_reward, LOG_REWARD)
    weights = weights_of(evidence)
    pair = pair_of(evidence)
    found = None if pair is None else _uncoupled(pair, evidence)
    if found is None or found.severity == "info":
        told = [_parted(evidence, reward, weights, pair), _one_earns_all(evidence, reward, weights), found]
        found = min((one for one in told if one is not None), key=lambda one: one.severity == "info", default=None)
    if found is not None:
        return found
    if pair is None and unlike_scales(evidence):
        return Unavailable(NAME, OTHER_UNITS, LOG_UNITS)
    if pair is None:
        return Unavailable(
            NAME, "no held-out or true reward beside the training reward, so a rise cannot be told from an exploited one", LOG
        )
    coupling = _overall(pair)
    moved = (
        "The training reward has not moved beyond four standard errors"
        if coupling is None
        else f"Held-out gain over training gain is {coupling.value:.2g}"
    )
    return Healthy(NAME, f"{moved} ({pair.name}).", {"held_out": "follows"})


def _overall(pair: Pair) -> Interval | None:
    """The coupling from the first stretch of the log to the last; None where training did not move beyond its noise."""
    few = few_of(pair)
    return coupling_of(pair, slice(0, few), slice(len(pair.step_M) - few, None))


def _rose(pair: Pair) -> bool:
    """Whether training stands higher at the end than at the beginning."""
    few = few_of(pair)
    return bool(pair.train_M[-few:].mean() > pair.train_M[:few].mean())


def _uncoupled(pair: Pair, evidence: Evidence) -> Finding | None:
    """Report a training gain that the held-out reward does not share: over the whole run, or since its best."""
    n, few = len(pair.step_M), few_of(pair)
    late = slice(n - few, n)
    whole = _overall(pair)
    if whole is not None and _rose(pair) and whole.high < TRANSFER:
        severity: Severity = "critical" if whole.low <= 0 or whole.value < NEGLIGIBLE else "warning"
        severity = "info" if _solved(pair, few) and whole.high >= 0 else severity
        return _finding(pair, evidence, whole, severity, " over the whole log")
    from scipy.special import ndtri

    levels = np.convolve(pair.held_M, np.ones(few) / few, "valid")[: n - 2 * few + 1]
    if levels.size < 2:
        return None
    best = int(levels.argmax())
    early = slice(best, best + few)
    held, error_held = gain_of(pair.held_M, pair.held_deviation, early, late)
    train, error_train = gain_of(pair.train_M, pair.train_deviation, early, late)
    if not train > 4 * error_train:
        return _flat_since(pair, evidence, few)
    coupling = coupling_of(pair, early, late)
    assert coupling is not None
    if held < float(ndtri(CRITICAL / n)) * error_held:
        return _finding(pair, evidence, coupling, "critical", f" since the held-out reward was best, at step {pair.step_M[best]:,}")
    return _flat_since(pair, evidence, few)


def _solved(pair: Pair, few: int) -> bool:
    """Whether a held-out share was left less room at the start than half of what training gained: then it could not follow."""
    if float(pair.held_M.min()) < 0.0 or float(pair.held_M.max()) > 1.0:
        return False
    gained = float(pair.train_M[-few:].mean() - pair.train_M[:few].mean())
    return bool(1.0 - float(pair.held_M[:few].mean()) < _HALF * gained)


def _flat_since(pair: Pair, evidence: Evidence, few: int) -> Finding | None:
    """Report the stretch up to the end over which training gained most without the held-out reward."""
    n = len(pair.step_M)
    late, best = slice(n - max(few, n // 4), n), None
    total = float(np.ptp(pair.train_M))
    for start in range(few, n - 3 * few + 1):
        early = slice(start - few, start + few)
        coupling = coupling_of(pair, early, late)
        gain, _ = gain_of(pair.train_M, pair.train_deviation, early, late)
        if coupling is None or not gain > 0.2 * total:
            continue
        limit = coupling.value + (coupling.high - coupling.value) * _MANY / 1.96
        if limit < _HALF and (best is None or limit < best[0]):
            best = (limit, coupling, f" since step {pair.step_M[start]:,}")
    return None if best is None else _finding(pair, evidence, best[1], "warning", best[2])


def _signed(gain: float, beside: float) -> str:
    """Write a gain with its sign, and 0 for what is rounding beside another."""
    return "0" if abs(gain) < 1e-9 * abs(beside) else f"{gain:+.2g}"


def _finding(pair: Pair, evidence: Evidence, coupling: Interval, severity: Severity, where: str) -> Finding:
    """Put the finding into words; its onset is where training began to gain on the held-out reward."""
    since, first, last = parting_of(pair)
    few = few_of(pair)
    row = int(np.searchsorted(pair.step_M, since))
    before = slice(max(0, row - few + 1), row + 1)
    train, held = (float(value[-few:].mean() - value[before].mean()) for value in (pair.train_M, pair.held_M))
    longer = _longer(evidence, since)
    began = f"Since step {since:,} ({first:,} to {last:,})"
    ratio = f"held-out gain over training gain is {coupling.value:.2g} ({coupling.low:.2g} to {coupling.high:.2g}){where}"
    units = IN_SHARES if pair.percent else ""
    message = f"{began} the training reward rose by {train:.3g}, {pair.told} by {_signed(held, train)}{longer}; {ratio}{units}."
    known = {"held_out": "falls" if coupling.high < 0 else "flat"}
    advice = OVERFIT if coupling.low > 0 and coupling.value >= NEGLIGIBLE else ADVICE
    if severity == "info":
        advice, known = SOLVED, {}
    return Finding(NAME, severity, since, coupling, TRANSFER, message, advice, known, REFERENCE, "held-out gain over training gain")


def _longer(evidence: Evidence, since: int) -> str:
    """Say whether the answers grew along."""
    length = evidence.quantity("completion_length")
    if length is None or len(length) < FEWEST_ROWS:
        return ""
    row, few = length.at(since), max(3, len(length) // 8)
    if length.score(slice(row, row + few), slice(len(length) - few, None)) > 4:
        return ", while the completions grew longer"
    return ""


def _shaped(name: str, names: Collection[str]) -> bool:
    """Whether a function shapes the answers beside another that says what is wanted, by their names."""
    return not _WANTED.search(name) and any(_WANTED.search(other) for other in names)


def _follows(pair: Pair | None) -> bool:
    """Whether the held-out reward shared the gain of training beyond doubt."""
    coupling = None if pair is None else _overall(pair)
    return pair is not None and coupling is not None and coupling.low > TRANSFER and _rose(pair)


def _parted(evidence: Evidence, reward: Signal, weights: Mapping[str, float], pair: Pair | None) -> Finding | None:
    """Report a reward function that falls while the total rises: of what was wanted a warning, of what shapes the answers a note."""
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
        price = _shaped(name, evidence.functions) or _follows(pair)
        severity: Severity = "info" if price else "warning"
        known = {} if price else {"components": "part"}
        what = "change over the range that the function took"
        return Finding(NAME, severity, step, value, 0.0, message, PRICE if price else ADVICE, known, what=what)
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
        return Finding(
            NAME, severity, None, share, NOTHING, message, ADVICE, {"components": "part"}, what="share of the gain that the function earned"
        )
    return None
