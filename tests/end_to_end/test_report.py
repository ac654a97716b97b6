"""From a log to a page through every part: the embedded run, bad input of every kind, and logs mutated at random."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from groupwise import examples
from groupwise.cli import app as cli


@pytest.fixture(scope="session")
def embedded_run() -> Path:
    """The run that travels with the package."""
    return examples.trl_run()


def run(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as a user does."""
    command = [sys.executable, "-m", "groupwise", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=os.environ | environment, timeout=120)


def test_the_embedded_run_makes_a_page_of_its_whole_story(embedded_run: Path, tmp_path: Path) -> None:
    done = run("report", str(embedded_run), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip().endswith("The page: groupwise-report.html")
    page = (tmp_path / "groupwise-report.html").read_text(encoding="utf-8")
    assert len(page.encode()) <= 400_000
    for section in (
        "What comes next",
        "The law",
        "Reward by function, and evaluation",
        "Groups",
        "Beside the reward",
        "How this was computed",
    ):
        assert f"<h2>{section}</h2>" in page
    assert "are expected of independent rollouts" in page
    assert "trainer_state.json" in page
    start = page.index('id="groupwise-results">') + len('id="groupwise-results">')
    embedded = json.loads(page[start : page.index("</script>", start)])
    printed = json.loads(run("report", str(embedded_run), "--json", folder=tmp_path).stdout)
    assert embedded["runs"] == printed["runs"]


def test_a_page_and_its_data_name_no_folder_of_ours(embedded_run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "someone" / "trl_run"
    shutil.copytree(embedded_run, mine)
    page = tmp_path / "page.html"
    done = run("report", str(mine), "--config", str(mine / "README.md"), "-o", str(page), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    content = page.read_text(encoding="utf-8")
    assert str(tmp_path) not in content
    assert "someone" not in content
    assert "trl_run/checkpoint-300/trainer_state.json" in content
    assert "groupwise report trl_run --config README.md -o page.html" in content
    data = run("report", str(mine), "--json", folder=tmp_path).stdout
    assert "someone" not in data


def test_two_commands_at_one_time_make_the_same_page(embedded_run: Path, tmp_path: Path) -> None:
    pages = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        assert run("report", str(embedded_run), folder=tmp_path / name, SOURCE_DATE_EPOCH="1").returncode == 0
        pages.append((tmp_path / name / "groupwise-report.html").read_bytes())
    assert pages[0] == pages[1]


def test_fit_forecast_and_report_agree(embedded_run: Path, tmp_path: Path) -> None:
    fit = json.loads(run("fit", str(embedded_run), "--json", folder=tmp_path).stdout)
    ahead = json.loads(run("forecast", str(embedded_run), "--at", "400", "--json", folder=tmp_path).stdout)
    page = json.loads(run("report", str(embedded_run), "--at", "400", "--json", folder=tmp_path).stdout)["runs"][0]
    assert page["fit"] == fit
    assert page["forecast"]["forecast"] == ahead["forecast"]
    assert page["forecast"]["plateau"] == ahead["plateau"]


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
    "no-reward.csv": rows("step,foo", "1,2", "2,3"),
    "prose.txt": "Dear diary, the run went well.\n" * 20,
    "null.json": "null",
    "number.json": "3",
    "nested.json": "[" * 100_000,
}
SPOKEN: dict[str, str] = {
    "truncated.json": '{"log_history": [{"step": 1, "reward": 0.5}, {"step": 2, "rew',
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


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_in_a_sentence(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = REFUSED[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert cli.main(["report", str(tmp_path / name), "-o", str(tmp_path / "page.html")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert len(err) > 40
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("name", SPOKEN)
def test_what_can_be_read_has_a_page_or_a_sentence(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text(SPOKEN[name])
    page = tmp_path / "page.html"
    code = cli.main(["report", str(tmp_path / name), "-o", str(page)])
    out, err = capsys.readouterr()
    assert (code, page.exists()) in {(0, True), (2, False)}, err
    assert err.count("\n") == (code == 2)
    if code == 0:
        assert "nan" not in out.lower().replace(name, "")
        assert ">nan<" not in page.read_text().lower()


def test_a_folder_without_a_log_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "weights.safetensors").write_bytes(b"\0" * 100)
    assert cli.main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    return json.dumps({"global_step": 24, "logging_steps": 1, "log_history": [*history, {"step": 24, "train_runtime": 12.5}]})


VALID = valid_log()
PIECES = ["NaN", "Infinity", "-1e999", "null", '"x"', "[]", "{}", "1e308", "\x00", "</script>", "\\ud800", "é", ",", "-", "9" * 400]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(VALID)), st.integers(0, 30), st.sampled_from(PIECES)), min_size=1, max_size=6), st.booleans())
@example([(60, 8, "NaN")], False)
def test_a_mutated_log_never_breaks_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: list[tuple[int, int, str]], cut: bool
) -> None:
    """Whatever happens to a log, the answer is a page or a refusal in one line; never a defect."""
    text = VALID
    for place, length, piece in changes:
        text = text[:place] + piece + text[place + length :]
    path = tmp_path / "trainer_state.json"
    path.write_bytes((text[: changes[0][0]] if cut else text).encode("utf-8", "surrogatepass"))
    code = cli.main(["report", str(path), "--json"])
    out, err = capsys.readouterr()
    assert code in (0, 2), err
    if code == 0:
        json.loads(out)
    else:
        assert out == ""
        assert err.count("\n") == 1


def test_every_real_log_has_a_page_or_a_sentence(shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file of each kind in the collection; `make slow` and the readers' tests take them all."""
    paths = sorted(path for path in (shared_data / "trl").iterdir() if path.is_file())
    assert paths
    pages = 0
    for path in paths:
        code = cli.main(["report", str(path), "-o", str(tmp_path / f"{path.name}.html")])
        err = capsys.readouterr().err
        assert code in (0, 2), (path, err)
        assert (tmp_path / f"{path.name}.html").exists() == (code == 0)
        assert err.count("\n") == (code == 2)
        pages += code == 0
    assert pages > len(paths) / 2
    assert max(page.stat().st_size for page in tmp_path.iterdir()) <= 400_000
