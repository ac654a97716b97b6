"""What trainers print and name in ways of their own, each beside what looks alike and is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cases import each_case

from groupwise.errors import UnreadableRunError
from groupwise.readers import run_record
from groupwise.readers.keys import quantity_named
from groupwise.record.run import RunRecord

REWARDS = [0.25 + at / 64 for at in range(24)]


def printed(tmp_path: Path, line: Callable[[int], str]) -> RunRecord:
    """Return the record of a console log with the lines of 24 steps."""
    (tmp_path / "run.log").write_text("".join(f"{line(at)}\n" for at in range(len(REWARDS))))
    return run_record(tmp_path / "run.log")


def logged(tmp_path: Path, **values: Callable[[int], float]) -> RunRecord:
    """Return the record of a log of JSON lines with keys whose `__` stands for a slash."""
    rows = [
        {"step": at} | {key.replace("__", "/"): value(at) for key, value in values.items()}
        for at in range(len(REWARDS))
    ]
    (tmp_path / "run.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return run_record(tmp_path / "run.jsonl")


def rewards(record: RunRecord) -> list[float]:
    """Return the reward of each step."""
    values: list[float] = record.steps[record.column("reward")].to_list()
    return values


@each_case("key", ["policy_reward", "train__policy_reward", "policy_reward_mean", "Policy Reward"])
def test_the_objective_of_the_policy_is_no_reward(key: str, tmp_path: Path) -> None:
    values = {key: lambda at: 0.001 * (at % 3), "reward_mean": REWARDS.__getitem__}
    assert rewards(logged(tmp_path, **values)) == REWARDS
    assert not [item for item in logged(tmp_path, **values).meanings if "olicy" in item.column]


@each_case("key", ["policy__mean_reward", "rollout_reward", "policy__rollout_reward"])
def test_a_reward_of_the_policy_or_its_rollouts_is_the_reward(key: str, tmp_path: Path) -> None:
    assert rewards(logged(tmp_path, **{key: REWARDS.__getitem__})) == REWARDS


def test_a_heading_lists_the_mean_and_spread_of_rewards(tmp_path: Path) -> None:
    """As MLX-GRPO prints them: the question of the sample names a step, and so does the last
    line.
    """
    record = printed(
        tmp_path,
        lambda at: (
            f"{'=' * 60}\nTraining step {at + 1}\n{'=' * 60}\nWhat is step 12: 3?\n"
            f"Rewards - Mean: {REWARDS[at]:.6f}, Std: 0.400\n"
            "Advantages - Mean: 0.000, Std: 1.000\n--- Sample Response (Reward: 1.250) ---\n"
            f"Epoch 0, Batch {at + 1}/99, Loss: 0.01, Policy Reward: 0.0003, KL: 0.01"
        ),
    )
    assert rewards(record) == REWARDS
    assert record.steps["step"].to_list() == list(range(1, 25))
    assert record.steps["Rewards std"].to_list() == [0.4] * 24


@each_case("counts", ["+33 / -31", "+33/-31"])
def test_counts_above_and_below_zero_are_no_mean(counts: str, tmp_path: Path) -> None:
    def line(text: str) -> Callable[[int], str]:
        return lambda at: f"Step {at}/24\n  Reward: {REWARDS[at]}, Loss: 0.1\n  {text}, Kl: 0.1"

    record = printed(tmp_path, line(f"Advantages: {counts}"))
    assert "Advantages" not in record.metrics()
    for mean in ("0.25 / 1.0", "0.25", "-0.25 / 2"):
        record = printed(tmp_path, line(f"Advantages: {mean}"))
        assert abs(record.steps["Advantages"][3]) == pytest.approx(0.25)


@each_case("evaluation", ["eval reward: 0.5 | eval length: 301.2", "Test | Reward: 0.5"])
def test_a_printed_evaluation_is_not_the_reward_of_training(
    evaluation: str, tmp_path: Path
) -> None:
    ends = dict.fromkeys(range(5, 24, 6), f"\n{evaluation}")
    reward = "Epoch: 1/1 | Step: {} | Reward: {}{}"
    record = printed(tmp_path, lambda at: reward.format(at, REWARDS[at], ends.get(at, "")))
    assert rewards(record) == REWARDS


def test_a_line_that_shares_no_metric_with_the_rows_counts_no_steps(tmp_path: Path) -> None:
    """As DeepSpeed prints its own every ten steps, which it counts from 1."""

    def line(at: int, other: str) -> str:
        before = f"[12:00:01] [Rank 0] step={at + 1}, {other}, lr=[9.65e-06, 9.65e-06]\n"
        row = f"Epoch: 1/1 | Step: {at}/24 | Reward: {REWARDS[at]} | KL: 0.1"
        return (before if at % 10 == 9 else "") + row

    record = printed(tmp_path, lambda at: line(at, "skipped=0"))
    assert rewards(record) == REWARDS
    assert record.steps["step"].to_list() == list(range(24))
    assert not any("restarted" in note for note in record.notes)
    record = printed(tmp_path, lambda at: line(at, "reward=0.0"))  # shares one: a restart
    assert any("restarted" in note for note in record.notes)


def test_lines_of_other_metrics_keep_their_own_steps(tmp_path: Path) -> None:
    record = printed(
        tmp_path,
        lambda at: f"step {at} | memory: {at}" + (f"\nstep {at} | reward={at}" * (at % 4 == 0)),
    )
    assert record.steps["memory"].to_list() == list(range(24))


ROWS = {
    "names in rooms": "{{'step': {at}, 'train/loss': 0.1, 'train/reward': {reward}}}",
    "behind a word": "Metrics: {{'loss': 0.1, 'reward': {reward}}}",
    "behind a logger and a word": (
        "2026-01-01 10:00:00,123 - INFO - Metrics: {{'loss': 0.1, 'reward': {reward}}}"
    ),
    "behind words": (  # as nano-aha prints them
        "KEY METRICS: {{'train/rewards': np.float64({reward}), 'train/kl': np.float64(0.1)}}"
    ),
}


@each_case("row", ROWS.values())
def test_a_printed_dictionary_is_a_row_by_the_names_that_json_lines_have(
    row: str, tmp_path: Path
) -> None:
    record = printed(tmp_path, lambda at: row.format(at=at, reward=REWARDS[at]))
    assert rewards(record) == REWARDS


@each_case(
    "line",
    [
        "{{'step': {at}, 'train/lr': 0.1, 'cache/hits': 3}}",
        "{{'step': {at}, 'eval/reward': 0.9}}",
        "I print {{'loss': 0.1, 'reward': 0.9}}",
        "The metrics: {{'loss': 0.1, 'train/reward': 0.9}} are fine",
    ],
)
def test_a_dictionary_without_a_result_or_within_a_text_is_no_row(
    line: str, tmp_path: Path
) -> None:
    row = f"{ROWS['behind a word']}\n{line}"
    record = printed(tmp_path, lambda at: row.format(at=at, reward=REWARDS[at]))
    assert rewards(record) == REWARDS


@each_case("begin", [0, 1])
def test_a_progress_bar_at_0_is_a_position(begin: int, tmp_path: Path) -> None:
    """As Open-Reasoner-Zero prints a row before its bar moves; one that has no bar stays out."""
    bar = "Episode [1/20]: {:3d}%|#  | {}/24 [00:21<10:09, 21.04s/it]\n"
    record = printed(
        tmp_path,
        lambda at: (
            bar.format(4 * at, at) * (at >= begin)
            + f"{{'policy_loss': 0.1, 'reward': {REWARDS[at]}}}"
        ),
    )
    assert record.steps["step"].to_list() == list(range(begin, 24))


@each_case(
    ("key", "quantity"),
    [
        ("rollout_info/ep_rew", "reward"),  # RL4LMs
        ("rollout_info/ep_lens", "completion_length"),
        ("rollout_info/kl_div_mean", "kl"),
        ("buffer/reward_mean", "reward"),  # TorchRL
        ("buffer/seq_length_mean", "sequence_length"),
        ("train/kl_penalty", "kl"),  # nano-aha
        ("gradnorm", "gradient_norm"),
        ("l2_norm/grad/global", "gradient_norm"),  # Compose RL
        ("loss/train/gen/cur_seq_entropy", "entropy"),
        ("Average reward score", "reward"),  # DeepSpeed-Chat
        ("tok_per_resp", "completion_length"),  # loops of one's own
        ("grad_l2", "gradient_norm"),
        ("acc_val", "eval/reward"),
        ("reward_eval", "eval/reward"),
        ("acc_test", "eval/reward"),
        ("reward_test", ""),  # perhaps of the tests that code has to pass
        ("score_test", ""),
        ("pass_rate_test", ""),
        ("reward_val", ""),  # perhaps its value
        ("acc_val_count", ""),
        ("grad_l2_ratio", ""),
        ("response_tokens", ""),  # of one, or of all of the step
        ("buffer/reward_max", ""),
        ("rollout_info/ep_count", ""),
        ("train/kl_penalty_coef", ""),
        ("l2_norm/param/global", ""),
        ("seq_entropy_target", ""),
        ("reward_score_std", ""),
        ("eval/reward score", ""),
    ],
)
def test_keys_of_trainers_mean_what_their_sources_say(key: str, quantity: str) -> None:
    assert quantity_named(key) == quantity


def test_a_score_of_the_reward_is_no_score_of_the_task(tmp_path: Path) -> None:
    values = {"Average reward score": REWARDS.__getitem__, "task_score": lambda at: 0.1 * (at % 3)}
    record = logged(tmp_path, **values)
    assert rewards(record) == REWARDS
    assert record.column("task_score") == "task_score"


FORMS = {
    "a logger": "12:00:01 | INFO | avg_raw_rewards: {reward}, avg_kl: 0.01, avg_response_length: 9.5",
    "blanks": "Avg Reward: {reward}    Avg Correctness: 0.2    Avg Format: 0.5",
    "a box": (  # as the code of the RLHF book prints it
        "───── {at}/5000 (0.3%) ─────\n╭── Rollout Results ──╮\n"
        "│ Avg Reward: {reward}    Avg Correctness: 0.1 │\n╰──╯\n╭── Sample ──╮\n"
        "│  Question:     Count   │\n│  Completion:   s: 1, reward: 5, step 9 │\n╰──╯"
    ),
}


@each_case("form", FORMS.values())
def test_mean_rewards_without_a_step_are_rows_once_their_form_recurs(
    form: str, tmp_path: Path
) -> None:
    record = printed(tmp_path, lambda at: form.format(at=at, reward=REWARDS[at]))
    assert rewards(record) == REWARDS
    assert record.steps["step"].to_list() == list(range(1, 25))
    assert not any("name a reward" in note for note in record.notes)
    with pytest.raises(UnreadableRunError, match="got none"):
        printed(tmp_path, lambda at: form.format(at=at, reward=0.5) if at < 19 else "")


@each_case(
    "line",
    [
        "reward: {reward}, length: 120",  # of a completion
        "mean reward: {reward}",
        "avg_length: {reward}, avg_time: 0.1",
        "eval: avg_reward: {reward}, avg_length: 9.5",
        "prompt {at} | avg_reward: {reward}, avg_length: 9.5",
    ],
)
def test_what_is_no_mean_reward_of_a_step_is_no_row_without_one(line: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableRunError, match="got none"):
        printed(tmp_path, lambda at: line.format(at=at, reward=REWARDS[at]))


def test_rewards_in_a_form_that_is_not_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRunError, match=r"48 lines name a reward .*, as 'Reward: 0.25'"):
        printed(tmp_path, lambda at: f"  Reward: {REWARDS[at]}\n  Reward: 1.0\nKL: 0.1")
    with pytest.raises(UnreadableRunError, match="give the log of the training itself"):
        printed(tmp_path, lambda at: f"  rewarded {REWARDS[at]}\nKL: 0.1")


BESIDE = {  # where the reward stands: on lines without a step
    "below": "Step {at}/24 | loss: 0.1\n|latency=1.2s |others=0.0\nAverage reward score: {reward} kl: 0.1",
    "below a number": "loss of step {at}: 0.1\n0: reward= {reward}, kl= 0.1",
    "below a label": "update {at}: loss=0.1\n  GRPO: mean reward={reward}, kl=0.1",
    "above": "Mean reward: {reward}\nkl: 0.1\nstep {at} loss 0.1",
    "completions": "Reward: {reward}; Response: **1**\nReward: {reward}\nkl: 0.1\nStep {at}/24, Loss: 0.1",
    "behind a bar": "  4%|#  | {at}/24 [00:01<00:09]Iteration {at}/24\nloss: 0.1\nMETRICS: {{'train/rewards': {reward}, 'kl': 0.1}}",
    "in a bar's title": "Step {at} | loss: 0.1 | kl: 0.1 | reward: {reward}:  4%|#  | {at}/24 [00:01<00:09, 2.0s/it]",
    "a batch in brackets": "[batch={at}/24]:\n\t Train reward: {reward}\n\t Train loss: 0.1\n\t Train kl: 0.1",
    "blanks behind a label": "--- iter {at} ---\nrollout: reward {reward} len 9\ntrain: loss 0.1 kl 0.1",
    "JSON behind words": '[INFO] step={at} metrics: {{"reward/mean": {reward}, "loss": 0.1, "kl": 0.1}}',
    "parentheses and arrows": "Step {at}: reward={reward} -> loss=0.1 (kl=0.1, lr=1e-6)",
    "thousands": "step {at} reward {reward} loss 0.1 kl 0.1 tok/s 1.2k",
}


@each_case("row", BESIDE.values())
def test_what_lines_without_a_step_say_is_of_the_step_beside_them(row: str, tmp_path: Path) -> None:
    record = printed(tmp_path, lambda at: row.format(at=at, reward=REWARDS[at]))
    assert record.steps["step"].to_list() == list(range(24))
    assert rewards(record) == REWARDS
    for quantity in ("loss", "kl"):
        assert record.values(record.column(quantity)).tolist() == [0.1] * 24


@each_case(
    "line",
    [
        "I would say that the reward of all is: 0.9",
        "round {at}: score: 0.9",
        "Completion: it is 3\nscore: 0.9",
        "max_step: 40, score: 0.9",
        "[eval] score: 0.9",
        'completion:{{"step": 9, "score": 0.9}}',
    ],
)
def test_what_is_no_line_of_numbers_or_of_one_completion_is_of_no_step(
    line: str, tmp_path: Path
) -> None:
    row = f"Step {{at}}/24 | mean length: 9.5 | loss: 0.1\n{line}"
    record = printed(tmp_path, lambda at: row.format(at=at))
    assert record.metrics() == ("mean length", "loss")


def test_what_a_line_says_once_is_no_metric_and_what_has_a_reward_takes_no_other(
    tmp_path: Path,
) -> None:
    record = printed(
        tmp_path,
        lambda at: f"Step {at} | reward: {REWARDS[at]}\nreward: 0.9\n" + "x = 5" * (at == 3),
    )
    assert rewards(record) == REWARDS
    assert record.metrics() == ("reward",)


SAMPLES = {  # what one completion earned, among the lines of a step
    "a sample": "step {at} | reward={reward} | loss=0.1\n\n--- Sample (step {at}) ---\nBest completion (reward=1.0):\n   42",
    "a completion": "Step {at}: Sampled 8 prompts\n  K=1, Reward=0.080, Completion: M: e2e4\nRewards: min=0.000, max=1.000, mean={reward}, std=0.41\n[Sample 1] Reward: 0.600\nLoss: 0.1",
}


NEAR = {  # what looks like a completion, or like another's statistics, and is neither
    "an output folder": "Step {at}\nOutput: checkpoints/1\nreward: {reward}\nloss: 0.1",
    "behind a completion": "Step {at}\nCompletion: it is 3\nReward: {reward}, Loss: 0.1",
    "names of their own": "Step {at} | reward mean: {reward} | loss mean: 0.1 | length: mean=100",
}


@each_case("row", [*SAMPLES.values(), *NEAR.values()])
def test_what_a_quoted_completion_earned_and_nothing_else_is_no_reward_of_its_step(
    row: str, tmp_path: Path
) -> None:
    record = printed(tmp_path, lambda at: row.format(at=at, reward=REWARDS[at]))
    assert rewards(record) == REWARDS
    assert record.values(record.column("loss")).tolist() == [0.1] * 24


def test_statistics_behind_a_label_are_of_what_it_names(tmp_path: Path) -> None:
    row = "Step {at} | Raw rewards - mean: {reward}, std: 0.2 | loss=0.1"
    assert rewards(printed(tmp_path, lambda at: row.format(at=at, reward=REWARDS[at]))) == REWARDS
    row = "Step {at} | Rewards: mean={reward}, std=0.2 | loss=0.1"
    record = printed(tmp_path, lambda at: row.format(at=at, reward=REWARDS[at]))
    assert rewards(record) == REWARDS
    two = "Step {at} | Rewards: mean={reward} | Lengths: mean=9.5 | loss=0.1"  # of which is one?
    with pytest.raises(UnreadableRunError):
        printed(tmp_path, lambda at: two.format(at=at, reward=REWARDS[at]))


@each_case(
    ("head", "size"),
    [
        ("INFO -   rollout_n                : 8", 8),
        ('  "group_size": 8,', 8),
        ("k_samples: 8", 8),
        ("group: 8 people", None),
    ],
)
def test_a_group_size_above_the_rows_is_a_setting(
    head: str, size: int | None, tmp_path: Path
) -> None:
    rows = [f"Step {at} | reward: {reward} | loss: 0.1" for at, reward in enumerate(REWARDS)]
    (tmp_path / "run.log").write_text("\n".join([head, *rows]))
    assert run_record(tmp_path / "run.log").config.value("group_size") == size


def test_settings_as_json_may_stand_above_the_rows(tmp_path: Path) -> None:
    rows = [f"Step {at} | reward: {reward} | loss: 0.1" for at, reward in enumerate(REWARDS)]
    text = json.dumps({"algorithm": {"group_size": 16}}, indent=2) + "\n"
    (tmp_path / "run.log").write_text(text + "\n".join(rows))
    record = run_record(tmp_path / "run.log")
    assert rewards(record) == REWARDS
    assert record.config.value("group_size") == 16
    (tmp_path / "run.log").write_text(text)  # alone it is no log
    with pytest.raises(UnreadableRunError):
        run_record(tmp_path / "run.log")


TURNS = {  # rows that nothing numbers, over several lines
    "a block": "INFO:grpo:policy_loss: 0.1\nINFO:grpo:mean_reward: {reward}\nINFO:grpo:kl: 0.1",
    "a line and a dictionary": "avg_reward: {reward}, avg_kl: 0.1\ntrain:160 - {{'policy_loss': 0.1}}",
    "quoted numbers": "INFO - Completed steps {at}: {{'rl/reward': '{reward}', 'loss': '0.1', 'kl': '0.1'}}",
    "a box and a bar": "╭─ Rollout ─╮\n│ Avg Reward: {reward} kl: 0.1 │\n╰──╯\n  Loss: 0.1 ━━━━ 8/8",
}


@each_case("row", TURNS.values())
def test_a_name_that_comes_again_begins_the_next_row(row: str, tmp_path: Path) -> None:
    record = printed(tmp_path, lambda at: row.format(at=at, reward=REWARDS[at]))
    assert rewards(record) == REWARDS
    assert record.steps["step"].to_list() == list(range(1, 25))
    assert record.values(record.column("loss")).tolist() == [0.1] * 24


def test_rewards_of_completions_before_a_loss_are_no_row(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRunError, match="got none"):
        printed(tmp_path, lambda at: f"Reward: {REWARDS[at]}\nReward: 0.5\nLoss: 0.1")
