"""How finely a column was printed: with a resolution r a value v stands for v ± r."""

from __future__ import annotations

import numpy as np

from groupwise.arrays import Flags, Float

MOST_DECIMALS = 12
_PRINTED = 7  # decimals beyond which a 0 is one
# A rounded number tells a size where it is that many times as large as its resolution.
TELLING = 20.0


def printed_decimals(text: str) -> int:
    """Return the decimals of a number in a fixed format, whose last digit is a 0; else 0."""
    decimals = text.rstrip().rpartition(".")[2]
    fixed = 2 <= len(decimals) <= _PRINTED and len(decimals) < len(text)
    return len(decimals) if fixed and decimals[-1] == "0" and decimals.isdecimal() else 0


def fits(values: Float, decimals: int) -> bool:
    """Return whether that many decimals write all values in full."""
    return np.allclose(values, np.round(values, decimals), rtol=5e-16, atol=1e-13)


def fewest_decimals(values: Float, most: int = MOST_DECIMALS) -> int | None:
    """Return the fewest decimals, fewer than `most`, that write all values in full, or None."""
    return next((decimals for decimals in range(most) if fits(values, decimals)), None)


def resolution_of(decimals: int) -> float:
    """Return half a unit of the last printed digit; 0 for none, which is an exact number."""
    return float(f"5e-{decimals + 1}") if decimals else 0.0


def zero_rows(value_T: Float, resolution: float) -> Flags:
    """Return the rows that hold 0.

    Of a rounded column none, unless its other values are so large that a 0 is nothing beside them.
    """
    zero_T: Flags = value_T == 0.0
    others = np.abs(value_T[np.isfinite(value_T) & ~zero_T])
    if resolution and (not others.size or np.median(others) < TELLING * resolution):
        return np.zeros_like(zero_T)
    return zero_T
