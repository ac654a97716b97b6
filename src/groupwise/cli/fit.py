"""The command `groupwise fit`: one metric, all laws.

The mathematics is in `groupwise.curves`.
"""

from __future__ import annotations

from pathlib import Path

from groupwise.cli.options import Opening, checked_share, checked_until, out_console, print_json
from groupwise.errors import InsufficientDataError


def run(path: Path, opening: Opening, *, metric: str, law: str | None, until: float | None, level: float, as_json: bool) -> None:
    """Fit and print."""
    checked_share("--level", level)
    checked_until(until)
    from groupwise.analysis.fitted import fit_metric
    from groupwise.curves.laws import law_by_name

    if law is not None:
        law_by_name(law)
    fitted = fit_metric(opening.open(path), metric, until=until, level=level, law=law, with_forecast=False, with_rivals=False)
    if fitted.fit is None:
        raise InsufficientDataError(fitted.problem)
    if as_json:
        print_json(fitted.as_dict())
        return
    from groupwise.report.text import print_fit

    print_fit(fitted, out_console())
