"""The command `groupwise check`: what of a record is sound, and a repaired copy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from groupwise.cli.shared import FOUND, OK, Json, argument, option, print_json, print_lines


def check(
    record: Annotated[Path, argument("RECORD", "The folder of a record, or the journal in it.")],
    *,
    repair: Annotated[Path | None, option("FOLDER", "Write all that is sound to this new folder; the record stays as it is.")] = None,
    as_json: Json = False,
) -> int:
    """Whether a record is sound, and a repaired copy of one that is not: exit code 0 sound, 1 damaged, 2 unusable."""
    from groupwise.record.check import check_record, repaired
    from groupwise.record.run import RECORD_FILES
    from groupwise.wording import clean

    folder = record.parent if record.name in RECORD_FILES and record.is_file() else record
    checked = check_record(folder)
    written = None if repair is None else repaired(folder, repair)
    if as_json:
        print_json(checked.as_dict() | ({} if written is None else {"repaired": str(written)}))
    else:
        hint = "--repair FOLDER writes a copy of all that is sound." if repair is None else f"A copy of all that is sound is in {repair}."
        lines = checked.lines() if checked.sound and repair is None else [*checked.lines(), hint]
        print_lines(*(clean(line, longest=1000) for line in lines))
    return OK if checked.sound else FOUND
