"""Fixtures shared by all tests: the real logs where this machine has them, a small TRL run, and
records and fits made by hand.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.processes import end_server, workers_forked

from groupwise.analysis import fitted
from groupwise.analysis.fitted import Fitted, ForecastRow, LoggedClock, Outlook
from groupwise.comparison import compare
from groupwise.diagnostics import judge
from groupwise.forecasting import forecast
from groupwise.forecasting.fit import fit
from groupwise.forecasting.results import (
    Candidate,
    FitOutcome,
    FitResult,
    FitStatus,
    Forecast,
    Noise,
)
from groupwise.intervals import Interval
from groupwise.readers import Located
from groupwise.readers.follow import signature_of
from groupwise.record.run import Meaning, RunConfig, RunRecord, Source
from groupwise.record.table import rollouts_table, steps_table
from groupwise.series.metric import metric_series

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real logs beside the repository; tests that need it are skipped where it is
    absent.
    """
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real logs at {folder}")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _fitted_once() -> Iterator[None]:
    """Fit and foretell a series once in a process, whichever commands and tests ask for it: more
    than half of what they ask for is what they had before.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitted, "_fit", once(fitted._fit))
        patch.setattr(compare, "fit", once(fit))
        patch.setattr(forecast, "foreseen", once(forecast.foreseen))
        yield


@pytest.fixture(scope="session")
def _judge() -> Callable[..., Any]:
    return once(judge.judged, lambda evidence: (evidence.record, evidence.ended))


@pytest.fixture(scope="session")
def _read() -> Callable[..., Any]:
    return once(Located.read, lambda log: (log.reader.name, signature_of(log.path), log.request))


@pytest.fixture
def judged_once(monkeypatch: pytest.MonkeyPatch, _judge: Callable[..., Any]) -> None:
    """Judge a run once where a test asks about the same few runs again and again."""
    monkeypatch.setattr(judge, "judged", _judge)


@pytest.fixture
def read_once(monkeypatch: pytest.MonkeyPatch, _read: Callable[..., Any]) -> None:
    """Read a log once, while its files are the same."""
    monkeypatch.setattr(Located, "read", _read)


@pytest.fixture(scope="session", autouse=True)
def _server_ended() -> Iterator[None]:
    """Wait in the end for the process that others are forked from."""
    yield
    end_server()


@pytest.fixture
def forked() -> Iterator[None]:
    """Fork the workers of engines and live pages where a test is not about their start."""
    with workers_forked():
        yield


def once(answer: Callable[..., Any], asked: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A function that answers a question once; questions are the same that pickle alike."""
    answers: dict[bytes, Any] = {}

    def remembered(*given: Any, **named: Any) -> Any:
        question = pickle.dumps((asked(*given) if asked else given, sorted(named.items())))
        if question not in answers:
            answers[question] = answer(*given, **named)
        return answers[question]

    return remembered


def trl_row(step: int, **changes: float) -> dict[str, float]:
    """One training row as TRL logs it."""
    row = {
        "clip_ratio/high_mean": 0.0,
        "completions/mean_length": 20.0 + step,
        "completions/clipped_ratio": 0.25,
        "entropy": 2.0,
        "epoch": step / 100,
        "frac_reward_zero_std": 0.5,
        "grad_norm": 0.7,
        "learning_rate": 1e-4,
        "loss": 0.01,
        "num_tokens": 100.0 * step,
        "reward": 0.01 * step,
        "reward_std": 0.3,
        "rewards/brevity/mean": -0.01 * step,
        "rewards/check/mean": 0.02 * step,
        "rewards/check/std": 0.4,
        "step": step,
        "step_time": 2.0,
    }
    return row | changes


@pytest.fixture
def make_row() -> Callable[..., dict[str, float]]:
    """The maker of one TRL row."""
    return trl_row


@pytest.fixture
def write_state() -> Callable[..., Path]:
    """The writer of a trainer_state.json."""

    def write(path: Path, rows: Sequence[Mapping[str, Any]], logging_steps: float = 1) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        last = max((int(row["step"]) for row in rows if "step" in row), default=0)
        state = {
            "global_step": last,
            "log_history": list(rows),
            "logging_steps": logging_steps,
            "max_steps": 100,
        }
        path.write_text(json.dumps(state, indent=2, sort_keys=True))
        return path

    return write


@pytest.fixture
def trl_run(tmp_path: Path, write_state: Callable[..., Path]) -> Path:
    """A run folder: two checkpoints, a README, completions of 3 steps with 2 groups of 4, and a
    file that must not be opened.
    """
    folder = tmp_path / "run"
    for last in (10, 20):
        write_state(
            folder / f"checkpoint-{last}" / "trainer_state.json",
            [trl_row(step) for step in range(1, last + 1)],
        )
    (folder / "checkpoint-20" / "training_args.bin").write_bytes(b"PK\x03\x04 never opened")
    (folder / "README.md").write_text(
        "This model is a fine-tuned version of [tiny/Model-1](https://x).\n\n"
        "### Framework versions\n\n- TRL: 1.16.0\n- Transformers: 5.0.0\n"
    )
    (folder / "completions").mkdir()
    for step in (1, 2, 3):
        check = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
        brevity = [-0.1, -0.2, 0.0, -0.1, 0.0, 0.0, 0.0, 0.0]
        total = [a + b for a, b in zip(check, brevity, strict=True)]
        means = [sum(total[start : start + 4]) / 4 for start in (0, 4)]
        table = pl.DataFrame(
            {
                "step": [step] * 8,
                "prompt": ["4+2="] * 4 + ["7+1="] * 4,
                "completion": [f"c{number}" + "'" * (step - 1) for number in range(8)],
                "check": check,
                "brevity": brevity,
                "advantage": [(total[number] - means[number // 4]) / 0.5 for number in range(8)],
            }
        )
        table.write_parquet(folder / "completions" / f"completions_{step:05d}.parquet")
    return folder


QUANTITIES = {
    "reward": "reward",
    "rewards/correct/mean": "reward/correct",
    "rewards/shape/mean": "reward/shape",
    "eval_reward": "eval/reward",
    "frac_reward_zero_std": "dead_group_share",
    "completions/mean_length": "completion_length",
    "entropy": "entropy",
    "kl": "kl",
    "grad_norm": "gradient_norm",
}


def make_record(
    size: int = 300, *, name: str = "made", rollouts: bool = True, seed: int = 0
) -> RunRecord:
    """A run that learns from 0.2 to 0.75, four updates a step, with everything logged."""
    rng = np.random.default_rng(seed)
    t = np.arange(size)
    p = 0.75 - 0.55 * np.exp(-t / (0.2 * size))
    right, shape = rng.binomial(64, p) / 64, rng.binomial(64, 0.95, size) / 64
    columns = {
        "reward": right + shape,
        "rewards/correct/mean": right,
        "rewards/shape/mean": shape,
        "eval_reward": np.where(t % 25 == 0, p - 0.05, np.nan),
        "frac_reward_zero_std": rng.binomial(8, p**8 + (1 - p) ** 8) / 8,
        "completions/mean_length": 200 + rng.normal(0, 10, size),
        "entropy": 1 - 0.5 * t / size + rng.normal(0, 0.02, size),
        "kl": np.abs(rng.normal(0, 1e-3, size)),
        "grad_norm": np.where(t == size // 2, 50.0, np.abs(rng.normal(1, 0.2, size))),
    }
    rows = [
        {
            "step": int(step) + 1,
            "prompt_id": group,
            "prompt": f"p{group}",
            "reward": float(rng.random() < p[step]) + float(rng.random() < 0.95),
        }
        for step in range(0, size, 10)
        for group in range(4)
        for _ in range(8)
    ]
    return RunRecord(
        name,
        steps_table(
            t + 1,
            columns,
            optimizer_updates=4.0 * (t + 1),
            tokens=1e4 * (t + 1),
            seconds=30.0 * (t + 1),
        ),
        rollouts_table(rows) if rollouts else None,
        RunConfig().with_settings({"group_size": 8, "learning_rate": 1e-6}, "README.md"),
        tuple(Meaning(key, quantity, f"what {key} is") for key, quantity in QUANTITIES.items()),
        (Source("runs/made/trainer_state.json", "trl", 12_345, size, "newest of 3 checkpoints"),),
        ("2 rows of a restarted run were superseded",),
    )


@pytest.fixture(scope="session")
def made_record() -> Callable[..., RunRecord]:
    """`make_record`."""
    return make_record


def make_fitted(
    status: FitStatus = "converged",
    *,
    law: str = "exponential",
    message: str = "",
    plateau: tuple[float, float, float] = (0.8, 0.75, 0.85),
    start: float = 0.2,
    change_time: float = math.nan,
    rivals: dict[str, float] | None = None,
    overshoot: float = 0.0,
    metric: str = "reward",
    quantity: str = "reward",
) -> Fitted:
    """A fit of 100 steps of four updates, with the findings asked for."""
    size = 100
    value = np.linspace(start, 0.5, size)
    record = RunRecord(
        "made",
        steps_table(range(1, size + 1), {metric: value}, optimizer_updates=4.0 * np.arange(size)),
        meanings=(Meaning(metric, quantity, ""),),
    )
    series = metric_series(record, metric)
    weights = {law: 1 - sum((rivals or {}).values())} | (rivals or {})
    candidates = tuple(Candidate(name, -100.0, weight, 0.9) for name, weight in weights.items())
    parameters = {
        "plateau": Interval(*plateau),
        "start": Interval(start, start - 0.01, start + 0.01),
        "overshoot": Interval(overshoot, 0.0, 1.0),
    }
    noise = Noise(0.1)
    time = series.time_T
    broken = FitOutcome.COLLAPSED if message.startswith("collapsed") else FitOutcome.WANDERS
    outcomes = {
        "converged": FitOutcome.CONVERGED,
        "flat": FitOutcome.FLAT,
        "not_identifiable": FitOutcome.OPEN,
        "non_stationary": broken,
    }
    fit = FitResult(
        law,
        outcomes[status],
        message,
        parameters,
        size,
        0.9,
        math.nan,
        candidates,
        noise,
        time,
        value,
        value,
        value - 0.01,
        value + 0.01,
        0 * value,
        change_time,
    )
    at = np.array([500.0])
    result = Forecast(
        "forecast",
        "",
        0.9,
        at,
        at * 0 + 0.6,
        at * 0 + 0.55,
        at * 0 + 0.65,
        at * 0 + 0.4,
        at * 0 + 0.8,
        Interval(0.1, 0.05, 0.2, 0.9),
    )
    clock = LoggedClock(series.step_T.astype(float), time)
    row = ForecastRow(150.0, 0.6, 0.55, 0.65, 0.4, 0.8)
    here = ForecastRow(100.0, 0.5, 0.495, 0.505, 0.4, 0.6)
    outlook = Outlook(result, (row,), (here, row), parameters["plateau"])
    return Fitted(metric, quantity, series, clock, fit, outlook)


@pytest.fixture(scope="session")
def made_fitted() -> Callable[..., Fitted]:
    """`make_fitted`."""
    return make_fitted


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait for a record that is being written: the tests in which a killed run's worker
    lets go of it do wait.
    """
    monkeypatch.setattr("groupwise.record.journal._PATIENCE_SECONDS", 0.05)
