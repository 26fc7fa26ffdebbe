"""What servers write into their own environment: the one table behind ``--like``."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from collbench.errors import CollbenchError

SERVERS = ("none", "sglang", "vllm")


@dataclass(frozen=True, kw_only=True, slots=True)
class Write:
    """One variable that a server writes."""

    name: str
    value: str
    when: Literal["unset", "overwrites"]
    """``unset``: a user's value is kept. ``overwrites``: it is lost."""
    option: str = ""
    """What has to be chosen for it to happen; empty: always."""
    version: str
    """Of the server whose source was read."""
    source: str = ""
    note: str = ""


@functools.cache
def all_writes(server: str) -> tuple[Write, ...]:
    """Return everything a server may write, with the option it depends on.

    Raises:
        CollbenchError: the server is not in the table.
    """
    if server not in SERVERS:
        raise CollbenchError(
            f"--like: {server!r} is not known", fix=f"choose one of {', '.join(SERVERS)}"
        )
    if server == "none":
        return ()
    path = resources.files("collbench.knobs").joinpath("writes.toml")
    entry = tomllib.loads(path.read_text(encoding="utf-8"))[server]
    return tuple(Write(version=entry["version"], **write) for write in entry["writes"])


def server_writes(server: str) -> dict[str, Write]:
    """Return name -> what `server` writes whatever its options; {} for ``none``.

    Raises:
        CollbenchError: the server is not in the table.
    """
    return {write.name: write for write in all_writes(server) if not write.option}


def baseline(server: str) -> dict[str, str]:
    """Return the variables a measurement sets to stand where `server` stands.

    Raises:
        CollbenchError: the server is not in the table.
    """
    return {name: write.value for name, write in server_writes(server).items()}


def chosen_writes(server: str, arguments: Sequence[str]) -> dict[str, Write]:
    """Return name -> what `server` writes when it is started with `arguments`.

    Options that are no command-line arguments count as not chosen. Later entries win, as in the
    server's own code.
    """
    chosen: dict[str, Write] = {}
    for write in all_writes(server):
        if not write.option or any(a.split("=")[0] == write.option for a in arguments):
            chosen[write.name] = write
    return chosen
