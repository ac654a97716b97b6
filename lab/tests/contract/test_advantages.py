"""What every entry of `ADVANTAGES` owes: shape, precision and kind kept, what it claims, a line in
the docs.

A new advantage is covered as soon as it is in the registry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise_lab.trainer.advantages import ADVANTAGES, Advantage, advantage_by_name
from groupwise_lab.trainer.baselines import DynamicBaseline, KernelBaseline, RunningBaseline

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "advantages.md").read_text(encoding="utf-8")
PROMPTS, SIZE = 5, 6
EACH = each_case("entry", ADVANTAGES)
EACH_APART = pytest.mark.parametrize("entry", ADVANTAGES, ids=lambda entry: entry.name)
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


def extra(entry: Advantage, *, flat: bool) -> dict[str, Any]:
    """Something for every argument without a default."""
    rng = np.random.default_rng(9)
    memory: DynamicBaseline = (
        KernelBaseline() if entry.name == "kernel_smoothed" else RunningBaseline()
    )
    memory.update(rng.uniform(size=(PROMPTS, SIZE)), list("edcba"), step=1)
    shape = (PROMPTS * SIZE,) if flat else (PROMPTS, SIZE)
    norm2 = rng.uniform(1, 9, (PROMPTS, SIZE)).reshape(shape)
    values = {"value": 0.5, "kappa": 0.1, "score_norm2": norm2, "baseline": memory, "step": 2}
    return {name: values[name] for name in entry.needs}


def call(entry: Advantage, reward: Any, *, flat: bool = False) -> Any:
    """The advantage of a rectangle, or of the same rollouts in long form."""
    prompt = labels() if flat else list("edcba")
    return entry.function(reward, prompt, **extra(entry, flat=flat))


@EACH
def test_every_advantage_says_what_it_is(entry: Advantage) -> None:
    assert advantage_by_name(entry.name) is entry
    assert entry.description.endswith(".")
    assert f"| `{entry.name}` |" in PAGE
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{entry.name}` |"))
    assert ("| yes |" in row) is entry.unbiased


@pytest.mark.thinned(30)
@EACH_APART
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_shape_and_precision_are_kept_and_nothing_is_changed(
    entry: Advantage, kind: str, dtype: Any
) -> None:
    reward = sample(kind).astype(dtype)
    before = reward.copy()
    advantage = call(entry, reward)
    assert advantage.shape == reward.shape
    assert advantage.dtype == dtype
    assert np.isfinite(advantage).all()
    assert not np.shares_memory(advantage, reward)
    np.testing.assert_array_equal(reward, before)


@EACH
def test_integers_become_floats(entry: Advantage) -> None:
    advantage = call(entry, sample("binary").astype(int))
    np.testing.assert_array_equal(advantage, call(entry, sample("binary")))
    assert advantage.dtype == np.float64


@EACH
@each_case("kind", KINDS)
def test_long_form_gives_the_same_in_any_order(entry: Advantage, kind: str) -> None:
    reward = sample(kind)
    rectangle = call(entry, reward)
    size = np.abs(rectangle).max()
    np.testing.assert_allclose(
        call(entry, reward.ravel(), flat=True), rectangle.ravel(), rtol=0, atol=1e-12 * size
    )
    order = np.random.default_rng(1).permutation(reward.size)
    arguments = {
        name: value[order] if isinstance(value, np.ndarray) else value
        for name, value in extra(entry, flat=True).items()
    }
    mixed = entry.function(reward.ravel()[order], labels()[order], **arguments)
    np.testing.assert_allclose(mixed, rectangle.ravel()[order], rtol=0, atol=1e-12 * size)


@pytest.mark.thinned(15)
@EACH_APART
@pytest.mark.parametrize("kind", KINDS)
def test_torch_gives_what_numpy_gives(entry: Advantage, kind: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 3e-6)):
        tensor = torch.tensor(sample(kind), dtype=dtype)
        for flat in (False, True):
            result = call(entry, tensor.reshape(-1) if flat else tensor, flat=flat)
            assert isinstance(result, torch.Tensor)
            assert result.dtype == dtype
            assert result.device == tensor.device
            expected = call(entry, tensor.numpy()).reshape(tuple(result.shape))
            np.testing.assert_allclose(
                result.numpy(),
                expected,
                rtol=0,
                atol=tolerance * max(np.abs(expected).max(), 1e-30),
            )


@EACH
@each_case("kind", ["binary", "continuous"])
def test_a_number_added_to_all_rewards_does_what_is_claimed(entry: Advantage, kind: str) -> None:
    reward = sample(kind)
    moved = np.abs(call(entry, reward + 0.75) - call(entry, reward)).max()
    assert moved < 1e-12 if entry.shift == "stays" else moved > 1e-3


@EACH
@each_case("kind", ["binary", "continuous"])
def test_a_factor_on_all_rewards_does_what_is_claimed(entry: Advantage, kind: str) -> None:
    reward = sample(kind)
    plain, scaled = call(entry, reward), call(entry, 7 * reward)
    apart = {"scales": np.abs(scaled - 7 * plain).max(), "stays": np.abs(scaled - plain).max()}
    if entry.scale == "moves":
        assert min(apart.values()) > 1e-3
    else:
        assert apart[entry.scale] < 1e-12


@EACH
@each_case("level", [0.1, 1 / 3, 1e12])
def test_a_group_of_equal_rewards_gets_exactly_nothing_where_claimed(
    entry: Advantage, level: float
) -> None:
    reward = sample("continuous")
    reward[2] = level
    assert bool((call(entry, reward)[2] == 0).all()) is entry.equal_is_zero


@EACH
def test_a_batch_of_equal_rewards_is_no_accident(entry: Advantage) -> None:
    advantage = call(entry, np.full((PROMPTS, SIZE), 0.3))
    assert np.isfinite(advantage).all()
    if not entry.needs and entry.name != "vanilla":
        assert np.abs(advantage).max() < 1e-15


@EACH
def test_too_small_a_group_is_refused_in_a_sentence(entry: Advantage) -> None:
    reward = np.array([0.2, 0.7, 0.4])
    arguments = {
        name: value[:3] if isinstance(value, np.ndarray) else value
        for name, value in extra(entry, flat=True).items()
    }
    if entry.smallest_group == 1:
        assert np.isfinite(entry.function(reward, ["e", "e", "d"], **arguments)).all()
        return
    with pytest.raises(InsufficientDataError, match="the group of prompt d has 1"):
        entry.function(reward, ["e", "e", "d"], **arguments)


@EACH
@each_case("bad", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_no_number_is_refused_in_a_sentence(entry: Advantage, bad: float) -> None:
    reward = sample("continuous")
    reward[3, 1] = bad
    with pytest.raises(
        InvalidArgumentError, match=r"expected finite numbers in reward, got .* at \[3, 1\]"
    ) as caught:
        call(entry, reward)
    assert "\n" not in str(caught.value)
