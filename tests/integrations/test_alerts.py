"""Alerts reach a webhook at least once, with an id that stays, and cost whoever reports nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case
from tests.golden.sentences import says

import groupwise as gw
from groupwise.analysis import fleet as fleets
from groupwise.cli.app import main
from groupwise.errors import InvalidArgumentError
from groupwise.integrations.alerts import (
    ADDRESS,
    SECRET,
    SIGNATURE,
    Webhook,
    payload,
    webhook_of,
)
from groupwise.integrations.live_judgement import LiveJudgement
from groupwise.record.recorder import Say, to_terminal
from groupwise.record.run import RunRecord, steps_table

FACTS = {"state": "failing", "since_step": 40, "headline": "fell", "cause": "likely: a", "do": "b"}


class Receiver(ThreadingHTTPServer):
    """A server that answers with the next of some codes, 200 when there are none left."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.codes: Iterator[int] = iter(())
        self.retry_after = ""  # what a failure says, "" for nothing
        self.taken: list[tuple[str, bytes, str]] = []  # id, body and signature of each that arrived
        self.asked: list[str] = []
        self.hold = threading.Event()
        self.hold.set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/SECRET"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.hold.wait(5)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        code, self.close_connection = next(self.server.codes, 200), True
        self.server.asked.append(self.path)
        if code == 200:
            signature = self.headers.get(SIGNATURE, "")
            self.server.taken.append((json.loads(body)["id"], body, signature))
        self.send_response(code)
        self.send_header("Location", "/elsewhere")
        if code != 200 and self.server.retry_after:
            self.send_header("Retry-After", self.server.retry_after)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.hold.set()
        server.shutdown()
        thread.join()


def quick(server: Receiver, say: Say = to_terminal) -> Webhook:
    return Webhook(server.address, say=say, apart=0.0, pause=0.0005)


@pytest.mark.slow
def test_each_of_200_alerts_arrives_though_every_second_attempt_fails(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that goes by the id shows each once; another process would send the same ids."""
    rng = random.Random(23)
    receiver.codes = iter([rng.choice((200, 500)) for _ in range(5000)])
    monkeypatch.setenv(SECRET, "key")
    said: set[str] = set()
    hook, spent = quick(receiver, said.add), []
    for run in range(200):
        began = time.thread_time()
        hook.change(f"run {run}", FACTS)
        spent.append(time.thread_time() - began)
    hook.close(60)
    assert max(spent) < 0.005
    shown = {identifier: json.loads(body) for identifier, body, _ in receiver.taken}
    assert {alert["run"] for alert in shown.values()} == {f"run {run}" for run in range(200)}
    assert len(shown) == 200
    assert 300 < len(receiver.asked) < 600
    for _, body, signature in receiver.taken:
        assert signature == f"sha256={hmac.new(b'key', body, hashlib.sha256).hexdigest()}"
    assert said == {"an alert was not delivered to 127.0.0.1 (HTTP 500); it will be sent again"}
    again = Webhook(receiver.address)
    again.change("run 7", FACTS)
    again.close(10)
    assert receiver.taken[-1][0] in shown


@each_case(
    ("said", "longest"),
    [
        ("3", 3.0),
        ("9" * 400, 30.0),
        ("", 0.001),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.001),  # is over
        ("a date in 20 s", 20.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 30.0),
        ("Fri, 99 Dec 2026 23:59:59 GMT", 0.001),
        ("soon", 0.001),
    ],
)
def test_a_server_says_when_it_may_be_asked_again(
    said: str, longest: float, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("groupwise.integrations.alerts.time.sleep", waited.append)
    receiver.taken.clear()
    if said.startswith("a date"):
        said = formatdate(time.time() + 20, usegmt=True)
    receiver.codes, receiver.retry_after = iter([429]), said
    hook = quick(receiver)
    hook.change("run", FACTS)
    hook.close(10)
    assert len(receiver.taken) == 1
    assert longest / 2 <= max(waited) <= longest


def test_whoever_reports_waits_for_no_server(receiver: Receiver) -> None:
    receiver.hold.clear()
    said: list[str] = []
    hook = quick(receiver, said.append)
    began = time.perf_counter()
    for run in range(300):
        hook.change(f"run {run}", FACTS)
    assert (time.perf_counter() - began) / 300 < 0.005
    assert hook.close(0.05) == 300
    (note,) = said
    says("integrations/alerts/1", note)
    hook.close(0)  # as at the end of the process


def test_the_end_waits_once_for_an_alert_that_does_not_arrive() -> None:
    """What the thread has taken up has not arrived."""
    hook, waits = Webhook("http://127.0.0.1:9/SECRET", say=lambda _: None), list[float]()

    class Stuck:
        def join(self, seconds: float) -> None:
            waits.append(seconds)
            hook._waiting.clear()

    hook._waiting.append(FACTS)
    hook._thread = Stuck()  # type: ignore[assignment]
    assert hook.close(60) == 1
    assert waits == [60]


def test_a_server_that_is_not_there_is_said_in_words() -> None:
    said = list[str]()
    hook = Webhook("http://127.0.0.1:9/SECRET", say=said.append)
    hook.change("a", FACTS)
    assert hook.close(0.5) == 1
    assert said[0].startswith("an alert was not delivered to 127.0.0.1 (Connection refused)")


def test_a_state_is_told_once_until_it_changes_and_its_id_stays(receiver: Receiver) -> None:
    hook = quick(receiver)
    states = ["ok", "ok", "warning", "warning", "failing", "failing", "ok", "failing"]
    for state in states:
        since = None if state == "ok" else 40
        hook.change("run", FACTS | {"state": state, "since_step": since})
    hook.change("run", FACTS, "another folder")
    hook.close(10)
    alerts = [json.loads(body) for _, body, _ in receiver.taken]
    assert [(alert["was"], alert["state"]) for alert in alerts] == [
        ("ok", "warning"),
        ("warning", "failing"),
        ("failing", "ok"),
        ("ok", "failing"),
        (None, "failing"),  # a run that was never seen was nothing
    ]
    ids = [alert["id"] for alert in alerts]
    assert ids[1] == ids[3] != ids[4]


def test_an_alarm_without_a_step_has_an_id_by_what_it_says(receiver: Receiver) -> None:
    """Two alarms of a run that says "nothing learnt in N steps" are two."""
    hook = quick(receiver)
    for state, rows in (("warning", 40), ("ok", 50), ("warning", 60)):
        said = {"state": state, "since_step": None, "headline": f"nothing learnt in {rows} steps"}
        hook.change("run", FACTS | said)
    hook.close(10)
    assert len({json.loads(body)["id"] for _, body, _ in receiver.taken}) == 3


def test_the_rate_is_kept(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    hook = Webhook(receiver.address, apart=3)
    for run in range(5):
        hook.change(f"run {run}", FACTS)
    assert hook.close(10) == 0
    assert len(receiver.taken) == 5
    assert [round(seconds) for seconds in slept] == [0, 3, 3, 3, 3]


@each_case(
    ("codes", "arrives", "words"),
    [
        ([404], False, "127.0.0.1 rejects alerts: HTTP 404"),
        ([302], False, "127.0.0.1 rejects alerts: HTTP 302"),
        (
            [429, 503],
            True,
            "an alert was not delivered to 127.0.0.1 (HTTP 429); it will be sent again",
        ),
    ],
)
def test_what_a_server_refuses_is_not_sent_again(
    receiver: Receiver, codes: list[int], arrives: bool, words: str
) -> None:
    receiver.taken.clear()
    receiver.asked.clear()
    receiver.codes = iter(codes)
    said: list[str] = []
    hook = quick(receiver, said.append)
    hook.change("run", FACTS)
    hook.close(10)
    assert bool(receiver.taken) is arrives
    assert said[0] == words
    (last,) = said[1:]
    if arrives:
        says("integrations/alerts/2", last, code=codes[1])
    else:
        says("integrations/alerts/3", last)
    assert set(receiver.asked) == {"/SECRET"}  # nowhere else


@each_case(
    ("host", "key", "text"),
    [
        ("hooks.slack.com", "text", "&lt;!channel&gt; &amp; *x* @here [a](http://b)"),
        ("discord.com", "content", r"\<!channel\> & \*x\* \@here \[a\](http\://b)"),
        ("example.com", "text", "<!channel> & *x* @here [a](http://b)"),
    ],
)
def test_texts_of_a_log_stay_text(host: str, key: str, text: str) -> None:
    hostile = "<!channel> & *x* @here [a](http://b)"
    sent = payload(host, {"id": "1", "run": hostile, "was": "ok", **FACTS})
    assert sent[key].replace(r"\: ", ": ") == f"{text}: failing (was ok): fell; likely: a; b"
    assert sent.get("allowed_mentions", {"parse": []}) == {"parse": []}


@each_case(
    "address",
    [
        "file:///etc/passwd",
        "ftp://host/SECRET",
        "https:///SECRET",
        "host/SECRET",
        "https://host:port/SECRET",
        "https://user:SECRET@host/",
        "https://host/SECRET\r\nX: y",
        "http://[host/SECRET",
        "",
    ],
)
def test_what_is_no_address_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Webhook(address)
    assert "SECRET" not in str(caught.value)


def test_a_training_goes_on_without_alerts_where_the_environment_names_no_address(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    said: list[str] = []
    monkeypatch.setenv(ADDRESS, "file:///etc/passwd")
    LiveJudgement(said.append)
    assert said[0].endswith("no alerts will be sent")
    with pytest.raises(InvalidArgumentError):
        LiveJudgement(said.append, webhook="ftp://host")
    monkeypatch.delenv(ADDRESS)
    assert webhook_of(None) is None
    live = LiveJudgement(said.append, webhook=receiver.address)
    reward = [0.8 + 0.01 * (-1) ** step for step in range(60)] + [0.0] * 40
    live.look(RunRecord("demo", steps_table(range(100), {"reward": reward})), 99)
    assert live._webhook is not None
    live._webhook.close(10)
    sent = json.loads(receiver.taken[0][1])
    assert (sent["run"], sent["state"], sent["since_step"]) == ("demo", "failing", 60)


@pytest.mark.usefixtures("forked")
def test_commands_send_what_they_judge_and_keep_the_address_to_themselves(
    receiver: Receiver, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    rows = [0.8 + 0.01 * (-1) ** step for step in range(60)] + [0.0] * 40
    for name, rewards in (("bad", rows), ("good", rows[:60])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text(
            "".join(f'{{"step": {t}, "reward": {r}}}\n' for t, r in enumerate(rewards))
        )
    page = tmp_path / "page.html"
    words = ["fleet", str(tmp_path), "--page", str(page), "--workers", "1"]
    words += ["--webhook", receiver.address]
    monkeypatch.setattr("sys.argv", ["groupwise", *words])
    assert main(words) == 1
    assert [json.loads(body)["state"] for _, body, _ in receiver.taken] == ["failed"]
    bad = str(tmp_path / "bad")
    assert main(["watch", bad, "--once", "--webhook", receiver.address]) == 1
    deadline = time.monotonic() + 10
    while len(receiver.taken) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert receiver.taken[0][0] == receiver.taken[1][0]
    out = capsys.readouterr()
    assert "SECRET" not in out.out + out.err + page.read_text(encoding="utf-8")
    assert main(["watch", bad, "--once", "--webhook", "SECRET"]) == 2
    assert "SECRET" not in capsys.readouterr().err


def test_a_timer_is_sent_what_changed_since_the_table_was_written(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that was not followed by every alert is not written: the next call sends them."""
    monkeypatch.chdir(tmp_path)
    judged = lambda *_, **__: fleets.fleet_of(fleets.Judge({})("runs/a"))  # noqa: E731
    monkeypatch.setattr(fleets, "judge_fleet", judged)  # without workers, which start slowly
    log = tmp_path / "runs" / "a" / "log.jsonl"
    log.parent.mkdir(parents=True)
    bad, good = [0.8] * 60 + [0.0] * 40, [0.8 - 0.6 * 0.95**step for step in range(100)]
    words = ["fleet", "runs", "-o", "t.csv", "--webhook", receiver.address]
    states = []
    for rewards, code in ((bad, 404), (bad, 200), (bad, 200), (good, 200), (good, 200)):
        rows = [f'{{"step": {t}, "reward": {r + t % 2 / 100}}}\n' for t, r in enumerate(rewards)]
        log.write_text("".join(rows))
        receiver.codes = iter([code])
        assert main(words) == (rewards is bad)
        assert (tmp_path / "t.csv").exists() == (code == 200)
        states.append([json.loads(body)["state"] for _, body, _ in receiver.taken])
    assert states == [[], ["failed"], ["failed"], ["failed", "ok"], ["failed", "ok"]]


def test_a_judgement_is_sent_with_its_cause_in_words(receiver: Receiver) -> None:
    hook = quick(receiver)
    hook.judged(gw.judge([0.5] * 30 + [0.0] * 30))
    hook.close(10)
    alert = json.loads(receiver.taken[0][1])
    assert alert["state"] == "failed"
    assert alert["was"] is None
    assert alert["text"].startswith(f"{alert['run']}: failed: reward 0.5")
