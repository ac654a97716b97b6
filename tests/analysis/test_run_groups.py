"""Runs sorted into groups: where a setting is found, what groups are called, which pairs there
are, what groups differ in.
"""

from __future__ import annotations

import pytest
from tests.golden.sentences import says

from groupwise.analysis.compare import (
    RunGroup,
    differing_settings,
    grouped_by,
    setting_of,
    typed_groups,
)
from groupwise.errors import InvalidArgumentError
from groupwise.record.run import RunConfig, RunRecord, steps_table


def named(name: str, **settings: object) -> RunRecord:
    return RunRecord(name, steps_table([1], {}), config=RunConfig().with_settings(settings, "test"))


def test_a_setting_is_found_in_config_then_in_the_name() -> None:
    assert setting_of(named("x_seed7", seed=3), "seed") == "3"
    assert setting_of(named("x_seed7"), "seed") == "7"
    assert setting_of(named("lr=1e-5,b"), "lr") == "1e-05"
    assert setting_of(named("loss-dapo"), "loss") == "dapo"
    assert setting_of(named("xrho0.5"), "rho") is None
    assert [g.name for g in grouped_by([named("k10"), named("k9")], "k")] == ["k 9", "k 10"]
    key = "epochs_per_rollout_batch"
    long = grouped_by([named(f"{key}=16"), named(f"{key}=2")], key)
    assert [g.name for g in long] == ["epochs_per_rollout_b… 2", "epochs_per_rollout_b… 16"]


def test_a_setting_is_found_in_a_column_that_holds_one_value() -> None:
    columns = {"Clip Range": [0.2, 0.2, None], "epoch": [1.0, 2.0, 3.0], "reward": [0.1, 0.2, 0.3]}
    record = RunRecord(
        "x_epoch7",
        steps_table([1, 2, 3], columns),
        labels={"Engine Name": "vllm", "status": "done"},
    )
    assert setting_of(record, "clip_range") == "0.2"
    assert setting_of(record, "engine_name") == "vllm"
    assert setting_of(record, "epoch") == "7"
    assert setting_of(record, "nothing") is None


def test_groups_of_texts_stand_in_the_order_of_the_numbers_at_their_ends() -> None:
    records = [
        RunRecord(name, steps_table([1], {}), labels={"label": name})
        for name in ("lr=1e-5", "lr=2e-4", "lr=3e-6", "base")
    ]
    assert [g.name for g in grouped_by(records, "label")] == [
        "base",
        "lr=3e-6",
        "lr=1e-5",
        "lr=2e-4",
    ]
    assert [g.name for g in grouped_by(records, "label", baseline="lr=1e-5")][:2] == [
        "lr=1e-5",
        "base",
    ]


def test_groups_are_named_after_what_their_runs_share() -> None:
    assert [
        g.name
        for g in typed_groups(
            [[named("fast_seed1"), named("fast_seed2")], [named("slow_1"), named("slow_2")]]
        )
    ] == [
        "fast",
        "slow",
    ]
    assert [g.name for g in typed_groups([[named("a"), named("b")], [named("c"), named("d")]])] == [
        "group 1",
        "group 2",
    ]
    assert [g.name for g in typed_groups([[named("run")], [named("run")]])] == [
        "run (1)",
        "run (2)",
    ]
    long = [[named(f"rho0.30_{'x' * 30}_seed{s}.log")] for s in (1, 2)] + [
        [named("rho0.30.step_stats.json")]
    ]
    assert [g.name for g in typed_groups(long)] == [
        "rho0.30_xxx…xxxxx_seed1",
        "rho0.30_xxx…xxxxx_seed2",
        "rho0.30",
    ]


def test_other_differences_are_named() -> None:
    groups = [
        RunGroup("a", (named("a", group_size=8, seed=1),)),
        RunGroup("b", (named("b", group_size=16, seed=2),)),
    ]
    differing, notes = differing_settings(groups)
    assert differing == ("group_size",)
    (note,) = notes
    says("analysis/run_groups/1", note)
    assert differing_settings(groups, besides=["group_size"]) == ((), [])


def test_settings_that_not_every_group_states_are_named_and_not_said_to_differ() -> None:
    bare, full = named("a", group_size=8), named("b", group_size=8, loss="dapo", seed=2)
    differing, notes = differing_settings([RunGroup("a", (bare,)), RunGroup("b", (full,))])
    assert (differing, notes) == ((), ["Not every group states loss: these may differ too."])
    alike = [RunGroup("a", (bare, full)), RunGroup("b", (full,))]
    assert differing_settings(alike) == ((), [])  # a run of each group states it


def test_no_run_that_can_be_read_is_a_sentence() -> None:
    with pytest.raises(
        InvalidArgumentError,
        match="expected runs that differ in lr to group by it, got none: group by another",
    ):
        grouped_by([], "lr")
