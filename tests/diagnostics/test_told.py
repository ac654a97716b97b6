"""What is said is so: no alarm on a healthy log of an odd kind, no number that the log does not hold, no advice to log what is there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from worlds.runs import FAILURES, simulated_run

from groupwise.diagnostics.former import CHECKS, Diagnosis, Evidence, Finding, Measure, diagnose, hacking
from groupwise.diagnostics.former.verdict import LOG_FOR, chance_in_words, conclude
from groupwise.record.run import Meaning, RunRecord, rollouts_table, steps_table
from groupwise.report.tables import measured as measured_line

NAMES = {
    "reward": "reward",
    "spread": "reward_std_within_group",
    "entropy": "entropy",
    "length": "completion_length",
    "gradient": "gradient_norm",
    "held_out": "eval/reward",
    "dead": "dead_group_share",
    "kl": "kl",
}
N = 120
RNG = np.random.default_rng(20)
RISE = np.clip(0.2 + 0.5 * np.arange(N) / N + 0.03 * RNG.standard_normal(N), 0, 1)
ENTROPY = 0.8 * np.exp(-np.arange(N) / N)


def log(rows: Any = None, **columns: Any) -> RunRecord:
    given = {key: np.asarray(value, dtype=float) for key, value in columns.items()}
    meanings = tuple(Meaning(key, NAMES[key], "test") for key in given if key in NAMES)
    length = len(next(iter(given.values())))
    return RunRecord("test", steps_table(range(1, length + 1), given), rollouts_table(rows or []), meanings=meanings)


def found_by(found: Diagnosis, check: str) -> Finding:
    return next(finding for finding in found.findings if finding.check == check)


def measured(record: RunRecord) -> dict[str, Measure]:
    return {one.name: one for one in diagnose(record, measured=True).measures}


# No alarm in health.


def test_an_effective_sample_size_that_is_a_count_is_held_against_its_own_beginning() -> None:
    count = 50_000 + 3000 * np.random.default_rng(1).standard_normal(N)
    count[3] = 200_000  # one large batch makes no share of the others
    assert diagnose(log(reward=RISE, entropy=ENTROPY, **{"is/ess": count})).verdict == "healthy"
    count[60:] /= 10
    found = found_by(diagnose(log(reward=RISE, entropy=ENTROPY, **{"is/ess": count})), "dynamical_instability")
    assert found.since_step == 61
    assert found.value.value == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("column", ["is/weight_second_moment", "optimizer/second_moment"])
def test_a_second_moment_is_one_where_all_weights_are_equal(column: str) -> None:
    moment = 1.05 + 0.01 * np.random.default_rng(2).random(N)
    assert diagnose(log(reward=RISE, entropy=ENTROPY, **{column: moment})).verdict == "healthy"
    moment[60:] = 2.3
    verdict = diagnose(log(reward=RISE, entropy=ENTROPY, **{column: moment})).verdict
    assert (verdict == "healthy") == (column == "optimizer/second_moment")


def test_the_second_moment_of_an_alarm_is_that_of_the_measure() -> None:
    record = log(reward=RISE, entropy=ENTROPY, **{"rollout_corr/chi2_token": np.where(np.arange(N) < 60, 0.05, 1.3)})
    found = found_by(diagnose(record), "dynamical_instability")
    assert found.value.value == pytest.approx(2.3, abs=1e-12)  # a chi-square of 1.3 is a second moment of 2.3
    assert "2.3" in found.message
    value = measured(record)["weight_second_moment"].value
    assert value is not None
    assert value.value == pytest.approx(2.3, abs=1e-12)


def test_a_noisy_reward_of_unknown_top_that_rises_has_learnt() -> None:
    rng = np.random.default_rng(3)
    step = np.arange(4000)
    reward = 1 + 0.2 * step / 4000 + 0.8 * rng.standard_normal(4000)
    record = log(reward=reward, entropy=0.8 * np.exp(-step / 4000))
    assert "no_learning" not in [finding.check for finding in diagnose(record).findings]
    # Its top is not known, so nothing is "left".
    flat = found_by(diagnose(log(reward=1 + 0.8 * rng.standard_normal(4000))), "no_learning")
    assert "that were left" not in flat.message
    assert "not known" in flat.message
    assert "neither entropy nor KL is logged" in flat.message


@pytest.mark.parametrize("level", [0.0, 0.5, -0.2])
def test_a_constant_mean_of_groups_that_differ_is_no_failure(level: float) -> None:
    # Ranks, centred rewards and games against itself have one mean by construction.
    found = diagnose(log(reward=np.full(N, level), spread=np.full(N, 0.4), entropy=ENTROPY))
    assert [finding.severity for finding in found.findings if finding.severity != "info"] == []
    reasons = {missing.check: missing for missing in found.unavailable}
    for check in ("verifier_failure", "no_learning"):
        assert "spread" in reasons[check].reason
        assert reasons[check].log_this
    assert found.verdict == "undetermined"
    # Without a spread it is one.
    assert diagnose(log(reward=np.zeros(N), spread=np.zeros(N), entropy=ENTROPY)).findings[0].severity == "critical"


def test_numbers_beyond_measure_are_no_numbers() -> None:
    found = diagnose(log(reward=1e300 * RISE, entropy=ENTROPY))
    assert found.verdict == "undetermined"
    assert not found.findings
    assert any("1e100" in missing.reason for missing in found.unavailable)
    json.dumps(found.as_dict(), allow_nan=False)
    mixed = diagnose(log(reward=RISE, entropy=ENTROPY, gradient=np.where(np.arange(N) < 5, 1.0, 1e308)), measured=True)
    json.dumps(mixed.as_dict(evidence=True), allow_nan=False)
    assert "nan" not in " ".join(finding.message for finding in mixed.findings)


# No sentence without its number.


def test_what_is_logged_is_not_asked_for() -> None:
    rng = np.random.default_rng(3)
    fall = np.clip(0.6 * (1 - np.clip((np.arange(150) - 90) / 30, 0, 1)) + 0.03 * rng.standard_normal(150), 0, 1)
    gradient = np.exp(0.2 * rng.standard_normal(150))
    length = 200 + np.where(np.arange(150) > 90, 100, 0) + rng.standard_normal(150)
    entropy = 0.5 + 0.01 * rng.standard_normal(150)
    dead = np.clip(fall**8 + (1 - fall) ** 8 + 0.01 * rng.standard_normal(150), 0, 1)
    parts = {"rewards/a/mean": fall, "rewards/b/mean": fall, "reward": 2 * fall}
    bare = diagnose(log(reward=fall))
    assert LOG_FOR["behaviour"] in bare.sentence
    record = log(reward=parts.pop("reward"), held_out=fall, entropy=entropy, length=length, dead=dead, gradient=gradient, **parts)
    assert Evidence(record).logged == set(LOG_FOR)
    outcomes = [check.run(Evidence(log(reward=fall))) for check in CHECKS]
    for logged in ({"behaviour"}, set(LOG_FOR)):
        told = conclude("test", outcomes, logged)
        assert told.causes == bare.causes  # it changes what is asked, and no probability
        assert not any(LOG_FOR[name] in told.sentence for name in logged)
    assert "read the completions" in told.sentence


def test_no_probability_is_said_to_be_certain() -> None:
    assert [chance_in_words(p) for p in (0.884, 0.99, 0.9951, 1.0)] == ["88 %", "99 %", "more than 99 %", "more than 99 %"]


def test_groups_of_their_own_step_predict_nothing_of_themselves() -> None:
    # One group of four a step, all at 0, or all at 1, or all at a half: dealt at random hardly a group would be alike.
    rows = [{"step": step, "prompt_id": 0, "reward": (0.0, 1.0, 0.5)[step % 3]} for step in range(1, N + 1) for _ in range(4)]
    record = log(rows, reward=[(0.0, 1.0, 0.5)[step % 3] for step in range(1, N + 1)])
    value = measured(record)["dead_beyond_chance"].value
    assert value is not None
    # Pools of four steps: of 16 rewards two values are there 4 times and one 8 times.
    chance = (2 * 1 + 70) / 1820  # (C(4,4) + C(4,4) + C(8,4)) / C(16,4)
    assert value.value == pytest.approx(1 - chance, abs=1e-12)


def test_no_pair_of_like_texts_is_no_certainty() -> None:
    rows = [
        {"step": step, "prompt_id": prompt, "reward": 1.0, "completion": f"{step} {prompt} {i} #### {i}"}
        for step in range(1, 21)
        for prompt in range(4)
        for i in range(2)
    ]
    found = measured(log(rows, reward=np.linspace(0.2, 0.4, 20)))
    for name in ("same_text", "same_answer"):
        value = found[name].value
        assert value is not None
        assert value.value == value.low == 0.0
        assert value.high == pytest.approx(1.959963984540054**2 / (16 + 1.959963984540054**2), abs=1e-9)  # Wilson's of 0 of 16


def test_a_collapse_says_what_was_reached_at_least() -> None:
    # The height is the lower limit of the best mean of a stretch, and no level of the rows before.
    reward = np.concatenate([0.6 + 0.1 * np.random.default_rng(5).standard_normal(60), np.full(60, 0.01)])
    found = found_by(diagnose(log(reward=reward)), "collapse")
    assert "at least" in found.message
    assert "before step" not in found.message


def test_a_sentence_of_hacking_holds_its_number() -> None:
    rng = np.random.default_rng(6)
    train = np.linspace(0.3, 0.8, N) + 0.02 * rng.standard_normal(N)
    found = found_by(diagnose(log(reward=train, held_out=0.5 - 0.05 * (train - 0.3) + 0.005 * rng.standard_normal(N))), "reward_hacking")
    assert f"{found.value.value:.2g}" in found.message
    assert "held-out reward by -0.0" in found.message  # a fall keeps its sign
    parts = {"rewards/g/mean": train, "rewards/f/mean": np.where(np.arange(N) % 2, 0.01, 0.02)}
    bare = found_by(diagnose(log(reward=train, **parts)), "reward_hacking").message
    assert "which has no weight in the total, by" in bare


def test_dead_groups_of_a_reward_of_unknown_range_are_explained_by_nothing() -> None:
    rng = np.random.default_rng(7)
    dead = np.clip(np.where(np.arange(N) < 60, 0.1, 0.99) + 0.01 * rng.standard_normal(N), 0, 1)
    reward = 3 + np.where(np.arange(N) < 60, 1.0, 0.0) + 0.1 * rng.standard_normal(N)
    graded = found_by(diagnose(log(reward=reward, dead=dead)), "advantage_degeneracy")
    assert "cannot be told" in graded.message
    binary = found_by(
        diagnose(log(reward=np.clip(RISE * 0 + 0.5 + 0.02 * rng.standard_normal(N), 0, 1), dead=dead)), "advantage_degeneracy"
    )
    assert f"{100 * binary.threshold:.0f} % would be" in binary.message


def test_every_finding_names_its_number() -> None:
    seen = set()
    for kind in (*FAILURES, "no_learning", "length_runaway", "collapse"):
        for finding in diagnose(simulated_run(kind, np.random.default_rng(8), steps=160)[0]).findings:
            seen.add(finding.check)
            assert finding.what
            assert measured_line(finding).startswith(finding.what)
            assert "what" not in finding.as_dict()
    assert len(seen) >= 6


def test_a_note_asks_for_no_rollback() -> None:
    reward = 0.5 + np.where(np.arange(N) < 90, 0.02, 0.12) * np.random.default_rng(9).standard_normal(N)
    found = found_by(diagnose(log(reward=reward)), "dynamical_instability")
    assert found.severity == "info"
    assert "Lower the learning rate" not in found.advice


def test_a_reward_in_per_cent_beside_a_held_out_share_is_no_hacking() -> None:
    rng = np.random.default_rng(10)
    train, held = RISE, np.clip(RISE - 0.05 + 0.02 * rng.standard_normal(N), 0, 1)
    plain = measured(log(reward=train, held_out=held))["coupling"].value
    assert plain is not None
    for record in (log(reward=100 * train, held_out=held), log(reward=train, held_out=100 * held)):
        assert diagnose(record).verdict == "healthy"
        value = measured(record)["coupling"].value
        assert value is not None
        assert (value.value, value.low, value.high) == pytest.approx((plain.value, plain.low, plain.high), rel=1e-9)
        assert "per cent taken as shares" in measured(record)["progress_gap"].message
    other = log(reward=1000 * train - 300, held_out=held)  # points of a game beside an accuracy
    assert [missing.check for missing in diagnose(other).unavailable if "units" in missing.reason] == ["reward_hacking"]
    assert measured(other)["progress_gap"].log_this
    hacked = log(reward=100 * train, held_out=np.clip(0.3 + 0.02 * rng.standard_normal(N), 0, 1))
    assert diagnose(hacked).verdict == "reward_hacking"


def test_a_held_out_set_that_was_solved_from_the_start_tells_little() -> None:
    rng = np.random.default_rng(11)
    train = np.clip(0.4 + 0.55 * np.arange(N) / N + 0.02 * rng.standard_normal(N), 0, 1)
    solved = diagnose(log(reward=train, held_out=np.clip(0.93 + 0.01 * rng.standard_normal(N), 0, 1)))
    assert solved.verdict == "healthy"
    assert "near its top" in found_by(solved, "reward_hacking").advice
    falls = np.clip(0.93 - 0.3 * np.arange(N) / N + 0.01 * rng.standard_normal(N), 0, 1)
    assert found_by(diagnose(log(reward=train, held_out=falls)), "reward_hacking").severity == "critical"


def test_the_range_of_an_onset_holds_it() -> None:
    # About 0.90 in 800 runs of experiments/diagnosis/measures.py (its onset, seeds 1 to 3 and the default); fewer than 30 of 40 at that
    # rate come about once in 300 changes of the seeds. At a likelihood ratio of e^-1.92 it was 0.69.
    inside = 0
    for seed in range(40):
        record, onset = simulated_run("reward_hacking", np.random.default_rng([78, seed]))
        pair = hacking.pair_of(Evidence(record))
        assert pair is not None
        assert onset is not None
        _, first, last = hacking.parting_of(pair)
        inside += first <= onset <= last
    assert inside >= 30
