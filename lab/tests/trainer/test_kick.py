"""The stiffness of a run by one step and back."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from groupwise.intervals import Interval
from groupwise.readers import run_record

pytest.importorskip("torch")

from groupwise_lab.cli.app import main
from groupwise_lab.trainer.folder import RunFolder
from groupwise_lab.trainer.grpo import Kick, step_curvature
from groupwise_lab.trainer.policy import Policy, policy_size
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.tasks import LONGEST_SEQUENCE, make_task

SETTINGS = {
    "size": "tiny",
    "steps": 1,
    "rollouts_per_step": 64,
    "optimizer": "sgd",
    "momentum": 0,
    "warm_up": 0,
    "format_reward": True,
    "evaluate_every": 0,
}


@pytest.mark.slow
def test_twice_the_rate_is_twice_as_near_to_the_edge_and_the_run_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values, steps = [], []
    for rate in (1e-4, 2e-4):
        run, settings = tmp_path / f"{rate:g}", tmp_path / "settings.json"
        settings.write_text(json.dumps(SETTINGS | {"learning_rate": rate}))
        assert main(["train", "addition", "-o", str(run), "--settings", str(settings)]) == 0
        held = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        capsys.readouterr()
        given = ["addition", "--settings", str(settings), "-n", "3", "--json"]
        assert main(["probe", "kick", str(run), *given]) == 0
        answer = json.loads(capsys.readouterr().out)
        result = answer["result"]
        assert answer["learning_rate"] == pytest.approx(rate)
        assert answer["safe_learning_rate"] == pytest.approx(2 * rate / result["high"])
        assert result["low"] <= result["value"] <= result["high"]
        assert {path: path.read_bytes() for path in held} == held
        probes = run_record(run).probes
        assert probes is not None
        assert [result.outcome for result in probes.results] == [result["outcome"]]
        values.append(result["value"])
        steps.append(answer)
        assert main(["probe", "kick", str(run), "-n", "3", "--json"]) == 0  # the checkpoint knows
        alone = json.loads(capsys.readouterr().out)["result"]
        assert alone["value"] == pytest.approx(result["value"], rel=1e-5)
    assert values[1] == pytest.approx(2 * values[0], rel=0.05)
    near, far = steps
    assert far["nats"] == pytest.approx(4 * near["nats"], rel=0.05)
    assert far["gain"] == pytest.approx(2 * near["gain"], rel=0.05)
    small = 1e-4 * (0.05 / near["nats"]) ** 0.5
    assert near["small_step_learning_rate"] == pytest.approx(small)
    assert far["small_step_learning_rate"] == pytest.approx(small, rel=0.05)


@pytest.mark.slow
def test_a_policy_without_a_gradient_is_said_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, settings = tmp_path / "run", tmp_path / "settings.json"
    settings.write_text(json.dumps(SETTINGS | {"format_reward": False, "learning_rate": 0.01}))
    assert main(["train", "addition", "-o", str(run), "--settings", str(settings)]) == 0
    capsys.readouterr()
    assert main(["probe", "kick", str(run), "-n", "3"]) == 2
    error = capsys.readouterr().err
    assert "expected a gradient behind step 1, got 0, since the rewards of every group" in error
    assert not list(run.glob("groupwise-probes*"))


def kick_of(since: int = 1, **settings: float) -> Kick:
    """The first step of a policy."""
    task = make_task("addition", format_reward=True, problems=200)
    training = {name: SETTINGS[name] for name in ("optimizer", "momentum")}
    size, tokens = policy_size("tiny"), len(task.vocabulary)
    actor = Policy(size, vocabulary_size=tokens, context=LONGEST_SEQUENCE, seed=0)
    chosen = TrainSettings.from_mapping({**training, "rollouts_per_step": 64, **settings})
    folder = RunFolder(Path("none"), chosen, task, actor)
    return step_curvature(actor, task, chosen, folder, kicks=3, since=since)


def test_the_curvature_is_that_before_the_step_however_far_it_goes() -> None:
    """Behind a step that destroys the policy the gradient is 0, and the whole step would say 1."""
    near, far = (kick_of(steps=1, learning_rate=rate).curvature.value for rate in (1e-3, 0.5))
    assert far == pytest.approx(500 * near, rel=0.5)


def test_the_gain_of_reward_is_that_of_a_step_uphill() -> None:
    """To first order it grows with the rate, and more rollouts than one batch's know its sign."""
    near, far = (
        kick_of(steps=1, learning_rate=rate, rollouts_per_step=512).gain for rate in (1e-4, 1e-3)
    )
    assert near > 0
    assert far == pytest.approx(10 * near, rel=0.05)


def test_a_change_before_any_checkpoint_is_kicked_at_the_rate_of_its_step() -> None:
    """The rate rises over 40 updates: at the first one it says nothing of the eighth."""
    rising = {"steps": 50, "learning_rate": 1e-3, "ramp_steps": 40}
    first, eighth = (kick_of(since, **rising) for since in (1, 8))
    assert eighth.learning_rate == pytest.approx(8 * first.learning_rate)
    assert eighth.curvature.value == pytest.approx(8 * first.curvature.value, rel=0.1)


@pytest.mark.parametrize(
    ("low", "high", "ramp", "nats", "said"),
    [
        (-4.1, 5.6, 0, 1.25, "More pairs of batches may decide it: -n 32."),
        (-4.1, 1.6, 20, 1.25, "The safe learning rate is below 0.00013; now it is 0.0001."),
        (8.0, 13.0, 20, 0.06, "The safe learning rate is below 1.5e-05; now it is 0.0001."),
    ],
)
def test_a_kick_that_cannot_tell_names_no_safe_rate_and_the_smaller_rate_is_named(
    low: float,
    high: float,
    ramp: int,
    nats: float,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["step,reward", *(f"{step},0.{step % 3}" for step in range(30))]))
    made = None, None, SimpleNamespace(rollouts_per_step=64, seed=1, ramp_steps=ramp), None, False
    kicked = Kick(Interval((low + high) / 2, low, high), 1e-4, nats, 0.19)
    monkeypatch.setattr("groupwise_lab.cli.probe._as_it_began", lambda *_: made)
    monkeypatch.setattr("groupwise_lab.trainer.grpo.step_curvature", lambda *_, **__: kicked)
    assert main(["probe", "kick", str(log)]) == 0
    answer = capsys.readouterr().out
    assert said in answer
    keeps = "; lr 2e-05 keeps it at 0.05" if low < 0 else ""
    assert f"by {nats:.2g} nats (expected gain of reward 0.19){keeps}." in answer
    assert ("No warm-up is set: begin at that rate" in answer) == (ramp == 0)
    assert ("safe learning rate" in answer) == (high < 2 or low > 2)
    assert ("It cannot tell" in answer) == (low < 2 < high)
    assert answer.splitlines()[-1].startswith("WARNING: ")


def test_another_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "regrade", "run"]) == 2
    assert "kick" in capsys.readouterr().err
