"""verl's printed rows (`step:1 - actor/pg_loss:0.1 - ...`) amid Ray's prefixes and colours, with the settings printed at the start.

Only literals are read; nothing is executed. verl's dumps of rollouts are read in `rollouts.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupwise.errors import UnreadableRunError
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.configs import settings_in
from groupwise.readers.rows import RowStore
from groupwise.readers.source import ESCAPE, counted, open_text, peek, shown, start_of
from groupwise.record.run import RunRecord

_ROW = re.compile(r"(?:^|[\s)\]])step:(\d{1,15})((?: - [^\s:][^:]{0,200}:[^\n]*)?)$")
_ROW_BYTES = re.compile(rb"[\s)\]m]step:\d{1,15} - [\w./@+-]{1,200}(?:\([^()\s]{1,20}\))?:")
PREFIX = re.compile(r"(?:\[\d{1,3}m)?\(([\w.:<>\- ]{1,80}pid=\d+[^()]{0,80})\)(?:\[0m)? ?")
_PID = re.compile(r"(.*)pid=(\d+).*")
_SCALAR = re.compile(r"(?:np|numpy|torch)\.\w+\(([^()]*)\)|tensor\(([^(),]*)(?:,[^()]*)?\)|array\(([^(),\[\]]*)(?:,[^()]*)?\)")
_CELLS = re.compile(r" - [a-z][\w./@+-]{1,100}:(?:np\.\w+\()?-?\d")
_OWN = re.compile(r" - (?:actor|critic)/\w{1,40}")
_SCALED = re.compile(r"(.+)\((1e-?\d{1,3})\)")
_REPEATED = re.compile(r" ?\[repeated \d+x across cluster\].*$")
_OVERRIDE = re.compile(
    r"(?<![\w./])\+{0,2}((?:actor_rollout_ref|algorithm|data|trainer|reward_model|critic)(?:\.\w+){1,8})=([^\s'\"\\]{1,200})"
)
_DUMP = re.compile(r"\{'(?:actor_rollout_ref|algorithm|actor|data|async_training)': ")
_PATHS: dict[str, tuple[str, ...]] = {
    "group_size": ("actor_rollout_ref/rollout/n",),
    "prompts_per_step": ("data/train_batch_size",),
    "learning_rate": ("actor_rollout_ref/actor/optim/lr",),
    "learning_rate_schedule": ("actor_rollout_ref/actor/optim/lr_scheduler_type", "actor_rollout_ref/actor/optim/warmup_style"),
    "optimizer": ("actor_rollout_ref/actor/optim/optimizer",),
    "beta1": ("betas/1",),
    "beta2": ("betas/2",),
    "loss": ("algorithm/adv_estimator",),
    "temperature": ("actor_rollout_ref/rollout/temperature",),
    "max_completion_length": ("data/max_response_length", "actor_rollout_ref/rollout/response_length"),
    "model": ("actor_rollout_ref/model/path",),
    "seed": ("actor_rollout_ref/actor/data_loader_seed", "data/seed"),
}
_WHOLE = (
    "data/train_batch_size", "actor_rollout_ref/actor/ppo_mini_batch_size", "actor_rollout_ref/actor/ppo_epochs",
    "trainer/v1/trainer_mode", "async_training/staleness_threshold",
)  # fmt: skip
_INSERTED = re.compile(r"\([\w.:<>\- ]{1,80}pid=\d+")
_CONTINUED = re.compile(r"\s+(?:['\"\[({}\])]|-?\d|None|True|False)")
_SCAN = 1 << 25
_LONGEST_LINE = 1 << 22
_ENTRY = re.compile(r"(?:^|(?<=[{ ]))'([\w.\-]{1,100})': ?(\{?)")
_ENTRY_AFTER = re.compile(r",\s*'[\w.\-]{1,100}':")
_LONGEST_DUMP = 6000


def sniff_verl(path: Path) -> float:
    """Return the confidence that the file is verl's printed output: a row of it, or its settings, within the first 32 MB."""
    seen = peek(path)
    if seen.binary or seen.text[:1] == "{":
        return 0.0
    if _ROW_BYTES.search(b"\n" + start_of(path, seen, len(seen.head))):
        return 0.8
    headless = 0.6 if any(_is_headless(line) and _OWN.search(line) for line in seen.text.splitlines()) else 0.0
    if path.suffix.lower() in (".csv", ".tsv", ".json", ".jsonl", ".yaml", ".yml"):
        return 0.0
    if _ROW_BYTES.search(b"\n" + start_of(path, seen, _SCAN)):
        return 0.8
    return max(headless, 0.45 if "actor_rollout_ref" in seen.text else 0.0)


def _is_headless(line: str) -> bool:
    """Return whether a line that is no row holds the cells of one."""
    return len(_CELLS.findall(line)) > 2


def number_of(text: str) -> float | None:
    """Return the number that a printed value holds, also as NumPy or PyTorch print theirs; None for a text."""
    try:
        return float(text)
    except ValueError:
        match = _SCALAR.fullmatch(text.strip())
    if match is None:
        return None
    try:
        return float(next(group for group in match.groups() if group is not None))
    except ValueError:
        return None


def read_verl(path: Path, request: Request) -> RunRecord:
    """Read the rows that verl printed, one a step, and the settings that it printed before them."""
    seen = peek(path)
    store, rest = RowStore(), Settings()
    scaled: set[str] = set()
    writers: list[str] = []
    broken = headless = 0
    for line in _lines(path, seen.encoding):
        match = _ROW.search(line) if "step:" in line else None
        if match is None:
            headless += _is_headless(line)
            if not store.count:
                rest.add(line)
            continue
        row, bad = _row(match, scaled)
        broken += bad
        prefix = PREFIX.match(line)
        writers.append(prefix[1] if prefix else "")
        store.add(row)
    if not store.count:
        why = (
            f"{counted(headless, 'line')} without their step: copy it again" if headless else "none: the run stopped before its first step"
        )
        raise UnreadableRunError(f"expected verl's printed rows (step:1 - ...) in {shown(path)}, got {why}")
    notes = [f"{', '.join(sorted(scaled))}: multiplied out, and without the factor in the name"] if scaled else []
    if headless:
        are = counted(headless, "line looks like a row without its step and was", "lines look like rows without their step and were")
        notes.append(f"{are} left out")
    if broken:
        are = counted(broken, "value is no number and was", "values are not numbers and were")
        notes.append(f"{are} left out: another process may have printed into the line")
    _tell_runs_apart(store, writers)
    stated = ((rest.found(), "the settings that verl printed"), ({"framework": "verl"}, "the printed rows"))
    return assemble(Log(store, path, "verl_console", seen.size, tuple(notes), stated=stated, framework="verl"), request)


def _lines(path: Path, encoding: str) -> Iterator[str]:
    """Yield lines without colours, line ends and what Ray adds of repetitions."""
    with open_text(path, encoding) as file:
        while line := file.readline(_LONGEST_LINE):
            if "\x1b" in line:
                line = ESCAPE.sub("", line)
            if "[repeated " in line:
                line = _REPEATED.sub("", line)
            yield line.rstrip()


def _row(match: re.Match[str], scaled: set[str]) -> tuple[dict[str, float], int]:
    """Return the numbers of a printed row, and how many of its values were none."""
    row: dict[str, float] = {"step": float(match[1])}
    broken = 0
    for part in match[2].split(" - ")[1:]:
        key, mark, text = part.partition(":")
        try:
            value: float | None = float(text)
        except ValueError:
            value = number_of(text)
        if value is None:
            broken += bool(mark)
            continue
        if key[-1:] == ")":
            unit = _SCALED.fullmatch(key)
            if unit:
                scaled.add(key)
                key, value = unit[1], value * float(unit[2])
        row[key] = value
    return row, broken


def _tell_runs_apart(store: RowStore, writers: list[str]) -> None:
    """Label the rows of processes of one kind that print by turns: a run has one, and after a restart another, the first no more."""
    found = [_PID.fullmatch(writer) for writer in writers]
    names = [match[2] if match else "" for match in found]
    blocks = [name for name, before in zip(names, [None, *names], strict=False) if name != before]
    if all(found) and len({match[1] for match in found if match}) == 1 and len(blocks) > len(set(blocks)):
        store.labels["run"] = dict(enumerate(names))


class Settings:
    """The settings in what verl prints before its first step: the dump of its configuration, else the overrides of the command."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._overrides: dict[str, Any] = {}
        self._dumped: dict[str, Any] = {}
        self._who, self._lines = "", 0
        self._stack: list[tuple[int, str]] = []

    def add(self, line: str) -> None:
        """Take one line into account: each line of the dump tells by its indentation where it belongs, so others may come between."""
        for path, value in _OVERRIDE.findall(line) if "=" in line and "." in line else ():
            self._overrides[path.replace(".", "/")] = _literal(value)
        prefix = PREFIX.match(line)
        who, body = (prefix[1], line[prefix.end() :]) if prefix else ("", line)
        if not self._lines:
            start = _DUMP.search(body)
            if start is None:
                return
            self._who, body = who, " " * start.start() + body[start.start() :]
        elif who != self._who or self._lines > _LONGEST_DUMP or not _CONTINUED.match(body):
            return
        self._lines += 1
        self._entries(_INSERTED.split(body, maxsplit=1)[0])

    def _entries(self, body: str) -> None:
        """Take the entries of one line of the dump."""
        for match in _ENTRY.finditer(body):
            column = match.start(1)
            while self._stack and self._stack[-1][0] >= column:
                self._stack.pop()
            path = "/".join([*(name for _, name in self._stack), match[1]])
            if match[2] == "{":
                self._stack.append((column, match[1]))
                continue
            rest = _ENTRY_AFTER.split(body[match.end() :], maxsplit=1)[0].rstrip("},").strip()
            pair = re.fullmatch(r"[\[(]\s*([\d.]+),\s*([\d.]+)\s*[\])]", rest)
            if pair and path == "actor_rollout_ref/actor/optim/betas":
                self._dumped |= {"betas/1": float(pair[1]), "betas/2": float(pair[2])}
            elif rest != "None":
                self._dumped[path] = _literal(rest.strip("'\""))

    def found(self) -> dict[str, Any]:
        """Return the settings under our names; the dump wins, for it holds what the overrides made of the defaults."""
        flat = self._overrides | self._dumped
        known = {name: next((flat[path] for path in paths if flat.get(path) is not None), None) for name, paths in _PATHS.items()}
        return settings_in({path: flat[path] for path in _WHOLE if path in flat}) | _checked(known | _penalty(flat) | _estimator(flat))


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are known and inside their domains."""
    return {name: value for name, value in found.items() if value is not None and settings_in({name: value}) == {name: value}}


def _penalty(flat: dict[str, Any]) -> dict[str, Any]:
    """Return the weight of the KL term and where it is; versions without `use_kl_loss` have it in the reward."""
    if flat.get("actor_rollout_ref/actor/use_kl_loss"):
        return {"kl_weight": flat.get("actor_rollout_ref/actor/kl_loss_coef"), "kl_in": "loss"}
    coefficient = flat.get("algorithm/kl_ctrl/kl_coef")
    if flat.get("algorithm/use_kl_in_reward", "actor_rollout_ref/actor/use_kl_loss" not in flat) and coefficient is not None:
        return {"kl_weight": coefficient, "kl_in": "reward" if coefficient else "none"}
    return {"kl_weight": 0.0, "kl_in": "none"} if "algorithm/use_kl_in_reward" in flat else {}


def _estimator(flat: dict[str, Any]) -> dict[str, Any]:
    """Return what the advantages are divided by; only GRPO's estimators divide by the group's spread."""
    if str(flat.get("algorithm/adv_estimator")) not in ("grpo", "grpo_vectorized"):
        return {}
    return {"scale_rewards": "group" if flat.get("algorithm/norm_adv_by_std_in_grpo", True) else "none"}


def _literal(text: str) -> Any:
    """Return the value of an override."""
    if text in ("True", "true", "False", "false"):
        return text.lower() == "true"
    value = number_of(text)
    return text if value is None else int(value) if value == value and abs(value) < 2**53 and value == int(value) else value
