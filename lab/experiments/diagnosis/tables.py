"""The tables of lab/docs/studies/diagnosis-experiments.md, from the results
beside this script; runs no simulation.

python lab/experiments/diagnosis/tables.py
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py
from common import results_of, where

RESULTS = results_of(__file__)
VERDICTS = (
    "likely, right",
    "possible, right",
    "between two, one right",
    "none",
    "wrong, not likely",
    "likely, wrong",
)


def share(text: str) -> str:
    """A share as per cent, a tenth where it is small."""
    value = 100 * float(text)
    return f"{value:.1f} %" if 0 < value < 10 or 90 < value < 100 else f"{value:.0f} %"


def lines_of(
    rows: Sequence[Mapping[str, str]], heads: Mapping[str, str], shares: Sequence[str] = ()
) -> list[str]:
    """A table with the heads of some columns."""
    lines = [f"| {' | '.join(heads.values())} |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = [share(row[key]) if key in shares else row[key].replace("_", " ") for key in heads]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def peers(rows: list[dict[str, str]]) -> list[str]:
    """A table with a column a tool: critical and any alarms, per cent of the runs."""
    rows = [
        row for row in rows if "TRL's names" not in row["tool"]
    ]  # the entropy, and little else: see the file
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    lines = [f"| kind | runs | {' | '.join(tools)} |", "|---" * (2 + len(tools)) + "|"]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        cells = {
            row["tool"]: f"{100 * float(row['critical']):.3g} / {100 * float(row['any']):.3g}"
            for row in rows
            if row["kind"] == kind
        }
        runs = next(row["runs"] for row in rows if row["kind"] == kind)
        lines.append(
            f"| {kind.replace('_', ' ')} | {runs} | {' | '.join(cells[tool] for tool in tools)} |"
        )
    return lines


def peers_real(rows: list[dict[str, str]]) -> list[str]:
    """A line a tool: alarms, critical / any, by what the runs are; causes named; seconds and
    words.
    """
    heads = (
        "tool",
        "alarms on healthy",
        "failures found",
        "flat or declining",
        "cause named",
        "seconds",
        "words",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        kinds = (
            ("healthy", "critical", "any"),
            ("failed", "found_critical", "found_any"),
            ("flat", "flat_critical", "flat_any"),
        )
        cells = [
            f"{row[critical]} / {row[graver]} of {row[runs]}" for runs, critical, graver in kinds
        ]
        named = f"{row['named']} of {row['caused']}"
        lines.append(
            f"| {' | '.join((row['tool'], *cells, named, row['seconds'], row['words']))} |"
        )
    return lines


def labels(rows: list[dict[str, str]]) -> list[str]:
    """A line a label: public runs by state, and what their likely causes and first signs are
    worth.
    """
    states = ("ok", "warning", "failed", "cannot_tell")
    lines = [
        "| label | runs | ok | warning | failed | cannot tell | first sign within five rows |",
        "|---" * 7 + "|",
    ]
    for label in dict.fromkeys(row["label"] for row in rows):
        own = where(rows, label=label)
        counts = [sum(row["state"] == state for row in own) for state in states]
        placed = [float(row["rows_off"]) for row in own if row["rows_off"]]
        near = f"{sum(off <= 5 for off in placed)} of {len(placed)}" if placed else ""
        lines.append(f"| {label} | {len(own)} | {' | '.join(map(str, counts))} | {near} |")
    return lines


def states() -> list[str]:
    """How the runs of each kind are judged."""
    rows = RESULTS.texts("states")
    heads = {key: key.replace("_", " ") for key in rows[0] if "alarms" not in key}
    return lines_of(rows, heads, [*heads][2:])


def causes() -> list[str]:
    """What is named for each kind."""
    shares = (*VERDICTS, "right words")
    return lines_of(
        RESULTS.texts("causes"),
        {"kind": "kind", "runs": "runs"} | {share: share for share in shares},
        shares,
    )


def calibration() -> list[str]:
    """How often what is said to be likely or possible is true."""
    lines = ["| said | cause | runs | right | 95 % |", "|---|---|---|---|---|"]
    for row in RESULTS.texts("likely"):
        ends = f"{100 * float(row['low']):.0f} to {100 * float(row['high']):.0f}"
        lines.append(
            f"| {row['certainty']} | {row['named'].replace('_', ' ')} | {row['runs']} | "
            f"{share(row['right'])} | {ends} |"
        )
    return lines


def signs() -> list[str]:
    """How far first signs and onsets are from the true ones."""
    lines = [
        "| kind | what | runs | rows off, median | 90 % within | within five rows |",
        "|---|---|---|---|---|---|",
    ]
    for row in RESULTS.texts("signs"):
        what = "first sign" if row["what"] == "sign_off" else "onset"
        middle, most = (f"{float(row[key]):.3g}" for key in ("median", "ninth_tenth"))
        lines.append(
            f"| {row['kind'].replace('_', ' ')} | {what} | {row['runs']} | {middle} | {most} | "
            f"{share(row['within_five_rows'])} |"
        )
    return lines


def sequential() -> list[str]:
    """Alarms on healthy runs that are looked at after every row."""
    heads = {
        "kind": "kind",
        "runs": "runs",
        "alarms": "alarms",
        "upper": "upper limit",
        "watched": "to be watched",
        "watched_share": "share",
        "watched_upper": "upper limit ",
    }
    return lines_of(RESULTS.texts("sequential"), heads, ("upper", "watched_share", "watched_upper"))


def main() -> None:
    """Print the tables."""
    for table in (states(), causes(), calibration(), signs(), sequential()):
        print("\n".join(table) + "\n")
    for table_of, name in ((labels, "labels"), (peers, "peers"), (peers_real, "peers_real")):
        print("\n".join(table_of(RESULTS.texts(name))) + "\n")


if __name__ == "__main__":
    main()
