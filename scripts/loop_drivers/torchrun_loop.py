"""TRL's own loop under torchrun, two workers over gloo: a worker is killed at random twenty times,
which ends them all, torchrun is started again as a scheduler would, from the last checkpoint, and
the record must be what the trainer itself logged, digit by digit, with nothing twice. The resumed
run need not be the undisturbed one: `said` has the first step at which TRL's own logs part.

    python torchrun_loop.py FOLDER [KILLS [WORKERS]]

Runs in an environment of its own with one version of TRL (`make loops`). With Transformers 4 there
is one worker: of two none can load the state of its optimiser on a processor. Restarts within
torchrun (`--max-restarts`) are not used: torch 2.13 waits for ever in the second
`init_process_group`.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from trl_loop import GROUP, LONGEST, brief, digits, saved_model

WORKERS, STEPS, KILLS = 2, 40, 20
SLOWLY = 0.5  # seconds that a step takes more, so that a kill finds one
Truth = dict[str, Any]


def worker(folder: Path) -> None:
    """Train, from the last checkpoint where there is one."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from groupwise.integrations.trl import GroupwiseCallback

    torch.set_num_threads(1)

    def slow(completions: list[str], **_: Any) -> list[float]:
        time.sleep(SLOWLY)
        return [0.0] * len(completions)

    draw = random.Random(0)
    rows = [f"{draw.randrange(100):02d}+{draw.randrange(100):02d}=" for _ in range(64)]
    output = folder / "output"
    args = GRPOConfig(
        output_dir=str(output),
        per_device_train_batch_size=2 * GROUP,
        num_generations=GROUP,
        max_completion_length=LONGEST,
        max_steps=STEPS,
        logging_steps=1,
        save_steps=1,
        save_total_limit=3,
        report_to=[],
        use_cpu=True,
        bf16=False,
        learning_rate=1e-3,
        beta=0.0,
        seed=0,
    )
    trainer = GRPOTrainer(
        model=str(folder / "model"),
        reward_funcs=[digits, brief, slow],
        args=args,
        train_dataset=Dataset.from_dict({"prompt": rows}),
    )
    trainer.add_callback(GroupwiseCallback(trainer))
    reached = checkpoint(folder)  # Transformers would also take one that a kill left in part
    last = str(output / f"checkpoint-{reached}") if reached else None
    trainer.train(resume_from_checkpoint=last)
    if trainer.is_world_process_zero():
        history = [row for row in trainer.state.log_history if "loss" in row]
        (folder / "history.json").write_text(json.dumps(history))


def trained(folder: Path, kills: int, workers: int) -> int:
    """Train to the end; how many workers were killed on the way."""
    import torch

    folder.mkdir(parents=True)
    torch.manual_seed(0)
    saved_model(folder / "model")
    launched = ["--standalone", f"--nproc-per-node={workers}", __file__, "worker", str(folder)]
    command = [sys.executable, "-m", "torch.distributed.run", *launched]
    draw, killed, at, code = random.Random(3), 0, 0, 1
    while code:
        before = killed
        with (folder / "console.txt").open("a") as log:
            job = subprocess.Popen(command, stdout=log, stderr=log)
            while job.poll() is None:
                time.sleep(0.05)
                reached = checkpoint(folder)
                if before == killed < kills and reached > at:
                    at = reached  # a checkpoint at least between two kills
                    time.sleep(draw.uniform(0, 1.5))
                    running = processes(job.pid)
                    if running:
                        os.kill(draw.choice(running), signal.SIGKILL)
                        killed += 1
        code = job.returncode
        if code and killed == before:
            sys.exit(f"torchrun ended with {code}: {(folder / 'console.txt').read_text()[-2000:]}")
    return killed


def checkpoint(folder: Path) -> int:
    """The step of the last checkpoint that is whole."""
    states = (folder / "output").glob("checkpoint-*/trainer_state.json")
    return max((int(file.parent.name.partition("-")[2]) for file in states), default=0)


def processes(parent: int) -> list[int]:
    """The children of a process."""
    children = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True)
    return [int(number) for number in children.stdout.split()]


def main() -> None:
    """Train undisturbed and with kills, and write what the undisturbed one logged as the truth."""
    if sys.argv[1] == "worker":
        worker(Path(sys.argv[2]))
        return
    os.environ |= {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "CUDA_VISIBLE_DEVICES": ""}
    folder = Path(sys.argv[1])
    kills, workers = map(int, [*sys.argv[2:], *(KILLS, WORKERS)[len(sys.argv) - 2 :]])
    trained(folder / "undisturbed", 0, workers)
    killed = trained(folder / "killed", kills, workers)
    (folder / "truth.json").write_text(json.dumps(truth_of(folder, killed)), encoding="utf-8")


def truth_of(folder: Path, killed: int) -> Truth:
    """What the trainer logged of both runs, and where the two part."""
    runs = {f"record, {killed} kills": "killed", "record, undisturbed": "undisturbed"}
    history = {
        run: json.loads((folder / run / "history.json").read_text()) for run in runs.values()
    }
    of_trl = {
        "reward": "reward",
        "entropy": "entropy",
        "completion_length": "completions/mean_length",
        "gradient_norm": "grad_norm",
        "loss": "loss",
    }
    logs = {
        log: {
            "place": f"{run}/output/groupwise",
            "quantities": {
                name: [row[key] for row in history[run]] for name, key in of_trl.items()
            },
        }
        for log, run in runs.items()
    }
    pairs = zip(history["killed"], history["undisturbed"], strict=True)
    parted = [
        step
        for step, (row, other) in enumerate(pairs, start=1)
        if any(row[key] != other[key] for key in of_trl.values())
    ]
    said = f"{killed} kills; TRL's own logs part at step {parted[0]}" if parted else "they agree"
    return {
        "version": importlib.metadata.version("trl"),
        "logs": logs,
        "rows": STEPS,
        "settings": {"group_size": GROUP},
        "said": [said],
    }


if __name__ == "__main__":
    main()
