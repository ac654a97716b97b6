r"""What answers to a benchmark say about a model: mean@n, pass@k, two models compared problem by
problem, and what training transferred.

The problems of a benchmark are the draws, not the answers: errors are clustered by problem, and by
template where problems are variants of one. It samples nothing, reads nothing and writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float, Whole
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import Interval, student_quantile, wilson
from groupwise.plain import Plain, frozen


@frozen
class Answers:
    """How often a model answered each problem of a benchmark rightly."""

    benchmark: str  # its name
    right_P: Whole  # right answers of each problem
    samples: int  # answers of each problem
    cluster_P: NDArray[
        Any
    ]  # label of each problem's cluster; problems with the same label are variants of one another
    undecided: int = 0  # answers that could not be judged; they count as wrong
    cut: int = 0  # answers that ended at the limit of tokens
    too_long: int = 0  # problems that did not fit into the model's context; they count as wrong

    @property
    def problems(self) -> int:
        """How many there are."""
        return len(self.right_P)


@frozen
class Score(Plain):
    """A mean over problems with its clustered standard error."""

    KEYS: ClassVar = "*interval standard_error=error clusters"

    interval: Interval  # the mean and its interval
    error: float  # standard error; NaN for a single cluster
    clusters: int  # independent draws behind it


@frozen
class PairedComparison(Plain):
    """One model against another on the same problems."""

    KEYS: ClassVar = "benchmark *difference standard_error=error better worse same"

    benchmark: str  # its name
    difference: Interval  # mean of second minus first, with its interval
    error: float  # clustered standard error of the difference; NaN for a single cluster
    better: int  # problems that the second answers more often
    worse: int  # problems that it answers less often
    same: int  # problems with no difference
    # middle of the interval before it is made to hold the mean: the mean with the two clusters that
    # `compare` adds
    centre: float
    widened_error: float  # standard error of `centre`; above 0 also where all problems agree
    clusters: int  # independent draws behind the difference


def mean_at(answers: Answers, *, level: float = 0.95) -> Score:
    r"""Return mean@n: the share of right answers.

    $\bar m = \frac1P \sum_p c_p/n$
    """
    return clustered_share(answers.right_P / answers.samples, answers.cluster_P, level=level)


def pass_at(answers: Answers, k: int, *, level: float = 0.95) -> Score:
    r"""Return pass@k: the chance that one of k answers is right, estimated without bias from n >=
    k.

    $\frac1P \sum_p \left[1 - \binom{n - c_p}{k} / \binom{n}{k}\right]$

    Source: Chen et al. (2021), arXiv 2107.03374, section 2.1.
    """
    if not 1 <= k <= answers.samples:
        raise InvalidArgumentError(
            f"expected k from 1 to {answers.samples}, the answers of a problem, got {k}: sample "
            "more"
        )
    return clustered_share(
        pass_chance(answers.right_P, answers.samples, k), answers.cluster_P, level=level
    )


def pass_chance(right_P: Whole, samples: int, k: int) -> Float:
    r"""Return the unbiased estimate of pass@k of each problem.

    $1 - \prod_{i=0}^{k-1} \frac{n - c - i}{n - i}$, which needs no large factorial

    Source: Chen et al. (2021), arXiv 2107.03374, section 2.1; written as a product.
    """
    place_K = np.arange(k)
    factor_PK = np.maximum(samples - right_P[:, None] - place_K, 0) / (samples - place_K)
    return np.asarray(1 - factor_PK.prod(axis=1), dtype=np.float64)


def clustered_share(value_P: Float, cluster_P: NDArray[Any], *, level: float = 0.95) -> Score:
    r"""Return the mean of values in [0, 1], one a problem, whose clusters are independent draws.

    $\widehat{\mathrm{se}}^2 = \frac{C}{C-1} \sum_c \Big(\sum_{p \in c} (m_p - \bar m)\Big)^2 / P^2$

    The interval is Wilson's for $n^* = \bar m (1 - \bar m)/\mathrm{se}^2$ answers, the number of
    independent ones that would have this error, times $(z/t_{C-1})^2$ for the few clusters that the
    error itself comes from. Where all problems agree there is no error to see, and every cluster
    counts as one answer.

    Source: Korn and Graubard (1998), Survey Methodology 24, 193-201, with Wilson's interval in
    place of Clopper and Pearson's.
    """
    mean = float(value_P.mean())
    _, error, clusters = _clustered(value_P, cluster_P)
    trials = float(clusters)
    if clusters > 1 and error > 0 and 0 < mean < 1:
        from scipy.special import ndtri

        shrink = float(ndtri(0.5 + level / 2)) / student_quantile(level, clusters - 1)
        trials = mean * (1 - mean) / error**2 * min(1.0, shrink) ** 2
    interval = wilson(mean * trials, trials, level=level)
    return Score(
        Interval(mean, min(interval.low, mean), max(interval.high, mean), level), error, clusters
    )


def compare(first: Answers, second: Answers, *, level: float = 0.95) -> PairedComparison:
    r"""Compare two models on the same problems.

    $\bar d = \frac1P \sum_p (m_p^{(2)} - m_p^{(1)})$, its error clustered as in `clustered_share`.
    To the interval two clusters are added that differ by +1 and -1 problem: without them it would
    have no width where all problems agree.

    Source: paired differences; the added clusters after Agresti and Min (2005), Statistics in
    Medicine 24, 729-740, who add half of each.
    """
    if first.benchmark != second.benchmark or not np.array_equal(first.cluster_P, second.cluster_P):
        raise InvalidArgumentError(
            f"expected the same problems, got {first.problems} of {first.benchmark} and "
            f"{second.problems} of {second.benchmark}"
        )
    difference_P = second.right_P / second.samples - first.right_P / first.samples
    total_C, error, clusters = _clustered(difference_P, first.cluster_P)
    size_C = np.unique(first.cluster_P, return_counts=True)[1]
    mean = float(difference_P.mean())
    # Two clusters of average size, one problem better and one worse, leave the sum and add to the
    # square.
    count = clusters + 2
    problems = first.problems * count / clusters
    centre = float(difference_P.sum()) / problems
    square = float(((total_C - centre * size_C) ** 2).sum()) + 1 + 1
    widened = math.sqrt(count / (count - 1) * square) / problems
    half = student_quantile(level, count - 1) * widened
    interval = Interval(
        mean, max(-1.0, min(mean, centre - half)), min(1.0, max(mean, centre + half)), level
    )
    better, worse = int((difference_P > 0).sum()), int((difference_P < 0).sum())
    same = first.problems - better - worse
    return PairedComparison(
        first.benchmark, interval, error, better, worse, same, centre, widened, clusters
    )


def _clustered(value_P: Float, cluster_P: NDArray[Any]) -> tuple[Float, float, int]:
    """Return the sum of each cluster, the clustered standard error of the mean, and the number
    of clusters.
    """
    _, place_P = np.unique(cluster_P, return_inverse=True)
    clusters = int(place_P.max()) + 1
    residual_C = np.bincount(place_P, value_P - value_P.mean(), clusters)
    error = math.nan
    if clusters > 1:
        error = math.sqrt(clusters / (clusters - 1) * float((residual_C**2).sum())) / len(value_P)
    return np.bincount(place_P, value_P, clusters).astype(np.float64), error, clusters


def answers_of(
    benchmark: str,
    verdicts: Sequence[Sequence[bool | None]],
    clusters: Sequence[str],
    *,
    cut: int = 0,
    too_long: int = 0,
) -> Answers:
    """Count verdicts, as many of every problem."""
    if not verdicts:
        raise InsufficientDataError(f"expected problems of {benchmark}, got none")
    right_P = np.array(
        [sum(verdict is True for verdict in row) for row in verdicts], dtype=np.int64
    )
    undecided = sum(verdict is None for row in verdicts for verdict in row)
    return Answers(
        benchmark, right_P, len(verdicts[0]), np.array(clusters), undecided, cut, too_long
    )


@frozen
class TransferRow(Plain):
    """One benchmark over the checkpoints of a run."""

    benchmark: str  # its name
    scores: tuple[Score, ...]  # mean@n at each checkpoint
    gain: PairedComparison  # last against first checkpoint, problem by problem
    # of this gain to that on what was trained on; None where nothing is named, and for that itself
    ratio: Interval | None
    # over checkpoints, with the mean on what was trained on; None below three checkpoints, or
    # without variation
    correlation: float | None


def transfer(
    checkpoints: Sequence[Mapping[str, Answers]],
    *,
    trained_on: str | None = None,
    level: float = 0.95,
) -> tuple[TransferRow, ...]:
    r"""Compare the checkpoints of a run on every benchmark.

    The ratio is $\bar d_b / \bar d_t$, the gain on a benchmark b over the gain on t, which was
    trained on, with Fieller's interval.
    """
    if len(checkpoints) < 2:
        raise InsufficientDataError(
            f"expected two checkpoints or more for transfer, got {len(checkpoints)}: keep more of "
            "them"
        )
    names = list(checkpoints[0])
    if any(list(answers) != names for answers in checkpoints) or (
        trained_on is not None and trained_on not in names
    ):
        raise InvalidArgumentError(
            f"expected every checkpoint on the same benchmarks and {trained_on!r} among them; got "
            f"{', '.join(names)}"
        )
    ordered = sorted(names, key=lambda name: name != trained_on)
    gains = {
        name: compare(checkpoints[0][name], checkpoints[-1][name], level=level) for name in names
    }
    scores = {
        name: tuple(mean_at(answers[name], level=level) for answers in checkpoints)
        for name in names
    }
    rows = []
    for name in ordered:
        other = trained_on is not None and name != trained_on
        ratio = gain_ratio(gains[name], gains[str(trained_on)], level=level) if other else None
        correlation = _correlation(scores[name], scores[str(trained_on)]) if other else None
        rows.append(TransferRow(name, scores[name], gains[name], ratio, correlation))
    return tuple(rows)


def gain_ratio(
    gain: PairedComparison, trained: PairedComparison, *, level: float = 0.95
) -> Interval:
    r"""Return one gain over another, with Fieller's interval.

    The $\rho$ with $(a - \rho b)^2 \le t^2 (v_a + \rho^2 v_b)$, a and b with the two clusters that
    `compare` adds to each, and t at the degrees of freedom of the one with fewer clusters. Without
    ends where the interval of b holds zero.

    Source: Fieller (1954), Journal of the Royal Statistical Society B 16, 175-185; the added
    clusters as in `compare`.
    """
    raw_a, raw_b = gain.difference.value, trained.difference.value
    ratio = raw_a / raw_b if raw_b else math.nan
    unknown = Interval(ratio, -math.inf, math.inf, level)
    a, b = gain.centre, trained.centre
    square = (
        student_quantile(level, min(gain.clusters, trained.clusters) + 1) ** 2
    )  # as many clusters and two, less one
    below = b * b - square * trained.widened_error**2
    if below <= 0 or trained.difference.low <= 0 <= trained.difference.high:
        return unknown
    root = math.sqrt(max(0.0, (a * b) ** 2 - below * (a * a - square * gain.widened_error**2)))
    return Interval(
        ratio, min(ratio, (a * b - root) / below), max(ratio, (a * b + root) / below), level
    )


def _correlation(own: Sequence[Score], other: Sequence[Score]) -> float | None:
    """Return the correlation of two rows of means."""
    if len(own) < 3:
        return None
    first, second = (
        np.array([score.interval.value for score in scores]) for scores in (own, other)
    )
    if first.std() == 0 or second.std() == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])
