"""The verdict: what a colleague needs to hear first, in one or two plain sentences.

It puts a fit and its forecast into words and computes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from groupwise.analysis.fitted import Fitted, Outlook
from groupwise.curves.results import FitResult, Outcome
from groupwise.plain import Plain
from groupwise.wording import (
    alike,
    capital,
    clean,
    count,
    duration,
    law_name,
    number,
    ranged,
    readable,
    sentence,
    steps_of_interval,
    tokens,
)

Tone = Literal["learning", "done", "unclear", "flat", "worse", "broken", "nothing"]
TONE_WORDS: dict[Tone, str] = {
    "learning": "still learning",
    "done": "at its plateau",
    "unclear": "too early to say",
    "flat": "flat",
    "worse": "getting worse",
    "broken": "no law holds",
    "nothing": "too little data",
}
ALL_LAWS = "all laws averaged"
THIS_LAW = "this law alone"
_NOT_NOISE = 0.5
_INERT = ("logistic", "scalerl_sigmoid", "exponential", "power_law")
# The first words of a headline, of a reward and of a metric that may fall in health.
_REWARD_WORDS = {
    "flat": "Not learning",
    "rising": "Still learning",
    "falling": "Getting worse",
    "settled": "Learning is done",
    "settled_lower": "Settled lower than it began",
}
_METRIC_WORDS = {"flat": "Flat", "rising": "Still rising", "falling": "Still falling", "settled": "Settled", "settled_lower": "Settled"}
_OTHER_WORDS: dict[Tone, str] = {"learning": "still rising", "worse": "still falling"}


@dataclass(frozen=True, slots=True)
class Verdict(Plain):
    """What the page opens with."""

    tone: Tone  # the kind of answer
    word: str  # the same in two or three words, for a glance
    headline: str  # the answer, one sentence
    sentences: tuple[str, ...]  # what supports it, one or two sentences


def subject(metric: str, quantity: str) -> str:
    """Return what a metric is called in a sentence: "the reward", 'the reward "format"', '"val/score"'."""
    if quantity == "reward":
        return "the reward"
    return f'the reward "{clean(quantity.removeprefix("reward/"))}"' if quantity.startswith("reward/") else f'"{clean(metric)}"'


def verdict(fitted: Fitted) -> Verdict:
    """Say whether the run still learns, where it will end and which law holds."""
    who = subject(fitted.metric, fitted.quantity)
    fit, outlook = fitted.fit, fitted.outlook
    if fit is None or outlook is None:
        return Verdict("nothing", TONE_WORDS["nothing"], f"Nothing can be said about {who} yet.", (sentence(fitted.problem),))
    tone, headline = _headline(who, fitted, fit, outlook)
    word = TONE_WORDS[tone] if fitted.rewarding else _OTHER_WORDS.get(tone, TONE_WORDS[tone])
    parts = (_when(fit, outlook, fitted.clock.time_T[-1]), _law(fit), _inertia(fit))
    return Verdict(tone, word, headline, tuple(part for part in parts if part))


def ahead(fitted: Fitted) -> str:
    """Say in a sentence where a metric stands and where its law takes it; "" where no law holds."""
    fit, outlook = fitted.fit, fitted.outlook
    if fit is None or outlook is None or not fitted.law_holds:
        return ""
    who = subject(fitted.metric, fitted.quantity)
    now = capital(f"{who} is {fitted.now} at step {fitted.clock.step_T[-1]:,.0f}")
    if fit.status == "flat":
        level = fit.parameters.get("plateau")
        return capital(f"{who} stays at {ranged(level) if level else fitted.now} over {count(fit.n, 'row')}.")
    if fit.status == "not_identifiable":
        far = outlook.rows[-1]
        low, high = alike(far.mean_low, far.mean_high)
        return f"{now}, and its mean is forecast at {low} to {high} by step {far.step:,.0f}: too early to say where it ends."
    there = "at its plateau of" if outlook.result.time_to_95.value <= fitted.clock.time_T[-1] else "and heads for"
    joint = "," if there.startswith("at") else ""
    return f"{now}{joint} {there} {ranged(outlook.result.plateau)}, {ALL_LAWS}."


def _headline(who: str, fitted: Fitted, fit: FitResult, outlook: Outlook) -> tuple[Tone, str]:
    """Return the tone and the one sentence."""
    words = _REWARD_WORDS if fitted.rewarding else _METRIC_WORDS
    now = f"{who} is {fitted.now} at step {fitted.clock.step_T[-1]:,.0f}"
    if fit.status == "non_stationary":
        return "broken", _broken(who, fitted, fit)
    if fit.status == "flat":
        level = fit.parameters.get("plateau")
        held = ranged(level) if level else fitted.now
        return "flat", f"{words['flat']}: {who} stays at {held} over {count(fit.n, 'row')}."
    if fit.status == "not_identifiable":
        return "unclear", _unclear(now, words["rising"], outlook)
    plateau = outlook.result.plateau
    falling = plateau.value < float(fit.curve_T[0])
    worse = falling and fitted.rewarding
    if outlook.result.time_to_95.value <= fitted.clock.time_T[-1]:
        word = words["settled_lower" if falling else "settled"]
        return ("worse" if worse else "done"), f"{word}: {now}, at its plateau of {ranged(plateau)}, {ALL_LAWS}."
    word = words["falling" if falling else "rising"]
    return ("worse" if falling else "learning"), f"{word}: {now} and heads for {ranged(plateau)}, {ALL_LAWS}."


def _unclear(now: str, rising: str, outlook: Outlook) -> str:
    """Say where the mean is forecast to be, where it is too early to say where it ends."""
    far, gain = outlook.rows[-1], outlook.result.expected_gain
    low, high = alike(far.mean_low, far.mean_high)
    start = "Too early to say where it ends"
    if gain.low > 0:
        start = f"{rising}, too early to say where it ends"
    elif gain.high < 0:
        start = "Still falling, too early to say where it ends"
    return f"{start}: {now}, and its mean is forecast at {low} to {high} by step {far.step:,.0f}."


def _broken(who: str, fitted: Fitted, fit: FitResult) -> str:
    """Say from where no law holds and what the metric did there."""
    word = "Collapsed" if fit.outcome is Outcome.COLLAPSED else "Not stable"
    found = before_and_after(fitted)
    if found is None:
        return f"{word}: {who} follows no law anywhere in the log; it ends at {number(float(fit.value_T[-1]))}."
    before, after, since = found
    return f"{word}: no law holds for {who} from step {since:,.0f} on; it averages {before} before and {after} after."


def before_and_after(fitted: Fitted) -> tuple[str, str, float] | None:
    """Return the mean before and after the step from which no law holds, and that step; None where there is no such step."""
    fit = fitted.fit
    if fit is None or not math.isfinite(fit.change_time):
        return None
    changed = fit.time_T >= fit.change_time
    if changed.all() or not changed.any():
        return None
    before, after = alike(float(fit.value_T[~changed].mean()), float(fit.value_T[changed].mean()))
    return before, after, fitted.clock.step(fit.change_time)


def nothing_to_forecast(fitted: Fitted, *, dated: bool = True) -> str:
    """Say why there is no forecast where no law holds, and from where unless the judgement dates it; "" where one does."""
    if fitted.fit is None or fitted.law_holds:
        return ""
    found = before_and_after(fitted) if dated else None
    advice = "" if found is None else f" Find what happened at step {found[2]:,.0f} before training on."
    return f"No law holds, so there is nothing to forecast by.{advice}"


def _law(fit: FitResult) -> str:
    """Say which law holds and how well, or why none does."""
    if fit.outcome is Outcome.FLAT:
        best = max((candidate.r_squared for candidate in fit.candidates if candidate.law != fit.law), default=math.nan)
        explained = f"R² of the best other law {number(best, digits=2)}"
        if best > _NOT_NOISE:
            return f"No law is shown to beat a constant, but the rows are too few or too slow to tell ({explained})."
        return f"No law beats a constant: what moves is noise ({explained})."
    if fit.status != "converged":
        return sentence(said_of(fit).removeprefix("collapsed: ").removeprefix("non-stationary: "))
    weight = next((candidate.weight for candidate in fit.candidates if candidate.law == fit.law), math.nan)
    how = f"weight {number(weight, digits=2)} of 1, R² {number(fit.r_squared, digits=2)}"
    if any(candidate.weight > weight for candidate in fit.candidates):
        return f"A {law_name(fit.law)} is the simplest law that the evidence of {count(fit.n, 'row')} does not rule out ({how})."
    return f"A {law_name(fit.law)} describes all {count(fit.n, 'row')} best ({how})."


def said_of(fit: FitResult) -> str:
    """Return the message of a fit with the laws called as a person calls them."""
    return readable(fit.message)


def _when(fit: FitResult, outlook: Outlook, last_time: float) -> str:
    """Say by when 95 % of the way is done, where it is still ahead."""
    done = outlook.done_step
    if fit.status != "converged" or not math.isfinite(done.value) or outlook.result.time_to_95.value <= last_time:
        return ""
    step, low, high = _done(outlook)
    between = ""
    if math.isfinite(done.low):
        between = f" ({low} to {high})" if math.isfinite(done.high) else f" (not before {low})"
    return f"95 % of the way from its start is done by step {step}{between}."


def _inertia(fit: FitResult) -> str:
    """Say whether the oscillation is a finding: inertia is never assumed."""
    if fit.status != "converged" or fit.law != "oscillator":
        return ""
    rivals = [candidate for candidate in fit.candidates if candidate.law in _INERT and candidate.weight >= 0.05]
    if rivals:
        return f"A {law_name(rivals[0].law)} fits about as well (weight {number(rivals[0].weight, digits=2)}): inertia is not shown."
    overshoot = fit.parameters.get("overshoot")
    if overshoot is not None and overshoot.value > 0.02:
        return f"It overshoots its plateau by {number(100 * overshoot.value, digits=2)} % of the way."
    return ""


def spent_by_then(outlook: Outlook) -> list[str]:
    """Return the tokens and the hours that the way to 95 % costs, as far as they are known."""
    found = [tokens(outlook.done_tokens)] if math.isfinite(outlook.done_tokens) else []
    return found + ([duration(outlook.done_hours, digits=2)] if math.isfinite(outlook.done_hours) else [])


def _done(outlook: Outlook) -> tuple[str, str, str]:
    """Write the step at which 95 % of the way is done, and its interval."""
    return steps_of_interval(outlook.done_step.value, outlook.done_step.low, outlook.done_step.high)
