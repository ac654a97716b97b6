"""What happens around the updates: restarts with a jump, rollouts that are dropped, a router's load, tool calls that fail.

A jump is held against the largest move of the same kind just before it. Why a restarted run differs is not judged here. Of what few runs
have (filters, experts, tools) nothing is asked for where it is not logged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from groupwise.arrays import Float
from groupwise.diagnostics.judgement import Finding, Sign, Status
from groupwise.diagnostics.numerics import beyond
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal
from groupwise.intervals import Interval, percent
from groupwise.wording import clean

RESTART, DISCARDS, ROUTER, TOOLS = "restart", "discards", "router_load", "tool_failures"
# The readers' notes on a log whose steps drop back, and the recorder's on a run that goes on from a checkpoint.
_DROPPED_BACK = re.compile(r"the step drops back to ([\d, ]{1,200})\)")
_RESUMED = re.compile(r"resumed after step (\d{1,15})")
_WATCHED = {
    "reward": "reward", "sampler_mismatch": "sampler mismatch", "kl": "KL", "entropy": "entropy", "gradient_norm": "gradient norm",
    "completion_length": "length", "loss": "loss",
}  # fmt: skip
# Medians of five rows before and after; three times the largest such move among the fifty rows before is none of the run's own.
_ROWS, _PAST, _FEWEST_BEFORE, _TIMES = 5, 50, 15, 3.0
# A pause is twenty times the usual time between rows, and ten minutes; a schedule that starts anew falls to a fifth and rises again.
_PAUSE, _SECONDS, _FALLS, _RISES = 20.0, 600.0, 5.0, 3
# A fifth of the rollouts dropped is a selection by age, and so by length; experts' load is balanced to a few per cent.
DROPPED, ADMITTED, UNBALANCED, FAILING, MORE = 0.2, 0.2, 3.0, 0.5, 0.3
_FIRST = 10
_ROUTER = re.compile(r".*(router|expert|(^|[/_])moe([/_]|$)|load_balanc|max_vio).*", re.IGNORECASE)
_TOOLS = r".*((tool|action).*(fail|error|invalid)|(fail|error|invalid).*(tool|action)).*"


@dataclass(frozen=True, slots=True)
class _Restart:
    """Where a run may have gone on from a checkpoint."""

    step: int
    said: str  # what tells it, as the beginning of a sentence
    sure: bool  # whether the log says so, and not its clock alone


def check(evidence: Evidence) -> Finding:
    """Look for a restart, and for what jumped at it."""
    found = sorted(_restarts(evidence), key=lambda one: (not one.sure, one.step))
    for one in found:
        jumps = list(_jumps(evidence, one.step))
        if jumps:
            told = ", ".join(sign.words for sign in jumps[:3])
            return Finding(
                RESTART,
                Status.WARNING,
                f"{one.said} at step {one.step:,}, and there {told}.",
                one.step,
                advice="restore optimiser, scheduler and sampler weights, then compare",
                signs=tuple(jumps),
                evidence={"restart": "jump"},
            )
    sure = [one for one in found if one.sure]
    if sure:
        return Finding(RESTART, Status.INFO, f"{sure[0].said} at step {sure[0].step:,}, and nothing jumped there.", sure[0].step)
    return Finding(RESTART, Status.NONE, "No sign of a restart in mid-run.")


def _restarts(evidence: Evidence) -> Iterator[_Restart]:
    """Yield where the log says that the run was restarted, and where its learning rate or its clock looks like it."""
    for note in evidence.record.notes:
        for steps in _DROPPED_BACK.findall(note):
            yield from (_Restart(int(step), "The run was restarted", sure=True) for step in re.findall(r"\d{1,15}", steps))
        yield from (_Restart(int(step) + 1, "The run was resumed", sure=True) for step in _RESUMED.findall(note))
    rate = evidence.quantity("learning_rate")
    if rate is not None and len(rate) > 2 * _ROWS:
        value = rate.value_T
        fell = np.flatnonzero((value[:-1] > 0) & (value[1:] * _FALLS < value[:-1]) & (np.arange(1, value.size) + _RISES < value.size))
        for row in (fell + 1).tolist():
            if (np.diff(value[row : row + 1 + _RISES]) > 0).all():
                yield _Restart(int(rate.step_T[row]), "The learning rate starts anew", sure=True)
    seconds = evidence.record.steps["seconds"].cast(pl.Float64).to_numpy()
    between = np.diff(seconds)
    known = between[np.isfinite(between)]
    if known.size > 2 * _ROWS:
        for row in np.flatnonzero(between > max(_PAUSE * float(np.median(known)), _SECONDS)).tolist():
            yield _Restart(int(evidence.record.steps["step"][row + 1]), f"A pause of {between[row] / 3600:.1f} h ends", sure=False)


def _jumps(evidence: Evidence, step: int) -> Iterator[Sign]:
    """Yield the signals that moved at a step by more than they ever did shortly before."""
    for quantity, word in _WATCHED.items():
        signal = evidence.reward if quantity == "reward" else evidence.quantity(quantity)
        if signal is None:
            continue
        row = signal.at(step)
        near = signal.value_T[max(0, row - _PAST) : row + _ROWS]
        if row - max(0, row - _PAST) < _FEWEST_BEFORE or len(signal) - row < _ROWS:
            continue
        # What is positive scatters by factors.
        scaled = np.log(near) if near.min() > 0 else near
        move = float(np.median(scaled[-_ROWS:]) - np.median(scaled[-2 * _ROWS : -_ROWS]))
        if abs(move) > max(_TIMES * _largest_move(scaled[:-_ROWS]), 1e-9):
            before, since = float(np.median(near[-2 * _ROWS : -_ROWS])), float(np.median(near[-_ROWS:]))
            yield Sign(quantity, step, before, since, f"{word} {before:.2g} → {since:.2g}")


def _largest_move(past_T: Float) -> float:
    """The largest difference of medians of neighbouring five rows."""
    medians = np.median(np.lib.stride_tricks.sliding_window_view(past_T, _ROWS), axis=1)
    return float(np.abs(medians[_ROWS:] - medians[:-_ROWS]).max())


def discards(evidence: Evidence) -> Finding:
    """Look for rollouts that are dropped because they came too late, which are the long ones of hard prompts."""
    known = [one for one in evidence.record.meanings if one.quantity == "dropped_samples" and "too old" in one.definition]
    admitted = evidence.quantity("admitted_share")
    dropped = None if not known else next((one for one in evidence.matching(re.escape(known[0].column))), None)
    if dropped is None or len(dropped) < FEWEST_ROWS:
        return _of_admitted(admitted)
    each = np.diff(dropped.value_T, prepend=0.0) if "so far" in known[0].definition else dropped.value_T
    size, prompts = evidence.group_size, evidence.setting("prompts_per_step")
    if size is None or prompts is None:
        said = f"{float(np.mean(each)):.3g} rollouts a row are dropped as too old; of how many is not known."
        return Finding(DISCARDS, Status.INFO if each.any() else Status.NONE, said, log="the group size and prompts a step (--set)")
    share = each / (each + size * float(prompts))
    row = beyond(dropped, share > DROPPED)
    if row is None:
        return Finding(DISCARDS, Status.NONE, f"No sign of it: {percent(float(share.mean()))} of the rollouts are dropped as too old.")
    step, late = int(dropped.step_T[row]), float(share[row:].mean())
    before = float(share[:row].mean()) if row else None
    words = f"{percent(late)} of rollouts dropped as too old" + ("" if before is None else f" (was {percent(before)})")
    return Finding(
        DISCARDS,
        Status.WARNING,
        f"Since step {step:,} {words}{_shorter(evidence, step)}.",
        step,
        Interval(late, late, late),
        DROPPED,
        advice="raise the staleness bound, or keep slow prompts apart",
        log="the lengths of what is dropped",
        signs=(Sign("dropped_samples", step, before, late, words),),
        evidence={"discards": "stale"},
        what="share of the rollouts that are dropped",
    )


def _shorter(evidence: Evidence, step: int) -> str:
    """Say that what is kept is shorter since a step, where it is."""
    length = evidence.quantity("completion_length")
    row = 0 if length is None else length.at(step)
    if length is None or row < _ROWS or len(length) - row < _ROWS:
        return ""
    before, after = slice(max(0, row - 20), row), slice(row, None)
    if length.score(before, after) > -3:
        return ""
    return f" and the rest is shorter, {length.mean(before).value:,.0f} → {length.mean(after).value:,.0f} tokens"


def _of_admitted(admitted: Signal | None) -> Finding:
    """Say how much of what is generated is trained on, where a filter says so."""
    if admitted is None or len(admitted) < FEWEST_ROWS:
        return Finding(DISCARDS, Status.NOT_LOGGED, "Which rollouts are dropped is not in the log.")
    early, late = (float(admitted.value_T[part].mean()) for part in (slice(0, _FIRST), slice(-_FIRST, None)))
    said = f"{percent(late)} of what is generated is trained on, {percent(early)} at first."
    few = late < ADMITTED
    return Finding(DISCARDS, Status.INFO if few else Status.NONE, said, evidence={"discards": "filter"} if few else {})


def router(evidence: Evidence) -> Finding:
    """Look for experts whose load drifts apart."""
    known = evidence.quantity("router_loss")
    found = [known] if known is not None else [one for one in evidence.matching(_ROUTER.pattern) if len(one) >= FEWEST_ROWS]
    if not found:
        return Finding(ROUTER, Status.NOT_LOGGED, "No load of experts is in the log.")
    for signal in found:
        early = float(np.median(np.abs(signal.value_T[:_FIRST])))
        event = np.abs(signal.value_T) > UNBALANCED * early
        event[:_FIRST] = False
        row = beyond(signal, event) if early > 0 else None
        if row is not None:
            step, late, name = int(signal.step_T[row]), float(np.median(signal.value_T[row:])), clean(signal.column, longest=40)
            words = f"{name} {early:.2g} → {late:.2g}"
            return Finding(
                ROUTER,
                Status.WARNING,
                f"The experts' load drifts since step {step:,}: {words}.",
                step,
                Interval(late / early, late / early, late / early),
                UNBALANCED,
                advice="replay the sampler's routing; weigh the balancing loss more",
                signs=(Sign("router_load", step, early, late, words),),
                evidence={"router": "load"},
                what="over its first level",
            )
    return Finding(ROUTER, Status.NONE, "No sign of experts whose load drifts.")


def tools(evidence: Evidence) -> Finding:
    """Look for tool calls or actions that have come to fail."""
    known = evidence.quantity("tool_failure_share")
    found = [known] if known is not None else evidence.matching(_TOOLS)
    shares = [one for one in found if len(one) >= FEWEST_ROWS and one.value_T.min() >= 0 and one.value_T.max() <= 1]
    if not shares:
        return Finding(TOOLS, Status.NOT_LOGGED, "No share of failing tool calls is in the log.")
    signal = shares[0]
    early, name = float(signal.value_T[:_FIRST].mean()), clean(signal.column, longest=40)
    event = signal.value_T > max(FAILING, early + MORE)
    event[:_FIRST] = False
    row = beyond(signal, event)
    if row is None:
        late = float(signal.value_T[-_FIRST:].mean())
        return Finding(TOOLS, Status.INFO if late > FAILING else Status.NONE, f"{name} is {percent(late)}, {percent(early)} at first.")
    step, late = int(signal.step_T[row]), float(signal.value_T[row:].mean())
    turns = evidence.quantity("turns")
    more = "" if turns is None else f", turns {turns.value_T[:_FIRST].mean():.2g} → {turns.value_T[-_FIRST:].mean():.2g}"
    words = f"{name} {percent(early)} → {percent(late)}"
    return Finding(
        TOOLS,
        Status.WARNING,
        f"Tool calls fail since step {step:,}: {words}{more}.",
        step,
        Interval(late, late, late),
        max(FAILING, early + MORE),
        advice="read failing calls; penalise invalid actions",
        signs=(Sign("tool_failure_share", step, early, late, words),),
        evidence={"tools": "fail"},
        what="share of the calls that fail since",
    )
