"""Files that hold several runs: refused with their list, and opened one by one as FILE#NAME."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.cases import each_case
from tests.readers.writers import event_file

from groupwise.cli.app import main
from groupwise.diagnostics.judge import judge
from groupwise.errors import SeveralRunsError, UnreadableRunError
from groupwise.readers import run_record
from groupwise.readers.find import run_records, runs_below
from groupwise.readers.follow import Follower
from groupwise.record.run import RunRecord

Rows = list[dict[str, Any]]


def csv(path: Path, rows: Rows) -> None:
    path.write_text(
        "".join(
            ",".join(map(str, cells)) + "\n" for cells in (rows[0], *(row.values() for row in rows))
        )
    )


WRITERS: dict[str, Callable[[Path, Rows], object]] = {
    "a.csv": csv,
    "a.jsonl": lambda path, rows: path.write_text("\n".join(map(json.dumps, rows))),
    "a.json": lambda path, rows: path.write_text(json.dumps(rows)),
    "b.json": lambda path, rows: path.write_text(json.dumps({"history": rows})),
    "a.parquet": lambda path, rows: pl.DataFrame(rows).write_parquet(path),
}


def table(column: str, names: list[Any], *, interleaved: bool) -> Rows:
    """Two or more runs of 10 steps; the reward is the step plus a hundred for each run before."""
    pairs = [(step, run) for step in range(1, 11) for run in range(len(names))]
    if not interleaved:
        pairs.sort(key=lambda pair: pair[1])
    return [{column: names[run], "step": step, "reward": 100.0 * run + step} for step, run in pairs]


@pytest.mark.thinned(12)
@pytest.mark.parametrize("interleaved", [False, True], ids=["blocks", "interleaved"])
@pytest.mark.parametrize(
    ("column", "names"),
    [
        ("run", ["a", "b", "c"]),
        ("Label", ["lr=1e-6", "lr=2e-6"]),
        ("run", [0, 1]),
        ("seed", [42, 43]),
        ("Run Name", ["x#1", "y z"]),
        ("run_uuid", ["0a1b", "2c3d"]),
    ],
    ids=["run", "label", "numbers", "seeds", "odd", "uuid"],
)
@pytest.mark.parametrize("file", WRITERS)
def test_each_run_of_a_table(
    tmp_path: Path, file: str, column: str, names: list[Any], interleaved: bool
) -> None:
    path = tmp_path / file
    WRITERS[file](path, table(column, names, interleaved=interleaved))
    listed = ", ".join(f"#{name}" for name in names)
    with pytest.raises(UnreadableRunError) as caught:
        run_record(path)
    assert str(caught.value).endswith(
        f"which holds {len(names)} runs: add one of {listed} to the path"
    )
    for run, name in enumerate(names):
        record = run_record(f"{path}#{name}")
        assert record.steps["step"].to_list() == list(range(1, 11))
        assert record.steps["reward"].to_list() == [100.0 * run + step for step in range(1, 11)]
        assert record.name == str(name)
    with pytest.raises(UnreadableRunError, match=r"got no run 'nope' in .*: add one of #"):
        run_record(f"{path}#nope")


def test_two_columns_together_name_a_run(tmp_path: Path) -> None:
    rows = [
        row | {"seed": seed}
        for seed in (1, 2)
        for row in table("tag", ["a", "b"], interleaved=False)
    ]
    csv(tmp_path / "a.csv", rows)
    with pytest.raises(
        UnreadableRunError, match="4 runs: add one of #a/1, #b/1, #a/2, #b/2 to the path"
    ):
        run_record(tmp_path / "a.csv")
    assert run_record(f"{tmp_path}/a.csv#b/2").steps["reward"].to_list() == [
        100.0 + step for step in range(1, 11)
    ]
    seeded = [
        row | {"seed": 40 + len(row["tag"])} for row in table("tag", ["a", "bb"], interleaved=False)
    ]
    csv(tmp_path / "b.csv", seeded)  # the tag tells the seed
    with pytest.raises(UnreadableRunError, match="2 runs: add one of #a, #bb to the path"):
        run_record(tmp_path / "b.csv")


def test_a_number_that_counts_restarts_is_no_run(tmp_path: Path) -> None:
    rows = [{"run": 1, "step": step, "reward": 0.0} for step in range(1, 21)]
    csv(
        tmp_path / "a.csv",
        [*rows, *({"run": 2, "step": step, "reward": 1.0} for step in range(16, 31))],
    )
    assert run_record(tmp_path / "a.csv").steps["step"].to_list() == list(range(1, 31))


def test_one_run_needs_no_name(tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", table("run", ["only"], interleaved=False))
    assert (
        len(run_record(tmp_path / "a.csv").steps)
        == len(run_record(f"{tmp_path}/a.csv#only").steps)
        == 10
    )


@pytest.mark.parametrize("name", ["a#b.csv", "#.csv", "a.csv#x"])
def test_a_path_with_a_number_sign_still_opens(tmp_path: Path, name: str) -> None:
    csv(tmp_path / name, table("run", ["one"], interleaved=False))
    assert run_record(tmp_path / name).name == name
    (tmp_path / "d#1").mkdir()
    csv(tmp_path / "d#1" / name, table("run", ["one", "t#wo"], interleaved=True))
    assert run_record(f"{tmp_path}/d#1/{name}#t#wo").steps["reward"][0] == 101.0
    if name.endswith(".csv"):  # the one log of the folder
        assert run_record(f"{tmp_path}/d#1#one").steps["reward"][0] == 1.0


def test_commands_and_the_follower_open_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.csv"
    csv(path, table("run", ["a", "b"], interleaved=True))
    assert main(["diagnose", str(path)]) == 2
    assert "add one of #a, #b to the path" in " ".join(capsys.readouterr().err.split())
    assert main(["fit", f"{path}#b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    follower = Follower(f"{path}#b")
    follower.start()
    assert follower.record is not None
    assert follower.record.steps["reward"].to_list() == [100.0 + step for step in range(1, 11)]


@each_case(
    ("file", "runs", "name", "rows"),
    [
        ("sweeps/tinkerlab_llama33_70b_seeds.json", 4, "w1_llama33-70b-inst_s456", 30),
        ("sweeps/tinkerlab_wave6_ablations.json", 12, "w6_temp0.2_r32_b2", 30),
        ("hard/grpo_off_policy_eval_points.csv", 12, "broad_e2_tb256", 9),
        ("hard/grpo_learning_rate_eval_points.csv", 9, "lr=3e-6", 11),
    ],
)
def test_files_of_several_real_runs(
    shared_data: Path, file: str, runs: int, name: str, rows: int
) -> None:
    with pytest.raises(UnreadableRunError, match=rf"which holds {runs} runs: add one of #"):
        run_record(shared_data / file)
    record = run_record(f"{shared_data / file}#{name}")
    assert (len(record.steps), record.name) == (rows, name)
    assert record.steps["step"].is_sorted()


@each_case("file", WRITERS)
def test_types_of_rows_that_are_one_a_run_name_no_columns(tmp_path: Path, file: str) -> None:
    """Broad and focused runs in one table: each has rows of one type only."""
    path = tmp_path / file
    rows = [
        {"phase": "broad" if row["run"] == "a" else "focused"} | row
        for row in table("run", ["a", "b"], interleaved=True)
    ]
    WRITERS[file](path, rows)
    assert run_record(f"{path}#b").steps["reward"].to_list() == [
        100.0 + step for step in range(1, 11)
    ]
    assert run_record(f"{path}#b").metrics() == ("reward",)


@each_case("file", WRITERS)
def test_all_runs_of_a_file_are_opened_at_once(tmp_path: Path, file: str) -> None:
    WRITERS[file](tmp_path / file, table("run", ["a", "b", "c"], interleaved=True))
    records = run_records(tmp_path / file)
    assert [(record.name, record.steps["reward"][0]) for record in records] == [
        ("a", 1.0),
        ("b", 101.0),
        ("c", 201.0),
    ]
    assert [record.name for record in run_records(f"{tmp_path}/{file}#b")] == ["b"]
    with pytest.raises(SeveralRunsError) as caught:
        run_record(tmp_path / file)
    assert caught.value.names == ("a", "b", "c")
    with pytest.raises(UnreadableRunError, match=r"no run 'nope' in .*: add one of #a, #b, #c to"):
        run_records(f"{tmp_path}/{file}#nope")


def test_all_runs_of_a_folder_are_opened_at_once(tmp_path: Path) -> None:
    """As `groupwise fleet` finds them; a folder of one run is that run."""
    sweep = tmp_path / "sweep"
    for name, runs in (("high", ["a", "b"]), ("low", ["c"])):
        (sweep / name).mkdir(parents=True)
        csv(sweep / name / "log.csv", table("run", runs, interleaved=False))
    assert [record.name for record in run_records(sweep)] == ["a", "b", "log.csv"]
    assert [record.name for record in run_records(sweep / "low")] == ["log.csv"]
    with pytest.raises(UnreadableRunError, match="expected one run"):
        run_record(sweep)
    (tmp_path / "none").mkdir()
    with pytest.raises(UnreadableRunError, match="holds no log"):
        run_records(tmp_path / "none")


@each_case("names", [["vllm", "sglang"], [8, 16]])
@each_case("file", ["a.csv", "a.jsonl", "a.parquet"])
def test_a_column_that_is_named_tells_runs_apart(
    tmp_path: Path, file: str, names: list[Any]
) -> None:
    """Alone, and beside the seeds; without its name the rows of both are one run."""
    WRITERS[file](tmp_path / file, table("Engine Used", names, interleaved=True))
    assert [
        (r.name, r.steps["reward"][0]) for r in run_records(tmp_path / file, by="engine_used")
    ] == [
        (str(names[0]), 1.0),
        (str(names[1]), 101.0),
    ]
    assert len(run_records(tmp_path / file)) == 1
    seeds = [
        row | {"seed": seed}
        for seed in (1, 2)
        for row in table("Engine Used", names, interleaved=False)
    ]
    WRITERS[file](tmp_path / f"seeds.{file}", seeds)
    assert [r.name for r in run_records(tmp_path / f"seeds.{file}", by="Engine Used")] == [
        f"{s}/{name}" for s in (1, 2) for name in names
    ]
    assert [r.name for r in run_records(tmp_path / f"seeds.{file}", by="seed")] == ["1", "2"]


def test_texts_that_the_rows_of_a_run_share_are_its_labels(tmp_path: Path) -> None:
    """Not those that differ, that most rows lack, or that are long; and the engine becomes a
    setting.
    """
    rows = table("run", ["a", "b"], interleaved=False)
    for place, row in enumerate(rows):
        row |= {
            "engine": "vllm" if row["run"] == "a" else "sglang",
            "note": "last" if row["step"] == 10 else "",
        }
        row |= {"text": f"completion {place} " + 40 * "x" + 40 * "y", "host": "h1"}
    csv(tmp_path / "a.csv", rows)
    a, b = run_records(tmp_path / "a.csv")
    assert (a.labels, b.labels) == (
        {"run": "a", "engine": "vllm", "host": "h1"},
        {"run": "b", "engine": "sglang", "host": "h1"},
    )
    assert (a.config.value("engine"), b.config.value("engine")) == ("vllm", "sglang")
    saved = b.save(tmp_path / "saved")
    assert type(b).load(saved).labels == b.labels


def test_a_column_of_many_texts_labels_nothing(tmp_path: Path) -> None:
    """65 of them in one run, told apart by their names; 64 do."""
    for many, kept in ((64, True), (65, False)):
        rows = [
            {"run": "a", "step": step, "reward": 0.0, "tag2": f"t{step % many}"}
            for step in range(1, 200)
        ]
        rows += [{"run": "b", "step": step, "reward": 0.0, "tag2": "t0"} for step in range(1, 200)]
        csv(tmp_path / "a.csv", rows)
        assert ("tag2" in run_record(f"{tmp_path}/a.csv#b").labels) == kept


def test_a_column_of_another_run_of_the_table_is_no_nan(tmp_path: Path) -> None:
    rows = [f"a,{step},{step / 60},0.5,0.1" for step in range(60)] + [
        f"b,{step},{0.8 - step / 200},," for step in range(60)
    ]
    (tmp_path / "wide.csv").write_text("\n".join(["run,step,reward,grad_norm,loss", *rows]))
    judgement = judge(run_record(f"{tmp_path / 'wide.csv'}#b"))
    assert not [finding for finding in judgement.checks if "no finite value" in finding.message]
    assert "finite" not in judgement.headline


def test_a_folder_of_events_is_judged_from_within(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "warm"
    event_file(
        home / "events.out.tfevents.1",
        [{"step": step, "train/reward": step / 30} for step in range(30)],
    )
    monkeypatch.chdir(home)
    assert main(["diagnose", "."]) == 0
    assert "OK  warm  reward" in capsys.readouterr().out


def test_event_files_among_several_logs_are_one_run_of_several(tmp_path: Path) -> None:
    event_file(
        tmp_path / "events.out.tfevents.1",
        [{"step": step, "train/reward": step / 30} for step in range(30)],
    )
    for name in ("a", "b"):
        assert (
            run_record(tmp_path).column("reward") == "train/reward"
        )  # one log beside may be the console of the run
        (tmp_path / f"{name}.csv").write_text(
            "step,reward\n" + "".join(f"{step},0.5\n" for step in range(30))
        )
    with pytest.raises(
        UnreadableRunError,
        match=(
            r"one run, got .*, which holds 3 \(a.csv, b.csv, events.out.tfevents.1\): give the "
            r"path of"
        ),
    ):
        run_record(tmp_path)
    assert len(runs_below(tmp_path)) == 3
    RunRecord("r", run_record(tmp_path / "a.csv").steps).save(tmp_path / "run")
    with pytest.raises(
        UnreadableRunError, match=r"holds 4 \(run, a.csv"
    ):  # nor is the only folder the only run
        run_record(tmp_path)
