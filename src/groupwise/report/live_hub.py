"""What a live page shows of its runs, kept up to date: read what is new, say what changed, judge in the background.

Messages are numbered, so that a page that lost its connection is sent what it missed. It knows no sockets.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import secrets
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
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from groupwise.analysis.watched import Track, changes, judge, tracks_of, usual_pace
from groupwise.errors import GroupwiseError
from groupwise.plain import to_json
from groupwise.readers.follow import Follower
from groupwise.record.run import RunRecord
from groupwise.wording import clean

INTERVAL = 1.0  # seconds between two looks at a log
SHARE = 20  # a look, or a fit, is not repeated before this many times what it took: a twentieth of one processor at most
BEAT = 5.0
_TICK = 0.1
_NICE = 10
_POINTS, _FEWEST_POINTS = 600, 120
_FEWEST_SECONDS_BETWEEN_FITS = 5.0
_KEPT_MESSAGES = 1024
_LONGEST_SAMPLE = 1500
_MOST_FAILURES = 3


@dataclass(slots=True)
class LiveRun:
    """One run of the page."""

    follower: Follower  # of its log
    name: str  # as the page shows it
    tracks: list[Track] = field(default_factory=list)  # its lines as last sent
    verdict: dict[str, Any] | None = None  # what was last said of it, or None
    judged_rows: int = 0  # rows that the verdict saw
    # whether its lines changed since the verdict, as they do where the log was replaced by one of as many rows
    redrawn: bool = False
    next_look: float = 0.0  # when its log is looked at again, on the monotonic clock
    next_fit: float = 0.0  # when it may be judged again
    grown: deque[float] = field(default_factory=lambda: deque(maxlen=30))  # times at which the log changed
    snapshot: str = ""  # all of it as JSON, or "" where it has to be made
    samples: list[dict[str, Any]] = field(default_factory=list)  # completions of the newest step
    looked: bool = False  # whether the page knows what the last look at the log found
    fault: str = ""  # why the last look failed where no log is to blame, "" where it did not

    @property
    def unjudged(self) -> bool:
        """Whether it has rows that its verdict has not seen, or other ones."""
        return self.follower.record is not None and (self.redrawn or len(self.follower.record.steps) != self.judged_rows)


def new_pool() -> ProcessPoolExecutor:
    """Return a pool of one process that leaves Ctrl-C to its parent, the processor to the training, and ends with its parent."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_settle)


class Hub:
    """The runs of a live page and the messages about them."""

    def __init__(
        self,
        followers: Sequence[Follower],
        *,
        metric: str = "reward",
        level: float = 0.9,
        pool: Callable[[], Executor] | None = new_pool,
    ) -> None:
        """Look at nothing yet."""
        names = _names(followers)
        self.runs = [LiveRun(follower, name) for follower, name in zip(followers, names, strict=True)]
        self.metric, self.level = metric, level
        self.points = max(_FEWEST_POINTS, 2 * _POINTS // max(2, len(self.runs)))
        self.boot, self.version, self.stopping = secrets.token_hex(4), 0, False
        self._messages: deque[tuple[int, str]] = deque(maxlen=_KEPT_MESSAGES)
        self._new_pool, self._pool, self._failures = pool, None if pool is None else pool(), 0
        self._report_pool: Executor | None = None  # a report does not wait for a fit
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._judging = False

    def update(self, index: int) -> bool:
        """Look at one log and say what changed."""
        read = self._read(index)
        if read is not None:
            self._publish_read(index, *read)
        return read is not None

    def _read(self, index: int) -> tuple[list[Track], list[dict[str, Any]]] | None:
        """Look at a log; return its lines and completions where it changed."""
        run = self.runs[index]
        if not run.follower.poll() and run.looked:
            return None
        run.looked = True
        record = run.follower.record
        return (run.tracks if record is None else tracks_of(record, self.metric, points=self.points)), _samples(run.follower)

    def _publish_read(self, index: int, tracks: list[Track], samples: list[dict[str, Any]]) -> None:
        """Say what a look at a log changed."""
        run = self.runs[index]
        if run.follower.grew and (not run.grown or run.follower.grew > run.grown[-1]):
            run.grown.append(run.follower.grew)
        changed = changes(run.tracks, tracks)
        run.tracks, run.snapshot, run.fault = tracks, "", ""
        run.redrawn = run.redrawn or changed is None or bool(changed)
        if changed is None:
            run.samples = samples
            self._say("run", self.plain(index))
            return
        message: dict[str, Any] = {"id": index, "tracks": changed, "state": self.state(index)}
        if samples != run.samples:
            run.samples = message["samples"] = samples
        self._say("change", message)

    def state(self, index: int) -> dict[str, Any]:
        """Return what there is to say of a log besides its lines."""
        follower, run = self.runs[index].follower, self.runs[index]
        steps: Any = [] if follower.record is None else follower.record.steps["step"]
        return {
            "name": self._name(index),
            "problem": clean(follower.problem or run.fault, longest=600),
            "waiting": follower.waiting,
            "events": [{"at": event.at, "said": clean(event.said, longest=400)} for event in follower.events],
            "grew": follower.grew,
            "pace": round(usual_pace(run.grown), 1),
            "rows": len(steps),
            "step": int(steps[-1]) if len(steps) else None,
            "first": int(steps[0]) if len(steps) else None,
            "follows": follower.follows,
        }

    def _name(self, index: int) -> str:
        """Return what a run calls itself where no other does, else what its path says."""
        own = [None if run.follower.record is None else clean(run.follower.record.name) for run in self.runs]
        return own[index] if own[index] and own.count(own[index]) == 1 else self.runs[index].name  # type: ignore[return-value]

    def plain(self, index: int) -> dict[str, Any]:
        """Return all of a run as plain data."""
        run = self.runs[index]
        return {"id": index, "state": self.state(index), "tracks": run.tracks, "verdict": run.verdict, "samples": run.samples}

    def _say(self, event: str, message: dict[str, Any]) -> None:
        """Number a message, keep it, and wake those who listen."""
        data, number = to_json(message), self.version + 1
        self._messages.append((number, _event(event, data, f"{self.boot}-{number}")))
        self.version = number
        wake, self._wake = self._wake, asyncio.Event()
        wake.set()

    async def follow(self) -> None:
        """Look at the logs and judge the runs until `stop`; reading happens in a thread, so that the page is served meanwhile."""
        while not self.stopping:
            for index, run in enumerate(self.runs):
                if time.monotonic() >= run.next_look:
                    await self._look(index)
            self._judge_next()
            await asyncio.sleep(_TICK)

    async def _look(self, index: int) -> None:
        """Look at one log in a thread; what fails there is said of its run, and the others go on."""
        run, started = self.runs[index], time.perf_counter()
        try:
            read = await asyncio.to_thread(self._read, index)
            if read is not None:
                self._publish_read(index, *read)
        except Exception as error:  # noqa: BLE001 - one run must not stop the page of the others
            self._fail(index, error)
        run.next_look = time.monotonic() + max(INTERVAL, SHARE * (time.perf_counter() - started))

    def _fail(self, index: int, error: Exception) -> None:
        """Say that a run could not be looked at; the next look starts over."""
        run, what = self.runs[index], f"{type(error).__name__}: {clean(error, longest=200)}"
        fault = f"the last look failed ({what}), which is a defect of groupwise; the next look tries again"
        run.looked = False
        if fault != run.fault:
            run.fault, run.snapshot = fault, ""
            self._say("run", self.plain(index))

    def _judge_next(self) -> None:
        """Begin to judge the run that has waited longest, unless one is being judged."""
        if self._judging or self._pool is None or self._failures >= _MOST_FAILURES:
            return
        now = time.monotonic()
        due = [index for index, run in enumerate(self.runs) if run.unjudged and now >= run.next_fit]
        if due:
            self._judging = True
            task = asyncio.create_task(self._judge(min(due, key=lambda index: self.runs[index].next_fit)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _judge(self, index: int) -> None:
        """Judge a run and say the verdict."""
        run, started = self.runs[index], time.monotonic()
        record = run.follower.record
        assert record is not None
        rows, run.redrawn = len(record.steps), False
        try:
            found = await _ask(self._pool, judge, record, self.metric, self.points, self.level, run.follower.path)
        except BrokenProcessPool:
            self._failures += 1
            found = {"problem": "The process that fits the law died, perhaps for want of memory.", "step": None}
            self._pool = self._new_pool() if self._new_pool is not None else None
        except Exception as error:  # noqa: BLE001 - the page goes on without a verdict and says so
            found = {"problem": f"The law could not be fitted: {clean(error, longest=200)}. This is a defect of groupwise.", "step": None}
        finally:
            self._judging = False
        took = found.get("cost", time.monotonic() - started)
        run.judged_rows, run.next_fit = rows, time.monotonic() + max(_FEWEST_SECONDS_BETWEEN_FITS, SHARE * took)
        run.verdict, run.snapshot = found | {"at": time.time()}, ""
        self._say("verdict", {"id": index, "verdict": run.verdict})

    async def report(self, index: int) -> str | None:
        """Return the report of a run as it is now."""
        run = self.runs[index]
        if run.follower.record is None or self._new_pool is None or self.stopping:
            return None
        if self._report_pool is None:
            self._report_pool = self._new_pool()
        pool, typed = self._report_pool, ["report", run.follower.path.name]
        try:
            page: str = await _ask(pool, whole_page, run.follower.record, self.metric, self.level, run.follower.path, typed)
        except BrokenProcessPool:
            if self._report_pool is pool:
                self._report_pool = None
            raise GroupwiseError("expected a report, got none: the process that makes it died, perhaps for want of memory") from None
        return page

    async def messages(self, last: str = "") -> AsyncIterator[str]:
        """Yield the events of one page: what it missed, or everything, and then what changes."""
        yield f"retry: 1000\n{_event('hello', to_json({'runs': len(self.runs), 'metric': clean(self.metric), 'now': time.time()}))}"
        boot, _, number = last.rpartition("-")
        sent = int(number) if boot == self.boot and number.isdigit() else -1
        while not self.stopping:
            wake = self._wake
            sent, texts = self._unsent(sent)
            for text in texts:
                yield text
            if not texts:
                try:
                    await asyncio.wait_for(wake.wait(), BEAT)
                except TimeoutError:
                    yield _event("beat", to_json({"now": time.time()}))
        yield _event("bye", to_json({"now": time.time()}))

    def _unsent(self, sent: int) -> tuple[int, list[str]]:
        """Return what a page that has seen the messages up to a number lacks, everything where it lacks too much, and the new number."""
        missed = [entry for entry in self._messages if entry[0] > sent]
        if sent < 0 or sent > self.version or (missed and missed[0][0] > sent + 1):
            number = f"{self.boot}-{self.version}"  # on the last of them: a page that gets less begins again
            last = len(self.runs) - 1
            return self.version, [_event("run", self._snapshot(i), number if i == last else "") for i in range(last + 1)]
        return (missed[-1][0] if missed else sent), [text for _, text in missed]

    def _snapshot(self, index: int) -> str:
        """Return all of a run as JSON, made once a change."""
        run = self.runs[index]
        if not run.snapshot:
            run.snapshot = to_json(self.plain(index))
        return run.snapshot

    def stop(self) -> None:
        """End `follow` and `messages`."""
        self.stopping = True
        self._wake.set()

    def close(self) -> None:
        """Let go of the pools."""
        for pool in (self._pool, self._report_pool):
            if pool is not None:
                for process in list((getattr(pool, "_processes", None) or {}).values()):
                    process.terminate()
                pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._report_pool = None


async def _ask(pool: Executor | None, what: Callable[..., Any], *arguments: Any) -> Any:
    """Let a pool compute something."""
    assert pool is not None
    return await asyncio.get_running_loop().run_in_executor(pool, what, *arguments)


def _names(followers: Sequence[Follower]) -> list[str]:
    """Return what to call the runs: their own names, and as much of their paths as tells them apart."""
    parts = [(*follower.place.absolute().parts[:-1], follower.path.name) for follower in followers]
    depth = 1
    while depth < max(map(len, parts)) and len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    return [clean("/".join(part[-depth:])) or "run" for part in parts]


def _samples(follower: Follower) -> list[dict[str, Any]]:
    """Return completions of the newest step, cleaned and short."""
    found = []
    for row in follower.samples():
        shown: dict[str, Any] = {"step": int(row.get("step") or 0), "reward": _number(row.get("reward"))}
        for name in ("prompt", "completion"):
            text = str(row.get(name) or "")
            lines = [clean(line, longest=_LONGEST_SAMPLE) for line in text[:_LONGEST_SAMPLE].split("\n")]
            shown[name] = "\n".join(lines) + ("…" if len(text) > _LONGEST_SAMPLE else "")
        found.append(shown)
    return found


def _number(value: Any) -> float | None:
    """Return a finite number, or None."""
    with suppress(OverflowError):  # a whole number of hundreds of digits
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    return None


def _event(name: str, data: str, number: str = "") -> str:
    """Return one server-sent event."""
    return f"event: {name}\n" + (f"id: {number}\n" if number else "") + f"data: {data}\n\n"


def followers_of(paths: Sequence[Path], make: Callable[[Path], Follower]) -> list[Follower]:
    """Return a follower for each path after a first look."""
    followers = [make(path) for path in paths]
    for follower in followers:
        follower.start()
    return followers


def whole_page(record: RunRecord, metric: str, level: float, opened: Path | None, command: Sequence[str]) -> str:
    """Return the report of a run as `groupwise report` would write it."""
    from groupwise.analysis.summary import summarise  # by the process that draws, and not by the one that serves
    from groupwise.report.html import made_by, render

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summary = summarise(record, metric=metric, forecast_level=level, opened=opened)
        return render([summary], provenance=made_by(command))


def _settle() -> None:
    """Begin as a process that others come before."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(OSError, AttributeError):
        os.nice(_NICE)


def _end_with_parent() -> None:
    """Wait until the parent is gone, which a kill does not let it say, and end this process."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
