"""What a page is made of: sections of text, tables, figures, drawings and files to copy.

Sections build these from records; only `page` turns them into HTML, so that untrusted text (hosts,
titles, log lines) is escaped in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Cell = str | int | float | None


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; numbers are aligned to the right, None is shown as a dash."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    folded: bool = False
    """Closed until somebody opens it: the text alternative of a figure, or a long list."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plot with what it says in words and the same numbers as a table."""

    name: str
    """Unique on the page; letters, digits and dashes."""
    caption: str
    data: list[dict[str, Any]]
    """Plotly traces. Colours that begin with ``--`` are variables of the page's theme."""
    layout: dict[str, Any]
    says: str
    """The main thing a reader sees in the plot, for those who do not see it."""
    table: Table | None
    """None where the table of the figure before it holds these numbers too."""
    height_px: int = 380


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """An SVG made by us, with its text alternative. Its text is escaped by whoever drew it."""

    caption: str
    svg: str
    says: str


@dataclass(frozen=True, kw_only=True)
class Snippet:
    """A file to copy, byte for byte."""

    title: str
    text: str
    note: str = ""
    folded: bool = False
    """Closed until somebody opens it."""


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph."""

    text: str
    kind: str = "plain"
    """plain, warning or legend."""


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """A few numbers in large type: (label, value, note)."""

    tiles: Sequence[tuple[str, str, str]]


Part = Table | Figure | Drawing | Snippet | Text | Tiles


@dataclass(frozen=True, kw_only=True)
class Section:
    """One chapter of the page; a section without parts is left out."""

    name: str
    title: str
    parts: list[Part] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole report."""

    title: str
    verdict: str
    """The verdict in one sentence; it stands first."""
    good: bool | None = None
    """Whether the verdict is a gain (True), a loss or fault (False), or neither."""
    sections: list[Section] = field(default_factory=list)
