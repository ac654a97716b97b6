"""The command `groupwise stability`: how far a run is from instability."""

from pathlib import Path

from groupwise.cli import app as cli
from groupwise.errors import InsufficientDataError


def stability(
    run: Path,
    *,
    metric: str = "reward",
    until: float | None = None,
    level: float = 0.95,
    opening: cli.Opening,
    as_json: bool = False,
) -> None:
    """How far a run is from the instability that its reward shows.

    Which is no guarantee of safety: faster modes may be invisible in it.
    """
    from groupwise.analysis.stability import run_stability
    from groupwise.pages.text import print_stability

    record = opening.open(run)
    judged = cli.judgement_of(record, until)
    result = run_stability(record, metric=metric, until=until, level=level)
    if result.evidence.unavailable:
        raise InsufficientDataError(result.evidence.unavailable)
    if as_json:
        cli.print_json(cli.stands(judged) | result.as_dict())
    else:
        print_stability(result.evidence, judged, cli.out_console())
