"""Settings of a training run from a mapping, as a settings file gives them: every one is read,
and none is guessed.
"""

from __future__ import annotations

import dataclasses
import json

import pytest
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError
from groupwise_lab.trainer.controller import ControllerRule
from groupwise_lab.trainer.settings import AdaptiveSettings, TrainSettings


def test_settings_come_back_from_what_they_show() -> None:
    adaptive = AdaptiveSettings("act", every=5, rule=ControllerRule(0.1, lowest=4, highest=32))
    settings = TrainSettings(
        group_size=16,
        learning_rate=1e-3,
        kl_weight=0.1,
        kl_in="reward",
        clip=None,
        adaptive=adaptive,
    )
    shown = json.loads(json.dumps(settings.as_dict()))
    assert shown["adaptive"]["rule"]["highest"] == 32
    assert set(shown) == {field.name for field in dataclasses.fields(TrainSettings)}
    assert TrainSettings.from_mapping(shown) == settings


def test_what_is_left_out_has_its_default_and_a_number_may_be_text() -> None:
    assert TrainSettings.from_mapping({}) == TrainSettings()
    assert (
        TrainSettings.from_mapping({"learning_rate": "5e-3", "adaptive": None}).learning_rate
        == 5e-3
    )
    assert TrainSettings.from_mapping({"adaptive": {"every": 7}}).adaptive == AdaptiveSettings(
        every=7
    )


@each_case(
    ("given", "said"),
    [
        (
            {"learning_rat": 1e-3},
            "expected a training setting, got 'learning_rat': write learning_rate",
        ),
        ({"xyzzy": 1}, "use one of group_size, rollouts_per_step, steps"),
        ({"adaptive": {"evry": 3}}, "got 'evry': write every"),
        ({"adaptive": {"rule": {"lowst": 2}}}, "got 'lowst': write lowest"),
        ({"adaptive": {"rule": {"lowest": "two"}}}, "expected numbers in the rule"),
        (
            {"adaptive": True},
            (
                "expected a table with a value for every setting of the adaptive group size; got "
                "'True'"
            ),
        ),
        ({"learning_rate": "fast"}, "expected learning_rate to be a number above 0; got fast"),
        ({"steps": 1.5}, "expected steps to be a whole number of at least 1; got 1.5"),
        ({"advantage": 3}, "expected the name of an advantage; got '3'"),
        ([], "expected a table"),
    ],
)
def test_what_is_no_setting_is_refused_with_the_nearest_one(
    given: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        TrainSettings.from_mapping(given)
    assert said in str(refused.value)
