"""The page of both papers: every function, test and script that it names exists, every row says what
came out, and each figure of its evidence is the one that the script's table has.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.tests.experiments.conftest import scripts_of
from tests.cases import each_case

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "lab" / "docs"
EXPERIMENTS = ROOT / "lab" / "experiments"
PAGE = (DOCS / "papers.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
    for line in PAGE.splitlines()
    if line.startswith("| ")
]
STATEMENTS = [row for row in ROWS if row[0] != "in the paper"]
OUTCOMES = ("holds", "holds with a condition", "differs", "not reproduced")
OF_MODELS = "lab/experiments/language_models/"
with scripts_of(EXPERIMENTS / "forecast") as load_script:
    CLAIMS, COMMON = load_script("claims"), load_script("common")

Rows = list[dict[str, Any]]
Tables = Callable[[str], Rows]


def resolved(dotted: str) -> Any:
    """The module, or the attribute of one, that a dotted name means."""
    if util.find_spec(dotted.rpartition(".")[0]) and not hasattr(
        import_module(dotted.rpartition(".")[0]), dotted.rpartition(".")[2]
    ):
        return import_module(dotted)
    return getattr(import_module(dotted.rpartition(".")[0]), dotted.rpartition(".")[2])


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def bold(cell: str) -> list[str]:
    return re.findall(r"\*\*([^*]+)\*\*", cell)


def named_scripts(cell: str) -> list[str]:
    return [name for name in named(cell) if name.endswith(".py")]


def test_the_page_has_both_papers() -> None:
    assert [len(row) for row in ROWS] == [5] * len(ROWS)
    for label in (
        *("Lemma 1:", "Theorem 2", "Proposition 3", "Corollary 4", "Corollary 5", "Lemma 6"),
        *("Theorem 7", "Theorem 8:", "Theorem 8(i)", "Lemma 11", "Theorem 12", "Proposition 13"),
        *("slow start", "sampling", "Early stopping", "ratio of evaluation"),
    ):
        assert any(label in row[0] for row in STATEMENTS), label
    assert len(STATEMENTS) > 45


@each_case("row", STATEMENTS)
def test_every_name_in_a_row_exists(row: list[str]) -> None:
    _, functions, tests, evidence, outcome = row
    assert outcome.startswith(OUTCOMES)
    untried = outcome.startswith("not reproduced")
    assert named(functions) or untried
    assert named(tests) or untried
    in_packages = [name for name in named(functions) if "::" not in name]
    for name in in_packages:
        assert name.startswith(("groupwise.", "groupwise_lab."))
        assert resolved(name) is not None
    of_scripts = [name for name in named(functions) if name not in in_packages]
    assert all(name.startswith("lab/experiments/") for name in of_scripts)
    for name in (*of_scripts, *named(tests)):
        path, _, function = name.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert not function or function in {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef)
        }, name
    assert all((ROOT / name).is_file() for name in named_scripts(evidence))
    # An outcome rests on a script's figure, or its test is the identity that it states.
    assert untried or bold(evidence) or evidence.startswith("the identity itself")
    assert not bold(evidence) or named_scripts(evidence)


@each_case("link", sorted(set(re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE))))
def test_every_page_that_is_linked_exists(link: str) -> None:
    assert (DOCS / link).is_file()


@pytest.fixture(scope="module")
def tables() -> Tables:
    """The rows of a table, by folder and name."""

    def read(name: str) -> Rows:
        folder, _, table = name.partition("/")
        of_folder = COMMON.Results(EXPERIMENTS / folder / "results.txt")
        if not table.endswith("*"):
            return list(of_folder.read(table))
        part, _, start = table[:-1].rpartition("/")
        pieces = of_folder.within(part).tables()
        return [
            row | {"piece": key} for key in pieces if key.startswith(start) for row in pieces[key]
        ]

    return read


def picked(rows: Rows, **values: Any) -> Rows:
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def of_error(tables: Tables) -> dict[tuple[str, int], dict[str, Any]]:
    """Errors of one prompt's gradient by estimator and group size."""
    rows = picked(tables("u_statistic/gradient_mse/start-0.25"), kind="within")
    return {(row["estimator"], row["group_size"]): row for row in rows}


def best_sizes(tables: Tables) -> str:
    """Of six settings, how often the predicted size is the best by both yardsticks."""
    (predicted,) = {row["of_grid"] for row in tables("u_statistic/optimal_group_size/prediction")}
    curves: dict[tuple[str, ...], list[float]] = {}
    for kind in ("adam", "sgd"):
        for row in tables(f"u_statistic/optimal_group_size/{kind}-N*"):
            curves.setdefault(tuple(row["piece"].split("-")), []).append(row["held_out"])
    hits = []
    for of_run in (np.mean, lambda curve: curve[-1]):
        areas: dict[tuple[str, ...], dict[str, list[float]]] = {}
        for (kind, budget, size, _), curve in curves.items():
            areas.setdefault((kind, budget), {}).setdefault(size, []).append(float(of_run(curve)))
        bests = [max(sizes, key=lambda size: np.mean(sizes[size])) for sizes in areas.values()]
        hits.append(sum(int(best[1:]) == predicted for best in bests))
    return f"{hits[0]} by the mean of the run, {hits[1]} by the final accuracy"


def bounds_over_gaps(tables: Tables, schedule: str) -> list[float]:
    rows = picked(
        tables("u_statistic/final_gap/gap_bounds"), schedule=schedule, updates=1000, void=0
    )
    return [row["bound"] / row["gap"] for row in rows]


def least_bound(tables: Tables) -> float:
    rows = picked(tables("u_statistic/final_gap/gap_bounds"), schedule="falling", void=0)
    return float(min(row["bound"] / row["gap"] for row in rows))


def consistent(tables: Tables) -> list[str]:
    falling = {"schedule": "falling", "start": "reference", "group_size": 4}
    rows = picked(tables("u_statistic/final_gap/gap_bounds"), baseline="leave_one_out", **falling)
    gaps = {row["updates"]: row["gap"] for row in rows}
    return [f"{gaps[1000] / gaps[1]:.4f}"]


def law_of_the_gap(tables: Tables) -> list[str]:
    rows = tables("u_statistic/final_gap/gap_law")
    errors = [abs(row["mean"] - row["law_mean"]) / row["mean_error"] for row in rows]
    printed = [row["law_mean"] / row["printed_mean"] for row in rows]
    return [
        f"{max(errors):.1f} standard errors",
        f"{min(printed):.0f} to {max(printed):,.0f} times",
    ]


def rates(tables: Tables, over: str, under: str, size: int, base: int) -> str:
    rows = tables("u_statistic/final_gap/gap_rate")
    return ", ".join(
        f"{last[over] / first[under]:.{3 if over == under else 2}f}"
        for last, first in zip(
            picked(rows, group_size=size), picked(rows, group_size=base), strict=True
        )
    )


def misses(tables: Tables, start: float) -> str:
    """How far the oscillator misses the bandit, over the rise."""
    shares = []
    for regime in ("overdamped", "near critical", "underdamped"):
        rows = picked(tables("predictable_grpo/trajectories"), regime=regime, start=start)
        rise = np.ptp([row["expected"] for row in rows])
        shares.append(max(abs(row["mean"] - row["centred"]) for row in rows) / rise)
    digits = 1 if start > 0.5 else 0
    return f"{min(shares):.{digits}%} to {max(shares):.{digits}%}".replace("%", " %")


def readings(tables: Tables) -> list[str]:
    rows = tables("predictable_grpo/trajectory_errors")
    return [
        f"{np.nanmedian([row[name] for row in rows]):.1%}".replace("%", " %")
        for name in ("centred", "backward")
    ]


def rule(tables: Tables) -> list[str]:
    rows = picked(tables("predictable_grpo/exact_over_rule"), momentum=0.9)
    of = {row["lag"]: row for row in rows}
    digits = {"refresh": 1, "async": 2}
    return [
        f"{of[lag]['least']:.{digit}f} to {of[lag]['most']:.{digit}f}"
        for lag, digit in digits.items()
    ]


def edges(tables: Tables) -> list[str]:
    rows = picked(tables("predictable_grpo/deep_edges"), kl_in="reward")
    assert len(rows) == 21
    return [
        f"{max(abs(row['measured'] / row['predicted'] - 1) for row in rows):.2%}".replace("%", " %")
    ]


def temperature(tables: Tables) -> list[str]:
    rows = tables("predictable_grpo/fluctuations")
    return [
        f"{four['variance'] / sixteen['variance']:.2f}"
        for world in ("one prompt", "unlike prompts")
        for four in picked(rows, world=world, group_size=4)
        for sixteen in picked(rows, world=world, group_size=16)
    ]


def times(tables: Tables) -> list[str]:
    rows = picked(tables("predictable_grpo/group_size_time"), group_size=64)
    return [f"{1 / row['ratio']:.2f}" for row in rows]


def network_fits(tables: Tables) -> Rows:
    rows = tables("predictable_grpo/deep_dynamics_fits/run-*")
    assert len(rows) == 18
    return rows


def time_constants(tables: Tables) -> list[str]:
    of = {
        size: np.median(
            [
                row["exponential_time_constant"]
                for row in network_fits(tables)
                if row["run"].startswith(f"run-{size}")
            ]
        )
        for size in ("tiny", "small", "medium")
    }
    return [", ".join(f"{time:.0f}" for time in of.values())]


def claims(tables: Tables) -> dict[str, list[str]]:
    """Slow start, none, saved and lost of public and own runs."""
    return {
        name: CLAIMS.of_clusters(tables(f"forecast/claims_{name}"))[1][0].split(" | ")
        for name in ("public", "own")
    }


def slow_starts(tables: Tables) -> list[str]:
    public, own = claims(tables).values()
    assert (public[0], own[0]) == ("106", "38")
    assert CLAIMS.CLEARLY == 6
    return [public[2], own[2], max(public[3], own[3])]


def couplings(tables: Tables) -> list[str]:
    rows = tables("forecast/claims_public")
    hacked: list[float] = []
    others: list[float] = []
    for row in rows:
        if np.isfinite(row["coupling"]):
            group = hacked if "reward_hacking" in row["run"] else others
            group.append(row["coupling"])
    assert (len(hacked), len(others)) == (4, 18)
    return [f"{max(hacked):.3f}", f"{min(others):.2f} to {max(others):.2f}"]


def ratio(tables: Tables, over: str, under: str, *sizes: int) -> list[str]:
    rows = of_error(tables)
    return [f"{rows[over, n]['measured'] / rows[under, n]['measured']:.2f}" for n in sizes]


FIGURES: dict[str, Callable[[Tables], list[str]]] = {
    "Theorem 2, Proposition 3: the error": lambda tables: [
        ", ".join(
            f"{row['excess'] / row['excess_predicted']:.2f}"
            for row in (of_error(tables)["leave_one_out", size] for size in (4, 8, 16))
        )
    ],
    "Corollary 4": lambda tables: [" and ".join(ratio(tables, "leave_one_out", "oracle", 4, 64))],
    "Corollary 5: asymptotically": lambda tables: ratio(tables, "vanilla", "oracle", 64),
    "Figure 4": lambda tables: ratio(tables, "leave_one_out", "vanilla", 4),
    "Lemma 6, constant": lambda tables: [
        "{:.1f} to {:.1f}".format(*sorted(bounds_over_gaps(tables, "constant"))[::3])
    ],
    "Lemma 6, steps": lambda tables: (
        [
            f"{min(values):.1f} to {max(values):.1f}"
            for values in [bounds_over_gaps(tables, "falling")]
        ]
        + [f"{least_bound(tables):.1f}"]
    ),
    "Theorem 7: the error is": lambda tables: [
        ", ".join(
            f"{max(abs(row[name]) for row in tables('gradient/components')):.1%}".replace("%", " %")
            for name in ("error_vp", "error_t", "error_r")
        )
    ],
    "Theorem 7: the best group size is": lambda tables: [best_sizes(tables)],
    "Theorem 7: it is free of N": lambda tables: [
        ", ".join(
            f"{row['best']:.1f}" for row in tables("u_statistic/optimal_group_size/along-adam")
        )
    ],
    "Theorem 8: n times": law_of_the_gap,
    "Theorem 8(i)": consistent,
    "Corollary 9": lambda tables: [rates(tables, "times_g_g1", "times_g_g1", 64, 2)],
    "Corollary 10": lambda tables: [rates(tables, "fixed", "leave_one_out", 64, 64)],
    "The mean reward is a damped": lambda tables: [misses(tables, 0.75), misses(tables, 0.3)],
    "Momentum is the mass": readings,
    "The run is stable while": rule,
    "A softmax bandit": lambda tables: [
        f"{max(abs(row['gap']) for row in tables('predictable_grpo/onset')):.1e}"
    ],
    "Future work": edges,
    "The group size is a temperature: fl": temperature,
    "The mean trajectory does not depend on G, to": times,
    "Its time constant grows as": time_constants,
    "GSM8K, three": lambda tables: [
        f"{min(values):.2f} to {max(values):.2f}"
        for values in [[row["r2_oscillator"] for row in network_fits(tables)]]
    ],
    "All runs of": lambda tables: [
        f"{sum(row['oscillator_damping_ratio'] > 1 for row in network_fits(tables))} of 18",
        f"{min(row['oscillator_damping_ratio'] for row in network_fits(tables)):.2f}",
    ],
    "A slow start": slow_starts,
    "Three quarters": lambda tables: [values[4] for values in claims(tables).values()],
    "Early stopping": lambda tables: [values[5] for values in claims(tables).values()],
    "The ratio of evaluation": couplings,
    "Four kinds of failure": lambda tables: [
        f"{np.mean([row['likely, right'] for row in tables('diagnosis/causes')]):.0%}".replace(
            "%", " %"
        )
    ],
}


def test_every_figure_is_the_one_that_the_script_s_table_has(tables: Tables) -> None:
    """Of language models it stands in a table of their page, which is the one that the script prints
    (lab/tests/experiments/test_language_models.py).
    """
    lines = (DOCS / "studies" / "language-models.md").read_text(encoding="utf-8").splitlines()
    printed = "\n".join(line for line in lines if line.startswith("|"))
    wrong: dict[str, object] = {}
    left = set(FIGURES)
    for label, _, _, evidence, _ in STATEMENTS:
        if OF_MODELS in evidence:
            figures = {figure.replace("\\|", "|") for figure in bold(evidence)}
            wrong |= {f"{label}: {figure}": "" for figure in figures if figure not in printed}
            continue
        match = next((key for key in FIGURES if label.startswith(key)), None)
        if match is None:
            wrong |= {label: bold(evidence)} if bold(evidence) else {}
            continue
        left.discard(match)
        if (computed := FIGURES[match](tables)) != bold(evidence):
            wrong[label] = (computed, bold(evidence))
    assert wrong == {}
    assert left == set()
