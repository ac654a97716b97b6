"""The callback on the real trainers: TRL's `GRPOTrainer` and `RLOOTrainer` on a tiny model with
random weights, on the CPU.

TRL is not in the test environment, so this is skipped there, visibly. To run it: an environment
with TRL,

    python3 -m venv .venv-trl && .venv-trl/bin/pip install -c constraints.txt -e '.[trl,test]'
    .venv-trl/bin/python -m pytest tests/optional/test_trl_callback.py -s

What is recorded is held against the trainer's own log and completions, and the trained weights
against a run without the callback.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from groupwise.diagnostics.judgement import Judgement, State
from groupwise.errors import GroupwiseError
from groupwise.gradients.language_models import tokens_of
from groupwise.integrations.trl import GroupwiseCallback
from groupwise.readers import run_record
from groupwise.record.recorder import identity_in
from groupwise.record.run import RunRecord

pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # what the trainers and their libraries warn of among themselves
torch = pytest.importorskip("torch", reason="torch is not installed: see the head of this file")
pytest.importorskip("trl", reason="TRL is not installed: see the head of this file")

GROUPS, SIZE = 8, 8
REPOSITORY = Path(__file__).resolve().parents[2]


def load_recipe() -> Any:
    """The script that records the embedded run: it knows how to make a tiny model and a
    tokenizer.
    """
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    spec = importlib.util.spec_from_file_location(
        "record_trl_run", REPOSITORY / "scripts" / "record_trl_run.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recipe = load_recipe()


def digits(completions: list[str], **_: Any) -> list[float]:
    """Share of a completion that is digits: what a model with random weights can learn."""
    return [
        sum(character.isdigit() for character in text) / max(len(text), 1) for text in completions
    ]


def even(completions: list[str], **_: Any) -> list[float | None]:
    """1 where the length is even; no verdict on an empty completion."""
    return [float(len(text) % 2 == 0) if text else None for text in completions]


def make_trainer(folder: Path, *, rloo: bool = False, steps: int = 6, **settings: Any) -> Any:
    trl, transformers = importlib.import_module("trl"), importlib.import_module("transformers")
    transformers.set_seed(0)
    config, kind = (trl.RLOOConfig, trl.RLOOTrainer) if rloo else (trl.GRPOConfig, trl.GRPOTrainer)
    tokenizer = recipe.build_tokenizer()
    given = {
        "output_dir": str(folder),
        "max_steps": steps,
        "per_device_train_batch_size": GROUPS * SIZE,
        "num_generations": SIZE,
        "max_completion_length": 6,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "reward_weights": [1.0, 0.25],
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
        "save_strategy": "no",
        "beta": 0.0,
    }
    rows, held_out = recipe.problems(0)
    return kind(
        model=recipe.build_model(tokenizer),
        reward_funcs=[digits, even],
        args=config(**{**given, **settings}),
        train_dataset=rows,
        eval_dataset=held_out.select(range(GROUPS)),
        processing_class=tokenizer,
    )


def recorded(
    folder: Path,
    *,
    rloo: bool = False,
    resume: bool = False,
    steps: int = 6,
    callback: Any = None,
    **settings: Any,
) -> Any:
    """A trainer that has trained, and its callback."""
    trainer = make_trainer(folder, rloo=rloo, steps=steps, **settings)
    attached = GroupwiseCallback(trainer, **{"say": lambda _: None, **(callback or {})})
    trainer.add_callback(attached)
    trainer.train(resume_from_checkpoint=True if resume else None)
    return trainer, attached


@pytest.mark.parametrize("rloo", [False, True], ids=["grpo", "rloo"])
def test_the_record_is_what_the_trainer_saw(rloo: bool, tmp_path: Path) -> None:
    trainer, _ = recorded(tmp_path, rloo=rloo)
    record = run_record(tmp_path / "groupwise")
    logged = {row["step"]: row for row in trainer.state.log_history if "loss" in row}
    assert record.steps["step"].to_list() == list(logged) == list(range(1, 7))
    for key in (
        "reward",
        "reward_std",
        "entropy",
        "grad_norm",
        "learning_rate",
        "completions/mean_length",
        "rewards/even/mean",
    ):
        assert record.steps[key].to_list() == pytest.approx(
            [row[key] for row in logged.values()], rel=1e-6
        ), key
    assert record.rollouts is not None
    assert len(record.rollouts) == 6 * GROUPS * SIZE
    assert record.config.value("group_size") == SIZE
    assert record.config.value("prompts_per_step") == GROUPS
    assert record.config.value("framework") == "trl"
    ours = record.rollouts.filter(record.rollouts["step"] == 6)
    logs = trainer._logs  # those of the last step; RLOO writes no file of completions
    assert ours["prompt"].to_list() == list(logs["prompt"])
    assert ours["completion"].to_list() == list(logs["completion"])
    np.testing.assert_allclose(
        ours["advantage"].to_numpy(), np.array(logs["advantages"]), rtol=1e-6
    )
    for name in ("digits", "even"):
        np.testing.assert_allclose(
            ours[f"reward/{name}"].to_numpy(), np.array(logs["rewards"][name]), rtol=1e-6
        )
    total = ours["reward/digits"].fill_null(0) + 0.25 * ours["reward/even"].fill_null(0)
    np.testing.assert_allclose(ours["reward"].to_numpy(), total.to_numpy(), rtol=1e-6)
    assert ours.group_by("prompt_id").len()["len"].to_list() == [SIZE] * GROUPS
    assert record.steps["completions/mean_length"][5] == pytest.approx(ours["length"].mean())
    assert record.steps["tokens"].to_list() == [row["num_tokens"] for row in logged.values()]


@pytest.mark.parametrize("more", [{}, {"thinks": True}], ids=["as_it_is", "with_more"])
def test_a_chat_is_recorded_as_the_model_read_it_or_cannot_be_scored(
    more: dict[str, bool], tmp_path: Path
) -> None:
    trainer = make_trainer(tmp_path, steps=2, chat_template_kwargs=more)
    reader, read = trainer.processing_class, []
    reader.chat_template = (
        "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if thinks %}=={% endif %}"
    )
    trainer.train_dataset = trainer.train_dataset.map(
        lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]}
    )
    trainer.reward_funcs[0] = lambda completions, **_: digits(
        [said[0]["content"] for said in completions]
    )
    trainer.reward_funcs[1] = lambda completions, **_: [None] * len(completions)
    own = trainer._generate_and_score_completions

    def kept(*given: Any) -> Any:
        output = own(*given)
        for ids, mask in zip(output["prompt_ids"], output["prompt_mask"], strict=True):
            read.append(ids[mask.bool()].tolist())
        return output

    trainer._generate_and_score_completions = kept
    trainer.add_callback(GroupwiseCallback(trainer, say=lambda _: None))
    trainer.train()
    rows = RunRecord.load(tmp_path / "groupwise").rollouts
    assert rows is not None
    texts = [rows[name].to_list() for name in ("prompt", "completion")]
    facts: Any = {"ends": [None] * len(rows), "read": rows["prompt_length"]}
    loaded: Any = SimpleNamespace(tokenizer=reader)
    if more:
        with pytest.raises(GroupwiseError, match=f"got {len(rows)} other prompts"):
            tokens_of(loaded, *texts, **facts)
    else:
        assert tokens_of(loaded, *texts, **facts)[0] == read
        said = [messages[0]["content"] for messages in trainer._logs["completion"]]
        assert texts[1][-len(said) :] == said


def test_every_step_is_recorded_though_the_trainer_logs_every_fourth(tmp_path: Path) -> None:
    trainer, _ = recorded(tmp_path / "seldom", steps=8, logging_steps=4)
    each, _ = recorded(tmp_path / "each", steps=8)
    seldom, full = (
        RunRecord.load(tmp_path / "seldom" / "groupwise"),
        RunRecord.load(tmp_path / "each" / "groupwise"),
    )
    for key in (
        "reward",
        "entropy",
        "completions/mean_length",
        "learning_rate",
        "frac_reward_zero_std",
    ):
        assert seldom.steps[key].to_list() == full.steps[key].to_list()
    assert seldom.steps["grad_norm"].is_not_null().to_list() == [False] * 3 + [True] + [
        False
    ] * 3 + [True]
    assert "loss" not in seldom.steps.columns
    assert len(trainer.state.log_history) < len(each.state.log_history)


def weights(trainer: Any) -> Any:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


def test_the_training_is_the_same_to_the_last_bit_without_the_callback(tmp_path: Path) -> None:
    plain = make_trainer(tmp_path / "plain")
    plain.train()
    watched, _ = recorded(tmp_path / "watched")
    assert torch.equal(weights(plain), weights(watched))


def test_a_resumed_run_is_one_record(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": 3}
    recorded(tmp_path, steps=5, **settings)
    assert RunRecord.load(tmp_path / "groupwise").steps["step"].to_list() == [1, 2, 3, 4, 5]
    shutil.rmtree(tmp_path / "checkpoint-5")  # that of the end: a run that was cut off has none
    _, callback = recorded(tmp_path, steps=7, resume=True, **settings)
    record = RunRecord.load(tmp_path / "groupwise")
    assert record.steps["step"].to_list() == [1, 2, 3, 4, 5, 6, 7]
    assert (np.diff(record.steps["seconds"].to_numpy()) > 0).all()
    assert "resumed after step 3: steps 4 to 5 will be replaced" in record.notes
    assert callback.recorder is not None
    recorded(tmp_path, steps=2)
    assert RunRecord.load(tmp_path / "groupwise").steps["step"].to_list() == [1, 2]
    assert RunRecord.load(tmp_path / "groupwise.before-1").steps["step"].to_list() == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]


def test_the_checkpoints_name_the_record_and_a_resumed_run_finds_it(tmp_path: Path) -> None:
    """Another run has taken the place of the record meanwhile; it is left alone."""
    settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    recorded(tmp_path, steps=4, **settings)
    number = identity_in(tmp_path / "groupwise")
    assert number is not None
    kept = json.loads((tmp_path / "checkpoint-4" / "trainer_state.json").read_text())[
        "stateful_callbacks"
    ]
    assert kept["groupwise"] == {"record": number.id}
    recorded(tmp_path, steps=1)
    _, callback = recorded(tmp_path, steps=6, resume=True, **settings)
    assert RunRecord.load(tmp_path / "groupwise").steps["step"].to_list() == [1]
    assert RunRecord.load(tmp_path / "groupwise.before-1").steps["step"].to_list() == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert any("belongs to another run" in notice for notice in callback.notices)


def test_a_row_without_rollouts_has_no_mean_over_other_steps(tmp_path: Path) -> None:
    recorded(tmp_path, steps=8, num_iterations=2, logging_steps=4)
    steps = RunRecord.load(tmp_path / "groupwise").steps
    for key in (
        "reward",
        "reward_std",
        "frac_reward_zero_std",
        "rewards/digits/mean",
        "completions/mean_length",
    ):
        assert steps[key].is_not_null().to_list() == [True, False] * 4, key
    assert steps["entropy"].null_count() == 0
    assert steps["grad_norm"].is_not_null().to_list() == [False, False, False, True] * 2


def test_evaluation_is_in_the_row_of_its_step(tmp_path: Path) -> None:
    trainer, _ = recorded(
        tmp_path,
        steps=4,
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=GROUPS * SIZE,
    )
    record = RunRecord.load(tmp_path / "groupwise")
    logged = [row["eval_reward"] for row in trainer.state.log_history if "eval_reward" in row]
    assert record.steps["eval_reward"].drop_nulls().to_list() == pytest.approx(logged)
    assert record.steps["eval_reward"].is_not_null().to_list() == [False, True, False, True]
    assert record.rollouts is not None
    assert (
        record.rollouts.group_by("step").len().sort("step")["len"].to_list() == [GROUPS * SIZE] * 4
    )


def test_rollouts_that_serve_several_updates_are_recorded_once(tmp_path: Path) -> None:
    recorded(tmp_path, steps=6, num_iterations=2)
    record = RunRecord.load(tmp_path / "groupwise")
    assert record.steps["lag"].to_list() == [0, 1] * 3
    assert record.rollouts is not None
    assert sorted(set(record.rollouts["step"].to_list())) == [1, 3, 5]


def test_several_generations_a_step_are_joined(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "per_device_train_batch_size": SIZE * 2,
        "gradient_accumulation_steps": 4,
        "steps_per_generation": 2,
    }
    recorded(tmp_path, steps=2, **settings)
    record = RunRecord.load(tmp_path / "groupwise")
    assert record.steps["prompts"].to_list() == [8.0, 8.0]
    assert record.rollouts is not None
    assert sorted(
        set(record.rollouts.filter(record.rollouts["step"] == 2)["prompt_id"].to_list())
    ) == list(range(8))


def test_a_group_size_changed_in_mid_run_is_noted(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, steps=4)
    callback = GroupwiseCallback(trainer, say=lambda _: None)
    trainer.add_callback(callback)

    class Change(importlib.import_module("transformers").TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            trainer.num_generations = 4 if state.global_step >= 2 else SIZE

    trainer.add_callback(Change())
    trainer.train()
    record = RunRecord.load(tmp_path / "groupwise")
    assert record.steps["group_size"].to_list() == [8.0, 8.0, 4.0, 4.0]
    assert "the group size changed from 8 to 4 at step 3" in record.notes
    assert record.config.value("group_size") == 4


def test_training_stops_where_a_failing_run_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(record: RunRecord, *, ended: bool) -> Judgement:
        assert not ended
        return Judgement(
            "demo", State.FAILING if record.name and len(record.steps) >= 4 else State.OK, "enough"
        )

    monkeypatch.setattr("groupwise.diagnostics.judge.judge", judge)
    trainer, callback = recorded(
        tmp_path, steps=10, callback={"check_every": 2, "stop_on": "failing"}
    )
    assert trainer.state.global_step == 4
    assert "failing at step 4 (was ok): enough" in callback.notices
    assert len(RunRecord.load(tmp_path / "groupwise").steps) == 4


def test_a_trainer_of_another_kind_trains_on_and_is_told(tmp_path: Path) -> None:
    transformers = importlib.import_module("transformers")

    class Line(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(1, 1)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"loss": ((self.line(x) - labels) ** 2).mean()}

    rows = [{"x": torch.ones(1), "labels": torch.zeros(1)}] * 4
    args = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=3, report_to="none", use_cpu=True, save_strategy="no"
    )
    other = transformers.Trainer(model=Line(), args=args, train_dataset=rows)
    callback = GroupwiseCallback(other)
    other.add_callback(callback)
    other.train()
    assert other.state.global_step == 3
    assert callback.notices[0].startswith(
        "expected TRL's GRPOTrainer or RLOOTrainer, got Trainer, which samples no groups"
    )
    assert len(callback.notices) == 1
    assert not (tmp_path / "groupwise").exists()


def test_a_full_disk_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise.record import journal

    own, step = journal.Journal.append, {"now": 0}

    def full(self: Any, entry: Any, *, sync: bool = True) -> None:
        step["now"] += 1
        if 3 <= step["now"] <= 5:
            raise GroupwiseError("expected to write the journal, got No space left on device")
        own(self, entry, sync=sync)

    monkeypatch.setattr(journal.Journal, "append", full)
    _, callback = recorded(tmp_path, steps=8)
    assert sum("No space left" in notice for notice in callback.notices) == 1
    assert RunRecord.load(tmp_path / "groupwise").steps["step"].to_list() == list(range(1, 9))


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_trl_callback as case
print("READY", flush=True)
case.recorded(Path({folder!r}), steps=1000, save_strategy="steps", save_steps=4, save_total_limit=2, resume={resume})
"""


def killed(folder: Path, *, resume: bool, wait: Callable[[], bool]) -> None:
    """Train in a process of its own and kill it once `wait` says so."""
    for checkpoint in folder.glob("checkpoint-*"):
        if not (
            checkpoint / "trainer_state.json"
        ).exists():  # it comes last: the kill came while the trainer saved
            shutil.rmtree(checkpoint)
    code = SCRIPT.format(tests=str(Path(__file__).parent), folder=str(folder), resume=resume)
    said = folder.parent / f"{folder.name}.txt"
    with said.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.DEVNULL, stderr=log
        )
    try:
        deadline = time.monotonic() + 300
        while not wait() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.poll() is None, said.read_text()[-2000:]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_a_killed_run_goes_on_from_its_checkpoint_with_every_step_once(tmp_path: Path) -> None:
    def steps() -> list[int]:
        steps: list[int] = (
            RunRecord.load(tmp_path / "groupwise").steps["step"].to_list()
            if (tmp_path / "groupwise").exists()
            else []
        )
        return steps

    killed(tmp_path, resume=False, wait=lambda: len(steps()) >= 10)
    before = steps()
    assert before == list(range(1, len(before) + 1))
    killed(tmp_path, resume=True, wait=lambda: len(steps()) >= len(before) + 6)
    record = RunRecord.load(tmp_path / "groupwise")
    assert record.steps["step"].to_list() == list(range(1, len(record.steps) + 1))
    assert record.rollouts is not None
    assert record.rollouts.group_by("step").len()["len"].to_list() == [GROUPS * SIZE] * len(
        record.steps
    )
