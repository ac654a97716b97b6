r"""What training on one thing did to others: gains over a run's checkpoints, and how much of the gain on the trained one each makes.

Counts of right answers in, a row a benchmark out. It asks no model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import Interval, finite_or_none, student_quantile
from groupwise.trainer.evaluation import Answers, Comparison, Score, compare, mean_at


@dataclass(frozen=True, slots=True)
class TransferRow:
    """One benchmark over the checkpoints of a run."""

    benchmark: str  # its name
    scores: tuple[Score, ...]  # mean@n at each checkpoint
    gain: Comparison  # last against first checkpoint, problem by problem
    # of this gain to that on what was trained on; None where nothing is named, and for that itself
    ratio: Interval | None
    # over checkpoints, with the mean on what was trained on; None below three checkpoints, or without variation
    correlation: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "benchmark": self.benchmark,
            "scores": [score.as_dict() for score in self.scores],
            "gain": self.gain.as_dict(),
            "ratio": None if self.ratio is None else self.ratio.as_dict(),
            "correlation": None if self.correlation is None else finite_or_none(self.correlation),
        }


def transfer(
    checkpoints: Sequence[Mapping[str, Answers]], *, trained_on: str | None = None, level: float = 0.95
) -> tuple[TransferRow, ...]:
    r"""Compare the checkpoints of a run on every benchmark.

    The ratio is $\bar d_b / \bar d_t$, the gain on a benchmark b over the gain on t, which was trained on, with Fieller's interval.
    """
    if len(checkpoints) < 2:
        raise InsufficientDataError(f"expected two checkpoints or more for transfer, got {len(checkpoints)}: keep more of them")
    names = list(checkpoints[0])
    if any(list(answers) != names for answers in checkpoints) or (trained_on is not None and trained_on not in names):
        raise InvalidArgumentError(
            f"expected every checkpoint on the same benchmarks and {trained_on!r} among them; got {', '.join(names)}"
        )
    ordered = sorted(names, key=lambda name: name != trained_on)
    gains = {name: compare(checkpoints[0][name], checkpoints[-1][name], level=level) for name in names}
    scores = {name: tuple(mean_at(answers[name], level=level) for answers in checkpoints) for name in names}
    rows = []
    for name in ordered:
        other = trained_on is not None and name != trained_on
        ratio = gain_ratio(gains[name], gains[str(trained_on)], level=level) if other else None
        correlation = _correlation(scores[name], scores[str(trained_on)]) if other else None
        rows.append(TransferRow(name, scores[name], gains[name], ratio, correlation))
    return tuple(rows)


def gain_ratio(gain: Comparison, trained: Comparison, *, level: float = 0.95) -> Interval:
    r"""Return one gain over another, with Fieller's interval.

    The $\rho$ with $(a - \rho b)^2 \le t^2 (v_a + \rho^2 v_b)$, a and b with the two clusters that `compare` adds to each, and t at the
    degrees of freedom of the one with fewer clusters. Without ends where the interval of b holds zero.

    Source: Fieller (1954), Journal of the Royal Statistical Society B 16, 175-185; the added clusters as in `compare`.
    """
    raw_a, raw_b = gain.difference.value, trained.difference.value
    ratio = raw_a / raw_b if raw_b else math.nan
    unknown = Interval(ratio, -math.inf, math.inf, level)
    a, b = gain.centre, trained.centre
    square = student_quantile(level, min(gain.clusters, trained.clusters) + 1) ** 2  # as many clusters and two, less one
    below = b * b - square * trained.widened_error**2
    if below <= 0 or trained.difference.low <= 0 <= trained.difference.high:
        return unknown
    root = math.sqrt(max(0.0, (a * b) ** 2 - below * (a * a - square * gain.widened_error**2)))
    return Interval(ratio, min(ratio, (a * b - root) / below), max(ratio, (a * b + root) / below), level)


def _correlation(one: Sequence[Score], other: Sequence[Score]) -> float | None:
    """Return the correlation of two rows of means."""
    if len(one) < 3:
        return None
    first, second = (np.array([score.interval.value for score in scores]) for scores in (one, other))
    if first.std() == 0 or second.std() == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])
