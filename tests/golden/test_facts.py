"""What each key and setting of each framework and version means: golden facts through the
readers' own path.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from tests.cases import each_case

from groupwise.readers.configs import number_in, settings_in
from groupwise.readers.keys import QUANTITIES, RULES, meanings_of
from groupwise.record.run import RunConfig

with Path(__file__).with_name("facts.tsv").open(newline="") as file:
    FACTS = list(csv.DictReader(file, delimiter="\t"))
KEYS = [fact for fact in FACTS if not fact["value"]]
SETTINGS = [fact for fact in FACTS if fact["value"]]


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
