"""Settings of a run: what the user gave, then the files around its log, then what the log itself
states.

Nothing is executed or unpickled: `training_args.bin` is never opened, and YAML is read by PyYAML's
safe loader.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard

from groupwise import parsing
from groupwise.errors import (
    GroupwiseError,
    InvalidArgumentError,
    NothingYetError,
    UnreadableRunError,
)
from groupwise.files import forms, table_rows
from groupwise.parsing import JsonObject, JsonView, parse_json
from groupwise.readers.source import (
    is_number,
    is_scalar,
    open_text,
    peek,
    read_whole,
    sender_of,
    shown,
    vocabulary,
)
from groupwise.record.run import RULES, RunConfig


def plain_yaml(text: str) -> Any:
    """Return what a YAML text says; a damaged one is a ValueError, or what its odd dates and
    keys raise.
    """
    import yaml  # where a file holds any: it takes longer to load than to read one

    class Bounded(yaml.SafeLoader):  # type: ignore[misc]
        """Plain data with few aliases: nested ones could unfold without bound."""

        aliases = 0

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            """Take the next node."""
            self.aliases += self.check_event(yaml.AliasEvent)
            if self.aliases > parsing.MOST_ALIASES:
                raise yaml.YAMLError("too many aliases")
            return super().compose_node(parent, index)

    try:
        return yaml.load(text, Loader=Bounded)  # noqa: S506  a safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


# Of each setting what trainers and loops of one's own call it, the last part of its path or the
# last two; and its paths in verl's configuration, of which these count and no other: it holds
# hundreds of defaults of parts that are off.
_SETTINGS = tuple(table_rows("readers/settings.tsv"))
_ALIASES = {alias: row["setting"] for row in _SETTINGS for alias in row["called"].split()}
ASSUMED = "assumed"
_SECTIONS = frozenset(vocabulary("settings_section"))
_FOREIGN = frozenset(vocabulary("foreign_section"))
_GENERIC_NAMES = vocabulary("settings_file")
_TWIN_ENDINGS = vocabulary("settings_ending")
_GENERIC_LOGS = re.compile(
    r"(trainer_state\.json|metrics\.(jsonl?|csv)|log(s|ging)?\.(jsonl?|csv|txt)|history\.(jsonl?"
    r"|csv)|step_logs\.json|train\.log)"
)


_LISTED = re.compile(r"^[-*]\s*`?(\w{2,60})`?\s*[:=]\s*`?([^\s`]{1,200})`?\s*$", re.MULTILINE)
_WORDS = {
    "true": True,
    "yes": True,
    "false": False,
    "no": False,
    "null": None,
    "none": None,
    "~": None,
}


def parse_yaml(text: str) -> JsonObject:
    """Return the settings of a YAML file, flattened with "/"; none where it is damaged or no
    mapping.
    """
    if len(text) > parsing.LARGEST_YAML:
        return {}
    try:
        return {
            path: number_in(value)
            for path, value in islice(flatten(plain_yaml(text)), parsing.MOST_SETTINGS)
            if path
        }
    except (ValueError, RecursionError, TypeError, AttributeError):  # the last two of odd keys
        return {}


def number_in(value: Any) -> Any:
    """Return the number or truth value that a text holds, None for "None", and any other value
    as it is.
    """
    if not isinstance(value, str):
        return value
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def listed(text: str) -> JsonObject:
    """Return names and values that a text lists, one a line: `- learning_rate: 5e-06`."""
    return {name: number_in(value) for name, value in _LISTED.findall(text)}


def settings_in(flat: JsonView, group_size: int | None = None) -> JsonObject:
    """Return the settings that a flattened mapping holds, under our names; values outside their
    domain are passed over.
    """
    spelled = {
        path.replace("/value/", "/").removesuffix("/value").lower(): value
        for path, value in flat.items()
    }
    if any(path.startswith("actor_rollout_ref/") for path in spelled):
        return {name: value for name, value in _of_verl(spelled).items() if _valid(name, value)}
    settings = _named(spelled)
    last = {path.rpartition("/")[2]: value for path, value in spelled.items()}
    leaves = {name: value for name, value in last.items() if _counts(value)}
    derived = (
        {}
        if "prompts_per_step" in settings
        else _prompts(leaves, settings.get("group_size", group_size))
    )
    derived |= (
        {}
        if "refresh_interval" in settings
        else _interval(leaves) or _updates_of_batch(leaves, settings.get("updates_per_step"))
    )
    settings |= _switched(last)
    if not str(last.get("save_strategy", "steps")).lower().endswith("steps"):
        settings.pop("checkpoint_interval", None)  # TRL states an interval that it does not use
    sound = {
        name: value for name, value in derived.items() if name == ASSUMED or _valid(name, value)
    }
    return settings | sound | settings


def _named(spelled: JsonView) -> JsonObject:
    """Return the settings that are there under a name of theirs; the shorter the path, the more
    it counts.
    """
    settings: JsonObject = {}
    for rank in range(3):
        for path, value in spelled.items():
            name = _name_of(path, rank)
            if name and name not in settings and _valid(name, value):
                settings[name] = value
    return settings


_NO_PENALTY = {"kl_weight": 0.0, "kl_in": "none"}


def _switched(last: JsonView) -> JsonObject:
    """Return that there is no KL term where its switches are off; a weight in the reward (slime,
    OpenRLHF) has no switch.
    """
    off = [switch in last and not last[switch] for switch in ("use_kl_loss", "use_kl_in_reward")]
    in_reward = any(map(last.get, ("kl_coef", "init_kl_coef")))
    if all(off) or (off[0] and "use_kl_in_reward" not in last and not in_reward):
        return _NO_PENALTY
    return {}


def _name_of(path: str, rank: int) -> str | None:
    """Return our name for a setting of a rank: by itself (0), in a section of the training (1),
    or in any other (2).
    """
    *sections, leaf = path.split("/")
    if rank != (
        0 if not sections else 1 if _SECTIONS.issuperset(sections) else 2
    ) or not _FOREIGN.isdisjoint(sections):
        return None
    return _ALIASES.get("/".join((*sections[-1:], leaf))) or _ALIASES.get(leaf)


def _valid(name: str, value: Any) -> bool:
    """Return whether a value is in the domain of a setting."""
    try:
        RunConfig().with_settings({name: value}, "")
    except InvalidArgumentError:
        return False
    return value is not None


def _prompts(leaves: JsonView, group_size: int | None) -> JsonObject:
    """Return the prompts of a step from the rollouts of a step, or from the parts that make them
    up.
    """
    rollouts = leaves.get("rollout_batch_size")
    assumed = {}
    if rollouts is None and "per_device_train_batch_size" in leaves:
        processes = leaves.get("world_size", leaves.get("num_processes"))
        assumed = {ASSUMED: "assuming one process"} if processes is None else {}
        rollouts = (
            leaves["per_device_train_batch_size"]
            * leaves.get("gradient_accumulation_steps", 1)
            * (processes or 1)
        )
    if not group_size or not rollouts or rollouts % group_size or rollouts < group_size:
        return {}
    return {"prompts_per_step": int(rollouts) // int(group_size)} | assumed


def _interval(leaves: JsonView) -> JsonObject:
    """Return the optimiser updates between two generations of TRL."""
    every = leaves.get("steps_per_generation", 0) * leaves.get("num_iterations", 1)
    accumulation = leaves.get("gradient_accumulation_steps")
    if not every or not accumulation or (every % accumulation and accumulation % every):
        return {}
    return _refreshed(max(1, int(every) // int(accumulation)))


def _refreshed(updates: float) -> JsonObject:
    """Return the settings of a policy whose rollouts serve for so many updates."""
    return {"refresh_interval": updates, "lag_kind": "none" if updates == 1 else "refresh"}


def _updates_of_batch(leaves: JsonView, each: float | None) -> JsonObject:
    """Return the updates made of one batch of rollouts before the next is sampled: as stated, or
    epochs x mini-batches.
    """
    stated = leaves.get("optimizer_updates_per_rollout_batch")
    epochs, rollouts, mini = map(leaves.get, vocabulary("updates_of_a_batch"))
    if stated is None and epochs and rollouts and mini and rollouts % mini == 0:
        stated = epochs * rollouts // mini
    if stated is None:
        return {}
    return _refreshed(stated) | {"updates_per_step": each or stated}


_ACTOR = "actor_rollout_ref/actor"


def _of_verl(flat: JsonView) -> JsonObject:
    """Return the settings of verl's configuration, by its paths."""
    settings = {
        row["setting"]: next(
            (flat[path] for path in row["verl"].split() if flat.get(path) is not None), None
        )
        for row in _SETTINGS
    }
    loss = flat.get(f"{_ACTOR}/policy_loss/loss_mode")
    estimator = flat.get("algorithm/adv_estimator")
    if loss in (None, "vanilla"):
        loss = estimator
    # Only GRPO's estimators divide by the group's spread.
    spread = "group" if flat.get("algorithm/norm_adv_by_std_in_grpo", True) else "none"
    scaling = {"scale_rewards": spread} if str(estimator) in ("grpo", "grpo_vectorized") else {}
    gpus, nodes = flat.get("trainer/n_gpus_per_node"), flat.get("trainer/nnodes", 1)
    if _is_count(gpus) and _is_count(nodes):
        settings["gpus"] = gpus * nodes
    return settings | {"loss": loss} | _penalty(flat) | scaling | _updates_of_verl(flat)


def _penalty(flat: JsonView) -> JsonObject:
    """Return the weight of the KL term and where it is; versions without `use_kl_loss` have it
    in the reward.
    """
    if flat.get(f"{_ACTOR}/use_kl_loss"):
        return {"kl_weight": flat.get(f"{_ACTOR}/kl_loss_coef"), "kl_in": "loss"}
    coefficient = flat.get("algorithm/kl_ctrl/kl_coef")
    if (
        flat.get("algorithm/use_kl_in_reward", f"{_ACTOR}/use_kl_loss" not in flat)
        and coefficient is not None
    ):
        return {"kl_weight": coefficient, "kl_in": "reward" if coefficient else "none"}
    return _NO_PENALTY if "algorithm/use_kl_in_reward" in flat else {}


def _updates_of_verl(flat: JsonView) -> JsonObject:
    """Return the updates of one step of verl's synchronous trainer: epochs x mini-batches."""
    batch, mini, epochs = map(
        flat.get,
        ("data/train_batch_size", f"{_ACTOR}/ppo_mini_batch_size", f"{_ACTOR}/ppo_epochs"),
    )
    asynchronous = any(
        "async_training/" in path or (path.endswith("trainer_mode") and mode != "sync")
        for path, mode in flat.items()
    )
    if asynchronous or not (_is_count(batch) and _is_count(mini) and _is_count(epochs)):
        return {}
    updates = epochs * -(-batch // mini)
    return _refreshed(updates) | {"updates_per_step": updates}


def _is_count(value: Any) -> TypeGuard[int]:
    """Return whether a value is a positive whole number."""
    return isinstance(value, int) and _counts(value)


def _counts(value: Any) -> bool:
    """Return whether a value is a positive whole number, however it is written."""
    return is_number(value) and 0 < value < parsing.LARGEST_COUNT and value == int(value)


def flatten(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield path and scalar of nested mappings; lists are passed over, but Adam's two decays."""
    if isinstance(value, Mapping) and depth < 8:
        for key, inner in value.items():
            yield from flatten(inner, f"{prefix}/{key}" if prefix else str(key), depth + 1)
    elif (
        isinstance(value, list | tuple) and len(value) == 2 and prefix.rpartition("/")[2] == "betas"
    ):
        yield from ((f"{prefix}/{number}", decay) for number, decay in enumerate(value, start=1))
    elif is_scalar(value) or value is None:
        yield prefix, value


def read_settings(path: Path) -> JsonObject:
    """Return the settings of a JSON or YAML file under our names."""
    seen = peek(path)
    if seen.binary:
        raise UnreadableRunError(
            f"expected settings as JSON or YAML, got {shown(path)}, {seen.binary}"
        )
    if seen.size > parsing.LARGEST_SETTINGS:
        raise UnreadableRunError(
            f"expected settings as JSON or YAML of at most 16 MB, got {shown(path)}, which is "
            "larger: give a smaller file"
        )
    text = read_whole(seen)
    if text.lstrip().startswith("{"):
        try:
            flat = dict(flatten(parse_json(text)))
        except ValueError:
            raise UnreadableRunError(
                f"expected settings as JSON, got {shown(path)}, which is damaged: repair it"
            ) from None
    else:
        flat = parse_yaml(text)
    if not flat:
        raise UnreadableRunError(
            f"expected settings as `name: value` lines or JSON, got none in {shown(path)}: write "
            "one setting a line"
        )
    return settings_in(flat)


def readme_settings(path: Path) -> JsonObject:
    """Return what the README of a trainer's output tells: versions, model, and hyper-parameters
    listed one a line.
    """
    with open_text(path, peek(path).encoding) as file:
        text = file.read(1 << 18)
    settings: JsonObject = {}
    version = re.search(r"^[-*]\s*TRL:\s*v?(\d+\.\d+[\w.]*)", text, re.MULTILINE)
    if version:
        settings |= {"framework": "trl", "framework_version": version[1]}
    model = re.search(r"fine-tuned version of \[([^\]]{1,200})\]", text)
    if model and model[1] != "None":
        settings["model"] = model[1]
    return settings_in(listed(text)) | settings


Stated = Sequence[tuple[Mapping[str, Any], str]]


def config_of(
    given: RunConfig,
    log: Path,
    home: Path | None = None,
    stated: Stated = (),
    notes: list[str] | None = None,
) -> RunConfig:
    """Return the settings of a run: what the user gave, then the files around the log, then what
    the log itself states.

    `stated` are settings under the trainer's names, nested or flattened, each with the words for
    where they stand; what is left out of the files is added to `notes`.
    """
    config, said = given, [] if notes is None else notes
    for path in _around(log, home):
        readme = path.name == "README.md"
        try:
            beside = (
                readme_settings(path) if readme else {} if _is_model(path) else read_settings(path)
            )
        except NothingYetError:
            continue
        except (GroupwiseError, OSError):
            said.append(
                f"{shown(Path(path.name))} beside the log has no readable settings and was left out"
            )
            continue
        config = with_found(config, beside, "README.md of the output" if readme else path.name)
    for settings, source in stated:
        beside = settings_in(dict(flatten(settings)), config.value("group_size"))
        config = with_found(config, beside, source)
    return config


def with_found(config: RunConfig, settings: JsonView, source: str) -> RunConfig:
    """Return the settings with those found in one place that were not known before; what had to
    be assumed is said in the source.
    """
    plain = {
        name: value
        for name, value in settings.items()
        if name in RULES and not getattr(config, name).known
    }
    assumed = (
        {"prompts_per_step": plain.pop("prompts_per_step")}
        if ASSUMED in settings and "prompts_per_step" in plain
        else {}
    )
    return config.with_settings(plain, source).with_settings(
        assumed, f"{source}, {settings.get(ASSUMED)}"
    )


def _around(log: Path, home: Path | None) -> Iterator[Path]:
    """Yield the files that may hold settings of the run: those of its folder, and those that are
    named after the log.
    """
    homes = [home] if home else []
    homes += [log.parent] if home or _GENERIC_LOGS.fullmatch(log.name) else []
    stems = [log.name.rsplit(".", cut)[0] for cut in (1, 2)]
    paths = [folder / name for folder in homes for name in ("README.md", *_GENERIC_NAMES)]
    paths += [log.with_name(stem + ending) for stem in stems for ending in _TWIN_ENDINGS]
    yield from (path for path in dict.fromkeys(paths) if path != log and path.is_file())


def _is_model(path: Path) -> bool:
    """Return whether a config.json is that of a model, whose temperature is not the run's."""
    text = peek(path).text if path.name == "config.json" else ""
    return '"architectures"' in text or '"model_type"' in text


_OVERRIDE, VERL_DUMP, _INSERTED, _CONTINUED, _ENTRY = forms(
    "override verl_dump inserted continued entry"
)
_ENTRY_AFTER, _BETAS = forms("entry_after betas")
_LONGEST_DUMP = 6000


class VerlSettings:
    """The settings in what verl prints before its first step: the dump of its configuration,
    else the overrides of the command.
    """

    _sender, _lines = "", 0

    def __init__(self) -> None:
        self._overrides: JsonObject = {}
        self._dumped: JsonObject = {}
        self._stack: list[tuple[int, str]] = []

    def add(self, line: str) -> None:
        """Take one line into account: each line of the dump tells by its indentation where it
        belongs, so others may come between.
        """
        for path, value in _OVERRIDE.findall(line) if "=" in line and "." in line else ():
            self._overrides[path.replace(".", "/")] = _whole_or_text(value)
        sender, body = sender_of(line)
        if not self._lines:
            start = VERL_DUMP.search(body)
            if start is None:
                return
            self._sender, body = sender, " " * start.start() + body[start.start() :]
        elif sender != self._sender or self._lines > _LONGEST_DUMP or not _CONTINUED.match(body):
            return
        self._lines += 1
        self._entries(_INSERTED.split(body, maxsplit=1)[0])

    def _entries(self, body: str) -> None:
        """Take the entries of one line of the dump."""
        for match in _ENTRY.finditer(body):
            column = match.start(1)
            while self._stack and self._stack[-1][0] >= column:
                self._stack.pop()
            if match[2] == "{":
                self._stack.append((column, match[1]))
                continue
            path = "/".join([*(name for _, name in self._stack), match[1]])
            rest = _ENTRY_AFTER.split(body[match.end() :], maxsplit=1)[0].rstrip("},").strip()
            if path.endswith("/betas") and (pair := _BETAS.fullmatch(rest)):
                self._dumped |= {f"{path}/1": float(pair[1]), f"{path}/2": float(pair[2])}
            else:
                self._dumped[path] = _whole_or_text(rest.strip("'\""))

    def settings(self) -> JsonObject:
        """Return what verl printed, by its path; the dump wins, for it holds what the overrides
        made of the defaults.
        """
        return self._overrides | {
            path: value for path, value in self._dumped.items() if value is not None
        }


def _whole_or_text(text: str) -> Any:
    """Return the value of a setting that verl printed; a whole number may be written as 1e3."""
    value = number_in(text)
    return (
        int(value)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        else value
    )
