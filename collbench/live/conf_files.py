"""nccl.conf: variables that no environment shows.

Order: the environment, then ``$NCCL_CONF_FILE`` or ``~/.nccl.conf``, then ``/etc/nccl.conf``; the
first that sets a name wins (NCCL 2.30.7, misc/param.cc).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from collbench.live import rooted

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ConfValue:
    """One line of one conf file."""

    name: str
    value: str
    path: str
    line: int


def paths(environ: Mapping[str, str]) -> list[str]:
    """Return the conf files that NCCL opens under this environment, in order."""
    own = environ.get("NCCL_CONF_FILE")
    home = environ.get("HOME", "")
    first = own or (f"{home}/.nccl.conf" if home.startswith("/") else "")
    return [path for path in (first, "/etc/nccl.conf") if path]


def parse(text: str, path: str) -> dict[str, ConfValue]:
    """Return what one conf file sets; of a name that occurs twice the first counts."""
    found: dict[str, ConfValue] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#") and _NAME.fullmatch(name):
            found.setdefault(name, ConfValue(name, value[:1023], path, number))
    return found


def effective(environ: Mapping[str, str], pid: int | None = None) -> dict[str, ConfValue]:
    """Return what conf files add to an environment: names it does not set itself.

    Args:
        environ: The environment NCCL starts with.
        pid: Look in the root of this process; None: in our own.
    """
    read: Callable[[str], str | None] = _own if pid is None else lambda path: _other(pid, path)
    found: dict[str, ConfValue] = {}
    for path in paths(environ):
        text = read(path)
        if text:
            for name, value in parse(text, path).items():
                if name not in environ:
                    found.setdefault(name, value)
    return found


def _own(path: str) -> str | None:
    try:
        file = Path(path)
        return file.read_text("utf-8", "replace") if file.is_file() else None
    except OSError:
        return None


def _other(pid: int, path: str) -> str | None:
    try:
        return rooted.read_in_root(pid, path).decode("utf-8", "replace")
    except rooted.NotOpenedError:
        return None
