"""Many backtests put together: clusters weigh the same, and intervals are drawn over them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from groupwise.errors import InsufficientDataError
from groupwise_lab.forecasts.results import Backtest, Tally
from groupwise_lab.forecasts.scoreboard import mean_of_clusters, summarise_backtests


def score(
    ours: float,
    last: float,
    smooth: float,
    covered: int,
    *,
    share: float = 0.4,
    winkler: float = 1.0,
    deviation: float = 2.0,
) -> Backtest:
    """A score with two other methods; what is not covered lies above."""
    part = (
        {"groupwise": ours, "last_mean": last, "smoothing": smooth},
        covered,
        10,
        10 - covered,
        0,
        covered - 1,
        {"groupwise": winkler},
        {"groupwise": winkler / 10},
        {"windows": winkler / 2, "rows": winkler},
    )
    return Backtest(*part, 0.9, 40, 60, share, deviation, (Tally(*part),) * 3)


def test_ratios_are_geometric_means_over_runs() -> None:
    summary = summarise_backtests([("a", score(0.1, 0.2, 0.1, 9)), ("b", score(0.2, 0.2, 0.8, 7))])
    assert summary.whole.ratios["last_mean"].value == pytest.approx(math.sqrt(0.5 * 1.0))
    assert summary.whole.ratios["smoothing"].value == pytest.approx(math.sqrt(1.0 * 0.25))
    assert summary.best_simple == "last_mean"
    assert (summary.runs, summary.clusters) == (2, 2)
    assert summary.whole.coverage.value == pytest.approx(0.8)
    assert [summary.whole.above, summary.whole.below] == pytest.approx([0.2, 0.0])
    assert summary.whole.row_coverage.value == pytest.approx(0.7)


def test_runs_of_one_cluster_count_once() -> None:
    """Three seeds of one sweep weigh as much as the one run beside them."""
    seeds = [("sweep", score(0.1, 0.4, 0.1, 10))] * 3
    summary = summarise_backtests([*seeds, ("alone", score(0.4, 0.1, 0.4, 5))])
    assert summary.whole.ratios["last_mean"].value == pytest.approx(1.0)
    assert (summary.runs, summary.clusters) == (4, 2)
    assert summary.whole.coverage.value == pytest.approx(0.75)


def test_scores_are_arithmetic_means_in_standard_deviations_of_the_run() -> None:
    """1 over 2 and 9 over 3 come to 1.75."""
    summary = summarise_backtests(
        [
            ("a", score(1, 1, 1, 9, winkler=1, deviation=2)),
            ("b", score(1, 1, 1, 9, winkler=9, deviation=3)),
        ]
    )
    assert summary.whole.interval_scores == {"groupwise": pytest.approx(1.75)}
    assert summary.whole.crps == {"groupwise": pytest.approx(0.175)}
    assert summary.whole.widths == pytest.approx({"windows": 0.875, "rows": 1.75})
    assert summary.shares[0].thirds[2].interval_scores == {"groupwise": pytest.approx(1.75)}


def test_shares_are_told_apart_and_together() -> None:
    """Errors of .5 and 1/8 of the last mean: a quarter over both; runs that one share has no
    score of count where they have one.
    """
    early = [(cluster, score(0.1, 0.2, 0.1, 6, share=0.1)) for cluster in "ab"]
    late = [("a", score(0.1, 0.8, 0.1, 10, share=0.6))]
    summary = summarise_backtests([*late, *early])
    assert [(share.share, share.runs, share.clusters) for share in summary.shares] == [
        (0.1, 2, 2),
        (0.6, 1, 1),
    ]
    assert [share.whole.coverage.value for share in summary.shares] == pytest.approx([0.6, 1.0])
    # a: the geometric mean of 1/2 and 1/8; b: 1/2.
    assert summary.whole.ratios["last_mean"].value == pytest.approx(math.sqrt(0.25 * 0.5))
    assert summary.whole.coverage.value == pytest.approx((0.8 + 0.6) / 2)
    assert summary.runs == 2


def test_a_perfect_error_does_not_break_the_mean() -> None:
    summary = summarise_backtests([("a", score(0.0, 0.0, 0.1, 10))])
    assert summary.whole.ratios["last_mean"].value == pytest.approx(1.0)
    assert math.isfinite(summary.whole.ratios["smoothing"].value)


def test_the_unit_of_the_metric_does_not_matter() -> None:
    plain = summarise_backtests([("a", score(0.1, 0.2, 0.1, 9))])
    small = summarise_backtests([("a", score(1e-8, 2e-8, 1e-8, 9))])
    assert small.whole.ratios["last_mean"].value == pytest.approx(
        plain.whole.ratios["last_mean"].value
    )


def test_a_method_that_gave_up_on_a_run_is_held_against_the_others() -> None:
    some = score(0.1, 0.2, 0.1, 9)
    without = Backtest(
        {"groupwise": 0.1, "last_mean": 0.1}, 9, 10, 1, 0, 9, {}, {}, {}, 0.9, 40, 60, 0.4, 1.0, ()
    )
    summary = summarise_backtests([("a", some), ("b", without)])
    assert summary.whole.ratios["smoothing"].value == pytest.approx(1.0)
    assert summary.whole.ratios["last_mean"].value == pytest.approx(math.sqrt(0.5))


def test_one_cluster_tells_nothing_of_how_far_it_may_be_off() -> None:
    summary = summarise_backtests([("a", score(0.1, 0.2, 0.1, 9))] * 8)
    ratio, coverage = summary.whole.ratios["last_mean"], summary.whole.coverage
    assert (ratio.low, ratio.high) == (0.0, math.inf)
    assert [coverage.value, coverage.low, coverage.high] == pytest.approx([0.9, 0.0, 1.0])


def test_the_interval_over_clusters_is_that_of_their_bootstrap() -> None:
    """Of 0 and 1, forty times each: a mean of 80 has a standard error of .5/sqrt(80); the same
    in every call.
    """
    value = np.repeat([0.0, 1.0], 40)
    interval = mean_of_clusters(value)
    assert interval == mean_of_clusters(value)
    assert (interval.value, interval.level) == (0.5, 0.95)
    assert interval.low == pytest.approx(0.5 - 1.96 * 0.5 / math.sqrt(80), abs=0.012)
    assert interval.high == pytest.approx(0.5 + 1.96 * 0.5 / math.sqrt(80), abs=0.012)
    assert mean_of_clusters(np.full(5, 0.25)).width == 0


def test_nothing_to_summarise_is_an_error() -> None:
    with pytest.raises(InsufficientDataError, match="at least 20 finite rows"):
        summarise_backtests([])
