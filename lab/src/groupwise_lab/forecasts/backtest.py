r"""The forecast scored on what came after, beside the methods that a person could take instead.

A run is cut in two; each method sees the first part and is compared with ten window means of the
rest. `Trial` holds what was foretold and what came, so that other tables of calibration are scored,
and made, without foretelling anew. Of a band with the ends $l$ and $u$ the interval score is $u - l
+ \frac{2}{1 - c}(\max(l - y, 0) + \max(y - u, 0))$ at coverage $c$; the CRPS is twice the integral
of the pinball loss $(p - [y < q_p])(y - q_p)$ over $p$ (Gneiting and Raftery 2007). One run at a
time; `scoreboard` puts runs together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from groupwise.arrays import Float
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.forecasting.fit import FEW
from groupwise.forecasting.forecast import (
    UPPER,
    BandKind,
    Calibration,
    ForecastBands,
    foreseen,
    shipped,
)
from groupwise.forecasting.observations import observe, usable_rows
from groupwise.intervals import check_level
from groupwise.parsing import JsonObject
from groupwise.plain import frozen
from groupwise.processes import on_one_thread
from groupwise_lab.forecasts.calibrate import UNCALIBRATED, Continuation
from groupwise_lab.forecasts.results import Backtest, Tally
from groupwise_lab.forecasts.rivals import Method, Rival, Stretches, available, foretold_by

PROBABILITIES = (0.01, 0.025, 0.05, 0.1, 0.25, *UPPER)
WINDOWS = 10
SHARES = (0.1, 0.2, 0.4, 0.6)
FEWEST_ROWS = 20


@on_one_thread
def backtest(
    time_T: ArrayLike,
    value_T: ArrayLike,
    *,
    window: float = 1.0,
    smoothing: int | None = None,
    from_share: float = 0.4,
    level: float = 0.9,
    bounds: tuple[float, float] | None = None,
    calibration: Calibration | None = None,
) -> Backtest:
    """Forecast the rest of a run from its first part, and score it.

    Args:
        time_T: increasing times in updates, shape (T,).
        value_T: the metric, shape (T,).
        window: updates that one row averages over.
        smoothing: as in `fit`.
        from_share: share of the rows that the forecast sees.
        level: nominal coverage of the band.
        bounds: as in `forecast`; every method's band is held within them.
        calibration: as in `forecast`.

    Returns:
        Errors of our forecast ("groupwise") and of the other methods over window means, coverage,
        interval score and CRPS.

    Source: derived by us.
    """
    tried = trial(time_T, value_T, from_share, window=window, smoothing=smoothing, bounds=bounds)
    return tried.score(calibration or shipped(), level=level)


@frozen
class Trial:
    """A run cut in two: what was foretold from its first part, and what came."""

    share: float  # of the rows that were seen, as it was asked for
    n_train: int  # rows seen
    n_test: int  # rows after them
    deviation: float  # standard deviation of all rows
    truth_S: Float  # mean of each window of the rest
    row_S: Float  # the row in its middle
    windows: ForecastBands  # what was foreseen of the means
    rows: ForecastBands  # and of the rows
    rivals: Mapping[str, Rival]  # what the other methods foretold of the means

    def score(self, table: Calibration, *, level: float = 0.9) -> Backtest:
        """Score what was foretold, the bands of ours stretched by a table."""
        check_level(level)
        ours, rows = replace(self.windows, table=table), replace(self.rows, table=table)
        ends = (1 - level) / 2, (1 + level) / 2
        (low, high), (row_low, row_high) = (
            [part.quantile(p) for p in ends] for part in (ours, rows)
        )
        within = (self.row_S >= row_low) & (self.row_S <= row_high)
        off: dict[str, Float] = {"groupwise": np.abs(ours.quantile(0.5) - self.truth_S)}
        interval = {"groupwise": interval_score(self.truth_S, low, high, level)}
        ranked = {
            "groupwise": crps(
                self.truth_S, np.stack([ours.quantile(p) for p in PROBABILITIES]), PROBABILITIES
            )
        }
        for name, rival in self.rivals.items():
            off[name] = np.abs(ours.within(rival.centre_S) - self.truth_S)
            if rival.deviation_S is not None:
                first, last = (ours.within(rival.quantile(p)) for p in ends)
                interval[name] = interval_score(self.truth_S, first, last, level)
                ranked[name] = crps(
                    self.truth_S,
                    np.stack([ours.within(rival.quantile(p)) for p in PROBABILITIES]),
                    PROBABILITIES,
                )

        def over(part: slice) -> JsonObject:
            """What the windows of a part come to."""
            errors, intervals, ranks = (
                {name: float(values[part].mean()) for name, values in all_.items()}
                for all_ in (off, interval, ranked)
            )
            above, below = (
                int((self.truth_S > high)[part].sum()),
                int((self.truth_S < low)[part].sum()),
            )
            many = within[part].size
            return {
                "errors": errors,
                "covered": many - above - below,
                "windows": many,
                "above": above,
                "below": below,
                "rows_covered": int(within[part].sum()),
                "interval_scores": intervals,
                "crps": ranks,
                "widths": {
                    "windows": float((high - low)[part].mean()),
                    "rows": float((row_high - row_low)[part].mean()),
                },
            }

        cuts = np.cumsum([0, *(part.size for part in np.array_split(self.truth_S, 3))])
        thirds = (
            tuple(Tally(**over(slice(*cut))) for cut in pairwise(cuts))
            if self.truth_S.size >= 3
            else ()
        )
        return Backtest(
            **over(slice(None)),
            level=level,
            n_train=self.n_train,
            n_test=self.n_test,
            share=self.share,
            deviation=self.deviation,
            thirds=thirds,
        )

    def case(self, cluster: str, run: str) -> Continuation:
        """How the run went on, for a table of calibration."""
        windows, rows = self.windows, self.rows
        error: dict[BandKind, Float] = {
            "window": (self.truth_S - windows.centre_S) / windows.spread_S,
            "row": (self.row_S - rows.centre_S) / rows.spread_S,
        }
        return Continuation(cluster, run, self.share, windows.seen, windows.place_S, error)


def rows_seen(rows: int, share: float) -> int:
    """How many rows of a run a share of it is."""
    if not 0 < share < 1:
        raise InvalidArgumentError(
            f"a backtest sees a share of the run between 0 and 1; got {share}"
        )
    return max(FEW, int(share * rows))


def trial(
    time_T: ArrayLike,
    value_T: ArrayLike,
    share: float,
    *,
    window: float = 1.0,
    smoothing: int | None = None,
    bounds: tuple[float, float] | None = None,
    methods: Mapping[str, Method] | None = None,
) -> Trial:
    """Cut a run in two and foretell the second part from the first, by ours and by other methods
    (None: all there are).
    """
    time, value, _ = usable_rows(time_T, value_T)
    cut = rows_seen(time.size, share)
    if time.size < FEWEST_ROWS:
        raise InsufficientDataError(
            f"a backtest needs at least {FEWEST_ROWS} finite rows; the series has {time.size}"
        )
    seen = observe(time[:cut], value[:cut], window=window, smoothing=smoothing)
    if seen.still:
        raise InsufficientDataError(
            f"every one of the {cut} rows seen is exactly {value[0]:.6g}: there is no band to score"
        )
    groups = np.array_split(np.arange(cut, time.size), min(WINDOWS, time.size - cut))
    middle = np.array([group[group.size // 2] for group in groups])
    centre = np.array([time[group].mean() for group in groups])
    # Rows that were averaged before they were logged count as fewer.
    size = max(1.0, (time.size - cut) / len(groups) / seen.smoothing)
    windows, rows = foreseen(
        seen, (centre, size), (time[middle], 1), bounds=bounds, table=UNCALIBRATED
    )
    ahead = Stretches(
        centre, *(np.array([group[end] - cut + 1.0 for group in groups]) for end in (0, -1))
    )
    tried = {
        name: foretold_by(method, time[:cut], value[:cut], ahead)
        for name, method in (available() if methods is None else methods).items()
    }
    return Trial(
        share,
        cut,
        time.size - cut,
        float(value.std()),
        np.array([value[group].mean() for group in groups]),
        value[middle],
        windows,
        rows,
        {name: rival for name, rival in tried.items() if rival is not None},
    )


def interval_score(truth_S: Float, low_S: Float, high_S: Float, level: float) -> Float:
    """Width of each band, and a fine for the truth outside; also by Winkler's name."""
    return (
        high_S
        - low_S
        + 2 / (1 - level) * (np.maximum(low_S - truth_S, 0) + np.maximum(truth_S - high_S, 0))
    )


def crps(truth_S: Float, quantile_PS: Float, probability_P: Sequence[float]) -> Float:
    """Twice the pinball loss of the quantiles, each weighing the probabilities that lie nearest
    to its own.
    """
    probability = np.array(probability_P)
    weight = np.diff(np.concatenate([[0.0], (probability[1:] + probability[:-1]) / 2, [1.0]]))
    error = truth_S - quantile_PS
    return np.asarray(
        2 * weight @ np.maximum(probability[:, None] * error, (probability[:, None] - 1) * error)
    )
