"""How a server is started, and which variables get through to it.

The environment is followed through the files of a snippet: scripts, environment files, units,
compose and Kubernetes files, images. What happens is what each launcher's documentation says, not
what its author meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from collbench.readers.text import Section


@dataclass(frozen=True, slots=True)
class Var:
    """One variable on its way: its value (None: not known from here) and who set it."""

    value: str | None
    origin: str
    """``image``, ``entrypoint``, ``file``, ``script``, ``unit`` or ``service``."""
    line: int | None = None


Env = dict[str, Var]


@dataclass(slots=True)
class Delivery:
    """What arrives at the server's process, and where the rest got lost."""

    launcher: str
    service: str | None = None
    env: Env = field(default_factory=dict)
    lost_at: str | None = None
    lost_line: int | None = None
    environment_files: list[str] | None = None
    """Of a systemd unit: the files it loads in the end."""
    unseen: list[str] = field(default_factory=list)
    """Files and objects that are named but not shown: what they hold is unknown."""
    line: int | None = None
    """Where the server is started or its service described."""
    arguments: list[str] = field(default_factory=list)
    """Words of the server's command line, where they are known."""
    asked: set[str] = field(default_factory=set)
    """Variables that the service or unit itself sets or asks for by name, arrived or not."""
    files: list[Section] = field(default_factory=list)
    """Environment files that were read for it."""
    cut: dict[str, int] = field(default_factory=dict)
    """Variables whose value a shell cut at a semicolon -> line of the file."""


def find(sections: Iterable[Section], path: str) -> Section | None:
    """Return the section of a path: of the same name, else with the same last part."""
    wanted = path.removeprefix("./").removeprefix("-")
    held = [section for section in sections if section.name]
    for section in held:
        if section.name.removeprefix("./") == wanted:
            return section
    base = wanted.rsplit("/", 1)[-1]
    return next((section for section in held if base and section.base == base), None)
