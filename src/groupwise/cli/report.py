"""The command `groupwise report`: one page on one or several runs."""

from pathlib import Path

from groupwise.cli import app as cli
from groupwise.files import free_target, write_whole

DEFAULT = Path("groupwise-report.html")
HELD = 100  # completions of all runs of a page together


def report(
    runs: list[Path],
    *,
    output: Path | None = None,
    metric: str = "reward",
    until: float | None = None,
    at: str | None = None,
    level: float = 0.9,
    opening: cli.Opening,
    completions: int = HELD,
    gpus: int | None = None,
    price: float | None = None,
    fail_on: str = "warning",
    as_json: bool = False,
    force: bool = False,
) -> int:
    """Write one page on one or several runs, and how each stands here.

    Exit codes as of diagnose, the worst of several.
    """
    from groupwise.analysis.components import path_beside
    from groupwise.analysis.summary import page_room, summarise
    from groupwise.pages.html import made_by, render
    from groupwise.pages.screen import print_judgement
    from groupwise.record.run import named_apart

    opening = opening.with_settings(gpus=gpus, gpu_price=price)
    steps = cli.steps_of(at)
    target = output if output is not None or as_json else DEFAULT
    inputs = [*runs, *map(path_beside, runs), *filter(None, [opening.config])]
    if target:
        free_target(target, inputs, force=force)
    room = page_room(len(runs), completions)
    records, summaries = [], []
    with cli.advancing(quiet=as_json, total=2 * len(runs) + 1) as step:
        for path in runs:
            step(f"reading {path.name}")
            records.append(opening.open(path))
            inputs += cli.logs_of(records[-1])
        for path, record in zip(runs, named_apart(records), strict=True):
            step(f"fitting {path.name}")
            summaries.append(
                summarise(
                    record,
                    metric=metric,
                    until=until,
                    at=steps,
                    forecast_level=level,
                    room=room,
                    opened=path,
                )
            )
        made = made_by(cli.typed_arguments())
        if target:
            step("drawing")
            free_target(target, inputs, force=force)
            write_whole(target, render(summaries, provenance=made), force=force)
    judged = [summary.judgement for summary in summaries]
    if as_json:
        cli.print_json({"provenance": made, "runs": [summary.as_dict() for summary in summaries]})
    else:
        for judgement in judged:
            print_judgement(judgement, cli.out_console())
        cli.print_lines(f"The page is {target}")
    return cli.exit_code([judgement.state for judgement in judged], fail_on=fail_on)
