"""One public log of each kind as it is, given to groupwise, rldoctor, trackio and wandb: what opens
with a reward, and processor seconds.

    python lab/experiments/diagnosis/peers_open.py FOLDER --rldoctor PYTHON --trackio PYTHON --wandb
    PYTHON

FOLDER holds the logs of labels.py. A log opens where the tool finds a reward in it: `groupwise
diagnose` ends with 0, 1 or 3, the JSON of `rl_doctor.cli diagnose` has the field reward_mean,
trackio's import_csv or import_tf_events, its only two, leaves a metric whose name has "reward" in
it, and what `wandb leet inspect --summary` prints has a line that names one. rldoctor needs
tensorboard beside it, trackio its extra of that name. Seconds are those of a processor from the
start of the command to its end, of what opened, medians. Writes the table
`peers_open`.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from labels import arguments, data_folder, results_of

KINDS = {  # kind of log -> one of the folder
    "TRL, trainer_state.json": "trl/imjonezz_llama31_8b_gsm8k_G6.trainer_state.json",
    "TRL, console": "hard/rho0.30_seed43.log",
    "verl, console": "hard/verldata_Qwen2.5-0.5B-bsz256_2-prompt512-resp256-0.538.log",
    "JSON lines": "hard/no_std_normalization.metrics.jsonl",
    "JSON": "hard/drgrpo_g4s_seed44.step_stats.json",
    "CSV": "hard/smollm2_compare_true_reward.csv",
    "notebook": "hard/Mistral_v0.3__7B_-GRPO.table.csv",
    "TensorBoard": "hard/events.out.tfevents.1767950673.lara_TUF.44344.0",
    "rollouts": "rollouts/leonopus_verl_qwen3_4b_run1.slim.jsonl",
    "a loop's own console": "other/tinkerlab_grpo_exp_a.log",
    "W&B, offline": "wandb/actionr1_offline-run-20250406_213620-zmt4w4as/run-zmt4w4as.wandb",
}
TRACKIO = """
import os, sys, tempfile
home = tempfile.mkdtemp()
os.environ["TRACKIO_DIR"] = home
import trackio
log = sys.argv[1]
(trackio.import_tf_events if os.path.isdir(log) else trackio.import_csv)(log, project="p")
files = [os.path.join(here, name) for here, _, names in os.walk(home) for name in names]
sys.exit(0 if any(b"reward" in open(file, "rb").read().lower() for file in files) else 1)
"""
TimedOpening = tuple[bool, float]  # whether it opened, and the seconds


def timed(
    command: Sequence[str], good: Callable[[subprocess.CompletedProcess[str]], bool]
) -> TimedOpening:
    """Run a command; return whether it did it, and the processor seconds."""
    before = os.times()
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(list(command), capture_output=True, text=True, check=False, cwd=home)
    after = os.times()
    return good(
        done
    ), after.children_user + after.children_system - before.children_user - before.children_system


def place(log: Path, folder: Path) -> str:
    """Where a log lies for the tools: event files in a folder of their own, a notebook under its
    ending.
    """
    if "tfevents" in log.name:
        (folder / "events").mkdir()
        return str(shutil.copy(log, folder / "events") and folder / "events")
    if log.read_bytes()[:20].lstrip(b"{ \n").startswith(b'"cells"'):
        return str(shutil.copy(log, folder / "notebook.ipynb"))
    return str(log.resolve())


def found_by_rldoctor(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether rldoctor found a reward."""
    return not done.returncode and "reward_mean" in json.loads(done.stdout)["run"]["fields"]


def main() -> None:
    """Ask the tools of every kind."""
    given = arguments(__doc__, "folder", rldoctor="", trackio="", wandb="")
    home = data_folder(given.folder)
    tools = {
        "groupwise": lambda log: timed(
            [sys.executable, "-m", "groupwise", "diagnose", log],
            lambda done: done.returncode in (0, 1, 3),
        )
    }
    if given.rldoctor:
        command = [given.rldoctor, "-m", "rl_doctor.cli", "diagnose"]
        tools["rldoctor"] = lambda log: timed(
            [*command, log, "--format", "json"], found_by_rldoctor
        )
    if given.trackio:
        tools["trackio"] = lambda log: timed(
            [given.trackio, "-c", TRACKIO, log], lambda done: not done.returncode
        )
    if given.wandb:
        leet = [given.wandb, "-m", "wandb", "leet", "inspect", "--summary"]
        tools["wandb"] = lambda log: timed(
            [*leet, log], lambda done: not done.returncode and "reward" in done.stdout
        )
    rows = []
    for tool, ask in tools.items():
        with tempfile.TemporaryDirectory() as folder:
            answers = {kind: ask(place(home / file, Path(folder))) for kind, file in KINDS.items()}
        seconds = statistics.median(
            [spent for opened, spent in answers.values() if opened] or [0.0]
        )
        opened = {kind: "yes" if good else "" for kind, (good, _) in answers.items()}
        rows.append(
            {
                "tool": tool,
                **opened,
                "opened": sum(map(bool, opened.values())),
                "seconds": f"{seconds:.2g}",
            }
        )
        print(rows[-1])
    results_of(__file__).write("peers_open", rows)


if __name__ == "__main__":
    main()
