r"""Rewards of a batch as blocks of equally large groups, whatever they came as: NumPy or torch, a
rectangle or long form.

A rectangle `reward_PG` is one block; `reward_N` with a prompt label a rollout becomes one block a
group size, so that a formula is written once, for a block whose rows are groups, and runs without a
loop over prompts. A tensor is met by the module that it comes from: nothing here imports torch. It
computes no advantage.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import groups_of
from groupwise.errors import InsufficientDataError, InvalidArgumentError

Array = Any
"""A NumPy array or a torch tensor; what comes back is of the same kind, precision and device."""


@dataclass(frozen=True, slots=True)
class RolloutGroups:
    """The rewards of a batch and the groups they belong to."""

    reward: Array  # rewards in the user's shape, kind and precision
    # for each group size one matrix of positions in the flattened rewards, a row a group
    rows: tuple[NDArray[np.intp], ...]
    label_N: NDArray[Any]  # the prompt of every rollout, flattened

    @property
    def module(self) -> Any:
        """NumPy, or the torch that the user has imported."""
        return module_of(self.reward)

    @property
    def flat(self) -> Array:
        """All rewards in one row."""
        return self.reward.reshape(-1)

    def apply(self, formula: Callable[..., Array], *others: Array) -> Array:
        """Return a formula of every block of rewards (groups in rows) and of further quantities,
        put back in the user's order.
        """
        flat = [self.flat, *(other.reshape(-1) for other in others)]
        if len(self.rows) == 1 and _in_order(self.rows[0]):
            return formula(*(part.reshape(self.rows[0].shape) for part in flat)).reshape(
                self.reward.shape
            )
        result = self.module.empty_like(flat[0])
        for rows in self.rows:
            result[rows] = formula(*(part[rows] for part in flat))
        return result.reshape(self.reward.shape)

    def matched(self, name: str, values: Any) -> Array:
        """Return an argument as an array like the rewards, one entry a rollout."""
        array = as_kind(values, self.reward)
        shape = tuple(self.reward.shape)
        if len(shape) == 2 and tuple(array.shape) == shape[:1]:
            array = array[:, None]
        if tuple(array.shape) not in {(), shape, (shape[0], 1)[: len(shape)]}:
            raise InvalidArgumentError(
                f"expected {name} as one number, one a rollout or one a row of reward_PG, got "
                f"shape {tuple(array.shape)} for rewards of shape {shape}: give one value a rollout"
            )
        refuse_not_finite(name, array)
        return array + self.module.zeros_like(self.reward)

    def at_least(self, size: int, what: str, *, remedy: str = "drop it") -> None:
        """Refuse groups that are too small for a formula."""
        small = [rows for rows in self.rows if rows.shape[1] < size]
        if small:
            label = self.label_N[small[0][0, 0]]
            raise InsufficientDataError(
                f"{what} needs groups of at least {size} rollouts, the group of prompt {label} has "
                f"{small[0].shape[1]}: {remedy}"
            )


def rollout_groups(
    reward: Any, prompt: Any = None, *, missing: bool = False, smallest: float = -np.inf
) -> RolloutGroups:
    """Return the rewards of a batch with their groups."""
    array = as_floats(reward)
    shape = tuple(array.shape)
    if len(shape) not in {1, 2} or 0 in shape:
        raise InvalidArgumentError(
            f"expected reward_PG or reward_N with prompt labels, got shape {shape}: reshape it"
        )
    refuse_not_finite("reward", array, missing=missing)
    if smallest > -np.inf and bool((array < smallest).any()):
        raise InvalidArgumentError(
            f"expected rewards of at least {smallest:g}, got {float(array.min())!r}: shift them "
            "first"
        )
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
    if len(shape) == 2:
        return RolloutGroups(
            array, (np.arange(shape[0] * shape[1]).reshape(shape),), np.repeat(label, shape[1])
        )
    return RolloutGroups(array, _rows_by_size(label), label)


def module_of(array: Array) -> Any:
    """Return torch for a tensor, found among the modules that the user has imported, and NumPy
    for all else.
    """
    return sys.modules["torch"] if is_tensor(array) else np


def is_tensor(array: Any) -> bool:
    """Whether this is a torch tensor, or of a class derived from it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def as_floats(values: Any) -> Array:
    """Return a tensor or array of floats; floats keep their precision, integers and booleans
    take the library's own.
    """
    if is_tensor(values):
        return (
            values
            if values.is_floating_point()
            else values.to(module_of(values).get_default_dtype())
        )
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


def as_kind(values: Any, like: Array) -> Array:
    """Return `values` as an array of the kind, precision and device of another."""
    if is_tensor(like):
        return module_of(like).as_tensor(values, dtype=like.dtype, device=like.device)
    return to_numpy(values).astype(like.dtype, copy=False)


def to_numpy(values: Any) -> NDArray[Any]:
    """Return a NumPy array, from a tensor on any device too."""
    return np.asarray(values.detach().cpu() if is_tensor(values) else values)


def refuse_not_finite(name: str, array: Array, *, missing: bool = False) -> None:
    """Raise where an entry is not finite."""
    module = module_of(array)
    bad = ~module.isfinite(array)
    if missing:
        bad = bad & ~module.isnan(array)
    if bool(bad.any()):
        places = np.argwhere(to_numpy(bad))
        place = tuple(int(index) for index in places[0])
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        raise InvalidArgumentError(
            f"expected finite numbers in {name}, got {float(array[place])} at {list(place)}{more}: "
            "drop these rollouts or mend their source"
        )


def centred(block: Array) -> Array:
    """Return rows minus their means; a row of equal numbers gives exactly 0, for its first is
    taken off before anything is rounded.
    """
    shifted = block - block[:, :1]
    return shifted - shifted.mean(1, keepdims=True)


def _rows_by_size(label_N: NDArray[Any]) -> tuple[NDArray[np.intp], ...]:
    """One matrix of positions for each group size, in the order of the labels."""
    groups = groups_of(label_N)
    order = np.arange(len(label_N)) if groups.order_N is None else groups.order_N
    return tuple(
        order[groups.start_P[groups.size_P == size][:, None] + np.arange(size)].astype(np.intp)
        for size in np.unique(groups.size_P)
    )


def _in_order(rows: NDArray[np.intp]) -> bool:
    """Whether the positions are 0, 1, 2, ...: a reshape then does instead of a copy."""
    return bool(rows.flat[0] == 0) and bool((np.diff(rows.reshape(-1)) == 1).all())
