"""The page: one file that asks nothing of anybody, whatever a log holds."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.analysis.charts import POINTS, Chart, Line
from groupwise.analysis.summary import Summary, summarise
from groupwise.diagnostics.judgement import (
    Cause,
    Certainty,
    Cost,
    Environment,
    Environments,
    Finding,
    Judgement,
    RewardCourse,
    Sign,
    State,
    Status,
)
from groupwise.pages.html import _columns, _usual, made_by, render
from groupwise.pages.screen import said_of
from groupwise.record.run import Meaning, RunConfig, RunRecord, Source

Make = Callable[..., RunRecord]
HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\" ' & $\\frac$ \u202e evil "
    "\u2066 \x1b[2J \x00 \ud800 {{x}} ]]> <!--"
)
VOID = {"wbr", "meta", "br", "img", "input", "link", "hr"}


class Page(HTMLParser):
    """A page taken apart: elements, attributes, text, what its scripts hold; unbalanced elements
    are an error.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without a beginning"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self.texts.append(data)

    def named(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag == name]


@pytest.fixture(scope="module")
def summary(made_record: Make) -> Summary:
    return summarise(made_record())


@pytest.fixture(scope="module")
def page(summary: Summary) -> str:
    return render([summary], provenance=made_by(["report", "made"]))


def hostile_record(make: Make) -> RunRecord:
    """A run in which every text that a log can hold tries to break out."""
    made = make(80)
    hostile = HOSTILE.replace("\ud800", "")  # no table can hold half a character
    keys = {name: f"{name}{hostile}" for name in made.metrics()}
    meanings = tuple(
        Meaning(
            keys[m.column],
            m.quantity + HOSTILE if m.quantity.startswith("reward/") else m.quantity,
            HOSTILE,
        )
        for m in made.meanings
    )
    return dataclasses.replace(
        made,
        name=HOSTILE,
        steps=made.steps.rename(keys),
        config=RunConfig().with_settings(
            {"model": "<script>alert(3)</script>", "group_size": 8}, HOSTILE
        ),
        meanings=meanings,
        sources=(Source(HOSTILE, HOSTILE, 1, 1, HOSTILE),),
        notes=(HOSTILE,),
    )


def test_the_page_is_small_and_well_formed(page: str) -> None:
    assert len(page.encode()) <= 400_000
    taken_apart = Page(page)
    assert [element for element, _ in taken_apart.elements].count("h1") == 1
    identifiers = [attributes["id"] for _, attributes in taken_apart.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_the_numbers_of_a_forecast_are_folded_under_that_word(page: str) -> None:
    texts = [text.strip() for text in Page(page).texts if text.strip()]
    head = texts.index("Expected")
    assert texts[head - 2 : head] == ["numbers", "Step"]


def test_the_page_requests_nothing(page: str) -> None:
    taken_apart = Page(page)
    assert not {tag for tag, _ in taken_apart.elements} & {
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "image",
        "base",
        "form",
        "audio",
        "video",
    }
    for _, attributes in taken_apart.elements:
        assert not set(attributes) & {"src", "srcset", "action", "ping", "style"}
        assert all(not name.startswith("on") for name in attributes)
        assert attributes.get("href", "#").startswith("#")
    css = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)[0]
    assert "@import" not in css
    assert "http" not in css
    assert "url(" not in css
    script = Page(page).scripts[1]
    assert not re.search(
        r"fetch\(|XMLHttpRequest|WebSocket|import\(|innerHTML|eval\(|document\.write|new Function",
        script,
    )


def test_the_policy_allows_exactly_the_style_and_the_script_that_are_there(page: str) -> None:
    policy = next(
        a["content"]
        for a in Page(page).named("meta")
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for element, directive in (("style", "style-src"), ("script", "script-src")):
        content = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        assert len(content) == 1
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy


def test_the_results_are_embedded_and_are_those_of_the_charts(page: str) -> None:
    taken_apart = Page(page)
    results = json.loads(taken_apart.scripts[0])
    drawn = [
        attributes["data-chart"]
        for attributes in taken_apart.named("div")
        if "data-chart" in attributes
    ]
    assert len(drawn) == len(set(drawn)) > 8
    for path in drawn:
        chart = results
        for key in path.split("/"):
            chart = chart[int(key) if isinstance(chart, list) else key]
        assert chart["lines"]
        assert set(chart) == set(Chart.__dataclass_fields__)


def test_the_first_screen_is_banner_tiles_reward_sparklines_and_what_to_do(
    summary: Summary, page: str
) -> None:
    first = page[page.index('class="first"') : page.index("<h2>Forecast</h2>")]
    order = [
        'class="banner ',
        'class="lines"',
        "<summary>checks",
        "<summary>numbers",
        'class="tiles"',
        'data-chart="runs/0/screen/chart"',
        'class="sparks"',
        "<noscript>",
    ]
    places = [first.index(part) for part in order]
    assert places == sorted(places)
    said = said_of(summary.judgement) or [("do", "this run needs no change")]
    assert first.count("<dt>") == 4 + len(said)
    assert all(words in first for _, words in said)
    assert first.count('class="panel small"') == 4
    assert f"{summary.judgement.state.value.replace('_', ' ').upper()}</b>" in first
    assert "law" not in "".join(Page(f"<div {first[: first.index('<noscript>')]}</div>").texts)
    headings = re.findall(r"<section><h2>([^<]*)</h2>", page)
    assert headings == [
        "Forecast",
        "Law",
        "Group size",
        "Cost",
        "Rollouts",
        "Prompts",
        "Other sampling choices",
        "Other signals",
        "How this was computed",
    ]
    assert re.findall(
        "<summary>The log has no answer on ([^<]*)</summary><h2>([^<]*)</h2>", page
    ) == [("stability", "Stability")]


def test_a_page_for_others_holds_no_text_of_a_prompt_or_completion(made_record: Make) -> None:
    record = made_record()
    assert record.rollouts is not None
    prompt = json.dumps(record.rollouts["prompt"][0])[1:-1]
    assert prompt in json.dumps(json.loads(Page(render([summarise(record)])).scripts[0]))
    page = render([summarise(record, room=(POINTS, 0))])
    assert prompt not in json.dumps(json.loads(Page(page).scripts[0]))
    assert "<h2>Rollouts</h2>" not in page
    assert "<h2>Prompts</h2>" not in page


@pytest.mark.parametrize("state", list(State))
def test_the_page_shows_the_judgement_and_decides_nothing(state: State, summary: Summary) -> None:
    checks = (
        Finding(Status.CRITICAL, "long", step=7, check="length"),
        Finding(Status.NOT_LOGGED, "", log="kl", check="kl"),
        Finding(Status.NONE, "x", check="entropy"),
    )
    judged = Judgement(
        "made",
        state,
        "reward 0.89 → 0.00, collapsed at steps 75-100",
        first_sign=Sign("truncated_share", 75, 0.0, 0.6, "60 % truncated (was 0 %)"),
        then=(Sign("entropy", 85, 0.13, 0.54, "entropy 0.13 → 0.54"),),
        cause=Cause(Certainty.CANNOT_TELL, ("harder data", "a broken verifier"), ("completions",)),
        do="restart from step 70; lr ÷ 3",
        cost=Cost(125, 4000, 7200.0, of_steps=200),
        not_logged=("kl",),
        checks=checks,
    )
    texts = " ".join(
        "".join(Page(render([dataclasses.replace(summary, judgement=judged)])).texts).split()
    )
    sign = {"ok": "✓", "warning": "!", "cannot_tell": "?"}.get(state, "✗")
    assert (
        f"{sign} {state.value.replace('_', ' ').upper()} · reward 0.89 → 0.00, collapsed at "
        "steps 75-100"
    ) in texts
    for said in (
        "dorestart from step 70; lr ÷ 3",
        "first signstep 75 60 % truncated (was 0 %)",
        "thenstep 85 entropy 0.13 → 0.54",
        "cannot tellharder data, or a broken verifier",
        "cost125 of 200 steps (62 %) since the first sign, 4,000 rollouts, 2 h",
        "Lengthcritical7Long.",
        "Klnot logged–Log kl.",
        "Entropyno sign of a problem–X.",
    ):
        assert said in texts.replace("\u00a0", " "), said
    (fold,) = re.findall("The log has no answer on ([a-z, ]*)", texts) or [""]
    assert ("law" in fold.split(", ")) is (judged.alarm or not summary.law_answers)


@each_case(
    ("state", "shown"),
    [
        (State.OK, "reward 0.2 → 0.8; last of 3 runs was read"),
        (State.WARNING, "reward 0.2 → 0.8; possible problem: overfitting; last of 3 runs was read"),
    ],
)
def test_a_banner_leaves_the_cause_of_a_healthy_run_to_its_line(
    summary: Summary, state: State, shown: str
) -> None:
    parts = ("reward 0.2 → 0.8", "possible problem: overfitting", "last of 3 runs was read")
    cause = Cause(Certainty.POSSIBLE, ("overfitting",))
    judged = Judgement("made", state, "; ".join(parts), parts=parts, cause=cause)
    page = render([dataclasses.replace(summary, judgement=judged)])
    banner = html.unescape(page.split('class="banner')[1].split("</header>")[0])
    assert f" · {shown}<" in banner.replace("\u00a0", " ")


def test_a_hostile_log_stays_text(made_record: Make) -> None:
    record = hostile_record(made_record)
    metric = next(name for name in record.metrics() if name.startswith("reward<"))
    summary = summarise(record, metric=metric)
    source = render([summary, summary], provenance=made_by([HOSTILE]))
    taken_apart = Page(source)
    assert len(taken_apart.scripts) == 2
    assert "Permission is hereby granted" in taken_apart.scripts[1], (
        "uPlot's licence goes where it goes"
    )
    assert not {tag for tag, _ in taken_apart.elements} & {"img"}
    assert "alert(1)" in "".join(taken_apart.texts), "the text is shown, as text"
    assert not set("\x00\x1b\u202e\u2066\ud800") & set(source)
    source.encode("utf-8")
    json.loads(taken_apart.scripts[0])


def test_where_no_list_of_rollouts_is_drawn_a_line_says_where_they_are(page: str) -> None:
    """On paper and without scripts; on a screen the list stands in its place."""
    section = page[page.index("<h2>Rollouts</h2>") :]
    section = section[: section.index("</section>")]
    assert "<noscript>" not in section
    says("pages/html/1", "".join(Page(section[section.index("<p") :]).texts))
    css = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)[0]
    assert "@media screen{.viewer:not(:empty)+p{display:none}}" in css
    assert "@media print{.viewer{display:none}}" in css


def test_several_runs_make_one_page_with_a_table_that_leads_to_each(summary: Summary) -> None:
    bare = dataclasses.replace(summary, charts=dict.fromkeys(summary.charts, ()))
    taken_apart = Page(render([bare, bare, bare]))
    targets = [attributes["href"][1:] for attributes in taken_apart.named("a")]
    sections = [attributes["id"] for attributes in taken_apart.named("article")]
    assert targets == sections == ["run-1", "run-2", "run-3"]


def test_of_several_runs_the_worst_comes_first_and_all_but_its_first_screen_is_folded(
    summary: Summary,
) -> None:
    failed = dataclasses.replace(
        summary,
        name="worse",
        judgement=dataclasses.replace(summary.judgement, state=State.FAILED),
    )
    fine = dataclasses.replace(
        summary, judgement=dataclasses.replace(summary.judgement, state=State.OK)
    )
    several, alone = (Page(render(runs)) for runs in ([fine, failed], [fine]))
    banners = [
        attributes["class"]
        for attributes in several.named("header")
        if attributes["class"].startswith("banner")
    ]
    assert banners == ["banner failed", "banner ok"]
    folds = [words for words in several.texts if words.endswith(", method")]
    assert len(folds) == 2
    assert not [words for words in alone.texts if words.endswith(", method")]


def test_a_run_without_a_reward_has_a_page_that_says_so_and_draws_nothing_empty() -> None:
    import numpy as np

    from groupwise.record.table import steps_table

    bare = summarise(RunRecord("no reward", steps_table(range(60), {"loss": np.zeros(60)})))
    page = render([bare, bare])
    assert 'class="banner cannot_tell"' in page
    assert not [division for division in Page(page).named("div") if "data-chart" in division]
    assert f"There is no forecast: {bare.judgement.headline}." in page
    assert page.replace(' class="n"', "").count("<td>–</td>") >= 4, "now and peak of each run"


def test_a_run_without_a_fit_has_a_page(made_record: Make) -> None:
    bare = summarise(dataclasses.replace(made_record(), steps=made_record().steps.head(2)))
    texts = "".join(Page(render([bare])).texts)
    assert "CANNOT TELL" in texts


def test_the_same_run_makes_the_same_page(
    summary: Summary, page: str, made_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    again = summarise(made_record())
    assert again.as_dict() == summary.as_dict()
    drawn = render([again], provenance=made_by(["report", "made"]))
    assert re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", page) == drawn.replace(
        "2023-11-14 22:13 UTC", ""
    )


def test_the_page_of_a_long_run_with_many_functions_is_as_small(made_record: Make) -> None:
    import numpy as np

    from groupwise.record.table import steps_table

    rng = np.random.default_rng(0)
    size = 700
    columns = {f"f{i}": rng.normal(size=size) for i in range(8)} | {
        "reward": rng.normal(size=size),
        "eval_reward": rng.normal(size=size),
    }
    kinds = [
        "completion_length",
        "truncated_share",
        "entropy",
        "kl",
        "gradient_norm",
        "learning_rate",
        "reward_std_within_group",
        "dead_group_share",
    ]
    columns |= {kind: rng.normal(size=size) for kind in kinds}
    meanings = [Meaning(f"f{i}", f"reward/f{i}", "one of many") for i in range(8)] + [
        Meaning(kind, kind, kind) for kind in kinds
    ]
    meanings += [
        Meaning("reward", "reward", "sum"),
        Meaning("eval_reward", "eval/reward", "on other prompts"),
    ]
    record = RunRecord("long", steps_table(range(size), columns), meanings=tuple(meanings))
    assert len(render([summarise(record)]).encode()) <= 400_000


def test_every_table_can_be_scrolled_by_keyboard_and_shows_that_it_goes_on(page: str) -> None:
    scrolled = [
        attributes for attributes in Page(page).named("div") if attributes.get("class") == "scroll"
    ]
    assert scrolled
    assert all(
        attributes["tabindex"] == "0"
        and attributes["role"] == "region"
        and attributes["aria-label"]
        for attributes in scrolled
    )
    rule = page[page.index(".scroll{") :].split("}", maxsplit=1)[0]
    assert "overflow-x:auto" in rule
    assert "gradient" in rule


def test_an_environment_has_its_level_before_in_front_of_that_now(summary: Summary) -> None:
    lost = Environment("environment", "games", RewardCourse.FELL, 0.5, 0.02, 90)
    gains = Environment("environment", "maths", RewardCourse.ROSE, 0.3, 0.7)
    judged = dataclasses.replace(
        summary.judgement, environments=Environments(2, 1, 1, (lost, gains))
    )
    page = render([dataclasses.replace(summary, judgement=judged)], provenance=made_by(()))
    texts = [text for text in Page(page).texts if text.strip()]
    head = texts.index("Environment")
    rows = [texts[at : at + 5] for at in range(head, head + 15, 5)]
    assert rows == [
        ["Environment", "Reward", "Before", "Now", "From step"],
        ["games", "fell", "0.5", "0.02", "90"],
        ["maths", "rose", "0.3", "0.7", "–"],
    ]


def test_grey_bands_go_by_the_titles_of_their_charts() -> None:
    bands = ("Entropy", "9 runs"), ("Reward", ""), ("Length", "7 runs (trl)")
    charts = [
        Chart(title, title, lines=(Line("", "observed", (), (), band=band),))
        for title, band in bands
    ]
    said = "The grey bands are only for orientation: Entropy, 9 runs; Length, 7 runs (trl)."
    assert said in str(_usual(charts))
    assert str(_usual(charts[1:2])) == ""


def test_a_key_stands_in_the_column_of_keys() -> None:
    meaning = {"column": "reward", "quantity": "reward", "definition": "mean", "doubt": ""}
    run = SimpleNamespace(meanings=[meaning], unknown_columns=())
    made = str(_columns(run))  # type: ignore[arg-type]
    assert '<td class="key"><bdi>reward</bdi></td><td>reward</td>' in made
