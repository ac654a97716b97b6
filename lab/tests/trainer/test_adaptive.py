"""Group sizes that follow what is measured: the budget stays, advice changes nothing, a run goes
on as if it had never stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.record.run import RecordWriter, RunRecord
from groupwise_lab.trainer import adaptive
from groupwise_lab.trainer.controller import ControllerRule
from groupwise_lab.trainer.settings import AdaptiveSettings, TrainSettings
from groupwise_lab.trainer.tasks import Task

torch = pytest.importorskip("torch")

from groupwise_lab.trainer.grpo import train  # noqa: E402

Maker = Callable[[], Any]
OWN = {
    "group_size",
    "probe_seconds",
    "planned_group_size",
    "planned_excess",
    "running_vp",
    "running_t",
    "running_r",
}


def settings(mode: Any = "act", **changes: Any) -> TrainSettings:
    """Six steps from G = 32, a look every two; two sure reasons to change: 4 is best by far at
    the start.
    """
    how = None if mode is None else AdaptiveSettings(mode, every=2, prompts=12)
    given: dict[str, Any] = {
        "group_size": 32,
        "rollouts_per_step": 64,
        "steps": 6,
        "evaluate_every": 0,
        "learning_rate": 1e-3,
    }
    return TrainSettings(**{**given, "adaptive": how, "rollouts_every": 1, **changes})


def decisions(folder: Path) -> list[dict[str, Any]]:
    decisions: list[dict[str, Any]] = json.loads(
        (folder / "group-size-decisions.json").read_text(encoding="utf-8")
    )
    return decisions


def test_acting_changes_the_group_size_and_not_the_number_of_rollouts(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    """With a lag the batches that wait keep their size; the prompts of epochs go on where they
    were.
    """
    chosen = settings(lag_kind="fixed", refresh_interval=1, prompt_order="epochs", micro_batch=32)
    record = train(make_policy(), small_task, chosen, output=tmp_path / "run")
    size = record.steps["group_size"].to_list()
    taken = decisions(tmp_path / "run")
    assert taken[0]["step"] == 0
    assert (taken[0]["present"], size[0]) == (32, taken[0]["group_size"])
    assert len({32, *size}) > 1  # it did change
    assert taken[0]["reason"].endswith(
        f"change to {size[0]:.0f}, with {64 / size[0]:.0f} prompts a step."
    )
    assert [entry["step"] for entry in taken] == [0, 2, 4]
    assert record.rollouts is not None
    for step, own in zip(record.steps["step"], size, strict=True):
        rows = record.rollouts.filter(record.rollouts["step"] == step)
        assert len(rows) == 64
        assert set(np.bincount(rows["prompt_id"].to_numpy())) == {own}
    drawn = (
        record.rollouts.group_by("step", "prompt_id", maintain_order=True)
        .first()["problem"]
        .to_list()
    )
    assert len(set(drawn[: len(small_task.train)])) == min(len(drawn), len(small_task.train))
    assert record.config.value("group_size") is None  # no one number is true of it
    assert {entry["group_size"] for entry in taken} == {entry["present"] for entry in taken[1:]} | {
        taken[-1]["group_size"]
    }


@pytest.mark.slow
def test_advice_leaves_the_run_as_it_is(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    plain, advised = make_policy(), make_policy()
    without = train(plain, small_task, settings(None), output=tmp_path / "plain")
    record = train(advised, small_task, settings("advise"), output=tmp_path / "advised")
    for own, theirs in zip(plain.parameters(), advised.parameters(), strict=True):
        assert torch.equal(own, theirs)
    assert set(record.steps.columns) - set(without.steps.columns) == OWN
    assert record.steps.drop("seconds", *OWN).equals(without.steps.drop("seconds"))
    assert record.rollouts is not None
    assert without.rollouts is not None
    assert record.rollouts.equals(without.rollouts)
    assert record.config.value("group_size") == 32
    assert any(entry["group_size"] != 32 for entry in decisions(tmp_path / "advised"))


@pytest.mark.slow
def test_a_run_goes_on_bit_for_bit(
    make_policy: Maker, small_task: Task, tmp_path: Path, monkeypatch: Any
) -> None:
    """Killed after the second decision, from a checkpoint between the two."""
    chosen = settings(
        checkpoint_every=3, lag_kind="refresh", refresh_interval=2, prompt_order="epochs", steps=8
    )
    whole, again = make_policy(), make_policy()
    train(whole, small_task, chosen, output=tmp_path / "whole")
    with monkeypatch.context() as context:
        append = RecordWriter.append

        def dying(self: Any, row: Any, rollouts: Any = None, **named: Any) -> None:
            if row["step"] == 5:
                raise KeyboardInterrupt
            append(self, row, rollouts, **named)

        context.setattr(RecordWriter, "append", dying)
        with pytest.raises(KeyboardInterrupt):
            train(make_policy(), small_task, chosen, output=tmp_path / "broken")
    train(again, small_task, chosen, output=tmp_path / "broken", resume=True)
    for own, theirs in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(own, theirs)
    first, second = (RunRecord.load(tmp_path / name) for name in ("whole", "broken"))
    assert first.steps.drop("seconds", "probe_seconds").equals(
        second.steps.drop("seconds", "probe_seconds")
    )
    assert decisions(tmp_path / "whole") == decisions(tmp_path / "broken")


def test_a_probe_that_fails_is_told_and_training_goes_on(
    make_policy: Maker, small_task: Task, tmp_path: Path, monkeypatch: Any
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise InsufficientDataError("expected rewards, got none")

    monkeypatch.setattr(adaptive, "probe", failing)
    record = train(make_policy(), small_task, settings(steps=2), output=tmp_path / "run")
    assert record.steps["group_size"].to_list() == [32, 32]
    reason = "Nothing was measured: expected rewards, got none"
    assert decisions(tmp_path / "run") == [{"step": 0, "group_size": 32, "reason": reason}]


def test_what_cannot_be_is_refused(make_policy: Maker, small_task: Task, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=(
            "an advantage that compares the rollouts of a group for an adaptive group size, got "
            "oracle"
        ),
    ):
        train(make_policy(), small_task, settings(advantage="oracle"), output=tmp_path / "run")
    with pytest.raises(
        InvalidArgumentError, match="within the bounds of the adaptive one, 2 and 16; got 32"
    ):
        settings(adaptive=AdaptiveSettings("act", rule=ControllerRule(highest=16)))
    with pytest.raises(InvalidArgumentError, match="to be advise or act; got 'ask'"):
        settings("ask")
    with pytest.raises(
        InvalidArgumentError,
        match="rollouts of the adaptive group size to be a whole number of at least 4; got 3",
    ):
        AdaptiveSettings(rollouts=3)
