"""The command `groupwise diagnose`: how a run stands and why."""

from pathlib import Path

from groupwise.cli import app as cli


def diagnose(
    run: Path,
    *,
    until: float | None = None,
    running: bool = False,
    why: bool = False,
    gpus: int | None = None,
    price: float | None = None,
    fail_on: str = "warning",
    opening: cli.Opening,
    as_json: bool = False,
) -> int:
    """How a run stands and why: exit code 0 ok, 1 warning or worse, 2 unusable, 3 cannot tell."""
    from groupwise.diagnostics.judge import judge
    from groupwise.pages.screen import print_judgement

    opening = opening.with_settings(gpus=gpus, gpu_price=price)
    record = opening.open(run)
    if until is not None:
        from groupwise.record.run import cut

        whole, record = len(record.steps), cut(record, until)
        running |= len(record.steps) < whole  # as it stood then
    judgement = judge(record, ended=False if running else None)
    remarks = []
    if why:
        from groupwise.analysis.charts import logged_rows

        asked = [action.missing for action in judgement.actions]
        remarks = [*logged_rows(record, judgement), *record.remarks(asked)]
    if as_json:
        cli.print_json(judgement.as_dict() | ({"remarks": remarks} if why else {}))
    else:
        print_judgement(judgement, cli.out_console(), why=why, remarks=remarks)
    return cli.exit_code([judgement.state], fail_on=fail_on)
