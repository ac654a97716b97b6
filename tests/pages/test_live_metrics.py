"""`/metrics` of the live page: Prometheus reads it with a token that opens nothing else; what is
not known has no sample.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case

from groupwise.cli.app import main
from groupwise.pages.live import GAUGES, application, exposition
from groupwise.pages.live_hub import Hub, followers_of, shown
from groupwise.readers.follow import Follower

PAGE, OWN = "p" * 32, "m" * 32
SAMPLE = re.compile(
    r'^(groupwise_\w+)\{(\w+="(?:[^"\\\n]|\\.)*"(?:,\w+="(?:[^"\\\n]|\\.)*")*)\} (\S+)$'
)


def write(path: Path, rewards: list[float | None]) -> Path:
    path.write_text(
        "".join(
            json.dumps({"step": step, "reward": reward}) + "\n"
            for step, reward in enumerate(rewards, 1)
        )
    )
    return path


def hub_of(*paths: Path) -> Hub:
    hub = Hub(followers_of(paths, Follower), pool=None)
    for index in range(len(paths)):
        hub.update(index)
    return hub


def samples(text: str) -> dict[tuple[str, str], float]:
    """What a strict reader of the format takes: each gauge's help and type come once, before its
    samples.
    """
    found, announced = {}, set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            announced.add(line.split()[2])
        elif not line.startswith("# HELP"):
            match = SAMPLE.match(line)
            assert match, line
            assert match[1] in announced, line
            assert (match[1], match[2]) not in found
            found[match[1], match[2]] = float(match[3])
    return found


def test_a_run_that_failed_has_its_numbers(tmp_path: Path) -> None:
    hub = hub_of(
        write(
            tmp_path / "run.jsonl",
            [0.8 + 0.01 * (-1) ** step if step < 40 else 0.0 for step in range(1, 61)],
        )
    )
    record = hub.runs[0].follower.record
    assert record is not None
    hub.runs[0].judged = shown(record, "reward", 0.9, ended=True)
    found = samples(exposition(hub))
    run = 'run="run.jsonl"'
    assert found["groupwise_step", run] == found["groupwise_rows", run] == 60
    assert found["groupwise_metric", f'{run},metric="reward"'] == 0
    assert found["groupwise_failed_since_step", run] == 40
    assert found["groupwise_wasted_steps", run] == 21
    states = {
        labels: value for (gauge, labels), value in found.items() if gauge == "groupwise_state"
    }
    assert [labels for labels, value in states.items() if value] == [f'{run},state="failed"']
    assert len(states) == 5


def test_what_was_spent_and_wasted_is_in_base_units(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    rows = [
        {"step": step, "reward": 0.8 + 0.01 * (-1) ** step if step < 40 else 0.0, "step_time": 9}
        for step in range(1, 61)
    ]
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given = {
        "gpus": "8",
        "gpu_price": "2.5",
        "planned_steps": "70",
        "group_size": "4",
        "prompts_per_step": "2",
    }
    hub = Hub(followers_of([log], lambda path: Follower(path, settings=given)), pool=None)
    hub.update(0)
    record = hub.runs[0].follower.record
    assert record is not None
    hub.runs[0].judged = shown(record, "reward", 0.9, ended=True)
    found = {
        gauge.removeprefix("groupwise_"): value
        for (gauge, _), value in samples(exposition(hub)).items()
    }
    for span, steps in (("spent", 60), ("wasted", 21), ("remaining", 10)):
        amounts = {
            unit: found[f"{span}_{unit}"]
            for unit in ("steps", "rollouts", "seconds", "gpu_seconds")
        }
        assert amounts == pytest.approx(
            {"steps": steps, "rollouts": 8 * steps, "seconds": 9 * steps, "gpu_seconds": 72 * steps}
        )
        assert found[f"{span}_money"] == pytest.approx(72 * steps / 3600 * 2.5)
        assert f"{span}_tokens" not in found


def test_what_is_not_known_has_no_sample_and_a_hostile_name_stays_a_label(tmp_path: Path) -> None:
    hub = hub_of(write(tmp_path / 'a"} 1\\.jsonl', [0.5, None]))
    text = exposition(hub)
    found = samples(text)
    assert {gauge for gauge, _ in found} == {
        f"groupwise_{name}"
        for name in ("ended", "step", "rows", "metric", "changed_timestamp_seconds")
    }
    assert found["groupwise_metric", r'run="a\"} 1\\.jsonl",metric="reward"'] == 0.5
    assert "groupwise_state" not in text
    assert set(re.findall(r"# HELP groupwise_(\w+)", text)) < set(GAUGES)


@pytest.fixture
def client(tmp_path: Path) -> Any:
    testing = pytest.importorskip("starlette.testclient")
    log = write(tmp_path / "run.jsonl", [0.5] * 5)
    return lambda token: testing.TestClient(
        application(Hub(followers_of([log], Follower), pool=None), PAGE, token),
        base_url="http://127.0.0.1:8750",
    )


def test_only_its_own_token_opens_it_and_that_opens_nothing_else(client: Any) -> None:
    with client(OWN) as served:
        answer = served.get("/metrics", headers={"authorization": f"Bearer {OWN}"})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        samples(answer.text)
        for header in (
            {},
            {"authorization": OWN},
            {"authorization": f"Bearer {PAGE}"},
            {"authorization": f"Bearer {OWN[:-1]}"},
        ):
            refused = served.get("/metrics", headers=header)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert "groupwise_" not in refused.text
        bearer = {"authorization": f"Bearer {OWN}"}
        assert {
            served.get(path, headers=bearer).status_code
            for path in ("/", f"/{OWN}/", f"/{OWN}/events", "/report/1")
        } == {403}
        assert served.get("/metrics", headers=bearer | {"host": "evil.example"}).status_code == 421
        assert served.get(f"/{PAGE}/metrics").status_code == 200


def test_without_a_token_of_its_own_it_is_as_closed_as_every_other_path(client: Any) -> None:
    with client("") as served:
        for header in ({}, {"authorization": "Bearer "}, {"authorization": f"Bearer {PAGE}"}):
            assert served.get("/metrics", headers=header).status_code == 403


@each_case("token", ["short", "two words " * 4, "ünïcödé" * 4, "x" * 300, ""])
def test_a_token_that_could_be_guessed_or_is_no_header_is_refused(
    token: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text(token)
    log = write(tmp_path / "run.jsonl", [0.5] * 5)
    assert main(["watch", str(log), "--metrics-token", str(tmp_path / "token")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "groupwise: --metrics-token expects a file with 16 to 256 letters and digits; got "
    )
    assert said.count("\n") == 1


def test_prometheus_itself_would_take_it(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    hub = hub_of(write(tmp_path / "run.jsonl", [0.5] * 5))
    families = list(parser.text_string_to_metric_families(exposition(hub)))
    assert {family.name for family in families} <= {f"groupwise_{name}" for name in GAUGES}
