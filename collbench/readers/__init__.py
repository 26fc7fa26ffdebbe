"""Parsers of what people paste: logs, matrices, tables, environment files, launch snippets.

A reader gives facts and where they stand; it judges nothing. Nothing here imports more than the
standard library at its top, and no regular expression can take more than linear time on a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class UnreadableError(Exception):
    """A text that cannot be read safely: nothing of it is used.

    Args:
        reason: Why, in a few words.
        code: The finding that says so (`topo.truncated`), where there is one.
        line: Where it was noticed.
    """

    def __init__(self, reason: str, *, code: str = "", line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.line = line


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What is known from elsewhere about the machine or the server a text is of."""

    profile: Mapping[str, str] | None = None
    """The wanted variables; without them nothing can be said to be missing."""
    stored: Mapping[str, Any] = field(default_factory=dict)
    """Fingerprint kept with the profile: gpus, numa, nccl_version, driver."""
    rank_gpu: Mapping[str, int] = field(default_factory=dict)
    """Rank (as text) -> GPU; a rank that is not named uses the GPU of its own number."""
    nccl_version: str | None = None
    """The library that will read the values."""


@dataclass(kw_only=True, slots=True)
class Reading:
    """What one file says."""

    kind: str
    facts: dict[str, Any]
    """Published as they are."""
    signs: dict[str, Any] = field(default_factory=dict)
    """What a judge needs beyond the facts; never published."""
    lines: dict[str, int] = field(default_factory=dict)
    """Name of a fact or sign -> line (from 1) of the file it was first seen on."""

    def line(self, *names: str) -> int | None:
        """Return the line of the first of `names` that has one."""
        return next((self.lines[name] for name in names if name in self.lines), None)
