"""The command `groupwise diagnose`: what is wrong with a run, and why.

The checks are in `groupwise.diagnostics`.
"""

from __future__ import annotations

from pathlib import Path

from groupwise.cli.options import Opening, checked_until, out_console, print_json
from groupwise.errors import InsufficientDataError


def run(path: Path, opening: Opening, *, until: float | None, evidence: bool, as_json: bool) -> bool:
    """Diagnose and print."""
    checked_until(until)
    from groupwise.analysis.fitted import cut
    from groupwise.diagnostics import diagnose

    record = opening.open(path)
    if until is not None:
        record = cut(record, until)
    found = diagnose(record, measured=evidence or not as_json)
    looked = len(found.findings) + len(found.healthy)
    if found.verdict == "undetermined" and found.worst in (None, "info"):
        reasons = "; ".join(dict.fromkeys(missing.reason for missing in found.unavailable))
        many = f"{looked} of {looked + len(found.unavailable)} checks" if looked else "no check"
        raise InsufficientDataError(f"expected a log that can be judged, got one in which {many} can look: {reasons}")
    if as_json:
        print_json(found.as_dict(evidence=evidence))
    else:
        from groupwise.report.text import print_diagnosis

        print_diagnosis(found, out_console(), evidence=evidence)
    return found.verdict != "healthy"
