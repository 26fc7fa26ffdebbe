"""One JSON document on stdout or in a file, and the options that ask for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from collbench.files import write_atomic

Command = TypeVar("Command", bound=Callable[..., Any])


def json_options(command: Command) -> Command:
    """Add ``--json`` and ``--json-file`` to a command."""
    command = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document on stdout, nothing else."
    )(command)
    return click.option(
        "--json-file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Write the JSON document into FILE.",
    )(command)


def deliver(
    document: Mapping[str, Any], text: str, *, as_json: bool, json_file: Path | None
) -> int:
    """Print the text or the document, write the file, and return the document's ``exit_code``.

    Raises:
        CollbenchError: the file cannot be written.
    """
    written = json.dumps(document, indent=2, allow_nan=False) + "\n"
    if json_file is not None:
        write_atomic(json_file, written)
    click.echo(written if as_json else text, nl=False)
    return int(document["exit_code"])
