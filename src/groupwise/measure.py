"""From a run's logged completions and a checkpoint to variance components: teacher-forced scores of a sample of groups.

A bridge: rollouts come from the record, scores from `estimators.scores`, and the result says what it was measured on. It trains nothing,
samples nothing and changes neither the run nor the checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from groupwise.arrays import Float
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.components import components
from groupwise.estimators.group_moments import SMALLEST_GROUP
from groupwise.gradient_file import SavedComponents
from groupwise.record import RunRecord

if TYPE_CHECKING:
    import torch

    from groupwise.estimators.score_batch import Aggregation
    from groupwise.language_models import LanguageModel

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
    level: float = 0.95,
    progress: Progress | None = None,
) -> SavedComponents:
    """Measure the variance components of a run at a checkpoint.

    Args:
        record: with prompts, completions and rewards.
        model: folder of a Hugging Face causal language model, or of a LoRA adapter with its base model.
        adapter: folder of a LoRA adapter to put on `model`.
        groups: how many groups to score, a sample of those nearest to the checkpoint in time.
        steps: first and last step to take groups from; where None, the steps nearest to N for a folder checkpoint-N, else the last.
        seed: of the sample and of the sketches.
        aggregation: of token scores: sum, sequence_mean or batch_token_mean.
        temperature: of sampling; that of the settings, else 1.
        layers: patterns of parameter names; all that require a gradient where empty.
        sketch_width: width of the sketches; exact inner products where None and all rollouts fit one pass.
        memory_limit: bytes that one pass may take besides the model; 2 GB where None.
        max_completion_length: tokens at which the sampler cut completions off; where None, the longest seen counts as cut off.
        level: coverage of the intervals.
        progress: called with rollouts done and rollouts in all.

    Returns:
        The components and their provenance, ready to be saved beside the run.

    Raises:
        InsufficientDataError: no rollouts with texts and rewards, or too few groups of four.
        InvalidArgumentError: an argument outside its domain.
        UnreadableModelError: the checkpoint cannot be read safely.
    """
    if groups < 2:
        raise InvalidArgumentError(f"expected at least 2 groups to measure, got {groups}: 64 give useful intervals")
    rows = _sample(record, _centre(model if adapter is None else adapter), groups=groups, steps=steps, seed=seed)
    from groupwise.language_models import encode, load_language_model

    language_model = load_language_model(model) if adapter is None else _with_adapter(model, adapter)
    prompts, completions = [_messages(text) for text in rows["prompt"]], rows["completion"].to_list()
    ended = _ended(language_model, completions, max_completion_length)
    batch = encode(language_model, prompts, completions, ended=ended)
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
        zero_mean=aggregation != "sequence_mean",
        level=level,
    )
    about = {
        "run": record.name,
        "model": str(model),
        "adapter": None if adapter is None else str(adapter),
        "steps": [int(cast("int", rows["step"].min())), int(cast("int", rows["step"].max()))],
        "groups": found.prompts,
        "seed": seed,
        "cut_off_completions": len(ended) - sum(ended),
        "inner_products": "exact" if exact else f"count-sketch of width {score.shape[1]}",
    }
    return SavedComponents(found, about | source)


def _centre(checkpoint: Path) -> int | None:
    """The step of a checkpoint whose folder says it."""
    found = re.search(r"(?:checkpoint|global_step|step)[-_]?(\d+)$", checkpoint.name)
    return int(found.group(1)) if found else None


def _sample(record: RunRecord, centre: int | None, *, groups: int, steps: tuple[int, int] | None, seed: int) -> pl.DataFrame:
    """The rollouts of a sample of whole groups, with a column `group`."""
    rows = _scorable(record)
    if steps is not None:
        rows = rows.filter(pl.col("step").is_between(*steps))
    sizes = rows.group_by("step", "prompt_id").agg(pl.len().alias("size")).filter(pl.col("size") >= SMALLEST_GROUP)
    if len(sizes) < 2:
        where = "" if steps is None else f" in steps {steps[0]} to {steps[1]}"
        raise InsufficientDataError(
            f"expected at least two groups of {SMALLEST_GROUP} rollouts with texts and rewards, got {len(sizes)}{where}: log more"
        )
    middle = int(cast("int", rows["step"].max())) if centre is None else centre
    order = np.random.default_rng(seed).permutation(len(sizes))
    # A stable sort by distance from the checkpoint keeps the shuffled order within a step: a random part of the last step taken.
    chosen = (
        sizes.sort("step", "prompt_id")
        .with_columns(pl.Series("order", order), (pl.col("step") - middle).abs().alias("distance"))
        .sort("distance", "order")
        .head(groups)
        .with_row_index("group")
        .select("step", "prompt_id", "group")
    )
    return rows.join(chosen, on=["step", "prompt_id"], how="inner", maintain_order="left").sort("group", maintain_order=True)


def _scorable(record: RunRecord) -> pl.DataFrame:
    """The rollouts that have everything a score and an advantage need."""
    if record.rollouts is None or not {"prompt", "completion", "reward"} <= set(record.rollouts.columns):
        raise InsufficientDataError(
            f"expected rollouts with prompt, completion and reward in {record.name}, got none: log them (TRL: log_completions=True)"
        )
    rows = record.rollouts.select("step", "prompt_id", "prompt", "completion", "reward").drop_nulls()
    rows = rows.filter(pl.col("reward").is_finite())
    if not len(rows):
        raise InsufficientDataError(
            f"expected texts and total rewards in the rollouts of {record.name}, got none: name the reward with --column"
        )
    return rows


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


def _with_adapter(model: Path, adapter: Path) -> LanguageModel:
    """The model with a LoRA adapter whose base is given apart."""
    from groupwise.language_models import load_language_model

    return load_language_model(adapter, base=model)


def _ended(language_model: LanguageModel, completions: Sequence[str], longest: int | None) -> list[bool]:
    """Which completions ended by themselves: those shorter than the limit, or than the longest seen."""
    tokens = [len(language_model.tokenizer.encode(text, add_special_tokens=False)) for text in completions]
    limit = max(tokens) if longest is None else longest
    return [count < limit for count in tokens]


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
    from groupwise.estimators.score_batch import prepared
    from groupwise.estimators.scores import score_gram, score_sketch

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
