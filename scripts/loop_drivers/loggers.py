"""Packages' own loggers, driven with numbers of ours under the keys that their trainers log.

    python loggers.py FOLDER SYSTEM

Runs in an environment of its own that has the package (`make loops`).
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import logging
import os
import random
import struct
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

STEPS, GROUP, PROMPTS = 12, 4, 6
Truth = dict[str, Any]
Rows = list[dict[str, float]]


def single(number: float) -> float:
    """A number in single precision, which is what TensorBoard keeps."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def rows_of(keys: Mapping[str, str]) -> tuple[Rows, Truth]:
    """Rows of drawn numbers under a package's keys, by quantity, and the truth of them."""
    draw = random.Random(7)
    rows = [{key: single(draw.random()) for key in keys.values()} for _ in range(STEPS)]
    columns = {name: [row[key] for row in rows] for name, key in keys.items()}
    return rows, {"rows": STEPS, "quantities": columns}


OF_VERL = {
    "reward": "critic/rewards/mean",
    "entropy": "actor/entropy",
    "kl": "actor/kl_loss",
    "completion_length": "response_length/mean",
    "truncated_share": "response_length/clip_ratio",
    "clip_ratio": "actor/pg_clipfrac",
    "gradient_norm": "actor/grad_norm",
    "loss": "actor/pg_loss",
    "learning_rate": "actor/lr",
}
OF_TRL = {
    "reward": "reward",
    "kl": "kl",
    "entropy": "entropy",
    "completion_length": "completions/mean_length",
    "truncated_share": "completions/clipped_ratio",
    "loss": "loss",
    "learning_rate": "learning_rate",
}


def clearml(folder: Path) -> Truth:
    """ClearML's offline session, logged as Transformers' callback does."""
    os.environ["CLEARML_CACHE_DIR"] = str(folder / "cache")
    from clearml import Task

    Task.set_offline(offline_mode=True)
    task = Task.init("loops", "run", auto_connect_frameworks=False, auto_resource_monitoring=False)
    task.connect({"num_generations": GROUP})
    rows, truth = rows_of(OF_TRL)
    for step, row in enumerate(rows, start=1):
        for key, value in row.items():
            task.get_logger().report_scalar("train", key, value, step)
    task.close()
    return truth | {
        "logs": {"offline session": "cache/offline"},
        "settings": {"group_size": GROUP},
    }


def neptune(folder: Path) -> Truth:
    """Neptune's offline run, logged as Transformers' callback does."""
    os.chdir(folder)
    import neptune as package

    run = package.init_run(
        mode="offline", project="of/loops", capture_hardware_metrics=False, source_files=[]
    )
    run["parameters"] = {"num_generations": GROUP}
    rows, truth = rows_of(OF_TRL)
    for step, row in enumerate(rows, start=1):
        for key, value in row.items():
            run[f"train/{key}"].append(value, step=step)
    run.stop()
    return truth | {
        "logs": {"offline run": ".neptune/offline"},
        "settings": {"group_size": GROUP},
    }


def swanlab(folder: Path) -> Truth:
    """SwanLab's local and offline runs."""
    import swanlab as package

    for mode in ("local", "offline"):
        package.init(
            project="loops", mode=mode, logdir=str(folder / mode), config={"num_generations": GROUP}
        )
        rows, truth = rows_of({name: f"train/{key}" for name, key in OF_TRL.items()})
        for step, row in enumerate(rows, start=1):
            package.log(row, step=step)
        package.finish()
    return truth | {
        "logs": {"local run": "local", "offline run": "offline"},
        "settings": {"group_size": GROUP},
    }


def tinker(folder: Path) -> Truth:
    """tinker-cookbook's folder: JSON lines, rich's tables, settings."""
    from tinker_cookbook.utils import ml_log

    logger = ml_log.setup_logging(
        str(folder / "run"), config={"group_size": GROUP}, do_configure_logging_module=True
    )
    rows, truth = rows_of(
        {
            "reward": "env/all/reward/total",
            "entropy": "optim/entropy",
            "learning_rate": "optim/lr",
            "all_right_share": "env/all/by_group/frac_all_good",
        }
    )
    for step, row in enumerate(rows):
        logger.log_metrics({"progress/batch": step, **row}, step=step)
    logger.close()
    return truth | {"logs": {"folder": "run"}, "settings": {"group_size": GROUP}}


def openrlhf(folder: Path) -> Truth:
    """OpenRLHF's TensorBoard logger with the keys of its PPO trainer."""
    from openrlhf.utils.logging_utils import TensorboardLogger

    args = SimpleNamespace(
        logger=SimpleNamespace(
            tensorboard_dir=str(folder / "runs"), wandb=SimpleNamespace(run_name="ppo")
        )
    )
    logger = TensorboardLogger(args)
    rows, truth = rows_of(
        {
            "reward": "reward",
            "kl": "kl",
            "completion_length": "response_length",
            "clip_ratio": "ppo_clip_ratio",
            "loss": "policy_loss",
            "learning_rate": "actor_lr",
            "gradient_norm": "actor_grad_norm",
        }
    )
    for step, row in enumerate(rows, start=1):
        logger.log_train(step, row)
    logger.close()
    return truth | {"logs": {"TensorBoard": "runs"}}


def skyrl(folder: Path) -> Truth:
    """SkyRL's console and TensorBoard backends with the keys of its trainer."""
    os.environ["TENSORBOARD_DIR"] = str(folder / "tensorboard")
    from loguru import logger
    from skyrl.train.utils.tracking import Tracking

    logger.add(folder / "console.log")
    rows, truth = rows_of(
        {
            "reward": "reward/avg_raw_reward",
            "entropy": "policy/policy_entropy",
            "completion_length": "generate/avg_num_tokens",
            "gradient_norm": "policy/raw_grad_norm",
            "loss": "policy/final_loss",
        }
    )
    for backend in ("console", "tensorboard"):
        tracking = Tracking("loops", "run", backend=backend, config=None)
        for step, row in enumerate(rows, start=1):
            tracking.log({**row, "trainer/global_step": step}, step=step)
        tracking.finish()
    return truth | {
        "logs": {"console": "console.log", "TensorBoard": "tensorboard"},
    }


def swift(folder: Path) -> Truth:
    """ms-swift's own callback of Transformers' trainer: logging.jsonl."""
    import time

    from swift.trainers.patcher import PrinterCallbackNew

    rows, truth = rows_of(OF_TRL)
    callback = PrinterCallbackNew()
    args = SimpleNamespace(output_dir=str(folder))
    state = SimpleNamespace(is_world_process_zero=True, max_steps=STEPS, global_step=0)
    callback.start_time, callback.start_step = time.time(), 0
    for step, row in enumerate(rows, start=1):
        state.global_step = step
        callback.on_log(args, state, SimpleNamespace(), logs=dict(row))
    return truth | {"logs": {"logging.jsonl": "logging.jsonl"}}


def art(folder: Path) -> Truth:
    """ART's model logs groups of trajectories; it takes the means itself."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the web
    import art as package

    model = package.Model(name="run", project="loops", base_path=str(folder), report_metrics=[])
    draw = random.Random(7)
    means = []

    async def log() -> None:
        for step in range(STEPS):
            groups = [
                package.TrajectoryGroup(
                    package.Trajectory(
                        messages_and_choices=[
                            {"role": "user", "content": f"What is {prompt}?"},
                            {"role": "assistant", "content": f"{step} {rollout}"},
                        ],
                        reward=draw.random(),
                    )
                    for rollout in range(GROUP)
                )
                for prompt in range(PROMPTS)
            ]
            rewards = [rollout.reward for group in groups for rollout in group.trajectories]
            means.append(sum(rewards) / len(rewards))
            await model.log(groups, split="train", step=step)

    asyncio.run(log())
    home = next(folder.rglob("history.jsonl")).parent
    return {
        "rows": STEPS,
        "quantities": {"reward": means},
        "logs": {"folder": str(home.relative_to(folder))},
        "settings": {},
    }


def areal(folder: Path) -> Truth:
    """AReaL's tracker of statistics takes the means, and its logger prints them."""
    for backend in ("trackio", "wandb", "swanlab", "tensorboardX"):  # they are off
        sys.modules[backend] = MagicMock(__spec__=ModuleSpec(backend, None))
    import torch
    from areal.api.cli_args import BaseExperimentConfig, StatsLoggerConfig
    from areal.utils import stats_tracker
    from areal.utils.stats_logger import StatsLogger

    os.environ["WANDB_MODE"] = "disabled"
    config = BaseExperimentConfig(
        experiment_name="loops",
        trial_name="run",
        stats_logger=StatsLoggerConfig(
            experiment_name="loops", trial_name="run", fileroot=str(folder)
        ),
    )
    plan = SimpleNamespace(total_train_epochs=1, steps_per_epoch=STEPS, total_train_steps=STEPS)
    handler = logging.FileHandler(folder / "console.log")
    for name in ("StatsLogger", "areal.StatsLogger"):
        logging.getLogger(name).addHandler(handler)
    logger = StatsLogger(config, plan)
    torch.manual_seed(7)
    rewards, lengths = [], []
    for step in range(STEPS):
        with stats_tracker.scope("ppo_actor"):
            count = GROUP * PROMPTS
            stats_tracker.denominator(n_seqs=torch.ones(count, dtype=torch.bool))
            reward, length = torch.rand(count), torch.randint(5, 50, (count,)).float()
            stats_tracker.stat(task_reward=reward, seq_len=length, denominator="n_seqs")
        rewards.append(reward.mean().item())
        lengths.append(length.mean().item())
        logger.commit(0, step, step, stats_tracker.export())
    return {
        "rows": STEPS,
        "quantities": {"reward": rewards, "sequence_length": lengths},
        "logs": {"console": "console.log"},
    }


def verl(folder: Path) -> Truth:
    """Verl's file, TensorBoard and console backends with the keys of its metrics."""
    os.environ["VERL_FILE_LOGGER_PATH"] = str(folder / "run.jsonl")
    os.environ["TENSORBOARD_DIR"] = str(folder / "tensorboard")
    from verl.utils.tracking import Tracking

    rows, truth = rows_of(OF_VERL)
    printed, sys.stdout = sys.stdout, (folder / "console.txt").open("w")
    tracking = Tracking(
        "loops",
        "run",
        ["file", "tensorboard", "console"],
        config={"actor_rollout_ref": {"rollout": {"n": GROUP}}},
    )
    for step, row in enumerate(rows, start=1):
        tracking.log({**row, "training/global_step": step}, step=step)
    del tracking  # which ends its backends
    sys.stdout.close()
    sys.stdout = printed
    return truth | {
        "logs": {"file": "run.jsonl", "TensorBoard": "tensorboard", "console": "console.txt"},
    }


def mlflow(folder: Path) -> Truth:
    """MLflow's files and its SQLite store."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow as package

    rows, truth = rows_of(OF_TRL)
    for store in ((folder / "mlruns").as_uri(), f"sqlite:///{folder / 'mlflow.db'}"):
        package.set_tracking_uri(store)
        with package.start_run():
            package.log_params({"num_generations": GROUP})
            for step, row in enumerate(rows, start=1):
                package.log_metrics(row, step=step)
    logs = {"files": "mlruns", "SQLite": "mlflow.db"}
    return truth | {"logs": logs, "settings": {"group_size": GROUP}}


def tensorboard(folder: Path) -> Truth:
    """TensorBoard's event file, by PyTorch's writer."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder / "runs")
    writer.add_text("args", json.dumps({"num_generations": GROUP}))
    rows, truth = rows_of({name: f"train/{key}" for name, key in OF_TRL.items()})
    for step, row in enumerate(rows, start=1):
        for key, value in row.items():
            writer.add_scalar(key, value, step)
    writer.close()
    return truth | {"logs": {"event file": "runs"}, "settings": {"group_size": GROUP}}


def wandb(folder: Path) -> Truth:
    """W&B's offline run."""
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    import wandb as package

    rows, truth = rows_of({name: f"train/{key}" for name, key in OF_TRL.items()})
    run = package.init(project="loops", dir=str(folder), config={"num_generations": GROUP})
    for step, row in enumerate(rows, start=1):
        run.log(row | {"train/global_step": step})
    run.finish()
    return truth | {"logs": {"offline run": "wandb"}, "settings": {"group_size": GROUP}}


def trackio(folder: Path) -> Truth:
    """The database of trackio."""
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio as package

    rows, truth = rows_of({name: f"train/{key}" for name, key in OF_TRL.items()})
    package.init(project="loops", config={"num_generations": GROUP}, embed=False)
    for step, row in enumerate(rows, start=1):
        package.log(row, step=step)
    package.finish()
    return truth | {"logs": {"database": "loops.db"}, "settings": {"group_size": GROUP}}


SYSTEMS: dict[str, tuple[str, Callable[[Path], Truth]]] = {
    "mlflow": ("mlflow-skinny", mlflow),
    "tensorboard": ("tensorboard", tensorboard),
    "wandb": ("wandb", wandb),
    "trackio": ("trackio", trackio),
    "clearml": ("clearml", clearml),
    "neptune": ("neptune", neptune),
    "swanlab": ("swanlab", swanlab),
    "tinker": ("tinker-cookbook", tinker),
    "openrlhf": ("openrlhf", openrlhf),
    "skyrl": ("skyrl", skyrl),
    "swift": ("ms-swift", swift),
    "art": ("openpipe-art", art),
    "areal": ("areal", areal),
    "verl": ("verl", verl),
}


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    distribution, drive = SYSTEMS[sys.argv[2]]
    truth = drive(place) | {"version": importlib.metadata.version(distribution)}
    (place / "truth.json").write_text(json.dumps(truth), encoding="utf-8")
