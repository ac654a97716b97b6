"""What the keys of a log mean: the table `keys.tsv` by framework and version, and what decides
where a key changed its meaning.

The table holds what trainers' sources say or their logs show. Where versions differ (TRL's
`reward_std`), the log's other keys and values decide; where they cannot, the safe reading is taken
and the meaning is marked ambiguous. Percentages become shares;
no other value is changed.
"""

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from operator import lt
from typing import Any

import numpy as np

from groupwise.arrays import Columns, Float
from groupwise.files import forms, table_rows
from groupwise.plain import Words, frozen
from groupwise.readers.rows import HELD_OUT, is_counter, plain_key, snake
from groupwise.readers.source import vocabulary
from groupwise.record.run import Meaning, Meanings, RunConfig

Version = tuple[int, int]


@frozen
class KeyRule:
    """What one key of one framework holds."""

    # who logs it; "" for a log whose framework is unknown, where only the name speaks
    framework: str
    # as it is logged, lower case; `<word>` stands for any text, `<n>` for a number, `{a|b}` for one
    # of several
    key: str
    # the canonical name; `<word>` is filled in, and `min`, `max` and `std` of a choice become its
    # ending
    quantity: str
    definition: str  # exactly what is logged; `{}` becomes "mean", "smallest" or "largest"
    since: str = ""  # first version that logs it so, "" where that is not known
    until: str = ""  # last version that logs it so, "" where it still does
    unless: str = ""  # a key beside which this one means something else
    ambiguous: bool = False  # whether the log cannot tell which of several definitions holds
    # whether the log's values and settings decide, below; the rule then is one of the answers
    judged: bool = False
    framed: bool = False  # whether `train/` in front is a part of the key
    unavailable: bool = False  # whether it is logged but carries nothing
    setting: str = ""  # "name=value" of the setting that a run must have; None is an unknown one

    def pattern(self) -> re.Pattern[str]:
        """Return the key as a regular expression."""
        # verl's rl_insight logger writes "_" for each "/".
        return _pattern(self.key, r"[/_]" if self.framework == "verl" else "/")

    def is_logged(self, config: RunConfig, version: Version | None) -> bool:
        """Return whether a version logs it so with these settings; an unknown version may."""
        since, until = version_of(self.since), version_of(self.until)
        name, _, value = self.setting.partition("=")
        return (not name or str(config.value(name)) == value) and (
            not version or ((not since or version >= since) and (not until or version <= until))
        )


@cache
def _pattern(key: str, slash: str) -> re.Pattern[str]:
    """Return a key of the table as a regular expression with a group for each word and for the
    choice.
    """
    parts = re.split(r"(<n>|<\w+>|\{[^{}]+\})", key)
    built = []
    for part in parts:
        if part == "<n>":
            built.append(r"\d{1,9}")
        elif part.startswith("<"):
            built.append(f"(?P<{part[1:-1]}>.+?)")
        elif part.startswith("{"):
            inner = "|".join(re.escape(choice) for choice in part[1:-1].split("|"))
            built.append(
                f"(?P<part>{inner})" if "(?P<part>" not in "".join(built) else f"(?:{inner})"
            )
        else:
            built.append(re.escape(part))
    return re.compile("".join(built).replace("@", "(?:@|_at_)").replace("/", slash), re.IGNORECASE)


@lru_cache(maxsize=256)
def version_of(text: str | None) -> Version | None:
    """Return major and minor version, None where the text holds none."""
    version = re.match(r"v?(\d{1,4})\.(\d{1,4})", text or "")
    return (int(version[1]), int(version[2])) if version else None


def _rules() -> Iterator[KeyRule]:
    """Yield the rules in the order in which they are tried."""
    for cells in table_rows("readers/keys.tsv"):
        flags = cells.pop("flags").split()
        setting = next((flag for flag in flags if "=" in flag), "")
        marks = dict.fromkeys((flag for flag in flags if flag != setting), True)
        yield KeyRule(**cells, setting=setting, **marks)  # type: ignore[arg-type]


RULES = tuple(_rules())
# Canonical name -> group of the table in the docs, unit, and what it is.
QUANTITIES = {
    name: tuple(words) for name, *words in map(dict.values, table_rows("readers/quantities.tsv"))
}

_NEWEST: Version = (99, 99)

_SUCCESS, _NO_SOURCE, _ASYNCHRONOUS, _PERCENT, _OF_ENVIRONMENT = forms(
    "success no_source asynchronous percent of_environment"
)
# What a version of TRL began to log, and whether it does so in every run; the completeness of a log
# then bounds its version from above.
_SINCE = tuple(
    (re.compile(row["pattern"]), version_of(row["since"]) or _NEWEST, bool(row["always"]))
    for row in table_rows("readers/marks.tsv")
    if row["since"]
)
_AGGREGATION_FROM: Version = (0, 27)
TRL_FAMILY = frozenset(vocabulary("trl_family"))
# Behind a hyphen is one word alone: test-acc, not test-case accuracy.
_HELD_OUT = re.compile(rf"^{HELD_OUT}([/_. ]|-(?=[a-z]+$))|(?<=/)(eval(uation)?|val(idation)?)s?/")
# A framework is known by any one of these keys, or by several that others write too; the first
# that fits counts.
_FRAMEWORKS = tuple(
    (row["framework"], re.compile(row["pattern"]), int(row["least"] or 1))
    for row in table_rows("readers/marks.tsv")
    if not row["since"]
)
_LARGEST_SHARE = 1.0001
_OF_GROUPS = vocabulary("share_of_groups")
_SPARSE = 3  # an evaluation is logged at a third of the steps at most
_OF_TRL = vocabulary("of_trl")
_NO_FUNCTION = vocabulary("no_reward_function")
# Words that say who measured and over what: a key of an unknown log means the same without them.
_MEANS = frozenset(vocabulary("mean"))
_ASIDE = _MEANS | frozenset(vocabulary("aside"))
# Of a log whose program is unknown: names as loops of one's own, trackers and other tools write
# them, without those words.
_PLAIN = tuple(
    (re.compile(row["pattern"]), row["quantity"]) for row in table_rows("readers/patterns.tsv")
)
# What a log says of its task beside the reward that is trained on: the same names in logs of every
# program.
TASK = "task_score"
_MAY_BE_TASK = re.compile(r"reward(/.*_(mean|avg))?").fullmatch
_OF_TASK = next(pattern for pattern, quantity in _PLAIN if quantity == TASK)


@frozen
class VersionRange:
    """The TRL versions that can have written a log, both ends included."""

    low: Version
    high: Version

    def words(self) -> str:
        """Return the range for a sentence."""
        if self.low == self.high:
            return f"TRL {self.low[0]}.{self.low[1]}"
        if self.high == _NEWEST:
            return (
                f"TRL {self.low[0]}.{self.low[1]} or newer"
                if self.low > (0, 14)
                else "TRL of unknown version"
            )
        return f"TRL {self.low[0]}.{self.low[1]} to {self.high[0]}.{self.high[1]}"


def looks_like_trl(keys: Iterable[str]) -> bool:
    """Return whether the keys are those of TRL's GRPO trainers."""
    names = {_evaluated(key)[0] for key in keys}
    return {"reward", "reward_std"} <= names and not names.isdisjoint(_OF_TRL)


def framework_of(keys: Iterable[str]) -> str:
    """Return the framework whose keys these are, "" where none is known by them."""
    names = [plain_key(key).rsplit(" - ", 1)[-1] for key in keys]
    marked = (
        framework
        for framework, mark, least in _FRAMEWORKS
        if sum(mark.fullmatch(name) is not None for name in names) >= least
    )
    framework = next(marked, "")
    return framework if framework == "ms-swift" or not looks_like_trl(names) else "trl"


def trl_versions(keys: Iterable[str], stated: str | None, *, complete: bool) -> VersionRange:
    """Return the versions of TRL that log these keys."""
    exact = version_of(stated)
    if exact:
        return VersionRange(exact, exact)
    names = {plain_key(key).removeprefix("train/") for key in keys}
    if any(map(_ASYNCHRONOUS.fullmatch, names)):
        return VersionRange(
            (1, 10) if any(name.startswith("sample/") for name in names) else (1, 0), _NEWEST
        )
    low, high = (0, 14), _NEWEST
    if _is_old(names):
        return VersionRange(low, (0, 16))
    complete = complete and {"epoch", "learning_rate", "completions/mean_length"} <= names
    for key, version, always in _SINCE:
        if any(map(key.fullmatch, names)):
            low = max(low, version)
        elif always and complete:
            high = min(high, (version[0], version[1] - 1))
    return VersionRange(low, high if high >= low else _NEWEST)


def _is_old(names: Collection[str]) -> bool:
    """Return whether the keys are those up to TRL 0.16: one length, and no mean and spread of a
    reward function.
    """
    functions = [name for name in names if name.startswith("rewards/")]
    length = "completion_length" in names and "completions/mean_length" not in names
    return length or (
        bool(functions) and not any(name.endswith(("/mean", "/std")) for name in functions)
    )


def meanings_of(
    columns: Columns, config: RunConfig, *, framework: str, complete: bool, window: float
) -> Meanings:
    """Return what each column means."""
    version = version_of(config.value("framework_version"))
    present = {plain_key(key): values for key, values in columns.items()}
    ruled = {
        key: _ruled(key, values, present, framework, config, version)
        for key, values in columns.items()
    }
    if framework in TRL_FAMILY - {"ms-swift"}:
        ruled |= _judged_keys(columns, ruled, config, complete=complete, window=window)
    there = {meaning.quantity: columns[key] for key, meaning in ruled.items() if meaning}
    readings = []
    for key, meaning in ruled.items():
        named = None if meaning else _plain_meaning(key, columns)
        # what a script logs beside TRL's own is not taken for them, but for what it logged before
        beside = named and (
            framework not in TRL_FAMILY
            or named.quantity not in there
            # and which begins and ends before that
            or all(map(lt, first_and_last(columns[key]), first_and_last(there[named.quantity])))
        )
        readings.append(named if beside else meaning)
    meanings = [meaning for meaning in readings if meaning and not is_counter(meaning.column)]
    sources = {
        meaning.quantity for meaning in meanings if meaning.quantity.startswith("eval/reward")
    }
    alone = framework not in TRL_FAMILY and len(sources) == 1
    return _replaced(meanings, sources, quantity="eval/reward") if alone else tuple(meanings)


def first_and_last(column: Float) -> tuple[int, int]:
    """Return the first and the last row with a number, of an empty column the end and -1."""
    rows = np.flatnonzero(np.isfinite(column))
    return (rows[0], rows[-1]) if len(rows) else (len(column), -1)


def _replaced(meanings: Iterable[Meaning], quantities: Container[str], **fields: Any) -> Meanings:
    """Return the meanings, those of some quantities with other fields."""
    return tuple(
        replace(meaning, **fields) if meaning.quantity in quantities else meaning
        for meaning in meanings
    )


def with_reward(columns: Columns, meanings: Meanings) -> Meanings:
    """Return the meanings with a reward, and with what the log says of the task beside it."""
    meanings = _with_reward(columns, _with_environments(meanings))
    quantities = {meaning.column: meaning.quantity for meaning in meanings}
    totals = [key for key, quantity in quantities.items() if quantity == "reward"]
    task = [
        key
        for key in columns
        if _MAY_BE_TASK(quantities.get(key, "reward"))
        and _OF_TASK.fullmatch(_bare(_of_training(key)))
    ]
    if not set(totals) - set(task):  # the task is all that is paid
        task = [key for key in task if key not in totals]
    rewards = [
        Meaning(key, TASK, "task score, judged by its name alone", ambiguous=True) for key in task
    ]
    return (*(meaning for meaning in meanings if meaning.column not in task), *rewards)


def _with_environments(meanings: Meanings) -> Meanings:
    """Return the meanings with functions that are named after environments as their rewards."""
    named = tuple(
        replace(meaning, quantity=_OF_ENVIRONMENT.sub("environment_reward/", meaning.quantity))
        for meaning in meanings
    )
    several = {meaning.quantity for meaning in named} - {meaning.quantity for meaning in meanings}
    return named if len(several) > 1 else meanings


def _with_reward(columns: Columns, meanings: Meanings) -> Meanings:
    """Return the meanings with a reward where the log calls nothing so: its only reward
    function, a success, else the held-out reward.
    """
    meanings = _with_score(columns, meanings)
    rewards = {meaning.quantity for meaning in meanings if meaning.quantity.startswith("reward")}
    # A verl log may be cut to the reward that the penalty has been taken from.
    alone = {quantity for quantity in rewards if quantity.startswith("reward/")} or rewards & {
        "reward_after_kl"
    }
    if "reward" not in rewards and len(alone) == 1:
        return _replaced(meanings, alone, quantity="reward")
    if rewards:
        return meanings
    text = "success, judged by its name alone: the log calls nothing a reward"
    success = next(_successes(columns, meanings), None)
    if success is not None:
        return (*meanings, Meaning(success, "reward", text, ambiguous=True))
    text = "held-out reward, used as the reward because it is the only one in the log"
    return _replaced(meanings, {"eval/reward"}, quantity="reward", definition=text)


def _with_score(columns: Columns, meanings: Meanings) -> Meanings:
    """Return the meanings with a success that is logged at few of the steps of the reward as the
    held-out score, where no other is.
    """
    rewards = [columns[meaning.column] for meaning in meanings if meaning.quantity == "reward"]
    if not rewards or any(meaning.quantity.startswith("eval/") for meaning in meanings):
        return meanings
    most = max(np.isfinite(values).sum() for values in rewards)
    for key in _successes(columns, meanings):
        rows = np.isfinite(columns[key]).sum()
        if 0 < _SPARSE * rows <= most:
            text = (
                f"success, judged by its name; it has {rows} values and the reward has {most}, so "
                "it counts as an evaluation"
            )
            return (*meanings, Meaning(key, "eval/reward", text, ambiguous=True))
    return meanings


def _successes(columns: Columns, meanings: Iterable[Meaning]) -> Iterator[str]:
    """Return the keys that name a success and have no meaning yet."""
    named_columns = {meaning.column for meaning in meanings}
    return (
        key
        for key in columns
        if key not in named_columns
        and _SUCCESS.fullmatch(_bare(_of_training(key)).replace("math_", ""))
    )


def as_shares(
    columns: Columns, meanings: Sequence[Meaning]
) -> tuple[dict[str, Float], Meanings, Words]:
    """Return the columns with percentages as shares, and the meanings of shares that exceed 1 as
    unavailable.
    """
    shares, kept, notes = dict(columns), [], []
    for meaning in meanings:
        base = meaning.quantity.removeprefix("eval/").partition("/")[0]
        high = np.nanmax(columns[meaning.column], initial=0.0) if _is_share(base) else 0.0
        percent = _PERCENT.search(meaning.column)
        if percent and (percent[0] == "%" or high > 1.0) and high <= 100.0 and _is_share(base):
            shares[meaning.column] = columns[meaning.column] / 100.0
            notes.append(f"{meaning.column} is in per cent and was converted to a share")
        elif high > _LARGEST_SHARE:
            text = f"{meaning.definition}; it is not a share, because it reaches {high:g}"
            meaning = replace(meaning, definition=text, unavailable=True)  # noqa: PLW2901
        kept.append(meaning)
    return shares, tuple(kept), tuple(notes)


def _is_share(base: str) -> bool:
    """Return whether a quantity is a share."""
    return QUANTITIES.get(base, ("", "", ""))[1] == "share"


@cache
def _rules_of(framework: str) -> tuple[KeyRule, ...]:
    """Return the rules of one framework, and TRL's behind those of its family."""
    names = [framework, *(["trl"] if framework in TRL_FAMILY - {"trl"} else [])]
    return tuple(rule for name in names for rule in RULES if rule.framework == name)


def _ruled(
    key: str,
    values: Float,
    present: Columns,
    framework: str,
    config: RunConfig,
    version: Version | None,
) -> Meaning | None:
    """Return the meaning of a key by the table, None where the table does not have it in that
    version.
    """
    whole = "/".join(map(str.strip, key.split("/"))).rsplit(" - ", 1)[-1]
    name, evaluated = _evaluated(key)
    bare = whole[len(whole) - len(name) :]
    for rule in _rules_of(framework):
        if not rule.is_logged(config, version) or (
            rule.unless in present
            and first_and_last(values)[1] >= first_and_last(present[rule.unless])[0]
        ):
            continue
        match, prefix = rule.pattern().fullmatch(whole), ""
        if not rule.framed and bare != whole and (match is None or rule.key.startswith("<")):
            match = rule.pattern().fullmatch(bare)
            prefix = "eval/" if evaluated and not rule.quantity.startswith("eval/") else ""
        if match and not (
            rule.quantity == "eval/reward/<source>" and _is_part(plain_key(whole), present)
        ):
            return _by_rule(key, values, rule, match, prefix)
    return None


def _is_part(key: str, present: Container[str]) -> bool:
    """Return whether a key is that of something else that was measured on a source, whose reward
    is under a shorter key.
    """
    shorter = key.rpartition("/")[0]
    return bool(shorter) and (shorter in present or _is_part(shorter, present))


def _by_rule(key: str, values: Float, rule: KeyRule, match: re.Match[str], prefix: str) -> Meaning:
    """Return the meaning that a rule gives a key."""
    groups = {name: text for name, text in match.groupdict().items() if text is not None}
    quantity = re.sub(r"<(\w+)>", lambda word: groups.get(word[1], word[0]), rule.quantity)
    part = groups.get("part", "").lower()
    quantity += f"_{part}" if part in ("min", "max") else ""
    text = rule.definition.replace("{}", {"min": "smallest", "max": "largest"}.get(part, "mean"))
    text = text.replace("<function>", groups.get("function", ""))
    text += ", on the evaluation prompts" if prefix else ""
    if (
        rule.judged
        and rule.quantity.startswith("clip_ratio")
        and not np.isfinite(values[np.nonzero(values)]).any()
    ):
        nothing = "0 in every row, as always with one update per batch, so it shows nothing"
        return Meaning(key, prefix + quantity, f"{text.split(';')[0]}: {nothing}", unavailable=True)
    return Meaning(key, prefix + quantity, text, rule.ambiguous, rule.unavailable)


def known_quantities() -> Words:
    """Return the canonical quantities that a column can be said to hold; "<function>" stands for
    any name.
    """
    plain = (quantity for _, quantity in _PLAIN if "/" not in quantity)
    return tuple(dict.fromkeys((*QUANTITIES, *plain)))


def is_quantity(name: str) -> bool:
    """Return whether a name is that of a canonical quantity, perhaps on the evaluation prompts
    or of one part (`_max`).
    """
    bare = name.removeprefix("eval/")
    if re.fullmatch(r"((environment_|seat_)?reward|reward_std_batch|clip_ratio)/\S(.*\S)?", bare):
        return True
    return not {bare, re.sub(r"_(min|max)$", "", bare)}.isdisjoint(known_quantities())


def _evaluated(key: str) -> tuple[str, bool]:
    """Return the key without an evaluation's prefix, and whether it had one."""
    name = plain_key(key).rsplit(" - ", 1)[-1]
    bare = _HELD_OUT.sub("", name)
    return (bare, True) if bare != name else (name.removeprefix("train/"), False)


@cache
def _bare(name: str) -> str:
    """Return the words of a key that say what is measured, joined by "_": not who measured it or
    that it is a mean.
    """
    # a reward of the policy itself is what its update maximises, as in MLX-GRPO
    silent = r"(^|/)all(?=/|$)|\((nats|tokens|s|sec|seconds)\)|policy[_ ]rewards?(?![^\W_])"
    name = re.sub(silent, "", name).replace("%", " percent")
    words = [word for word in re.split(r"[^a-z0-9@]+", name) if word]
    # a mean of tokens is a length, their number is none
    aside = _ASIDE - _MEANS if "tokens" in words else _ASIDE
    return "_".join([word for word in words if word not in aside] or words)


def _judged_keys(
    columns: Columns,
    ruled: Mapping[str, Meaning | None],
    config: RunConfig,
    *,
    complete: bool,
    window: float,
) -> dict[str, Meaning]:
    """Return the meanings of TRL's keys that the log's other keys and values decide."""
    versions = trl_versions(
        columns,
        config.value("framework_version") if config.value("framework") != "unsloth" else None,
        complete=complete,
    )
    meanings = {}
    for key, meaning in ruled.items():
        name, evaluated = _evaluated(key)
        prefix = "eval/" if evaluated else ""
        if name == "reward_std":
            kind, why = _reward_std(columns, columns[key], config, versions, prefix)
            text = f"{_DEVIATIONS[kind]} ({why})"
            meanings[key] = Meaning(
                key, f"{prefix}reward_std_{kind}", text, ambiguous=kind == "ambiguous"
            )
        elif name == "frac_reward_zero_std" and meaning and not meaning.unavailable:
            several = (
                len(_reward_functions(columns, prefix)) > 1 and versions.high >= _AGGREGATION_FROM
            )
            meanings[key] = _dead_groups(meaning, columns[key], config, window, several=several)
    return meanings


def _reward_functions(columns: Columns, prefix: str) -> dict[str, dict[str, Float]]:
    """Return what is logged of each reward function: "mean" and "std" where it is there."""
    functions: dict[str, dict[str, Float]] = {}
    for key, values in columns.items():
        name, evaluated = _evaluated(key)
        match = re.fullmatch(r"rewards/(.+?)(?:/(mean|std))?", name)
        if match and evaluated == bool(prefix):
            functions.setdefault(match[1], {})[match[2] or "mean"] = values
    return functions


def _judged_by_function(columns: Columns, std: Float, prefix: str) -> tuple[str, str] | None:
    """Return what reward_std is the deviation of by that of the only reward function over the
    batch: proportional to it with the weight that the means tell, the batch's; not proportional at
    all, not the batch's.
    """
    functions = list(_reward_functions(columns, prefix).values())
    if len(functions) != 1 or "std" not in functions[0]:
        return None
    ratio = _ratio(std, functions[0]["std"])
    if ratio is None:
        return None
    if not ratio:
        return "within_group", "in this log it is not proportional to that of the batch"
    total = next(
        (values for key, values in columns.items() if _evaluated(key) == ("reward", bool(prefix))),
        None,
    )
    mean = functions[0].get("mean")
    weight = None if mean is None or total is None else _ratio(total, mean)
    if np.isclose(ratio, abs(weight or 1.0), rtol=1e-3):
        why = "in every row it is the deviation of the only reward function times its weight"
        return "batch", why
    return None


def _ratio(values: Float, others: Float) -> float | None:
    """Return the one ratio of two columns, 0 where they have several, None of too few rows."""
    moves = np.isfinite(values) & np.isfinite(others) & (np.abs(others) > 1e-3)
    if moves.sum() < 3:
        return None
    ratio = float(np.median(values[moves] / others[moves]))
    scale = 1e-4 * max(1.0, abs(ratio))
    return (
        ratio if np.allclose(values[moves], ratio * others[moves], rtol=1e-3, atol=scale) else 0.0
    )


_DEVIATIONS = {
    "within_group": "mean over groups of the standard deviation of the total reward in the group",
    "batch": "standard deviation of the total reward over the batch, within and between prompts",
    "ambiguous": (
        "standard deviation within groups up to TRL 0.26 and over the batch from 0.27. The log "
        "does not say which, so it is used as an upper bound of the one within groups"
    ),
}


def _reward_std(
    columns: Columns, values: Float, config: RunConfig, versions: VersionRange, prefix: str
) -> tuple[str, str]:
    """Return what reward_std is the deviation of, and how that is known: of groups up to TRL 0.26
    and in its asynchronous trainer, else of the whole batch.
    """
    if any(_ASYNCHRONOUS.fullmatch(_evaluated(name)[0]) for name in columns):
        return "within_group", "TRL's asynchronous trainer divides by G and not by G - 1"
    if versions.high <= (0, 26):
        return "within_group", versions.words()
    if versions.low >= (0, 27):
        return "batch", versions.words()
    if config.value("prompts_per_step") == 1:
        return "within_group", "each step has one group"
    return _judged_by_function(columns, values, prefix) or ("ambiguous", versions.words())


def _dead_groups(
    meaning: Meaning, values: Float, config: RunConfig, window: float, *, several: bool
) -> Meaning:
    """Return the meaning of frac_reward_zero_std, which may be of the whole batch where advantages
    are scaled by the batch.

    `several`: whether the version can normalise each of several reward functions before it sums
    them.
    """
    causes = [] if config.scale_rewards.known else ["rewards were scaled by the batch"]
    if several and not config.multi_objective_aggregation.known:
        causes.append("each function was normalised before the sum (multi_objective_aggregation)")
    counts = values[np.isfinite(values)] * max(1.0, window)
    if not causes or (np.abs(counts - np.round(counts)) > 0.01).any():  # finer than of a batch
        return meaning
    text = (
        f"{meaning.definition}, unless {' or '.join(causes)}. Then it reads 0 although groups "
        "have zero variance, so it is a lower bound"
    )
    return replace(meaning, definition=text, ambiguous=True)


def _plain_meaning(key: str, columns: Columns) -> Meaning | None:
    """Return the meaning of a key of an unknown log, from its name alone."""
    name, evaluated = _evaluated(snake(key))
    prefix = "eval/" if evaluated else ""
    if evaluated and (score := _score_of(name)):
        return Meaning(key, score, "held-out score, judged by its name alone")
    if name == "p" and "reward_mean" in columns:
        return Meaning(
            key,
            "positive_share",
            "share of positive completions among those that the log counts, judged by its name",
        )
    if quantity := _named(name):
        return _by_name(key, name, prefix, quantity, columns)
    function = re.fullmatch(r"rewards?/([^/]{1,80})(/mean)?", name.replace(" ", "_"))
    if (
        function
        and function[1] not in _NO_FUNCTION
        and not function[1].startswith(vocabulary("statistic_prefix"))
    ):
        return Meaning(
            key,
            f"{prefix}reward/{function[1]}",
            f"mean of the reward function {function[1]}, judged by its name alone",
        )
    return None


@cache
def quantity_named(key: str) -> str:
    """Return the quantity of training that a key names in a log of an unknown program, or ""."""
    return _named(_of_training(key))


def _of_training(key: str) -> str:
    """Return the key of a log of an unknown program, "" for that of an evaluation."""
    name, evaluated = _evaluated(snake(key))
    return "" if evaluated else name


def _named(name: str) -> str:
    """Return the quantity that a key names, or ""; a share of groups is one, whoever counts
    them.
    """
    bare, last = _bare(name), _bare(name.rpartition("/")[2])
    matches = (
        (pattern.fullmatch(bare) or (quantity in _OF_GROUPS and pattern.fullmatch(last)), quantity)
        for pattern, quantity in _PLAIN
    )
    quantities = (match.expand(quantity) for match, quantity in matches if match)
    return next(
        (quantity for quantity in quantities if quantity != TASK), ""
    )  # `with_reward` looks for it, once the reward is known


def _score_of(name: str) -> str:
    """Return the quantity of a score on held-out prompts by its key without the evaluation's
    prefix: of a source, or of all; else "".
    """
    bare = re.sub(r"_?mean@\d+$", "", _bare(name))
    if _SUCCESS.fullmatch(bare) or bare == "reward":
        return "eval/reward"
    source, _, last = re.sub(
        r"_(success|solve|pass|win)_rate$", r"_\1rate", re.sub("_exact_match$", "_em", bare)
    ).rpartition("_")
    scored = re.fullmatch(
        r"accuracy|acc|rewards?|scores?|(success|solve|pass|win)rate|success|pass@1|correct|em",
        last,
    )
    return f"eval/reward/{source}" if source and scored and not _NO_SOURCE.search(source) else ""


def _by_name(key: str, name: str, prefix: str, quantity: str, columns: Columns) -> Meaning:
    """Return the meaning of a key whose plain name is one that we know."""
    if (
        name == "reward_mean"
        and "p" in columns
        and _constant(columns[key])
        and not _constant(columns["p"])
    ):
        text = (
            "mean reward by its name, but it is constant while p changes, so it counts as not "
            "filled by the trainer"
        )
        return Meaning(key, f"{prefix}{quantity}", text, unavailable=True)
    ambiguous = quantity == "reward_std_ambiguous"
    text = f"{quantity.replace('_ambiguous', '').replace('_', ' ')}, judged by its name alone"
    if ambiguous:
        text += (
            ": the log does not say whether within groups or over the batch, so it is used as an "
            "upper bound of the one within groups"
        )
    return Meaning(key, f"{prefix}{quantity}", text, ambiguous=ambiguous)


def _constant(values: Float) -> bool:
    """Return whether all finite values are equal."""
    finite = values[np.isfinite(values)]
    return bool((finite == finite[:1]).all())
