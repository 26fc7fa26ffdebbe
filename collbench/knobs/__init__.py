"""The registry of settings, as data: one TOML file per library.

Standard library only, so that `run`, `verify` and `profile lint` start quickly.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from collbench.errors import CollbenchError
from collbench.knobs import lists

Library = Literal["nccl", "openmpi", "mpich", "server"]
LIBRARIES: tuple[Library, ...] = ("nccl", "openmpi", "mpich", "server")
Hazard = Literal["ll128", "p2p", "graph-mixing", "loads-code", "numerics", "never"]
"""Closed list of hazards.

``never``: registered so that it is recognised, and may be pinned, but is never searched.
"""
HAZARDS: tuple[str, ...] = ("ll128", "p2p", "graph-mixing", "loads-code", "numerics")

Version = tuple[int, ...]


def parse_version(text: str) -> Version:
    """Return ``(2, 28, 9)`` of ``2.28.9`` or ``2.28.9+cuda13.0``; empty if there is none."""
    match = re.match(r"\s*(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Knob:
    """One registered variable."""

    name: str
    library: Library
    type: Literal["int", "bool", "enum", "list", "size", "text", "path", "cpus"]
    values: tuple[str, ...] = ()
    """Allowed values (enum), or those worth proposing (other types)."""
    propose: tuple[str, ...] = ()
    """Of `values`, those worth proposing, where not all are."""
    elements: tuple[str, ...] = ()
    """What a list may name (list)."""
    ignore_case: bool = False
    """Upper and lower case are the same (enum); a list always ignores case."""
    minimum: int | None = None
    maximum: int | None = None
    multiple: int = 1
    """The library accepts multiples of it only."""
    value_since: Mapping[str, Version]
    """Value -> first version that knows it, where that is later than `since`."""
    requires: Mapping[str, str]
    """Another variable and the value without which this one does nothing."""
    default: str | None = None
    """What the library does when the variable is unset, as a value; None if that is automatic."""
    default_since: Version = ()
    """First version with this default; empty: always."""
    since: Version = ()
    until: Version = ()
    """First version that no longer has it; empty: still there."""
    read_at: Literal["process", "communicator", "library_load"] = "process"
    hazard: Hazard | None = None
    """Hazard of setting it at all."""
    hazard_values: Mapping[str, str]
    """Value (or regular expression, between slashes) -> hazard, where only some values are one.

    For a list: element -> hazard; a list that switches the element on is one.
    """
    moves: str = ""
    """What it changes, in a few words."""
    scope: Literal["node", "any"] = "any"
    """``node``: acts only inside one machine; not searched between machines."""
    numerics: bool = False
    """Changes the order of summation."""
    documented: bool = True
    source: str = ""

    def exists_in(self, version: Version) -> bool:
        """Return whether a library of `version` knows the variable; unknown versions do."""
        if not version:
            return True
        return self.since <= version and (not self.until or version < self.until)

    @property
    def candidates(self) -> tuple[str, ...]:
        """Values worth proposing; hazards are among them."""
        return self.propose or self.values

    def hazard_of(self, value: str) -> str | None:
        """Return the hazard of setting this knob to `value`, or None."""
        if self.hazard:
            return self.hazard
        if self.type == "list":
            enabled = lists.enabled(value, self.elements)
            return next((h for e, h in self.hazard_values.items() if e in enabled), None)
        for pattern, hazard in self.hazard_values.items():
            if pattern.startswith("/") and pattern.endswith("/"):
                if re.search(pattern[1:-1], value, re.IGNORECASE):
                    return hazard
            elif pattern.lower() == value.lower():
                return hazard
        return None


@functools.cache
def registry() -> Mapping[str, Knob]:
    """Return every registered knob by name.

    Raises:
        ValueError: a registry file is wrong (ours, not the user's).
    """
    found: dict[str, Knob] = {}
    for library in LIBRARIES:
        path = resources.files("collbench.knobs").joinpath(f"{library}.toml")
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            found[name] = _knob(name, library, entry)
    return found


def _knob(name: str, library: Library, entry: dict[str, Any]) -> Knob:
    for key in ("since", "until", "default_since"):
        entry[key] = parse_version(entry.get(key, ""))
    for key in ("values", "propose", "elements"):
        entry[key] = tuple(entry.get(key, ()))
    for key in ("hazard_values", "requires"):
        entry.setdefault(key, {})
    since = entry.get("value_since", {})
    entry["value_since"] = {value: parse_version(text) for value, text in since.items()}
    try:
        return Knob(name=name, library=library, **entry)
    except TypeError as error:
        raise ValueError(f"{library}.toml: {name}: {error}") from error


def knob(name: str, *, where: str = "settings") -> Knob:
    """Return a registered knob.

    Raises:
        CollbenchError: the name is not registered; the nearest names are given.
    """
    found = registry().get(name)
    if found is None:
        import difflib

        near = difflib.get_close_matches(name, registry(), n=3)
        raise CollbenchError(
            f"{where}: unknown variable {name!r}"
            + (f"; nearest registered: {', '.join(near)}" if near else ""),
            fix="see docs/knobs.md for the registered variables",
        )
    return found
