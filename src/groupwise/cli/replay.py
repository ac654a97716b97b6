"""The command `groupwise replay`: what a log says that the run would have cost otherwise."""

from pathlib import Path

from groupwise.cli import app as cli


def replay(
    run: Path,
    *,
    seed: int = 0,
    opening: cli.Opening,
    as_json: bool = False,
) -> None:
    """What the run would have cost under other choices, by its logged rewards."""
    from groupwise.analysis.replay import replay_run
    from groupwise.pages.text import print_replay

    replayed = replay_run(opening.open(run), seed=seed, opened=run)
    if as_json:
        cli.print_json(replayed)
    else:
        print_replay(replayed, cli.out_console())
