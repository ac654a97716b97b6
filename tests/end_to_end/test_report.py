"""From a log to a page through every part: the embedded run, bad input of every kind, and logs
mutated at random.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.cases import each_case
from tests.processes import PROGRAM, run_forked

from groupwise import examples
from groupwise.cli import app as cli


@dataclass(frozen=True)
class Answers:
    """What the commands say of a copy of the embedded run that lies in somebody's folder."""

    folder: Path
    page: bytes  # of a process of its own
    again: bytes  # of another
    shown: str  # by the process
    report: str  # as JSON
    fit: dict[str, Any]
    forecast: dict[str, Any]

    @property
    def text(self) -> str:
        return self.page.decode()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """One report in a process of its own, as a user runs it, the same again in another, and the
    other commands here.
    """
    folder = tmp_path_factory.mktemp("end")
    folder_named = folder / "someone" / "trl_run"
    shutil.copytree(examples.trl_run(), folder_named)
    (folder_named / "settings.yaml").write_text("model: tiny\n")
    arguments = [
        "report",
        str(folder_named),
        "--config",
        str(folder_named / "settings.yaml"),
        "--at",
        "400",
        "-o",
        "page.html",
    ]
    for name in ("a", "b"):
        (folder / name).mkdir()
    shown, _ = (of_a_process(arguments, folder / name) for name in ("a", "b"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        report = printed([*arguments, "--json"])
        fit = printed(["fit", str(folder_named), "--json"])
        forecast = printed(["forecast", str(folder_named), "--at", "400", "--json"])
    page, again = ((folder / name / "page.html").read_bytes() for name in ("a", "b"))
    return Answers(folder, page, again, shown, report, json.loads(fit), json.loads(forecast))


def of_a_process(arguments: list[str], folder: Path) -> str:
    """What a command prints in a process of its own."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1"}
    done = run_forked(PROGRAM, arguments, environment=environment, folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def rounded(answer: Any) -> Any:
    """An answer with its numbers to eight digits: the last ones hang on where in memory an array
    begins.
    """
    if isinstance(answer, dict):
        return {key: rounded(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [rounded(value) for value in answer]
    return (
        pytest.approx(answer, rel=1e-8, abs=1e-11, nan_ok=True)
        if isinstance(answer, float)
        else answer
    )


def printed(arguments: list[str]) -> str:
    """What a command prints in this process."""
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        assert cli.main(arguments) == 0
    return stream.getvalue()


def test_the_embedded_run_makes_a_page_of_its_whole_story(answers: Answers) -> None:
    assert answers.shown.rstrip().endswith("The page is page.html")
    page = answers.text
    assert len(answers.page) <= 400_000
    for section in (
        "Forecast",
        "Stability",
        "Group size",
        "Other signals",
        "How this was computed",
    ):
        assert f"<h2>{section}</h2>" in page
    assert "The log has no answer on law" in page  # which is not identifiable yet
    assert 'class="banner ok"' in page
    assert "trainer_state.json" in page
    start = page.index('id="groupwise-results">') + len('id="groupwise-results">')
    embedded = json.loads(page[start : page.index("</script>", start)])
    assert rounded(embedded["runs"]) == json.loads(answers.report)["runs"]
    screen = embedded["runs"][0]["screen"]
    drawn = {chart["key"]: chart for chart in (*screen["sparks"], *screen["others"])}
    assert drawn["dead_group_share"]["lines"][0]["x"][-1] >= 299


def test_a_page_and_its_data_name_no_folder_of_ours(answers: Answers) -> None:
    assert str(answers.folder) not in answers.text
    assert "someone" not in answers.text
    assert "trl_run/checkpoint-300/trainer_state.json" in answers.text
    assert "groupwise report trl_run --config settings.yaml --at 400 -o page.html" in answers.text
    assert "someone" not in answers.report


def test_two_processes_make_the_same_page(answers: Answers) -> None:
    assert answers.page == answers.again


def test_fit_forecast_and_report_agree(answers: Answers) -> None:
    page = json.loads(answers.report)["runs"][0]
    assert rounded(answers.fit) == page["fit"] | {
        key: page["judgement"][key] for key in ("state", "headline")
    }
    assert (answers.forecast["state"], answers.forecast["headline"]) == (
        answers.fit["state"],
        answers.fit["headline"],
    )
    assert rounded(page["forecast"]["forecast"]) == answers.forecast["forecast"]
    assert rounded(page["forecast"]["plateau"]) == answers.forecast["plateau"]


def rows(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def table(step: object, reward: object) -> str:
    return rows("step,reward", *(f"{s},{r}" for s, r in zip(step, reward, strict=True)))  # type: ignore[call-overload]


NOISE = np.random.default_rng(0).normal(0, 0.1, 60)
REFUSED: dict[str, bytes | str] = {
    "empty.csv": "",
    "empty.json": "",
    "blank.jsonl": "\n\n\n",
    "header-only.csv": "step,reward\n",
    "binary.bin": bytes(range(256)) * 50,
    "prose.txt": "Dear diary, the run went well.\n" * 20,
    "null.json": "null",
    "number.json": "3",
    "nested.json": "[" * 100_000,
}
SPOKEN: dict[str, str] = {
    "truncated.json": '{"log_history": [{"step": 1, "reward": 0.5}, {"step": 2, "rew',
    "no-reward.csv": rows("step,foo", "1,2", "2,3"),
    "all-nan.csv": table(range(20), ["nan"] * 20),
    "infinite.csv": table(range(20), ["inf"] * 20),
    "one-row.csv": table([1], [0.5]),
    "constant.csv": table(range(60), [0.5] * 60),
    "above-one.csv": table(range(60), 40 + 10 * NOISE),
    "negative.csv": table(range(60), -1 + NOISE),
    "huge.csv": table(range(60), 1e60 * (1 + NOISE)),
    "minute.csv": table(range(60), 1e-60 * (1 + NOISE)),
    "holes.csv": table(range(60), [value if i % 3 else "nan" for i, value in enumerate(NOISE)]),
    "shuffled.csv": table([*range(30, 60), *range(30)], NOISE),
    "two-runs.csv": table([*range(30), *range(30)], NOISE),
    "no-step.csv": rows("reward", *(f"{value}" for value in NOISE)),
}
CODES = {"no-reward.csv": 3, "all-nan.csv": 3, "infinite.csv": 3, "one-row.csv": 3}


@each_case("name", REFUSED)
def test_what_cannot_be_read_is_refused_in_a_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = REFUSED[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert cli.main(["report", str(tmp_path / name), "-o", str(tmp_path / "page.html")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert len(err) > 40
    assert not (tmp_path / "page.html").exists()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SPOKEN)
def test_what_can_be_read_has_a_page_or_a_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(SPOKEN[name])
    page = tmp_path / "page.html"
    code = cli.main(["report", str(tmp_path / name), "-o", str(page)])
    out, err = capsys.readouterr()
    assert (code, page.exists()) in {(0, True), (1, True), (2, False), (3, True)}, err
    assert err.count("\n") == (code == 2)
    assert code == CODES.get(name, code)
    if code != 2:
        assert "nan" not in out.lower().replace(name, "")
        assert ">nan<" not in page.read_text().lower()


def test_a_folder_without_a_log_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "weights.safetensors").write_bytes(b"\0" * 100)
    assert cli.main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.csv"
    path.write_text(table(range(60), NOISE))
    path.chmod(0)
    assert cli.main(["report", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def valid_log() -> str:
    """A short TRL state with every kind of value that a log holds."""
    history = [
        {
            "step": i,
            "reward": 0.5 + float(NOISE[i]),
            "reward_std": 0.3,
            "kl": 1e-3,
            "completions/mean_length": 100 + i,
            "rewards/f/mean": 0.1,
        }
        for i in range(1, 25)
    ]
    return json.dumps(
        {
            "global_step": 24,
            "logging_steps": 1,
            "log_history": [*history, {"step": 24, "train_runtime": 12.5}],
        }
    )


VALID = valid_log()
PIECES = [
    "NaN",
    "Infinity",
    "-1e999",
    "null",
    '"x"',
    "[]",
    "{}",
    "1e308",
    "\x00",
    "</script>",
    "\\ud800",
    "é",
    ",",
    "-",
    "9" * 400,
]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, len(VALID)), st.integers(0, 30), st.sampled_from(PIECES)),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
@example([(60, 8, "NaN")], False)
def test_a_mutated_log_never_breaks_the_program(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: list[tuple[int, int, str]],
    cut: bool,
) -> None:
    """Whatever happens to a log, the answer is a page or a refusal in one line; never a defect."""
    text = VALID
    for place, length, piece in changes:
        text = text[:place] + piece + text[place + length :]
    path = tmp_path / "trainer_state.json"
    path.write_bytes((text[: changes[0][0]] if cut else text).encode("utf-8", "surrogatepass"))
    code = cli.main(["report", str(path), "--json"])
    out, err = capsys.readouterr()
    assert code in (0, 1, 2, 3), err
    if code != 2:
        json.loads(out)
    else:
        assert out == ""
        assert err.count("\n") == 1


@pytest.mark.slow
def test_every_real_log_has_a_page_or_a_sentence(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The smallest file of each kind in the collection; `make slow` and the readers' tests take
    them all.
    """
    kinds: dict[str, list[Path]] = {}
    for path in (shared_data / "trl").iterdir():
        kind = re.search(r"(\.[a-z_]+)+$", path.name)
        kinds.setdefault(kind[0] if kind else "", []).append(path)
    paths = [min(files, key=lambda path: path.stat().st_size) for files in kinds.values()]
    pages = 0
    for path in paths:
        code = cli.main(["report", str(path), "-o", str(tmp_path / f"{path.name}.html")])
        err = capsys.readouterr().err
        assert code in (0, 1, 2, 3), (path, err)
        assert (tmp_path / f"{path.name}.html").exists() == (code != 2)
        assert err.count("\n") == (code == 2)
        pages += code != 2
    assert pages >= 3
    assert max(page.stat().st_size for page in tmp_path.iterdir()) <= 400_000
