"""Every log, real or of our own: commands, pages and the Python object say the same, one number
for one thing, in eight lines.
"""

from __future__ import annotations

import gzip
import html
import json
import math
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from tests.cases import each_case

import groupwise as gw
from groupwise import examples
from groupwise.analysis.components import path_beside, save_components
from groupwise.analysis.watched import judged_run as judged_live
from groupwise.arrays import Float
from groupwise.cli.app import main
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement, Sign
from groupwise.estimators.components import components
from groupwise.pages.screen import MOST_LINES, MOST_WORDS, WIDTH, beside_the_cause, words_in
from groupwise.readers import run_record
from groupwise.record.run import RunRecord
from groupwise.wording import sentence

TESTS = Path(__file__).parent
DATA = TESTS.parent.parent / "shared" / "data"
NUMBER = r"[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+−]?\d+)?"
ENDS = rf"((?:(?:exactly )?{NUMBER} → )+)(?:exactly )?({NUMBER})"
LEVELS = re.compile(rf"\b(?<![Hh]eld-out )(?<![Tt]raining )reward {ENDS}")
# A column's name as a sentence has it, and its levels in order.
NAMED = re.compile(rf"([A-Za-z][\w/@.:-]*(?:[ -][A-Za-z][\w/@.:]*)*?) {ENDS}")
# What is written with all its digits, or with how far it is rounded.
EXACT = rf"exactly ({NUMBER})|({NUMBER}) \(±"
SAID_BEFORE = re.compile(r"^.*: |^(?:while|and|the|while the) ")


def code_and_answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    """The exit code of a command and its JSON; None where it gave none."""
    code = main([*words, "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else None


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints, each run of blanks one."""
    main(list(words))
    return " ".join(capsys.readouterr().out.split())


def judged(path: Path, capsys: pytest.CaptureFixture[str], page: Path) -> dict[str, Any] | None:
    """What the report says of a log, whose judgement is the same by every way to it; None of
    what is no log.
    """
    code, alone = code_and_answer(capsys, "diagnose", str(path))
    again, report = code_and_answer(capsys, "report", str(path), "-o", str(page), "--force")
    once, watched = code_and_answer(capsys, "watch", str(path), "--once")
    assert (code, code) == (again, once), path
    if code == 2:
        assert (alone, report, watched) == (None, None, None), path
        with pytest.raises(gw.GroupwiseError):
            gw.open_run(path)
        return None
    document: dict[str, Any] = report["runs"][0]
    assert document["judgement"] == watched == alone, path
    assert gw.open_run(path).judgement.as_dict() == json.loads(json.dumps(alone)), path
    return document


def logs_in(*folders: Path) -> Iterator[Path]:
    """The files of folders that may be logs."""
    for folder in folders:
        yield from (
            path
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix not in (".md", ".py", ".tsv")
        )


def span_of(text: str) -> tuple[float, float]:
    """The values that are written as a number: half a unit of its last digit to either side."""
    text = text.replace(",", "").replace("−", "-")
    mantissa, _, power = text.partition("e")
    half = 0.5 * 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    return float(text) - 1.001 * half, float(text) + 1.001 * half


def same(*numbers: str) -> bool:
    """Whether numbers may be one, each as it is rounded."""
    spans = [span_of(number) for number in numbers]
    return max(low for low, _ in spans) <= min(high for _, high in spans)


def is_of(number: str, value: float) -> bool:
    """Whether a number is a value, rounded."""
    low, high = span_of(number)
    return low <= value <= high


def text_of(page: Path) -> str:
    """What a page says without its script, each run of blanks one."""
    bare = re.sub(r"<(script|style).*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", bare)).split())


def levels_told(judgement: Judgement) -> dict[str, list[tuple[str, str, str]]]:
    """Before and after of every column wherever they are told, each with where that is."""
    texts = [("headline", judgement.headline)]
    texts += [(f"sign {sign.step}", sign.words) for sign in signs_of(judgement)]
    texts += [(check.check, check.message) for check in judgement.checks]
    levels: dict[str, list[tuple[str, str, str]]] = {}
    for place, text in texts:
        for name, first, last in NAMED.findall(text):
            column = SAID_BEFORE.sub("", name.lower())
            column = "held-out reward" if column == "held-out" else column
            levels.setdefault(column, []).append((place, re.findall(NUMBER, first)[0], last))
    return levels


def signs_of(judgement: Judgement) -> list[Sign]:
    """The signs in order."""
    return [] if judgement.first_sign is None else [judgement.first_sign, *judgement.then]


def check_levels(judgement: Judgement, *texts: str) -> None:
    """One before and one after of every column, in headline, signs, JSON and checks; and of the
    reward in any other text.
    """
    for column, levels in levels_told(judgement).items():
        assert same(*(before for _, before, _ in levels)), (column, levels)
        assert same(*(after for _, _, after in levels)), (column, levels)
    for text in texts:
        for first, last in LEVELS.findall(text):
            before = re.findall(NUMBER, first)[0]
            levels = [*levels_told(judgement)["reward"], ("text", before, last)]
            assert same(*(before for _, before, _ in levels)), levels
            assert same(*(after for _, _, after in levels)), levels
    for sign in signs_of(judgement):
        if sign.before is None or sign.after is None:
            continue
        words, best, _ = re.sub(r" by step [\d,]+$|, from .*", "", sign.words).partition(" (best")
        unit, (start, arrow, _) = 100 if "%" in sign.words else 1, words.partition(" → ")
        name = start.rpartition(" ")[0] if arrow else ""  # which may hold digits
        numbers = re.findall(NUMBER, words.removeprefix(name))[1 if best else 0 :]
        before, after = (
            (numbers[-1], numbers[0])
            if "(was " in sign.words
            else (numbers[0], numbers[-1])
            if arrow
            else ("", "")
        )
        assert not before or is_of(before, unit * sign.before), sign
        assert not after or is_of(after, unit * sign.after), sign


def check_now(judgement: Judgement, report: dict[str, Any], text: str) -> None:
    """One number for where the reward stands: tile, table, headline, and what the forecast
    starts from.
    """
    if judgement.now is None or report["metric"] != judgement.metric:
        return
    tile = next(tile["value"] for tile in report["screen"]["tiles"] if tile["name"] == "Now")
    assert is_of(tile, judgement.now), (tile, judgement.now)
    assert report["screen"]["rows"][0]["now"] == tile
    course = LEVELS.search(judgement.headline) or re.search(
        rf"reward ()({NUMBER}), (?:at its|near its|recovered)", judgement.headline
    )
    if course is not None:
        assert is_of(course[2], judgement.now), (judgement.headline, judgement.now)
    values = {row["name"]: row["now"] for row in report["screen"]["rows"]}
    for sign in signs_of(judgement):
        name = "Held-out reward" if sign.signal == "held_out" else sign.signal.partition("/")[2]
        own = sign.words.partition(" ")[0]  # a score of the task, held against the reward
        name = own if own in values else name
        if name in values and sign.now_from is not None and sign.after is not None:
            assert is_of(values[name], sign.after), (values, sign)
    start = re.search(rf"reward is ({NUMBER}) (?:in the last|at step)", text)
    assert start is None or is_of(start[1], judgement.now), (start, judgement.now)


# What a check that found nothing says of a column now -> the name of its row and tile.
NOW_SAID = {
    "Entropy": rf"No sign of a problem: entropy is ({NUMBER}) nats",
    "KL to the reference": rf"^KL {NUMBER} nats a token in the first rows and ({NUMBER}) in the last",
    "Truncated": rf"No sign of a problem: ({NUMBER}) % of the last completions",
}


def check_columns(judgement: Judgement, report: dict[str, Any]) -> None:
    """One number for where a column stands: tile, table and what a check says of it."""
    rows = {row["name"]: row["now"] for row in report["screen"]["rows"]}
    for tile in report["screen"]["tiles"]:
        assert rows.get(tile["name"], tile["value"]) == tile["value"], tile
    signals = {sign.signal for sign in signs_of(judgement)}
    for name, words in NOW_SAID.items():
        for check in judgement.checks:
            number = re.search(words, check.message)
            if number and name in rows and not signals & {"entropy", "kl", "truncated_share"}:
                assert same(number[1], rows[name].removesuffix(" %")), (check, rows[name])


def check_digits(judgement: Judgement, report: dict[str, Any]) -> None:
    """One number is rounded alike in tile, table, headline, signs and checks."""
    screen = report["screen"]
    rows = {row["name"].lower(): row for row in screen["rows"]}
    tiles = {tile["name"]: tile["value"] for tile in screen["tiles"]}
    if screen["rows"] and report["metric"] == judgement.metric:
        rows["reward"] = screen["rows"][0]
    said = " ".join(check.message for check in judgement.checks)
    exact = {number for each in re.findall(EXACT, said) for number in each}
    for name, levels in levels_told(judgement).items():
        before = [first for _, first, _ in levels]
        after = [last for _, _, last in levels]
        if name in rows:
            before.append(rows[name]["before"])
            after.append(rows[name]["now"])
        if name == "reward" and rows.get(name, {}).get("now") == tiles.get("Now"):
            before.append(tiles.get("Start", ""))
        for texts in (before, after):
            plain = {text.replace("−", "-").removesuffix(" %") for text in texts} - exact
            for digits, other in combinations(filter(re.compile(NUMBER).fullmatch, plain), 2):
                alike = len(digits.partition(".")[2]) == len(other.partition(".")[2])
                assert alike or not same(digits, other), (name, texts)


FORETOLD = ("mean", "mean_low", "mean_high")


def check_forecast(
    record: RunRecord, report: dict[str, Any], page: str, command: str, numbers: Any
) -> None:
    """One forecast: of the page, the live page and the command; none of what is over."""
    ahead = judged_live(record, "reward", 0.9, ended=True).forecast
    going_on = judged_live(record, "reward", 0.9, ended=False).forecast
    shown = bool(report["charts"]["forecast"])
    assert numbers is None or bool(numbers["forecast"]) is shown, numbers
    assert bool(ahead) is shown
    assert shown or not going_on, going_on
    assert shown is ("forecast from step" in command), command
    if shown:
        assert ahead in page
        assert ahead in command
        rows = report["forecast"]["forecast"]
        match = re.search(rf"be ({NUMBER}) \(({NUMBER}) to ({NUMBER})\) by step ([\d,]+)", ahead)
        wide = re.search(
            rf"by step ([\d,]+) the mean may be anywhere from ({NUMBER}) to ({NUMBER})", ahead
        )
        assert match or wide
        for step, key, value in (
            *((match[4], key, match[at]) for at, key in enumerate(FORETOLD, 1) if match),
            *((wide[1], key, wide[at]) for at, key in enumerate(FORETOLD[1:], 2) if wide),
        ):
            (row,) = (row for row in rows if f"{row['step']:,.0f}" == step)
            assert is_of(value, row[key])
        far = rows[-1]
        plateau = next(
            (
                line
                for line in report["charts"]["forecast"][0]["lines"]
                if line["role"] == "plateau"
            ),
            None,
        )
        if (
            plateau is not None
            and plateau["low"][0] is not None
            and not plateau["low"][0] <= far["mean"] <= plateau["high"][0]
        ):
            here = report["forecast"]["expected_gain"]["value"]
            assert (
                abs(far["mean"] - plateau["y"][0])
                <= abs(far["mean"] - here - plateau["y"][0]) + 1e-9
            )
    elif report["judgement"]["state"] in ("failing", "failed", "cannot_tell"):
        assert "There is no forecast: " in page
        assert report["forecast"] is None


def check_words(judgement: Judgement, page: str, why: str) -> None:
    """The page and the terminal tell of every check in the words of the judgement, and ask for
    nothing that is there.
    """
    for text in (page, why):
        for finding in judgement.checks:
            if finding.status.value in ("critical", "warning", "info"):
                assert " ".join(sentence(finding.message).split())[:150] in text, finding
    assert "; ".join(beside_the_cause(judgement)) in page
    assert judgement.cause.named in page
    signs = signs_of(judgement)
    at_once = [sign for sign in signs if sign.step == signs[0].step]
    later = [sign for sign in signs if sign.step != signs[0].step]
    moves = (
        judgement.cause.moves
    )  # what follows begins with what the cause names, unless that came first
    if not any(sign.signal in moves for sign in at_once):
        begin = min((sign.step for sign in later if sign.signal in moves), default=0)
        later = [sign for sign in later if sign.step >= begin]
    for sign in (*at_once[:4], *later[:4]):  # a line of the page has four
        assert sign.words in page


def check_compared(path: Path, judgement: Judgement, capsys: pytest.CaptureFixture[str]) -> None:
    """A comparison with a sibling tells of the log what every other screen does."""
    names = str(path), str(examples.trl_run())
    code = main(["compare", *names, "--json"])
    out, err = capsys.readouterr()
    if code == 2:
        assert judgement.now is None or "share no steps" in err, (path, err)
        return
    compared = json.loads(out)
    run = compared["groups"][0]["runs"][0]
    assert run["state"] == judgement.state, path
    assert (run["headline"], run["since_step"]) == (judgement.headline, judgement.since_step), path
    text = said(capsys, "compare", *names, "--why")
    assert f": {judgement.headline} " in text, path
    assert judgement.state.replace("_", " ") in text.partition(judgement.headline)[0], path
    verdicts = re.findall(r"Both failed|\S+ failed and \S+ did not", compared["answer"])
    assert bool(verdicts) is judgement.alarm, (path, compared["answer"])
    for end in re.findall(rf"ends at ({NUMBER}), .* ends at", compared["answer"]):
        assert any(is_of(end, group["runs"][0]["ends_at"]) for group in compared["groups"]), end
    if judgement.now is not None:
        assert run["ends_at"] == judgement.now, path


def check_asked(judgement: Judgement, record: RunRecord) -> None:
    """Nothing is asked for that the log holds."""
    rollouts = record.rollouts
    if rollouts is None or not len(rollouts):
        return
    asked = " ".join(
        finding.log for finding in judgement.checks if finding.status.value == "not_logged"
    )
    if "reward" in rollouts.columns and rollouts["reward"].is_finite().any():
        assert "completions with prompts and rewards" not in asked.replace("more ", "")
    if "completion" in rollouts.columns and rollouts["completion"].drop_nulls().len():
        assert "texts of the completions" not in asked


def check_one_voice(path: Path, capsys: pytest.CaptureFixture[str], page: Path) -> str | None:
    """Hold everything that is said of a log against each other; return its state, None of what
    is no log.
    """
    report = judged(path, capsys, page)
    if report is None:
        return None
    record, judgement = run_record(path), gw.open_run(path).judgement
    why, command = said(capsys, "diagnose", str(path), "--why"), said(capsys, "forecast", str(path))
    text = " ".join(
        html.unescape(
            re.sub(
                r"<[^>]*>",
                "",
                re.sub(r"<(script|style).*?</\1>", "", page.read_text(), flags=re.DOTALL),
            )
        ).split()
    )
    check_levels(judgement, text, why)
    check_now(judgement, report, f"{text} {command}")
    check_columns(judgement, report)
    check_digits(judgement, report)
    check_forecast(record, report, text, command, code_and_answer(capsys, "forecast", str(path))[1])
    check_words(judgement, text, why)
    check_asked(judgement, record)
    check_compared(path, judgement, capsys)
    main(["diagnose", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(cell_len, lines)) <= WIDTH
    assert words_in(lines) <= MOST_WORDS
    assert judgement.state.upper().replace("_", " ") in lines[0][:20]
    return judgement.state.value


@pytest.mark.slow
@pytest.mark.usefixtures("judged_once", "read_once")
def test_our_own_logs_are_told_alike_by_every_command_page_and_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for packed in (TESTS / "fixtures").rglob("*.jsonl.gz"):
        (tmp_path / packed.stem).mkdir()
        (tmp_path / packed.stem / "journal.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
    logs = list(logs_in(tmp_path, TESTS / "data", TESTS / "fixtures"))
    states = [
        state
        for path in logs
        if (state := check_one_voice(path, capsys, tmp_path / "page.html")) is not None
    ]
    assert len(states) > 30
    assert {"ok", "warning", "failed", "cannot_tell"} == set(states)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "path",
    list(logs_in(DATA)) if DATA.is_dir() else [],
    ids=lambda path: str(path.relative_to(DATA)),
)
@pytest.mark.usefixtures("judged_once", "read_once")
def test_a_real_log_has_one_number_for_one_thing(
    path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    check_one_voice(path, capsys, tmp_path / "page.html")


def noise(rng: np.random.Generator, rows: int, deviation: float, memory: float) -> Float:
    """First-order autoregressive noise."""
    value = rng.normal(size=rows)
    for row in range(1, rows):
        value[row] = memory * value[row - 1] + math.sqrt(1 - memory**2) * value[row]
    return deviation * value


def falling(kind: str, seed: int) -> dict[str, Float]:
    """The columns of a simulated log, as TRL names them, of which one or more fall."""
    rng = np.random.default_rng([seed, *kind.encode()])
    rows, memory, deviation = (150, 60, 240)[seed % 3], (0.0, 0.8)[seed % 2], (0.02, 0.05)[seed % 2]
    onset, length = int(rng.uniform(0.25, 0.7) * rows), int(rng.choice([1, 5, 20, 60, rows]))
    gone = np.clip((np.arange(rows) - onset) / length, 0, 1)

    def column(level: Float | float) -> Float:
        return np.asarray(np.clip(level + noise(rng, rows, deviation, memory), 0, 1))

    height = 0.35 + 0.35 * (1 - np.exp(-4 * np.arange(rows) / rows))
    left = height * (1 - rng.uniform(0.4, 1) * gone)
    right, form = "rewards/accuracy/mean", "rewards/format/mean"
    log = {
        "one": {"reward": column(left)},
        "function": {right: column(left), form: column(0.5 + gone / 2)},
        "opposed": {right: column(0.6 - 0.3 * gone), form: column(0.3 + 0.3 * gone)},
        "two": {right: column(left), form: column(left)},
        "brief": {
            right: column(height + gone / 5),
            "rewards/brevity/mean": column(0.8 * (1 - gone)),
        },
        "held out": {"reward": column(height + gone / 5), "eval/rewards/mean": column(left)},
        "both": {"reward": column(left), "eval/rewards/mean": column(left)},
        "sampler": {"reward": column(left), SAMPLER: 0.01 * np.exp(3 * gone * rng.random())},
    }[kind]
    log.setdefault("reward", sum(log.values(), np.zeros(rows)))
    log["entropy"] = 0.6 * np.exp(rng.uniform(-1, 2) * gone + noise(rng, rows, 0.1, 0.5))
    log["completions/mean_length"] = 200 * np.exp(rng.uniform(-2, 2) * gone)
    log["grad_norm"] = 0.3 * np.exp(rng.uniform(0, 5) * gone + noise(rng, rows, 0.3, 0.5))
    return log


def written(path: Path, columns: dict[str, Float]) -> Path:
    """A log with the columns, the held-out ones in every fifth row."""
    lines = []
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        cells = dict(zip(columns, values, strict=True))
        kept = {name: cell for name, cell in cells.items() if row % 5 == 4 or name[:5] != "eval/"}
        lines.append(json.dumps({"step": row + 1, **kept}))
    path.write_text("\n".join(lines) + "\n")
    return path


SAMPLER = "sampling/sampling_logp_difference/mean"
KINDS = ("one", "function", "opposed", "two", "brief", "held out", "both", "sampler")


@each_case(("kind",), [(kind,) for kind in KINDS])
def test_a_column_that_falls_has_one_pair_of_levels(kind: str, tmp_path: Path) -> None:
    compared_levels = 0
    for seed in range(3):
        record = run_record(written(tmp_path / f"{kind} {seed}.jsonl", falling(kind, seed)))
        for ended in (True, False):
            judgement = judge(record, ended=ended)
            check_levels(judgement)
            compared_levels += max(map(len, levels_told(judgement).values()), default=0)
    assert compared_levels > 6  # of six judgements some tell of one column in several places


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["function", "held out"])
def test_what_falls_is_one_on_every_screen(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "log.jsonl", falling(kind, 0))
    assert check_one_voice(path, capsys, tmp_path / "page.html") in ("warning", "failed")


def test_a_share_that_is_judged_in_place_of_an_unwritten_reward_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    share = falling("one", 0)["reward"]
    path = written(tmp_path / "log.jsonl", {"p": share, "reward_mean": 0 * share})
    judgement = gw.open_run(path).judgement
    assert judgement.metric == "p"
    check_compared(path, judgement, capsys)


@pytest.mark.usefixtures("forked")
def test_a_sweep_tells_of_its_runs_what_a_comparison_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = pytest.importorskip("groupwise_lab.cli.app")
    writes = (
        "import json, sys\nfor step in range(60):\n"
        "    level = 0.5 - 0.4 * 0.9**step + 0.01 * (-1) ** step\n"
        "    print(json.dumps({'step': step, 'reward': level * (step < int(sys.argv[1]))}),"
        " file=open(sys.argv[2] + '/log.jsonl', 'a'))"
    )
    command = [sys.executable, "-c", writes, "{rows}", "{folder}"]
    settings, out = tmp_path / "settings.json", tmp_path / "out"
    settings.write_text(json.dumps({"command": command, "sweep": {"rows": [40, 60]}}))
    assert sweep.main(["sweep", str(settings), "-o", str(out), "--json"]) == 0
    by_rows = json.loads(capsys.readouterr().out)["comparisons"]["rows"]
    runs = [str(path.parent) for path in sorted(out.rglob("log.jsonl"))]
    _, compared = code_and_answer(capsys, "compare", *runs)
    told_of = ("state", "headline", "since_step", "ends_at", "level")
    for alone, other in zip(by_rows["groups"], compared["groups"], strict=True):
        (swept,), (run,) = alone["runs"], other["runs"]
        assert [swept[name] for name in told_of] == [run[name] for name in told_of]
    assert [group["runs"][0]["state"] for group in compared["groups"]] == ["failed", "ok"]
    assert [comparison["contrasts"] for comparison in by_rows["comparisons"]] == [
        comparison["contrasts"] for comparison in compared["comparisons"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.1, 0.8])
def test_a_safe_size_is_one_on_the_page_and_in_the_plan(
    spread: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Components beside a run, of prompts that differ in what they teach, clearly or not."""
    run = Path(shutil.copytree(examples.trl_run(), tmp_path / "run"))
    rng = np.random.default_rng(1)
    score_ND, prompt_N = rng.normal(size=(384, 6)), np.repeat(np.arange(48), 8)
    pull_N = (score_ND * rng.normal(0.2, spread, size=(48, 6))[prompt_N]).sum(axis=1)
    reward_N = (rng.random(384) < 1 / (1 + np.exp(-pull_N))).astype(float)
    save_components(
        components(reward_N, prompt_N, score_ND=score_ND), path_beside(run), provenance={}
    )
    _, report = code_and_answer(
        capsys, "report", str(run), "-o", str(tmp_path / "page.html"), "--force"
    )
    _, plan = code_and_answer(capsys, "plan", str(run))
    shown = report["runs"][0]["group_size"]["plan"]
    assert shown["status"] == plan["status"]
    assert shown["status"] in text_of(tmp_path / "page.html")
    assert " ".join(plan["status"].split()) in said(capsys, "plan", str(run))
    assert shown["present"] == plan["present"]


def test_numbers_are_one_where_their_roundings_meet() -> None:
    assert same("0.93", "0.934", "9.3e-1")
    assert not same("0.93", "0.94", "0.934")
    assert same("0.00", "0.0042")
    assert not same("0.01", "0.0042")
    assert is_of("1,846", 1846.4)
    assert not is_of("−0.12", 0.12)
    assert math.isclose(sum(span_of("0.5")), 1.0)
