"""Read YAML with limits on aliases, and write YAML that reads back as the same definition."""

import math
from collections.abc import Iterable
from itertools import chain
from typing import Any

import yaml

# Line ends of Unicode: PyYAML breaks plain and single-quoted texts at them, and folds them to others when reading.
_OTHER_LINE_ENDS = frozenset("\x85\u2028\u2029")


# Most characters that aliases may repeat: enough for a hundred sources that share connections and fields. Every
# repetition is validated like the original, so that a few lines of nested aliases could take minutes and all memory.
MAX_REPEATED = 200_000


class AliasError(ValueError):
    """The file's YAML aliases repeat too much, or refer to themselves: write out what they stand for."""


class _Loader(yaml.SafeLoader):
    """A safe loader that counts the characters that aliases repeat, before it builds any object."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._sizes: dict[yaml.Node, int] = {}  # node -> the number of characters and nodes in it
        self._repeated = 0  # the sum of the sizes of the nodes that aliases repeat

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node; note its size (characters and nodes), or count it as repeated when it is an alias.

        parent, index: of the node, for PyYAML.
        """
        alias_event = self.peek_event() if self.check_event(yaml.AliasEvent) else None  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        if node is not None:
            if alias_event:
                self._repeat(node, alias_event.start_mark)
            else:
                self._sizes[node] = 1 + sum(self._sizes[part] for part in _parts(node)) + _length(node)
        return node

    def _repeat(self, node: yaml.Node, mark: yaml.Mark) -> None:
        """Count the node of an alias as repeated; raises `AliasError` beyond the limit, and for a recursive alias."""
        position = f"line {mark.line + 1}, column {mark.column + 1}"
        if node not in self._sizes:
            raise AliasError(f"{position}: this alias refers to a node that contains it; write out the value")
        self._repeated += self._sizes[node]
        if self._repeated > MAX_REPEATED:
            raise AliasError(
                f"{position}: with this alias, aliases repeat more than {MAX_REPEATED:,} characters; repeat less, or "
                "write out the values"
            )


def _parts(node: yaml.Node) -> Iterable[yaml.Node]:
    """Return the nodes directly inside a node: keys and values of an object, or the items of a list."""
    if isinstance(node, yaml.MappingNode):
        return chain.from_iterable(node.value)
    return node.value if isinstance(node, yaml.SequenceNode) else ()


def _length(node: yaml.Node) -> int:
    return len(node.value) if isinstance(node, yaml.ScalarNode) else 0


def read_yaml(text: str) -> Any:
    """Parse YAML; raises `AliasError`, `yaml.YAMLError`, and `ValueError` for an invalid date."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader


class _Dumper(yaml.SafeDumper):
    """A safe dumper that quotes texts where a character would be lost otherwise."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Represent a text; in double quotes when it has a line end that PyYAML would change in another style."""
    style = '"' if _OTHER_LINE_ENDS & set(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def write_yaml(definition: dict[str, Any]) -> str:
    """Return a parsed definition as YAML, with its keys in their order."""
    return yaml.dump(definition, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _FlowDumper(_Dumper):
    """A dumper for one line: texts with line ends or other non-printable characters are quoted and escaped."""


def _one_line_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Represent a text on one line; in double quotes, with escapes, when it has a non-printable character."""
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_FlowDumper.add_representer(str, _one_line_text)


def write_flow(value: dict[str, Any] | list[Any]) -> str:
    """Return an object or a list as YAML on one line: `{name: id, type: string}`."""
    text = yaml.dump(
        value, Dumper=_FlowDumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return text.rstrip("\n")
