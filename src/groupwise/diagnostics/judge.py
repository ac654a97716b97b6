"""The one function that decides: a record in, its judgement out."""

from __future__ import annotations

from groupwise.diagnostics.former.checks import diagnose
from groupwise.diagnostics.judgement import Cause, Certainty, Cost, Finding, Judgement, Learning, Sign, State, Status
from groupwise.record.run import RunRecord


def judge(record: RunRecord, *, ended: bool = True) -> Judgement:
    """Judge a run by its log.

    Args:
        record: the run.
        ended: whether the run is over; a failure of one that goes on is "failing" and not "failed".

    Returns:
        State, headline, first sign, cause, what to do, what it cost, and the answer of every check.

    Example:
        >>> from groupwise.record.table import steps_table
        >>> reward = [0.8 + 0.01 * (-1) ** t for t in range(40)] + [0.0] * 20
        >>> judge(RunRecord("demo", steps_table(range(60), {"reward": reward}))).state.value
        'failed'
    """
    old = diagnose(record)
    checks = tuple(
        Finding(one.check, Status(one.severity), one.message, one.since_step, one.value, one.threshold, one.advice) for one in old.findings
    )
    checks += tuple(Finding(one.check, Status.NONE, one.message) for one in old.healthy)
    checks += tuple(Finding(one.check, Status.NOT_LOGGED, one.reason, log=one.log_this) for one in old.unavailable)
    last = int(record.steps["step"][-1]) if len(record.steps) else None
    if old.verdict == "undetermined" and old.worst in (None, "info"):
        state = State.CANNOT_TELL
    elif old.worst == "critical":
        state = State.FAILED if ended else State.FAILING
    else:
        state = State.WATCH if old.worst == "warning" else State.OK
    first = next((one for one in old.findings if one.severity != "info"), None)
    since = first.since_step if first else None
    sign = Sign("reward", since, None, first.value.value, f"reward to {first.value.value:.2g}") if first and since is not None else None
    certainty = Certainty.LIKELY if old.causes and old.causes[0].probability > 0.8 and state is not State.OK else Certainty.NONE
    names = (old.causes[0].cause.replace("_", " "),) if certainty is Certainty.LIKELY else ()
    return Judgement(
        run=record.name,
        state=state,
        headline=first.message if first else old.sentence,
        since_step=since,
        first_sign=sign,
        cause=Cause(certainty, names),
        learning=Learning.UNKNOWN,
        do=first.advice if first else "",
        cost=Cost(last - since, of_steps=last - int(record.steps["step"][0])) if last is not None and since is not None else None,
        not_logged=tuple(one.log_this for one in old.unavailable),
        checks=checks,
        last_step=last,
    )
