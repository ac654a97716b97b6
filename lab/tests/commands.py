"""Both programs as the tests of the laboratory call them: each command where it lives."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

from tests.cli import asked

from groupwise.cli.app import PROGRAM as INSTRUMENT
from groupwise_lab.cli.app import PROGRAM as LABORATORY


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of either program and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    program = LABORATORY if given and given[0] in LABORATORY.commands else INSTRUMENT
    return program.run(given)


refused = partial(asked.refused, program=SimpleNamespace(main=main))
printed = partial(asked.printed, program=SimpleNamespace(main=main))
