"""Variance components of a run: which groups are scored, their scores under a checkpoint, and the
file that keeps what comes of them.

The completions are scored as they were logged: nothing is sampled or trained. Whole groups are
taken near a step, each prompt once, none that the model cannot read. Workers of an engine may take
the scores, shard after shard: what comes back of a group are ten moments, from exact inner products
of its own rollouts, and a sketch of its gradient, everything that the components need. A group is
scored by itself, so that neither shards nor workers change a bit of it.

On disk they are one JSON file beside the run, with the pseudo-values that bands are made from and
what they were computed from.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from groupwise.arrays import Float
from groupwise.errors import (
    GroupwiseError,
    InsufficientDataError,
    InvalidArgumentError,
    OverwriteError,
    UnreadableRunError,
    one_sentence,
)
from groupwise.estimators.components import (
    LARGEST,
    QUANTITIES,
    Components,
    Sample,
    components,
    components_of_moments,
    components_of_pseudo_values,
)
from groupwise.estimators.moments import (
    SMALLEST_GROUP,
    GroupMoments,
    gradient_weights,
    moments_of_gram,
)
from groupwise.files import beside, first_bytes, path_text, write_whole
from groupwise.intervals import percent
from groupwise.parsing import JsonObject, JsonView, parse_json
from groupwise.plain import Words, frozen, to_json
from groupwise.record.run import RunRecord
from groupwise.wording import capital, count

if TYPE_CHECKING:
    from groupwise.engine.engine import Engine, ShardOutcome
    from groupwise.gradients.language_models import LanguageModel, PolicyTokenizer, Precision
    from groupwise.gradients.scores import Aggregation, ScoreGram, ScoreOptions, ScoreSource
    from groupwise.gradients.sketch import CountSketch


_LONGEST_TEXTS = 4096
_NEAR = 8  # times as many groups as are sampled: about one policy's


@frozen
class GroupSample:
    """Rollouts of a sample of groups."""

    rows: (
        pl.DataFrame
    )  # step, prompt_id, prompt, completion, reward and group, a row a rollout, group after group
    # groups of the run that were other visits of prompts that have their group already
    repeated: int
    # of the reward variance within groups near the step, the share of those that have more than any
    # of the sample
    unseen: float
    notes: Words  # sentences on what was left aside
    longest: Words = ()
    # where no setting says at how many tokens completions were truncated, the longest of the whole
    # log


def sample_groups(
    record: RunRecord, centre: int | None, *, groups: int, steps: tuple[int, int] | None, seed: int
) -> GroupSample:
    """Draw whole groups, those nearest to a step first; of a prompt that was visited at several
    steps only the nearest visit.

    Visits of one prompt have one gradient g(x): taken for different prompts they would shrink the
    variance between prompts.
    """
    rows = _scorable(record)
    if steps is not None:
        rows = rows.filter(pl.col("step").is_between(*steps))
    sizes = rows.group_by("step", "prompt_id").agg(
        pl.col("prompt").first(), size=pl.len(), variance=pl.col("reward").var()
    )
    sizes = sizes.filter(pl.col("size") >= SMALLEST_GROUP).sort("step", "prompt_id")
    different = sizes["prompt"].n_unique()
    if different < 2:
        where = "" if steps is None else f" in steps {steps[0]} to {steps[1]}"
        raise InsufficientDataError(
            f"expected at least two different prompts with groups of at least {SMALLEST_GROUP} "
            f"rollouts that have texts and rewards, got {different}{where}: log more"
        )
    middle = cast("int", rows["step"].max()) if centre is None else centre
    order = np.random.default_rng(seed).permutation(len(sizes))
    # A stable sort by distance from the checkpoint keeps the shuffled order within a step: a random
    # part of the last step taken.
    nearest = sizes.with_columns(
        pl.Series("order", order), distance=(pl.col("step") - middle).abs()
    ).sort("distance", "order")
    chosen = (
        nearest.unique("prompt", keep="first", maintain_order=True)
        .head(groups)
        .with_row_index("group")
    )
    near_P = nearest["variance"].head(_NEAR * groups).to_numpy()
    above = near_P[near_P > cast("float", chosen["variance"].max())].sum()
    chosen = chosen.select("step", "prompt_id", "group")
    rows = rows.join(chosen, on=["step", "prompt_id"], how="inner", maintain_order="left").sort(
        "group", maintain_order=True
    )
    rows = record.with_completions(rows)
    longest: Words = ()
    if record.config.value("max_completion_length") is None and record.rollouts is not None:
        sized = record.with_completions(
            record.rollouts.select("completion").drop_nulls(),
            pl.col("completion").str.len_bytes().alias("size"),
        )
        largest = record.with_completions(sized.top_k(_LONGEST_TEXTS, by="size"))
        longest = tuple(largest["completion"])
    repeated, unseen = len(sizes) - different, above / (near_P.sum() or 1.0)
    note = (
        f"The {len(sizes):,} groups come from {count(different, 'different prompt')}. Each "
        f"prompt counts once, with the visit nearest to step {middle:,}, as only prompts are "
        "independent."
    )
    return GroupSample(rows, repeated, unseen, (note,) if repeated else (), longest)


def without_groups(
    rows: pl.DataFrame, wrong: Sequence[int], limit: int
) -> tuple[pl.DataFrame, int, Words]:
    """Leave out the groups of rollouts that are longer than a model can read: a group without
    its longest answers is no sample.
    """
    if not wrong:
        return rows, 0, ()
    whole = rows["group"].n_unique()
    bad = rows[list(wrong)]["group"].unique()
    kept = rows.filter(~pl.col("group").is_in(bad.implode()))
    if whole - len(bad) < 2:
        raise InsufficientDataError(
            f"expected at least two groups whose rollouts fit the model's context of {limit} "
            f"tokens, got {whole - len(bad)} of {whole}: give the checkpoint that sampled them"
        )
    note = (
        f"{len(bad):,} of {whole:,} groups were left out: {len(wrong):,} of their rollouts are "
        f"longer than the model's context of {limit} tokens. Long answers are underrepresented."
    )
    return kept, len(bad), (note,)


def _scorable(record: RunRecord) -> pl.DataFrame:
    """Return the rollouts that have what a score and an advantage need."""
    if record.rollouts is None or not {"prompt", "completion", "reward"} <= set(
        record.rollouts.columns
    ):
        raise InsufficientDataError(
            f"expected rollouts with prompt, completion and reward in {record.name}, got none: log "
            "them (TRL: log_completions=True)"
        )
    wanted = ("step", "prompt_id", "prompt", "completion", "reward")
    rows = record.rollouts.select(
        *wanted, *({"ended", "end_token", "prompt_length"} & set(record.rollouts.columns))
    ).drop_nulls(wanted)
    rows = rows.filter(pl.col("reward").is_finite())
    if not len(rows):
        raise InsufficientDataError(
            f"expected texts and total rewards in the rollouts of {record.name}, got none: name "
            "the reward with --column"
        )
    return rows


FORMAT, VERSION = "groupwise-components", 1
SUFFIX = "groupwise-components.json"
_LARGEST_FILE = 200 * 2**20
_MOST_ROLLOUTS = 2**53


@frozen
class SavedComponents:
    """Components with what they were computed from."""

    components: Components  # the estimates
    provenance: JsonView  # plain facts: model, aggregation, temperature, steps, groups, versions


def path_beside(run: str | Path) -> Path:
    """Return where the components of a run belong: inside its folder, or beside its file."""
    return beside(Path(run), SUFFIX)


def save_components(
    components: Components, path: str | Path, *, provenance: JsonView, force: bool = False
) -> Path:
    """Write components as JSON: the file appears whole or not at all.

    Args:
        components: the estimates.
        path: the file.
        provenance: plain facts to keep with them.
        force: whether to replace a file of ours that is there already; no other file is ever
            replaced.

    Returns:
        The path.

    Raises:
        OverwriteError: there is a file already.
        GroupwiseError: it cannot be written.

    Example:
        >>> import tempfile
        >>> from groupwise.estimators.components import components
        >>> rng = np.random.default_rng(1)
        >>> found = components(
        ...     rng.normal(size=64), np.repeat(np.arange(8), 8), score_ND=rng.normal(size=(64, 3))
        ... )
        >>> with tempfile.TemporaryDirectory() as home:
        ...     path = save_components(found, home + "/c.json", provenance={})
        ...     load_components(path).components.prompts
        8
    """
    if not isinstance(components, Components):
        raise InvalidArgumentError(
            f"expected components to save, got {type(components).__name__}: give those of "
            "components(...) or load_components(...).components"
        )
    target = Path(path)
    check_free(target, force=force)
    content = {
        "format": FORMAT,
        "version": VERSION,
        **components.as_dict(),
        "quantities": QUANTITIES,
        "estimate": components.estimate_C,
        "covariance": components.covariance_CC,
        "pseudo_values": components.pseudo_PC,
        "clusters": components.cluster_P,
        "provenance": provenance,
    }
    with one_sentence(f"to write {target}", "choose a folder that you can write"):
        target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, to_json(content, indent=1), force=True)
    return target


def check_free(target: Path, *, force: bool) -> None:
    """Refuse to replace a file, unless it is one of ours and may go."""
    if not target.exists():
        return
    if not force:
        raise OverwriteError(
            f"{target} exists already: give --force to replace it, or -o another file"
        )
    if not is_components(target):
        raise OverwriteError(
            f"{target} is no file of variance components, and is not replaced even with --force: "
            "choose another name"
        )


def is_components(path: Path) -> bool:
    """Return whether a file holds saved components, by its first bytes."""
    with suppress(OSError, ValueError):
        return f'"{FORMAT}"'.encode() in (first_bytes(path, 200) or b"")
    return False


def load_components(path: str | Path, *, level: float | None = None) -> SavedComponents:
    """Read components that were saved.

    Estimate, covariance and intervals are made anew from the pseudo-values, so that nothing in a
    file can contradict itself.

    Args:
        path: the file.
        level: coverage of the intervals; that of the file where None.

    Returns:
        The components.

    Raises:
        UnreadableRunError: it is missing, damaged, or something else.

    Example:
        >>> load_components("no/such/file.json")
        Traceback (most recent call last):
        ...
        groupwise.errors.UnreadableRunError: expected components in no/such/file.json, got No such
        file or directory: run groupwise ...
    """
    target = Path(path_text(path, "file of components"))
    expected, advice = f"components in {target}", "run groupwise components first"
    with one_sentence(expected, advice, kind=UnreadableRunError):
        if target.stat().st_size > _LARGEST_FILE:
            raise UnreadableRunError(
                f"expected {expected}, got a file of more than {_LARGEST_FILE // 2**20} MB: make "
                "it again"
            )
        content = target.read_bytes()
    try:
        plain = parse_json(content.decode())
        stated = (plain["format"], plain["version"], plain["quantities"])
        if stated == (FORMAT, VERSION, [*QUANTITIES]):
            return SavedComponents(_components(plain, level), dict(plain["provenance"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UnreadableRunError(
            f"expected {expected}, got a damaged file: run groupwise components again"
        ) from None
    raise UnreadableRunError(
        f"expected components of version {VERSION} in {target}, got another kind of file: make it "
        "again"
    )


def _components(plain: JsonView, level: float | None) -> Components:
    """Make the components of a parsed file."""
    prompts, rollouts, left_out = (
        _count(plain[name]) for name in ("prompts", "rollouts", "left_out")
    )
    zero_mean = plain["zero_mean"]
    typed = isinstance(zero_mean, bool) and isinstance(plain["method"], str)
    cluster_P = plain.get("clusters")  # of older files None
    if cluster_P is not None:
        numbers, cluster_P = np.unique(list(map(_count, cluster_P)), return_inverse=True)
        typed &= len(numbers) == prompts
        prompts = len(cluster_P)
    if prompts < 2 or rollouts < SMALLEST_GROUP * prompts or not typed:
        raise ValueError("facts")
    sample = Sample(rollouts, left_out, zero_mean, cluster_P)
    level = float(plain["vp"]["level"]) if level is None else level
    # A file that is damaged in one place is not trusted in another.
    _array([plain["estimate"]], (1, len(QUANTITIES)), LARGEST)
    _array(plain["covariance"], (len(QUANTITIES),) * 2, LARGEST**2, complete=prompts > 2)
    pseudo = _array(plain["pseudo_values"], (prompts, len(QUANTITIES)), LARGEST)
    return components_of_pseudo_values(pseudo, sample, level=level)


def _count(value: Any) -> int:
    """Return a whole number that can count prompts or rollouts."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST_ROLLOUTS:
        raise ValueError("count")
    return value


def _array(rows: Any, shape: tuple[int, ...], largest: float, *, complete: bool = True) -> Float:
    """Return the array of such rows, with numbers no larger than an estimate can be.

    Some may be missing where not all are to be `complete`.
    """
    values = np.array(rows, dtype=float)  # None becomes NaN
    if (
        values.shape != shape
        or (np.abs(values) > largest).any()
        or (complete and np.isnan(values).any())
    ):
        raise ValueError("numbers")
    return values


def components_of_file(path: Path, *, level: float | None) -> Components | None:
    """Return the saved components in a file; None of another file."""
    return load_components(path, level=level).components if is_components(path) else None


def components_beside(run: Path | None, *, level: float | None = None) -> Components | None:
    """Return the components that lie beside a run, or None."""
    return None if run is None else components_of_file(path_beside(run), level=level)


HEAD = "head"  # in the place of a pattern of layers: the output head alone, with weights of its own
_GUESSED = "the longest completion"
ShardsDone = Callable[[int, int], None]
Found = tuple[
    "Components", "ScoreSource", dict[str, Any]
]  # the components, what was scored, and facts about the way
Elsewhere = Callable[
    ["Tokens", "Measurement", "ScoreOptions", ShardsDone | None], Found
]  # who takes scores, if not this process


@frozen
class Measurement:
    """How the components of a run are measured."""

    model: Path  # folder of the checkpoint
    adapter: Path | None = None  # folder of a LoRA adapter on it
    groups: int = 64  # of the sample, those nearest to the checkpoint's step first
    # first and last step whose completions are used; all where None
    steps: tuple[int, int] | None = None
    seed: int = 0  # of the sample, and of the sketches
    aggregation: Aggregation = "sum"  # of the scores of a completion's tokens
    layers: tuple[
        str, ...
    ] = ()  # patterns of parameter names, or `HEAD`; those that are trained where empty
    sketch_width: int | None = None  # None: exact inner products where the rollouts fit one pass
    memory_limit: int = 2 * 2**30  # bytes of a pass
    # whether scores average to zero within a prompt; of whole sums they do
    zero_mean: bool | None = None
    precision: Precision = "float32"  # of the model's weights
    level: float = 0.95

    @property
    def scores_average_to_zero(self) -> bool:
        """Whether they do within a prompt: as it is told, else of whole sums."""
        return self.aggregation != "sequence_mean" if self.zero_mean is None else self.zero_mean


def measure_run(
    record: RunRecord,
    how: Measurement,
    progress: ShardsDone | None = None,
    spread: Elsewhere | None = None,
) -> SavedComponents:
    """Estimate the variance components of a run near a checkpoint, whose model scores it."""
    if how.groups < 2:
        raise InvalidArgumentError(
            f"expected at least 2 groups to measure, got {how.groups}: 64 give useful intervals"
        )
    centre = step_of_checkpoint(how.adapter or how.model)
    sample = sample_groups(record, centre, groups=how.groups, steps=how.steps, seed=how.seed)
    options: ScoreOptions = {
        "aggregation": how.aggregation,
        "temperature": float(record.config.value("temperature") or 1.0),
        "memory_limit": how.memory_limit,
    }
    if spread is None:
        tokens, estimates, source, facts = _here(record, sample, how, options, progress)
    else:
        from groupwise.gradients.language_models import load_reader

        folder, base = _folders(how)
        tokens = _tokens(load_reader(folder, base=base), record, sample)
        estimates, source, facts = spread(tokens, how, options, progress)
    step = tokens.rows["step"]
    about = {
        "run": record.name,
        "model": str(how.model),
        "adapter": how.adapter and str(how.adapter),
        "steps": [step.min(), step.max()],
        "groups": estimates.prompts,
        "repeated_visits": sample.repeated,
        "seed": how.seed,
        **tokens.facts,
        **facts,
        "aggregation": how.aggregation,
        "temperature": source.temperature,
        "metric": "identity",
        "parameters": source.coordinates,
        "tensors": len(source.parameters),
        "left_out": list(source.left_out)[:20],
        "method": source.method,
    }
    notes = (*sample.notes, *tokens.notes, *_unseen_notes(sample.unseen, estimates))
    return SavedComponents(replace(estimates, notes=(*notes, *estimates.notes)), about)


def _unseen_notes(share: float, estimates: Components) -> Words:
    """Say that the log has prompts whose rewards differ more than any sampled ones', where they
    would carry T out of its interval.
    """
    t = estimates.t.interval
    if t.value <= t.high * (1 - share):
        return ()
    note = (
        f"Groups whose rewards differ more than in any sampled group have {percent(share)} of the "
        "reward variance near this step. The sample misses such prompts, so Vp, T and R are "
        "probably too small. Measure more prompts (--groups N), or bring rewards to one scale."
    )
    return (note,)


def _here(
    record: RunRecord,
    sample: GroupSample,
    how: Measurement,
    options: ScoreOptions,
    progress: ShardsDone | None,
) -> tuple[Tokens, Components, ScoreSource, JsonObject]:
    """Take the scores in this process."""
    from groupwise.gradients.language_models import batch_of
    from groupwise.gradients.scores import ScoreGram, inner_products

    language_model = _opened(how, options)
    tokens = _tokens(language_model, record, sample)
    batch = batch_of(language_model, tokens.before, tokens.after)
    score = inner_products(
        language_model.model,
        batch,
        width=how.sketch_width,
        seed=how.seed,
        progress=progress,
        **options,
    )
    reward, group = tokens.rows["reward"].to_numpy(), tokens.rows["group"].to_numpy()
    estimates = components(
        reward,
        group,
        text_N=tokens.rows["prompt"].to_list(),
        **score.arguments,
        zero_mean=how.scores_average_to_zero,
        level=how.level,
    )
    products = (
        "exact"
        if isinstance(score, ScoreGram)
        else f"count-sketch of width {score.sketch_NK.shape[1]}"
    )
    return tokens, estimates, score.source, {"inner_products": products}


def _folders(how: Measurement) -> tuple[Path, Path | None]:
    """The folder to open, and that of the model beneath where it is an adapter's."""
    return (how.model, None) if how.adapter is None else (how.adapter, how.model)


def _opened(how: Measurement, options: ScoreOptions, device: str = "cpu") -> LanguageModel:
    """Open the model, and note in the options which of its parameters are scored."""
    from groupwise.gradients.language_models import head_alone, load_language_model

    folder, base = _folders(how)
    language_model = load_language_model(folder, base=base, device=device, precision=how.precision)
    options["parameters"] = (
        [head_alone(language_model.model)] if how.layers == (HEAD,) else list(how.layers) or None
    )
    return language_model


@frozen
class Tokens:
    """The rollouts that a model can read, as its tokens."""

    rows: pl.DataFrame  # a row a rollout, group after group
    before: list[list[int]]  # of each prompt
    after: list[list[int]]  # of each completion
    facts: JsonObject  # what was decided about them
    notes: Words  # the same in sentences


def _tokens(
    reader: PolicyTokenizer | LanguageModel, record: RunRecord, sample: GroupSample
) -> Tokens:
    """Return the rollouts that the model can read, their tokens, and decisions on them."""
    from groupwise.gradients.language_models import tokens_of

    rows, limit, source = _with_ends(reader, record, sample)
    before, after = tokens_of(
        reader,
        rows["prompt"],
        rows["completion"].to_list(),
        ends=end_tokens(reader, rows),
        read=rows.get_column("prompt_length", default=()),
    )
    total = np.add([*map(len, before)], [*map(len, after)])
    context = reader.context
    wrong = [] if context is None else np.flatnonzero(total > context).tolist()
    kept, overlong, notes = without_groups(rows.with_row_index("row"), wrong, context or 0)
    full = kept["full"].sum()
    facts = {
        "completion_limit": limit,
        "limit_from": source,
        "cut_off_completions": full,
        "overlong_groups": overlong,
    }
    if full > 1 and source == _GUESSED:
        guess = (
            f"{full:,} of {len(kept):,} completions are as long as the longest one in the log, "
            f"{limit:,} tokens; they count as truncated there: if the sampler has another limit, "
            "give it with --set max_completion_length=L."
        )
        notes = (*notes, guess)
    return Tokens(
        kept,
        [before[row] for row in kept["row"]],
        [after[row] for row in kept["row"]],
        facts,
        notes,
    )


def end_tokens(reader: PolicyTokenizer | LanguageModel, rows: pl.DataFrame) -> list[int | None]:
    """Return the token that ended each completion; None where none did.

    The end of a sequence where the log tells none of the model's.
    """
    from groupwise.gradients.language_models import end_of

    logged = rows.get_column("end_token", default=[None] * len(rows))
    size = len(reader.tokenizer)
    own = [token if token is not None and 0 <= token < size else None for token in logged]
    untold = any(token is None and not full for full, token in zip(rows["full"], own, strict=True))
    end = end_of(reader) if untold else 0
    return [
        None if full else end if token is None else int(token)
        for full, token in zip(rows["full"], own, strict=True)
    ]


def _with_ends(
    reader: PolicyTokenizer | LanguageModel, record: RunRecord, sample: GroupSample
) -> tuple[pl.DataFrame, int, str]:
    """Return the rollouts with whether each was truncated (`full`), and the limit.

    And where that was learnt.
    """
    rows = sample.rows
    setting = record.config.value("max_completion_length")
    limit = max(_lengths(reader, sample.longest)) if setting is None else int(setting)
    if "ended" in rows and rows["ended"].is_finite().fill_null(value=False).all():
        return rows.with_columns(full=pl.col("ended") <= 0), limit, "the log"
    long = np.array(_lengths(reader, rows["completion"].to_list())) >= limit
    source = _GUESSED if setting is None else "the settings"
    return rows.with_columns(pl.Series("full", long)), limit, source


def step_of_checkpoint(checkpoint: Path) -> int | None:
    """Return the step of a checkpoint where its folder's name says it."""
    match = re.search(r"(?:checkpoint|global_step|step)[-_]?(\d+)$", checkpoint.name)
    return int(match.group(1)) if match else None


def _lengths(reader: PolicyTokenizer | LanguageModel, texts: Sequence[str]) -> list[int]:
    """Return the tokens of each text, those that mark its end not counted."""
    return [
        len(ids) for ids in reader.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    ]


_SHARE_OF_DEVICE = 0.5  # of a GPU's memory for what a pass keeps; the model has the rest


@frozen
class Spread:
    """Over what the scores are spread."""

    engine: Engine  # who takes them
    shards: int = 64  # pieces of work; as many as there are groups at most
    gpus: int = 0  # of each worker

    def __call__(
        self, tokens: Tokens, how: Measurement, options: ScoreOptions, progress: ShardsDone | None
    ) -> Found:
        """Return the components of groups that workers score, what was scored, and facts."""
        from groupwise.gradients.scores import SKETCH_WIDTH

        shards = _shards(tokens, self.shards)
        width, scale = how.sketch_width or SKETCH_WIDTH, 1.0
        if how.aggregation == "batch_token_mean":
            scale, options = (
                1 / float(np.mean(list(map(len, tokens.after)))),
                {**options, "aggregation": "sum"},
            )
        ended = itertools.count(1)

        def each(_outcome: ShardOutcome) -> None:
            if progress:
                progress(next(ended), len(shards))

        # all of a worker's GPUs, its one, or memory
        device = "auto" if self.gpus > 1 else "cuda" if self.gpus else "cpu"
        work = ScoreShard(how, options, width, scale, device)
        outcomes = self.engine.map(work, shards, gpus=self.gpus, each=each)
        done = [outcome for outcome in outcomes if outcome.done]
        if not done:
            raise GroupwiseError(f"expected scores, got none; {outcomes[0].sentence}")
        lost = [outcome for outcome in outcomes if not outcome.done]
        sizes = [outcome.size for outcome in done]
        facts = {
            "inner_products": "exact within groups, estimated between them by a count-sketch of "
            f"width {width}",
            "shards": len(shards),
            "shards_left_out": [outcome.name for outcome in lost],
            "bytes_from_workers": sum(sizes),
            "bytes_of_largest_shard": max(sizes),
        }
        whole = components_of_moments(
            GroupMoments.joined([outcome.value.moments for outcome in done]),
            text_P=[group.text for outcome in done for group in shards[outcome.name]],
            level=how.level,
        )
        notes = [
            f"{capital(outcome.sentence)}. Its groups were left out after {outcome.tries} tries."
            for outcome in lost
        ]
        if lost:
            notes.append(f"{len(lost)} of {len(shards)} shards were left out because they failed.")
        return replace(whole, notes=(*notes, *whole.notes)), done[0].value.source, facts


@frozen
class TokenGroup:
    """One group as the model reads it."""

    text: str  # of the prompt
    before: list[list[int]]  # its tokens, once a rollout
    after: list[list[int]]  # tokens of each completion
    reward: list[float]  # of each rollout


@frozen
class ShardScores:
    """What a shard sends back."""

    moments: GroupMoments  # of its groups, with their gradients' sketches
    source: ScoreSource  # what they were taken of


@dataclass
class ScoreShard:
    """Takes the scores of a shard; the model is loaded with the first one and stays."""

    how: Measurement
    options: ScoreOptions
    width: int  # of the sketches
    # of the scores: 1 but for the mean over the tokens of all rollouts, which a group cannot know
    scale: float
    device: str
    _loaded: tuple[LanguageModel, CountSketch] | None = field(default=None, repr=False)

    def __call__(self, groups: Sequence[TokenGroup]) -> ShardScores:
        """Return what the groups leave."""
        model, sketch = self._open()
        scored = [self._group(model, sketch, group) for group in groups]
        return ShardScores(
            GroupMoments.joined([moments for moments, _ in scored]), scored[0][1].source
        )

    def _open(self) -> tuple[LanguageModel, CountSketch]:
        """Return the model and the map of the sketches."""
        if self._loaded is None:
            from groupwise.gradients.sketch import CountSketch

            model = _opened(self.how, self.options, self.device)
            if self.device != "cpu":
                import torch

                own = torch.cuda.get_device_properties(0).total_memory
                self.options["memory_limit"] = int(_SHARE_OF_DEVICE * own)
            self._loaded = model, CountSketch(self.width, self.how.seed)
        return self._loaded

    def _group(
        self, model: LanguageModel, sketch: CountSketch, group: TokenGroup
    ) -> tuple[GroupMoments, ScoreGram]:
        """Return what one group leaves, and how its scores were taken."""
        from groupwise.gradients.language_models import batch_of
        from groupwise.gradients.scores import score_gram

        reward: Float = np.array(group.reward)
        batch = batch_of(model, group.before, group.after)
        gram = score_gram(
            model.model, batch, weight_N=gradient_weights(reward), sketch=sketch, **self.options
        )
        assert gram.gradient_K is not None
        # What single precision has computed needs no double on its way.
        gradient: NDArray[np.floating] = gram.gradient_K * self.scale
        if self.how.precision != "float64":
            gradient = gradient.astype(np.float32)
        mean = self.how.scores_average_to_zero
        moments = moments_of_gram(
            gram.gram_NN * self.scale**2, reward, np.zeros(len(reward)), zero_mean=mean
        )
        return replace(moments, gradient_PD=gradient[None]), gram


def _shards(tokens: Tokens, most: int) -> dict[str, list[TokenGroup]]:
    """Return shards of whole groups, nearly equally many in each, with names.

    Names say which groups of the sample they hold.
    """
    if most < 1:
        raise InvalidArgumentError(f"expected at least one shard, got {most}")
    labels = tokens.rows["group"].to_numpy()
    rows_of = np.split(np.arange(len(labels)), np.flatnonzero(np.diff(labels)) + 1)
    reward = tokens.rows["reward"].to_list()
    groups = [
        TokenGroup(
            tokens.rows["prompt"][int(rows[0])],
            [tokens.before[row] for row in rows],
            [tokens.after[row] for row in rows],
            [reward[row] for row in rows],
        )
        for rows in rows_of
    ]
    parts = np.array_split(np.arange(len(groups)), min(most, len(groups)))
    shards = {}
    for number, part in enumerate(parts, start=1):
        first, last = int(part[0]) + 1, int(part[-1]) + 1
        which = f"group {first}" if first == last else f"groups {first} to {last}"
        shards[f"{number} ({which})"] = [groups[place] for place in part]
    return shards
