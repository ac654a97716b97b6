"""The trial of advice: its enumeration is fixed, each fault changes what it names, and a fork
takes the fault back from one checkpoint.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.files import table_rows

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "advice"
Load = Callable[[str], Any]


def test_the_enumeration_is_that_of_the_protocol(load: Load) -> None:
    module, faults = load("trial"), load("faults")
    grid = list(module.pieces())
    counts = {"first_update": (len(grid), module.digest(grid))}
    protocol = (FOLDER.parents[1] / "docs" / "decisions" / "0012-the-trial-of-advice.md").read_text(
        encoding="utf-8"
    )
    for name in ("small", "language_model"):
        every = faults.members(name)
        drawn = [module.Piece(str(row.number), None, asdict(row)) for row in every]
        counts[name] = (len(drawn), module.digest(drawn))
    assert all(value in protocol for _, value in counts.values())
    assert counts == {
        "small": (330, "a894ad4bf2468a99"),
        "language_model": (24, "129b82bd149cb933"),
        "first_update": (19, "39e0f5fe9c40467d"),
    }


def test_every_kind_is_drawn_as_often_as_the_protocol_says(load: Load) -> None:
    faults = load("faults")
    small, language = faults.members("small"), faults.members("language_model")
    assert set(Counter((member.fault.kind, member.task) for member in small).values()) == {10}
    assert len(small) == 10 * 11 * 3
    assert set(Counter(member.fault.kind for member in language).values()) == {2, 3}
    assert set(Counter(member.twin for member in language).values()) == {3}
    assert len({(member.twin, member.task, member.form, member.seed) for member in language}) == 8
    early = [member.fault.onset == 0 for member in small]
    assert 0.4 < np.mean(early) < 0.6
    assert max(member.fault.onset for member in small) == 40


def made(faults: Any, kind: str, **size: Any) -> Any:
    """A member with a fault of a kind, on sums of two digits modulo 10."""
    return faults.Member("small", 0, "modular_addition", 1, 0, 3, 8, 0, faults.Fault(kind, 0, size))


CHANGED: dict[
    str, tuple[dict[str, Any], dict[str, Any], set[str]]
] = {  # fields of settings and task
    "rate": ({"factor": 4.0}, {"learning_rate": 2e-3}, set()),
    "lag": (
        {"lag_kind": "fixed", "refresh_interval": 5},
        {"lag_kind": "fixed", "refresh_interval": 5},
        set(),
    ),
    "small_groups": ({"group_size": 2}, {"group_size": 2}, set()),
    "short_limit": ({"share": 0.5}, {}, {"completion_length"}),
    "noisy_verifier": ({"share": 0.5, "mode": "one"}, {}, {"verifier"}),
    "broken_verifier": ({"mode": "zero"}, {}, {"verifier"}),
    "loophole": ({"bonus": 3.0}, {}, {"verifier"}),
    "spent_entropy": ({"factor": 4.0}, {}, set()),
    "hard_prompts": ({"harder": 1}, {}, {"train", "prompt_length", "completion_length"}),
    "flat_reward": ({"share": 1.0}, {}, {"verifier"}),
    "paid_length": ({"bonus": 0.5}, {}, {"verifier"}),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_each_fault_changes_what_it_names_and_nothing_else(load: Load, kind: str) -> None:
    faults, (size, of_settings, of_task) = load("faults"), CHANGED[kind]
    assert set(CHANGED) == set(faults.KINDS)
    member = made(faults, kind, **size)
    assert set(size) == set(faults.drawn_fault(kind, "small", np.random.default_rng(0)).size)
    healthy = load("trial").settings_of(member, 10)
    faulty = faults.faulty_settings(member.fault, healthy)
    assert {
        name: value for name, value in asdict(faulty).items() if value != asdict(healthy)[name]
    } == of_settings
    task = faults.healthy_task(member)
    wrong = faults.faulty_task(member, task)
    # A harder task brings its own name and recipe along.
    names = {
        field.name
        for field in fields(task)
        if getattr(task, field.name) != getattr(wrong, field.name)
    }
    assert names - {"recipe"} == of_task
    assert wrong.held_out == task.held_out


@pytest.mark.parametrize(
    ("kind", "size", "rewards"),
    [
        ("broken_verifier", {"mode": "one"}, {"exact": [1, 1, 1]}),
        ("loophole", {"bonus": 3.0}, {"exact": [1, 1.5, 3]}),
        ("flat_reward", {"share": 1.0}, {"exact": [0.5, 0.5, 0.5]}),
        # The limit is three times that of an answer and its end: six symbols.
        ("paid_length", {"bonus": 0.5}, {"exact": [1, 0, 0], "length": [1 / 6, 2 / 6, 3 / 6]}),
    ],
)
def test_what_a_faulty_verifier_says_of_the_right_answer_and_of_bait(
    load: Load, kind: str, size: Any, rewards: Any
) -> None:
    faults = load("faults")
    member = made(faults, kind, **size)
    verifier = faults.faulty_task(member, faults.healthy_task(member)).verifier
    problem = replace(faults.healthy_task(member).train[0], answer="7")
    earned = verifier([problem] * 3, ["7", "19", "999"], [True, True, True])
    assert {name: reward_N.tolist() for name, reward_N in earned.items()} == rewards
    assert verifier.weights == {"exact": 1.0} | ({"length": 0.5} if kind == "paid_length" else {})


@pytest.fixture
def tiny(load: Load, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The trial with a policy of two layers that was never taught, and 16 rollouts an update."""
    module = load("trial")
    own = module.settings_of

    def untaught(member: Any) -> Any:
        return module.Policy(module.policy_size("tiny"), vocabulary_size=20, seed=member.start)

    monkeypatch.setattr(module, "start_small", untaught)
    monkeypatch.setattr(
        module,
        "settings_of",
        lambda member, steps: replace(own(member, steps), rollouts_per_step=16),
    )
    return module


def forked_at(tiny: Any, member: Any, look: int) -> tuple[Any, Any]:
    """The snapshot at a look, and what comes of it in five updates without the fault."""
    chosen = tiny.settings_of(member, 10)
    journey = tiny.Journey(member, chosen, fault=member.fault)
    for _ in range(look):
        journey.advance()
    return journey.snapshot(), tiny.forked(member, chosen, journey.snapshot(), 5)


@pytest.mark.slow
def test_a_piece_gives_the_same_result_twice_and_its_fork_is_of_that_run(
    tiny: Any, load: Load
) -> None:
    member = made(load("faults"), "noisy_verifier", share=0.5, mode="one")
    run = tiny.whole_run(member, 10, fault=member.fault)
    assert run == tiny.whole_run(member, 10, fault=member.fault)
    snapshot, fork = forked_at(tiny, member, 5)
    assert (snapshot.mark, fork) == (run["marks"][1], forked_at(tiny, member, 5)[1])
    assert len(set(run["marks"])) == 3
    assert fork["right_1e4"][0] == run["right_1e4"][1]


@pytest.mark.thinned(1)
@pytest.mark.parametrize("kind", ["rate", "lag", "small_groups", "flat_reward", "paid_length"])
def test_a_run_is_its_twin_until_its_fault_begins_and_a_fork_before_it_stays_so(
    tiny: Any, load: Load, kind: str
) -> None:
    """Noise that both verifiers share gives an untaught policy something to follow."""
    faults = load("faults")
    noisy = faults.faulty_task
    size = CHANGED[kind][0]
    member = made(faults, kind, **size)
    member = replace(member, fault=replace(member.fault, onset=5))
    tiny.healthy_task = lambda fault: noisy(
        made(faults, "noisy_verifier", share=0.5, mode="one"), faults.healthy_task(fault)
    )
    twin, run = (
        tiny.whole_run(member, 10, fault=None),
        tiny.whole_run(member, 10, fault=member.fault),
    )
    assert twin["marks"][:2] == run["marks"][:2]
    assert twin["marks"][2] != run["marks"][2]
    assert forked_at(tiny, member, 5)[1]["end"] == twin["marks"][2]


def test_spent_entropy_is_taken_back_without_a_rounding_and_kept_where_the_fault_is(
    tiny: Any, load: Load
) -> None:
    member = made(load("faults"), "spent_entropy", factor=8.0)
    chosen = tiny.settings_of(member, 10)
    journey = tiny.Journey(member, chosen, fault=member.fault)
    start = tiny.sharpness(journey.actor).clone()
    journey.advance()  # no completion of an untaught policy is right: the update changes nothing
    assert torch.equal(tiny.sharpness(journey.actor), 8 * start)
    undone, kept = (
        tiny.Journey(member, chosen, fault=fault, snapshot=journey.snapshot())
        for fault in (None, member.fault)
    )
    assert torch.equal(tiny.sharpness(undone.actor), start)
    assert torch.equal(tiny.sharpness(kept.actor), 8 * start)


@pytest.mark.slow
def test_a_run_that_the_trainer_ends_stays_where_it_is(tiny: Any, load: Load) -> None:
    member = made(load("faults"), "broken_verifier", mode="zero")
    run = tiny.whole_run(member, 20, fault=member.fault)
    assert run["ended"] == "InsufficientDataError at 9"
    assert len(set(run["right_1e4"])) == 1


def test_the_length_of_the_grid_is_where_the_pilot_has_risen(load: Load) -> None:
    steps = load("trial").grid_steps
    risen = [5000, 5000, 5000, 5000, 6000, 9600, 9600, 9600, 9600]
    assert steps(risen) == 35  # updates 25, 30 and 35 lie .46 above the start
    assert steps([5000] * 17) == 80


def test_what_is_done_is_not_run_again_and_a_torn_line_is(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, path, asked = load("trial"), tmp_path / "small.jsonl", []

    def piece(name: str, after: str = "run-0") -> Any:
        def run(lines: Any) -> dict[str, int]:
            asked.append(name)
            if name == "run-bad":
                raise ValueError("as commanded")
            return {"lines": len(lines)}

        return module.Piece(
            name, run, {"number": 1}, lambda lines: name == "run-0" or after in lines
        )

    every = [
        piece("run-bad"),
        piece("run-0"),
        piece("run-1"),
        piece("run-2", after="absent"),
    ]
    assert module.run_open(every, path, seconds=0) == 0
    assert module.run_open(every[1:2], path, seconds=60) == 1
    path.write_text(path.read_text() + '{"piece":"run-1","lin')
    assert module.run_open(every, path, seconds=60) == 1
    assert asked == ["run-0", "run-bad", "run-1"]
    lines = [json.loads(text) for text in path.read_text().splitlines() if text.endswith("}")]
    assert [(line["piece"], line["lines"], line["number"]) for line in lines] == [
        ("run-0", 0, 1),
        ("run-1", 1, 1),
    ]
    with module.alone(path), pytest.raises(SystemExit, match="another process"):
        module.run_open(every, path, seconds=60)
    capsys.readouterr()


@pytest.mark.slow
def test_a_member_is_followed_and_given_the_placebo_from_its_look(
    tiny: Any, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The panel is made to alarm at its second look and to go back to update 3: to the
    checkpoint of the start.
    """
    arms, faults = load("arms"), load("faults")
    own = arms.judge

    def alarmed(record: Any, **given: Any) -> Any:
        state = arms.State.OK if len(record.steps) < 10 else arms.State.WARNING
        action = arms.Action("restart", None, 3, (), "", "")
        return replace(own(record, **given), state=state, actions=(action,))

    monkeypatch.setattr(arms, "judge", alarmed)
    monkeypatch.setattr(arms, "settings_of", tiny.settings_of)
    monkeypatch.setitem(arms.HORIZONS, "small", tiny.Horizon(20, 5))
    member = made(faults, "noisy_verifier", share=0.5, mode="one")
    outcome = arms.piece(member, faulty=True)
    run = tiny.whole_run(member, 10, fault=member.fault)
    assert (outcome["look"], outcome["mark"]) == (10, run["marks"][2])
    assert outcome["followed"]["step"] == 0
    assert outcome["followed"]["right_1e4"] == run["right_1e4"][:2]
    assert outcome["placebo"]["step"] in (5, 10)
    assert outcome["oracle"]["right_1e4"] == forked_at(tiny, member, 10)[1]["right_1e4"]
    unsaid = arms.piece(member, faulty=True, causes={"no cause"})
    assert "followed" not in unsaid


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        (["--fresh", "concentration", "--numbers", "401,403"], [401, 403]),
        (["--population", "language_model", "--numbers", "3"], [3]),
        (["--fresh", "concentration", "--population", "language_model"], None),
    ],
    ids=["fresh", "language", "both"],
)
def test_fresh_members_are_small_ones_and_another_population_is_refused(
    given: list[str],
    numbers: list[int] | None,
    load: Load,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arms, drawn = load("arms"), list[Any]()
    monkeypatch.setattr("sys.argv", ["arms.py", *given])
    monkeypatch.setattr(arms, "pieces_of", lambda member, **_: [member])
    monkeypatch.setattr(arms, "run_open", lambda pieces, *_, **__: drawn.extend(pieces))
    if numbers is None:
        with pytest.raises(SystemExit, match="2"):
            arms.main()
        assert "--fresh draws members of --population small, got language_model" in (
            capsys.readouterr().err
        )
    else:
        arms.main()
        assert [member.number for member in drawn] == numbers
    assert bool(drawn) == (numbers is not None)


def test_the_record_of_a_line_by_hand(load: Load) -> None:
    record = load("record")
    further = 16  # looks of the further budget
    about = {"fault": {"kind": "rate", "onset": 0}, "population": "small", "twin": 0}
    lines = {
        "twin-000": {"piece": "twin-000", "right_1e4": [5000] * 33},
        "run-000": {"piece": "run-000", "right_1e4": [1000] * 33, **about},
    }
    line = {
        "number": 0,
        "look": 25,
        "causes": ["length"],
        "actions": [{"kind": "restart"}, {"kind": "mask"}],
        "followed": {"right_1e4": [4600] * (further + 1), "step": 20},
        "placebo": {"right_1e4": [1000, *[2000] * further], "step": 5},
        "oracle": {"right_1e4": [4000] * (further + 1)},
    }
    case = record.case_of(line, lines, healthy=False)
    assert (case.fault, case.line, case.fails, case.as_placebo) == ("rate", "length", True, False)
    assert case.outcome == pytest.approx(
        {"followed": 0.46, "unchanged": 0.1, "placebo": 0.2 - 0.05 / further, "oracle": 0.5}
    )
    assert case.recovered == {
        "followed": True,
        "unchanged": False,
        "placebo": False,
        "oracle": True,
    }
    assert case.gain("unchanged") == pytest.approx(0.36)
    best = line | {"oracle": {"right_1e4": [6000] * (further + 1)}}
    assert record.case_of(best, lines, healthy=False).outcome["oracle"] == pytest.approx(0.6)
    silent = record.case_of({"number": 0, "look": None}, lines, healthy=False)
    assert (silent.line, silent.gain("unchanged"), silent.gain("placebo")) == ("", 0, 0)
    assert record.interval([(0, 0.1), (1, 0.1)]) == "+0.100 (+0.100 to +0.100)"
    assert record.row("length", [case]).startswith("| length | 1 | 1 | 0 | 0 | 1 | +0.360 |")


def test_advice_is_followed_as_far_as_the_settings_and_the_context_reach(load: Load) -> None:
    following, faults = load("following"), load("faults")
    action = following.Action
    member = made(faults, "rate", factor=4.0)
    task = faults.healthy_task(member)
    course = following.Course(load("trial").settings_of(member, 10), task, task.verifier)
    longer = action("limit", 100, None, (), "", "")
    wider = action("clip_high", None, 0.28, (), "", "")
    room = course.longest - task.prompt_length
    assert following.followed(course, [longer]).task.completion_length == room
    endless = replace(course, longest=float("inf"))
    limit = following.followed(endless, [longer]).task.completion_length
    assert limit == 100 * task.completion_length
    assert following.followed(course, [wider]).settings.clip_high == 0.28
    plain = replace(course, settings=replace(course.settings, clip=None))
    assert following.followed(plain, [wider]) == plain


def test_an_interval_draws_twins_with_all_their_members(load: Load) -> None:
    """Three members of one twin and one of another: a quarter of the draws are of either alone."""
    pairs = [(0, 0.0), (0, 0.0), (0, 0.0), (1, 1.0)]
    assert load("record").interval(pairs) == "+0.250 (+0.000 to +1.000)"


def test_a_pair_whose_checkpoint_is_another_is_left_out(load: Load) -> None:
    record = load("record")
    lines = {
        "run-001": {"marks": ["a", "b"], "twin": 1},
        "twin-001": {"marks": ["c", "d"], "twin": 1},
    }
    line = {"piece": "arms-001", "number": 1, "look": 5, "mark": "b"}
    assert record.agrees(line, lines)
    assert not record.agrees(line | {"mark": "d"}, lines)
    assert record.agrees(line | {"piece": "healthy-001", "mark": "d"}, lines)
    assert not record.agrees(line, {})
    assert not record.agrees(line, {"run-001": lines["run-001"]})
    assert record.agrees({"piece": "arms-001", "number": 1, "look": None}, lines)


@pytest.mark.parametrize("given", [["--grid"], [], ["--fresh"]], ids=["grid", "arms", "fresh"])
def test_the_page_has_the_tables(
    given: list[str], load: Load, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """Of lines of advice those of two members and more."""
    page = (FOLDER.parents[1] / "docs" / "studies" / "advice.md").read_text(encoding="utf-8")
    record = load("record")
    monkeypatch.setattr("sys.argv", ["record", *given])
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: 0)
    record.main()
    printed = capsys.readouterr().out
    part = printed if "--grid" in given else printed.partition("| line of advice")[2]
    lines = [line for line in part.partition("\n\n")[0].splitlines()[1:] if "|" in line]
    rows = [line for line in lines if line.split("|")[2].strip() != "1"]
    assert len(rows) > 3
    assert [line for line in rows if line not in page] == []


def test_what_the_pages_print_is_what_the_files_of_the_runner_hold(load: Load) -> None:
    record = load("record")
    printed = {row["cause"]: row for row in table_rows(FOLDER / "record.tsv")}
    records = record.records()
    assert set(printed) == set(records)
    for line, cases in records.items():
        row = printed[line]
        assert int(row["members"]) == len(cases), line
        for arm in ("followed", "placebo"):
            assert int(row[arm]) == sum(case.recovered[arm] for case in cases), line
    for name, kind in (("arms", "run"), ("fresh", "run"), ("healthy", "twin")):
        lines = record.lines_of(FOLDER / f"{name}.jsonl")
        for line in lines.values():
            if line.get("mark"):
                base = lines[f"{kind}-{line['number']:03}"]
                assert base["marks"][line["look"] // 5] == line["mark"], line["piece"]
