"""Numbers that break: the first column that is not finite, gradients that drift, leap or are
lost, and what stays silent.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.diagnostics.judge import judged as judge
from groupwise.diagnostics.judgement import Fact, Finding, State, Status
from groupwise.diagnostics.numerics import finite, gradient, updates
from groupwise.diagnostics.signals import Evidence, arrow
from groupwise.record.run import Meaning, RunConfig, RunRecord, Setting, steps_table

NAMES = {
    "reward": "reward",
    "grad_norm": "gradient_norm",
    "loss": "loss",
    "learning_rate": "learning_rate",
    "kl": "kl",
    "epoch": "epoch",
    "spread": "reward_std_within_group",
    "batch": "reward_std_batch",
    "dead": "dead_group_share",
    "train/advantage": "advantage",
}
N = 120
RNG = np.random.default_rng


def log(window: float = 1.0, **columns: object) -> Evidence:
    columns = {
        key.replace("advantage", "train/advantage"): np.array(value, dtype=float)
        for key, value in columns.items()
    }
    length = len(next(iter(columns.values())))  # type: ignore[arg-type]
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in columns if key in NAMES)
    return Evidence(
        RunRecord(
            "test",
            steps_table(range(1, length + 1), columns, window=np.full(length, window)),
            meanings=meanings,
        )
    )


def norms(seed: int = 0, n: int = N) -> np.ndarray:
    return 0.3 * np.exp(0.5 * RNG(seed).standard_normal(n))


def rewards(seed: int = 0, n: int = N) -> np.ndarray:
    return 0.5 + 0.03 * RNG(seed + 1000).standard_normal(n)


def from_row(value_T: np.ndarray, row: int, value: float) -> np.ndarray:
    return np.where(np.arange(len(value_T)) < row, value_T, value)


def test_a_loss_that_turns_into_nan_is_named_with_its_step_and_what_went_with_it() -> None:
    norm = norms()
    finding = finite(
        log(
            reward=rewards(),
            loss=from_row(norm / 100, 99, np.nan),
            grad_norm=from_row(norm, 99, np.nan),
            learning_rate=np.full(N, 1e-6),
        )
    )
    assert (finding.status, finding.step, finding.facts, finding.column) == (
        Status.CRITICAL,
        100,
        (Fact.NOT_FINITE,),
        "loss",
    )
    says("diagnostics/numerics/9", finding.message)
    assert finding.signs[0].words == f"loss {norm[94:99].mean() / 100:.2g} → not finite"


def test_the_first_of_several_columns_is_named() -> None:
    value = norms()
    finding = finite(
        log(
            loss=from_row(value, 80, np.nan),
            kl=from_row(value, 75, np.nan),
            learning_rate=np.full(N, 1e-6),
        )
    )
    assert (finding.step, finding.column) == (76, "kl")


def test_advantages_that_never_were_numbers_are_a_warning() -> None:
    finding = finite(log(reward=rewards(), grad_norm=norms(), advantage=np.full(N, np.nan)))
    assert (finding.status, finding.step) == (Status.WARNING, 1)
    says("diagnostics/numerics/1", finding.message)


def test_a_metric_that_was_never_computed_is_worth_knowing() -> None:
    finding = finite(log(reward=rewards(), grad_norm=norms(), kl=np.full(N, np.nan)))
    assert (finding.status, finding.signs) == (Status.INFO, ())
    says("diagnostics/numerics/6", finding.message)


@each_case("kl", [np.nan, 1.0])
def test_a_metric_that_was_never_computed_hides_no_later_column(kl: float) -> None:
    norm = norms()
    finding = finite(
        log(
            reward=from_row(rewards(), 90, 0.0),
            loss=from_row(norm / 100, 99, np.nan),
            kl=kl * norm,
            learning_rate=np.full(N, 1e-6),
        )
    )
    assert (finding.status, finding.step, finding.column) == (Status.CRITICAL, 100, "loss")
    assert finding.signs[0].words.startswith("loss ")


def test_a_loss_that_never_was_a_number_comes_before_a_metric_that_never_was_one() -> None:
    never = np.full(N, np.nan)
    finding = finite(log(reward=rewards(), kl=never, loss=never))
    assert (finding.status, finding.step, finding.column) == (Status.WARNING, 1, "loss")


def test_infinities_to_the_end_are_critical_and_a_few_are_worth_knowing() -> None:
    assert (
        finite(log(grad_norm=from_row(norms(), 100, np.inf), reward=rewards())).status
        is Status.CRITICAL
    )
    few = norms()
    few[[3, 4]] = np.inf
    finding = finite(log(grad_norm=few, reward=rewards()))
    assert (finding.status, finding.step) == (Status.INFO, 4)
    says("diagnostics/numerics/7", finding.message)
    few[10:20] = np.inf
    assert finite(log(grad_norm=few, reward=rewards())).status is Status.WARNING


@each_case(
    ("value", "row", "status"),
    [
        (np.inf, 117, "critical"),
        (np.inf, 118, "info"),
        (np.nan, 110, "critical"),
        (np.nan, 111, "none"),
    ],
)
def test_three_infinities_are_the_end_of_a_column_and_ten_rows_without_it(
    value: float, row: int, status: str
) -> None:
    """Nothing else of the trainer's rows is there: they may come later than the rollouts'."""
    assert (
        finite(log(reward=rewards(), grad_norm=from_row(norms(), row, value))).status.value
        == status
    )


@pytest.mark.parametrize(("rows", "status"), [(8, "critical"), (7, "none")])
def test_eight_rows_make_a_column_that_can_end(rows: int, status: str) -> None:
    assert (
        finite(
            log(reward=rewards(n=30), grad_norm=from_row(norms(n=30), rows, np.nan))
        ).status.value
        == status
    )


@pytest.mark.parametrize(
    ("usual", "times", "status"),
    [(1.0, 1_500, "critical"), (2e4, 100, "critical"), (2e3, 100, "warning")],
)
def test_a_gradient_has_exploded_a_thousandfold_or_beyond_a_million(
    usual: float, times: float, status: str
) -> None:
    late = np.arange(N) >= 90
    finding = gradient(
        log(grad_norm=usual * np.where(late, times, 1.0), reward=from_row(rewards(), 95, 0.0))
    )
    assert (finding.status.value, *finding.facts) == (
        status,
        *([Fact.GRADIENT_EXPLODED] if status == "critical" else []),
    )


def test_a_column_that_stops_while_the_reward_rises_is_no_alarm() -> None:
    rising = np.where(np.arange(N) < 99, 0.3, 0.7) + 0.02 * RNG(1).standard_normal(N)
    finding = finite(log(reward=rising, kl=from_row(norms(), 99, np.nan), loss=norms()))
    assert (finding.status, finding.facts) == (Status.INFO, ())


def test_a_trainer_whose_rows_come_later_and_sparse_columns_are_no_nan() -> None:
    clock = np.arange(N, dtype=float)  # of the rollouts, which goes on
    late = finite(
        log(
            epoch=clock,
            reward=rewards(),
            loss=from_row(norms(), N - 6, np.nan),
            grad_norm=from_row(norms(), N - 6, np.nan),
        )
    )
    sparse = finite(
        log(reward=rewards(), kl=np.where(np.arange(N) % 10 == 0, 0.1, np.nan), loss=norms())
    )
    assert late.status is sparse.status is Status.NONE


def test_a_gradient_norm_that_grows_three_hundredfold_is_a_drift() -> None:
    drift = norms(2) * np.exp(np.log(300) * np.arange(N) / N)
    finding = gradient(log(grad_norm=drift, reward=rewards()))
    assert (finding.status, finding.facts, finding.limit) == (
        Status.WARNING,
        (),
        30.0,
    )
    says("diagnostics/numerics/2", finding.message)
    assert finding.signs[0].words == "gradient norm 0.34 → 28.2 → 80.6"


@pytest.mark.parametrize(("leap", "first"), [(69, 70), (68, 90)])
def test_leaps_shortly_before_a_drift_are_how_it_began(leap: int, first: int) -> None:
    """Of 120 rows the drift is there since row 89, a leap of 10,000 times in the twenty rows
    before is its first sign.
    """
    grown = norms(3) * np.where(np.arange(N) < 89, 1.0, 1e3)
    grown[leap] = 1e4
    finding = gradient(log(grad_norm=grown, reward=rewards()))
    assert (finding.step, finding.signs[0].step) == (90, first)


@pytest.mark.parametrize(("leap", "first"), [(580, 581), (540, 601)])
def test_a_lone_leap_long_before_a_drift_is_not_how_it_began(leap: int, first: int) -> None:
    """A log five times as long has no longer beginning."""
    grown = norms(3, 720) * np.where(np.arange(720) < 600, 1.0, 1e3)
    grown[leap] = 1e4
    finding = gradient(log(grad_norm=grown, reward=rewards(0, 720)))
    assert (finding.step, finding.signs[0].step) == (601, first)


def test_the_level_before_numbers_end_is_the_mean_of_five_rows_and_no_lucky_row() -> None:
    """The last row holds one of two updates, of which the other was no number."""
    loss = from_row(norms(), 110, np.nan)
    loss[105:110] = [1e8, 1e11, 1e16, 4e31, 0.0]
    finding = finite(log(loss=loss, reward=rewards()))
    assert "from step 111 on (10 rows; 8.0e+30 in the 5 rows before)" in finding.message
    assert finding.signs[0].words == "loss 8.0e+30 → not finite"


def test_the_sign_of_a_gradient_that_grew_has_its_first_row_and_its_last_level() -> None:
    grown = norms(3) * np.where(np.arange(N) < 89, 1.0, 1e3)
    grown[69] = 1e5
    finding = gradient(log(grad_norm=grown, reward=rewards()))
    before, there, after = np.median(grown[:10]), grown[69], np.median(grown[-12:])
    assert finding.signs[0].step == 70
    assert finding.signs[0].words == f"gradient norm {arrow(before, there, after)}"


def test_the_first_sign_of_numbers_that_end_is_the_gradient_that_exploded_before() -> None:
    grown = from_row(norms(3) * np.where(np.arange(N) < 89, 1.0, 1e3), 110, np.nan)
    judgement = judge(log(grad_norm=grown, loss=from_row(norms(), 110, np.nan), reward=rewards()))
    assert judgement.first_sign is not None
    assert (judgement.first_sign.signal, judgement.first_sign.step, judgement.since_step) == (
        "gradient_norm",
        90,
        111,
    )
    assert [step.words for step in judgement.then] == ["loss 0.25 → not finite"]
    assert judgement.cause.names == ("numerical failure, first in loss",)
    assert judgement.do.startswith("restart from step 89; ")
    # A run that went on to learn with such a gradient failed of something later.
    learnt = judge(
        log(
            grad_norm=grown,
            loss=from_row(norms(), 110, np.nan),
            reward=rewards() + np.where(np.arange(N) < 95, 0.0, 0.2),
        )
    )
    assert learnt.first_sign is not None
    assert (learnt.first_sign.signal, learnt.first_sign.step) == ("loss", 111)
    # A gradient that grew after it, or not at all, leads to nothing.
    alone = judge(
        log(
            grad_norm=from_row(norms(3), 110, np.nan),
            loss=from_row(norms(), 110, np.nan),
            reward=rewards(),
        )
    )
    assert alone.first_sign is not None
    assert (alone.first_sign.signal, alone.first_sign.step) == ("loss", 111)


@pytest.mark.parametrize(("gain", "restart"), [(0.0, 59), (0.01, 59), (0.1, 109)])
def test_a_gain_within_noise_is_no_learning_on_with_a_gradient_that_exploded(
    gain: float, restart: int
) -> None:
    """The best ten of fifty rows since are above those before by luck or by learning."""
    late = np.arange(N) >= 59
    judgement = judge(
        log(
            grad_norm=from_row(norms(3) * np.where(late, 1e5, 1.0), 109, np.nan),
            loss=from_row(norms(), 109, np.nan),
            reward=rewards(1) + gain * late,
        )
    )
    assert judgement.do.startswith(f"restart from step {restart}; ")


@pytest.mark.parametrize(
    ("gone", "headline", "restart"),
    [(70, "reward 0.50 → 0.02, collapsed at step 71", 70), (106, "loss is missing", 106)],
)
def test_a_reward_that_had_gone_long_before_numbers_ended_is_told_first(
    gone: int, headline: str, restart: int
) -> None:
    """What fell in the last few rows before, fell with them."""
    reward = from_row(rewards(), gone, 0.02) + 0.002 * RNG(2).standard_normal(N)
    judgement = judge(log(loss=from_row(norms(), 110, np.nan), reward=reward))
    assert judgement.headline.startswith(headline)
    assert ("loss", 111) in [(sign.signal, sign.step) for sign in judgement.signs]
    assert f"restart from step {restart}" in judgement.do
    assert ("numerical failure, first in loss" in judgement.cause.names) is (gone > 100)


def test_an_explosion_is_critical_only_where_the_reward_falls_with_it() -> None:
    burst = np.where(np.arange(N) < 90, 1, 1e8) * norms(3)
    assert gradient(log(grad_norm=burst, reward=rewards())).status is Status.WARNING
    finding = gradient(log(grad_norm=burst, reward=from_row(rewards(), 95, 0.0)))
    assert (finding.status, finding.step, finding.facts) == (
        Status.CRITICAL,
        91,
        (Fact.GRADIENT_EXPLODED,),
    )


def test_one_spike_is_worth_knowing_and_a_small_gradient_may_grow() -> None:
    spiked = norms(4)
    spiked[60] = 1000.0
    finding = gradient(log(grad_norm=spiked))
    assert (finding.status, finding.step, finding.signs) == (Status.INFO, 61, ())
    says("diagnostics/numerics/10", finding.message, usual=f"{np.median(spiked[:60]):.2f}")
    assert gradient(log(grad_norm=np.where(np.arange(N) < 60, 1e-4, 0.5))).status is Status.NONE


def test_a_gradient_of_0_with_spread_of_rewards_is_lost() -> None:
    zero = from_row(norms(5), 50, 0.0)
    finding = updates(log(grad_norm=zero, spread=np.full(N, 0.4), loss=zero, reward=rewards()))
    assert (finding.status, finding.step, finding.facts) == (
        Status.CRITICAL,
        51,
        (Fact.GRADIENT_LOST,),
    )
    before = f"{np.median(zero[:50]):.2f}"
    says("diagnostics/numerics/3", finding.message)
    assert finding.signs[0].words == f"gradient norm {before} → 0.00"


@pytest.mark.parametrize(
    "more",
    [{"dead": np.ones(N)}, {"spread": np.zeros(N)}, {}],
    ids=["dead", "no spread", "unknown"],
)
def test_a_gradient_of_0_is_no_alarm_where_groups_may_have_zero_variance(
    more: dict[str, np.ndarray],
) -> None:
    assert updates(log(1.0, grad_norm=from_row(norms(6), 50, 0.0), **more)).status is Status.INFO


@pytest.mark.parametrize(
    "more", [{}, {"batch": np.full(N, 0.5)}], ids=["mean", "spread of the batch"]
)
def test_a_gradient_of_0_where_only_the_batch_is_known_to_differ_is_a_warning(
    more: dict[str, np.ndarray],
) -> None:
    finding = updates(
        log(
            1.0,
            grad_norm=from_row(norms(7), 30, 0.0),
            reward=rewards(),
            loss=from_row(norms(7), 30, 0.0),
            **more,
        )
    )
    assert (finding.status, finding.step, finding.facts) == (
        Status.WARNING,
        31,
        (),
    )
    says("diagnostics/numerics/4", finding.message)
    assert finding.log


def test_a_share_of_dead_groups_that_may_be_the_batchs_is_no_proof() -> None:
    evidence = log(grad_norm=from_row(norms(8), 90, 0.0), dead=np.zeros(N))
    unsure = tuple(
        replace(meaning, ambiguous=meaning.quantity == "dead_group_share")
        for meaning in evidence.record.meanings
    )
    assert updates(evidence).status is Status.CRITICAL
    assert updates(Evidence(replace(evidence.record, meanings=unsure))).status is Status.INFO


def test_the_spread_of_several_steps_says_nothing_of_the_last_gradient() -> None:
    assert (
        updates(log(window=5, grad_norm=np.zeros(N), spread=np.full(N, 0.1))).status is Status.INFO
    )


def test_a_log_that_rounds_small_norms_has_no_lost_gradient() -> None:
    rounded = np.round(0.002 * np.exp(0.3 * RNG(0).standard_normal(N)), 3)
    record = log(grad_norm=from_row(rounded, 60, 0.0), spread=np.full(N, 0.4)).record
    three = tuple(
        replace(meaning, resolution=5e-4) for meaning in record.meanings
    )  # as a reader tells it
    assert updates(Evidence(replace(record, meanings=three))).status is not Status.CRITICAL


def test_a_loss_of_0_is_normal_on_policy() -> None:
    finding = updates(log(loss=np.zeros(N), grad_norm=np.full(N, 0.3)))
    assert finding.status == Status.INFO
    says("diagnostics/numerics/8", finding.message)
    finding = updates(log(loss=np.zeros(N)))
    assert finding.log
    says("diagnostics/numerics/5", finding.message)
    assert finding.log


def test_a_loss_of_0_beside_large_ones_is_none_on_policy() -> None:
    """Half of the steps have no mixed group; a KL term leaves the rest of an on-policy loss near
    0.
    """
    row = np.arange(N)
    large = np.where(row % 9 < 5, 0.0, 3.0 * RNG(1).standard_normal(N))
    finding = updates(log(loss=large))
    says("diagnostics/numerics/12", finding.message)
    assert "on-policy" not in finding.message
    small = np.where(row % 9 < 5, 0.0, 0.02)
    assert "on-policy" in updates(log(loss=small)).message


def test_what_is_not_logged_is_asked_for() -> None:
    bare = log(other=np.ones(N))
    assert [check(bare).status for check in (finite, gradient, updates)] == [Status.NOT_LOGGED] * 3
    assert all(check(bare).log for check in (finite, gradient, updates))


def healthy(seed: int) -> Evidence:
    """Heavy-tailed norms, half of the groups dead, a loss around 0, a reward that learns."""
    rng = RNG(seed)
    n = 150
    reward = 0.2 + 0.5 * (1 - np.exp(-np.arange(n) / 60)) + 0.04 * rng.standard_normal(n)
    dead = rng.binomial(4, 0.5, n) / 4
    norm = np.where(dead == 1, 0.0, np.exp(rng.normal(-1, 0.8, n)) * (1 + np.arange(n) / 40))
    return log(
        reward=reward,
        grad_norm=norm,
        dead=dead,
        loss=0.01 * rng.standard_normal(n),
        kl=0.001 * np.arange(n),
        learning_rate=np.full(n, 1e-6),
    )


def alarms(findings: list[Finding]) -> bool:
    return any(finding.status in (Status.WARNING, Status.CRITICAL) for finding in findings)


@pytest.mark.slow
def test_healthy_runs_that_are_looked_at_after_every_third_row_stay_silent() -> None:
    """Of 400 runs looked at after every row none was told (at most .75 % with 95 % confidence);
    here 12.
    """
    for seed in range(12):
        whole = healthy(seed).record
        for rows in range(10, 151, 3):
            evidence = Evidence(RunRecord("test", whole.steps.head(rows), meanings=whole.meanings))
            assert not alarms([check(evidence) for check in (finite, gradient, updates)]), (
                seed,
                rows,
            )


def test_limits_of_what_is_told() -> None:
    few = norms()
    few[:5] = np.inf
    assert finite(log(grad_norm=few, reward=rewards())).status is Status.INFO  # 4 % of the rows
    assert updates(log(loss=norms())).status is Status.NONE
    by_name = RunRecord(
        "test", steps_table(range(N), {"advantages/mean": np.full(N, np.nan), "reward": rewards()})
    )
    assert finite(Evidence(by_name)).column == "advantages/mean"
    late = finite(log(kl=from_row(norms(), N - 8, np.nan), reward=rewards()))
    assert late.status is Status.NONE  # eight rows, and nothing else of the trainer's rows goes on


@each_case(
    ("error", "planned", "state"),
    [
        ("", None, State.OK),
        ("OutOfMemoryError: CUDA out of memory", None, State.WARNING),
        ("OutOfMemoryError: CUDA out of memory", 200, State.WARNING),
        ("RuntimeError: a worker of the loader is gone", N, State.OK),
        ("KeyboardInterrupt", None, State.OK),
    ],
)
def test_a_run_that_an_error_ended_before_its_planned_end_asks_for_a_look(
    error: str, planned: int | None, state: State
) -> None:
    """An error behind the last planned step, or an interrupt by hand, harmed nothing, and the
    headline says nothing of it.
    """
    record = log(reward=np.linspace(0.2, 0.7, N) + 0.1 * (rewards() - 0.5)).record
    config = RunConfig() if planned is None else RunConfig(planned_steps=Setting(planned, "test"))
    judgement = judge(Evidence(replace(record, error=error, config=config)))
    assert judgement.state is state
    assert judgement.headline.startswith("reward 0.21 → 0.69 in 119 steps, still learning")
    quoted = state is State.WARNING
    parts = [part for part in judgement.parts if "the log ends" in part]
    assert bool(parts) is quoted
    for part in parts:
        says("diagnostics/numerics/11", part, step=N, error=error)
