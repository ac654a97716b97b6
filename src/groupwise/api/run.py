"""`open_run`: a run as an object that says how it stands, fits, forecasts and reports itself.

Every answer is made elsewhere, by what the commands call too; here it is asked for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import (
    GroupwiseError,
    InsufficientDataError,
    InvalidArgumentError,
    check_installed,
)
from groupwise.files import free_target, path_text, write_whole
from groupwise.plain import to_json
from groupwise.readers import run_record
from groupwise.record.run import RunRecord, named_apart
from groupwise.wording import clean, count, in_python, sentence

if TYPE_CHECKING:
    from groupwise.analysis.fitted import Outlook
    from groupwise.analysis.plan import RunPlan
    from groupwise.analysis.replay import RunReplay
    from groupwise.analysis.stability import RunStability
    from groupwise.diagnostics.judgement import Judgement
    from groupwise.estimators.best_group_size import Budget
    from groupwise.forecasting.results import FitResult

_MOST_ROWS = 200  # of a forecast
_OWN = "groupwise-rows-"  # begins the name of the folder that holds a log from memory


@dataclass(frozen=True, repr=False)
class Run(RunRecord):
    """A run: its record, and what can be asked of it.

    In a notebook it shows its judgement and its curve.

    Args:
        opened: what it was read from, or None; components are looked for beside it.

    Example:
        >>> from groupwise.examples import trl_run
        >>> run = open_run(trl_run())
        >>> run
        Run('trl_run', 300 rows, steps 1 to 300, 9 settings not found)
        >>> run.judgement.state.value, run.forecast(to=400).rows[-1].step
        ('ok', 400)
    """

    opened: Path | None = field(default=None, compare=False)

    @cached_property
    def judgement(self) -> Judgement:
        """How the run stands, judged once; where its writer lives, as a run that goes on."""
        from groupwise.diagnostics.judge import judge

        return judge(self)

    def __getitem__(self, metric: str) -> Float:
        """The values of one metric at the steps of the log, shape (T,), NaN where it has none.

        Args:
            metric: the log's own key, or a canonical quantity.

        Raises:
            MissingMetricError: the log has no such metric.

        Example:
            >>> run_of([0.25, 0.5])["reward"].tolist()
            [0.25, 0.5]
        """
        return self.values(self.column(str(metric)))

    def fit(
        self, *, metric: str = "reward", law: str | None = None, level: float = 0.95
    ) -> FitResult:
        """Fit the laws to one metric, as `groupwise fit` does.

        Args:
            metric: the log's own key, or a canonical quantity.
            law: the one law to fit; None lets all compete.
            level: nominal coverage of the intervals.

        Returns:
            The fit, its rows and its change in steps of the log; where there are too few rows its
            `status` is unavailable and its `message` says why.

        Raises:
            MissingMetricError: the log has no such metric.
        """
        from groupwise.analysis.fitted import fit_metric

        return fit_metric(self, metric, level=level, law=law).in_steps(self.judgement)

    def forecast(
        self,
        *,
        to: float | None = None,
        at: Sequence[float] | float | None = None,
        metric: str = "reward",
        level: float = 0.9,
    ) -> Outlook:
        """Forecast one metric, as `groupwise forecast` does.

        Args:
            to: the last step to forecast, after the last one of the log; a row a logged step,
                200 at most.
            at: the steps to forecast instead; a few beyond the last one where neither is given.
            metric: the log's own key, or a canonical quantity.
            level: nominal coverage of the bands.

        Returns:
            Its `rows` have whole steps, the mean and both bands; `print` shows the last in a
            sentence. A run that failed, or has too few rows, has none, and `withheld` says why.

        Raises:
            MissingMetricError: the log has no such metric.
            InvalidArgumentError: a step that cannot be forecast.
        """
        from groupwise.analysis.fitted import ForecastRequest, fit_metric

        if to is not None and at is not None:
            raise InvalidArgumentError("expected one of to= and at=, got both: leave one out")
        at = [at] if isinstance(at, int | float) else at
        steps = at if to is None else self._steps_to(to)
        request = ForecastRequest(steps, level)
        return fit_metric(self, metric, ahead=request).told_ahead(self.judgement)

    def replay(self, *, seed: int = 0) -> RunReplay:
        """Replay the run under other choices, as `groupwise replay` does.

        Args:
            seed: of the order in which a conformal stop sees a group's rollouts.

        Returns:
            The choices with intervals over prompts; `print` shows the answer. Where no whole groups
            with rewards that differ are logged, `unavailable` says so.
        """
        from groupwise.analysis.replay import RunReplay, replay_run

        try:
            return replay_run(self, seed=seed, opened=self.opened)
        except InsufficientDataError as error:
            return RunReplay(None, None, None, (), sentence(str(error)))

    def plan(self, *, budget: Budget | float | None = None) -> RunPlan:
        """Say what a run tells of its group size, as `groupwise plan` does.

        Args:
            budget: of one step, rollouts or a `Budget`; by default the run's own.

        Returns:
            The safe size and the price of the one in use where components lie beside the run, else
            what rewards alone say; `print` shows the answer.

        Raises:
            GroupwiseError: damaged components, or ones without a budget where the batch is not
                known.

        Example:
            >>> from groupwise.examples import trl_run
            >>> open_run(trl_run()).plan().batch.completions
            256
        """
        from groupwise.analysis.plan import run_plan

        return run_plan(self, self.opened, self.judgement, budget)

    def stability(
        self, *, metric: str = "reward", until: float | None = None, level: float = 0.95
    ) -> RunStability:
        """Say how far the run is from instability, as `groupwise stability` does.

        Args:
            metric: a reward, by the log's own key or as a canonical quantity.
            until: the last step to use; all of them by default.
            level: nominal coverage of the intervals.

        Returns:
            The margin, what would be safe, and what to know of it; `print` shows the answer. Where
            there are too few rows, or they approach no plateau, or the settings do not say what lag
            or momentum there is, `evidence.unavailable` says so.

        Raises:
            MissingMetricError: the log has no such metric, or it is no reward.

        Example:
            >>> from groupwise.examples import trl_run
            >>> open_run(trl_run()).stability().evidence.verdict
            'stable'
        """
        from groupwise.analysis.stability import run_stability

        return run_stability(self, metric=metric, until=until, level=level)

    def report(self, path: str | Path, *, metric: str = "reward", force: bool = False) -> Path:
        """Write the page of `groupwise report`.

        Args:
            path: of the page.
            metric: what to fit and to draw.
            force: whether to replace a file that is there.

        Returns:
            The path.

        Raises:
            OverwriteError: a file is there already.
            GroupwiseError: it cannot be written.
        """
        return write_page([self], path, metric=metric, force=force)

    def to_pandas(self) -> Any:
        """Return the table of steps as a pandas DataFrame, missing values as NaN.

        Returns:
            One row a logged step, one column a key of the log.

        Raises:
            GroupwiseError: pandas is not installed.
        """
        check_installed("pandas", what="run.to_pandas() beside run.steps, a Polars table")
        import pandas as pd

        return pd.DataFrame({name: self.steps[name].to_numpy() for name in self.steps.columns})

    def _steps_to(self, to: Any) -> list[float]:
        """Return the steps to forecast: those that would be logged, the last of them `to`; none
        without a log.
        """
        steps = self.steps["step"].to_numpy()
        if not len(steps):
            return []
        whole = isinstance(to, Real) and float(to).is_integer()
        if not whole or to <= steps[-1]:
            raise InvalidArgumentError(
                f"expected a whole step after {steps[-1]:,} for to, got {to!r}: give a later one"
            )
        spacing = max(1, int(np.median(np.diff(steps)))) if len(steps) > 1 else 1
        spacing *= -(-(int(to) - int(steps[-1])) // (spacing * _MOST_ROWS))
        return [float(step) for step in reversed(range(int(to), int(steps[-1]), -spacing))]

    def _lines(self, *, plain: bool = False) -> list[str]:
        """Return the judgement as the terminal has it."""
        from groupwise.pages.screen import judgement_lines

        return judgement_lines(self.judgement, plain=plain)

    def __str__(self) -> str:
        """The judgement as the terminal has it."""
        return "\n".join(
            self._lines(plain=not (sys.stdout.encoding or "").lower().startswith("utf"))
        )

    def __repr__(self) -> str:
        """Name, rows, and how many settings were not found."""
        step, unknown = self.steps["step"], len(self.config.unknown())
        steps = f", steps {step[0]:,} to {step[-1]:,}" if len(step) else ""
        missing = f", {count(unknown, 'setting')} not found" if unknown else ""
        return f"Run({clean(self.name)!r}, {count(len(step), 'row')}{steps}{missing})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the judgement, with the curve in bars."""
        from groupwise.pages.markup import join, tag

        return str(tag("pre", join(*self._lines(), separator="\n")))


def open_run(
    path: Any,
    *,
    columns: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Run:
    r"""Read a run.

    Args:
        path: a log, a run folder, a saved record, or one that a `RecordWriter` is appending to;
            `FILE#NAME` for one run of a file that holds several. Or the log itself: a list of rows,
            as `trainer.state.log_history`, columns by name, or a data frame.
        columns: canonical name, or "step" -> the log's own column, where the guess is wrong.
        settings: name -> value; they win over everything.
        config: a JSON or YAML file with settings; they win over what is found beside the log.

    Returns:
        The run, its record validated.

    Raises:
        UnreadableRunError: the path holds no log that can be read; the message says why and what to
            do.
        InvalidArgumentError: a setting, or the name of a quantity, is unknown, or a value is
            outside its domain.
        MissingMetricError: a column named by the user is not in the log.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as home:
        ...     _ = Path(home, "run.csv").write_text("step,reward\n1,0.25\n2,0.5\n")
        ...     open_run(Path(home, "run.csv")).metrics()
        ('reward',)
        >>> open_run([{"step": 1, "reward": 0.25}, {"step": 2, "reward": 0.5}])["reward"].tolist()
        [0.25, 0.5]
    """
    read = partial(run_record, columns=columns, settings=settings, config=config)
    try:
        if not isinstance(path, list) and not in_memory(path):
            return _run(read(path), Path(path))
        names = list(getattr(path, "columns", ()))
        if len({*names}) < len(names):
            raise InvalidArgumentError(
                f"expected one column of each name, got {', '.join(map(str, names))}: rename those "
                "of one name"
            )
        with TemporaryDirectory(prefix=_OWN) as home:
            written = Path(home, "run.json")
            rows = {str(name): list(path[name]) for name in names}
            written.write_text(to_json(rows or path), encoding="utf-8")
            return _run(replace(read(written), name="run", sources=(), probes=None))
    except GroupwiseError as error:
        error.args = (in_python(re.sub(rf"{_OWN}\w+/run.json", "the given table", str(error))),)
        raise


def in_memory(given: Any) -> bool:
    """Whether this is one log: rows or columns by name, or a data frame."""
    if isinstance(given, list) and given and isinstance(given[0], Mapping):
        return not all(hasattr(value, "__len__") for value in given[0].values())
    return isinstance(given, Mapping) or hasattr(given, "columns")


def run_of(given: Any, value_T: Any = None, *, metric: str = "reward") -> Run:
    """Return what a user calls a run: a record, a path, values of a metric, steps and values."""
    from groupwise.analysis.compare import record_of_numbers

    if isinstance(given, Run) and value_T is None:
        return given
    if isinstance(given, RunRecord | str | Path) or in_memory(given):
        if value_T is not None:
            raise InvalidArgumentError(
                "expected a run, or steps and values, got a run and values: leave one of them out"
            )
        return _run(given) if isinstance(given, RunRecord) else open_run(given)
    if value_T is not None and np.shape(given) != np.shape(value_T):
        raise InvalidArgumentError(
            f"expected as many steps as values, got {np.size(given)} and {np.size(value_T)}: "
            "give one step per value"
        )
    return _run(record_of_numbers(given if value_T is None else [given, value_T], metric, "run"))


def _run(record: RunRecord, opened: Path | None = None) -> Run:
    """Return a record as a run."""
    return Run(
        **{entry.name: getattr(record, entry.name) for entry in fields(RunRecord)}, opened=opened
    )


def write_page(runs: Sequence[Run], path: str | Path, *, metric: str, force: bool) -> Path:
    """Write one page on runs; return its path."""
    from groupwise.analysis.summary import page_room, summarise
    from groupwise.pages.html import render

    if not runs:
        raise InvalidArgumentError("expected a run, got none: give one run or a list of runs")
    target = Path(path_text(path, "page"))
    free_target(target, [Path(file.path) for run in runs for file in run.sources], force=force)
    room = page_room(len(runs))
    summaries = [
        summarise(named, metric=metric, room=room, opened=run.opened)
        for run, named in zip(runs, named_apart(runs), strict=True)
    ]
    write_whole(target, render(summaries), force=force)
    return target
