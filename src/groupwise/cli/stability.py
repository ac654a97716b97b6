"""The command `groupwise stability`: how far a setting, or a run, is from instability."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from groupwise.cli import shared as cli
from groupwise.errors import InsufficientDataError, InvalidArgumentError, MissingMetricError

if TYPE_CHECKING:
    from groupwise.analysis.fitted import Fitted
    from groupwise.edge.trainers import LagSetting
    from groupwise.pages.tables import Grid
    from groupwise.record.run import RunRecord

_LONGEST = 1_000_000
_MOST_MODES = 100


def stability(
    path: Annotated[
        Path | None, cli.argument("RUN", "A log, a run folder or a saved record.")
    ] = None,
    *,
    learning_rate: Annotated[
        float | None, cli.option("E", "The learning rate, per update.", check=cli.positive)
    ] = None,
    momentum: Annotated[
        float | None,
        cli.option(
            "M",
            "The momentum of SGD, or beta1 of Adam.",
            check=cli.number("a number of at least 0 and below 1", lambda value: 0 <= value < 1),
        ),
    ] = None,
    stiffness: Annotated[
        str | None, cli.option("K1,K2", "The stiffness of one mode or of several; not with a run.")
    ] = None,
    refresh_interval: Annotated[
        int | None,
        cli.option(
            "R", "Updates between two generations, or a fixed lag.", check=cli.whole(1, _LONGEST)
        ),
    ] = None,
    lag_kind: Annotated[
        str | None, cli.option("KIND", "The kind of lag: none, fixed, refresh or async.")
    ] = None,
    trainer: Annotated[
        str | None,
        cli.option("NAME", "Instead of a lag: trl, verl, ... with its own settings as --set."),
    ] = None,
    optimizer: Annotated[str | None, cli.option("NAME", "sgd (the default) or adam.")] = None,
    second_moment: Annotated[
        float | None, cli.option("V", "Adam's second moment along the mode.", check=cli.positive)
    ] = None,
    metric: cli.Metric = "reward",
    until: cli.Until = None,
    level: cli.FitLevel = 0.95,
    opening: cli.Opening,
    as_json: cli.Json = False,
) -> None:
    """How far a setting, or a run, is from instability.

    And what learning rate and interval would be safe.
    """
    from groupwise.analysis.fitted import fit_metric
    from groupwise.edge.threshold import check_lag
    from groupwise.pages.screen import print_first_line
    from groupwise.pages.text import print_stability

    if lag_kind is not None:
        check_lag(lag_kind)
    if trainer is not None and (lag_kind is not None or refresh_interval is not None):
        raise InvalidArgumentError(
            "expected --trainer or --lag-kind with --refresh-interval, got both: a trainer's "
            "settings tell the lag"
        )
    typed = {
        "learning_rate": learning_rate,
        "momentum": momentum,
        "lag_kind": lag_kind,
        "refresh_interval": refresh_interval,
        "optimizer": optimizer,
    }
    opening, trainer_lag = _trainer_apart(opening, trainer)
    judged = None
    if path is None:
        typed["stiffness"], typed["second_moment"] = stiffness, second_moment
        answer = _of_numbers(typed, opening, trainer_lag)
    else:
        for name, value in (("--stiffness", stiffness), ("--second-moment", second_moment)):
            if value is not None:
                raise InvalidArgumentError(
                    f"expected a run or {name}, got both: a run tells the force itself; leave out "
                    "one of them"
                )
        record = _with_typed(opening.open(path), typed)
        judged = cli.judgement_of(record, until)
        answer = _of_run(record, trainer_lag, fit_metric(record, metric, until=until, level=level))
    if as_json:
        cli.print_json(({} if judged is None else cli.stands(judged)) | answer.data)
        return
    if judged is not None:
        print_first_line(judged, cli.out_console())
    print_stability(answer.conclusion, answer.data["notes"], cli.out_console(), grids=answer.grids)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is printed, as data and as tables."""

    conclusion: str
    data: dict[str, Any]
    grids: list[Grid]


def _with_typed(record: RunRecord, typed: dict[str, Any]) -> RunRecord:
    """Let what was typed stand in for what the run says."""
    given = {**typed, "beta1": typed["momentum"]}
    return replace(record, config=record.config.with_settings(given, "the command line"))


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


def _stiffnesses(text: str) -> list[float]:
    """Split the stiffnesses, stiffest first."""
    stiffness = sorted(cli.numbers("--stiffness", text, "0.5,20"), reverse=True)
    if stiffness[-1] <= 0:
        raise InvalidArgumentError(
            f"--stiffness expects numbers above 0; got {stiffness[-1]:g}: "
            "where it is not positive the fixed point is no stable one, and no learning rate "
            "makes it so"
        )
    if len(stiffness) > _MOST_MODES:
        raise InvalidArgumentError(
            f"--stiffness expects at most {_MOST_MODES} modes; got {len(stiffness)}"
        )
    return stiffness


def _forces(
    stiffness: list[float], rate: float, momentum: float, second_moment: float | None
) -> list[float]:
    """Return the force per update of each mode."""
    scale = rate
    if second_moment is not None:
        scale *= (1 - momentum) / math.sqrt(second_moment)
    if not (math.isfinite(scale * stiffness[0]) and scale * stiffness[-1] > 0):
        raise InvalidArgumentError(
            "expected --learning-rate times --stiffness between the least and the largest "
            f"number of the machine, got {rate:g} times {stiffness[0]:g}"
        )
    return [scale * value for value in stiffness]


def _of_numbers(
    typed: dict[str, Any], opening: cli.Opening, trainer_lag: LagSetting | None
) -> _Answer:
    """Judge a setting whose stiffness is known."""
    from groupwise.analysis.margin import judged
    from groupwise.analysis.stability import ADAM, NO_INTERVAL
    from groupwise.edge.trainers import LagSetting
    from groupwise.pages.tables import mode_grid, stability_grid
    from groupwise.series.staleness import kl_notes, optimizer_of, request_for

    if opening:
        raise InvalidArgumentError(
            "expected --set with --trainer, or with a run, and --column or --config with a run "
            f"alone, got {', '.join(opening.settings) or 'one without a run'}: leave it out"
        )
    adam = typed["optimizer"] is not None and optimizer_of(typed["optimizer"]) == "adam"
    _refuse_missing(typed, adam=adam, lag_known=trainer_lag is not None)
    interval = 1 if typed["lag_kind"] == "none" else int(typed["refresh_interval"] or 1)
    lag = trainer_lag or LagSetting(typed["lag_kind"], interval)
    rate, momentum = typed["learning_rate"], typed["momentum"]
    stiffness = _stiffnesses(typed["stiffness"])
    modes = tuple(
        judged(force, momentum, lag, learning_rate=rate)
        for force in _forces(stiffness, rate, momentum, typed["second_moment"])
    )
    mode = modes[0]
    notes = [*mode.notes, *([ADAM] if adam else []), *lag.notes, *kl_notes(lag)]
    notes += [request_for(lag.unknown_settings)] if lag.unknown_settings else []
    data: dict[str, Any] = {
        **mode.as_dict(),
        "learning_rate": rate,
        "stiffness": stiffness[0],
        "optimizer": "adam" if adam else "sgd",
        "importance_ratio": lag.importance_ratio,
        "kl_term": lag.kl_term,
        "modes": [
            {"stiffness": value, "stable": each.stable, "margin": each.margin}
            for value, each in zip(stiffness, modes, strict=True)
        ],
        "trainer": None if trainer_lag is None else trainer_lag.as_dict(),
        "asked": list(lag.unknown_settings),
        "notes": list(dict.fromkeys(notes)),
        **(NO_INTERVAL if mode.lag == "none" else {}),
    }
    grids = [stability_grid(mode)]
    grids += [mode_grid(modes, stiffness)] if len(modes) > 1 else []
    return _Answer(mode.status, data, grids)


def _refuse_missing(typed: dict[str, Any], *, adam: bool, lag_known: bool) -> None:
    """Ask for all that is missing at once."""
    needed = ["learning_rate", "momentum", "stiffness"]
    needed += [] if lag_known else ["lag_kind"]
    needed += [] if lag_known or typed["lag_kind"] == "none" else ["refresh_interval"]
    needed += ["second_moment"] if adam else []
    absent = [f"--{name.replace('_', '-')}" for name in needed if typed[name] is None]
    if absent:
        hint = ""
        if "--lag-kind" in absent:
            hint = "; a trainer's own settings tell the lag with --trainer NAME"
        if "--second-moment" in absent:
            hint += "; Adam divides by the root of its second moment, which is in no log"
        missing = ", no ".join(absent)
        raise InvalidArgumentError(f"expected a run or a whole setting, got no {missing}{hint}")
    if typed["second_moment"] is not None and not adam:
        raise InvalidArgumentError(
            "--second-moment is Adam's: add --optimizer adam, or leave it out"
        )


def _of_run(record: RunRecord, trainer_lag: LagSetting | None, fitted: Fitted) -> _Answer:
    """Judge the mode that a run's reward shows."""
    from groupwise.analysis.stability import measured_stability, no_approach
    from groupwise.pages.tables import evidence_grid
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
    grids = [] if evidence.mode is None else [evidence_grid(evidence)]
    return _Answer(evidence.conclusion, data, grids)
