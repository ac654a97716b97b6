"""The command `groupwise stability`: how far a run is from instability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groupwise.cli import shared as cli
from groupwise.errors import InsufficientDataError, MissingMetricError

if TYPE_CHECKING:
    from groupwise.analysis.fitted import Fitted
    from groupwise.analysis.stability import StabilityEvidence
    from groupwise.record.run import RunRecord


def stability(
    run: cli.Run,
    *,
    metric: cli.Metric = "reward",
    until: cli.Until = None,
    level: cli.FitLevel = 0.95,
    opening: cli.Opening,
    as_json: cli.Json = False,
) -> None:
    """How far a run is from instability.

    And what learning rate and interval would be safe.
    """
    from groupwise.analysis.fitted import fit_metric
    from groupwise.pages.screen import print_first_line
    from groupwise.pages.tables import evidence_grid
    from groupwise.pages.text import print_stability

    record = opening.open(run)
    judged = cli.judgement_of(record, until)
    evidence, data = _of_run(record, fit_metric(record, metric, until=until, level=level))
    if as_json:
        cli.print_json(cli.stands(judged) | data)
        return
    print_first_line(judged, cli.out_console())
    grids = [] if evidence.mode is None else [evidence_grid(evidence)]
    print_stability(evidence.conclusion, evidence.all_notes, cli.out_console(), grids=grids)


def _of_run(record: RunRecord, fitted: Fitted) -> tuple[StabilityEvidence, dict[str, Any]]:
    """Judge the mode that a run's reward shows."""
    from groupwise.analysis.stability import measured_stability, no_approach
    from groupwise.series.staleness import stability_setting

    if not fitted.rewarding:
        raise MissingMetricError(
            f"expected a reward, got {fitted.metric}: the force is read off the approach of a "
            "reward to its plateau"
        )
    if fitted.fit is not None and (problem := no_approach(fitted.fit)):
        raise InsufficientDataError(problem)
    setting = stability_setting(record)
    evidence = measured_stability(record, fitted, setting)
    data = {
        **evidence.as_dict(),
        "run": record.name,
        "metric": fitted.metric,
        "law": None if fitted.fit is None else fitted.fit.law,
        "optimizer": "adam" if setting.adam else "sgd",
        "importance_ratio": setting.lag.importance_ratio,
        "kl_term": setting.lag.kl_term,
        "trainer": None,
        "notes": list(evidence.all_notes),
    }
    return evidence, data
