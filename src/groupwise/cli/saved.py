"""Components of a file, whichever kind it is: scores that have to be estimated from first, or components that were saved.

It opens no run and plans nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.errors import InsufficientDataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from groupwise.estimators.components import Components, Method

_LEVEL = 0.95


def components_of_file(path: Path, *, level: float | None = None) -> Components | None:
    """Return the components of a file."""
    from groupwise.analysis.component_file import is_components
    from groupwise.cli.score_file import is_score_file

    if path.is_file() and is_components(path):
        return saved_components(path, level=level)[0]
    return estimated(path, level=level) if not path.is_dir() and is_score_file(path) else None


def saved_components(path: Path, *, level: float | None = None) -> tuple[Components, Mapping[str, Any]]:
    """Return saved components and what they were computed from."""
    from groupwise.analysis.component_file import load_components

    saved = load_components(path, level=level)
    return saved.components, saved.provenance


def estimated(
    path: Path,
    *,
    level: float | None = None,
    method: Method = "jackknife",
    seed: int = 0,
    zero_mean: bool = True,
    group_size: int | None = None,
) -> Components:
    """Return the components of scores in an `.npz`."""
    import numpy as np

    from groupwise.cli.score_file import read_score_file
    from groupwise.estimators.components import components

    held = read_score_file(path, group_size=group_size)
    rng = np.random.default_rng(seed) if method == "bootstrap" else None
    found = components(
        held.reward_N,
        held.prompt_N,
        score_ND=held.score_ND,
        gram_NN=held.gram_NN,
        zero_mean=zero_mean,
        level=_LEVEL if level is None else level,
        method=method,
        rng=rng,
    )
    if found.others["reward_variance"].value == 0:
        raise InsufficientDataError(
            f"expected rewards that differ within some group, got {found.prompts} groups with equal rewards throughout: "
            "they carry no gradient; take other prompts, or larger groups"
        )
    return found
