"""YAML as plain data, by PyYAML's safe loader. What the data means is not known here."""

from __future__ import annotations

from typing import Any

import yaml

from groupwise import limits


class _Yaml(yaml.SafeLoader):  # type: ignore[misc]
    """Plain data with few aliases: nested ones could unfold without bound."""

    aliases = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Take the next node."""
        self.aliases += self.check_event(yaml.AliasEvent)
        if self.aliases > limits.MOST_ALIASES:
            raise yaml.YAMLError("too many aliases")
        return super().compose_node(parent, index)


def plain_yaml(text: str) -> Any:
    """Return what a YAML text says; a damaged one is a ValueError, or what its odd dates and
    keys raise.
    """
    try:
        return yaml.load(text, Loader=_Yaml)  # noqa: S506  a safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
