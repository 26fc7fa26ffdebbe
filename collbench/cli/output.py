"""How light commands write their document. Imports nothing but click and the standard library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click


def write_document(document: Mapping[str, Any], *, as_json: bool, json_file: Path | None) -> None:
    """Print a document on stdout, or write it to a file, or both, as asked.

    Raises:
        CollbenchError: the file cannot be written.
    """
    text = json.dumps(document, indent=2) + "\n"
    if as_json:
        click.echo(text, nl=False)
    if json_file is not None:
        from collbench.files import write_atomic

        write_atomic(json_file, text)
