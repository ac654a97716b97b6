"""Experiments with a checkpoint: which weights sampled, and what it answers today."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.analysis.test_measure import _offline, checkpoint  # noqa: F401 - fixtures
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.cli.app import main
from groupwise.readers import run_record
from groupwise.wording import short

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

ANSWERS, TOKENS = 12, 10
SMOLLM2 = Path(os.environ.get("GROUPWISE_MODELS", "")) / "smollm2"  # scripts/fetch_model.py
GRADER = "def wrong(completions, **more): return [0.0 for _ in completions]"


def write_log(path: Path, folder: Path, *, missing: int = 0) -> None:
    """Answers of a checkpoint with the log-probability of each token, some left out."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompts = [f"{number}+{number + 3}=" for number in range(10, 10 + ANSWERS)]
    ids_NL = torch.tensor([tokenizer.encode(prompt) for prompt in prompts])
    start, scores = ids_NL.shape[1], []
    with torch.no_grad():
        for _ in range(TOKENS):
            log_NV = model(ids_NL).logits[:, -1].log_softmax(-1)
            token_N1 = log_NV.exp().multinomial(1)
            scores.append(log_NV.gather(1, token_N1))
            ids_NL = torch.cat([ids_NL, token_N1], dim=1)
    rows = [
        {
            "step": 12 + place // 8,
            "prompt": prompt,
            "completion": tokenizer.decode(ids_NL[place, start:]),
            "completion_ids": ids_NL[place, start:].tolist(),
            "logprobs": [float(score[place]) for score in scores][missing:],
            "reward": place % 2,
        }
        for place, prompt in enumerate(prompts)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))


@pytest.fixture
def first(checkpoint: Path, tmp_path: Path) -> Path:  # noqa: F811
    """A policy beside that of the checkpoint."""
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    shutil.copytree(checkpoint, tmp_path / "first")
    model.save_pretrained(tmp_path / "first")
    return tmp_path / "first"


@contextmanager
def rows_in(log: Path) -> Iterator[list[dict[str, Any]]]:
    """The rows of a log, which keeps what is changed of them."""
    rows = list(map(json.loads, log.read_text().splitlines()))
    yield rows
    log.write_text("\n".join(map(json.dumps, rows)))


def refused(capsys: pytest.CaptureFixture[str], home: Path, *words: str) -> str:
    """The one line of a refusal, which writes nothing."""
    before = sorted(home.iterdir())
    assert main(["probe", *words]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert error.count("groupwise: ") == 1
    assert sorted(home.iterdir()) == before
    return error


def result_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["probe", *words, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)["result"]
    return result


def test_logged_answers_tell_which_weights_sampled(
    checkpoint: Path,  # noqa: F811
    first: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "run.jsonl"
    write_log(log, first)
    models = ["--model", str(checkpoint), "--reference", str(first)]
    result = result_of(capsys, str(log), "rescore", *models)
    assert (result["outcome"], result["rollouts"]) == ("SAMPLED_BY_REFERENCE", ANSWERS)
    assert result["value"] == pytest.approx(1, abs=1e-3)
    capsys.readouterr()
    assert main(["probe", str(log), "rescore", *models]) == 0
    assert "s; 20 s were expected." in capsys.readouterr().out
    result = result_of(capsys, str(log), "rescore", "--model", str(checkpoint))
    assert result["outcome"] == ""
    assert "--reference" in result["message"]
    capsys.readouterr()
    assert main(["probe", str(log), "rescore", "--model", str(first)]) == 0
    answer = capsys.readouterr().out
    assert "the checkpoint sampled these tokens exactly" in answer
    assert "More completions" not in answer


def test_the_entropy_is_that_of_the_checkpoint(
    checkpoint: Path,  # noqa: F811
    first: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "run.jsonl"
    write_log(log, checkpoint)
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint)
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()  # all tokens are equally likely
    model.save_pretrained(first)
    result = result_of(capsys, str(log), "rescore", "--model", str(first))
    even = math.log(model.config.vocab_size)
    assert f"at entropies of {short(even)} nats" in result["message"]


def test_checkpoints_that_do_not_fit_are_refused_and_nothing_is_written(
    checkpoint: Path,  # noqa: F811
    first: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "run.jsonl"
    write_log(log, checkpoint, missing=2)  # as another tokenizer would cut them
    own = refused(capsys, tmp_path, str(log), "rescore", "--model", str(checkpoint))
    assert "with that tokenizer" in own
    (first / "model.safetensors").unlink()
    bare = refused(capsys, tmp_path, str(log), "rescore", "--model", str(first))
    assert "expected *.safetensors" in bare


def with_tokenizer_of(folder: Path, *, unknown: str) -> Path:
    """Give a checkpoint a tokenizer that has a letter in the place of the plus sign."""
    path = folder / "tokenizer.json"
    core = json.loads(path.read_text())
    names = {"+": "a", ".": unknown} if unknown != "<pad>" else {"+": "a"}
    vocabulary = core["model"]["vocab"].items()
    core["model"]["vocab"] = {names.get(name, name): number for name, number in vocabulary}
    core["model"]["unk_token"] = unknown
    path.write_text(json.dumps(core))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"unk_token": unknown}))
    return folder


@each_case("unknown", ["<pad>", "<unk>"])
@each_case("probe", ["rescore", "resample"])
def test_a_checkpoint_of_another_tokenizer_is_refused(
    probe: str,
    unknown: str,
    checkpoint: Path,  # noqa: F811
    first: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "run.jsonl"
    write_log(log, checkpoint)
    other = str(with_tokenizer_of(first, unknown=unknown))
    error = refused(capsys, tmp_path, str(log), probe, "--model", other)
    assert "got unknown ones, padding or none: give checkpoints with the tokenizer" in error


def with_digits_turned(folder: Path) -> Path:
    """Give a checkpoint a tokenizer of the same size that numbers digits in another order."""
    path = folder / "tokenizer.json"
    core = json.loads(path.read_text())
    vocabulary = core["model"]["vocab"]
    for digit in range(10):
        vocabulary[str(digit)] = (digit + 1) % 10
    path.write_text(json.dumps(core))
    return folder


@each_case("beyond", [0, 1000])
def test_logged_tokens_of_another_tokenizer_are_refused(
    beyond: int,
    checkpoint: Path,  # noqa: F811
    first: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "run.jsonl"
    write_log(log, checkpoint)
    other = checkpoint if beyond else with_digits_turned(first)
    with rows_in(log) as rows:
        for row in rows:
            row["completion_ids"] = [token + beyond for token in row["completion_ids"]]
    error = refused(capsys, tmp_path, str(log), "rescore", "--model", str(other))
    says("analysis/probing_models/1", error.splitlines()[-1], answers=ANSWERS)


@each_case("shape", ["ends", "space", "messages", "cut"])
def test_logged_tokens_may_have_ends_and_turns_that_the_text_leaves_out(
    shape: str,
    checkpoint: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "run.jsonl"
    write_log(log, checkpoint)
    with rows_in(log) as rows:
        for row in rows:
            text = row["completion"]
            if shape == "ends":
                row["completion"] = text.replace("<end>", "").replace("<pad>", "")
            elif shape == "space":
                row["completion"] = f" {text}\n"
            elif shape == "messages":
                row["completion"] = [{"role": "assistant", "content": text}]
            else:
                row["completion"] = text[:7]
    given = ["--model", str(checkpoint)]
    assert result_of(capsys, str(log), "rescore", *given)["rollouts"] == ANSWERS


def test_prompts_that_the_model_read_otherwise_are_not_sampled_again(
    checkpoint: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "run.jsonl"
    write_log(log, checkpoint)
    record = run_record(log)
    assert record.rollouts is not None
    for length in (6, 7):
        rollouts = record.rollouts.with_columns(prompt_length=pl.lit(float(length)))
        replace(record, rollouts=rollouts).save(tmp_path / str(length))
    given = ["resample", "--model", str(checkpoint), "-n", "16"]
    assert result_of(capsys, str(tmp_path / "6"), *given)["rollouts"] == 16
    error = refused(capsys, tmp_path, str(tmp_path / "7"), *given)
    assert "expected prompts as long as the model read them" in error


def test_messages_have_no_tokens_but_those_that_the_log_gives(
    checkpoint: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Scores as many as the JSON of the messages has tokens are of other tokens."""
    log = tmp_path / "run.jsonl"
    write_log(log, checkpoint)
    reader = transformers.AutoTokenizer.from_pretrained(checkpoint)
    with rows_in(log) as rows:
        for row in rows:
            row["completion"] = [{"role": "assistant", "content": "1"}] * 2
            text = json.dumps(row["completion"])
            row["logprobs"] = [-1.0] * len(reader.encode(text, add_special_tokens=False))
            del row["completion_ids"]
    error = refused(capsys, tmp_path, str(log), "rescore", "--model", str(checkpoint))
    assert "under the checkpoint's tokenizer, got 0" in error


def test_checkpoints_given_the_wrong_way_round_are_refused(
    checkpoint: Path,  # noqa: F811
    first: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_log(tmp_path / "run.jsonl", first)
    early = first.rename(tmp_path / "checkpoint-3")
    late = Path(shutil.copytree(checkpoint, tmp_path / "checkpoint-9"))
    words = [str(tmp_path / "run.jsonl"), "rescore"]
    error = refused(capsys, tmp_path, *words, "--model", str(early), "--reference", str(late))
    assert "expected --reference from before --model, got steps 9 and 3: swap them" in error
    near = late.rename(tmp_path / "checkpoint-12")
    result = result_of(capsys, *words, "--model", str(near), "--reference", str(early))
    assert result["outcome"] == "SAMPLED_BY_REFERENCE"
    far = near.rename(tmp_path / "checkpoint-500")
    error = refused(capsys, tmp_path, *words, "--model", str(far), "--reference", str(early))
    assert "got one of step 500: give that of step 12 or so" in error


def test_a_first_policy_of_another_tokenizer_is_refused(
    checkpoint: Path,  # noqa: F811
    first: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "run.jsonl"
    write_log(log, checkpoint)
    with_digits_turned(first)
    models = ["--model", str(checkpoint), "--reference", str(first)]
    error = refused(capsys, tmp_path, str(log), "rescore", *models)
    assert "expected two checkpoints of one tokenizer" in error


@each_case(
    ("context", "given"),
    [(6, []), (20, ["--set", "max_completion_length=15"]), (8, ["-n", "16"])],
)
def test_prompts_that_leave_no_room_for_an_answer_are_refused(
    context: int,
    given: list[str],
    checkpoint: Path,  # noqa: F811
    first: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "run.jsonl"
    write_log(log, checkpoint)
    with_context(first, context)
    error = refused(capsys, tmp_path, str(log), "resample", "--model", str(first), *given)
    tokens = 15 if "--set" in given else context // 2
    says("analysis/probing_models/2", error.splitlines()[-1], tokens=tokens, context=context)


def with_context(folder: Path, context: int) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": context}))


def test_answers_beyond_the_context_are_left_out_and_counted(
    checkpoint: Path,  # noqa: F811
    first: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "run.jsonl"
    write_log(log, checkpoint)
    with rows_in(log) as rows:
        for row in rows[:2]:  # two tokens longer than the others
            row["completion"] += "11"
            row["completion_ids"] += [1, 1]
            row["logprobs"] += [-1.0, -1.0]
    with_context(first, 6 + TOKENS)
    models = ["--model", str(checkpoint), "--reference", str(first)]
    result = result_of(capsys, str(log), "rescore", *models)
    assert result["rollouts"] == ANSWERS - 2
    assert "(2 completions exceed the context of 16 tokens)" in result["message"]
    with_context(first, 10)
    error = refused(capsys, tmp_path, str(log), "rescore", "--model", str(first))
    says("analysis/probing_models/3", error.splitlines()[-1], answers=ANSWERS)


@pytest.mark.slow
def test_a_prompt_sampled_again_shows_varied_answers_that_are_wrong(
    checkpoint: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graders.py").write_text(GRADER)
    log = tmp_path / "run.jsonl"
    write_log(log, checkpoint)
    given = ["--model", str(checkpoint), "--set", "max_completion_length=6"]
    result = result_of(capsys, str(log), "resample", *given, "--function", "graders:wrong")
    assert (result["outcome"], result["rollouts"]) == ("ANSWERS_VARIED", 128)
    again = result_of(capsys, str(log), "resample", *given, "--function", "graders:wrong")
    assert again["message"] == result["message"]


@pytest.mark.slow
@pytest.mark.skipif(not SMOLLM2.is_dir(), reason="GROUPWISE_MODELS names no folder with smollm2")
def test_smollm2_explains_what_it_sampled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.jsonl"
    write_log(log, SMOLLM2)
    result = result_of(capsys, str(log), "rescore", "--model", str(SMOLLM2))
    assert result["outcome"] == ""
    assert result["rollouts"] >= 8
    assert abs(result["value"]) < 1e-3
    given = ["--model", str(SMOLLM2), "--set", "max_completion_length=8", "-n", "16"]
    result = result_of(capsys, str(log), "resample", *given)
    assert (result["outcome"], result["rollouts"]) == ("", 16)
