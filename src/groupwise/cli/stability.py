"""The command `groupwise stability`: how far a run is from instability, and what would be safe."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from groupwise.cli import shared as cli
from groupwise.errors import MissingMetricError

if TYPE_CHECKING:
    from groupwise.edge.trainers import TrainerLag


def stability(
    run: cli.Run,
    *,
    trainer: Annotated[
        str | None,
        cli.option("NAME", "Count the lag by the settings of trl, verl, ..., given as --set."),
    ] = None,
    metric: cli.Metric = "reward",
    until: cli.Until = None,
    level: cli.FitLevel = 0.95,
    opening: cli.Opening,
    as_json: cli.Json = False,
) -> None:
    """How far a run is from instability, and what learning rate and interval would be safe."""
    from groupwise.analysis.fitted import fit_metric
    from groupwise.analysis.stability import measured_stability
    from groupwise.pages.tables import evidence_grid, limit_grid
    from groupwise.pages.text import print_stability
    from groupwise.series.staleness import lag_of, momentum_of, setting_of_trainer

    opening, trainer_lag = _trainer_apart(opening, trainer)
    record = opening.open(run)
    fitted = fit_metric(record, metric, until=until, level=level)
    momentum, adam = momentum_of(record)
    lag = lag_of(record) if trainer_lag is None else setting_of_trainer(trainer_lag)
    if not fitted.rewarding:
        raise MissingMetricError(
            f"expected a reward, got {fitted.metric}: the force is read off the approach of a "
            "reward to its plateau"
        )
    evidence = measured_stability(record, fitted, momentum, lag, adam=adam, warn=True)
    if as_json:
        cli.print_json(
            {
                **evidence.as_dict(),
                "run": record.name,
                "metric": fitted.metric,
                "law": None if fitted.fit is None else fitted.fit.law,
                "optimizer": "adam" if adam else "sgd",
                "importance_ratio": lag.importance_ratio if lag.ratio_known else None,
                "kl_term": lag.kl_term,
                "trainer": trainer_lag,
                "notes": evidence.all_notes,
            }
        )
        return
    grids = [] if evidence.mode is None else [evidence_grid(evidence)]
    grids += [limit_grid(evidence.limits)] if evidence.limits else []
    print_stability(evidence.conclusion, evidence.all_notes, cli.out_console(), grids=grids)


def _trainer_apart(
    opening: cli.Opening, trainer: str | None
) -> tuple[cli.Opening, TrainerLag | None]:
    """Take a trainer's own settings, and the lag that they tell, from the settings of the run."""
    from groupwise.edge.trainers import lag_of_trainer, takes

    if trainer is None:
        return opening, None
    own = {name: value for name, value in opening.settings.items() if takes(trainer, name)}
    rest = {name: value for name, value in opening.settings.items() if name not in own}
    return replace(opening, settings=rest), lag_of_trainer(trainer, own)
