"""What the callback is given: other trainers, settings that cannot be, rows without rollouts,
checks that load much.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.integrations.test_callback import PlayedTrainer, attached, judged

from groupwise.diagnostics.judgement import Judgement, State
from groupwise.errors import InvalidArgumentError
from groupwise.integrations.trl import GroupwiseCallback
from groupwise.record.run import RunRecord


def test_a_callback_of_another_trainer_is_told_though_that_one_has_none(tmp_path: Path) -> None:
    first, other = PlayedTrainer(tmp_path / "one"), PlayedTrainer(tmp_path / "two")
    stranger = GroupwiseCallback(first, say=lambda _: None, check_every=0)
    other.add_callback(stranger)
    own = attached(other)
    other.train(2)
    assert len(stranger.notices) == 1
    assert "was made for another trainer" in stranger.notices[0]
    assert not (tmp_path / "one").exists()
    assert "_calculate_rewards" not in vars(first)
    assert RunRecord.load(tmp_path / "two" / "groupwise").steps["step"].to_list() == [
        1,
        2,
    ]  # the one that stands behind it records
    assert not any("is the second" in notice for notice in own.notices)


class SeveralUpdates(PlayedTrainer):
    """Rollouts that serve two updates, and means over all steps since it logged last, as TRL
    logs them.
    """

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        return (
            super()._generate_and_score_completions(inputs)
            if self.state.global_step % 2 == 0
            else {}
        )

    def event(self, name: str, **given: Any) -> None:
        if name == "on_log":
            self._metrics["train"]["num_tokens"] = [float(self.state.num_input_tokens_seen)]
            given["logs"] |= {
                key: float(np.mean(values)) for key, values in self._metrics["train"].items()
            }
        super().event(name, **given)


def test_a_mean_over_the_steps_since_the_last_log_is_not_that_of_the_step(tmp_path: Path) -> None:
    trainer = SeveralUpdates(tmp_path, logging_steps=4)
    attached(trainer)
    trainer.train(8)
    steps = RunRecord.load(tmp_path / "groupwise").steps
    assert steps["reward"].is_not_null().to_list() == [True, False] * 4
    assert steps["entropy"].to_list() == pytest.approx([1 / step for step in range(1, 9)])
    assert steps["grad_norm"].is_not_null().to_list() == [False, False, False, True] * 2
    assert steps["num_tokens"].drop_nulls().to_list() == [200.0, 400.0]
    assert "loss" not in steps.columns


def test_a_log_of_one_step_is_that_of_the_step(tmp_path: Path) -> None:
    trainer = SeveralUpdates(tmp_path)
    attached(trainer)
    trainer.train(4)
    steps = RunRecord.load(tmp_path / "groupwise").steps
    assert steps["loss"].to_list() == [0.0] * 4
    assert steps["reward"].is_not_null().to_list() == [True, False, True, False]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"record": 5}, "expected a folder for record, got '5': give its path"),
        ({"record": ""}, "expected a folder for record, got '': give its path"),
        ({"record": b"f"}, "expected a folder for record, got \"b'f'\": give its path"),
    ],
)
def test_arguments_of_another_kind_are_refused(
    options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        attached(PlayedTrainer(tmp_path), **options)
    assert str(caught.value) == sentence
    with pytest.raises(TypeError, match="unexpected keyword argument 'sketches'"):
        attached(PlayedTrainer(tmp_path), sketches=1)


@pytest.mark.parametrize(("last", "looks"), [(200, [60, 50, 100, 150, 200]), (49, [])])
def test_the_judge_is_made_ready_before_the_first_step(
    last: int, looks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run of them, which loads what they need, sees a played run and is over when the
    clock of the run begins.
    """
    seen: list[int] = []
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        "groupwise.integrations.trl.time", SimpleNamespace(perf_counter=lambda: clock.now)
    )

    def judge(record: RunRecord, *, ended: bool) -> Judgement:
        assert not ended
        clock.now += 0.01 if seen else 3.0
        seen.append(len(record.steps))
        return judged(State.WARNING if record.name else State.OK)

    monkeypatch.setattr("groupwise.diagnostics.judge.judge", judge)
    trainer = PlayedTrainer(tmp_path)
    trainer.state.max_steps = last
    callback = GroupwiseCallback(trainer, say=lambda _: None)
    callback._clock = lambda: clock.now
    trainer.add_callback(callback)
    own = trainer._calculate_rewards

    def slowly(*given: Any) -> Any:
        clock.now += 0.03
        return own(*given)

    trainer._calculate_rewards = slowly  # type: ignore[method-assign, assignment]
    trainer.train(last)
    assert seen == looks
    record = RunRecord.load(tmp_path / "groupwise")
    assert record.steps["seconds"][0] < 1
    assert {"groupwise/record_seconds", "groupwise/check_seconds"} <= set(record.steps.columns)
    assert callback.check_seconds == pytest.approx(0.01 * max(len(looks) - 1, 0))
    assert any(
        "preparing the checks before the first step" in notice for notice in callback.notices
    ) is bool(looks)
    assert [notice for notice in callback.notices if "reward 0.8" in notice] == (
        [] if not looks else ["warning at step 50: reward 0.8 → 0.0"]
    )


def test_an_old_verl_is_named_with_the_oldest_that_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from groupwise.integrations import verl

    for name in ("verl", "verl.trainer.ppo.core_algos", "verl.utils.tracking"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["verl"], "__version__", "0.2.0", raising=False)
    said: list[str] = []
    assert verl.attach(said.append) is None
    assert said[0].startswith("groupwise needs verl 0.6 or newer and cannot attach to verl 0.2.0 (")


def test_what_recording_costs_is_a_share_of_the_other_time_and_milliseconds_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second of recording and one of checks beside ten seconds of twenty steps."""
    monkeypatch.setattr(
        "groupwise.integrations.trl.time", SimpleNamespace(perf_counter=lambda: 11.5)
    )
    callback = GroupwiseCallback(PlayedTrainer(tmp_path), say=lambda _: None)
    callback._started, callback._steps_seen = 0.0, 20
    callback.record_seconds = 0.5
    callback._checks.took(1.0)
    assert re.findall(r"[\d.]+ ?(?:%|\w+ a step)", callback.cost()) == [
        "5.00%",
        "25.0 ms a step",
        "10.0%",
    ]
