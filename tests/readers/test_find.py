"""The runs below a folder: what is one run, what is several, and what belongs to a run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says
from tests.readers.writers import event_file, tinker_folder, wandb_file

from groupwise.errors import UnreadableRunError
from groupwise.readers import READERS, best_reader, run_record
from groupwise.readers.find import runs_below
from groupwise.record.run import RunRecord
from groupwise.record.table import steps_table


def log(path: Path, rows: int = 12) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(json.dumps({"step": step, "reward": 0.5}) + "\n" for step in range(rows))
    )
    return path


def saved(path: Path) -> Path:
    return RunRecord(path.name, steps_table(range(12), {"reward": [0.5] * 12})).save(path)


def dump(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    row = {"input": "1+1=", "output": "2", "score": 1.0, "step": 1}
    path.write_text(f"{json.dumps(row)}\n" * 8)
    return path


def names(home: Path) -> list[str]:
    return [run.relative_to(home).as_posix() for run in runs_below(home)]


def test_hundreds_of_runs_in_one_folder_are_all_found_and_opened_as_one_are_refused_with_their_number(
    tmp_path: Path,
) -> None:
    for run in range(300):
        log(tmp_path / f"{run:04d}.jsonl", 2)
    assert len(runs_below(tmp_path)) == 300
    with pytest.raises(
        UnreadableRunError,
        match=r"holds 200 or more .*: give the path of one run, or use groupwise fleet",
    ):
        run_record(tmp_path)


def test_runs_of_every_form_are_found_at_every_depth(tmp_path: Path) -> None:
    saved(tmp_path / "a" / "record")
    log(tmp_path / "b" / "seed0" / "log.jsonl")
    log(tmp_path / "b" / "seed1" / "log.jsonl")
    log(tmp_path / "c.jsonl")
    log(tmp_path / "d.jsonl")
    assert names(tmp_path) == ["a/record", "b/seed0", "b/seed1", "c.jsonl", "d.jsonl"]


def test_a_folder_with_one_log_is_a_run_with_its_rollouts_empty_logs_and_what_its_tracker_wrote(
    tmp_path: Path,
) -> None:
    log(tmp_path / "a" / "log.jsonl")
    (tmp_path / "a" / "config.json").write_text("{}")
    (tmp_path / "a" / "stderr.log").touch()
    dump(tmp_path / "a" / "rollouts" / "1.jsonl")
    log(tmp_path / "a" / "tracker" / "copy.csv.jsonl")
    saved(tmp_path / "b")
    assert names(tmp_path) == ["a", "b"]


def test_a_store_of_mlflow_is_its_runs(tmp_path: Path) -> None:
    for run in ("a", "b"):
        home = tmp_path / "mlruns" / "0" / run
        (home / "metrics").mkdir(parents=True)
        (home / "metrics" / "reward").write_text(
            "".join(f"{step} 0.5 {step}\n" for step in range(12))
        )
        (home / "meta.yaml").write_text(f"run_name: {run}\n")
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("name: Default\n")
    assert names(tmp_path) == ["mlruns/0/a", "mlruns/0/b"]


def test_rollouts_alone_are_a_run_and_beside_one_they_belong_to_it(tmp_path: Path) -> None:
    dump(tmp_path / "a" / "rollouts" / "1.jsonl")
    dump(tmp_path / "b" / "rollouts" / "1.jsonl")
    saved(tmp_path / "b" / "record")
    assert names(tmp_path) == ["a", "b/record"]


def test_a_folder_of_folders_is_no_run_because_one_of_them_holds_rollouts(tmp_path: Path) -> None:
    dump(tmp_path / "rollouts" / "step_1" / "train" / "all" / "traces.jsonl")
    assert names(tmp_path) == ["."]
    log(tmp_path / "a" / "log.jsonl")
    log(tmp_path / "b" / "log.jsonl")
    assert names(tmp_path) == ["a", "b"]
    log(tmp_path / "log.jsonl")
    assert names(tmp_path) == ["a", "b", "log.jsonl"]


def test_an_empty_log_is_a_run_where_nothing_else_is(tmp_path: Path) -> None:
    log(tmp_path / "a" / "log.jsonl")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "log.jsonl").touch()
    assert names(tmp_path) == ["a", "b/log.jsonl"]


def test_links_are_not_followed_into_folders_and_a_file_with_two_names_is_one_run(
    tmp_path: Path,
) -> None:
    log(tmp_path / "runs" / "a" / "log.jsonl")
    log(tmp_path / "runs" / "b" / "log.jsonl")
    (tmp_path / "runs" / "latest").symlink_to(tmp_path / "runs" / "b", target_is_directory=True)
    (tmp_path / "runs" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "runs" / "b" / "a_link.jsonl").symlink_to(tmp_path / "runs" / "b" / "log.jsonl")
    (tmp_path / "runs" / "broken.jsonl").symlink_to(tmp_path / "nowhere")
    saved(tmp_path / "runs" / ".hidden")
    assert names(tmp_path / "runs") == ["a", "b"]


def test_a_table_beside_many_runs_is_one_more_of_them(tmp_path: Path) -> None:
    log(tmp_path / "all.jsonl")
    saved(tmp_path / "a")
    saved(tmp_path / "b")
    assert names(tmp_path) == ["a", "all.jsonl", "b"]


def test_a_path_without_a_run_stands_for_itself(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here")
    assert runs_below(tmp_path) == [tmp_path]
    assert runs_below(tmp_path / "missing") == [tmp_path / "missing"]


def test_in_the_folder_that_was_asked_for_a_broken_log_beside_run_folders_is_not_passed_over(
    tmp_path: Path,
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text(
            "".join(f'{{"step": {step}, "reward": 0.5}}\n' for step in range(9))
        )
        (tmp_path / name / "rest.log").touch()  # beside a run it is the run's own
    (tmp_path / "empty.jsonl").touch()
    assert [path.name for path in runs_below(tmp_path)] == ["a", "b", "empty.jsonl"]


def test_a_link_to_the_only_run_is_no_second_run(tmp_path: Path) -> None:
    log(tmp_path / "run-1" / "metrics.jsonl")
    (tmp_path / "latest-run").symlink_to("run-1")
    assert run_record(tmp_path).steps.height == 12


def test_what_wandb_writes_of_itself_is_no_run_and_a_log_of_debugging_is(tmp_path: Path) -> None:
    """As W&B 0.31 leaves its folder."""
    run = tmp_path / "wandb" / "offline-run-20261129_163301-abc"
    wandb_file(run / "run-abc.wandb", [{"train/reward": 0.5, "_step": at} for at in range(12)], {})
    said = "".join(f'{{"time":"2026","level":"INFO","msg":"{at}","pid":{at}}}\n' for at in range(9))
    (run / "logs").mkdir()
    for name in ("debug-core.log", "debug-internal.log"):
        (run / "logs" / name).write_text(said)
    (run.parent / "debug-internal.log").symlink_to(f"{run.name}/logs/debug-internal.log")
    (run.parent / "latest-run").symlink_to(run.name)
    for place in (tmp_path, run.parent, run):
        assert names(place)[0].split("/")[-1] in (run.name, ".")
        assert run_record(place).sources[0].reader == "wandb"
    log(tmp_path / "mine" / "debug_run.jsonl")
    assert len(run_record(tmp_path / "mine").steps) == 12


def test_what_a_run_printed_beside_its_table_is_no_second_run(tmp_path: Path) -> None:
    rows = [
        {"optim/lr": 1e-5, "optim/entropy": 0.5, "env/all/reward/total": 0.3 + step / 64}
        for step in range(12)
    ]
    home = tinker_folder(tmp_path / "runs" / "tinker", rows)
    record = run_record(home)
    assert record.steps[record.column("reward")].to_list() == [
        row["env/all/reward/total"] for row in rows
    ]
    says("readers/find/1", record.notes[-1])
    assert record.config.value("group_size") == 8
    assert names(tmp_path) == ["runs/tinker"]
    (home / "logs.log").write_text(
        "".join(f"Step {step} | loss=0.1 | reward=0.5 | kl=0.01\n" for step in range(12))
    )
    with pytest.raises(UnreadableRunError, match=r"holds 2 \(logs.log, metrics.jsonl\)"):
        run_record(home)


def test_a_run_folder_beside_logs_of_others_is_one_of_several(tmp_path: Path) -> None:
    """Whether the others lie in a folder that no reader takes, or beside rollouts."""
    saved(tmp_path / "good")
    assert run_record(tmp_path).name == "good"
    log(tmp_path / "many" / "a.jsonl")
    with pytest.raises(
        UnreadableRunError, match=r"one run, .* holds 2 \(good, many/a.jsonl\): give"
    ):
        run_record(tmp_path)
    log(tmp_path / "many" / "b.jsonl")
    with pytest.raises(UnreadableRunError, match=r"3 \(good, many/a.jsonl, many/b.jsonl\): give"):
        run_record(tmp_path)
    shutil.move(tmp_path / "good", tmp_path.with_name("away"))
    dump(tmp_path / "rollouts" / "1.jsonl")
    with pytest.raises(UnreadableRunError, match=r"holds 2 \(many/a.jsonl, many/b.jsonl\): give"):
        run_record(tmp_path)


def test_a_run_folder_beside_one_log_is_read_and_the_log_is_named(tmp_path: Path) -> None:
    """What a script printed lies beside what its trainer saved."""
    saved(tmp_path / "good")
    dump(tmp_path / "rollouts" / "1.jsonl")
    assert run_record(tmp_path).notes == ()
    log(tmp_path / "train.jsonl")
    record = run_record(tmp_path)
    assert record.name == "good"
    says("readers/find/2", record.notes[-1])


def drawn(seed: int) -> list[dict[str, float]]:
    values = np.random.default_rng(seed).random((30, 3)).tolist()
    return [
        {"step": at, "reward": reward, "loss": loss, "kl": kl}
        for at, (reward, loss, kl) in enumerate(values)
    ]


def written(path: Path, seed: int, rows: int = 30) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in drawn(seed)[:rows]))
    return path


def test_a_log_of_the_same_format_below_a_log_is_another_run(tmp_path: Path) -> None:
    """As a restart under another name leaves it."""
    written(tmp_path / "first.jsonl", 1)
    written(tmp_path / "attempt2" / "second.jsonl", 2)
    assert names(tmp_path) == ["attempt2", "first.jsonl"]
    dump(tmp_path / "rollouts" / "1.jsonl")
    assert names(tmp_path) == ["attempt2", "first.jsonl"]


@each_case("inner", ["checkpoint-10", "evals", "tracker", "data", "timing", "saved", "console"])
def test_what_belongs_to_a_log_is_no_other_run(inner: str, tmp_path: Path) -> None:
    """A checkpoint's and an evaluation's log, a copy that ended sooner, tables without a reward,
    the callback's record, and another format.
    """
    written(tmp_path / "run.jsonl", 1)
    folder = tmp_path / inner
    if inner in ("data", "timing"):
        row = {"prompt": "1+1="} if inner == "data" else {"step": 1, "loss": 0.5, "step_time": 3.2}
        log(folder / "train.jsonl").write_text(f"{json.dumps(row)}\n" * 20)
    elif inner == "saved":
        columns = {name: [0.5] * 12 for name in ("reward", "loss", "kl")}
        RunRecord(inner, steps_table(range(12), columns)).save(folder)
    elif inner == "console":
        folder.mkdir()
        lines = (f"{ {**row} }\n" for row in drawn(2))
        (folder / "train.log").write_text("".join(lines))
    else:
        written(folder / "log.jsonl", *((1, 20) if inner == "tracker" else (2,)))
    assert names(tmp_path) == ["."]


def test_event_files_below_event_files_are_another_run_where_they_hold_its_quantities(
    tmp_path: Path,
) -> None:
    """A curve that is drawn beside others has a folder of its own, with nothing else."""
    name = "events.out.tfevents.1764500000.host"
    event_file(tmp_path / name, drawn(1))
    for curve in ("reward_mean", "reward_best"):
        rows = [{"step": row["step"], "reward": row["reward"]} for row in drawn(2)]
        event_file(tmp_path / curve / name, rows)
    assert names(tmp_path) == ["."]
    event_file(tmp_path / "attempt2" / name, drawn(2))
    assert names(tmp_path) == [".", "attempt2"]


def test_several_logs_below_a_log_are_runs(tmp_path: Path) -> None:
    log(tmp_path / "train.jsonl")
    log(tmp_path / "plots" / "a.jsonl")
    dump(tmp_path / "rollouts" / "1.jsonl")  # which is read
    record = run_record(tmp_path)
    assert record.name == "train.jsonl"
    assert "were left out: plots/a.jsonl" in record.notes[-1]
    shutil.rmtree(tmp_path / "rollouts")
    assert record.rollouts is not None
    shutil.move(tmp_path / "plots", tmp_path / "seeds")
    log(tmp_path / "seeds" / "b.jsonl")
    with pytest.raises(
        UnreadableRunError, match=r"3 \(seeds/a.jsonl, seeds/b.jsonl, train.jsonl\): give"
    ):
        run_record(tmp_path)
    assert len(runs_below(tmp_path)) == 3


@each_case("inner", ["evals", "test_results"])
def test_evaluations_and_rollouts_below_a_log_are_no_runs(inner: str, tmp_path: Path) -> None:
    log(tmp_path / "train.jsonl")
    for name in ("a.jsonl", "b.jsonl"):
        log(tmp_path / inner / name)
        dump(tmp_path / "samples" / "deeper" / name)
    record = run_record(tmp_path)
    assert record.name == "train.jsonl"


def test_prompts_in_a_folder_of_data_beside_a_run_are_no_second_run(tmp_path: Path) -> None:
    saved(tmp_path / "outputs")
    data = tmp_path / "data"
    data.mkdir()
    row = json.dumps({"prompt": "In which step do we add 1?", "answer": "1"})
    (data / "train.jsonl").write_text(f"{row}\n" * 20)
    (data / "test.csv").write_text("question,answer\n1+1=,2\n")
    assert run_record(tmp_path).name == "outputs"
    log(data / "other.jsonl")
    with pytest.raises(UnreadableRunError, match="which holds 2"):
        run_record(tmp_path)


def test_a_state_beside_a_log_is_no_second_run(tmp_path: Path) -> None:
    """As ART 0.5 keeps the sums of its metrics."""
    log(tmp_path / "run" / "history.jsonl")
    sums = {"_metrics_builder_state": {"cum_state": {"data/cum/num_scenarios": 72.0}, "ids": []}}
    (tmp_path / "run" / "state.json").write_text(json.dumps(sums))
    assert run_record(tmp_path / "run").steps.height == 12
    assert names(tmp_path) == ["run"]


def test_rollouts_in_the_folder_of_a_log_are_those_of_its_steps(tmp_path: Path) -> None:
    """As verl dumps them; one of a step that the log lacks is left out, and so are two folders."""
    keys = ("critic/score/mean", "actor/entropy")
    log = [json.dumps({"step": step, "data": dict.fromkeys(keys, 0.5)}) for step in range(1, 41)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(log))
    (tmp_path / "dumped").mkdir()
    for step in (2, 40, 41):
        rows = [
            {"input": "2+2=", "output": str(step + score), "score": score, "step": step}
            for score in (0.0, 1.0)
        ]
        path = tmp_path / "dumped" / f"{step}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
    run = run_record(tmp_path)
    assert run.rollouts is not None
    assert run.steps["step"].to_list() == list(range(1, 41))
    assert run.with_completions(run.rollouts)["completion"].to_list() == [
        "2.0",
        "3.0",
        "40.0",
        "41.0",
    ]
    assert any(note.startswith("4 of 6 rollouts in dumped/") for note in run.notes)
    assert [Path(source.path).name for source in run.sources][:2] == ["metrics.jsonl", "2.jsonl"]
    (tmp_path / "run").mkdir()
    (tmp_path / "metrics.jsonl").rename(tmp_path / "run" / "metrics.jsonl")  # side by side
    beside = run_record(tmp_path)
    assert beside.rollouts is not None
    assert (len(beside.steps), len(beside.rollouts)) == (40, 4)
    shutil.copytree(tmp_path / "dumped", tmp_path / "other")
    several = run_record(tmp_path)
    assert several.rollouts is None
    assert several.unread in several.notes
    assert str(tmp_path / "dumped") in several.unread
    assert str(tmp_path / "other") in several.unread


@each_case("name", ["1.jsonl", "rollouts_1.jsonl", "rollouts.jsonl"])
@each_case("given", ["", "metrics.jsonl"])
def test_rollouts_beside_a_log_are_read_by_its_folder_and_by_its_own_path(
    given: str, name: str, tmp_path: Path
) -> None:
    log(tmp_path / "metrics.jsonl")
    dump(tmp_path / "rollouts" / name)
    dump(tmp_path / "validation" / name)  # of other prompts, at the same steps
    log(tmp_path / "plots" / "loss.jsonl")
    run = run_record(tmp_path / given)
    assert run.rollouts is not None
    assert (len(run.steps), len(run.rollouts), run.unread) == (12, 8, "")


def test_rollouts_beside_several_logs_are_nobodys_and_their_path_is_asked_for(
    tmp_path: Path,
) -> None:
    log(tmp_path / "other.jsonl")
    dump(tmp_path / "rollouts" / "1.jsonl")
    run = run_record(log(tmp_path / "metrics.jsonl"))
    assert run.rollouts is None
    says("readers/find/3", run.unread, folder=tmp_path)
    assert not run_record(log(tmp_path / "run" / "metrics.jsonl")).unread  # theirs lie elsewhere


def test_a_log_is_read_without_dumps_beside_it_that_cannot_be(tmp_path: Path) -> None:
    """Here rewards that are no numbers."""
    log = [json.dumps({"step": step, "reward": 0.5}) for step in range(1, 41)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(log))
    (tmp_path / "dumped").mkdir()
    row = {"input": "2+2=", "output": "4", "score": float("nan"), "step": 1}
    (tmp_path / "dumped" / "1.jsonl").write_text(json.dumps(row))
    run = run_record(tmp_path)
    assert len(run.steps) == 40
    assert run.rollouts is None
    assert any(note.startswith("the rollouts in dumped/ were left out: ") for note in run.notes)


@each_case(
    ("names", "asked"),
    [
        (["metrics.jsonl", "plots.jsonl"], True),
        (["data-1.log"], True),
        (["run-20260101.swanlab", "files"], True),
        (["my_metrics.jsonl", "metrics.jsonl.bak", "trainer_state.json", "data-x.log"], False),
    ],
)
def test_a_folder_asks_only_readers_whose_mark_is_among_its_names(
    names: list[str], asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in names:
        (tmp_path / name).write_text("{}")
    places: list[Path] = []

    def sniff(path: Path) -> float:
        places.append(path)
        return 0.0

    (offline,) = [reader for reader in READERS if reader.name == "offline_folder"]
    monkeypatch.setattr("groupwise.readers.READERS", [replace(offline, sniff=sniff)])
    assert best_reader(tmp_path) is None
    assert places == [tmp_path] * asked


def test_logs_inside_the_checkpoints_of_a_run_are_no_runs(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"step": at, "reward": at / 32}) + "\n" for at in range(30))
    for folder in (tmp_path, tmp_path / "checkpoint-10", tmp_path / "checkpoint-20"):
        folder.mkdir(exist_ok=True)
        (folder / "metrics.jsonl").write_text(rows)
    assert len(run_record(tmp_path).steps) == 30


def test_a_file_that_changed_is_looked_at_anew(tmp_path: Path) -> None:
    names = []
    for text in ("step,reward\n1,0.5\n2,0.6\n", '{"step": 1, "reward": 0.5}\n' * 2):
        (tmp_path / "log.txt").write_text(text)
        reader = best_reader(tmp_path / "log.txt")
        names.append(reader and reader.name)
    assert names == ["csv", "jsonl"]


def test_a_run_that_is_written_in_two_formats_is_one_run(tmp_path: Path) -> None:
    """As Ray Tune does; two seeds in two formats are two, whatever the first row shares."""
    values = np.random.default_rng(3).random((2, 12, 2))
    names, first = ("reward", "kl"), [str(tmp_path / "result.json")]

    def write(seed: int) -> None:
        rows = [dict(zip(names, row, strict=True)) for row in values[seed].tolist()]
        lines = [json.dumps({"training_iteration": at} | row) for at, row in enumerate(rows)]
        (tmp_path / "result.json").write_text("\n".join(lines) + "\n")

    table = [",".join(map(str, [at, *row])) for at, row in enumerate(values[0].tolist())]
    (tmp_path / "progress.csv").write_text("\n".join(["training_iteration,reward,kl", *table]))
    write(0)
    values_of = zip(*values[0].T.tolist(), strict=True)
    rows = [
        {
            "step": at,
            "ray/tune/reward": reward,
            "ray/tune/kl": kl,
            "ray/tune/training_iteration": at,
        }
        for at, (reward, kl) in enumerate(values_of)
    ]
    event_file(tmp_path / "events.out.tfevents.1764500000.host", rows)
    record = run_record(tmp_path)
    assert record.steps["reward"].to_list() == values[0, :, 0].tolist()
    assert record.notes[-1].endswith("tfevents.1764500000.host, progress.csv")
    assert list(map(str, runs_below(tmp_path))) in ([str(tmp_path)], first)
    values[1, 0] = values[0, 0]
    write(1)
    with pytest.raises(UnreadableRunError, match=r"which holds 2 \(progress.csv, result.json\)"):
        run_record(tmp_path)


def test_a_copy_that_lacks_the_reward_or_the_last_rows_takes_no_log_away(tmp_path: Path) -> None:
    values = np.random.default_rng(3).random((60, 2)).round(6).tolist()
    lines = [f"{at},{reward},{kl}" for at, (reward, kl) in enumerate(values)]
    (tmp_path / "train.csv").write_text("\n".join(["step,reward,kl", *lines]) + "\n")
    names = ("m1", "kl")  # of debugging: no reward
    rows = [{"step": at} | dict(zip(names, row, strict=True)) for at, row in enumerate(values)]
    (tmp_path / "zz.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    record = run_record(tmp_path)
    assert record.steps[record.column("reward")].to_list() == [row[0] for row in values]
    rows = [{"step": at, "reward": row[0], "kl": row[1]} for at, row in enumerate(values[:30])]
    (tmp_path / "zz.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [path.name for path in runs_below(tmp_path)] == ["train.csv", "zz.jsonl"]


def test_an_empty_log_below_and_names_like_those_of_evaluations_take_no_run_away(
    tmp_path: Path,
) -> None:
    good = tmp_path / "good"
    log(good / "log.jsonl")
    (good / "run2").mkdir()
    (good / "run2" / "log.jsonl").touch()
    assert runs_below(tmp_path) == [good]
    sweep = tmp_path / "sweep"
    for name in ("log.jsonl", "eval_lr1/log.jsonl", "eval_lr2/log.jsonl"):
        log(sweep / name)
    assert len(runs_below(sweep)) == 3
