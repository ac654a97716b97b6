"""Trackers' own formats: TensorBoard, W&B, trackio, MLflow, ART's tables, against writers made
by hand.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.readers.writers import (
    REWARDS,
    art_trajectories,
    clearml_folder,
    crc32c,
    event,
    event_file,
    field,
    hf_row,
    masked,
    mlflow_database,
    neptune_folder,
    swanlab_folder,
    tfrecord,
    trackio_database,
    wandb_file,
)

from groupwise.errors import UnreadableRunError
from groupwise.readers import run_record, trackers
from groupwise.readers.trackers import TfRecords, exported_runs, fields, masked_crcs

ROWS = [hf_row(step) | {"step": float(step)} for step in range(1, 9)]
ARGUMENTS = {"num_generations": 8, "beta": 0.04, "adam_beta2": 0.99}


def test_the_checksum_is_the_published_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    for data in (b"", b"a", bytes(range(256)) * 3):
        bits = np.frombuffer(data, dtype=np.uint8)
        sums = masked_crcs(bits, np.zeros(1, dtype=np.int64), len(data))
        assert sums.astype("<u4").tobytes() == masked(data)


@each_case("data", [b"\x08", b"\x0a\x05ab", b"\x0f", b"\x00\x01", b"\x0b", b"\x08" + b"\xff" * 11])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(fields(data))


def test_fields_come_back() -> None:
    message = field(1, 300) + field(2, "text") + field(3, 0.5) + field(4, 0.5, single=True)
    assert list(fields(message)) == [
        (1, 300),
        (2, b"text"),
        (3, struct.pack("<d", 0.5)),
        (4, struct.pack("<f", 0.5)),
    ]


@pytest.mark.parametrize("tensor", [False, True])
def test_event_files(tmp_path: Path, tensor: bool) -> None:
    texts = {
        "args/text_summary": json.dumps(ARGUMENTS),
        "model_config/text_summary": json.dumps({"temperature": 9.0}),
    }
    path = event_file(tmp_path / "events.out.tfevents.1.host", ROWS, texts=texts, tensor=tensor)
    record = run_record(path)
    assert record.sources[0].reader == "tensorboard"
    assert record.steps["step"].to_list() == list(range(1, 9))
    assert record.steps[record.column("reward")].to_list() == pytest.approx(REWARDS, abs=1e-6)
    assert (
        record.config.value("group_size"),
        record.config.value("framework"),
        record.config.value("temperature"),
    ) == (8, "trl", None)
    assert record.steps["seconds"][-1] == pytest.approx(
        8.0
    )  # seven to the first row, which took a usual one
    assert record.column("reward/correct") == "train/rewards/correct/mean"


def test_a_record_with_a_wrong_checksum_is_left_out_and_said(tmp_path: Path) -> None:
    path = event_file(tmp_path / "events.out.tfevents.1.host", ROWS)
    content = bytearray(path.read_bytes())
    place = content.index(struct.pack("<f", REWARDS[6]))
    content[place] ^= 1
    path.write_bytes(content)
    record = run_record(path)
    assert record.notes[0].startswith("1 record has a wrong checksum and was left out")
    assert record.steps[record.column("reward")].null_count() == 1
    path.write_bytes(content[: len(content) - 5])
    assert any("cut off" in note for note in run_record(path).notes)


SCALARS = st.tuples(
    st.sampled_from([0, 1, 2, 3, 200, -1, 2**40]),
    st.sampled_from(["train/a", "train/b", "eval/a", "step", "_timestamp", "c"]),
    st.floats(width=32) | st.sampled_from(["text", 0.5]),
    st.sampled_from(["simple", "content", "floats", "double", "twice", "flipped", "cut"]),
)


def bytes_of(step: int, tag: str, value: float | str, form: str) -> bytes:
    """A record of an event file in one of the forms in which a number may stand."""
    number = value if isinstance(value, float) else 0.0
    single, double = struct.pack("<f", number), struct.pack("<d", number)
    tensors = {
        "content": field(1, 1) + field(4, single),
        "floats": field(1, 1) + field(5, single),
        "double": field(1, 2) + field(6, double),
    }
    if isinstance(value, str) or form not in tensors:
        message = event(step % 2**64, tag, value)
    else:
        steps = field(2, step % 2**64) if step else b""
        message = (
            field(1, 1.7e9)
            + steps
            + field(5, field(1, field(1, tag) + field(9, "hint") + field(8, tensors[form])))
        )
    message += (
        field(5, field(1, field(1, "again") + field(2, 0.5, single=True)))
        if form == "twice"
        else b""
    )
    record = bytearray(tfrecord(message if form != "cut" else message[:-1]))
    record[-6] ^= form == "flipped"
    return bytes(record)


@given(
    st.lists(st.lists(SCALARS, max_size=3).map(lambda few: few * 6), max_size=4),
    st.integers(13, 9999),
)
def test_rows_of_records_in_any_form(blocks: list[list[Any]], size: int) -> None:
    whole = b"".join(bytes_of(*scalar) for block in blocks for scalar in block)
    rows: list[dict[str, float]] = []
    for block in blocks:
        for scalar in block:
            message = bytes_of(*scalar)[12:-4]
            if scalar[3] in ("flipped", "cut"):
                continue
            for time, step, tag, value in trackers._event(message):
                if isinstance(value, str):
                    continue
                last = rows[-1] if rows else {}
                trains = tag.startswith("train/")
                if not rows or last["at"] != step or tag in last or last["trains"] != trains:
                    rows.append(
                        {"at": step, "trains": trains, "step": float(step), "_timestamp": time}
                    )
                rows[-1][tag] = value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trackers, "_READ", size)
        records = TfRecords(BytesIO(whole))
        ours = list(trackers._rows(records, {}, set()))
    assert str(ours) == str(
        [{key: value for key, value in row.items() if key not in ("at", "trains")} for row in rows]
    )
    assert records.complete
    assert records.damaged == sum(
        scalar[3] in ("flipped", "cut") for block in blocks for scalar in block
    )


def test_files_of_one_folder_are_one_run(tmp_path: Path) -> None:
    path = event_file(tmp_path / "events.out.tfevents.100.host.1.0", ROWS[:5])
    content = path.read_bytes()
    path.write_bytes(content + content[-9:])
    later = [row | {"train/loss": 9.0} for row in ROWS[3:]]
    event_file(tmp_path / "events.out.tfevents.200.host.2.0", later)
    event_file(tmp_path / "events.out.tfevents.300.host.3.0", [])
    record = run_record(tmp_path)
    assert len(record.steps) == 8
    assert record.steps["train/loss"].to_list() == pytest.approx(
        [0.01, 0.02, 0.03, 9, 9, 9, 9, 9], abs=1e-6
    )
    assert any("restarted" in note for note in record.notes)
    for name, said in ((path.name, "is cut off or damaged"), ("300.host.3.0", "has no scalar")):
        assert [note for note in record.notes if f"{name} {said}" in note], record.notes


def test_an_event_file_without_scalars_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRunError, match="expected rows with numbers, got none in"):
        run_record(event_file(tmp_path / "events.out.tfevents.1.host", []))


def history() -> list[dict[str, Any]]:
    """Rows of a TRL run in W&B: what is timed comes before the step is known."""
    rows: list[dict[str, Any]] = []
    for step in range(1, 9):
        rows.append({"_step": 2 * step - 2, "profiling/Time taken: x": 0.1})
        rows.append(
            {
                "_step": 2 * step - 1,
                "train/global_step": step,
                **hf_row(step),
                "table": {"_type": "table-file", "size": 7},
            }
        )
    return rows


def test_offline_runs_of_wandb(tmp_path: Path) -> None:
    long = {"prompt": "x" * 70_000}  # a record over three blocks
    path = wandb_file(tmp_path / "offline-run-1" / "run-abc.wandb", history(), ARGUMENTS | long)
    for place in (path, path.parent):
        record = run_record(place)
        assert record.steps["step"].to_list() == list(range(1, 9))
        assert record.steps[record.column("reward")].to_list() == REWARDS
        assert (record.config.value("group_size"), record.config.value("kl_weight")) == (8, 0.04)
        assert not [name for name in record.metrics() if "table" in name]


def test_a_damaged_record_costs_its_row_and_is_said(tmp_path: Path) -> None:
    path = wandb_file(tmp_path / "run-abc.wandb", history(), ARGUMENTS)
    content = bytearray(path.read_bytes())
    content[content.index(b"train/reward_std") + 2] ^= 1
    path.write_bytes(content)
    record = run_record(path)
    assert record.steps[record.column("reward")].drop_nulls().to_list() == REWARDS[1:]
    assert "1 record is damaged and was left out" in record.notes
    path.write_bytes(b":W&B" + content[4:40])
    with pytest.raises(UnreadableRunError):
        run_record(path)


def test_bounds_of_an_exported_chart_are_not_metrics() -> None:
    names = [
        "Step",
        "run - 1 - train/reward",
        "run - 1 - train/reward__MIN",
        "run - 1 - train/reward__MAX",
    ]
    assert exported_runs(names) == {
        "run - 1": {"Step": "Step", "run - 1 - train/reward": "train/reward"}
    }
    assert exported_runs(["step", "a - b"]) == {}


def test_a_chart_without_bounds_holds_the_same_key_of_several_runs() -> None:
    assert exported_runs(["Step", "a - train/reward", "b - train/reward"]) == {
        "a": {"Step": "Step", "a - train/reward": "train/reward"},
        "b": {"Step": "Step", "b - train/reward": "train/reward"},
    }
    assert exported_runs(["step", "train - reward", "val - reward"]) == {}
    assert exported_runs(["step", "critic - reward", "actor - loss"]) == {}


@pytest.mark.parametrize("as_bytes", [True, False])
def test_trackio(tmp_path: Path, as_bytes: bool) -> None:
    record = run_record(trackio_database(tmp_path / "project.db", as_bytes=as_bytes))
    assert record.steps["step"].to_list() == list(range(1, 9))
    assert record.steps[record.column("reward")].to_list() == REWARDS
    assert (
        record.config.value("group_size"),
        record.config.value("beta1"),
        record.config.value("kl_weight"),
    ) == (4, 0.9, 0.04)
    assert record.rollouts is not None
    assert len(record.rollouts) == 64
    assert record.rollouts.group_by("step", "prompt_id").len()["len"].unique().to_list() == [4]
    assert record.rollouts["reward/correct"].max() == 1.0


def test_a_database_of_several_runs_asks_which(tmp_path: Path) -> None:
    for write, runs in ((trackio_database, ("a", "b")), (mlflow_database, ("c", "d"))):
        path = write(tmp_path / f"{runs[0]}.db", runs)
        with pytest.raises(UnreadableRunError, match=f"add one of #{runs[0]}, #{runs[1]}"):
            run_record(path)
        assert len(run_record(f"{path}#{runs[1]}").steps) == 8
        with pytest.raises(UnreadableRunError, match=r"no run 'zzz' in .*: add one of"):
            run_record(f"{path}#zzz")


def test_mlflow_database(tmp_path: Path) -> None:
    path = mlflow_database(tmp_path / "mlflow.db")
    before = sorted(tmp_path.iterdir())
    record = run_record(path)
    assert sorted(tmp_path.iterdir()) == before, "a reader writes nothing"
    assert record.steps[record.column("reward")].to_list() == REWARDS
    assert record.column("eval/reward") == "val-core/gsm8k/acc/mean_at_1"
    assert (record.config.value("group_size"), record.config.value("framework")) == (8, "verl")
    assert np.diff(record.steps["seconds"]).tolist() == [1.0] * 7


@pytest.mark.parametrize("cut", [100, 5000])
def test_a_cut_database_is_refused_with_a_sentence(tmp_path: Path, cut: int) -> None:
    path = mlflow_database(tmp_path / "mlflow.db")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UnreadableRunError, match=r"^expected [^\n]{20,400}\Z"):
        run_record(path)


def test_arts_trajectories(tmp_path: Path) -> None:
    for step in (1, 2):
        art_trajectories(tmp_path / "train" / f"{step:04d}.parquet")
    record = run_record(tmp_path / "train")
    assert record.rollouts is not None
    assert (record.steps["step"].to_list(), record.config.value("group_size")) == ([1, 2], 4)
    assert record.rollouts["completion"].to_list()[0] == "4"


def slime_rows(each: int) -> list[dict[str, Any]]:
    """What slime logs of twelve rollouts: a row of the rollout by its number, and `each` rows of
    training by the updates so far.
    """
    rows: list[dict[str, Any]] = []
    for rollout in range(12):
        rows.append(
            {
                "step": rollout,
                "rollout/step": rollout,
                "rollout/raw_reward": 0.125 * (rollout % 4),
                "rollout/truncated_ratio": 0.0,
            }
        )
        first = each * rollout
        rows += [
            {
                "step": first + k,
                "train/step": first + k,
                "train/loss": 1.0 * rollout + k,
                "train/grad_norm": 1.0,
            }
            for k in range(each)
        ]
    return rows


@each_case("each", [1, 2, 4])
@each_case("tracker", ["one file", "two files", "wandb"])
def test_updates_of_slime_are_put_with_their_rollout(
    tmp_path: Path, tracker: str, each: int
) -> None:
    rows = slime_rows(each)
    if tracker == "wandb":
        place = tmp_path / "run-a.wandb"
        wandb_file(
            place, [{key: value for key, value in row.items() if key != "step"} for row in rows], {}
        )
    elif tracker == "one file":
        place = event_file(tmp_path / "events.out.tfevents.1.host", rows)
    else:
        bare = [
            {key: value for key, value in row.items() if not key.endswith("/step")} for row in rows
        ]
        event_file(
            tmp_path / "events.out.tfevents.1.host",
            [row for row in bare if "rollout/raw_reward" in row],
        )
        event_file(
            tmp_path / "events.out.tfevents.2.host", [row for row in bare if "train/loss" in row]
        )
        place = tmp_path
    record = run_record(place)
    assert record.steps["step"].to_list() == list(range(12))
    assert record.steps["rollout/raw_reward"].to_list() == [
        0.125 * (rollout % 4) for rollout in range(12)
    ]
    assert record.steps["train/loss"].to_list() == pytest.approx(
        [rollout + (each - 1) / 2 for rollout in range(12)]
    )
    assert record.steps["optimizer_updates"].to_list() == [each * rollout for rollout in range(12)]


def shown_places(folder: Path) -> list[Path]:
    """What a user may point at: the folder, the one above it, and the file of the numbers."""
    above = folder.parent.parent if ".neptune" in folder.parts else folder.parent
    files = [*folder.glob("*.swanlab"), *folder.glob("metrics.jsonl"), *folder.glob("data-*.log")]
    return [folder, above, *files]


@each_case("written", [clearml_folder, neptune_folder, swanlab_folder])
def test_a_run_that_waits_to_be_sent_is_read_whole(
    tmp_path: Path, written: Callable[..., Path]
) -> None:
    rows = [
        {"train/reward": reward, "train/kl": 0.0, "train/loss": 0.1, "eval/reward": 0.5}
        for reward in REWARDS
    ]
    for place in shown_places(written(tmp_path / "store", rows)):
        record = run_record(place)
        assert record.sources[0].reader == "offline"
        assert record.steps["step"].to_list() == list(range(1, 9))
        assert record.steps[record.column("reward")].to_list() == REWARDS
        assert record.steps[record.column("kl")].to_list() == [0.0] * 8
        assert record.steps[record.column("eval/reward")].to_list() == [0.5] * 8
        assert record.config.value("group_size") == 8
        assert record.steps["seconds"][-1] == pytest.approx(8.0)
        assert not record.notes


@each_case("written", [clearml_folder, neptune_folder, swanlab_folder])
def test_what_is_cut_off_or_empty_of_a_run_that_waits_is_told(
    tmp_path: Path, written: Callable[..., Path]
) -> None:
    file = shown_places(
        written(tmp_path / "store", [{"train/reward": reward} for reward in REWARDS])
    )[-1]
    file.write_bytes(file.read_bytes()[:-9])
    record = run_record(file)
    assert len(record.steps) >= 7
    assert any("and was left out" in note for note in record.notes)


@each_case("written", [neptune_folder, swanlab_folder])
def test_a_run_that_waits_and_logged_nothing_is_told(
    tmp_path: Path, written: Callable[..., Path]
) -> None:
    with pytest.raises(UnreadableRunError, match=r"got none in .*wait for its first row"):
        run_record(written(tmp_path / "empty", [{}]))


def test_the_store_that_only_aim_opens_is_told_with_what_to_export(tmp_path: Path) -> None:
    (tmp_path / ".aim" / "meta").mkdir(parents=True)
    for place in (tmp_path, tmp_path / ".aim"):
        with pytest.raises(
            UnreadableRunError,
            match=r"only aim opens: call aim storage reindex there, then save aim\.Repo",
        ):
            run_record(place)
    rows = ["run.hash,metric.name,metric.context,step,value,epoch,time"]
    rows += [
        f"aa097,{key},{{}},{step},{value},"
        for key in ("reward", "kl")
        for step, value in enumerate(REWARDS, start=1)
    ]
    (tmp_path / "aim.csv").write_text("\n".join(row + "," * (6 - row.count(",")) for row in rows))
    record = run_record(tmp_path / "aim.csv")
    assert record.steps[record.column("reward")].to_list() == REWARDS
    assert record.column("kl") == "kl"


def test_the_integers_of_the_wire_have_a_sign() -> None:
    assert [trackers.signed(value) for value in (5, (1 << 64) - 3)] == [5, -3]
