"""YAML as data with line numbers, through PyYAML's safe loader, bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collbench.readers import UnreadableError
from collbench.readers.text import Section

MAX_BYTES = 1 << 20
MAX_NODES = 100_000
"""Most nodes after aliases are written out: a few nested aliases can stand for billions."""


def load(section: Section) -> list[tuple[Any, Any]]:
    """Return (data, node) of every document of a YAML text.

    Raises:
        UnreadableError: too large, no YAML, or aliases that multiply without end.
    """
    import yaml

    if len(section.text) > MAX_BYTES:
        raise UnreadableError("YAML: larger than 1 MiB")
    found = []
    try:
        for node in yaml.compose_all(section.text, Loader=yaml.SafeLoader):
            if _size(node, {}) > MAX_NODES:
                raise UnreadableError("YAML: too many nodes")
            loader = yaml.SafeLoader("")
            found.append((loader.construct_document(node), node))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + section.start if mark else None
        problem = getattr(error, "problem", None) or type(error).__name__
        raise UnreadableError(f"YAML: {str(problem)[:80]}", line=line) from error
    return found


def _size(node: Any, seen: dict[int, int]) -> int:
    """Return the number of nodes with aliases written out; each node is walked once."""
    known = seen.get(id(node))
    if known is not None:
        return known
    seen[id(node)] = MAX_NODES + 1  # A node within itself has no end.
    total = 1
    if isinstance(node.value, list):
        for item in node.value:
            parts = item if isinstance(item, tuple) else (item,)
            total += sum(_size(part, seen) for part in parts)
    seen[id(node)] = total
    return total


def line_of(node: Any, path: Sequence[str | int], start: int) -> int | None:
    """Return the line of what `path` names in a document, or of its last part that exists."""
    line = None
    for part in path:
        following = None
        if isinstance(part, str) and isinstance(node.value, list):
            for pair in node.value:
                if isinstance(pair, tuple) and pair[0].value == part:
                    line, following = pair[0].start_mark.line + start, pair[1]
        elif isinstance(part, int) and isinstance(node.value, list) and part < len(node.value):
            following = node.value[part]
            line = following.start_mark.line + start
        if following is None:
            return line
        node = following
    return line


def text_of(value: Any) -> str | None:
    """Return a scalar as YAML's readers pass it to an environment; None for null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping with text keys, empty where it is none."""
    return {str(k): v for k, v in value.items()} if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Any]:
    """Return a list, empty where it is none."""
    return value if isinstance(value, list) else []
