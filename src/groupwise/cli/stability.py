"""The command `groupwise stability`: how far a setting, or a run, is from instability, and what
would be safe.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from groupwise.cli import shared as cli
from groupwise.errors import InvalidArgumentError, MissingMetricError
from groupwise.files import free_target, write_whole

if TYPE_CHECKING:
    from groupwise.analysis.charts import Chart
    from groupwise.analysis.fitted import Fitted
    from groupwise.pages.tables import Grid
    from groupwise.record.run import RunRecord
    from groupwise.series.staleness import LagSetting
    from groupwise.stability.trainers import TrainerLag

_LONGEST = 1_000_000
_MOST_MODES = 100
_WIDEST_SHARE = 100
_CHOSEN = (
    "The law was named, not found: what describes the reward best is for groupwise fit to say."
)


def stability(
    path: Annotated[
        Path | None, cli.argument("RUN", "A log, a run folder or a saved record.")
    ] = None,
    *,
    learning_rate: Annotated[
        float | None, cli.option("E", "The learning rate, per update.", check=cli.positive)
    ] = None,
    momentum: Annotated[
        float | None, cli.option("M", "The momentum of SGD, or beta1 of Adam.")
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
    importance_ratio: Annotated[
        str | None,
        cli.option(
            "KIND",
            "none (the default), exact or clipped.",
            check=cli.one_of("none", "exact", "clipped"),
        ),
    ] = None,
    kl_in: Annotated[
        str | None,
        cli.option(
            "PLACE",
            "Where the KL term is: none, reward or loss.",
            check=cli.one_of("none", "reward", "loss"),
        ),
    ] = None,
    stale_share: Annotated[
        float | None,
        cli.option("S", "Stale share of the force: 1 unless a KL term is in the loss."),
    ] = None,
    output: Annotated[
        Path | None, cli.option("FILE", "Draw the map into this .html page.", "--output", "-o")
    ] = None,
    metric: cli.Metric = "reward",
    law: Annotated[
        str | None, cli.option("NAME", "Read the force off this law instead of the best one.")
    ] = None,
    until: cli.Until = None,
    level: cli.FitLevel = 0.95,
    opening: cli.Opening,
    as_json: cli.Json = False,
    force: Annotated[bool, cli.flag("--force", "Overwrite a map that is there already.")] = False,
) -> None:
    """How far a setting, or a run, is from instability, and what learning rate and interval
    would be safe.
    """
    from groupwise.analysis.fitted import fit_metric
    from groupwise.forecasting.laws import law_by_name
    from groupwise.pages.text import print_stability

    typed = Typed(
        learning_rate=learning_rate,
        momentum=momentum,
        stiffness=stiffness,
        optimizer=optimizer,
        second_moment=second_moment,
        lag_kind=lag_kind,
        refresh_interval=refresh_interval,
        importance_ratio=importance_ratio,
        kl_in=kl_in,
        stale_share=stale_share,
    )
    typed.check(trainer)
    if law is not None:
        law_by_name(law)
    paths = [place for place in (path, opening.config) if place is not None]
    inputs = list(paths)
    if output is not None:
        free_target(output, inputs, force=force, endings=(".html",))
    opening, trainer_lag = _trainer_apart(opening, trainer, of_run=path is not None)
    if path is None:
        answer = _of_numbers(typed, trainer_lag)
    else:
        record = opening.open(path)
        inputs += cli.logs_of(record)
        fit = partial(fit_metric, metric=metric, until=until, level=level, law=law)
        answer = _of_run(typed.over(record), typed, trainer_lag, fit)
        if law is not None:
            answer.data["notes"].append(_CHOSEN)
    if output is not None:
        free_target(output, inputs, force=force)
        write_whole(output, answer.drawn([*paths, output]), force=force)
    if as_json:
        cli.print_json(answer.data)
        return
    print_stability(answer.conclusion, answer.data["notes"], cli.out_console(), grids=answer.grids)
    if output is not None:
        cli.print_lines(f"\nThe map: {output}")


@dataclass(frozen=True, slots=True)
class Typed:
    """A setting as typed; None is not given."""

    learning_rate: float | None  # eta
    momentum: float | None  # mu, or beta1 of Adam
    stiffness: str | None  # one K, or several with commas
    optimizer: str | None  # sgd or adam
    second_moment: float | None  # of Adam along the mode
    lag_kind: str | None  # none, fixed, refresh or async
    refresh_interval: int | None  # updates between two generations; of a fixed lag the lag itself
    importance_ratio: str | None  # none, exact or clipped
    kl_in: str | None  # none, reward or loss
    stale_share: float | None  # share of the force that is stale

    def check(self, trainer: str | None) -> None:
        """Check what needs no run: ranges and names, and that the lag is said once."""
        from groupwise.series.staleness import optimizer_of
        from groupwise.stability.threshold import lag_by_name

        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise InvalidArgumentError(
                f"--momentum expects a number of at least 0 and below 1; got {self.momentum:g}"
            )
        if self.stale_share is not None and not abs(self.stale_share) <= _WIDEST_SHARE:
            raise InvalidArgumentError(
                f"--stale-share expects a number of at most {_WIDEST_SHARE} in size; got "
                f"{self.stale_share:g}"
            )
        if self.lag_kind is not None:
            lag_by_name(self.lag_kind)
        if self.optimizer is not None:
            optimizer_of(self.optimizer)
        if trainer is not None and (self.lag_kind is not None or self.refresh_interval is not None):
            raise InvalidArgumentError(
                "expected --trainer or --lag-kind with --refresh-interval, got both: a trainer's "
                "settings tell the lag"
            )

    @property
    def adam(self) -> bool:
        """Whether Adam was named."""
        from groupwise.series.staleness import optimizer_of

        return self.optimizer is not None and optimizer_of(self.optimizer) == "adam"

    def stiffnesses(self) -> list[float]:
        """Split the stiffnesses, stiffest first."""
        stiffness = sorted(cli.numbers("--stiffness", self.stiffness or "", "0.5,20"), reverse=True)
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

    def forces(self, stiffness: list[float]) -> list[float]:
        """Return the force per update of each mode of a whole setting."""
        from groupwise.stability.mode import adam_force

        rate = scale = float(self.learning_rate or 0)
        if self.second_moment is not None:
            scale *= adam_force(1.0, 1.0, float(self.momentum or 0), self.second_moment)
        if not (math.isfinite(scale * stiffness[0]) and scale * stiffness[-1] > 0):
            raise InvalidArgumentError(
                "expected --learning-rate times --stiffness between the least and the largest "
                f"number of the machine, got {rate:g} times {stiffness[0]:g}"
            )
        return [scale * value for value in stiffness]

    def over(self, record: RunRecord) -> RunRecord:
        """Let what was typed stand in for what the run says."""
        names = ("learning_rate", "optimizer", "momentum", "lag_kind", "refresh_interval")
        given = {name: getattr(self, name) for name in (*names, "importance_ratio", "kl_in")}
        config = record.config.with_settings({**given, "beta1": self.momentum}, "the command line")
        return replace(record, config=config)

    def on(self, lag: LagSetting) -> LagSetting:
        """Return a lag with what was typed of the loss in the place of what the settings say."""
        from groupwise.series.staleness import UNKNOWN_RATIO
        from groupwise.stability.trainers import KL_SETTINGS, RATIO_SETTINGS

        change: dict[str, Any] = {}
        unknown = set(lag.unknown_settings)
        if self.importance_ratio is not None:
            unknown -= RATIO_SETTINGS
            notes = tuple(note for note in lag.notes if note != UNKNOWN_RATIO)
            change |= {"importance_ratio": self.importance_ratio, "ratio_known": True}
            change |= {"notes": notes}
        if self.kl_in is not None:
            unknown -= KL_SETTINGS
            change["kl_term"] = self.kl_in
        if self.stale_share is not None:
            change["stale_share"] = self.stale_share
        left = tuple(name for name in lag.unknown_settings if name in unknown)
        return replace(lag, unknown_settings=left, **change)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is printed, as data, as tables and as a map."""

    title: str
    conclusion: str
    data: dict[str, Any]
    grids: list[Grid]
    chart: Callable[[], Chart] | None

    def drawn(self, typed: list[Path]) -> str:
        """Return the file of the map."""
        from groupwise.pages.html import made_by, stability_page

        if self.chart is None:
            raise InvalidArgumentError(
                f"expected a setting that has a map for -o, got one without: {self.conclusion}"
            )
        return stability_page(
            self.title,
            self.conclusion,
            self.chart(),
            self.grids,
            self.data["notes"],
            results=self.data,
            made=made_by(cli.typed_arguments(typed)),
        )


def _trainer_apart(
    opening: cli.Opening, trainer: str | None, *, of_run: bool
) -> tuple[cli.Opening, TrainerLag | None]:
    """Take a trainer's own settings, and the lag that they tell, from the settings of the run;
    without a run none may be left.
    """
    from groupwise.stability.trainers import lag_of_trainer, takes

    own: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in opening.settings.items():
        of_trainer = trainer is not None and takes(trainer, name)
        (own if of_trainer else rest)[name] = value
    opening = replace(opening, settings=rest)
    if not of_run and opening.settings:
        names = ", ".join(name[:60] for name in opening.settings)
        whose = (
            f"settings of {trainer} that tell its lag"
            if trainer
            else "--set with --trainer, or with a run"
        )
        raise InvalidArgumentError(
            f"expected {whose}, got {names}: without a run there is --learning-rate, --momentum "
            "and so on"
        )
    if not of_run and opening:
        raise InvalidArgumentError(
            "expected a run with --column or --config, got none: name the run, or leave them out"
        )
    return opening, None if trainer is None else lag_of_trainer(trainer, own)


def _of_numbers(typed: Typed, trainer_lag: TrainerLag | None) -> _Answer:
    """Judge a setting whose stiffness is known."""
    from groupwise.analysis.margin import judged
    from groupwise.analysis.stability import ADAM, NO_INTERVAL, map_chart, with_ratio
    from groupwise.pages.tables import limit_grid, mode_grid, stability_grid
    from groupwise.series.staleness import LagSetting, kl_notes, request_for, setting_of_trainer
    from groupwise.stability.mode import rate_limits

    _refuse_missing(typed, lag_known=trainer_lag is not None)
    interval = 1 if typed.lag_kind == "none" else int(typed.refresh_interval or 1)
    lag = typed.on(
        LagSetting(str(typed.lag_kind), interval)
        if trainer_lag is None
        else setting_of_trainer(trainer_lag)
    )
    rate, momentum = float(typed.learning_rate or 0), float(typed.momentum or 0)
    stiffness = typed.stiffnesses()
    modes = tuple(
        judged(force, momentum, lag, learning_rate=rate) for force in typed.forces(stiffness)
    )
    mode = modes[0]
    limits = rate_limits(mode, rate)
    notes = [*mode.notes, *([ADAM] if typed.adam else []), *lag.notes, *kl_notes(lag)]
    notes += [request_for(lag.unknown_settings)] if lag.unknown_settings else []
    data: dict[str, Any] = {
        **mode.as_dict(),
        "learning_rate": rate,
        "stiffness": stiffness[0],
        "optimizer": "adam" if typed.adam else "sgd",
        "importance_ratio": lag.importance_ratio,
        "kl_term": lag.kl_term,
        "limits": [limit.as_dict() for limit in limits],
        "modes": [
            {"stiffness": value, "stable": each.stable, "margin": each.margin}
            for value, each in zip(stiffness, modes, strict=True)
        ],
        "trainer": None if trainer_lag is None else trainer_lag.as_dict(),
        "asked": list(lag.unknown_settings),
        "notes": list(dict.fromkeys(notes)),
        **(NO_INTERVAL if mode.lag == "none" else {}),
    }
    grids = [stability_grid(mode), limit_grid(limits)]
    grids += [mode_grid(modes, stiffness)] if len(modes) > 1 else []
    conclusion = " ".join((mode.status, *with_ratio(mode, lag.importance_ratio)))
    chart = partial(map_chart, mode, rate)
    return _Answer("Stability of a setting", conclusion, data, grids, chart)


def _refuse_missing(typed: Typed, *, lag_known: bool) -> None:
    """Ask for all that is missing at once."""
    no_lag = typed.lag_kind is None and not lag_known
    no_interval = typed.refresh_interval is None and typed.lag_kind != "none" and not lag_known
    no_second_moment = typed.second_moment is None and typed.adam
    absent = {
        "--learning-rate": typed.learning_rate is None,
        "--momentum": typed.momentum is None,
        "--stiffness": typed.stiffness is None,
        "--lag-kind": no_lag,
        "--refresh-interval": no_interval,
        "--second-moment": no_second_moment,
    }
    if any(absent.values()):
        hint = "; a trainer's own settings tell the lag with --trainer NAME" if no_lag else ""
        if no_second_moment:
            hint += "; Adam divides by the root of its second moment, which is in no log"
        missing = ", no ".join(name for name, lacks in absent.items() if lacks)
        raise InvalidArgumentError(f"expected a run or a whole setting, got no {missing}{hint}")
    if typed.second_moment is not None and not typed.adam:
        raise InvalidArgumentError(
            "--second-moment is Adam's: add --optimizer adam, or leave it out"
        )


def _of_run(
    record: RunRecord,
    typed: Typed,
    trainer_lag: TrainerLag | None,
    fit: Callable[[RunRecord], Fitted],
) -> _Answer:
    """Judge the mode that a run's reward shows."""
    from groupwise.analysis.stability import measured_stability
    from groupwise.pages.tables import evidence_grid, limit_grid
    from groupwise.series.staleness import lag_of, momentum_of, setting_of_trainer

    for name in ("stiffness", "second_moment", "stale_share"):
        if getattr(typed, name) is not None:
            raise InvalidArgumentError(
                f"expected a run or --{name.replace('_', '-')}, got both: a run tells the force "
                "itself; leave out one of them"
            )
    momentum, adam = momentum_of(record)
    lag = typed.on(lag_of(record) if trainer_lag is None else setting_of_trainer(trainer_lag))
    fitted = fit(record)
    if not fitted.rewarding:
        raise MissingMetricError(
            f"expected a reward, got {fitted.metric}: the force is read off the approach of a "
            "reward to its plateau"
        )
    evidence = measured_stability(record, fitted, momentum, lag, adam=adam, warn=True)
    data = {
        **evidence.as_dict(),
        "run": record.name,
        "metric": fitted.metric,
        "law": None if fitted.fit is None else fitted.fit.law,
        "optimizer": "adam" if adam else "sgd",
        "importance_ratio": lag.importance_ratio if lag.ratio_known else None,
        "kl_term": lag.kl_term,
        "trainer": None if trainer_lag is None else trainer_lag.as_dict(),
        "notes": list(evidence.all_notes),
    }
    grids = [] if evidence.mode is None else [evidence_grid(evidence)]
    grids += [limit_grid(evidence.limits)] if evidence.limits else []
    chart = partial(evidence.charts.__getitem__, 0) if evidence.charts else None
    return _Answer(record.name, evidence.conclusion, data, grids, chart)
