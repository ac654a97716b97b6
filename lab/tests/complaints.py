"""Logs as users complained of them, under the keys of two trainers: each with the cause that was
found in the end, and healthy logs that look alike.

Every column is drawn anew for each seed: levels, noise, onset, severity, number of rows. It shares
no code with what judges it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator

Columns = dict[str, Any]
"""A number or one value a row, by quantity."""

KEYS: dict[str, dict[str, str]] = {
    "trl": {
        "reward": "reward",
        "spread": "reward_std",
        "norm": "grad_norm",
        "rate": "learning_rate",
        "kl": "kl",
        "entropy": "entropy",
        "length": "completions/mean_length",
        "truncated": "completions/clipped_ratio",
        "gap": "sampling/sampling_logp_difference/mean",
        "ratio": "sampling/importance_sampling_ratio/mean",
        "age": "sample/staleness_mean",
        "calls": "tools/call_frequency",
        "failures": "tools/failure_frequency",
        "dead": "frac_reward_zero_std",
        "largest": "sampling/importance_sampling_ratio/max",
        "smallest": "sampling/importance_sampling_ratio/min",
        "widest": "sampling/sampling_logp_difference/max",
        "loss": "loss",
        "held": "eval_reward",
        "correct": "rewards/correct/mean",
        "bonus": "rewards/bonus/mean",
    },
    "verl": {
        "reward": "critic/score/mean",
        "advantage": "critic/advantages/min",
        "norm": "actor/grad_norm",
        "rate": "actor/lr",
        "kl": "actor/kl_loss",
        "entropy": "actor/entropy",
        "length": "response_length/mean",
        "truncated": "response_length/clip_ratio",
        "gap": "rollout_corr/kl",
        "ratio": "rollout_corr/rollout_is_mean",
        "turns": "num_turns/mean",
        "age": "training/off_policy/trajectory_staleness/mean",
        "calls": "tool_call_counts/mean",
        "compared": "critic/advantages/mean",
        "held": "val-core/math/reward/mean@1",
        "largest": "rollout_corr/rollout_is_max",
        "smallest": "rollout_corr/rollout_is_min",
        "widest": "training/rollout_logprobs_diff_max",
        "loss": "actor/pg_loss",
        "slowest": "timing_s/agent_loop/generate_sequences/max",
        "usual": "timing_s/agent_loop/generate_sequences/mean",
        "alike": "training/rollout_actor_probs_pearson_corr",
        "dropped": "fully_async/count/dropped_stale_samples",
        "generated": "fully_async/count/total_generated_samples",
        "first": "critic/score/math/mean",
        "second": "critic/score/code/mean",
        "infra": "sandbox/timeout_rate",
    },
    "seats": {
        "reward": "reward",
        "first": "player_0/reward",
        "second": "player_1/reward",
        "entropy": "entropy",
    },
    "nemo-rl": {
        "reward": "train/reward",
        "first": "train/math_env/reward",
        "second": "train/code_env/reward",
        "norm": "train/grad_norm",
        "rate": "train/lr",
        "kl": "train/kl_penalty",
        "entropy": "train/approx_entropy",
        "gap": "train/gen_kl_error",
        "ratio": "train/sampling_importance_ratio",
        "length": "train/mean_gen_tokens_per_sample",
        "dead": "train/baseline_reward/pct_0",
        "solved": "train/baseline_reward/pct_1",
        "compared": "train/advantages/mean",
        "infra": "train/timeout_rate",
        "trained": "train/num_valid_samples",
    },
    "prime-rl": {
        "reward": "train/agg/all/agent/reward/mean",
        "first": "train/math/all/reward/mean",
        "second": "train/code/all/reward/mean",
        "turns": "num_turns/all/mean",
        "infra": "stop_condition/all/timeout_reached",
        "admitted": "train/agg/all/agent/is_admitted/mean",
        "slowest": "time/rollout/max",
        "usual": "time/rollout/mean",
        "norm": "optim/grad_norm",
        "rate": "optim/lr",
        "entropy": "entropy/all/mean",
        "gap": "mismatch_kl/all/mean",
    },
    "open-instruct": {
        "reward": "scores",
        "norm": "optim/grad_norm",
        "rate": "lr",
        "kl": "objective/kl1_avg",
        "entropy": "policy/entropy_avg",
        "length": "val/sequence_lengths",
        "infra": "val/infra_failed_rate",
    },
}


def healthy(rng: Generator, rows: int) -> Columns:
    """A run that learns: its reward rises and saturates, the rest stays near where it began."""
    time, start = np.arange(rows), rng.uniform(0.2, 0.4)
    gain, pace = rng.uniform(0.2, 0.4), rng.uniform(0.15, 0.35) * rows
    return {
        "reward": start + gain * -np.expm1(-time / pace) + rng.normal(0, 0.025, rows),
        "spread": 0.38 + rng.normal(0, 0.02, rows),
        "advantage": -2.2 + rng.normal(0, 0.05, rows),
        "norm": rng.uniform(0.1, 0.8) * np.exp(rng.normal(0, 0.15, rows)),
        "rate": 1e-6,
        "kl": np.linspace(1e-4, rng.uniform(0.005, 0.05), rows) * np.exp(rng.normal(0, 0.1, rows)),
        "entropy": 0.5 + rng.normal(0, 0.02, rows),
        "length": rng.uniform(150, 600) * (1 + rng.normal(0, 0.03, rows)),
        "truncated": np.clip(0.02 + rng.normal(0, 0.005, rows), 0, 1),
        "dead": np.clip(0.2 + rng.normal(0, 0.05, rows), 0, 1),
        "solved": np.clip(0.1 + rng.normal(0, 0.03, rows), 0, 1),
        "gap": rng.uniform(0.001, 0.004) * np.exp(rng.normal(0, 0.1, rows)),
        "ratio": 1 + rng.normal(0, 0.002, rows),
        "infra": np.clip(0.01 + rng.normal(0, 0.005, rows), 0, 1),
        "calls": rng.uniform(1.2, 2.5) * (1 + rng.normal(0, 0.04, rows)),
        "failures": np.clip(0.04 + rng.normal(0, 0.01, rows), 0, 1),
        "age": 0.0,
    }


def _flat(rng: Generator, rows: int, columns: Columns) -> Columns:
    """The same, whose reward stands."""
    level = rng.uniform(0.2, 0.4)
    return columns | {"reward": level + rng.normal(0, 0.025, rows)}


def _since(rng: Generator, rows: int, width: float = 1.0) -> Any:
    """A step from 0 to 1 somewhere in the middle of a log."""
    onset = rng.uniform(0.35, 0.65) * rows
    return 1 / (1 + np.exp(-np.clip((np.arange(rows) - onset) / width, -50, 50)))


def truncated_sampling(rng: Generator, rows: int) -> Columns:
    """Of the mass a nucleus is kept: w = e^-d from the first row on, whatever caps the ratio."""
    gap = rng.uniform(0.05, 0.2) * (1 + rng.normal(0, 0.03, rows))
    return healthy(rng, rows) | {"gap": gap, "ratio": np.exp(-gap), "largest": 2.0}


def summed_ratio(rng: Generator, rows: int) -> Columns:
    """The logarithm of a ratio is summed over an answer."""
    ratio = rng.uniform(0.4, 0.8) + rng.normal(0, 0.02, rows)
    return healthy(rng, rows) | {"gap": rng.uniform(0.003, 0.01), "ratio": ratio}


def never_synchronised(rng: Generator, rows: int) -> Columns:
    """The policy moves and its rollouts come from the first one."""
    kl = np.linspace(0.001, rng.uniform(0.1, 0.3), rows) * np.exp(rng.normal(0, 0.02, rows))
    gap = 0.003 + rng.uniform(0.6, 1.0) * kl
    return _flat(rng, rows, healthy(rng, rows)) | {"kl": kl, "gap": gap, "ratio": np.exp(-gap / 50)}


def stale_queue(rng: Generator, rows: int) -> Columns:
    """The gap goes with the age of the rollouts."""
    age = np.clip(rng.uniform(2, 5) * _since(rng, rows, 8) + rng.exponential(0.6, rows), 0, None)
    gap = 0.004 + rng.uniform(0.02, 0.05) * age * np.exp(rng.normal(0, 0.1, rows))
    return healthy(rng, rows) | {"age": age, "gap": gap}


def tokenised_again(rng: Generator, rows: int) -> Columns:
    """The gap goes with the number of turns."""
    turns = 1 + rng.uniform(3, 6) * _since(rng, rows, 15) + np.abs(rng.normal(0, 0.15, rows))
    gap = 0.002 + rng.uniform(0.02, 0.05) * (turns - 1) * np.exp(rng.normal(0, 0.05, rows))
    return healthy(rng, rows) | {"turns": turns, "gap": gap}


def impossible_advantages(rng: Generator, rows: int) -> Columns:
    """A deviation of near ties divides some groups."""
    columns = healthy(rng, rows)
    spikes = rng.choice(rows, int(rng.integers(1, 6)), replace=False)
    columns["advantage"][spikes] = -np.exp(rng.uniform(np.log(200), np.log(5000), len(spikes)))
    columns["norm"][spikes] *= 50
    return columns


def summed_loss(rng: Generator, rows: int) -> Columns:
    """A gradient a hundred times the usual from the first row on."""
    columns = healthy(rng, rows)
    return columns | {"norm": rng.uniform(45, 300) * np.exp(rng.normal(0, 0.15, rows))}


def no_policy_term(rng: Generator, rows: int) -> Columns:
    """The KL alone moves the weights."""
    norm = rng.uniform(0.0005, 0.003) * np.exp(rng.normal(0, 0.1, rows))
    return _flat(rng, rows, healthy(rng, rows)) | {"norm": norm}


def one_environment_falls(rng: Generator, rows: int) -> Columns:
    """One of two environments is lost while their mean rises."""
    first = rng.uniform(0.25, 0.4) - rng.uniform(0.4, 0.55) * np.expm1(-np.arange(rows) / 50)
    second = rng.uniform(0.3, 0.6) * (1 - rng.uniform(0.8, 1.0) * _since(rng, rows, 6))
    first, second = (level + rng.normal(0, 0.015, rows) for level in (first, second))
    return healthy(rng, rows) | {
        "first": first,
        "second": np.clip(second, 0, 1),
        "reward": 0.8 * first + 0.2 * second,
    }


def infrastructure_fails(rng: Generator, rows: int) -> Columns:
    """Episodes that fail by their sandboxes are graded 0."""
    columns = healthy(rng, rows)
    share = columns["infra"] + rng.uniform(0.25, 0.5) * _since(rng, rows)
    return columns | {"infra": share, "reward": columns["reward"] * (1 - share)}


def tools_stop(rng: Generator, rows: int) -> Columns:
    """The policy calls no tools any more and earns less."""
    columns, gone = healthy(rng, rows), _since(rng, rows, 5)
    columns["reward"] = _flat(rng, rows, columns)["reward"] * (1 - rng.uniform(0.3, 0.6) * gone)
    return columns | {"calls": columns["calls"] * (1 - gone)}


def tools_fail(rng: Generator, rows: int) -> Columns:
    """Calls fail and the reward with them."""
    columns, gone = healthy(rng, rows), _since(rng, rows)
    columns["reward"] = _flat(rng, rows, columns)["reward"] * (1 - rng.uniform(0.4, 0.6) * gone)
    return columns | {"failures": columns["failures"] + rng.uniform(0.5, 0.8) * gone}


def too_fast(rng: Generator, rows: int) -> Columns:
    """The first updates destroy the policy."""
    left = np.exp(-np.arange(rows) / rng.uniform(0.5, 3))
    noise = np.abs(rng.normal(0, 0.005, rows))
    return healthy(rng, rows) | {
        "reward": rng.uniform(0.2, 0.5) * left + noise,
        "entropy": 0.5 * left + 0.01 + noise,
        "rate": 1e-4,
    }


def too_slow(rng: Generator, rows: int) -> Columns:
    """A rate at which nothing moves."""
    kl = np.linspace(1e-7, rng.uniform(1e-6, 5e-5), rows)
    return _flat(rng, rows, healthy(rng, rows)) | {"kl": kl, "rate": 5e-8}


def one_seat_falls(rng: Generator, rows: int) -> Columns:
    """One player is lost while the other rises by more."""
    return one_environment_falls(rng, rows)


def capped_ratio(rng: Generator, rows: int) -> Columns:
    """The ratio is logged after it was truncated, and much of it lies beyond."""
    gap = rng.uniform(0.12, 0.18) * np.exp(rng.normal(0, 0.05, rows))
    ratio = np.exp(-rng.uniform(0.3, 0.55) * gap)
    return healthy(rng, rows) | {"gap": gap, "ratio": ratio, "largest": 2.0}


def groups_of_one(rng: Generator, rows: int) -> Columns:
    """The advantage is the reward itself."""
    columns = healthy(rng, rows)
    return columns | {"compared": columns["reward"]}


def ended_schedule(rng: Generator, rows: int) -> Columns:
    """The rate comes down to 0 in the middle of the run, and nothing is learnt after."""
    columns, end = healthy(rng, rows), rng.uniform(0.3, 0.6) * rows
    level = columns["reward"][: int(end)].mean() + rng.normal(0, 0.025, rows)
    late = np.arange(rows) > end
    rate = 1e-6 * np.clip(1 - np.arange(rows) / end, 0, None)
    return columns | {"rate": rate, "reward": np.where(late, level, columns["reward"])}


def constant_answers(rng: Generator, rows: int) -> Columns:
    """Every prompt gets one and the same answer: nothing varies any more."""
    gone = _since(rng, rows, 2) > 0.5
    columns = healthy(rng, rows)
    still = {"reward": 0.1, "length": 12.0, "entropy": 0.0, "spread": 0.0, "dead": 1.0}
    return columns | {name: np.where(gone, level, columns[name]) for name, level in still.items()}


def unlike_precision(rng: Generator, rows: int) -> Columns:
    """A gap above 0 from the first step on, which grows as the entropy falls."""
    entropy = np.linspace(0.6, rng.uniform(0.1, 0.2), rows) + rng.normal(0, 0.005, rows)
    gap = rng.uniform(0.02, 0.03) * (0.6 / entropy) ** 1.5
    return healthy(rng, rows) | {"entropy": entropy, "gap": gap}


def drift(rng: Generator, rows: int) -> Columns:
    """Gap and gradient grow together."""
    grown = np.exp(np.linspace(0, rng.uniform(3, 4), rows) + rng.normal(0, 0.05, rows))
    return healthy(rng, rows) | {"gap": 0.006 * grown, "norm": 0.2 * grown**0.7}


def unlike_routing(rng: Generator, rows: int) -> Columns:
    """The probabilities of one token are little alike, and the mean gap is small."""
    alike = rng.uniform(0.55, 0.7) + rng.normal(0, 0.02, rows)
    return healthy(rng, rows) | {"alike": alike}


def discards(rng: Generator, rows: int) -> Columns:
    """What comes late is dropped, more and more of it."""
    share = 0.02 + rng.uniform(0.3, 0.5) * _since(rng, rows, 6)
    return healthy(rng, rows) | {
        "generated": np.cumsum(np.full(rows, 128.0)),
        "dropped": np.cumsum(np.round(128 * share)),
    }


def columns_part(rng: Generator, rows: int) -> Columns:
    """What is wanted falls as a bonus rises, and the total with it."""
    rise = np.linspace(0, 1, rows)
    correct = 0.5 - rng.uniform(0.25, 0.35) * rise + rng.normal(0, 0.015, rows)
    bonus = 0.2 + rng.uniform(0.9, 1.2) * rise + rng.normal(0, 0.015, rows)
    return healthy(rng, rows) | {"correct": correct, "bonus": bonus, "reward": correct + bonus}


def _evaluated(rng: Generator, rows: int, level: Any, scatter: float) -> Any:
    """A level at every few rows, with the noise of an evaluation."""
    due = (np.arange(rows) + 1) % int(rng.choice([2, 5])) == 0
    return np.where(due, level + rng.normal(0, scatter, rows), np.nan)


def learnt_by_heart(rng: Generator, rows: int) -> Columns:
    """Training gains to the end; the held-out reward gains with it and is lost by and by."""
    time, best = np.linspace(0, 1, rows), rng.uniform(0.25, 0.5)
    start, gain = rng.uniform(0.2, 0.35), rng.uniform(0.4, 0.6)
    lost = rng.uniform(0.2, 0.4) * np.maximum(time - best, 0)
    held = start - 0.05 + 0.8 * gain * np.minimum(time, best) - lost
    return healthy(rng, rows) | {
        "reward": start + gain * time ** rng.uniform(0.7, 1) + rng.normal(0, 0.025, rows),
        "held": _evaluated(rng, rows, held, rng.uniform(0.005, 0.015)),
    }


def rate_jumps(rng: Generator, rows: int) -> Columns:
    """A run that is resumed with another schedule: the rate is five to thirty times as large, and
    the policy comes apart.
    """
    columns, onset = healthy(rng, rows), int(rng.uniform(0.35, 0.65) * rows)
    since = np.arange(rows) - onset
    gone = 1 - np.exp(-np.maximum(since - rng.integers(1, 6), 0) / rng.uniform(1, 8))
    noise = rng.normal(0, 0.01, rows)
    return columns | {
        "rate": 1e-6 * np.where(since < 0, 1, rng.uniform(5, 30)) * (1 - 0.5 * since / rows),
        "reward": columns["reward"] * (1 - rng.uniform(0.7, 0.95) * gone) + noise * gone,
        "entropy": columns["entropy"] * np.exp(rng.uniform(-2.5, 1.8) * gone),
        "length": columns["length"] * np.exp(rng.uniform(-2, 1.2) * gone),
        "norm": columns["norm"] * np.exp(rng.uniform(0.5, 3) * gone),
        "kl": columns["kl"] * np.exp(rng.uniform(1, 4) * gone),
    }


def masked_ratio(rng: Generator, rows: int) -> Columns:
    """Ratios of whole answers, of which those beyond a cap are set to 0 before they are logged."""
    ratio = rng.uniform(0.5, 0.7) + rng.normal(0, 0.03, rows)
    largest = 3 - rng.exponential(0.1, rows)
    gap = rng.uniform(0.01, 0.03)
    return healthy(rng, rows) | {"gap": gap, "ratio": ratio, "largest": largest, "smallest": 0.0}


def loss_of_the_kl(rng: Generator, rows: int) -> Columns:
    """The KL alone is in the loss: both fall, and nothing is learnt."""
    kl = np.geomspace(rng.uniform(0.02, 0.05), rng.uniform(0.002, 0.006), rows)
    kl = kl * np.exp(rng.normal(0, 0.1, rows))
    return _flat(rng, rows, healthy(rng, rows)) | {"kl": kl, "loss": rng.uniform(0.02, 0.2) * kl}


def seldom_right(rng: Generator, rows: int) -> Columns:
    """Hardly a step has a right answer, and only those have a gradient."""
    right = rng.random(rows) < rng.uniform(0.03, 0.12)
    reward = np.where(right, rng.integers(1, 8, rows) / 128, 0.0)
    columns = healthy(rng, rows) | {"reward": reward, "norm": np.where(right, 0.1, 0.0)}
    columns["advantage"] = np.where(right, columns["advantage"], 0.0)  # of equal rewards none has
    return {name: value for name, value in columns.items() if name not in ("dead", "spread")}


def grows_unlike(rng: Generator, rows: int) -> Columns:
    """Token probabilities that were alike part as the entropy falls."""
    fall = np.linspace(0, 1, rows)
    alike = 0.985 - rng.uniform(0.25, 0.35) * fall**1.5 + rng.normal(0, 0.005, rows)
    entropy = 0.45 * np.exp(-rng.uniform(0.5, 1) * fall) + rng.normal(0, 0.003, rows)
    gap = rng.uniform(0.01, 0.015) * np.exp(rng.uniform(1.2, 1.6) * fall)
    return healthy(rng, rows) | {"alike": alike, "entropy": entropy, "gap": gap}


def pinned_slowest(rng: Generator, rows: int) -> Columns:
    """The slowest rollout takes one and the same time in each row, and nothing is learnt."""
    limit = float(rng.choice([600, 1200, 1800]))
    usual = limit * rng.uniform(0.6, 0.85) * (1 + rng.normal(0, 0.02, rows))
    times = {"slowest": limit + rng.uniform(0, 1, rows), "usual": usual}
    return _flat(rng, rows, healthy(rng, rows)) | times


def infrastructure_costs(rng: Generator, rows: int) -> Columns:
    """A tenth of the episodes fails throughout, in bursts, and is graded 0."""
    share = np.clip(rng.gamma(1.2, rng.uniform(0.06, 0.08), rows), 0, 0.5)
    columns = healthy(rng, rows)
    return columns | {"infra": share, "reward": columns["reward"] * (1 - share)}


def many_groups_alike(rng: Generator, rows: int) -> Columns:
    """Half of the groups and more have zero variance from the first row to the last."""
    dead = rng.uniform(0.55, 0.65) + rng.normal(0, 0.03, rows)
    return healthy(rng, rows) | {"dead": dead, "solved": 0.0}


def entropy_rises_first(rng: Generator, rows: int) -> Columns:
    """The entropy grows three- to fivefold by and by, with a few answers that are cut off, and the
    reward is lost behind it.
    """
    begun = np.clip((np.arange(rows) / rows - rng.uniform(0.3, 0.4)) / 0.6, 0, 1)
    columns = healthy(rng, rows)
    entropy = columns["entropy"] * np.exp(rng.uniform(1.2, 1.6) * begun)
    cut = columns["truncated"] + 0.04 * begun
    reward = columns["reward"] * (1 - 0.5 * begun**1.5)
    return columns | {"entropy": entropy, "truncated": cut, "reward": reward}


def _declines(rng: Generator, rows: int, longer: int, livelier: int) -> Columns:
    """A reward that loses two fifths over an eighth of the log; length and entropy grow so many rows
    after it began.
    """
    columns, since = healthy(rng, rows), np.arange(rows) - rng.uniform(0.45, 0.6) * rows
    lost, grown, freed = (
        np.clip((since - late) * 8 / rows, 0, 1) for late in (0, longer, livelier)
    )
    return columns | {
        "reward": columns["reward"] * (1 - rng.uniform(0.35, 0.45) * lost),
        "length": columns["length"] * np.exp(rng.uniform(0.8, 1.4) * grown),
        "entropy": columns["entropy"] * np.exp(rng.uniform(0.6, 1) * freed),
    }


def length_grows_first(rng: Generator, rows: int) -> Columns:
    """The length grows as the reward is lost by and by, and the entropy behind it."""
    return _declines(rng, rows, 1, rows // 16)


def length_grows_last(rng: Generator, rows: int) -> Columns:
    """The entropy grows as the reward is lost by and by, and the length behind both."""
    return _declines(rng, rows, rows // 8 + 8, -4)


def few_prompts_of_one(rng: Generator, rows: int) -> Columns:
    """One of two environments, of a few prompts a step, loses half by and by as its share shrinks."""
    first = rng.uniform(0.35, 0.45) + 0.3 * -np.expm1(-np.arange(rows) / 60)
    lost = np.clip((np.arange(rows) / rows - 0.25) / 0.5, 0, 1)
    level = rng.uniform(0.5, 0.6) * (1 - rng.uniform(0.5, 0.6) * lost)
    second = np.clip(level + rng.normal(0, 0.12, rows), 0, 1)
    first = first + rng.normal(0, 0.02, rows)
    return healthy(rng, rows) | {
        "first": first,
        "second": second,
        "reward": 0.85 * first + 0.15 * second,
    }


def slowly_with_calls(rng: Generator, rows: int) -> Columns:
    """The gap grows two- to threefold with the calls of tools."""
    calls = 0.5 + rng.uniform(1.8, 2.3) * -np.expm1(-np.arange(rows) / (0.4 * rows))
    calls = calls * np.exp(rng.normal(0, 0.06, rows))
    gap = rng.uniform(0.026, 0.03) * calls * np.exp(rng.normal(0, 0.01, rows))
    return healthy(rng, rows) | {"calls": calls, "gap": gap}


def masked_in_the_baseline(rng: Generator, rows: int) -> Columns:
    """A seventh of the episodes is masked and stands in the mean of its group."""
    share = np.clip(rng.uniform(0.12, 0.18) + rng.normal(0, 0.02, rows), 0, 1)
    compared = rng.uniform(0.18, 0.28) + rng.normal(0, 0.03, rows)
    return healthy(rng, rows) | {"infra": share, "compared": compared}


def masked_answers(rng: Generator, rows: int) -> Columns:
    """Ratios of whole answers about 1, of which those beyond a cap are set to 0: no gap of a token
    is as wide.
    """
    columns = masked_ratio(rng, rows) | {"ratio": 1 + rng.normal(0.03, 0.06, rows)}
    return _flat(rng, rows, columns) | {"widest": rng.uniform(1.2, 4) + rng.exponential(0.3, rows)}


def _masked(rng: Generator, rows: int) -> Columns:
    """A third of the episodes and more comes to fail, and is out of the loss."""
    share = np.clip(0.02 + rng.uniform(0.3, 0.4) * _since(rng, rows, 5), 0, 1)
    share = np.clip(share + rng.normal(0, 0.01, rows), 0, 1)
    left = {"trained": np.round(512 * (1 - share)), "admitted": 1 - share}
    return healthy(rng, rows) | left | {"infra": share, "compared": rng.normal(0, 0.005, rows)}


def masked_later(rng: Generator, rows: int) -> Columns:
    """What is masked stays in the mean of its group as ever more of it is."""
    columns = _masked(rng, rows)
    counted = rng.uniform(0.18, 0.24) * columns["infra"]
    return columns | {"compared": columns["compared"] + counted}


def masked_alone(rng: Generator, rows: int) -> Columns:
    """The same, and no column says how many fail."""
    columns = masked_later(rng, rows)
    return {name: value for name, value in columns.items() if name != "infra"}


def loss_is_the_kl(rng: Generator, rows: int) -> Columns:
    """The KL alone is in the loss and stands, of a trainer that logs no gradient."""
    kl = rng.uniform(0.002, 0.02) * np.exp(rng.normal(0, 0.2, rows))
    columns = _flat(rng, rows, healthy(rng, rows)) | {"kl": kl, "loss": rng.uniform(0.02, 0.2) * kl}
    return {name: value for name, value in columns.items() if name != "norm"}


Kind = Callable[[Generator, int], Columns]
CAUSES: dict[str, tuple[Kind, tuple[str, str], str]] = {
    "truncated sampling": (truncated_sampling, ("trl", "verl"), "truncated distribution"),
    "summed ratio": (summed_ratio, ("trl", "verl"), "summed over tokens"),
    "never synchronised": (never_synchronised, ("trl", "verl"), "never reach the sampler"),
    "stale queue": (stale_queue, ("trl", "verl"), "stale queue"),
    "tokenised again": (tokenised_again, ("verl", "prime-rl"), "tokenised again"),
    "impossible advantages": (impossible_advantages, ("verl", "verl"), "deviation near 0"),
    "summed loss": (summed_loss, ("trl", "prime-rl"), "far larger than the settings imply"),
    "no policy term": (no_policy_term, ("trl", "nemo-rl"), "almost no policy gradient"),
    "one environment falls": (one_environment_falls, ("prime-rl", "nemo-rl"), "one environment"),
    "infrastructure fails": (infrastructure_fails, ("open-instruct", "prime-rl"), "infra"),
    "tools stop": (tools_stop, ("trl", "verl"), "stops calling its tools"),
    "tools fail": (tools_fail, ("trl", "trl"), "tool calls fail"),
    "too fast": (too_fast, ("trl", "verl"), "too large from the start"),
    "too slow": (too_slow, ("trl", "verl"), "far too small"),
    "one seat falls": (one_seat_falls, ("seats", "seats"), "one environment"),
    "one data source falls": (one_environment_falls, ("verl", "verl"), "one environment"),
    "capped ratio": (capped_ratio, ("trl", "verl"), "logged after it was truncated"),
    "groups of one": (groups_of_one, ("verl", "nemo-rl"), "group size is 1"),
    "ended schedule": (ended_schedule, ("trl", "verl"), "learning rate is 0"),
    "constant answers": (constant_answers, ("trl", "verl"), "completions shrank"),
    "unlike precision": (unlike_precision, ("trl", "verl"), "different precision"),
    "drift": (drift, ("trl", "verl"), "the optimisation itself"),
    "unlike routing": (unlike_routing, ("verl", "verl"), "different experts"),
    "discards": (discards, ("verl", "verl"), "discarding stale rollouts"),
    "columns part": (columns_part, ("trl", "trl"), "reward hacking"),
    "learnt by heart": (learnt_by_heart, ("trl", "verl"), "overfitting"),
    "rate jumps": (rate_jumps, ("trl", "verl"), "the learning rate rose during the run"),
    "masked ratio": (masked_ratio, ("trl", "verl"), "truncated or masked"),
    "loss of the KL": (loss_of_the_kl, ("trl", "verl"), "almost no policy gradient"),
    "seldom right": (seldom_right, ("trl", "verl"), "too hard"),
    "grows unlike": (grows_unlike, ("verl", "verl"), "different precision"),
    "pinned slowest": (pinned_slowest, ("verl", "prime-rl"), "a time limit"),
    "infrastructure costs": (infrastructure_costs, ("open-instruct", "prime-rl"), "infra"),
    "many groups alike": (many_groups_alike, ("trl", "nemo-rl"), "dilute the update"),
    "entropy rises first": (entropy_rises_first, ("trl", "verl"), "became unstable"),
    "length grows first": (length_grows_first, ("trl", "verl"), "ran away in length"),
    "length grows last": (length_grows_last, ("trl", "verl"), "became unstable"),
    "few prompts of one": (few_prompts_of_one, ("prime-rl", "nemo-rl"), "one environment"),
    "slowly with calls": (slowly_with_calls, ("trl", "verl"), "tokenised again"),
    "masked in the baseline": (
        masked_in_the_baseline,
        ("verl", "verl"),
        "count in the group baseline",
    ),
    "masked later": (masked_later, ("verl", "nemo-rl"), "count in the group baseline"),
    "masked alone": (masked_alone, ("nemo-rl", "nemo-rl"), "count in the group baseline"),
    "masked, not counted": (_masked, ("nemo-rl", "prime-rl"), "leave fewer episodes"),
    "masked answers": (masked_answers, ("trl", "verl"), "truncated or masked"),
    "a loss that is the KL": (loss_is_the_kl, ("trl", "verl"), "almost no policy gradient"),
}
"""By name: the generator, the two trainers whose keys it has, words of the cause."""


def gap_that_stands(rng: Generator, rows: int) -> Columns:
    """A gap of rounding, with a ratio of 1."""
    gap = rng.uniform(0.01, 0.03) * (1 + rng.normal(0, 0.05, rows))
    return healthy(rng, rows) | {"gap": gap, "ratio": 1 + rng.normal(0, 0.005, rows)}


def gap_beside_kl(rng: Generator, rows: int) -> Columns:
    """A policy that moves and learns, with a gap that grows a little as its entropy falls."""
    columns = healthy(rng, rows)
    entropy = np.linspace(0.5, 0.3, rows) + rng.normal(0, 0.02, rows)
    return columns | {"entropy": entropy, "gap": 0.002 + 0.2 * columns["kl"]}


def environments_that_dip(rng: Generator, rows: int) -> Columns:
    """One of two environments dips and comes back."""
    columns = one_environment_falls(rng, rows)
    middle = np.exp(-(((np.arange(rows) - rows / 2) / (rows / 25)) ** 2))
    second = 0.45 * (1 - 0.5 * middle) + rng.normal(0, 0.015, rows)
    return columns | {"second": second, "reward": 0.8 * columns["first"] + 0.2 * second}


def fewer_calls(rng: Generator, rows: int) -> Columns:
    """A policy that needs fewer calls and earns more."""
    columns = healthy(rng, rows)
    return columns | {"calls": columns["calls"] * np.linspace(1, 0.5, rows)}


def first_row_lucky(rng: Generator, rows: int) -> Columns:
    """A run that learns, whose first row was a lucky one."""
    columns = healthy(rng, rows)
    columns["reward"][0] += 0.1
    return columns


def game_of_two(rng: Generator, rows: int) -> Columns:
    """What one player loses the other wins."""
    lost = 0.5 - rng.uniform(0.3, 0.45) * _since(rng, rows, 8) + rng.normal(0, 0.01, rows)
    return healthy(rng, rows) | {"first": lost, "second": 1 - lost}


def cap_not_reached(rng: Generator, rows: int) -> Columns:
    """A cap of the ratio that costs its mean nothing."""
    return healthy(rng, rows) | {"largest": 2.0}


def mean_zero(rng: Generator, rows: int) -> Columns:
    """Advantages that are centred."""
    return healthy(rng, rows) | {"compared": rng.normal(0, 1e-8, rows)}


def schedule_ends(rng: Generator, rows: int) -> Columns:
    """A rate that comes down to 0 with the last row."""
    return healthy(rng, rows) | {"rate": np.linspace(1e-6, 0, rows)}


def few_discards(rng: Generator, rows: int) -> Columns:
    """A few samples come late."""
    return healthy(rng, rows) | {
        "generated": np.cumsum(np.full(rows, 128.0)),
        "dropped": np.cumsum(rng.poisson(2, rows)).astype(float),
    }


def fewer_turns(rng: Generator, rows: int) -> Columns:
    """A policy that needs fewer turns and earns more."""
    return healthy(rng, rows) | {"turns": np.linspace(4, 2, rows) + rng.normal(0, 0.05, rows)}


def noisy_evaluation(rng: Generator, rows: int) -> Columns:
    """A held-out reward of few prompts."""
    columns = healthy(rng, rows)
    return columns | {"held": _evaluated(rng, rows, columns["reward"] - 0.05, 0.06)}


def at_its_top(rng: Generator, rows: int) -> Columns:
    """A sum of functions of unknown range that stays where hardly anything is lost: most groups
    are all right, and hardly a gradient is left.
    """
    lost = rng.binomial(16, 0.3, rows) * (rng.random(rows) < 0.6) / 256
    return healthy(rng, rows) | {
        "reward": 2 - lost,
        "dead": np.clip(1 - 4 * lost, 0, 1),
        "spread": lost / 2,
        "norm": 0.004 * np.exp(rng.normal(0, 0.2, rows)),
    }


def caught_up(rng: Generator, rows: int) -> Columns:
    """Training in points that comes to where the easier held-out set has been all along."""
    top, time = rng.uniform(1.2, 3), np.arange(rows)
    reward = top * (1 - rng.uniform(0.2, 0.4) * np.exp(-time / (0.15 * rows)))
    return healthy(rng, rows) | {
        "reward": reward + rng.normal(0, 0.005, rows),
        "held": _evaluated(rng, rows, top, 0.003),
    }


def schedule_in_cycles(rng: Generator, rows: int) -> Columns:
    """A rate that comes down to a twentieth and starts anew, four times, and harms nothing."""
    place = np.arange(rows) * 4 / rows % 1
    return healthy(rng, rows) | {"rate": 1e-6 * (0.05 + 0.475 * (1 + np.cos(np.pi * place)))}


def long_warm_up(rng: Generator, rows: int) -> Columns:
    """A rate that rises over a third of the log."""
    rise = rng.uniform(0.2, 0.4) * rows
    return healthy(rng, rows) | {"rate": 1e-6 * np.minimum((1 + np.arange(rows)) / rise, 1)}


def smallest_near_nothing(rng: Generator, rows: int) -> Columns:
    """Ratios of tokens whose smallest is tiny, and no 0."""
    smallest = np.exp(-rng.uniform(5, 12, rows))
    return gap_that_stands(rng, rows) | {"smallest": smallest, "largest": 2 + rng.random(rows)}


def loss_beside_kl(rng: Generator, rows: int) -> Columns:
    """The loss of a run on policy: advantages sum to 0, and the KL is what is left of it."""
    columns = healthy(rng, rows)
    return columns | {"loss": 0.04 * columns["kl"]}


def loss_beside_a_kl_that_grows(rng: Generator, rows: int) -> Columns:
    """The same beside a reward that stands and a policy that moves, of a trainer that logs no
    gradient.
    """
    kl = np.linspace(1e-3, rng.uniform(0.01, 0.05), rows) * np.exp(rng.normal(0, 0.1, rows))
    columns = _flat(rng, rows, healthy(rng, rows)) | {"kl": kl, "loss": 0.04 * kl}
    return {name: value for name, value in columns.items() if name != "norm"}


def overlong_left_out(rng: Generator, rows: int) -> Columns:
    """Fewer samples in the loss as answers that are cut off are masked, and centred advantages."""
    return {name: value for name, value in _masked(rng, rows).items() if name != "infra"}


def token_of_no_chance(rng: Generator, rows: int) -> Columns:
    """A ratio of 0 because the trainer gives a sampled token next to no probability."""
    wide = 110 + rng.exponential(20, rows)
    return gap_that_stands(rng, rows) | {"smallest": 0.0, "widest": wide}


def hard_start(rng: Generator, rows: int) -> Columns:
    """Hardly a right answer at first, and then more and more of them."""
    chance = 0.001 + 0.4 * np.linspace(0, 1, rows) ** 3
    reward = rng.binomial(256, chance) / 256
    columns = healthy(rng, rows) | {"reward": reward, "norm": np.where(reward > 0, 0.1, 0.0)}
    return columns | {"dead": (1 - chance) ** 8, "solved": 0.0, "spread": np.sqrt(reward) / 2}


def alike_enough(rng: Generator, rows: int) -> Columns:
    """Token probabilities that stay alike as the entropy falls."""
    entropy = np.linspace(0.5, 0.3, rows) + rng.normal(0, 0.01, rows)
    alike = 0.985 - 0.03 * np.linspace(0, 1, rows) + rng.normal(0, 0.003, rows)
    return healthy(rng, rows) | {"alike": alike, "entropy": entropy}


def slowest_of_many(rng: Generator, rows: int) -> Columns:
    """Times of a run that learns, whose slowest rollout varies."""
    slowest = 900 * np.exp(rng.normal(0, 0.05, rows))
    return healthy(rng, rows) | {"slowest": slowest, "usual": 500 + rng.normal(0, 10, rows)}


def failures_that_are_graded_apart(rng: Generator, rows: int) -> Columns:
    """A few episodes fail and are left out: the reward does not know of them."""
    share = np.clip(rng.gamma(1.2, 0.05, rows), 0, 0.5)
    return healthy(rng, rows) | {"infra": np.where(share > 0.09, 0.09, share)}


def exploring(rng: Generator, rows: int) -> Columns:
    """The entropy rises by a third as the reward does."""
    columns = healthy(rng, rows)
    return columns | {"entropy": columns["entropy"] * np.linspace(1, 1.35, rows)}


def noisy_environment(rng: Generator, rows: int) -> Columns:
    """One of two environments has a few prompts a step, and stands."""
    columns = few_prompts_of_one(rng, rows)
    second = np.clip(0.5 + rng.normal(0, 0.12, rows), 0, 1)
    return columns | {"second": second, "reward": 0.85 * columns["first"] + 0.15 * second}


def more_calls(rng: Generator, rows: int) -> Columns:
    """Ever more calls beside a gap of rounding that knows nothing of them."""
    calls = slowly_with_calls(rng, rows)["calls"]
    return healthy(rng, rows) | {"calls": calls, "gap": 0.012 * np.exp(rng.normal(0, 0.05, rows))}


ALIKE: dict[str, tuple[Kind, tuple[str, str]]] = {
    "at its top": (at_its_top, ("trl", "trl")),
    "training that catches up": (caught_up, ("trl", "verl")),
    "healthy": (healthy, ("trl", "verl")),
    "a gap that stands": (gap_that_stands, ("trl", "verl")),
    "a gap beside the KL": (gap_beside_kl, ("trl", "verl")),
    "environments that dip": (environments_that_dip, ("prime-rl", "prime-rl")),
    "fewer calls": (fewer_calls, ("trl", "trl")),
    "a lucky first row": (first_row_lucky, ("trl", "verl")),
    "a game of two": (game_of_two, ("seats", "seats")),
    "a cap that is not reached": (cap_not_reached, ("trl", "verl")),
    "advantages of mean 0": (mean_zero, ("verl", "nemo-rl")),
    "a schedule that ends with the log": (schedule_ends, ("trl", "verl")),
    "few discards": (few_discards, ("verl", "verl")),
    "fewer turns": (fewer_turns, ("verl", "prime-rl")),
    "a noisy evaluation": (noisy_evaluation, ("trl", "verl")),
    "a schedule in cycles": (schedule_in_cycles, ("trl", "verl")),
    "a long warm-up": (long_warm_up, ("trl", "nemo-rl")),
    "a smallest ratio near 0": (smallest_near_nothing, ("trl", "verl")),
    "a loss beside the KL": (loss_beside_kl, ("trl", "verl")),
    "overlong answers left out": (overlong_left_out, ("nemo-rl", "prime-rl")),
    "a hard start": (hard_start, ("trl", "verl")),
    "probabilities alike enough": (alike_enough, ("verl", "verl")),
    "the slowest of many": (slowest_of_many, ("verl", "prime-rl")),
    "failures graded apart": (failures_that_are_graded_apart, ("open-instruct", "open-instruct")),
    "a policy that explores": (exploring, ("trl", "verl")),
    "a noisy environment": (noisy_environment, ("prime-rl", "nemo-rl")),
    "more calls": (more_calls, ("trl", "verl")),
}
"""Healthy logs by name: the generator and the two trainers whose keys it has."""


def harder_set(rng: Generator, rows: int) -> Columns:
    """A held-out set that is too hard throughout."""
    level = rng.uniform(0.02, 0.08)
    return healthy(rng, rows) | {"held": _evaluated(rng, rows, level, 0.01)}


def hard_set_beside_a_leap(rng: Generator, rows: int) -> Columns:
    """What is trained on is learnt within a few rows, and what is held out stays at its floor."""
    columns, level = healthy(rng, rows), rng.uniform(0.005, 0.08)
    learnt = rng.uniform(0.3, 0.5) * _since(rng, rows, rng.uniform(1, 6))
    columns["reward"] = rng.uniform(0.1, 0.3) + learnt + rng.normal(0, 0.025, rows)
    prompts = int(rng.choice([64, 128, 500, 1000]))
    counts = rng.binomial(prompts, level, rows) / prompts
    return columns | {"held": _evaluated(rng, rows, counts, 0.0)}


def loophole(rng: Generator, rows: int) -> Columns:
    """A proxy that rises within a few rows, as what is held out falls."""
    columns, open_ = healthy(rng, rows), _since(rng, rows, rng.uniform(1, 6))
    held = columns["reward"] * (1 - rng.uniform(0.2, 0.6) * open_)
    rise = columns["reward"] + rng.uniform(0.2, 0.35) * open_
    return columns | {"reward": rise, "held": _evaluated(rng, rows, held, 0.01)}


def broken_in_a_cycle(rng: Generator, rows: int) -> Columns:
    """A verifier that fails for most answers, in a run whose rate comes down and starts anew."""
    columns, broken = schedule_in_cycles(rng, rows), _since(rng, rows, 0.01) > 0.5
    left = rng.choice([0.0, rng.uniform(0.1, 0.4)])
    return columns | {"reward": np.where(broken, left, 1.0) * columns["reward"]}


def raised_after_a_fall(rng: Generator, rows: int) -> Columns:
    """A policy that came apart, and a rate that was raised an eighth of the log later."""
    columns, late = rate_jumps(rng, rows), rows // 8
    return columns | {"rate": np.append(np.full(late, 1e-6), columns["rate"][:-late])}


DOUBTFUL: dict[str, tuple[Kind, tuple[str, str], str]] = {
    "a set that is too hard": (harder_set, ("trl", "verl"), "no such cause"),
    "such a set beside a leap": (hard_set_beside_a_leap, ("trl", "verl"), "no such cause"),
    "a loophole": (loophole, ("trl", "verl"), "reward hacking"),
    "a verifier that fails in a cycle": (broken_in_a_cycle, ("trl", "verl"), "verifier"),
    "a rate raised after a fall": (raised_after_a_fall, ("trl", "verl"), "the policy "),
}
"""Logs beside overfitting: nothing but what the words say is likely."""


UNNAMED: dict[str, tuple[Kind, tuple[str, str], str]] = {
    "a token of no chance": (token_of_no_chance, ("trl", "verl"), ""),
    "a KL that grows": (loss_beside_a_kl_that_grows, ("trl", "verl"), "policy gradient"),
}
"""Logs that look like a cause and are no sign of a problem: the words that none may have."""


def log_of(kind: Kind, trainer: str, seed: int) -> list[dict[str, float]]:
    """Return the rows of one log under the keys of a trainer."""
    rng = np.random.default_rng([20261124, seed])
    rows = int(rng.choice([120, 200, 300]))
    columns, keys = kind(rng, rows), KEYS[trainer]
    table = {
        keys[name]: np.broadcast_to(np.asarray(value, dtype=float), rows)
        for name, value in columns.items()
        if name in keys
    }
    step = {"trl": "step", "open-instruct": "training_step"}.get(trainer, "step")
    return [
        {
            step: row + 1,
            **{
                key: float(column[row])
                for key, column in table.items()
                if column[row] == column[row]
            },
        }
        for row in range(rows)
    ]
