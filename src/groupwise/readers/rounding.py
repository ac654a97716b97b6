"""How finely the writer of a log printed each column: by the cells themselves, else by the
values, else by the other columns.
"""

from __future__ import annotations

import numpy as np

from groupwise.readers.kinds import CLOCK
from groupwise.readers.rows import RowStore, plain
from groupwise.record.resolution import TELLING, fewest_decimals, fits, resolution_of

# What trainers round to, and the different values that show it: settings and shares of a few
# rollouts are round by themselves. Fewer decimals may be those of a share of ten or a hundred.
_MOST, _FEWEST_VALUES, _NO_SHARE = 5, 3, 3
_SAMPLE = 64


def resolutions(store: RowStore) -> dict[str, float]:
    """Return half a unit of the last printed digit of each column that is rounded."""
    keys = [key for key in store.names() if not CLOCK.fullmatch(plain(key))]
    needed = {key: _decimals(store, key) for key in keys}
    rounded = {key: decimals for key, (decimals, sure) in needed.items() if decimals and sure}
    writers = max(rounded.values(), default=0)
    several = len(rounded) > 1 or any(
        decimals >= _NO_SHARE or np.nanmax(np.abs(store.sparse(key)[1])) > 1.0
        for key, decimals in rounded.items()
    )
    if several and all(
        decimals is not None and decimals <= writers for decimals, _ in needed.values()
    ):
        # The writer rounds whatever it writes; counts stay whole.
        others = {key: decimals for key, (decimals, sure) in needed.items() if not sure}
        rounded |= {
            key: writers
            for key, decimals in others.items()
            if decimals or not store.sparse(key)[1].any()
        }
    return {key: resolution_of(decimals) for key, decimals in rounded.items()}


def _decimals(store: RowStore, key: str) -> tuple[int | None, bool]:
    """Return the fewest decimals that hold a column, None where it takes more than trainers
    round to, and whether it was rounded.
    """
    values = store.sparse(key)[1]
    values = values[np.isfinite(values)]
    printed = store.decimals.get(key, 0)
    if printed and fits(values, printed):
        return printed, True
    values = values[values != np.rint(values)]
    if not len(values):
        return 0, False
    if not fits(values[:_SAMPLE], _MOST):
        return None, False
    decimals = fewest_decimals(values, _MOST + 1)
    several = len(set(values[: 100 * _SAMPLE].tolist())) >= _FEWEST_VALUES
    if decimals is None or not several:
        return decimals, False
    units = np.rint(np.abs(values) * 10.0**decimals).astype(np.int64)
    # Shares of a few rollouts keep to a part of the digits, and of small numbers few are left.
    grid = int(np.gcd.reduce(np.append(units, 10**decimals)))
    return decimals, grid == 1 and int(units.max()) >= TELLING
