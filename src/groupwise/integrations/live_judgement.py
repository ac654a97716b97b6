"""The judgement of a run while it trains: when it is made, and who hears of a change.

`groupwise.diagnostics` decides, and loads much when it is first asked: that is done before the
first step. A change of state is one line in the terminal and through the tracker in use (`sinks`).
"""

import math
import time
from typing import Literal, cast, get_args

from groupwise.diagnostics.judgement import Judgement, State
from groupwise.errors import InvalidArgumentError
from groupwise.integrations.alerts import webhook_of
from groupwise.integrations.sinks import tell, title_of
from groupwise.plain import FORMER_STATES
from groupwise.record.recorder import Say, each_once, reason_of
from groupwise.record.run import RunRecord
from groupwise.record.table import rollouts_table, steps_table
from groupwise.wording import clean

StopOn = Literal["warning", "failing"]

_EVERY, _SHARE = (50, 0.02)
# steps between two looks, and the share of the time that they may take, where no interval is asked
# for
_ROWS = 60  # of the run that the judge is made ready with
_LONGEST = 600


def state_to_stop_on(name: str) -> StopOn:
    """Return the mildest state that is to end a training, by its name."""
    name = FORMER_STATES.get(name, name)
    if name in get_args(StopOn):
        return cast("StopOn", name)
    raise InvalidArgumentError(
        f"expected warning or failing for stop_on, got {str(name)[:40]!r}: use one of these"
    )


def change_in_words(judgement: Judgement, before: State | None, step: int) -> str:
    """Return a new state in one line: the fact, the cause and what to do."""
    was = f" (was {title_of(before)})" if before else ""
    parts = (judgement.headline, judgement.cause.words, judgement.do)
    return clean(
        f"{title_of(judgement.state)} at step {step}{was}: "
        f"{'; '.join(part.rstrip('.') for part in parts if part)}",
        longest=_LONGEST,
    )


class LiveJudgement:
    """When a run is judged, and what is said of it: a state once, until it changes."""

    def __init__(
        self,
        say: Say,
        *,
        every: int | None = None,
        stop_on: StopOn | None = None,
        webhook: str | None = None,
    ) -> None:
        self.on, self.every = every != 0, _EVERY if every is None else every
        self.stop_on, self.seconds = stop_on, 0.0
        self._spaced = every is None  # whether a look must be affordable
        self._state: State | None = None
        self._say, self._say_once = say, each_once(say)
        try:
            self._webhook = webhook_of(webhook, say)
        except InvalidArgumentError as error:
            if webhook is not None:
                raise
            say(f"{error}; no alerts will be sent")
            self._webhook = None

    def begin(self, *, last_step: int | None, here: bool) -> None:
        """Let the judge load what it needs before the training begins."""
        self.seconds = self._latest = 0.0  # what all looks took, and the latest
        self._state = None
        if self.on and here and (last_step is None or last_step >= self.every):
            began = time.perf_counter()
            self._judged(_played())
            self._say(
                "preparing the checks before the first step took "
                f"{time.perf_counter() - began:.1f} s"
            )
        if self.stop_on and not self.on:
            self._say(f"stop_on={self.stop_on!r} has no effect, because there are no checks")

    def due(self, step: int) -> bool:
        """Return whether there is a look after a step; alike on every process."""
        return self.on and step % self.every == 0

    def affordable(self, elapsed: float) -> bool:
        """Return whether a look as long as the latest stays within its share of the time."""
        return not self._spaced or self.seconds + self._latest <= _SHARE * elapsed

    def look(self, record: RunRecord, step: int) -> bool:
        """Judge the run, report a change of its state, and return whether training is to stop."""
        judgement = self._judged(record)
        if judgement is None:
            return False
        before, self._state = self._state, judgement.state
        if judgement.state is not before and (before or judgement.state is not State.OK):
            self._tell(judgement, change_in_words(judgement, before, step))
        return self.stop_on is not None and (
            judgement.alarm or judgement.state.value == self.stop_on
        )

    def took(self, seconds: float) -> None:
        """Count what a look cost."""
        self._latest = seconds
        self.seconds += seconds

    def _judged(self, record: RunRecord) -> Judgement | None:
        """Judge a run that goes on; a defect of the judge costs the judgement alone."""
        from groupwise.diagnostics.judge import judge

        try:
            return judge(record, ended=False)
        except Exception as error:  # noqa: BLE001 - training goes on
            self._say_once(
                f"the run could not be judged: {reason_of(error)[:300]}; training goes on"
            )
            return None

    def _tell(self, judgement: Judgement, sentence: str) -> None:
        """Say a change in the terminal and to the tracker in use."""
        self._say(sentence)
        for fault in tell(judgement, sentence):
            self._say_once(fault)
        if self._webhook:
            self._webhook.judged(judgement)


def _played() -> RunRecord:
    """Return a short run of no meaning, long enough that every check has something to compute."""
    step = range(1, _ROWS + 1)
    names = (
        "reward",
        "entropy",
        "kl",
        "grad_norm",
        "reward_std_within_group",
        "dead_group_share",
        "completions/mean_length",
    )
    columns = {
        name: [2 + math.sin(number * (place + 2)) for number in step]
        for place, name in enumerate(names)
    }
    rollouts = [
        {"step": number, "prompt_id": n // 4, "completion": str(n), "reward": float(n % 3)}
        for number in step
        for n in range(16)
    ]
    return RunRecord("", steps_table(list(step), columns), rollouts_table(rollouts))
