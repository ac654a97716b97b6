"""The command `groupwise example`: a run of the package, copied here."""

from pathlib import Path

from groupwise.cli import app as cli
from groupwise.examples import EXAMPLES, copy_example


def example(
    name: str | None = None,
) -> int:
    """Copy an example run into this folder, to try a command on: healthy, failing and others."""
    if name is None:
        width = max(map(len, EXAMPLES))
        for key, run in EXAMPLES.items():
            print(f"{key:{width}}  {run.about}")
    else:
        path = copy_example(name, Path())
        print(f"{path} is {EXAMPLES[name].about}. Try: groupwise diagnose {path}")
    return cli.OK
