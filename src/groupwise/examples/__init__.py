"""Example runs that travel with the package."""

from __future__ import annotations

import shutil
from pathlib import Path

from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.plain import frozen

HOME = Path(__file__).parent


@frozen
class Example:
    """A run of the package."""

    path: str  # below the package's folder, and below the one that it is copied into
    about: str


EXAMPLES = {
    "healthy": Example("trl_run", "a run of TRL that learns, with every completion"),
    "failing": Example("runs/length_runaway", "simulated: the policy runs away in length"),
    "hacking": Example("runs/hacking_true_logged", "simulated: the true reward falls"),
    "verifier": Example("runs/verifier_broken", "simulated: every reward is 0 from one step on"),
    "sampler": Example("runs/sampler_mismatch", "simulated: sampler and trainer differ"),
    "truncated": Example("runs/cut_off", "simulated: most completions are truncated"),
}


def copy_example(name: str, folder: Path) -> Path:
    """Copy a run of the package into a folder; what is there already stays as it is."""
    if name not in EXAMPLES:
        raise InvalidArgumentError(
            f"NAME expects an example run; got {name!r}: choose one of {', '.join(EXAMPLES)}"
        )
    path = EXAMPLES[name].path
    target = folder / path
    if not target.exists():
        try:
            shutil.copytree(HOME / path, target)
        except OSError as error:
            reason = error.strerror or "some files could not be copied"
            raise GroupwiseError(
                f"expected to write {target}, got {reason}: choose another folder"
            ) from None
    return target


def trl_run() -> Path:
    """Return the folder of a GRPO run of TRL 1.16.0: a tiny model learns to add two-digit numbers
    on the CPU.

    300 steps of 32 prompts with 8 completions each, logged at every step, evaluated every 20, with
    every completion.
    """
    return HOME / "trl_run"
