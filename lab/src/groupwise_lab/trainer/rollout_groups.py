"""Rewards of a batch as blocks of equally large groups, from arrays or tensors in either form.

A formula is written once, for a block of float64 whose rows are groups, and runs without a loop
over prompts; what comes back has the shape, kind, precision and device of the rewards. Nothing here
imports torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float, groups_of
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.plain import frozen

Array = Any
"""A NumPy array or a torch tensor."""


@frozen
class RolloutGroups:
    """The rewards of a batch and the groups they belong to."""

    reward_N: Float
    # for each group size one matrix of positions in the rewards, a row a group
    rows: tuple[NDArray[np.intp], ...]
    label_N: NDArray[Any]  # the prompt of every rollout
    source: Array  # the rewards in the user's shape, kind and precision

    @property
    def shape(self) -> tuple[int, ...]:
        """The user's shape."""
        return tuple(self.source.shape)

    def like_source(self, value_N: Float) -> Array:
        """Return values of the rollouts in the shape, kind and precision of the rewards."""
        value = value_N.reshape(self.shape)
        if is_tensor(self.source):
            return sys.modules["torch"].as_tensor(
                value, dtype=self.source.dtype, device=self.source.device
            )
        return value.astype(self.source.dtype)

    def apply(self, formula: Callable[..., Float], *others_N: Float) -> Float:
        """Return a formula of every block of rewards and of further quantities, in the order of
        the rewards.
        """
        result_N = np.empty_like(self.reward_N)
        for rows in self.rows:
            result_N[rows] = formula(*(values[rows] for values in (self.reward_N, *others_N)))
        return result_N

    def at_least(self, size: int, what: str, *, remedy: str = "drop it") -> None:
        """Refuse groups that are too small for a formula."""
        small = [rows for rows in self.rows if rows.shape[1] < size]
        if small:
            label = self.label_N[small[0][0, 0]]
            raise InsufficientDataError(
                f"{what} needs groups of at least {size} rollouts, the group of prompt {label} has "
                f"{small[0].shape[1]}: {remedy}"
            )


def rollout_groups(reward: Any, prompt: Any = None, *, missing: bool = False) -> RolloutGroups:
    """Return the rewards of a batch with their groups."""
    source = as_floats(reward)
    shape = tuple(source.shape)
    if len(shape) not in {1, 2} or 0 in shape:
        raise InvalidArgumentError(
            f"expected reward_PG or reward_N with prompt labels, got shape {shape}: reshape it"
        )
    values = to_numpy(source).astype(np.float64)
    refuse_not_finite("reward", values, missing=missing)
    if len(shape) == 1 and prompt is None:
        raise InvalidArgumentError(
            "expected the prompt of every rollout beside reward_N, got none: give N labels, or one "
            "row a prompt"
        )
    label = np.arange(shape[0]) if prompt is None else to_numpy(prompt)
    if label.shape != shape[:1]:
        raise InvalidArgumentError(
            f"expected {shape[0]} prompt labels for rewards of shape {shape}, got shape "
            f"{label.shape}: one a row"
        )
    if len(shape) == 1:
        return RolloutGroups(values, _rows_by_size(label), label, source)
    rows = np.arange(values.size).reshape(shape)
    return RolloutGroups(values.reshape(-1), (rows,), np.repeat(label, shape[1]), source)


def is_tensor(values: Any) -> bool:
    """Whether this is a tensor of the torch that the user has imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def as_floats(values: Any) -> Array:
    """Return a tensor or array of floats; floats keep their precision, integers and booleans
    take the library's own.
    """
    if is_tensor(values):
        if values.is_floating_point():
            return values
        return values.to(sys.modules["torch"].get_default_dtype())
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidArgumentError(
            "expected one array of rewards, got rows of unequal length: give reward_N with prompt "
            "labels"
        ) from None
    if array.dtype.kind not in "fiub":
        raise InvalidArgumentError(f"expected numbers, got {array.dtype}: convert them first")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def to_numpy(values: Any) -> NDArray[Any]:
    """Return a NumPy array, from a tensor on any device too."""
    if is_tensor(values):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values
    return np.asarray(values)


def refuse_not_finite(name: str, values: NDArray[Any], *, missing: bool = False) -> None:
    """Refuse infinity, and NaN unless it stands for a missing number."""
    places = np.argwhere(np.isinf(values) if missing else ~np.isfinite(values))
    if len(places):
        place = tuple(places[0].tolist())
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        raise InvalidArgumentError(
            f"expected finite numbers in {name}, got {float(values[place])} at {list(place)}"
            f"{more}: drop these rollouts or mend their source"
        )


def _rows_by_size(label_N: NDArray[Any]) -> tuple[NDArray[np.intp], ...]:
    groups = groups_of(label_N)
    order = groups.sorted(np.arange(len(label_N)))
    return tuple(
        order[groups.start_P[groups.size_P == size][:, None] + np.arange(size)]
        for size in np.unique(groups.size_P)
    )
