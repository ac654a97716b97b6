"""Score an agent on questions about training logs whose truth is known: twelve of simulated ones,
and twelve about public ones where `../shared/data/hard` has them.

    agent_score.py --tools                      what the tools of `groupwise mcp` alone suffice for
    agent_score.py --agent 'claude -p {question}' [--only NAME] [--keep FOLDER]

An agent is any command: `{question}` and `{folder}` stand for themselves in its words, the question
also comes on standard input, and it runs inside the folder with the logs. It ends with one line of
JSON whose keys the question names; the last such line counts. Logs are simulated, each with its
truth (`groupwise_lab.worlds.logs`); nothing in them says what it is. No shell is involved.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.cli.mcp import Folders
from groupwise.record.run import RunRecord
from groupwise_lab.worlds.logs import run_of

Answer = Mapping[str, Any]
Call = tuple[str, dict[str, Any]]
REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "hard"  # public logs
PATIENCE = 900.0  # seconds for an agent's answer to one question


@dataclass(frozen=True, slots=True)
class Task:
    """One question, the logs that it is about, and what makes an answer right."""

    name: str
    question: str
    write: Callable[[Path], None]  # the logs into a folder
    right: Mapping[str, str | tuple[float, float] | set[str]]  # a pattern, a range, or names
    calls: Sequence[Call]  # of the tools
    read: Callable[[list[Any]], Answer]  # what the tools say -> an answer, by its keys alone


def logs(**kinds: tuple[str, int]) -> Callable[[Path], None]:
    """What writes simulated runs: file name -> kind and seed; a line of JSON a step."""

    def write(folder: Path) -> None:
        for name, (kind, seed) in kinds.items():
            record: RunRecord = run_of(kind, seed, rows=150)[0]
            folder.joinpath(name).mkdir()
            record.steps.write_ndjson(folder / name / "log.jsonl")
            settings = {key: setting.value for key, setting in record.config.known().items()}
            (folder / name / "config.json").write_text(json.dumps(settings))

    return write


def public(**files: str) -> Callable[[Path], None]:
    """What copies public logs: a run's folder -> its file, whose name says too much."""

    def write(folder: Path) -> None:
        for name, file in files.items():
            log = REAL / file
            if log.is_dir():
                shutil.copytree(log, folder / name)
            else:
                (folder / name).mkdir()
                shutil.copy(log, folder / name / ("log" + log.name[log.name.rfind(".") :]))

    return write


def curve(folder: Path, name: str, reward: np.ndarray, **settings: Any) -> None:
    """Write a reward as a run."""
    (folder / name).mkdir()
    rows = [json.dumps({"step": t, "reward": r}) for t, r in enumerate(reward.tolist(), 1)]
    (folder / name / "log.jsonl").write_text("\n".join(rows) + "\n")
    (folder / name / "config.json").write_text(json.dumps(settings))


def rise(seed: int, rows: int, *, top: float = 0.8, pace: float = 60.0) -> np.ndarray:
    """A reward that rises from 0.2 to a plateau, with noise."""
    steps = np.arange(1, rows + 1)
    noise = np.random.default_rng(seed).normal(0, 0.02, rows)
    return np.asarray(top - (top - 0.2) * np.exp(-steps / pace) + noise)


def sweep(folder: Path) -> None:
    """Five runs that differ in two settings; one of them separates those that learnt."""
    rates = (("a", 1e-5, 8), ("b", 1e-5, 16), ("c", 3e-7, 8), ("d", 1e-5, 8), ("e", 3e-7, 16))
    for seed, (name, rate, size) in enumerate(rates):
        flat = 0.2 + 0.02 * np.random.default_rng(seed).normal(size=120)
        reward = rise(seed, 120, pace=30) if rate > 1e-6 else flat
        curve(folder, name, reward, learning_rate=rate, num_generations=size)


def seeds(folder: Path) -> None:
    """Three seeds of two settings, one of which ends higher."""
    for seed in range(1, 4):
        curve(folder, f"slow_seed{seed}", rise(seed, 200, top=0.7), learning_rate=1e-6)
        curve(folder, f"fast_seed{seed}", rise(9 + seed, 200, top=0.8), learning_rate=3e-6)


def signed(results: list[Any]) -> Answer:
    """First sign and cause of a judged run."""
    sign, cause = results[0]["first_sign"], results[0]["cause"]
    step = results[0]["since_step"] if sign is None else sign["step"]
    return {"step": step, "cause": " ".join(cause["names"]), "change": results[0]["do"]}


def stopped(results: list[Any]) -> Answer:
    """Whether a judged run must be stopped."""
    return {"stop": "yes" if results[0]["state"] in ("failing", "failed") else "no"}


def failed(results: list[Any]) -> Answer:
    """The runs of a fleet that failed, and what to change in the worst."""
    worst = [row for row in results[0]["runs"] if row["state"] in ("failing", "failed")]
    names = [Path(row["path"]).name for row in worst]
    return {"run": names[0], "runs": names, "change": worst[0]["do"]}


def higher(results: list[Any]) -> Answer:
    """The rate of the group whose late mean is higher beyond what seeds do."""
    pair = results[0]["comparisons"][0]
    level = pair["contrasts"][0]
    better = "second" if level["difference"]["value"] > 0 else "first"
    differs = level["status"] == "different"
    return {"learning_rate": float(pair[better].split(" ")[1]) if differs else None}


def forecast_of(results: list[Any]) -> Answer:
    """The mean that is forecast for the step that was asked about."""
    return {"reward": results[0]["forecast"][0]["mean"]}


JUDGE: list[Call] = [("judge", {"run": "run"})]
FLEET: list[Call] = [("fleet", {"folder": "."})]
WHY = "The folder run holds the log of a GRPO training. "
STEP = '{"step": the step at which the first sign is seen, "cause": "the cause", "change": "..."}'
TASKS = (
    Task(
        "which failed",
        "Of the runs in this folder one failed. Which, and what would you change? Answer with "
        '{"run": "its folder", "change": "what you would change"}.',
        logs(
            a=("steady", 3), b=("noisy_small_batches", 1), c=("length_runaway", 2), d=("restart", 2)
        ),
        {"run": "^c$", "change": r"mask|truncat|length|lr|learning rate|restart"},
        FLEET,
        failed,
    ),
    Task(
        "when it came apart",
        f"{WHY}It failed: since when, and why? Answer with {STEP}.",
        logs(run=("policy_collapse", 2)),
        {"step": (68, 80), "cause": r"instab|came apart|entrop|collaps|diverg"},
        JUDGE,
        signed,
    ),
    Task(
        "grader",
        f"{WHY}Its reward fell at once: where, and what is the cause? Answer with {STEP}.",
        logs(run=("verifier_broken", 1)),
        {"step": (92, 96), "cause": r"verif|grader|grading|reward function"},
        JUDGE,
        signed,
    ),
    Task(
        "false alarm",
        f'{WHY}Must it be stopped? Answer with {{"stop": "yes" or "no"}}.',
        logs(run=("noisy_small_batches", 1)),
        {"stop": "^no$"},
        JUDGE,
        stopped,
    ),
    Task(
        "too good",
        f"{WHY}Is its gain real? If not, since when, and why? Answer with {STEP}.",
        logs(run=("hacking_true_logged", 2)),
        {"step": (70, 81), "cause": r"hack|loophole|exploit|gam(e|ing)"},
        JUDGE,
        signed,
    ),
    Task(
        "slow",
        f'{WHY}It learns slowly. What would you change? Answer with {{"change": "..."}}.',
        logs(run=("group_too_small", 1)),
        {"change": r"(rais|larg|increas|more|bigger|higher|doubl).*(group|generations|rollouts)"},
        JUDGE,
        signed,
    ),
    Task(
        "nothing moves",
        f'{WHY}Its reward does not move. Why? Answer with {{"cause": "...", "change": "..."}}.',
        logs(run=("flat", 1)),
        {"cause": r"(learning.rate|lr).*(0|zero)|(0|zero).*(learning.rate|lr)"},
        JUDGE,
        signed,
    ),
    Task(
        "numbers",
        f"{WHY}It broke. At which step, and why? Answer with {STEP}.",
        logs(run=("numerics", 2)),
        {"step": (37, 42), "cause": r"numeric|gradient|nan|overflow|not finite"},
        JUDGE,
        signed,
    ),
    Task(
        "which setting",
        "Some runs in this folder learnt, others did not. Which setting separates them, and how "
        'many learnt? Answer with {"setting": "its name", "learnt": number}.',
        sweep,
        {"setting": r"^(learning_rate|lr)$", "learnt": (3, 3)},
        FLEET,
        lambda results: {
            "setting": results[0]["separates"]["setting"],
            "learnt": results[0]["separates"]["learnt"],
        },
    ),
    Task(
        "which rate",
        "The runs in this folder are three seeds of two learning rates. Which rate ends higher, "
        'beyond what seeds do? Answer with {"learning_rate": number}.',
        seeds,
        {"learning_rate": (2.9e-6, 3.1e-6)},
        [
            (
                "compare",
                {
                    "runs": [
                        f"{name}_seed{seed}" for name in ("slow", "fast") for seed in (1, 2, 3)
                    ],
                    "by": "learning_rate",
                },
            )
        ],
        higher,
    ),
    Task(
        "where it ends",
        f"{WHY}Where will its reward be on average around step 400? "
        'Answer with {"reward": number}.',
        lambda folder: curve(folder, "run", rise(5, 200)),
        {"reward": (0.77, 0.83)},
        [("forecast", {"run": "run", "at": "400"})],
        forecast_of,
    ),
    Task(
        "which of eight",
        'Which runs of this folder failed or are failing? Answer with {"runs": ["folder", ...]}.',
        logs(
            a=("curriculum", 1),
            b=("sampler_mismatch", 2),
            c=("steady", 4),
            d=("restart", 1),
            e=("swings", 2),
            f=("noisy_small_batches", 2),
            g=("length_collapse", 2),
            h=("slow_learner", 2),
        ),
        {"runs": {"b", "e", "g"}},
        FLEET,
        failed,
    ),
)

COLLAPSED = "It came apart: since when, and why? "
REAL_TASKS = (
    Task(
        "public: which failed",
        "Of the runs in this folder one failed. Which, and what would you change? Answer with "
        '{"run": "its folder", "change": "what you would change"}.',
        public(
            a="rho3.00_seed44.log",
            b="GRPO-Clip_0.20_0.20_e2_tb256.metrics.jsonl",
            c="rho0.30_seed43.log",
            d="verldata_gemma-2-2b-it-ppo-bsz512_4-prompt1024-resp-512-0.640.log",
        ),
        {"run": "^c$", "change": r"mask|truncat|length|lr|learning rate|restart"},
        FLEET,
        failed,
    ),
    *(
        Task(
            f"public: {name}",
            f"{WHY}{COLLAPSED}Answer with {STEP}.",
            public(run=file),
            {"step": steps, "cause": cause},
            JUDGE,
            signed,
        )
        for name, file, steps, cause in (
            ("without a clip", "GRPO-No-Clip_e2_tb256.metrics.jsonl", (133, 139), r"length"),
            ("cut off", "rho0.30_seed43.log", (68, 86), r"length|truncat"),
            ("its neighbour", "rho0.50_seed43.log", (33, 42), r"instab|came apart|shr[au]nk"),
            (
                "off policy",
                "cs336_grpo_off_policy_sweep_focused_e2_tb256.metrics.jsonl",
                (194, 198),
                r"numeric|not finite|instab|came apart|diverg",
            ),
            (
                "an agent",
                "agent_opd__gjvwlq13.output.log",
                (11, 33),
                r"instab|came apart|shr[au]nk|short|hack|penalty",
            ),
            # Nothing shows it but the completions: the tools do not say so.
            ("too good", "real_hack", (4, 8), r"hack|loophole|exploit|gam(e|ing)"),
        )
    ),
    *(
        Task(
            f"public: {name}",
            f'{WHY}Must it be stopped? Answer with {{"stop": "yes" or "no"}}.',
            public(run=file),
            {"stop": "^no$"},
            JUDGE,
            stopped,
        )
        for name, file in (
            ("healthy", "final_on_policy_lr4e-5_400_full_eval.metrics.jsonl"),
            ("healthy table", "Mistral_v0.3__7B_-GRPO.table.csv"),
            ("healthy console", "uqcxu9__train_v4_reward.log"),
            ("without std", "no_std_normalization.metrics.jsonl"),
        )
    ),
    Task(
        "public: cut",
        f'{WHY}Most answers end before they are done. Answer with {{"cause": "...", "change": '
        '"..."}.',
        public(run="Qwen3__4B_-GRPO.table.csv"),
        {"cause": r"truncat|cut off|limit|length"},
        JUDGE,
        signed,
    ),
)


def wrong(task: Task, answer: Answer | None) -> str:
    """Say what is wrong with an answer; "" where it is right."""
    if answer is None:
        return "no line of JSON"
    for key, wanted in task.right.items():
        given = answer.get(key)
        match wanted:
            case str():
                fits = re.search(wanted, str(given), re.IGNORECASE) is not None
            case set():
                fits = (
                    isinstance(given, list) and {str(word).strip("/") for word in given} == wanted
                )
            case (low, high):
                fits = isinstance(given, int | float) and low <= given <= high
        if not fits:
            return f"{key}: {given!r}"
    return ""


def last_json(text: str) -> Answer | None:
    """The last line of a text that is a JSON object."""
    for line in reversed(text.splitlines()):
        match = re.search(r"\{.*\}", line)
        if match:
            try:
                answer = json.loads(match[0])
            except ValueError:
                continue
            if isinstance(answer, dict):
                return answer
    return None


def by_tools(task: Task, folder: Path) -> Answer | None:
    """Answer by what the tools say, read by its keys."""
    served, results = Folders([folder]), []
    for name, given in task.calls:
        text, failed_call = served.call(name, given)
        if failed_call:
            return {"error": text}
        results.append(json.loads(text))
    return task.read(results)


def by_agent(template: str, task: Task, folder: Path) -> Answer | None:
    """Ask an agent."""
    words = [
        word.replace("{question}", task.question).replace("{folder}", str(folder))
        for word in shlex.split(template)
    ]
    try:
        ended = subprocess.run(
            words, cwd=folder, input=task.question, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return None
    return last_json(ended.stdout)


def score(
    ask: Callable[[Task, Path], Answer | None], home: Path, asked: Sequence[Task] = TASKS
) -> int:
    """Ask questions; print what was right, and return how many were."""
    right = 0
    for task in asked:
        folder = home / task.name.replace(" ", "_")
        folder.mkdir()
        task.write(folder)
        fault = wrong(task, ask(task, folder))
        right += not fault
        print(
            f"{'right' if not fault else 'WRONG'}  {task.name}{'  ' * bool(fault)}{fault}",
            flush=True,
        )
    print(f"{right} of {len(asked)}")
    return right


def main() -> int:
    """Score the tools or an agent; exit code 1 where an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--tools", action="store_true")
    who.add_argument("--agent", metavar="COMMAND")
    parser.add_argument("--only", default="", metavar="NAME")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    given = parser.parse_args()

    def ask(task: Task, folder: Path) -> Answer | None:
        return by_tools(task, folder) if given.tools else by_agent(given.agent, task, folder)

    every = TASKS + (REAL_TASKS if REAL.is_dir() else ())
    asked = [task for task in every if given.only in task.name]
    if given.keep is not None:
        given.keep.mkdir(parents=True)
        return int(score(ask, given.keep, asked) < len(asked))
    with tempfile.TemporaryDirectory() as home:
        return int(score(ask, Path(home), asked) < len(asked))


if __name__ == "__main__":
    sys.exit(main())
