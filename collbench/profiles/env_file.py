"""The one env file that every reader takes alike: ``profile.env``.

Valid and equal in meaning for sh, dash, bash, zsh, docker, compose, systemd, kubectl,
python-dotenv and nccl.conf. What cannot be said that way is refused, with the targets that can.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.profiles import MARKERS, Profile

VALUE = re.compile(r"[A-Za-z0-9_.,:/+@%^-]+")
"""What a value may hold; everything else means something to at least one reader."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_BYTES = 1 << 16
"""Longest file read; docker's limit for one line is the same."""


def representable(value: str) -> bool:
    """Return whether every reader takes `value` alike."""
    return VALUE.fullmatch(value) is not None


def refusal(name: str, value: str) -> CollbenchError:
    """Return why a value cannot stand in the universal file, and where it can."""
    odd = [character for character in value if not representable(character)]
    what = repr(odd[0]) if odd else "nothing at all"
    able = "docker, compose, systemd, k8s, slurm, shell, nccl-conf"
    return CollbenchError(
        f"{name}={value!r}: {what} in a value is read differently by shells, docker and systemd, "
        f"so it cannot stand in an env file for all of them",
        fix=f"collbench profile emit PROFILE --target TARGET, TARGET one of {able}",
    )


def env_text(profile: Profile) -> str:
    """Return the text of ``profile.env``.

    Raises:
        CollbenchError: a value cannot stand there; the targets that can carry it are named.
    """
    lines = [f"# collbench profile {profile.id}"]
    if profile.library:
        lines.append(f"# made with {_ascii(profile.library)}, {_ascii(profile.created)}")
    lines += assignments(profile.settings)
    if profile.pinned:
        lines.append("# pinned: stood in the environment while measuring, kept as it was")
        lines += assignments(profile.pinned)
    lines.append("# markers: which profile this is; they change nothing")
    lines += [f"COLLBENCH_PROFILE={profile.id}", "SPT_NOENV=1"]
    return "\n".join(lines) + "\n"


def settings_text(settings: Mapping[str, str], *, comment: str = "draft") -> str:
    """Return the text of an env file without a profile, for a candidate to be confirmed.

    Raises:
        CollbenchError: a value cannot stand there.
    """
    return "\n".join([f"# collbench {_ascii(comment)}", *assignments(settings)]) + "\n"


def assignments(values: Mapping[str, str]) -> list[str]:
    """Return ``NAME=VALUE`` lines.

    Raises:
        CollbenchError: a name or value cannot stand in the universal file.
    """
    lines = []
    for name, value in values.items():
        if not NAME.fullmatch(name):
            raise CollbenchError(f"{name!r} is not the name of a variable")
        if not representable(value):
            raise refusal(name, value)
        lines.append(f"{name}={value}")
    return lines


def read_env(path: Path) -> dict[str, str]:
    """Read an env file that every reader takes alike.

    Raises:
        CollbenchError: it cannot be read, or a line is one that readers take differently.
    """
    return parse_env(read_text(path), where=str(path))


def parse_env(text: str, *, where: str) -> dict[str, str]:
    """Return name -> value of the text of an env file.

    Raises:
        CollbenchError: a line is one that readers take differently; it is named.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or (line.startswith("#") and "\r" not in line):
            continue
        name, equals, value = line.partition("=")
        if not equals or not NAME.fullmatch(name) or not representable(value) or name in values:
            raise CollbenchError(
                f"{where}: line {number}: {line!r:.80} is read differently by different programs",
                fix=f"collbench profile lint {where}   says what is wrong with it",
            )
        values[name] = value
    return values


def read_text(path: Path) -> str:
    """Return the text of a small regular file.

    Raises:
        CollbenchError: missing, not a regular file, too large, or not text.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
                raise CollbenchError(
                    f"{path}: not a regular file of at most {MAX_BYTES} bytes",
                    fix="give an env file or a profile",
                )
            return file.read(MAX_BYTES).decode("utf-8")
    except OSError as error:
        raise CollbenchError(f"{path}: {error.strerror}", fix="check the path") from error
    except UnicodeDecodeError as error:
        raise CollbenchError(f"{path}: not UTF-8 text", fix="give an env file") from error


def without_markers(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values that tune something."""
    return {name: value for name, value in values.items() if name not in MARKERS}


def _ascii(text: str) -> str:
    return re.sub(r"[^ -~]", "?", text).rstrip("\\ ")
