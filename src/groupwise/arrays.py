"""Shapes and what must hold in an array before anything is computed from it.

Legend of the suffixes: `T` steps, `P` prompts of a step, `G` rollouts of a group, `N` rollouts in
long form, `L` tokens of a completion, `D` parameters, `K` width of a sketch, `R` directions; so
`reward_PG` has a row a prompt and a column a rollout. It computes nothing of the subject.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.errors import InvalidArgumentError
from groupwise.plain import frozen

Float = NDArray[np.float64]
Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]
Places = NDArray[np.intp]  # rows and counts of them
Ends = tuple[float, float]  # of a range, or of a course
Columns = Mapping[str, Float]  # by name
WHOLE = int | np.integer
NUMBER = WHOLE | float | np.floating
Numeric = TypeVar("Numeric", bound=Callable[..., Any])


@frozen
class Groups:
    """Which rows of a long-form array belong to which group."""

    order_N: Places | None  # rows sorted by group, stable; None where they are sorted already
    start_P: Places  # first row of each group in that order
    size_P: Places  # rows of each group
    label_P: NDArray[Any]  # the group's own label

    @property
    def group_of_row(self) -> Places:
        """The number of the group of each row, in sorted order."""
        return np.repeat(np.arange(len(self.size_P)), self.size_P)

    def sorted(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return rows of `values` group by group."""
        return values if self.order_N is None else values[self.order_N]


def of_numbers(of_a_run: str) -> Callable[[Numeric], Numeric]:
    """Refuse a run, or its path, where a function takes numbers, and say what a run needs."""

    def refusing(function: Numeric) -> Numeric:
        @wraps(function)
        def called(*given: Any, **named: Any) -> Any:
            if any(isinstance(value, str | Path) or hasattr(value, "steps") for value in given):
                raise InvalidArgumentError(
                    f"{function.__name__} expects numbers, got a run: {of_a_run}"
                )
            return function(*given, **named)

        return called  # type: ignore[return-value]

    return refusing


def no_rows() -> Float:
    """Return an array of nothing."""
    return np.empty(0)


def floats(values: ArrayLike) -> Float:
    """Return values as an array of floats."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError(
            f"expected an array of numbers, got {' '.join(short_repr(values).split())}: convert it"
        ) from None


def check_at_least(least: float, *, whole: bool = False, **named: object) -> None:
    """Refuse what is no finite number of at least so much."""
    kind, kinds = ("whole number", WHOLE) if whole else ("finite number", NUMBER)
    for name, value in named.items():
        if not isinstance(value, kinds) or not least <= value < np.inf:
            raise InvalidArgumentError(
                f"expected a {kind} of at least {least:g} for {name}, got {short_repr(value)}: "
                "give one, or leave it out"
            )


def mean_ranks(values: ArrayLike) -> Float:
    """Return the rank of each value from 1 on, of equal ones their mean.

    `scipy.stats`, which has it too, takes a second to load.
    """
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def groups_of(prompt_N: ArrayLike) -> Groups:
    """Return the groups of rollouts in long form."""
    labels = np.asarray(prompt_N)
    if labels.ndim != 1 or not len(labels):
        raise InvalidArgumentError(
            f"expected one prompt label a rollout, got an array of shape {labels.shape}: give "
            "prompt_N with N entries"
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InvalidArgumentError(
            f"expected prompt labels, got {_first_bad(labels)}: give a label for every rollout"
        )
    # Most callers hand over whole groups in a row: one comparison then saves the sort of a million
    # labels.
    change = labels[1:] != labels[:-1]
    sorted_already = (labels[1:] >= labels[:-1]).all()
    order = None
    if not sorted_already:
        order = np.argsort(labels, kind="stable")
        labels = labels[order]
        change = labels[1:] != labels[:-1]
    start = np.concatenate([[0], np.flatnonzero(change) + 1]).astype(np.intp)
    size = np.diff(np.append(start, len(labels))).astype(np.intp)
    return Groups(order, start, size, labels[start])


def finite_array(name: str, values: ArrayLike, *, dimensions: int) -> Float:
    """Return `values` as float64 of the right dimensions and finite."""
    array = checked_shape(name, values, dimensions=dimensions).astype(np.float64, copy=False)
    if not np.isfinite(array).all():
        raise InvalidArgumentError(
            f"expected finite numbers in {name}, got {_first_bad(array)}: fix these values"
        )
    return array


def bisected(
    rising: Callable[[Float], Float], target: float, ends: tuple[Any, Any], *, halvings: int
) -> Float:
    """Return where each of some rising functions passes a target, between two ends."""
    low, high = ends
    for _ in range(halvings):
        middle = (low + high) / 2
        below = rising(middle) < target
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)


def median(value_T: Float) -> float:
    """Return the median of finite numbers, faster than `np.median` for short series."""
    half = value_T.size // 2
    ordered = np.sort(value_T)
    return (
        float(ordered[half]) if value_T.size % 2 else float((ordered[half - 1] + ordered[half]) / 2)
    )


def mean_of(value_T: Float | Flags) -> float:
    """Return the mean of finite numbers, or the share of what holds."""
    return float(value_T.mean())


# Rows of a moving mean from which sums are doubled: a product of longer rows goes to BLAS, whose
# threads then wait for each other.
_MANY_ROWS = 1000


def moving_mean(value_T: Float, rows: int) -> Float:
    """Return the means of so many neighbouring rows, from the first to the last that are whole."""
    if rows <= _MANY_ROWS:
        return np.convolve(value_T, np.full(rows, 1 / rows), "valid")
    total, begin, size, sums_T = np.zeros(len(value_T) - rows + 1), 0, 1, value_T
    while (
        size <= rows
    ):  # sums of 1, 2, 4, ... rows: those that make up the number are added, one behind the other
        if rows & size:
            total += sums_T[begin : begin + len(total)]
            begin += size
        sums_T = sums_T[:-size] + sums_T[size:]
        size *= 2
    return total / rows


def checked_shape(name: str, values: ArrayLike, *, dimensions: int) -> NDArray[Any]:
    """Return `values` as an array of numbers with the right number of dimensions."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidArgumentError(
            f"expected {name} as one array of numbers, got rows of unequal length: use one flat "
            "array and give prompt_N"
        ) from None
    if array.dtype.kind not in "fiub":
        raise InvalidArgumentError(
            f"expected numbers in {name}, got {array.dtype}: convert it first"
        )
    if array.ndim != dimensions or not array.size:
        raise InvalidArgumentError(
            f"expected {name} with {dimensions} dimension{'s'[: dimensions > 1]}, got shape "
            f"{array.shape}: reshape it"
        )
    return array


def _first_bad(array: NDArray[Any]) -> str:
    """Say how many entries are not finite and where the first is."""
    bad = np.argwhere(~np.isfinite(array))
    place = ", ".join(str(int(index)) for index in bad[0])
    return f"{array[tuple(bad[0])]} at [{place}]" + (
        f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    )


def rows_before(row: int, few: int) -> slice:
    """Return the few rows before one, or those that there are."""
    return slice(max(0, row - few), row)


def row_after(event_T: Flags) -> int:
    """Return the row behind the last at which something holds; 0 where it never does."""
    return 1 + int(np.flatnonzero(event_T).max(initial=-1))


def mean_around(value_T: Float, half: int) -> Float:
    """Return the mean of each value and of so many on either side, fewer at the ends."""
    total, at = np.cumsum(np.append(0.0, value_T)), np.arange(value_T.size)
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, value_T.size)
    return np.asarray((total[high] - total[low]) / (high - low))
