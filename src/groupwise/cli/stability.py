"""The command `groupwise stability`: how far a run is from instability."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from groupwise.cli import shared as cli
from groupwise.errors import InsufficientDataError, MissingMetricError

if TYPE_CHECKING:
    from groupwise.analysis.fitted import Fitted
    from groupwise.analysis.stability import StabilityEvidence
    from groupwise.edge.trainers import LagSetting
    from groupwise.record.run import RunRecord


def stability(
    run: cli.Run,
    *,
    trainer: Annotated[
        str | None,
        cli.option("NAME", "Whose settings tell the lag: trl, verl, ... with them as --set."),
    ] = None,
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

    opening, trainer_lag = _trainer_apart(opening, trainer)
    record = opening.open(run)
    judged = cli.judgement_of(record, until)
    evidence, data = _of_run(
        record, trainer_lag, fit_metric(record, metric, until=until, level=level)
    )
    if as_json:
        cli.print_json(cli.stands(judged) | data)
        return
    print_first_line(judged, cli.out_console())
    grids = [] if evidence.mode is None else [evidence_grid(evidence)]
    print_stability(evidence.conclusion, evidence.all_notes, cli.out_console(), grids=grids)


def _trainer_apart(
    opening: cli.Opening, trainer: str | None
) -> tuple[cli.Opening, LagSetting | None]:
    """Take a trainer's own settings, and the lag that they tell, from the settings of the run."""
    from groupwise.edge.trainers import lag_of_trainer, takes

    if trainer is None:
        return opening, None
    own = {name: value for name, value in opening.settings.items() if takes(trainer, name)}
    rest = {name: value for name, value in opening.settings.items() if name not in own}
    return replace(opening, settings=rest), lag_of_trainer(trainer, own)


def _of_run(
    record: RunRecord, trainer_lag: LagSetting | None, fitted: Fitted
) -> tuple[StabilityEvidence, dict[str, Any]]:
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
    setting = stability_setting(record, trainer_lag)
    lag = setting.lag
    evidence = measured_stability(
        record, fitted, setting.momentum, lag, adam=setting.adam
    ).assuming(setting.assumption)
    data = {
        **evidence.as_dict(),
        "run": record.name,
        "metric": fitted.metric,
        "law": None if fitted.fit is None else fitted.fit.law,
        "optimizer": "adam" if setting.adam else "sgd",
        "importance_ratio": lag.importance_ratio,
        "kl_term": lag.kl_term,
        "trainer": None if trainer_lag is None else trainer_lag.as_dict(),
        "notes": list(evidence.all_notes),
    }
    return evidence, data
