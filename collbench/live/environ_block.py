"""The block behind ``/proc/PID/environ``: what a process was started with, if it is still whole.

A process title is written over arguments and environment, and the rest is cleared. Then nothing
in the block can be trusted: what is left shows values of the start that may have changed since,
and what is missing may have been there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collbench.live.memory import UnreadableError

MAX_BYTES = 1 << 23


@dataclass(frozen=True, slots=True)
class Block:
    """A copy of the block."""

    size: int
    leading_nul: int
    values: dict[str, str]
    """Name -> value at exec; of a name that occurs twice the first counts."""
    whole: bool
    """Nothing was written over it, so far as can be seen."""


def parse(data: bytes) -> Block:
    r"""Read a block.

    >>> parse(b"A=1\0B=2\0").whole, parse(b"\0\0\0B=2\0").whole
    (True, False)
    """
    leading = len(data) - len(data.lstrip(b"\0"))
    body = data[:-1] if data.endswith(b"\0") else data
    strings = body.split(b"\0") if body else []
    values: dict[str, str] = {}
    whole = bool(data) and data.endswith(b"\0")
    for string in strings:
        name, equals, value = string.partition(b"=")
        if not equals or not name:
            whole = False
            continue
        values.setdefault(
            name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")
        )
    return Block(size=len(data), leading_nul=leading, values=values, whole=whole)


def read(pid: int) -> Block:
    """Return the block of a process.

    Raises:
        UnreadableError: no permission, or gone.
    """
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as file:
            return parse(file.read(MAX_BYTES))
    except PermissionError as error:
        raise UnreadableError("no_permission", f"no permission to read process {pid}") from error
    except OSError as error:
        raise UnreadableError("gone", f"process {pid} is gone") from error
