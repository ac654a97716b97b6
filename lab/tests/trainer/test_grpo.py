"""The training loop against a few lines of our own: gradients, lags, optimisers, resuming, and
what it refuses.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import (
    GroupwiseError,
    InsufficientDataError,
    InvalidArgumentError,
    OverwriteError,
)
from groupwise.record.run import RecordWriter, RunRecord
from groupwise_lab.trainer.advantages import ADVANTAGES
from groupwise_lab.trainer.rewards import FailingVerifier
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.tasks import Task, make_task

torch = pytest.importorskip("torch")

from groupwise_lab.trainer import checkpoints  # noqa: E402
from groupwise_lab.trainer.folder import RunFolder  # noqa: E402
from groupwise_lab.trainer.grpo import TrainingRun, UpdateRule, batches_needed, train  # noqa: E402
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


# --- lines of our own: plain passes, sums written out
# -------------------------------------------------------------------------------------


def own_log_probabilities(policy: Any, prompt_NL: Any, completion_NL: Any) -> Any:
    logits = policy(torch.cat([prompt_NL, completion_NL], 1))
    start = prompt_NL.shape[1] - 1
    return logits[:, start:-1].log_softmax(-1).gather(-1, completion_NL[..., None])[..., 0]


def own_advantages(name: str, reward_PG: Any) -> Any:
    mean = reward_PG.mean(1, keepdims=True)
    size = reward_PG.shape[1]
    deviation = np.sqrt(((reward_PG - mean) ** 2).sum(1, keepdims=True) / (size - 1))
    with np.errstate(invalid="ignore"):
        return {
            "vanilla": reward_PG,
            "full_group_mean": reward_PG - mean,
            "leave_one_out": reward_PG - (reward_PG.sum(1, keepdims=True) - reward_PG) / (size - 1),
            "std_normalised": np.where(
                deviation > 0, (reward_PG - mean) / np.where(deviation > 0, deviation, 1), 0.0
            ),
            "trl/grpo/1.16.0": (reward_PG - mean) / (deviation + 1e-4),
        }[name].reshape(-1)


def own_loss(
    new: Any, old: Any, reference: Any, advantage: Any, mask: Any, chosen: TrainSettings
) -> Any:
    """Sum over rollouts and tokens, one by one."""
    count, total, lengths = len(new), 0.0, mask.sum(1)
    low, high = chosen.clip, chosen.clip_high or chosen.clip or 0.0
    for n in range(count):
        tokens = [t for t in range(mask.shape[1]) if mask[n, t]]
        weight = {
            "sum": 1 / count,
            "sequence_mean": 1 / (count * len(tokens)),
            "batch_token_mean": 1 / lengths.sum(),
        }[chosen.aggregation]
        behind = [new[n, t] - old[n, t] for t in tokens]

        def held(ratio: Any, a: Any = advantage[n]) -> Any:
            return (
                ratio * a
                if low is None
                else torch.minimum(ratio * a, torch.clamp(ratio, 1 - low, 1 + high) * a)
            )

        if chosen.importance_ratio == "none":
            gains = [new[n, t] * advantage[n] for t in tokens]
        elif chosen.importance_ratio == "token":
            gains = [held(torch.exp(distance)) for distance in behind]
        elif chosen.importance_ratio == "sequence":
            gains = [held(torch.exp(sum(behind)))] + [0.0] * (len(tokens) - 1)
        else:
            gains = [held(torch.exp(sum(behind) / len(tokens)))] * len(tokens)
        total = total - weight * sum(gains)
        if reference is not None and chosen.kl_in == "loss":
            apart = [new[n, t] - reference[n, t] for t in tokens]
            k2 = (
                0.5 * torch.exp(sum(behind)).detach() * sum(apart) ** 2
            )  # on rollouts of another policy weighed by the exact ratio
            kl = (
                sum(torch.exp(-distance) + distance - 1 for distance in apart)
                if chosen.kl_estimator == "k3"
                else k2
            )
            total = total + chosen.kl_weight * weight * kl
    return total


CASES: list[dict[str, Any]] = [
    *(
        {"advantage": name}
        for name in (
            "vanilla",
            "full_group_mean",
            "leave_one_out",
            "std_normalised",
            "trl/grpo/1.16.0",
        )
    ),
    *(
        {"importance_ratio": ratio, "lag_kind": "fixed", "refresh_interval": 2, "clip": None}
        for ratio in ("none", "token", "sequence", "sequence_mean")
    ),
    *(
        {"importance_ratio": ratio, "lag_kind": "refresh", "refresh_interval": 4, "clip": 0.05}
        for ratio in ("token", "sequence", "sequence_mean")
    ),
    {
        "importance_ratio": "token",
        "lag_kind": "async",
        "refresh_interval": 2,
        "clip": 0.02,
        "clip_high": 0.1,
    },
    {"aggregation": "sequence_mean"},
    {
        "aggregation": "batch_token_mean",
        "importance_ratio": "sequence_mean",
        "lag_kind": "refresh",
        "refresh_interval": 3,
    },
    {"kl_weight": 0.5},
    {"kl_weight": 0.5, "kl_estimator": "k3"},
    {"kl_weight": 0.5, "importance_ratio": "none", "lag_kind": "fixed", "refresh_interval": 2},
    {"kl_weight": 0.02, "kl_estimator": "k3", "lag_kind": "fixed", "refresh_interval": 2},
    {"kl_weight": 0.5, "kl_in": "reward", "lag_kind": "refresh", "refresh_interval": 2},
    {"kl_weight": 0.5, "micro_batch": 8, "aggregation": "batch_token_mean"},
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_the_gradient_is_that_of_our_own_lines(
    case: dict[str, Any], make_policy: Maker, small_task: Task
) -> None:
    chosen = settings(optimizer="sgd", learning_rate=0.2, **case)
    policy, own = make_policy().double(), make_policy().double()
    start = own_state(own)
    run: Any = TrainingRun(policy, small_task, chosen, None)
    for update in range(5):
        before = run.flat.value_D.clone()
        batch = stepped(run)
        sampled, prompt = batch.judged.sampled, batch.prompt_PL.repeat_interleave(4, 0)
        load(own, before)
        new = own_log_probabilities(own, prompt, sampled.completion_NL)
        reference = None
        if chosen.kl_weight:
            load(own, start)
            reference = own_log_probabilities(own, prompt, sampled.completion_NL).detach()
            load(own, before)
            new = own_log_probabilities(own, prompt, sampled.completion_NL)
        reward = batch.judged.reward_N
        if chosen.kl_in == "reward":
            reward = (
                reward
                - chosen.kl_weight
                * ((sampled.log_probability_NL - reference) * sampled.mask_NL).sum(1).numpy()
            )
        advantage = torch.tensor(own_advantages(chosen.advantage, reward.reshape(-1, 4)))
        loss = own_loss(
            new, sampled.log_probability_NL, reference, advantage, sampled.mask_NL, chosen
        )
        gradient = torch.cat(
            [part.reshape(-1) for part in torch.autograd.grad(loss, list(own.parameters()))]
        )
        assert float((run.flat.gradient_D - gradient).abs().max()) < 1e-6 * max(
            1.0, float(gradient.abs().max())
        ), update
        np.testing.assert_allclose(run.flat.value_D, before - 0.2 * run.flat.gradient_D, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "one_pass"),
    [
        ({}, True),
        ({"micro_batch": 8}, False),
        ({"lag_kind": "fixed", "refresh_interval": 1}, False),
    ],
)
def test_one_pass_serves_sampling_and_gradient_on_policy_alone(
    changes: dict[str, Any], one_pass: bool, make_policy: Maker, small_task: Task
) -> None:
    ours: Any = TrainingRun(make_policy().double(), small_task, settings(**changes), None)
    twice: Any = TrainingRun(make_policy().double(), small_task, settings(**changes), None)
    assert ours.one_pass is one_pass
    twice.one_pass = False
    for _ in range(4):
        for run in (ours, twice):
            run.advance()
        np.testing.assert_allclose(
            ours.flat.gradient_D,
            twice.flat.gradient_D,
            rtol=0,
            atol=1e-12 * float(twice.flat.gradient_D.norm()),
        )


def stepped(run: Any) -> Any:
    """The batch that one more step used."""
    run.advance()
    return run._last_batch


def own_state(policy: Any) -> Any:
    return torch.cat([parameter.detach().reshape(-1) for parameter in policy.parameters()]).clone()


def load(policy: Any, vector: Any) -> None:
    start = 0
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.copy_(vector[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()


@pytest.mark.parametrize(
    ("kind", "interval", "lags"),
    [
        ("none", 1, [0, 0, 0, 0, 0, 0, 0]),
        ("fixed", 2, [0, 1, 2, 2, 2, 2, 2]),
        ("refresh", 3, [0, 1, 2, 0, 1, 2, 0]),
        ("async", 2, [0, 1, 2, 3, 2, 3, 2]),
    ],
)
def test_rollouts_are_of_the_policy_that_the_lag_names(
    kind: str, interval: int, lags: list[int], make_policy: Maker, small_task: Task
) -> None:
    policy, own = make_policy().double(), make_policy().double()
    run: Any = TrainingRun(
        policy,
        small_task,
        settings(lag_kind=kind, refresh_interval=interval, learning_rate=0.01),
        None,
    )
    past = []
    for update, lag in enumerate(lags):
        past.append(run.flat.value_D.clone())
        row, _ = run.advance()
        assert row["lag"] == lag
        sampled, prompt = (
            run._last_batch.judged.sampled,
            run._last_batch.prompt_PL.repeat_interleave(4, 0),
        )
        load(own, past[update - lag])
        log = own_log_probabilities(own, prompt, sampled.completion_NL).detach() * sampled.mask_NL
        np.testing.assert_allclose(sampled.log_probability_NL, log, atol=1e-10)
        assert len(run.waiting) == batches_needed(update, kind, interval) - update - 1


@each_case(
    ("changes", "judge"),
    [
        (
            {"optimizer": "sgd", "momentum": 0.9},
            lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        ),
        (
            {"optimizer": "sgd", "weight_decay": 0.1},
            lambda p: torch.optim.SGD(p, lr=0.01, weight_decay=0.1),
        ),
        (
            {"optimizer": "adam", "weight_decay": 0.1, "beta2": 0.9},
            lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1, betas=(0.9, 0.9)),
        ),
        (
            {"optimizer": "adamw", "weight_decay": 0.1},
            lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
        ),
    ],
)
def test_optimizers_are_those_of_torch(
    changes: dict[str, Any], judge: Callable[[Any], Any]
) -> None:
    draw = torch.Generator().manual_seed(0)
    value_D = torch.randn(50, generator=draw, dtype=torch.float64)
    theirs = value_D.clone().requires_grad_(True)
    ours, other = UpdateRule(settings(**changes), value_D), judge([theirs])
    for update in range(1, 8):
        gradient = torch.randn(50, generator=draw, dtype=torch.float64)
        theirs.grad = gradient.clone()
        other.step()
        ours.step(value_D, gradient, learning_rate=0.01, update=update)
        np.testing.assert_allclose(value_D, theirs.detach(), rtol=1e-12)


def test_schedules() -> None:
    linear = settings(steps=10, schedule="linear", learning_rate=1.0, ramp_steps=2)
    assert [linear.learning_rate_at(step) for step in (1, 2, 3, 7, 10)] == [
        0.5,
        1.0,
        1.0,
        0.5,
        0.125,
    ]
    cosine = settings(steps=4, schedule="cosine", learning_rate=1.0)
    np.testing.assert_allclose([cosine.learning_rate_at(step) for step in (1, 3)], [1.0, 0.5])
    assert settings(steps=4).learning_rate_at(4) == SMALL["learning_rate"]


def test_gradient_clipping_is_off_unless_asked_for(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    assert TrainSettings().gradient_clip is None
    run: Any = TrainingRun(
        make_policy(),
        small_task,
        settings(optimizer="sgd", learning_rate=1.0, gradient_clip=0.01),
        None,
    )
    before = run.flat.value_D.clone()
    row, _ = run.advance()
    assert row["gradient_norm"] > 0.02  # as it was before clipping
    assert float((run.flat.value_D - before).norm()) == pytest.approx(0.01, rel=1e-4)


def test_exposure_does_not_depend_on_the_group_size() -> None:
    for size in (2, 8, 64):
        assert settings(group_size=size, rollouts_per_step=64).prompts_per_step * size == 64


def test_prompts_come_independently_or_in_epochs(make_policy: Maker, small_task: Task) -> None:
    def draw(number: int) -> np.ndarray:
        problems: np.ndarray = run._drawn_problems(number, 8)
        run.drawn += 8
        return problems

    run: Any = TrainingRun(
        make_policy(), small_task, settings(prompt_order="epochs", prompt_pool=20), None
    )
    drawn = np.concatenate(
        [draw(number) for number in range(1, 16)]
    )  # 15 batches of 8: 6 passes over 20
    assert [sorted(drawn[start : start + 20].tolist()) for start in range(0, 120, 20)] == [
        list(range(20))
    ] * 6
    assert drawn[:20].tolist() != drawn[20:40].tolist()
    run = TrainingRun(make_policy(), small_task, settings(prompt_pool=20), None)
    free = np.concatenate([draw(number) for number in range(1, 16)])
    counts = np.bincount(free, minlength=20)
    assert (counts.min(), counts.max()) != (6, 6)
    assert free.max() < 20


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "name",
    [
        *(entry.name for entry in ADVANTAGES),
        "trl/grpo",
        "trl/gdpo",
        "verl/rloo",
        "openrlhf/reinforce_baseline",
    ],
)
def test_every_advantage_trains(name: str, make_policy: Maker, tmp_path: Path) -> None:
    task = make_task("modular_addition", level=1, format_reward=name == "trl/gdpo")
    given = {"advantage_value": 0.5} if name == "constant" else {}

    def ingredients(actor: Any, task: Task, judged: Any) -> dict[str, Any]:
        count = len(judged.problems)
        return {
            "value": np.full(count, 0.3),
            "kappa": np.full(count, 0.1),
            "score_norm2": np.full(len(judged.reward_N), 2.0),
        }

    hook = ingredients if name == "variance_optimal" else None
    record = train(
        make_policy(),
        task,
        settings(advantage=name, steps=2, rollouts_every=1, **given),
        output=tmp_path / "run",
        ingredients=hook,
    )
    assert record.rollouts is not None
    assert np.isfinite(record.rollouts["advantage"].to_numpy()).all()
    assert record.steps["gradient_norm"].to_numpy().max() > 0


def test_an_advantage_without_its_ingredients_is_refused(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    with pytest.raises(
        InvalidArgumentError, match="expected ingredients for the advantage variance_optimal"
    ):
        train(
            make_policy(),
            small_task,
            settings(advantage="variance_optimal"),
            output=tmp_path / "run",
        )
    with pytest.raises(InvalidArgumentError, match="expected the value of the advantage constant"):
        train(make_policy(), small_task, settings(advantage="constant"), output=tmp_path / "run")
    judged = make_task("modular_addition", level=1, format_reward=True)
    with pytest.raises(InvalidArgumentError, match="only of the exact reward"):
        train(make_policy(), judged, settings(advantage="oracle"), output=tmp_path / "run")


def test_the_oracle_knows_the_value_and_the_norms_are_those_of_scores(
    make_policy: Maker, small_task: Task
) -> None:
    """The value and the squared length of a score, each from lines of our own."""
    policy, own = make_policy().double(), make_policy().double()
    run: Any = TrainingRun(policy, small_task, settings(advantage="weighted_leave_one_out"), None)
    run.advance()
    judged, credit = run._last_batch.judged, run.credit
    load(own, run.flat.value_D)
    value = credit._value_of(judged)
    norms = credit._score_norms(judged)
    for place, problem in enumerate(judged.problems):
        prompt = torch.from_numpy(small_task.prompt_tokens([problem]))
        answer = torch.from_numpy(small_task.answer_tokens([problem]))
        assert value[place] == pytest.approx(
            float(own_log_probabilities(own, prompt, answer).detach().sum().exp()), rel=1e-6
        )
        total = (
            own_log_probabilities(
                own, prompt, judged.sampled.completion_NL[4 * place : 4 * place + 1]
            )
            * judged.sampled.mask_NL[4 * place]
        ).sum()
        gradient = torch.autograd.grad(total, list(own.parameters()))
        assert norms[4 * place] == pytest.approx(
            sum(float((part**2).sum()) for part in gradient), rel=1e-6
        )


# --- the record, and going on
# --------------------------------------------------------------------------------------------------


def rows_of(folder: Path) -> Any:
    record = RunRecord.load(folder)
    assert record.rollouts is not None
    return record.steps.drop("seconds"), record.rollouts


GOING_ON: list[dict[str, Any]] = [
    {},
    {"optimizer": "sgd", "momentum": 0.9, "lag_kind": "fixed", "refresh_interval": 3},
    {"lag_kind": "async", "refresh_interval": 4, "kl_weight": 0.1, "schedule": "cosine"},
    {
        "advantage": "running",
        "prompt_order": "epochs",
        "lag_kind": "refresh",
        "refresh_interval": 5,
        "kl_weight": 0.1,
        "kl_in": "reward",
    },
    {"advantage": "kernel_smoothed"},
]


@pytest.fixture(scope="module")
def undisturbed(
    request: pytest.FixtureRequest,
    _warm_policy: Any,
    small_task: Task,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[TrainSettings, Any, Path]:
    """A run that nothing stopped: its settings, the policy at its end, and its folder."""
    chosen = settings(
        steps=14, checkpoint_every=5, evaluate_every=3, rollouts_every=2, **request.param
    )
    policy, folder = copy.deepcopy(_warm_policy), tmp_path_factory.mktemp("undisturbed") / "run"
    train(policy, small_task, chosen, output=folder)
    return chosen, policy, folder


PLACES = ("_sampled_batch", "_update", "keep", "append")


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("undisturbed", "place"),
    [*((GOING_ON[0], place) for place in PLACES), *zip(GOING_ON[1:], PLACES, strict=True)],
    indirect=["undisturbed"],
    ids=lambda case: (
        case if isinstance(case, str) else "-".join(map(str, case.values())) or "plain"
    ),
)
def test_a_run_goes_on_bit_for_bit(
    undisturbed: tuple[TrainSettings, Any, Path],
    place: str,
    make_policy: Maker,
    small_task: Task,
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    chosen, whole, whole_folder = undisturbed
    broken = make_policy()
    with monkeypatch.context() as context:
        owner = {"keep": RunFolder, "append": RecordWriter}.get(place, TrainingRun)
        original, calls = getattr(owner, place), []

        def dying(*arguments: Any, **named: Any) -> Any:
            calls.append(1)
            if len(calls) == {"keep": 3, "append": 9}.get(place, 8):
                raise KeyboardInterrupt
            return original(*arguments, **named)

        context.setattr(owner, place, dying)
        with pytest.raises(KeyboardInterrupt):
            train(broken, small_task, chosen, output=tmp_path / "broken")
    again = Policy(
        policy_size("tiny"), vocabulary_size=len(small_task.vocabulary), seed=9
    )  # its own weights do not matter any more
    train(again, small_task, chosen, output=tmp_path / "broken", resume=True)
    for own, theirs in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(own, theirs)
    (steps, rollouts), (steps_again, rollouts_again) = (
        rows_of(whole_folder),
        rows_of(tmp_path / "broken"),
    )
    assert steps.equals(steps_again)
    assert rollouts.equals(rollouts_again)


def test_a_torn_checkpoint_is_never_seen(
    make_policy: Maker, small_task: Task, tmp_path: Path, monkeypatch: Any
) -> None:
    """A kill while a checkpoint is being written leaves the one before."""
    chosen = settings(steps=6, checkpoint_every=2)
    original = checkpoints.write_state

    def dying(folder: Path, tensors: Any, about: Any) -> None:
        if about["step"] == 4:
            raise KeyboardInterrupt
        original(folder, tensors, about)

    monkeypatch.setattr("groupwise_lab.trainer.folder.write_state", dying)
    with pytest.raises(KeyboardInterrupt):
        train(make_policy(), small_task, chosen, output=tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == [
        "checkpoint-0",
        "checkpoint-2",
    ]


@pytest.mark.slow
def test_checkpoints_are_kept_as_asked(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    for kept, expected in ((None, [0, 2, 4, 6, 8]), (1, [0, 8]), (2, [0, 6, 8])):
        train(
            make_policy(),
            small_task,
            settings(steps=8, checkpoint_every=2, checkpoints_kept=kept),
            output=tmp_path / "run",
            force=True,
        )
        folders = list((tmp_path / "run" / "checkpoints").iterdir())
        assert sorted(int(path.name.removeprefix("checkpoint-")) for path in folders) == expected
        assert [path.name for path in folders if (path / "state.json").exists()] == ["checkpoint-8"]


def test_the_record_says_what_happened(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    record = train(
        make_policy(),
        small_task,
        settings(steps=4, rollouts_every=2, evaluate_every=2),
        output=tmp_path / "run",
    )
    assert record.steps["step"].to_list() == [1, 2, 3, 4]
    assert record.rollouts is not None
    assert record.rollouts["step"].unique().sort().to_list() == [1, 2, 4]
    first = record.rollouts.filter(record.rollouts["step"] == 1)
    assert first["reward"].mean() == pytest.approx(record.steps["reward"][0])
    groups = first["reward"].to_numpy().reshape(-1, 4)
    assert record.steps["dead_share"][0] == pytest.approx(np.mean(groups.max(1) == groups.min(1)))
    assert record.steps["reward_std"][0] == pytest.approx(groups.std(1, ddof=1).mean())
    assert first["prompt_id"].to_list() == [n // 4 for n in range(32)]
    assert record.config.value("group_size") == 4
    assert record.config.value("lag_kind") == "none"
    assert record.steps["eval/reward"].null_count() == 2
    unknown = [name for name in record.metrics() if record.meaning(name) is None]
    assert unknown == []


def test_other_settings_another_task_or_another_policy_do_not_go_on(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    chosen = settings(steps=2, checkpoint_every=1)
    train(make_policy(), small_task, chosen, output=tmp_path / "run")
    with pytest.raises(OverwriteError, match=r"holds a run already: go on with it by --resume"):
        train(make_policy(), small_task, chosen, output=tmp_path / "run")
    with pytest.raises(OverwriteError, match=r"with learning_rate 0.001; got 0.002"):
        train(
            make_policy(),
            small_task,
            settings(steps=2, learning_rate=2e-3),
            output=tmp_path / "run",
            resume=True,
        )
    with pytest.raises(OverwriteError, match="to be of this task"):
        train(
            make_policy(),
            make_task("modular_addition", level=1, seed=5),
            chosen,
            output=tmp_path / "run",
            resume=True,
        )
    other = Policy(policy_size("small"), vocabulary_size=len(small_task.vocabulary))
    with pytest.raises(GroupwiseError, match=r"expected a policy of 1\d+ parameters .* got 2\d+"):
        train(other, small_task, chosen, output=tmp_path / "run", resume=True)
    longer = train(
        make_policy(),
        small_task,
        settings(steps=4, checkpoint_every=1),
        output=tmp_path / "run",
        resume=True,
    )
    assert longer.steps["step"].to_list() == [1, 2, 3, 4]


# --- what it refuses
# --------------------------------------------------------------------------------------------------


@each_case(
    ("changes", "message"),
    [
        ({"group_size": 1}, "expected group_size of at least 2, got 1"),
        (
            {"group_size": 5},
            "expected group_size to divide rollouts_per_step, got 5 and 32: take 30",
        ),
        ({"learning_rate": math.nan}, "expected learning_rate to be a number above 0; got nan"),
        (
            {"momentum": 1.0, "optimizer": "sgd"},
            "expected momentum to be a number of at least 0 and below 1; got 1.0",
        ),
        ({"momentum": 0.5}, "expected optimizer sgd with momentum 0.5; got adam"),
        ({"refresh_interval": 2}, "expected lag_kind fixed, refresh or async"),
        (
            {"lag_kind": "later"},
            "expected lag_kind to be one of none, fixed, refresh, async; got 'later'",
        ),
        ({"clip": None, "clip_high": 0.3}, "expected clip with clip_high"),
        (
            {"advantage_value": 3.0},
            (
                "expected advantage constant with advantage_value 3.0; got leave_one_out: it would "
                "change nothing"
            ),
        ),
        ({"kl_in": "reward"}, "expected kl_weight above 0 with kl_in reward; got 0"),
        (
            {"kl_estimator": "k3"},
            "expected kl_weight above 0 and kl_in loss with kl_estimator k3; got 0 and loss",
        ),
        (
            {"kl_weight": 0.1, "kl_in": "reward", "kl_estimator": "k3"},
            "and kl_in loss with kl_estimator k3; got 0.1 and reward",
        ),
        (
            {"importance_ratio": "none", "clip_high": 0.3},
            "expected an importance_ratio with clip_high 0.3; got none",
        ),
        (
            {"importance_ratio": "none", "clip": 0.3},
            "expected an importance_ratio with clip 0.3; got none",
        ),
        (
            {"optimizer": "sgd", "beta1": 0.8},
            "expected optimizer adam or adamw with beta1 0.8; got sgd",
        ),
        (
            {"optimizer": "sgd", "epsilon": 1e-6},
            "expected optimizer adam or adamw with epsilon 1e-06; got sgd",
        ),
        ({"micro_batch": 6}, "expected micro_batch to hold whole groups of 4; got 6"),
        ({"steps": 0}, "expected steps to be a whole number of at least 1; got 0"),
        ({"steps": True}, "expected steps to be a whole number of at least 1; got True"),
        ({"ramp_steps": 6}, "expected ramp_steps below the 6 steps"),
        ({"refresh_interval": 20_000, "lag_kind": "fixed"}, "at most 10000"),
    ],
)
def test_settings_outside_their_domain_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        settings(**changes)


def test_a_task_without_a_right_rollout_stops(small_task: Task, tmp_path: Path) -> None:
    policy = Policy(policy_size("tiny"), vocabulary_size=len(small_task.vocabulary))
    with torch.no_grad():
        policy.head.weight.zero_()
        policy.head.weight[2:12] = -50 * torch.ones(10, 32)  # whatever it says, no digit is in it
        policy.norm.weight.zero_()
        policy.norm.bias.fill_(1.0)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    with pytest.raises(
        InsufficientDataError,
        match=(
            r"got 0 for all 320 of the first 10 steps on modular_addition: there is nothing to "
            r"learn"
        ),
    ):
        train(policy, small_task, settings(steps=50), output=tmp_path / "run")
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.state_dict().items())
    assert len(RunRecord.load(tmp_path / "run").steps) == 9


@pytest.mark.parametrize("name", ["leave_one_out", "trl/grpo"])
def test_rollouts_without_a_reward_count_for_nothing(
    name: str, make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    from dataclasses import replace

    task = replace(
        small_task, verifier=FailingVerifier(small_task.verifier, share=0.3, mode="missing")
    )
    record = train(
        make_policy(),
        task,
        settings(steps=3, advantage=name, rollouts_every=1),
        output=tmp_path / "run",
    )
    assert record.rollouts is not None
    missing = record.rollouts.filter(record.rollouts["reward"].is_null())
    assert 10 < len(missing) < 50
    assert missing["advantage"].abs().max() == 0
    assert record.steps["missing_share"].mean() == pytest.approx(
        len(missing) / len(record.rollouts)
    )


def test_ctrl_c_finishes_the_step_and_the_record(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    chosen = settings(steps=50, checkpoint_every=50)
    record = train(
        make_policy(),
        small_task,
        chosen,
        output=tmp_path / "run",
        on_step=lambda step, row: step == 3,
    )
    assert record.steps["step"].to_list() == [1, 2, 3]
    assert (tmp_path / "run" / "checkpoints" / "checkpoint-3" / "state.json").exists()


@pytest.mark.parametrize("rubbish", ["not a number", {}])
def test_a_damaged_state_is_a_sentence(
    rubbish: Any, make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    chosen = settings(steps=2, checkpoint_every=1)
    train(make_policy(), small_task, chosen, output=tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "checkpoint-2" / "state.json").write_text(
        json.dumps(rubbish)
    )
    with pytest.raises(GroupwiseError, match="expected"):
        train(make_policy(), small_task, chosen, output=tmp_path / "run", resume=True)


def test_a_folder_that_holds_something_else_is_never_touched(
    make_policy: Maker, small_task: Task, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for force in (False, True):
        with pytest.raises(OverwriteError, match="holds something other than a run"):
            train(make_policy(), small_task, settings(), output=tmp_path, force=force)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(GroupwiseError, match="expected"):
        train(make_policy(), small_task, settings(), output=tmp_path / "file")
