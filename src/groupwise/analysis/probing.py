"""The experiments of `groupwise probe` on one run: answers drawn by a seed, put to the user's
function or model, and what comes of it. The log is only read, and nothing is trained.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from groupwise.analysis.components import step_of_checkpoint
from groupwise.analysis.grading import grades
from groupwise.arrays import Float, Places, floats
from groupwise.diagnostics.causes import (
    ProbeKind,
    Shown,
    logged_columns,
    regraded,
    resampled,
    rescored,
)
from groupwise.diagnostics.judgement import Judgement, Learning
from groupwise.diagnostics.signals import Evidence
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.plain import frozen
from groupwise.prompts import prompt_of, prompt_text
from groupwise.readers.dumps import SPELLINGS
from groupwise.readers.rollouts import COMPLETION_KEYS, PROMPT_KEYS
from groupwise.readers.source import Blocks, json_lines, peek, vocabulary
from groupwise.record.run import ProbeResult, RunRecord
from groupwise.record.table import read_parquet
from groupwise.series.metric import log_completions
from groupwise.wording import count, short

if TYPE_CHECKING:
    from groupwise.gradients.language_models import LanguageModel

DataRow = Mapping[str, Any]
_MASKS = vocabulary("token_mask")
_LARGEST = 1e9  # of what is logged of a token
_TELLS = 80  # characters of a text by which its tokens are known
_BATCH, _FIRST = 8, 16  # answers of one pass, and those by which an experiment is timed
_EACH, _EACH_OF_LAST = 2, 16  # answers of each prompt, of before a fall and of the last steps
_LONGEST = 256  # tokens of an answer where no setting says
_FEWEST_BEHIND = 2.0  # updates; a checkpoint may be of one behind the row of its step
_GIVE = "give checkpoints with the tokenizer of the sampler"
_ROSE = {Learning.LEARNING, Learning.ROSE, Learning.ARRIVED, Learning.AT_TOP}
_NEAR_STEPS = 10  # or all of so many steps, as of one step luck may be
_NEAR = 4  # times the answers that are drawn: those nearest to the change, of which they are


@frozen
class ProbeOptions:
    """How an experiment is made."""

    rollouts: int  # answers
    seed: int = 1
    function: str = ""  # MODULE:NAME of a reward function
    seconds: float = 60.0  # that it may take
    model: Path | None = None  # the checkpoint whose weights should have sampled
    reference: Path | None = None  # the first policy, or an earlier checkpoint
    data: Path | None = None  # rows of prompts with further columns for the function


def run_probe(record: RunRecord, judged: Judgement, name: str, how: ProbeOptions) -> ProbeResult:
    """Make one experiment on a run."""
    begun = time.monotonic()
    shown, count = RUNNABLE[name](record, judged, how)
    given = map(str, filter(None, (how.function, how.model, how.reference)))
    step = None if name == "rescore" else judged.since_step
    result = result_of(name, shown, count, begun, how.seed)
    return replace(result, step=step, arguments=" ".join(given)[-1000:])


def measured(record: RunRecord, judged: Judgement, kind: ProbeKind, how: ProbeOptions) -> ProbeKind:
    """An experiment with its seconds by a first batch of answers, where it can be made: at most so
    many, since what is loaded once is counted with each batch.
    """
    given = {"regrade": how.function, "rescore": how.model, "resample": how.model}
    if kind.missing or not given.get(kind.probe):
        return kind
    made = run_probe(record, judged, kind.probe, replace(how, rollouts=_FIRST))
    return replace(kind, seconds=made.seconds * kind.rollouts / _FIRST, timed=True)


def result_of(name: str, shown: Shown, rollouts: int, begun: float, seed: int) -> ProbeResult:
    """Return what the journal keeps of an experiment that began then, by the monotonic clock."""
    return ProbeResult(
        name,
        shown.fact.name if shown.fact else "",
        shown.message,
        shown.value.value,
        shown.value.low,
        shown.value.high,
        rollouts,
        time.monotonic() - begun,
        seed,
        datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _regrade(record: RunRecord, judged: Judgement, how: ProbeOptions) -> tuple[Shown, int]:
    """Grade logged answers again, before and since the change."""
    rows, column = _rewarded(_answers(record, "prompt", "completion", "reward"), how.function)
    early, late = _sides(rows, judged, column)
    if late.is_empty():  # none was graded since: nothing was earned
        _, late = _sides(_answers(record, "prompt", "completion"), judged)
        late = late.with_columns(**{column: pl.lit(0.0)})
    rng, each = np.random.default_rng(how.seed), how.rollouts // 2
    if rose := judged.learning in _ROSE:  # by its ends a gain is largest
        early, late = early.head(_NEAR * each), late.tail(_NEAR * each)
    step = pl.col("step")
    last = early.filter(step >= step.unique().sort().tail(_NEAR_STEPS).min())
    early = _drawn(last if len(last) > _NEAR * each else early.tail(_NEAR * each), each, rng)
    late = _drawn(late, how.rollouts - len(early), rng)
    rows = record.with_completions(pl.concat([early, late]))
    graded_2N = np.stack([rows[column].to_numpy().astype(float), _graded(record, rows, how)])
    sides = graded_2N[:, : len(early)], graded_2N[:, len(early) :]
    return regraded(*sides, rose=rose), len(rows)


def _rewarded(rows: pl.DataFrame, function: str) -> tuple[pl.DataFrame, str]:
    """The answers that a function rewarded, or all of them where it has no column; and which."""
    column = f"reward/{function.rpartition(':')[2]}"
    column = column if column in rows else "reward"
    return rows.filter(pl.col(column).is_finite()), column


def _sides(
    rows: pl.DataFrame, judged: Judgement, column: str = ""
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The answers before the change and since; without a change none are before. Of a reward that
    fell those before end with the last step that had not lost half.
    """
    since, step = judged.since_step, pl.col("step")
    if since is None:
        return rows.clear(), rows
    first = since if judged.first_sign is None else min(since, judged.first_sign.step)
    early, late = rows.filter(step < first), rows.filter(step >= since)
    if column and len(early) and judged.learning is Learning.FALLING:
        mean, now = pl.col(column).mean().over("step"), late[column].mean() or 0.0
        early = early.filter(step <= step.filter(mean >= (mean.max() + now) / 2).max())
    return early, late


def _rescore(record: RunRecord, _judged: Judgement, how: ProbeOptions) -> tuple[Shown, int]:
    """Score logged answers under the checkpoint, and under the reference where there is one."""
    from groupwise.gradients.language_models import load_language_model

    assert how.model
    rows, step = _answers(record, "prompt", "completion"), step_of_checkpoint(how.model)
    begun = how.reference and step_of_checkpoint(how.reference)
    if begun and step is not None and begun > step:
        raise InvalidArgumentError(
            f"expected --reference from before --model, got steps {begun:,} and {step:,}: swap them"
        )
    # weights of another update sampled the others; a checkpoint without a step is the last
    away_N = np.abs(rows["step"].to_numpy() - (rows["step"][-1] if step is None else step + 1))
    if away_N.min() > 1:
        nearest = rows["step"][int(away_N.argmin())] - 1
        raise InvalidArgumentError(
            "expected the checkpoint of a step whose completions are logged, got one of step "
            f"{step:,}: give that of step {nearest:,} or so"
        )
    rows = rows.filter(away_N <= 1)
    rows = record.with_completions(_drawn(rows, how.rollouts, np.random.default_rng(how.seed)))
    models = [load_language_model(path) for path in (how.model, how.reference) if path]
    logged = _tokens(models, rows, _raw_rows(record, rows))
    context = min(loaded.context or math.inf for loaded in models)
    fitting = [answer for answer in logged if len(answer.before) + len(answer.after) <= context]
    left = ""
    if beyond := len(logged) - len(fitting):
        left = f" ({count(beyond, 'completion')} exceed the context of {context:,} tokens)"
    if len(fitting) < _BATCH:
        raise InsufficientDataError(
            f"expected {_BATCH} completions with the sampler's log-probability of each token "
            f"under the checkpoint's tokenizer, got {len(fitting)}{left}: log them as a list in "
            "logprobs, and give checkpoints with that tokenizer"
        )
    temperature = float(record.config.value("temperature") or 1.0)
    own, *first = (_scored(loaded, fitting, temperature) for loaded in models)
    gap = [answer.sampled_T - score_T for answer, (score_T, _) in zip(fitting, own, strict=True)]
    way, turns = None, [answer.turn_T for answer in fitting]
    if first:
        way = [first_2T[0] - own_2T[0] for first_2T, own_2T in zip(*first, own, strict=True)]
    ignored = _FEWEST_BEHIND / max(step - (begun or 0), 1) if step else 0.0
    shown = rescored(gap, way, turns, own, first=not begun, ignored=ignored)
    return replace(shown, message=shown.message + left), len(gap)


@frozen
class _ScoredCompletion:
    """A logged answer as its model reads it."""

    before: list[int]  # tokens of the prompt
    after: list[int]  # tokens of the answer
    sampled_T: Float  # the sampler's log-probability of each
    own_T: Places  # the tokens that the policy wrote, by their places
    turn_T: Places  # in which of its turns it wrote each of those


def _encoded(
    loaded: LanguageModel, rows: pl.DataFrame, answers: Sequence[str] = ()
) -> tuple[list[list[int]], list[list[int]]]:
    """The tokens of the prompts of rows, all of which the tokenizer must know, and of answers."""
    from groupwise.gradients.language_models import tokens_of

    own, ends = loaded.tokenizer, [None] * len(answers)
    read = rows.get_column("prompt_length", default=())
    before, after = tokens_of(loaded, rows["prompt"], answers, ends=ends, read=read)
    lost = {own.unk_token_id, own.pad_token_id} - {own.eos_token_id, own.bos_token_id}
    if not all(ids and lost.isdisjoint(ids) for ids in before):
        raise InvalidArgumentError(
            "expected prompts in tokens of the checkpoint, got unknown ones, padding or none: "
            f"{_GIVE}"
        )
    return before, after


def _tokens(
    models: Sequence[LanguageModel], rows: pl.DataFrame, raw: Sequence[DataRow]
) -> list[_ScoredCompletion]:
    """The answers of which each token has a log-probability in the log."""
    from groupwise.gradients.language_models import end_of

    loaded, said, answers = models[0], rows["completion"], list[_ScoredCompletion]()
    others = 0
    # of several messages only the log has the tokens
    texts = [text if isinstance(prompt_of(text), str) else "" for text in said]
    tokens = _encoded(loaded, rows, texts)
    if _encoded(models[-1], rows.clear(), texts)[1] != tokens[1]:
        raise InvalidArgumentError(
            f"expected two checkpoints of one tokenizer, got different tokens: {_GIVE}"
        )
    for text, row, before, made in zip(said, raw, *tokens, strict=True):
        ids = _numbers(row.get("completion_ids"), int) or made
        if ids != made and not _decodes(loaded.tokenizer, ids, text):
            others += 1
            continue
        logged = [_numbers(row.get(key)) for key in SPELLINGS["log_probability"]]
        sampled = next(filter(None, logged), [])
        after = [*ids, end_of(loaded)] if len(sampled) == len(ids) + 1 else ids
        if sampled and len(sampled) == len(after):
            own_T, turn_T = _turns(row, len(after))
            sampled_T = floats(sampled)[own_T]
            answers.append(_ScoredCompletion(before, after, sampled_T, own_T, turn_T))
    if 2 * others > len(raw):
        raise InvalidArgumentError(
            "expected completion_ids that decode to the logged completions, got other texts for "
            f"{others} of {len(raw)}: {_GIVE}"
        )
    return answers


def _decodes(tokenizer: Any, ids: Sequence[int], text: str) -> bool:
    """Whether tokens hold what the policy wrote by the log, as far as that tells: but for space,
    special tokens, and the end of a long text.
    """
    if not all(0 <= token < len(tokenizer) for token in ids):
        return False
    said = prompt_of(text)
    parts = [text]
    if not isinstance(said, str):
        parts = [str(turn["content"] or "") for turn in said if turn["role"] == "assistant"]
    decoded = [tokenizer.decode(ids, skip_special_tokens=skips) for skips in (True, False)]
    whole, *wanted = ("".join(part.split()) for part in (" ".join(decoded), *parts))
    return all(part[:_TELLS] in whole for part in wanted)


def _turns(row: DataRow, length: int) -> tuple[Places, Places]:
    """The places of the tokens that a mask of the log says to be the policy's, all without one,
    and the turn of each, from 0 on.
    """
    masks = (_numbers(row.get(key), int) for key in _MASKS)
    mask_T = np.array(next((mask for mask in masks if len(mask) == length), [1] * length)) > 0
    begins_T = np.diff(mask_T.astype(np.intp), prepend=0) > 0
    return np.flatnonzero(mask_T), (begins_T.cumsum() - 1)[mask_T]


def _scored(
    loaded: LanguageModel, answers: Sequence[_ScoredCompletion], temperature: float
) -> list[Float]:
    """The log-probability of each token of answers under a checkpoint, and the entropy there."""
    from torch import no_grad

    from groupwise.gradients.language_models import batch_of
    from groupwise.gradients.scores import token_log_prob

    scores = list[Float]()
    for start in range(0, len(answers), _BATCH):
        part = answers[start : start + _BATCH]
        batch = batch_of(
            loaded, [answer.before for answer in part], [answer.after for answer in part]
        )
        with no_grad():
            made = token_log_prob(loaded.model, batch, temperature=temperature, entropy=True)
        score_2NL = made.double().cpu().numpy()
        for row, answer in enumerate(part):
            scores.append(score_2NL[:, row, len(answer.before) + answer.own_T])
    return scores


def _resample(record: RunRecord, judged: Judgement, how: ProbeOptions) -> tuple[Shown, int]:
    """Sample prompts again at a checkpoint: of before the change where the reward fell and a
    function grades, else of the last steps.
    """
    assert how.model
    rows, column = _rewarded(_answers(record, "prompt", "reward"), how.function)
    (early, late), step = _sides(rows, judged, column), step_of_checkpoint(how.model)
    fell = bool(how.function) and len(early) > 0 and judged.learning is Learning.FALLING
    if fell and step is not None and step < (judged.since_step or 0):
        raise InvalidArgumentError(
            f"expected a checkpoint from after the change at step {judged.since_step:,}, got one "
            f"from step {step:,}: give a later one"
        )
    asked = early if fell else rows.filter(pl.col("step") >= pl.col("step").quantile(0.75))
    if not fell and step is not None and step < np.median(rows["step"]):
        raise InvalidArgumentError(
            f"expected a checkpoint of the last steps, from {asked['step'][0]:,} on, got one from "
            f"step {step:,}: give a later one"
        )
    prompts = asked.group_by("prompt", maintain_order=True).agg(
        pl.col(column).mean(), pl.col("^prompt_length$").first()
    )
    asking = max(how.rollouts // (_EACH if fell else _EACH_OF_LAST), 1)
    prompts = _drawn(prompts.tail(_NEAR * asking), asking, np.random.default_rng(how.seed))
    each = max(how.rollouts // len(prompts), _EACH)
    parts = _sampled(record, prompts, each, how)
    texts = [*chain(*parts)]
    entropy, length = map(Evidence(record).quantity, ("entropy", "completion_length"))
    tokens = length.late if length else 1 + np.mean([*map(len, texts)])  # at most
    alike = math.exp(min(-entropy.late * tokens, 0.0)) if entropy else 0.0
    if not how.function:
        shown = resampled(parts, None, alike=alike)
        if judged.learning is Learning.FALLING:  # the last prompts may be harder ones
            asks = "; give --function to see whether the earlier prompts are lost"
            shown = replace(shown, fact=None, message=shown.message + asks)
        return shown, len(texts)
    again = prompts[np.repeat(np.arange(len(prompts)), each)]
    fresh_N = _graded(record, again.with_columns(pl.Series("completion", texts)), how, sampled=True)
    logged_N, change = rows[column].to_numpy(), None
    best = max(logged_N.max(), fresh_N.max())
    right_N = (fresh_N > best - 1e-9) & (best > min(logged_N.min(), 0.0))
    lost_P: Float | float = 0.0
    if fell:
        then_P = prompts[column].to_numpy()
        change = fresh_N.reshape(-1, each).mean(axis=1) - then_P
        lost_P = then_P - (late[column].mean() or 0.0)
    kept_P = ~right_N.reshape(-1, each).all(axis=1) | fell | right_N.all()
    parts = [part for part, kept in zip(parts, kept_P, strict=True) if kept]
    shown = resampled(
        parts, int(right_N[np.repeat(kept_P, each)].sum()), change, lost_P, alike=alike
    )
    always = len(kept_P) - len(parts)
    without = f"; without {count(always, 'prompt')} whose completions are all right"
    right = f" (a completion counts as right if {column} is {short(best)}{without * bool(always)})"
    return replace(shown, message=shown.message + right), len(texts)


def _sampled(
    record: RunRecord, prompts: pl.DataFrame, each: int, how: ProbeOptions
) -> list[list[str]]:
    """Draw answers of a checkpoint to prompts, at the temperature of the run, from all tokens."""
    import torch

    from groupwise.gradients.language_models import (
        end_of,
        load_language_model,
        quiet_transformers,
    )

    assert how.model
    loaded = load_language_model(how.model)
    generate: Any = loaded.model.generate
    context = loaded.context or math.inf
    longest = int(record.config.value("max_completion_length") or min(_LONGEST, context / 2))
    asked, _ = _encoded(loaded, prompts)
    begun = max(map(len, asked))
    if begun + longest > context:
        raise InvalidArgumentError(
            f"expected a prompt and {longest:,} tokens within the checkpoint's context of "
            f"{context:,}, got a prompt of {begun:,}: give a checkpoint with a longer context, or "
            "limit completions with --set max_completion_length=N"
        )
    torch.manual_seed(how.seed)
    answers = dict[int, list[str]]()
    for length in {*map(len, asked)}:
        places = [place for place, prompt in enumerate(asked) if len(prompt) == length]
        ids = torch.tensor([asked[place] for place in places for _ in range(each)])
        with quiet_transformers():
            out = generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=float(record.config.value("temperature") or 1.0),
                top_k=0,
                top_p=1.0,
                max_new_tokens=longest,
                pad_token_id=end_of(loaded),
                min_p=None,
                typical_p=1.0,
                repetition_penalty=1.0,
                no_repeat_ngram_size=0,
            )
        texts = loaded.tokenizer.batch_decode(out[:, length:], skip_special_tokens=True)
        answers |= {place: texts[each * row : each * (row + 1)] for row, place in enumerate(places)}
    return [answers[place] for place in range(len(asked))]


RUNNABLE = {"regrade": _regrade, "rescore": _rescore, "resample": _resample}


def _answers(record: RunRecord, *columns: str) -> pl.DataFrame:
    """The rollouts that have some columns, by step."""
    rows = pl.DataFrame() if record.rollouts is None else record.rollouts
    lacking = sorted({*columns} - logged_columns(record))
    rows = rows.clear() if lacking else rows.drop_nulls(columns)
    if rows.is_empty():
        raise InsufficientDataError(
            f"expected rollouts with {', '.join(columns)} in {record.name}, got none with "
            f"{', '.join(lacking or columns)}: {log_completions(record)}"
        )
    return rows.sort("step", maintain_order=True)


def _drawn(rows: pl.DataFrame, count: int, rng: np.random.Generator) -> pl.DataFrame:
    """So many rows at random, in their order."""
    return rows[np.sort(rng.permutation(len(rows))[:count])]


def _graded(
    record: RunRecord, rows: pl.DataFrame, how: ProbeOptions, *, sampled: bool = False
) -> Float:
    """Grades of answers, of the log or sampled, by the user's function, called as TRL calls it."""
    raw = _raw_rows(record, rows, how.data, by_prompt=sampled)
    prompts = list(map(prompt_of, rows["prompt"]))
    completions = [
        [{"role": "assistant", "content": text}]
        if not isinstance(prompt, str) and isinstance(prompt_of(text), str)
        else prompt_of(text)
        for prompt, text in zip(prompts, rows["completion"], strict=True)
    ]
    shared = set.intersection(*map(set, raw)) - {"prompt", "completion"} if raw else ()
    columns = {name: [row[name] for row in raw] for name in shared} | {
        "prompts": prompts,
        "completions": completions,
        "completion_ids": [None if sampled else row.get("completion_ids") for row in raw],
    }
    return grades(how.function, columns, seconds=how.seconds)


def _raw_rows(
    record: RunRecord, rows: pl.DataFrame, data: Path | None = None, *, by_prompt: bool = False
) -> list[DataRow]:
    """The row of each answer as its file has it, of its step where rows name it, or that of its
    prompt, as in a file given.
    """
    names, step_N = {"prompt": PROMPT_KEYS}, [None] * len(rows)
    if not (data or by_prompt):
        names["completion"], step_N = COMPLETION_KEYS, rows["step"].to_list()
    wanted = [*zip(step_N, *(rows[name] for name in names), strict=True)]
    left, row_of = dict[tuple[Any, ...], set[Any]](), dict[tuple[Any, ...], DataRow]()
    for step, *key in wanted:
        left.setdefault(tuple(key), set()).add(step)
    files = [data] if data else [Path(source.path) for source in record.sources]
    for exact in (True, False):  # steps that no row of a text has may stand in another column
        for row in chain.from_iterable(map(_rows_of, filter(Path.is_file, files))):
            if not left:
                break
            texts = (
                next((row[key] for key in keys if row.get(key)), "") for keys in names.values()
            )
            text = tuple(
                prompt_text(part) if isinstance(part, str | list) else "" for part in texts
            )
            steps, own = left.get(text, set()), row.get("step")
            for step in [*steps]:
                if step is None or own == step or not (exact and isinstance(own, int | float)):
                    row_of[step, *text] = row
                    steps.remove(step)
            if not steps:
                left.pop(text, None)
    if data and not row_of:
        raise InvalidArgumentError(
            f"expected rows with the log's prompts in {data}, got "
            f"{'none' if data.is_file() else 'no such file'}: give JSON lines or Parquet"
        )
    return [row_of.get(key, {}) for key in wanted]


def _numbers(value: Any, kind: type = float) -> list[Any]:
    """A list of numbers of a log as it is; nothing of anything else."""
    plain = isinstance(value, list) and all(isinstance(item, int | kind) for item in value)
    return value if plain and all(abs(number) < _LARGEST for number in value) else []


def _rows_of(path: Path) -> Iterator[DataRow]:
    """Yield the rows of JSON lines or of Parquet; none of another file."""
    seen = peek(path)
    if seen.head.startswith(b"PAR1"):
        yield from read_parquet(path).iter_rows(named=True)
    elif seen.text.startswith("{"):
        yield from filter(None, json_lines(Blocks(seen).lines(), floats=False))
