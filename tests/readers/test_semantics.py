"""What a key means, by version; and ambiguous where the log cannot tell."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cases import each_case

from groupwise.readers.keys import as_shares, looks_like_trl, meanings_of, trl_versions, with_reward
from groupwise.record.run import Meaning, RunConfig

Columns = dict[str, NDArray[np.float64]]
HF = {"epoch", "learning_rate", "loss", "grad_norm"}
NEW = HF | {"reward", "reward_std", "completions/mean_length", "frac_reward_zero_std", "entropy"}


def columns(*keys: str, **given: list[float]) -> Columns:
    """Columns of five rows that move."""
    return {key: np.linspace(0.1, 0.5, 5) for key in keys} | {
        key: np.array(value) for key, value in given.items()
    }


def plain(data: Columns) -> dict[str, Meaning]:
    """The meanings of a log of an unknown framework."""
    return {
        item.column: item
        for item in meanings_of(data, RunConfig(), framework="", complete=False, window=1)
    }


def meaning(
    data: Columns, key: str, *, version: str | None = None, window: float = 1.0, **settings: object
) -> Meaning:
    """The meaning of one key of a TRL log."""
    config = RunConfig().with_settings({"framework_version": version, **settings}, "test")
    read = {
        item.column: item
        for item in meanings_of(data, config, framework="trl", complete=True, window=window)
    }
    return read[key]


@each_case(
    ("version", "quantity"),
    [
        ("0.14.0", "reward_std_within_group"),
        ("0.26.2", "reward_std_within_group"),
        ("0.27.0", "reward_std_batch"),
        ("1.16.0", "reward_std_batch"),
    ],
)
def test_reward_std_changed_its_meaning_in_0_27(version: str, quantity: str) -> None:
    reading = meaning(columns(*NEW, "step_time"), "reward_std", version=version)
    assert (reading.quantity, reading.ambiguous) == (quantity, False)
    assert version[:-2] in reading.definition


@each_case(
    ("keys", "complete", "words"),
    [
        ({"reward", "reward_std", "completion_length", "rewards/f"}, True, "TRL 0.14 to 0.16"),
        (NEW, True, "TRL 0.20 to 0.25"),
        (NEW | {"step_time"}, True, "TRL 0.26 or newer"),
        (NEW, False, "TRL 0.20 or newer"),
        (NEW - {"entropy"}, True, "TRL 0.18 to 0.19"),
        (NEW - HF, True, "TRL 0.20 or newer"),
        (NEW | {"step_time", "vespo/phi_seq_mean"}, True, "TRL 1.0 or newer"),
        ({"reward", "reward_std"}, True, "TRL of unknown version"),
        (NEW | {"step_time", "aux_loss"}, True, "TRL 1.7 or newer"),
        (NEW | {"sampling/importance_sampling_ratio/mean"}, False, "TRL 0.23 or newer"),
    ],
)
def test_the_keys_bound_the_version(keys: set[str], complete: bool, words: str) -> None:
    assert trl_versions(keys, None, complete=complete).words() == words


def test_ambiguous_where_nothing_tells() -> None:
    reading = meaning(columns(*NEW, "step_time", "rewards/f/std", "rewards/g/std"), "reward_std")
    assert (reading.quantity, reading.ambiguous) == ("reward_std_ambiguous", True)
    assert "upper bound" in reading.definition


def test_the_only_functions_spread_over_the_batch_tells() -> None:
    data = columns(*NEW, "step_time", "rewards/f/std")
    assert meaning(data, "reward_std").quantity == "reward_std_batch"
    data["reward_std"] = data["reward_std"] * np.array([0.7, 0.8, 0.6, 0.9, 0.5])
    assert meaning(data, "reward_std").quantity == "reward_std_within_group"


@each_case("weight", [0.05, 0.5, 2.0, -2.0])
def test_a_weight_is_no_sign_of_within_group(weight: float) -> None:
    data = columns(*NEW, "step_time", "rewards/f/std", "rewards/f/mean")
    data["reward"], data["reward_std"] = (
        weight * data["rewards/f/mean"],
        abs(weight) * data["rewards/f/std"],
    )
    reading = meaning(data, "reward_std")
    assert (reading.quantity, reading.ambiguous) == ("reward_std_batch", False)
    assert "times its weight" in reading.definition


def test_a_constant_ratio_that_is_not_the_weight_tells_nothing() -> None:
    data = columns(*NEW, "step_time", "rewards/f/std", "rewards/f/mean")
    data["reward"], data["reward_std"] = 2.0 * data["rewards/f/mean"], 0.7 * data["rewards/f/std"]
    assert meaning(data, "reward_std").ambiguous


@each_case(
    "key", ["sample/staleness_mean", "rollout/inflight", "perf/weight_sync_s", "weight_sync_time_s"]
)
@each_case("version", ["1.16.0", None])
def test_the_asynchronous_trainer_logs_the_spread_within_groups(
    key: str, version: str | None
) -> None:
    reading = meaning(
        columns(*(NEW - {"frac_reward_zero_std"}), "rewards/f", key), "reward_std", version=version
    )
    assert (reading.quantity, reading.ambiguous) == ("reward_std_within_group", False)
    assert "not by G - 1" in reading.definition
    assert trl_versions(NEW | {"rewards/f", key}, None, complete=True).low >= (1, 0)


def test_kl_is_true_of_unsloth() -> None:
    assert "Unsloth always" in meaning(columns("kl"), "kl").definition


@each_case(
    ("aggregation", "functions", "version", "quantity", "ambiguous", "unavailable"),
    [
        ("normalize_then_sum", 2, None, "dead_batch_share", False, True),
        ("normalize_then_sum", 1, "1.0.0", "dead_batch_share", False, True),
        ("sum_then_normalize", 2, None, "dead_group_share", False, False),
        (None, 2, "1.0.0", "dead_group_share", True, False),
        (None, 2, "0.26.2", "dead_group_share", False, False),
        (None, 1, "1.0.0", "dead_group_share", False, False),
    ],
)
def test_dead_groups_by_the_order_of_sum_and_norm(
    aggregation: str | None,
    functions: int,
    version: str | None,
    quantity: str,
    ambiguous: bool,
    unavailable: bool,
) -> None:
    data = columns(
        *(f"rewards/f{number}/{part}" for number in range(functions) for part in ("mean", "std")),
        frac_reward_zero_std=[0, 0, 0],
    )
    reading = meaning(
        data,
        "frac_reward_zero_std",
        version=version,
        scale_rewards="group",
        multi_objective_aggregation=aggregation,
    )
    assert (reading.quantity, reading.ambiguous, reading.unavailable) == (
        quantity,
        ambiguous,
        unavailable,
    )


def test_one_group_a_step_is_within_the_group() -> None:
    assert (
        meaning(columns(*NEW, "step_time"), "reward_std", prompts_per_step=1).quantity
        == "reward_std_within_group"
    )


@each_case(
    ("scaling", "values", "window", "quantity", "ambiguous", "unavailable"),
    [
        ("group", [0, 1, 0.5], 1, "dead_group_share", False, False),
        ("none", [0, 0, 0], 1, "dead_group_share", False, False),
        ("batch", [0, 0, 0], 1, "dead_batch_share", False, True),
        (None, [0, 0.25, 0], 1, "dead_group_share", False, False),
        (None, [0, 0, 1], 1, "dead_group_share", True, False),
        (None, [0.2, 0.4, 0], 5, "dead_group_share", True, False),
        (None, [0.55, 0.4, 0], 5, "dead_group_share", False, False),
    ],
)
def test_dead_groups(
    scaling: str | None,
    values: list[float],
    window: float,
    quantity: str,
    ambiguous: bool,
    unavailable: bool,
) -> None:
    data = columns(frac_reward_zero_std=values)
    reading = meaning(data, "frac_reward_zero_std", window=window, scale_rewards=scaling)
    assert (reading.quantity, reading.ambiguous, reading.unavailable) == (
        quantity,
        ambiguous,
        unavailable,
    )


def test_a_clip_ratio_of_nothing_but_zeros_is_unavailable() -> None:
    zeros, moving = np.zeros(4), np.array([0.0, 0.1, 0.0, 0.0])
    assert meaning({"clip_ratio/high_mean": zeros}, "clip_ratio/high_mean").unavailable
    assert not meaning({"clip_ratio/high_mean": moving}, "clip_ratio/high_mean").unavailable


def test_other_logs_are_judged_by_name() -> None:
    data = columns("mean_reward", "critic/score/mean", "lr", "zvf", "colour", "run - train/reward")
    assert {column: item.quantity for column, item in plain(data).items()} == {
        "mean_reward": "reward",
        "critic/score/mean": "reward",
        "lr": "learning_rate",
        "zvf": "dead_group_share",
        "run - train/reward": "reward",
    }


@each_case(
    ("framework", "quantities"),
    [
        (
            "slime",
            {
                "rollout/zero_std/all_zero_percentage": "all_wrong_share",
                "rollout/zero_std/all_one_percentage": "all_right_share",
                "rollout/fully_async/avg_staleness": "staleness",
                "rollout/fully_async/max_staleness": "staleness_max",
                "rollout/fully_async/stale_groups_filtered": "stale_groups",
                "rollout/fully_async/stale_groups_recycled": "stale_groups",
                "train/train_rollout_kl": "sampler_mismatch",  # no KL to the reference
                "train/kl_loss": "kl",
                "perf/step_time": "step_time",
            },
        ),
        (
            "verl",
            {
                "training/off_policy/evicted_samples": "stale_groups",  # it counts prompts
                "training/rollout_failure/evicted_samples": "dropped_samples",
                "async/staleness_mean": "staleness",
                "async/staleness_max": "staleness_max",
            },
        ),
        ("open-instruct", {"stale_results_dropped": "stale_groups"}),
        ("", {"rollout/fully_async/queue_size": ""}),
    ],
)
def test_what_asynchronous_trainers_log(framework: str, quantities: dict[str, str]) -> None:
    data = columns(*quantities)
    read = meanings_of(data, RunConfig(), framework=framework, complete=False, window=1)
    assert {item.column: item.quantity for item in read} == {
        key: quantity for key, quantity in quantities.items() if quantity
    }
    shares, _, notes = as_shares(data, read)
    assert not notes
    assert all(np.array_equal(shares[key], data[key]) for key in shares)


def test_a_score_is_of_its_source_where_there_are_several() -> None:
    key = "eval/gsm8k/accuracy/mean@4"
    assert plain(columns(key, "eval/aime_accuracy"))[key].quantity == "eval/reward/gsm8k"


def test_shares_are_shares() -> None:
    given: dict[str, list[float]] = {
        "truncated (%)": [1, 2],
        "truncation_rate": [12, 30],
        "pct_degenerate": [0.5, 0.25],
    }
    data = columns(**given)
    shares, meanings, notes = as_shares(data, tuple(plain(data).values()))
    assert (shares["truncated (%)"].tolist(), notes) == (
        [0.01, 0.02],
        ("truncated (%) is in per cent and was converted to a share",),
    )
    assert [item.column for item in meanings if item.unavailable] == ["truncation_rate"]
    assert shares["pct_degenerate"].tolist() == [0.5, 0.25]


@pytest.mark.parametrize(("every", "quantity"), [(4, "eval/reward"), (1, "task_score")])
def test_a_success_at_few_steps_is_an_evaluation(every: int, quantity: str) -> None:
    scores = [0.5 if step % every == 0 else np.nan for step in range(12)]
    data = columns(reward=list(range(12)), **{"pass@1": scores})
    read = {item.column: item for item in with_reward(data, tuple(plain(data).values()))}
    assert (read["pass@1"].quantity if "pass@1" in read else "") == quantity


def test_a_reward_that_was_never_written() -> None:
    assert plain(columns("p", reward_mean=[0, 0, 0, 0, 0]))["reward_mean"].unavailable
    assert not plain(columns("p", "reward_mean"))["reward_mean"].unavailable


def test_looks_like_trl() -> None:
    assert looks_like_trl(["reward", "reward_std", "completions / mean_length"])
    assert not looks_like_trl(["reward", "completions/mean_length"])


def test_the_metrics_page_is_up_to_date() -> None:
    """`python scripts/make_metrics.py` would change nothing."""
    import importlib.util
    from pathlib import Path

    root = Path(__file__).resolve().parent.parent.parent
    spec = importlib.util.spec_from_file_location(
        "make_metrics", root / "scripts" / "make_metrics.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (root / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert module.page(text) == text, "run scripts/make_metrics.py: docs/metrics.md is out of date"
    assert text.count("<!-- table ") == 5
