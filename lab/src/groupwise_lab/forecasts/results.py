"""What a backtest hands back."""

from __future__ import annotations

from collections.abc import Mapping

from groupwise.intervals import percent
from groupwise.plain import Plain, Said, frozen
from groupwise.wording import number


@frozen
class Tally(Plain):
    """How the methods did on some windows of what came after, in the unit of the metric."""

    errors: Mapping[str, float]  # mean absolute error of each method
    covered: int  # windows whose mean lay inside our band
    windows: int
    above: int  # windows whose mean lay above our band
    below: int
    rows_covered: int  # of the row in the middle of each window, those inside our band of rows
    interval_scores: Mapping[
        str, float
    ]  # of the methods with a band: its width, and a fine for truth outside
    crps: Mapping[str, float]  # of the same: continuous ranked probability score
    widths: Mapping[str, float]  # of our bands of windows and of rows


@frozen
class Backtest(Tally, Said):
    """One run's forecast scored on what came after.

    Args:
        errors: mean absolute error of each method over the windows held out, reward units.
        covered: windows whose mean lay inside the predictive band.
        windows: windows held out.
        above: windows whose mean lay above the band.
        below: windows whose mean lay below it.
        rows_covered: of the row in the middle of each window, those inside the band of rows.
        interval_scores: mean interval score (Winkler) of each method with a band.
        crps: mean continuous ranked probability score of the same.
        widths: mean width of our bands, of "windows" and of "rows".
        level: nominal coverage of the band.
        n_train: rows the forecast saw.
        n_test: rows held out.
        share: share of the rows that the forecast was to see.
        deviation: standard deviation of all rows.
        thirds: the same of the near, the middle and the far third of the windows.
    """

    level: float
    n_train: int
    n_test: int
    share: float
    deviation: float
    thirds: tuple[Tally, ...]

    def __str__(self) -> str:
        """How far the forecast and the best simple method were off, in a sentence."""
        simple = {name: error for name, error in self.errors.items() if name != "groupwise"}
        best = min(simple, key=simple.__getitem__)
        return (
            f"Forecast from {self.n_train:,} rows, the {self.n_test:,} after them are off by "
            f"{number(self.errors['groupwise'])}; the best simple method "
            f"({best.replace('_', ' ')}) is off by {number(simple[best])}. The "
            f"{percent(self.level)} band held {self.covered} of {self.windows} window means."
        )
