"""Run the steps of a composite GitHub Action here: `run_action.py [--action FILE] NAME=VALUE...`.

Only what our own action uses is known: shell blocks with `env`, inputs with defaults, and the
expressions `inputs.NAME` and `github.action_path`. Expressions inside a script are refused: that is
how an input becomes code. What a workflow would show as its summary is printed at the end.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


def values_of(action: Mapping[str, Any], given: Mapping[str, str], home: Path) -> dict[str, str]:
    """What each expression stands for."""
    unknown = set(given) - set(action["inputs"])
    if unknown:
        raise SystemExit(f"expected {', '.join(action['inputs'])}, got {', '.join(unknown)}")
    values = {"github.action_path": str(home)}
    for name, about in action["inputs"].items():
        if about.get("required") and name not in given:
            raise SystemExit(f"expected a value of {name}, got none: write {name}=VALUE")
        values[f"inputs.{name}"] = given.get(name, about.get("default", ""))
    return values


def run_steps(
    action: Mapping[str, Any],
    given: Mapping[str, str],
    *,
    home: Path = ROOT,
    temporary: Path,
    skip: tuple[str, ...] = (),
) -> tuple[int, str]:
    """Run the shell blocks in order until one fails; return its exit code and the summary."""
    values, summary = values_of(action, given, home), temporary / "summary.md"
    summary.touch()
    fixed = {"RUNNER_TEMP": str(temporary), "GITHUB_STEP_SUMMARY": str(summary)}
    code = 0
    for step in action["runs"]["steps"]:
        if EXPRESSION.search(step["run"]):
            raise SystemExit(f"expected inputs in env, got one in the script of {step['name']}")
        if step["name"] in skip or code:
            continue
        env = {
            name: EXPRESSION.sub(lambda match: values[match[1]], text)
            for name, text in step.get("env", {}).items()
        }
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
        code = subprocess.run(command, env={**os.environ, **fixed, **env}, check=False).returncode
    return code, summary.read_text(encoding="utf-8")


def main() -> int:
    """Run an action."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--action", type=Path, default=ROOT / "action.yml")
    parser.add_argument("inputs", nargs="+", metavar="NAME=VALUE")
    asked = parser.parse_args()
    given = dict(text.partition("=")[::2] for text in asked.inputs)
    action = yaml.safe_load(asked.action.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as temporary:
        code, summary = run_steps(
            action, given, home=asked.action.resolve().parent, temporary=Path(temporary)
        )
    print(f"exit code {code}; the summary:\n\n{summary}")
    return code


if __name__ == "__main__":
    sys.exit(main())
