"""What only a large GPU can run of the experiments on language models, by priority: `make gpu` stops at a given time and goes on later.

    GROUPWISE_DEVICE=cuda python experiments/language_models/gpu.py [--minutes 25] [--only TEXT] [--tables]

(i) runs of 25 updates of 512 rollouts of 64 tokens at G = 2 to 64, in both formats, three seeds; (ii) Qwen2.5-Coder-1.5B on the problems
of GSM8K of one or two calculations at G = 4, 16 and 64, with components before, in the middle and at the end (GROUPWISE_GSM8K names the
file, without which these are left out); (iii) seconds of sampling and of a loss beside those of the card's largest matrix product. Pieces
are in results/gpu; the tables of what is there are printed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "u_statistic"))  # the runner of cells

from best_group_size import area, curve  # noqa: E402
from cells import Cell, Rows, options, pieces, print_table, run_asked, say_missing  # noqa: E402
from small_model import DEVICE, FORMATS, held_out_reward, measured, policy, roll, settings, task  # noqa: E402

from groupwise.trainer.grpo import train  # noqa: E402
from groupwise.trainer.text_tasks import make_text_task  # noqa: E402

FOLDER = HERE / "results" / "gpu"
SCRIPT = "experiments/language_models/gpu.py"
PROBLEMS = "GROUPWISE_GSM8K"
SIZES, SEEDS, RATE, TOKENS, ROLLOUTS, PASS = (2, 4, 8, 16, 32, 64), 3, 3e-4, 64, 512, 128
QWEN_SIZES, QWEN_STEPS, QWEN_RATE, QWEN_ROLLOUTS = (4, 16, 64), 60, 1e-4, 256


def many(form: str, group_size: int, seed: int) -> Rows:
    """(i) one run of 512 rollouts an update."""
    return curve(
        "adamw", form, RATE, group_size, seed, completion_length=TOKENS, rollouts_per_step=ROLLOUTS, micro_batch=max(PASS, group_size)
    )


def qwen(group_size: int, seed: int) -> Rows:
    """(ii) one run on GSM8K, with components before, in the middle and at the end."""
    world = make_text_task("gsm8k_easy", file=os.environ[PROBLEMS])
    actor = policy("qwen2_5_coder_1_5b")
    rows: Rows = []

    def look(step: int, logged: Any) -> None:
        row = {"step": step, "reward": logged.get("reward", ""), "held_out": "", "vp": "", "t": "", "r": "", "group_size": ""}
        if step % (QWEN_STEPS // 2) == 0:
            found, _ = measured(actor, world, prompts=32, group_size=8, seed=step)
            row |= {"held_out": held_out_reward(actor, world), "group_size": found.group_size.value}
            row |= {name: getattr(found, name).value for name in ("vp", "t", "r")}
        rows.append(row)

    look(0, {})
    chosen = settings("adamw", QWEN_RATE, group_size, seed, QWEN_STEPS, rollouts_per_step=QWEN_ROLLOUTS, micro_batch=group_size)
    with tempfile.TemporaryDirectory() as home:
        train(actor, world, chosen, output=Path(home) / "run", on_step=look)
    return rows


def speed(form: str) -> Rows:
    """(iii) sampling and loss of one update, and the multiplications a second of a large product in the same precision."""
    actor, world = policy(), task(form, completion_length=TOKENS)
    problems, found = world.train[: ROLLOUTS // 16], []
    for repeat in range(3):
        began = _now()
        rolled = roll(actor, world, problems, 16, seed=repeat)
        sampled = _now()
        for start in range(0, len(problems), PASS // 16):
            completion = rolled.sampled.completion_NL[16 * start : 16 * start + PASS]
            actor.log_probabilities(rolled.prompt_PL[start : start + PASS // 16], completion).sum().backward()  # type: ignore[no-untyped-call]
        row = {"sampling": sampled - began, "loss": _now() - sampled, "tokens": int(rolled.sampled.mask_NL.sum())}
        found.append(row | {"parameters": sum(parameter.numel() for parameter in actor.parameters()), "products_a_second": _products()})
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
    runs = [
        Cell(f"many-{form}-G{size}-seed{seed}", many, {"form": form, "group_size": size, "seed": seed})
        for seed in range(SEEDS)
        for form in reversed(FORMATS)
        for size in SIZES
    ]
    asked = [Cell(f"qwen-G{size}-seed0", qwen, {"group_size": size, "seed": 0}) for size in QWEN_SIZES]
    speeds = [Cell(f"speed-{form}", speed, {"form": form}) for form in FORMATS]
    return [*runs[: 2 * len(SIZES)], *asked, *speeds, *runs[2 * len(SIZES) :]]


def show() -> None:
    """Print the tables of what is there."""
    done = pieces(FOLDER)
    found = {(form, seed): [done.get(f"many-{form}-G{size}-seed{seed}") for size in SIZES] for form in FORMATS for seed in range(SEEDS)}
    rows = [[form, str(seed), *(f"{area(run):.3f}" if run else "" for run in runs)] for (form, seed), runs in found.items() if any(runs)]
    print_table(f"Area under the held-out reward, {ROLLOUTS} rollouts", ("format", "seed", *(f"G = {size}" for size in SIZES)), rows)
    keys = ("step", "reward", "held_out", "vp", "t", "r", "group_size")
    looked = {size: [row for row in done.get(f"qwen-G{size}-seed0", []) if row["held_out"] != ""] for size in QWEN_SIZES}
    rows = [[str(size), *map(_short, map(row.__getitem__, keys))] for size, looks in looked.items() for row in looks]
    print_table("Qwen on GSM8K", ("G", "update", "reward", "held-out reward", "Vp", "T", "R", "G*"), rows)
    rows = [[form, *_limits(row)] for form in FORMATS for row in done.get(f"speed-{form}", [])[1:]]  # the first warms the card up
    heads = ("format", "tokens a second, sampling", "tokens a second, loss", "loss over two products a parameter and token")
    print_table("Speed against the card's limits", heads, rows)


def _short(value: Any) -> str:
    """A number in four digits; nothing where there is none."""
    return "" if value == "" else f"{float(value):.4g}"


def _limits(row: dict[str, Any]) -> list[str]:
    """Tokens a second, and the time of a loss over the least: forward and back through weights that stay, completions alone."""
    tokens, sampling, loss = float(row["tokens"]), float(row["sampling"]), float(row["loss"])
    least = 2 * float(row["parameters"]) * tokens / float(row["products_a_second"])
    return [f"{tokens / sampling:,.0f}", f"{tokens / loss:,.0f}", f"{loss / least:.1f}"]


def main() -> None:
    """Run what is missing until the time is over, and print the tables."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    asked = options(__doc__)
    asked.workers = 1  # one card
    there = bool(os.environ.get(PROBLEMS))
    if not there:
        print(f"{PROBLEMS} names no file of problems: the runs on GSM8K are left out.")
    run_asked([cell for cell in cells() if there or cell.function is not qwen], FOLDER, asked)
    show()
    say_missing(cells(), FOLDER, SCRIPT)


if __name__ == "__main__":
    main()
