"""Variance components on disk: saved ones, and scores from which they are estimated.

Saved components are one JSON file beside the run, with the pseudo-values that bands are made from
and what they were computed from. Scores are an `.npz` that nobody vouches for: no pickle is loaded,
and what swells beyond reason is not unpacked.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float
from groupwise.errors import (
    GroupwiseError,
    InsufficientDataError,
    InvalidArgumentError,
    OverwriteError,
    UnreadableRunError,
)
from groupwise.estimators.components import (
    LARGEST,
    QUANTITIES,
    Components,
    Sample,
    components,
    components_of_pseudo_values,
    components_of_sums,
)
from groupwise.estimators.moments import SMALLEST_GROUP
from groupwise.files import beside, first_bytes, write_whole
from groupwise.parsing import parse_json
from groupwise.wording import clean

FORMAT, VERSION = "groupwise-components", 1
SUFFIX = "groupwise-components.json"
_LARGEST_FILE = 200 * 2**20
_MOST_ROLLOUTS = 2**53
_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class SavedComponents:
    """Components with what they were computed from."""

    components: Components  # the estimates
    provenance: Mapping[
        str, Any
    ]  # plain facts: model, aggregation, temperature, steps, groups, versions


def path_beside(run: str | Path) -> Path:
    """Return where the components of a run belong: inside its folder, or beside its file."""
    return beside(Path(run), SUFFIX)


def save_components(
    components: Components, path: str | Path, *, provenance: Mapping[str, Any], force: bool = False
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
        "pseudo_values": None if components.pseudo_PC is None else _plain(components.pseudo_PC),
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

    Where the file has pseudo-values, estimate, covariance and the jackknife's intervals are made
    anew from them, so that nothing in it can contradict itself. Without pseudo-values, estimate and
    covariance are taken as they stand, with Student's intervals.

    Args:
        path: the file.
        level: coverage of the intervals; that of the file where None.

    Returns:
        The components, whose `method` says how the intervals were made now.

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


def _components(plain: Mapping[str, Any], level: float | None) -> Components:
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
    # Judged also where the pseudo-values stand in for them: a file that is damaged in one place is
    # not trusted in another.
    estimate = _array([plain["estimate"]], (1, len(QUANTITIES)), LARGEST)[0]
    covariance = _array(plain["covariance"], (len(QUANTITIES),) * 2, LARGEST**2, known=prompts > 2)
    if plain["pseudo_values"] is None:
        return components_of_sums(estimate, covariance, sample, level=level)
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


def _array(rows: Any, shape: tuple[int, ...], largest: float, *, known: bool = True) -> Float:
    """Return the array of such rows, with numbers no larger than an estimate can be.

    Some may be missing where not all are `known`.
    """
    values = np.array(
        [[math.nan if value is None else float(value) for value in row] for row in rows],
        dtype=np.float64,
    )
    if (
        values.shape != shape
        or (np.abs(values) > largest).any()
        or (known and np.isnan(values).any())
    ):
        raise ValueError("numbers")
    return values


# Scores in a file

SCORES, GRAM, SKETCH, REWARD, PROMPT = "score_ND", "gram_NN", "sketch_NK", "reward_N", "prompt_N"
_OF_SCORES = (SCORES, GRAM, SKETCH)
_WANTED = f"one of {', '.join(_OF_SCORES)}, with {REWARD} and {PROMPT}"
_MOST_MEMBERS = 1000
_LARGEST = 1e15
# Numbers hardly compress: what swells a hundredfold to more than this is made to fill a memory, not
# to hold scores.
_SUSPICIOUS_BYTES, _SUSPICIOUS_FACTOR = 2**28, 100


def is_score_file(path: Path) -> bool:
    """Return whether a path is meant as an `.npz`: by ending, or as a zip archive."""
    return path.suffix.lower() == ".npz" or _beginning(path, 4) == b"PK\x03\x04"


def read_score_file(path: Path) -> dict[str, NDArray[Any]]:
    """Read rewards, prompts, and scores or a Gram matrix of rollouts from an `.npz`.

    They are the arguments of `components`; scores may be sketches.
    """
    arrays = _arrays(path)
    names = [name for name in _OF_SCORES if name in arrays]
    if len(names) != 1 or REWARD not in arrays or PROMPT not in arrays:
        listed = ", ".join(clean(name, longest=40) for name in list(arrays)[:8]) or "nothing"
        raise UnreadableRunError(
            f"expected {_WANTED} in {path}, got {listed}: save them with numpy.savez"
        )
    (name,), reward = names, arrays[REWARD]
    score = arrays[name]
    _check_size(score, name, _LARGEST**2 if name == GRAM else _LARGEST)
    _check_size(reward, REWARD, _LARGEST)
    # Half precision would overflow in the first squared length.
    score = score.astype(np.float32) if score.dtype == np.float16 else score
    return {"reward_N": reward, "prompt_N": arrays[PROMPT], GRAM if name == GRAM else SCORES: score}


def _check_size(values: NDArray[Any], name: str, limit: float) -> None:
    """Refuse numbers whose eighth powers, which the intervals need, would overflow.

    Those that are not finite are refused later.
    """
    largest = max(float(values.max()), -float(values.min())) if values.size else 0.0
    if limit < largest < math.inf:
        raise InvalidArgumentError(
            f"expected numbers of at most {limit:g} in {name}, got {largest:g}: divide them by a "
            "constant"
        )


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays that are wanted, out of an archive that nobody vouches for.

    Of others the name alone.
    """
    wanted = {*_OF_SCORES, REWARD, PROMPT}
    name = ""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        size, unpacked = path.stat().st_size, sum(member.file_size for member in members)
        if len(members) > _MOST_MEMBERS:
            raise UnreadableRunError(
                f"expected {_WANTED} in {path}, got an archive of {len(members):,} files: save "
                "these arrays alone"
            )
        if unpacked > _SUSPICIOUS_BYTES and unpacked > _SUSPICIOUS_FACTOR * size:
            raise UnreadableRunError(
                f"expected scores in {path}, got {size:,} bytes that swell to {unpacked:,}: save "
                "the arrays with numpy.savez"
            )
        arrays: dict[str, NDArray[Any]] = {}
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                arrays[name] = file[name] if name in wanted else np.empty(0)
                if arrays[name].dtype.kind not in ("biufUS" if name == PROMPT else "biuf"):
                    raise _not_plain(path, name, arrays[name].dtype)
    except GroupwiseError:
        raise
    except MemoryError:
        raise UnreadableRunError(
            f"expected {_WANTED} in {path}, got arrays beyond the memory: save fewer rollouts, or "
            "sketches"
        ) from None
    except FileNotFoundError:
        raise UnreadableRunError(
            f"expected {_WANTED} in {path}, got no such file: check the path"
        ) from None
    except PermissionError as error:
        raise UnreadableRunError(
            f"expected {_WANTED} in {path}, got {error.strerror}: change its mode"
        ) from None
    except Exception as error:  # noqa: BLE001 - what a damaged or hostile archive raises has no end
        if "Object arrays" in str(error):
            raise _not_plain(path, name, "objects") from None
        raise UnreadableRunError(
            f"expected {_WANTED} in {path}, got a damaged file: save it again with numpy.savez"
        ) from None
    return arrays


def _not_plain(path: Path, name: str, came: object) -> UnreadableRunError:
    """Return the refusal of an array that holds anything but numbers."""
    return UnreadableRunError(
        f"expected plain numbers in {name} of {path}, got {clean(came, longest=60)}: convert it "
        "before saving"
    )


def components_of_scores(
    path: Path,
    *,
    level: float | None = None,
    zero_mean: bool = True,
) -> Components:
    """Estimate the components of scores in an `.npz`."""
    arguments = read_score_file(path)
    estimates = components(
        **arguments, zero_mean=zero_mean, level=_LEVEL if level is None else level
    )
    if estimates.others["reward_variance"].value == 0:
        raise InsufficientDataError(
            f"expected rewards that differ within some group, got {estimates.prompts} groups with "
            "equal rewards throughout: they carry no gradient; take other prompts, or larger "
            "groups"
        )
    return estimates


def components_of_file(path: Path, *, level: float | None = None) -> Components | None:
    """Return the components of a file, saved or estimated from scores; None of no such file."""
    if path.is_file() and is_components(path):
        return load_components(path, level=level).components
    return (
        components_of_scores(path, level=level)
        if not path.is_dir() and is_score_file(path)
        else None
    )


def components_beside(run: Path | None, *, level: float | None = None) -> Components | None:
    """Return the components that lie beside a run, or None."""
    place = None if run is None else path_beside(run)
    return None if place is None or not place.is_file() else components_of_file(place, level=level)
