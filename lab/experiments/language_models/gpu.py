"""What only a large GPU can run of the experiments on language models, by priority: `make gpu`
stops at a given time and goes on later.

    GROUPWISE_DEVICE=cuda python lab/experiments/language_models/gpu.py [--minutes 25] [--only TEXT]
    [--tables]

(i) `best_group_size.py` with 512 rollouts of 64 tokens at G = 2 to 64, components before them, and
with 128 of 14 tokens in six seeds, each format at the learning rate of its pilot; (ii) the sampled
runs of `dynamics.py` with groups of 64, which leave a card nothing to do; (iii) Qwen2.5-Coder-1.5B
on the problems of GSM8K of one or two calculations at G = 4, 16 and 64, with components before, in
the middle and at the end (GROUPWISE_GSM8K names the file); (iv) seconds of sampling and of a loss
beside those of the card's largest matrix product. The first seed of all comes before the second of
any. A piece that fails is told, and none begins when less time is left than the last of its kind
took. Pieces are in results.txt; the tables of what is there are put into the page.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from best_group_size import PIECES as STUDY
from best_group_size import SIZES, Grid, prediction, rate_of, run_cells, show_predictions, show_runs
from dynamics import sampled_cells, show_sampled
from small_model import (
    DEVICE,
    FORMATS,
    PAGE,
    RESULTS,
    Cell,
    Rows,
    held_out_reward,
    measured,
    options,
    policy,
    print_table,
    printed,
    refresh,
    roll,
    run_asked,
    say_missing,
    settings,
    task,
)

from groupwise.scores.language_models import models_home
from groupwise_lab.trainer.grpo import train
from groupwise_lab.trainer.text_tasks import make_text_task

PIECES = RESULTS.within("gpu")
PROBLEMS = "GROUPWISE_GSM8K"
TOKENS, ROLLOUTS, PASS = 64, 512, 128
MANY = Grid(
    name="N512",
    said=f", {ROLLOUTS} rollouts of {TOKENS} tokens",
    sizes=(*SIZES, 64),
    given={"completion_length": TOKENS, "rollouts_per_step": ROLLOUTS, "micro_batch": PASS},
)
MORE = Grid(name="N128", said=", 128 rollouts", seeds=6, given={"rollouts_per_step": 128})
GROUP = 64  # completions of each of the seven days
QWEN, QWEN_SIZES, QWEN_STEPS, QWEN_RATE, QWEN_ROLLOUTS, QWEN_PASS = (
    "qwen2_5_coder_1_5b",
    (4, 16, 64),
    40,
    1e-4,
    256,
    64,
)


def qwen(group_size: int, seed: int) -> Rows:
    """(iii) one run on GSM8K, with components before, in the middle and at the end."""
    world = make_text_task("gsm8k_easy", file=os.environ[PROBLEMS])
    actor = policy(QWEN, checkpointing=True)  # without which 64 answers of 160 tokens take 130 GB
    rows = []

    def look(step: int, logged) -> None:
        row = {
            "step": step,
            "reward": logged.get("reward", ""),
            "held_out": "",
            "vp": "",
            "t": "",
            "r": "",
            "group_size": "",
        }
        if step % (QWEN_STEPS // 2) == 0:
            found, _ = measured(actor, world, prompts=32, group_size=8, seed=step)
            row |= {"held_out": held_out_reward(actor, world), "group_size": found.group_size.value}
            row |= {name: getattr(found, name).value for name in ("vp", "t", "r")}
        rows.append(row)

    look(0, {})
    given = {"rollouts_per_step": QWEN_ROLLOUTS, "micro_batch": QWEN_PASS, "precision": "bfloat16"}
    chosen = settings("adamw", QWEN_RATE, group_size, seed, QWEN_STEPS, **given)
    with tempfile.TemporaryDirectory() as home:
        train(actor, world, chosen, output=Path(home) / "run", on_step=look)
    return rows


def speed(form: str) -> Rows:
    """(iv) sampling and loss of one update, and the multiplications a second of a large product
    in the same precision.
    """
    actor, world = policy(), task(form, completion_length=TOKENS)
    problems, found = world.train[: ROLLOUTS // 16], []
    for repeat in range(3):
        began = _now()
        rolled = roll(actor, world, problems, 16, seed=repeat)
        sampled = _now()
        for start in range(0, len(problems), PASS // 16):
            completion = rolled.sampled.completion_NL[16 * start : 16 * start + PASS]
            actor.log_probabilities(
                rolled.prompt_PL[start : start + PASS // 16], completion
            ).sum().backward()  # type: ignore[no-untyped-call]
        row = {
            "sampling": sampled - began,
            "loss": _now() - sampled,
            "tokens": int(rolled.sampled.mask_NL.sum()),
        }
        found.append(
            row
            | {
                "parameters": sum(parameter.numel() for parameter in actor.parameters()),
                "products_a_second": _products(),
            }
        )
    return found


def _now() -> float:
    """The time, once the card has done what it was given."""
    if DEVICE.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def _products(size: int = 4096 if DEVICE.startswith("cuda") else 512) -> float:
    """Multiplications a second of a product of two large matrices."""
    matrix = torch.randn(size, size, device=DEVICE)
    began = _now()
    for _ in range(10):
        matrix @ matrix
    return 10 * size**3 / (_now() - began)


def cells() -> list[Cell]:
    """All pieces, by priority."""
    pilot = STUDY.tables()
    rates = {form: rate_of("adamw", form, pilot) for form in FORMATS}
    before = [
        Cell(
            f"prediction-{form}", prediction, {"form": form, "seed": 0, "completion_length": TOKENS}
        )
        for form in FORMATS
    ]
    runs = [
        cell
        for grid in (MANY, MORE)
        for form, rate in rates.items()
        if rate is not None
        for cell in run_cells("adamw", form, rate, grid)
    ]
    runs += sampled_cells(GROUP)
    asked = [
        Cell(f"qwen-G{size}-seed0", qwen, {"group_size": size, "seed": 0}) for size in QWEN_SIZES
    ]
    speeds = [Cell(f"speed-{form}", speed, {"form": form}) for form in FORMATS]
    first = [cell for cell in runs if cell.arguments["seed"] == 0]
    later = sorted(
        (cell for cell in runs if cell.arguments["seed"]),
        key=lambda cell: int(cell.arguments["seed"]),
    )
    return [*before, *first, *asked, *speeds, *later]


def lacking(cell: Cell) -> str:
    """What a piece needs and this machine does not have; nothing where it has all."""
    kind = cell.name.split("-")[0]
    model, licence = (QWEN, " --accept-licence") if kind == "qwen" else ("smollm2", "")
    if kind != "sampled" and DEVICE.startswith("cuda") and not torch.cuda.is_available():
        return f"GROUPWISE_DEVICE is {DEVICE}, and there is no such GPU"
    if not (models_home() / model).is_dir():
        return (
            f"{models_home()} has no {model}, which `python scripts/fetch_model.py "
            f"{model}{licence}` fetches"
        )
    if kind == "qwen" and not Path(os.environ.get(PROBLEMS, "")).is_file():
        return f"{PROBLEMS} names no file of problems"
    return ""


def show() -> None:
    """Print the tables of what is there."""
    done = PIECES.tables()
    kinds = {name.split("-")[0] for name in done}
    if "prediction" in kinds:
        show_predictions(done, f" of {TOKENS} tokens")
    if MANY.name in kinds:
        show_runs(done, MANY)
    if MORE.name in kinds:
        show_runs(
            done
            | {
                name: rows for name, rows in STUDY.tables().items() if name.startswith("prediction")
            },
            MORE,
        )
    if "sampled" in kinds:
        show_sampled(done, GROUP)
    if "qwen" in kinds:
        show_qwen(done)
    if "speed" in kinds:
        show_speed(done)


def show_qwen(done: dict[str, Rows]) -> None:
    """Print the looks at each run on GSM8K."""
    keys = ("step", "reward", "held_out", "vp", "t", "r", "group_size")
    looked = {
        size: [row for row in done.get(f"qwen-G{size}-seed0", []) if row["held_out"] != ""]
        for size in QWEN_SIZES
    }
    rows = [
        [str(size), *map(_short, map(row.__getitem__, keys))]
        for size, looks in looked.items()
        for row in looks
    ]
    print_table("Qwen on GSM8K", "G | update | reward | held-out reward | Vp | T | R | G*", rows)


def show_speed(done: dict[str, Rows]) -> None:
    """Print what the card does beside what it could."""
    rows = [
        [form, *_limits(row)] for form in FORMATS for row in done.get(f"speed-{form}", [])[1:]
    ]  # the first warms the card up
    heads = (
        "format | tokens a second, sampling | tokens a second, loss | "
        "loss over two products a parameter and token"
    )
    print_table("Speed against the card's limits", heads, rows)


def _short(value) -> str:
    """A number in four digits; nothing where there is none."""
    return "" if value == "" else f"{float(value):.4g}"


def _limits(row: dict[str, Any]) -> list[str]:
    """Tokens a second, and the time of a loss over the least: forward and back through weights
    that stay, completions alone.
    """
    tokens, sampling, loss = float(row["tokens"]), float(row["sampling"]), float(row["loss"])
    least = 2 * float(row["parameters"]) * tokens / float(row["products_a_second"])
    return [f"{tokens / sampling:,.0f}", f"{tokens / loss:,.0f}", f"{loss / least:.1f}"]


def main() -> None:
    """Run what is missing until the time is over, and print the tables."""
    asked, every = options(__doc__), cells()
    asked.workers = 1  # one card
    for reason in dict.fromkeys(filter(None, map(lacking, every))):
        kinds = dict.fromkeys(cell.name.split("-")[0] for cell in every if lacking(cell) == reason)
        print(f"{reason}: left out are the pieces {', '.join(kinds)}.")
    run_asked([cell for cell in every if not lacking(cell)], PIECES, asked)
    refresh(PAGE, printed(show))
    say_missing(every, PIECES)


if __name__ == "__main__":
    main()
