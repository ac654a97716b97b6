"""The command `groupwise stability`: how far a setting, or a run, is from instability, and what would be safe.

Options are checked and become a judgement of `groupwise.stability`; here nothing is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from groupwise.cli.shared import (
    Column,
    Config,
    FitLevel,
    Json,
    Metric,
    Opening,
    Settings,
    Until,
    argument,
    flag,
    free_target,
    option,
    out_console,
    print_json,
    typed_arguments,
    write_whole,
)
from groupwise.errors import InvalidArgumentError, MissingMetricError

if TYPE_CHECKING:
    from groupwise.analysis.charts import Chart
    from groupwise.record.run import RunRecord
    from groupwise.report.tables import Grid
    from groupwise.series.lag import LagSetting
    from groupwise.stability.map import StalenessRule
    from groupwise.stability.mode import Stability
    from groupwise.stability.trainers import TrainerLag


_PLACES = ("none", "reward", "loss")
_RATIOS = ("none", "exact", "clipped")
_LONGEST = 1_000_000
_MOST_MODES = 100
_WIDEST_SHARE = 100
_MOST_SHARES = 200


@dataclass(frozen=True, slots=True)
class Typed:
    """A setting as typed; None is not given."""

    learning_rate: float | None  # eta
    momentum: float | None  # mu, or beta1 of Adam
    stiffness: str | None  # one K, or several with commas
    refresh_interval: int | None  # updates between two generations; of a fixed lag the lag itself
    lag_kind: str | None  # none, fixed, refresh or async
    optimizer: str | None  # sgd or adam
    second_moment: float | None  # of Adam along the mode
    importance_ratio: str | None  # none, exact or clipped
    kl_in: str | None  # none, reward or loss
    trainer: str | None  # whose settings tell the lag
    stale_share: float | None = None  # share of the force that is stale
    lag_shares: str | None = None  # of the lags 0, 1, 2, ..., with commas: instead of a kind

    def __post_init__(self) -> None:
        """Check what needs no run."""
        for name, value in (("--learning-rate", self.learning_rate), ("--second-moment", self.second_moment)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidArgumentError(f"{name} expects a finite number above 0; got {value:g}")
        if self.momentum is not None and not 0 <= self.momentum < 1:
            raise InvalidArgumentError(f"--momentum expects a number of at least 0 and below 1; got {self.momentum:g}")
        if self.refresh_interval is not None and not 1 <= self.refresh_interval <= _LONGEST:
            raise InvalidArgumentError(f"--refresh-interval expects 1 to {_LONGEST:,} updates; got {self.refresh_interval}")
        for name, word, words in (("--importance-ratio", self.importance_ratio, _RATIOS), ("--kl-in", self.kl_in, _PLACES)):
            if word is not None and word not in words:
                raise InvalidArgumentError(f"{name} expects {', '.join(words[:-1])} or {words[-1]}; got {word[:60]!r}")
        if self.stale_share is not None and not (math.isfinite(self.stale_share) and abs(self.stale_share) <= _WIDEST_SHARE):
            raise InvalidArgumentError(f"--stale-share expects a number of at most {_WIDEST_SHARE} in size; got {self.stale_share:g}")
        self._check_names()

    def _check_names(self) -> None:
        """Check names, and that the lag is said once."""
        from groupwise.series.lag import optimizer_of
        from groupwise.stability.lags import lag_by_name

        if self.lag_kind is not None:
            lag_by_name(self.lag_kind)
        if self.optimizer is not None:
            optimizer_of(self.optimizer)
        said_twice = self.lag_kind is not None or self.refresh_interval is not None
        if self.trainer is not None and (said_twice or self.lag_shares is not None):
            raise InvalidArgumentError(
                "expected --trainer or --lag-kind with --refresh-interval, got both: a trainer's settings tell the lag"
            )
        if self.lag_shares is not None and said_twice:
            raise InvalidArgumentError("expected --lag-shares or --lag-kind with --refresh-interval, got both: the shares tell the lag")
        if self.lag_shares is not None and self.stale_share is not None:
            raise InvalidArgumentError("expected --lag-shares or --stale-share, got both: what is current has a lag of 0, the first share")

    def mixture(self) -> LagSetting | None:
        """Return the lag whose shares were typed, or None where none were."""
        from groupwise.series.lag import LagSetting
        from groupwise.stability.lags import shares

        if self.lag_shares is None:
            return None
        try:
            weight = [float(part) for part in self.lag_shares.split(",")]
        except ValueError:
            weight = []
        if not weight or len(weight) > _MOST_SHARES:
            raise InvalidArgumentError(
                f"--lag-shares expects 1 to {_MOST_SHARES} numbers with commas, shares of lags 0, 1, 2, ...; got {self.lag_shares[:60]!r}"
            )
        shares(weight)
        return self.answered(LagSetting("mixed", 1, weight_D=tuple(weight)))

    @property
    def adam(self) -> bool:
        """Whether Adam was named."""
        from groupwise.series.lag import optimizer_of

        return self.optimizer is not None and optimizer_of(self.optimizer) == "adam"

    def stiffnesses(self) -> list[float]:
        """Split the stiffnesses, stiffest first."""
        found = []
        for part in (self.stiffness or "").split(","):
            if not part.strip():
                raise InvalidArgumentError(f"--stiffness expects numbers above 0, with commas between several; got {self.stiffness!r}")
            try:
                value = float(part)
            except ValueError:
                value = math.nan
            if not (math.isfinite(value) and value > 0):
                raise InvalidArgumentError(
                    f"--stiffness expects numbers above 0, with commas between several; got {part.strip()[:60]!r}: "
                    "where it is not positive the fixed point is no stable one, and no learning rate makes it so"
                )
            found.append(value)
        if len(found) > _MOST_MODES:
            raise InvalidArgumentError(f"--stiffness expects at most {_MOST_MODES} modes; got {len(found)}")
        return sorted(found, reverse=True)

    def answered(self, lag: LagSetting) -> LagSetting:
        """Return a lag with what was typed of the loss in the place of what was found or asked."""
        from groupwise.series.lag import UNKNOWN_RATIO
        from groupwise.stability.trainers import KL_SETTINGS, RATIO_SETTINGS

        if self.importance_ratio is not None:
            asked = tuple(name for name in lag.asked if name not in RATIO_SETTINGS)
            notes = tuple(note for note in lag.notes if note != UNKNOWN_RATIO)
            lag = replace(lag, importance_ratio=self.importance_ratio, asked=asked, notes=notes, ratio_known=True)  # type: ignore[arg-type]
        if self.kl_in is not None:
            asked = tuple(name for name in lag.asked if name not in KL_SETTINGS)
            lag = replace(lag, kl_term=self.kl_in, asked=asked)  # type: ignore[arg-type]
        return lag if self.stale_share is None else replace(lag, stale_share=self.stale_share)


@dataclass(frozen=True, slots=True)
class Rival:
    """The constants of the rival rule as typed; None is not given."""

    horizon: float | None  # updates of the run
    update_norm: float | None  # norm of one update over the learning rate
    batch_radius: float | None  # distance over which a batch stays useful
    critical_radius: float | None  # distance to collapse

    def rule(self, staleness: int) -> StalenessRule | None:
        """Return the rule, or None where none of it was given."""
        from groupwise.stability.map import StalenessRule

        given = {"--horizon": self.horizon, "--update-norm": self.update_norm, "--batch-radius": self.batch_radius}
        given["--critical-radius"] = self.critical_radius
        values = [value for value in given.values() if value is not None]
        if not values:
            return None
        if len(values) < len(given):
            missing = [name for name, value in given.items() if value is None]
            raise InvalidArgumentError(f"expected all four constants of the rule of 2607.01083 or none, got no {' and no '.join(missing)}")
        return StalenessRule(float(staleness), *values)


_CHOSEN = "The law was named, not found: what describes the reward best is for groupwise fit to say."


@dataclass(frozen=True, slots=True)
class Given:
    """What else was typed of the run and of its trainer."""

    settings: Sequence[str]  # of --set: the trainer's own, and those of a run
    column: Sequence[str]  # of --column
    config: Path | None  # a file with settings of the run


@dataclass(frozen=True, slots=True)
class Reading:
    """How the force is read off a run."""

    metric: str  # what approaches a plateau
    law: str | None  # the one law to read it off, or None for the best
    until: float | None  # last step to use
    level: float  # coverage of the intervals


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is printed, as data, as tables and as a map."""

    title: str
    said: str
    found: Stability | None
    data: Mapping[str, Any]
    grids: Sequence[Grid]
    notes: Sequence[str]
    chart: Callable[[], Chart] | None


def run(
    path: Path | None,
    typed: Typed,
    rival: Rival,
    given: Given,
    reading: Reading,
    *,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Judge, print, and write the map where one was asked for."""
    inputs = [place for place in (path, given.config) if place is not None]
    if output is not None:
        if output.suffix.lower() not in {".html", ".svg"}:
            raise InvalidArgumentError(f"-o expects a name that ends in .html or .svg; got {output.name!r}")
        free_target(output, inputs, force=force)
    opening, own = _split(typed, given)
    if path is None:
        _refuse_unused(opening, typed)
        answer = _of_numbers(typed, _told(typed, own), rival)
    else:
        told = _told(typed, own)
        record = opening.open(path)
        inputs += [Path(source.path) for source in record.sources]
        answer = _of_run(record, typed, told, rival, reading)
    if output is not None:
        if answer.chart is None:
            raise InvalidArgumentError(f"expected a setting that has a map for -o, got one without: {answer.said}")
        free_target(output, inputs, force=force)
        write_whole(output, _drawn(answer, answer.chart(), output, [*inputs[:2], output]), force=force)
    if as_json:
        print_json(answer.data)
        return
    from groupwise.report.text import print_stability

    console = out_console()
    print_stability(answer.found, answer.notes, console, grids=answer.grids, said=answer.said)
    if output is not None:
        console.print(f"\nThe map: {output}", highlight=False, markup=False, soft_wrap=True)


def _refuse_unused(opening: Opening, typed: Typed) -> None:
    """Refuse what only a run could use."""
    if opening.settings:
        names = ", ".join(name[:60] for name in opening.settings)
        whose = f"settings of {typed.trainer} that tell its lag" if typed.trainer else "--set with --trainer, or with a run"
        raise InvalidArgumentError(f"expected {whose}, got {names}: without a run there is --learning-rate, --momentum and so on")
    if opening.columns or opening.config:
        raise InvalidArgumentError("expected a run with --column or --config, got none: name the run, or leave them out")


def _split(typed: Typed, given: Given) -> tuple[Opening, dict[str, str]]:
    """Take a trainer's own settings from those of the run."""
    opening = Opening.parse(column=given.column, settings=given.settings, config=given.config)
    if typed.trainer is None:
        return opening, {}
    from groupwise.stability.trainers import takes

    own = {name: value for name, value in opening.settings.items() if takes(typed.trainer, name)}
    rest = {name: value for name, value in opening.settings.items() if name not in own}
    return replace(opening, settings=rest), own


def _told(typed: Typed, own: Mapping[str, str]) -> tuple[TrainerLag, LagSetting] | None:
    """Return the lag that a trainer's settings tell, or None where no trainer was named."""
    if typed.trainer is None:
        return None
    from groupwise.series.lag import setting_of_trainer
    from groupwise.stability.trainers import lag_of_trainer

    found = lag_of_trainer(typed.trainer, own)
    return found, typed.answered(setting_of_trainer(found))


def _of_numbers(typed: Typed, told: tuple[TrainerLag, LagSetting] | None, rival: Rival) -> _Answer:
    """Judge a setting whose stiffness is known."""
    from groupwise.analysis.stability import ADAM, mixture_notes, with_ratio
    from groupwise.analysis.stability_charts import map_chart
    from groupwise.diagnostics.margin import judged
    from groupwise.report.stability_tables import limit_grid, mode_grid, stability_grid
    from groupwise.series.lag import asking, kl_notes
    from groupwise.stability.map import adam_force, rate_limits

    rate, momentum, lag = _needed(typed, told)
    stiffness = typed.stiffnesses()
    scale = 1.0 if typed.second_moment is None else adam_force(1.0, 1.0, momentum, typed.second_moment)
    if not (math.isfinite(rate * scale * stiffness[0]) and rate * scale * stiffness[-1] > 0):
        raise InvalidArgumentError(
            "expected --learning-rate times --stiffness between the least and the largest number of the machine, "
            f"got {rate:g} times {stiffness[0]:g}"
        )
    modes = tuple(judged(rate * scale * value, momentum, lag, learning_rate=rate) for value in stiffness)
    found, rule = modes[0], rival.rule(lag.longest)
    limits = rate_limits(found, rate, rule)
    notes = [*found.notes, *([ADAM] if typed.adam else []), *lag.notes, *kl_notes(lag), *mixture_notes(found, lag)]
    notes = list(dict.fromkeys([*notes, *([asking(lag.asked)] if lag.asked else [])]))
    data: dict[str, Any] = {
        **found.as_dict(),
        "lag_shares": list(lag.weight_D) if lag.kind == "mixed" else None,
        "learning_rate": rate,
        "stiffness": stiffness[0],
        "optimizer": "adam" if typed.adam else "sgd",
        "importance_ratio": lag.importance_ratio,
        "kl_term": lag.kl_term,
        "limits": [limit.as_dict() for limit in limits],
        "modes": [{"stiffness": value, "stable": mode.stable, "margin": mode.margin} for value, mode in zip(stiffness, modes, strict=True)],
        "trainer": None if told is None else told[0].as_dict(),
        "asked": list(lag.asked),
        "notes": notes,
    }
    if found.lag in {"none", "mixed"}:
        data |= {"max_refresh_interval": None, "max_refresh_status": "not applicable"}  # there is no interval to be too long
    grids = [stability_grid(found), limit_grid(limits), *([mode_grid(modes, stiffness)] if len(modes) > 1 else [])]
    said = " ".join((found.status, *with_ratio(found, lag.importance_ratio)))
    chart = None if lag.kind == "mixed" else partial(map_chart, found, rate)
    return _Answer("Stability of a setting", said, found, data, grids, notes, chart)


def _needed(typed: Typed, told: tuple[TrainerLag, LagSetting] | None) -> tuple[float, float, LagSetting]:
    """Return learning rate, momentum and lag, or ask for all that is missing at once."""
    from groupwise.series.lag import LagSetting

    kind, mixture = typed.lag_kind, typed.mixture()
    told_elsewhere = told is not None or mixture is not None
    wanted: dict[str, object] = {
        "--learning-rate": typed.learning_rate,
        "--momentum": typed.momentum,
        "--stiffness": typed.stiffness,
        "--lag-kind": 1 if told_elsewhere else kind,
        "--refresh-interval": 1 if told_elsewhere or kind == "none" else typed.refresh_interval,
        "--second-moment": typed.second_moment if typed.adam else 1.0,
    }
    missing = [name for name, value in wanted.items() if value is None]
    if missing or typed.learning_rate is None or typed.momentum is None:
        hint = "; a trainer's own settings tell the lag with --trainer NAME" if "--lag-kind" in missing else ""
        hint += "; Adam divides by the root of its second moment, which is in no log" if "--second-moment" in missing else ""
        raise InvalidArgumentError(f"expected a run or a whole setting, got no {', no '.join(missing)}{hint}")
    if typed.second_moment is not None and not typed.adam:
        raise InvalidArgumentError("--second-moment is Adam's: add --optimizer adam, or leave it out")
    if told is not None:
        return typed.learning_rate, typed.momentum, told[1]
    if mixture is not None:
        return typed.learning_rate, typed.momentum, mixture
    lag = LagSetting(str(kind), 1 if kind == "none" else int(typed.refresh_interval or 1))
    return typed.learning_rate, typed.momentum, typed.answered(lag)


def _of_run(record: RunRecord, typed: Typed, told: tuple[TrainerLag, LagSetting] | None, rival: Rival, reading: Reading) -> _Answer:
    """Judge the mode that a run's reward shows."""
    for name, value in (("--stiffness", typed.stiffness), ("--second-moment", typed.second_moment), ("--stale-share", typed.stale_share)):
        if value is not None:
            raise InvalidArgumentError(f"expected a run or {name}, got both: a run tells the force itself; leave out one of them")
    from groupwise.analysis.fitted import fit_metric
    from groupwise.analysis.stability import measured_stability
    from groupwise.curves.laws import law_by_name
    from groupwise.report.stability_tables import evidence_grid, limit_grid
    from groupwise.series.lag import momentum_of

    if reading.law is not None:
        law_by_name(reading.law)
    record = _with_typed(record, typed)
    momentum, adam = momentum_of(record)
    lag = _lag_of_run(record, typed, told)
    fitted = fit_metric(record, reading.metric, until=reading.until, level=reading.level, law=reading.law, with_forecast=False)
    if not fitted.rewarding:
        raise MissingMetricError(f"expected a reward, got {fitted.metric}: the force is read off the approach of a reward to its plateau")
    evidence = measured_stability(record, fitted, momentum, lag, adam=adam, rule=rival.rule(lag.longest), warn=True)
    data = {
        **evidence.as_dict(),
        "run": record.name,
        "metric": fitted.metric,
        "law": None if fitted.fit is None else fitted.fit.law,
        "optimizer": "adam" if adam else "sgd",
        "importance_ratio": lag.importance_ratio if lag.ratio_known else None,
        "kl_term": lag.kl_term,
        "trainer": None if told is None else told[0].as_dict(),
    }
    grids = [] if evidence.found is None else [evidence_grid(evidence)]
    grids += [limit_grid(evidence.limits)] if evidence.limits else []
    notes = evidence.all_notes if reading.law is None else (*evidence.all_notes, _CHOSEN)
    chart = partial(evidence.charts.__getitem__, 0) if evidence.charts else None
    return _Answer(record.name, evidence.said, evidence.found, {**data, "notes": notes}, grids, notes, chart)


def _lag_of_run(record: RunRecord, typed: Typed, told: tuple[TrainerLag, LagSetting] | None) -> LagSetting:
    """The lag of a run: its trainer's, the shares typed, or what its settings say."""
    from groupwise.series.lag import lag_of

    if told is not None:
        return told[1]
    return typed.mixture() or typed.answered(lag_of(record))


def _with_typed(record: RunRecord, typed: Typed) -> RunRecord:
    """Let what was typed stand in for what the run says."""
    given = {
        "learning_rate": typed.learning_rate,
        "optimizer": typed.optimizer,
        "momentum": typed.momentum,
        "beta1": typed.momentum,
        "lag_kind": typed.lag_kind,
        "refresh_interval": typed.refresh_interval,
        "importance_ratio": typed.importance_ratio,
        "kl_in": typed.kl_in,
    }
    return replace(record, config=record.config.with_settings(given, "the command line"))


def _drawn(answer: _Answer, chart: Chart, output: Path, typed: Sequence[Path]) -> str:
    """Return the file of the map."""
    from groupwise.report.figures import standalone
    from groupwise.report.stability_page import stability_page

    if output.suffix.lower() == ".svg":
        return standalone(chart, prefix="map")
    from groupwise.report.html import made_by

    made = made_by(typed_arguments(typed))
    return stability_page(answer.title, answer.said, chart, answer.grids, answer.notes, results=answer.data, made=made)


def stability(
    path: Annotated[Path | None, argument("RUN", "A log, a run folder or a saved record.")] = None,
    *,
    learning_rate: Annotated[float | None, option("E", "The learning rate, per update.")] = None,
    momentum: Annotated[float | None, option("M", "The momentum of SGD, or beta1 of Adam.")] = None,
    stiffness: Annotated[str | None, option("K1,K2", "The stiffness of one mode or of several; not with a run.")] = None,
    refresh_interval: Annotated[int | None, option("R", "Updates between two generations, or a fixed lag.")] = None,
    lag_kind: Annotated[str | None, option("KIND", "The kind of lag: none, fixed, refresh or async.")] = None,
    lag_shares: Annotated[str | None, option("S0,S1", "Instead of one lag: shares of lags of 0, 1, 2, ... updates.")] = None,
    trainer: Annotated[str | None, option("NAME", "Instead of a lag: trl, verl, ... with its own settings as --set.")] = None,
    optimizer: Annotated[str | None, option("NAME", "sgd (the default) or adam.")] = None,
    second_moment: Annotated[float | None, option("V", "Adam's second moment along the mode.")] = None,
    importance_ratio: Annotated[str | None, option("KIND", "none (the default), exact or clipped.")] = None,
    kl_in: Annotated[str | None, option("PLACE", "Where the KL term is: none, reward or loss.")] = None,
    stale_share: Annotated[float | None, option("S", "Stale share of the force: 1 unless a KL term is in the loss.")] = None,
    horizon: Annotated[float | None, option("T", "For the rule of arXiv:2607.01083: updates of the run.")] = None,
    update_norm: Annotated[float | None, option("G", "For that rule: norm of an update over the learning rate.")] = None,
    batch_radius: Annotated[float | None, option("D", "For that rule: distance over which a batch stays useful.")] = None,
    critical_radius: Annotated[float | None, option("D", "For that rule: distance to collapse.")] = None,
    output: Annotated[Path | None, option("FILE", "Draw the map into this .html or .svg.", "--output", "-o")] = None,
    metric: Metric = "reward",
    law: Annotated[str | None, option("NAME", "Read the force off this law instead of the best one.")] = None,
    until: Until = None,
    level: FitLevel = 0.95,
    settings: Settings = None,
    config: Config = None,
    column: Column = None,
    as_json: Json = False,
    force: Annotated[bool, flag("--force", "Overwrite a map that is there already.")] = False,
) -> None:
    """How far a setting, or a run, is from instability, and what learning rate and interval would be safe."""
    typed = Typed(
        learning_rate,
        momentum,
        stiffness,
        refresh_interval,
        lag_kind,
        optimizer,
        second_moment,
        importance_ratio,
        kl_in,
        trainer,
        stale_share,
        lag_shares,
    )
    rival = Rival(horizon, update_norm, batch_radius, critical_radius)
    given = Given(tuple(settings or ()), tuple(column or ()), config)
    run(path, typed, rival, given, Reading(metric, law, until, level), output=output, force=force, as_json=as_json)
