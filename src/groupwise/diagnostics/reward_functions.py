"""Reward functions beside each other: rewards that format alone earns while what it is for earns
nothing.

A function that is 0 throughout beside others that earn is worth knowing and no failure. What a
function grades is known by its name alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import reduce

import numpy as np

from groupwise.arrays import moving_mean
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.falls import column_change
from groupwise.diagnostics.judgement import (
    Finding,
    Sign,
    Status,
    by_sign,
    exactly,
    no_sign,
    not_logged,
)
from groupwise.diagnostics.learning import progress_of
from groupwise.diagnostics.signals import (
    FORM,
    Evidence,
    Signal,
    both_ends,
    counted,
    once,
    signal_of,
)
from groupwise.diagnostics.signs import arrow
from groupwise.files import table_rows
from groupwise.wording import clean, short

NAME = "reward_functions"
LOG = "the mean of every reward function (TRL: rewards/NAME/mean)"
# Names of reward functions that say what is wanted; others (format, length, style) may stay at 0 in
# health. What the readers take for a score of the task is one as a function, too.
_SCORES = "|".join(
    row["pattern"] for row in table_rows("readers/names.tsv") if row["quantity"] == "task_score"
)
WANTED = re.compile(
    r"correct|accura|answer|solv|truth|success|exact|quality|outcome"
    r"|(^|_)(acc|f|f1|em|env|task|gold|win|(ndcg|mrr|recall|precision|pass)(_?at)?[_@]?\d*)($|_)"
    rf"|^({_SCORES})$",
    re.IGNORECASE,
)
# A weight below which a function is not paid.
UNPAID = 0.01
# Share of the rows of the total that must hold every function, for them to be looked at together.
_MOST_ROWS = 0.5
# What earns has nine tenths of the most that it ever earned, or of 1 where it stays within 0 and 1;
# nothing is a fiftieth of that, and what a model without a clue gets by luck is twice as much,
# where it does not grow.
EARNS, NOTHING, _LUCK = 0.9, 0.02, 0.05
# Form is learnt in tens of steps and what it is for comes later: only then is its absence told.
LONG, _FEW = 50, 10
# Standard errors of a change beyond doubt, and the least gain, of its top, that is one of a
# function.
_CLEAR, _GAIN = 5.0, 0.1


def check(evidence: Evidence) -> Finding:
    """Look for rewards that form alone earns."""
    functions = {name: signal for name, signal in evidence.functions.items() if len(signal) >= _FEW}
    if not evidence.functions:
        return not_logged(NAME, "The reward functions are not in the log one by one.", LOG)
    if len(functions) < 2:
        return no_sign(NAME, "One reward function has none beside it.")
    unpaid = [name for name, weight in weights_of(evidence).items() if abs(weight) < UNPAID]
    against = _against_each_other(
        evidence, {name: signal for name, signal in functions.items() if name not in unpaid}
    )
    if against is not None:
        return against
    return _earning(functions)


def _earning(functions: dict[str, Signal]) -> Finding:
    """Say which functions earn, and whether form alone does."""
    nothing = _earning_nothing(functions)
    if not nothing:
        said = ", ".join(
            f"{clean(name, longest=40)} {short(_late(signal))}"
            for name, signal in list(functions.items())[:4]
        )
        return no_sign(NAME, f"No sign of it: every reward function earns ({said}).")
    purpose = [name for name in functions if not FORM.search(name)]
    form = next(
        (
            name
            for name, signal in functions.items()
            if FORM.search(name) and _late(signal) >= EARNS * _top(signal) > 0
        ),
        None,
    )
    if form is not None and purpose and set(purpose) <= set(nothing):
        return _form_alone(functions, form, purpose[0])
    rows, name = counted(len(functions[nothing[0]]), "row"), clean(nothing[0], longest=40)
    earned = _late(functions[nothing[0]])
    message = (
        f"{name} earns {short(earned) if earned else 'nothing'} in {rows}, beside "
        f"{counted(len(functions) - 1, 'function')} of reward."
    )
    return Finding(NAME, Status.INFO, message)


def _against_each_other(evidence: Evidence, functions: dict[str, Signal]) -> Finding | None:
    """Report a total that stands while one function gains and another loses: no step of training
    is missing, the reward is.
    """
    reward = evidence.reward
    few = 0 if reward is None else len(reward) // 4
    if reward is None or few < _FEW:
        return None
    early, late = both_ends(reward, few)
    change = {
        name: signal.change(early, late)
        for name, signal in functions.items()
        if len(signal) == len(reward)
    }
    if not change:
        return None
    best = max(change, key=lambda name: change[name].value)
    worst = min(change, key=lambda name: change[name].value)
    gain, lost, stands = change[best].value, change[worst], reward.change(early, late)
    clear = min(functions[best].score(early, late), -functions[worst].score(early, late)) > _CLEAR
    if (
        not clear
        or gain < _GAIN * _top(functions[best])
        or -lost.value < gain / 2
        or stands.high > gain / 4
        or stands.low < -gain / 4
    ):
        return None
    rose, fell = (
        f"{clean(name, longest=40)} {arrow(*column_change(evidence, name, functions[name]).ends)}"
        for name in (best, worst)
    )
    message = f"{rose} while {fell}: the reward stands at {short(progress_of(evidence).after)}"
    return Finding(NAME, Status.WARNING, message, None, stands, facts=(Fact.FUNCTIONS_OPPOSED,))


def _form_alone(functions: dict[str, Signal], form: str, purpose: str) -> Finding:
    """Report that form alone earns."""
    signal, other = functions[form], functions[purpose]
    early, late, name = signal.level_until(_FEW), _late(signal), clean(form, longest=40)
    reached = moving_mean(signal.value_T, 5) >= EARNS * _top(signal)
    step = int(signal.step_T[int(np.argmax(reached))])
    sign = Sign(f"reward/{form}", step, early, late, f"{name} {arrow(early, late)}")
    rows = counted(len(other), "row")
    rest = f"{clean(purpose, longest=40)} is {short(_late(other))} over {rows}"
    message = f"Form alone earns reward: {sign.words}, while {rest}."
    if len(other) < LONG:
        return Finding(NAME, Status.INFO, message, step, exactly(late), EARNS)
    return by_sign(NAME, Status.WARNING, message, sign, EARNS, Fact.FORMAT_ALONE_EARNS)


def _late(signal: Signal) -> float:
    """What a function earns in the last fifth of its rows, ten rows at least."""
    return signal.level_from(-max(_FEW, len(signal) // 5))


def _top(signal: Signal) -> float:
    """The most that a function can have earned: 1 where it stays within 0 and 1."""
    most = signal.high
    return 1.0 if 0 <= most <= 1 and signal.low >= 0 else most


def _earning_nothing(functions: dict[str, Signal]) -> list[str]:
    """The functions that stay at 0, or at the lowest that they ever were, but for luck."""
    scale = max(abs(_late(signal)) for signal in functions.values())
    return [name for name, signal in functions.items() if earns_nothing(signal, scale)]


def earns_nothing(signal: Signal, scale: float | None = None) -> bool:
    """Return whether a function stays at 0, or at the lowest that it ever was, but for luck;
    without a scale by its own top.
    """
    floor, few = min(0.0, signal.low), max(_FEW // 2, len(signal) // 4)
    earned = max(_late(signal), signal.level_from(0)) - floor
    luck = floor == 0 and signal.score(*both_ends(signal, few)) <= 2
    return earned <= (_LUCK if luck else NOTHING) * max(
        _top(signal) if scale is None else scale, abs(floor)
    )


def of_task(name: str) -> bool:
    """Return whether a function, by its name, says what is wanted and not what it looks like."""
    return bool(WANTED.search(name)) and not FORM.search(name)


@once
def together(evidence: Evidence) -> tuple[Signal | None, Mapping[str, Signal]]:
    """The total and its functions in the rows that hold all of them, where these are most: a
    cell that is missing leaves its row out.
    """
    reward, functions = evidence.reward, evidence.functions
    if reward is None or all(len(signal) == len(reward) for signal in functions.values()):
        return reward, functions
    common = reduce(np.intersect1d, (signal.step_T for signal in (reward, *functions.values())))
    if len(common) < _MOST_ROWS * len(reward):
        return reward, functions

    def at_common(signal: Signal) -> Signal:
        return signal_of(
            signal.column,
            common,
            signal.value_T[np.searchsorted(signal.step_T, common)],
            bounds=signal.bounds,
        )

    return at_common(reward), {name: at_common(signal) for name, signal in functions.items()}


def weights_of(evidence: Evidence) -> Mapping[str, float]:
    """Return the weight of each reward function in the total, where the total is a weighted sum
    of them; else nothing.
    """
    reward, functions = together(evidence)
    if (
        reward is None
        or len(functions) < 2
        or any(len(f) != len(reward) for f in functions.values())
        or len(reward) < len(functions) + 2
    ):
        return {}
    design = np.column_stack([f.value_T for f in functions.values()])
    moving = np.ptp(design, axis=0) > 0
    weight = np.zeros(len(functions))
    solution, *_ = np.linalg.lstsq(design[:, moving], reward.value_T, rcond=None)
    weight[moving] = solution
    left = reward.value_T - design @ weight
    scale = float(np.abs(reward.value_T).max()) or 1.0
    if np.abs(left).max() > 5e-3 * scale:
        return {}
    # Where the log is rounded a function that hardly varies has no weight that can be told.
    spread = design.std(axis=0)
    unsure = moving & (float(left.std()) > 0.003 * np.sqrt(len(reward)) * spread)
    return {
        name: w
        for name, w, open_ in zip(functions, weight.tolist(), unsure, strict=True)
        if not open_
    }
