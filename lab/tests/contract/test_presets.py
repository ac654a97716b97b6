"""What every entry of `PRESETS` owes: its definition, precision and kind kept, a line in the docs.

A new preset is covered as soon as it is in the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import GroupwiseError, InsufficientDataError, InvalidArgumentError
from groupwise_lab.trainer.presets import PRESETS, AdvantageSpec, preset
from groupwise_lab.trainer.several_rewards import several_advantages

TRAINERS = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "trainers.md").read_text(
    encoding="utf-8"
)
PROMPTS, SIZE = 5, 6
EACH_SPEC = each_case("spec", PRESETS)
EACH_SPEC_APART = pytest.mark.parametrize(
    "spec", PRESETS, ids=lambda spec: f"{spec.framework}-{spec.estimator}-{spec.since or 'read'}"
)
KINDS = {
    "binary": lambda rng, shape: rng.integers(0, 2, shape).astype(float),
    "continuous": lambda rng, shape: rng.uniform(0, 3, shape),
    "heavy": lambda rng, shape: np.abs(rng.standard_cauchy(shape)),
}


def sample(kind: str, seed: int = 0) -> np.ndarray:
    return np.asarray(KINDS[kind](np.random.default_rng(seed), (PROMPTS, SIZE)))


def labels() -> np.ndarray:
    """Labels of the rectangle's rollouts, laid out row after row."""
    return np.repeat(np.array(list("edcba")), SIZE)


def mask() -> np.ndarray:
    length = np.random.default_rng(2).integers(1, 9, PROMPTS * SIZE)
    return (np.arange(8) < length[:, None]).astype(int)


def plain(spec: AdvantageSpec, reward: np.ndarray) -> np.ndarray:
    """The definition of a spec in float64 and a few lines of its own: rectangle, nothing
    missing.
    """
    tokens = mask().sum(1).reshape(reward.shape)
    mean = reward.mean(1, keepdims=True)
    others = (reward.sum(1, keepdims=True) - reward) / (SIZE - 1)
    base = {
        "none": 0 * mean,
        "group_mean": mean,
        "leave_one_out": others,
        "length_weighted_mean": (tokens * reward).sum(1, keepdims=True)
        / tokens.sum(1, keepdims=True),
    }
    if spec.baseline == "second_best":
        ranked = np.sort(reward, 1)
        above = np.where(reward == ranked[:, -1:], ranked[:, -1:] - ranked[:, -2:-1], 0)
    else:
        above = reward - base[spec.baseline]
    square_of_others = np.array(
        [[np.delete(row, i).var(ddof=1) for i in range(SIZE)] for row in reward]
    )
    scaled = reward if spec.scale_of == "reward" else above
    variance = {
        "group_std": scaled.var(1, ddof=spec.ddof, keepdims=True),
        "batch_std": scaled.var(ddof=spec.ddof),
        "leave_one_out_std": square_of_others,
        "group_mean": mean**2,
    }
    if spec.scale != "none":
        above = above / (
            np.sqrt(np.maximum(variance[spec.scale], spec.variance_floor)) + spec.epsilon
        )
    if spec.factor == "batch_over_nonzero":
        above = above * reward.size / np.count_nonzero(reward)
    if spec.whitening is None:
        return np.asarray(above)
    weight = tokens if spec.whitening.weights == "token" else np.ones_like(tokens)
    centre = np.average(above, weights=weight)
    spread = float((weight * (above - centre) ** 2).sum() / (weight.sum() - spec.whitening.ddof))
    return np.asarray(
        (above - centre)
        / (np.sqrt(spread) + (spec.whitening.epsilon if spec.whitening.place == "outside" else 0))
    )


@pytest.mark.thinned(43)
@EACH_SPEC_APART
@pytest.mark.parametrize("kind", ["continuous", "heavy"])
def test_every_preset_computes_its_definition(spec: AdvantageSpec, kind: str) -> None:
    reward = sample(kind)
    reward[0, :2] = 0  # a reward of 0 counts in gpg's factor
    arguments = {"mask_NL": mask()} if spec.needs_mask else {}
    advantage = spec.advantages(reward, **arguments)
    expected = plain(spec, reward)
    # "inside" and "floor" put 1e-8 into a variance of order 1, and the standard deviation without
    # one's own comes from squares.
    tolerance = 1e-6 if spec.whitening or spec.scale == "leave_one_out_std" else 1e-12
    np.testing.assert_allclose(advantage, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    np.testing.assert_allclose(
        spec.advantages(reward.ravel(), labels(), **arguments),
        expected.ravel(),
        rtol=0,
        atol=tolerance * np.abs(expected).max(),
    )


@EACH_SPEC
def test_every_preset_keeps_the_precision_and_takes_tensors(spec: AdvantageSpec) -> None:
    reward = sample("continuous").astype(np.float32)
    arguments = {"mask_NL": mask()} if spec.needs_mask else {}
    advantage = spec.advantages(reward, **arguments)
    assert advantage.dtype == np.float32
    assert advantage.shape == reward.shape
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensor = spec.advantages(torch.tensor(reward), **arguments)
    assert tensor.dtype == torch.float32
    tolerance = 1e-4 if spec.scale == "leave_one_out_std" else 5e-6
    np.testing.assert_allclose(
        tensor.numpy(), advantage, rtol=0, atol=tolerance * np.abs(advantage).max()
    )


@EACH_SPEC
def test_every_preset_does_with_odd_groups_what_it_says(spec: AdvantageSpec) -> None:
    arguments = {"mask_NL": np.ones((3, 2))} if spec.needs_mask else {}
    reward, prompt = np.array([0.25, 0.75, 0.5]), ["a", "a", "b"]
    if spec.singleton == "refused":
        with pytest.raises(InsufficientDataError, match="the group of prompt b has 1"):
            spec.advantages(reward, prompt, **arguments)
    else:
        alone = spec.advantages(reward, prompt, **arguments)[2]
        if spec.whitening is None:
            assert alone == (0 if spec.singleton == "zero" else pytest.approx(0.5, rel=1e-5))
    equal = spec.advantages(
        np.full((2, 3), 0.5), **({"mask_NL": np.ones((6, 2))} if spec.needs_mask else {})
    )
    np.testing.assert_array_equal(equal, 0)


@EACH_SPEC
def test_every_preset_does_with_a_missing_reward_what_it_says(spec: AdvantageSpec) -> None:
    reward = sample("continuous")
    reward[1, 2] = np.nan
    arguments = {"mask_NL": mask()} if spec.needs_mask else {}
    if spec.missing == "refused":
        with pytest.raises(GroupwiseError, match=r"got nan at \[1, 2\]"):
            spec.advantages(reward, **arguments)
        return
    advantage = spec.advantages(reward, **arguments)
    assert np.isfinite(advantage).all()
    assert advantage[1, 2] == 0 or spec.missing == "counts_as_zero"
    filled = np.nan_to_num(reward)
    if spec.missing == "counts_as_zero":
        np.testing.assert_array_equal(advantage, spec.advantages(filled, **arguments))
    elif spec.whitening is None and spec.scale != "batch_std":
        rest = np.delete(reward[1], 2)
        np.testing.assert_allclose(
            np.delete(advantage[1], 2), spec.advantages(rest[None])[0], rtol=1e-12
        )


@EACH_SPEC
def test_every_preset_is_found_by_name_and_version_and_is_in_the_docs(spec: AdvantageSpec) -> None:
    assert (
        preset(spec.framework.upper(), estimator=spec.estimator, version=spec.since or "0") is spec
    )
    assert not spec.until or preset(spec.framework, estimator=spec.estimator) is not spec
    row = [
        line
        for line in TRAINERS.splitlines()
        if line.startswith(f"| {spec.framework} | `{spec.estimator}` |")
    ]
    assert row, "no row in docs/reference/trainers.md"
    assert any(spec.since in line and spec.until in line and spec.evidence in line for line in row)


# One group of [0.9, 0.1, 0.1, 0.1] with its advantages as the sources have them: mean .3, std .4
# with G - 1 and .34641 with G.
BEST = {
    ("trl", "grpo"): 0.6 / 0.4001,
    ("trl", "grpo_none"): 0.6,
    ("trl", "async_grpo"): 0.6 / (0.12**0.5 + 1e-8),
    ("trl", "rloo"): 0.8,
    ("verl", "grpo"): 0.6 / 0.400001,
    ("verl", "grpo_vectorized"): 0.6 / 0.400001,
    ("verl", "grpo_none"): 0.6,
    ("verl", "rloo"): 0.8,
    ("verl", "grpo_passk"): 0.8 / 0.400001,
    ("openrlhf", "group_norm"): 0.6 / (0.4 + 1e-9),
    ("openrlhf", "rloo"): 0.8,
    ("prime-rl", "grpo"): 0.6,
    ("prime-rl", "max_rl"): 2.0,
    ("slime", "grpo"): 0.6 / 0.400001,
    ("ms-swift", "grpo"): 0.6 / 0.4001,
    ("simple_grpo", "grpo"): 0.6 / 0.4001,
    ("skyrl", "grpo"): 0.6 / 0.400001,
    ("art", "grpo"): 0.6 / (0.12**0.5 + 1e-6),
}


@each_case("key", BEST)
def test_the_constants_are_those_of_the_trainers(key: tuple[str, str]) -> None:
    advantage = preset(key[0], estimator=key[1]).advantages([[0.9, 0.1, 0.1, 0.1]])
    assert advantage[0, 0] == pytest.approx(BEST[key], rel=1e-12)


def test_several_rewards_are_added_or_standardised_first() -> None:
    parts = np.stack([sample("binary"), sample("continuous")])
    trl = preset("trl")
    np.testing.assert_allclose(
        several_advantages(trl, parts, [1.0, 0.5]),
        trl.advantages(parts[0] + 0.5 * parts[1]),
        rtol=1e-12,
    )
    decoupled = several_advantages(preset("trl", estimator="gdpo"), parts, [1.0, 0.5])
    standard = [
        (part - part.mean(1, keepdims=True)) / (part.std(1, ddof=1, keepdims=True) + 1e-4)
        for part in parts
    ]
    total = standard[0] + 0.5 * standard[1]
    np.testing.assert_allclose(
        decoupled, (total - total.mean()) / (total.std(ddof=1) + 1e-4), rtol=1e-12, atol=1e-12
    )
    flat = several_advantages(
        preset("trl", estimator="gdpo"), parts.reshape(2, -1), [1.0, 0.5], labels()
    )
    np.testing.assert_allclose(flat, decoupled.ravel(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"framework": "rllib"}, "no presets for 'rllib'"),
        ({"framework": "trl", "estimator": "ppo"}, "choose one of grpo, grpo_batch"),
        ({"framework": "trl", "version": "0.9.0"}, "trl 0.9.0 was not looked at"),
    ],
    ids=["framework", "estimator", "version"],
)
def test_an_unknown_preset_is_refused_with_what_there_is(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        preset(**arguments)


def test_a_version_between_two_looked_at_takes_the_one_before() -> None:
    assert preset("trl", version="1.5.9").missing == "counts_as_zero"
    assert preset("trl", version="1.16.0.dev0").missing == "zero"
    older = preset("verl", estimator="grpo_vectorized", version="0.7.0")
    assert [older.covers(version) for version in ("0.6.0", "0.6.1", "0.7.9", "0.8.0", "0.8.1")] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert preset("verl").covers("99.0")


def test_a_mask_that_is_missing_or_does_not_fit_is_refused() -> None:
    spec = preset("verl", estimator="opo")
    with pytest.raises(InvalidArgumentError, match="give mask_NL"):
        spec.advantages(sample("binary"))
    for wrong in (np.ones((3, 4)), np.zeros((PROMPTS * SIZE, 4))):
        with pytest.raises(InvalidArgumentError, match="a token in each"):
            spec.advantages(sample("binary"), mask_NL=wrong)
