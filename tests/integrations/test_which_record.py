"""Which record a resumed run goes on with, what of it is kept, and a disk that is full when the
training begins.
"""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.golden.sentences import says
from tests.integrations.test_callback import PlayedTrainer, attached, judged, judged_by

from groupwise.diagnostics.judgement import Judgement, State
from groupwise.errors import GroupwiseError
from groupwise.integrations.generation import MEANINGS, Generation
from groupwise.integrations.trl import GroupwiseCallback
from groupwise.integrations.verl import Tap
from groupwise.record.recorder import Identity, Recorder, home_of, identity_in, opened
from groupwise.record.run import RecordWriter, RunConfig, RunRecord


def steps_in(folder: Path) -> list[int]:
    return RunRecord.load(folder).steps["step"].to_list()


class Checkpoints:
    """What a trainer's checkpoints keep of its state, written every fifth step."""

    def __init__(self) -> None:
        self.kept: dict[int, dict[str, Any]] = {}

    def trained(
        self, trainer: PlayedTrainer, steps: int, *, after: int = 0, killed: bool = False
    ) -> GroupwiseCallback:
        """Let a trainer go on from a checkpoint; one that is killed lets go of its record and
        says nothing more.
        """
        trainer.state.stateful_callbacks = dict(self.kept.get(after, {}))
        match = next(
            callback
            for callback in trainer.callback_handler.callbacks
            if isinstance(callback, GroupwiseCallback)
        )

        def saved(*_: Any, **__: Any) -> None:
            if trainer.state.global_step % 5 == 0:
                self.kept[trainer.state.global_step] = dict(trainer.state.stateful_callbacks)

        nothing = {
            f"on_{name}": lambda *_, **__: None
            for name in ("train_begin", "step_begin", "pre_optimizer_step", "log", "train_end")
        }
        trainer.callback_handler.callbacks.append(
            SimpleNamespace(**{**nothing, "on_step_end": saved})
        )
        trainer.train(steps, after=after)
        return match


@pytest.mark.usefixtures("impatient")
def test_a_run_that_was_sent_beside_goes_on_in_its_own_record(tmp_path: Path) -> None:
    """Two runs on one folder; both end, and the second is resumed first, when the first one's
    record is free.
    """
    shared = tmp_path / "shared"
    first, second = PlayedTrainer(tmp_path / "one"), PlayedTrainer(tmp_path / "two")
    callback = attached(first, record=shared)
    attached(second, record=shared)
    first.event("on_train_begin")
    Checkpoints().trained(second, 7)
    assert callback.recorder is not None
    for step in range(1, 9):
        callback.recorder.append({"step": step, "reward": 0.25})
    callback.recorder.close()
    for name, after, last in (("two", 5, 12), ("one", 8, 10)):
        trainer = PlayedTrainer(tmp_path / name)
        attached(trainer, record=shared)
        Checkpoints().trained(trainer, last - after, after=after)
    assert steps_in(shared) == list(range(1, 11))
    assert RunRecord.load(shared).steps["reward"].to_list()[:8] == [0.25] * 8
    assert steps_in(tmp_path / "shared-2") == list(range(1, 13))
    assert not (tmp_path / "shared-3").exists()


@pytest.mark.usefixtures("impatient")
def test_two_runs_of_one_output_folder_are_told_apart_by_their_checkpoints(tmp_path: Path) -> None:
    """The same script started twice: one folder of checkpoints, and the record that belongs to
    those that are there is gone on with.
    """
    first, second, checkpoints = PlayedTrainer(tmp_path), PlayedTrainer(tmp_path), Checkpoints()
    callback = attached(first)
    attached(second)
    first.event("on_train_begin")
    checkpoints.trained(second, 7)
    assert callback.recorder is not None
    callback.recorder.append({"step": 1, "reward": 0.25})
    callback.recorder.close()
    third = PlayedTrainer(tmp_path)
    attached(third)
    checkpoints.trained(third, 4, after=5)
    assert steps_in(tmp_path / "groupwise") == [1]
    assert steps_in(tmp_path / "groupwise-2") == list(range(1, 10))


def test_a_record_that_a_new_run_moved_aside_is_gone_on_with_by_its_own(tmp_path: Path) -> None:
    checkpoints, fresh = Checkpoints(), Checkpoints()
    for steps, after, kept in ((7, 0, checkpoints), (3, 0, fresh), (4, 5, checkpoints)):
        trainer = PlayedTrainer(tmp_path)
        callback = attached(trainer)
        kept.trained(trainer, steps, after=after)
    assert steps_in(tmp_path / "groupwise") == [1, 2, 3]
    assert steps_in(tmp_path / "groupwise.before-1") == list(range(1, 10))
    (note,) = [notice for notice in callback.notices if "belongs to another run" in notice]
    says("integrations/which_record/6", note, folder=tmp_path)


def test_a_run_whose_record_is_nowhere_begins_one_and_leaves_the_others_alone(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    for name, after in (("one", 0), ("two", 5)):
        trainer = PlayedTrainer(tmp_path / name)
        callback = attached(trainer, record=shared)
        Checkpoints().trained(trainer, 6, after=after)
    assert steps_in(shared) == list(range(1, 7))
    assert steps_in(tmp_path / "shared-2") == list(range(6, 12))
    (note,) = RunRecord.load(tmp_path / "shared-2").notes
    says("integrations/which_record/1", note)
    assert any(
        "belongs to another run; training goes on, recorded in" in notice
        for notice in callback.notices
    )


def test_a_record_from_before_there_were_identities_is_gone_on_with_and_gets_one(
    tmp_path: Path,
) -> None:
    with RecordWriter(tmp_path / "groupwise") as writer:
        for step in range(1, 8):
            writer.append({"step": step, "reward": 0.5})
    assert identity_in(tmp_path / "groupwise") is None
    trainer = PlayedTrainer(tmp_path)
    attached(trainer)
    Checkpoints().trained(trainer, 4, after=5)
    assert steps_in(tmp_path / "groupwise") == list(range(1, 10))
    assert identity_in(tmp_path / "groupwise") is not None


def test_a_run_that_was_moved_with_its_record_finds_it(tmp_path: Path) -> None:
    trainer = PlayedTrainer(tmp_path / "here")
    attached(trainer)
    trainer.train(4)
    (tmp_path / "here").rename(tmp_path / "there")
    moved = PlayedTrainer(tmp_path / "there")
    attached(moved)
    moved.train(2, after=4)
    assert steps_in(tmp_path / "there" / "groupwise") == [1, 2, 3, 4, 5, 6]
    assert home_of(tmp_path / "here", tmp_path / "here" / "x") == home_of(
        tmp_path / "there", tmp_path / "there" / "x"
    )
    assert home_of(tmp_path / "here", tmp_path / "x") != home_of(tmp_path / "there", tmp_path / "x")


def test_the_identity_of_a_damaged_record_is_none(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('1119ad91 10 {"about":1}\nnothing\n')
    assert identity_in(tmp_path) is None
    assert identity_in(tmp_path / "nowhere") is None


CONFIG = RunConfig().with_settings({"group_size": 8}, "the trainer's arguments")


def recorded(folder: Path, sizes: dict[int, float], *, after: int = 0, note: str = "") -> RunRecord:
    recorder = Recorder(folder, config=CONFIG, say=lambda _: None)
    recorder.open(after)
    if note:
        recorder.note(note)
    for step, size in sizes.items():
        recorder.append({"step": step, "group_size": size})
    recorder.close()
    return RunRecord.load(folder)


def test_a_resumed_record_keeps_its_notes_and_the_group_size_in_force(tmp_path: Path) -> None:
    before = recorded(tmp_path / "run", {1: 8.0, 2: 8.0, 3: 4.0, 4: 4.0}, note="said by hand")
    by_hand, changed = before.notes
    assert by_hand == "said by hand"
    says("integrations/which_record/4", changed)
    after = recorded(tmp_path / "run", {5: 4.0, 6: 4.0}, after=4)
    assert after.notes == before.notes
    assert after.config.value("group_size") == 4
    again = recorded(tmp_path / "run", {7: 2.0}, after=6)
    assert again.notes[:-1] == before.notes
    says("integrations/which_record/5", again.notes[-1])
    assert again.config.value("group_size") == 2


def test_a_change_that_is_not_done_again_is_forgotten(tmp_path: Path) -> None:
    recorded(tmp_path / "run", {1: 8.0, 2: 8.0, 3: 4.0})
    again = recorded(tmp_path / "run", {3: 8.0}, after=2)
    (note,) = again.notes
    says("integrations/which_record/2", note)
    assert again.config.value("group_size") == 8


def test_uneven_groups_are_noted_once_and_leave_the_setting_alone(tmp_path: Path) -> None:
    said: list[str] = []
    recorder = Recorder(tmp_path / "run", config=CONFIG, say=said.append)
    recorder.open()
    for step in range(1, 401):
        uneven = {"uneven_group_share": 0.5} if step % 4 else {}
        recorder.append(
            {"step": step, "group_size": 8.0 if not uneven else 3.0 + step % 2 / 2, **uneven}
        )
    recorder.close()
    record = RunRecord.load(tmp_path / "run")
    (note,) = said
    says("integrations/which_record/3", note)
    assert record.notes == tuple(said)
    assert record.config.value("group_size") == 8
    assert record.steps["group_size"].to_list()[:4] == [3.5, 3.0, 3.5, 8.0]


def test_a_group_size_that_goes_on_changing_is_noted_so_often_and_no_more(tmp_path: Path) -> None:
    def size(steps: int) -> int:
        record = recorded(
            tmp_path / str(steps), {step: float(4 + 4 * (step % 2)) for step in range(1, steps + 1)}
        )
        assert sum("changed from" in note for note in record.notes) == 20
        assert "keeps changing" in record.notes[-1]
        assert len(record.notes) == 21
        assert record.config.value("group_size") == 4 + 4 * (steps % 2)
        return (tmp_path / str(steps) / "journal.jsonl").stat().st_size

    half, whole = size(200), size(400)
    assert whole < 2 * half


class FullFrom:
    """A disk on which nothing more fits while `full`: no folder is made and no byte written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, self.tries = True, 0
        make, write = Path.mkdir, Path.open

        def mkdir(path: Path, *given: Any, **named: Any) -> None:
            if path.name.startswith("run") and "other" not in path.parts:
                self.check()
            make(path, *given, **named)

        def opening(path: Path, *given: Any, **named: Any) -> Any:
            if (
                path.name == "journal.jsonl"
                and given
                and "+" in given[0]
                and "other" not in path.parts
            ):
                self.check()
            return write(path, *given, **named)

        monkeypatch.setattr(Path, "mkdir", mkdir)
        monkeypatch.setattr(Path, "open", opening)

    def check(self) -> None:
        if self.full:
            self.tries += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullFrom:
    monkeypatch.setattr("groupwise.record.recorder._SHARE", 0)
    return FullFrom(monkeypatch)


def test_a_disk_that_is_full_when_training_begins_costs_nothing_once_there_is_room(
    disk: FullFrom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = PlayedTrainer(tmp_path)
    looked: list[int] = []

    def judge(record: RunRecord) -> Judgement:
        looked.append(len(record.steps))
        return judged(State.OK)

    judged_by(monkeypatch, judge)
    callback = attached(trainer, record=tmp_path / "run", check_every=2)

    def room(*_: Any, **__: Any) -> None:
        disk.full = trainer.state.global_step < 3

    nothing = {
        f"on_{name}": lambda *_, **__: None
        for name in ("train_begin", "pre_optimizer_step", "step_end", "log", "train_end")
    }
    trainer.callback_handler.callbacks.append(SimpleNamespace(**nothing, on_step_begin=room))
    trainer.train(8)
    assert steps_in(tmp_path / "run") == list(range(1, 9))
    record = RunRecord.load(tmp_path / "run")
    assert record.rollouts is not None
    assert set(record.rollouts["step"].to_list()) == set(range(1, 9))
    assert record.meanings
    assert looked == [2, 4, 6, 8]
    said = [notice for notice in callback.notices if "No space left" in notice]
    assert len(said) == 1
    assert said[0].endswith("training goes on, and the steps wait in memory")
    assert any("can be written again" in notice for notice in callback.notices)


def test_a_run_that_is_resumed_on_a_full_disk_goes_on_in_its_record(
    disk: FullFrom, tmp_path: Path
) -> None:
    disk.full = False
    first = PlayedTrainer(tmp_path)
    attached(first, record=tmp_path / "run")
    first.train(6)
    disk.full = True
    second = PlayedTrainer(tmp_path)
    callback = attached(second, record=tmp_path / "run")
    second.event("on_train_begin")
    second.train(2, after=4)
    assert steps_in(tmp_path / "run") == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]  # those of the first: the disk is full to the end
    disk.full = False
    third = PlayedTrainer(tmp_path)
    attached(third, record=tmp_path / "run")
    third.train(4, after=4)
    assert steps_in(tmp_path / "run") == list(range(1, 9))
    assert any("steps could not be written" in notice for notice in callback.notices)


def test_a_disk_that_is_full_from_begin_to_end_leaves_the_steps_in_a_temporary_folder(
    disk: FullFrom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(tmp_path / "other"))
    trainer = PlayedTrainer(tmp_path)
    judged_by(monkeypatch, lambda _: judged(State.FAILING))
    callback = attached(trainer, record=tmp_path / "run", check_every=4, stop_on="failing")
    trainer.train(9)
    assert trainer.state.global_step == 4
    assert steps_in(tmp_path / "other" / "run") == [1, 2, 3, 4]
    assert not (tmp_path / "run").exists()
    says("integrations/which_record/7", callback.notices[-2], folder=tmp_path)
    assert callback.notices[-1].startswith(f"0 steps are recorded in {tmp_path / 'run'}, 4 are not")


def test_tries_to_open_a_record_are_spaced_by_what_they_take(
    disk: FullFrom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.record.recorder._SHARE", 1e9)
    said: list[str] = []
    recorder = opened(partial(Recorder, say=said.append), tmp_path / "run", 0, said.append)
    assert recorder is not None
    for step in range(1, 21):
        recorder.append({"step": step})
    assert disk.tries == 2
    disk.full = False
    recorder.close()  # the end does not wait
    assert steps_in(tmp_path / "run") == list(range(1, 21))


def test_what_will_not_pass_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    said: list[str] = []
    assert opened(partial(Recorder, say=said.append), tmp_path / "file", 0, said.append) is None
    assert said[-1].endswith("training goes on without a record")
    with pytest.raises(GroupwiseError):
        Recorder(tmp_path / "file", say=said.append).open()


def test_an_identity_is_known_by_its_number_first() -> None:
    assert Identity("a", "here").owns(Identity("a", "there"))
    assert not Identity("a", "here").owns(Identity("b", "here"))
    assert Identity("", "here").owns(Identity("b", "here"))


def test_groups_of_several_sizes_have_their_median_and_the_share_that_is_not_of_most() -> None:
    sizes = [3, 3, 3, 4, 4, 7]
    prompt_N = np.repeat(np.arange(len(sizes)), sizes)
    row = Generation(np.zeros(len(prompt_N)), prompt_N).row()
    assert row["group_size"] == 3.5
    assert row["uneven_group_share"] == 0.5
    definitions = {meaning.column: meaning.definition for meaning in MEANINGS}
    assert "the median if groups differ" in definitions["group_size"]
    assert "differs from the most common one" in definitions["uneven_group_share"]
    assert "uneven_group_share" not in Generation(np.zeros(8), np.repeat(np.arange(2), 4)).row()


def test_uneven_groups_of_verl_cost_one_sentence_and_a_journal_that_grows_with_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def size(steps: int) -> int:
        monkeypatch.setenv("GROUPWISE_RECORD", str(tmp_path / str(steps)))
        tap, rng = Tap(said.append), np.random.default_rng(0)
        estimator = tap.wrapped(
            lambda token_level_rewards, response_mask, index: (token_level_rewards, index)
        )
        tap.begin({"actor_rollout_ref": {"rollout": {"n": 4}}}, "demo")
        for step in range(1, steps + 1):
            estimator(np.ones((24, 3)), np.ones((24, 3)), rng.integers(0, 6, 24))
            tap.step({"actor/entropy": 1.0}, step)
        tap.end()
        return (tmp_path / str(steps) / "journal.jsonl").stat().st_size

    half, whole = size(60), size(120)
    record = RunRecord.load(tmp_path / "120")
    assert whole < 2 * half
    assert sum("several sizes" in sentence for sentence in said) == 2
    assert not any("changed from" in sentence for sentence in said)
    assert len(record.notes) == 1
    assert record.config.value("group_size") == 4
    assert 3.5 in record.steps["group_size"].to_list()
