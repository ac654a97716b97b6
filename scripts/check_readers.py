"""Ten facts of every run in a folder of public logs, as our readers have them, against what this
script parses by itself.

    python scripts/check_readers.py [--data ../shared/data] [--all]

The facts: rows with a reward, the last step, the first, middle and last reward, the group size, the
prompts of a step, the peak learning rate, the updates that rollouts serve for, and the last
held-out score. What this script knows of a file is written down by kind of file; nothing of
`groupwise.readers` is used for it. A fact that a log does not hold is right where the reader says
that it is unknown, and is counted apart.
"""

from __future__ import annotations

import argparse
import ast
import csv
import html
import json
import re
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

from groupwise.errors import GroupwiseError
from groupwise.readers.find import run_records
from groupwise.record.run import RunRecord

FACTS = (
    "rows",
    "last",
    "first",
    "middle",
    "end",
    "group_size",
    "prompts",
    "learning_rate",
    "updates",
    "held_out",
)
ROOT = Path(__file__).resolve().parent.parent
Facts = dict[str, Any]


def facts(points: Iterable[tuple[float, Any]], **truth: Any) -> Facts:
    """Return the facts of a run from its steps with their rewards: of several rewards at one
    step the mean.
    """
    at: dict[float, list[float]] = defaultdict(list)
    for step, reward in points:
        if reward is not None:
            at[step].append(float(reward))
    rewards = [sum(at[step]) / len(at[step]) for step in sorted(at)]
    of_rewards = {
        "rows": len(rewards),
        "last": max(at),
        "first": rewards[0],
        "middle": rewards[len(rewards) // 2],
        "end": rewards[-1],
    }
    return dict.fromkeys(FACTS) | of_rewards | truth


def peak(values: Iterable[Any]) -> float | None:
    """Return the largest number, None for none."""
    return max((float(value) for value in values if value is not None), default=None)


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def beside(path: Path, ending: str) -> dict[str, Any]:
    """Return the settings of the file of the same name."""
    other = path.with_name(path.name.replace(".metrics.jsonl", ending))
    return (
        dict(json.JSONDecoder().raw_decode(other.read_text())[0])
        if other.is_file() and other != path
        else {}
    )


def standing(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that count: one that comes again, as after a restart, takes the place of
    what was there from its step on.
    """
    kept: list[dict[str, Any]] = []
    for row in rows:
        while kept and kept[-1]["step"] >= row["step"]:
            kept.pop()
        kept.append(row)
    return kept


def cs336(path: Path) -> dict[str, Facts]:
    """Events of a run: rollouts, updates and evaluations in turn."""
    rows = lines(path)
    rollouts = {row["grpo_step"]: row for row in rows if row["type"] == "rollout"}
    updates = Counter(row["grpo_step"] for row in rows if row["type"] == "train")
    evaluations = {row["grpo_step"]: row["reward"] for row in rows if row["type"] == "eval"}
    group = next(iter(rollouts.values()))
    rate = peak(row.get("learning_rate") for row in rows if row["type"] == "train") or beside(
        path, ".config.json"
    ).get("learning_rate")
    each = Counter(updates.values()).most_common(1)[0][0] if updates else None
    return {
        "": facts(
            ((step, row["reward"]) for step, row in rollouts.items()),
            group_size=group["group_size"],
            prompts=group["num_questions"],
            learning_rate=rate,
            updates=each,
            held_out=evaluations[max(evaluations)],
        )
    }


def plain(path: Path) -> dict[str, Facts]:
    """One row a step, with the mean reward of its completions under its plain name."""
    rows = standing(lines(path))
    reward = next(name for name in ("reward", "mean_reward", "reward_mean") if name in rows[0])
    return {
        "": facts(
            ((row["step"], row[reward]) for row in rows),
            learning_rate=peak(row.get("learning_rate") for row in rows),
        )
    }


def tinker(path: Path) -> dict[str, Facts]:
    """The metrics of a loop on Tinker, with the settings beside them."""
    rows, config = standing(lines(path)), beside(path, ".config.json")
    reward = "reward/mean" if "reward/mean" in rows[0] else "env/all/reward/total"
    return {
        "": facts(
            ((row["step"], row[reward]) for row in rows),
            group_size=config.get("group_size"),
            learning_rate=peak(row.get("optim/lr") for row in rows),
        )
    }


def history(path: Path) -> dict[str, Facts]:
    """A checkpoint's history, or the list of it."""
    whole = json.loads(path.read_text())
    rows = whole["log_history"] if isinstance(whole, dict) else whole
    held = [row["eval_reward"] for row in rows if "eval_reward" in row]
    return {
        "": facts(
            ((row["step"], row["reward"]) for row in rows if "reward" in row),
            learning_rate=peak(row.get("learning_rate") for row in rows),
            held_out=held[-1] if held else None,
        )
    }


def console(path: Path) -> dict[str, Facts]:
    """Rows printed as dictionaries between progress bars, equally spaced, of which the last ends
    the bar.
    """
    text = path.read_text(errors="replace")
    rows = [ast.literal_eval(row) for row in re.findall(r"\{'loss'[^{}]*\}", text)]
    bars = re.findall(r"(\d+)/(\d+) \[", text)  # those of other work end elsewhere
    whole = Counter(total for _, total in bars).most_common(1)[0][0]
    spacing = max(1, max(int(done) for done, total in bars if total == whole) // len(rows))
    return {
        "": facts(
            ((spacing * number, row["reward"]) for number, row in enumerate(rows, start=1)),
            learning_rate=peak(row.get("learning_rate") for row in rows),
        )
    }


def step_stats(path: Path) -> dict[str, Facts]:
    """One row a group."""
    rows = json.loads(path.read_text())
    return {
        "": facts(
            (row["step"], row["mean_reward" if "mean_reward" in row else "reward_mean"])
            for row in rows
        )
    }


def traced(run: Mapping[str, Any], about: Mapping[str, Any]) -> Facts:
    """Return the facts of a run with a list of rewards."""
    said = {**about, **run}
    return facts(
        enumerate(run["reward_trace"], start=1),
        group_size=said.get("group_size", said.get("group")),
        learning_rate=said["lr"],
    )


def trace(path: Path) -> dict[str, Facts]:
    """A run with its rewards in a list."""
    return {"": traced(json.loads(path.read_text()), {})}


def traces(path: Path) -> dict[str, Facts]:
    """Several of them."""
    whole = json.loads(path.read_text())
    about = {
        key: value
        for part in (whole, whole.get("metadata", {}))
        for key, value in part.items()
        if isinstance(value, int | float)
    }
    runs = [
        run
        for value in whole.values()
        if isinstance(value, list)
        for run in value
        if isinstance(run, dict)
    ]
    return {run["tag"]: traced(run, about) for run in runs}


def printed(path: Path) -> dict[str, Facts]:
    """Rows of a loop that prints step, loss and reward."""
    text = path.read_text()
    rows = re.findall(r"(\d+)/\d+ \| loss=\S+ \| reward=([\d.]+)", text)
    size, rate = re.search(r"\bgroup=(\d+)", text), re.search(r"\b(?:LR|lr)=([\d.e-]+)", text)
    return {
        "": facts(
            ((int(step), float(reward)) for step, reward in rows),
            group_size=int(size[1]) if size else None,
            learning_rate=float(rate[1]) if rate else None,
        )
    }


def table(path: Path) -> dict[str, Facts]:
    """A table with one row a step; a column may hold the held-out reward."""
    rows = list(csv.DictReader(path.read_text().splitlines()))
    step = next(name for name in rows[0] if name.lower() == "step")
    reward = next(name for name in ("reward", "reward_mean", "verl_reward") if name in rows[0])
    held = [row["eval/reward"] for row in rows if row.get("eval/reward")]
    points = [(int(row[step]), float(row[reward])) for row in rows if row[reward]]
    return {"": facts(points, held_out=float(held[-1]) if held else None)}


def points(path: Path) -> dict[str, Facts]:
    """Several runs in one table, evaluations alone."""
    rows, runs = list(csv.DictReader(path.read_text().splitlines())), {}
    name = "run" if "run" in rows[0] else "label"
    for run in dict.fromkeys(row[name] for row in rows):
        own = [row for row in rows if row[name] == run]
        updates = own[0].get("optimizer_updates_per_rollout_batch")
        runs[run] = facts(
            ((int(row["grpo_step"]), float(row["reward"])) for row in own),
            learning_rate=float(own[0]["learning_rate"]),
            updates=float(updates) if updates else None,
        )
    return runs


def notebook(path: Path) -> dict[str, Facts]:
    """The table in a notebook's output, and the arguments in its code."""
    whole = json.loads(path.read_text())
    outputs = [output for cell in whole["cells"] for output in cell.get("outputs", ())]
    pages = [
        "".join(output["data"]["text/html"])
        for output in outputs
        if "text/html" in output.get("data", {})
    ]
    page = max((page for page in pages if re.search(r"<th[^>]*>\s*Step\s*</th>", page)), key=len)
    page = page[page.rindex("<table") :]
    rows = [
        [html.unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.S)]
        for row in page.split("<tr")
    ]
    header, *body = [[cell.strip() for cell in row] for row in rows if row]
    at = header.index("reward")
    code = "\n".join("".join(cell["source"]) for cell in whole["cells"])
    size = re.search(r"^\s*num_generations *= *(\d+)", code, re.M)
    rate = re.search(r"^\s*learning_rate *= *([\d.e-]+)", code, re.M)
    return {
        "": facts(
            ((int(row[0]), float(row[at])) for row in body if row[at]),
            group_size=int(size[1]) if size else None,
            learning_rate=float(rate[1]) if rate else None,
        )
    }


def verl(path: Path) -> dict[str, Facts]:
    """Lines of verl's console, and the settings above them."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", path.read_text(errors="replace"))
    rows = [
        dict(re.findall(r"([\w/()@.-]+): ?(?:np\.\w+\()?(-?[\d.e+-]+)", line))
        for line in re.findall(r"step:\d+ - .*", text)
    ]
    held = [row[key] for row in rows for key in row if re.match(r"val(-core)?/", key)]
    rates = [
        float(row[key]) * (1e-4 if "1e-4" in key else 1.0)
        for row in rows
        for key in row
        if key.startswith("actor/lr")
    ]

    if rates and not any(rates):  # printed with three decimals: the settings hold it
        rates = [float(rate) for rate in re.findall(r"'lr': ([\d.e-]+)", text)[:1]]

    def setting(*patterns: str) -> int | None:
        matches = [match for pattern in patterns for match in re.findall(pattern, text)]
        return int(float(matches[-1])) if matches else None

    batch = setting(r"data\.train_batch_size=(\d+)", r"'train_batch_size': (\d+)")
    mini = setting(r"actor\.ppo_mini_batch_size=(\d+)")
    mini = (
        mini
        if mini is not None and "fully_async" not in text and "async_training" not in text
        else None
    )
    return {
        "": facts(
            (
                (int(row["step"]), float(row["critic/score/mean"]))
                for row in rows
                if "critic/score/mean" in row
            ),
            group_size=setting(r"rollout\.n=(\d+)") or setting(r"'n': ([2-9]\d*)"),
            prompts=batch,
            learning_rate=peak(rates),
            updates=batch // mini if batch and mini else None,
            held_out=float(held[-1]) if held else None,
        )
    }


def events(path: Path) -> dict[str, Facts]:
    """Events of an asynchronous run, their numbers inside."""
    rows = [row for row in lines(path) if row["partition_id"]]
    step = {id(row): int(row["partition_id"].rsplit("_", 1)[1]) for row in rows}
    trained = [row for row in rows if row["event"] == "train_step_done"]
    first = next(row["metrics"] for row in rows if row["event"] == "rollout_submitted")
    reward = next(
        name for name in ("reward_mean", "reward", "mean_reward") if name in trained[0]["metrics"]
    )
    rate = peak(row["metrics"]["learning rate(param group 1)"] for row in trained)
    return {
        "": facts(
            ((step[id(row)], row["metrics"][reward]) for row in trained),
            group_size=first["num_generations"],
            prompts=first["prompt_count"],
            learning_rate=rate,
        )
    }


def rollouts(path: Path) -> dict[str, Facts]:
    """One completion a line."""
    rows = lines(path)
    step = next((name for name in ("step", "grpo_step") if name in rows[0]), "")
    prompt = next(
        name for name in ("prompt_id", "question_index", "uid", "group_id") if name in rows[0]
    )

    def number(row: Mapping[str, Any]) -> float:
        return float(row[step]) if step else float(re.sub(r".*_", "", row.get("partition_id", "1")))

    def reward(row: Mapping[str, Any]) -> float:
        own = (
            row.get("rewards", {}).get("total")
            if isinstance(row.get("rewards"), dict)
            else row.get("reward", row.get("score"))
        )
        return float(own)

    def group(row: Mapping[str, Any]) -> str:
        return re.sub(r"_\d+_\d+$", "", str(row[prompt])) if prompt == "uid" else str(row[prompt])

    sizes = set(
        Counter((number(row), group(row)) for row in rows).values()
    )  # a file may hold a sample of the prompts
    return {
        "": facts(
            ((number(row), reward(row)) for row in rows),
            group_size=sizes.pop() if len(sizes) == 1 else None,
        )
    }


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of the wire format, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def fields(data: bytes) -> Iterable[tuple[int, Any]]:
    """Yield number and value of the fields of a message."""
    at, value = 0, cast(Any, None)
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            width = 8 if key & 7 == 1 else 4
            value, at = data[at : at + width], at + width
        yield key >> 3, value


def tensorboard(path: Path) -> dict[str, Facts]:
    """An event file: records of a length, two checksums and a message."""
    data, at = path.read_bytes(), 0
    columns: dict[str, dict[int, float]] = defaultdict(dict)
    texts = []
    while at + 12 <= len(data):
        size = struct.unpack_from("<Q", data, at)[0]
        event = dict(fields(data[at + 12 : at + 12 + size]))
        at += size + 16
        for number, value in fields(event.get(5, b"")):
            cells = dict(fields(value)) if number == 1 else {}
            tag = cells.get(1, b"").decode()
            if 2 in cells:
                columns[tag][event.get(2, 0)] = struct.unpack("<f", cells[2])[0]
            for inner, tensor in fields(cells.get(8, b"")) if 8 in cells else ():
                if inner == 5 and len(tensor) == 4:
                    columns[tag][event.get(2, 0)] = struct.unpack("<f", tensor)[0]
                elif inner == 8:
                    texts.append(tensor.decode())
                elif inner == 4 and len(tensor) == 4:
                    columns[tag][event.get(2, 0)] = struct.unpack("<f", tensor)[0]
    said: dict[str, Any] = next(
        (json.loads(text) for text in texts if "num_generations" in text), {}
    )
    return {
        "": facts(
            columns["train/reward"].items(),
            group_size=said.get("num_generations"),
            **of_trl(said),
            learning_rate=said.get("learning_rate")
            or peak(columns["train/learning_rate"].values()),
        )
    }


def of_trl(said: Mapping[str, Any]) -> Facts:
    """Return prompts and updates of a step by TRL's arguments."""
    size, per, every = (
        said.get("num_generations"),
        said.get("per_device_train_batch_size"),
        said.get("steps_per_generation"),
    )
    accumulation, times = said.get("gradient_accumulation_steps"), said.get("num_iterations", 1)
    if not (size and per and accumulation):
        return {}
    rollouts_of_step = per * accumulation
    return {
        "prompts": rollouts_of_step // size if rollouts_of_step % size == 0 else None,
        "updates": every * times // accumulation
        if every and every * times % accumulation == 0
        else None,
    }


def wandb(path: Path) -> dict[str, Facts]:
    """A W&B file, by its texts alone: keys and values as JSON, in the order of the steps."""
    data = path.read_bytes()
    size = re.search(rb"num_generations.{1,6}?(\d+)", data)
    rate = re.search(rb"learning_rate.{1,6}?(\d[\d.e-]+)", data)
    points, reward = {}, None
    for key, value in re.findall(
        rb"\x12.(train/(?:reward|global_step))\x82\x01.(-?[\d.]+)", data, re.S
    ):
        if key == b"train/reward":
            reward = float(value)
        elif reward is not None:
            points[int(value)] = reward
    return {
        "": facts(
            points.items(),
            group_size=int(size[1]) if size else None,
            learning_rate=float(rate[1]) if rate else None,
        )
    }


def journal(path: Path) -> dict[str, Facts]:
    """Our own journal: a checksum, a length and JSON on each line; the settings in the last
    description.
    """
    entries = [json.loads(line.split(" ", 2)[2]) for line in path.read_text().splitlines()]
    rows = {entry["row"]["step"]: entry["row"] for entry in entries if "row" in entry}
    about = [entry["about"] for entry in entries if "about" in entry][-1]
    said = {
        name: setting["value"] if isinstance(setting, dict) else setting
        for name, setting in about["config"].items()
    }
    held = [row["heldout_reward"] for row in rows.values() if row.get("heldout_reward") is not None]
    return {
        "": facts(
            ((step, row.get("reward")) for step, row in rows.items()),
            group_size=said.get("group_size"),
            prompts=said.get("prompts_per_step"),
            learning_rate=said.get("learning_rate"),
            updates=said.get("refresh_interval"),
            held_out=held[-1] if held else None,
        )
    }


KINDS: dict[str, Callable[[Path], dict[str, Facts]]] = {
    "rollouts/*.slim.jsonl": rollouts,
    "rollouts/leonopus_*_raw_*.jsonl": rollouts,
    "rollouts/cs336_raw*.jsonl": rollouts,
    "*rl-leetcode*.metrics.jsonl": tinker,
    "other/tinkerlab_arithmetic_metrics.jsonl": tinker,
    "other/leonopus_*.metrics.jsonl": events,
    "hard/countdown_bz*.metrics.jsonl": plain,
    "**.metrics.jsonl": cs336,
    "hard/*log_history.json": history,
    "**.trainer_state.json": history,
    "**.step_logs.json": history,
    "**.step_stats.json": step_stats,
    "**.csd_logs.json": step_stats,
    "other/tinkerlab_arch*.json": trace,
    "other/tinkerlab_cross*.json": trace,
    "other/tinkerlab_scale*.json": trace,
    "sweeps/tinkerlab_*.json": traces,
    "other/tinkerlab_*.log": printed,
    "hard/*_eval_points.csv": points,
    "hard/smollm2*.csv": table,
    "verl/*diagnosis.csv": table,
    "hard/*.table.csv": notebook,
    "other/unsloth_nb/*.table.csv": table,
    "other/unsloth_nb/*.ipynb": notebook,
    "hard/cotcompress*.log": verl,
    "hard/searchr1*.log": verl,
    "hard/agent_opd*.output.log": verl,
    "verl/*full125.log": verl,
    "verl/*smoke*.log": verl,
    "*verldata_*.log": verl,
    "*rho*seed*.log": console,
    "trl/*.log": console,
    "trl/*.md": console,
    "*events.out.tfevents.*": tensorboard,
    "tensorboard/*events.out.tfevents.*": tensorboard,
    "wandb/*zmt4w4as/*.wandb": wandb,
    "hard/real_hack/journal.jsonl": journal,
}
# Runs that stopped before their first row, what is no run, and the formats whose facts
# tests/readers/test_formats.py has.
NO_RUN = re.compile(
    r"hard/formats/|27716\.0$|/eval_rho|config|summary|heldout|benchmarks/|gaokao|6h0pio98|crash_before|p1b_|p2_length"
)


def ours(record: RunRecord) -> Facts:
    """Return what our readers say."""
    facts_of_log: Facts = dict.fromkeys(FACTS)
    if column := _column(record, "reward"):
        points = record.steps.select("step", column).drop_nulls().drop_nans()
        facts_of_log = facts(points.rows()) if len(points) else facts_of_log
    held = _column(record, "eval/reward")
    values = record.steps[held].drop_nulls().drop_nans().to_list() if held else []
    value = record.config.value
    return facts_of_log | {
        "group_size": value("group_size"),
        "prompts": value("prompts_per_step"),
        "learning_rate": value("learning_rate"),
        "updates": value("refresh_interval") or value("updates_per_step"),
        "held_out": values[-1] if values and held != column else None,
    }


def _column(record: RunRecord, name: str) -> str:
    """Return the column of a quantity, "" for none."""
    try:
        return record.column(name)
    except GroupwiseError:
        return ""


def same(first: Any, other: Any) -> bool:
    """Return whether two values are one."""
    if first is None or other is None:
        return first is other
    return abs(float(first) - float(other)) <= 1e-6 * max(
        1e-3, abs(float(first)), abs(float(other))
    )


def check(path: Path, kind: Callable[[Path], dict[str, Facts]]) -> list[tuple[str, str, Any, Any]]:
    """Return run, fact, truth and ours of every fact of a file."""
    try:
        truth = kind(path)
        records = run_records(path)
        facts_of_runs = {
            (record.name if len(truth) > 1 else ""): ours(record) for record in records
        }
    except GroupwiseError as error:
        return [
            (run, fact, value, f"refused: {error}"[:90])
            for run, expected in truth.items()
            for fact, value in expected.items()
        ]
    return [
        (run, fact, value, facts_of_runs.get(run, {}).get(fact, "no such run"))
        for run, expected in truth.items()
        for fact, value in expected.items()
    ]


def main() -> int:
    """Check every run, print what is wrong and the share that is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        default=ROOT.parent / "shared" / "data",
        help="the folder of public logs",
    )
    parser.add_argument(
        "--all", action="store_true", help="also print the files that are taken to be no run"
    )
    given = parser.parse_args()
    right, wrong, quiet, invented, runs, unknown = 0, 0, 0, 0, 0, []
    by_fact: Counter[str] = Counter()
    for path in sorted(given.data.rglob("*")):
        name = path.relative_to(given.data)
        kind = (
            next((kind for pattern, kind in KINDS.items() if fnmatch(str(name), pattern)), None)
            if path.is_file()
            else None
        )
        if not path.is_file() or kind is None or NO_RUN.search(str(name)):
            unknown += [str(name)] if path.is_file() else []
            continue
        answers = check(path, kind)
        runs += len({run for run, *_ in answers})
        for run, fact, truth, got in answers:
            good = not isinstance(got, str) and same(truth, got)
            if truth is None:
                quiet, invented = quiet + good, invented + (not good)
            else:
                right, wrong = right + good, wrong + (not good)
            if not good:
                by_fact[fact] += 1
                print(f"{name}{f'#{run}' if run else ''}: {fact} is {truth}, got {got}")
    if given.all:
        print("no run:", *unknown, sep="\n  ")
    print(
        f"{runs} runs: {right} of {right + wrong} facts that the logs hold are right "
        f"({right / (right + wrong):.1%}); of {quiet + invented} that they do not hold {quiet} are "
        f"said to be unknown; wrong: {dict(by_fact)}"
    )
    return 0 if right >= 0.97 * (right + wrong) else 1


if __name__ == "__main__":
    sys.exit(main())
