"""From a run's logged completions and a checkpoint to variance components: teacher-forced scores of a sample of groups.

A bridge: rollouts come from the record, scores from `estimators.scores`, and the result says what it was measured on. It trains nothing,
samples nothing and changes neither the run nor the checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from groupwise.analysis.component_file import SavedComponents
from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.estimators.components import components
from groupwise.record.run import RunRecord
from groupwise.series.rollout_sample import longest_texts, sample_groups, without_groups

if TYPE_CHECKING:
    import torch

    from groupwise.scores.batch import Aggregation
    from groupwise.scores.language_models import LanguageModel

SKETCH_WIDTH = 4096
"""Width of the sketches where the rollouts do not fit one pass: inner products within 2 % of a trace, whatever the model's size."""

_CHUNK = 64
_MEMORY = 2 * 2**30
Progress = Callable[[int, int], None]


def measure_run(
    record: RunRecord,
    model: Path,
    *,
    adapter: Path | None = None,
    groups: int = 64,
    steps: tuple[int, int] | None = None,
    seed: int = 0,
    aggregation: str = "sum",
    temperature: float | None = None,
    layers: Sequence[str] = (),
    sketch_width: int | None = None,
    memory_limit: int | None = None,
    max_completion_length: int | None = None,
    zero_mean: bool | None = None,
    level: float = 0.95,
    progress: Progress | None = None,
) -> SavedComponents:
    """Measure the variance components of a run at a checkpoint."""
    if groups < 2:
        raise InvalidArgumentError(f"expected at least 2 groups to measure, got {groups}: 64 give useful intervals")
    sample = sample_groups(record, _centre(model if adapter is None else adapter), groups=groups, steps=steps, seed=seed)
    from groupwise.trainer.checkpoints import open_as_language_model

    language_model = open_as_language_model(model, adapter)
    rows, batch, facts, notes = _encoded(language_model, record, sample.rows, max_completion_length)
    used = float(record.config.value("temperature") or 1.0) if temperature is None else temperature
    score, source, exact = _scores(
        language_model.model,
        batch,
        aggregation=aggregation,
        temperature=used,
        layers=layers,
        width=sketch_width,
        seed=seed,
        memory=_MEMORY if memory_limit is None else memory_limit,
        progress=progress,
    )
    found = components(
        rows["reward"].to_numpy(),
        rows["group"].to_numpy(),
        gram_NN=score if exact else None,
        score_ND=None if exact else score,
        zero_mean=aggregation != "sequence_mean" if zero_mean is None else zero_mean,
        level=level,
    )
    about = {
        "run": record.name,
        "model": str(model),
        "adapter": None if adapter is None else str(adapter),
        "steps": [int(cast("int", rows["step"].min())), int(cast("int", rows["step"].max()))],
        "groups": found.prompts,
        "repeated_visits": sample.repeated,
        "seed": seed,
        **facts,
        "inner_products": "exact" if exact else f"count-sketch of width {score.shape[1]}",
    }
    found = dataclasses.replace(found, notes=(*sample.notes, *notes, *found.notes))
    return SavedComponents(found, about | source)


def _encoded(
    language_model: LanguageModel, record: RunRecord, rows: pl.DataFrame, told: int | None
) -> tuple[pl.DataFrame, dict[str, torch.Tensor], dict[str, Any], tuple[str, ...]]:
    """The rollouts that the model can read, as its tokens; what was decided, as facts and in sentences."""
    from groupwise.scores.language_models import encode, tokens_of

    limit, guessed = _limit(language_model, record, told)
    logged = told is None and "ended" in rows.columns and bool(rows["ended"].is_finite().fill_null(value=False).all())
    long = np.array(_lengths(language_model, rows["completion"].to_list())) >= limit
    rows = rows.with_columns(pl.Series("full", rows["ended"].to_numpy() <= 0 if logged else long))
    prompts = [_messages(text) for text in rows["prompt"]]
    before, after = tokens_of(language_model, prompts, rows["completion"].to_list(), ended=(~rows["full"]).to_list())
    total = np.array([len(prompt) + len(completion) for prompt, completion in zip(before, after, strict=True)])
    context = language_model.context
    wrong = [] if context is None else np.flatnonzero(total > context).tolist()
    kept, overlong, notes = without_groups(rows.with_row_index("row"), wrong, context or 0)
    batch = encode(language_model, [before[row] for row in kept["row"]], [after[row] for row in kept["row"]])
    full = int(kept["full"].sum())
    facts = {
        "completion_limit": limit,
        "limit_from": "the log" if logged else "the longest completion" if guessed else "the settings" if told is None else "the argument",
        "cut_off_completions": full,
        "overlong_groups": overlong,
    }
    return kept, batch, facts, (*notes, *(_guess_notes(full, len(kept), limit) if guessed and not logged else ()))


def _centre(checkpoint: Path) -> int | None:
    """The step of a checkpoint whose folder says it."""
    found = re.search(r"(?:checkpoint|global_step|step)[-_]?(\d+)$", checkpoint.name)
    return int(found.group(1)) if found else None


def _messages(text: str) -> str | list[dict[str, Any]]:
    """The messages of a prompt that was logged as the JSON of a chat, which the chat template has to open; any other text as it is."""
    if not text.startswith("[{"):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    chat = isinstance(found, list) and all(isinstance(part, dict) and {"role", "content"} <= set(part) for part in found)
    return found if chat else text


def _limit(language_model: LanguageModel, record: RunRecord, told: int | None) -> tuple[int, bool]:
    """Tokens at which completions were cut off, and whether that is only the longest of the log."""
    known = record.config.value("max_completion_length") if told is None else told
    if known is not None:
        return int(known), False
    return max(_lengths(language_model, longest_texts(record))), True


def _lengths(language_model: LanguageModel, texts: Sequence[str]) -> list[int]:
    """Tokens of texts, without those that mark the end."""
    return [len(ids) for ids in language_model.tokenizer(list(texts), add_special_tokens=False)["input_ids"]]


def _guess_notes(full: int, rollouts: int, limit: int) -> tuple[str, ...]:
    """Say that which completions were cut off is a guess, where it concerns more than one."""
    if full < 2:
        return ()
    share = f"{full:,} of {rollouts:,} completions are as long as the longest of the log, {limit:,} tokens, and count as cut off there"
    return (f"{share}: if that is not the sampler's limit, give it with --max-completion-length, or --set max_completion_length=L.",)


def _scores(
    model: torch.nn.Module,
    batch: Mapping[str, torch.Tensor],
    *,
    aggregation: str,
    temperature: float,
    layers: Sequence[str],
    width: int | None,
    seed: int,
    memory: int,
    progress: Progress | None,
) -> tuple[Float, dict[str, Any], bool]:
    """Inner products where all rollouts fit one pass, else sketches chunk by chunk; and what they were taken of."""
    from groupwise.scores.batch import prepared
    from groupwise.scores.scores import score_gram, score_sketch

    rollouts = len(batch["input_ids"])
    kind, patterns = cast("Aggregation", aggregation), list(layers) or None
    job = prepared(
        model,
        batch,
        log_prob=None,
        aggregation=kind,
        temperature=temperature,
        parameters=patterns,
        metric=None,
        micro_batch=None,
        memory_limit=memory,
        method="auto",
    )
    if width is None and job.micro_batch >= rollouts:
        gram = score_gram(model, batch, aggregation=kind, temperature=temperature, parameters=patterns, memory_limit=memory)
        if progress is not None:
            progress(rollouts, rollouts)
        return gram.gram_NN, _source(gram.source, aggregation), True
    # The mean over a batch's tokens is one factor for all rollouts, which only the whole batch knows: chunks take the sum.
    inner: Aggregation = "sum" if aggregation == "batch_token_mean" else kind
    parts = []
    for first in range(0, rollouts, _CHUNK):
        part = {name: values[first : first + _CHUNK] for name, values in batch.items()}
        sketch = score_sketch(
            model,
            part,
            width=width or SKETCH_WIDTH,
            seed=seed,
            aggregation=inner,
            temperature=temperature,
            parameters=patterns,
            memory_limit=memory,
        )
        parts.append(sketch.sketch_NK.astype(np.float64))
        if progress is not None:
            progress(min(first + _CHUNK, rollouts), rollouts)
    score = np.concatenate(parts)
    if aggregation == "batch_token_mean":
        score /= float(job.token_N.mean())
    return score, _source(sketch.source, aggregation), False


def _source(source: Any, aggregation: str) -> dict[str, Any]:
    """What of the scores' provenance is kept."""
    return {
        "aggregation": aggregation,
        "temperature": source.temperature,
        "metric": source.metric,
        "parameters": source.coordinates,
        "tensors": len(source.parameters),
        "left_out": list(source.left_out)[:20],
        "method": source.method,
    }
