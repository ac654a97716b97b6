"""A second set of logs for the complaints of users, written from the issues alone.

Each complaint is one log in the format of the trainer that it names (TRL's state file, or the
line-by-line records of verl and of trainers built on it), with the words that an answer must
have. The rules of the diagnosis were not read for it.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Columns = dict[str, Column]
NAN = float("nan")


class Complaint(NamedTuple):
    """The columns of a log, its format, and the words of which one must be said."""

    columns: Columns
    trl: bool
    asked: str


class Draw:
    """Columns of one log: levels, ramps and noise of one generator."""

    def __init__(self, number: int, rows: int) -> None:
        self.random = np.random.default_rng([2026, number])
        self.rows = rows
        self.steps = np.arange(1.0, rows + 1)

    def level(self, value: float, noise: float = 0.05) -> Column:
        """A level with noise proportional to it."""
        return value * (1 + noise * self.random.standard_normal(self.rows))

    def ramp(self, first: float, last: float, start: float = 0.0, end: float = 1.0) -> Column:
        """A level, a straight move between two shares of the run, and a second level."""
        place = np.clip((self.steps / self.rows - start) / (end - start), 0, 1)
        return first + (last - first) * place

    def growth(self, first: float, last: float, noise: float = 0.05) -> Column:
        """A geometric move over the whole run, with noise."""
        return np.exp(self.ramp(np.log(first), np.log(last))) * self.level(1.0, noise)

    def rate(self, curve: Column, noise: float = 0.035) -> Column:
        """A share between 0 and 1 around a curve."""
        return np.clip(curve + noise * self.random.standard_normal(self.rows), 0, 1)

    def learnt(self, first: float, last: float, scale: float = 3.0, noise: float = 0.035) -> Column:
        """A share that rises and saturates."""
        return self.rate(last + (first - last) * np.exp(-scale * self.steps / self.rows), noise)

    def trl(self, reward: Column, **changed: Column) -> Columns:
        """The columns of TRL with those that the complaint changes."""
        return {
            "loss": 0.002 * self.random.standard_normal(self.rows),
            "grad_norm": self.level(0.32, 0.2),
            "learning_rate": self.ramp(1e-6, 1e-8),
            "num_tokens": np.cumsum(self.level(21000)),
            "completions/mean_length": self.level(212, 0.06),
            "completions/max_length": np.minimum(self.level(470, 0.08), 512),
            "completions/clipped_ratio": self.rate(np.full(self.rows, 0.02), 0.012),
            "rewards/accuracy_reward/mean": reward,
            "rewards/accuracy_reward/std": np.sqrt(np.maximum(reward * (1 - reward), 0)),
            "reward": reward,
            "reward_std": 0.7 * np.sqrt(np.maximum(reward * (1 - reward), 0)),
            "frac_reward_zero_std": self.rate(np.full(self.rows, 0.27), 0.08),
            "entropy": self.ramp(0.41, 0.24) * self.level(1.0),
            "step_time": self.level(14.0, 0.1),
        } | {name.replace("__", "/"): column for name, column in changed.items()}

    def verl(self, reward: Column, **changed: Column) -> Columns:
        """The columns of verl with those that the complaint changes."""
        ones = np.ones(self.rows)
        return {
            "critic/score/mean": reward,
            "critic/score/max": ones,
            "critic/score/min": 0 * ones,
            "critic/rewards/mean": reward,
            "critic/advantages/mean": 0.02 * self.random.standard_normal(self.rows),
            "critic/advantages/max": np.minimum(self.level(2.1, 0.1), 2.47),
            "critic/advantages/min": np.maximum(-self.level(2.0, 0.1), -2.47),
            "actor/entropy": self.ramp(0.36, 0.22) * self.level(1.0),
            "actor/pg_loss": 0.01 * self.random.standard_normal(self.rows),
            "actor/pg_clipfrac": np.abs(self.level(0.0012, 0.3)),
            "actor/ppo_kl": np.abs(self.level(0.0004, 0.5)),
            "actor/grad_norm": self.level(0.21, 0.2),
            "actor/lr": 1e-6 * ones,
            "response_length/mean": self.level(640, 0.05),
            "response_length/max": self.level(1720, 0.06),
            "response_length/clip_ratio": self.rate(0.015 * ones, 0.01),
            "timing_s/step": self.level(93, 0.08),
        } | {name.replace("__", "/"): column for name, column in changed.items()}


def _sampler() -> dict[str, Complaint]:
    """Complaints on a sampler that differs from the trainer."""
    draw = Draw(1, 140)
    gap = draw.growth(0.001, 0.036)
    pinned = draw.verl(
        draw.rate(np.full(140, 0.41)),
        rollout_corr__kl=gap,
        rollout_corr__rollout_is_eff_sample_size=np.clip(1 - 11 * gap, 0, 1),
        actor__kl_loss=gap * draw.level(1.05),
    )
    draw = Draw(2, 110)
    nucleus = draw.trl(draw.learnt(0.34, 0.55))
    nucleus |= {
        "sampling/sampling_logp_difference/mean": draw.level(0.112, 0.02),
        "sampling/sampling_logp_difference/max": draw.level(0.91, 0.1),
        "sampling/importance_sampling_ratio/mean": draw.level(0.896, 0.006),
        "sampling/importance_sampling_ratio/min": draw.level(0.4, 0.08),
        "sampling/importance_sampling_ratio/max": draw.level(1.21, 0.05),
    }
    draw = Draw(3, 120)
    summed = draw.trl(draw.learnt(0.22, 0.36))
    summed |= {
        "sampling/sampling_logp_difference/mean": draw.level(0.0058, 0.06),
        "sampling/sampling_logp_difference/max": draw.level(0.33, 0.15),
        "sampling/importance_sampling_ratio/mean": draw.level(0.569, 0.07),
        "sampling/importance_sampling_ratio/min": np.abs(draw.level(0.002, 0.4)),
        "sampling/importance_sampling_ratio/max": np.full(120, 3.0),
    }
    draw = Draw(4, 90)
    exploded = draw.trl(draw.rate(np.full(90, 0.3)), completions__mean_length=draw.level(101, 0.05))
    exploded |= {
        "sampling/sampling_logp_difference/mean": draw.level(0.012, 0.05),
        "sampling/sampling_logp_difference/max": draw.level(0.8, 0.15),
        "sampling/importance_sampling_ratio/mean": draw.level(3.3, 0.12),
        "sampling/importance_sampling_ratio/max": draw.level(28.0, 0.3),
    }
    draw = Draw(5, 100)
    capped = draw.trl(draw.learnt(0.3, 0.52))
    capped |= {
        "sampling/sampling_logp_difference/mean": draw.level(0.031, 0.05),
        "sampling/importance_sampling_ratio/mean": draw.level(0.97, 0.01),
        "sampling/importance_sampling_ratio/min": draw.level(0.35, 0.1),
        "sampling/importance_sampling_ratio/max": np.full(100, 1.2),
    }
    draw = Draw(20, 130)
    routed = draw.verl(
        draw.learnt(0.25, 0.42),
        training__rollout_actor_probs_pearson_corr=draw.level(0.61, 0.03),
        training__rollout_probs_diff_mean=draw.level(0.013, 0.1),
        training__rollout_probs_diff_max=draw.level(0.98, 0.01),
    )
    draw = Draw(28, 150)
    turns = draw.ramp(1.0, 5.5, 0.15, 0.8) + 0.1 * draw.random.random(150)
    retold = draw.verl(
        draw.learnt(0.2, 0.47),
        num_turns__mean=turns,
        rollout_corr__log_ppl_abs_diff=np.abs(0.0007 + 0.02 * (turns - 1.05)) * draw.level(1.0),
        rollout_corr__kl=np.abs(0.0004 + 0.011 * (turns - 1.05)) * draw.level(1.0),
    )
    draw = Draw(31, 160)
    rounded = draw.verl(
        draw.rate(draw.ramp(0.3, 0.52, 0, 0.7)),
        rollout_corr__kl=draw.growth(0.001, 0.9, 0.12),
        training__rollout_probs_diff_mean=draw.growth(0.004, 0.09, 0.08),
        actor__entropy=draw.growth(0.4, 0.05),
    )
    return {
        "01 verl#7495": Complaint(pinned, False, "never reach|first policy|adapter|not reach"),
        "02 trl#6789": Complaint(nucleus, True, "top.p|truncated (sampl|distr)|nucleus|renormalis"),
        "03 trl#5814": Complaint(summed, True, "sum"),
        "04 trl#4772": Complaint(exploded, True, "sum|length|precision|kernel"),
        "05 trl#5231": Complaint(capped, True, "after truncation|raw|clipped|capped|its cap"),
        "20 verl#5392": Complaint(routed, False, "rout|experts"),
        "28 trl#5224": Complaint(retold, False, "token|turn|history"),
        "31 Precision-RL#10": Complaint(rounded, False, "precision|kernel|numer|optimis|rate"),
    }


def _updates() -> dict[str, Complaint]:
    """Complaints on an update that is not what the settings say."""
    draw = Draw(6, 100)
    kernel = draw.trl(draw.learnt(0.31, 0.4), grad_norm=draw.level(58, 0.25))
    draw = Draw(7, 180)
    twice = draw.trl(
        draw.rate(draw.ramp(0.42, 0.428)),
        grad_norm=draw.level(0.32 / 16, 0.2),
        loss=np.abs(draw.level(0.0002, 0.4)),
        kl=np.abs(draw.ramp(0, 0.00008)),
    )
    draw = Draw(8, 150)
    drift = np.abs(draw.level(0.0011, 0.25))
    pulled = draw.trl(
        draw.rate(np.full(150, 0.37)),
        loss=0.04 * drift,
        kl=drift,
        grad_norm=0.9 * np.sqrt(drift) * 0.04,
        clip_ratio__region_mean=np.zeros(150),
    )
    draw = Draw(10, 60)
    alone = draw.trl(
        draw.rate(np.full(60, 0.55), 0.12),
        loss=np.full(60, NAN),
        grad_norm=np.full(60, NAN),
        reward_std=np.full(60, NAN),
        frac_reward_zero_std=np.full(60, NAN),
    )
    draw = Draw(11, 200)
    spikes = np.isin(draw.steps, (37.0, 91.0, 118.0, 166.0))
    tied = draw.verl(
        draw.learnt(0.4, 0.66),
        critic__advantages__min=np.where(spikes, -2075 * draw.level(1.0, 0.3), -draw.level(2.0)),
        actor__grad_norm=np.where(spikes, 40.0, draw.level(0.3, 0.2)),
    )
    draw = Draw(12, 160)
    dead = draw.trl(
        draw.learnt(0.62, 0.7, 2), frac_reward_zero_std=draw.rate(draw.ramp(0.55, 0.82), 0.05)
    )
    draw = Draw(13, 120)
    pairs = draw.trl(
        draw.rate(np.full(120, 0.18), 0.05),
        frac_reward_zero_std=draw.rate(np.full(120, 0.735), 0.02),
    )
    draw = Draw(14, 80)
    nothing = np.zeros(80)
    silent = draw.verl(nothing, critic__score__max=nothing, actor__grad_norm=nothing)
    silent |= {"critic/advantages/max": nothing, "critic/advantages/min": nothing}
    draw = Draw(26, 90)
    single = draw.verl(draw.rate(np.full(90, 0.24), 0.06), actor__grad_norm=np.zeros(90))
    single |= {f"critic/advantages/{kind}": np.zeros(90) for kind in ("mean", "max", "min")}
    draw = Draw(27, 140)
    merged = draw.verl(
        draw.rate(draw.ramp(0.21, 0.24)),
        response_length__mean=draw.level(7300, 0.03),
        response_length__max=np.full(140, 8192.0),
        response_length__clip_ratio=draw.rate(np.full(140, 0.58)),
        rollout__trajectory_tokens__mean=draw.level(31000, 0.06),
    )
    return {
        "06 Liger#1082": Complaint(kernel, True, "gradient norm|gradient's norm"),
        "07 ms-swift#10117": Complaint(twice, True, "divided|too small|next to 0|accumulation"),
        "08 mlx-lm-lora#55": Complaint(pulled, True, "only the KL|KL alone|gradient"),
        "10 DeepAnalyze#116": Complaint(alone, True, "of one|group|NaN or infinite|NaN"),
        "11 NeMo-RL#4158": Complaint(tied, False, "advantage"),
        "12 trl#6367": Complaint(dead, True, "same reward|zero variance|zero-variance|no signal"),
        "13 CoursIA#10603": Complaint(pairs, True, "same reward|zero-variance|group"),
        "14 UniRL#310": Complaint(silent, False, "reward is 0|never|no completion|verifier"),
        "26 ROLL#397": Complaint(single, False, "of one|advantage|gradient"),
        "27 rllm#575": Complaint(merged, False, "cut|truncat|limit"),
    }


def _environments() -> dict[str, Complaint]:
    """Complaints on environments, tools and machines."""
    draw = Draw(22, 130)
    timeouts = draw.rate(draw.ramp(0.03, 0.43, 0.45, 0.75), 0.02)
    walled = draw.verl(draw.rate(0.52 * (1 - timeouts)), batch__timeout=timeouts)
    walled |= {"batch/env_done": 1 - timeouts, "batch/error": np.zeros(130)}
    draw = Draw(23, 150)
    failed = draw.rate(draw.ramp(0.02, 0.3, 0.6, 0.66), 0.012)
    score = draw.rate(draw.ramp(0.36, 0.5, 0, 0.5) * (1 - 1.2 * failed))
    preempted = {
        "scores": score,
        "val/infra_failed_rate": failed,
        "val/sequence_lengths": draw.level(2900),
        "val/stop_rate": draw.rate(np.full(150, 0.97), 0.01),
        "objective/kl_avg": draw.ramp(0.001, 0.02),
        "policy/entropy_avg": draw.level(0.31),
        "optim/grad_norm": draw.level(0.17, 0.2),
        "lr": np.full(150, 1e-6),
        "unsolved_batch_size_ratio": draw.rate(np.full(150, 0.3), 0.05),
    }
    draw = Draw(24, 140)
    late = draw.rate(draw.ramp(0.04, 0.31, 0.5, 0.7), 0.015)
    masked = draw.verl(draw.rate(0.55 - 0.7 * late), env__timeout_rate=late)
    draw = Draw(25, 120)
    turns = draw.ramp(4.1, 1.0, 0.4, 0.62)
    untooled = draw.verl(draw.rate(draw.ramp(0.44, 0.18, 0.42, 0.65)))
    untooled |= {
        "training/reward": untooled["critic/score/mean"],
        "training/n_rollouts": np.full(120, 256.0),
        "training/n_rollouts_w_reward": np.full(120, 256.0),
        "training/n_triplets": np.round(256 * turns * draw.level(1.0, 0.02)),
        "training/n_truncated_triplets": np.zeros(120),
    }
    draw = Draw(30, 150)
    code = draw.rate(draw.ramp(0.58, 0.09, 0.6, 0.7))
    sums = draw.learnt(0.3, 0.86, 4)
    logic = draw.learnt(0.2, 0.78, 3)
    apart = {
        f"train/{name}/all/solver/reward/mean": column
        for name, column in {
            "agg": (code + 2 * sums + 2 * logic) / 5,
            "livecode": code,
            "gsm": sums,
            "logic": logic,
        }.items()
    }
    apart |= {
        "optim/lr": np.full(150, 1e-6),
        "optim/grad_norm": draw.level(0.12, 0.2),
        "entropy/all/mean": draw.level(0.34),
        "train/agg/all/solver/num_output_tokens/mean": draw.level(1800),
        "train/agg/all/solver/is_truncated/mean": draw.rate(np.full(150, 0.03), 0.01),
    }
    draw = Draw(29, 120)
    clawed = {
        "rollout/raw_reward": draw.rate(draw.ramp(0.44, 0.08, 0.35, 0.7)),
        "rollout/response_len/mean": draw.ramp(2400, 700, 0.35, 0.75) * draw.level(1.0),
        "rollout/truncated_ratio": draw.rate(draw.ramp(0.3, 0.88, 0.2, 0.7)),
        "train/train_rollout_logprob_abs_diff": draw.level(0.29, 0.15),
        "train/entropy_loss": draw.ramp(0.4, 1.7, 0.3, 0.7) * draw.level(1.0),
        "train/kl_loss": draw.ramp(0.01, 0.9, 0.3, 0.8) * draw.level(1.0),
        "train/grad_norm": draw.level(0.6, 0.2),
        "train/lr-pg_0": np.full(120, 1e-6),
    }
    draw = Draw(16, 140)
    discarded = draw.verl(draw.learnt(0.34, 0.5))
    discarded |= {
        "fully_async/count/dropped_stale_samples": np.round(draw.ramp(10, 190)),
        "fully_async/count/stale_samples_processed": np.round(draw.level(120, 0.1)),
        "response_length/mean": draw.ramp(2100, 900) * draw.level(1.0),
    }
    return {
        "16 tinker#822": Complaint(discarded, False, "discard|dropped|never trained|stale"),
        "22 rllm#710": Complaint(
            walled, False, "timeout|time out|clock|infrastructure|environment"
        ),
        "23 open-instruct#1887": Complaint(preempted, False, "infra"),
        "24 NeMo-RL#4029": Complaint(masked, False, "timeout|time out|infra"),
        "25 agent-lightning#489": Complaint(untooled, False, "turn|tool"),
        "29 OpenClaw-RL#116": Complaint(clawed, False, "entropy|rate|optimis|cut off|truncat|turn"),
        "30 prime-rl#1989": Complaint(apart, False, "livecode"),
    }


def _runs() -> dict[str, Complaint]:
    """Complaints on a policy that goes wrong or never starts."""
    draw = Draw(9, 130)
    broken = draw.steps >= 87
    poisoned = draw.trl(draw.learnt(0.28, 0.5))
    poisoned |= {
        name: np.where(broken, NAN, poisoned[name]) for name in ("loss", "grad_norm", "entropy")
    }
    poisoned["reward"] = np.where(broken, 0.0, poisoned["reward"])
    draw = Draw(15, 128)
    cut = draw.rate(draw.ramp(0.1, 0.98, 0.3, 0.7), 0.02)
    stale = draw.verl(
        draw.rate(0.63 * (1 - cut) / 0.9),
        response_length__clip_ratio=cut,
        response_length__mean=300 + 720 * cut,
        response_length__max=np.full(128, 1024.0),
        rollout_corr__rollout_is_eff_sample_size=np.clip(draw.level(0.993, 0.002), 0.989, 1),
    )
    draw = Draw(17, 170)
    resumed = (draw.steps > 100).astype(float)
    fading = resumed * np.exp(-np.maximum(draw.steps - 100, 0) / 25)
    again = draw.verl(
        draw.rate(draw.ramp(0.4, 0.66) - 0.2 * fading),
        training__rollout_probs_diff_mean=0.006 + 0.05 * fading + 0.0005 * draw.random.random(170),
        rollout_corr__kl=0.0008 + 0.03 * fading + 0.0001 * draw.random.random(170),
    )
    draw = Draw(18, 90)
    zero = np.zeros(90)
    mute = {
        "rollout/raw_reward": zero,
        "rollout/response_len/mean": draw.level(3100),
        "rollout/truncated_ratio": draw.rate(np.full(90, 0.16), 0.02),
        "eval/aime": np.where(draw.steps % 10 == 0, 0.0, NAN),
        "train/entropy_loss": draw.level(0.42),
        "train/grad_norm": zero,
        "train/pg_loss": zero,
    }
    draw = Draw(19, 150)
    narrow = draw.verl(
        draw.rate(draw.ramp(0.3, 0.44, 0, 0.25)), actor__entropy=draw.growth(0.6, 0.004)
    )
    draw = Draw(21, 60)
    wide = draw.verl(
        draw.rate(draw.ramp(0.5, 0.01, 0.36, 0.6)),
        actor__entropy=draw.ramp(0.35, 5.2, 0.3, 0.55) * draw.level(1.0),
        response_length__mean=draw.ramp(900, 3950, 0.28, 0.55) * draw.level(1.0, 0.02),
        response_length__max=np.full(60, 4096.0),
        response_length__clip_ratio=draw.rate(draw.ramp(0.02, 0.95, 0.3, 0.55), 0.02),
    )
    return {
        "09 Soup#342": Complaint(poisoned, True, "NaN|not finite|numeric"),
        "15 marin#8955": Complaint(stale, False, "length|cut off|truncat"),
        "17 slime#1695": Complaint(again, False, "resum|restart|state"),
        "18 slime#1527": Complaint(mute, False, "verifier|format|template|reward is 0|never"),
        "19 verl#5953": Complaint(narrow, False, "entropy|concentrat|narrow"),
        "21 rllm#368": Complaint(wide, False, "length|entropy"),
    }


def complaints() -> dict[str, Complaint]:
    """The thirty-one complaints by number and thread."""
    every = _sampler() | _updates() | _environments() | _runs()
    return dict(sorted(every.items()))


def write(folder: Path, name: str) -> Path:
    """The log of a complaint as its trainer writes it."""
    columns, trl, _ = complaints()[name]
    rows = len(next(iter(columns.values())))
    path = folder / ("trainer_state.json" if trl else "metrics.jsonl")
    history = [{key: float(column[row]) for key, column in columns.items()} for row in range(rows)]
    if trl:
        log = [values | {"step": row + 1} for row, values in enumerate(history)]
        path.write_text(json.dumps({"global_step": rows, "log_history": log}))
    else:
        lines = [{"step": row + 1, "data": values} for row, values in enumerate(history)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
