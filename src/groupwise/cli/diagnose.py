"""The commands `groupwise diagnose`, how a run stands and why, and `groupwise check`, what of a
record is sound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from groupwise.cli import shared as cli
from groupwise.cli.shared import FOUND, OK, Json, argument, option, print_json, print_lines


def diagnose(
    run: cli.Run,
    *,
    until: cli.Until = None,
    why: cli.Why = False,
    gpus: cli.Gpus = None,
    price: cli.Price = None,
    fail_on: cli.FailOn = "warning",
    opening: cli.Opening,
    as_json: cli.Json = False,
) -> int:
    """How a run stands and why: exit code 0 ok, 1 warning or worse, 2 unusable, 3 cannot tell."""
    from groupwise.analysis.charts import reward_heights
    from groupwise.diagnostics.judge import judge
    from groupwise.pages.screen import print_judgement

    opening = opening.told(gpus=gpus, gpu_price=price)
    record = opening.open(run)
    if until is not None:
        from groupwise.analysis.fitted import cut

        record = cut(record, until)
    found = judge(record)
    remarks = record.remarks() if why else ()
    if as_json:
        cli.print_json(found.as_dict() | ({"remarks": remarks} if why else {}))
    else:
        heights = reward_heights(record)
        print_judgement(found, heights, cli.out_console(), why=why, remarks=remarks)
    return cli.exit_code([found.state], fail_on=fail_on)


def check(
    record: Annotated[Path, argument("RECORD", "The folder of a record, or the journal in it.")],
    *,
    repair: Annotated[
        Path | None,
        option("FOLDER", "Write all that is sound to this new folder; the record stays as it is."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Whether a record is sound, and a repaired copy of one that is not: exit code 0 sound, 1
    damaged, 2 unusable.
    """
    from groupwise.record.check import check_record, repaired
    from groupwise.record.run import RECORD_FILES
    from groupwise.wording import clean

    folder = record.parent if record.name in RECORD_FILES and record.is_file() else record
    checked = check_record(folder)
    written = None if repair is None else repaired(folder, repair)
    if as_json:
        print_json(checked.as_dict() | ({} if written is None else {"repaired": str(written)}))
    else:
        hint = (
            "--repair FOLDER writes a copy of all that is sound."
            if repair is None
            else f"A copy of all that is sound is in {repair}."
        )
        lines = checked.lines() if checked.sound and repair is None else [*checked.lines(), hint]
        print_lines(*(clean(line, longest=1000) for line in lines))
    return OK if checked.sound else FOUND
