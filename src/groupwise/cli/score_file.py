"""Read scores, Gram matrices or sketches of rollouts from an `.npz` file that nobody vouches for.

Every member is judged by its header before anything is unpacked: no pickle, no size that the file does not hold. It estimates nothing.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.errors import GroupwiseError, InvalidArgumentError, UnreadableRunError
from groupwise.wording import clean

SCORES, GRAM, SKETCH, REWARD, PROMPT = "score_ND", "gram_NN", "sketch_NK", "reward_N", "prompt_N"
_OF_SCORES = (SCORES, GRAM, SKETCH)
_WANTED = f"one of {', '.join(_OF_SCORES)}, with {REWARD} and {PROMPT}"
_MOST_MEMBERS = 1000
_LARGEST = 1e15
# Numbers hardly compress: what swells a hundredfold to more than this is made to fill a memory, not to hold scores.
_SUSPICIOUS_BYTES, _SUSPICIOUS_FACTOR = 2**28, 100


@dataclass(frozen=True, slots=True)
class ScoreFile:
    """What a file holds of N rollouts."""

    score_ND: NDArray[Any] | None  # scores or sketches, or None where inner products are given
    gram_NN: NDArray[Any] | None  # inner products, or None
    reward_N: NDArray[Any]  # rewards
    prompt_N: NDArray[Any]  # labels of the prompts


def is_score_file(path: Path) -> bool:
    """Return whether a path is meant as an `.npz`: by its ending, or by the first bytes of a zip archive."""
    if path.suffix.lower() == ".npz":
        return True
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def read_score_file(path: Path, *, group_size: int | None = None) -> ScoreFile:
    """Read a file."""
    arrays = _arrays(path)
    names = [name for name in _OF_SCORES if name in arrays]
    if len(names) != 1 or REWARD not in arrays:
        listed = ", ".join(clean(name, longest=40) for name in list(arrays)[:8]) or "nothing"
        raise UnreadableRunError(f"expected {_WANTED} in {path}, got {listed}: save them with numpy.savez")
    reward = arrays[REWARD]
    if PROMPT in arrays:
        if group_size is not None:
            raise InvalidArgumentError(f"expected no --group-size, got {group_size}: {path} has {PROMPT}, which says whose group it is")
        prompt = arrays[PROMPT]
    else:
        prompt = _consecutive(path, len(reward) if reward.ndim else 0, group_size)
    _check_size(arrays[names[0]], reward, names[0])
    # Half precision would overflow in the first squared length.
    score = arrays[names[0]].astype(np.float32) if arrays[names[0]].dtype == np.float16 else arrays[names[0]]
    return ScoreFile(None if names[0] == GRAM else score, score if names[0] == GRAM else None, reward, prompt)


def _check_size(values: NDArray[Any], reward: NDArray[Any], name: str) -> None:
    """Refuse numbers whose eighth powers, which the intervals need, would overflow; what is not finite is told of later."""
    limits = {name: _LARGEST**2 if name == GRAM else _LARGEST, REWARD: _LARGEST}
    for which, array in ((name, values), (REWARD, reward)):
        largest = max(float(array.max()), -float(array.min())) if array.size else 0.0
        if limits[which] < largest < math.inf:
            raise InvalidArgumentError(
                f"expected numbers of at most {limits[which]:g} in {which}, got {largest:g}: divide them by a constant"
            )


def _consecutive(path: Path, rollouts: int, group_size: int | None) -> NDArray[Any]:
    """Labels of groups that follow one another."""
    if group_size is None:
        raise UnreadableRunError(
            f"expected {PROMPT} in {path}, got none: save the prompt of each rollout, or give --group-size G if groups follow one another"
        )
    if group_size < 1 or rollouts % group_size:
        raise InvalidArgumentError(
            f"expected a number of rollouts that groups of {group_size} divide, got {rollouts}: "
            f"complete the last group, or save {PROMPT}, which allows groups of any size"
        )
    return np.repeat(np.arange(rollouts // group_size), group_size)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read those members that are wanted, after their headers have been judged."""
    try:
        with zipfile.ZipFile(path) as archive:
            _judge(path, archive)
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] if name in {*_OF_SCORES, REWARD, PROMPT} else np.empty(0) for name in file.files[:_MOST_MEMBERS]}
    except (GroupwiseError, MemoryError):
        raise
    except FileNotFoundError:
        raise UnreadableRunError(f"expected {_WANTED} in {path}, got no such file: check the path") from None
    except PermissionError as error:
        raise UnreadableRunError(f"expected {_WANTED} in {path}, got {error.strerror}: change its mode") from None
    except Exception:  # noqa: BLE001 - what a damaged or hostile archive raises has no end
        raise UnreadableRunError(f"expected {_WANTED} in {path}, got a damaged file: save it again with numpy.savez") from None


def _judge(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse an archive whose members do not hold what their headers say, or would not fit."""
    members = archive.infolist()
    if len(members) > _MOST_MEMBERS:
        raise UnreadableRunError(f"expected {_WANTED} in {path}, got an archive of {len(members):,} files: save these arrays alone")
    unpacked = sum(member.file_size for member in members)
    if unpacked > _SUSPICIOUS_BYTES and unpacked > _SUSPICIOUS_FACTOR * path.stat().st_size:
        raise UnreadableRunError(
            f"expected scores in {path}, got {path.stat().st_size:,} bytes that swell to {unpacked:,}: save the arrays with numpy.savez"
        )
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name in {*_OF_SCORES, REWARD, PROMPT}:
            _judge_member(path, archive, member, name)


def _judge_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> None:
    """Refuse a member that is no plain array of numbers or labels, or is not as large as its header says."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        start = file.tell()
    if dtype.hasobject or dtype.kind not in ("biufUS" if name == PROMPT else "biuf"):
        raise UnreadableRunError(f"expected plain numbers in {name} of {path}, got {clean(dtype, longest=60)}: convert it before saving")
    declared = math.prod(shape) * dtype.itemsize
    if declared != member.file_size - start:
        raise UnreadableRunError(
            f"expected {declared:,} bytes of {name} in {path}, as its header says, got {member.file_size - start:,}: save it again"
        )
