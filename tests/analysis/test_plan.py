"""`groupwise.plan`: the batch in words, what rewards say without components, and the plan from
those beside the run.
"""

from __future__ import annotations

import dataclasses
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from tests.cases import each_case
from tests.golden.sentences import says

import groupwise as gw
from groupwise.analysis.components import path_beside, save_components
from groupwise.analysis.plan import (
    NOT_LOGGED,
    StepBatch,
    group_size_evidence,
    logged_batch,
    size_named,
)
from groupwise.analysis.replay import PROXY
from groupwise.api.calls import plan, replay
from groupwise.diagnostics.judgement import Action, Judgement, State
from groupwise.errors import InsufficientDataError
from groupwise.estimators.best_group_size import Budget
from groupwise.estimators.components import components
from groupwise.estimators.zero_variance import zero_variance_of_groups
from groupwise.examples import trl_run
from groupwise.pages.screen import MOST_WORDS, words_in
from groupwise.pages.text import print_run_plan
from groupwise.record.run import Meaning, RunConfig, RunRecord
from groupwise.record.table import rollouts_table, steps_table
from groupwise.series.metric import LOG_COMPLETIONS
from groupwise.wording import number, ranged, sentence


def log(**settings: float | str) -> RunRecord:
    """A log of the share of zero-variance groups and a mean reward, 24 rows."""
    columns = {"reward": [0.25] * 24, "frac_reward_zero_std": [0.5, 0.25, 0.75] * 8}
    meanings = (
        Meaning("reward", "reward", "mean reward"),
        Meaning("frac_reward_zero_std", "dead_group_share", "share"),
    )
    return RunRecord(
        "made",
        steps_table(range(1, 25), columns),
        config=RunConfig().with_settings(settings, "test"),
        meanings=meanings,
    )


def test_the_batch_in_use_is_the_usual_one_of_the_completions() -> None:
    """Neither one large group nor one large step moves it, as both would a mean."""
    sizes = {1: [4, 4, 4], 2: [4, 4, 4], 3: [40] + [4] * 20}
    rows = [
        {"step": step, "prompt_id": prompt, "reward": float(place % 2)}
        for step, groups in sizes.items()
        for prompt, size in enumerate(groups)
        for place in range(size)
    ]
    made = RunRecord("made", steps_table([1, 2, 3], {"reward": [0.5] * 3}), rollouts_table(rows))
    assert logged_batch(made) == (4, 3)


@each_case(
    ("batch", "said"),
    [
        (
            StepBatch(64, 8, 2.0),
            "One step is 64 prompts x 8 rollouts = 512 completions in 2 updates.",
        ),
        (StepBatch(1, 2, 1.0), "One step is 1 prompt x 2 rollouts = 2 completions in 1 update."),
        (
            StepBatch(64, 8, 0.25),
            "One step is 64 prompts x 8 rollouts = 512 completions in 0.25 updates.",
        ),
        (
            StepBatch(None, 8, 2.0),
            "One step is 8 rollouts a prompt in 2 updates; give --set prompts_per_step=B.",
        ),
        (
            StepBatch(None, None, None),
            (
                "The log does not say how many completions a step has; give --set "
                "prompts_per_step=B --set group_size=G."
            ),
        ),
    ],
)
def test_the_batch_in_one_line(batch: StepBatch, said: str) -> None:
    assert batch.said == said


@each_case(
    ("rate", "budget", "said"),
    [
        (
            0.25,
            1001,
            "1,001 rollouts buy 250 groups of 4, the size to take without components, with 1 left over.",
        ),
        (0.25, 64, "64 rollouts buy 16 groups of 4, the size to take without components."),
        (
            0.02,
            66,
            "66 rollouts buy 16 groups of 4, the size to take without components, with 2 left over.",
        ),
        (
            0.02,
            3,
            "3 rollouts buy 0 groups of 4, the size to take without components, with 3 left over.",
        ),
    ],
)
def test_a_budget_without_components_is_told_in_whole_groups(
    rate: float, budget: float, said: str
) -> None:
    record = log(group_size=4, prompts_per_step=4)
    record = replace(record, steps=record.steps.with_columns(reward=pl.lit(rate)))
    answer = plan(record, budget=Budget(budget))
    assert answer.bought == f" {said}"
    assert answer.status.endswith(answer.bought)
    bare = plan(log(), budget=Budget(1001))  # of which no group is known
    assert bare.status == bare.missing + bare.bought
    assert "250 groups of 4, the size to take" in bare.bought


def test_rewards_tell_the_share_at_each_size_as_far_as_they_reach() -> None:
    columns = plan(log(group_size=4, prompts_per_step=4)).zero_variance
    assert columns is not None
    assert [row.group_size for row in columns.powers] == [8, 16, 32, 64]
    assert all(row.extrapolated for row in columns.powers)
    rollouts = plan(trl_run())
    assert rollouts.zero_variance is not None
    powers = rollouts.zero_variance.powers
    assert [(row.group_size, row.extrapolated) for row in powers] == [
        (size, size > 8) for size in (2, 4, 8, 16, 32, 64)
    ]
    shares = [row.share.value for row in powers]
    assert shares == sorted(shares, reverse=True)
    assert shares[2] == rollouts.zero_variance.now.value
    assert (
        "Of the latest groups of 8, 71 % (69 % to 73 %) are mixed, of 16 about 82 %"
        in rollouts.status
    )


def test_what_rewards_say_begins_with_the_answer_in_few_words() -> None:
    for answer in (plan(trl_run(), budget=64), plan(log(group_size=4, prompts_per_step=4))):
        assert answer.status.startswith("Rewards alone do not give the best group size. ")
        assert words_in([answer.status]) <= MOST_WORDS
        assert answer.zero_variance is not None
    barren = dataclasses.replace(
        answer,
        zero_variance=zero_variance_of_groups([0] * 8, [0] * 4 + [1] * 4),
    )
    assert "would be, and dynamic sampling finds no mixed group." in barren.status


def test_dynamic_sampling_costs_the_same_in_plan_and_in_replay() -> None:
    """Groups per mixed group in both; each says which steps its mean is of."""
    run = gw.open_run(trl_run())
    planned, replayed = run.plan(), run.replay()
    assert planned.dynamic_sampling is not None
    late = f"sampling needs {ranged(planned.dynamic_sampling)} groups per mixed group."
    assert late in planned.status
    assert "Of the latest groups" in planned.status
    assert replayed.replay is not None
    dynamic = replayed.replay.dynamic
    said = next(note for note in replayed.notes if "Dynamic" in note)
    mean = f"needs {number(dynamic.drawn.value)} groups per mixed group, the mean over all updates"
    assert mean in said
    assert f"{number(dynamic.batches)} where it draws whole batches" in said


def test_without_components_rewards_are_told() -> None:
    answer = plan(log(group_size=4, prompts_per_step=4, updates_per_step=2))
    assert answer.zero_variance is not None
    says("analysis/plan/5", answer.command, completions=LOG_COMPLETIONS)
    assert (answer.plan, answer.command) == (
        None,
        answer.command,
    )
    # Of the last 20 rows six are at 0.5, seven at 0.25 and seven at 0.75.
    says("analysis/plan/2", answer.status)
    assert answer.dynamic_sampling is not None
    assert answer.dynamic_sampling.value == pytest.approx(2)
    batch = "One step is 4 prompts x 4 rollouts = 16 completions in 2 updates."
    assert str(answer).endswith(f" {batch}\nFor a safe group size: {answer.command}")
    assert set(answer.as_dict()) == {
        "status",
        "batch",
        "zero_variance",
        "failure",
        "dynamic_sampling",
        "bought",
        "budget",
        "plan",
        "missing",
        "command",
        "unavailable",
    }
    assert (answer.bought, answer.budget) == ("", None)
    unknown = plan(log())
    assert (unknown.zero_variance, unknown.missing) == (None, unknown.status)
    # Of the last six rows two are at 0.5, two at 0.25 and two at 0.75.
    says("analysis/plan/1", unknown.status)
    bare = RunRecord(
        "made",
        steps_table([1, 2], {"reward": [0.5, 0.5]}),
        meanings=(Meaning("reward", "reward", "mean reward"),),
    )
    assert plan(bare).status == NOT_LOGGED


@each_case(
    ("loss", "size", "columns", "groups"),
    [
        ("gae", None, ("reward",), False),
        ("reinforce", None, ("reward",), False),
        ("gae", 8, ("reward",), True),
        ("gae", None, ("reward", "frac_reward_zero_std"), True),
        ("gae", 8, ("reward", "frac_reward_zero_std"), True),
        ("grpo", None, ("reward",), True),
        (None, None, ("reward",), True),
    ],
)
def test_a_run_whose_method_needs_no_groups_is_asked_for_no_size(
    loss: str | None, size: int | None, columns: tuple[str, ...], groups: bool
) -> None:
    """Unless its settings or its rows show groups all the same."""
    given = {"loss": loss, "group_size": size}
    record = log(**{name: value for name, value in given.items() if value is not None})
    meanings = tuple(meaning for meaning in record.meanings if meaning.column in columns)
    record = replace(
        record, steps=record.steps.drop({"frac_reward_zero_std"} - {*columns}), meanings=meanings
    )
    said, evidence = plan(record), group_size_evidence(record)
    logged = "frac_reward_zero_std" in columns
    assert bool(evidence.rewards) == bool(size and logged)
    if groups:
        assert (said.unavailable, evidence.missing) == ("", said.missing)
        assert ("--set group_size=G" in said.missing) == (logged and not size)
        return
    says("analysis/plan/6", said.unavailable, method=str(loss))
    assert str(said) == evidence.missing == sentence(said.unavailable)
    assert replay(record).unavailable == evidence.missing


def test_the_pages_name_one_group_size_without_components() -> None:
    root = Path(__file__).resolve().parents[2]
    page, faq = root / "docs" / "how-to" / "choose-the-group-size.md", root / "docs" / "faq.md"
    assert "**Take 4.**" in page.read_text(encoding="utf-8")
    assert "**Which group size?** 4; in 119" in faq.read_text(encoding="utf-8")


def test_the_plan_of_a_failed_run_names_the_failure_first() -> None:
    wave = 0.8 + 0.001 * (-1.0) ** np.arange(60)
    meanings = (Meaning("reward", "reward", "test"),)
    lost, kept = (
        RunRecord("made", steps_table(range(60), {"reward": values}), meanings=meanings)
        for values in (wave * (np.arange(60) < 40), wave)
    )
    assert str(plan(lost)).startswith("FAILED: Reward 0.80 → ")
    assert str(plan(kept)).startswith("Zero-variance groups are not logged.")


def test_components_beside_a_run_are_planned_from(tmp_path: Path) -> None:
    run = tmp_path / "run.csv"
    run.write_text("step,reward\n" + "".join(f"{step},{step / 40:.4f}\n" for step in range(1, 41)))
    rng = np.random.default_rng(1)
    score, prompt = rng.normal(size=(384, 6)), np.repeat(np.arange(48), 8)
    pull = (score * rng.normal(0.2, 0.8, size=(48, 6))[prompt]).sum(axis=1)
    reward = (rng.random(384) < 1 / (1 + np.exp(-pull))).astype(float)
    save_components(
        components(reward, prompt, score_ND=score), path_beside(run), provenance={}, force=True
    )
    answer = gw.plan(run, budget=Budget(512))
    assert answer.plan is not None
    assert (answer.plan.budget.amount, answer.command, answer.status) == (
        512,
        "",
        answer.plan.status,
    )
    with pytest.raises(InsufficientDataError, match="expected a group size of at least 2"):
        plan(run)


def test_the_only_size_that_rewards_name_is_that_of_the_judgement() -> None:
    """A flat reward at G = 4, half of its groups alike: the plan quotes what the diagnosis names,
    and a replay names none.
    """
    action = Action("group_size", 2.0, 8.0, (), "rollouts of a prompt × 2", "")
    judged = Judgement("made", State.WARNING, "nothing learnt", actions=(action,))
    says("analysis/plan/3", size_named(judged))
    fixed = dataclasses.replace(action, factor=None, words="rollouts of a prompt = 4")
    says("analysis/plan/4", size_named(dataclasses.replace(judged, actions=(fixed,))))
    assert size_named(dataclasses.replace(judged, actions=())) == ""
    record = log(group_size=4, prompts_per_step=4)
    console = Console(record=True, width=200, file=io.StringIO())
    print_run_plan(plan(record), judged, console)
    printed = console.export_text()
    assert size_named(judged) in printed
    assert "it recommends no size" in PROXY
