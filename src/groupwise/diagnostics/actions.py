"""What to do as data: actions of a kind and a size, with the setting in the user's own trainer.

`causes.tsv` has the actions of each cause, `actions.tsv` those of facts and checks, `settings.tsv`
the settings of each kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.files import table_rows
from groupwise.plain import Plain, frozen
from groupwise.record.settings import RunConfig

RESTART = "restart"  # the kind of an action: from the checkpoint of a step


@frozen
class Action(Plain):
    """One change.

    Args:
        kind: of the change, as `settings.tsv` names it.
        factor: by which the setting in use is multiplied; None where it is set.
        value: what it becomes, of a restart the step; None where the present one is not logged.
        settings: of the user's trainer, as "name=value", or the name alone; empty where the
            trainer is not known or has none.
        words: the same in a clause.
        missing: the setting of the log that would tell more, or "".
    """

    kind: str
    factor: float | None
    value: float | None
    settings: tuple[str, ...]
    words: str
    missing: str


_ACTIONS = {
    row["key"]: row["actions"].split("; ")
    for name in ("causes.tsv", "actions.tsv")
    for row in table_rows(f"diagnostics/{name}")
}
_SETTINGS = {row["kind"]: row for row in table_rows("diagnostics/settings.tsv")}
_FACTORS = {"x": (1, "× "), "/": (-1, "÷ ")}


def actions_of(keys: Sequence[str], config: RunConfig, step: int | None) -> tuple[Action, ...]:
    """Return the actions of a cause or a check.

    Args:
        keys: of the cause, or of the facts and the check; the first that has actions counts.
        config: the run's settings.
        step: of the checkpoint to go back to; None leaves a restart out.
    """
    entries = next((_ACTIONS[key] for key in keys if key in _ACTIONS), [])
    actions = (_action(entry, config, step) for entry in entries)
    return tuple(action for action in actions if action.kind != RESTART or step is not None)


def _action(entry: str, config: RunConfig, step: int | None) -> Action:
    """Return the action of an entry: "restart", "rate /3" or "warm_up =20"."""
    kind, _, size = entry.partition(" ")
    row, framework = _SETTINGS[kind], str(config.value("framework") or "").lower()
    factor: float | None = None
    value: float | None = step if kind == RESTART else None
    words = size[1:] or str(step)
    if size.startswith("="):
        value = float(words)
    elif size:
        power, sign = _FACTORS[size[0]]
        factor, present = float(size[1:]) ** power, config.value(row["log"])
        value, words = None if present is None else factor * present, sign + size[1:]
    templates = row.get(framework.replace("-", "_"), "").split()
    missing = "" if framework else "framework"
    if value is None and any("{}" in template for template in templates):
        missing, templates = row["log"], [template.partition("=")[0] for template in templates]
    written = "" if value is None else f"{value:.0f}" if value >= 1 else f"{value:.3g}"
    return Action(
        kind,
        factor,
        value,
        tuple(template.format(written) for template in templates),
        row["words"].format(words),
        missing,
    )
