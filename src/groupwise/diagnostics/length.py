"""Truncation and length: completions that are cut off, from the start or since a step, and completions that outgrow their reward.

Longer answers with a rising reward are what reasoning looks like, and no finding as long as they end. A limit counts only where it is
certain: where truncation is logged, where the mean length of many rows is one and the same largest number, or where the settings say it
and no row goes beyond. It does not judge what the answers say.
"""

from __future__ import annotations

import numpy as np

from groupwise.diagnostics.collapse import HALF, fall_of
from groupwise.diagnostics.judgement import Finding, Sign, Status
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal, lasting, rare_event_factors
from groupwise.diagnostics.signs import limit_of, repeated_most, short
from groupwise.intervals import wilson

NAME = "truncation"
LOG = "the share of truncated completions (TRL: completions/clipped_ratio; verl: response_length/clip_ratio)"
ADVICE = "raise the completion limit, or mask truncated completions"
WHAT = "share of the completions that are truncated"
# Rows in which all completions are cut off that make most of them so: a quarter, even in groups of two.
_ALL_CUT = 0.25
# Of its limit: a mean length from which most completions may be cut off.
_AT_LIMIT = 0.9


def check(evidence: Evidence) -> Finding:
    """Look for completions that are cut off."""
    cut, length = evidence.quantity("truncated_share"), evidence.quantity("completion_length")
    if cut is not None and len(cut) >= FEWEST_ROWS:
        return _by_share(cut)
    if length is None or len(length) < FEWEST_ROWS:
        return Finding(NAME, Status.NOT_LOGGED, "neither length nor the share of truncated completions is in the log", log=LOG)
    return _by_rows(length) or _by_limit(evidence, length) or _by_length(evidence, length)


def _by_share(cut: Signal) -> Finding:
    """Judge by the logged share: most of the completions, to the end."""
    most = cut.value_T > HALF
    late = cut.mean(slice(-max(5, len(cut) // 5), None))
    onset = lasting(rare_event_factors(most, 0.2), event_T=most)
    if onset is None or late.value <= HALF:
        return Finding(NAME, Status.NONE, f"No sign of it: {100 * late.value:.0f} % of the last completions are truncated.")
    now, step = 100 * late.value, int(cut.step_T[onset])
    if float(cut.value_T[:3].mean()) > HALF:
        first = 100 * float(cut.value_T[:3].mean())
        message = f"{now:.0f} % of the completions are truncated, and were from the start ({first:.0f} %)"
        return Finding(NAME, Status.WARNING, message, None, late, HALF, advice=ADVICE, evidence={"truncation": "likely"}, what=WHAT)
    before = float(np.median(cut.value_T[max(0, onset - 20) : max(onset, 1)]))
    sign = Sign("truncated_share", step, before, late.value, f"{now:.0f} % truncated (was {100 * before:.0f} %)")
    message = f"{now:.0f} % of the completions are truncated since step {step:,}, {100 * before:.0f} % before"
    facts = {"truncation": "likely"}
    return Finding(NAME, Status.WARNING, message, step, late, HALF, advice=ADVICE, signs=(sign,), evidence=facts, what=WHAT)


def _by_rows(length: Signal) -> Finding | None:
    """Judge by rows whose mean length is the largest there is, over and over: all of their completions are cut off."""
    most = repeated_most(length)
    if most is None:
        return None
    late = length.value_T[-max(20, len(length) // 2) :]
    share = wilson(int((late >= 0.999 * most).sum()), late.size)
    if share.low < _ALL_CUT / 2 or share.value < _ALL_CUT:
        return None
    message = f"all completions are cut off at {most:,.0f} tokens in {100 * share.value:.0f} % of the last {late.size} rows"
    what, facts = "share of the rows in which all completions are cut off", {"truncation": "likely"}
    return Finding(NAME, Status.WARNING, message, None, share, _ALL_CUT, advice=ADVICE, evidence=facts, what=what)


def _by_limit(evidence: Evidence, length: Signal) -> Finding | None:
    """Judge by a mean length that stands at a certain limit."""
    limit = limit_of(evidence)
    if limit is None:
        return None
    near = length.value_T > _AT_LIMIT * limit
    onset = lasting(rare_event_factors(near, 0.2), event_T=near)
    if onset is None:
        return None
    step, late = int(length.step_T[onset]), length.mean(slice(onset, None))
    since = "" if onset == 0 else f" since step {step:,}"
    message = f"the completions average {short(late.value)} tokens{since}, of {short(limit)} at most"
    facts, where = {"truncation": "possible"}, None if onset == 0 else step
    return Finding(
        NAME, Status.WARNING, message, where, late, _AT_LIMIT * limit, advice=ADVICE, evidence=facts, what="tokens of a completion"
    )


def _by_length(evidence: Evidence, length: Signal) -> Finding:
    """Judge by length alone: it doubled and more as the reward fell for good."""
    few = max(4, len(length) // 6)
    early, late = slice(0, few), slice(len(length) - few, None)
    first, last = float(length.value_T[early].mean()), float(length.value_T[late].mean())
    fall = fall_of(evidence)
    doubled = last > 2 * first and length.score(early, late) > 5
    if not doubled or fall is None or not fall.lasts:
        return Finding(NAME, Status.NONE, f"No sign of it: the completions are {short(last)} tokens long, {short(first)} at the beginning.")
    message = f"the completions grew from {short(first)} to {short(last)} tokens as the reward fell"
    return Finding(NAME, Status.WARNING, message, None, length.mean(late), 2 * first, advice=ADVICE, what="tokens of a completion")
