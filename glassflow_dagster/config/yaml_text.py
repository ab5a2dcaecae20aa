"""A definition as YAML that reads back as the same definition."""

import math
from typing import Any

import yaml

# The YAML writer breaks lines at these within plain and single-quoted texts, and its reader folds them into others.
_OTHER_LINE_ENDS = frozenset("\x85\u2028\u2029")


class _Dumper(yaml.SafeDumper):
    """The safe dumper, which quotes texts so that no character of them is lost."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _OTHER_LINE_ENDS & set(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def write_yaml(definition: dict[str, Any]) -> str:
    """Write a parsed definition, its keys in their order."""
    return yaml.dump(definition, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _FlowDumper(_Dumper):
    """The same for one line: texts with breaks or other unseen characters are escaped."""


def _one_line_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_FlowDumper.add_representer(str, _one_line_text)


def write_flow(value: dict[str, Any] | list[Any]) -> str:
    """Write an object or a list on one line: `{name: id, type: string}`."""
    text = yaml.dump(
        value, Dumper=_FlowDumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return text.rstrip("\n")
