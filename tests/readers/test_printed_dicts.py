"""Consoles that state their steps: SkyRL's and slime's dictionaries, and verl's rows in another
encoding.
"""

from __future__ import annotations

from pathlib import Path
from pprint import pformat

import pytest
from tests.golden.sentences import says

from groupwise.errors import UnreadableRunError
from groupwise.readers import run_record
from groupwise.readers.follow import Follower

RAY = "\x1b[36m(skyrl_entrypoint pid=991)\x1b[0m "
LOGURU = "2025-11-01 10:00:01.123 | INFO     | skyrl_train.utils.tracking:log:137 - "


def skyrl(step: int) -> str:
    """What SkyRL prints of a step: numbers as texts of four places, in the order of their keys."""
    row = {
        "reward/avg_raw_reward": step / 10,
        "reward/avg_pass_at_8": 0.8,
        "policy/policy_entropy": 0.5,
        "trainer/epoch": 0,
    }
    row |= {"trainer/global_step": step, "timing/step": 33.0123, "generate/avg_num_tokens": 300.0}
    shown = pformat(
        {key: f"{value:.4f}" if isinstance(value, float) else value for key, value in row.items()}
    )
    return f"{LOGURU}Step {step}: \n{shown}\n"


@pytest.mark.parametrize("ray", [True, False])
def test_skyrl(tmp_path: Path, *, ray: bool) -> None:
    text = (
        "Step 3: of the proof\n{'reward': 9}\n"
        + "".join(skyrl(step) for step in range(1, 9))
        + skyrl(9)[:200]
    )
    lines = text.splitlines(keepends=True)
    other = "(Worker pid=7) INFO the cache was reset\n"
    (tmp_path / "train.log").write_text(
        "".join((RAY if ray else "") + line + (other if ray else "") for line in lines)
    )
    record = run_record(tmp_path / "train.log")
    assert record.sources[0].reader == "printed_dicts"
    assert record.steps["step"].to_list() == list(range(1, 9))
    assert record.steps[record.column("reward")].to_list() == pytest.approx(
        [step / 10 for step in range(1, 9)]
    )
    assert {"entropy", "pass_at_k"} <= {meaning.quantity for meaning in record.meanings}
    assert record.config.value("framework") == "skyrl"
    assert "the rows come from printed output and are rounded to four decimals" in record.notes


def slime(rollout: int, each: int = 2) -> str:
    """What slime prints of a rollout: how it went, its rewards, its updates and every third time
    an evaluation.
    """
    log = "[2025-11-01 10:00:00] rollout.py:388 - "
    text = (
        f"(RolloutManager pid=11) {log}perf {rollout}: {{'rollout/response_len/mean': "
        f"{300 + rollout}, 'perf/rollout_time': 33.0}}\n"
    )
    reward = f"np.float64({rollout / 10})"
    text += (
        f"(Actor pid=12) {log}rollout {rollout}: {{'rollout/raw_reward': {reward}, "
        f"'rollout/rewards': -1e-09}}\n"
    )
    for at in range(each):
        text += (
            f"(Actor pid=12) {log}step {each * rollout + at}: {{'train/loss': 0.0, "
            f"'train/entropy_loss': {1 - rollout / 10}}}\n"
        )
    return text + (
        f"(RolloutManager pid=11) {log}eval {rollout}: {{'eval/aime': {rollout / 20}}}\n"
        if rollout % 3 == 0
        else ""
    )


def test_slime(tmp_path: Path) -> None:
    text = (
        "".join(slime(rollout) for rollout in range(8))
        + "the step 4: {'reward': 3} of a completion\nrollout 9: {'rollout/raw_reward': print()}\n"
    )
    (tmp_path / "train.log").write_text(text)
    record = run_record(tmp_path / "train.log")
    assert record.steps["step"].to_list() == list(range(8))
    assert record.steps[record.column("reward")].to_list() == pytest.approx(
        [rollout / 10 for rollout in range(8)]
    )
    assert record.steps[record.column("entropy")].to_list() == pytest.approx(
        [1 - rollout / 10 for rollout in range(8)]
    )
    assert record.steps["eval/aime"].to_list() == [0.0, None, None, 0.15, None, None, 0.3, None]
    assert (record.config.value("framework"), record.config.value("updates_per_step")) == (
        "slime",
        2,
    )
    says("readers/printed_dicts/1", record.notes[0])


def test_they_are_followed_as_they_grow(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(skyrl(1) + skyrl(2)[:150] + "\n")
    follower = Follower(log)
    follower.poll()
    assert follower.record is not None
    log.write_text(skyrl(1) + skyrl(2)[:150] + "\n" + skyrl(3))
    follower.poll()
    assert follower.record.steps["step"].to_list() == [1, 3]


def verl(step: int) -> str:
    """A row of verl."""
    return (
        f"(TaskRunner pid=1) step:{step} - critic/score/mean:{step / 100} - actor/entropy:0.5 - "
        "timing_s/step:33.1 - perf/mfu/actor:0.3\n"
    )


@pytest.mark.parametrize("quiet", [0, 2000])
def test_verl_in_utf_16(tmp_path: Path, quiet: int) -> None:
    text = "a line of the start that says nothing\n" * quiet + "".join(
        verl(step) for step in range(1, 31)
    )
    (tmp_path / "plain.log").write_text(text)
    (tmp_path / "powershell.log").write_text(text, encoding="utf-16")
    plain, other = run_record(tmp_path / "plain.log"), run_record(tmp_path / "powershell.log")
    assert other.sources[0].reader == "verl_console"
    assert other.steps.equals(plain.steps)
    assert (other.meanings, other.notes) == (plain.meanings, plain.notes)


def test_verls_rows_without_their_step_are_no_steps_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "cut.log").write_text(
        "".join(verl(step).replace(f"step:{step} ", "", 1) for step in range(1, 31))
    )
    with pytest.raises(UnreadableRunError, match="got only 30 lines without a step"):
        run_record(tmp_path / "cut.log")


def test_seconds_a_step_are_no_step(tmp_path: Path) -> None:
    rows = [
        f"step: {step} | reward: {step / 10} | timing/step: 33 | time a step: 12.5"
        for step in range(1, 6)
    ]
    (tmp_path / "own.log").write_text("\n".join(rows) + "\ntiming_s/step:33.1 | reward: 9\n")
    record = run_record(tmp_path / "own.log")
    assert record.steps["step"].to_list() == [1, 2, 3, 4, 5]
