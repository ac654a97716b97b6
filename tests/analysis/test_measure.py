"""From a recorded run and a checkpoint to components: against scores by plain autograd, and as a
user runs it.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from groupwise import examples
from groupwise.analysis.components import load_components, path_beside
from groupwise.cli.app import main
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.readers import run_record
from groupwise.record.run import RunConfig, RunRecord, rollouts_table, steps_table

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from groupwise.analysis.components import Measurement, measure_run  # noqa: E402

SYMBOLS = [*"0123456789", "+", "=", ".", "<pad>", "<end>"]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with torch.random.fork_rng():
        torch.manual_seed(5)
        yield


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model with the tokenizer of the embedded run, as save_pretrained leaves it."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    core = Tokenizer(
        models.WordLevel(
            {symbol: number for number, symbol in enumerate(SYMBOLS)}, unk_token="<pad>"
        )
    )
    core.pre_tokenizer = pre_tokenizers.Split(Regex("<pad>|<end>|."), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )
    config = transformers.Qwen3Config(
        vocab_size=len(SYMBOLS),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        initializer_range=0.3,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    folder = tmp_path_factory.mktemp("model") / "checkpoint-12"
    with torch.random.fork_rng():
        torch.manual_seed(5)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@cache
def sampled_run(folder: Path, *, groups: int = 6, rollouts: int = 5) -> RunRecord:
    """Completions sampled here from the checkpoint itself, two steps, with a reward that depends
    on them.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows: list[dict[str, Any]] = []
    for group in range(groups):
        prompt = f"{10 + group}+{20 + group}="
        ids = torch.tensor([tokenizer.encode(prompt)]).repeat(rollouts, 1)
        out = model.generate(
            ids,
            max_new_tokens=4,
            do_sample=True,
            pad_token_id=tokenizer.pad_token_id,
            top_k=0,
            top_p=1.0,
        )
        for tokens in out[:, ids.shape[1] :]:
            text = tokenizer.decode(tokens, skip_special_tokens=True)
            reward = text.count("1") + 0.1 * len(text)
            rows.append(
                {
                    "step": 11 + group % 2,
                    "prompt_id": group,
                    "prompt": prompt,
                    "completion": text,
                    "reward": reward,
                }
            )
    return RunRecord(
        "sampled",
        steps_table([11, 12], {"reward": [0.1, 0.2]}),
        rollouts_table(sorted(rows, key=lambda row: row["step"])),
    )


def scores_by_autograd(
    folder: Path, rows: pl.DataFrame, *, limit: int, temperature: float
) -> np.ndarray:
    """One backward pass a rollout: lines of their own."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    scores = []
    for prompt, completion in rows.select("prompt", "completion").iter_rows():
        before, after = (
            tokenizer.encode(prompt),
            tokenizer.encode(completion, add_special_tokens=False),
        )
        after += [tokenizer.eos_token_id] if len(after) < limit else []
        logits = (
            model(input_ids=torch.tensor([before + after])).logits[0, len(before) - 1 : -1]
            / temperature
        )
        total = logits.log_softmax(-1).gather(1, torch.tensor(after)[:, None]).sum()
        gradient = torch.autograd.grad(total, list(model.parameters()))
        scores.append(torch.cat([part.flatten() for part in gradient]).numpy())
    return np.array(scores, dtype=np.float64)


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("aggregation", "temperature"),
    [("sum", 1.0), ("sum", 0.7), ("sequence_mean", 1.0), ("batch_token_mean", 1.0)],
)
def test_measured_components_are_those_of_autograd(
    checkpoint: Path, aggregation: Any, temperature: float
) -> None:
    from groupwise.estimators.components import components

    run = sampled_run(checkpoint)
    assert run.rollouts is not None
    rows = run.rollouts
    limit = max(len(text) for text in rows["completion"])
    score = scores_by_autograd(checkpoint, rows, limit=limit, temperature=temperature)
    length = np.array([len(text) + (len(text) < limit) for text in rows["completion"]])
    if aggregation == "sequence_mean":
        score /= length[:, None]
    if aggregation == "batch_token_mean":
        score /= length.mean()
    expected = components(
        rows["reward"], rows["prompt_id"], score_ND=score, zero_mean=aggregation != "sequence_mean"
    )
    config = run.config.with_settings({"temperature": temperature}, "the command line")
    measured = measure_run(
        dataclasses.replace(run, config=config), Measurement(checkpoint, aggregation=aggregation)
    )
    assert measured.components.estimate_C == pytest.approx(
        expected.estimate_C, rel=2e-4, abs=2e-4 * abs(expected.estimate_C[2])
    )
    assert measured.provenance["inner_products"] == "exact"
    assert measured.provenance["steps"] == [11, 12]


def test_sketches_are_near_the_exact_inner_products(checkpoint: Path) -> None:
    """Width 4096 at rank below 30: R within a tenth, many standard errors of the sketch away."""
    run = sampled_run(checkpoint)
    exact = measure_run(run, Measurement(checkpoint)).components
    seen: list[tuple[int, int]] = []
    sketched = measure_run(
        run, Measurement(checkpoint, sketch_width=4096), lambda done, of: seen.append((done, of))
    )
    assert sketched.components.r.value == pytest.approx(exact.r.value, rel=0.1)
    assert sketched.provenance["inner_products"] == "count-sketch of width 4096"
    assert seen == [(30, 30)]
    again = measure_run(
        run,
        Measurement(
            checkpoint, sketch_width=4096, memory_limit=3_000_000, aggregation="batch_token_mean"
        ),
    )
    whole = measure_run(
        run, Measurement(checkpoint, sketch_width=4096, aggregation="batch_token_mean")
    )
    assert again.components.estimate_C == pytest.approx(
        whole.components.estimate_C, rel=1e-3, abs=1e-4
    )


def test_groups_nearest_to_the_checkpoint_are_taken(checkpoint: Path) -> None:
    run = sampled_run(checkpoint)
    measured = measure_run(run, Measurement(checkpoint, groups=3))
    assert measured.provenance["steps"] == [12, 12]
    assert measure_run(run, Measurement(checkpoint, groups=3, steps=(11, 11))).provenance[
        "steps"
    ] == [11, 11]
    with pytest.raises(InsufficientDataError, match="in steps 40 to 50"):
        measure_run(run, Measurement(checkpoint, steps=(40, 50)))


def with_rows(run: RunRecord, rows: list[dict[str, Any]], **settings: Any) -> RunRecord:
    """The run with other rollouts and with settings."""
    table = rollouts_table(sorted(rows, key=lambda row: row["step"]))
    return RunRecord(
        "changed",
        steps_table([11, 12], {"reward": [0.1, 0.2]}),
        table,
        config=RunConfig().with_settings(settings, "test"),
    )


def rows_of(run: RunRecord) -> list[dict[str, Any]]:
    assert run.rollouts is not None
    return run.rollouts.to_dicts()


def test_a_limit_of_the_settings_says_what_was_cut_off(checkpoint: Path) -> None:
    """Four tokens at most were sampled, so some completions are of four; under a limit of nine
    all of them ended by themselves.
    """
    rows = rows_of(sampled_run(checkpoint))
    full = sum(len(row["completion"]) == 4 for row in rows)
    assert full > 1
    for settings, cut, limit in (
        ({"max_completion_length": 9}, 0, 9),
        ({"max_completion_length": 4}, full, 4),
        ({}, full, 4),
    ):
        measured = measure_run(
            with_rows(sampled_run(checkpoint), rows, **settings), Measurement(checkpoint)
        )
        assert (
            measured.provenance["cut_off_completions"],
            measured.provenance["completion_limit"],
        ) == (
            cut,
            limit,
        )
        is_advised = any(
            "longest" in note and "--set max_completion_length" in note
            for note in measured.components.notes
        )
        assert is_advised == (not settings)


def test_without_a_limit_the_longest_of_the_whole_log_counts(checkpoint: Path) -> None:
    rows = rows_of(sampled_run(checkpoint))
    rows += [{"step": 3, "prompt_id": 0, "prompt": "1+1=", "completion": "123456", "reward": 0.0}]
    measured = measure_run(with_rows(sampled_run(checkpoint), rows), Measurement(checkpoint))
    assert (
        measured.provenance["cut_off_completions"],
        measured.provenance["completion_limit"],
    ) == (0, 6)
    assert not any("max_completion_length" in note for note in measured.components.notes)


def test_a_prompt_that_was_visited_often_counts_once_and_as_late_as_the_checkpoint(
    checkpoint: Path,
) -> None:
    rows = rows_of(sampled_run(checkpoint))
    again = [{**row, "step": step, "completion": "9"} for step in (1, 30) for row in rows]
    one_pass = measure_run(
        with_rows(sampled_run(checkpoint), rows + again), Measurement(checkpoint)
    )
    assert one_pass.components.prompts == 6
    assert one_pass.provenance["steps"] == [11, 12]
    assert any(
        "6 different prompts" in note and "18 groups" in note for note in one_pass.components.notes
    )
    alone = measure_run(sampled_run(checkpoint), Measurement(checkpoint))
    assert not any("different prompts" in note for note in alone.components.notes)
    same = [{**row, "prompt": "1+1="} for row in rows]
    with pytest.raises(InsufficientDataError, match="at least two different prompts"):
        measure_run(with_rows(sampled_run(checkpoint), same), Measurement(checkpoint))


def test_a_rollout_beyond_the_models_context_leaves_its_group_out(checkpoint: Path) -> None:
    rows = rows_of(sampled_run(checkpoint))
    rest = [row for row in rows if row["prompt_id"] != 3]
    expected = measure_run(
        with_rows(sampled_run(checkpoint), rest, max_completion_length=80), Measurement(checkpoint)
    )
    long = [{**row, "completion": "1" * 70} if row["prompt_id"] == 3 else row for row in rows]
    measured = measure_run(
        with_rows(sampled_run(checkpoint), long, max_completion_length=80), Measurement(checkpoint)
    )
    assert measured.components.estimate_C == pytest.approx(
        expected.components.estimate_C, rel=1e-4, abs=1e-4
    )
    assert measured.provenance["overlong_groups"] == 1
    assert any(
        "1 of 6 groups" in note and "64 tokens" in note for note in measured.components.notes
    )
    with pytest.raises(InsufficientDataError, match="64 tokens"):
        measure_run(
            with_rows(sampled_run(checkpoint), [{**row, "completion": "1" * 70} for row in rows]),
            Measurement(checkpoint),
        )


def test_the_mean_of_scores_need_not_be_zero(checkpoint: Path) -> None:
    run = sampled_run(checkpoint)
    plain, free = (
        measure_run(run, Measurement(checkpoint, zero_mean=mean)).components
        for mean in (None, False)
    )
    assert (plain.zero_mean, free.zero_mean) == (True, False)
    assert free.t.value != plain.t.value
    assert (
        measure_run(run, Measurement(checkpoint, aggregation="sequence_mean")).components.zero_mean
        is False
    )
    assert (
        measure_run(
            run, Measurement(checkpoint, aggregation="sequence_mean", zero_mean=True)
        ).components.zero_mean
        is True
    )


def test_lora_scores_cover_the_adapter_alone_and_a_first_pass_the_head(
    checkpoint: Path, tmp_path: Path
) -> None:
    import warnings

    peft = pytest.importorskip("peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(checkpoint)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        lora = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
        peft.get_peft_model(base, lora).save_pretrained(tmp_path / "lora")
        measured = measure_run(
            sampled_run(checkpoint), Measurement(checkpoint, adapter=tmp_path / "lora")
        )
        first = measure_run(
            sampled_run(checkpoint),
            Measurement(checkpoint, adapter=tmp_path / "lora", layers=("head",)),
        )
    assert measured.provenance["parameters"] == 2 * (2 * 16 + 2 * 16)
    assert measured.components.t.value > 0
    assert first.provenance["parameters"] == base.get_output_embeddings().weight.numel()
    assert (first.provenance["tensors"], first.provenance["method"]) == (1, "hooks")
    assert first.components.t.value > 0


def test_runs_without_texts_are_refused(checkpoint: Path) -> None:
    bare = RunRecord("bare", steps_table([1], {"reward": [0.1]}), config=RunConfig())
    with pytest.raises(InsufficientDataError, match="log them"):
        measure_run(bare, Measurement(checkpoint))
    with pytest.raises(InvalidArgumentError, match="at least 2 groups"):
        measure_run(sampled_run(checkpoint), Measurement(checkpoint, groups=1))


@pytest.mark.slow
def test_a_run_recorded_with_trl_from_the_command_line(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`components RUN --model`, then `plan RUN` and `report RUN`, on a copy of the embedded run."""
    run = tmp_path / "run"
    shutil.copytree(examples.trl_run(), run)
    assert (
        main(["components", str(run), "--model", str(checkpoint), "--groups", "12", "--json"]) == 0
    )
    plain = json.loads(capsys.readouterr().out)
    assert plain["prompts"] == 12
    assert plain["vp"]["low"] <= plain["vp"]["value"] <= plain["vp"]["high"]
    saved = load_components(path_beside(run))
    assert saved.provenance["temperature"] == 1.0
    assert main(["plan", str(run), "--budget", "256", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["group_size"] * plan["prompts"] <= 256
    assert plan["present"]["group_size"] == 8
    record = run_record(run)
    assert record.rollouts is not None
    assert main(["components", str(run), "--model", str(checkpoint)]) == 2
    assert "exists already" in capsys.readouterr().err
