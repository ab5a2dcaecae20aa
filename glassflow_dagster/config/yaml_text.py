"""A definition as YAML: read within bounds, and written so that it reads back as the same definition."""

import math
from collections.abc import Iterable
from itertools import chain
from typing import Any

import yaml

# The YAML writer breaks lines at these within plain and single-quoted texts, and its reader folds them into others.
_OTHER_LINE_ENDS = frozenset("\x85\u2028\u2029")


# What aliases may repeat of a file, in characters: a hundred sources with connections and fields like each other. Every
# repetition is checked like the original, so that nested aliases of a few lines would take minutes and all memory.
MAX_REPEATED = 200_000


class AliasError(ValueError):
    """Aliases that no definition needs, and that could not be read in time; says which one in the file."""


class _Loader(yaml.SafeLoader):
    """The safe loader, which counts what aliases repeat before any of it is built."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._sizes: dict[yaml.Node, int] = {}
        self._repeated = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node, and note its size with all that aliases put into it."""
        alias = self.peek_event() if self.check_event(yaml.AliasEvent) else None  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        if node is not None:
            if alias:
                self._repeat(node, alias.start_mark)
            else:
                self._sizes[node] = 1 + sum(self._sizes[part] for part in _parts(node)) + _length(node)
        return node

    def _repeat(self, node: yaml.Node, mark: yaml.Mark) -> None:
        place = f"line {mark.line + 1}, column {mark.column + 1}"
        if node not in self._sizes:
            raise AliasError(f"{place}: this alias stands for what it is a part of; write out what is meant")
        self._repeated += self._sizes[node]
        if self._repeated > MAX_REPEATED:
            raise AliasError(
                f"{place}: with this alias, aliases repeat more than {MAX_REPEATED:,} characters; repeat less, "
                "or write out what is meant"
            )


def _parts(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return chain.from_iterable(node.value)
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _length(node: yaml.Node) -> int:
    return len(node.value) if isinstance(node, yaml.ScalarNode) else 0


def read_yaml(text: str) -> Any:
    """Parse YAML; raises `AliasError`, `yaml.YAMLError`, and `ValueError` for a date that is none."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader


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
