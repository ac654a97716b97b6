"""The command `groupwise replay`: what a log says that the run would have cost otherwise."""

from __future__ import annotations

from typing import Annotated

from groupwise.cli import app as cli


def replay(
    run: cli.Run,
    *,
    seed: Annotated[
        int, cli.option("N", "Of the order in which a stop sees rollouts.", check=cli.whole(0))
    ] = 0,
    opening: cli.Opening,
    as_json: cli.Json = False,
) -> None:
    """What the run would have cost under other choices, by its logged rewards."""
    from groupwise.analysis.replay import replay_run
    from groupwise.pages.text import print_replay

    replayed = replay_run(opening.open(run), seed=seed, opened=run)
    if as_json:
        cli.print_json(replayed)
    else:
        print_replay(replayed, cli.out_console())
