"""Actions: what each is for a trainer, and whether its settings exist there."""

from __future__ import annotations

import argparse
import ast
import csv
import dataclasses
import importlib.util
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says
from tests.sources import tree

from groupwise.diagnostics import causes, judgement
from groupwise.diagnostics.causes import ADVICE, CAUSES, advised
from groupwise.diagnostics.judge import CHECKS, judge
from groupwise.diagnostics.judgement import Action, Fact, action_of
from groupwise.files import table_rows
from groupwise.pages.html import _settings_to_copy
from groupwise.pages.screen import actions_said
from groupwise.record.run import Meaning, RunConfig, RunRecord
from groupwise.record.table import steps_table

ROOM = Path(judgement.__file__).parent
KEYS = [row["key"] for row in table_rows(ROOM / "actions.tsv")]
SETTINGS = list(table_rows(ROOM / "action_settings.tsv"))


def config(**settings: Any) -> RunConfig:
    return RunConfig().with_settings(settings, "a test")


def actions_of(key: str, settings: RunConfig, step: int | None) -> list[Action]:
    """The actions of a cause, or those of a fact or a check."""
    row = CAUSES.get(key)
    line, entries = (row.do, row.actions) if row else ADVICE.get(key, ("", []))
    return [action_of(*clause, settings) for clause in advised(line, entries, step=step).clauses]


@each_case(
    ("key", "given", "step", "expected"),
    [
        (
            "instability",
            {"framework": "trl", "learning_rate": 1e-6},
            130,
            [
                ("restart", None, 130, ("model_name_or_path=checkpoint-130",), ""),
                ("rate", 1 / 3, 1e-6 / 3, ("learning_rate=3.33e-07",), ""),
                ("clip", None, None, (), ""),
                ("updates", None, 1, ("num_iterations=1", "steps_per_generation"), ""),
            ],
        ),
        (
            "far",
            {"framework": "verl", "learning_rate": 1e-6},
            None,
            [
                ("rate", 1 / 3, 1e-6 / 3, ("actor_rollout_ref.actor.optim.lr=3.33e-07",), ""),
                (
                    "reference",
                    None,
                    0.001,
                    (
                        "actor_rollout_ref.actor.use_kl_loss=True",
                        "actor_rollout_ref.actor.kl_loss_coef=0.001",
                    ),
                    "",
                ),
            ],
        ),
        (
            "truncation",
            {"framework": "openrlhf", "max_completion_length": 1500},
            None,
            [("limit", 4, 6000, ("rollout.max_new_tokens=6000",), "")],
        ),
        (
            "rate_too_large",
            {"framework": "prime-rl"},
            7,
            [
                ("anew", None, None, (), ""),
                ("rate", 0.1, None, ("trainer.optim.lr",), "learning_rate"),
                ("warm_up", None, 20, ("trainer.scheduler.warmup_steps=20",), ""),
            ],
        ),
        ("drift", {}, None, [("rate", 1 / 3, None, (), "framework")]),
        ("few_prompts", {"framework": "a trainer"}, None, [("group_size", None, 4, (), "")]),
        ("no cause of this name", {"framework": "trl"}, 3, []),
    ],
)
def test_an_action_is_told_in_the_users_own_settings(
    key: str, given: dict[str, Any], step: int | None, expected: list[tuple[Any, ...]]
) -> None:
    taken = actions_of(key, config(**given), step)
    assert [
        (action.kind, pytest.approx(action.factor), action.value, action.settings, action.missing)
        for action in taken
    ] == [(kind, factor, pytest.approx(value), *rest) for kind, factor, value, *rest in expected]


def test_every_kind_has_words_and_every_other_key_is_of_a_fact_or_a_check() -> None:
    assert len({row["kind"] for row in SETTINGS}) == len(SETTINGS)
    assert {*KEYS} <= {fact.name for fact in Fact} | {*CHECKS}
    for key in (*KEYS, *causes.CAUSES):  # and each entry can be read
        assert actions_of(key, config(framework="verl"), 5), key


# Kinds that no trainer has a setting for, and those of which a trainer lacks one.
NO_SETTING = {"clip", "environment", "filter", "look", "loss", "precision", "stop", "stop_token"}
LACKS = {
    "trl": {"anew", "baseline", "reward", "routing", "tokens", "verifier"},
    "verl": {"mask"},
    "openrlhf": {"anew", "clip_high", "mask", "restart", "synchronise", "tokens", "turns"}
    | {"warm_up"},
    "prime-rl": {
        *("anew", "baseline", "clip_high", "deviation", "mask", "reward", "routing"),
        *("restart", "synchronise", "ratio", "tokens", "turns", "updates", "verifier", "weights"),
    },
}


@each_case(("step", "kind"), [(None, "rate"), (0, "anew"), (7, "restart")])
def test_before_the_first_checkpoint_a_run_is_started_anew(step: int | None, kind: str) -> None:
    actions = actions_of("far", config(framework="trl"), step)
    assert actions[0].kind == kind
    assert ("restart" in [action.kind for action in actions]) is (kind == "restart")


@each_case("framework", LACKS)
def test_every_cause_has_actions_in_the_settings_that_a_trainer_has(framework: str) -> None:
    without = {
        action.kind
        for key in causes.CAUSES
        for action in actions_of(key, config(framework=framework), 7)
        if not action.settings
    }
    assert without - NO_SETTING == LACKS[framework]


def test_a_judgement_carries_its_actions() -> None:
    rng = np.random.default_rng(9)
    columns = {
        "reward": np.r_[0.8 + 0.02 * rng.standard_normal(60), 0.004 * rng.random(3)],
        "length": np.r_[200 + 5 * rng.standard_normal(58), np.geomspace(300, 2000, 5)],
    }
    record = RunRecord(
        "run",
        steps_table(range(1, 64), columns),
        config=config(framework="trl", learning_rate=1e-6),
        meanings=(
            Meaning("reward", "reward", "a test"),
            Meaning("length", "completion_length", "a test"),
        ),
    )
    judgement = judge(record, ended=False)
    says("diagnostics/actions/1", judgement.do)
    settings = ("model_name_or_path=checkpoint-58",), ("mask_truncated_completions=True",)
    assert [action.settings for action in judgement.actions] == [
        *settings,
        ("learning_rate=3.33e-07",),
    ]
    assert [action["kind"] for action in judgement.as_dict()["actions"]] == [
        "restart",
        "mask",
        "rate",
    ]
    says("diagnostics/actions/2", list(actions_said(judgement))[2])
    button = _settings_to_copy(judgement).source
    assert 'type="button"' in button
    assert "learning_rate=3.33e-07" in button.partition('data-copy="')[2].partition('"')[0]
    hostile = replace(judgement, actions=(replace(judgement.actions[0], settings=('"><img>',)),))
    assert "<img>" not in _settings_to_copy(hostile).source
    assert _settings_to_copy(replace(judgement, actions=())).source == ""
    untold = judge(replace(record, config=RunConfig()), ended=False)
    says("diagnostics/actions/3", list(actions_said(untold))[2])


def _named(framework: str) -> list[str]:
    """The names of settings that the table has for a trainer."""
    return [entry.partition("=")[0] for row in SETTINGS for entry in row[framework].split()]


@each_case("framework", ["trl", "verl", "openrlhf", "prime_rl"])
def test_settings_are_named_as_a_trainer_was_seen_to_name_them(framework: str) -> None:
    """`tests/golden/actions.tsv` has the names that the tests below held to the installed package;
    few machines have every trainer.
    """
    table = Path(__file__).parents[1] / "golden" / "actions.tsv"
    with table.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        names = {row["framework"]: row["names"].split() for row in rows}
    assert sorted(set(_named(framework))) == names[framework]


def _fields(module: str, *classes: str) -> set[str]:
    """The fields of configuration classes; the test is skipped where they are not installed."""
    trainer = importlib.import_module(module) if importlib.util.find_spec(module) else None
    if trainer is None:
        pytest.skip(f"{module} is not installed")
    return {field.name for name in classes for field in dataclasses.fields(getattr(trainer, name))}


def test_settings_of_transformers_exist_in_it() -> None:
    """Read in its source: to load the class takes seconds."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        pytest.skip("transformers is not installed")
    made = next(
        node
        for node in tree(Path(spec.origin).with_name("training_args.py")).body
        if isinstance(node, ast.ClassDef) and node.name == "TrainingArguments"
    )
    fields = {ast.unparse(row.target) for row in made.body if isinstance(row, ast.AnnAssign)}
    inherited = {"learning_rate", "warmup_steps", "resume_from_checkpoint", "max_grad_norm"}
    assert inherited <= fields
    assert inherited <= {*_named("trl")}


def test_settings_of_trl_exist_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")  # a warning is an error here
    fields = _fields("trl", "GRPOConfig", "ModelConfig")
    fields |= _fields("trl.experimental.async_grpo", "AsyncGRPOConfig")
    assert {*_named("trl")} <= fields


def test_settings_of_verl_exist_in_it() -> None:
    pytest.importorskip("verl")
    omegaconf = pytest.importorskip("omegaconf")

    folder = Path(str(importlib.import_module("verl").__file__)).parent / "trainer" / "config"
    tree = omegaconf.OmegaConf.load(folder / "_generated_ppo_trainer.yaml")
    missing = object()
    for name in _named("verl"):
        assert omegaconf.OmegaConf.select(tree, name, default=missing) is not missing, name


def test_settings_of_openrlhf_exist_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openrlhf")
    made: list[str] = []
    add = argparse.ArgumentParser.add_argument

    def record(parser: argparse.ArgumentParser, *names: str, **rest: Any) -> Any:
        made.extend(names)
        return add(parser, *names, **rest)

    monkeypatch.setattr(argparse.ArgumentParser, "add_argument", record)
    monkeypatch.setattr("sys.argv", ["train", "--help"])
    with pytest.raises(SystemExit):
        runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")
    assert {f"--{name}" for name in _named("openrlhf")} <= {*made}


def test_settings_of_prime_rl_exist_in_it() -> None:
    module = pytest.importorskip("prime_rl.configs.rl")
    for name in _named("prime_rl"):
        model = module.RLConfig
        for part in name.split("."):
            fields = model.model_fields
            assert part in fields, name
            model = fields[part].annotation
            model = next(
                (part for part in getattr(model, "__args__", ()) if part is not type(None)), model
            )


@pytest.mark.parametrize(("updates", "kinds"), [(4, 3), (1, 2), (None, 3)])
def test_a_rate_is_a_part_of_that_at_the_checkpoint_and_no_action_is_what_the_run_does(
    updates: int | None, kinds: int
) -> None:
    """A third of the schedule's highest rate would be more than a rate that has decayed to less;
    while it warms up the highest one is still to come.
    """
    row, rng = np.arange(120), np.random.default_rng(4)
    reward = np.where(row < 100, 0.8, 0.02) + 0.01 * rng.standard_normal(120)
    entropy = np.where(row < 100, 0.5, 1.5) + 0.01 * rng.standard_normal(120)
    rate = 1e-5 * np.minimum(row + 1, 20) / 20 * np.exp(-0.03 * np.maximum(row - 20, 0))
    columns = {"reward": reward, "entropy": entropy, "learning_rate": rate}
    record = RunRecord(
        "test",
        steps_table(row + 1, columns | {"completion_length": np.full(120, 90.0)}),
        config=config(framework="verl", learning_rate=1e-5, refresh_interval=updates),
        meanings=tuple(Meaning(name, name, "test") for name in (*columns, "completion_length")),
    )
    judgement = judge(record)
    assert judgement.cause.names == ("training became unstable (instability)",)
    restart, slower, *more = judgement.actions
    assert restart.value == 100
    assert slower.value == pytest.approx(rate[99:].max() / 3)
    assert 2 + len(more) == kinds
    assert ("fewer updates" in judgement.do) is (kinds == 3)
    early = dataclasses.replace(record, steps=record.steps.with_columns(learning_rate=rate[::-1]))
    assert judge(early).actions[1].value == pytest.approx(rate[:21].max() / 3)
