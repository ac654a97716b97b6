"""The tap on verl, with a stand-in for verl's registry of estimators and its tracker:
`tests/optional` has verl itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from groupwise.integrations.live_judgement import LiveJudgement
from groupwise.integrations.verl import VARIABLE, Tap
from groupwise.record.run import RunRecord

MASK = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 0, 0]])
REWARD = np.array([[0, 0, 1.0], [0, 0, 0], [0, 0.5, 0], [0, 0, 0.25], [0, 0, 0]])
UID = np.array(["b", "a", "b", "a", "pad-0"], dtype=object)
ADVANTAGE = np.array([[0.5] * 3, [-0.5] * 3, [-0.25] * 3, [0.25] * 3, [9.0] * 3])
CONFIG = {"gdpo_reward_keys": ["brief"]}


@dataclasses.dataclass
class Verl:
    """What the tap takes of verl, and what was said."""

    core: Any
    tracking: Any
    said: list[str]

    def estimate(self, *, brief: bool = False) -> Any:
        """Compute the advantages of one generation, two groups of two and a row of padding."""
        more = {"non_tensor_batch": {"brief": np.arange(5) / 4}} if brief else {}
        estimate = self.core.ADV_ESTIMATOR_REGISTRY["grpo"]
        return estimate(REWARD, MASK, index=UID, config=CONFIG, **more)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], tuple[Verl, Any]]:
    """Starts a run in a process of its own, as it were: a tap, and a tracker with settings."""
    monkeypatch.setattr("atexit.register", lambda _: None)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(LiveJudgement, "begin", lambda *_, **__: None)  # it loads the checks
    monkeypatch.setattr(LiveJudgement, "due", lambda *_: False)

    def started(folder: Path) -> tuple[Verl, Any]:
        class Tracking:
            def __init__(self, project_name: str, experiment_name: str, config: Any = None) -> None:
                self.about = project_name, experiment_name, config

            def log(self, data: Any, step: int, backend: str = "all") -> Any:
                return self.about[:2], data, step, backend

            def finish(self) -> str:
                return "finished"

        def grpo(
            token_level_rewards: Any,
            response_mask: Any,
            index: Any,
            config: Any = None,
            non_tensor_batch: Any = None,
        ) -> Any:
            return ADVANTAGE, (token_level_rewards, response_mask, index, config)

        core: Any = SimpleNamespace(
            ADV_ESTIMATOR_REGISTRY={"grpo": grpo, "gae": lambda values: values},
            compute_grpo_outcome_advantage=grpo,
            get_adv_estimator_fn=lambda name: core.ADV_ESTIMATOR_REGISTRY[name],
        )
        verl = Verl(core, Tracking, [])
        Tap(verl.said.append).attach(core, Tracking)
        config = {
            "trainer": {"default_local_dir": str(folder)},
            "data": {"train_batch_size": 2},
            "actor_rollout_ref": {"rollout": {"n": 2}},
        }
        return verl, Tracking("project", "name", config=config)

    return started


def test_verl_gets_what_it_got_without_the_tap(start: Any, tmp_path: Path) -> None:
    verl, tracker = start(tmp_path)
    for function in (
        verl.core.ADV_ESTIMATOR_REGISTRY["grpo"],
        verl.core.compute_grpo_outcome_advantage,
        verl.core.get_adv_estimator_fn("grpo"),
    ):
        advantage, given = function(REWARD, MASK, index=UID, config=CONFIG)
        assert advantage is ADVANTAGE
        assert list(map(id, given)) == list(map(id, (REWARD, MASK, UID, CONFIG)))
    data = {"actor/entropy": 0.5}
    assert tracker.about[:2] == ("project", "name")
    assert tracker.log(data, 1, "wandb") == (("project", "name"), data, 1, "wandb")
    assert tracker.log(data=data, step=2)[1:] == (data, 2, "all")
    assert [verl.core.ADV_ESTIMATOR_REGISTRY["gae"](number) for number in (7, 8)] == [7, 8]
    assert tracker.finish() == "finished"
    (said,) = verl.said
    assert "no group ids" in said


def test_a_step_has_its_rollouts_its_metrics_and_how_far_the_run_is(
    start: Any, tmp_path: Path
) -> None:
    verl, tracker = start(tmp_path)
    for step in (1, 2):
        verl.estimate(brief=True)
        metrics = {"actor/entropy": 0.5 / step, "perf/total_num_tokens": 100 * step}
        metrics |= {"actor/ppo_kl": 0.003, "actor/kl_loss": 0.02, "critic/rewards/mean": 0.4}
        tracker.log(metrics | {"text": "x", "reward": 7.0}, step)
    tracker.log({"timing/late": 2.5}, 2)  # a second call for one step adds to the first
    tracker.finish()
    record = RunRecord.load(tmp_path / "groupwise")
    assert (record.name, record.config.value("framework")) == ("name", "verl")
    assert (record.config.value("group_size"), record.config.value("prompts_per_step")) == (2, 2)
    expected = {
        "step": [1, 2],
        "optimizer_updates": [1.0, 2.0],
        "tokens": [100.0, 300.0],
        "reward": [0.4375] * 2,
        "log/reward": [7.0] * 2,
        "actor/entropy": [0.5, 0.25],
        "rewards/brief/mean": [0.375] * 2,
        "completions/mean_length": [2.25] * 2,
        "timing/late": [None, 2.5],
    }
    assert record.steps.select(*expected).to_dict(as_series=False) == expected
    assert "text" not in record.steps.columns
    kinds = ("reward", "kl", "policy_change", "reward_after_kl")  # as verl's own log is read
    columns = ["reward", "actor/kl_loss", "actor/ppo_kl", "critic/rewards/mean"]
    assert list(map(record.column, kinds)) == columns
    assert record.rollouts is not None
    rows = record.rollouts.filter(record.rollouts["step"] == 2)
    expected = {
        "prompt_id": [0, 1, 0, 1],  # in the order of their first rollouts
        "reward": [1.0, 0.0, 0.5, 0.25],
        "reward/brief": [0.0, 0.25, 0.5, 0.75],
        "advantage": [0.5, -0.5, -0.25, 0.25],
        "length": [3, 1, 2, 3],
    }
    assert rows.select(*expected).to_dict(as_series=False) == expected


def test_a_run_goes_on_from_its_step_and_keeps_what_was_there(start: Any, tmp_path: Path) -> None:
    for first, last in ((1, 3), (3, 4)):
        verl, tracker = start(tmp_path)
        if first > 1:
            tracker.log({"val-core/sums": 0.75}, first - 1)  # validation before it goes on
        for step in range(first, last + 1):
            verl.estimate()
            tracker.log({"actor/entropy": float(10 * first + step)}, step)
        tracker.finish()
    record = RunRecord.load(tmp_path / "groupwise")
    assert record.steps["step"].to_list() == [1, 2, 3, 4]
    assert record.steps["actor/entropy"].to_list() == [11.0, 12.0, 33.0, 34.0]
    assert record.steps["val-core/sums"].to_list() == [None, 0.75, None, None]
    assert (np.diff(record.steps["seconds"].to_numpy()) > 0).all()
    assert record.rollouts is not None
    assert record.rollouts.group_by("step").len()["len"].to_list() == [4] * 4
