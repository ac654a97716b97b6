"""The diagnosis on the page: verdict, one block a finding, what was healthy, what could not be looked at.

It arranges and judges nothing.
"""

from __future__ import annotations

from groupwise.diagnostics.findings import Diagnosis, Finding
from groupwise.report.diagnosis import measured, title_of, told, where
from groupwise.report.markup import Markup, join, tag, text
from groupwise.report.wording import clean, sentence

_TONES = {"critical": "worse", "warning": "flat", "info": "nothing"}


def diagnosis_section(found: Diagnosis) -> Markup:
    """Return the content of the section."""
    parts = [tag("p", text(clean(found.sentence, longest=500)), class_="lede")]
    if found.causes:
        listed = ", ".join(
            f"{title_of(cause.cause).lower()} {cause.probability:.2f}" for cause in found.causes if cause.probability >= 0.005
        )
        parts.append(tag("p", text(f"Causes: {listed}."), class_="small"))
    parts += [_block(finding) for finding in found.findings]
    quiet = [f"{title_of(healthy.check)}: {healthy.message}" for healthy in found.healthy]
    if quiet:
        parts.append(_folded(f"Healthy: {len(quiet)} checks", quiet))
    missing = [f"{title_of(m.check)}: {m.reason}. Log {m.log_this}." for m in found.unavailable]
    if missing:
        parts.append(_folded(f"Could not be looked at: {len(missing)} checks", missing))
    numbers = [told(measure) for measure in found.measures if measure.value is not None]
    if numbers:
        parts.append(_folded(f"Measured besides: {len(numbers)} number{'s' if len(numbers) > 1 else ''}", numbers))
    gaps = [told(measure) for measure in found.measures if measure.value is None]
    if gaps:
        parts.append(_folded(f"Not measured: {len(gaps)} number{'s' if len(gaps) > 1 else ''}", gaps))
    return join(parts, "\n")


def _block(finding: Finding) -> Markup:
    """Return one finding: what, since when, the number, what to do."""
    sign = tag("span", text(finding.severity), class_=f"tone {_TONES[finding.severity]}")
    head = tag("h3", join((sign, text(f" {title_of(finding.check)}, {where(finding)}"))))
    said = tag("p", text(clean(sentence(finding.message), longest=1000)))
    number = tag("p", text(f"Measured: {measured(finding)}."), class_="small")
    advice = tag("p", text(clean(sentence(finding.advice), longest=1000)))
    return tag("div", join((head, said, number, advice)), class_="finding")


def _folded(title: str, lines: list[str]) -> Markup:
    """Return lines that open on demand."""
    content = tag("ul", join(tag("li", text(clean(line, longest=500))) for line in lines), class_="notes")
    return tag("details", join((tag("summary", text(title)), content)))
