"""Logs made after the format lines of trainers' sources, with numbers of ours.

    python sources.py FOLDER SYSTEM

For trainers that are not to be had by package name, or that only run on GPUs (`make loops`). Each
function says whose lines it follows; only names of metrics and the shapes of lines are theirs.
"""

from __future__ import annotations

import io
import json
import pprint
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

STEPS, GROUP, PROMPTS = 12, 4, 6
Truth = dict[str, Any]
Rows = list[dict[str, float]]


def drawn(keys: Mapping[str, str], steps: int = STEPS) -> tuple[Rows, dict[str, list[float]]]:
    """Rows of drawn numbers under a trainer's keys, by quantity, and the columns of them: what is
    measured in tokens, steps, calls or turns is as large as such things are, the remainder below 1.
    """
    draw = random.Random(7)
    rows: Rows = [{} for _ in range(steps)]
    for name, key in keys.items():
        scale = 100.0 if "length" in name else 5.0 if name in ("turns", "tool_calls") else 1.0
        scale = 1e-6 if name == "learning_rate" else scale
        for row in rows:
            row[key] = round((0.5 + draw.random() / 2) * scale, 12)
    return rows, {name: [row[key] for row in rows] for name, key in keys.items()}


def of_columns(columns: Mapping[str, list[float]], *names: str) -> dict[str, list[float]]:
    """The columns that a log has of all that a run has."""
    return {name: columns[name] for name in names}


def prime_rl(folder: Path) -> Truth:
    """prime-rl 0.8: `metrics.jsonl`, to which orchestrator and trainer append, several rows a step,
    and rows by the clock without one; consoles of both.
    """
    rollouts = {
        "reward": "train/agg/all/policy/reward/mean",
        "seat_reward/math/policy": "train/math/all/policy/reward/mean",
        "reward_admitted": "train/agg/effective/policy/reward/mean",
        "completion_length": "train/agg/all/policy/num_output_tokens/mean",
        "turns": "train/agg/all/policy/num_turns/mean",
        "truncated_share": "train/agg/all/policy/is_truncated/mean",
        "failure_share": "train/agg/all/policy/has_error/mean",
        "all_wrong_share": "train/agg/all/policy/solved_none",
        "all_right_share": "train/agg/all/policy/solved_all",
        "admitted_share": "train/agg/all/policy/is_admitted/mean",
        "staleness": "off_policy/mean",
        "eval/reward": "eval/aime/all/policy/avg@8",
    }
    updates = {
        "loss": "loss/mean",
        "entropy": "entropy/all/mean",
        "sampler_mismatch": "mismatch_kl/all/mean",
        "gradient_norm": "optim/grad_norm",
        "learning_rate": "optim/lr",
        "step_time": "time/step",
    }
    rows, columns = drawn(rollouts | updates)
    with (folder / "metrics.jsonl").open("w") as file:
        for step, row in enumerate(rows):
            seconds = 1787.25 + 60 * step
            clock = {"step": None, "time": seconds, "inference/agg/num_requests_running/mean": 3.0}
            train = {key: row[key] for key in rollouts.values()}
            optim = {key: row[key] for key in updates.values() if key.startswith("optim")}
            tensors = {key: row[key] for key in updates.values() if not key.startswith("optim")}
            for part, producer in (
                (train, "orchestrator"),
                (optim, "trainer"),
                (tensors, "trainer"),
            ):
                line = {"step": step, "time": seconds, **part, "producer": producer}
                file.write(json.dumps(line) + "\n")
            file.write(json.dumps(clock) + "\n")
    with (folder / "orchestrator.log").open("w") as file:
        for step, row in enumerate(rows):
            file.write(
                f"\x1b[2m09:{step:02d}:17\x1b[0m \x1b[32m SUCCESS\x1b[0m Step {step} | "
                f"Time: {row['time/step']:.2f}s | Reward: {row[rollouts['reward']]:.4f} | "
                f"Seq. Length: {row[rollouts['completion_length']]:.1f} tokens/sample | "
                f"Trainable: 20/24 | Async Level: 1 | Max. Off-Policy Level: 2\n"
            )
    with (folder / "trainer.log").open("w") as file:
        for step, row in enumerate(rows):
            file.write(
                f"\x1b[2m09:{step:02d}:17\x1b[0m \x1b[32m SUCCESS\x1b[0m Step {step} |   "
                f"{row['time/step']:.2f}s | Loss {row['loss/mean']:.4f} | "
                f"Entropy {row['entropy/all/mean']:.4f} | "
                f"Mismatch KL {row['mismatch_kl/all/mean']:.4f} | "
                f"Grad. Norm {row['optim/grad_norm']:.4f} | LR {row['optim/lr']:.2e} | "
                f"Throughput 1234 tokens/s | MFU 30.1% | Peak Mem. 12.1 GiB\n"
            )
    consoles = {
        "orchestrator.log": of_columns(columns, "reward"),
        "trainer.log": of_columns(columns, "loss", "entropy", "sampler_mismatch", "gradient_norm"),
    }
    return {
        "version": "0.8, main",
        "rows": STEPS,
        "quantities": columns,
        "logs": {
            "metrics.jsonl": "metrics.jsonl",
            "rollouts": {
                "place": "rollouts",
                "quantities": {"reward": traces(folder / "rollouts")},
                "settings": {"group_size": GROUP},
            },
            "orchestrator's console": {
                "place": "orchestrator.log",
                "quantities": consoles["orchestrator.log"],
            },
        },
    }


def traces(folder: Path) -> list[float]:
    """Rollouts of prime-rl with two rewards and their weights, and a judge's trace without; their
    mean total by step.
    """
    draw, means = random.Random(8), []
    for step in range(STEPS):
        home = folder / f"step_{step}" / "train" / "all"
        home.mkdir(parents=True)
        totals = []
        with (home / "traces.jsonl").open("w") as file:
            for prompt in range(PROMPTS):
                for rollout in range(GROUP):
                    right, brief = float(draw.random() < 0.5), draw.random()
                    totals.append(right + 0.25 * brief)
                    rewards = {
                        "right": {"score": right, "weight": 1.0},
                        "brief": {"score": brief, "weight": 0.25},
                    }
                    nodes = [{"message": {"role": "assistant", "content": f"{step} {rollout}"}}]
                    episode = {
                        "group": {"id": f"{step}-{prompt}"},
                        "env": {"id": "math"},
                        "ok": True,
                        "errors": [],
                        "traces": [{"rewards": rewards, "nodes": nodes}, {"rewards": {}}],
                    }
                    file.write(json.dumps(episode) + "\n")
        means.append(sum(totals) / len(totals))
    return means


def nemo_rl(folder: Path) -> Truth:
    """NeMo-RL: the console's results of a step, and metrics as its loggers prefix them, here as a
    tracker exports them.
    """
    keys = {
        "reward": "train/reward",
        "loss": "train/loss",
        "gradient_norm": "train/grad_norm",
        "learning_rate": "train/lr",
        "kl": "train/kl_penalty",
        "entropy": "train/approx_entropy",
        "sampler_mismatch": "train/gen_kl_error",
        "sampler_ratio": "train/sampling_importance_ratio",
        "completion_length": "train/mean_gen_tokens_per_sample",
        "turns": "train/avg_turns_per_sample",
        "truncated_share": "train/truncation_rate",
        "all_wrong_share": "train/baseline_reward/pct_0",
        "all_right_share": "train/baseline_reward/pct_1",
        "advantage": "train/advantages/mean",
        "step_time": "timing/train/total_step_time",
        "eval/reward": "validation/accuracy",
        "eval/completion_length": "validation/avg_length",
    }
    rows, columns = drawn(keys)
    with (folder / "history.jsonl").open("w") as file:
        for step, row in enumerate(rows, start=1):
            mult = {"train/token_mult_prob_error": 1.001, "train/global_valid_toks": 960.0}
            file.write(json.dumps({"_step": step, **row, **mult}) + "\n")
    with (folder / "console.log").open("w") as file:
        for step, row in enumerate(rows, start=1):
            file.write(
                f"\n{'=' * 25} Step {step}/{STEPS} {'=' * 25}\n"
                f"▶ Preparing batch...\n▶ Generating responses for batch of size 24...\n"
                f"\n📊 Training Results:\n  • Loss: {row['train/loss']:.4f}\n"
                f"  • Generation KL Error: {row['train/gen_kl_error']:.4f}\n"
                f"  • Avg Reward: {row['train/reward']:.4f}\n"
                f"  • Mean Generation Length: {row['train/mean_gen_tokens_per_sample']:.4f}\n"
                f"\n⏱️  Timing:\n"
                f"  • Total step time: {row['timing/train/total_step_time']:.2f}s\n"
                f"  • policy_training: 0.20s (30.1%)\n"
            )
    shown = ("reward", "loss", "sampler_mismatch", "completion_length", "step_time")
    return {
        "version": "0.7, main",
        "rows": STEPS,
        "quantities": columns,
        "logs": {
            "tracker's export": "history.jsonl",
            "console": {"place": "console.log", "quantities": of_columns(columns, *shown)},
        },
    }


def open_instruct(folder: Path) -> Truth:
    """open-instruct: what grpo_fast.py hands to W&B, here as exported, and the panel that it
    prints.
    """
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table

    keys = {
        "reward": "scores",
        "all_wrong_share": "val/all_zero_reward_groups_ratio",
        "admitted_share": "real_batch_size_ratio",
        "unsolved_share": "unsolved_batch_size_ratio",
        "completion_length": "val/sequence_lengths",
        "completion_length_max": "val/sequence_lengths_max",
        "stopped_share": "val/stop_rate",
        "truncated_share": "val/truncated_completion_fraction",
        "advantage": "val/advantages_mean",
        "kl": "objective/kl2_avg",
        "entropy": "policy/entropy_avg",
        "clip_ratio": "policy/clipfrac_avg",
        "ratio_variance": "val/ratio_var",
        "loss": "loss/policy_avg",
        "gradient_norm": "optim/grad_norm",
        "learning_rate": "lr",
        "sampler_mismatch": "debug/vllm_vs_local_logprob_diff_mean",
        "tool_calls": "tools/aggregate/avg_calls_per_rollout",
        "tool_failure_share": "tools/aggregate/failure_rate",
        "step_time": "time/total",
    }
    rows, columns = drawn(keys)
    with (folder / "history.jsonl").open("w") as file:
        for step, row in enumerate(rows, start=1):
            clock = {"_step": step * GROUP * PROMPTS, "training_step": step}
            file.write(json.dumps({**clock, "episode": clock["_step"], **row}) + "\n")
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=False)
    for step, row in enumerate(rows, start=1):
        table = Table(show_header=False, box=None)
        table.add_column("Category")
        table.add_column("Values")
        groups = defaultdict(list)
        metrics = {"episode": step * 24, "training_step": step, **row}
        for key, value in metrics.items():
            category = key.split("/")[0] if "/" in key else "other"
            number = (
                value
                if isinstance(value, int)
                else f"{value:.2e}"
                if value < 1e-5
                else f"{value:.2f}"
            )
            groups[category].append(f"{key.partition('/')[2] or key}: {number}")
        for category in sorted(groups):
            table.add_row(category, " | ".join(groups[category]))
        console.print(Panel(table, title="Metrics", expand=False))
    (folder / "console.log").write_text(out.getvalue())
    rates = [float(f"{rate:.2e}") for rate in columns["learning_rate"]]
    return {
        "version": "main",
        "rows": STEPS,
        "quantities": columns,
        "logs": {
            "tracker's export": "history.jsonl",
            "console": {
                "place": "console.log",
                "quantities": columns | {"learning_rate": rates},
            },
        },
    }


def slime(folder: Path) -> Truth:
    """Printed dicts of slime 0.3, of rollouts and of updates: one update a rollout, and several."""
    rollouts = {
        "reward": "rollout/raw_reward",
        "reward_normalized": "rollout/rewards",
        "completion_length": "rollout/response_len/mean",
        "completion_length_max": "rollout/response_len/max",
        "truncated_share": "rollout/truncated_ratio",
        "repetition_share": "rollout/repetition_frac",
    }
    beside = {
        "pass_at_k": "passrate/pass@4",
        "turns": "multi_turn/multi_turn_metric/round_number_mean",
    }
    updates = {
        "loss": "train/pg_loss",
        "entropy": "train/entropy_loss",
        "clip_ratio": "train/pg_clipfrac",
        "policy_change": "train/ppo_kl",
        "kl": "train/kl_loss",
        "gradient_norm": "train/grad_norm",
        "learning_rate": "train/lr-pg_0",
        "sampler_mismatch": "train/train_rollout_logprob_abs_diff",
        "sampler_ratio": "train/tis",
    }
    rows, columns = drawn(rollouts | beside | updates)
    logs = {}
    for updates_a_rollout in (1, 4):
        mean = (1 + 0.5 * (updates_a_rollout - 1)) / updates_a_rollout
        means = {name: [mean * value for value in columns[name]] for name in updates}

        place = folder / f"updates_{updates_a_rollout}.log"
        with place.open("w") as file:
            for step, row in enumerate(rows):
                file.write(
                    f"(RolloutManager pid=71) [2026-10-01 12:00:{step:02d}] rollout.py:388 - "
                    f"rollout {step}: { {key: row[key] for key in rollouts.values()} }\n"
                    f"(MegatronTrainRayActor pid=99) [2026-10-01 12:00:{step:02d}] metrics.py:34 - "
                    f"perf {step}: {{'perf/actor_train_time': 1.5, 'perf/step_time': 2.25}}\n"
                )
                for key in beside.values():
                    file.write(f"{key.partition('/')[0]} {step}: { {key: row[key]} }\n")
                for update in range(updates_a_rollout):
                    number = step * updates_a_rollout + update
                    last = update == updates_a_rollout - 1
                    part = {key: row[key] * (1 if last else 0.5) for key in updates.values()}
                    part |= {"train/step": number}
                    file.write(
                        f"(MegatronTrainRayActor pid=99) [2026-10-01 12:00:{step:02d}] "
                        f"model.py:512 - step {number}: {part}\n"
                    )
        logs[f"console, {updates_a_rollout} updates a rollout"] = {
            "place": place.name,
            "quantities": columns | means,
        }
    return {"version": "0.3", "rows": STEPS, "quantities": columns, "logs": logs}


def roll(folder: Path) -> Truth:
    """ROLL: lines of its tracker `stdout`, of RLVR and of the agentic pipeline."""
    keys = {
        "reward": "critic/score/mean",
        "reward_after_kl": "critic/rewards/mean",
        "advantage": "critic/advantages/mean",
        "entropy": "critic/entropy/mean",
        "kl_reward": "critic/kl",
        "kl": "actor/kl_loss",
        "loss": "actor/pg_loss",
        "clip_ratio": "actor/ppo_ratio_clipfrac",
        "gradient_norm": "actor_train/grad_norm",
        "learning_rate": "actor/lr",
        "sampler_ratio": "actor/train_infer_ratio_mean",
        "completion_length": "token/response_length/mean",
        "all_right_share": "group/all_correct_groups_ratio",
        "all_wrong_share": "group/all_incorrect_groups_ratio",
        "live_group_share": "group/mixed_groups_ratio",
        "eval/reward": "val_correct/all/mean",
        "step_time": "time/step_total",
    }
    rows, columns = drawn(keys)
    with (folder / "rlvr.log").open("w") as file:
        for step, row in enumerate(rows):
            line = json.dumps({"step": step, "metrics": {"system/global_step": step, **row}})
            file.write(
                f"[2026-10-01 12:00:{step:02d}] [tracking.py (126)] [INFO] [DRIVER 0 / 1][PID 9] "
                f"metrics_tag: {line}\n"
            )
    agentic = {
        "reward": "critic/score/mean",
        "entropy": "critic/entropy/mean",
        "completion_length": "tokens/response_length/mean",
        "environment_reward/Sokoban": "env/Sokoban/success",
        "turns": "env/Sokoban/num_actions",
        "loss": "actor/pg_loss",
        "gradient_norm": "actor_train/grad_norm",
    }
    rows, agentic_columns = drawn(agentic)
    with (folder / "agentic.log").open("w") as file:
        for step, row in enumerate(rows):
            line = json.dumps({"step": step, "metrics": row})
            file.write(f"[2026-10-01 12:00:{step:02d}] [INFO] metrics_tag: {line}\n")
    return {
        "version": "main",
        "rows": STEPS,
        "quantities": columns,
        "logs": {
            "RLVR": "rlvr.log",
            "agentic": {"place": "agentic.log", "quantities": agentic_columns},
        },
    }


def trl_keys(**more: str) -> dict[str, str]:
    """TRL's keys by quantity, with others."""
    return {
        "loss": "loss",
        "reward": "reward",
        "reward/solved": "rewards/solved/mean",
        "dead_group_share": "frac_reward_zero_std",
        "entropy": "entropy",
        "completion_length": "completions/mean_length",
        "completion_length_max": "completions/max_length",
        "truncated_share": "completions/clipped_ratio",
        "gradient_norm": "grad_norm",
        "learning_rate": "learning_rate",
        "step_time": "step_time",
        "reward_std_batch": "reward_std",
        **more,
    }


def state(folder: Path, rows: Rows) -> None:
    """Transformers' state of a trainer, as it lies in the folder of a checkpoint."""
    folder.mkdir(parents=True)
    history = [{**row, "epoch": step / 100, "step": step} for step, row in enumerate(rows, 1)]
    held = {"global_step": len(rows), "log_history": history, "max_steps": STEPS, "epoch": 0.12}
    (folder / "trainer_state.json").write_text(json.dumps(held, indent=2, sort_keys=True))


def trl_tools(folder: Path) -> Truth:
    """TRL 1.16 with tools: two checkpoints of an output folder, and what Transformers 5 prints."""
    keys = trl_keys(
        kl="kl",
        tool_calls="tools/call_frequency",
        tool_failure_share="tools/failure_frequency",
        sampler_mismatch="sampling/sampling_logp_difference/mean",
        sampler_mismatch_max="sampling/sampling_logp_difference/max",
        sampler_ratio="sampling/importance_sampling_ratio/mean",
    )
    rows, columns = drawn(keys)
    state(folder / "output" / "checkpoint-6", rows[:6])
    state(folder / "output" / "checkpoint-12", rows)
    (folder / "output" / "README.md").write_text("### Framework versions\n\n- TRL: 1.16.0\n")
    with (folder / "console.log").open("w") as file:
        for step, row in enumerate(rows, start=1):
            printed = {key: f"{value:.4g}" for key, value in row.items()}
            bar = f"\r {step}/{STEPS} [00:{step:02d}<00:10,  1.00it/s]"
            file.write(f"{printed | {'epoch': f'{step / 100:.4g}'}}\n{step}%|##{bar}")
    rounded = {
        name: [float(f"{value:.4g}") for value in values] for name, values in columns.items()
    }
    rounded["reward_std_ambiguous"] = rounded.pop("reward_std_batch")  # no version is printed
    return {
        "version": "1.16",
        "rows": STEPS,
        "quantities": columns,
        "logs": {
            "output folder": "output",
            "console": {"place": "console.log", "quantities": rounded},
        },
    }


def trl_async(folder: Path) -> Truth:
    """TRL 1.16's AsyncGRPOTrainer: the state in the folder of a checkpoint."""
    keys = trl_keys(
        reward_std_within_group="reward_std",
        staleness="sample/staleness_mean",
        staleness_max="sample/staleness_max",
        stale_samples_total="sample/dropped_stale_total",
        tool_calls="tools/call_frequency",
        tool_failure_share="tools/failure_frequency",
        step_time="perf/step_s",
    )
    del keys["dead_group_share"], keys["reward_std_batch"]
    rows, columns = drawn(keys)
    beside = {
        "sample/rollout_queue_size": 3.0,
        "perf/rollout_wait_s": 0.25,
        "rollout/inflight": 8.0,
    }
    state(folder / "output" / "checkpoint-12", [row | beside for row in rows])
    return {
        "version": "1.16",
        "rows": STEPS,
        "quantities": columns,
        "logs": {"output folder": "output"},
    }


def verl_agent(folder: Path) -> Truth:
    """verl-agent, on verl 0.3, and RAGEN: verl's console lines and file with episodes' metrics."""
    common = {
        "reward": "critic/score/mean",
        "reward_after_kl": "critic/rewards/mean",
        "entropy": "actor/entropy_loss",
        "kl": "actor/kl_loss",
        "loss": "actor/pg_loss",
        "clip_ratio": "actor/pg_clipfrac",
        "policy_change": "actor/ppo_kl",
        "gradient_norm": "actor/grad_norm",
        "completion_length": "response_length/mean",
        "truncated_share": "response_length/clip_ratio",
        "step_time": "timing_s/step",
    }
    agent = {
        "reward/episode": "episode/reward/mean",
        "turns": "episode/length/mean",
        "turns_max": "episode/length/max",
        "tool_calls": "episode/tool_call_count/mean",
        "environment_reward/pick_and_place": "episode/pick_and_place_success_rate",
        "environment_reward/clean": "episode/clean_success_rate",
    }
    rows, columns = drawn(common | agent)
    with (folder / "console.log").open("w") as file:
        for step, row in enumerate(rows, start=1):
            values = row | {"episode/valid_action_ratio": 0.9, "training/global_step": step}
            text = " - ".join(f"{key}:{value!r}" for key, value in values.items())
            file.write(f"(TaskRunner pid=247607) step:{step} - {text}\n")
    ragen = {
        "reward_std_within_group": "rollout/in_group_std",
        "admitted_share": "rollout/filter_kept_ratio",
    }
    rows, ragen_columns = drawn(common | ragen)
    with (folder / "ragen.jsonl").open("w") as file:
        for step, row in enumerate(rows, start=1):
            beside = {"train/Sokoban/success": 0.5, "train/Sokoban/num_actions": 4.0}
            file.write(json.dumps({"step": step, "data": row | beside}) + "\n")
    return {
        "version": "on 0.3 and 0.6",
        "rows": STEPS,
        "quantities": columns,
        "logs": {
            "verl-agent's console": "console.log",
            "RAGEN's file": {"place": "ragen.jsonl", "quantities": ragen_columns},
        },
    }


def skyrl(folder: Path) -> Truth:
    """SkyRL, fully asynchronous and with turns: dictionaries that its console pretty-prints."""
    keys = {
        "reward": "reward/avg_raw_reward",
        "pass_at_k": "reward/avg_pass_at_8",
        "dead_group_share": "reward/zero_std_group_fraction",
        "reward_after_kl": "loss/avg_final_rewards",
        "completion_length": "generate/avg_num_tokens",
        "completion_length_min": "generate/min_num_tokens",
        "completion_length_max": "generate/max_num_tokens",
        "sampler_mismatch": "policy/rollout_train_logprobs_abs_diff_mean",
        "kl": "policy/policy_kl",
        "entropy": "policy/policy_entropy",
        "clip_ratio": "policy/ppo_clip_ratio",
        "gradient_norm": "policy/raw_grad_norm",
        "loss": "policy/policy_loss",
        "learning_rate": "policy/policy_lr",
        "staleness": "async/staleness_mean",
        "staleness_max": "async/staleness_max",
        "step_time": "timing/step",
    }
    rows, columns = drawn(keys)
    with (folder / "console.log").open("w") as file:
        for step, row in enumerate(rows, start=1):
            entries = [f"'{key}': '{value:.4f}'" for key, value in sorted(row.items())]
            entries.append(f"'trainer/global_step': {step}")
            file.write(
                f"\x1b[36m(skyrl_entrypoint pid=81)\x1b[0m 2026-10-01 12:00:{step:02d}.123 | INFO"
                f"     | skyrl.train.utils.tracking:log:400 - Step {step}: \n"
            )
            body = ",\n ".join(entries)
            file.writelines(
                f"\x1b[36m(skyrl_entrypoint pid=81)\x1b[0m {line}\n"
                for line in f"{{{body}}}".splitlines()
            )
    del columns["learning_rate"]  # which four places make 0
    return {
        "version": "0.3, main",
        "rows": STEPS,
        "quantities": columns,
        "logs": {"console": "console.log"},
    }


def areal(folder: Path) -> Truth:
    """AReaL: the table of statistics that its logger prints below a step."""
    keys = {
        "reward": "ppo_actor/task_reward/avg",
        "sequence_length": "ppo_actor/seq_len/avg",
        "truncated_share": "ppo_actor/no_eos_ratios/avg",
        "entropy": "ppo_actor/update/entropy/avg",
        "loss": "ppo_actor/update/actor_loss/avg",
        "clip_ratio": "ppo_actor/update/clip_ratio/avg",
        "sampler_ratio": "ppo_actor/update/behave_imp_weight/avg",
        "gradient_norm": "ppo_actor/update/grad_norm",
    }
    rows, columns = drawn(keys)
    with (folder / "main.log").open("w") as file:
        for step, row in enumerate(rows, start=1):
            head = f"\x1b[92m(AReaL) 20261001-12:00:{step:02d}.000 StatsLogger INFO: "
            file.write(
                f"{head}Epoch 1/1 Step {step}/{STEPS} Train step {step}/{STEPS} done.\x1b[0m\n"
                f"{head}Stats (1/1):\n╭{'─' * 96}╮\n"
            )
            cells = [f"{key:<40} │ {value:.4e}" for key, value in row.items()]
            file.writelines(
                f"│ {left} │ {right} │\n"
                for left, right in zip(cells[::2], cells[1::2], strict=True)
            )
            file.write(f"╰{'─' * 96}╯\n")
    rounded = {
        name: [float(f"{value:.4e}") for value in values] for name, values in columns.items()
    }
    return {
        "version": "1.0, main",
        "rows": STEPS,
        "quantities": rounded,
        "logs": {"console": "main.log"},
    }


def swift(folder: Path) -> Truth:
    """ms-swift: an output folder with turns and corrected rollouts."""
    keys = trl_keys(
        kl="kl",
        reward_std_within_group="reward_std",
        turns="num_turns",
        sampler_mismatch="rollout_correction/kl",
    )
    del keys["step_time"], keys["reward_std_batch"]
    rows, columns = drawn(keys)
    home = folder / "v0-20261001-120000"
    state(home / "checkpoint-12", rows)
    with (home / "logging.jsonl").open("w") as file:
        for step, row in enumerate(rows, start=1):
            clock = {
                "epoch": step / 100,
                "global_step/max_steps": f"{step}/{STEPS}",
                "percentage": f"{step}%",
            }
            clock |= {"elapsed_time": "3m 2s", "remaining_time": "1h 2m", "memory(GiB)": 12.5}
            file.write(json.dumps(row | clock) + "\n")
        last = {
            "train_runtime": 92.1,
            "train_loss": 0.1,
            "epoch": 1.0,
            "global_step/max_steps": "12/12",
        }
        file.write(json.dumps(last) + "\n")
    with (home / "completions.jsonl").open("w") as file:
        for step, row in enumerate(rows, start=1):
            texts = {"prompt": ["2+2="] * GROUP, "completion": [f"{n}" for n in range(GROUP)]}
            scores = {"solved": [row["reward"]] * GROUP, "advantages": [0.0] * GROUP}
            file.write(json.dumps({"step": [str(step)] * GROUP, **texts, **scores}) + "\n")
    settings = {
        "num_generations": GROUP,
        "beta": 0.04,
        "scale_rewards": "group",
        "rlhf_type": "grpo",
    }
    (home / "args.json").write_text(json.dumps(settings))
    return {
        "version": "4.6",
        "rows": STEPS,
        "quantities": columns,
        "settings": {"group_size": GROUP, "kl_weight": 0.04, "framework": "ms-swift"},
        "logs": {"output folder": home.name},
    }


def llama_factory(folder: Path) -> Truth:
    """LLaMA-Factory: the log that its callback writes for its board, of PPO."""
    keys = {"reward": "reward", "loss": "loss", "learning_rate": "lr"}
    rows, columns = drawn(keys)
    with (folder / "trainer_log.jsonl").open("w") as file:
        for step, row in enumerate(rows, start=1):
            clock = {"current_steps": step, "total_steps": STEPS}
            after = {
                "epoch": step / 100,
                "percentage": 100 * step / STEPS,
                "elapsed_time": "0:00:10",
                "remaining_time": "0:01:00",
            }
            file.write(json.dumps(clock | row | after) + "\n")
    return {
        "version": "0.9",
        "rows": STEPS,
        "quantities": columns,
        "logs": {"trainer_log.jsonl": "trainer_log.jsonl"},
    }


def unsloth(folder: Path) -> Truth:
    """unsloth: TRL's names, a length under its older name, the divergence at weight 0."""
    keys = trl_keys(kl="kl", reward_std_ambiguous="reward_std")
    del keys["reward_std_batch"]
    rows, columns = drawn(keys)
    for row in rows:
        row["completion_length"] = row["completions/mean_length"]
    state(folder / "outputs" / "checkpoint-12", rows)
    return {
        "version": "2026.10",
        "rows": STEPS,
        "quantities": columns,
        "logs": {"output folder": "outputs"},
    }


def verifiers(folder: Path) -> Truth:
    """verifiers: the state that its trainer leaves, which has Transformers' form, with the metrics
    of its rubrics.
    """
    keys = {
        "reward": "reward",
        "reward_std_batch": "reward/std",
        "reward/correct": "reward/correct",
        "turns": "reward/num_turns",
        "tool_calls": "reward/total_tool_calls",
        "completion_length": "tokens/completion",
        "entropy": "entropy",
        "sampler_ratio": "importance_ratio",
        "gradient_norm": "grad_norm",
        "loss": "loss",
        "learning_rate": "learning_rate",
    }
    rows, columns = drawn(keys)
    beside = {"advantage/absmean": 0.5, "tokens/masked_fraction": 0.1, "wall_clock/generate_s": 2.0}
    state(folder / "outputs" / "checkpoint-12", [row | beside for row in rows])
    return {
        "version": "0.1",
        "rows": STEPS,
        "quantities": columns,
        "logs": {"output folder": "outputs"},
    }


def oat(folder: Path) -> Truth:
    """oat: the dictionary that its learner pretty-prints, an entry a line."""
    keys = {
        "reward": "actor/rewards",
        "completion_length": "actor/response_tok_len",
        "entropy": "train/entropy",
        "loss": "train/pg_loss",
        "gradient_norm": "train/policy_grad_norm",
        "learning_rate": "misc/lr",
    }
    rows, columns = drawn(keys)
    with (folder / "console.log").open("w") as file:
        for step, row in enumerate(rows, start=1):
            counts = {"misc/global_step": 2 * step, "misc/query_step": 128 * step}
            file.write(pprint.pformat(row | counts) + "\n")
    return {
        "version": "main",
        "rows": STEPS,
        "quantities": columns,
        "logs": {"console": "console.log"},
    }


def rl2(folder: Path) -> Truth:
    """RL2: a line of the rollouts and one of the update, three digits each."""
    rollouts = {
        "reward": "train/rewards",
        "completion_length": "train/response_length",
        "truncated_share": "train/length_clip_ratio",
    }
    updates = {"loss": "actor/loss", "entropy": "actor/entropy", "gradient_norm": "actor/grad_norm"}
    rows, columns = drawn(rollouts | updates)
    with (folder / "console.log").open("w") as file:
        for step, row in enumerate(rows, start=1):
            for part in (rollouts, updates):
                cells = ", ".join(f"{key}: {row[key]:.3g}" for key in part.values())
                file.write(f"Step {step}, {cells}\n")
    printed = {name: [float(f"{value:.3g}") for value in columns[name]] for name in columns}
    return {
        "version": "main",
        "rows": STEPS,
        "quantities": printed,
        "logs": {"console": "console.log"},
    }


def easyr1(folder: Path) -> Truth:
    """EasyR1: YAML below each step on its console, and a nested object a step in its file."""
    keys = {
        "reward": "critic/score/mean",
        "reward_after_kl": "critic/rewards/mean",
        "entropy": "actor/entropy_loss",
        "loss": "actor/pg_loss",
        "kl": "actor/kl_loss",
        "gradient_norm": "actor/grad_norm",
        "completion_length": "response_length/mean",
        "truncated_share": "response_length/clip_ratio",
        "step_time": "timing_s/step",
    }
    rows, columns = drawn(keys)
    before = "\x1b[36m(Runner pid=2213)\x1b[0m "
    console = (folder / "console.log").open("w")
    with console, (folder / "experiment_log.jsonl").open("w") as lines:
        for step, row in enumerate(rows, start=1):
            nested: Truth = {}
            for key, value in row.items():
                *sections, leaf = key.split("/")
                inner = nested
                for section in sections:
                    inner = inner.setdefault(section, {})
                inner[leaf] = value
            lines.write(json.dumps({"step": step, **nested}) + "\n")
            text = f"Step {step}\n" + yaml.dump(nested, indent=2)
            console.writelines(f"{before}{line}\n" for line in text.splitlines())
    return {
        "version": "main",
        "rows": STEPS,
        "quantities": columns,
        "logs": {"console": "console.log", "file": "experiment_log.jsonl"},
    }


def torchforge(folder: Path) -> Truth:
    """torchforge: what its console backend prints below a heading a step."""
    keys = {
        "reward": "reward/evaluate_response/avg_total_reward",
        "kl": "grpo_loss/kl_divergence_mean",
        "loss": "rl_trainer/avg_grpo_loss",
    }
    rows, columns = drawn(keys)
    with (folder / "console.log").open("w") as file:
        file.write("ConsoleBackend: Initialized\n")
        for step, row in enumerate(rows, start=1):
            listed = "".join(f"  {key}: {value}\n" for key, value in row.items())
            file.write(f"\n=== [GlobalReduce] - METRICS STEP {step} ===\n{listed}{'=' * 30}\n\n")
    return {
        "version": "main",
        "rows": STEPS,
        "quantities": columns,
        "logs": {"console": "console.log"},
    }


def exported(
    version: str, keys: Mapping[str, str], beside: Mapping[str, float], **texts: str
) -> Callable[[Path], Truth]:
    """What a tracker exports of a trainer, with numbers beside those that are compared, and lines
    of its console, whose cells a text puts around each key and value.
    """

    def written(folder: Path) -> Truth:
        rows, columns = drawn(keys)
        logs: dict[str, Any] = {"tracker's export": "history.jsonl"}
        with (folder / "history.jsonl").open("w") as file:
            for step, row in enumerate(rows, start=1):
                file.write(json.dumps(row | dict(beside) | {"_step": step}) + "\n")
        if texts:
            logs["console"] = "console.log"
            with (folder / "console.log").open("w") as file:
                for step, row in enumerate(rows, start=1):
                    cells = (
                        texts["cell"].format(key=key, value=value)
                        for key, value in (row | dict(beside)).items()
                    )
                    line = texts["line"].format(step=step, cells=texts["between"].join(cells))
                    file.write(f"{line}\n")
        return {"version": version, "rows": STEPS, "quantities": columns, "logs": logs}

    return written


OF_VERL = {
    "loss": "actor/pg_loss",
    "kl": "actor/kl_loss",
    "clip_ratio": "actor/pg_clipfrac",
    "entropy": "actor/entropy",
    "gradient_norm": "actor/grad_norm",
    "learning_rate": "actor/lr",
}
TRINITY = exported(
    "0.6.0",
    OF_VERL
    | {
        "reward": "rollout/reward/mean",
        "completion_length": "response_length/mean",
        "truncated_share": "response_length/clip_ratio",
    },
    {"sample/task_count": 8.0, "time/train_step": 3.0},
    line="INFO 11-02 10:00:07 [monitor.py:113] Step {step}: {{{cells}}}",
    cell="'{key}': {value!r}",
    between=", ",
)
SIIRL = exported(
    "0.2.0",
    OF_VERL
    | {
        "reward": "critic/rewards/mean",
        "completion_length": "response/length/mean",
        "truncated_share": "response/clip_ratio/mean",
        "turns": "num_turns/mean",
        "step_time": "perf/time_per_step",
    },
    {"response/correct_length/mean": 120.0, "prompt/length/mean": 90.0},
    line="2026-11-02 10:00:07 | INFO | step:{step} - {cells}",
    cell="{key}:{value}",
    between=" - ",
)
TORCHTUNE = exported(
    "0.6.1",
    {
        "reward": "rewards",
        "loss": "loss",
        "kl": "kl_loss",
        "clip_ratio": "clipfrac",
        "completion_length": "response_lengths",
    },
    {"successes": 0.4, "num_stop_tokens": 8.0, "ratios": 1.0, "approx_policy_kl": 0.001},
    line="Step {step} | {cells} ",
    cell="{key}:{value}",
    between=" ",
)
AGENT_LIGHTNING = exported(
    "0.3.0",
    OF_VERL | {"reward": "training/reward", "completion_length": "response_length/mean"},
    {"training/n_rollouts": 32.0, "critic/rewards/mean": 0.3, "training/n_triplets": 70.0},
)
PIPELINE_RL = exported(
    "main",
    {
        "reward": "rl/reward",
        "loss": "rl/loss",
        "kl": "rl/kl",
        "entropy": "rl/entropy",
        "advantage": "rl/advantage",
        "gradient_norm": "stats/grad_norm",
        "learning_rate": "stats/lr",
    },
    {"rl/max_reward": 1.0, "rl/min_reward": 0.0, "rl/old_logprobs": -0.4, "rl/max_kl": 0.3},
)
COSMOS = exported(
    "0.4.7",
    {
        "reward": "train/reward_mean",
        "completion_length": "rollout/completion_length_mean",
        "completion_length_max": "rollout/completion_length_max",
        "loss": "train/loss_avg",
        "kl": "train/kl_loss_avg",
        "entropy": "train/entropy",
        "advantage": "rollout/advantage_mean",
        "gradient_norm": "train/grad_norm",
        "learning_rate": "train/learning_rate",
        "step_time": "train/iteration_time",
    },
    {"train/reward_max": 1.0, "train/reward_min": 0.0, "train/total_steps": 100.0},
)
EASYDEL = exported(
    "0.3.0",
    {
        "reward": "train/reward_mean",
        "dead_group_share": "train/frac_reward_zero_std",
        "completion_length": "train/completion_length",
        "loss": "train/loss",
        "kl": "train/mean_kl",
        "learning_rate": "train/learning_rate",
    },
    {"train/generation_time": 3.2, "train/rewarding_time": 0.2, "train/format_reward": 0.9},
)


def printed(
    version: str, names: str, lines: Callable[[int, Mapping[str, float]], str], first: int = 1
) -> Callable[[Path], Truth]:
    """What a trainer prints of each step, by the quantities in it."""

    def written(folder: Path) -> Truth:
        rows, columns = drawn({name: name for name in names.split()})
        text = "".join(lines(step, row) + "\n" for step, row in enumerate(rows, start=first))
        (folder / "console.log").write_text(text, encoding="utf-8")
        logs = {"console": "console.log"}
        return {"version": version, "rows": STEPS, "quantities": columns, "logs": logs}

    return written


def cosmos_line(step: int, row: Mapping[str, float]) -> str:
    """Cosmos-RL 0.4.7: the line of its controller, a full stop behind the last number."""
    return (
        "[cosmos] 2026-11-02 10:00:07,123 - cosmos - INFO - Step: "
        f"{step}/100, Reward Mean: {row['reward']:.4f}, Reward Std: 0.4000, Reward Max: 1.0000, "
        f"Completion Length Mean: {row['completion_length']:.2f}, Completion Length Max: "
        f"{row['completion_length_max']:.2f}, Average loss: {row['loss']:.5f}, Max loss: 0.99000, "
        f"Learning rate: {row['learning_rate']:.5e}, Entropy: {row['entropy']:.5f}, Effective "
        f"Entropy: 0.30000, Grad Norm: {row['gradient_norm']:.5f}, KL Loss Avg: {row['kl']:.5f}, "
        f"KL Loss Max: 0.99000, Iteration time: {row['step_time']:.2f}s."
    )


def guided_lines(step: int, row: Mapping[str, float]) -> str:
    """mlx-guided-grpo: a bar with the loss of the step before, and a list below the iteration."""
    rule = "-" * 80
    return (
        f"\rTraining:  {step}%|##   | {step}/100 [00:09<00:10,  1.20s/it, loss=0.111, it/s=0.812]\n"
        f"\n{'=' * 80}\nIter {step}:\n{rule}\nLoss: {row['loss']:.3f} [CGS: think=61.2%]\n"
        f"Total Rewards:  mean={row['reward']:.3f}, std=0.300\nGroup Rewards:  mean=0.500, "
        f"std={row['reward_std_within_group']:.3f}\nKL Divergence: {row['kl']:.12f}\n{rule}\n"
        f"Generation Stats:\n  - Avg tokens: {row['completion_length']:.1f}\n  - Max tokens: 256 "
        f"(limit: 512)\n  - Hit limit: {row['truncated_share']:.1%}\n{rule}\nIndividual Reward "
        f"Functions:\n  - format: mean=0.300, std=0.100, cov=98.00%\n{rule}\nLearning Rate: "
        f"1.0000e-06\nSpeed: 0.812 it/s, 120.1 tok/s\n{'=' * 80}\n"
        "[1.2m] │ KL:✓0.0123→ ▁▂▃ │ Rew:✓0.512↑ ▃▄ │ Loss:0.1111↓"
    )


def mindspeed_line(step: int, row: Mapping[str, float]) -> str:
    """MindSpeed-RL: names and numbers parted by blanks and bars, all with four decimals."""
    keys = {
        "actor/entropy": "entropy",
        "actor/kl_loss": "kl",
        "actor/pg_loss": "loss",
        "grad_norm": "gradient_norm",
        "grpo/rewards/mean": "reward",
        "response_length/mean": "completion_length",
    }
    cells = "| ".join(f"{key} : {row[name]:.4f} " for key, name in keys.items())
    return f"[2026-11-02 10:00:07] iteration: {step} / 100 | timing/all : 9.0000 | {cells}"


def rlinf_panel(step: int, row: Mapping[str, float]) -> str:
    """RLinf: a box with the step in its second line, and three numbers side by side."""
    sections = {
        "Time": {"generate_rollouts": 5.0, "step": 13.25},
        "Rollout": {"advantages_mean": 0.25, "rewards": row["reward"]},
        "Training/Actor": {
            "actor/approx_kl": row["kl"],
            "actor/clip_fraction": row["clip_ratio"],
            "actor/grad_norm": row["gradient_norm"],
            "actor/policy_loss": row["loss"],
        },
    }
    lines = [f"╭{'─' * 118}╮", f"├{' Metric Table ':─^118}┤"]
    lines.append(f"│ Global Step: {step:4d}/100 │ Progress: ██░░ │ {step:5.1f}%{' ' * 70} │")
    lines.append(f"│ Elapsed: 01:05 │ ETA: 10:00 │ Step Time: {row['step_time']:.3f}s{' ' * 60} │")
    for title, numbers in sections.items():
        cells = [f"{name}={number:.3f}" for name, number in numbers.items()]
        cells += [""] * (-len(cells) % 3)
        lines += [f"├{f' {title} ':─^118}┤", f"│{' ' * 118}│"]
        for at in range(0, len(cells), 3):
            lines.append(f"│{'│'.join(f'{cell:<38}' for cell in cells[at : at + 3])}│")
        lines.append(f"│{' ' * 118}│")
    return "\n".join(["", *lines, f"╰{'─' * 118}╯", ""])


def micror1_lines(step: int, row: Mapping[str, float]) -> str:
    """micror1: rollouts from 0, and four updates of each that are counted through the run."""
    updates = (
        f"iter_num:{4 * step + part} epoch:0/1 episodes:{32 * part}/128 loss:"
        f"{row['loss'] + (part - 1.5) / 8:.4f} grad_norm:{row['gradient_norm']:.3f} lr:1.0e-06"
        for part in range(4)
    )
    head = f"rollout:{step}/100 reward_mean:{row['reward']:.3f} generation_time:9.10s"
    said = "=== Example Generation ===\nStep 1: 3 + 4 = 7\n========================"
    return "\n".join([head, said, *updates])


SYSTEMS: dict[str, Callable[[Path], Truth]] = {
    "prime-rl": prime_rl,
    "nemo-rl": nemo_rl,
    "open-instruct": open_instruct,
    "slime": slime,
    "roll": roll,
    "trl-tools": trl_tools,
    "trl-async": trl_async,
    "verl-agent": verl_agent,
    "skyrl": skyrl,
    "areal": areal,
    "swift": swift,
    "llama-factory": llama_factory,
    "unsloth": unsloth,
    "verifiers": verifiers,
    "oat": oat,
    "rl2": rl2,
    "easyr1": easyr1,
    "torchforge": torchforge,
    "trinity": TRINITY,
    "siirl": SIIRL,
    "torchtune": TORCHTUNE,
    "agent-lightning": AGENT_LIGHTNING,
    "pipeline-rl": PIPELINE_RL,
    "cosmos": COSMOS,
    "easydel": EASYDEL,
    "cosmos-console": printed(
        "0.4.7",
        "reward completion_length completion_length_max loss learning_rate entropy gradient_norm "
        "kl step_time",
        cosmos_line,
    ),
    "mlx-guided": printed(
        "main",
        "loss reward reward_std_within_group kl completion_length truncated_share",
        guided_lines,
    ),
    "mindspeed-rl": printed(
        "main", "entropy kl loss gradient_norm reward completion_length", mindspeed_line
    ),
    "rlinf": printed("main", "reward kl clip_ratio gradient_norm loss step_time", rlinf_panel),
    "micror1": printed("main", "reward loss gradient_norm", micror1_lines, first=0),
}


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    truth = SYSTEMS[sys.argv[2]](place)
    (place / "truth.json").write_text(json.dumps(truth), encoding="utf-8")
