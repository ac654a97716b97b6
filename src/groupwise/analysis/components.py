"""Estimates variance components from a run and a checkpoint: the scores of a sample of its logged groups under that model.

The completions are scored as they were logged: nothing is sampled or trained. The result says what it was measured on.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from groupwise.analysis.component_file import SavedComponents
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.components import components
from groupwise.prompts import prompt_of
from groupwise.record.run import RunRecord
from groupwise.series.rollout_sample import Sample, sample_groups, without_groups

if TYPE_CHECKING:
    from groupwise.estimators.components import Components
    from groupwise.scores.language_models import LanguageModel, Precision, Reader
    from groupwise.scores.scores import Aggregation, ScoreOptions, ScoreSource

_GUESSED = "the longest completion"
Progress = Callable[[int, int], None]
Found = tuple["Components", "ScoreSource", dict[str, Any]]  # the components, what was scored, and facts about the way
Elsewhere = Callable[["Tokens", "Measurement", "ScoreOptions", Progress | None], Found]  # who takes scores, if not this process


@dataclass(frozen=True, slots=True)
class Measurement:
    """How the components of a run are measured."""

    model: Path  # folder of the checkpoint
    adapter: Path | None = None  # folder of a LoRA adapter on it
    groups: int = 64  # of the sample, those nearest to the checkpoint's step first
    steps: tuple[int, int] | None = None  # first and last step whose completions are used; all where None
    seed: int = 0  # of the sample, and of the sketches
    aggregation: Aggregation = "sum"  # of the scores of a completion's tokens
    temperature: float | None = None  # of the sampling; that of the run where None
    layers: tuple[str, ...] = ()  # patterns of parameter names; those that are trained where empty
    sketch_width: int | None = None  # None: exact inner products where the rollouts fit one pass
    memory_limit: int = 2 * 2**30  # bytes of a pass
    max_completion_length: int | None = None  # tokens at which completions were truncated; that of the run where None
    zero_mean: bool | None = None  # whether scores average to zero within a prompt; of whole sums they do
    precision: Precision = "float32"  # of the model's weights
    level: float = 0.95

    @property
    def scores_average_to_zero(self) -> bool:
        """Whether they do within a prompt: as it is told, else of whole sums."""
        return self.aggregation != "sequence_mean" if self.zero_mean is None else self.zero_mean


def measure_run(record: RunRecord, how: Measurement, progress: Progress | None = None, spread: Elsewhere | None = None) -> SavedComponents:
    """Estimate the variance components of a run from its completions near a checkpoint, scored by that model.

    With `spread` workers of an engine take the scores, shard after shard.
    """
    if how.groups < 2:
        raise InvalidArgumentError(f"expected at least 2 groups to measure, got {how.groups}: 64 give useful intervals")
    centre = _step_of(how.model if how.adapter is None else how.adapter)
    sample = sample_groups(record, centre, groups=how.groups, steps=how.steps, seed=how.seed)
    temperature = float(record.config.value("temperature") or 1.0) if how.temperature is None else how.temperature
    options: ScoreOptions = {"aggregation": how.aggregation, "temperature": temperature, "memory_limit": how.memory_limit}
    options["parameters"] = list(how.layers) or None
    if spread is None:
        tokens, found, source, facts = _here(record, sample, how, options, progress)
    else:
        from groupwise.trainer.checkpoints import open_reader

        tokens = _tokens(open_reader(how.model, how.adapter), record, sample, how.max_completion_length)
        found, source, facts = spread(tokens, how, options, progress)
    about = {
        "run": record.name,
        "model": str(how.model),
        "adapter": None if how.adapter is None else str(how.adapter),
        "steps": [int(cast("int", tokens.rows["step"].min())), int(cast("int", tokens.rows["step"].max()))],
        "groups": found.prompts,
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
    return SavedComponents(dataclasses.replace(found, notes=(*sample.notes, *tokens.notes, *found.notes)), about)


def _here(
    record: RunRecord, sample: Sample, how: Measurement, options: ScoreOptions, progress: Progress | None
) -> tuple[Tokens, Components, ScoreSource, dict[str, Any]]:
    """Take the scores in this process."""
    from groupwise.scores.language_models import batch_of
    from groupwise.scores.scores import ScoreGram, inner_products
    from groupwise.trainer.checkpoints import open_as_language_model

    language_model = open_as_language_model(how.model, how.adapter, precision=how.precision)
    tokens = _tokens(language_model, record, sample, how.max_completion_length)
    batch = batch_of(language_model, tokens.before, tokens.after)
    score = inner_products(language_model.model, batch, width=how.sketch_width, seed=how.seed, progress=progress, **options)
    reward, group = tokens.rows["reward"].to_numpy(), tokens.rows["group"].to_numpy()
    found = components(reward, group, **score.arguments, zero_mean=how.scores_average_to_zero, level=how.level)
    products = "exact" if isinstance(score, ScoreGram) else f"count-sketch of width {score.sketch_NK.shape[1]}"
    return tokens, found, score.source, {"inner_products": products}


@dataclass(frozen=True, slots=True)
class Tokens:
    """The rollouts that a model can read, as its tokens."""

    rows: pl.DataFrame  # a row a rollout, group after group
    before: list[list[int]]  # of each prompt
    after: list[list[int]]  # of each completion
    facts: dict[str, Any]  # what was decided about them
    notes: tuple[str, ...]  # the same in sentences


def _tokens(reader: Reader | LanguageModel, record: RunRecord, sample: Sample, told: int | None) -> Tokens:
    """Return the rollouts that the model can read and their tokens, with what was decided about them."""
    from groupwise.scores.language_models import tokens_of

    rows, limit, source = _with_ends(reader, record, sample, told)
    prompts = [prompt_of(text) for text in rows["prompt"]]
    before, after = tokens_of(reader, prompts, rows["completion"].to_list(), ended=(~rows["full"]).to_list())
    total = np.array([len(prompt) + len(completion) for prompt, completion in zip(before, after, strict=True)])
    context = reader.context
    wrong = [] if context is None else np.flatnonzero(total > context).tolist()
    kept, overlong, notes = without_groups(rows.with_row_index("row"), wrong, context or 0)
    full = int(kept["full"].sum())
    facts = {"completion_limit": limit, "limit_from": source, "cut_off_completions": full, "overlong_groups": overlong}
    notes = (*notes, *(_guess_notes(full, len(kept), limit) if source == _GUESSED else ()))
    return Tokens(kept, [before[row] for row in kept["row"]], [after[row] for row in kept["row"]], facts, notes)


def _with_ends(reader: Reader | LanguageModel, record: RunRecord, sample: Sample, told: int | None) -> tuple[pl.DataFrame, int, str]:
    """Return the rollouts with whether each was truncated (`full`), the limit of their length, and where that was learnt."""
    rows = sample.rows
    known = record.config.value("max_completion_length") if told is None else told
    limit = max(_lengths(reader, sample.longest)) if known is None else int(known)
    if told is None and "ended" in rows.columns and rows["ended"].is_finite().fill_null(value=False).all():
        return rows.with_columns((pl.col("ended") <= 0).alias("full")), limit, "the log"
    long = np.array(_lengths(reader, rows["completion"].to_list())) >= limit
    source = "the argument" if told is not None else _GUESSED if known is None else "the settings"
    return rows.with_columns(pl.Series("full", long)), limit, source


def _step_of(checkpoint: Path) -> int | None:
    """Return the step of a checkpoint where its folder's name says it."""
    found = re.search(r"(?:checkpoint|global_step|step)[-_]?(\d+)$", checkpoint.name)
    return int(found.group(1)) if found else None


def _lengths(reader: Reader | LanguageModel, texts: Sequence[str]) -> list[int]:
    """Return the tokens of each text, those that mark its end not counted."""
    return [len(ids) for ids in reader.tokenizer(list(texts), add_special_tokens=False)["input_ids"]]


def _guess_notes(full: int, rollouts: int, limit: int) -> tuple[str, ...]:
    """Return a sentence that which completions were truncated is a guess, where it concerns more than one."""
    if full < 2:
        return ()
    share = f"{full:,} of {rollouts:,} completions are as long as the longest of the log, {limit:,} tokens, and count as truncated there"
    return (f"{share}: if that is not the sampler's limit, give it with --max-completion-length, or --set max_completion_length=L.",)
