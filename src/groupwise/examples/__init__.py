"""Example runs that travel with the package."""

import shutil
from pathlib import Path

from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.files import table_rows
from groupwise.plain import frozen

HOME = Path(__file__).parent


@frozen
class Example:
    """A run of the package."""

    path: str  # below the package's folder, and below the one that it is copied into
    about: str


EXAMPLES = {
    row["name"]: Example(row["path"], row["about"]) for row in table_rows("examples/examples.tsv")
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
    the completions of the 285 steps between: TRL overwrites those of a step with an evaluation.
    """
    return HOME / "trl_run"
