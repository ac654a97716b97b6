"""The command `groupwise fleet`: every run below some folders, judged, in one list."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.cli import app as cli
from groupwise.files import free_target, write_whole

if TYPE_CHECKING:
    from groupwise.analysis.fleet import Fleet
    from groupwise.integrations.alerts import Webhook

_HEAD = 4096  # bytes in which a page says what it is
_KINDS = {".csv": "table", ".html": "page"}


def fleet(
    paths: list[Path],
    *,
    output: Path | None = None,
    page: Path | None = None,
    engine: str | None = "local",
    workers: int | None = None,
    limit: float = 120.0,
    fail_on: str = "warning",
    opening: cli.Opening,
    as_json: bool = False,
    force: bool = False,
    webhook: str | None = None,
) -> int:
    """Judge every run below some folders, worst first.

    Exit code 2 where none can be read, else as of diagnose, of the worst.
    """
    from groupwise.analysis.fleet import check_table, judge_fleet, write_table
    from groupwise.integrations.alerts import webhook_of
    from groupwise.pages.fleet import MARK, fleet_page, print_fleet
    from groupwise.pages.html import made_by

    inputs = [path for path in (*paths, opening.config) if path and path.is_file()]
    if output:
        free_target(output, inputs, force=True, endings=(".csv",))
        check_table(output)
    if page:
        ours = (
            page.is_file() and MARK.encode() in page.read_bytes()[:_HEAD]
        )  # a page that this command made
        free_target(page, inputs, force=force or ours, endings=(".html",))
    written = [path for path in (output, page) if path]
    hook = webhook_of(webhook)
    workers_of = cli.engine_of(engine, workers)
    with cli.progress(quiet=as_json) as show:
        judged = judge_fleet(
            paths, opening.asked, workers_of, seconds=limit, without=written, progress=show
        )
    if page:
        made = made_by(cli.typed_arguments())
        write_whole(page, fleet_page(judged, provenance=made), force=True)
    if as_json:
        cli.print_json(judged)
    else:
        print_fleet(judged, cli.out_console())
    if hook is not None and _send(hook, judged, output, fail_on):
        written = written[output is not None :]  # the next call sends what did not arrive
    elif output:
        write_table(output, judged.runs)
    if not as_json:
        cli.print_lines(*(f"The {_KINDS[path.suffix.lower()]}: {path}" for path in written))
    return cli.exit_code(judged.states, fail_on=fail_on)


def _send(hook: Webhook, judged: Fleet, table: Path | None, fail_on: str) -> int:
    """Send what changed since the table was written, and return how many alerts were lost."""
    from groupwise.analysis.fleet import former_states

    if table and table.exists():
        hook.states.update(former_states(table))
    for row in judged.runs:
        place = str(Path(row.opened).resolve())
        if row.state in {"failing", "failed", fail_on} or place in hook.states:
            hook.change(row.run, row.as_dict(), place)
    return hook.close()
