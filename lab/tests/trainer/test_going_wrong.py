"""Runs that go wrong: a loss that is not finite, a verifier that fails, a collapse, a kill in
the middle of a checkpoint.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.errors import (
    GroupwiseError,
    GroupwiseWarning,
    InsufficientDataError,
    InvalidArgumentError,
    OverwriteError,
)
from groupwise.record.run import RunRecord
from groupwise_lab.trainer.rewards import FailingVerifier
from groupwise_lab.trainer.rows import IdleWarning, idle_since
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.tasks import Task, make_task

torch = pytest.importorskip("torch")

from groupwise_lab.trainer.checkpoints import load_policy  # noqa: E402
from groupwise_lab.trainer.folder import TrainingStoppedError  # noqa: E402
from groupwise_lab.trainer.grpo import TrainingRun, policy_loss, train  # noqa: E402
from groupwise_lab.trainer.policy import Policy, policy_size  # noqa: E402

Maker = Callable[[], Any]
SMALL: dict[str, Any] = {
    "group_size": 4,
    "rollouts_per_step": 32,
    "steps": 6,
    "evaluate_every": 0,
    "learning_rate": 1e-3,
}


def settings(**changes: Any) -> TrainSettings:
    return TrainSettings(**{**SMALL, **changes})


def states(folder: Path) -> list[int]:
    return sorted(
        int(path.parent.name.removeprefix("checkpoint-"))
        for path in folder.glob("checkpoints/checkpoint-*/state.json")
    )


@dataclass(frozen=True)
class Always:
    """The same reward for everything, from a step on."""

    inner: Any
    value: float
    from_step: int = 0

    @property
    def weights(self) -> Mapping[str, float]:
        return {"exact": 1.0}

    def __call__(self, problems: Any, completions: Any, ended: Any, *, step: int = 0) -> Any:
        products = self.inner(problems, completions, ended, step=step)
        return (
            {"exact": np.full(len(completions), self.value)} if step >= self.from_step else products
        )


# --- a loss that is not finite
# --------------------------------------------------------------------------------------------------


@pytest.mark.thinned(2)
@pytest.mark.parametrize("every", [1, 2, 50])
@pytest.mark.parametrize("steps", [1, 2, 9])
def test_after_a_loss_that_is_not_finite_the_last_good_policy_is_there_and_goes_on(
    steps: int, every: int, make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    wild = settings(steps=steps, learning_rate=1e25, optimizer="sgd", checkpoint_every=every)
    with pytest.raises(
        TrainingStoppedError,
        match=r"expected a finite loss at step \d, got .* the policy after step 0 is kept",
    ) as caught:
        train(make_policy(), small_task, wild, output=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert states(tmp_path / "run") == [0]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["checkpoint-0"]
    kept: Any = TrainingRun(
        load_policy(tmp_path / "run" / "checkpoints" / "checkpoint-0"), small_task, settings(), None
    )
    row, _ = kept.advance()
    assert np.isfinite([row["loss"], row["gradient_norm"]]).all()
    tame = settings(steps=steps, learning_rate=1e-3, optimizer="sgd", checkpoint_every=every)
    record = train(make_policy(), small_task, tame, output=tmp_path / "run", resume=True)
    assert record.steps["step"].to_list() == list(range(1, steps + 1))
    assert states(tmp_path / "run") == [steps]
    assert np.isfinite(record.steps["loss"].to_numpy()).all()
    assert set(record.steps["learning_rate"].to_list()) == {1e-3}


def test_another_learning_rate_is_refused_where_nothing_stopped(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    train(make_policy(), small_task, settings(steps=2), output=tmp_path / "run")
    with pytest.raises(OverwriteError, match=r"with learning_rate 0.001; got 0.002"):
        train(
            make_policy(),
            small_task,
            settings(steps=4, learning_rate=2e-3),
            output=tmp_path / "run",
            resume=True,
        )


def test_epsilon_of_zero_is_refused() -> None:
    with pytest.raises(
        InvalidArgumentError, match="expected epsilon to be a number above 0; got 0"
    ):
        settings(epsilon=0)


# --- something fails in a step
# --------------------------------------------------------------------------------------------------


CASES: list[dict[str, Any]] = [
    {},
    {
        "optimizer": "sgd",
        "momentum": 0.9,
        "lag_kind": "async",
        "refresh_interval": 3,
        "kl_weight": 0.1,
    },
    {"advantage": "running"},
    {"micro_batch": 16},
]


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("case", "place"),
    [
        *((CASES[0], place) for place in ("_judged", "_gradient")),
        (CASES[1], "_gradient"),
        (CASES[2], "_judged"),
        (CASES[3], "_log_probabilities"),
    ],
    ids=lambda case: (
        case if isinstance(case, str) else "-".join(map(str, case.values())) or "plain"
    ),
)
def test_what_fails_in_a_step_leaves_the_state_before_it(
    case: dict[str, Any],
    place: str,
    make_policy: Maker,
    small_task: Task,
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    chosen = settings(steps=14, checkpoint_every=50, **case)
    whole, broken = make_policy(), make_policy()
    train(whole, small_task, chosen, output=tmp_path / "whole")
    with monkeypatch.context() as context:
        original, calls = getattr(TrainingRun, place), []

        def failing(*arguments: Any, **named: Any) -> Any:
            calls.append(1)
            if len(calls) == 12:
                raise MemoryError("no room")
            return original(*arguments, **named)

        context.setattr(TrainingRun, place, failing)
        with pytest.raises(
            TrainingStoppedError,
            match=r"expected step \d+ to end, got MemoryError \(no room\): the state after step",
        ):
            train(broken, small_task, chosen, output=tmp_path / "broken")
    done = len(RunRecord.load(tmp_path / "broken").steps)
    assert done > 1
    assert states(tmp_path / "broken")[-1] == done
    again = Policy(policy_size("tiny"), vocabulary_size=len(small_task.vocabulary), seed=9)
    train(again, small_task, chosen, output=tmp_path / "broken", resume=True)
    for own, theirs in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(own, theirs)
    drop = ["seconds"]
    assert (
        RunRecord.load(tmp_path / "whole")
        .steps.drop(drop)
        .equals(RunRecord.load(tmp_path / "broken").steps.drop(drop))
    )


def test_a_failure_after_the_update_keeps_the_checkpoint_before(
    make_policy: Maker, small_task: Task, tmp_path: Path, monkeypatch: Any
) -> None:
    """Of half a step nothing is kept: its row is not written."""

    def failing(_run: Any, number: int) -> dict[str, float]:
        if number == 4:
            raise OSError(28, "No space left on device")
        return {}

    monkeypatch.setattr(TrainingRun, "_evaluated", failing)
    with pytest.raises(
        TrainingStoppedError,
        match=r"expected step 4 to end, got OSError \(.*No space left on device\)",
    ):
        train(
            make_policy(),
            small_task,
            settings(steps=9, evaluate_every=4, checkpoint_every=2),
            output=tmp_path / "run",
        )
    assert states(tmp_path / "run") == [2]


def full_disk(real: Callable[..., None], kilobytes: int) -> Callable[..., None]:
    """The writer of safetensors with so much room: what it raises then is its own error, made by
    the system's refusal of a larger file.
    """
    import resource

    def limited(*arguments: Any, **named: Any) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, before[1]))
        try:
            real(*arguments, **named)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


@pytest.mark.thinned(1)
@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of a file")
@pytest.mark.parametrize(
    ("kilobytes", "first"), [(20, True), (150, True), (20, False), (150, False)], ids=str
)
def test_a_full_disk_is_a_sentence_and_the_last_whole_checkpoint_stays(
    kilobytes: int,
    first: bool,
    make_policy: Maker,
    small_task: Task,
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    """20 kB hold no weights, 150 the weights and not the optimiser's state; the first checkpoint
    of a run, or a later one.
    """
    import safetensors.torch

    chosen = settings(steps=4, checkpoint_every=2)
    if not first:
        train(
            make_policy(),
            small_task,
            settings(steps=2, checkpoint_every=2),
            output=tmp_path / "run",
        )
    with monkeypatch.context() as context:
        context.setattr(
            safetensors.torch, "save_file", full_disk(safetensors.torch.save_file, kilobytes)
        )
        with pytest.raises(
            GroupwiseError,
            match=r"expected to write .*checkpoint-[04], got File too large: make room, or .*stays$",
        ) as caught:
            train(make_policy(), small_task, chosen, output=tmp_path / "run", resume=True)
    assert "\n" not in str(caught.value)
    assert states(tmp_path / "run") == ([] if first else [2])
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))
    if not first:
        assert RunRecord.load(tmp_path / "run").steps["step"].to_list() == [1, 2, 3, 4]
    record = train(make_policy(), small_task, chosen, output=tmp_path / "run", resume=True)
    assert record.steps["step"].to_list() == [1, 2, 3, 4]
    assert states(tmp_path / "run") == [4]


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of a file")
def test_a_warm_up_that_a_full_disk_does_not_keep_is_done_all_the_same(
    small_task: Task, tmp_path: Path, monkeypatch: Any
) -> None:
    import safetensors.torch

    from groupwise_lab.trainer.warm_up import warm_up

    monkeypatch.setattr(safetensors.torch, "save_file", full_disk(safetensors.torch.save_file, 20))
    policy = Policy(policy_size("tiny"), vocabulary_size=len(small_task.vocabulary))
    with pytest.warns(
        GroupwiseWarning, match="the warm-up is not kept: expected to write .* got File too large"
    ):
        assert warm_up(policy, small_task, accuracy=0.02, cache=tmp_path).folder is None


def test_a_tokenizer_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    """The tokenizers of transformers raise a plain Exception with the system's words; anything
    else that fails is a defect.
    """
    from groupwise_lab.trainer.checkpoints import whole_folder

    with (
        pytest.raises(GroupwiseError, match=r"got No space left on device: make room"),
        whole_folder(tmp_path / "a"),
    ):
        raise Exception("No space left on device (os error 28)")  # as tokenizers does
    with pytest.raises(ValueError, match="wrong"), whole_folder(tmp_path / "a"):
        raise ValueError("wrong")


def test_a_verifier_that_gives_up_keeps_its_own_sentence(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    task = replace(
        small_task, verifier=FailingVerifier(small_task.verifier, from_step=4, mode="raise")
    )
    with pytest.raises(Exception, match="the verifier failed at step 4"):
        train(make_policy(), task, settings(checkpoint_every=50), output=tmp_path / "run")
    assert states(tmp_path / "run")[-1] == 3


def test_a_kill_in_a_checkpoint_leaves_nothing_for_ever(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    chosen = settings(steps=4, checkpoint_every=2)
    train(make_policy(), small_task, chosen, output=tmp_path / "run")
    home = tmp_path / "run" / "checkpoints"
    (home / ".checkpoint-6.partial-123").mkdir()
    (home / ".checkpoint-6.partial-123" / "model.safetensors").write_bytes(b"half")
    (home / "checkpoint-4").rename(home / ".checkpoint-4.retired-123")
    (home / ".checkpoint-4.partial-123").mkdir()
    record = train(
        make_policy(),
        small_task,
        settings(steps=6, checkpoint_every=2),
        output=tmp_path / "run",
        resume=True,
    )
    assert record.steps["step"].to_list() == [1, 2, 3, 4, 5, 6]
    assert not list(home.glob(".*"))
    assert states(tmp_path / "run") == [6]


def test_names_are_on_the_disk_before_older_state_goes(
    make_policy: Maker, small_task: Task, tmp_path: Path, monkeypatch: Any
) -> None:
    from groupwise_lab.trainer import checkpoints

    synced: list[Path] = []
    monkeypatch.setattr(checkpoints, "_sync", synced.append)
    train(make_policy(), small_task, settings(steps=1), output=tmp_path / "run")
    home = tmp_path / "run" / "checkpoints"
    assert synced.count(home) == 2
    assert len([path for path in synced if path.name.startswith(".checkpoint-1.partial")]) == 1


def test_a_run_inside_a_run_is_refused(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    train(make_policy(), small_task, settings(steps=1), output=tmp_path / "run")
    for inside in ("steps", "checkpoints/checkpoint-1/more"):
        with pytest.raises(OverwriteError, match="inside the run"):
            train(make_policy(), small_task, settings(steps=1), output=tmp_path / "run" / inside)


@pytest.mark.parametrize(
    "other",
    [
        {"proxy_bonus": 2.0},
        {"format_reward": True, "proxy_bonus": 1.0},
    ],
)
def test_another_reward_does_not_go_on(
    other: dict[str, Any], make_policy: Maker, tmp_path: Path
) -> None:
    first = make_task("modular_addition", level=1, proxy_bonus=1.0)
    train(make_policy(), first, settings(steps=1), output=tmp_path / "run")
    with pytest.raises(OverwriteError, match="to be of this task and its options"):
        train(
            make_policy(),
            make_task("modular_addition", level=1, **other),
            settings(steps=2),
            output=tmp_path / "run",
            resume=True,
        )
    changed = replace(first, held_out=(*first.held_out[1:], first.train[0]))
    with pytest.raises(OverwriteError, match="to be of this task and its options"):
        train(make_policy(), changed, settings(steps=2), output=tmp_path / "run", resume=True)
    failing = replace(first, verifier=FailingVerifier(first.verifier, share=0.5))
    with pytest.raises(OverwriteError, match="to be of this task and its options"):
        train(make_policy(), failing, settings(steps=2), output=tmp_path / "run", resume=True)


# --- nothing to learn from
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            0.0,
            (
                r"got 0 for all 320 of the first 10 steps .*: there is nothing to learn from; warm "
                r"up further .* easier level"
            ),
        ),
        (
            1.0,
            (
                r"got 1 for all 320 of the first 10 steps .*: nothing is left to learn; take a "
                r"harder level"
            ),
        ),
        (
            np.nan,
            (
                r"expected rewards, got none for all 320 of the first 10 steps .*: the verifier is "
                r"silent; mend it"
            ),
        ),
    ],
)
def test_three_reasons_for_no_signal_have_three_sentences(
    value: float, message: str, make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    with pytest.raises(InsufficientDataError, match=message):
        train(
            make_policy(),
            replace(small_task, verifier=Always(small_task.verifier, value)),
            settings(steps=20),
            output=tmp_path / "run",
        )


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("value", "message"), [(0.0, "collapsed or the verifier"), (1.0, "learned any more")]
)
def test_a_signal_that_is_lost_is_told_with_its_step(
    value: float, message: str, make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    task = replace(small_task, verifier=Always(small_task.verifier, value, from_step=5))
    with pytest.warns(IdleWarning, match=f"since step 5 .*{message}") as caught:
        record = train(make_policy(), task, settings(steps=20), output=tmp_path / "run")
    assert len(caught) == 1
    assert idle_since(record.steps) == 5
    assert idle_since(record.steps.head(12)) is None


def test_a_verifier_that_falls_silent_ends_the_run_and_nothing_is_lost(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    task = replace(small_task, verifier=Always(small_task.verifier, np.nan, from_step=5))
    with pytest.raises(
        TrainingStoppedError,
        match=r"got none for all 320 rollouts of the last 10 steps: .* go on by --resume",
    ):
        train(make_policy(), task, settings(steps=20), output=tmp_path / "run")
    assert RunRecord.load(tmp_path / "run").steps["step"].to_list() == list(range(1, 14))
    assert max(states(tmp_path / "run")) == 13


@pytest.mark.slow
def test_a_lost_signal_is_counted_over_a_stop(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    task = replace(small_task, verifier=Always(small_task.verifier, 0.0, from_step=5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(make_policy(), task, settings(steps=10), output=tmp_path / "run")
    with pytest.warns(IdleWarning, match="since step 5"):
        train(make_policy(), task, settings(steps=16), output=tmp_path / "run", resume=True)


# --- the KL term of stale rollouts
# --------------------------------------------------------------------------------------------------


def test_the_kl_term_in_the_loss_is_the_gradient_at_the_present_policy_whatever_sampled() -> None:
    """Every completion of every prompt, weighed by the probability that another policy draws it,
    each as two tokens.
    """
    from truth import ExactLoss, ExactWorld

    task = make_task("modular_addition", level=1, held_out_share=0.0)
    policy = Policy(policy_size("tiny"), vocabulary_size=len(task.vocabulary)).double()
    world = ExactWorld(policy, task, task.train[:5], ExactLoss(1.0, kl_in="loss"))
    draw = torch.Generator().manual_seed(0)
    now, old = (
        world.start_D + 0.05 * torch.randn(world.start_D.shape, generator=draw, dtype=torch.float64)
        for _ in range(2)
    )
    share = torch.tensor([0.3, 0.7], dtype=torch.float64)

    def tokens(log_PO: Any) -> Any:
        return log_PO.reshape(-1, 1) * share

    with torch.no_grad():
        stale_PO = world.log_probabilities(old)
    for ratio in ("none", "token"):
        present = now.clone().requires_grad_()
        new_NL = tokens(world.log_probabilities(present))
        weight_NL = (stale_PO.exp() / len(stale_PO)).reshape(-1, 1).expand(-1, 2)
        loss = policy_loss(
            new_NL,
            tokens(stale_PO),
            torch.zeros(len(new_NL), dtype=torch.float64),
            torch.ones_like(new_NL),
            weight_NL,
            settings(kl_weight=0.5, importance_ratio=ratio),
            reference_NL=tokens(world.reference_PO),
        )
        (gradient,) = torch.autograd.grad(loss.value, present)
        present = now.clone().requires_grad_()
        (exact,) = torch.autograd.grad(
            0.5 * world.divergence(world.log_probabilities(present)), present
        )
        np.testing.assert_allclose(gradient, exact, atol=1e-10 * float(exact.abs().max()))
