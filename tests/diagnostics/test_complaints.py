"""The 25 complaints of users, each as a log of its symptoms and the answer that it should get.

What each log holds is what the issue shows, with numbers of our own; the names are the trainer's.
Two are answered by other commands: what a batch is by `plan`, and a collapse with one engine only
(UniRL 412) by `compare --by`, for which see tests/cli/test_cli_compare.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case

from groupwise.cli.app import main
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement, State, Status
from groupwise.readers import run_record
from groupwise.record.run import Meaning, RunConfig, RunRecord, steps_table

Float = np.ndarray
ROWS = 120
KEYS = {
    "reward": "reward",
    "reward_std": "reward_std_within_group",
    "frac_reward_zero_std": "dead_group_share",
    "completions/mean_length": "completion_length",
    "completions/clipped_ratio": "truncated_share",
    "entropy": "entropy",
    "grad_norm": "gradient_norm",
    "loss": "loss",
    "kl": "kl",
    "learning_rate": "learning_rate",
    "eval_reward": "eval/reward",
    "sampling/sampling_logp_difference/mean": "sampler_mismatch",
    "sampling/importance_sampling_ratio/max": "sampler_ratio/max",
    "rollout_corr/rollout_is_eff_sample_size": "effective_sample_size",
    "training/off_policy/trajectory_staleness/mean": "staleness",
    "critic/advantages/mean": "advantage",
    "tools/failure_frequency": "tool_failure_share",
    "off_policy/dropped": "stale_samples",
}
rng = np.random.default_rng(16)
FIRST = rng.bit_generator.state


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """No log depends on which others were made before it."""
    rng.bit_generator.state = FIRST


def noise(size: float, n: int = ROWS) -> Float:
    return size * rng.standard_normal(n)


def ramp(start: int, length: int, n: int = ROWS) -> Float:
    return np.clip((np.arange(n) - start) / length, 0.0, 1.0)


def learning(n: int = ROWS) -> dict[str, Float]:
    """A run that learns, as TRL logs it."""
    reward = 0.25 + 0.5 * (1 - np.exp(-np.arange(n) / 40)) + noise(0.03, n)
    return {
        "reward": reward,
        "reward_std": 0.35 + noise(0.02, n),
        "frac_reward_zero_std": np.clip(0.2 + noise(0.04, n), 0, 1),
        "completions/mean_length": 220 + noise(8, n),
        "completions/clipped_ratio": np.clip(0.02 + noise(0.01, n), 0, 1),
        "entropy": 0.6 * np.exp(-np.arange(n) / 200) + noise(0.01, n),
        "grad_norm": 0.4 * np.exp(noise(0.2, n)),
        "loss": noise(0.01, n),
        "learning_rate": np.full(n, 1e-6),
    }


def record(
    columns: Mapping[str, Float], rollouts: pl.DataFrame | None = None, **settings: object
) -> RunRecord:
    n = len(next(iter(columns.values())))
    meanings = tuple(Meaning(key, KEYS[key], "") for key in columns if key in KEYS)
    config = RunConfig().with_settings(
        {"group_size": 8, "prompts_per_step": 16, **settings}, "test"
    )
    return RunRecord(
        "complaint",
        steps_table(range(1, n + 1), columns),
        rollouts,
        config=config,
        meanings=meanings,
    )


def completions(
    text: Callable[[int, int], str],
    reward: Callable[[int, int], float],
    length: Callable[[int, int], float],
) -> pl.DataFrame:
    """Two prompts of eight completions at every second step."""
    rows = [
        {
            "step": step,
            "prompt_id": n // 8,
            "completion": text(step, n),
            "reward": reward(step, n),
            "length": length(step, n),
        }
        for step in range(2, ROWS + 1, 2)
        for n in range(16)
    ]
    return pl.DataFrame(rows, schema_overrides={"reward": pl.Float64, "length": pl.Float64})


def collapse(since: int = 70, **moved: Float) -> dict[str, Float]:
    """The reward goes to nothing."""
    columns = learning()
    columns["reward"] = columns["reward"] * (1 - ramp(since, 6)) + ramp(since, 6) * np.abs(
        noise(0.01)
    )
    return columns | moved


# --------------------------------------------------------------------------------------------------
# the logs


def c1_kl_huge(_: Path) -> RunRecord:
    gone = ramp(40, 20)
    return record(
        collapse(
            45, kl=0.02 + 50 * gone + np.abs(noise(0.005)), entropy=0.6 + 1.5 * gone + noise(0.02)
        )
    )


def c2_swings_and_repetition(_: Path) -> RunRecord:
    columns = learning()
    columns["reward"] = 0.5 + 0.3 * ramp(20, 60) * np.sin(np.arange(ROWS) / 3) + noise(0.02)

    def text(step: int, n: int) -> str:
        words = np.random.default_rng([step, n]).integers(0, 900, 80)
        return (
            "wait, let me think again. " * 60
            if step > 60 and n % 4
            else " ".join(f"w{word}" for word in words)
        )

    return record(
        columns,
        completions(text, lambda step, n: float((step + n) % 3 == 0), lambda step, n: 200.0 + n),
    )


def c3_all_groups_alike(_: Path) -> RunRecord:
    columns = learning() | {
        "reward": 0.5 + noise(0.01),
        "reward_std": np.zeros(ROWS),
        "frac_reward_zero_std": np.ones(ROWS),
    }
    return record(columns | {"loss": np.zeros(ROWS), "grad_norm": np.zeros(ROWS)})


def c4_loss_zero_on_policy(_: Path) -> RunRecord:
    return record(learning() | {"loss": np.zeros(ROWS)})


def c5_gradient_drifts(_: Path) -> RunRecord:
    return record(
        learning() | {"grad_norm": 0.5 * 300 ** (np.arange(ROWS) / ROWS) * np.exp(noise(0.2))}
    )


def c6_ratio_explodes(_: Path) -> RunRecord:
    grown = ramp(30, 60)
    columns = learning() | {"completions/mean_length": 220 + 1500 * grown + noise(20)}
    gap = 0.003 + 0.4 * grown + np.abs(noise(0.002))
    return record(
        columns
        | {
            "sampling/sampling_logp_difference/mean": gap,
            "sampling/importance_sampling_ratio/max": np.exp(20 * gap),
        }
    )


def c8_loss_and_gradient_zero(_: Path) -> RunRecord:
    columns = learning() | {
        "reward": 0.3 + noise(0.03),
        "loss": np.zeros(ROWS),
        "grad_norm": np.zeros(ROWS),
    }
    return record({key: value for key, value in columns.items() if key != "frac_reward_zero_std"})


def c9_gradient_zero_with_spread(_: Path) -> RunRecord:
    return record(learning() | {"reward": 0.3 + noise(0.03), "grad_norm": np.zeros(ROWS)})


def c10_advantages_not_a_number(_: Path) -> RunRecord:
    columns = learning() | {
        "critic/advantages/mean": np.where(np.arange(ROWS) < 50, noise(0.01), np.nan)
    }
    columns["reward"] = np.where(
        np.arange(ROWS) < 50,
        columns["reward"],
        columns["reward"][45:50].mean() - 0.2 * ramp(50, 10),
    ) + noise(0.02)
    return record(columns)


def c11_rate_zero(_: Path) -> RunRecord:
    gone = np.arange(ROWS) >= 0
    columns = learning() | {
        "learning_rate": np.zeros(ROWS),
        "reward": np.zeros(ROWS),
        "reward_std": np.zeros(ROWS),
    }
    return record(
        columns
        | {
            "frac_reward_zero_std": np.ones(ROWS),
            "grad_norm": np.where(gone, np.nan, 0.0),
            "loss": np.full(ROWS, np.nan),
        }
    )


def c12_not_a_number_then_exclamation_marks(_: Path) -> RunRecord:
    late = np.arange(ROWS) >= 60
    columns = learning()
    columns |= {
        key: np.where(late, np.nan, columns[key]) for key in ("grad_norm", "loss", "entropy")
    }
    columns["reward"] = np.where(np.arange(ROWS) >= 61, 0.0, columns["reward"])
    columns["completions/mean_length"] = np.where(
        np.arange(ROWS) >= 61, 1024.0, columns["completions/mean_length"]
    )
    columns["completions/clipped_ratio"] = np.where(
        np.arange(ROWS) >= 61, 1.0, columns["completions/clipped_ratio"]
    )
    return record(columns)


def c13_not_a_number_at_step_100(_: Path) -> RunRecord:
    columns = learning()
    columns["loss"] = np.where(np.arange(ROWS) >= 99, np.nan, columns["loss"])
    columns["grad_norm"] = np.where(np.arange(ROWS) >= 99, np.nan, columns["grad_norm"])
    columns["reward"] = np.where(np.arange(ROWS) >= 101, 0.0, columns["reward"])
    return record(columns)


def c14_entropy_rises_and_all_is_lost(_: Path) -> RunRecord:
    gone = ramp(60, 15)
    cut = np.clip(0.02 + 0.9 * gone + noise(0.01), 0, 1)
    return record(
        collapse(66, entropy=0.4 + 3 * gone + noise(0.02), **{"completions/clipped_ratio": cut})
    )


def c15_entropy_collapses(_: Path) -> RunRecord:
    spent = ramp(40, 25)
    columns = learning() | {
        "entropy": 0.5 * np.exp(-6 * spent) * np.exp(noise(0.05)),
        "moe/router_load_max": 1 + 6 * spent + noise(0.05),
    }
    columns["reward"] = np.where(np.arange(ROWS) < 45, columns["reward"], 0.45 + noise(0.02))
    return record(
        columns | {"frac_reward_zero_std": np.clip(0.2 + 0.75 * spent + noise(0.02), 0, 1)}
    )


def c16_length_hits_the_cap(_: Path) -> RunRecord:
    grown = ramp(50, 20)
    length, cut = (
        250 + 774 * grown + noise(3) * (1 - grown),
        np.clip(0.01 + 0.97 * grown + noise(0.005), 0, 1),
    )
    columns = collapse(58) | {"completions/mean_length": length, "completions/clipped_ratio": cut}
    return record(columns, max_completion_length=1024)


def c17_longer_and_invalid_actions(_: Path) -> RunRecord:
    grown = ramp(40, 40)
    columns = learning() | {
        "completions/mean_length": 220 + 700 * grown + noise(8),
        "tools/failure_frequency": 0.05 + 0.7 * grown,
    }
    columns["reward"] = columns["reward"] * (1 - 0.6 * grown)
    return record(columns)


def c18_gap_grows_at_rate_zero(_: Path) -> RunRecord:
    gap = 0.004 * 200 ** ramp(10, 100) * np.exp(noise(0.05))
    columns = learning() | {
        "learning_rate": np.zeros(ROWS),
        "sampling/sampling_logp_difference/mean": gap,
        "reward": 0.4 + noise(0.03),
    }
    columns["reward"] = columns["reward"] * (1 - ramp(105, 5))
    return record(columns)


def c19_jump_after_a_resume(folder: Path) -> RunRecord:
    rows = [
        {"step": step, "reward": 0.3 + 0.004 * step + noise(0.01, 1)[0], "kl": 0.01, "entropy": 0.5}
        for step in range(1, 81)
    ]
    again = [
        {
            "step": step,
            "reward": 0.22 + 0.003 * step + noise(0.01, 1)[0],
            "kl": 0.08,
            "entropy": 0.5,
        }
        for step in range(71, 121)
    ]
    path = folder / "log.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows + again) + "\n")
    return run_record(path)


def c21_collapse_when_asynchronous(_: Path) -> RunRecord:
    late = ramp(50, 20)
    ages, few = 1 + 7 * late + np.abs(noise(0.2)), np.clip(0.95 - 0.9 * late + noise(0.01), 0.01, 1)
    columns = {
        "rollout_corr/rollout_is_eff_sample_size": few,
        "training/off_policy/trajectory_staleness/mean": ages,
    }
    return record(collapse(65) | columns)


def c22_older_than_configured(_: Path) -> RunRecord:
    age = {"training/off_policy/trajectory_staleness/mean": 2 + np.abs(noise(0.3))}
    return record(learning() | age, lag_kind="none", refresh_interval=1)


def c23_discards_starve_slow_prompts(_: Path) -> RunRecord:
    dropped = {"off_policy/dropped": np.round(60 + 20 * ramp(20, 60) + np.abs(noise(4)))}
    return record(learning() | dropped)


def c24_two_to_a_group(_: Path) -> RunRecord:
    """Prompts that are nearly all easy or hard: of 16 pairs a row some 72 % are both right or
    both wrong.
    """
    chance = np.clip(rng.beta(0.64, 0.64, (ROWS, 16)) + 0.05 * ramp(0, ROWS)[:, None], 0, 1)
    right = rng.binomial(2, chance)
    columns = learning() | {
        "frac_reward_zero_std": (right != 1).mean(axis=1),
        "reward": right.mean(axis=1) / 2,
    }
    return record(columns | {"reward_std": (right == 1).mean(axis=1) * np.sqrt(0.5)}, group_size=2)


def c25_truncated_answers_are_paid(_: Path) -> RunRecord:
    columns = learning() | {"completions/clipped_ratio": np.clip(0.5 + noise(0.02), 0, 1)}

    def cut(_step: int, n: int) -> bool:
        return n % 2 == 0

    table = completions(
        lambda step, n: f"answer {step} {n}",
        lambda step, n: float(cut(step, n) and (step * 7 + n) % 8 > 0),
        lambda step, n: 512.0 if cut(step, n) else 100.0 + n,
    )
    return record(columns, table, max_completion_length=512)


# --------------------------------------------------------------------------------------------------
# the answers


@dataclass(frozen=True)
class Complaint:
    """A log and what its answer must hold."""

    where: str
    log: Callable[[Path], RunRecord]
    says: str  # of what is told
    states: tuple[State, ...] = (State.FAILED, State.WARNING)
    cause: str = ""  # of the names of the cause
    number: int = field(init=False)

    def __post_init__(self) -> None:
        """Take the number from the name of the log."""
        object.__setattr__(self, "number", int(re.findall(r"\d+", self.log.__name__)[0]))


FAILED, ANY = (State.FAILED,), tuple(State)
COMPLAINTS = (
    Complaint("open-r1 257", c1_kl_huge, r"\bKL\b", FAILED),
    Complaint("open-r1 403", c2_swings_and_repetition, r"repeat"),
    Complaint("TRL 3857", c3_all_groups_alike, r"all equal|zero.variance"),
    Complaint("TRL 3452", c4_loss_zero_on_policy, r"loss.*(normal|on-policy)", (State.OK,)),
    Complaint("TRL 2980", c5_gradient_drifts, r"gradient norm.*(grew|drift|from)"),
    Complaint("TRL 4772", c6_ratio_explodes, r"sampler|mismatch"),
    Complaint(
        "ms-swift 4570", c8_loss_and_gradient_zero, r"gradient.*(exactly 0| is 0|nothing)", FAILED
    ),
    Complaint("ms-swift 5890", c9_gradient_zero_with_spread, r"advantage|mask", FAILED),
    Complaint(
        "ms-swift 8123",
        c10_advantages_not_a_number,
        r"critic/advantages/mean.*51|advantage.*finite",
    ),
    Complaint("ms-swift 3136", c11_rate_zero, r"learning rate is 0|NaN or infinite|never"),
    Complaint(
        "verl 721",
        c12_not_a_number_then_exclamation_marks,
        r"grad_norm|loss",
        FAILED,
        cause="numerical failure",
    ),
    Complaint(
        "OpenRLHF 1120", c13_not_a_number_at_step_100, r"100", FAILED, cause="numerical failure"
    ),
    Complaint(
        "verl 2738",
        c14_entropy_rises_and_all_is_lost,
        r"truncat",
        FAILED,
        cause="length|came apart|instability",
    ),
    Complaint("verl 5953", c15_entropy_collapses, r"entropy", cause="entropy|concentration"),
    Complaint("verl 2736", c16_length_hits_the_cap, r"length", FAILED, cause="length"),
    Complaint("verl-agent 188", c17_longer_and_invalid_actions, r"tool", cause="length|tool"),
    Complaint(
        "open-instruct 1473", c18_gap_grows_at_rate_zero, r"sampler|mismatch", cause="sampler"
    ),
    Complaint("slime 1695", c19_jump_after_a_resume, r"restart|resum", ANY),
    Complaint(
        "prime-rl 964",
        c21_collapse_when_asynchronous,
        r"effective sample size[\s\S]*updates old",
        FAILED,
    ),
    Complaint(
        "verl 6780", c22_older_than_configured, r"configured|settings", (State.OK, State.WARNING)
    ),
    Complaint(
        "tinker-cookbook 822",
        c23_discards_starve_slow_prompts,
        r"discard|dropped",
        (State.OK, State.WARNING),
    ),
    Complaint(
        "CoursIA 10603",
        c24_two_to_a_group,
        r"too small",
        (State.OK, State.WARNING),
        cause="group is too small",
    ),
    Complaint("marin 8936", c25_truncated_answers_are_paid, r"truncated.*(paid|earn|reward)|paid"),
)


def sentences_of(judgement: Judgement) -> str:
    """What a reader is told: headline, cause, signs, what to do, and the checks that found
    something; not what is missing in the log.
    """
    signs = ([judgement.first_sign] if judgement.first_sign else []) + list(judgement.then)
    said = [
        judgement.headline,
        judgement.do,
        *judgement.cause.names,
        *judgement.cause.log,
        *(f"{sign.signal} {sign.words}" for sign in signs),
    ]
    return "\n".join(
        said
        + [
            finding.message
            for finding in judgement.checks
            if finding.status not in (Status.NONE, Status.NOT_LOGGED)
        ]
    )


@each_case("complaint", COMPLAINTS)
def test_a_complaint_gets_its_answer(complaint: Complaint, tmp_path: Path) -> None:
    judgement = judge(complaint.log(tmp_path))
    said = sentences_of(judgement)
    assert re.search(complaint.says, said, re.IGNORECASE), said
    assert judgement.state in complaint.states, said
    if complaint.cause:
        assert re.search(complaint.cause, " ".join(judgement.cause.names), re.IGNORECASE), (
            judgement.cause,
            said,
        )


def test_what_a_batch_is_in_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TRL 3020: completions by device, accumulation, processes and generations, told as prompts,
    rollouts and updates of a step.
    """
    rows = [
        {"step": step, "reward": 0.3 + 0.01 * step, "frac_reward_zero_std": 0.25}
        for step in range(1, 41)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    settings = {
        "num_generations": 8,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "world_size": 2,
    }
    (tmp_path / "config.json").write_text(
        json.dumps(settings | {"steps_per_generation": 8, "num_iterations": 1})
    )
    assert (
        main(["plan", str(tmp_path / "log.jsonl"), "--config", str(tmp_path / "config.json")]) == 0
    )
    printed = " ".join(capsys.readouterr().out.split())
    assert "One step is 4 prompts x 8 rollouts = 32 completions." in printed


def test_a_run_that_learns_gets_none_of_these_answers() -> None:
    said = sentences_of(judge(record(learning())))
    assert [
        complaint.number
        for complaint in COMPLAINTS
        if re.search(complaint.says, said, re.IGNORECASE)
    ] == []


def test_the_complaints_are_all_here() -> None:
    """Of the 25 all but what a batch is and the engine that collapses."""
    assert [complaint.number for complaint in COMPLAINTS] == [
        number for number in range(1, 26) if number not in (7, 20)
    ]
