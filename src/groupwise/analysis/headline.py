"""A fit and its forecast in plain sentences: where a metric stands, where its law takes it, why nothing can be forecast.

It puts results into words, computes nothing, and judges no run.
"""

from __future__ import annotations

import math

from groupwise.analysis.fitted import NO_LAW, Fitted, Outlook
from groupwise.curves.results import FitResult
from groupwise.wording import alike, capital, clean, count, duration, ranged, readable, tokens

ALL_LAWS = "all laws averaged"
THIS_LAW = "this law alone"


def subject(metric: str, quantity: str) -> str:
    """Return what a metric is called in a sentence: "the reward", 'the reward "format"', '"val/score"'."""
    if quantity == "reward":
        return "the reward"
    return f'the reward "{clean(quantity.removeprefix("reward/"))}"' if quantity.startswith("reward/") else f'"{clean(metric)}"'


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


def nothing_to_forecast(fitted: Fitted, *, dated: bool = True) -> str:
    """Say why there is no forecast where no law holds, and from where unless the judgement dates it; "" where one does."""
    fit = fitted.fit
    if fit is None or fitted.law_holds:
        return ""
    changed = fit.time_T >= fit.change_time
    since = f" Find what happened at step {fitted.clock.step(fit.change_time):,.0f} before training on."
    inside = dated and changed.any() and not changed.all()
    return f"{NO_LAW}{since if inside else ''}"


def said_of(fit: FitResult) -> str:
    """Return the message of a fit with the laws called as a person calls them."""
    return readable(fit.message)


def spent_by_then(outlook: Outlook) -> list[str]:
    """Return the tokens and the hours that the way to 95 % costs, as far as they are known."""
    found = [tokens(outlook.done_tokens)] if math.isfinite(outlook.done_tokens) else []
    return found + ([duration(outlook.done_hours, digits=2)] if math.isfinite(outlook.done_hours) else [])
