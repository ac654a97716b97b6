"""Settings of a run from the files around its log: the output's README, JSON and YAML files, and what the user gives.

Nothing is executed or unpickled: `training_args.bin` is never opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError, InvalidArgumentError, UnreadableRunError
from groupwise.readers.source import open_text, peek, read_whole, shown
from groupwise.record.settings import RULES, RunConfig

_ALIASES = {
    "num_generations": "group_size", "group_size": "group_size", "num_rollouts_per_prompt": "group_size",
    "rollouts_per_prompt": "group_size",
    "rollout/n": "group_size", "n_samples_per_prompt": "group_size", "num_return_sequences_in_group": "group_size",
    "prompts_per_step": "prompts_per_step", "num_prompts_per_step": "prompts_per_step", "data/train_batch_size": "prompts_per_step",
    "learning_rate": "learning_rate", "lr": "learning_rate", "optim/lr": "learning_rate",
    "lr_scheduler_type": "learning_rate_schedule", "learning_rate_schedule": "learning_rate_schedule",
    "lr_schedule": "learning_rate_schedule",
    "optim": "optimizer", "optimizer": "optimizer", "momentum": "momentum",
    "adam_beta1": "beta1", "beta1": "beta1", "adam_beta2": "beta2", "beta2": "beta2",
    "beta": "kl_weight", "kl_coef": "kl_weight", "kl_weight": "kl_weight", "kl_loss_coef": "kl_weight", "kl_beta": "kl_weight",
    "loss_type": "loss", "loss": "loss", "importance_sampling_level": "importance_ratio", "importance_ratio": "importance_ratio",
    "kl_in": "kl_in",
    "refresh_interval": "refresh_interval", "lag_kind": "lag_kind", "updates_per_step": "updates_per_step",
    "optimizer_updates_per_rollout_batch": "updates_per_step", "logging_steps": "logging_steps",
    "scale_rewards": "scale_rewards", "use_std_normalization": "scale_rewards",
    "multi_objective_aggregation": "multi_objective_aggregation",
    "temperature": "temperature", "sampling_temperature": "temperature",
    "max_completion_length": "max_completion_length", "max_response_length": "max_completion_length",
    "rollout/response_length": "max_completion_length", "generate_max_len": "max_completion_length",
    "rollout_max_response_len": "max_completion_length", "max_new_tokens": "max_completion_length",
    "model_name_or_path": "model", "model_name": "model", "model": "model", "model/name": "model", "base_model": "model",
    "framework": "framework", "framework_version": "framework_version", "trl_version": "framework_version", "seed": "seed",
}  # fmt: skip
ASSUMED = "assumed"
_SECTIONS = (
    "training", "train", "grpo", "rl", "args", "training_args", "algorithm", "rollout", "model", "config", "trainer", "optim", "data",
)  # fmt: skip
_FOREIGN = ("eval", "evaluation", "validation", "dataset", "sweep", "lora", "peft", "output", "collapse_detection", "vllm")
_GENERIC_NAMES = (
    "training_args.json", "args.json", "config.json", "grpo_config.json", "run_config.json", "hparams.json", "hyperparameters.json",
    "training_metadata.json", "config.yaml", "config.yml", "training_args.yaml", "args.yaml", "hparams.yaml", "recipe.yaml",
    "run_summary.json",
)  # fmt: skip
_TWIN_ENDINGS = (".config.json", ".config.yaml", ".config.yml", ".args.json", ".training_args.json", ".training_metadata.json", ".yaml")
_GENERIC_LOGS = re.compile(
    r"(trainer_state\.json|metrics\.(jsonl?|csv)|log(s|ging)?\.(jsonl?|csv|txt)|history\.(jsonl?|csv)|step_logs\.json|train\.log)"
)


def parse_yaml(text: str) -> dict[str, Any]:
    r"""Return the settings of a plain YAML file, flattened with "/": nested mappings of scalars and inline lists.

    Anchors, block texts and lists of mappings are passed over: only settings are wanted, and nothing is executed.
    """
    found: dict[str, Any] = {}
    stack: list[tuple[int, str]] = []
    for line in text.splitlines()[:20_000]:
        match = re.match(r"^( *)([^\s#:\-\[\]{}][^:#]{0,200}?|\"[^\"]{1,200}\"|'[^']{1,200}'):(?:\s+(.*))?$", line)
        if not match:
            continue
        indent, key, rest = len(match[1]), match[2].strip().strip("\"'"), _without_comment(match[3] or "")
        while stack and stack[-1][0] >= indent:
            stack.pop()
        if rest in ("", "|", ">"):
            stack.append((indent, key))
        else:
            found["/".join([*(name for _, name in stack), key])] = _scalar(rest)
    return found


def _without_comment(value: str) -> str:
    """Return a YAML value without its comment."""
    text = value.strip()
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[: end + 1] if end > 0 else text
    return re.split(r"\s#", text, maxsplit=1)[0].strip() if not text.startswith("#") else ""


def _scalar(text: str) -> Any:
    """Return a YAML scalar as int, float, bool, None or text."""
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        return text[1:-1]
    if text.lower() in ("true", "yes", "false", "no"):
        return text.lower() in ("true", "yes")
    if text.lower() in ("null", "none", "~"):
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def settings_in(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a flattened mapping holds, under our names; values outside their domain are passed over."""
    ranked: dict[str, tuple[int, Any]] = {}
    for path, value in flat.items():
        parts = path.removesuffix("/value").lower().split("/")
        if any(part in _FOREIGN for part in parts[:-1]) or value is None:
            continue
        name = _ALIASES.get("/".join(parts[-2:])) or _ALIASES.get(parts[-1])
        rank = 0 if len(parts) == 1 else 1 if all(part in _SECTIONS for part in parts[:-1]) else 2
        if name and (name not in ranked or rank < ranked[name][0]) and _valid(name, value):
            ranked[name] = (rank, value)
    found = {name: value for name, (_, value) in ranked.items()}
    leaves = {path.removesuffix("/value").lower().split("/")[-1]: value for path, value in flat.items() if isinstance(value, int | float)}
    return found | _derived(found, leaves) | _verl(found, flat)


def _valid(name: str, value: Any) -> bool:
    """Return whether a value is in the domain of a setting."""
    try:
        RunConfig().with_settings({name: value}, "")
    except InvalidArgumentError:
        return False
    return True


def _derived(found: Mapping[str, Any], leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that follow from several others."""
    derived: dict[str, Any] = {}
    group = found.get("group_size")
    rollouts = leaves.get("rollout_batch_size")
    if rollouts is None and "per_device_train_batch_size" in leaves:
        processes = leaves.get("world_size", leaves.get("num_processes", 1))
        rollouts = leaves["per_device_train_batch_size"] * leaves.get("gradient_accumulation_steps", 1) * processes
    if group and rollouts and "prompts_per_step" not in found and rollouts % int(group) == 0 and rollouts >= int(group):
        derived["prompts_per_step"] = int(rollouts) // int(group)
        if "rollout_batch_size" not in leaves and not {"world_size", "num_processes"} & set(leaves):
            derived[ASSUMED] = "one process assumed"
    per_generation, iterations = leaves.get("steps_per_generation"), leaves.get("num_iterations", 1)
    accumulation = leaves.get("gradient_accumulation_steps")
    if per_generation and accumulation and iterations and "refresh_interval" not in found:
        every = per_generation * iterations
        whole = every % accumulation == 0 or accumulation % every == 0
        interval = max(1, int(every) // int(accumulation))
        derived |= {"refresh_interval": interval, "lag_kind": "none" if interval == 1 else "refresh"} if whole else {}
    return {name: value for name, value in derived.items() if name == ASSUMED or _valid(name, value)}


def _verl(found: Mapping[str, Any], flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the updates of one step of verl's synchronous trainer: epochs x mini-batches."""
    ends = ("data/train_batch_size", "actor/ppo_mini_batch_size", "actor/ppo_epochs")
    numbers = [next((value for path, value in flat.items() if path.removesuffix("/value").endswith(end)), None) for end in ends]
    modes = [value for path, value in flat.items() if path.removesuffix("/value").endswith("trainer_mode")]
    asynchronous = any("async_training/" in path for path in flat) or any(mode != "sync" for mode in modes)
    if asynchronous or "refresh_interval" in found or not all(isinstance(number, int) and number > 0 for number in numbers):
        return {}
    batch, mini, epochs = (int(number or 0) for number in numbers)
    updates = epochs * -(-batch // mini)
    derived = {"refresh_interval": updates, "lag_kind": "none" if updates == 1 else "refresh", "updates_per_step": updates}
    return {name: value for name, value in derived.items() if name not in found and _valid(name, value)}


def flatten(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield path and scalar of nested mappings; lists are passed over."""
    if isinstance(value, Mapping) and depth < 8:
        for key, inner in value.items():
            yield from flatten(inner, f"{prefix}/{key}" if prefix else str(key), depth + 1)
    elif isinstance(value, str | int | float | bool) or value is None:
        yield prefix, value


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings of a JSON or YAML file under our names."""
    seen = peek(path)
    if seen.binary:
        raise UnreadableRunError(f"expected settings as JSON or YAML, got {shown(path)}, {seen.binary}")
    if seen.size > 1 << 24:
        raise UnreadableRunError(f"expected settings as JSON or YAML of at most 16 MB, got {shown(path)}: give a smaller file")
    text = read_whole(path, seen)
    if text.lstrip().startswith("{"):
        try:
            return settings_in(dict(flatten(json.loads(text))))
        except (ValueError, RecursionError):
            raise UnreadableRunError(f"expected settings as JSON, got {shown(path)}, which is damaged: repair it") from None
    flat = parse_yaml(text)
    if not flat:
        raise UnreadableRunError(f"expected settings as `name: value` lines or JSON, got none in {shown(path)}: write one setting a line")
    return settings_in(flat)


def readme_settings(path: Path) -> dict[str, Any]:
    """Return what the README of a trainer's output tells: versions, model, and hyper-parameters listed one a line."""
    try:
        seen = peek(path)
        with open_text(path, seen.encoding) as file:
            text = file.read(1 << 18)
    except (GroupwiseError, OSError):
        return {}
    found: dict[str, Any] = {}
    version = re.search(r"^[-*]\s*TRL:\s*v?(\d+\.\d+[\w.]*)", text, re.MULTILINE)
    if version:
        found |= {"framework": "trl", "framework_version": version[1]}
    model = re.search(r"fine-tuned version of \[([^\]]{1,200})\]", text)
    if model and model[1] != "None":
        found["model"] = model[1]
    lines = re.findall(r"^[-*]\s*`?(\w{2,60})`?\s*[:=]\s*`?([^\s`]{1,200})`?\s*$", text, re.MULTILINE)
    return settings_in({key: _scalar(value) for key, value in lines}) | found


def recover(log: Path, folder: Path | None = None) -> RunConfig:
    """Return the settings found around a log; a later file adds what the earlier did not say."""
    config = RunConfig()
    for path in _around(log, folder):
        try:
            found = readme_settings(path) if path.name == "README.md" else {} if _is_model(path) else read_settings(path)
        except GroupwiseError:
            continue
        config = with_missing(config, found, f"{path.name} of the output" if path.name == "README.md" else path.name)
    return config


def with_found(config: RunConfig, found: Mapping[str, Any], source: str) -> RunConfig:
    """Return the settings with those found in a file; what had to be assumed is said in the source."""
    assumed = found.get(ASSUMED)
    plain = {name: value for name, value in found.items() if name in RULES and not (assumed and name == "prompts_per_step")}
    config = config.with_settings(plain, source)
    if assumed and "prompts_per_step" in found:
        config = config.with_settings({"prompts_per_step": found["prompts_per_step"]}, f"{source}, {assumed}")
    return config


def with_missing(config: RunConfig, found: Mapping[str, Any], source: str) -> RunConfig:
    """Return the settings with those found that were not known before."""
    return with_found(config, {name: value for name, value in found.items() if name == ASSUMED or not getattr(config, name).known}, source)


def _around(log: Path, folder: Path | None) -> Iterator[Path]:
    """Yield the files that may hold settings of the run."""
    homes = [home for home in (folder, log.parent if folder or _GENERIC_LOGS.fullmatch(log.name) else None) if home is not None]
    for home in dict.fromkeys(homes):
        yield from (path for name in ("README.md", *_GENERIC_NAMES) if (path := home / name).is_file() and path != log)
    for cut in (1, 2):
        stem = log.name.rsplit(".", cut)[0]
        yield from (path for ending in _TWIN_ENDINGS if (path := log.with_name(stem + ending)).is_file() and path != log)


def _is_model(path: Path) -> bool:
    """Return whether a config.json is that of a model, whose temperature is not the run's."""
    if path.name != "config.json":
        return False
    try:
        return '"architectures"' in peek(path).text or '"model_type"' in peek(path).text
    except GroupwiseError:
        return True
