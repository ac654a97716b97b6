"""What a live page shows of its runs, kept up to date; judged in the background.

The newest of each part of a run is kept and numbered, so that a page that lost its connection is
sent what it has not. It knows no sockets.
"""

import asyncio
import multiprocessing
import os
import re
import secrets
import shlex
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from groupwise.analysis.charts import axes_of
from groupwise.analysis.rollouts import NO_COMPLETIONS, Rollouts
from groupwise.analysis.watched import judged_run, tracks_of, usual_pace
from groupwise.diagnostics.judgement import Learning, State
from groupwise.errors import GroupwiseError
from groupwise.parsing import JsonObject
from groupwise.plain import to_json
from groupwise.processes import end_with_parent
from groupwise.readers.follow import Follower
from groupwise.record.run import RunRecord, has_ended
from groupwise.wording import clean, shortest_paths, shown_argument

# hears of a run, its judgement as plain data with the cause in words, and its path
JudgementListener = Callable[[str, dict[str, Any], str], None]
INTERVAL = 1.0  # seconds between two looks at a log
# a look, or a judgement, is not repeated before this many times what it took: a twentieth of one
# processor at most
SHARE = 20
BEAT = 5.0
MOST_STREAMS = 256  # pages that are open at a time
_TICK = 0.1
_NICE = 10
_POINTS, _FEWEST_POINTS = 1000, 120
_FEWEST_SECONDS_BETWEEN_JUDGEMENTS = 2.0
_MOST_FAILURES = 3
_LEARNING = {  # where the word itself does not say it
    Learning.LEARNING: "rising",
    Learning.AT_TOP: "near its top",
    Learning.RECOVERED: "fell and recovered",
}
# Without a row for so long, and for so many times its usual pace, a run that nobody holds has
# ended.
_QUIET_SECONDS, _QUIET_PACES = 600.0, 10


@dataclass(slots=True)
class LiveRun:
    """One run of the page."""

    follower: Follower  # of its log
    name: str  # as its path says it
    judged: JsonObject | None = None  # what was last said of it, or None
    stale: bool = False  # whether the log changed since it was judged, or the run ended
    ended: bool = False  # whether nothing writes to it any more
    next_look: float = 0.0  # when its log is looked at again, on the monotonic clock
    next_judgement: float = 0.0  # when it may be judged again
    grown: deque[float] = field(
        default_factory=lambda: deque(maxlen=30)
    )  # times at which the log changed
    looked: bool = False  # whether the page knows what the last look at the log found
    fault: str = ""  # why the last look failed where no log is to blame, "" where it did not

    def has_ended(self) -> bool:
        """Return whether nobody writes to its log, and its last planned step or nothing came for
        long.
        """
        record, quiet = self.follower.record, time.time() - self.follower.grew
        if record is None or not has_ended(record):
            return False
        planned = record.config.value("planned_steps")
        return (planned is not None and int(record.steps["step"][-1]) >= planned) or (
            quiet > max(_QUIET_SECONDS, _QUIET_PACES * usual_pace(self.grown))
        )


def new_pool() -> ProcessPoolExecutor:
    """Return a pool of two processes, so that a report does not wait for a judgement.

    They leave the processor to the training.
    """
    return ProcessPoolExecutor(
        2, mp_context=multiprocessing.get_context("spawn"), initializer=_settle
    )


@dataclass(slots=True)
class Kept:
    """The completions of a run as they were when somebody last asked."""

    record: RunRecord | None = None  # that they are of
    version: int = 0
    rollouts: Rollouts | None = None
    due: float = 0.0  # when they may be read anew, on the monotonic clock
    lock: threading.Lock = field(default_factory=threading.Lock)


class Hub:
    """The runs of a live page and the messages about them."""

    streams = 0  # pages that are open
    _judging = False

    def __init__(
        self,
        followers: Sequence[Follower],
        *,
        metric: str = "reward",
        level: float = 0.9,
        pool: Callable[[], Executor] | None = new_pool,
        tell: JudgementListener | None = None,
    ) -> None:
        """Look at nothing yet."""
        names = _names(followers)
        self.runs = [
            LiveRun(follower, name) for follower, name in zip(followers, names, strict=True)
        ]
        self.metric, self.level, self._listener = metric, level, tell
        self.points = max(_FEWEST_POINTS, 2 * _POINTS // max(2, len(self.runs)))
        self.boot, self.version, self.stopping = secrets.token_hex(4), 0, False
        self._parts: dict[
            tuple[int, str], tuple[int, str]
        ] = {}  # the newest of each part of each run: its number and its JSON
        self._new_pool, self._pool, self._failures = pool, None if pool is None else pool(), 0
        self._kept = [Kept() for _ in self.runs]
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def update(self, index: int) -> bool:
        """Look at one log and say what changed."""
        parts = self._read(index)
        self._publish(index, parts)
        return parts is not None

    def _read(self, index: int) -> JsonObject | None:
        """Look at a log; return the parts that may have changed, or None where nothing did."""
        run = self.runs[index]
        if not run.follower.poll() and run.looked:
            return None
        run.looked = True
        record = run.follower.record
        rollouts = None if record is None else record.rollouts
        completions = {"count": 0 if rollouts is None else len(rollouts), "missing": NO_COMPLETIONS}
        return {"completions": completions} | (
            {} if record is None else {"tracks": tracks_of(record, self.metric, points=self.points)}
        )

    def _publish(self, index: int, parts: JsonObject | None) -> None:
        """Say what a look at a log found, and how the run stands, which time alone changes."""
        run = self.runs[index]
        follower = run.follower
        if follower.grew and (not run.grown or follower.grew > run.grown[-1]):
            run.grown.append(follower.grew)
        ended = run.has_ended()
        run.stale = run.stale or parts is not None or ended != run.ended
        run.ended = ended
        if parts:
            run.fault = ""
        self._say(index, "state", self.state(index))
        for part, value in (parts or {}).items():
            self._say(index, part, value)

    def state(self, index: int) -> JsonObject:
        """Return what there is to say of a log besides its lines."""
        follower, run = self.runs[index].follower, self.runs[index]
        steps: Any = [] if follower.record is None else follower.record.steps["step"]
        return {
            "name": self._name(index),
            "problem": clean(follower.problem or run.fault, longest=600),
            "waiting": follower.waiting,
            "events": [
                {"at": event.at, "said": clean(event.said, longest=400)}
                for event in follower.events
            ],
            "grew": follower.grew,
            "pace": round(usual_pace(run.grown), 1),
            "ended": run.ended,
            "rows": len(steps),
            "step": int(steps[-1]) if len(steps) else None,
            "axes": () if follower.record is None else axes_of(follower.record.steps),
        }

    def _name(self, index: int) -> str:
        """Return what a run calls itself; of several what their paths say."""
        run, record = self.runs[index], self.runs[index].follower.record
        return run.name if record is None or len(self.runs) > 1 else clean(record.name) or run.name

    def _say(self, index: int, part: str, value: Any) -> None:
        """Number a part of a run and wake those who listen, where it is not what it was."""
        data = to_json({"id": index, part: value})
        if self._parts.get((index, part), (0, ""))[1] != data:
            self.version += 1
            self._parts[index, part] = (self.version, data)
            wake, self._wake = self._wake, asyncio.Event()
            wake.set()

    async def follow(self) -> None:
        """Look at the logs and judge the runs until `stop`.

        Reading happens in a thread, so that the page is served meanwhile.
        """
        while not self.stopping:
            for index, run in enumerate(self.runs):
                if time.monotonic() >= run.next_look:
                    await self._look(index)
            self._judge_next()
            await asyncio.sleep(_TICK)

    async def _look(self, index: int) -> None:
        """Look at one log in a thread; what fails there is said of its run alone."""
        run, started = self.runs[index], time.perf_counter()
        try:
            self._publish(index, await asyncio.to_thread(self._read, index))
        except Exception as error:  # noqa: BLE001 - one run must not stop the page of the others
            what = f"{type(error).__name__}: {clean(error, longest=200)}"
            run.fault = (
                f"the last update of this page failed ({what}), a defect of groupwise; it is "
                "tried again"
            )
            run.looked = False
            self._say(index, "state", self.state(index))
        run.next_look = time.monotonic() + max(INTERVAL, SHARE * (time.perf_counter() - started))

    def _judge_next(self) -> None:
        """Begin to judge the run that has waited longest, unless one is being judged."""
        if self._judging or self._pool is None or self._failures >= _MOST_FAILURES:
            return
        now = time.monotonic()
        due = [
            index
            for index, run in enumerate(self.runs)
            if run.stale and run.follower.record and now >= run.next_judgement
        ]
        if due:
            self._judging = True
            task = asyncio.create_task(
                self._judge(min(due, key=lambda index: self.runs[index].next_judgement))
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _judge(self, index: int) -> None:
        """Judge a run and say the judgement."""
        run, started = self.runs[index], time.monotonic()
        record, run.stale = run.follower.record, False
        try:
            judgement = await self._ask(
                partial(live_view, ended=run.ended), record, self.metric, self.level
            )
        except BrokenProcessPool:
            self._failures += 1
            judgement = {
                "problem": "The process that judges the run died, perhaps because memory ran out."
            }
        except Exception as error:  # noqa: BLE001
            # the page goes on without a judgement and says so
            judgement = {
                "problem": (
                    f"The run could not be judged: {clean(error, longest=200)}. This is a defect "
                    "of groupwise."
                )
            }
        finally:
            self._judging = False
        took = judgement.pop("took", time.monotonic() - started)
        run.next_judgement = time.monotonic() + max(
            _FEWEST_SECONDS_BETWEEN_JUDGEMENTS, SHARE * took
        )
        run.judged = judgement | {"at": time.time()}
        self._say(index, "judged", run.judged)
        if self._listener and "judgement" in run.judged:
            judgement_words = run.judged["judgement"] | {"cause": run.judged["cause"]}
            self._listener(self._name(index), judgement_words, str(run.follower.path.resolve()))

    async def report(self, index: int) -> bytes | None:
        """Return the report of a run as it is now."""
        run = self.runs[index]
        if run.follower.record is None or self._pool is None or self.stopping:
            return None
        command = ["report", shlex.quote(shown_argument(str(run.follower.path)))]
        made = partial(whole_page, ended=run.ended, opened=run.follower.path, command=command)
        try:
            page: str = await self._ask(made, run.follower.record, self.metric, self.level)
        except BrokenProcessPool:
            raise GroupwiseError(
                "expected a report, got none: its process died, perhaps because memory ran out"
            ) from None
        return page.encode()

    async def _ask(self, what: Callable[..., Any], *arguments: Any) -> Any:
        """Let the pool compute something; a new pool stands in for one that died."""
        pool = self._pool
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, what, *arguments)
        except BrokenProcessPool:
            if self._pool is pool and self._new_pool:
                self._pool = self._new_pool()
            raise

    def rollouts(self, index: int, view: str, first: int, most: int, *, whole: bool) -> str:
        """Return completions of a run as JSON, with how many each view has.

        For a thread, since a run may have a million.
        """
        kept = self._kept_of(index)
        about = {"version": 0, "stale": True, "counts": {}, "range": (0, 1)}
        if (rollouts := kept.rollouts) is None:
            return to_json(about | {"groups": (), "rows": ()})
        about = {
            "version": kept.version,
            "stale": kept.record is not self.runs[index].follower.record,
            "counts": rollouts.counts,
            "range": rollouts.range,
        }
        return to_json(about | rollouts.part(view, first, most, whole=whole).as_dict())

    def _kept_of(self, index: int) -> Kept:
        """Return the completions of a run, read anew where the log changed a while ago."""
        kept, record = self._kept[index], self.runs[index].follower.record
        with kept.lock:
            if record and record is not kept.record and time.monotonic() >= kept.due:
                started = time.perf_counter()
                kept.rollouts, kept.record = Rollouts(record), record
                kept.rollouts.counts  # noqa: B018 - all views are put in order here, under the lock
                kept.version += 1
                kept.due = time.monotonic() + SHARE * (time.perf_counter() - started)
        return kept

    async def messages(self, last: str = "") -> AsyncIterator[str]:
        """Yield the events of one page: what it lacks, then what changes.

        Or that too many pages are open.
        """
        if self.streams >= MOST_STREAMS:
            yield f"retry: 5000\n{_event('full', to_json({'most': MOST_STREAMS}))}"
            return
        self.streams += 1
        try:
            about = {"runs": len(self.runs), "metric": clean(self.metric), "now": time.time()}
            yield f"retry: 1000\n{_event('hello', to_json(about))}"
            boot, _, seen = last.rpartition("-")
            sent = (
                int(seen)
                if boot == self.boot
                and re.fullmatch("[0-9]{1,15}", seen)
                and int(seen) <= self.version
                else 0
            )
            while not self.stopping:
                wake = self._wake
                for number, part, data in sorted(
                    (number, part, data) for (_, part), (number, data) in self._parts.items()
                ):
                    if number > sent:
                        sent = number
                        yield _event(part, data, f"{self.boot}-{number}")
                try:
                    await asyncio.wait_for(wake.wait(), BEAT)
                except TimeoutError:
                    yield _event("beat", to_json({"now": time.time()}))
            yield _event("bye", to_json({"now": time.time()}))
        finally:
            self.streams -= 1

    def stop(self) -> None:
        """End `follow` and `messages`."""
        self.stopping = True
        self._wake.set()

    def close(self) -> None:
        """Let go of the pool, with what it computes."""
        pool, self._pool = self._pool, None
        if pool:
            for process in list((getattr(pool, "_processes", None) or {}).values()):
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)


def _names(followers: Sequence[Follower]) -> list[str]:
    """Return what to call the runs: their names, and of their paths what tells them apart."""
    places = [follower.place.absolute().with_name(follower.path.name) for follower in followers]
    return [clean(name) or "run" for name in shortest_paths(places)]


def _event(name: str, data: str, number: str = "") -> str:
    """Return one server-sent event."""
    return f"event: {name}\n" + (f"id: {number}\n" if number else "") + f"data: {data}\n\n"


def followers_of(paths: Sequence[Path], make: Callable[[Path], Follower]) -> list[Follower]:
    """Return a follower for each path after a first look."""
    followers = [make(path) for path in paths]
    for follower in followers:
        follower.start()
    return followers


def live_view(record: RunRecord, metric: str, level: float, *, ended: bool) -> JsonObject:
    """Return what the page says of a run, and the processor seconds that it took."""
    from groupwise.pages.screen import beside_the_cause, head_of, said_of

    started = time.process_time()
    made = judged_run(record, metric, level, ended=ended)
    learning = made.judgement.learning
    # Of a run that can be judged the page has a list of what is not logged further down.
    open_ = made.judgement.state is State.CANNOT_TELL
    lines = [
        (label, words) for label, words in said_of(made.judgement) if open_ or label != "not logged"
    ]
    if learning is not Learning.UNKNOWN:
        lines.append(("reward", _LEARNING.get(learning, learning.value)))
    page: JsonObject = _cleaned(
        made.as_dict()
        | {
            "head": head_of(made.judgement.state),
            "headline": "; ".join(beside_the_cause(made.judgement)),
            "lines": lines,
            "cause": made.judgement.cause.words,
        }
    )
    return page | {"took": time.process_time() - started}


def _cleaned(value: Any) -> Any:
    """Return plain data with every text cleaned: a check may name a key of the log."""
    if isinstance(value, str):
        return clean(value, longest=600)
    if isinstance(value, dict):
        return {key: _cleaned(entry) for key, entry in value.items()}
    return [_cleaned(entry) for entry in value] if isinstance(value, list | tuple) else value


def whole_page(
    record: RunRecord,
    metric: str,
    level: float,
    *,
    ended: bool,
    opened: Path | None,
    command: Sequence[str],
) -> str:
    """Return the report of a run as `groupwise report` would write it."""
    from groupwise.analysis.summary import (
        summarise,  # by the process that draws, and not by the one that serves
    )
    from groupwise.pages.html import made_by, render

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summary = summarise(record, metric=metric, forecast_level=level, opened=opened, ended=ended)
        return render([summary], provenance=made_by(command))


def _settle() -> None:
    """Begin as a process that others come before.

    It leaves Ctrl-C to its parent and ends with it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    with suppress(OSError, AttributeError):
        os.nice(_NICE)
