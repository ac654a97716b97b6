"""Scores of many groups taken by the workers of an engine: shards of whole groups, a journal of those that are done, one result.

What comes back of a group are ten moments, from exact inner products of its own rollouts, and a sketch of its gradient: everything that
the components need, inner products between groups on different machines included. A group is scored by itself, so that neither shards nor
workers change a bit of it.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float
from groupwise.engine.engine import Engine, Outcome
from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.estimators.components import Components, components_of_moments
from groupwise.estimators.moments import GroupMoments, gradient_weights, moments_of_gram
from groupwise.files import write_whole

if TYPE_CHECKING:
    from groupwise.analysis.components import Found, Measurement, Progress, Tokens
    from groupwise.scores.language_models import LanguageModel
    from groupwise.scores.scores import ScoreGram, ScoreOptions, ScoreSource
    from groupwise.scores.sketch import CountSketch

_SHARE_OF_DEVICE = 0.5  # of a GPU's memory for what a pass keeps; the model has the rest


@dataclass(frozen=True, slots=True)
class Spread:
    """Over what the scores are spread."""

    engine: Engine  # who takes them
    shards: int = 64  # pieces of work; as many as there are groups at most
    gpus: int = 0  # of each worker
    journal: Path | None = None  # folder of the shards that are done; it is taken away once all are

    def __call__(self, tokens: Tokens, how: Measurement, options: ScoreOptions, progress: Progress | None) -> Found:
        """Return the components of groups whose scores workers take."""
        return _taken(tokens, how, options, self, progress)


@dataclass(frozen=True, slots=True)
class TokenGroup:
    """One group as the model reads it."""

    before: list[list[int]]  # tokens of each prompt
    after: list[list[int]]  # tokens of each completion
    reward: list[float]  # of each rollout


@dataclass(frozen=True, slots=True)
class ShardScores:
    """What a shard sends back."""

    moments: GroupMoments  # of its groups, with their gradients' sketches
    source: ScoreSource  # what they were taken of


@dataclass
class ScoreShard:
    """Takes the scores of a shard; the model is loaded with the first one and stays."""

    how: Measurement
    options: ScoreOptions
    width: int  # of the sketches
    scale: float  # of the scores: 1 but for the mean over the tokens of all rollouts, which a group cannot know
    device: str
    _loaded: tuple[LanguageModel, CountSketch] | None = field(default=None, repr=False)

    def __call__(self, groups: Sequence[TokenGroup]) -> ShardScores:
        """Return what the groups leave."""
        model, sketch = self._open()
        found = [self._group(model, sketch, group) for group in groups]
        return ShardScores(GroupMoments.joined([moments for moments, _ in found]), found[0][1].source)

    def _open(self) -> tuple[LanguageModel, CountSketch]:
        """Return the model and the map of the sketches."""
        if self._loaded is None:
            from groupwise.scores.sketch import CountSketch
            from groupwise.trainer.checkpoints import open_as_language_model

            how = self.how
            model = open_as_language_model(how.model, how.adapter, device=self.device, precision=how.precision)
            if self.device != "cpu":
                import torch

                own = torch.cuda.get_device_properties(self.device).total_memory
                self.options["memory_limit"] = int(_SHARE_OF_DEVICE * own)
            self._loaded = model, CountSketch(self.width, how.seed)
        return self._loaded

    def _group(self, model: LanguageModel, sketch: CountSketch, group: TokenGroup) -> tuple[GroupMoments, ScoreGram]:
        """Return what one group leaves, and how its scores were taken."""
        from groupwise.scores.language_models import batch_of
        from groupwise.scores.scores import score_gram

        reward: Float = np.array(group.reward)
        batch = batch_of(model, group.before, group.after)
        found = score_gram(model.model, batch, weight_N=gradient_weights(reward), sketch=sketch, **self.options)
        assert found.gradient_K is not None
        # What single precision has computed needs no double on its way.
        gradient: NDArray[np.floating] = found.gradient_K * self.scale
        if self.how.precision != "float64":
            gradient = gradient.astype(np.float32)
        mean = self.how.scores_average_to_zero
        moments = moments_of_gram(found.gram_NN * self.scale**2, reward, np.zeros(len(reward)), zero_mean=mean)
        return replace(moments, gradient_PD=gradient[None]), found


def _taken(tokens: Tokens, how: Measurement, options: ScoreOptions, spread: Spread, progress: Progress | None) -> Found:
    """Return the components, what was scored, and facts about the way."""
    from groupwise.scores.scores import SKETCH_WIDTH

    if spread.shards < 1:
        raise InvalidArgumentError(f"expected at least one shard, got {spread.shards}")
    shards = _shards(tokens, spread.shards)
    width = how.sketch_width or SKETCH_WIDTH
    scale = 1.0
    if how.aggregation == "batch_token_mean":
        scale, options = 1 / float(np.mean([len(ids) for ids in tokens.after])), {**options, "aggregation": "sum"}
    work = ScoreShard(how, options, width, scale, "cuda" if spread.gpus else "cpu")
    journal = Journal(spread.journal, _key(how, options, width))
    done = {name: kept for name, groups in shards.items() if (kept := journal.read(groups)) is not None}
    taken = len(done)
    if progress is not None:
        progress(taken, len(shards))

    def each(outcome: Outcome) -> None:
        if outcome.done:
            journal.write(shards[outcome.name], outcome.value)
            done[outcome.name] = outcome.value
        if progress is not None:
            progress(len(done), len(shards))

    rest = {name: groups for name, groups in shards.items() if name not in done}
    outcomes = spread.engine.map(work, rest, gpus=spread.gpus, each=each)
    if not done:
        raise GroupwiseError(f"expected scores, got none; {outcomes[0].sentence}")
    whole = GroupMoments.joined([done[name].moments for name in shards if name in done])
    found = components_of_moments(whole, level=how.level)
    lost = [one for one in outcomes if not one.done]
    if not lost:
        journal.remove()
    sizes = [one.size for one in outcomes if one.done]
    facts = {
        "inner_products": f"exact within groups, count-sketch of width {width} between them",
        "shards": len(shards),
        "shards_from_journal": taken,
        "shards_left_out": [one.name for one in lost],
        "bytes_from_workers": sum(sizes),
        "bytes_of_largest_shard": max(sizes, default=0),
    }
    return _with_notes(found, facts, lost), next(iter(done.values())).source, facts


def _with_notes(found: Components, facts: dict[str, Any], lost: Sequence[Outcome]) -> Components:
    """Return the components with sentences on the shards."""
    notes = [f"{one.sentence[0].upper()}{one.sentence[1:]}. Its groups were left out after {one.tries} tries." for one in lost]
    if lost:
        notes.append(f"{len(lost)} of {facts['shards']} shards were left out; the rest is kept: the same command takes only these anew.")
    return replace(found, notes=(*notes, *found.notes))


def _shards(tokens: Tokens, most: int) -> dict[str, list[TokenGroup]]:
    """Return shards of whole groups, nearly equally many in each; names say which groups of the sample they hold."""
    labels = tokens.rows["group"].to_numpy()
    rows_of = np.split(np.arange(len(labels)), np.flatnonzero(np.diff(labels)) + 1)
    reward = tokens.rows["reward"].to_list()
    groups = [
        TokenGroup([tokens.before[row] for row in rows], [tokens.after[row] for row in rows], [reward[row] for row in rows])
        for rows in rows_of
    ]
    found = {}
    for number, part in enumerate(np.array_split(np.arange(len(groups)), min(most, len(groups))), start=1):
        first, last = int(part[0]) + 1, int(part[-1]) + 1
        which = f"group {first}" if first == last else f"groups {first} to {last}"
        found[f"{number} ({which})"] = [groups[place] for place in part]
    return found


def _key(how: Measurement, options: ScoreOptions, width: int) -> str:
    """Return what the result of a shard depends on besides its groups."""
    folders = [how.model, *([] if how.adapter is None else [how.adapter])]
    files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for folder in folders for path in sorted(folder.glob("*.*"))]
    said = [width, how.seed, how.precision, how.scores_average_to_zero]
    return json.dumps([list(map(str, folders)), files, dict(options), said], default=str)


class Journal:
    """The shards that are done, a file each; without a folder it keeps nothing."""

    def __init__(self, folder: Path | None, key: str) -> None:
        """Make the folder."""
        self._folder, self._key = folder, key
        if folder is not None:
            try:
                folder.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise GroupwiseError(
                    f"expected to keep finished shards in {folder}, got {error.strerror}: name another file with -o"
                ) from None

    def _path(self, groups: Sequence[TokenGroup]) -> Path | None:
        """Return the file of a shard: its name holds everything that its result depends on."""
        if self._folder is None:
            return None
        said = json.dumps([[group.before, group.after, group.reward] for group in groups])
        return self._folder / f"{hashlib.blake2b((self._key + said).encode(), digest_size=16).hexdigest()}.npz"

    def read(self, groups: Sequence[TokenGroup]) -> ShardScores | None:
        """Return what a shard has sent before, None where it has not or the file is damaged."""
        from groupwise.scores.scores import ScoreSource

        path = self._path(groups)
        if path is None or not path.is_file():
            return None
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                about = json.loads(str(file["source"]))
                moment, gradient, size = file["moment"], file["gradient"], file["size"]
                moments = GroupMoments(moment, np.zeros(len(size)), gradient, size, int(file["left_out"]), bool(file["zero_mean"]))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        about["parameters"], about["left_out"] = tuple(about["parameters"]), tuple(about["left_out"])
        return ShardScores(moments, ScoreSource(**about))

    def write(self, groups: Sequence[TokenGroup], found: ShardScores) -> None:
        """Keep what a shard has sent; where there is no room, what is kept stays."""
        path = self._path(groups)
        if path is None:
            return
        content, moments = io.BytesIO(), found.moments
        assert moments.gradient_PD is not None
        np.savez(
            content,
            source=np.array(json.dumps(asdict(found.source))),
            moment=moments.moment_PC,
            gradient=moments.gradient_PD,
            size=moments.size_P,
            left_out=np.array(moments.left_out),
            zero_mean=np.array(moments.zero_mean),
        )
        write_whole(path, content.getvalue(), force=True)

    def remove(self) -> None:
        """Take the folder away."""
        if self._folder is not None:
            with suppress(OSError):
                for path in self._folder.glob("*.npz"):
                    path.unlink()
                self._folder.rmdir()
