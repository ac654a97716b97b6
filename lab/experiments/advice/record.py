"""The record of every line of advice, paired by run: followed, unchanged, placebo and oracle.

    python lab/experiments/advice/record.py [--sealed] [--fresh] [--again] [--language]
    [--grid]

reads the lines of `arms.py` and `trial.py` beside it, writes `record.tsv`, and prints the tables of
lab/docs/studies/advice.md. Intervals are 95 %, by bootstrap over members (10,000 draws, seed 20),
of the language model over twins.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from faults import SEALED, small_member
from trial import EVERY, FIRST_UPDATE, GRID_SEEDS, GRID_SIZES, HERE, HORIZONS, lines_of

# `trial` puts the scripts of language models on the path.
from best_group_size import PIECES, caught, paired, runs_of  # isort: skip

from groupwise.parsing import JsonObject

ARMS = ("followed", "unchanged", "placebo", "oracle")
LANGUAGE_FILES = {
    "arms": ("language_arms", "language_cpu"),
    "healthy": ("language_healthy", "language_cpu_healthy"),
}


@dataclass(frozen=True)
class Case:
    """One member: what was said, the outcome of each arm, and whether it recovered."""

    twin: int
    fault: str
    line: str  # cause or check whose advice it was; "" where nothing was said
    fails: bool
    outcome: dict[str, float]
    recovered: dict[str, bool]
    as_placebo: bool  # whether the advice did what the placebo does
    mended: bool  # whether the program put the true verifier in, as no user can who is told to look

    def gain(self, over: str) -> float:
        """What following gains over another arm."""
        return self.outcome["followed"] - self.outcome[over]


def area(right: Sequence[float]) -> float:
    """Trapezoids over five updates, by the length."""
    return float(np.trapezoid(right) / (len(right) - 1)) / 1e4


def case_of(line: JsonObject, lines: JsonObject, *, healthy: bool) -> Case:
    """Pair the arms of a member; where no look fired all arms are the run itself."""
    own = lines[f"{'twin' if healthy else 'run'}-{line['number']:03}"]
    twin = lines[f"twin-{own['twin']:03}"]["right_1e4"]
    right, look = own["right_1e4"], line["look"]
    last = len(right) // 5
    fails = np.mean(right[-last:]) < 0.9 * np.mean(twin[-last:])
    horizon = HORIZONS[own["population"]]
    further = horizon.further // EVERY
    start = (horizon.last_look if look is None else look) // EVERY
    same = {"right_1e4": right[start : start + further + 1], "step": EVERY * start}
    arms = {"unchanged": same} | {name: line.get(name, same) for name in ("followed", "placebo")}
    onset = own["fault"]["onset"] // EVERY
    undone = [{"right_1e4": twin[onset : onset + further + 1], "step": EVERY * onset}]
    if "oracle" in line:
        undone += [{**line["oracle"], "step": look}]
    arms["oracle"] = max(undone, key=lambda run: area(run["right_1e4"]))
    recovered = {}
    for name, arm in arms.items():
        end = arm["step"] // EVERY + further + 1
        level = np.mean(arm["right_1e4"][-3:])
        recovered[name] = bool(level >= 0.9 * np.mean(twin[end - 3 : end]))
    kinds = [action["kind"] for action in line.get("actions", ())]
    said = "" if look is None else (line["causes"] or [" ".join(["no_cause", *kinds])])[0]
    return Case(
        own["twin"],
        own["fault"]["kind"],
        said,
        bool(fails),
        {name: area(arm["right_1e4"]) for name, arm in arms.items()},
        recovered,
        kinds == ["restart", "rate"] and arms["followed"] == arms["placebo"],
        bool({"reward", "verifier"} & {*kinds}),
    )


def interval(pairs: Iterable[tuple[int, float]]) -> str:
    """The mean of pairs of twin and value, with its bootstrap over twins."""
    groups = defaultdict(list)
    for twin, value in pairs:
        groups[twin].append(value)
    total, size = (np.array([of(some) for some in groups.values()]) for of in (sum, len))
    if len(total) < 2:
        return f"{total.sum() / size.sum():+.3f}" if len(total) else "–"
    drawn = np.random.default_rng(20).choice(len(total), size=(10_000, len(total)))
    means = total[drawn].sum(axis=1) / size[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{total.sum() / size.sum():+.3f} ({low:+.3f} to {high:+.3f})"


def gains(cases: Iterable[Case], over: str) -> str:
    """What following gains over another arm, with its interval."""
    return interval((case.twin, case.gain(over)) for case in cases)


def over_placebo(cases: Iterable[Case]) -> str:
    """What following gains over the placebo, where it does something else."""
    return gains((case for case in cases if not case.as_placebo), "placebo")


def row(name: str, cases: Sequence[Case]) -> str:
    """The record of some members."""
    counts = [sum(case.recovered[arm] for case in cases) for arm in ARMS]
    cells = [gains(cases, "unchanged"), over_placebo(cases)]
    return " | ".join(["", name, str(len(cases)), *map(str, counts), *cells, ""]).strip()


def table(title: str, cases: Iterable[Case], key: Callable[[Case], str]) -> None:
    """A row a group of members."""
    groups = defaultdict(list)
    for case in cases:
        groups[key(case)].append(case)
    print(f"\n| {title} | members | followed | unchanged | placebo | oracle | gain | placebo |")
    print("|---|---|---|---|---|---|---|---|")
    for name in sorted(groups, key=lambda name: -len(groups[name])):
        print(row(name or "(no alarm)", groups[name]))


def agrees(line: JsonObject, lines: JsonObject) -> bool:
    """Whether a member's arms begin where its whole run was: a GPU did not always come to one."""
    kind = "run" if "arms" in line["piece"] else "twin"
    base, mark = lines.get(f"{kind}-{line['number']:03}"), line.get("mark")
    if base is None or f"twin-{base['twin']:03}" not in lines:  # not run yet
        return False
    return mark in (None, base["marks"][(line["look"] or 0) // EVERY])


def cases_of(name: str, *, sealed: bool = False) -> list[Case]:
    """The members that a file holds: with their fault, or the healthy twins."""
    lines, language = lines_of(HERE / f"{name}.jsonl"), name.startswith("language")
    return [
        case_of(line, lines, healthy=name.endswith("healthy"))
        for line in lines.values()
        if "advice" in line
        and (line["look"] is None or "followed" in line)
        and agrees(line, lines)
        and (language or (small_member(line["number"]).task == SEALED) is sealed)
    ]


def records() -> dict[str, Sequence[Case]]:
    """The members of each line of advice, the fresh ones where it was changed and tried again."""
    by_line: dict[str, Sequence[Case]] = {}
    for name in ("arms", "fresh", "again"):
        groups = defaultdict(list)
        for case in cases_of(name):
            groups[case.line].append(case)
        by_line |= groups
    return {line: by_line[line] for line in sorted(by_line) if line}


def show_grid() -> None:
    """Print the runs that begin with a small first update, beside those that did not."""
    lines = lines_of(HERE / f"{FIRST_UPDATE}.jsonl")
    runs = [
        [lines[f"grid-G{size}-seed{seed}"]["right_1e4"] for size in GRID_SIZES]
        for seed in range(GRID_SEEDS)
    ]
    area_SG = np.array([[area(right) for right in sizes] for sizes in runs])
    before = runs_of(PIECES.tables(), "adamw", "three_examples").values()
    print("| G | area | less that of 4 | p | caught | caught at 3e-4 without a rise |")
    print("|---|---|---|---|---|---|")
    for place, (less, half, p_value) in enumerate(paired(area_SG, 0)):
        size = GRID_SIZES[place]
        now = sum(caught(sizes[place][-1] / 1e4) for sizes in runs)
        then = sum(caught(float(sizes[size][-1]["held_out"])) for sizes in before)
        cells = f"{less:+.2f} ± {half:.2f} | {p_value:.2f}" if place else "| "
        counts = f"{now} of {len(runs)} | {then} of {len(before)}"
        print(f"| {size} | {area_SG[:, place].mean():.3f} | {cells} | {counts} |")


def main() -> None:
    """Print the tables, and write what docs/causes.md says of each cause."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sealed", action="store_true", help="the sealed task instead")
    parser.add_argument("--fresh", action="store_true", help="the members nobody had seen instead")
    parser.add_argument("--again", action="store_true", help="those of a line changed once more")
    parser.add_argument("--language", action="store_true", help="the language model's instead")
    parser.add_argument("--grid", action="store_true", help="the step of the first update instead")
    given = parser.parse_args()
    if given.grid:
        show_grid()
        return
    name = "again" if given.again else "fresh" if given.fresh else "arms"
    cases, twins = (
        [
            case
            for file in (LANGUAGE_FILES[kind] if given.language else (kind,))
            for case in cases_of(file, sealed=given.sealed)
        ]
        for kind in (name, "healthy")
    )
    failing = [case for case in cases if case.fails]
    advised = [case for case in failing if case.line]
    better = [sum(case.gain("unchanged") > 0 for case in some) for some in (failing, advised)]
    print(f"{len(cases)} members, {len(failing)} fail, {len(advised)} of them told;")
    print(f"followed beats unchanged in {better[0]} of the failing, {better[1]} of the told")
    reached = sum(case.gain("unchanged") for case in failing)
    most = sum(case.outcome["oracle"] - case.outcome["unchanged"] for case in failing)
    print(f"share of the oracle's gain {reached / most:.2f}" if most else "")
    kinds = {False: "told", True: "told, and given the true verifier"}
    table("failing members", failing, lambda case: kinds[case.mended] if case.line else "")
    table("line of advice", (case for case in cases if case.line), lambda case: case.line)
    table("fault, failing", failing, lambda case: case.fault)
    lost = [(case.twin, -case.gain("unchanged") / case.outcome["unchanged"]) for case in twins]
    alarms = sum(bool(case.line) for case in twins)
    print(f"\n{len(lost)} healthy twins, {alarms} with an alarm; they lose {interval(lost)}")
    rows = ["cause\tmembers\tfollowed\tplacebo\ttrue_verifier\tgain"]
    for line, some in records().items():
        counts = [sum(case.recovered[arm] for case in some) for arm in ("followed", "placebo")]
        counts.append(sum(case.mended for case in some))
        rows.append("\t".join([line, *map(str, (len(some), *counts)), over_placebo(some)]))
    (HERE / "record.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
