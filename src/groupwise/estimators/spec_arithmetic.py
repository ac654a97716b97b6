r"""Means, sums and standard deviations of groups in the order of operations that a trainer uses.

Rows are groups. Algebra has many forms of the same number and float32 tells them apart: "row" is the library's own mean and standard
deviation of rows, "group" that of one group at a time, for which torch squares in float64 around the rounded mean, "nan" averages what is
not NaN and squares around it, and "sequential" adds one rollout after the other, as an indexed sum does.
It knows no trainer by name.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from groupwise.estimators.rollout_groups import Array, is_tensor, module_of

Reduction = Literal["row", "group", "nan", "sequential"]


def mean_of(block: Array, reduction: Reduction) -> Array:
    """Return the mean of each row as a column."""
    if reduction == "nan":
        return _nanmean(block)
    return block.mean(1, keepdims=True) if reduction in {"row", "group"} else _one_by_one(block) / block.shape[1]


def sum_of(block: Array, reduction: Reduction) -> Array:
    """Return the sum of each row as a column."""
    if reduction == "nan":
        return module_of(block).nansum(block, 1, keepdims=True)
    return block.sum(1, keepdims=True) if reduction in {"row", "group"} else _one_by_one(block)


def std_of(block: Array, ddof: int, reduction: Reduction, *, floor: float = 0.0) -> Array:
    """Return the standard deviation of each row as a column."""
    module = module_of(block)
    if reduction == "row":
        return block.std(1, correction=ddof, keepdim=True) if is_tensor(block) else block.std(1, ddof=ddof, keepdims=True)
    if reduction == "group":
        above = _doubled(block) - _doubled(block.mean(1, keepdims=True))
        deviation = module.sqrt((above * above).sum(1, keepdims=True) / (block.shape[1] - ddof))
        return deviation.to(block.dtype) if is_tensor(block) else deviation.astype(block.dtype)
    if reduction == "sequential":
        above = block - mean_of(block, reduction)
        variance = _one_by_one(above * above) / max(block.shape[1] - ddof, 1)
        return module.sqrt(variance.clip(floor) if floor else variance)
    variance = _nanmean((block - _nanmean(block)) ** 2)
    count = count_of_rewards(block)
    if ddof:
        # A count of one has no standard deviation: NaN, which the caller turns into advantage 0.
        variance = variance * module.where(count > 1, count / (count - 1).clip(1), np.nan)
    return module.sqrt(variance)


def count_of_rewards(block: Array) -> Array:
    """Return how many entries of each row are not NaN, as a column in the block's precision."""
    module = module_of(block)
    count = (~module.isnan(block)).sum(1, keepdims=True)
    return count.to(block.dtype) if is_tensor(block) else count.astype(block.dtype)


def _doubled(block: Array) -> Array:
    """The same numbers in float64."""
    return block.double() if is_tensor(block) else block.astype(np.float64)


def _nanmean(block: Array) -> Array:
    """Mean of what is not NaN; NaN where nothing is left, without a warning."""
    if is_tensor(block):
        return module_of(block).nanmean(block, 1, keepdim=True)
    with np.errstate(invalid="ignore"):
        return np.nansum(block, 1, keepdims=True) / count_of_rewards(block)


def _one_by_one(block: Array) -> Array:
    """Sum of each row, added from left to right."""
    total = block[:, :1] + 0
    for column in range(1, block.shape[1]):
        total = total + block[:, column : column + 1]
    return total
