"""The command `groupwise fleet`: every run below some folders, judged, in one list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from groupwise.cli import shared as cli
from groupwise.files import free_target, write_whole

if TYPE_CHECKING:
    from groupwise.analysis.fleet import FleetRow

_HEAD = 4096  # bytes in which a page says what it is


def fleet(
    paths: Annotated[list[Path], cli.argument("PATH...", "Folders in which runs lie at any depth, and runs.")],
    *,
    output: Annotated[
        Path | None,
        cli.option("FILE", "The list as .parquet, .csv or .jsonl; a run that has not changed since is not judged again.", "--output", "-o"),
    ] = None,
    page: Annotated[Path | None, cli.option("FILE", "Also a page with the curve of every run, and filters.")] = None,
    engine: cli.EngineName = "local",
    workers: cli.Workers = None,
    limit: Annotated[float, cli.option("SECONDS", "What reading and judging one run may take.", check=cli.positive)] = 120.0,
    fail_on: cli.FailOn = "watch",
    settings: cli.Settings = None,
    config: cli.Config = None,
    column: cli.Column = None,
    as_json: cli.Json = False,
    force: Annotated[bool, cli.flag("--force", "Judge every run again, and overwrite a page of another kind.")] = False,
) -> int:
    """Judge every run below some folders, worst first: exit code 2 where none can be read, else as of diagnose, of the worst."""
    from groupwise.analysis.fleet import judge_fleet, write_table
    from groupwise.report.fleet import fleet_page, print_fleet
    from groupwise.report.html import made_by

    opening = cli.Opening.parse(column=column, settings=settings, config=config)
    given = {"columns": opening.columns, "settings": opening.settings, "config": opening.config}
    asked = {name: value for name, value in given.items() if value}
    inputs = [path for path in (*paths, config) if path is not None and path.is_file()]
    known = () if output is None else _known(output, inputs, force=force)
    if page is not None:
        free_target(page, inputs, force=force or _is_page(page), endings=(".html",))
    with cli.progress(quiet=as_json) as show:

        def save(rows: Sequence[FleetRow]) -> None:
            if output is not None:
                write_table(output, rows)

        found = judge_fleet(
            paths,
            asked,
            cli.engine_of(engine, workers),
            known=known,
            seconds=limit,
            without=[path for path in (output, page) if path is not None],
            save=save,
            told=show,
        )
    if page is not None:
        made = made_by(cli.typed_arguments([*paths, *inputs, page, *([output] if output else [])]))
        write_whole(page, fleet_page(found, provenance=made), force=True)
    if as_json:
        cli.print_json(found)
    else:
        print_fleet(found, cli.out_console())
        cli.print_lines(*(f"The {what}: {path}" for what, path in (("table", output), ("page", page)) if path is not None))
    return cli.exit_code(found.states, fail_on=fail_on)


def _known(output: Path, inputs: Sequence[Path], *, force: bool) -> Sequence[FleetRow]:
    """Return what a list holds already; another file is refused, since it is never written over."""
    from groupwise.analysis.fleet import ENDINGS, read_table

    free_target(output, inputs, force=output.is_file(), endings=ENDINGS)
    before = read_table(output) if output.is_file() else ()
    return () if force else before


def _is_page(path: Path) -> bool:
    """Return whether a file is a page that this command made."""
    from groupwise.report.fleet import MARK

    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MARK.encode() in file.read(_HEAD)
