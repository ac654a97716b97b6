"""The command `groupwise fleet`: every run below some folders, judged, in one list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from groupwise.cli import shared as cli
from groupwise.files import free_target, write_whole

if TYPE_CHECKING:
    from groupwise.analysis.fleet import FleetRow

_HEAD = 4096  # bytes in which a page says what it is


def fleet(
    paths: Annotated[
        list[Path], cli.argument("PATH...", "Folders in which runs lie at any depth, and runs.")
    ],
    *,
    output: Annotated[
        Path | None,
        cli.option(
            "FILE",
            (
                "The list as .parquet, .csv or .jsonl; a run that has not changed since is not "
                "judged again."
            ),
            "--output",
            "-o",
        ),
    ] = None,
    page: Annotated[
        Path | None, cli.option("FILE", "Also a page with the curve of every run, and filters.")
    ] = None,
    engine: cli.EngineName = "local",
    workers: cli.Workers = None,
    limit: Annotated[
        float,
        cli.option("SECONDS", "What reading and judging one run may take.", check=cli.positive),
    ] = 120.0,
    fail_on: cli.FailOn = "warning",
    opening: cli.Opening,
    as_json: cli.Json = False,
    force: Annotated[
        bool, cli.flag("--force", "Judge every run again, and overwrite a page of another kind.")
    ] = False,
) -> int:
    """Judge every run below some folders, worst first: exit code 2 where none can be read, else
    as of diagnose, of the worst.
    """
    from groupwise.analysis.fleet import judge_fleet
    from groupwise.pages.fleet import MARK, fleet_page, print_fleet
    from groupwise.pages.html import made_by

    inputs = [path for path in (*paths, opening.config) if path is not None and path.is_file()]
    known, save = _table(output, inputs, force=force)
    if page is not None:
        ours = (
            page.is_file() and MARK.encode() in page.read_bytes()[:_HEAD]
        )  # a page that this command made
        free_target(page, inputs, force=force or ours, endings=(".html",))
    written = [path for path in (output, page) if path is not None]
    workers_of = cli.engine_of(engine, workers)
    with cli.progress(quiet=as_json) as show:
        found = judge_fleet(
            paths,
            opening.asked,
            workers_of,
            known=known,
            seconds=limit,
            without=written,
            save=save,
            told=show,
        )
    if page is not None:
        made = made_by(cli.typed_arguments([*paths, *inputs, *written]))
        write_whole(page, fleet_page(found, provenance=made), force=True)
    if as_json:
        cli.print_json(found)
    else:
        print_fleet(found, cli.out_console())
        cli.print_lines(
            *(
                f"The {what}: {path}"
                for what, path in (("table", output), ("page", page))
                if path is not None
            )
        )
    return cli.exit_code(found.states, fail_on=fail_on)


def _table(
    output: Path | None, inputs: Sequence[Path], *, force: bool
) -> tuple[Sequence[FleetRow], Callable[[Sequence[FleetRow]], None]]:
    """Return what a list holds already, and what keeps one; another file is refused, since it is
    never written over.
    """
    from groupwise.analysis.fleet import ENDINGS, read_table, write_table

    if output is None:
        return (), lambda _rows: None
    free_target(output, inputs, force=output.is_file(), endings=ENDINGS)
    before = read_table(output) if output.is_file() else ()
    return () if force else before, partial(write_table, output)
