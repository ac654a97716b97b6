"""`groupwise.compare`: what it takes, what it refuses, and the sentence of every answer."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

import groupwise as gw
from groupwise.analysis.compare import (
    ComparedGroup,
    ComparedRun,
    answered,
    shared_key,
    short_names,
)
from groupwise.comparison.compare import Comparison, Contrast, Measured, Pairing, Question
from groupwise.diagnostics.judgement import Judgement, State
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.intervals import Interval
from groupwise.record.run import Meaning, RunRecord, Source, named_apart, read_probes, steps_table


def rising(seed: int, end: float = 0.98, rows: int = 60) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.asarray(np.clip(end - 0.6 * 0.9 ** np.arange(rows) + rng.normal(0, 0.01, rows), 0, 1))


def test_records_paths_values_and_steps_with_values_are_runs(tmp_path: Path) -> None:
    """The same run in five forms has the same level; a list of them is a group, a list of
    numbers a run.
    """
    value = rising(1)
    steps = np.arange(1, 61)
    (tmp_path / "a.csv").write_text(
        "step,reward\n"
        + "\n".join(f"{t},{v!r}" for t, v in zip(steps, value.tolist(), strict=True))
    )
    record = RunRecord("r", steps_table(steps.tolist(), {"reward": value}))
    forms: list[Any] = [
        record,
        tmp_path / "a.csv",
        str(tmp_path / "a.csv"),
        value,
        value.tolist(),
        np.stack([steps.astype(float), value]),
    ]
    for form in forms:
        comparison = gw.compare(form, rising(2))
        assert comparison.groups[0].runs[0].level is not None
        assert comparison.groups[0].level == pytest.approx(value[45:].mean(), abs=1e-12)
        assert comparison.groups[0].ends_at == pytest.approx(
            comparison.groups[0].runs[0].judgement.now
        )
    pair = gw.compare([value, rising(3)], [rising(4, 0.7), rising(5, 0.7)])
    assert [len(group.runs) for group in pair.groups] == [2, 2]
    assert pair.comparison.pairings[0].contrasts[0].method == "welch"
    assert [len(group.runs) for group in gw.compare([value, rising(3)]).groups] == [1, 1]


def test_a_table_of_runs_is_compared_by_a_column(tmp_path: Path) -> None:
    rows = [
        f"{engine},{t},{v:.4f}"
        for engine, end in (("b", 0.98), ("a", 0.9))
        for t, v in enumerate(rising(1, end))
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["engine,step,reward", *rows]))
    assert [group.name for group in gw.compare(tmp_path / "runs.csv", by="engine").groups] == [
        "a",
        "b",
    ]
    assert [
        group.name for group in gw.compare(tmp_path / "runs.csv", by="engine", baseline="b").groups
    ] == ["b", "a"]


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="two runs or more, got 1"):
        gw.compare(rising(1))
    with pytest.raises(InvalidArgumentError, match="a run, a path or numbers, got object"):
        gw.compare(object(), rising(1))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"an array of shape \(3, 20\)"):
        gw.compare(rising(1).reshape(3, 20), rising(1))
    with pytest.raises(InsufficientDataError, match="expected rows of reward, got none in run 2"):
        gw.compare(rising(1), np.full(20, math.nan))


def test_what_it_prints_is_its_answer() -> None:
    value = rising(1)
    comparison = gw.compare(value, np.concatenate([value[:40], np.zeros(20)]))
    says("analysis/compare/1", str(comparison))
    assert comparison.as_dict()["answer"] == str(comparison)
    assert [run["held"] for group in comparison.as_dict()["groups"] for run in group["runs"]] == [
        True,
        False,
    ]


def test_runs_with_too_few_rows_are_looked_at() -> None:
    """Of two with 8 rows only where they end; of three with 15 rows no late mean can be
    measured.
    """
    two = gw.compare([0.5] * 8, [0.7] * 8)
    says("analysis/compare/2", str(two))
    three = gw.compare([0.5] * 15, [0.7] * 15, [0.6] * 15)
    says("analysis/compare/3", str(three))


# The sentences


def run(value: float, state: State = State.OK, time: float = math.nan) -> ComparedRun:
    level, speed = (
        Measured(Interval(contrast, contrast, contrast), 0.0) for contrast in (value, time)
    )
    return ComparedRun("r", "r", Judgement("r", state, "h"), 60, 200.0, value, "", level, speed)


def group(name: str, place: int, *runs: ComparedRun) -> ComparedGroup:
    return ComparedGroup(name, runs, place)


def comparison(*levels: Contrast, reach: float = 0.4) -> Comparison:
    speed = Contrast("speed", "seed_noise_unknown", "", Interval(-8.0, -9.0, -7.0))
    pairings = tuple(Pairing(0, g, (level, speed)) for g, level in enumerate(levels, start=1))
    return Comparison(
        pairings, {"level": (), "speed": ()}, {}, 151.0, 200.0, reach, 0.95, (0.0, 1.0)
    )


def level(
    status: Any, low: float = 0.1, value: float = 0.2, high: float = 0.3, **fields: Any
) -> Contrast:
    return Contrast("level", status, "a group has no values", Interval(value, low, high), **fields)


A, B = group("A", 0, run(0.5)), group("B", 1, run(0.7))
SENTENCES = [
    (
        level("different"),
        (
            "B is above A: 0.70 against 0.50 over steps 151-200. The difference of 0.20 (0.10 to "
            "0.30) exceeds seed noise."
        ),
    ),
    (
        level("seed_noise_unknown", largest_seed_deviation=0.05),
        (
            "B is above A: 0.70 against 0.50 over steps 151-200. The difference of 0.20 (0.10 to "
            "0.30) exceeds step noise. With one seed per group, it is real only if seeds "
            "scatter by less than 0.05."
        ),
    ),
    (
        level("seed_noise_unknown"),
        (
            "B is above A: 0.70 against 0.50 over steps 151-200. The difference of 0.20 (0.10 "
            "to 0.30) exceeds step noise; seed noise alone may cause it."
        ),
    ),
    (
        level("not_separable", low=-0.1, seeds_needed=4),
        (
            "B does not clearly differ from A: 0.70 against 0.50 over steps 151-200. The "
            "difference of 0.20 (−0.10 to 0.30) is within seed noise. About 4 runs per group would "
            "decide it."
        ),
    ),
    (
        level("within_step_noise", low=-0.1),
        (
            "B does not clearly differ from A: 0.70 against 0.50 over steps 151-200. The "
            "difference of 0.20 (−0.10 to 0.30) is within step noise."
        ),
    ),
    (
        level("unavailable"),
        (
            "B ends at 0.70 and A ends at 0.50 (means of the last rows). The late means cannot be "
            "compared: a group has no values."
        ),
    ),
]


@each_case(("contrast", "sentence"), SENTENCES)
def test_each_status_of_two_groups_has_its_answer(contrast: Contrast, sentence: str) -> None:
    assert answered((A, B), comparison(contrast)) == (sentence,)


def test_below_is_said_of_less() -> None:
    worse = group("B", 1, run(0.3))
    said = answered((A, worse), comparison(level("different", -0.3, -0.2, -0.1)))[0]
    says("analysis/compare/4", said)


@each_case(
    ("times", "said"),
    [
        (((100.0,), (40.0,)), "B reaches and keeps 0.4 from step 40 on, A from step 100 on."),
        (
            ((math.inf,), (40.0,)),
            "B reaches and keeps 0.4 from step 40 on; A does not by step 200.",
        ),
        (
            ((30.0, math.inf), (40.0, 50.0)),
            "By step 200, 2 of 2 runs of B keep 0.4, against 1 of 2 of A.",
        ),
        (((math.inf,), (math.inf,)), ""),
        (((math.nan,), (40.0,)), ""),
    ],
)
def test_who_holds_the_level_is_the_second_sentence(times: Any, said: str) -> None:
    groups = [
        group(name, g, *(run(0.5 + 0.2 * g, time=t) for t in own))
        for g, (name, own) in enumerate(zip("AB", times, strict=True))
    ]
    compared = comparison(level("different"))
    pairing = compared.pairings[0]
    earlier = dataclasses.replace(pairing.contrasts[1], difference=Interval(-60.0, -70.0, -50.0))
    compared = dataclasses.replace(
        compared,
        pairings=(dataclasses.replace(pairing, contrasts=(pairing.contrasts[0], earlier)),),
    )
    assert answered(groups, compared)[1:] == ((said,) if said else ())


FAILED = run(0.0, State.FAILED)


@each_case(
    ("groups", "said"),
    [
        (
            (A, group("B", 1, FAILED)),
            "B failed and A did not: B ends at 0.00 and A ends at 0.50 (means of the last rows).",
        ),
        (
            (group("A", 0, FAILED), B),
            "A failed and B did not: A ends at 0.00 and B ends at 0.70 (means of the last rows).",
        ),
        (
            (group("A", 0, FAILED), group("B", 1, run(0.1, State.FAILING))),
            "Both failed: B ends at 0.10 and A ends at 0.00 (means of the last rows).",
        ),
        (
            (group("A", 0, FAILED, run(0.5)), group("B", 1, run(0.7), run(0.7), run(0.7))),
            (
                "1 of 2 runs of A failed, against 0 of 3 runs of B: A ends at 0.25 and B ends at "
                "0.70 (means of the last rows)."
            ),
        ),
    ],
)
def test_a_failure_is_the_answer_whatever_the_contrast(groups: Any, said: str) -> None:
    for status in ("different", "within_step_noise", "unavailable"):
        assert answered(groups, comparison(level(status))) == (said,)


C = group("C", 2, run(0.6))


@each_case(
    ("groups", "statuses", "said"),
    [
        (
            (A, B, C),
            ("different", "not_separable"),
            "B is highest: 0.7 over steps 151-200. B differs from A by more than seed noise.",
        ),
        (
            (A, B, C),
            ("seed_noise_unknown", "seed_noise_unknown"),
            (
                "B is highest: 0.7 over steps 151-200. B, C differ from A by more "
                "than step noise (one seed each)."
            ),
        ),
        (
            (A, B, C),
            ("within_step_noise",) * 2,
            "B is highest: 0.7 over steps 151-200. None differs from A by more than noise.",
        ),
        (
            (A, B, dataclasses.replace(C, place=None)),
            ("within_step_noise",),
            (
                "B is highest: 0.7 over steps 151-200. No compared run differs from A by more "
                "than noise."
            ),
        ),
        (
            (A, B, C),
            ("unavailable",) * 2,
            "B is highest: 0.7 over steps 151-200. No run can be compared with A.",
        ),
        (
            (A, group("B", 1, run(0.5)), group("C", 2, run(0.5))),
            ("within_step_noise",) * 2,
            "All are at 0.5 over steps 151-200.",
        ),
        (
            (A, group("B", 1, FAILED, run(0.4)), C),
            ("different", "not_separable"),
            (
                "1 of 4 runs failed: B (1 of 2). C is highest: 0.6 over steps 151-200. One seed "
                "cannot show the best run."
            ),
        ),
        (
            (A, group("B", 1, FAILED), C),
            ("different", "not_separable"),
            (
                "1 of 3 runs failed: B. C is highest: 0.6 over steps 151-200. One seed cannot "
                "show the best run."
            ),
        ),
    ],
)
def test_many_groups_are_ranked_unless_they_failed(groups: Any, statuses: Any, said: str) -> None:
    assert " ".join(answered(groups, comparison(*map(level, statuses)))) == said


def test_many_names_are_counted_and_a_key_is_said_once() -> None:
    groups = [group(f"lr {g}", g, run(0.1 * g, State.FAILED)) for g in range(1, 8)]
    said = answered([dataclasses.replace(groups[0], place=0), *groups[1:]], comparison())[0]
    says("analysis/compare/5", said)
    assert shared_key(["lr 1e-5", "lr 2"]) == ("lr", ["1e-5", "2"])
    assert shared_key(["my a", "my b"]) == ("", ["my a", "my b"])
    assert shared_key(["lr 1", "rho 2"]) == ("", ["lr 1", "rho 2"])


def test_a_question_asks_for_another_level_and_window() -> None:
    comparison = gw.compare(rising(1), rising(2), question=Question(late=0.5, reach=0.7))
    assert (comparison.comparison.late_from, comparison.comparison.reach) == (30.5, 0.7)
    assert re.search(r"over steps 30-60", str(comparison))


def test_runs_of_one_name_go_by_what_differs_in_their_paths(tmp_path: Path) -> None:
    """A saved record names no file that it was read from, and a copy names another's."""
    steps = steps_table([1], {"reward": [0.5]})
    beside = Source("elsewhere/log.jsonl", "rows", 1, 1)
    run = RunRecord("log.jsonl", steps, sources=(beside,))
    for ending in ("run/log.jsonl", "run"):
        logs = [tmp_path / seed / ending for seed in ("seed-1", "seed-2")]
        if ending == "run":  # a folder holds the file that is beside a log
            for log in logs:
                log.mkdir(parents=True)
        runs = [dataclasses.replace(run, probes=read_probes(log, "")) for log in logs]
        assert [run.name for run in named_apart(runs)] == ["seed-1", "seed-2"]
        other = dataclasses.replace(runs[1], name="other.jsonl")
        assert [run.name for run in named_apart([runs[0], other])] == ["log.jsonl", "other.jsonl"]
        names = [run.name for run in named_apart([*runs, other])]
        assert names == ["seed-1", "seed-2", "other.jsonl"]
    assert [run.name for run in named_apart([run, run])] == ["log.jsonl", "log.jsonl"]


def test_names_that_are_shortened_to_one_keep_what_differs() -> None:
    start, end = "an_experiment_with_many_settings_", "_and_a_tail_that_all_of_them_have"
    first, second = short_names([f"{start}lr_1e-5{end}.csv", f"{start}lr_3e-6{end}.csv"])
    assert (first[:1], len(first)) == ("…", 24)
    assert ("lr_1e-5" in first, "lr_3e-6" in second) == (True, True)
    third = f"another_experiment_of_{end}"
    assert short_names([f"{start}lr_1e-5{end}", f"{start}lr_3e-6{end}", third]) == [
        first,
        second,
        *short_names([third]),
    ]
    assert short_names(["plain.csv", f"other{end}.log"]) == ["plain", "other_and_a…f_them_have"]


def logged(name: str, meanings: dict[str, str], **columns: np.ndarray) -> RunRecord:
    rows = len(next(iter(columns.values())))
    return RunRecord(
        name,
        steps_table(range(1, rows + 1), columns),
        meanings=tuple(Meaning(key, quantity, "test") for key, quantity in meanings.items()),
    )


ENDS = {"score_min": "reward_min", "score_max": "reward_max"}


def scored(name: str, low: float, high: float, key: str = "score") -> RunRecord:
    """A run whose rewards are logged with the smallest and the largest, the same in all rows."""
    value = low + (high - low) * rising(len(name), 0.9)
    given = {"score_min": np.full(60, low), "score_max": np.full(60, high)}
    return logged(name, {key: "reward"} | ENDS, **{key: value}, **given)


def bare(name: str, key: str) -> RunRecord:
    return logged(name, {key: "reward"}, **{key: rising(9, 0.8)})


@each_case(
    ("first", "second", "compared"),
    [
        (scored("A", -1, 1), scored("Bb", 0, 1), False),
        (scored("A", -1, 1), bare("Bb", "reward_mean"), False),
        # the same column may lie in the same range, of which this run shows less
        (scored("A", 0, 1.5), bare("Bb", "score"), True),
        (scored("A", 0, 1), scored("Bb", 0, 1, "points"), True),
        (bare("A", "score"), bare("Bb", "points"), True),
    ],
)
def test_levels_of_rewards_that_lie_in_other_ranges_are_not_compared(
    first: RunRecord, second: RunRecord, compared: bool
) -> None:
    said = str(gw.compare(first, second))
    assert ("not comparable" not in said) is compared
    assert (" over steps " in said) is compared
    if not compared:
        says("analysis/compare/6", said)


@each_case(
    ("falls", "logs", "metric", "answer"),
    [
        (True, True, "held", "A failed and B did not: A ends at 0.21 and B ends at 0.69"),
        (False, True, "r", "B is below A: "),
        (True, False, "r", "A failed and B did not: A ends at 0.89 and B ends at 0.69"),
    ],
)
def test_a_run_whose_reward_parts_from_the_held_out_one_is_compared_by_that(
    falls: bool, logs: bool, metric: str, answer: str
) -> None:
    """Of the hacked run the reward is the higher, and the held-out reward the lower."""
    noise, row = np.random.default_rng(5).normal(0, 0.01, (4, 200)), np.arange(200) / 200
    keys = {"r": "reward", "held": "eval/reward"}
    held = 0.5 + (-0.3 if falls else 0.3) * row
    hacked = logged("A", keys, r=0.3 + 0.6 * row + noise[0], held=held + noise[1])
    healthy = {"r": 0.3 + 0.4 * row + noise[2], "held": 0.3 + 0.4 * row + noise[3]}
    other = {key: healthy[key] for key in keys if logs or key == "r"}
    comparison = gw.compare(hacked, logged("B", {key: keys[key] for key in other}, **other))
    assert comparison.metric == metric
    assert comparison.answer[0].startswith(answer)
    assert ("held-out" in comparison.sentence) is (metric == "held")
    if metric == "held":
        says("analysis/compare/7", comparison.answer[-1])
