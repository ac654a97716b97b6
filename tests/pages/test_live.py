"""The live page's server: who may ask, what is sent, what a page that lost its connection gets,
and how it ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case
from tests.golden.sentences import says
from tests.processes import PROGRAM, Forked

from groupwise.analysis.watched import Judged
from groupwise.cli.app import main
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Cause, Certainty, Judgement, State
from groupwise.errors import GroupwiseError
from groupwise.readers import run_record
from groupwise.readers.follow import Follower
from groupwise.record.run import Meaning, RecordWriter, RunRecord
from groupwise.record.table import steps_table

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from groupwise.pages import live, live_hub
from groupwise.pages.live import HOST, allowed_host, application, bound_socket, new_token
from groupwise.pages.live_hub import Hub, followers_of, live_view, whole_page
from groupwise.pages.screen import said_of

TOKEN = "x" * 31 + "_"
ADDRESS = f"http://127.0.0.1:8750/{TOKEN}/"
PRINTED = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]{32}/")
HOSTILE = '<img src=x onerror="alert(1)">\u202e</script>\x1b[31m'


class Inline(Executor):
    """Computes at once, in this thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as executors do
            future.set_exception(error)
        return future


def write_log(path: Path, rows: int, start: int = 1) -> Path:
    with path.open("a") as file:
        for step in range(start, start + rows):
            file.write(
                json.dumps({"step": step, "reward": 0.5 + (step * 7 % 11) / 100, "entropy": 1.0})
                + "\n"
            )
    return path


def hub_of(*paths: Path, pool: Callable[[], Executor] | None = None) -> Hub:
    return Hub(followers_of(paths, Follower), pool=pool)


def parsed(text: str) -> tuple[str, str, Any]:
    """Event, number and data of one server-sent event."""
    lines = dict(line.split(": ", 1) for line in text.strip().split("\n"))
    return lines["event"], lines.get("id", ""), json.loads(lines["data"])


async def heard(hub: Hub, count: int, last: str = "") -> list[tuple[str, str, Any]]:
    calls: list[tuple[str, str, Any]] = []
    async for text in hub.messages(last):
        calls.append(parsed(text))
        if len(calls) == count:
            break
    return calls


def newest(hub: Hub, part: str, index: int = 0) -> Any:
    """What a new page gets of a part of a run."""
    return json.loads(hub._parts[index, part][1])[part]


def test_a_new_page_gets_everything_and_then_what_changes(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.jsonl", 100)
    hub = hub_of(path)
    assert hub.update(0)

    async def talk() -> list[tuple[str, str, Any]]:
        listening = asyncio.create_task(heard(hub, 6))
        await asyncio.sleep(0.05)
        write_log(path, 1, 101)
        hub.update(0)
        return await listening

    hello, *parts = asyncio.run(talk())
    assert (hello[0], hello[2]["runs"]) == ("hello", 1)
    assert [event for event, _, _ in parts] == ["state", "completions", "tracks", "state", "tracks"]
    assert parts[0][2]["state"]["rows"] == 100
    assert [track["key"] for track in parts[2][2]["tracks"]] == ["metric", "entropy"]
    assert parts[3][2]["state"]["step"] == parts[4][2]["tracks"][0]["x"][-1] == 101


def test_a_look_that_found_nothing_new_says_nothing(tmp_path: Path) -> None:
    hub = hub_of(write_log(tmp_path / "run.jsonl", 10))
    hub.update(0)
    version = hub.version
    assert not hub.update(0)
    assert hub.version == version


def test_a_page_that_comes_back_gets_what_it_has_not_and_no_more(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.jsonl", 10)
    hub = hub_of(path)
    hub.update(0)
    last = asyncio.run(heard(hub, 4))[-1][1]
    for step in (11, 12):
        write_log(path, 1, step)
        hub.update(0)
    events = asyncio.run(heard(hub, 3, last))
    assert [event for event, _, _ in events] == ["hello", "state", "tracks"]
    assert events[1][2]["state"]["step"] == 12


@each_case(
    "last",
    ["", "other-1", "nonsense", "BOOT-99999", "BOOT-²", "BOOT-٣", "BOOT--1", "BOOT-" + "9" * 5000],
)
def test_a_page_of_another_watcher_or_with_a_number_that_is_none_gets_everything(
    last: str, tmp_path: Path
) -> None:
    hub = hub_of(write_log(tmp_path / "run.jsonl", 10))
    hub.update(0)
    number = last.replace("BOOT", hub.boot)
    assert [event for event, _, _ in asyncio.run(heard(hub, 4, number))] == [
        "hello",
        "state",
        "completions",
        "tracks",
    ]


def test_a_page_too_many_is_told_so_and_one_that_was_closed_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_hub, "MOST_STREAMS", 2)
    hub = hub_of(write_log(tmp_path / "run.jsonl", 10))

    async def talk() -> None:
        pages = [hub.messages() for _ in range(3)]
        first = [(await anext(page)).split("event: ")[1] for page in pages]
        assert [text.split("\n")[0] for text in first] == ["hello", "hello", "full"]
        assert json.loads(first[2].split("data: ")[1]) == {"most": 2}
        assert [text async for text in pages[2]] == []
        await pages[0].aclose()  # type: ignore[attr-defined]
        assert "event: hello" in await anext(hub.messages())

    asyncio.run(talk())


def test_what_happened_to_the_file_and_how_old_it_is_are_said(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.jsonl", 10)
    hub = hub_of(path, tmp_path / "later.csv")
    hub.update(0)
    path.write_text("")
    write_log(path, 5)
    hub.update(0)
    state = hub.state(0)
    assert "cut short" in state["events"][0]["said"]
    assert abs(state["grew"] - path.stat().st_mtime) < 1e-3
    assert (state["rows"], state["step"]) == (5, 5)
    hub.update(1)
    assert hub.state(1)["waiting"]
    assert "does not exist" in hub.state(1)["problem"]
    assert hub.state(1)["step"] is None


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "log.csv", tmp_path / "b" / "log.csv"]
    for path in paths:
        path.parent.mkdir()
        path.write_text("step,reward\n1,0.5\n")
    hub = hub_of(*paths)
    assert [hub.state(0)["name"], hub.state(1)["name"]] == ["a", "b"]


def asked(
    hub: Hub, view: str = "newest", first: int = 0, most: int = 100, *, whole: bool = False
) -> Any:
    """What a page gets of the completions of the first run."""
    return json.loads(hub.rollouts(0, view, first, most, whole=whole))


def write_rollouts(home: Path, steps: Sequence[int], text: str = "") -> Path:
    with RecordWriter(home, name="made") as writer:
        for step in steps:
            said = [
                {
                    "prompt_id": 0,
                    "prompt": "p",
                    "completion": f"{text}{step}/{k}",
                    "reward": 0.25 * k,
                }
                for k in range(4)
            ]
            writer.append({"step": step, "reward": 0.5}, said)
    return home


def test_hostile_texts_are_cleaned_and_stay_data(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "record", name=HOSTILE) as writer:
        writer.append(
            {"step": 1, "reward": 0.5},
            [
                {
                    "prompt_id": 0,
                    "prompt": HOSTILE,
                    "completion": f"a\n{HOSTILE * 200}",
                    "reward": 0.5,
                }
            ],
        )
    hub = hub_of(tmp_path / "record")
    hub.update(0)
    reply = asked(hub)
    name, (row,), (group,) = newest(hub, "state")["name"], reply["rows"], reply["groups"]
    assert name.startswith("<img src=x")  # shown as text, so it is kept
    for text in (group["prompt"], row["text"], row["end"], name):
        assert not set(text) & {"\u202e", "\x1b"}
    assert row["text"].startswith("a\n")
    assert len(row["text"]) + len(row["end"]) == 2000


def test_completions_are_given_out_in_parts_by_view_else_what_to_log_is_said(
    tmp_path: Path,
) -> None:
    hub = hub_of(write_rollouts(tmp_path / "record", (1, 2)), write_log(tmp_path / "run.jsonl", 10))
    for index in range(2):
        hub.update(index)
    assert newest(hub, "completions") == {
        "count": 8,
        "missing": newest(hub, "completions", 1)["missing"],
    }
    assert (
        newest(hub, "completions", 1)["count"],
        "log_completions=True" in newest(hub, "completions", 1)["missing"],
    ) == (0, True)
    reply = asked(hub, "highest", 1, 2)
    assert [row["text"] for row in reply["rows"]] == ["1/3", "2/2"]
    assert reply["counts"] == {"newest": 8, "zero_variance": 0, "highest": 8, "lowest": 8}
    assert (reply["range"], reply["stale"]) == ([0.0, 0.75], False)
    assert len(asked(hub, most=10**9)["rows"]) == 8
    assert asked(hub, "truncated")["rows"] == []


def test_completions_of_a_log_that_grew_have_another_version_and_are_not_read_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = hub_of(write_rollouts(tmp_path / "record", (1, 2)))
    hub.update(0)
    assert asked(hub, most=0)["version"] == 1
    monkeypatch.setattr(live_hub, "SHARE", 0)
    write_rollouts(tmp_path / "record", (3,))
    hub.update(0)
    hub._kept[0].due = time.monotonic() + 3600
    assert {key: asked(hub, most=0)[key] for key in ("version", "stale")} == {
        "version": 1,
        "stale": True,
    }
    hub._kept[0].due = 0.0
    reply = asked(hub, most=1)
    assert (reply["version"], reply["stale"], reply["rows"][0]["text"]) == (2, False, "3/3")


def write_collapse(path: Path, rows: int = 60, at: int = 40) -> Path:
    """A run whose reward is lost at a step."""
    with path.open("w") as file:
        for step in range(1, rows + 1):
            file.write(
                json.dumps(
                    {
                        "step": step,
                        "reward": 0.8 + 0.01 * (-1) ** step if step < at else 0.0,
                        "entropy": 1.0,
                    }
                )
                + "\n"
            )
    return path


async def judged_by(hub: Hub) -> None:
    """Look at every log once and judge what is due."""
    for index in range(len(hub.runs)):
        hub.update(index)
    hub._judge_next()
    await asyncio.gather(*hub._tasks)


def test_a_failing_run_is_judged_as_the_judgement_says_and_has_failed_once_nothing_comes(
    tmp_path: Path,
) -> None:
    path = write_collapse(tmp_path / "run.jsonl")
    hub = hub_of(path, pool=Inline)
    asyncio.run(judged_by(hub))
    said = newest(hub, "judged")
    expected = judge(run_record(path), ended=False)
    assert said["judgement"] == expected.as_dict()
    assert (said["judgement"]["state"], said["judgement"]["since_step"]) == ("failing", 40)
    assert (said["last_step"], said["rows"], said["forecast"]) == (60, 60, "")
    assert said["head"] == "✗ FAILING"
    assert said["lines"] == [
        [label, words]
        for label, words in (*said_of(expected), ("reward", "falling"))
        if label != "not logged"
    ]
    assert said["lines"][0] == ["first sign", "step 40"]

    an_hour_ago = time.time() - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))
    hub = hub_of(path, pool=Inline)
    asyncio.run(judged_by(hub))
    assert newest(hub, "state")["ended"] is True
    assert newest(hub, "judged")["judgement"] == judge(run_record(path), ended=True).as_dict()
    assert newest(hub, "judged")["judgement"]["state"] == "failed"


def test_a_run_that_ends_while_it_is_watched_is_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_hub, "_FEWEST_SECONDS_BETWEEN_JUDGEMENTS", 0.0)
    hub = hub_of(write_collapse(tmp_path / "run.jsonl"), pool=Inline)
    asyncio.run(judged_by(hub))
    assert newest(hub, "judged")["judgement"]["state"] == "failing"
    monkeypatch.setattr(live_hub, "_QUIET_SECONDS", 0.0)
    hub.runs[0].next_judgement = 0.0
    asyncio.run(judged_by(hub))
    assert newest(hub, "judged")["judgement"]["state"] == "failed"


@pytest.mark.parametrize(("planned", "ended"), [(60, True), (61, False)])
def test_a_run_that_reached_its_last_planned_step_has_ended(
    *, planned: int, ended: bool, tmp_path: Path
) -> None:
    """However new its file is: one that was copied a moment ago as well."""
    path = write_collapse(tmp_path / "run.jsonl")
    follower = partial(Follower, settings={"planned_steps": str(planned)})
    hub = Hub(followers_of([path], follower), pool=Inline)
    asyncio.run(judged_by(hub))
    assert newest(hub, "state")["ended"] is ended
    assert newest(hub, "judged")["judgement"]["state"] == ("failed" if ended else "failing")


def test_whoever_sends_alerts_hears_of_each_judgement(tmp_path: Path) -> None:
    heard: list[Any] = []
    path = write_collapse(tmp_path / "run.jsonl")
    hub = Hub(
        followers_of([path], Follower), pool=Inline, tell=lambda *judged: heard.append(judged)
    )
    asyncio.run(judged_by(hub))
    run, judged, place = heard[0]
    assert (run, place) == ("run.jsonl", str(path.resolve()))
    assert judged["state"] == "failing"
    assert judged["cause"] == newest(hub, "judged")["cause"]


def test_a_run_whose_writer_lives_goes_on_however_long_nothing_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_hub, "_QUIET_SECONDS", 0.0)
    with RecordWriter(tmp_path / "record", name="made") as writer:
        writer.append({"step": 1, "reward": 0.5})
        hub = hub_of(tmp_path / "record")
        hub.update(0)
        assert hub.state(0)["ended"] is False
    hub.update(0)
    assert hub.state(0)["ended"] is True


@pytest.mark.parametrize(("ended", "word"), [(True, "✗ FAILED"), (False, "✗ FAILING")])
def test_the_report_of_a_run_says_what_the_page_says(
    *, ended: bool, word: str, tmp_path: Path
) -> None:
    record = run_record(write_collapse(tmp_path / "run.jsonl"))
    page = whole_page(record, "reward", 0.9, ended=ended, opened=None, command=["report", "made"])
    assert f"<b>{word}</b> · {judge(record).headline}" in page
    assert live_view(record, "reward", 0.9, ended=ended)["head"] == word


def test_keys_that_a_judgement_names_are_cleaned() -> None:
    reward = [0.8 + 0.01 * (-1) ** step for step in range(40)] + [0.0] * 40
    functions = {
        f"rewards/a{HOSTILE}": reward,
        f"rewards/b{HOSTILE}": [0.1 + 0.01 * (-1) ** step for step in range(40)] + [0.9] * 40,
    }
    meanings = [
        Meaning(key, key.replace("rewards", "reward"), "a reward function") for key in functions
    ]
    steps = steps_table(range(80), {"reward": reward, **functions})
    record = RunRecord("made", steps, meanings=(Meaning("reward", "reward", "the sum"), *meanings))
    said = json.dumps(live_view(record, "reward", 0.9, ended=True), ensure_ascii=False)
    assert "onerror" in said  # a name is in it
    assert "\u202e" not in said
    assert "\\u001b" not in said


def test_a_judgement_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no")

    monkeypatch.setattr(live_hub, "live_view", broken)
    hub = hub_of(write_log(tmp_path / "run.jsonl", 30), pool=Inline)
    asyncio.run(judged_by(hub))
    says("pages/live/1", newest(hub, "judged")["problem"])


def test_the_hub_follows_and_judges_until_it_is_stopped(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.jsonl", 30)
    hub = hub_of(path, pool=Inline)

    async def until(ready: Callable[[], bool]) -> None:
        for _ in range(1200):
            if ready():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(hub.state(0), hub.runs[0].judged)

    async def talk() -> None:
        following = asyncio.create_task(hub.follow())
        await until(lambda: (hub.runs[0].judged or {}).get("rows") == 30)
        write_log(path, 5, 31)
        await until(lambda: (hub.runs[0].judged or {}).get("rows") == 35)
        hub.stop()
        await following

    asyncio.run(talk())
    assert (newest(hub, "judged")["rows"], newest(hub, "state")["rows"]) == (35, 35)
    assert hub.stopping


def test_a_log_that_was_replaced_by_one_of_as_many_rows_is_judged_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def view_of(record: RunRecord, *_: Any, **__: Any) -> Any:
        seen.append(float(record.steps["reward"].mean()))  # type: ignore[arg-type]
        return {"took": 0.0}

    monkeypatch.setattr(live_hub, "live_view", view_of)
    monkeypatch.setattr(live_hub, "_FEWEST_SECONDS_BETWEEN_JUDGEMENTS", 0.0)
    path = write_log(tmp_path / "run.jsonl", 30)
    hub = hub_of(path, pool=Inline)

    async def looks(count: int) -> None:
        for _ in range(count):
            await judged_by(hub)

    asyncio.run(looks(3))
    assert len(seen) == 1  # nothing new, nothing judged
    other = tmp_path / "other.jsonl"
    other.write_text(
        "".join(
            json.dumps({"step": step, "reward": 0.1, "entropy": 1.0}) + "\n"
            for step in range(1, 31)
        )
    )
    other.replace(path)
    asyncio.run(looks(3))
    assert seen[1:] == [pytest.approx(0.1)]
    assert "was replaced by another file" in hub.state(0)["events"][-1]["said"]


def test_a_log_that_is_gone_and_back_is_said_to_be_back(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.jsonl", 10)
    hub = hub_of(path)
    hub.update(0)
    path.unlink()
    hub.update(0)
    assert "is gone" in hub.state(0)["events"][-1]["said"]
    write_log(path, 12)
    hub.update(0)
    assert [event["said"].rpartition("run.jsonl")[2] for event in hub.state(0)["events"]] == [
        " is gone. Its rows stay here until it is back.",
        " is back, and was read again from its start.",
    ]
    assert (hub.state(0)["problem"], hub.state(0)["rows"]) == ("", 12)


def test_a_run_too_short_to_judge_says_so(tmp_path: Path) -> None:
    view = live_view(run_record(write_log(tmp_path / "run.jsonl", 2)), "reward", 0.9, ended=False)
    assert view["judgement"]["state"] == "cannot_tell"
    assert view["judgement"]["headline"]
    assert view["lines"][-1][0] == "not logged"
    assert view["forecast"] == ""


@each_case(("state", "words"), [(State.OK, "it learns"), (State.WARNING, "it learns; overfitting")])
def test_the_page_names_the_cause_of_a_healthy_run_in_its_line_alone(
    state: State, words: str
) -> None:
    parts, cause = ("it learns", "overfitting"), Cause(Certainty.POSSIBLE, ("overfitting",))
    judged = Judgement("made", state, "; ".join(parts), parts=parts, cause=cause)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_hub, "judged_run", lambda *_, **__: Judged(judged, (), 1, 2, ""))
        view = live_view(RunRecord("made", steps_table([1], {})), "reward", 0.9, ended=True)
    assert view["headline"] == words
    assert ("possible", "overfitting") in [*map(tuple, view["lines"])]


# What one run may not do to the others


@each_case(
    "reward",
    [float("inf"), float("-inf"), float("nan"), 10**400],
)
def test_a_reward_that_is_no_finite_number_reaches_the_page_as_none(
    reward: float, tmp_path: Path
) -> None:
    with RecordWriter(tmp_path / "record", name="made") as writer:
        writer.append(
            {"step": 1, "reward": 0.5},
            [{"prompt_id": 0, "prompt": "p", "completion": "c", "reward": reward}],
        )
    hub = hub_of(tmp_path / "record")
    hub.update(0)
    assert asked(hub)["rows"][0]["reward"] is None
    assert asked(hub)["range"] == [0, 1]
    assert newest(hub, "state")["rows"] == 1


def test_numbers_that_json_has_not_become_null(tmp_path: Path) -> None:
    hub = hub_of(write_log(tmp_path / "run.jsonl", 10))
    hub._say(
        0,
        "judged",
        {"facts": [float("inf")], "lines": ({"y": (1.0, float("nan"))},), "at": -float("inf")},
    )
    assert newest(hub, "judged") == {"facts": [None], "lines": [{"y": [1.0, None]}], "at": None}


def test_a_listener_that_lacks_a_message_waits_and_does_not_spin(tmp_path: Path) -> None:
    hub = hub_of(write_log(tmp_path / "run.jsonl", 10))
    hub.update(0)

    async def listen() -> None:
        listening = asyncio.create_task(heard(hub, 9))
        await asyncio.sleep(0.05)
        hub.version += 1  # as if one were lost
        wake, hub._wake = hub._wake, asyncio.Event()
        wake.set()
        await asyncio.sleep(0.05)
        listening.cancel()

    listener = threading.Thread(target=lambda: asyncio.run(listen()), daemon=True)
    listener.start()
    listener.join(60)
    assert not listener.is_alive()


def test_a_run_that_fails_says_so_and_the_others_go_on(tmp_path: Path) -> None:
    class Broken(Follower):
        breaks = True

        def poll(self, *, most: int | None = None) -> bool:
            if self.breaks:
                raise ZeroDivisionError("no such luck")
            return super().poll(most=most)

    first = Broken(write_log(tmp_path / "a.jsonl", 10))
    hub = Hub([first, Follower(write_log(tmp_path / "b.jsonl", 10))], pool=None)

    async def until(ready: Callable[[], bool]) -> None:
        for _ in range(3000):
            if ready():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(hub.state(0), hub.state(1))

    async def talk() -> None:
        following = asyncio.create_task(hub.follow())
        await until(
            lambda: hub.state(1)["rows"] == 10 and "no such luck" in hub.state(0)["problem"]
        )
        assert "defect of groupwise" in newest(hub, "state")["problem"]
        write_log(tmp_path / "b.jsonl", 1, 11)
        await until(lambda: hub.state(1)["rows"] == 11)
        first.breaks = False
        await until(lambda: not hub.state(0)["problem"] and hub.state(0)["rows"] == 10)
        hub.stop()
        await following

    asyncio.run(talk())


def test_the_pool_is_let_go_whatever_ended_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from starlette.testclient import TestClient

    hub = hub_of(write_log(tmp_path / "run.jsonl", 10), pool=Inline)

    async def broken() -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(hub, "follow", broken)
    with (
        pytest.raises(RuntimeError, match="broken"),
        TestClient(application(hub, TOKEN), base_url=ADDRESS),
    ):
        pass
    assert hub._pool is None


def test_a_report_does_not_wait_for_a_judgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Busy(Inline):
        """Never done with a judgement."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            return (
                Future()
                if getattr(fn, "func", None) is live_view
                else super().submit(fn, *args, **kwargs)
            )

    hub = hub_of(write_log(tmp_path / "run.jsonl", 30), pool=Busy)

    async def talk() -> bytes | None:
        following = asyncio.create_task(hub.follow())
        for _ in range(6000):
            if hub._judging:
                break
            await asyncio.sleep(0.01)
        assert hub._judging
        page = await asyncio.wait_for(hub.report(0), 30)
        hub.stop()
        await following
        return page

    page = asyncio.run(talk())
    assert page is not None
    assert b"<!doctype html>" in page
    hub.close()


def test_a_report_is_of_the_run_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        live_hub, "whole_page", lambda record, *_, **__: f"{len(record.steps)} rows"
    )
    path = write_log(tmp_path / "run.jsonl", 30)
    hub = hub_of(path, pool=Inline)
    hub.update(0)
    assert asyncio.run(hub.report(0)) == b"30 rows"
    write_log(path, 1, 31)
    hub.update(0)
    assert asyncio.run(hub.report(0)) == b"31 rows"


def test_a_report_whose_process_died_is_a_sentence_and_the_next_one_is_made(tmp_path: Path) -> None:
    class Dying(Inline):
        deaths = 1

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            if Dying.deaths:
                Dying.deaths -= 1
                raise BrokenProcessPool
            return super().submit(fn, *args, **kwargs)

    hub = hub_of(write_log(tmp_path / "run.jsonl", 30), pool=Dying)
    hub.update(0)
    with pytest.raises(GroupwiseError, match="died"):
        asyncio.run(hub.report(0))
    assert asyncio.run(hub.report(0))


# Who may ask


@each_case(
    ("host", "allowed"),
    [
        ("127.0.0.1:8750", True),
        ("localhost:9", True),
        ("LOCALHOST", True),
        ("[::1]:8750", True),
        ("[::1]", True),
        ("evil.example", False),
        ("evil.example:8750", False),
        ("127.0.0.1.evil.example:8750", False),
        ("localhost.evil.example", False),
        ("127.0.0.1@evil.example", False),
        ("127.0.0.1:evil", False),
        ("0.0.0.0:8750", False),
        ("", False),
    ],
)
def test_only_the_names_of_this_machine_are_answered(host: str, allowed: bool) -> None:
    assert allowed_host(host) is allowed


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from starlette.testclient import TestClient

    hub = hub_of(
        write_log(
            tmp_path_factory.mktemp("served") / f"{'<b>' if os.name != 'nt' else 'b'}run.jsonl", 30
        ),
        pool=Inline,
    )
    with TestClient(application(hub, TOKEN), base_url=ADDRESS) as made:
        yield made


def test_another_host_and_another_site_are_refused(client: Any) -> None:
    """A name that somebody made to point here (DNS rebinding), and a page of another site that
    asks on its own.
    """
    assert client.get("/").status_code == 200
    for path in ("/", "/events", "/live.js", "/report/1", "/rollouts/1"):
        refused = client.get(path, headers={"host": "evil.example:8750"})
        assert refused.status_code == 421
        assert "groupwise" not in refused.text
    assert (
        client.get(
            "/events", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
        ).status_code
        == 403
    )
    assert (
        client.get(
            "/live.js", headers={"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}
        ).status_code
        == 403
    )
    frame = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "iframe",
    }
    assert client.get("/", headers=frame).status_code == 403
    link = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    assert client.get("/", headers=link).status_code == 200


def test_what_every_browser_asks_for_is_no_error(client: Any) -> None:
    answer = client.get("http://127.0.0.1/favicon.ico")
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("token", ["", TOKEN[:-1], f"{TOKEN}_", TOKEN.upper(), f"é{TOKEN}", "."])
def test_without_the_token_every_path_is_refused_in_one_line(token: str, client: Any) -> None:
    words = "This page opens only with the whole address that groupwise watch printed.\n"
    for path in (
        "",
        "live.js",
        "live.css",
        "events",
        "report/1",
        "rollouts/1",
        "nothing",
        "%ff",
        "é",
        "//",
    ):
        for method, said in (("GET", words), ("HEAD", ""), ("POST", words), ("OPTIONS", words)):
            address, cookie = (
                f"http://127.0.0.1:8750/{token}/{path}?token={TOKEN}",
                {"cookie": f"token={TOKEN}"},
            )
            refused = client.request(method, address, headers=cookie, follow_redirects=False)
            assert (refused.status_code, refused.text) == (403, said)
            assert refused.headers["referrer-policy"] == "no-referrer"
            assert refused.headers["connection"] == "close"


def test_numbers_and_heads_beyond_all_measure_are_refused(client: Any) -> None:
    assert client.get("report/" + "1" * 5000).status_code == 404
    assert client.get("", headers={"x": "1" * 100_000}).status_code == 431


def test_the_address_without_its_last_slash_leads_to_the_page_and_no_cookie_is_set(
    client: Any,
) -> None:
    answer = client.get(ADDRESS.rstrip("/"), follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, ADDRESS)
    page = client.get("")
    assert page.status_code == 200
    assert page.headers["referrer-policy"] == "no-referrer"
    assert "set-cookie" not in page.headers
    assert TOKEN not in page.text  # what somebody saves or sends on opens nothing
    assert not re.findall(r'(?:href|src)="/', page.text)


def test_tokens_are_compared_in_constant_time_and_each_is_new(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert new_token() != new_token()
    assert len(new_token()) == 32  # 24 random bytes
    compared: list[tuple[bytes, bytes]] = []

    def differ(given: bytes, token: bytes) -> bool:
        compared.append((given, token))
        return False

    monkeypatch.setattr(secrets, "compare_digest", differ)
    assert client.get("").status_code == 403
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


@pytest.mark.parametrize(
    "path", ["/", "/live.js", "/live.css", "/nothing", "/report/9", "/rollouts/1"]
)
def test_every_answer_says_what_a_page_may_do(path: str, client: Any) -> None:
    answer = client.get(path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in answer.headers
    assert client.post(path).status_code in (404, 405)


def test_the_page_holds_no_markup_of_a_log_and_asks_only_this_server(client: Any) -> None:
    page = client.get("/").text
    assert "&lt;b&gt;run.jsonl" in page
    assert "<b>run" not in page
    script = client.get("/live.js").text
    said = page + script.replace("http://www.w3.org/2000/svg", "").replace(
        "https://github.com/leeoniya/uPlot", ""
    )
    assert not re.findall(r"https?://", said)
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)
    assert "globalThis.groupwise" in script  # the chart that a report has too


def test_the_report_of_a_run_is_served_with_its_own_policy(client: Any) -> None:
    for _ in range(1200):
        answer = client.get("/report/1")
        if answer.status_code == 200:
            break
        time.sleep(0.05)
    assert "<!doctype html>" in answer.text
    policy = answer.headers["content-security-policy"]
    assert "sha256-" in policy
    assert policy.startswith("default-src 'none'")
    assert client.get("/report/9").status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        "view=nonsense",
        "from=-1",
        "most=1e9",
        "from=",
        "most=%D9%A3",
        "from=9999999999",
        "view=%3Cscript%3E",
    ],
)
def test_a_part_of_the_completions_that_cannot_be_is_refused(query: str, client: Any) -> None:
    answer = client.get(f"/rollouts/1?{query}")
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.startswith("The request needs a view (newest, ")
    assert "<" not in answer.text


def test_completions_are_json_of_a_run_that_is_there(client: Any) -> None:
    answer = client.get("/rollouts/1?view=highest&from=0&most=5")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["rows"] == []
    assert [client.get(path).status_code for path in ("/rollouts/2", "/rollouts/0")] == [404, 404]


# The command


def test_a_port_that_is_taken_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_log(tmp_path / "run.jsonl", 5)
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["watch", str(path), "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"got {port}" in said
    assert said.count("\n") == 1


def test_the_usual_port_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PORTS", 10)
    first = bound_socket(None)
    second = bound_socket(None)
    assert first.getsockname()[0] == second.getsockname()[0] == "127.0.0.1"
    assert first.getsockname()[1] != second.getsockname()[1]
    monkeypatch.setattr(live, "PORT", first.getsockname()[1])
    monkeypatch.setattr(live, "PORTS", 1)
    with pytest.raises(GroupwiseError, match="free port from"):
        bound_socket(None)
    first.close()
    second.close()


@each_case(
    ("arguments", "words"),
    [
        (["nowhere/at/all.csv"], "does not exist"),
        (["model.pt"], "PyTorch"),
        (["run.jsonl", "--port", "99999"], "--port expects"),
        (["run.jsonl", "--level", "2"], "--level expects"),
        (["run.jsonl", "--set", "nonsense=1"], "nonsense"),
    ],
)
def test_what_cannot_be_watched_is_a_sentence_and_code_2(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "run.jsonl", 5)
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04" + bytes(100))
    assert main(["watch", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_without_the_libraries_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert main(["watch", str(write_log(tmp_path / "run.jsonl", 5))]) == 2
    assert "for the live page: pip install starlette uvicorn\n" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent to a process")
def test_a_real_server_sends_what_is_appended_and_ctrl_c_ends_it_with_code_0(
    tmp_path: Path,
) -> None:
    """The whole way once: start, read the stream over a socket, append a row, see it arrive,
    stop; nothing is left running.
    """
    path = write_log(tmp_path / "run.jsonl", 30)
    before = path.read_bytes()
    with Forked(PROGRAM, ["watch", str(path), "--port", "0"]) as process:
        guard = threading.Timer(90, process.kill)
        guard.start()
        try:
            match = PRINTED.search(process.stdout.readline())
            assert match is not None
            steps = []
            with urllib.request.urlopen(f"{match[0]}events", timeout=60) as stream:
                for raw in stream:
                    if raw.startswith(b"data: "):
                        steps.append(json.loads(raw[6:]).get("state", {}).get("step"))
                        if steps[-1] == 30 and 31 not in steps:
                            write_log(path, 1, 31)
                        if steps[-1] == 31:
                            break
                process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            assert "Watching has stopped" in process.stdout.read()
            assert process.stderr.read() == ""
        finally:
            guard.cancel()
    assert path.read_bytes().startswith(before)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run.jsonl"]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for processes in /proc")
def test_no_process_outlives_a_watcher_that_was_killed(tmp_path: Path) -> None:
    words = ["watch", str(write_log(tmp_path / "run.jsonl", 30)), "--port", "0"]
    with Forked(PROGRAM, words, workers=False) as process:
        guard = threading.Timer(90, process.kill)
        guard.start()
        try:
            match = PRINTED.search(process.stdout.readline())
            assert match is not None
            with urllib.request.urlopen(f"{match[0]}events", timeout=60) as stream:
                assert any(raw == b"event: judged\n" for raw in stream)
            children = [
                int(entry.name)
                for entry in Path("/proc").glob("[0-9]*")
                if parent_of(entry) == process.pid
            ]
            process.kill()
            process.wait(60)
        finally:
            guard.cancel()
    assert children
    for _ in range(600):
        if not (left := [number for number in children if alive(number)]):
            break
        time.sleep(0.1)
    for number in left:
        os.kill(number, signal.SIGKILL)
    assert not left


IMPATIENT = """
import sys
from groupwise.cli.app import main
from groupwise.pages import live
live._PATIENCE, live._MOST_CONNECTIONS, live._MOST_WAITING = 0.5, 4, 2
sys.exit(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM is sent to a process")
def test_connections_that_ask_for_nothing_are_ended_and_a_server_asked_to_end_ends_with_code_0(
    tmp_path: Path,
) -> None:
    words = ["watch", str(write_log(tmp_path / "run.jsonl", 30)), "--port", "0"]
    with Forked(IMPATIENT, words) as process:
        guard = threading.Timer(90, process.kill)
        guard.start()
        try:
            match = PRINTED.search(process.stdout.readline())
            assert match is not None
            port = int(match[0].split(":")[2].partition("/")[0])
            idle = [socket.create_connection((HOST, port), timeout=30) for _ in range(9)]
            idle[-1].sendall(b"GET / HTTP/1.1\r\nHost: half")
            with urllib.request.urlopen(
                match[0], timeout=30
            ) as answer:  # the oldest of those that wait make room
                assert answer.status == 200
            for connection in idle:
                assert connection.recv(100) == b""
                connection.close()
            with urllib.request.urlopen(match[0], timeout=30) as answer:
                assert answer.status == 200
            with socket.create_connection((HOST, port), timeout=30) as connection:
                for _ in range(3):
                    connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 4000)
                assert b" 400 " in connection.recv(100)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert "Watching has stopped" in process.stdout.read()
            assert process.stderr.read() == ""
        finally:
            guard.cancel()


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/statm").is_file(), reason="the soak weighs the server by /proc"
)
def test_five_seconds_of_the_soak() -> None:
    script = Path(__file__).resolve().parents[2] / "scripts" / "soak.py"
    done = subprocess.run(
        [sys.executable, script, "--seconds", "5", "--clients", "30"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30 clients, 5 s" in done.stdout


def parent_of(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def alive(number: int) -> bool:
    """Whether a process runs; a dead one whose parent does not ask for it does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_pool_that_died_is_replaced_by_a_new_one(tmp_path: Path) -> None:
    class Dead(Inline):
        def submit(self, *_: Any, **__: Any) -> Any:
            raise BrokenProcessPool

    pools = iter((Dead(), Inline()))
    hub = hub_of(write_collapse(tmp_path / "run.jsonl"), pool=lambda: next(pools))
    asyncio.run(judged_by(hub))
    assert "process that judges the run died" in newest(hub, "judged")["problem"]
    hub.runs[0].stale, hub.runs[0].next_judgement = True, 0.0
    asyncio.run(judged_by(hub))
    assert newest(hub, "judged")["judgement"]["state"] == "failing"


def test_where_no_port_is_free_those_that_were_tried_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: Any) -> None:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr("groupwise.pages.live.socket.socket.bind", refused)
    with pytest.raises(GroupwiseError, match="a free port from 8750 to 8759, got none"):
        bound_socket(None)
    with pytest.raises(GroupwiseError, match="a free port, got 8800"):
        bound_socket(8800)
