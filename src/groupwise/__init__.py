"""Reads the log of a GRPO run and says whether it failed, since when, why, and what to change.

The public names, each loaded when it is first asked for: importing the package imports no other.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.analysis.compare import compare
    from groupwise.analysis.components import load_components, save_components
    from groupwise.api.calls import fit, forecast, judge, plan, replay, report
    from groupwise.api.run import Run, open_run
    from groupwise.diagnostics.judgement import Finding, Judgement, State
    from groupwise.edge.mode import Stability, stability
    from groupwise.errors import GroupwiseError, GroupwiseWarning
    from groupwise.estimators.best_group_size import Budget, plan_group_size
    from groupwise.estimators.components import Components, components
    from groupwise.estimators.zero_variance import reward_statistics
    from groupwise.integrations.trl import GroupwiseCallback
    from groupwise.record.run import RecordWriter, RunRecord

__version__ = "0.2.0"

__all__ = [
    "Budget",
    "Components",
    "Finding",
    "GroupwiseCallback",
    "GroupwiseError",
    "GroupwiseWarning",
    "Judgement",
    "RecordWriter",
    "Run",
    "RunRecord",
    "Stability",
    "State",
    "__version__",
    "compare",
    "components",
    "fit",
    "forecast",
    "judge",
    "load_components",
    "open_run",
    "plan",
    "plan_group_size",
    "replay",
    "report",
    "reward_statistics",
    "save_components",
    "stability",
]


def __getattr__(name: str) -> Any:
    """Load a public name from where `public.tsv` says that it is.

    The others there are names of version 0.1, which answer until version 0.3.
    """
    from groupwise.files import table_column

    place = table_column("public.tsv", "name", "place").get(name, "")
    if not place:
        raise AttributeError(f"module 'groupwise' has no attribute {name!r}")
    if place.startswith("groupwise_lab"):
        raise ImportError(  # no AttributeError: "from groupwise import" drops what that says
            f"groupwise.{name} moved to {place} in version 0.2: pip install groupwise-lab"
        )
    if name not in __all__:
        message = f"groupwise.{name} moved to {place} in version 0.2; 0.3 drops groupwise.{name}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
    module, _, attribute = place.rpartition(".")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
