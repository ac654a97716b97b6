"""The command `groupwise diagnose`: how a run stands, and why."""

from __future__ import annotations

from groupwise.cli import shared as cli


def diagnose(
    run: cli.Run,
    *,
    until: cli.Until = None,
    verbose: cli.Verbose = False,
    why: cli.Why = False,
    gpus: cli.Gpus = None,
    price: cli.Price = None,
    fail_on: cli.FailOn = "watch",
    settings: cli.Settings = None,
    config: cli.Config = None,
    column: cli.Column = None,
    as_json: cli.Json = False,
) -> int:
    """How a run stands and why: exit code 0 ok, 1 watch or worse, 2 unusable, 3 cannot tell."""
    from groupwise.analysis.sparkline import reward_heights
    from groupwise.diagnostics.judge import judge, measures_of
    from groupwise.diagnostics.signals import Evidence
    from groupwise.record.run import has_ended
    from groupwise.report.screen import print_judgement

    opening = cli.Opening.parse(column=column, settings=settings, config=config, gpus=gpus, price=price)
    record = opening.open(run)
    if until is not None:
        from groupwise.analysis.fitted import cut

        record = cut(record, until)
    found = judge(record, ended=has_ended(record))
    measures = measures_of(Evidence(record)) if why else None
    if as_json:
        cli.print_json(found.as_dict() | ({} if measures is None else {"measures": measures}))
    else:
        print_judgement(found, reward_heights(record), cli.out_console(), verbose=verbose, why=measures)
    return cli.exit_code([found.state], fail_on=fail_on)
