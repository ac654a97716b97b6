"""The callback where several processes train together: TRL's trainers on two processes of gloo, on
the CPU.

TRL is not in the test environment, so this is skipped there, visibly;
tests/optional/test_trl_callback.py says how to run it. Each process keeps what its own reward
function saw, and the one record is held against both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.record.run import RunRecord

pytestmark = pytest.mark.skipif(
    find_spec("trl") is None,
    reason="TRL is not installed: see the head of tests/optional/test_trl_callback.py",
)

STEPS, SIZE, OWN = 4, 8, 20
"""Five groups of eight on two processes of twenty rollouts: the third group lies on both."""
SCENES: dict[str, dict[str, Any]] = {
    "grpo": {},
    "rloo": {"rloo": True},
    "stopped": {"stop_after": 2},
}
WORKER = f"""
import json, os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_trl_callback as case
import groupwise.diagnostics.judge as judging
from groupwise.diagnostics.judgement import Judgement, State
from groupwise.integrations.trl import GroupwiseCallback

rank, own = int(os.environ["RANK"]), case.digits

def train(folder, *, rloo=False, stop_after=0):
    seen, said = [], []

    def digits(completions, **given):
        seen.append([given["prompts"], completions, own(completions)])
        return seen[-1][2]

    def judge(record, *, ended):
        return Judgement("demo", State.FAILING if record.name and len(record.steps) >= stop_after else State.OK, "enough")

    case.digits = digits
    trainer = case.make_trainer(folder, steps={STEPS}, rloo=rloo, per_device_train_batch_size={OWN})
    judging.judge = judge
    asked = {{"check_every": 1, "stop_on": "failing"}} if stop_after else {{"check_every": 0}}
    callback = GroupwiseCallback(trainer, say=said.append, **asked)
    trainer.add_callback(callback)
    trainer.train()
    return {{
        "seen": seen, "said": said, "records": callback.recorder is not None, "step": trainer.state.global_step,
        "weights": [float(one.detach().double().sum()) for one in trainer.model.parameters()],
        "processes": trainer.accelerator.num_processes,
    }}

home = Path(sys.argv[1])
told = {{name: train(home / name, **asked) for name, asked in json.loads(sys.argv[2]).items()}}
(home / f"rank{{rank}}.json").write_text(json.dumps(told))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs, trained one after the other by one pair of processes."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "worker.py").write_text(WORKER)
    launch = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
    ]
    environment = os.environ | {
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [*launch, str(folder / "worker.py"), str(folder), json.dumps(SCENES)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def checked(home: Path, scene: str, steps: int = STEPS) -> tuple[RunRecord, list[dict[str, Any]]]:
    """Every completion that either process rewarded is in the one record once, in the order of
    the processes, with its group.
    """
    ranks = [json.loads((home / f"rank{rank}.json").read_text())[scene] for rank in range(2)]
    assert [rank["processes"] for rank in ranks] == [2, 2]
    assert [rank["records"] for rank in ranks] == [True, False]  # the first process alone writes
    assert ranks[1]["said"] == []
    assert [path.name for path in (home / scene).glob("groupwise*")] == ["groupwise"]
    record = RunRecord.load(home / scene / "groupwise")
    assert record.steps["step"].to_list() == list(range(1, steps + 1))
    assert record.rollouts is not None
    assert len(record.rollouts) == steps * 2 * OWN
    for number in range(steps):
        ours = record.rollouts.filter(record.rollouts["step"] == number + 1)
        first, second = (rank["seen"][number] for rank in ranks)
        assert [len(first[1]), len(second[1])] == [OWN, OWN]
        for column, place in (("prompt", 0), ("completion", 1)):
            assert ours[column].to_list() == first[place] + second[place]
        assert ours["reward/digits"].to_list() == pytest.approx(first[2] + second[2])
        assert ours["prompt_id"].to_list() == [n // SIZE for n in range(2 * OWN)]
        row = record.steps.filter(record.steps["step"] == number + 1)
        assert row["prompts"].item() == 2 * OWN / SIZE
        spread = np.nanstd(ours["reward"].to_numpy().reshape(-1, SIZE), axis=1, ddof=1).mean()
        assert row["reward_std_within_group"].item() == pytest.approx(spread)
    return record, ranks


@pytest.mark.parametrize("scene", ["grpo", "rloo"])
def test_two_processes_make_one_record_of_all_completions(scene: str, home: Path) -> None:
    record, ranks = checked(home, scene)
    assert record.rollouts is not None
    assert record.rollouts.group_by("step", "prompt_id").n_unique()["prompt"].to_list() == [1] * (
        5 * STEPS
    )
    assert ranks[0]["weights"] == ranks[1]["weights"]
    assert not [sentence for sentence in ranks[0]["said"] if "failed" in sentence]


def test_both_processes_stop_at_what_the_first_finds(home: Path) -> None:
    _, ranks = checked(home, "stopped", steps=2)
    assert [rank["step"] for rank in ranks] == [2, 2]
