"""The callback on a trainer that is played: what needs no TRL.

The real trainers are in tests/optional/test_trl_callback.py.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.judgement import Cause, Certainty, Judgement, State
from groupwise.errors import InvalidArgumentError
from groupwise.integrations.generation import Generation, joined
from groupwise.integrations.live_judgement import LiveJudgement, change_in_words
from groupwise.integrations.trl import GroupwiseCallback, unfit
from groupwise.integrations.verl import Tap
from groupwise.prompts import prompt_of
from groupwise.record.run import RunRecord, steps_table

GROUPS, SIZE = 3, 4
ROLLOUTS = GROUPS * SIZE


class PlayedTrainer:
    """The attributes of TRL's trainer that are read, and a training loop that calls the events
    in its order.
    """

    def __init__(self, folder: Path, **changes: Any) -> None:
        arguments = {
            "output_dir": str(folder),
            "learning_rate": 1e-5,
            "logging_steps": 1,
            "gradient_accumulation_steps": 1,
            "run_name": None,
        }
        arguments |= {
            "steps_per_generation": 1,
            "num_iterations": 1,
            "per_device_train_batch_size": ROLLOUTS,
            "beta": 0.0,
        }
        self.args = SimpleNamespace(**(arguments | changes))
        self.args.to_dict = lambda: {
            key: value for key, value in vars(self.args).items() if not callable(value)
        }
        self.accelerator = SimpleNamespace(
            num_processes=1, process_index=0, unwrap_model=lambda model: model
        )
        self.model = SimpleNamespace(training=True, config=SimpleNamespace(_name_or_path="tiny"))
        self.num_generations = SIZE
        self.reward_func_names, self.reward_weights = ["right", "brief"], [1.0, 0.5]
        self.state = SimpleNamespace(
            global_step=0, is_world_process_zero=True, num_input_tokens_seen=0
        )
        self.control = SimpleNamespace(should_log=False, should_training_stop=False)
        self.callback_handler = SimpleNamespace(callbacks=[])
        self.entropy: float | None = 1.0
        self._metrics: dict[str, Any] = {"train": defaultdict(list), "eval": defaultdict(list)}
        self._logs: dict[str, Any] = {
            name: deque(maxlen=ROLLOUTS) for name in ("prompt", "completion", "advantages")
        }

    def add_callback(self, callback: Any) -> None:
        self.callback_handler.callbacks.append(callback)

    def parts_of(self, step: int) -> Any:
        part = np.random.default_rng(step).integers(0, 2, (ROLLOUTS, 2)).astype(float)
        part[0] = np.nan
        part[1, 1] = np.nan
        return part

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> Any:
        return self.parts_of(self.state.global_step + 1)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        texts = [f"c{n}" for n in range(ROLLOUTS)]
        part = self._calculate_rewards(
            inputs, texts, texts, [[0] * (n + 1) for n in range(ROLLOUTS)]
        )
        self._logs["prompt"].extend([f"p{n // SIZE}" for n in range(ROLLOUTS)])
        self._logs["completion"].extend(texts)
        self._logs["advantages"].extend(np.nan_to_num(part[:, 0]).tolist())
        self._metrics["train"]["reward"].append(
            float(np.nanmean(np.nansum(part * [1, 0.5], axis=1)[1:]))
        )
        self.state.num_input_tokens_seen += 100
        return {"completion_ids": texts}

    def event(self, name: str, **given: Any) -> None:
        for callback in self.callback_handler.callbacks:
            getattr(callback, name)(self.args, self.state, self.control, **given)

    def train(self, steps: int, *, after: int = 0) -> None:
        self.state.global_step = after
        self.event("on_train_begin")
        for step in range(after + 1, after + steps + 1):
            self.event("on_step_begin")
            self._generate_and_score_completions([])
            if self.entropy is not None:
                self._metrics["train"]["entropy"].append(self.entropy / step)
            optimizer = SimpleNamespace(param_groups=[{"lr": 1e-5 / step}])
            self.event("on_pre_optimizer_step", optimizer=optimizer)
            self.state.global_step = step
            self.control.should_log = step % self.args.logging_steps == 0
            self.event("on_step_end")
            if self.control.should_log:
                self.event(
                    "on_log", logs={"loss": 0.0, "grad_norm": 0.5, "learning_rate": 1e-5 / step}
                )
                self._metrics["train"].clear()
            if self.control.should_training_stop:
                break
        self.event("on_train_end")


def attached(trainer: Any, **options: Any) -> GroupwiseCallback:
    callback = GroupwiseCallback(trainer, **{"say": lambda _: None, "check_every": 0, **options})
    trainer.add_callback(callback)
    return callback


@pytest.mark.parametrize("logging_steps", [1, 3])
def test_every_step_is_recorded_with_its_groups(logging_steps: int, tmp_path: Path) -> None:
    trainer = PlayedTrainer(tmp_path, logging_steps=logging_steps)
    attached(trainer)
    trainer.train(7)
    record = RunRecord.load(tmp_path / "groupwise")
    assert record.steps["step"].to_list() == list(range(1, 8))
    assert record.steps["entropy"].to_list() == pytest.approx([1 / step for step in range(1, 8)])
    assert record.steps["learning_rate"].to_list() == pytest.approx(
        [1e-5 / step for step in range(1, 8)]
    )
    assert record.rollouts is not None
    for step in range(1, 8):
        ours, part = record.rollouts.filter(record.rollouts["step"] == step), trainer.parts_of(step)
        assert ours["reward/right"].to_list()[1:] == part[1:, 0].tolist()
        assert ours["reward"].to_list() == [None, *np.nansum(part * [1, 0.5], axis=1)[1:].tolist()]
        assert ours["prompt_id"].to_list() == [n // SIZE for n in range(ROLLOUTS)]
        assert ours["length"].to_list() == [n + 1 for n in range(ROLLOUTS)]
        assert ours["completion"].to_list() == [f"c{n}" for n in range(ROLLOUTS)]
        row = record.steps.filter(record.steps["step"] == step)
        assert row["reward"].item() == pytest.approx(ours["reward"].mean())
        assert row["missing_share"].item() == pytest.approx(1 / ROLLOUTS)
        groups = [
            ours.filter(ours["prompt_id"] == number)["reward"].drop_nulls()
            for number in range(GROUPS)
        ]
        assert row["reward_std_within_group"].item() == pytest.approx(
            np.mean([group.std() for group in groups])
        )
        assert row["dead_group_share"].item() == pytest.approx(
            np.mean([group.n_unique() == 1 for group in groups])
        )
    assert record.config.value("model") == "tiny"
    assert {meaning.column for meaning in record.meanings} >= {
        "reward",
        "entropy",
        "dead_group_share",
        "lag",
    }


def test_a_step_is_in_the_file_before_the_next_begins(tmp_path: Path) -> None:
    trainer = PlayedTrainer(tmp_path, logging_steps=3)
    attached(trainer)
    seen: list[int] = []

    class Look:
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            seen.append(len(RunRecord.load(tmp_path / "groupwise").steps))

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: None

    trainer.add_callback(Look())
    trainer.train(5)
    assert seen == [0, 1, 2, 3, 4]


def test_the_trainer_gets_its_own_methods_back(tmp_path: Path) -> None:
    trainer = PlayedTrainer(tmp_path)
    before = set(vars(trainer))
    attached(trainer)
    trainer.train(2)
    assert set(vars(trainer)) == before
    assert RunRecord.load(tmp_path / "groupwise").steps["step"].to_list() == [1, 2]


def test_texts_may_stay_out(tmp_path: Path) -> None:
    trainer = PlayedTrainer(tmp_path)
    attached(trainer, texts=False, record=tmp_path / "other")
    trainer.train(1)
    record = RunRecord.load(tmp_path / "other")
    assert record.rollouts is not None
    assert not {"prompt", "completion"} & set(record.rollouts.columns)


def test_what_will_not_work_is_said_at_the_start(tmp_path: Path) -> None:
    trainer = PlayedTrainer(tmp_path)
    callback = attached(trainer, check_every=None, stop_on="failing")
    trainer.train(0)
    said = "\n".join(callback.notices)
    assert "preparing the checks" in said


def test_a_state_to_stop_on_without_checks_is_said(tmp_path: Path) -> None:
    trainer = PlayedTrainer(tmp_path)
    callback = attached(trainer, check_every=0, stop_on="failing")
    trainer.train(0)
    assert "stop_on='failing' has no effect, because there are no checks" in callback.notices


def test_a_second_callback_and_one_of_another_trainer_do_nothing_and_say_so(tmp_path: Path) -> None:
    trainer, other = PlayedTrainer(tmp_path / "one"), PlayedTrainer(tmp_path / "two")
    first, second = attached(trainer), attached(trainer)
    stranger = GroupwiseCallback(trainer, say=lambda _: None)
    other.add_callback(stranger)
    trainer.train(2)
    other.train(2)
    assert "is the second one of this trainer" in second.notices[0]
    assert "was made for another trainer" in stranger.notices[0]
    assert not (tmp_path / "two" / "groupwise").exists()
    assert not any(
        "is the second" in notice or "another trainer" in notice for notice in first.notices
    )
    assert RunRecord.load(tmp_path / "one" / "groupwise").steps["step"].to_list() == [1, 2]


@pytest.mark.usefixtures("impatient")
def test_a_record_that_is_being_written_is_left_alone_and_the_run_is_recorded_beside_it(
    tmp_path: Path,
) -> None:
    first, second = PlayedTrainer(tmp_path), PlayedTrainer(tmp_path)
    callback, two = attached(first), attached(second)
    first.event("on_train_begin")
    second.train(3)
    assert callback.recorder is not None
    callback.recorder.append({"step": 1, "reward": 0.5})
    first.event("on_train_end")
    assert RunRecord.load(tmp_path / "groupwise").steps["step"].to_list() == [1]
    assert RunRecord.load(tmp_path / "groupwise-2").steps["step"].to_list() == [1, 2, 3]
    assert "expected to be the only writer" in two.notices[0]


def test_a_folder_that_cannot_be_written_costs_the_record_and_not_the_training(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("no folder")
    trainer = PlayedTrainer(tmp_path)
    callback = attached(trainer, record=tmp_path / "file")
    trainer.train(3)
    assert trainer.state.global_step == 3
    assert any("training goes on without a record" in notice for notice in callback.notices)
    assert (tmp_path / "file").read_text() == "no folder"


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (SimpleNamespace(), "expected a trainer, got SimpleNamespace"),
        (PlayedTrainer, "expected a trainer, got the class PlayedTrainer"),
    ],
)
def test_what_is_no_trainer_is_refused(wrong: Any, match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        GroupwiseCallback(wrong)


def test_a_trainer_older_than_the_oldest_that_works_is_told_both_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As GRPOTrainer of TRL 0.14, which scores inside its loss."""
    monkeypatch.setattr("groupwise.integrations.trl.version", lambda _: "0.14.0")
    old = SimpleNamespace(num_generations=4, _metrics={}, accelerator=None, args=None, state=None)
    says("integrations/callback/1", unfit(old))


@pytest.mark.parametrize(
    ("has", "sentence"),
    [
        (
            {},
            (
                "expected TRL's GRPOTrainer or RLOOTrainer, got SimpleNamespace, which samples no "
                "groups of completions"
            ),
        ),
        (
            {"num_generations": 8, "_generate_and_score_completions": print},
            "expected a trainer with _calculate_rewards, _logs",
        ),
    ],
)
def test_a_trainer_of_another_kind_trains_on_and_is_told(
    has: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    other = SimpleNamespace(
        add_callback=print, args=SimpleNamespace(output_dir=str(tmp_path)), **has
    )
    said: list[str] = []
    callback = GroupwiseCallback(other, stop_on="failing", say=said.append)
    state, control = (
        SimpleNamespace(global_step=0, is_world_process_zero=True),
        SimpleNamespace(should_training_stop=False),
    )
    for event in (
        "on_init_end",
        "on_train_begin",
        "on_step_begin",
        "on_pre_optimizer_step",
        "on_step_end",
        "on_log",
        "on_save",
        "on_train_end",
    ):
        getattr(callback, event)(other.args, state, control, logs={"loss": 1.0})
    assert len(said) == 1
    assert said[0].startswith(sentence)
    assert said[0].endswith("; nothing is recorded, and training goes on")
    assert not list(tmp_path.iterdir())
    assert not control.should_training_stop


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"stop_on": "critical"}, "expected warning or failing for stop_on, got 'critical'"),
        ({"check_every": -1}, "for check_every"),
    ],
)
def test_arguments_outside_their_domain_are_refused(
    options: dict[str, Any], match: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        GroupwiseCallback(PlayedTrainer(tmp_path), **options)


def judged(state: State, **more: Any) -> Judgement:
    """A judgement made by hand."""
    return Judgement("demo", state, "reward 0.8 → 0.0", **more)


def judged_by(monkeypatch: pytest.MonkeyPatch, judge: Callable[[RunRecord], Any]) -> None:
    """Let runs of a training be judged so; the played one that the judge is made ready with has
    no name.
    """

    def instead(record: RunRecord, *, ended: bool) -> Any:
        assert not ended, "a training goes on"
        return judge(record) if record.name else judged(State.OK)

    monkeypatch.setattr("groupwise.diagnostics.judge.judge", instead)


def worse(record: RunRecord) -> Judgement:
    """A state that gets worse with the run, and better in the end."""
    rows = len(record.steps)
    state = State.OK if rows < 4 or rows >= 16 else State.WARNING if rows < 8 else State.FAILING
    return judged(state, do="stop" if state is State.FAILING else "")


def test_a_change_of_the_state_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged_by(monkeypatch, worse)
    trainer = PlayedTrainer(tmp_path)
    callback = attached(trainer, check_every=2)
    trainer.train(20)
    assert [notice for notice in callback.notices if "reward 0.8" in notice] == [
        "warning at step 4 (was ok): reward 0.8 → 0.0",
        "failing at step 8 (was warning): reward 0.8 → 0.0; stop",
        "ok at step 16 (was failing): reward 0.8 → 0.0",
    ]


@pytest.mark.parametrize(("stop_on", "step"), [("warning", 4), ("failing", 8)])
def test_the_run_stops_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_on: str, step: int
) -> None:
    judged_by(monkeypatch, worse)
    trainer = PlayedTrainer(tmp_path)
    callback = attached(trainer, check_every=2, stop_on=stop_on)
    trainer.train(20)
    assert trainer.state.global_step == step
    (note,) = [notice for notice in callback.notices if "training stops" in notice]
    says("integrations/callback/5", note, step=step, state=stop_on)
    assert len(RunRecord.load(tmp_path / "groupwise").steps) == step


def test_a_run_of_two_processes_stops_where_the_other_one_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged_by(monkeypatch, lambda _: judged(State.OK))
    monkeypatch.setattr("groupwise.integrations.trl.processes", lambda _: 2)
    monkeypatch.setattr("groupwise.integrations.trl.gathered", lambda _, own: [*own, True])
    trainer = PlayedTrainer(tmp_path)
    attached(trainer, check_every=2, stop_on="failing")
    trainer.train(4)
    assert trainer.state.global_step == 2


def test_the_seconds_of_a_resumed_run_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(step=10.0)
    monkeypatch.setattr(
        "groupwise.integrations.trl.time", SimpleNamespace(perf_counter=clock.__next__)
    )
    for after in (0, 1):
        trainer = PlayedTrainer(tmp_path)
        attached(trainer)
        trainer.train(1, after=after)
    first, second = RunRecord.load(tmp_path / "groupwise").steps["seconds"]
    assert second > 1.5 * first > 0


def test_a_version_that_is_not_known_is_no_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for release, is_set in (("1.16.0", True), ("unknown", False)):
        monkeypatch.setattr("groupwise.integrations.trl.version", lambda _, own=release: own)
        trainer = PlayedTrainer(tmp_path / release)
        attached(trainer)
        trainer.train(1)
        config = RunRecord.load(tmp_path / release / "groupwise").config
        assert config.framework_version.known is is_set


def test_a_judge_that_fails_is_said_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged_by(monkeypatch, lambda _: 1 / 0)
    trainer = PlayedTrainer(tmp_path)
    callback = attached(trainer, check_every=1, stop_on="failing")
    trainer.train(3)
    assert trainer.state.global_step == 3
    (note,) = [notice for notice in callback.notices if "judged" in notice]
    says("integrations/callback/2", note)


def test_a_reward_that_dies_is_failing_by_the_judge_itself() -> None:
    said: list[str] = []
    live = LiveJudgement(said.append, stop_on="failing")
    reward = [0.8 + 0.01 * (-1) ** step for step in range(60)] + [0.0] * 40
    assert not live.look(RunRecord("demo", steps_table(range(50), {"reward": reward[:50]})), 49)
    assert live.look(RunRecord("demo", steps_table(range(100), {"reward": reward})), 99)
    assert said[-1].startswith("failing at step 99 (was ")
    assert "0.8" in said[-1]


@each_case(
    ("judgement", "before", "words"),
    [
        (judged(State.WARNING), None, "warning at step 7: reward 0.8 → 0.0"),
        (
            judged(
                State.FAILING,
                cause=Cause(Certainty.LIKELY, ("the policy ran away in length",)),
                do="restart from step 70",
            ),
            State.OK,
            (
                "failing at step 7 (was ok): reward 0.8 → 0.0; likely: the policy ran away in "
                "length; restart from step 70"
            ),
        ),
        (
            judged(
                State.WARNING,
                cause=Cause(Certainty.POSSIBLE, ("too small a group",)),
                do="raise G.",
            ),
            State.FAILING,
            "warning at step 7 (was failing): reward 0.8 → 0.0; possible: too small a group; raise G",
        ),
        (
            judged(
                State.FAILING,
                cause=Cause(
                    Certainty.CANNOT_TELL, ("harder data", "a broken verifier"), ("the texts",)
                ),
                do="log the texts",
            ),
            State.CANNOT_TELL,
            (
                "failing at step 7 (was cannot tell): reward 0.8 → 0.0; cannot tell: harder "
                "data, or a broken verifier; log the texts"
            ),
        ),
        (
            judged(State.CANNOT_TELL, cause=Cause(log=("a reward",))),
            None,
            "cannot tell at step 7: reward 0.8 → 0.0; log a reward",
        ),
        (
            judged(State.OK, do="x\x1b[2J\ny"),
            State.WARNING,
            "ok at step 7 (was warning): reward 0.8 → 0.0; x\ufffd[2J y",
        ),
    ],
)
def test_a_change_is_one_line_of_fact_cause_and_what_to_do(
    judgement: Judgement, before: State | None, words: str
) -> None:
    assert change_in_words(judgement, before, 7) == words


def test_changes_reach_the_tracker_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, ...]] = []
    states = iter((State.FAILING, State.WARNING, State.OK, State.CANNOT_TELL, State.FAILING))
    monkeypatch.setattr(
        "groupwise.diagnostics.judge.judge", lambda _, *, ended: judged(next(states))
    )
    levels = SimpleNamespace(INFO="i", WARN="w", ERROR="e")
    trackio: Any = ModuleType("trackio")
    trackio.AlertLevel, trackio.alert = (
        levels,
        lambda *, title, text, level: sent.append(("trackio", title, text, level)),
    )
    variables: Any = ModuleType("trackio.context_vars")
    variables.current_run = SimpleNamespace(get=lambda: None)
    wandb: Any = ModuleType("wandb")
    summary: dict[str, str] = {}
    wandb.AlertLevel = levels
    wandb.run = SimpleNamespace(
        alert=lambda *, title, text, level: sent.append(("wandb", title, text, level)),
        summary=summary,
    )
    for name, module in (
        ("trackio", trackio),
        ("trackio.context_vars", variables),
        ("wandb", wandb),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    said: list[str] = []
    live, record = LiveJudgement(said.append), RunRecord("demo", steps_table([1], {}))
    live.look(record, 3)
    variables.current_run = SimpleNamespace(get=lambda: "a run")
    live.look(record, 4)
    wandb.run = None
    live.look(record, 5)
    live.look(record, 6)
    trackio.alert = None
    live.look(record, 7)
    after = "reward 0.8 → 0.0"
    assert sent == [
        ("wandb", "failing", f"failing at step 3: {after}", "e"),
        ("trackio", "warning", f"warning at step 4 (was failing): {after}", "w"),
        ("wandb", "warning", f"warning at step 4 (was failing): {after}", "w"),
        ("trackio", "ok", f"ok at step 5 (was warning): {after}", "i"),
        ("trackio", "cannot tell", f"cannot tell at step 6 (was ok): {after}", "w"),
    ]
    assert summary == {"groupwise/state": "warning", "groupwise/headline": "reward 0.8 → 0.0"}
    assert said[-1].startswith("the alert was not delivered to the tracker: TypeError")


def test_generations_of_one_step_are_joined_with_their_groups_apart() -> None:
    generation = Generation(
        np.array([0.0, 1.0]), np.array([0, 0]), {"a": np.array([1.0, 2.0])}, completions=["x", "y"]
    )
    two = Generation(
        np.array([1.0, 1.0]), np.array([0, 1]), {"b": np.array([3.0, 4.0])}, completions=["z", "w"]
    )
    both = joined([generation, two])
    assert both.prompt_N.tolist() == [0, 0, 1, 2]
    assert both.completions == ["x", "y", "z", "w"]
    assert [row.get("reward/a") for row in both.rollouts()] == [1.0, 2.0, None, None]
    assert both.row()["dead_group_share"] == 0.0


def test_rewards_too_large_to_square_cost_no_step() -> None:
    row = Generation(np.array([1e200, -1e200, 1.0, 0.0]), np.array([0, 0, 1, 1])).row()
    assert (row["reward_std_within_group"], row["dead_group_share"], row["reward"]) == (
        np.inf,
        0.0,
        0.25,
    )


class ChattingTrainer(PlayedTrainer):
    """As TRL with chats: its logs hold their texts as the version likes, the reward functions see
    the messages.
    """

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        asked = [[{"role": "user", "content": f"{n // SIZE}+1="}] for n in range(ROLLOUTS)]
        said = [[{"role": "assistant", "content": f"c{n}"}] for n in range(ROLLOUTS)]
        said[-1] += [{"role": "tool", "content": "2"}, {"role": "assistant", "content": "2"}]
        self._calculate_rewards(inputs, asked, said, completion_ids_list=[[0]] * ROLLOUTS)
        self._logs["prompt"].extend(["user 0+1= assistant"] * ROLLOUTS)
        return {"prompt_mask": np.arange(ROLLOUTS * 9).reshape(ROLLOUTS, 9) % 9 < 7}


def test_a_chat_is_recorded_as_its_messages_with_the_tokens_that_the_model_read(
    tmp_path: Path,
) -> None:
    trainer = ChattingTrainer(tmp_path)
    attached(trainer)
    trainer.train(1)
    rollouts = RunRecord.load(tmp_path / "groupwise").rollouts
    assert rollouts is not None
    assert prompt_of(rollouts["prompt"][-1]) == [
        {"role": "user", "content": f"{(ROLLOUTS - 1) // SIZE}+1="}
    ]
    assert rollouts["completion"].to_list()[:-1] == [f"c{n}" for n in range(ROLLOUTS - 1)]
    last = prompt_of(rollouts["completion"][-1])
    assert [message["role"] for message in last] == ["assistant", "tool", "assistant"]  # type: ignore[index]
    assert rollouts["prompt_length"].to_list() == [7.0] * ROLLOUTS


def fails(*_: Any, **__: Any) -> Any:
    raise KeyError("something inside")


@each_case(
    ("where", "what"),
    [
        ("_metrics", "of_step"),
        ("_watch", "generation"),
        ("", "_flush"),
        ("", "_opened"),
        ("", "_count"),
        ("", "_record_so_far"),
    ],
)
def test_a_failure_inside_is_said_once_and_the_training_goes_on(
    where: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = PlayedTrainer(tmp_path)
    judged_by(monkeypatch, lambda _: judged(State.OK))
    callback = attached(trainer, check_every=1)
    monkeypatch.setattr(getattr(callback, where) if where else callback, what, fails)
    trainer.train(4)
    assert trainer.state.global_step == 4
    (note,) = [notice for notice in callback.notices if "recording failed" in notice]
    says("integrations/callback/3", note)
    assert "_calculate_rewards" not in vars(trainer)


def test_a_terminal_that_is_gone_does_not_end_the_training(tmp_path: Path) -> None:
    trainer = PlayedTrainer(tmp_path, learning_rate=0)
    attached(trainer, say=fails)
    trainer.train(2)
    assert RunRecord.load(tmp_path / "groupwise").steps["step"].to_list() == [1, 2]


def test_a_run_that_raised_and_goes_on_in_the_same_process_is_one_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = PlayedTrainer(tmp_path)
    callback = attached(trainer)
    with monkeypatch.context() as patched:

        def parts_of(step: int) -> Any:
            if step == 4:
                raise MemoryError
            return type(trainer).parts_of(trainer, step)

        patched.setattr(trainer, "parts_of", parts_of)
        with pytest.raises(MemoryError):
            trainer.train(6)
    trainer.train(4, after=2)
    assert RunRecord.load(tmp_path / "groupwise").steps["step"].to_list() == [1, 2, 3, 4, 5, 6]
    assert not (tmp_path / "groupwise-2").exists()
    assert not any("only writer" in notice for notice in callback.notices)
    assert "_calculate_rewards" not in vars(trainer)


def test_a_metric_named_like_a_column_of_ours_stands_beside_it(tmp_path: Path) -> None:
    trainer = PlayedTrainer(tmp_path)
    attached(trainer)
    own = trainer._calculate_rewards

    def logging(*given: Any) -> Any:
        for name in ("step", "seconds", "group_size", "lag", "learning_rate"):
            trainer._metrics["train"][name].append(7.5)
        return own(*given)

    trainer._calculate_rewards = logging  # type: ignore[method-assign, assignment]
    trainer.train(3)
    steps = RunRecord.load(tmp_path / "groupwise").steps
    assert steps["step"].to_list() == [1, 2, 3]
    assert steps["group_size"].to_list() == [SIZE] * 3
    assert steps["lag"].to_list() == [0.0] * 3
    assert steps["learning_rate"].to_list() == pytest.approx([1e-5, 1e-5 / 2, 1e-5 / 3])
    for name in ("step", "seconds", "group_size", "lag", "learning_rate"):
        assert steps[f"log/{name}"].to_list() == [7.5] * 3


def test_looks_that_cost_much_are_spaced_unless_asked_for_expressly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: dict[str, list[int]] = {"default": [], "asked": []}
    for name, options in (("default", {}), ("asked", {"check_every": 50})):

        def slow(record: RunRecord, name: str = name) -> Judgement:
            time.sleep(0.1)
            looks[name].append(len(record.steps))
            return judged(State.OK)

        judged_by(monkeypatch, slow)
        trainer = PlayedTrainer(tmp_path / name)
        callback = attached(trainer, **{"check_every": None, **options})
        trainer.train(150)
        assert any("the checks" in notice for notice in callback.notices)
    assert looks == {"default": [50], "asked": [50, 100, 150]}


class PlayedTap(Tap):
    """The tap of verl, with an estimator that hands rollouts over."""

    def rolled(self) -> None:
        one_NL = np.ones((4, 3))
        self.wrapped(
            lambda token_level_rewards, response_mask, index: (token_level_rewards, index)
        )(one_NL, one_NL, np.array([0, 0, 1, 1]))


@pytest.mark.usefixtures("impatient")
def test_verl_fails_and_goes_on_and_a_second_writer_stands_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPWISE_RECORD", str(tmp_path / "run"))
    said: list[str] = []
    played, two = PlayedTap(said.append), PlayedTap(said.append)
    for step in (1, 2, 3):
        for tap in (played, two):
            tap.rolled()
            if step == 2 and tap is played:
                tap._safely(fails)
            tap._safely(partial(tap.step, {"actor/entropy": 1.0, "step": 9.0, "reward": 9.0}, step))
    for folder in ("run", "run-2"):
        steps = RunRecord.load(tmp_path / folder).steps
        assert steps["step"].to_list() == [1, 2, 3]
        assert steps["reward"].to_list() == [3.0] * 3
        assert steps["log/step"].to_list() == [9.0] * 3
    for _ in range(5):
        played._safely(fails)
    assert "not recorded any further" in said[-1]
    played._broken = False
    played._safely(lambda: played.begin({}, "demo"))
    played.rolled()
    played._safely(lambda: played.step({}, 4))
    for tap in (played, two):
        tap.end()
    assert RunRecord.load(tmp_path / "run").steps["step"].to_list() == [1, 2, 3, 4]


def test_verl_judges_the_run_and_tells_a_change_of_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPWISE_RECORD", str(tmp_path / "run"))
    judged_by(
        monkeypatch,
        lambda record: judged(State.OK if len(record.steps) < 100 else State.FAILING, do="stop"),
    )
    monkeypatch.setattr("groupwise.integrations.live_judgement._SHARE", 1.0)
    said: list[str] = []
    tap = PlayedTap(said.append)
    for step in range(1, 151):
        tap.rolled()
        tap._safely(partial(tap.step, {"actor/entropy": 1.0}, step))
    tap.end()
    (note,) = [line for line in said if "reward 0.8" in line]
    says("integrations/callback/4", note)
    assert not any("failed" in line for line in said)


def test_a_look_is_held_against_the_time_since_verls_run_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPWISE_RECORD", str(tmp_path / "run"))
    monkeypatch.setattr("groupwise.integrations.verl.time.perf_counter", lambda: 1000.0)
    elapsed: list[float] = []
    monkeypatch.setattr(LiveJudgement, "due", lambda *_: True)
    monkeypatch.setattr(LiveJudgement, "affordable", lambda _, seconds: elapsed.append(seconds))
    tap = PlayedTap(lambda _: None)
    tap.rolled()
    tap.step({}, 1)
    tap.end()
    assert elapsed == [0.0]


def test_what_verl_pads_a_batch_with_is_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPWISE_RECORD", str(tmp_path / "run"))
    tap = Tap(lambda _: None)
    estimator = tap.wrapped(
        lambda token_level_rewards, response_mask, index: (token_level_rewards, index)
    )
    mask_NL = np.ones((8, 2))
    mask_NL[[5, 6, 7]] = 0  # an answer without a token, and two rows that only fill up
    reward_NL = mask_NL * [[0.5], [0], [0.5], [0.5], [1], [1], [1], [1]]
    estimator(reward_NL, mask_NL, np.array(["a", "a", "pads", "pads", "b", "b", "pad01", "pad01"]))
    tap.step({}, 1)
    tap.end()
    record = RunRecord.load(tmp_path / "run")
    row = record.steps.row(0, named=True)
    assert (row["prompts"], row["group_size"], row["reward"]) == (3, 2, (1 + 0 + 1 + 1 + 2 + 0) / 6)
    assert row["dead_group_share"] == pytest.approx(1 / 3)
    assert record.rollouts is not None
    assert record.rollouts["prompt_id"].to_list() == [0, 0, 1, 1, 2, 2]


def test_verls_seconds_begin_with_its_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPWISE_RECORD", str(tmp_path / "run"))
    monkeypatch.setattr(
        "groupwise.integrations.verl.time.perf_counter",
        iter([0.0, 100.0, *range(103, 300)]).__next__,
    )
    tap = PlayedTap(lambda _: None)
    tap.begin({}, "demo")
    tap.rolled()
    tap.step({}, 1)
    tap.end()
    assert RunRecord.load(tmp_path / "run").steps["seconds"][0] >= 3.0


def test_a_validation_before_a_resumed_run_adds_to_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPWISE_RECORD", str(tmp_path / "run"))
    for first, last in ((1, 3), (3, 4)):
        tap = PlayedTap(lambda _: None)
        if first > 1:
            tap.step({"val-core/x/acc/mean@1": 0.75}, first - 1)
            assert RunRecord.load(tmp_path / "run").steps["step"].to_list() == [1, 2]
        for step in range(first, last + 1):
            tap.rolled()
            tap.step({"actor/entropy": float(step)}, step)
        tap.end()
    record = RunRecord.load(tmp_path / "run")
    assert record.steps["step"].to_list() == [1, 2, 3, 4]
    assert record.steps["actor/entropy"].to_list() == [1.0, 2.0, 3.0, 4.0]
    assert record.steps["val-core/x/acc/mean@1"].to_list() == [None, 0.75, None, None]
    assert record.rollouts is not None
    assert record.rollouts.group_by("step", maintain_order=True).len().rows() == [
        (1, 4),
        (2, 4),
        (3, 4),
        (4, 4),
    ]
    assert record.rollouts.filter(pl.col("step") == 2)["reward"].to_list() == [3.0] * 4
    assert (np.diff(record.steps["seconds"].to_numpy()) > 0).all()


class UnslothGRPOTrainer(PlayedTrainer):
    """As unsloth's compiled trainers: TRL's class under another name, its generation wrapped,
    the logs where TRL has them.
    """

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        return {**super()._generate_and_score_completions(inputs), "num_items_in_batch": ROLLOUTS}


class SwiftGRPOTrainer(PlayedTrainer):
    """As ms-swift's: generation and rewards its own under TRL's names, rewards by inputs alone,
    and no texts or advantages in `_logs`.
    """

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self._logs = {}
        return [{"completion_ids": self._calculate_rewards([f"c{n}" for n in range(ROLLOUTS)])}]

    def _calculate_rewards(self, inputs: Any) -> Any:  # type: ignore[override]
        return self.parts_of(self.state.global_step + 1)


@pytest.mark.parametrize("kind", [UnslothGRPOTrainer, SwiftGRPOTrainer])
def test_subclasses_that_override_what_is_looked_at_are_recorded(
    kind: type[PlayedTrainer], tmp_path: Path
) -> None:
    """Their shapes are played: neither unsloth nor ms-swift is installed anywhere this runs."""
    trainer = kind(tmp_path)
    callback = attached(trainer)
    trainer.train(3)
    record = RunRecord.load(tmp_path / "groupwise")
    assert record.steps["step"].to_list() == [1, 2, 3]
    assert record.rollouts is not None
    for step in (1, 2, 3):
        ours = record.rollouts.filter(record.rollouts["step"] == step)
        assert ours["reward/right"].to_list()[1:] == trainer.parts_of(step)[1:, 0].tolist()
        assert ours["prompt_id"].to_list() == [n // SIZE for n in range(ROLLOUTS)]
    assert ("completion" in record.rollouts.columns) == (kind is UnslothGRPOTrainer)
    assert not [sentence for sentence in callback.notices if "failed" in sentence]


def test_a_subclass_without_the_methods_that_are_looked_at_is_told_with_its_name(
    tmp_path: Path,
) -> None:
    class OtherGRPOTrainer(PlayedTrainer):
        _calculate_rewards = property(lambda self: self.gone)

    callback = GroupwiseCallback(OtherGRPOTrainer(tmp_path), say=lambda _: None)
    callback.on_train_begin(None, SimpleNamespace(global_step=0), None)
    assert callback.notices[0].startswith(
        "expected a trainer with _calculate_rewards, got OtherGRPOTrainer"
    )
    assert callback.recorder is None
