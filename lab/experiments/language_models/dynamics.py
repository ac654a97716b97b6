"""What does stability do in a real language model whose completions can be listed: its modes, its
edges, and runs beside them?

    python lab/experiments/language_models/dynamics.py [--tables] [--workers 1] [--minutes 60]
    [--only TEXT]

asks SmolLM2 behind three examples for the neighbours of days. Of its completions only the seven
days count, one token each, and their probabilities are made to sum to one: reward, gradient and
curvature are then exact sums. An adapter of rank 4 on the last six layers is trained by SGD, with a
KL term of weight .5 in the reward. Cells: the fixed point, by least squares on the listed
log-probabilities; its modes, from scores, by Lanczos on products with the Hessian, and by kicks;
the largest stable learning rate, predicted, then found by expected updates after a kick; sampled
runs on both sides of it. Pieces are in results.txt; the tables are put into the page.
"""

import time
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from small_model import (
    PAGE,
    RESULTS,
    Cell,
    Rows,
    column,
    options,
    policy,
    print_table,
    run_and_show,
)

# isort: split
from deep_threshold import BRACKET, FACTORS, fitted_edge, measured_cells
from deep_world import GROUP, Linear, UpdateSettings, cached, sampled_step, trained
from torch import Tensor
from torch.func import functional_call
from truth import ExactLoss, ExactWorld, curvature, leading_modes

from groupwise.edge.mode import threshold
from groupwise.gradients.language_models import prompt_ids
from groupwise.parsing import JsonObject
from groupwise_lab.theory.oscillator import rule_threshold
from groupwise_lab.theory.stiffness import kicked_stiffness
from groupwise_lab.trainer.file_task import readable_by
from groupwise_lab.trainer.text_tasks import make_text_task
from groupwise_lab.trainer.text_verifiers import DAYS

PIECES = RESULTS.within("dynamics")
PROMPTS, KL_WEIGHT, RANK, LAYERS, MODES = 7, 0.5, 4, 6, 4
ITERATIONS, NEAR = 40, 1e-4  # of the search for the fixed point; nats left at its end
# nats by which a kick moves log-probabilities: a thousand times the rounding, and straight to a
# hundredth
STEP = 0.01
SMALLER, ON_POLICY, LAGGED, BLOCKS = (
    0.2,
    24,
    44,
    8,
)  # on policy a smaller kick, which grows by .07 an update; updates; blocks at least
SETTINGS = tuple(
    UpdateSettings(lag, momentum, size)
    for lag, size in (("none", 1), ("refresh", 4), ("refresh", 16))
    for momentum in (0.0, 0.9)
)
SAMPLED = (
    UpdateSettings("none", 0.9, 1),
    UpdateSettings("refresh", 0.9, 4),
    UpdateSettings("refresh", 0.9, 16),
)
OVER, SEEDS, SAMPLED_UPDATES = (0.7, 1.3, 2.0), 2, 96
# kicks from the fixed point, where a sampled run begins: at the point itself every advantage is 0,
# and so is the noise
AWAY = 10.0


class ListedWorld(ExactWorld):
    """A language model on prompts whose completions are single tokens of a list, as a function of
    its adapter's numbers.

    All prompts stand in one row, as branches behind what they share. Only the last layers are free:
    what those below make of the row is read once. The network is in single precision, its
    parameters and the sums over completions are in double.
    """

    def __init__(
        self,
        model,
        rows: list[list[int]],
        tokens: list[int],
        right: list[int],
        *,
        layers: int,
        loss: ExactLoss,
    ) -> None:
        self.model, self.loss, self.token_O = model, loss, torch.tensor(tokens)
        row_L, place_L, mask, self.last_P = as_branches(rows)
        with torch.no_grad():
            out = model(
                input_ids=row_L,
                attention_mask=mask,
                position_ids=place_L,
                use_cache=False,
                output_hidden_states=True,
            )
            probability_PV = out.logits[0, self.last_P].double().softmax(-1)
        self.listed_P = probability_PV[:, self.token_O].sum(1)  # what the model gives to the list
        inner = model.get_base_model().model
        self.size = sum(
            value.numel() for name, value in inner.named_parameters() if "lora_" not in name
        )  # of the model without its head
        below = len(inner.layers) - layers
        self.read = {
            "inputs_embeds": out.hidden_states[below],
            "attention_mask": mask,
            "position_ids": place_L,
            "use_cache": False,
        }
        inner.layers = inner.layers[below:]
        model.config.num_hidden_layers = layers
        free = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self.shapes = {name: value.shape for name, value in free.items()}
        self.start_D = torch.cat([value.detach().flatten() for value in free.values()]).double()
        self.reward_PO = torch.nn.functional.one_hot(torch.tensor(right), len(tokens)).double()
        with torch.no_grad():
            self.reference_PO = self.log_probabilities(self.start_D)

    def log_probabilities(self, parameter_D: Tensor) -> Tensor:
        """Return the log-probability of every listed completion of every prompt, differentiable."""
        parts = torch.split(parameter_D, [shape.numel() for shape in self.shapes.values()])
        precision = self.read["inputs_embeds"].dtype
        values = {
            name: part.view(shape).to(precision)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }
        out = functional_call(self.model, values, (), {**self.read, "logits_to_keep": self.last_P})
        return out.logits[0][:, self.token_O].double().log_softmax(-1)

    def best(self) -> tuple[Tensor, float]:
        """The best of all policies, each prompt's reference weighted by exp(reward / KL weight),
        and its objective.
        """
        free_PO = self.reference_PO + self.reward_PO / self.loss.kl_weight
        return free_PO.log_softmax(-1), float(
            self.loss.kl_weight * torch.logsumexp(free_PO, 1).mean()
        )

    def slopes(self, parameter_D: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of all prompts, one after the other, and their Jacobian."""
        at_D = parameter_D.clone().requires_grad_()
        log_M = self.log_probabilities(at_D).flatten()
        return log_M.detach(), torch.stack(
            [torch.autograd.grad(log, at_D, retain_graph=True)[0] for log in log_M]
        )


def as_branches(rows: list[list[int]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Prompts as one row: what they share once, then the rest of each; tokens, places, what each
    token sees, and the last of each.
    """
    shared = next(
        place for place in range(min(map(len, rows))) if len({row[place] for row in rows}) > 1
    )
    tokens, places, owner, last = rows[0][:shared], list(range(shared)), [-1] * shared, []
    for number, row in enumerate(rows):
        tokens, owner = tokens + row[shared:], owner + [number] * (len(row) - shared)
        places += range(shared, len(row))
        last.append(len(tokens) - 1)
    owner_L = torch.tensor(owner)
    sees = ((owner_L[:, None] == owner_L) | (owner_L == -1)).tril()
    return torch.tensor([tokens]), torch.tensor([places]), sees[None, None], torch.tensor(last)


@cache
def days(name: str = "smollm2", seed: int = 0) -> ListedWorld:
    """The neighbours of days behind three examples: seven prompts, seven completions, and an
    adapter drawn from the seed.
    """
    actor = policy(
        name, rank=RANK, seed=seed, device="cpu"
    )  # one row of text: a card has nothing to gain
    task = readable_by(actor, make_text_task("day_of_the_week", examples=3, held_out_share=0.0))
    space = (
        "" if actor.tokenizer.chat_template else " "
    )  # in a text the answer is a word behind others
    tokens = [actor.tokenizer.encode(f"{space}{day}", add_special_tokens=False) for day in DAYS]
    if any(len(token) != 1 for token in tokens):
        raise ValueError(f"expected every day to be one token, got {tokens}")
    rows = [prompt_ids(actor.tokenizer, problem.prompt) for problem in task.train[:PROMPTS]]
    right = [DAYS.index(problem.answer) for problem in task.train[:PROMPTS]]
    loss = ExactLoss(KL_WEIGHT, kl_in="reward")
    return ListedWorld(
        actor.model, rows, [token[0] for token in tokens], right, layers=LAYERS, loss=loss
    )


def resting(world: ListedWorld) -> tuple[Tensor, Tensor]:
    """The fixed point and the Jacobian there, from the cache where they were found before."""
    kept = torch.as_tensor(
        cached(f"days-{PROMPTS}-rank{RANK}-last{LAYERS}", lambda: settled(world).numpy())
    )
    return kept[0], kept[1:]


def settled(world: ListedWorld) -> Tensor:
    """The fixed point and below it the Jacobian there.

    There are more parameters than completions, so that the best of all policies can be had: by
    Levenberg and Marquardt's steps to it.
    """
    wanted_M, at_D, damping = world.best()[0].flatten(), world.start_D, 0.01
    for _ in range(ITERATIONS):
        log_M, slope_MD = world.slopes(at_D)
        left_M = wanted_M - log_M
        print(
            f"log-probabilities within {float(left_M.abs().max()):.1e} of the fixed point's",
            flush=True,
        )
        if float(left_M.abs().max()) < NEAR:
            return torch.vstack([at_D, slope_MD])
        at_D, damping = nearer(world, at_D, slope_MD, left_M, damping)
    raise ValueError(f"expected the fixed point within {ITERATIONS} steps, got none")


def nearer(
    world: ListedWorld, at_D: Tensor, slope_MD: Tensor, left_M: Tensor, damping: float
) -> tuple[Tensor, float]:
    """A step that leaves less to go, and the damping for the next."""
    gram_MM = slope_MD @ slope_MD.T
    while damping < 1e6:
        whole_MM = gram_MM + damping * gram_MM.diagonal().max() * torch.eye(len(gram_MM))
        tried_D = at_D + slope_MD.T @ torch.linalg.solve(whole_MM, left_M)
        with torch.no_grad():
            moved_M = (
                world.log_probabilities(tried_D).flatten() - world.log_probabilities(at_D).flatten()
            )
        if float((left_M - moved_M).norm()) < float(left_M.norm()):
            return tried_D, damping / 10
        damping *= 5
    raise ValueError(
        "expected a step towards the fixed point, got none: log-probabilities are known to "
        "rounding alone"
    )


def point() -> Rows:
    """Start and fixed point, beside the best that any policy can do."""
    began, world = time.process_time(), days()
    rows = []
    for where, at_D in (("start", world.start_D), ("fixed point", resting(world)[0])):
        step_D, log_PO = world.update(at_D)
        row = {
            "where": where,
            "reward": float(world.value(log_PO)),
            "kl": float(world.divergence(log_PO)),
        }
        row |= {
            "gap": world.best()[1] - row["reward"] + KL_WEIGHT * row["kl"],
            "gradient_norm": float(step_D.norm()),
        }
        rows.append(row | {"listed": float(world.listed_P.mean()), "parameters": len(at_D)})
    return [{**row, "seconds": time.process_time() - began} for row in rows]


def stiffest(world: ListedWorld) -> tuple[Tensor, np.ndarray, Tensor]:
    """The fixed point, all stiffnesses there, largest first, and the directions of the first
    few.
    """
    point_D, score_MD = resting(world)
    return point_D, *modes_of_scores(world, score_MD)


def modes_of_scores(world: ListedWorld, score_MD: Tensor) -> tuple[np.ndarray, Tensor]:
    r"""All stiffnesses at the fixed point, largest first, and the directions of the first few.

    With no advantage left, minus the Hessian is the KL term's, $\beta$ times the mean over prompts
    of $E[ss^T]$: it has as many modes as there are free probabilities, and they are known from
    inner products of scores.
    """
    weight_M = (
        world.best()[0].flatten().exp() * world.loss.kl_weight / len(world.reward_PO)
    ).sqrt()
    weighted_MD = weight_M[:, None] * score_MD
    value_M, turn_MM = torch.linalg.eigh(weighted_MD @ weighted_MD.T)
    free = world.reward_PO.numel() - len(world.reward_PO)
    direction_KD = turn_MM.flip(1)[:, :MODES].T @ weighted_MD
    return value_M.flip(0)[:free].numpy(), direction_KD / direction_KD.norm(dim=1, keepdim=True)


def kick_along(direction_D: Tensor, stiffness: float, kl_weight: float = KL_WEIGHT) -> Tensor:
    """A kick along a mode that moves log-probabilities by so many nats, root mean square."""
    return STEP / (stiffness / kl_weight) ** 0.5 * direction_D


def modes() -> Rows:
    """The stiffest modes by scores and by kicks both ways, the first by Lanczos too; what the
    reward shows by kicks along its slope.
    """
    began, world = time.process_time(), days()
    point_D, value_K, direction_KD = stiffest(world)
    at = point_D.clone().requires_grad_()
    (slope_D,) = torch.autograd.grad(world.value(world.log_probabilities(at)), at)
    unit_D = slope_D / slope_D.norm()
    lanczos = leading_modes(curvature(world, point_D), len(point_D), 1, tolerance=1e-3)
    rows = []
    for value, direction_D in zip(value_K, direction_KD, strict=False):
        kick_D = kick_along(direction_D, value)
        apart_D = world.update(point_D - kick_D)[0] - world.update(point_D + kick_D)[0]
        rows.append(
            {"mode": len(rows) + 1, "scores": value, "lanczos": "", "residual": "", "products": ""}
        )
        rows[-1] |= {
            "kick": float(apart_D @ kick_D / (2 * kick_D @ kick_D)),
            "share": float(direction_D @ unit_D) ** 2,
        }
    rows[0] |= {
        "lanczos": lanczos.value_K[0],
        "residual": lanczos.residual_K[0],
        "products": lanczos.products,
    }
    size = 10 * float(kick_along(unit_D, float(value_K[0])).norm())
    by_kicks = kicked_stiffness(
        world,
        point_D.numpy(),
        np.random.default_rng(1),
        size=size,
        directions=unit_D[None].repeat(4, 1).numpy(),
    )
    none = dict.fromkeys(("lanczos", "residual", "products"), "")
    rows.append(
        {"mode": "reward", "scores": "", **none, "kick": by_kicks.stiffness.value, "share": 1.0}
    )
    rows.append({"mode": len(value_K), "scores": value_K[-1], **none, "kick": "", "share": ""})
    return [{**row, "seconds": time.process_time() - began} for row in rows]


def predicted_edge(setting: UpdateSettings, stiffness: float) -> float:
    """The largest stable learning rate."""
    return float(threshold(setting.lag, setting.momentum, setting.interval)) / stiffness


def kicked(setting: UpdateSettings, factor: float) -> Rows:
    """Expected updates after a kick along the stiffest mode, at a multiple of the predicted
    edge: how far it is gone before each.
    """
    began, world = time.process_time(), days()
    point_D, value_K, direction_KD = stiffest(world)
    stiffness = float(value_K[0])
    predicted = predicted_edge(setting, stiffness)
    # At the fixed point no advantage is left, so that all of the pull is that of the policy that
    # sampled.
    mode = Linear(np.zeros((1, 1)), np.array([[stiffness]]))
    position, velocity, _ = (part[0] for part in mode.growing(1.001 * predicted, setting))
    kick_D = kick_along(direction_KD[0], stiffness) * (1 if setting.interval > 1 else SMALLER)
    path = trained(
        world,
        point_D,
        setting,
        start_D=point_D + position * kick_D,
        velocity_D=velocity * kick_D,
        learning_rate=factor * predicted,
        updates=max(LAGGED, BLOCKS * setting.interval) if setting.interval > 1 else ON_POLICY,
        watch_DK=direction_KD[:1].T.numpy(),
    )
    along_T = path.along_TK[:, 0] / float(kick_D.norm())
    rule = float(rule_threshold(setting.momentum, setting.interval)) / stiffness
    row = {"predicted": predicted, "rule": rule, "seconds": time.process_time() - began}
    return [{"update": update, "along": along, **row} for update, along in enumerate(along_T)]


def factors(setting: UpdateSettings) -> tuple[float, ...]:
    """Multiples of the predicted edge, on both sides of it."""
    return BRACKET if kinked(setting) else FACTORS


def kinked(setting: UpdateSettings) -> bool:
    """Whether growth has a kink at the edge, so that only its sign tells."""
    return setting.lag == "none" and setting.momentum > 0


def located(setting: UpdateSettings, done: dict[str, Rows]) -> JsonObject | None:
    """The edge from which a kick grows, beside the predicted one and the published rule; None
    while a run is missing.
    """
    runs = {factor: done.get(f"kick-{named(setting)}-{factor:g}") for factor in factors(setting)}
    if None in runs.values():
        return None

    def along(factor: float) -> np.ndarray:
        return np.array([float(row["along"]) for row in runs[factor] or ()])

    over, error, *_ = fitted_edge(
        along, setting, kinked=kinked(setting), halvings=0
    )  # these runs and no others are there
    first = (runs[factors(setting)[0]] or [])[0]
    predicted = float(first["predicted"])
    return {
        "measured": over * predicted,
        "error": error * predicted,
        "predicted": predicted,
        "rule": first["rule"],
    }


def sampled(setting: UpdateSettings, factor: float, seed: int, group: int = GROUP) -> Rows:
    """A run from beside the fixed point on groups of every prompt, at a multiple of the
    predicted edge.
    """
    began, world = time.process_time(), days()
    point_D, value_K, direction_KD = stiffest(world)
    rate = factor * predicted_edge(setting, float(value_K[0]))
    scale = (float(value_K[0]) / KL_WEIGHT) ** 0.5
    start_D = point_D + AWAY * kick_along(direction_KD[0], float(value_K[0]))
    seen = sampled_run(
        world,
        setting,
        start_D,
        rate,
        seed,
        group,
        lambda now_D: float((now_D - point_D) @ direction_KD[0]),
    )
    third = len(seen) // 3
    along = scale * column(seen, "watched")
    rewards = column(seen, "value")
    row = {
        "lag": setting.lag,
        "interval": setting.interval,
        "momentum": setting.momentum,
        "factor": factor,
        "seed": seed,
        "rate": rate,
        "spread_early": along[:third].std(),
        "spread_late": along[-third:].std(),
        "value_late": rewards[-third:].mean(),
    }
    return [
        row
        | {"lowest": rewards.min(), "updates": len(seen), "seconds": time.process_time() - began}
    ]


def sampled_run(
    world: ListedWorld,
    setting: UpdateSettings,
    start_D: Tensor,
    rate: float,
    seed: int,
    group: int,
    watch: Callable[[Tensor], float],
) -> Rows:
    """Heavy-ball SGD on sampled groups of every prompt: before each update the exact mean reward
    and what is watched.
    """
    rng = np.random.default_rng([seed, round(1e9 * rate)])
    now_D, velocity_D = start_D.clone(), torch.zeros_like(start_D)
    log_PO = {}
    rows = []
    for update in range(SAMPLED_UPDATES):
        at = setting.sampled_at(update)
        step_D, log_PO[update], _ = sampled_step(
            world, now_D, log_PO.get(at) if at < update else None, rng, group
        )
        rows.append({"watched": watch(now_D), "value": float(world.value(log_PO[update]))})
        log_PO.pop(update - 2 * setting.interval - 1, None)
        velocity_D = setting.momentum * velocity_D + rate * step_D
        now_D = now_D + velocity_D
    return rows


def named(setting: UpdateSettings) -> str:
    """A setting in a file's name."""
    return f"{setting.lag}-{setting.interval}-mu{setting.momentum:g}"


def cells() -> list[Cell]:
    """All pieces; those that others need come first."""
    pieces = [Cell("point", point), Cell("modes", modes)]
    pieces += [
        Cell(f"kick-{named(setting)}-{factor:g}", kicked, {"setting": setting, "factor": factor})
        for setting in SETTINGS
        for factor in factors(setting)
    ]
    return pieces + sampled_cells()


def sampled_cells(group: int = GROUP) -> list[Cell]:
    """The sampled runs, whole seeds first."""
    return [
        Cell(
            f"sampled-{named(setting)}-{factor:g}-seed{seed}",
            sampled,
            {"setting": setting, "factor": factor, "seed": seed, "group": group},
        )
        for seed in range(SEEDS)
        for setting in SAMPLED
        for factor in OVER
    ]


def said(row) -> str:
    """A lag in words."""
    return "none" if row["lag"] == "none" else f"refresh of {row['interval']}"


def show() -> None:
    """Print the tables of what is there."""
    done = PIECES.tables()
    rows = [
        [
            (
                f"{row['where']} | {row['reward']:.4f} | {row['kl']:.4f} | {row['gap']:.1e} | "
                f"{row['gradient_norm']:.1e}"
            )
        ]
        for row in done.get("point", [])
    ]
    print_table(
        "Seven days: start and fixed point",
        "where | reward | KL | objective below the best of all | gradient",
        rows,
    )
    keys = ("scores", "lanczos", "kick", "share")
    rows = [
        [str(row["mode"]), *("" if row[key] == "" else f"{row[key]:.4g}" for key in keys)]
        for row in done.get("modes", [])
    ]
    print_table(
        "Seven days: stiffness",
        "mode | from scores | by Lanczos | by kicks | share of the reward's slope",
        rows,
    )
    rows = []
    for setting in SETTINGS:
        row = located(setting, done)
        if row is not None:
            seen = (
                cell.split(" +-")[0] for cell in measured_cells(row)
            )  # the series are too short to say how far an edge may move
            cells = (f"{row['predicted']:.4g}", *seen, f"{row['measured'] / row['rule']:.2f}")
            rows.append([said(vars(setting)), f"{setting.momentum:g}", *cells])
    head = "lag | momentum | predicted edge | measured | difference | over the published rule"
    print_table("Seven days: edges of the learning rate", head, rows)
    show_sampled(done)


def show_sampled(done: dict[str, Rows], group: int = GROUP) -> None:
    """Print how far sampled runs swing."""
    runs = [row for name, rows in done.items() if name.startswith("sampled-") for row in rows]
    runs.sort(key=lambda row: (row["interval"], row["factor"], row["seed"]))
    rows = []
    for row in runs:
        cells = [
            f"{row[key]:.3g}" for key in ("spread_early", "spread_late", "value_late", "lowest")
        ]
        rows.append([said(row), f"{row['factor']:g} | {row['seed']}", *cells])
    head = (
        "lag | learning rate over the edge | seed | swing, first third (nats) | "
        "last third | mean reward, last third | lowest"
    )
    print_table(
        f"Seven days: sampled, {group} completions of every prompt, momentum .9", head, rows
    )


def main() -> None:
    """Run what is missing and print the tables."""
    run_and_show(cells(), PIECES, options(__doc__), show, PAGE)


if __name__ == "__main__":
    main()
