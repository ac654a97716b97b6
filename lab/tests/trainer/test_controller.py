"""Components that are measured while a run trains against sums written out; the rule's bounds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError
from groupwise.estimators.components import components
from groupwise_lab.trainer.controller import (
    ControllerRule,
    RunningComponents,
    running_components,
)
from groupwise_lab.trainer.decision import VarianceEstimate, decide


def test_older_measurements_count_less() -> None:
    rng = np.random.default_rng(0)
    estimates = [
        components(
            rng.integers(2, size=8 * p),
            np.repeat(np.arange(p), 8),
            score_ND=rng.normal(size=(8 * p, 3)),
        )
        for p in (6, 9, 12)
    ]
    running = running_components(estimates[0])
    for new in estimates[1:]:
        running = running.faded(0.5) + running_components(new)
    weight = np.array([6 * 0.25, 9 * 0.5, 12.0])
    estimate = (
        sum(w * estimate.estimate_C[:3] for w, estimate in zip(weight, estimates, strict=True))
        / weight.sum()
    )
    covariance = (
        sum(
            w**2 * estimate.covariance_CC[:3, :3]
            for w, estimate in zip(weight, estimates, strict=True)
        )
        / weight.sum() ** 2
    )
    assert np.allclose(running.estimate.vtr, estimate, rtol=1e-12)
    assert np.allclose(running.estimate.covariance_CC, covariance, rtol=1e-12)
    assert running.estimate.prompts == pytest.approx(
        weight.sum() ** 2 / (6 * 0.25**2 + 9 * 0.5**2 + 12)
    )
    again = RunningComponents.from_dict(json.loads(json.dumps(running.as_dict())))
    assert (again.estimate.vtr == running.estimate.vtr).all()
    assert (again.estimate.covariance_CC == running.estimate.covariance_CC).all()
    last = running.faded(0.0) + running_components(estimates[2])
    assert np.array_equal(last.estimate.vtr, estimates[2].estimate_C[:3])


def test_sums_of_two_policies_by_hand() -> None:
    looks = RunningComponents(16.0, 16.0, np.array([16.0, 0.0, 144.0]), np.eye(3))
    both = looks.faded(0.5) + looks
    assert (both.weight, both.weight2) == (24.0, 20.0)
    assert both.estimate.vtr.tolist() == [1.0, 0.0, 9.0]
    assert both.estimate.covariance_CC.tolist() == (1.25 * np.eye(3) / 24**2).tolist()
    assert both.estimate.prompts == 28.8


def test_three_prompts_are_enough_for_a_covariance() -> None:
    rng = np.random.default_rng(2)
    estimate = components(
        rng.normal(size=12), np.repeat(np.arange(3), 4), score_ND=rng.normal(size=(12, 3))
    )
    running = running_components(estimate)
    assert running.estimate.prompts == 3
    assert np.allclose(running.estimate.covariance_CC, estimate.covariance_CC[:3, :3])


def test_a_rule_hands_its_bounds_its_threshold_and_its_level_on() -> None:
    running = RunningComponents(100.0, 200.0, np.array([200.0, 500.0, 6000.0]), 1e4 * np.eye(3))
    rule = ControllerRule(threshold=0.2, lowest=4, highest=32, level=0.9)
    expected = decide(
        VarianceEstimate(np.array([2.0, 5.0, 60.0]), np.eye(3), 50.0),
        32,
        512,
        lowest=4,
        highest=32,
        threshold=0.2,
        level=0.9,
    )
    assert rule.decide(running, 32, 512) == expected
    assert rule.sizes(128) == (4, 8, 16, 32)
    assert ControllerRule().sizes(12) == (2, 3, 4, 6, 12)


@each_case(
    ("call", "message"),
    [
        (lambda: ControllerRule(-0.1), "threshold of at least 0"),
        (lambda: ControllerRule(fading=2.0), "fading between 0 and 1"),
        (lambda: ControllerRule(level=1.0), "level between 0 and 1"),
        (lambda: ControllerRule(lowest=1), "bounds of at least 2"),
        (lambda: ControllerRule(lowest=8, highest=4), "bounds of at least 2"),
    ],
)
def test_what_cannot_be_is_refused(call: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        call()
