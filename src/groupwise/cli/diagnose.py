"""The command `groupwise diagnose`: what is wrong with a run, and why."""

from __future__ import annotations

from typing import Annotated

from groupwise.cli.shared import Column, Config, Json, Opening, Run, Settings, Until, flag, out_console, print_json
from groupwise.errors import InsufficientDataError

HEALTHY, FOUND = 0, 1


def diagnose(
    run: Run,
    *,
    until: Until = None,
    settings: Settings = None,
    config: Config = None,
    column: Column = None,
    evidence: Annotated[
        bool, flag("--evidence", "Also show the numbers beside the checks, and what to log for those that could not be measured.")
    ] = False,
    as_json: Json = False,
) -> int:
    """What is wrong with a run and why: exit code 0 healthy, 1 findings, 2 unusable."""
    from groupwise.analysis.fitted import cut
    from groupwise.diagnostics.former import diagnose as look_at
    from groupwise.report.text import print_diagnosis

    opening = Opening.parse(column=column, settings=settings, config=config)
    found = look_at(cut(opening.open(run), until), measured=evidence or not as_json)
    looked = len(found.findings) + len(found.healthy)
    if found.verdict == "undetermined" and found.worst in (None, "info"):
        reasons = "; ".join(dict.fromkeys(missing.reason for missing in found.unavailable))
        many = f"{looked} of {looked + len(found.unavailable)} checks" if looked else "no check"
        raise InsufficientDataError(f"expected a log that can be judged, got one in which {many} can look: {reasons}")
    if as_json:
        print_json(found.as_dict(evidence=evidence))
    else:
        print_diagnosis(found, out_console(), evidence=evidence)
    return HEALTHY if found.verdict == "healthy" else FOUND
