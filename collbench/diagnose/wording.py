"""Facts and findings as lines of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from collbench.findings import Finding
from collbench.readers.text import printable

WIDTH = 80


def fact_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return one line per fact, long ones cut; matrices and tables are only counted."""
    width = max((len(name) for name in facts), default=0)
    room = WIDTH - width - 4
    return [f"  {name:<{width}}  {printable(_short(value), room)}" for name, value in facts.items()]


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = [f"{key}: {_short(item)}" for key, item in value.items()]
        return ", ".join(inner) if inner else "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and all(isinstance(item, list | Mapping) for item in value) and len(value) > 3:
            return f"{len(value)} entries"
        return ", ".join(_short(item) for item in value) if value else "none"
    return "unknown" if value is None else str(value)


def finding_lines(finding: Finding) -> list[str]:
    """Return a finding: code, place and evidence, then the next step."""
    place = f", line {finding.line}" if finding.line is not None else ""
    place = f", {finding.source}{place}" if finding.source else place
    cost = f", {finding.expected_ms:+.2f} ms per step" if finding.expected_ms is not None else ""
    head = f"{finding.code} ({finding.confidence}{place}{cost}): {finding.evidence}"
    lines = textwrap.wrap(
        printable(head, 600), WIDTH, initial_indent="  * ", subsequent_indent="    "
    )
    return lines + textwrap.wrap(
        printable(finding.next, 400), WIDTH, initial_indent="    next: ", subsequent_indent="      "
    )
