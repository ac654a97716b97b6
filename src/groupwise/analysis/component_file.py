"""Variance components on disk: one JSON file beside the run, with the pseudo-values that bands are
made from and what they were computed from.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import GroupwiseError, OverwriteError, UnreadableRunError
from groupwise.estimators.components import (
    LARGEST,
    QUANTITIES,
    Components,
    Sample,
    components_of_pseudo_values,
)
from groupwise.estimators.moments import SMALLEST_GROUP
from groupwise.files import beside, first_bytes, write_whole
from groupwise.parsing import JsonView, parse_json
from groupwise.plain import frozen

FORMAT, VERSION = "groupwise-components", 1
SUFFIX = "groupwise-components.json"
_LARGEST_FILE = 200 * 2**20
_MOST_ROLLOUTS = 2**53


@frozen
class SavedComponents:
    """Components with what they were computed from."""

    components: Components  # the estimates
    provenance: JsonView  # plain facts: model, aggregation, temperature, steps, groups, versions


def path_beside(run: str | Path) -> Path:
    """Return where the components of a run belong: inside its folder, or beside its file."""
    return beside(Path(run), SUFFIX)


def save_components(
    components: Components, path: str | Path, *, provenance: JsonView, force: bool = False
) -> Path:
    """Write components as JSON: the file appears whole or not at all.

    Args:
        components: the estimates.
        path: the file.
        provenance: plain facts to keep with them.
        force: whether to replace a file of ours that is there already; no other file is ever
            replaced.

    Returns:
        The path.

    Raises:
        OverwriteError: there is a file already.
        GroupwiseError: it cannot be written.

    Example:
        >>> import tempfile
        >>> from groupwise.estimators.components import components
        >>> rng = np.random.default_rng(1)
        >>> found = components(
        ...     rng.normal(size=64), np.repeat(np.arange(8), 8), score_ND=rng.normal(size=(64, 3))
        ... )
        >>> with tempfile.TemporaryDirectory() as home:
        ...     load_components(
        ...         save_components(found, home + "/c.json", provenance={})
        ...     ).components.prompts
        8
    """
    target = Path(path)
    check_free(target, force=force)
    plain = {
        "format": FORMAT,
        "version": VERSION,
        **components.as_dict(),
        "quantities": list(QUANTITIES),
        "estimate": components.estimate_C.tolist(),
        "covariance": _plain(components.covariance_CC),
        "pseudo_values": _plain(components.pseudo_PC),
        "provenance": dict(provenance),
    }
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GroupwiseError(
            f"expected to write {target}, got {error.strerror or error}: choose a folder that you "
            "can write"
        ) from None
    write_whole(target, json.dumps(plain, indent=1), force=True)
    return target


def check_free(target: Path, *, force: bool) -> None:
    """Refuse to replace a file, unless it is one of ours and may go."""
    if not target.exists():
        return
    if not force:
        raise OverwriteError(
            f"{target} exists already: give --force to replace it, or -o another file"
        )
    if not is_components(target):
        raise OverwriteError(
            f"{target} is no file of variance components, and is not replaced even with --force: "
            "choose another name"
        )


def is_components(path: Path) -> bool:
    """Return whether a file holds saved components, by its first bytes."""
    return path.is_file() and f'"{FORMAT}"'.encode() in _beginning(path, 200)


def _beginning(path: Path, size: int) -> bytes:
    """Return the first bytes of a file; none where it cannot be read."""
    try:
        return first_bytes(path, size) or b""
    except OSError:
        return b""


def load_components(path: str | Path, *, level: float | None = None) -> SavedComponents:
    """Read components that were saved.

    Estimate, covariance and intervals are made anew from the pseudo-values, so that nothing in a
    file can contradict itself.

    Args:
        path: the file.
        level: coverage of the intervals; that of the file where None.

    Returns:
        The components.

    Raises:
        UnreadableRunError: it is missing, damaged, or something else.

    Example:
        >>> load_components("no/such/file.json")
        Traceback (most recent call last):
        ...
        groupwise.errors.UnreadableRunError: expected components in no/such/file.json, got No such
        file or directory: run groupwise ...
    """
    target = Path(path)
    try:
        if target.stat().st_size > _LARGEST_FILE:
            raise UnreadableRunError(
                f"expected components in {target}, got a file of more than "
                f"{_LARGEST_FILE // 2**20} MB: make it again"
            )
        plain = parse_json(target.read_text(encoding="utf-8"))
        if (
            plain["format"] != FORMAT
            or plain["version"] != VERSION
            or plain["quantities"] != list(QUANTITIES)
        ):
            raise UnreadableRunError(
                f"expected components of version {VERSION} in {target}, got another kind of file: "
                "make it again"
            )
        return SavedComponents(_components(plain, level), dict(plain["provenance"]))
    except OSError as error:
        raise UnreadableRunError(
            f"expected components in {target}, got {error.strerror or error}: run groupwise "
            "components first"
        ) from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, UnreadableRunError):
            raise
        raise UnreadableRunError(
            f"expected components in {target}, got a damaged file: run groupwise components again"
        ) from None


def _components(plain: JsonView, level: float | None) -> Components:
    """Make the components of a parsed file."""
    prompts, rollouts, left_out = (
        _count(plain[name]) for name in ("prompts", "rollouts", "left_out")
    )
    zero_mean = plain["zero_mean"]
    typed = isinstance(zero_mean, bool) and isinstance(plain["method"], str)
    if prompts < 2 or rollouts < SMALLEST_GROUP * prompts or not typed:
        raise ValueError("facts")
    sample = Sample(prompts, rollouts, left_out, zero_mean)
    level = float(plain["vp"]["level"]) if level is None else level
    # A file that is damaged in one place is not trusted in another.
    _array([plain["estimate"]], (1, len(QUANTITIES)), LARGEST)
    _array(plain["covariance"], (len(QUANTITIES),) * 2, LARGEST**2, complete=prompts > 2)
    pseudo = _array(plain["pseudo_values"], (prompts, len(QUANTITIES)), LARGEST)
    return components_of_pseudo_values(pseudo, sample, level=level)


def _count(value: Any) -> int:
    """Return a whole number that can count prompts or rollouts."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST_ROLLOUTS:
        raise ValueError("count")
    return value


def _plain(values: Float) -> list[list[float | None]]:
    """Return rows of numbers for JSON, which has no NaN."""
    return [[value if math.isfinite(value) else None for value in row] for row in values.tolist()]


def _array(rows: Any, shape: tuple[int, ...], largest: float, *, complete: bool = True) -> Float:
    """Return the array of such rows, with numbers no larger than an estimate can be.

    Some may be missing where not all are to be `complete`.
    """
    values = np.array(
        [[math.nan if value is None else float(value) for value in row] for row in rows],
        dtype=float,
    )
    if (
        values.shape != shape
        or (np.abs(values) > largest).any()
        or (complete and np.isnan(values).any())
    ):
        raise ValueError("numbers")
    return values


def components_of_file(path: Path, *, level: float | None = None) -> Components | None:
    """Return the saved components in a file; None of another file."""
    return load_components(path, level=level).components if is_components(path) else None


def components_beside(run: Path | None, *, level: float | None = None) -> Components | None:
    """Return the components that lie beside a run, or None."""
    place = None if run is None else path_beside(run)
    return None if place is None or not place.is_file() else components_of_file(place, level=level)
