"""How large is the error of the gradient with each baseline, against what the formulas say, for
three policies of different quality?

    python lab/experiments/u_statistic/gradient_mse.py [--quick] [--tables] [--workers 2] [--minutes
    60] [--only TEXT]

runs what is missing: for each policy the truth (exact values and gradients of all 8,000 problems);
the error within prompts, over 384 problems of 64 rollouts cut into groups of 4 to 64, against the
exact gradient of each problem (the paper's figure 4); and the error of whole batches of 512
rollouts, by repetition, against the exact gradient of the mean value over all problems; and what
one step of SGD with such a batch does to the exact accuracy. Pieces are in results.txt;
prints the tables of lab/docs/studies/gradient-experiments.md.
It trains nothing but the warm-up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from cells import RESULTS, Cell, Row, Rows, options, print_table, run_and_show, where
from numpy import ndarray
from optimal_group_size import RATES
from training import START
from world import (
    EqualGroups,
    ExactMoments,
    answer_scores,
    exact_gradient,
    exact_values,
    roll,
    rollout_scores,
    sampled_components,
    start,
    truth,
    world_task,
)

from groupwise_lab.theory.mse import PromptMoments, Reference, within_prompt_variance
from groupwise_lab.trainer.advantages import leave_one_out, oracle, vanilla
from groupwise_lab.trainer.baselines import shrinkage, variance_optimal, weighted_leave_one_out
from groupwise_lab.trainer.policy import Policy
from groupwise_lab.trainer.rewards import Problem

PIECES = RESULTS.within("gradient_mse")
STARTS = (0.06, 0.25, 0.6)
SIZES = (4, 8, 16, 32, 64)
ESTIMATORS = (
    "vanilla",
    "leave_one_out",
    "shrinkage",
    "oracle",
    "weighted_leave_one_out",
    "variance_optimal",
)
OF_BATCHES = ESTIMATORS[:4]  # the others need the length of every score
LABELS = {
    "vanilla": "no baseline",
    "leave_one_out": "leave-one-out",
    "shrinkage": "shrinkage",
    "oracle": "oracle V(x)",
    "weighted_leave_one_out": "weighted leave-one-out",
    "variance_optimal": "variance-optimal",
}
BATCH = 512


@dataclass(frozen=True)
class Scale:
    """How much is computed.

    Args:
        problems: of the population.
        within: problems whose own error is measured.
        score_rollouts: behind the mean squared score of each of those; a sixteenth of it elsewhere.
        repeats: whole batches of each group size.
    """

    problems: int = 8000
    within: int = 384
    score_rollouts: int = 32
    repeats: int = 30


def weights(
    reward_PG: ndarray, moments: PromptMoments, norm2_PG: ndarray | None = None
) -> dict[str, ndarray]:
    """Advantages of whole groups with every baseline, over G; the moments are those of their
    prompts, the lengths those of their scores.
    """
    size = reward_PG.shape[1]
    advantages = {
        "vanilla": vanilla(reward_PG),
        "leave_one_out": leave_one_out(reward_PG),
        "shrinkage": shrinkage(reward_PG),
        "oracle": oracle(reward_PG, value=moments.value_P),
    }
    if norm2_PG is not None:
        advantages["weighted_leave_one_out"] = weighted_leave_one_out(
            reward_PG, score_norm2=norm2_PG
        )
        exact = {
            "value": moments.value_P,
            "kappa": moments.kappa_P,
            "score_norm2": moments.score_norm2_P,
        }
        advantages["variance_optimal"] = variance_optimal(reward_PG, **exact)
    return {name: np.asarray(advantage) / size for name, advantage in advantages.items()}


def taken(moments: PromptMoments, chosen: ndarray) -> PromptMoments:
    """Moments of some prompts."""
    names = (
        "value_P",
        "score_norm2_P",
        "reward_variance_P",
        "kappa_P",
        "oracle_variance_P",
        "gradient_norm2_P",
    )
    return PromptMoments(*(getattr(moments, name)[chosen] for name in names))


def predicted_within(name: str, moments: PromptMoments, size: int) -> ndarray:
    """The formula, of each prompt; none of the weighted mean, whose weights are random."""
    if name == "weighted_leave_one_out":
        return np.full(len(moments.value_P), math.nan)
    if name != "shrinkage":
        return within_prompt_variance(name, moments, size)
    # The mixture's weight as the rewards of a batch of 512 rollouts would have it, without its
    # scatter.
    prompts, within, between = (
        BATCH / size,
        float(moments.reward_variance_P.mean()),
        float(moments.value_P.var()),
    )
    error = (between + within / size) / (prompts - 1)
    own, others = within / (size - 1), between + error
    mean, share = float(moments.value_P.mean()), own / (own + others)
    return within_prompt_variance("shrunk", moments, size, reference=Reference(mean, error, share))


def within_rows(policy: Policy, some: Sequence[Problem], moments: PromptMoments, seed: int) -> Rows:
    """Mean over prompts of the squared distance of a group's gradient from the prompt's own."""
    largest, draw = SIZES[-1], torch.Generator().manual_seed(seed)
    gram, along, reward = [], [], []
    for at in range(0, len(some), 4):
        rollouts = roll(policy, some[at : at + 4], largest, draw)
        score = rollout_scores(policy, rollouts).reshape(
            -1, largest, sum(value.numel() for value in policy.parameters())
        )
        own = answer_scores(policy, some[at : at + 4])
        gram.append(torch.einsum("pid,pjd->pij", score, score).double().numpy())
        along.append(
            torch.einsum("pid,pd->pi", score, own).double().numpy()
            * moments.value_P[at : at + 4, None]
        )
        reward.append(rollouts.reward_PG)
    gram_PGG, along_PG, reward_PG = (
        np.concatenate(gram),
        np.concatenate(along),
        np.concatenate(reward),
    )
    return [
        row
        for size in SIZES
        for row in _within_of_size(size, gram_PGG, along_PG, reward_PG, moments)
    ]


def _within_of_size(
    size: int, gram_PGG: ndarray, along_PG: ndarray, reward_PG: ndarray, moments: PromptMoments
) -> Rows:
    """All estimators, over every group of one size that the rollouts hold."""
    count = len(reward_PG)
    error = {name: np.zeros(count) for name in ESTIMATORS}
    excess = np.zeros(count)
    parts = reward_PG.shape[1] // size
    block = max(2, BATCH // size)
    used = count - count % block
    for part in range(parts):
        here = slice(part * size, (part + 1) * size)
        for at in range(0, used, block):
            rows = slice(at, at + block)
            some_PGG = gram_PGG[rows, here, here]
            norm2_PG = np.einsum("pii->pi", some_PGG)
            weight = weights(
                reward_PG[rows, here], taken(moments, np.arange(at, at + block)), norm2_PG
            )
            for name, weight_PG in weight.items():
                cross_P = np.einsum("pi,pi->p", weight_PG, along_PG[rows, here])
                error[name][rows] += (
                    squares(weight_PG, some_PGG) - 2 * cross_P + moments.gradient_norm2_P[rows]
                ) / parts
            # The difference is uncorrelated with the oracle's gradient (Hoeffding): its mean square
            # is the excess, with far less scatter.
            excess[rows] += squares(weight["leave_one_out"] - weight["oracle"], some_PGG) / parts
    rows_out = []
    for name in ESTIMATORS:
        measured, formula = error[name][:used], predicted_within(name, moments, size)[:used]
        row = {
            "kind": "within",
            "group_size": size,
            "estimator": name,
            "measured": float(measured.mean()),
            "predicted": float(formula.mean()),
            "standard_error": standard_error(measured),
            "gap_error": standard_error(measured - formula),
            "excess": float(excess[:used].mean()) if name == "leave_one_out" else math.nan,
            "excess_predicted": float(moments.degenerate[:used].mean()) / (size * (size - 1)),
            "excess_error": standard_error(excess[:used]),
        }
        rows_out.append(row | {"count": used * parts})
    return rows_out


def squares(weight_PG: ndarray, gram_PGG: ndarray) -> ndarray:
    """Squared length of a weighted sum of scores, of every group."""
    return np.asarray(np.einsum("pi,pij,pj->p", weight_PG, gram_PGG, weight_PG, optimize=True))


def standard_error(value: ndarray) -> float:
    """Of a mean."""
    return float(value.std(ddof=1) / math.sqrt(len(value)))


def batch_rows(
    policy: Policy, problems: Sequence[Problem], exact: ExactMoments, repeats: int, seed: int
) -> Rows:
    """Squared distance of the gradient of whole batches from that of the mean value."""
    gradient = exact_gradient(policy, problems)
    rng, draw = np.random.default_rng([seed, 9]), torch.Generator().manual_seed(seed)
    rows = []
    names = OF_BATCHES
    for size in SIZES:
        by_name = {name: [] for name in names}
        for _ in range(repeats):
            rollouts, weight = batch(policy, problems, exact, size, rng, draw)
            for name in names:
                by_name[name].append(squared_distance(policy, rollouts, weight[name], gradient))
        for name in names:
            value = np.array(by_name[name])
            formula = (
                (exact.vp + float(predicted_within(name, exact.moments, size).mean()))
                * size
                / BATCH
            )
            row = {
                "kind": "batch",
                "group_size": size,
                "estimator": name,
                "measured": float(value.mean()),
                "predicted": formula,
                "standard_error": standard_error(value),
                "gap_error": standard_error(value),
                "excess": math.nan,
            }
            rows.append(
                row | {"excess_predicted": math.nan, "excess_error": math.nan, "count": repeats}
            )
    return rows


def batch(
    policy: Policy,
    problems: Sequence[Problem],
    exact: ExactMoments,
    size: int,
    rng: np.random.Generator,
    draw: torch.Generator,
) -> tuple[EqualGroups, dict[str, ndarray]]:
    """A batch in groups of this size, and by baseline what each of its scores weighs in the
    gradient.
    """
    chosen = rng.integers(len(problems), size=BATCH // size)
    rollouts = roll(policy, [problems[place] for place in chosen], size, draw)
    weight = weights(rollouts.reward_PG, taken(exact.moments, chosen))
    return rollouts, {name: weight_PG / (BATCH // size) for name, weight_PG in weight.items()}


def squared_distance(
    policy: Policy, rollouts: EqualGroups, weight_PG: ndarray, gradient: torch.Tensor
) -> float:
    """Of the weighted sum of scores from a gradient."""
    return float((weighted_scores(policy, rollouts, weight_PG) - gradient).square().sum())


def weighted_scores(policy: Policy, rollouts: EqualGroups, weight_PG: ndarray) -> torch.Tensor:
    """The weighted sum of the scores of all rollouts."""
    sampled, own = rollouts.sampled, list(policy.parameters())
    log_N = (
        policy.log_probabilities(rollouts.prompt_PL, sampled.completion_NL) * sampled.mask_NL
    ).sum(1)
    total = (log_N * torch.from_numpy(weight_PG.reshape(-1)).float()).sum()
    return torch.cat([part.reshape(-1) for part in torch.autograd.grad(total, own)]).double()


def measured(accuracy: float, scale: Scale | None = None, seed: int = 3) -> Rows:
    """All rows of one policy."""
    scale = scale or Scale()
    policy, problems = start(accuracy), world_task().train[: scale.problems]
    exact = truth(policy, problems, score_rollouts=max(1, scale.score_rollouts // 16))
    some = [
        problems[place]
        for place in np.random.default_rng([seed, 7]).permutation(len(problems))[: scale.within]
    ]
    rows = within_rows(
        policy,
        some,
        truth(policy, some, score_rollouts=scale.score_rollouts, seed=seed + 1).moments,
        seed,
    )
    rows += batch_rows(policy, problems, exact, scale.repeats, seed)
    sample = sampled_components(policy, problems, seed=seed)
    about = {
        "start": accuracy,
        "value": float(exact.moments.value_P.mean()),
        "vp": exact.vp,
        "t": exact.t,
        "r": exact.r,
        "gradient_norm2": exact.gradient_norm2,
        "best": exact.group_size,
        "sample_vp": sample.vp.value,
        "sample_t": sample.t.value,
        "sample_r": sample.r.value,
        "sample_r_low": sample.r.interval.low,
        "sample_r_high": sample.r.interval.high,
        "sample_best": sample.group_size.value,
        "sample_best_low": sample.group_size.low,
        "sample_best_high": sample.group_size.high,
    }
    return [{**row, **about} for row in rows]


def one_step(sizes: tuple[int, ...] = (2, 4, 8, 16, 32), repeats: int = 32, seed: int = 4) -> Rows:
    """What one step of SGD does to the exact mean value of 2,000 problems: the error that counts
    is the one that costs value.
    """
    policy, problems = start(START), world_task().train
    exact, rate = truth(policy, problems, score_rollouts=1), RATES["sgd", BATCH]
    gradient, looked = exact_gradient(policy, problems), problems[:2000]
    rng, draw = np.random.default_rng([seed, 11]), torch.Generator().manual_seed(seed)
    before, best = (
        float(exact_values(policy, looked).mean()),
        value_after(policy, rate * gradient, looked),
    )
    rows = []
    for size in sizes:
        names = OF_BATCHES if size <= 8 else OF_BATCHES[1:2]
        by_name = {name: [] for name in names}
        for _ in range(repeats):
            rollouts, weight = batch(policy, problems, exact, size, rng, draw)
            for name in names:
                step = rate * weighted_scores(policy, rollouts, weight[name])
                by_name[name].append(value_after(policy, step, looked) - before)
        for name in names:
            gain = np.array(by_name[name])
            row = {
                "group_size": size,
                "estimator": name,
                "gain": float(gain.mean()),
                "standard_error": standard_error(gain),
            }
            rows.append(
                row
                | {"without_noise": best - before, "value": before, "rate": rate, "count": repeats}
            )
    return rows


def value_after(policy: Policy, step: torch.Tensor, problems: Sequence[Problem]) -> float:
    """Exact mean value once the parameters have moved; they are moved back."""
    own = list(policy.parameters())
    kept = torch.nn.utils.parameters_to_vector(own).detach().clone()
    with torch.no_grad():
        torch.nn.utils.vector_to_parameters((kept.double() + step).to(kept.dtype), own)
        value = float(exact_values(policy, problems).mean())
        torch.nn.utils.vector_to_parameters(kept, own)
    return value


def all_cells() -> list[Cell]:
    """One a policy, and the gain of one step."""
    return [
        Cell(f"start-{accuracy:g}", measured, {"accuracy": accuracy})
        for accuracy in (0.25, 0.06, 0.6)
    ] + [Cell("one-step", one_step)]


def show() -> None:
    """Print what is there."""
    done = PIECES.tables()
    tables(done)


def estimated(row: Row) -> float | None:
    """What one sample of 64 groups of 16 rollouts predicts; it knows leave-one-out and the
    oracle only.
    """
    size = row["group_size"]
    pairs = {"leave_one_out": row["sample_r"] / (size * (size - 1)), "oracle": 0.0}.get(
        row["estimator"]
    )
    if pairs is None:
        return None
    inside = row["sample_t"] / size + pairs
    return inside if row["kind"] == "within" else (row["sample_vp"] + inside) * size / BATCH


def of_kind(rows: Rows, kind: str) -> Rows:
    """Rows of within or batch."""
    return where(rows, kind=kind)


def tables(done: dict[str, Rows]) -> None:
    """The tables of the page."""
    steps = done.get("one-step", [])
    done = {name: rows for name, rows in done.items() if name != "one-step"}
    first = [rows[0] for rows in done.values()]
    lines = [
        [
            f"{row['value']:.3f}",
            *(f"{row[name]:.1f}" for name in ("vp", "t", "r")),
            (
                f"{row['gradient_norm2']:.2f} | {row['best']:.2f} | "
                f"{row['sample_best']:.2f} ({row['sample_best_low']:.2f} to "
                f"{row['sample_best_high']:.2f})"
            ),
        ]
        for row in first
    ]
    header = (
        "accuracy | Vp | T | R | squared gradient | G* of the truth | "
        "G* of one sample of 64 groups of 16, 95 %"
    )
    print_table("The policies", header, lines)
    for kind in ("within", "batch"):
        lines = []
        for rows in done.values():
            for name in ESTIMATORS if kind == "within" else OF_BATCHES:
                some = where(of_kind(rows, kind), estimator=name)
                lines.append(
                    [f"{some[0]['value']:.2f} | {LABELS[name]}", *(error_cell(row) for row in some)]
                )
        what = (
            "of a group within its prompt"
            if kind == "within"
            else f"of a batch of {BATCH} rollouts"
        )
        print_table(
            f"Squared error {what}: measured / formula / from one sample",
            ("accuracy | baseline", *map(str, SIZES)),
            lines,
        )
    lines = []
    for rows in done.values():
        some = where(of_kind(rows, "within"), estimator="leave_one_out")
        cells = [scaled_excess(row) for row in some]
        own = some[0]["excess_predicted"] * SIZES[0] * (SIZES[0] - 1)
        lines.append(
            [
                f"{some[0]['value']:.2f}",
                *cells,
                f"{own:.0f} | {some[0]['r']:.0f}",
                sample_r(some[0]),
            ]
        )
    header = (
        "accuracy",
        *(f"G = {size}" for size in SIZES),
        "R of these problems | R of all problems | R, one sample, 95 %",
    )
    print_table(
        "Excess of leave-one-out over the oracle, times G(G-1), ± 1.96 standard errors",
        header,
        lines,
    )
    gaps = [
        (row["measured"] - row["predicted"]) / row["gap_error"]
        for rows in done.values()
        for row in rows
        if row["predicted"] > 0
    ]
    far = sum(abs(gap) > 1.96 for gap in gaps)
    print(
        f"\nOf {len(gaps)} errors measured, {far} are more than 1.96 standard errors from the "
        "formula."
    )
    if steps:
        step_table(steps)


def step_table(rows: Rows) -> None:
    """Gain of one step by baseline and group size."""
    sizes = sorted({row["group_size"] for row in rows})
    lines = []
    for name in OF_BATCHES:
        some = {row["group_size"]: row for row in rows if row["estimator"] == name}
        cells = [
            f"{1000 * some[size]['gain']:+.1f} ± {1960 * some[size]['standard_error']:.1f}"
            if size in some
            else ""
            for size in sizes
        ]
        lines.append([LABELS[name], *cells])
    title = (
        f"Change of the exact accuracy by one step of SGD from {rows[0]['value']:.3f}, in "
        "thousandths"
    )
    print_table(title, ("baseline", *(f"G = {size}" for size in sizes)), lines)
    print(
        f"\nWithout noise the step would gain {1000 * rows[0]['without_noise']:+.1f} thousandths."
    )


def error_cell(row: Row) -> str:
    """Measured, formula, estimate."""
    guess = estimated(row)
    digits = 3 if row["kind"] == "batch" else 2
    said = f"{row['measured']:.{digits}f} ± {1.96 * row['standard_error']:.{digits}f}"
    said += f" / {row['predicted']:.{digits}f}" if row["predicted"] > 0 else ""
    return said if guess is None else f"{said} / {guess:.{digits}f}"


def scaled_excess(row: Row) -> str:
    """The excess in units of 1/(G(G-1))."""
    scale = row["group_size"] * (row["group_size"] - 1)
    return f"{scale * row['excess']:.0f} ± {1.96 * scale * row['excess_error']:.0f}"


def sample_r(row: Row) -> str:
    """R with its interval."""
    return f"{row['sample_r']:.0f} ({row['sample_r_low']:.0f} to {row['sample_r_high']:.0f})"


def main() -> None:
    """Run what is missing; print what is there."""
    asked = options(__doc__)
    if asked.quick:
        rows = measured(0.25, Scale(problems=256, within=128, score_rollouts=4, repeats=2))
        print(len(rows), all(row["measured"] > 0 for row in rows), len(one_step((4, 16), 2)))
        return
    run_and_show(all_cells(), PIECES, asked, show, "gradient-experiments.md")


if __name__ == "__main__":
    main()
