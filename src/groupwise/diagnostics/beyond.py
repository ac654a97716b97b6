"""What must stay within a limit: the KL, the sampler against the trainer, the age of rollouts, what
is dropped, load of experts.

Two engines that hold the same weights differ by rounding; what they do beyond that is a gradient of
another policy than the one that sampled. Of what few runs have (filters, experts) nothing is
asked for where it is not logged. What went wrong is not judged here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from groupwise.arrays import Flags, Float, median
from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.falls import end_levels
from groupwise.diagnostics.judgement import Finding, Sign, Status, by_sign, no_sign, not_logged
from groupwise.diagnostics.numerics import beyond, fell_since, rose_since
from groupwise.diagnostics.sampler import GREW, cap_of, gaps_by_turn, signature
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, Signal, counted
from groupwise.diagnostics.signs import arrow, led_to
from groupwise.errors import GroupwiseError
from groupwise.intervals import percent
from groupwise.plain import frozen
from groupwise.series.staleness import lag_of
from groupwise.wording import clean, short

DIVERGENCE, MISMATCH, STALENESS = "divergence", "sampler_mismatch", "staleness"
DISCARDS, ROUTER = "discards", "router_load"
LOG_KL = (
    "the mean KL divergence to the reference policy, nats a token (TRL: beta above 0; verl: "
    "actor.use_kl_loss=True)"
)
LOG_GAP = (
    "the difference of log-probability between sampler and trainer (TRL: "
    "sampling/sampling_logp_difference/mean; verl: "
    "actor_rollout_ref.rollout.calculate_log_probs=True)"
)
LOG_AGE = (
    "the age of the rollouts in updates (TRL: sample/staleness_mean; verl: training/off_policy; "
    "prime-rl: off_policy/mean)"
)
# At 3 nats the mean token is e^3 = 20 times as likely as under the reference; trained policies stay
# below 1 or so. Beyond the logarithm of a vocabulary, 12.5 for 270,000 tokens, the reference would
# have fared better by drawing tokens at random.
FAR_KL, BEYOND_CHANCE = 3.0, 12.5
# Rounding to bfloat16 moves a token's log-probability by some 2^-8 = .004, mixtures of experts by
# some .03: .1 is beyond both, and over 300 tokens a ratio of e^3. Five times the first level, and
# five times what rounding can do, is growth.
FAR, GROWN, ROUNDING, WRONG = 0.1, 5.0, 0.02, 1.0
# The mean importance ratio is 1 by construction; fewer effective samples than one in ten are a
# batch ten times smaller.
LOW_RATIO, HIGH_RATIO, FEW = 0.5, 2.0, 0.1
# A fifth of the rollouts dropped is a selection by age, and so by length; experts' load is balanced
# to a few per cent.
DROPPED, UNBALANCED = 0.2, 3.0
_FIRST, _NEAR = 10, 20
# Signatures of a mismatch however small the gap is.
_FROM_THE_START = (
    Fact.SAMPLING_TRUNCATED,
    Fact.RATIO_SUMMED,
    Fact.RATIO_CAPPED,
    Fact.CORRELATION_LOW,
)
_GAPS = (
    ("sampler_mismatch", "sampler mismatch"),
    ("sampler_probability_gap", "sampler probability gap"),
    ("sampler_ratio", "sampler ratio"),
    ("effective_sample_size", "effective samples"),
)
_ROUTER = r".*(router|expert|(^|[/_])moe([/_]|$)|load_balanc|max_vio).*"


def _left(value_T: Float, row: int) -> tuple[int, float | None, float]:
    """Say when what is beyond a limit from a row on left its own level: there, the level before
    (None without rows), that beyond.

    What grows by factors is on its way long before: back to halfway on the scale of logarithms,
    from a hundredth of the row's at least.
    """
    late = median(value_T[row:])
    if not row:
        return row, None, late
    usual = median(value_T[: row // 2 + 1])
    middle, begun = np.sqrt(max(usual, 0.01 * value_T[row]) * value_T[row]), row
    while begun > 1 and (value_T[begun - 1] > middle) == (value_T[row] > usual):
        begun -= 1
    return begun, median(value_T[max(0, begun - _NEAR) : begun]), late


def divergence(evidence: Evidence) -> Finding:
    """Look for a KL to the reference that has come to be huge."""
    kl = evidence.quantity("kl")
    if kl is None:
        said = evidence.unmeasured("kl") or "The KL to the reference policy is not in the log"
        return not_logged(DIVERGENCE, f"{said}.", LOG_KL)
    if len(kl) < FEWEST_ROWS:
        return no_sign(DIVERGENCE, f"No sign of it in {counted(len(kl), 'row')} of KL.")
    row = beyond(kl, kl.value_T > FAR_KL)
    if row is None:
        early, late = end_levels(kl)
        said = f"KL {short(early)} nats a token in the first rows, {short(late)} in the last"
        return no_sign(DIVERGENCE, f"{said}, {short(kl.high)} at most; {FAR_KL:g} is far.")
    begun, before, late = _left(kl.value_T, row)
    far, step = kl.step_at(row), kl.step_at(begun)
    # Some trainers sum the KL over an answer: where the reward rises it has done no harm.
    lost = fell_since(evidence, far) or (late > BEYOND_CHANCE and not rose_since(evidence, far))
    grew = "is" if before is None else f"grew from {short(before)} to"
    top = float(kl.value_T[row:].max())
    message = (
        f"The KL to the reference {grew} {short(late)} nats a token since step {step:,}, at most "
        f"{short(top)}."
    )
    sign = Sign(
        "kl", step, before, late, f"KL {short(late) if before is None else arrow(before, late)}"
    )
    return by_sign(
        DIVERGENCE, Status.CRITICAL if lost else Status.WARNING, message, sign, FAR_KL, Fact.KL_HUGE
    )


@frozen
class _Told:
    """How one quantity shows a mismatch."""

    quantity: str
    words: str  # what it is, in a few words
    signal: Signal
    value_T: Float
    event_T: Flags
    limit: float


def sampler(evidence: Evidence) -> Finding:
    """Look for a sampler that does not match the trainer."""
    columns = list(_told(evidence))
    if not columns:
        hidden = evidence.unmeasured("sampler_mismatch")
        said = hidden or "How far sampler and trainer differ is not in the log"
        return not_logged(MISMATCH, f"{said}.", LOG_GAP)
    far = [
        (row, column)
        for column in columns
        if (row := beyond(column.signal, column.event_T)) is not None
    ]
    shown = signature(evidence)
    if not far and shown is not None and shown[0] in _FROM_THE_START:
        far = [(0, columns[0])]
    if far:
        row, first = min(far, key=lambda each: int(each[1].signal.step_T[each[0]]))
        return _mismatch(evidence, row, first, shown)
    late = median(columns[0].value_T[-columns[0].signal.tenth :])
    return no_sign(MISMATCH, f"{columns[0].words} {short(late)}, within its limit.")


def _told(evidence: Evidence) -> Iterator[_Told]:
    """Yield what the log says of the mismatch, quantity by quantity."""
    turns = gaps_by_turn(evidence)[-1:]
    signals: list[tuple[str, str, Signal | None]] = [
        ("sampler_mismatch", "sampler mismatch of the last turn", turn) for turn in turns
    ]
    signals += [(name, words, evidence.quantity(name)) for name, words in _GAPS]
    for quantity, words, signal in signals:
        if signal is None or len(signal) < FEWEST_ROWS:
            continue
        value = signal.value_T
        if quantity == "sampler_ratio":
            event, limit = (value < LOW_RATIO) | (value > HIGH_RATIO), LOW_RATIO
        elif quantity == "effective_sample_size":
            event, limit = value < FEW, FEW
        else:
            value = np.abs(value)
            first = max(median(value[:_FIRST]), signal.resolution)
            grown = max(GROWN * first, ROUNDING)
            if cap_of(evidence):  # the ratio tells nothing more: half of what is far, and trebled
                grown = min(grown, max(GREW * first, FAR / 2))
            event = (value > FAR) | (value > grown) & (np.arange(value.size) >= _FIRST)
            limit = min(FAR, grown)
        yield _Told(quantity, words, signal, value, event, limit)


def _mismatch(
    evidence: Evidence, row: int, column: _Told, shown: tuple[Fact, str] | None
) -> Finding:
    """Report a mismatch, with its signature and what else it goes with."""
    begun, before, late = _left(column.value_T, row)
    step = column.signal.step_at(begun)
    words = f"{column.words} {led_to(before, late)}"
    more = cap_of(evidence) if shown is None else f", {shown[1]}"
    facts = [Fact.SAMPLER_MISMATCH, *(() if shown is None else shown[:1])]
    message = f"{words[0].upper()}{words[1:]} since step {step:,}"
    if shown is not None and shown[0] in _FROM_THE_START:
        words, more = shown[1], ""
        message = f"Sampler and trainer differ since step {step:,}: {words}"
    rate = evidence.quantity("learning_rate")
    if rate is not None and not rate.value_T.any():
        facts.append(Fact.MISMATCH_AT_RATE_ZERO)
        more += " although the learning rate is 0, so the engines differ and not the policy"
    status = (
        Status.CRITICAL
        if column.quantity == "sampler_mismatch" and late > WRONG
        else Status.WARNING
    )
    return by_sign(
        MISMATCH,
        status,
        f"{message}{more}.",
        Sign(column.quantity, step, before, late, words),
        column.limit,
        *facts,
    )


def staleness(evidence: Evidence) -> Finding:
    """Look for rollouts that are older than the settings allow."""
    age = evidence.quantity("staleness")
    if age is None or len(age) < FEWEST_ROWS:
        wanted = evidence.setting("lag_kind") not in (None, "none")
        return not_logged(
            STALENESS, "The age of the rollouts is not in the log.", LOG_AGE if wanted else ""
        )
    late = median(age.value_T[-age.tenth :])
    try:
        longest = float(lag_of(evidence.record).longest)
    except GroupwiseError:
        said = (
            f"The rollouts are {short(late)} updates old; how old they may be is not in the "
            "settings."
        )
        if late <= 0.5:
            return no_sign(STALENESS, said)
        return Finding(STALENESS, Status.INFO, said, log="the kind of lag (--set lag_kind)")
    # Half an update above the oldest that may be is no rounding.
    row = beyond(age, age.value_T > longest + 0.5)
    if row is None:
        return no_sign(
            STALENESS,
            f"No sign of it: rollouts are {short(late)} updates old, at most {longest:g} as "
            "configured.",
        )
    step, since = age.step_at(row), median(age.value_T[row:])
    before = median(age.value_T[:row]) if row else None
    message = (
        f"The rollouts are {short(since)} updates old since step {step:,}, configured are "
        f"{longest:g} at most."
    )
    sign = Sign(
        "staleness", step, before, since, f"age of rollouts {led_to(before, since)} updates"
    )
    return by_sign(STALENESS, Status.WARNING, message, sign, longest, Fact.ROLLOUTS_STALE)


def discards(evidence: Evidence) -> Finding:
    """Look for rollouts that are dropped because they came too late, which are the long ones of
    hard prompts.
    """
    total = evidence.quantity("stale_samples_total")
    dropped = evidence.quantity("stale_samples") if total is None else total
    if dropped is None or len(dropped) < FEWEST_ROWS:
        return not_logged(DISCARDS, "Which rollouts are dropped is not in the log.")
    each = dropped.value_T if total is None else np.diff(total.value_T, prepend=0.0)
    size, prompts = evidence.group_size, evidence.setting("prompts_per_step")
    generated, share = evidence.quantity("generated_samples_total"), None
    if generated is not None and np.array_equal(generated.step_T, dropped.step_T):
        share = each / np.maximum(np.diff(generated.value_T, prepend=0.0), 1.0)
    elif size is not None and prompts is not None:
        share = each / (each + size * float(prompts))
    if share is None:
        said = f"{float(np.mean(each)):.3g} rollouts a row are dropped as too old, of how many?"
        return not_logged(DISCARDS, said, "the group size and prompts a step (--set)")
    row = beyond(dropped, share > DROPPED)
    if row is None:
        return no_sign(
            DISCARDS,
            f"No sign of it: {percent(float(share.mean()))} of the rollouts are dropped as too "
            "old.",
        )
    step, late = dropped.step_at(row), float(share[row:].mean())
    before = float(share[:row].mean()) if row else None
    words = f"{percent(late)} of rollouts dropped as too old"
    words += "" if before is None else f" (was {percent(before)})"
    message = f"Since step {step:,} {words}."
    sign = Sign("dropped_samples", step, before, late, words)
    return by_sign(
        DISCARDS,
        Status.WARNING,
        message,
        sign,
        DROPPED,
        Fact.STALE_DISCARDED,
        log="the lengths of what is dropped",
    )


def router(evidence: Evidence) -> Finding:
    """Look for experts whose load drifts apart."""
    loss = evidence.quantity("router_loss")
    named = (signal for signal in evidence.matching(_ROUTER) if len(signal) >= FEWEST_ROWS)
    signals = [loss] if loss is not None else [*named]
    if not signals:
        return not_logged(ROUTER, "No load of experts is in the log.")
    for signal in signals:
        early = median(np.abs(signal.value_T[:_FIRST]))
        limit = UNBALANCED * early
        row = since_the_first(signal, np.abs(signal.value_T) > limit) if early > 0 else None
        if row is not None:
            step, late = signal.step_at(row), median(signal.value_T[row:])
            words = f"{clean(signal.column, longest=40)} {arrow(early, late)}"
            message = f"The experts' load drifts since step {step:,}: {words}."
            sign = Sign(ROUTER, step, early, late, words)
            return by_sign(ROUTER, Status.WARNING, message, sign, limit, Fact.ROUTER_DRIFTS)
    return no_sign(ROUTER, "No sign of experts whose load drifts.")


def since_the_first(signal: Signal, event_T: Flags) -> int | None:
    """The row since which rows of a rare kind are most of them; the first rows are what it is
    held against.
    """
    return beyond(signal, event_T & (np.arange(len(signal)) >= _FIRST))
