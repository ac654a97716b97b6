"""What components assume, on data that bear it out and on data that violate each of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from tests.golden.sentences import says

from groupwise.estimators.best_group_size import Budget, plan_from_components
from groupwise.estimators.components import (
    FEWEST_INFORMATIVE,
    QUANTITIES,
    Components,
    components,
    weights,
)
from groupwise.intervals import mean_interval, ratio_interval
from groupwise.plain import Assumption, AssumptionStatus

HOLDS, VIOLATED, UNKNOWN = AssumptionStatus
SCORES, DIFFERENT, PROMPTS, LENGTHS, TAILS, GROUPS = (
    "scores with a mean of 0 within prompts",
    "prompts without near-duplicates",
    "independent prompts",
    "scores of similar norm",
    "rewards without heavy tails",
    "enough informative groups",
)
SIZE, WIDTH = 8, 5


def texts_of(label_N: np.ndarray) -> list[str]:
    """A text for each prompt that shares no template with the others."""
    return [f"{'ab'[label % 2] * (label + 2)} has a wording of its own" for label in label_N]


def measured(
    level_P: np.ndarray, *, shift: float = 0.0, varying: int | None = None, zero_mean: bool = True
) -> Components:
    """Normal scores and rewards around a level a prompt; only the first groups' rewards vary."""
    rng = np.random.default_rng(3)
    prompts = len(level_P)
    score = rng.normal(size=(prompts * SIZE, WIDTH)) + shift
    varies_P = np.arange(prompts) < (prompts if varying is None else varying)
    reward_PG = level_P[:, None] + rng.normal(size=(prompts, SIZE)) * varies_P[:, None]
    label = np.repeat(np.arange(prompts), SIZE)
    text = texts_of(label)
    return components(reward_PG.ravel(), label, score_ND=score, text_N=text, zero_mean=zero_mean)


def moment_of_prompts(estimate: Components, name: str) -> np.ndarray:
    return estimate.pseudo_PC[:, QUANTITIES.index(name)]


def by_name(estimate: Components) -> dict[str, Assumption]:
    return {assumption.name: assumption for assumption in estimate.check_assumptions()}


def independent(prompts: int) -> np.ndarray:
    return np.random.default_rng(4).normal(size=prompts)


def test_data_that_bear_all_out_have_no_note() -> None:
    estimate = measured(independent(64))
    assumptions = estimate.check_assumptions()
    assert [(entry.name, entry.status) for entry in assumptions] == [
        (SCORES, HOLDS),
        (DIFFERENT, HOLDS),
        (PROMPTS, HOLDS),
        (LENGTHS, HOLDS),
        (TAILS, HOLDS),
        (GROUPS, HOLDS),
    ]
    says("estimators/assumptions/1", str(assumptions[5]))
    assert estimate.notes == ()


def test_scores_of_another_policy_violate_the_first_alone() -> None:
    estimate = measured(independent(64), shift=1.0)
    violated = by_name(estimate).pop(SCORES)
    assert violated.status is VIOLATED
    mean = estimate.others["score_mean_norm2"]
    assert f"{mean.value:.3g}, {mean.value / mean.standard_error:.2g} standard" in str(violated)
    assert "zero_mean=False or --any-mean." in violated.sentence
    assert estimate.notes == (violated.sentence,)
    free = measured(independent(64), shift=1.0, zero_mean=False)
    assert SCORES not in by_name(free)
    assert free.notes == ()


def test_families_of_prompts_violate_the_second_alone() -> None:
    families = np.repeat(independent(16), 4) * 3
    estimate = measured(families)
    violated = by_name(estimate)[PROMPTS]
    rank = stats.rankdata(moment_of_prompts(estimate, "value"))
    pairs = (rank[1:] - 32.5) @ (rank[:-1] - 32.5) / ((rank - 32.5) ** 2).sum()
    assert violated.status is VIOLATED
    says("estimators/assumptions/5", violated.sentence, correlation=f"{pairs + 1 / 63:.2g}")
    assert estimate.notes == (violated.sentence,)
    shuffled = np.random.default_rng(0).permutation(families)
    assert by_name(measured(shuffled))[PROMPTS].status is HOLDS


def test_prompts_whose_score_lengths_come_in_families_violate_the_second_too() -> None:
    rng = np.random.default_rng(5)
    length_P = np.repeat(np.exp(0.3 * rng.normal(size=16)), 4)
    label = np.repeat(np.arange(64), SIZE)
    score = rng.normal(size=(len(label), WIDTH)) * length_P[label, None]
    estimate = components(rng.normal(size=len(label)), label, score_ND=score)
    assert by_name(estimate)[PROMPTS].status is VIOLATED
    assert "the score length of neighbouring prompts" in by_name(estimate)[PROMPTS].sentence


@pytest.mark.parametrize(
    ("varying", "status"),
    [(FEWEST_INFORMATIVE - 1, UNKNOWN), (FEWEST_INFORMATIVE, HOLDS), (2, UNKNOWN), (1, VIOLATED)],
)
def test_groups_of_equal_rewards_open_vp_and_all_but_a_single_one_violate_the_third(
    varying: int, status: AssumptionStatus
) -> None:
    """From 0 to R/2 Vp was held in all of 5,000 batches of rare success, T and R in .95 and more
    where two groups differ, in .6 to .8 where a single one does: that has a note.
    """
    estimate = measured(independent(64), varying=varying)
    assumption = by_name(estimate)[GROUPS]
    assert assumption.status is status
    assert (
        f"{varying} of 64 prompts have groups with at least 2 rewards on each side that differ as "
        "clearly as elsewhere"
    ) in assumption.sentence
    assert (assumption.sentence in estimate.notes) == (status is VIOLATED)
    assert ("--groups N" in assumption.sentence) == (status is not HOLDS)
    assert estimate.unseen.opens_vp == (status is not HOLDS)


def test_few_prompts_leave_open_what_they_do_not_hold() -> None:
    few = by_name(measured(independent(2)))
    assert (few[SCORES].status, few[PROMPTS].status) == (UNKNOWN, UNKNOWN)


def test_few_informative_groups_open_vp_up_to_its_ceiling_and_name_no_size() -> None:
    """Of 64 prompts three have two successes: Vp <= R/2 - |g|^2 is all that is known of it."""
    rng = np.random.default_rng(8)
    reward_PG = np.zeros((64, SIZE))
    reward_PG[:3, :2] = 1.0
    reward_PG[3:20, 0] = 1.0
    label = np.repeat(np.arange(64), SIZE)
    estimate = components(reward_PG.ravel(), label, score_ND=rng.normal(size=(512, WIDTH)))
    assert estimate.unseen.opens_vp
    assert estimate.vp.interval.low <= 0
    assert estimate.vp.interval.high >= estimate.r.interval.high / 2 > estimate.vp.value
    assert estimate.group_size.high == np.inf
    assert estimate.group_size.low == pytest.approx(1 + np.sqrt(2))
    plan = plan_from_components(estimate, Budget(512))
    assert str(plan).startswith("No single group size is safe for a whole run")
    assert plan.safe_sizes == (4, 5)
    assert "smallest error at" not in plan.status


def test_where_vp_may_be_zero_the_best_size_has_no_upper_end_and_its_lower_is_that_of_vp() -> None:
    """The ratio R/Vp takes both for normal: over worlds of right and wrong whose prompts share most
    of their gradient it held .87 to .96 of the best sizes, so .92 to .98.
    """
    doubtful = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        label, score = np.repeat(np.arange(32), SIZE), rng.normal(size=(32 * SIZE, WIDTH))
        reward = (score[:, 0] + rng.normal(size=len(score)) > 1.5).astype(float)
        made = components(reward, label, score_ND=score)
        if made.vp.distinguishable or made.unseen.opens_vp:
            continue
        doubtful += 1
        assert made.group_size.high == math.inf
        assert made.group_size.low <= 1 + math.sqrt(made.r.value / made.vp.interval.high) + 1e-9
    assert doubtful > 10


@pytest.mark.parametrize(("noise", "differ"), [(0.003, False), (1.0, True)])
def test_small_noise_makes_no_group_of_one_success_an_informative_one(
    noise: float, differ: bool
) -> None:
    """Beside noise every group's rewards differ, and Vp was held in .53 to .82 of batches
    without a note: its four rollouts cancel as they do without noise.
    """
    rng = np.random.default_rng(8)
    reward_PG = np.zeros((64, SIZE))
    reward_PG[:20, 0] = 1.0
    reward_PG += noise * rng.normal(size=reward_PG.shape)
    label = np.repeat(np.arange(64), SIZE)
    estimate = components(reward_PG.ravel(), label, score_ND=rng.normal(size=(512, WIDTH)))
    assert estimate.unseen.opens_vp == (not differ)
    assert (estimate.unseen.informative > 40) == differ


def test_a_heavy_tail_of_rewards_lengthens_upper_halves() -> None:
    label = np.repeat(np.arange(64), SIZE)
    score = np.random.default_rng(9).normal(size=(512, WIDTH))

    def with_rewards(reward_N: np.ndarray) -> Components:
        return components(reward_N, label, score_ND=score, text_N=texts_of(label))

    rng = np.random.default_rng(9)
    normal, heavy = with_rewards(rng.normal(size=512)), with_rewards(rng.normal(size=512) ** 5)
    assert (by_name(normal)[TAILS].status, by_name(heavy)[TAILS].status) == (HOLDS, UNKNOWN)
    exponential = with_rewards(rng.exponential(size=512) ** 0.9)
    factor = exponential.unseen.of_lengths * (1 + 0.2 * (exponential.unseen.kurtosis - 4))
    assert exponential.unseen.kurtosis > 4.5
    assert exponential.unseen.widening == pytest.approx(factor)
    plain = mean_interval(moment_of_prompts(exponential, "t"))
    longer = pytest.approx(plain.value + factor * (plain.high - plain.value))
    assert exponential.t.interval.high == longer
    large = components(rng.exponential(size=512) ** 0.9, label // 2 * 2, score_ND=score).unseen
    expected = large.of_lengths * (1 + 0.1 * (large.kurtosis - 4))
    assert large.widening == pytest.approx(expected), "sixteen rollouts say twice as much"
    for estimate, part in ((normal, 1.0), (heavy, 3.0)):
        assert estimate.unseen.widening == pytest.approx(part * estimate.unseen.of_lengths)
    assert heavy.notes == ()
    right = with_rewards(rng.random(512) < 0.5)
    says("estimators/assumptions/2", by_name(right)[TAILS].sentence)
    some = components(rng.normal(size=64) ** 5, label[:64], score_ND=score[:64])
    assert some.unseen.widening > 2, "eight prompts tell a tail"
    few = components(rng.normal(size=56) ** 5, label[:56], score_ND=score[:56])
    says("estimators/assumptions/3", by_name(few)[TAILS].sentence)


def of_lengths(spread: float, prompts: int = 64) -> Components:
    rng = np.random.default_rng(21)
    label = np.repeat(np.arange(prompts), SIZE)
    place_P = rng.permutation(prompts)
    length_P = np.exp(spread * stats.norm.ppf((place_P + 0.5) / prompts))
    score = rng.normal(size=(label.size, WIDTH)) * length_P[label, None]
    return components(rng.normal(size=label.size), label, score_ND=score, text_N=texts_of(label))


def test_unlike_lengths_lengthen_upper_halves_and_leave_no_end_where_they_hide_most() -> None:
    like, unlike, hidden = of_lengths(0.05), of_lengths(0.5), of_lengths(0.75)
    statuses = [by_name(estimate)[LENGTHS].status for estimate in (like, unlike, hidden)]
    assert statuses == [HOLDS, UNKNOWN, VIOLATED]
    sample = unlike.unseen
    assert sample.relative_variance == pytest.approx(np.expm1(4 * sample.unlikeness**2))
    assert sample.of_lengths == pytest.approx((1 + 30 * sample.relative_variance / 64) ** 0.2)
    assert not unlike.unseen.opens_vp
    assert unlike.notes == ()
    assert hidden.unseen.opens_vp
    assert len(hidden.notes) == 1
    ends = [part.interval.high for part in (hidden.vp, hidden.t, hidden.r)]
    assert ends == [np.inf] * 3
    assert hidden.group_size.high == np.inf
    assert hidden.t.status.endswith(": the data do not limit it")


def test_unlike_lengths_move_the_lower_end_of_the_best_size_and_rewards_of_heavy_tails_do_not() -> (
    None
):
    """The prompts that a sample lacks add to Vp, so that the best size may be smaller; tails of
    rewards are in Vp, T and R alike. A size goes as a ratio: ends by the interval of one.
    """
    unlike = of_lengths(0.5)
    label = np.repeat(np.arange(64), SIZE)
    rng = np.random.default_rng(25)
    score = rng.normal(size=(label.size, WIDTH))
    heavy = components(rng.normal(size=label.size) ** 3, label, score_ND=score)
    for made, lower in ((unlike, unlike.unseen.of_lengths), (heavy, 1.25)):
        vp, r = made.vp.value, made.r.value
        places = [QUANTITIES.index(name) for name in ("r", "vp")]
        quantile = made.quantile(weights(vp=1 / vp if vp > 0 else 1.0, r=-1 / r))
        covariance = made.covariance_CC[np.ix_(places, places)]
        ends = [
            1 + math.sqrt(getattr(ratio_interval(r, vp, covariance, by * quantile), end))
            for by, end in ((lower, "low"), (1.25, "high"))
        ]
        if not made.vp.distinguishable:
            ends = [max(ends[0], 1 + math.sqrt(2)), math.inf]
        assert (made.group_size.low, made.group_size.high) == pytest.approx(ends)
    assert unlike.unseen.of_lengths > 1.7
    assert heavy.unseen.of_lengths < 1.25 < heavy.unseen.widening


def test_a_part_without_spread_has_no_open_end() -> None:
    """Rewards that are all alike: T and R are exactly 0, however unlike the lengths."""
    label = np.repeat(np.arange(64), SIZE)
    score = np.exp(label % 7)[:, None] * np.random.default_rng(2).normal(size=(512, WIDTH))
    constant = components(np.ones(512), label, score_ND=score)
    assert (constant.t.interval.low, constant.t.interval.high) == (0.0, 0.0)


def test_short_scores_of_solved_prompts_are_no_unlike_lengths() -> None:
    """A third of the prompts has scores a hundred times shorter, which hold nothing of Vp."""
    rng = np.random.default_rng(12)
    label = np.repeat(np.arange(96), SIZE)
    short = np.where(label % 3 == 0, 0.01, 1.0)
    estimate = components(
        rng.normal(size=label.size),
        label,
        score_ND=rng.normal(size=(label.size, WIDTH)) * short[:, None],
    )
    assert by_name(estimate)[LENGTHS].status is HOLDS


@pytest.mark.parametrize(("size", "factor"), [(4, 1.25), (5, 1.0)])
def test_four_rollouts_a_prompt_widen_the_upper_half_of_vp_and_the_best_size(
    size: int, factor: float
) -> None:
    rng = np.random.default_rng(13)
    label = np.repeat(np.arange(64), size)
    score, level = rng.normal(size=(label.size, WIDTH)), rng.uniform(-2, 2, size=64)
    reward = score @ np.ones(WIDTH) * level[label] + rng.normal(size=label.size)
    estimate = components(reward, label, score_ND=score)
    plain = mean_interval(moment_of_prompts(estimate, "vp"))
    half = factor * estimate.unseen.widening * (plain.high - plain.value)
    assert plain.low > 0
    assert estimate.vp.interval.low == plain.low
    assert estimate.vp.interval.high == pytest.approx(plain.value + half)
    relative = weights(vp=1 / estimate.vp.value, r=-1 / estimate.r.value)
    pick = np.ix_([2, 0], [2, 0])
    ratio = ratio_interval(
        estimate.r.value,
        estimate.vp.value,
        estimate.covariance_CC[pick],
        factor * min(estimate.unseen.widening, 1.25) * estimate.quantile(relative),
        level=0.95,
    )
    assert estimate.group_size.low == pytest.approx(1 + np.sqrt(ratio.low))


def test_vp_that_cannot_be_told_from_0_has_a_longer_upper_half() -> None:
    estimate = measured(independent(64))
    plain = mean_interval(moment_of_prompts(estimate, "vp"))
    assert plain.low <= 0
    half = 1.5 * estimate.unseen.widening * (plain.high - plain.value)
    assert estimate.vp.interval.high == pytest.approx(plain.value + half)


def test_copies_of_prompts_that_follow_one_another_are_left_out_together() -> None:
    """Eight copies of eight prompts: the estimate of the eight means, and their spread."""
    rng = np.random.default_rng(10)
    family_P = np.repeat(np.arange(8), 8)
    chance_P, length_P = np.linspace(0.2, 0.8, 8)[family_P], np.linspace(1.0, 2.0, 8)[family_P]
    label = np.repeat(np.arange(64), SIZE)
    reward = rng.random(512) < chance_P[label]
    estimate = components(
        reward, label, score_ND=rng.normal(size=(512, WIDTH)) * length_P[label, None]
    )
    assert "the intervals use 8 blocks of 8 neighbours" in str(by_name(estimate)[PROMPTS])
    t_F = moment_of_prompts(estimate, "t").reshape(8, 8).mean(axis=1)
    assert estimate.t.value == pytest.approx(t_F.mean())
    assert estimate.t.standard_error == pytest.approx(stats.sem(t_F))
    pairs = 7 / 63  # of copies
    assert estimate.vp.value == pytest.approx(
        moment_of_prompts(estimate, "vp").mean() / (1 - pairs)
    )


def near_duplicates(kind_P: np.ndarray, given: str = "score_ND") -> Components:
    """Groups of prompts of a few kinds, each with a policy of six answers; texts of one kind differ
    in a name and a number alone.
    """
    rng = np.random.default_rng(12)
    score_KAD = rng.normal(size=(int(kind_P.max()) + 1, 6, WIDTH))
    label, answer = np.repeat(np.arange(64), SIZE), rng.integers(6, size=512)
    kind_N = kind_P[label]
    reward = (rng.random(512) < rng.beta(2, 2, size=len(score_KAD))[kind_N]).astype(float)
    score = score_KAD[kind_N, answer]
    thing_N = ["ab"[kind % 2] * (kind + 2) for kind in kind_N]
    text = [
        f"{['Ada', 'Bo', 'Cy'][row % 3]} has {row} apples, a {thing} and 2 friends who like a {thing}"
        for row, thing in zip(label, thing_N, strict=True)
    ]
    of = {"score_ND": score} if given == "score_ND" else {"gram_NN": score @ score.T}
    return components(reward, label, zero_mean=False, text_N=text, **of)


@pytest.mark.parametrize("given", ["score_ND", "gram_NN"])
def test_shuffled_near_duplicates_are_left_out_together(given: str) -> None:
    """Eight labels of each of eight kinds: the error is that of eight means."""
    kind_P = np.random.default_rng(13).permutation(np.repeat(np.arange(8), 8))
    estimate = near_duplicates(kind_P, given)
    t_P, vp_P = (moment_of_prompts(estimate, name) for name in ("t", "vp"))
    assert estimate.prompts == estimate.t.n == 8
    assert estimate.t.value == pytest.approx(t_P.mean())
    t_K = [t_P[kind_P == kind].mean() for kind in range(8)]
    assert estimate.t.standard_error == pytest.approx(stats.sem(t_K))
    pairs = 7 / 63  # of one kind
    assert estimate.vp.value == pytest.approx(vp_P.mean() / (1 - pairs))
    assert by_name(estimate)[DIFFERENT].status is VIOLATED
    assert by_name(estimate)[DIFFERENT].sentence in estimate.notes
    says("estimators/assumptions/4", by_name(estimate)[DIFFERENT].sentence)


def test_kinds_of_unlike_size_count_by_what_they_say_beyond_the_mean() -> None:
    """Were kinds of 20 and of 2 prompts to count by their sums, sizes would pass for variance."""
    kind_P = np.random.default_rng(3).permutation(np.repeat(np.arange(14), [20, 20, *[2] * 12]))
    estimate = near_duplicates(kind_P)
    t_P = moment_of_prompts(estimate, "t")
    sum_K = np.bincount(kind_P, t_P - t_P.mean())
    assert estimate.t.value == pytest.approx(t_P.mean())
    assert estimate.t.standard_error == pytest.approx(np.sqrt(14) * sum_K.std(ddof=1) / 64)
    assert "those of about 5 prompts" in by_name(estimate)[DIFFERENT].sentence


def test_a_few_near_duplicates_are_no_note() -> None:
    kind_P = np.append(np.arange(56), np.full(8, 56))
    estimate = near_duplicates(kind_P)
    assert estimate.prompts == 57
    assert by_name(estimate)[DIFFERENT].status is HOLDS
    assert str(by_name(estimate)[DIFFERENT]).startswith("57 of 64 prompts differ")


def test_without_texts_near_duplicates_are_an_open_question() -> None:
    rng = np.random.default_rng(12)
    label = np.repeat(np.arange(64), SIZE)
    score, reward = rng.normal(size=(512, WIDTH)), rng.normal(size=512)
    estimate = components(reward, label, score_ND=score, text_N=texts_of(label))
    bare = components(reward, label, score_ND=score)
    assert (estimate.prompts, by_name(estimate)[DIFFERENT].status, estimate.notes) == (
        64,
        HOLDS,
        (),
    )
    assert (bare.prompts, by_name(bare)[DIFFERENT].status) == (64, UNKNOWN)
    assert bare.notes == (by_name(bare)[DIFFERENT].sentence,)
    assert "have no texts" in bare.notes[0]
    assert bare.t.interval == estimate.t.interval


@pytest.mark.slow
def test_independent_prompts_raise_no_alarm() -> None:
    """Of 300 batches of 40 prompts with skewed values none: a chance of 1 % for all together."""
    rng = np.random.default_rng(7)
    label = np.repeat(np.arange(40), 4)
    for _ in range(300):
        reward = (rng.random(160) < np.repeat(rng.beta(0.3, 0.3, 40), 4)).astype(float)
        estimate = components(reward, label, score_ND=rng.normal(size=(160, 2)))
        assert by_name(estimate)[PROMPTS].status is HOLDS
