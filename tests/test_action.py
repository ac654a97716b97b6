"""The action and the hook: their shell blocks run here, on runs that failed and that did not."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cases import each_case
from tests.cli.test_cli_fleet import in_this_process  # noqa: F401 - no worker is started
from tests.test_docs import script

from groupwise.cli.app import PROGRAM, main

ROOT = Path(__file__).resolve().parent.parent
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
)
LOGS = {
    "bad run": [0.8 + 0.01 * (-1) ** step for step in range(40)] + [0.0] * 20,
    "good": [0.8 - 0.6 * 0.95**step + 0.01 * (-1) ** step for step in range(60)],
    "short": [0.1, 0.2, 0.3],
}


def write_logs(home: Path) -> None:
    for name, rewards in LOGS.items():
        (home / "runs" / name).mkdir(parents=True)
        (home / "runs" / name / "log.jsonl").write_text(
            "".join(f'{{"step": {t}, "reward": {r}}}\n' for t, r in enumerate(rewards))
        )


def judged(tmp_path: Path, given: dict[str, str], program: str) -> tuple[int, str]:
    """The exit code and the summary of the action, with a program in the place of what its first
    step installs.
    """
    place = tmp_path / "temporary" / "groupwise" / "bin" / "groupwise"
    place.parent.mkdir(parents=True)
    place.write_text(f"#!/bin/sh\n{program}\n")
    place.chmod(0o755)
    ended: tuple[int, str] = script("run_action").run_steps(
        ACTION, given, temporary=tmp_path / "temporary", skip=("Install groupwise",)
    )
    return ended


STAND_IN = """
echo "given: $*"
case "$5" in
  good) echo OK ;;
  "bad run") echo FAILED; exit 1 ;;
  short) echo CANNOT TELL; exit 3 ;;
  *) echo "expected a log"; exit 2 ;;
esac
"""


@each_case(
    ("given", "code", "words"),
    [
        ({"run": "good\n"}, 0, ("diagnose --fail-on warning -- good", "OK")),
        ({"run": "good\nbad run", "fail-on": "failing"}, 1, ("--fail-on failing", "FAILED")),
        ({"run": "bad run\ngood"}, 1, ("FAILED", "OK")),
        ({"run": "short"}, 3, ("CANNOT TELL",)),
        ({"run": "short\ngood", "cannot-tell": "pass"}, 0, ("CANNOT TELL", "OK")),
        ({"run": "$(touch hacked)\n`touch hacked`; touch hacked"}, 2, ("-- $(touch hacked)",)),
        ({"run": "--version"}, 2, ("-- --version",)),
    ],
)
def test_the_steps_of_the_action_judge_fail_and_write_the_summary(
    tmp_path: Path, monkeypatch: Any, given: dict[str, str], code: int, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, summary = judged(tmp_path, given, STAND_IN)
    assert ended == code
    assert all(text in summary for text in words), summary
    assert summary.count("### Groupwise") == len(given["run"].splitlines())
    assert not list(tmp_path.rglob("hacked"))


@pytest.mark.slow
def test_the_action_says_what_the_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No line of a log begins one of the job's: it could be a command of the workflow."""
    write_logs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    program = f'exec {shlex.quote(sys.executable)} -m groupwise "$@"'
    ended, summary = judged(tmp_path, {"run": "runs/bad run"}, program)
    assert ended == 1
    assert "    ✗ FAILED  log.jsonl  reward 0.80 → 0.00, collapsed at step 40" in summary
    assert all(line.startswith("| ") for line in capfd.readouterr().out.splitlines())


def test_the_runner_takes_no_input_into_a_script(tmp_path: Path) -> None:
    runner = script("run_action")
    unsafe = {"name": "x", "run": "echo ${{ inputs.run }}"}
    with pytest.raises(SystemExit, match="in the script of x"):
        runner.run_steps({**ACTION, "runs": {"steps": [unsafe]}}, {"run": "a"}, temporary=tmp_path)
    with pytest.raises(SystemExit, match="a value of run"):
        runner.run_steps(ACTION, {}, temporary=tmp_path)
    with pytest.raises(SystemExit, match="got other"):
        runner.run_steps(ACTION, {"run": "a", "other": "b"}, temporary=tmp_path)


def test_the_first_step_installs_what_is_asked_for_or_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "python3"
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/sh\nmkdir -p "$3/bin"\n'
        'printf \'#!/bin/sh\\necho "$@" > "$RUNNER_TEMP/pip"\\n\' > "$3/bin/pip"\n'
        'chmod +x "$3/bin/pip"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    steps = script("run_action").run_steps
    for package, installed in (("", str(ROOT)), ("groupwise==0.2", "groupwise==0.2")):
        steps(
            ACTION, {"run": "a", "package": package}, temporary=tmp_path, skip=("Judge the runs",)
        )
        assert (tmp_path / "pip").read_text() == f"install --quiet {installed}\n"


def test_the_hook_stops_the_commit_of_a_failed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logs(tmp_path)
    monkeypatch.chdir(tmp_path)
    hook = HOOKS[0]
    program, *words = shlex.split(hook["entry"])
    assert (program, hook["language"]) == ("groupwise", "python")
    files = [
        path for path in map(str, Path("runs").rglob("*.jsonl")) if re.match(hook["files"], path)
    ]
    assert len(files) == 3
    assert main([*words, *files]) == 1
    assert main([*words, "runs/good/log.jsonl"]) == 0
    assert words[0] in PROGRAM.commands
