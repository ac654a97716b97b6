"""What each key and setting of each framework and version means: golden facts through the
readers' own path.

A fact's version is that of the trainer whose own program, or whose source, wrote the key. Where
none is at hand a word says what is: `main`, the source of its main branch; `log`, a public log that
states no version; `format`, a line of the table of keys alone.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from tests.cases import each_case

from groupwise.files import table_rows
from groupwise.integrations.generation import MEANINGS
from groupwise.readers.configs import number_in, settings_in
from groupwise.readers.keys import QUANTITIES, RULES, framework_of, meanings_of, version_of
from groupwise.record.run import RunConfig

with Path(__file__).with_name("facts.tsv").open(newline="") as file:
    FACTS = list(csv.DictReader(file, delimiter="\t"))
KEYS = [fact for fact in FACTS if not fact["value"]]
SETTINGS = [fact for fact in FACTS if fact["value"]]
with Path(__file__).with_name("names.tsv").open(newline="") as file:
    NAMES = list(csv.DictReader(file, delimiter="\t"))
# A key that shows whose log it is, for every way that a framework is known.
MARKS = {
    "roll": "val_correct/all token/response_length/mean actor_train/grad_norm",
    "verl": "critic/score/mean critic/rewards/mean critic_score_mean actor/pg_clipfrac val-core/a",
    "prime-rl": "train/agg/all/x train/agg/effective/x mismatch_kl/all/mean entropy/all/mean "
    "is_truncated/all/mean decode_len/all/mean solve_none/all solve_all/all "
    "batch/off_policy_level/mean batch/async_level batch/effective_batch_size",
    "slime": "rollout/raw_reward train/train_rollout_logprob_abs_diff",
    "nemo-rl": "baseline_reward/pct_0 train/baseline_reward/pct_1 token_mult_prob_error "
    "probs_ratio_clamped",
    "skyrl": "reward/avg_raw_reward policy/policy_entropy",
    "areal": "ppo_actor/x grpo_actor/x",
    "open-instruct": "all_zero_reward_groups_ratio val/stop_rate unsolved_batch_size_ratio "
    "objective/kl_avg objective/kl2_avg",
    "tinker": "env/all/reward/total env/all/by_group/frac_mixed progress/done_frac "
    "optim/kl_sample_train_v1",
    "openrlhf": "train/vllm_kl dynamic_filtering_pass_rate",
    "marin": "inference.rollout/x/avg_reward inference.eval/x/avg_reward "
    "trainer_sampler_prob_diff_mean",
    "forge": "reward/evaluate_response/x rl_trainer/x",
    "tunix": "global/train/rewards/x global/eval/rewards/x",
    "rlinf": "env/success_once",
    "art": "train/exception_rate train/reward_std_dev",
    "verifiers": "advantage/absmean train/tokens/masked_fraction",
}
WORDS = {"main", "log", "format"}
with (Path(__file__).parents[2] / "scripts" / "loops_results.tsv").open(newline="") as file:
    LOOPS = [(row["name"], row["version"]) for row in csv.DictReader(file, delimiter="\t")]
OURS = {"lag": "staleness"} | {
    name: name for name in ("reward_std_within_group", "dead_group_share")
}


def quantity_of(key: str, framework: str, version: str) -> tuple[str, str]:
    """Return the quantity and the unit of a key of a framework's log; empty for no meaning."""
    config = RunConfig().with_settings({"framework_version": version or None}, "test")
    data = {key: np.linspace(0.1, 0.4, 4)}
    meanings = meanings_of(data, config, framework=framework, complete=False, window=1.0)
    if not meanings:
        return "", ""
    assert "{}" not in meanings[0].definition
    base = meanings[0].quantity.removeprefix("eval/")
    part = base.removesuffix("_min").removesuffix("_max")
    names = (base, part, f"{part.partition('/')[0]}/<function>", part.partition("/")[0])
    unit = next((QUANTITIES[name][1] for name in names if name in QUANTITIES), "")
    return meanings[0].quantity, unit


@each_case("fact", KEYS)
def test_a_key_has_its_quantity_and_unit(fact: dict[str, str]) -> None:
    meaning = quantity_of(fact["key"], fact["framework"], fact["version"])
    assert meaning == (fact["name"], fact["unit"])


@each_case("fact", SETTINGS)
def test_a_setting_has_its_name_and_value(fact: dict[str, str]) -> None:
    mark = {"actor_rollout_ref/hybrid_engine": True} if fact["framework"] == "verl" else {}
    settings = settings_in({fact["key"]: number_in(fact["value"])} | mark)
    expected = RunConfig().with_settings({fact["name"]: fact["value"]}, "test")
    read = RunConfig().with_settings({fact["name"]: settings[fact["name"]]}, "test")
    assert read.value(fact["name"]) == expected.value(fact["name"])


def test_every_rule_has_a_fact() -> None:
    versions = {(fact["framework"], fact["rule"]) for fact in KEYS}
    assert {(rule.framework, rule.key) for rule in RULES if not rule.judged} <= versions


def test_every_framework_of_the_tables_has_facts_and_what_they_were_read_from() -> None:
    """Of six no package is to be had, and no source or log that states a version."""
    frameworks = {rule.framework for rule in RULES if rule.framework} | set(MARKS)
    origins = {(fact["framework"], fact["version"]) for fact in FACTS if fact["framework"]}
    assert frameworks <= {framework for framework, _ in origins}
    assert all(version in WORDS or version_of(version) for _, version in origins)
    versioned = {framework for framework, version in origins if version_of(version)}
    unversioned = {"forge", "marin", "open-instruct", "rlinf", "roll", "tunix"}
    assert frameworks - versioned == unversioned


def test_a_version_of_a_fact_is_one_that_was_run_or_read() -> None:
    """Those of TRL and verl lie about the changes of meaning that the table of keys has."""
    loops = {name.partition("-")[0] + version for name, version in LOOPS}
    versions = {
        fact["framework"].removeprefix("ms-").partition("-")[0] + fact["version"]
        for fact in FACTS
        if fact["framework"] not in ("", "trl", "verl") and version_of(fact["version"])
    }
    assert versions <= loops


def test_a_name_of_a_log_of_ones_own_has_its_quantity() -> None:
    """Every way to spell one that a pattern of `readers/patterns.tsv` allows is there once."""
    expected = {row["quantity"]: row["names"].split() for row in NAMES}
    read = {
        quantity: [
            name for name in names if quantity_of(name, "", "")[0].partition("/")[0] == quantity
        ]
        for quantity, names in expected.items()
    }
    assert read == expected


@each_case(("framework", "keys"), MARKS.items())
def test_each_of_its_own_keys_names_a_framework(framework: str, keys: str) -> None:
    assert {key: framework_of([key]) for key in keys.split()} == dict.fromkeys(
        keys.split(), framework
    )


def test_columns_of_a_record_have_their_quantities() -> None:
    assert {meaning.column: meaning.quantity for meaning in MEANINGS if meaning.quantity} == OURS


def test_an_action_names_the_settings_that_a_log_of_its_trainer_is_read_by() -> None:
    for row in table_rows("diagnostics/action_settings.tsv"):
        for trainer in ("trl", "verl", "openrlhf", "prime_rl") if row["log"] else ():
            for setting in row[trainer].split():
                name, _, value = setting.partition("=")
                assert value == "{}"
                if name != "rollout.batch_size":  # of which a log does not say prompts or rollouts
                    read = settings_in({name.replace(".", "/"): 7})
                    assert read[row["log"]] == 7, name
