"""Layouts of strangers' logs: each public file against its written facts, and each rule on a
text made here.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.errors import NothingYetError, SeveralRunsError, UnreadableRunError
from groupwise.readers import run_record
from groupwise.readers.find import run_records
from groupwise.record.run import RunRecord

T = 12
REWARD = [round(0.25 + 0.0375 * t, 4) for t in range(1, T + 1)]
TOLD = {  # group sizes that stand in the file itself; of the others the table knows the repository
    "cotcompress__runpod_50_steps__run.log",
    "grponorm__final3_difficulty__easy_standard.log",
    "autoresearch__grpo_log.jsonl",
    "statsafety__GRPO-guide.ipynb",
}
# The table says .003, which no row holds: the first row of the log prints 0.004451915272511542.
FIRST = {"saferank__lora_train.log": "0.00445"}


def values(record: RunRecord, name: str = "reward") -> list[float]:
    return [
        value
        for value in record.steps[record.column(name)].to_list()
        if value is not None and value == value
    ]


the_runs = cache(run_records)  # of files that stay as they are


def the_run(path: Path) -> RunRecord:
    (run,) = the_runs(path)
    return run


def opened(tmp_path: Path, name: str, content: str | bytes) -> RunRecord:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return run_record(tmp_path / name)


def refusal(path: Path) -> str:
    with pytest.raises(UnreadableRunError, match=r"^expected [^\n]+\Z") as caught:
        run_record(path)
    return str(caught.value)


def rounds_to(value: float, fact: str) -> bool:
    """Return whether a number is the one that a fact gives with its decimals."""
    return abs(value - float(fact)) <= 0.5000001 * 10.0 ** -len(fact.partition(".")[2])


def wrapped(text: str, width: int) -> str:
    """Return text as a terminal of some width copies it."""
    return "\n".join(
        line[at : at + width]
        for line in text.split("\n")
        for at in range(0, max(len(line), 1), width)
    )


# The files that others left, one function each for what the table calls a good reader's finding


def _cotcompress(path: Path) -> None:
    with pytest.raises(
        SeveralRunsError,
        match="holds 4 runs: add one of #25536, #27058, #28510, #29984 to the path",
    ):
        run_record(path)
    runs = the_runs(path)
    assert [len(values(run)) for run in runs] == [49, 6, 11, 47]
    assert [(run.steps["step"][0], run.steps["step"][-1]) for run in runs] == [
        (1, 50),
        (1, 6),
        (1, 11),
        (1, 47),
    ]
    assert runs[0].steps[runs[0].column("reward")][-1] is None
    assert values(runs[0], "eval/reward")
    assert not any(
        "restart" in note or "starts again" in note for run in runs for note in run.notes
    )
    assert ["OutOfMemoryError: CUDA out of memory" in run.notes[-1] for run in runs] == [
        False,
        True,
        True,
        True,
    ]


def _agent_opd(path: Path) -> None:
    record = the_run(path)
    for column in (record.column("reward"), "critic/rewards/mean", "response_length/mean"):
        missing = record.steps.filter(record.steps[column].is_null())["step"].to_list()
        assert missing == list(range(10, 231, 10))
    assert 0.0 not in values(record)
    assert any("23 rows were cut off" in note for note in record.notes)
    assert not any("no number" in note or "not numbers" in note for note in record.notes)


def _watchdog(path: Path) -> None:
    record = the_run(path)
    assert record.steps["step"].to_list() == list(range(1, 201))
    assert set(
        map(
            len,
            (
                values(record, "rewards/_reward_action/mean"),
                values(record, "completions/clipped_ratio"),
            ),
        )
    ) == {200}
    assert {name.partition("/")[0] for name in record.metrics() if "/" in name} == {
        "completions",
        "rewards",
        "clip_ratio",
    }


def _easy_standard(path: Path) -> None:
    record = the_run(path)
    assert record.steps["step"].to_list() == list(range(5, 1001, 5))
    assert record.config.value("scale_rewards") == "group"
    assert {"reward/format_reward_func_qa", "reward/correctness_reward_func_qa"} <= {
        meaning.quantity for meaning in record.meanings
    }


def _minimind(path: Path) -> None:
    record = the_run(path)
    assert record.steps["step"].to_list() == list(range(1, 9752))
    assert record.column("reward") == "Reward"
    assert record.column("kl") == "KL_ref"
    assert min(values(record, "KL_ref")) < 0
    assert set(record.metrics()) - {
        "test_index"
    } == {  # the last is a line of code in a completion behind "step 2"
        "Reward",
        "KL_ref",
        "Adv Std",
        "Adv Mean",
        "Actor Loss",
        "Avg Response Len",
        "Learning Rate",
    }


def _yuxuan(path: Path) -> None:
    assert {meaning.column: meaning.quantity for meaning in the_run(path).meanings} == {
        "rewards_avg": "reward",
        "kl_avg": "kl",
    }


def _autoresearch(path: Path) -> None:
    record = the_run(path)
    assert any("9 rows before it are left out" in note for note in record.notes)
    assert [run["rewards/std"] == 0 for run in record.steps.to_dicts()] == [
        run["skipped"] == 1 for run in record.steps.to_dicts()
    ]
    assert np.mean(np.array(values(record, "skipped"))) == pytest.approx(0.82, abs=0.02)


def _statsafety(path: Path) -> None:
    record = the_run(path)
    assert record.steps["step"].to_list() == list(range(1, 159))
    assert record.column("completion_length") == "completion_length"
    assert {meaning.column: meaning.quantity for meaning in record.meanings}[
        "rewards / check_answer"
    ] == "reward/check_answer"


def _physicsrl(path: Path) -> None:
    record = the_run(path)
    assert record.steps["step"][-1] == 2650
    assert np.mean(np.array(values(record, "grad_norm")) == 0) == pytest.approx(0.57, abs=0.005)


def _saferank(path: Path) -> None:
    record = the_run(path)
    parts = [record.steps[f"rewards/pos_{place}/mean"].to_numpy() for place in range(1, 21)]
    assert np.allclose(np.mean(parts, axis=0), values(record), atol=1e-7)
    assert record.column("reward") == "reward"
    assert min(values(record)) < 0


def _sft(path: Path) -> None:
    assert (
        "which has no reward and looks like fine-tuning (train/loss, train/lr(1e-3), "
        "train/time(s), ...)"
    ) in refusal(path)


def _swift(path: Path) -> None:
    assert (
        "which has no reward and looks like fine-tuning (loss, grad_norm, learning_rate, ...)"
        in refusal(path)
    )


def _profiled(path: Path) -> None:
    assert (
        "which has no reward and looks like profiling data from before the first update of a run"
        in refusal(path)
    )


def _stopped(path: Path) -> None:
    text = (
        r"expected rows .* got none in .* the run stopped with OutOfMemoryError: CUDA out of memory "
        r"\(trainer/utils.py, line 1496\)"
    )
    assert re.fullmatch(text, refusal(path))


FINDINGS: dict[str, Callable[[Path], None]] = {
    "cotcompress__runpod_50_steps__run.log": _cotcompress,
    "agent_opd__cr3q4lay.output.log": _agent_opd,
    "agent_opd__run-dq9a4cex.wandb": _sft,
    "watchdog__output1.txt": _watchdog,
    "grponorm__final3_difficulty__easy_standard.log": _easy_standard,
    "minimind__grpo.log": _minimind,
    "yuxuan__grpo_metrics.json": _yuxuan,
    "autoresearch__grpo_log.jsonl": _autoresearch,
    "statsafety__GRPO-guide.ipynb": _statsafety,
    "deepclima__logging.jsonl": _swift,
    "fairrlvr__run-uqd89a8t.wandb": _profiled,
    "grponorm__final2_difficulty__easy_batch_std.log": _stopped,
    "physicsrl__GRPO5_training_metrics.json": _physicsrl,
    "saferank__lora_train.log": _saferank,
}


@pytest.mark.parametrize("file", FINDINGS)
def test_a_public_log_is_read_as_its_facts_say(shared_data: Path, file: str) -> None:
    folder = shared_data / "hard" / "formats"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    with (folder / "FACTS.tsv").open() as table:
        facts = {row["file"]: row for row in csv.DictReader(table, delimiter="\t")}
    assert set(facts) == set(FINDINGS)
    fact = facts[file]
    FINDINGS[file](folder / file)
    if fact["reward_key"] == "none":
        return
    runs = the_runs(folder / file)
    (columns,) = {run.column("reward") for run in runs}
    assert columns in (fact["reward_key"], "rewards")  # a list of rewards is their mean
    rows = sum(len(values(run)) for run in runs)
    aside = sum(
        int(match[1])
        for run in runs
        for note in run.notes
        if (match := re.search(r"(\d+) rows before it are left out", note))
    )
    assert rows + aside in [int(number) for number in re.findall(r"\d+", fact["rows"])]
    first = FIRST.get(file, fact["first_reward"])
    assert aside or rounds_to(values(runs[0])[0], first)
    assert not fact["last_reward"] or rounds_to(values(runs[-1])[-1], fact["last_reward"])
    stated = re.match(r"\d+", fact["group_size"])
    sizes = {run.config.value("group_size") for run in runs}
    assert sizes == ({int(stated[0])} if stated and file in TOLD else {None})


# Rules, each on a text of its own


@each_case("encoding", ["utf-16-le", "utf-16-be"])
@each_case("name", ["a.csv", "a.log"])
def test_utf_16_without_a_mark(tmp_path: Path, encoding: str, name: str) -> None:
    rows = {
        "a.csv": ["step,reward", *(f"{t},{r}" for t, r in enumerate(REWARD, 1))],
        "a.log": [f"step:{t} - critic/score/mean:{r}" for t, r in enumerate(REWARD, 1)],
    }
    assert (
        values(opened(tmp_path, name, ("\r\n".join(rows[name]) + "\r\n").encode(encoding)))
        == REWARD
    )


@pytest.mark.parametrize("width", [61, 80, 100])
def test_rows_that_a_terminal_wrapped_are_joined(tmp_path: Path, width: int) -> None:
    rows = [
        (
            f"{{'loss': {-r}, 'grad_norm': 0.7, 'rewards/judge_of_style/mean': {r / 2}, 'reward': "
            f"{r}, 'epoch': 0.1}}"
        )
        for r in REWARD
    ]
    record = opened(
        tmp_path, "a.txt", wrapped("Loading model\n" + "\n".join(rows) + "\ndone\n", width)
    )
    assert values(record) == REWARD
    assert values(record, "rewards/judge_of_style/mean") == [r / 2 for r in REWARD]
    assert set(record.metrics()) == {
        "loss",
        "grad_norm",
        "rewards/judge_of_style/mean",
        "reward",
        "epoch",
    }


def test_two_halves_of_two_rows_are_no_wrapped_row(tmp_path: Path) -> None:
    rows = [f"{{'loss': {-r}, 'grad_norm': 0.7, 'reward': {r}, 'epoch': 0.1}}\n" for r in REWARD]
    record = opened(
        tmp_path, "a.txt", "".join([*rows[:6], rows[6][:20] + "\n", rows[7][25:], *rows[8:]])
    )
    assert values(record) == REWARD[:6] + REWARD[8:]


@pytest.mark.parametrize("trainer", ["verl", "trl"])
def test_what_is_cut_off_with_its_line_is_missing(tmp_path: Path, trainer: str) -> None:
    means = [f"quantity_{number}/mean" for number in range(90)]
    if trainer == "verl":
        rows = [
            f"step:{t} - critic/score/mean:{r}"
            + "".join(f" - {key}:np.float64(0.125)" for key in means)
            for t, r in enumerate(REWARD, 1)
        ]
    else:
        rows = [
            f"{{'loss': 0.5, 'reward': {r}{''.join(f', {key!r}: 0.125' for key in means)}}}"
            for r in REWARD
        ]
    rows[4] = rows[4][:1024]
    record = opened(tmp_path, "a.log", "\n".join(rows) + "\n")
    assert values(record) == REWARD
    assert any("1 row was cut off at the end of a line" in note for note in record.notes)
    assert {value for key in means for value in record.steps[key].to_list()} == {0.125, None}
    assert set(record.metrics()) - set(means) <= {"loss", "reward", "critic/score/mean"}


@each_case(
    "cell", ["np.float64({})", "np.float32({})", "tensor({})", "tensor({}, device='cuda:0')"]
)
def test_numbers_within_what_numpy_and_pytorch_print(tmp_path: Path, cell: str) -> None:
    texts = [cell.format(r) for r in REWARD]
    table = "step;reward\n" + "".join(f"{t};{r}\n" for t, r in enumerate(texts, 1))
    assert values(opened(tmp_path, "a.csv", table)) == REWARD
    assert (
        values(
            opened(
                tmp_path,
                "a.jsonl",
                "".join(
                    json.dumps({"step": t, "reward": r}) + "\n" for t, r in enumerate(texts, 1)
                ),
            )
        )
        == REWARD
    )
    assert (
        values(
            opened(
                tmp_path,
                "a.log",
                "".join(f"Step {t}/12 | reward={r} | loss=0.5\n" for t, r in enumerate(texts, 1)),
            )
        )
        == REWARD
    )


def test_a_step_in_front_of_a_dictionary_is_its_step(tmp_path: Path) -> None:
    text = "".join(
        f"Iteration {5 * t}: {{'reward': {r}, 'loss': 0.5}}\n" for t, r in enumerate(REWARD, 1)
    )
    assert opened(tmp_path, "a.log", text).steps["step"].to_list() == list(range(5, 65, 5))


def _verl(pid: int, first: int, last: int, scale: float = 1.0) -> str:
    return "".join(
        f"(Runner pid={pid}) step:{t} - critic/score/mean:{scale * t}\n"
        for t in range(first, last + 1)
    )


def test_processes_that_start_over_are_several_runs(tmp_path: Path) -> None:
    dump = "(Runner pid={0}) {{'actor_rollout_ref': {{'actor': {{'optim': {{'lr': {1}}}}}}}\n"
    crash = (
        'Traceback (most recent call last):\n  File "/home/me/verify.py", line 9, in '
        "check\nKeyError: 'answer'\n"
    )
    text = (
        dump.format(71, 1e-5)
        + _verl(71, 1, 7)
        + crash
        + dump.format(93, 3e-6)
        + _verl(93, 1, 9, 2.0)
    )
    with pytest.raises(SeveralRunsError, match=r"holds 2 runs: add one of #71, #93 to the path"):
        opened(tmp_path, "a.log", text)
    first, second = run_records(tmp_path / "a.log")
    assert (values(first), values(second)) == (
        [float(t) for t in range(1, 8)],
        [2.0 * t for t in range(1, 10)],
    )
    assert [run.config.value("learning_rate") for run in (first, second)] == [1e-5, 3e-6]
    says("readers/formats/1", first.notes[-1])
    assert not any("traceback" in note for note in second.notes)


def test_a_process_that_goes_on_from_a_checkpoint_is_the_same_run(tmp_path: Path) -> None:
    record = opened(tmp_path, "a.log", _verl(71, 1, 9) + _verl(93, 6, 14))
    assert record.steps["step"].to_list() == list(range(1, 15))
    assert any("restarted 1 time" in note for note in record.notes)


CRASH = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/loop.py", line 40, in <module>
[rank0]:     main()
[rank0]:   File "/home/me/rewards/unit_tests.py", line 17, in grade
[rank0]:     raise NotImplementedError("no tests for 'sorting'. Write some")
[rank0]: NotImplementedError: no tests for 'sorting'. Write some
"""
THREAD = (
    'Exception in thread Sender:\nTraceback (most recent call last):\n  File "/s.py", line 3, in '
    "run\nBrokenPipeError: 32\n"
)
QUOTED = "NotImplementedError: no tests for 'sorting' (rewards/unit_tests.py, line 17)"


@pytest.mark.parametrize("name", ["a.log", "a.err", "slurm-7"])
def test_a_crash_without_rows_is_quoted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("Loading\n" + CRASH + THREAD)
    with pytest.raises(NothingYetError, match=re.escape(QUOTED)):
        run_record(tmp_path / name)


def test_a_crash_behind_the_last_row_is_a_note_and_one_before_a_row_is_none(tmp_path: Path) -> None:
    rows = [f"Step {t}/99 | reward={r} | loss=0.5\n" for t, r in enumerate(REWARD, 1)]
    says(
        "readers/formats/2",
        opened(tmp_path, "a.log", "".join(rows) + CRASH).notes[-1],
        quoted=QUOTED,
    )
    assert not any(
        "traceback" in note
        for note in opened(tmp_path, "b.log", CRASH + "".join(rows) + THREAD).notes
    )


def test_a_crash_beside_the_log_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text(CRASH)
    with pytest.raises(NothingYetError, match=re.escape(QUOTED)):
        run_record(tmp_path)
    (tmp_path / "metrics.csv").write_text(
        "step,reward\n" + "".join(f"{t},{r}\n" for t, r in enumerate(REWARD, 1))
    )
    says("readers/formats/3", run_record(tmp_path).notes[-1], quoted=QUOTED)


LONG = [
    (t, key, value)
    for t, r in enumerate(REWARD, 1)
    for key, value in (("kl", t / 64), ("reward/mean", r))
]
COLUMNS = {"reward": REWARD, "kl": [t / 64 for t in range(1, T + 1)]}
LAYOUTS = {
    "a long table": [{"iteration": t, "tag": key, "scalar": value} for t, key, value in LONG],
    "points of metrics": {
        key: [{"step": t, "value": v} for t, v in enumerate(column, 1)]
        for key, column in COLUMNS.items()
    },
    "pairs of metrics": {
        key: [[t, v] for t, v in enumerate(column, 1)] for key, column in COLUMNS.items()
    },
    "triples of metrics": {
        key: [[1.7e9 + t, t, v] for t, v in enumerate(column, 1)] for key, column in COLUMNS.items()
    },
    "rows below steps": {
        "runtime": 3,
        "steps": [{"step": t, "reward": r} for t, r in enumerate(REWARD, 1)],
    },
    "entries below steps": {"steps": {str(t): {"reward": r} for t, r in enumerate(REWARD, 1)}},
    "steps beside columns": {"steps": list(range(1, T + 1)), "metrics": COLUMNS},
    "steps and evals": {
        "history": {
            "steps": [{"step": t, "reward": r} for t, r in enumerate(REWARD, 1)],
            "evals": [{"step": 6, "acc": 0.5}, {"step": 12, "acc": 0.75}],
        }
    },
    "columns of two kinds": {
        "train": {"step": list(range(1, T + 1)), **COLUMNS},
        "eval": {"step": [6, 12], "score": [0.5, 0.75]},
    },
    "a table split by pandas": {
        "columns": ["step", "reward"],
        "index": list(range(T)),
        "data": [[t, r] for t, r in enumerate(REWARD, 1)],
    },
    "columns by row": {
        key: {str(row): value for row, value in enumerate(column)}
        for key, column in COLUMNS.items()
    },
    "columns of texts": {"reward": [str(r) for r in REWARD], "step": list(range(1, T + 1))},
    "cells below a header": [["step", "reward"], *([t, r] for t, r in enumerate(REWARD, 1))],
}


@each_case("layout", LAYOUTS)
def test_json_of_every_layout(tmp_path: Path, layout: str) -> None:
    record = opened(tmp_path, "a.json", json.dumps(LAYOUTS[layout]))
    assert values(record) == REWARD
    assert record.steps["step"].to_list() == list(range(1, T + 1))


def test_columns_on_one_line_of_json(tmp_path: Path) -> None:
    assert values(opened(tmp_path, "a.jsonl", json.dumps(COLUMNS))) == REWARD


def test_a_first_reward_of_null_is_missing(tmp_path: Path) -> None:
    rows = [{"step": t, "reward": None if t == 1 else r} for t, r in enumerate(REWARD, 1)]
    assert opened(tmp_path, "a.json", json.dumps(rows)).steps["reward"].to_list() == [
        None,
        *REWARD[1:],
    ]
    assert opened(tmp_path, "b.json", json.dumps(dict(COLUMNS, reward=[None, *REWARD[1:]]))).steps[
        "reward"
    ].to_list() == [
        None,
        *REWARD[1:],
    ]


def test_a_list_of_rewards_tells_spread_and_size_of_its_group(tmp_path: Path) -> None:
    rows = [
        {
            "step": t,
            "ground_truth": "7",
            "loss": 0.5,
            "mean_reward": 0.5,
            "rewards": [0.0, 0.5, 1.0] if t % 3 else [1.0] * 3,
        }
        for t in range(1, T + 1)
    ]
    record = opened(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert record.config.value("group_size") == 3
    assert record.steps["rewards/std"].to_list() == [0.5, 0.5, 0.0] * 4
    assert {meaning.quantity for meaning in record.meanings} == {
        "reward",
        "reward_std_ambiguous",
        "loss",
    }


def test_what_lies_below_one_sample_of_a_step_is_no_row(tmp_path: Path) -> None:
    text = "".join(
        f"({t}/12), Reward: {r}\n[DEBUG] step={t}, sample[0]\nreward=-7.5\nx = 3\n"
        for t, r in enumerate(REWARD, 1)
    )
    record = opened(tmp_path, "a.log", text)
    assert values(record) == REWARD
    assert set(record.metrics()) == {"Reward"}


def test_arguments_that_python_prints_are_settings(tmp_path: Path) -> None:
    head = (
        "Arguments: Namespace(data='x', num_generations=6, learning_rate=2e-06)\nscale_rewards "
        "setting: batch\n"
    )
    record = opened(
        tmp_path, "a.log", head + "".join(f"{{'loss': 0.5, 'reward': {r}}}\n" for r in REWARD)
    )
    assert (record.config.value("group_size"), record.config.value("scale_rewards")) == (6, "batch")


OTHERS = {
    "fine-tuning": {"train/loss": 0.5, "train/lr": 1e-5, "val/perplexity": 3.0},
    "fine-tuning ": {
        "loss": 0.5,
        "grad_norm": 0.7,
        "mean_token_accuracy": 0.6,
        "eval_token_acc": 0.5,
    },
    "preference training, such as DPO": {
        "loss": 0.5,
        "rewards/chosen": 0.25,
        "rewards/rejected": -0.5,
        "rewards/margins": 0.75,
    },
    "the training of a reward model": {
        "loss": 0.5,
        "min_reward": -2.0,
        "mean_reward": 0.1,
        "max_reward": 3.0,
        "margin": 1.5,
    },
    "profiling": {"profiling/step": 0.5, "gpu0/memory": 3.0, "timing_s/gen": 2.0},
    "profiling ": {"profiling/step": 0.5, "gpu_mem": 30.1},
    "pre-training": {
        "lm loss": 3.5,
        "consumed samples": 256.0,
        "grad norm": 1.5,
        "learning rate": 1e-4,
    },
    "pre-training ": {"loss": 3.5, "mfu": 0.5, "time": 2.0},
    "supervised training": {"loss": 0.5, "accuracy": 0.75, "val_loss": 0.625, "val_accuracy": 0.5},
    "supervised training ": {
        "loss": 0.5,
        "eval_loss": 0.625,
        "eval_accuracy": 0.5,
        "eval_f1": 0.25,
        "eval_runtime": 3.0,
    },
    "distillation": {"loss": 0.5, "kd_loss": 0.25, "ce_loss": 0.25, "teacher_kl": 0.125},
    "supervised training  ": {
        "train/box_loss": 0.5,
        "val/box_loss": 0.625,
        "metrics/precision(B)": 0.5,
        "metrics/mAP50-95(B)": 0.25,
    },
    "profiling  ": {"utilization.gpu [%]": 90.0, "memory.used [MiB]": 30.0, "power.draw [W]": 3.0},
    "Q-learning, such as DQN": {"rollout/ep_rew_mean": 20.0, "rollout/exploration_rate": 0.5},
    "episodes of another kind of reinforcement learning": {"r": 20.0, "l": 20.0},
    "an evaluation": {"acc,none": 0.5, "acc_stderr,none": 0.01},
    "a profiler's trace": {"ts": 100.0, "dur": 3.0, "pid": 0.0, "tid": 7.0},
}


@each_case("kind", OTHERS)
def test_a_log_of_another_program_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"step": t} | OTHERS[kind]) + "\n" for t in range(1, T + 1))
    )
    assert f"which has no reward and looks like {kind.strip()} (" in refusal(tmp_path / "a.jsonl")
    assert (
        run_record(tmp_path / "a.jsonl", columns={"reward": next(iter(OTHERS[kind]))}).steps.height
        == T
    )


@each_case(
    "more",
    [
        {"kl": 0.01},
        {"completion_length": 90.0},
        {"my_reward_a": 0.5},
        {"clip_ratio": 0.25},
        {"accuracy": 0.5},
        {"accuracy": 0.5, "val_loss": 0.5, "kl": 0.01},
        {"accuracy": 0.5, "val_accuracy": 0.5},
    ],
)
def test_a_log_of_reinforcement_learning_is_let_through(
    tmp_path: Path, more: dict[str, float]
) -> None:
    assert opened(
        tmp_path,
        "a.jsonl",
        "".join(json.dumps({"step": t, "loss": 0.5} | more) + "\n" for t in range(1, T + 1)),
    ).metrics()


def test_what_an_engine_or_a_monitor_writes_of_itself_is_refused_by_name(tmp_path: Path) -> None:
    engine = "INFO 11-24 [loggers.py:116] Avg generation throughput: 91.3 tokens/s, Running: 7 reqs"
    (tmp_path / "a.log").write_text(f"{engine}\n" * T)
    assert ("got the output of an inference server, which has no reward, in ") in refusal(
        tmp_path / "a.log"
    )
    monitor = '#{"t_start": 1.5, "env_id": "CartPole-v1"}\nr,l,t\n' + "20.0,20,1.5\n" * T
    (tmp_path / "a.monitor.csv").write_text(monitor)
    assert "which has no reward and looks like episodes of another kind of" in refusal(
        tmp_path / "a.monitor.csv"
    )


def test_a_trace_of_a_profiler_is_refused_by_name(tmp_path: Path) -> None:
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": f"k{at % 7}",
            "pid": 0,
            "tid": 7,
            "ts": 1000 + at,
            "dur": 3,
        }
        for at in range(500)
    ]
    for name, whole in (
        ("trace.json", {"schemaVersion": 1, "traceEvents": events}),
        ("list.json", events),
    ):
        (tmp_path / name).write_text(json.dumps(whole))
        assert (
            "which has no reward and looks like a profiler's trace (pid, tid, ts, ...)"
            in refusal(tmp_path / name)
        )


@each_case(
    "key", ["rollout/ep_rew_mean", "charts/episodic_return", "episode_reward_mean", "ep_ret_mean"]
)
def test_the_return_of_an_episode_is_a_reward(tmp_path: Path, key: str) -> None:
    """As stable-baselines3, CleanRL, RLlib and Spinning Up name it."""
    record = opened(
        tmp_path,
        "progress.csv",
        f"{key},train/loss,time/iterations\n"
        + "".join(f"{20 + t},0.5,{t}\n" for t in range(1, T + 1)),
    )
    assert record.column("reward") == key


TABLE = {
    "reward_std": "reward_std_within_group",
    "completion_length": "completion_length",
    "clipped_ratio": "truncated_share",
    "budget_hit_rate": "truncated_share",
    "rewards / tests / mean": "reward/tests",
    "kl": "kl",
}


@pytest.mark.parametrize("name", ["a.ipynb", "a.csv", "a.jsonl"])
def test_one_table_of_names_feeds_notebooks_and_tables(tmp_path: Path, name: str) -> None:
    head = ["Step", "Training Loss", "reward", *TABLE]
    rows: list[list[object]] = [[t, 0.5, 0.25, *(0.125 for _ in TABLE)] for t in range(1, T + 1)]
    table: list[list[object]] = [[*head], *rows]
    html = (
        "<table>"
        + "".join(
            "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in table
        )
        + "</table>"
    )
    content = {
        "a.ipynb": json.dumps(
            {"nbformat": 4, "cells": [{"source": "", "outputs": [{"data": {"text/html": html}}]}]}
        ),
        "a.csv": "\n".join(",".join(map(str, cells)) for cells in table) + "\n",
        "a.jsonl": "".join(
            json.dumps(dict(zip(head, cells, strict=True))) + "\n" for cells in rows
        ),
    }
    meanings = {
        meaning.column: meaning.quantity
        for meaning in opened(tmp_path, name, content[name]).meanings
    }
    assert {key: meanings.get(key) for key in TABLE} == TABLE


def test_a_hostile_line_takes_linear_time(tmp_path: Path) -> None:
    lines = [
        "Loading",
        "{'a" * 50_000,
        'Traceback (most recent call last)\n  File "' + "x" * 200_000,
        "A." * 100_000,
        "step " * 50_000,
        "{'reward': " + "np.float64(" * 20_000,
    ]
    with pytest.raises(NothingYetError, match=r"got none"):
        opened(tmp_path, "a.log", "\n".join(lines) + "\n")
