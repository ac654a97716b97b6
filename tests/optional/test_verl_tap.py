"""The tap on verl's own functions: its estimators, its registry, its `compute_advantage` and its
tracker, without Ray and without a GPU.

verl is not in the test environment, so this is skipped there, visibly. To run it: an environment
with `pip install --no-deps verl` and what importing it asks for (see `lab/tests/optional/test_trainer_presets.py`),
and groupwise,

    python -m pytest tests/optional/test_verl_tap.py

The trainer's loop itself needs Ray and a GPU and is played here: a step computes advantages by
`compute_advantage` and logs its metrics.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.readers import run_record
from groupwise.record.run import RunRecord

pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # what verl and its libraries warn of among themselves
pytest.importorskip("torch", reason="torch is not installed: see the head of this file")
pytest.importorskip("verl", reason="verl is not installed: see the head of this file")

RUN = """
import json, sys
import numpy as np, torch
import verl
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.utils.tracking import Tracking
estimators, first, last, folder = sys.argv[1].split(), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
config = {"trainer": {"default_local_dir": folder, "project_name": "p", "experiment_name": "demo", "logger": ["file"]},
          "data": {"train_batch_size": 6}, "actor_rollout_ref": {"rollout": {"n": 4}, "actor": {"optim": {"lr": 1e-6}}}}
algorithm = {"norm_adv_by_std_in_grpo": True, "gdpo_reward_keys": ["right", "brief"], "gdpo_reward_weights": [1.0, 0.5]}
tracker = Tracking("p", "demo", default_backend=["file"], config=config)
said = []
if first > 1:
    tracker.log(data={"val-core/demo/acc/mean@1": 0.5}, step=first - 1)
for step in range(first, last + 1):
    rng = np.random.default_rng(step)
    uid = np.array([f"uid-{i}" for i in rng.permutation(np.repeat(np.arange(6), 4))], dtype=object)
    length = rng.integers(1, 9, 24)
    mask = torch.tensor(np.arange(9) < length[:, None]).long()
    reward = torch.tensor(rng.integers(0, 2, 24), dtype=torch.float32)
    tokens = torch.zeros(24, 9); tokens[torch.arange(24), mask.sum(1) - 1] = reward
    batch = {"token_level_rewards": tokens, "response_mask": mask, "prompts": torch.ones(24, 3),
             "attention_mask": torch.cat([torch.ones(24, 3).long(), mask], 1)}
    data = DataProto.from_dict(tensors=batch, non_tensors={"uid": uid, "right": reward.numpy(), "brief": 1.0 / length})
    data = compute_advantage(data, estimators[step % len(estimators)], config=algorithm)
    said.append([step, reward.tolist(), length.tolist(), uid.tolist(), data.batch["advantages"][:, 0].tolist()])
    tracker.log(data={"actor/entropy": 1.0 / step, "actor/lr": 1e-6, "perf/total_num_tokens": 100, "training/global_step": step}, step=step)
tracker.finish()
print("SAID", json.dumps(said))
"""


def run(
    estimator: str, first: int, last: int, folder: Path, **environment: str
) -> tuple[list[Any], str]:
    """Play the steps of a run in a process of its own; what was computed, and what was said."""
    variables = {
        **os.environ,
        "VERL_USE_EXTERNAL_MODULES": "groupwise.integrations.verl",
        "VERL_FILE_LOGGER_ROOT": str(folder),
        **environment,
    }
    command = [sys.executable, "-c", RUN, estimator, str(first), str(last), str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=variables, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("SAID "))
    return json.loads(line.removeprefix("SAID ")), done.stderr


ESTIMATORS = "grpo rloo grpo_vectorized gdpo reinforce_plus_plus_baseline opo gpg"


def test_any_estimator_is_recorded_and_returns_what_it_returned(tmp_path: Path) -> None:
    said, _ = run(ESTIMATORS, 1, 7, tmp_path / "tapped")
    plain, _ = run(ESTIMATORS, 1, 7, tmp_path / "plain", VERL_USE_EXTERNAL_MODULES="")
    assert said == plain
    assert not (tmp_path / "plain" / "groupwise").exists()
    record = run_record(tmp_path / "tapped" / "groupwise")
    assert record.name == "demo"
    assert record.steps["step"].to_list() == list(range(1, 8))
    assert record.steps["actor/entropy"].to_list() == pytest.approx(
        [1 / step for step in range(1, 8)]
    )
    assert record.steps["tokens"].to_list() == [100 * step for step in range(1, 8)]
    assert record.config.value("group_size") == 4
    assert record.config.value("prompts_per_step") == 6
    assert record.rollouts is not None
    assert record.rollouts.group_by("step").len()["len"].to_list() == [24] * 7
    for step, reward, length, uid, advantage in said:
        ours = record.rollouts.filter(record.rollouts["step"] == step)
        assert ours["reward"].to_list() == reward
        assert ours["length"].to_list() == length
        order = {name: number for number, name in enumerate(dict.fromkeys(uid))}
        assert ours["prompt_id"].to_list() == [order[name] for name in uid]
        np.testing.assert_allclose(ours["advantage"].to_numpy(), advantage, rtol=1e-5, atol=1e-6)
    gdpo = record.rollouts.filter(record.rollouts["step"] == 3)
    np.testing.assert_allclose(gdpo["reward/brief"].to_numpy(), 1 / gdpo["length"].to_numpy())


def test_a_resumed_run_is_one_record_and_keeps_what_was_there(tmp_path: Path) -> None:
    run("grpo", 1, 5, tmp_path)
    run("grpo", 4, 6, tmp_path)
    record = RunRecord.load(tmp_path / "groupwise")
    assert record.steps["step"].to_list() == [1, 2, 3, 4, 5, 6]
    assert record.rollouts is not None
    assert record.rollouts.group_by("step").len()["len"].to_list() == [24] * 6
    assert (np.diff(record.steps["seconds"].to_numpy()) > 0).all()
    run("grpo", 1, 2, tmp_path)
    assert RunRecord.load(tmp_path / "groupwise").steps["step"].to_list() == [1, 2]
    assert RunRecord.load(tmp_path / "groupwise.before-1").steps["step"].to_list() == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]


def test_the_folder_can_be_named(tmp_path: Path) -> None:
    run("grpo", 1, 2, tmp_path / "run", GROUPWISE_RECORD=str(tmp_path / "elsewhere"))
    assert RunRecord.load(tmp_path / "elsewhere").steps["step"].to_list() == [1, 2]


def test_a_record_that_cannot_be_written_does_not_end_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    said, heard = run(
        "grpo", 1, 2, tmp_path / "run", GROUPWISE_RECORD=str(tmp_path / "file" / "below")
    )
    assert len(said) == 2
    assert "training goes on without a record" in heard
