"""One small log of each framework, made by hand after its sources: what opens, in which steps,
and what its keys mean.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError, UnreadableRunError
from groupwise.readers import run_record
from groupwise.readers.configs import VerlSettings as Settings
from groupwise.readers.configs import settings_in
from groupwise.readers.keys import (
    QUANTITIES,
    RULES,
    framework_of,
    known_quantities,
    meanings_of,
    version_of,
)
from groupwise.readers.source import number_of
from groupwise.record.run import RunConfig

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "readers"
REWARDS = [round(0.2 + 0.05 * step, 4) for step in range(1, 9)]

LOGS = [
    (
        "verl/console.log",
        "verl_console",
        "verl",
        {
            "reward": "critic/score/mean",
            "entropy": "actor/entropy",
            "eval/reward": "val-core/openai/gsm8k/acc/mean@1",
            "truncated_share": "response_length/clip_ratio",
            "learning_rate": "actor/lr",
        },
    ),
    (
        "verl/file.jsonl",
        "jsonl",
        "verl",
        {"reward": "critic/score/mean", "eval/reward": "val-core/openai/gsm8k/reward/mean@1"},
    ),
    (
        "trl/console.log",
        "trl_console",
        "trl",
        {"reward": "reward", "dead_group_share": "frac_reward_zero_std"},
    ),
    (
        "trl/console_strings.log",
        "trl_console",
        "trl",
        {"reward": "reward", "reward/correct": "rewards/correct/mean"},
    ),
    (
        "openrlhf/console.log",
        "trl_console",
        "openrlhf",
        {
            "reward": "reward",
            "reward_std_within_group": "group_reward_std",
            "gradient_norm": "actor_grad_norm",
            "loss": "policy_loss",
        },
    ),
    (
        "swift/logging.jsonl",
        "jsonl",
        "ms-swift",
        {"reward": "reward", "reward_std_within_group": "reward_std"},
    ),
    (
        "prime_rl/metrics.jsonl",
        "jsonl",
        "prime-rl",
        {
            "reward": "train/agg/all/policy/reward/mean",
            "entropy": "entropy/all/mean",
            "staleness_max": "off_policy/max",
            "all_wrong_share": "train/agg/all/policy/solved_none",
        },
    ),
    (
        "nemo_rl/console.log",
        "printed",
        None,
        {"reward": "Avg Reward", "completion_length": "Mean Generation Length"},
    ),
    (
        "art/history.jsonl",
        "jsonl",
        "art",
        {"reward": "train/reward", "reward_std_within_group": "train/reward_std_dev"},
    ),
    (
        "areal/console.log",
        "printed",
        "areal",
        {"reward": "ppo_actor/task_reward/avg", "entropy": "ppo_actor/update/entropy/avg"},
    ),
    ("skyrl/export.csv#a", "csv", "skyrl", {"reward": "reward/avg_raw_reward"}),
    (
        "open_instruct/history.jsonl",
        "jsonl",
        "open-instruct",
        {"reward": "scores", "admitted_share": "real_batch_size_ratio", "kl": "objective/kl2_avg"},
    ),
    ("columns/metrics.json", "json", None, {"reward": "reward"}),
    ("printed/console.log", "printed", None, {"reward": "reward"}),
    ("mlflow/mlruns", "mlflow", "verl", {"reward": "critic/score/mean"}),
    ("mlflow/mlruns/0/ab12", "mlflow", "verl", {"reward": "critic/score/mean"}),
]


@each_case(("file", "reader", "framework", "quantities"), LOGS)
def test_a_log_of_each_framework(
    file: str, reader: str, framework: str | None, quantities: dict[str, str]
) -> None:
    record = run_record(f"{FIXTURES}/{file}")
    record.validate()
    assert (record.sources[0].reader, record.config.value("framework")) == (reader, framework)
    assert {name: record.column(name) for name in quantities} == quantities
    reward = record.steps.filter(pl.col("step") > 0)[record.column("reward")]
    assert reward.to_list() == pytest.approx(REWARDS, abs=1e-3)


def test_verls_settings_and_prefixes() -> None:
    record = run_record(FIXTURES / "verl" / "console.log")
    expected = {
        "group_size": 8,
        "prompts_per_step": 16,
        "learning_rate": 2e-6,
        "beta2": 0.95,
        "kl_weight": 0.002,
        "kl_in": "loss",
        "updates_per_step": 2,
        "refresh_interval": 2,
        "scale_rewards": "group",
        "temperature": 0.9,
    }
    assert {name: record.config.value(name) for name in expected} == expected
    assert record.steps["step"].to_list() == list(range(9))
    assert record.steps["val-core/openai/gsm8k/acc/mean@1"].drop_nulls().to_list() == [
        0.21,
        0.28,
        0.36,
    ]
    assert record.steps["optimizer_updates"].to_list() == [2.0 * step for step in range(9)]
    meaning = record.meaning("actor/pg_clipfrac")
    assert meaning is not None
    assert meaning.unavailable


def test_verls_first_versions() -> None:
    record = run_record(FIXTURES / "verl" / "legacy.log")
    assert record.column("entropy") == "actor/entropy_loss"
    assert record.steps["actor/lr"].unique().to_list() == [pytest.approx(1e-6)]
    assert (
        "actor/lr(1e-4) had a scale factor in the name: the values were multiplied by it and "
        "the name shortened"
    ) in record.notes
    assert record.steps["critic/score/mean"][0] == 0.2


@pytest.mark.parametrize("name", ["rollouts_v0", "rollouts_v1"])
def test_verls_dumps(name: str) -> None:
    record = run_record(FIXTURES / "verl" / name)
    assert record.rollouts is not None
    assert (
        len(record.rollouts),
        record.config.value("group_size"),
        record.steps["step"].to_list(),
    ) == (36, 4, [1, 2, 3])


def test_two_settings_of_kl_in_verl() -> None:
    for lines, weight, where in (
        (
            (
                "algorithm.use_kl_in_reward=True algorithm.kl_ctrl.kl_coef=0.05 "
                "actor_rollout_ref.actor.use_kl_loss=False"
            ),
            0.05,
            "reward",
        ),
        ("algorithm.use_kl_in_reward=False actor_rollout_ref.actor.use_kl_loss=False", 0.0, "none"),
        (
            "+actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=1e-3",
            1e-3,
            "loss",
        ),
    ):
        settings = Settings()
        settings.add(f"python3 -m verl.trainer.main_ppo {lines}")
        read_settings = settings_in(settings.settings())
        assert (read_settings["kl_weight"], read_settings["kl_in"]) == (weight, where)


@each_case(
    ("text", "value"),
    [
        ("np.float64(0.5)", 0.5),
        ("np.int64(3)", 3.0),
        ("tensor(0.25, device='cuda:0')", 0.25),
        ("1e-05", 1e-5),
        ("dapo", None),
        ("np.float64(x)", None),
        ("", None),
        ("array(2.)", 2.0),
    ],
)
def test_printed_numbers(text: str, value: float | None) -> None:
    assert number_of(text) == value


def test_a_run_that_dies_before_its_first_step_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(
        "(main_task pid=1) {'actor_rollout_ref': {'rollout': {'n': 8}}}\nNotImplementedError\n"
    )
    with pytest.raises(UnreadableRunError, match="wait for the first step"):
        run_record(path)


def test_a_row_that_another_process_printed_into(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(
        "step:1 - critic/score/mean:0.5 - actor/entropy:0.4(WorkerDict pid=3) hello\nstep:2 - "
        "critic/score/mean:0.6\n"
    )
    record = run_record(path)
    assert record.steps["critic/score/mean"].to_list() == [0.5, 0.6]
    assert "actor/entropy" not in record.metrics()
    assert any("1 value is not a number and was left out" in note for note in record.notes)


def test_a_printed_row_without_its_step_is_said(tmp_path: Path) -> None:
    whole = (FIXTURES / "verl" / "console.log").read_text()
    (tmp_path / "x.log").write_text(whole.replace("step:3 - ", "stp:3 - "))
    record = run_record(tmp_path / "x.log")
    assert 3 not in record.steps["step"].to_list()
    assert any("1 line looks like a row without its step" in note for note in record.notes)


def test_swifts_completions() -> None:
    record = run_record(FIXTURES / "swift" / "completions.jsonl")
    assert record.rollouts is not None
    assert record.rollouts.columns[:4] == ["step", "prompt_id", "prompt", "completion"]
    assert {"reward/Acc", "reward/Format", "advantage"} <= set(record.rollouts.columns)
    assert (len(record.rollouts), record.config.value("group_size")) == (24, 4)
    sums = record.rollouts["reward/Acc"] + record.rollouts["reward/Format"]
    assert record.rollouts["reward"].to_list() == sums.to_list()


@pytest.mark.parametrize(
    "place", ["prime_rl/rollouts", "prime_rl/rollouts/step_1/train/all/traces.jsonl"]
)
def test_prime_rls_episodes(place: str) -> None:
    record = run_record(FIXTURES / place)
    assert record.rollouts is not None
    assert record.rollouts.group_by("step", "prompt_id").len()["len"].unique().to_list() == [4]
    assert np.allclose(
        record.rollouts["reward"],
        record.rollouts["reward/correct"] + record.rollouts["reward/format"],
    )
    assert record.steps["step"][0] == 1


def test_nemo_rls_dumps_by_prompt_and_by_position(tmp_path: Path) -> None:
    for step in (1, 2):
        rows = [
            json.loads(line)
            for line in (FIXTURES / "nemo_rl" / f"train_data_step{step}.jsonl")
            .read_text()
            .splitlines()
        ]
        lines = [json.dumps(row | {"content": "".join(row["content"])}) for row in rows]
        (tmp_path / f"train_data_step{step}.jsonl").write_text("\n".join(lines))
    parted = run_record(FIXTURES / "nemo_rl" / "train_data_step2.jsonl").rollouts
    joined = run_record(tmp_path, settings={"group_size": "4"}).rollouts
    assert parted is not None
    assert joined is not None
    assert (
        parted["prompt_id"].to_list() == joined.filter(pl.col("step") == 2)["prompt_id"].to_list()
    )
    with pytest.raises(InvalidArgumentError, match="--set group_size=G"):
        run_record(tmp_path)


def test_an_event_stream_is_put_in_the_order_of_its_steps() -> None:
    record = run_record(FIXTURES / "events" / "metrics.jsonl")
    assert record.sources[0].reader == "events"
    assert record.steps["reward"].to_list()[:8] == [0.2, *REWARDS[:7]]
    assert record.steps["rollout_done/completion_length_mean"].to_list()[:3] == [
        400.0,
        401.5,
        402.5,
    ]
    assert record.steps["seconds"].drop_nulls()[0] == 1.0  # a usual row


@each_case(
    ("clock", "took", "first"),
    [
        ("timestamp", {"step_time": 8.0}, 8.0),
        ("timestamp", {}, 10.0),
        ("elapsed", {}, 10.0),
    ],
)
def test_a_clock_since_1970_begins_with_the_time_of_its_first_step(
    tmp_path: Path, clock: str, took: dict[str, float], first: float
) -> None:
    rows = [{"step": n, "reward": 0.1 * n, clock: 1.7e9 + 10 * n, **took} for n in range(9)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    seconds = run_record(tmp_path / "log.jsonl").steps["seconds"]
    assert seconds.to_list() == [first + 10 * n for n in range(9)]


def test_a_chart_of_several_runs_asks_which() -> None:
    with pytest.raises(UnreadableRunError, match="add one of #a, #b"):
        run_record(FIXTURES / "skyrl" / "export.csv")
    assert run_record(f"{FIXTURES}/skyrl/export.csv#b").steps[
        "reward/avg_raw_reward"
    ].to_list() == [value / 2 for value in REWARDS]


def test_openrlhfs_steps_are_those_that_it_prints(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(
        "".join(
            f"Global step {7 * at}: {{'policy_loss': 0.1, 'reward': {at}}}\n" for at in range(1, 5)
        )
    )
    assert run_record(tmp_path / "x.log").steps["step"].to_list() == [7, 14, 21, 28]


# Every key of the table
# --------------------------------------------------------------------------------------------------


@each_case("rule", RULES)
def test_every_quantity_is_described(rule: object) -> None:
    from groupwise.readers.keys import KeyRule

    assert isinstance(rule, KeyRule)
    bare = rule.quantity.removeprefix("eval/")
    assert bare in QUANTITIES or bare.split("/")[0] in QUANTITIES
    assert {bare.split("/")[0]} <= {name.split("/")[0] for name in known_quantities()}
    low, high = version_of(rule.since), version_of(rule.until)
    assert low is None or high is None or low <= high


def test_entropy_loss_is_a_term_of_the_loss_where_entropy_is_logged_too() -> None:
    data = {"actor/entropy": np.ones(3), "actor/entropy_loss": np.ones(3)}
    read = {
        item.column: item.quantity
        for item in meanings_of(data, RunConfig(), framework="verl", complete=False, window=1.0)
    }
    assert read == {"actor/entropy": "entropy"}


@each_case(
    ("key", "quantity"),
    [
        ("response/length/mean", "completion_length"),
        ("response/length/max", "completion_length_max"),
        ("response/clip_ratio/mean", "truncated_share"),
        ("prompt/clip_ratio/mean", None),
        ("rollout/completion_length_max", "completion_length_max"),
        ("max_completion_length", None),
        ("train/iteration_time", "step_time"),
        ("train/iteration_time_limit", None),
    ],
)
def test_keys_of_forks_and_of_other_trainers(key: str, quantity: str | None) -> None:
    data = {"critic/rewards/mean": np.arange(3.0), key: np.arange(3.0)}
    read = {
        item.column: item.quantity
        for item in meanings_of(data, RunConfig(), framework="verl", complete=False, window=1.0)
    }
    assert read.get(key) == quantity


@pytest.mark.parametrize("last", [3, 5])
def test_what_an_upgrade_renamed_is_one_column_unless_both_are_logged_side_by_side(
    tmp_path: Path, last: int
) -> None:
    rows = [
        {"step": step, "critic/score/mean": 0.1 * step}
        | ({"actor/entropy_loss": 2.0} if step <= last else {})
        | ({"actor/entropy": 1.0} if step > 3 else {})
        for step in range(1, 7)
    ]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    record = run_record(tmp_path / "run.jsonl")
    entropy = record.steps[record.column("entropy")].to_list()
    assert entropy == ([2.0] * 3 if last == 3 else [None] * 3) + [1.0] * 3
    assert any("called actor/entropy from row 4 on" in note for note in record.notes) == (last == 3)


@each_case(
    ("keys", "framework"),
    [
        (["critic/rewards/mean"], "verl"),
        (["train/reward", "train/reward_std", "train/completion_length"], "trl"),
        (["reward", "loss"], ""),
        (["run 1 - critic/score/mean"], "verl"),
        (["rollout/raw_reward"], "slime"),
        (["reward/all/mean", "solve_none/all", "reward/maths/mean"], "prime-rl"),
        (["reward/mean", "batch/solve_none", "batch/async_level"], "prime-rl"),
        (["reward/mean", "batch/solve_none", "batch/solve_all"], ""),  # rLLM counts them so, too
        (["train/baseline_reward/pct_0"], "nemo-rl"),
        (["env/all/reward/total"], "tinker"),
        (["inference.rollout/sums/avg_reward"], "marin"),
        # What loops of one's own write too names OpenRLHF only by two.
        (["group_reward_std", "ppo_clip_ratio"], "openrlhf"),
        (["train/actor_grad_norm", "train/total_length"], "openrlhf"),
        (["reward", "group_reward_std", "policy_loss"], ""),
        (["reward", "actor_grad_norm", "actor_lr"], ""),
        (["reward", "stop_rate"], ""),
        (["reward", "max off-policy", "branches"], "prime-rl"),
        (["reward", "max off-policy", "truncated"], ""),
        ([], ""),
    ],
)
def test_the_framework_is_known_by_its_keys(keys: list[str], framework: str) -> None:
    assert framework_of(keys) == framework


# As prime-rl's orchestrator and trainer print a step and an evaluation, before 0.6 and since.
PRIME_OLD = (
    "10:00:{0:02} SUCCESS Step {0} | Time: 29.02s | Reward: {1:.4f} | Throughput: 9000.0 tokens/s "
    "| Seq. Length: 1593.6 tokens/sample | Async Level: 1 | Max. Off-Policy Level: {0}\n"
    "10:00:{0:02} SUCCESS Step {0} | Time: 29.02s | Loss: 0.0012 | Entropy: 0.2383 | Mismatch KL: "
    "0.0008 | Grad. Norm: 0.1205 | LR: 1.00e-06 | MFU: 22.1% | Peak Mem.: 61.2 GiB\n"
    "10:00:{0:02} SUCCESS Evaluated aime-24 in 81.20s (Avg@4={2:.4f}, Pass@4: 0.5000, No-response: "
    "0.0%, Completion Length: 1473.63 (±80.00, ∈[10.00, 900.00]), Truncated: 12.5%)\n"
)
PRIME_NEW = (
    "10:00:{0:02} SUCCESS Step {0} |   32.1s | Reward {1:.4f} | Trainable 5/8 (62.5%) | Turns 1.0 "
    "| Branches 1.0 | Max Off-Policy {0} | Error 12.5% | Cancelled 0.0% | Truncation 12.5%\n"
    "10:00:{0:02} SUCCESS Evaluated aime-24 | Policy v{0} |   81.2s | Reward {2:.4f} | Turns 1.0 | "
    "Branches 1.0 | Error 0.0% | Truncation 12.5% | Timeout 0.0%\n"
)


@pytest.mark.parametrize(
    ("line", "more"),
    [
        (PRIME_OLD, {"sampler_mismatch": 0.0008, "eval/pass_at_k/aime-24": 0.5}),
        (PRIME_NEW, {"failure_share": 0.125, "truncated_share": 0.125}),
    ],
)
def test_what_prime_rl_prints(line: str, more: dict[str, float], tmp_path: Path) -> None:
    path = tmp_path / "orchestrator.log"
    path.write_text("".join(line.format(n, n / 20, 0.9 - n / 20) for n in range(9)))
    record = run_record(path)
    assert record.config.value("framework") == "prime-rl"
    rising, constant = [n / 20 for n in range(9)], {"eval/truncated_share/aime-24": 0.125, **more}
    expected = {name: [value] * 9 for name, value in constant.items()} | {
        "staleness": range(9),
        "reward": rising,
        "eval/reward": [0.9 - value for value in rising],
    }
    for name, values in expected.items():
        assert record.values(record.column(name)).tolist() == pytest.approx(list(values)), name


@pytest.mark.parametrize(
    "line",
    [
        "Evaluated completions in 3.2s (reward: 0.9)",
        "Evaluated 8 rollouts: reward=0.9",
        "Evaluated policy: reward=0.9",
        "Evaluated trajectories: 64 | reward: 0.9",
        "Evaluated prompts in 3.2s | reward: 0.9 | length: 30",
        "Evaluated answers: reward 0.9",
        "Evaluated rollout_batch in 3.1s | reward: 0.9",
        "INFO Evaluated actions in 0.4s | Reward 0.9 | loss 0.2",
        "Evaluated train_set: reward=0.9",
        "Reward model evaluated minibatch in 2.0s (reward: 0.9)",
    ],
)
def test_what_is_evaluated_for_the_training_is_no_held_out_set(line: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("".join(f"Step {n} | reward: {n / 20} | loss: 0.1\n{line}\n" for n in range(9)))
    record = run_record(path)
    assert not any("eval" in key for key in record.metrics())
    assert record.values("reward").tolist() == pytest.approx([n / 20 for n in range(9)])


@pytest.mark.parametrize(
    ("pair", "name"),
    [
        ("non-zero groups", "non-zero groups"),
        ("rank-0 kl", "kl"),
        ("-kl", "kl"),
        ("task:on-policy kl", "policy kl"),
    ],
)
def test_a_hyphen_between_letters_is_of_a_name(pair: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("".join(f"Step {n} | reward: 0.5 | {pair}: 0.1\n" for n in range(9)))
    assert name in run_record(path).steps.columns


@pytest.mark.parametrize(
    ("key", "quantity"),
    [
        ("test-acc", "eval/reward"),
        ("eval-reward", "eval/reward"),
        ("held-out-acc", "eval/reward"),
        ("latest-acc", "task_score"),
        ("test-case accuracy", "task_score"),  # of the tests of a task
        ("val-core/maths/acc/mean@1", "eval/reward"),  # verl's, by its own rule
    ],
)
def test_a_hyphen_behind_the_name_of_an_evaluation(key: str, quantity: str, tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text(f"step,reward,{key}\n" + "".join(f"{n},0.5,0.{n}\n" for n in range(1, 9)))
    assert run_record(path).column(quantity) == key
