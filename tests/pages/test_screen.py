"""The judgement in the terminal: one of every state, written by hand, and what a hostile log may
not do to it.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import partial

from rich.cells import cell_len
from rich.console import Console
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.judgement import (
    NO_CLOCK,
    UNREADABLE,
    Cause,
    Certainty,
    Cost,
    Fact,
    Finding,
    Judgement,
    Learning,
    Sign,
    State,
    Status,
)
from groupwise.files import table_rows
from groupwise.integrations.sinks import LEVELS
from groupwise.intervals import Interval
from groupwise.pages.screen import (
    _MOST_WORDS_A_LINE,
    MOST_LINES,
    MOST_WORDS,
    WIDTH,
    _drawn,
    _LabelledLine,
    _spelt,
    _start,
    judgement_lines,
    print_first_line,
    print_judgement,
    style_of,
    words_in,
)

FAILED = Judgement(
    run="rho0.30_seed43",
    state=State.FAILED,
    headline="reward 0.89 → 0.00, collapsed at steps 75-100",
    since_step=75,
    first_sign=Sign("truncated_share", 75, 0.0, 0.6, "60 % truncated (was 0 %)"),
    then=(
        Sign("completion_length", 75, 314.0, 512.0, "length 314 → 454 → 512 = limit"),
        Sign("entropy", 85, 0.13, 0.54, "entropy 0.13 → 0.31 → 0.54"),
    ),
    cause=Cause(Certainty.LIKELY, ("the policy ran away in length",)),
    learning=Learning.FALLING,
    do="restart from step 70; mask truncated completions; lr ÷ 3",
    cost=Cost(125, of_steps=200),
    not_logged=("a reward on held-out prompts",),
    last_step=200,
)
FAILING = Judgement(
    run="math",
    state=State.FAILING,
    headline="g 0.21 → 0.68, true f 0.001 → 0.002",
    since_step=11,
    first_sign=Sign("reward/g", 11, 0.21, 0.68, "g 0.21 → 0.68"),
    then=(
        Sign("completion_length", 14, 90.0, 40.0, "length 90 → 40"),
        Sign("entropy", 20, 1.0, 0.2, "entropy 1.0 → 0.2"),
    ),
    cause=Cause(
        Certainty.CANNOT_TELL,
        ("harder data", "a broken verifier"),
        ("the completions with their rewards",),
    ),
    do="stop",
    cost=Cost(23, rollouts=5888, seconds=5400.0),
    not_logged=("entropy", "the gradient norm"),
)
WARNING = Judgement(
    run="flat",
    state=State.WARNING,
    headline="nothing learnt in 300 steps (gain -.1 to .12)",
    cause=Cause(Certainty.POSSIBLE, ("too small a group",), ("the share of zero-variance groups",)),
    do="raise num_generations from 2 to 8",
    not_logged=("the share of zero-variance groups",),
)
OK = Judgement(
    run="good",
    state=State.OK,
    headline="reward 0.20 → 0.81, learning",
    learning=Learning.LEARNING,
    not_logged=("entropy",),
)
CANNOT_TELL = Judgement(
    run="short",
    state=State.CANNOT_TELL,
    headline="3 rows are too few to judge",
    not_logged=("8 rows or more", "a reward"),
)
ALL = (FAILED, FAILING, WARNING, OK, CANNOT_TELL)
HOSTILE = "[bold red]x[/] :boom: \x1b[31m\x1b]8;;http://evil\x07 \u202egnp 模型模型 " + "long " * 60


def printed(judgement: Judgement, *, encoding: str = "utf-8", **asked: object) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    drawn = replace(judgement, heights=(0.0, 0.5, None, 1.0))
    print_judgement(drawn, Console(file=stream, width=160), **asked)  # type: ignore[arg-type]
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_a_failed_run_is_drawn_as_specified() -> None:
    fallen = replace(FAILED, heights=(0.95, 0.95, 0.8, 0.6, 0.4, 0.2, 0.1, 0.0))
    assert judgement_lines(fallen) == [
        "✗ FAILED  rho0.30_seed43  reward 0.89 → 0.00, collapsed at steps 75-100",
        "  first sign  step 75  60 % truncated (was 0 %), length 314 → 454 → 512 = limit",
        "  then        step 85  entropy 0.13 → 0.31 → 0.54",
        "  likely      the policy ran away in length",
        "  do          restart from step 70; mask truncated completions; lr ÷ 3",
        "  cost        125 of 200 steps (62 %) since the first sign",
        "  reward ██▇▅▄▂▁▁",
    ]
    assert judgement_lines(fallen, plain=True) == [
        "x FAILED  rho0.30_seed43  reward 0.89 -> 0.00, collapsed at steps 75-100",
        # with its arrows spelt out the length has no room beside it
        "  first sign  step 75  60 % truncated (was 0 %)",
        "  then        step 85  entropy 0.13 -> 0.31 -> 0.54",
        "  likely      the policy ran away in length",
        "  do          restart from step 70; mask truncated completions; lr / 3",
        "  cost        125 of 200 steps (62 %) since the first sign",
        "  reward ##*=-.",
    ]


@each_case(
    ("fact", "said"),
    [
        (Fact.LENGTH_SHRANK, "step 85  entropy 0.13 → 0.31 → 0.54"),
        (Fact.KL_HUGE, "step 90  KL 0.1 → 3"),
    ],
)
def test_what_follows_shows_what_the_cause_names_unless_it_came_first(
    fact: Fact, said: str
) -> None:
    later = (
        Sign("kl", 90, 0.1, 3.0, "KL 0.1 → 3"),
        Sign("norm", 95, 1.0, 9.0, "gradient norm 1 → 9"),
    )
    cause = replace(FAILED.cause, facts=(fact,))
    lines = judgement_lines(replace(FAILED, then=(*FAILED.then, *later), cause=cause))
    assert lines[2].startswith(f"  then        {said}")


def test_a_failing_run_whose_cause_is_open_names_both_and_what_to_log() -> None:
    assert judgement_lines(FAILING) == [
        "✗ FAILING  math  g 0.21 → 0.68, true f 0.001 → 0.002",
        "  first sign  step 11",
        "  then        step 14  length 90 → 40; step 20  entropy 1.0 → 0.2",
        "  cannot tell harder data, or a broken verifier",
        "  do          stop",
        "  cost        23 steps since the first sign, 5,888 rollouts, 90 min",
        "  not logged  entropy; the gradient norm",
    ]


def test_a_run_to_watch_has_a_possible_cause() -> None:
    assert judgement_lines(replace(WARNING, heights=(0.5,))) == [
        "! WARNING  flat  nothing learnt in 300 steps (gain -.1 to .12)",
        "  possible    too small a group; log the share of zero-variance groups",
        "  do          raise num_generations from 2 to 8",
        "  not logged  the share of zero-variance groups",
        "  reward ▅",
    ]


def test_a_run_that_is_ok_needs_two_lines() -> None:
    assert judgement_lines(replace(OK, heights=(0.2, 1.0))) == [
        "✓ OK  good  reward 0.20 → 0.81, learning",
        "  reward ▂█",
    ]


def test_a_run_that_cannot_be_judged_says_what_to_log() -> None:
    assert judgement_lines(CANNOT_TELL) == [
        "? CANNOT TELL  short  3 rows are too few to judge",
        "  not logged  8 rows or more; a reward",
    ]
    says("pages/screen/1", judgement_lines(replace(CANNOT_TELL, run=""))[0])


def test_what_was_asked_for_of_gpus_stands_beside_the_cost_and_not_in_its_place() -> None:
    whole = Cost(200, 6400, 3600.0, 200, gpu_hours=8.0, money=20.0)
    part = Cost(125, 4000, 2250.0, 200, gpu_hours=5.0, money=12.5)
    assert judgement_lines(replace(FAILED, cost=part, spent=whole))[5:] == [
        "  cost        125 of 200 steps (62 %) since the first sign, 4,000 rollouts",
        "  GPU-hours   5 of 8, price 12.50 of 20.00",
    ]
    assert judgement_lines(replace(OK, spent=replace(whole, money=None)))[1:] == ["  GPU-hours   8"]
    unknown = replace(whole, seconds=None, gpu_hours=None, money=None, missing=NO_CLOCK)
    assert judgement_lines(replace(OK, spent=unknown))[1:] == [f"  GPU-hours   {NO_CLOCK}"]
    assert judgement_lines(replace(OK, spent=replace(unknown, missing="")))[1:] == []


def test_gpus_that_only_the_log_knows_are_asked_for_by_nobody() -> None:
    whole = Cost(200, gpu_hours=8.0, asked=False)
    assert judgement_lines(replace(OK, spent=whole))[1:] == []
    unknown = replace(whole, gpu_hours=None, missing=NO_CLOCK)
    assert judgement_lines(replace(OK, spent=unknown))[1:] == []


def test_what_followed_is_told_in_the_order_of_its_steps() -> None:
    """What the cause names has room, and nothing later stands before it."""
    steps = {"reward": 80, "entropy": 90, "kl": 95}
    then = tuple(Sign(name, step, 0.1, 0.9, f"{name} moved") for name, step in steps.items())
    cause = replace(FAILED.cause, facts=(Fact.ENTROPY_ROSE,))
    lines = judgement_lines(replace(FAILED, then=then, cause=cause))
    assert "  then        step 90  entropy moved; step 95  kl moved" in lines
    plain = judgement_lines(replace(FAILED, then=then))
    assert (
        plain[2] == "  then        step 80  reward moved; step 90  entropy moved; step 95  kl moved"
    )


def test_runs_of_one_sweep_are_told_apart_by_what_stands_before_the_endings_of_files() -> None:
    seeds = [replace(WARNING, run=f"tasa_g4s_of_it_seed{n}.step_stats.json") for n in (43, 44)]
    first, other = (judgement_lines(run)[0] for run in seeds)
    assert "tasa_g4s_of_it_seed43  " in first
    assert "tasa_g4s_of_it_seed44  " in other


def test_a_long_name_gives_way_to_the_headline_and_keeps_both_ends() -> None:
    long = replace(FAILED, run="sweeps/qwen25_7b_rho_sweep_rho0.30_seed43.log")
    says("pages/screen/2", judgement_lines(long)[0])
    longer = replace(long, headline=f"{FAILED.headline}, and the entropy rose from 0.13 to 0.54")
    assert judgement_lines(longer)[:2] == [
        "✗ FAILED  sweeps/qwen25_…ho0.30_seed43  reward 0.89 → 0.00, collapsed at steps",
        "  75-100, and the entropy rose from 0.13 to 0.54",
    ]


def test_what_is_said_beside_the_fact_has_lines_of_its_own() -> None:
    """As what was read of several runs: the longest fact leaves it whole."""
    read = "last of 3 runs: 301 of 987 rows were read"
    fact = f"{FAILED.headline}, and the entropy rose from 0.13 to 0.54 in the same rows of the log"
    lines = judgement_lines(replace(FAILED, headline=f"{fact}; {read}", parts=(fact, read)))
    assert f"  also        {read}" in lines
    assert not any("  also  " in line for line in judgement_lines(FAILED))  # one part alone
    cause = Cause(Certainty.POSSIBLE, ("overfitting",))
    parts = ("reward 0.2 → 0.8, still learning", "possible problem: overfitting", read)
    well = replace(OK, headline="; ".join(parts), parts=parts, cause=cause)
    assert [line[2:].split() for line in judgement_lines(well)[1:3]] == [
        ["also", *read.split()],  # the problem has its own line
        ["possible", "overfitting"],
    ]
    console = Console(file=io.StringIO(), width=WIDTH)
    print_first_line(well, console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines()[1:] == [
        f"  also        {part}" for part in parts[1:]
    ]


def test_a_line_with_room_is_not_cut_for_its_numbers() -> None:
    fact = "100 % of completions are truncated from step 3 on, 0 % before; entropy 0.68 → 0.0012 → 0 from 6 to 7"
    assert len(fact.split()) > _MOST_WORDS_A_LINE >= words_in([fact])
    lines = judgement_lines(replace(FAILED, headline=fact))
    assert " ".join(line.strip() for line in lines[:2]).endswith(fact)


def test_why_says_whole_what_was_cut() -> None:
    words = " ".join(f"word{number}" for number in range(40))
    assert words not in printed(FAILED, why=True)
    said = " ".join(printed(replace(FAILED, do=words), why=True).split())
    assert f"{words.capitalize()}." in said


def test_what_is_to_be_logged_is_said_once() -> None:
    log = "log the completions with their rewards"
    lines = judgement_lines(replace(FAILING, do=f"{log}; stop"))
    assert lines[3:5] == [
        "  cannot tell harder data, or a broken verifier",
        f"  do          {log}; stop",
    ]


def test_what_has_no_room_goes_in_the_order_of_its_worth() -> None:
    words = "one two three four five six seven eight nine ten eleven twelve"
    full = replace(FAILING, do=words, headline=words, then=(Sign("entropy", 20, 1.0, 0.2, words),))
    lines = judgement_lines(replace(full, heights=(1.0,)))
    assert words_in(lines) <= MOST_WORDS
    assert [line[2:13].strip() for line in lines[1:]] == [
        "first sign",
        "cannot tell",
        "do",
        "cost",
        "reward █",
    ]


@each_case("plain", [False, True])
@each_case("judgement", ALL)
def test_every_state_keeps_to_the_screen_whatever_the_log_calls_things(
    judgement: Judgement, plain: bool
) -> None:
    sign = Sign(HOSTILE, 10**9, None, None, HOSTILE)
    cause = Cause(Certainty.CANNOT_TELL, (HOSTILE, HOSTILE), (HOSTILE,))
    hostile = replace(
        judgement,
        run=HOSTILE,
        headline=HOSTILE,
        first_sign=sign,
        then=(sign, sign),
        cause=cause,
        do=HOSTILE,
        cost=Cost(10**12, 10**15, 1e9, 10**12),
        not_logged=(HOSTILE,),
    )
    for shown in (
        judgement,
        hostile,
        replace(hostile, run="x" * 300, headline="y" * 500),
        replace(hostile, run="a b " * 50, do="a " * 200),
    ):
        lines = judgement_lines(replace(shown, heights=(1.0,) * 40), plain=plain)
        assert len(lines) <= MOST_LINES
        assert max(map(cell_len, lines)) <= WIDTH
        assert words_in(lines) <= MOST_WORDS
        assert shown.state.value.upper().replace("_", " ") in lines[0][:20]
        assert "\x1b" not in "".join(lines)
        assert "\u202e" not in "".join(lines)
        assert not plain or "".join(lines).isascii()


def test_a_stream_that_is_no_utf_8_gets_ascii() -> None:
    says("pages/screen/3", printed(FAILED, encoding="latin-1").splitlines()[0])
    assert printed(FAILED, encoding="ascii").splitlines()[-1] == "  reward  = #"
    assert printed(FAILED).splitlines()[-1] == "  reward ▁▅ █"


def test_markup_and_emoji_of_a_log_are_shown_and_not_obeyed() -> None:
    text = printed(
        replace(OK, run="[bold red]:boom:[/]", headline="[link=file:///etc]y[/link] :skull:")
    )
    says("pages/screen/4", text.splitlines()[0])


CHECKS = (
    Finding(
        Status.CRITICAL,
        "the reward fell from 0.89 to 0.00",
        75,
        Interval(0.95, 0.9, 0.97),
        0.5,
        facts=(Fact.PART_LOST_AT_ONCE,),
        check="collapse",
    ),
    Finding(Status.INFO, "the entropy is low", check="entropy"),
    Finding(Status.NONE, "2 % are truncated", check="length_runaway"),
    Finding(
        Status.NOT_LOGGED,
        "no held-out reward",
        log="a reward on held-out [bold]prompts[/]",
        check="reward_hacking",
    ),
    Finding(Status.NONE, "no swing", value=Interval(0.0287, 0, 1), check="instability"),
    Finding(Status.NOT_LOGGED, "no [bold]KL[/]", check="kl"),
)
CHECKS = (CHECKS[-1], *CHECKS[:-1])


def test_why_adds_the_answer_of_every_check() -> None:
    text = printed(replace(OK, checks=CHECKS), why=True)
    assert [line for line in text.splitlines()[3:] if "measured" not in line] == [
        "",
        "  Reward collapse, critical from step 75: The reward fell from 0.89 to 0.00.",
        "  Entropy, info: The entropy is low.",
        "  No sign of a problem in 2 checks: Length runaway; Instability.",
        "  Not logged: 4 checks ran; 1 lacks a signal; --json lists all.",
        "      Reward hacking: log a reward on held-out [bold]prompts[/].",
    ]


def test_why_names_three_of_what_is_not_logged_and_the_first_screen_counts_it() -> None:
    """A check that cannot say what to log is silent: the run may have no tools to watch."""
    silent = Finding(Status.NOT_LOGGED, "no tools", check="tools")
    asked = tuple(
        replace(silent, log=f"signal {place}", check=f"check_{place}") for place in range(4)
    )
    judged = replace(OK, checks=(silent, *asked, *CHECKS[1:4]))
    said = printed(judged, why=True).splitlines()
    assert said[1] == "  not logged  3 checks ran; 4 lack a signal"
    assert "  Not logged: 3 checks ran; 4 lack a signal; --json lists all." in said
    assert [line.strip() for line in said[-3:]] == [
        f"Check {place}: log signal {place}." for place in range(3)
    ]
    for other in (replace(OK, checks=(silent, *CHECKS[1:4])), replace(FAILED, checks=asked)):
        assert "checks ran" not in printed(other)


def test_why_adds_the_numbers() -> None:
    lines = printed(replace(OK, checks=CHECKS), why=True).splitlines()[3:]
    assert (
        lines[2]
        == "      measured 0.95 (0.90 to 0.97), limit 0.5; a part of the reward was lost at once"
    )


def test_the_json_is_that_of_the_judgement() -> None:
    shown = json.loads(json.dumps(FAILED.as_dict()))
    assert list(shown) == [
        *("schema", "state", "headline", "since_step", "first_sign", "then", "cause"),
        *("learning", "do", "actions", "cost", "spent", "to_come", "not_logged", "checks", "notes"),
        "environments",
    ]
    assert shown["first_sign"] == {
        "signal": "truncated_share",
        "step": 75,
        "before": 0.0,
        "after": 0.6,
    }
    assert shown["cost"] == {"steps": 125} | dict.fromkeys(
        ("rollouts", "seconds", "tokens", "gpu_hours", "money")
    )


def test_a_terminal_of_ascii_keeps_signs_and_operators() -> None:
    judgement = replace(FAILED, headline="gain −0.5 × 3 ÷ 2 ≤ 1 – 2")
    first = judgement_lines(judgement, plain=True)[0]
    assert first.endswith("gain -0.5 x 3 / 2 <= 1 - 2")


@each_case(
    ("parts", "said"),
    [
        (("a " * 22,), ("a " * 22).rstrip()),  # 22 words have room, 23 have not
        (("a " * 23,), ("a " * 22).rstrip() + "..."),
        (("b, " + "a " * 22,), "b"),
        (("x" * 66, ", y"), "x" * 66),  # 14 characters stand before it
        (("x" * 63, ", y"), "x" * 63 + ", y"),
        (("x" * 64, ", y", "z"), "x" * 64),
        (("x" * 67,), "x" * 63 + "..."),
        (("a " * 20, " b c", " d"), "a " * 20 + "b c"),
        # What has no room is left out whole: what stands in brackets, then the last clause.
        (("x" * 30 + "; y z, " + "v" * 30,), "x" * 30),
        (("x" * 30 + " (1; 2); " + "v" * 30,), "x" * 30 + "; " + "v" * 30),
        (("x" * 30 + " (1; 2); " + "v" * 36,), "x" * 30),
        (("x" * 40 + ", 4,544 " + "v" * 30,), "x" * 40),
        (("x" * 9 + ": " + "y " * 15 + "v" * 50,), "x" * 9),
    ],
)
def test_a_line_says_as_much_as_has_room(parts: tuple[str, ...], said: str) -> None:
    parts = (parts[0].rstrip(), *parts[1:])
    line = _LabelledLine("not logged", parts, 8)
    assert _drawn(line, partial(_spelt, plain=True)) == [f"  not logged  {said}"]


@each_case(
    ("headline", "before", "words"),
    [
        ("entropy was 1.78 and is 0.08 from step 9 on", 1.78, "step 9"),
        (
            "entropy was 1.78 and is 0.081 from step 9 on",
            1.78,
            "step 9  entropy 0.08 (was 1.78)",
        ),
        ("reward 1.78 → 0.00", 1.78, "step 9  entropy 0.08 (was 1.78)"),
        # the same numbers of another signal, or of another change
        ("reward 1.78 → 0.08, collapsed at step 9", None, "step 9  entropy 0.08 (was 1.78)"),
        ("entropy was 1.78 and is 0.08 from step 9 on", 1.779, "step 9  entropy 0.08 (was 1.78)"),
        ("entropy 0.08 (was 1.78)", None, "step 9"),  # its very words
    ],
)
def test_a_first_sign_repeats_no_numbers_that_the_headline_gives_of_it(
    headline: str, before: float | None, words: str
) -> None:
    sign = Sign("entropy", 9, 1.78, 0.08, "entropy 0.08 (was 1.78)")
    stated = () if before is None else (replace(sign, before=before),)
    judged = replace(FAILED, headline=headline, first_sign=sign, then=(), stated=stated)
    assert judgement_lines(judged)[1] == f"  first sign  {words}"


def test_a_headline_drops_whole_clauses_and_why_says_them() -> None:
    most = "98 % of completions are truncated from step 30 on, 48 % in the 5 rows before"
    long = replace(
        OK,
        run="a" * 28,
        headline=f"{most}; reward 0.54 → 0.89 in 195 steps; no clear gain since step 105",
    )
    first = " ".join(line.strip() for line in judgement_lines(long)[:2])
    assert first == f"✓ OK  {long.run}  {most}; reward 0.54 → 0.89 in 195 steps"
    assert f"  {long.headline}." in printed(long, why=True)
    whole = " ".join(printed(replace(long, headline=most), why=True).split())
    assert whole.count(most) == 1


def test_a_word_that_ends_where_the_room_does_is_kept() -> None:
    assert [_start("ab cd ef", room) for room in (4, 5, 6)] == ["ab", "ab cd", "ab cd"]


def test_the_table_of_states_has_a_row_for_each_and_what_shows_it_is_there() -> None:
    """A run that cannot be read has a mark and no style, and no tracker is told of it."""
    rows = {row["state"]: row for row in table_rows("states.tsv")}
    assert [*rows] == [*State, UNREADABLE]
    assert all(len(row["mark"]) == 1 for row in rows.values())
    assert [name for name, row in rows.items() if not (row["style"] and row["level"])] == [
        UNREADABLE
    ]
    assert {*LEVELS.values()} == {"INFO", "WARN", "ERROR", ""}
    assert (style_of(State.OK), style_of(UNREADABLE)) == ("bold green", "")
