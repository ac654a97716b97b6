"""The folder of a run: what counts as one, what is removed of it, and that nobody begins where
another process is writing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import GroupwiseError, OverwriteError
from groupwise.record import journal
from groupwise.record.run import RecordWriter, RunRecord
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.tasks import Task

torch = pytest.importorskip("torch")

from groupwise_lab.trainer import folder as folder_module  # noqa: E402
from groupwise_lab.trainer.grpo import train  # noqa: E402

Maker = Callable[[], Any]


def settings(**changes: Any) -> TrainSettings:
    return TrainSettings(
        **{
            "group_size": 4,
            "rollouts_per_step": 32,
            "steps": 2,
            "evaluate_every": 0,
            "learning_rate": 1e-3,
            "checkpoint_every": 1,
            **changes,
        }
    )


def contents(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is refused gives up at once."""
    monkeypatch.setattr(journal, "_PATIENCE_SECONDS", 0.05)


# --- a run that is being written
# --------------------------------------------------------------------------------------------------


@pytest.mark.thinned(1)
@pytest.mark.parametrize("force", [True, False], ids=["force", "resume"])
def test_a_run_that_another_process_writes_is_not_touched(
    force: bool,
    make_policy: Maker,
    small_task: Task,
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    train(make_policy(), small_task, settings(), output=run)
    half = run / "checkpoints" / ".checkpoint-3.partial-77"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"being written")
    with RecordWriter(run):
        before = contents(run)
        with pytest.raises(
            GroupwiseError,
            match=r"expected to be the only writer of .*journal.jsonl, got another writer",
        ):
            train(
                make_policy(),
                small_task,
                settings(steps=4),
                output=run,
                force=force,
                resume=not force,
            )
        assert contents(run) == before
    train(make_policy(), small_task, settings(steps=4), output=run, force=force, resume=not force)
    assert RunRecord.load(run).steps["step"].to_list() == [1, 2, 3, 4]
    assert not half.exists()


def test_a_run_is_refused_before_its_warm_up(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    """The command asks this before it teaches anything."""
    from groupwise_lab.trainer.folder import RunFolder

    train(make_policy(), small_task, settings(), output=tmp_path / "run")
    folder = RunFolder(tmp_path / "run", settings(), small_task, make_policy())
    folder.check(resume=False, force=True)
    with RecordWriter(tmp_path / "run"), pytest.raises(GroupwiseError, match="the only writer"):
        folder.check(resume=False, force=True)


def test_of_two_that_replace_a_run_at_once_one_writes_all_of_it(
    make_policy: Maker, small_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is sent away while the first is between making room and opening the record."""
    run, between, go_on = tmp_path / "run", threading.Event(), threading.Event()
    train(make_policy(), small_task, settings(), output=run)
    original = folder_module.remove_run

    def slow(home: Path) -> None:
        original(home)
        between.set()
        assert go_on.wait(30)

    with monkeypatch.context() as context:
        context.setattr("groupwise_lab.trainer.folder.remove_run", slow)
        first = threading.Thread(
            target=train,
            args=(make_policy(), small_task, settings(steps=3)),
            kwargs={"output": run, "force": True},
        )
        first.start()
        assert between.wait(30)
        with pytest.raises(
            GroupwiseError,
            match=r"expected to begin a run in .* alone, got another that begins there",
        ):
            train(make_policy(), small_task, settings(steps=5), output=run, force=True)
        go_on.set()
        first.join()
    assert RunRecord.load(run).steps["step"].to_list() == [1, 2, 3]
    assert (run / "checkpoints" / "checkpoint-3").is_dir()


def test_a_kill_while_a_run_is_replaced_leaves_a_run(
    make_policy: Maker, small_task: Task, tmp_path: Path, monkeypatch: Any
) -> None:
    run = tmp_path / "run"
    train(make_policy(), small_task, settings(), output=run)

    @contextmanager
    def killed(home: Path) -> Iterator[None]:
        yield
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr("groupwise_lab.trainer.folder.unwritten", killed)
        with pytest.raises(KeyboardInterrupt):
            train(make_policy(), small_task, settings(), output=run, force=True)
    assert [path.name for path in run.iterdir()] == ["journal.jsonl"]
    train(make_policy(), small_task, settings(), output=run, force=True)
    assert RunRecord.load(run).steps["step"].to_list() == [1, 2]


# --- what is a run
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["plain", "force", "resume"])
@pytest.mark.parametrize(
    "name",
    [
        "checkpoints/llama-7b/model.bin",
        "checkpoints/checkpoint-5/model.safetensors",
        "groupwise-components.json",
    ],
)
def test_a_folder_without_a_record_is_no_run(
    name: str, how: str, make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    (tmp_path / "mine" / name).parent.mkdir(parents=True)
    (tmp_path / "mine" / name).write_text("weights")
    before = contents(tmp_path)
    with pytest.raises(
        OverwriteError,
        match=r"holds something other than a run \((checkpoints|groupwise-components.json)\)",
    ):
        train(
            make_policy(),
            small_task,
            settings(),
            output=tmp_path / "mine",
            force=how == "force",
            resume=how == "resume",
        )
    assert contents(tmp_path) == before


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    "name",
    [
        "best/model.safetensors",
        "checkpoint-2/thesis.tex",
        "checkpoint-2/results/a.csv",
        "notes.txt",
    ],
)
def test_what_others_put_among_the_checkpoints_is_not_removed(
    name: str, make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(make_policy(), small_task, settings(steps=3), output=run)
    checkpoint = run / "checkpoints" / name
    checkpoint.parent.mkdir(exist_ok=True)
    checkpoint.write_text("mine")
    before = contents(run)
    with pytest.raises(
        OverwriteError,
        match=r"expected nothing but checkpoints of the run to replace in .*: move it away",
    ):
        train(make_policy(), small_task, settings(), output=run, force=True)
    assert contents(run) == before
    # Going on removes nothing of it either, where fewer checkpoints are to be kept.
    train(make_policy(), small_task, settings(steps=6, checkpoints_kept=1), output=run, resume=True)
    assert checkpoint.read_text() == "mine"
    assert not (run / "checkpoints" / "checkpoint-4").exists()


def test_a_run_with_everything_that_groupwise_writes_is_replaced(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(make_policy(), small_task, settings(), output=run)
    for name in (
        "groupwise-components.json",
        "group-size-decisions.json",
        ".group-size-decisions.json.123",
    ):
        (run / name).write_text("[]")
    (run / "checkpoints" / ".checkpoint-3.retired-5").mkdir()
    train(make_policy(), small_task, settings(steps=1), output=run, force=True)
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", "journal.jsonl"]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [
        "checkpoint-0",
        "checkpoint-1",
    ]


@pytest.mark.slow
def test_a_language_model_writes_nothing_that_would_keep_its_run_from_being_replaced(
    small_task: Task, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    from groupwise.gradients.language_models import load_language_model
    from groupwise_lab.trainer.checkpoints import save_policy
    from groupwise_lab.trainer.language_policy import LanguagePolicy
    from groupwise_lab.trainer.policy import Policy, policy_size

    save_policy(
        Policy(policy_size("tiny"), vocabulary_size=len(small_task.vocabulary)),
        tmp_path / "model",
        small_task.vocabulary,
    )
    for force in (False, True):
        actor = LanguagePolicy(load_language_model(tmp_path / "model"))
        train(actor, small_task, settings(), output=tmp_path / "run", force=force)
