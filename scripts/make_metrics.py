"""Write the tables of docs/metrics.md from the table of keys in `groupwise.readers.keys`.

Only what stands between `<!-- table NAME -->` and `<!-- end -->` is replaced; the prose around is
written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from groupwise.readers.keys import QUANTITIES, RULES, KeyRule

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
TITLES = {
    "trl": "TRL",
    "verl": "verl",
    "ms-swift": "ms-swift",
    "openrlhf": "OpenRLHF",
    "prime-rl": "prime-rl",
    "slime": "slime",
    "nemo-rl": "NeMo-RL",
    "art": "ART",
    "skyrl": "SkyRL",
    "areal": "AReaL",
    "open-instruct": "open-instruct",
    "tinker": "Tinker cookbook",
    "marin": "Marin",
    "forge": "torchforge",
    "tunix": "Tunix",
    "roll": "ROLL",
    "rlinf": "RLinf",
    "verifiers": "verifiers",
}


def code(text: str) -> str:
    """A key as code inside a table's cell."""
    return "`" + text.replace("|", "\\|") + "`"


def base(rule: KeyRule) -> str:
    """The quantity of a rule as the table of quantities has it."""
    bare = rule.quantity.removeprefix("eval/")
    return bare if bare in QUANTITIES else bare.split("/")[0]


def versions(rule: KeyRule) -> str:
    """The versions of a rule in words."""
    if rule.since and rule.until:
        return f"{rule.since} to {rule.until}"
    return f"from {rule.since}" if rule.since else f"to {rule.until}" if rule.until else ""


def quantities(group: str) -> str:
    """The table of the quantities of one group."""
    lines = ["| quantity | unit | what it is | keys |", "|---|---|---|---|"]
    for name, (where, unit, words) in QUANTITIES.items():
        if where != group:
            continue
        keys: dict[str, list[str]] = {}
        for rule in RULES:
            if base(rule) == name and not rule.quantity.startswith("eval/"):
                rows = keys.setdefault(TITLES[rule.framework], [])
                if code(rule.key) not in rows:
                    rows.append(code(rule.key))
        listed = "; ".join(f"{title} {', '.join(rules)}" for title, rules in keys.items())
        lines.append(f"| {code(name)} | {unit} | {words} | {listed} |")
    return "\n".join(lines)


def frameworks() -> str:
    """One table a framework: key, versions, quantity and exactly what is logged."""
    parts = []
    for framework, title in TITLES.items():
        rules = [rule for rule in RULES if rule.framework == framework]
        lines = [
            f"### {title}",
            "",
            "| key | versions | quantity | exactly what |",
            "|---|---|---|---|",
        ]
        for rule in rules:
            words = rule.definition.replace("{}", "mean (or smallest, largest)").replace("|", "\\|")
            lines.append(
                f"| {code(rule.key)} | {versions(rule)} | {code(rule.quantity)} | {words} |"
            )
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def page(text: str) -> str:
    """The page with its tables made anew."""

    def made(match: re.Match[str]) -> str:
        body = frameworks() if match[1] == "frameworks" else quantities(match[1])
        return f"<!-- table {match[1]} -->\n\n{body}\n\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", made, text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
