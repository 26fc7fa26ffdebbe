"""Targets that are the variables and nothing else: env file, shell, nccl.conf."""

from __future__ import annotations

from collbench.emit import Snippet
from collbench.errors import CollbenchError
from collbench.profiles import MARKERS
from collbench.profiles.env_file import assignments, refusal, representable

MAX_CONF_VALUE = 1023
"""NCCL cuts longer values (misc/param.cc)."""


def env(snippet: Snippet) -> str:
    """Return the universal env file.

    Raises:
        CollbenchError: a value cannot stand there; the targets that can carry it are named.
    """
    return "\n".join([f"# {snippet.title}", *assignments(snippet.values)]) + "\n"


def shell(snippet: Snippet) -> str:
    """Return exports for sh, dash, bash and zsh, quoted."""
    lines = [f"# {snippet.title}: source this file, or paste it into the start script"]
    lines += [f"export {name}={quoted(value)}" for name, value in snippet.values.items()]
    return "\n".join(lines) + "\n"


def quoted(value: str) -> str:
    r"""Quote a value for every shell.

    shlex.quote leaves ``=x`` bare, which zsh replaces by the path of the command x.

    >>> quoted("LL"), quoted("=x"), quoted("it's")
    ('LL', "'=x'", "'it'\\''s'")
    """
    return value if representable(value) else "'" + value.replace("'", "'\\''") + "'"


def nccl_conf(snippet: Snippet) -> str:
    """Return lines for nccl.conf: it reaches every NCCL program there, and no environment shows it.

    Raises:
        CollbenchError: the profile has no variable of NCCL, or others that this file cannot set.
    """
    values = {n: v for n, v in snippet.values.items() if n.startswith("NCCL_")}
    others = [n for n in snippet.values if n not in values and n not in MARKERS]
    if others or not values:
        raise CollbenchError(
            f"--target nccl-conf: not read from nccl.conf: {', '.join(others) or 'this profile'}",
            fix="use the env file: --target env",
        )
    for name, value in values.items():
        if len(value.encode()) > MAX_CONF_VALUE:
            raise CollbenchError(f"{name}: longer than the {MAX_CONF_VALUE} bytes NCCL reads")
        if not value:
            raise refusal(name, value)
    comments = [
        f"# {snippet.title}",
        "# For /etc/nccl.conf, ~/.nccl.conf or $NCCL_CONF_FILE, inside the container. It acts on",
        "# every NCCL program that reads it, and shows in no environment before NCCL has started.",
        "# The environment wins over it: SGLang's own NCCL_CUMEM_ENABLE, NCCL_NVLS_ENABLE and",
        "# NCCL_GRAPH_REGISTER cannot be set here.",
    ]
    if snippet.nccl and snippet.nccl < (2, 26):
        comments = []  # older versions take a comment for a variable
    return "\n".join([*comments, *(f"{n}={v}" for n, v in values.items())]) + "\n"
