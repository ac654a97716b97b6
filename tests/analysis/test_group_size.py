"""The section on the group size: a plan where components lie beside the run, rewards alone
labelled as such where not.
"""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.analysis.components import path_beside, save_components
from groupwise.analysis.plan import (
    NOT_LOGGED,
    group_size_evidence,
    logged_batch,
    shown_provenance,
)
from groupwise.analysis.summary import Summary, summarise
from groupwise.estimators.best_group_size import (
    Budget,
    plan_group_size,
)
from groupwise.estimators.components import components
from groupwise.pages.html import render
from groupwise.pages.tables import plan_grid
from groupwise.record.run import RunConfig, RunRecord, cut
from groupwise.record.table import rollouts_table, steps_table

Make = Callable[..., RunRecord]
HOSTILE = "</script><img src=x onerror=alert(1)> [bold]x[/] \x1b[2J"


def measured(place: Path, **facts: object) -> Path:
    """Save the components of 48 groups of 8 whose prompts differ."""
    rng = np.random.default_rng(1)
    score, prompt = rng.normal(size=(384, 6)), np.repeat(np.arange(48), 8)
    pull = (score * rng.normal(0.2, 0.8, size=(48, 6))[prompt]).sum(axis=1)
    reward = (rng.random(384) < 1 / (1 + np.exp(-pull))).astype(float)
    return save_components(
        components(reward, prompt, score_ND=score), place, provenance=facts, force=True
    )


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's file, beside which components lie."""
    run = tmp_path_factory.mktemp("opened") / "run.csv"
    run.write_text("")
    measured(path_beside(run), model="/home/me/checkpoint-300", steps=[1, 9])
    return run


@pytest.fixture(scope="module")
def planned(made_record: Make, opened: Path) -> Summary:
    """A run of groups of 8 and 4 prompts a step with its components."""
    return summarise(made_record(60), opened=opened)


@pytest.fixture(scope="module")
def planned_page(planned: Summary) -> str:
    """Its page."""
    return render([planned])


def test_components_beside_the_run_become_a_plan_at_its_own_budget(planned: Summary) -> None:
    plain = json.loads(json.dumps(planned.as_dict()["group_size"]))
    assert plain["plan"]["budget"]["amount"] == 8 * 4
    assert plain["plan"]["present"]["group_size"] == 8
    assert {"value", "low", "high"} <= set(plain["components"]["vp"])
    assert plain["provenance"] == {"model": "checkpoint-300", "steps": [1, 9]}
    assert plain["rewards_alone"] is None
    assert planned.group_size.plan is not None
    assert planned.group_size.said == (planned.group_size.plan.status,)
    assert (
        "These components were measured with model checkpoint-300, steps 1 to 9."
        in planned.group_size.notes
    )
    assert planned.group_size.missing == ""


def test_the_page_shows_figure_tables_and_words_and_stays_small(
    planned: Summary, planned_page: str
) -> None:
    page = planned_page
    assert len(page.encode()) <= 400_000
    section = page[page.index("<h2>Group size") :].split("</section>")[0]
    for words in (
        "is safe for a whole run",
        "Extra error now",
        "Variance components of the gradient",
        "These components were measured with",
    ):
        assert words in section
    assert "<details" in section[: section.index("Extra error now")], "numbers stand behind a fold"
    plan = planned.group_size.plan
    assert plan is not None
    table = section[section.index("Group sizes at this budget") :].split("</table>")[0]
    assert table.count("<tr") == 1 + len(plan.shown_sizes)
    assert "/home/me" not in page


def test_without_components_rewards_speak_and_are_labelled(made_record: Make) -> None:
    summary = summarise(made_record(60), opened=Path("elsewhere/my run.csv"))
    group_size = summary.group_size
    assert group_size.components is None
    assert group_size.rewards is not None
    assert group_size.said == (group_size.rewards.status, group_size.rewards.batch.said)
    command = "groupwise components 'my run.csv' --model CHECKPOINT"
    assert f"For a safe group size: {command}" in group_size.notes
    section = render([summary]).split("<h2>Group size")[1].split("</section>")[0]
    assert group_size.rewards.status in html.unescape(section).replace("\u00a0", " ")
    assert "More mixed groups" in section
    assert "elsewhere" not in json.dumps(summary.as_dict()["group_size"]["rewards_alone"])


def test_without_rollouts_the_section_is_a_line_on_what_to_log() -> None:
    rng = np.random.default_rng(0)
    bare = summarise(
        RunRecord("bare", steps_table(range(80), {"reward": 0.5 + rng.normal(0, 0.1, 80)}))
    )
    assert bare.group_size.missing == NOT_LOGGED
    page = render([bare])
    assert NOT_LOGGED in page.split("<summary>The log has no answer on ")[1].split("<section>")[0]
    assert "<section><h2>Group size" not in page


def test_an_earlier_look_uses_no_later_components(made_record: Make, opened: Path) -> None:
    evidence = group_size_evidence(cut(made_record(60), 40), opened=opened, until=40)
    assert evidence.components is None
    assert evidence.rewards is not None
    assert any("are ignored" in note for note in evidence.notes)


def test_a_damaged_file_is_told_and_stops_nothing(
    made_record: Make, opened: Path, tmp_path: Path
) -> None:
    place = path_beside(tmp_path / "run.csv")
    whole = path_beside(opened).read_text()
    for content in (
        "{",
        '{"format": "groupwise-components"}',
        "[]",
        whole.replace('"version": 1', '"version": 7'),
    ):
        place.write_text(content)
        evidence = group_size_evidence(made_record(60), opened=tmp_path / "run.csv")
        assert evidence.rewards is not None
        notes = [note for note in evidence.notes if place.name in note]
        assert notes
        assert str(place.parent) not in notes[0]


def test_hostile_facts_stay_text(made_record: Make, tmp_path: Path) -> None:
    measured(
        path_beside(tmp_path / "run.csv"),
        **{HOSTILE: HOSTILE, "nested": [HOSTILE], "path": f"/home/{HOSTILE}"},
    )
    summary = summarise(
        dataclasses.replace(made_record(60), name=HOSTILE), opened=tmp_path / "run.csv"
    )
    page = render([summary])
    assert "<img" not in page
    assert "\x1b" not in page
    assert page.count("</script>") == 2


def test_no_plan_without_the_batch_in_use(made_record: Make, opened: Path) -> None:
    bare = dataclasses.replace(made_record(60, rollouts=False), config=RunConfig())
    evidence = group_size_evidence(bare, opened=opened)
    assert evidence.components is not None
    assert evidence.plan is None
    assert any("the settings group_size and prompts_per_step" in note for note in evidence.notes)
    assert "smallest error" in evidence.said[0]


def test_a_run_that_divides_by_the_deviation_is_told_so(made_record: Make, opened: Path) -> None:
    made = made_record(60)
    divided = dataclasses.replace(
        made, config=made.config.with_settings({"scale_rewards": "group"}, "x")
    )
    assert any(
        "deviation of the group" in note
        for note in group_size_evidence(divided, opened=opened).notes
    )
    assert not any("deviation" in note for note in group_size_evidence(made, opened=opened).notes)


def grouped(
    rewards: dict[tuple[int, int], list[float | None]], column: str = "reward"
) -> RunRecord:
    """A record of given rewards."""
    rows = [
        {"step": step, "prompt_id": prompt, column: value}
        for (step, prompt), values in rewards.items()
        for value in values
    ]
    steps = sorted({step for step, _ in rewards})
    return RunRecord(
        "made", steps_table(steps, {"reward": [0.0] * len(steps)}), rollouts_table(rows)
    )


def test_settings_come_before_completions_in_what_the_batch_is() -> None:
    record = grouped({(1, 0): [0.0] * 4, (1, 1): [0.0] * 4, (1, 2): [0.0] * 4})
    assert logged_batch(record) == (4, 3)
    assert logged_batch(
        dataclasses.replace(record, config=RunConfig().with_settings({"group_size": 8}, "x"))
    ) == (8, 3)
    assert logged_batch(RunRecord("bare", steps_table([1], {}))) == (None, None)


@each_case(
    ("amount", "values"),
    [
        *product(
            [4.0, 7.0, 256.0, 1e6],
            [(1.0, 1.0, 49.0), (0.0, 1.0, 1.0), (1.0, 0.0, 0.0), (1e-9, 1.0, 1e9)],
        ),
        (1e7, (1e-9, 1.0, 1e9)),
    ],
)
def test_every_plan_has_a_short_table(amount: float, values: tuple[float, float, float]) -> None:
    plan = plan_group_size(*values, Budget(amount), present=2)
    sizes = plan.shown_sizes
    spoken = {plan.group_size, 2, *plan.safe_sizes}
    assert spoken & {point.group_size for point in plan.curve} <= set(sizes)
    assert len(sizes) <= 20
    grid = plan_grid(plan, sizes)
    assert grid.rows[grid.best][0] == f"{plan.group_size:,}"


def test_facts_of_a_stranger_are_cut_short() -> None:
    shown = shown_provenance({f"k{i}": "x" * 1000 for i in range(100)} | {"deep": {"a": 1}})
    assert len(shown) == 24
    assert max(map(len, map(str, shown.values()))) <= 80
