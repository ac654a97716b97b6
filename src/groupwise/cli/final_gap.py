"""The objective `final-gap` of `groupwise plan`: what a unit of gradient error costs in the end, and what is said of it.

The mathematics is in `groupwise.theory`; here a number or a file becomes curvature, and a schedule becomes a cost. It plans
nothing itself: the planner gets components in the unit of the gap.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.errors import InvalidArgumentError, UnreadableRunError
from groupwise.intervals import percent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from groupwise.estimators.components import Components
    from groupwise.estimators.plan import GroupSizePlan
    from groupwise.theory.final_gap import CovarianceParts

OBJECTIVES = ("gradient", "final-gap")
_PARTS = ("between_DD", "first_DD", "second_DD", "offset_DD")
_LARGEST_SIDE = 5000
_MANY = 10  # times b times the largest curvature: updates after which early steps are forgotten


@dataclass(frozen=True, slots=True)
class Goal:
    """What the plan is to make small, as typed; None is not given."""

    objective: str = "gradient"  # gradient or final-gap
    curvature: str | None = None  # a number, the same in all directions, or the path of an .npz with `hessian_DD`
    step_constant: float | None = None  # b of steps b/i
    learning_rate: float | None = None  # of constant steps
    updates: float | None = None  # after which the gap is wanted

    def __post_init__(self) -> None:
        """Check what needs no file."""
        if self.objective not in OBJECTIVES:
            raise InvalidArgumentError(f"--objective expects {' or '.join(OBJECTIVES)}; got {self.objective!r}")
        values = {"--step-constant": self.step_constant, "--learning-rate": self.learning_rate, "--updates": self.updates}
        needless = [name for name, value in {"--curvature": self.curvature, **values}.items() if value is not None]
        if self.objective == "gradient" and needless:
            raise InvalidArgumentError(f"expected no {' or '.join(needless)} without --objective final-gap: add it, or leave them out")
        for name, value in values.items():
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise InvalidArgumentError(f"{name} expects a positive number; got {value:g}")
        if self.step_constant is not None and self.learning_rate is not None:
            raise InvalidArgumentError("expected --step-constant or --learning-rate, got both: steps fall as b/i, or stay as they are")
        if self.objective == "final-gap" and self.curvature is None:
            raise InvalidArgumentError(
                "--curvature is missing: the final gap needs the curvature at the optimum, as --curvature 0.5 or --curvature hessian.npz"
            )
        if self.learning_rate is not None and self.updates is not None:
            raise InvalidArgumentError("expected no --updates with --learning-rate: at a constant step the gap stays, however long")


@dataclass(frozen=True, slots=True)
class Cost:
    """What noise of the gradient costs, direction by direction."""

    goal: Goal  # as typed
    hessian_DD: NDArray[np.float64]  # at the optimum; one by one where curvature is a number
    matrix_DD: NDArray[np.float64]  # C of tr(C Omega); as large
    step: float  # b or eta
    parts: CovarianceParts | None  # of the covariance, where the file holds them

    @property
    def isotropic(self) -> bool:
        """Whether curvature is one number for all directions."""
        return self.hessian_DD.shape == (1, 1) and self.parts is None

    @property
    def curvatures(self) -> list[float]:
        """Eigenvalues of minus the Hessian that are not zero, rising."""
        import numpy as np

        from groupwise.theory.final_gap import RANK_TOLERANCE

        value_D = np.linalg.eigvalsh(-(self.hessian_DD + self.hessian_DD.T) / 2)
        return [float(value) for value in value_D if value > RANK_TOLERANCE * value_D[-1]]

    @property
    def updates(self) -> float:
        """What the cost is divided by: n where it was given, else 1 and the unit is n times the gap."""
        return self.goal.updates or 1.0

    @property
    def schedule(self) -> str:
        """The steps in words."""
        return f"steps of {self.step:g}" if self.goal.learning_rate is not None else f"steps of {self.step:.4g}/i"


def cost_of(goal: Goal) -> Cost:
    """Return the cost of noise for a goal."""
    import numpy as np

    from groupwise.theory.final_gap import RANK_TOLERANCE, cost_of_constant_step, cost_of_noise

    assert goal.curvature is not None
    try:
        curvature = float(goal.curvature)
    except ValueError:
        hessian, parts = _read(Path(goal.curvature))
    else:
        if not (curvature > 0 and math.isfinite(curvature)):
            raise InvalidArgumentError(f"--curvature expects a positive number or an .npz file; got {goal.curvature}")
        hessian, parts = np.array([[-curvature]]), None
    if goal.learning_rate is not None:
        return Cost(goal, hessian, cost_of_constant_step(hessian, goal.learning_rate), goal.learning_rate, parts)
    value_D = np.linalg.eigvalsh(-(hessian + hessian.T) / 2) if hessian.ndim == 2 and hessian.shape[0] == hessian.shape[1] else np.ones(1)
    used = value_D[value_D > RANK_TOLERANCE * np.abs(value_D).max(initial=0.0)]
    step = goal.step_constant if goal.step_constant is not None else 1 / float(used.min()) if len(used) else 1.0
    return Cost(goal, hessian, cost_of_noise(hessian, step), step, parts)


def projected(cost: Cost, path: Path, *, level: float | None) -> Components:
    """Return components of scores in the unit of the gap: scores are turned by the root of the cost, and then estimated from as ever."""
    import numpy as np

    from groupwise.cli.score_file import read_score_file
    from groupwise.estimators.components import components

    held = read_score_file(path)
    size = cost.hessian_DD.shape[0]
    if held.score_ND is None or held.score_ND.shape[1] != size:
        got = "inner products" if held.score_ND is None else f"scores of {held.score_ND.shape[1]}"
        raise InvalidArgumentError(
            f"expected scores of {size} parameters in {path}, as the Hessian has, got {got}: save score_ND in its order"
        )
    value_D, vector_DD = np.linalg.eigh(cost.matrix_DD)
    root = vector_DD * np.sqrt(np.maximum(value_D, 0.0))
    return components(held.reward_N, held.prompt_N, score_ND=held.score_ND @ root, level=0.95 if level is None else level)


def final_gap(cost: Cost, plan: GroupSizePlan, *, unit: float) -> dict[str, Any]:
    """Return what is known of the final gap under a plan, as data with its sentence."""
    held = plan if plan.present is None else plan.present
    expected = held.mse * unit / cost.updates
    plain: dict[str, Any] = {"objective": cost.goal.objective, "schedule": cost.schedule, "updates": cost.goal.updates}
    prompts = plan.budget.prompts(held.group_size)
    plain |= {"group_size": held.group_size, "prompts": prompts, "expected": expected, "best": plan.mse * unit / cost.updates}
    where = f"With {held.group_size} rollouts of each of {prompts:,} prompts and {cost.schedule}"
    if cost.goal.learning_rate is not None:
        said = f"{where} the expected gap stays at {expected:.3g}"
    elif cost.goal.updates is not None:
        said = f"{where} the expected gap after {cost.goal.updates:,.10g} updates is, to leading order, {expected:.3g}"
    else:
        said = f"{where} the expected gap tends to {expected:.3g}/n after n updates"
    notes = _early_steps(cost) + _flat_directions(cost, held.group_size, prompts)
    if cost.parts is None or plan.budget.prompt_pool is not None:
        found: dict[str, Any] = {"sentence": f"{said}."}
    else:
        found = _with_law(cost, held.group_size, prompts, said)
    return plain | found | {"sentence": " ".join((found["sentence"], *notes)), "notes": list(notes)}


def _early_steps(cost: Cost) -> tuple[str, ...]:
    """Warn of steps b/i whose first ones undo what the law takes for granted; runs with such steps have been 36 times above it."""
    if cost.goal.learning_rate is not None:
        return ()
    reach = cost.step * cost.curvatures[-1]
    early = cost.step > 2 / cost.curvatures[-1] * (1 + 1e-12)
    if not early and (cost.goal.updates is None or cost.goal.updates > _MANY * reach):
        return ()
    why = f"the first step, {cost.step:.4g}, is above 2 over the largest curvature" if early else "these are few updates for such steps"
    mend = f"take steps of {cost.step:.4g}/(i + i0) with i0 of {math.ceil(2 * reach)} or more, and many more updates than i0"
    return (f"Not to be relied on as it stands: {why}, and early ones can throw a run far from where this holds; {mend}.",)


def _flat_directions(cost: Cost, group_size: int, prompts: int) -> tuple[str, ...]:
    """Say what is assumed of directions without curvature, where there are any."""
    import numpy as np

    flat = len(cost.hessian_DD) - len(cost.curvatures)
    if not flat:
        return ()
    share = ""
    if cost.parts is not None:
        _, vector_DD = np.linalg.eigh(-(cost.hessian_DD + cost.hessian_DD.T) / 2)
        noise_D = np.diag(vector_DD.T @ cost.parts.covariance("leave_one_out", group_size, prompts) @ vector_DD)
        share = f", with {percent(float(noise_D[:flat].sum() / noise_D.sum()))} of the noise," if noise_D.sum() > 0 else ""
    are = f"{flat} of {len(cost.hessian_DD)} directions have no curvature"
    return (f"{are}; noise there{share} is left out, which is right only if the curvature elsewhere does not change along them.",)


def _with_law(cost: Cost, group_size: int, prompts: int, said: str) -> dict[str, Any]:
    """Quantiles of the law, and the same batch with an oracle and with no baseline, where all matrices are known."""
    from groupwise.theory.chi_square_mixture import ChiSquareMixture
    from groupwise.theory.final_gap import limiting_gap, stationary_gap

    assert cost.parts is not None
    found: dict[str, Any] = {}
    laws = {}
    names = ("leave_one_out", "oracle", "fixed")
    for name in names if cost.parts.offset_DD is not None else names[:2]:
        covariance = cost.parts.covariance(name, group_size, prompts)
        if cost.goal.learning_rate is not None:
            weight = stationary_gap(cost.hessian_DD, covariance, cost.step)
        else:
            weight = limiting_gap(cost.hessian_DD, covariance, cost.step).weight_K / cost.updates
        laws[name] = weight[weight > 1e-14 * max(float(weight.max(initial=0.0)), 0.0)]
        found[name] = float(laws[name].sum())
    law = ChiSquareMixture(laws["leave_one_out"])
    found["quantile_90"], found["quantile_99"] = float(law.ppf(0.9)), float(law.ppf(0.99))
    found["excess_over_oracle"] = excess = found["leave_one_out"] / found["oracle"] - 1 if found["oracle"] > 0 else None
    more = "" if excess is None else f"; an oracle baseline would leave {found['oracle']:.3g}, so this group size costs {percent(excess)}"
    found["sentence"] = f"{said} (90 % of runs stay below {found['quantile_90']:.3g}){more}."
    return found


def _read(path: Path) -> tuple[NDArray[np.float64], CovarianceParts | None]:
    """The Hessian of a file, and the parts of the covariance where it holds them."""
    import numpy as np

    from groupwise.theory.final_gap import CovarianceParts

    wanted = "an .npz file with hessian_DD, from numpy.savez"
    try:
        with zipfile.ZipFile(path) as archive:
            size = max((member.file_size for member in archive.infolist()), default=0)
        if size > 8 * _LARGEST_SIDE**2 + 1000:
            raise UnreadableRunError(
                f"expected a Hessian of at most {_LARGEST_SIDE} parameters in {path}, got {size:,} bytes: project it first"
            )
        with np.load(path, allow_pickle=False) as file:
            held = {name: np.asarray(file[name], dtype=np.float64) for name in ("hessian_DD", *_PARTS) if name in file.files}
    except FileNotFoundError:
        raise UnreadableRunError(f"--curvature expects a positive number or {wanted}; got {path}, and there is no such file") from None
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise UnreadableRunError(f"expected {wanted} in {path}, got {type(error).__name__}: save plain numbers") from None
    if "hessian_DD" not in held:
        raise UnreadableRunError(f"expected {wanted} in {path}, got {', '.join(held) or 'none of its arrays'}: name it hessian_DD")
    hessian = held["hessian_DD"]
    if not all(name in held for name in _PARTS[:3]):
        return hessian, None
    return hessian, CovarianceParts(held["between_DD"], held["first_DD"], held["second_DD"], held.get("offset_DD"))
