"""A run that comes apart: a reward that swings or breaks down, one that lost most of its height
for good, a restart with a jump.

Signs of dynamical instability are a swing at one frequency that slow noise does not explain, an
entropy that rises as the reward falls, importance weights that degenerate. A sign alone is a
warning; with harm to the reward it is critical. Which setting is to blame is the business of
`groupwise stability`. Source: the oscillator of 2606.30789.

A reward that fell in training alone, while the held-out one stayed, is no collapse of the policy. A
jump at a restart is held against the largest move of the same kind just before.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from groupwise.arrays import Flags, Float, mean_of, median
from groupwise.diagnostics.falls import (
    FEWEST_SWUNG,
    HALF,
    HELD_OUT,
    PATIENCE,
    DataOrder,
    Fall,
    at_once,
    behaviour_change,
    by_and_by,
    decline_of,
    fall_of,
    falls_of,
    held_out_at,
    is_wave,
    level_changes,
    lost_rows,
    onset_of,
    reward_level,
    row_size,
    settled,
    signs_of_fall,
    span_of_fall,
    swing_of,
)
from groupwise.diagnostics.judgement import (
    Fact,
    Finding,
    Sign,
    Status,
    by_sign,
    exactly,
    no_sign,
    not_logged,
    stated,
)
from groupwise.diagnostics.numerics import ends_in_words, left_at
from groupwise.diagnostics.signals import (
    FALSE_WARNING,
    FEWEST_ROWS,
    LOG_REWARD,
    MORE_ROWS,
    Evidence,
    NoisyMetric,
    arrow,
    floor_of,
    just_before,
    lasting,
    levels_of,
    moved,
    rare_event_factors,
    reward_floor,
    signal_of,
    since_when,
)
from groupwise.diagnostics.verifier import UNPAID, WANTED, weights_of
from groupwise.files import table_rows
from groupwise.intervals import percent
from groupwise.wording import clean, count, short

NAME = "instability"
_DOUBLED = 2.0
# A swing is harm where its amplitude grew so many times, within the late rows or since the early
# ones.
GROWS = 1.5
# Chance of a line in white rows at which it is believed; rows that were smoothed before they were
# logged are not white.
LINE = 1e-6
# Rows below which a period is no swing of a policy: its updates would have to undo each other from
# row to row.
_ALTERNATES = 3.0


def unstable_training(evidence: Evidence) -> Finding:
    """Look for swings, a policy that comes apart, and degenerate importance weights."""
    reward = evidence.reward
    if reward is None:
        return not_logged(evidence.no_reward, LOG_REWARD)
    if len(reward) < FEWEST_SWUNG:
        said = f"{count(len(reward), 'row')} of reward cannot separate an oscillation from noise"
        return not_logged(said, f"the reward of at least {FEWEST_SWUNG} steps")
    reward, order = reward_level(evidence)
    fall = fall_of(evidence)
    step = None if fall is None else reward.step_at(fall.row)
    swings = _swinging(reward, order) or _coming_round(evidence, order)
    looked = swings, _apart(evidence, step), _weights(evidence, reward, fall)
    signs = [*filter(None, looked)]
    if not signs:
        round_ = (
            ""
            if order is None
            else f" except with the order of the data, with a period of {order.period} rows"
        )
        entropy = evidence.quantity("entropy")
        more = entropy and f"; the entropy is {ends_in_words(entropy)}"
        return no_sign(f"the reward does not oscillate{round_}{more or ''}.")
    # A growing swing, or a fall that is there to stay, makes it critical.
    harmed = fall and settled(evidence, reward, fall)
    return replace(
        signs[0],
        status=Status.CRITICAL if harmed else signs[0].status,
        step=min(sign.step for sign in signs if sign.step is not None),
        facts=tuple(fact for sign in signs for fact in sign.facts),
    )


def _swinging(reward: NoisyMetric, order: DataOrder | None) -> Finding | None:
    """A swing at one frequency."""
    swing = swing_of(reward.value_T, LINE)
    if swing is None:
        return None
    # A profile that grows or fades a little leaves lines at its own period and at whole parts of
    # it.
    turns = 0.0 if order is None else order.period / swing.period
    if turns > 0.5 and abs(turns - round(turns)) < 0.1:
        return None
    if swing.period < _ALTERNATES:
        # two sources of data in turn, which may part as the policy learns from one of them
        return None
    height = float(np.ptp(reward.bounds) if reward.bounds else np.abs(reward.value_T).max())
    harm = swing.p_value < LINE / 10 and swing.amplitude > 0.1 * height and swing.growth > GROWS
    said = (
        f"the reward keeps oscillating by ±{short(swing.amplitude)} every {swing.period:.3g} rows"
    )
    return Finding(
        Status.CRITICAL if harm else Status.WARNING,
        said,
        reward.step_at(onset_of(reward.value_T, swing.period)),
        exactly(swing.growth),
        GROWS,
        facts=(Fact.REWARD_OSCILLATES,),
    )


def _coming_round(evidence: Evidence, order: DataOrder | None) -> Finding | None:
    """A swing so even that it could be the order of the data, but that has one sine and is no
    whole number of epochs.
    """
    if not (order and is_wave(order) and evidence.reward):
        return None
    swing, epoch = _swinging(evidence.reward, None), evidence.quantity("epoch")
    turns = order.period * epoch.span / len(epoch) if epoch else 0.0
    if swing is None or (turns > 0.5 and abs(turns - round(turns)) < 0.1):
        return None
    said = f"{swing.message}: by the learning rate, or by data that come round"
    return replace(swing, message=said, facts=(Fact.REWARD_COMES_ROUND,))


def _apart(evidence: Evidence, fell: int | None) -> Finding | None:
    """An entropy that rose to twice what it was, at the time of a fall or to the end."""
    entropy = evidence.quantity("entropy")
    if entropy is None or len(entropy) < FEWEST_SWUNG:
        return None
    n, few = len(entropy), max(4, len(entropy) // 8)
    row = 0 if fell is None else entropy.at(fell)
    usual = median(entropy.value_T[: max(n // 3 if fell is None else row, few)])
    # Healthy public runs wander too, one by a factor of five for a while: without a fall a rise is
    # a warning at most, and has to last.
    times = 2.0 if fell is not None or "reward" in level_changes(evidence) else 4.0
    least = max(entropy.resolution, 1e-9)
    high = entropy.value_T > times * max(usual, least)
    near = slice(max(0, row - 2), row + max(few, 6))
    onset = lasting(
        np.where(np.arange(n) >= near.start, rare_event_factors(high, 0.2), 0.0), rate=FALSE_WARNING
    )
    if fell is not None and high[near].sum() >= 3:
        row = near.start + int(np.argmax(high[near]))
    elif fell is None and onset is not None:
        row = left_at(entropy.value_T, onset)[0]
    else:
        return None
    peak = median(entropy.value_T[row if fell is not None else onset :][:few])
    signs_told = () if fell is None else signs_of_fall(evidence)
    of_fall = [sign for sign in signs_told if sign.signal == "entropy"]
    after = (of_fall[0].after if of_fall else None) or peak
    before = usual if high[max(row - 1, 0)] else just_before(entropy, row)
    levels = levels_of(before, float(entropy.value_T[row]), after)
    own = replace(moved("entropy", entropy.step_at(row), *levels), usual=usual)
    # One change has one sign: the earliest.
    sign = min([*of_fall, own], key=lambda sign: sign.step)
    meanwhile = " as the reward fell" if fell is not None else ""
    said, value = f"{sign.words} nats a token{meanwhile}", exactly(after / max(usual, least))
    return Finding(Status.WARNING, said, sign.step, value, times, signs=(sign,))


def _weights(evidence: Evidence, reward: NoisyMetric, fall: Fall | None) -> Finding | None:
    """Importance weights that leave few effective samples, many clipped tokens, or a second moment
    that doubled: of weights that were so long before a fall no fact is stated.
    """
    for signal, value_T, event_T, limit, words, of in _degenerate(evidence):
        onset = since_when(event_T, still=False)
        if onset is not None:
            step, mean = signal.step_at(onset), mean_of(value_T[onset:])
            much = f"{100 * mean:.2g} %" if limit < 1 else f"{mean:.3g}"
            near = fall and fall.row - reward.at(step) <= max(8, len(reward) // 6)
            facts = (Fact.FEW_WEIGHTS_COUNT,) if near else ()
            said = f"the {words}, {signal.column}, is {much}{of}"
            return Finding(Status.WARNING, said, step, exactly(mean), limit, facts=facts)
    return None


def _degenerate(evidence: Evidence) -> Iterator[tuple[NoisyMetric, Float, Flags, float, str, str]]:
    """Yield columns of importance weights: values, where they are beyond a limit, and its words."""
    for signal in evidence.matching(ESS):
        # Of all samples where it is a share, of what it was at first where it is a count.
        count = signal.high > 1.0 + 1e-9
        usual = median(signal.value_T[: max(len(signal) // 4, 4)]) if count else 1.0
        share = signal.value_T / usual if usual > 0 else np.ones(len(signal))
        of = f" of {'what it was at first' if count else 'all samples'}"
        yield signal, share, share < 0.5, 0.5, "effective sample size of the importance weights", of
    clipped = evidence.quantity("clip_ratio")
    if clipped and len(clipped) >= FEWEST_SWUNG:
        most = max(3 * median(clipped.value_T[: len(clipped) // 2]), 0.2)
        yield clipped, clipped.value_T, clipped.value_T > most, most, "share of clipped tokens", ""
    if moments := moments_of(evidence):
        mean, second, signal = moments
        moment = second / np.maximum(mean**2, 1e-300)
        words = "second moment of the importance weights"
        yield signal, moment, moment > _DOUBLED, _DOUBLED, words, ""


ESS = r"(.*[/_.-])?(eff(ective)?_sample_size|ess)(_ratio|[/_]mean)?"
# Names of importance weights; a second moment of something else, such as the optimiser's, is none
# of theirs.
_RATIO = "importance_sampling_ratio|rollout_is|probs_ratio|is_ratio|importance_ratio"
_WEIGHT = rf"({_RATIO}|importance_weights?|is_weights?|weights?)"
_MEAN = rf".*({_RATIO})[/_]mean"
_MOMENT = rf"(.*[/_.-])?{_WEIGHT}[/_]second_moment"


def moments_of(evidence: Evidence) -> tuple[Float, Float, NoisyMetric] | None:
    r"""Return mean and second moment of the importance weights by row, and the column they come
    from.

    Of a $\chi^2$, a variance or a second moment alone the mean is 1; of a standard deviation it is
    the one logged beside it.
    """
    for signal in evidence.matching(r"(.*[/_])?(chi2_token|chi2_seq|ratio_var(iance)?)([/_]mean)?"):
        return np.ones(len(signal)), 1 + np.maximum(signal.value_T, 0.0), signal
    for signal in evidence.matching(_MOMENT):
        return np.ones(len(signal)), signal.value_T, signal
    for mean in evidence.matching(_MEAN):
        for spread in evidence.matching(re.escape(mean.column.removesuffix("mean")) + "std")[:1]:
            step, rows, its = np.intersect1d(mean.step_T, spread.step_T, return_indices=True)
            if rows.size >= 2:
                mean_T = mean.value_T[rows]
                signal = signal_of(mean.column, step, mean_T)
                return mean_T, mean_T**2 + spread.value_T[its] ** 2, signal
    return None


COLLAPSE = "collapse"
OF_REWARD = (COLLAPSE, "lost")  # checks that tell of a reward that fell
# Completions of a tenth of their length are no longer the same answers; healthy public runs
# shortened to a quarter at most.
_TENTH = 0.1
# Share of the most that any function earned below which a height is next to nothing.
_LITTLE = 0.02
# Standard errors of a change of the reward beyond its noise.
_CLEARLY = 1.96
# Of a fall at once, and of one over some rows.
_REWARD_FELL = Fact.FALL_AT_ONCE, Fact.FALL_BY_AND_BY
_FUNCTION_FELL = Fact.FUNCTION_FALL_AT_ONCE, Fact.FUNCTION_FALL_BY_AND_BY


def lost(evidence: Evidence) -> Finding:
    """Look for a reward that its last three rows have lost, all of it or with other answers."""
    if lost_rows(evidence) is None:
        return no_sign("No sign of a problem.")
    change, floor = level_changes(evidence)["reward"], reward_floor(evidence)
    (before, after), sign = change.ends, moved("reward", change.first, *change.ends)
    level, fall = reward_level(evidence)[0], fall_of(evidence)
    row = fall.row if fall and fall.lasts else level.at(change.first)
    falling = after - floor > HALF * (before - floor)
    message = f"{sign.words}, {'falling' if falling else 'lost'} since step {sign.step:,}"
    return by_sign(
        message, sign, before, _REWARD_FELL[by_and_by(level, row)], status=Status.CRITICAL
    )


def collapse(evidence: Evidence) -> Finding:
    """Look for a collapse of the reward, of a reward function, or of the answers themselves."""
    reward = evidence.reward
    if reward is None:
        return not_logged(evidence.no_reward, LOG_REWARD)
    falls = list(_falls(evidence))
    last = sorted(
        (item for item in falls if item[2].lasts),
        key=lambda item: (item[0] != "reward", item[2].row),
    )
    # Answers that shrank to nothing come before what one function paid for them.
    other = None if last and last[0][0] == "reward" else _shortened(evidence)
    if last and other is None:
        return _collapsed(evidence, *last[0])
    if other := other or _decline(evidence):
        return other
    # The last rows have made good half of a fall.
    back = next(
        (
            (name, signal, fall)
            for name, signal, fall in falls
            if name == "reward"
            or signal.level_from(-3 - len(signal) // 10) > (fall.height + fall.end) / 2
        ),
        None,
    )
    return _not_fallen(evidence, reward) if back is None else _recovered(*back)


def _not_fallen(evidence: Evidence, reward: NoisyMetric) -> Finding:
    """Say that nothing fell, or that the rows are too noisy to say so."""
    if row_size(reward_level(evidence)[0], reward_floor(evidence)) is None:
        moves = reward.span > 0  # of one number more rows tell no more
        log = (
            MORE_ROWS
            if evidence.graded is not None
            else "more rows, or rollouts with their rewards"
        )
        said = f"one row scatters by {short(reward.scatter)}, so half of the level could be noise"
        if len(reward) < FEWEST_ROWS:
            said = (
                f"the log has {count(len(reward), 'row')}; {FEWEST_ROWS} are needed to show a fall"
            )
        elif not moves:
            said = f"the reward is {short(reward.value_T[0])} in all rows: no level to fall from"
        return not_logged(said, log if moves else "")
    return no_sign("No sign of a problem: the reward did not fall for good.")


def _falls(evidence: Evidence) -> Iterator[tuple[str, NoisyMetric, Fall]]:
    """Yield the falls of the reward, of the held-out reward, and of each reward function."""
    reward = evidence.reward
    assert reward is not None
    earned = evidence.earned
    weights = weights_of(evidence)
    # A function that earned next to nothing beside the others has no height to lose.
    least = _LITTLE * max((signal.high for signal in earned.values()), default=0.0)
    for name, (level, fall) in falls_of(evidence).items():
        if fall is None:
            continue
        if name == "reward":
            yield name, level, fall
            continue
        gained = _gained(reward, level.step_T[span_of_fall(level, fall.row)[0]])
        # What shapes answers beside what is wanted, by their names, may be the price of a gain.
        shapes = not WANTED.search(name) and any(map(WANTED.search, earned))
        if name in earned and (fall.height < least or (shapes and gained > -_CLEARLY)):
            continue
        # Neither is what training gains from, and is not paid by: a loophole's doing.
        unpaid = name == HELD_OUT or abs(weights.get(name, 1.0)) < UNPAID
        if not unpaid or gained <= _CLEARLY:
            yield name, level, fall


def _gained(reward: NoisyMetric, step: float) -> float:
    """Standard errors that training has gained since a step."""
    row, few = reward.at(step), max(3, len(reward) // 8)
    return reward.score(slice(max(0, row - few), max(row, 3)), slice(-few, None))


def _collapsed(evidence: Evidence, name: str, signal: NoisyMetric, fall: Fall) -> Finding:
    """Report a collapse that lasts."""
    step, ends = signal.step_at(fall.row), level_changes(evidence)[name]
    words = f"{clean(name, longest=60)} {arrow(*ends.ends)}"
    message = f"{words} {ends.where}{', and it did not come back' if evidence.ended else ''}"
    fact = (_REWARD_FELL if name == "reward" else _FUNCTION_FELL)[by_and_by(signal, fall.row)]
    status = Status.CRITICAL if settled(evidence, signal, fall) else Status.WARNING
    if (
        name != HELD_OUT
        and held_out_at(evidence, step, fall.end - fall.height, ever=True) is Fact.HELD_OUT_STAYED
    ):
        status, message = Status.WARNING, f"{message}; held-out reward did not fall half as much"
        # The held-out total says that the policy goes on; of a function it says nothing where
        # another one pays.
        fact = Fact.TRAINING_FALLS_ALONE if name == "reward" else Fact.FUNCTION_FALLS_ALONE
    signal_name = "held_out" if name == HELD_OUT else clean(name, longest=60)
    signs = () if name == "reward" else (Sign(signal_name, step, *ends.ends, words),)
    facts = stated(fact, behaviour_change(evidence, step))
    lost = ends.share_lost(
        reward_floor(evidence) if name == "reward" else floor_of(signal), fall.lost
    )
    return Finding(status, message, step, lost, HALF, signs=signs, facts=facts)


def _recovered(name: str, signal: NoisyMetric, fall: Fall) -> Finding:
    """Report a fall that was made good."""
    step, levels = signal.step_at(fall.row), arrow(fall.height, fall.end)
    message = f"{clean(name, longest=60)} {levels} at step {step:,}, and came back later"
    return Finding(Status.INFO, message, step, fall.lost, HALF)


def _decline(evidence: Evidence) -> Finding | None:
    """Report a reward that ends significantly below its height: a failure where it has stood
    below half of it, beyond doubt, for long.
    """
    decline, reward = decline_of(evidence), evidence.reward
    if decline is None or reward is None:
        return None
    change, after = level_changes(evidence)["reward"], decline.after
    (height, now), step = change.ends, change.first
    message = f"reward {arrow(height, now)}, lower since step {step:,}"
    level, status, fact = reward_level(evidence)[0], Status.WARNING, Fact.DECLINE
    if (
        at_once(level, decline.middle)
        and held_out_at(evidence, step, after.value - height) is Fact.HELD_OUT_STAYED
    ):
        fact = Fact.TRAINING_DECLINES_ALONE
    elif len(level) - decline.end >= PATIENCE:
        most = -HALF * (height - reward_floor(evidence))
        if level.change(decline.best, slice(decline.end, None)).high < most:
            status = Status.CRITICAL
    return Finding(status, message, step, after, height, facts=(fact,))


def _shortened(evidence: Evidence) -> Finding | None:
    """Report answers that shrank to a tenth of their length and stopped teaching."""
    length = evidence.quantity("completion_length")
    if length is None:
        return None
    value = length.value_T
    earlier = np.maximum.accumulate(value)
    onset = since_when(value < _TENTH * earlier)
    if onset is None:
        return None
    gradient, alike = evidence.quantity("gradient_norm"), evidence.quantity("dead_group_share")
    after = length.step_T[onset]
    silent = [] if gradient is None else [gradient.is_zero[gradient.at(after) :].mean()]
    silent += [] if alike is None else [median(alike.value_T[alike.at(after) :])]
    if min(silent, default=0.0) < HALF:
        return None
    step, before, end = int(after), float(earlier[-1]), median(value[onset:])
    words = f"length {arrow(*levels_of(before, float(value[onset]), end))}"
    dead = f"{percent(silent[-1])} of {'steps' if alike is None else 'groups'} give no gradient"
    message = f"{words} tokens since step {step:,}; {dead}"
    return Finding(
        Status.CRITICAL,
        message,
        step,
        exactly(end / before),
        _TENTH,
        signs=(Sign("completion_length", step, before, end, words),),
        facts=(Fact.ANSWERS_SHRANK,),
    )


# The readers' notes on a log whose steps drop back, and the recorder's on a run that goes on from a
# checkpoint; an error may be printed by what goes on.
_NOTES = tuple(table_rows("diagnostics/restarts.tsv"))
_WATCHED = {row["quantity"]: row["words"] for row in table_rows("diagnostics/watched.tsv")}
# Medians of five rows before and after; three times the largest such move among the fifty rows
# before is none of the run's own.
_ROWS, _PAST, _FEWEST_BEFORE, _TIMES = 5, 50, 15, 3.0
# A schedule that starts anew falls to a fifth and rises again.
_FALLS, _RISES = 5.0, 3
# A pause takes so many times the usual row. What counts on from row to row, by its name.
_PAUSE = 20.0
_COUNTERS = (
    r"(.*[/_])?((run_?time|timestamp|elapsed(_s|_seconds)?|wall_?time)"
    r"|total_(tokens|samples)|num_tokens|optim[a-z]*[/_]step)"
)
# Gaps of the steps, in a log that is else evenly spaced, each of which may be a restart.
_GAPS = 3


class _Restart(NamedTuple):
    """Where a run may have gone on from a checkpoint."""

    unsure: bool  # whether an error in passing alone says so, and not the log
    step: int
    said: str  # what tells it, as the beginning of a sentence


def restart(evidence: Evidence) -> Finding:
    """Look for a restart, and for what jumped at it."""
    restarts = sorted(_restarts(evidence))
    for restart in restarts:
        if jumps := tuple(_jumps(evidence, restart.step)):
            words = ", ".join(sign.words for sign in jumps[:3])
            message = f"{restart.said} at step {restart.step:,}, and these signals jumped: {words}."
            facts = (Fact.RESTART_JUMP,)
            return Finding(Status.WARNING, message, restart.step, signs=jumps, facts=facts)
    if not restarts or restarts[0].unsure:
        return no_sign("No sign of a restart during the run.")
    step = restarts[0].step
    message = f"{restarts[0].said} at step {step:,}, and no signal jumped there."
    return Finding(Status.INFO, message, step)


def _restarts(evidence: Evidence) -> Iterator[_Restart]:
    """Yield where the log says that the run was restarted, and where its learning rate
    looks like it.
    """
    for note in _NOTES:
        for steps_noted in re.findall(note["pattern"], "\n".join(evidence.record.notes)):
            for step in re.findall(r"\d{1,15}", steps_noted):
                yield _Restart(bool(note["unsure"]), int(step) + int(note["behind"]), note["said"])
    steps = evidence.record.steps["step"].to_numpy()
    gaps = np.diff(steps)
    uneven = np.flatnonzero(gaps != median(gaps)) if gaps.size else gaps
    if uneven.size <= _GAPS:
        missing = "Rows are missing, as after a restart,"
        for row in uneven.tolist():
            yield _Restart(unsure=True, step=int(steps[row + 1]), said=missing)
    yield from _by_clocks(evidence)
    rate = evidence.quantity("learning_rate")
    if rate and len(rate) > 2 * _ROWS:
        value = rate.value_T
        fell = np.flatnonzero((value[1:] + rate.resolution) * _FALLS < value[:-1]) + 1
        for row in fell.tolist():
            steps_up = np.diff(value[row : row + 1 + _RISES])
            if len(steps_up) == _RISES and steps_up.min() > 0:
                yield _Restart(
                    unsure=False,
                    step=rate.step_at(row),
                    said="The learning-rate schedule starts again",
                )


def _by_clocks(evidence: Evidence) -> Iterator[_Restart]:
    """Yield where a clock stood still for long, or a counter fell back, if that is rare."""
    for signal in evidence.matching(_COUNTERS):
        took = np.diff(signal.value_T)
        usual = median(took)
        rows = np.flatnonzero((took < 0) | (took > _PAUSE * usual)).tolist()
        if usual > 0 and len(rows) <= _GAPS < took.size:
            for row in rows:
                said = "The log has a pause, or a counter was reset,"
                yield _Restart(unsure=True, step=signal.step_at(row + 1), said=said)


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
        move = median(scaled[-_ROWS:]) - median(scaled[-2 * _ROWS : -_ROWS])
        unit = 2 * signal.resolution / (median(near) if near.min() > 0 else 1.0)
        if abs(move) > max(_TIMES * _largest_move(scaled[:-_ROWS]), unit, 1e-9):
            before = median(near[-2 * _ROWS : -_ROWS])
            since = median(near[-_ROWS:])
            yield Sign(quantity, step, before, since, f"{word} {arrow(before, since)}")


def _largest_move(past_T: Float) -> float:
    """The largest difference of medians of neighbouring five rows."""
    medians = np.median(np.lib.stride_tricks.sliding_window_view(past_T, _ROWS), axis=1)
    return float(np.abs(medians[_ROWS:] - medians[:-_ROWS]).max())
