"""groupwise, the instrument panel of GRPO training: what a run's log says about it, with intervals that mean what they say.

The public names, each loaded when it is first asked for. Nothing is computed here, and importing the package imports nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.dynamics.backtest import backtest
    from groupwise.dynamics.fit import fit
    from groupwise.dynamics.forecast import forecast
    from groupwise.dynamics.laws import LAWS, Law, law_by_name
    from groupwise.dynamics.results import Backtest, FitResult, Forecast
    from groupwise.errors import GroupwiseError, GroupwiseWarning
    from groupwise.intervals import Interval, wilson
    from groupwise.readers import READERS, open_run
    from groupwise.record import Meaning, RecordWriter, RunRecord, Source
    from groupwise.report.html import render
    from groupwise.report.summary import Summary, summarise
    from groupwise.run_config import RunConfig, Setting
    from groupwise.series import MetricSeries, metric_series

__version__ = "0.1.0"

_HOME = {
    "Backtest": "dynamics.results",
    "FitResult": "dynamics.results",
    "Forecast": "dynamics.results",
    "GroupwiseError": "errors",
    "GroupwiseWarning": "errors",
    "Interval": "intervals",
    "LAWS": "dynamics.laws",
    "Law": "dynamics.laws",
    "Meaning": "record",
    "MetricSeries": "series",
    "READERS": "readers",
    "RecordWriter": "record",
    "RunConfig": "run_config",
    "RunRecord": "record",
    "Setting": "run_config",
    "Source": "record",
    "Summary": "report.summary",
    "backtest": "dynamics.backtest",
    "fit": "dynamics.fit",
    "forecast": "dynamics.forecast",
    "law_by_name": "dynamics.laws",
    "metric_series": "series",
    "open_run": "readers",
    "render": "report.html",
    "summarise": "report.summary",
    "wilson": "intervals",
}

__all__ = [
    "LAWS",
    "READERS",
    "Backtest",
    "FitResult",
    "Forecast",
    "GroupwiseError",
    "GroupwiseWarning",
    "Interval",
    "Law",
    "Meaning",
    "MetricSeries",
    "RecordWriter",
    "RunConfig",
    "RunRecord",
    "Setting",
    "Source",
    "Summary",
    "__version__",
    "backtest",
    "fit",
    "forecast",
    "law_by_name",
    "metric_series",
    "open_run",
    "render",
    "summarise",
    "wilson",
]


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it."""
    if name not in _HOME:
        raise AttributeError(f"module 'groupwise' has no attribute {name!r}")
    return getattr(import_module(f"groupwise.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
