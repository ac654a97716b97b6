"""verl's own loop on a processor, ended and resumed: its record and its printed output beside what
verl's own file logger holds.

    python verl_loop.py FOLDER

`verl_cpu/train.py` makes the environment, once.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from loggers import OF_VERL

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "verl_cpu" / "train.py"
STEPS = 8  # of the first run; the second does two more
KEYS = OF_VERL | {
    "reward": "critic/score/mean",
    "policy_change": "actor/ppo_kl",
    "sampler_mismatch": "rollout_corr/kl",
}


def main() -> None:
    """Train twice, and write what verl logged."""
    folder = Path(sys.argv[1])
    command = [sys.executable, str(SCRIPT), "--folder", str(folder), "--steps", str(STEPS)]
    subprocess.run(command, check=True)
    first, resumed = (logged(folder / f"{name}.jsonl") for name in ("first", "resumed"))
    site = map(str, ROOT.glob(".venv-verl/lib/*/site-packages"))
    (verl,) = importlib.metadata.distributions(name="verl", path=list(site))
    own = {"settings": {"group_size": 4, "kl_weight": 0.01}, "lag": ["refresh", 2]}
    truth = {
        "version": verl.version,
        "logs": {
            "callback's record": {"place": "run/groupwise", **own},
            "file": {"place": "first.jsonl", **truth_of(first)},
            "console": {"place": "first.log", **truth_of(first), **own},
            "console, resumed": {"place": "resumed.log", **truth_of(resumed), **own},
        },
        # a run that resumes validates its first step again
        **truth_of([*first, *resumed[1:]]),
    }
    (folder / "truth.json").write_text(json.dumps(truth), encoding="utf-8")


def logged(path: Path) -> list[dict[str, Any]]:
    """What verl's file logger wrote, a row a step."""
    return [json.loads(line)["data"] for line in path.read_text(encoding="utf-8").splitlines()]


def truth_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The truth of rows; a validation before the first update has none of these quantities."""
    columns = {name: [row.get(key) for row in rows] for name, key in KEYS.items()}
    return {"rows": len(rows), "quantities": columns}


if __name__ == "__main__":
    main()
