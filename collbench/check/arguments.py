"""The command line of a check; the same behind ``collbench check`` and ``-m collbench.check``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
PAIRS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """What was asked on the command line."""

    profile: str
    pairs: int = PAIRS
    force: bool = False
    quiet: bool = False
    as_json: bool = False
    json_file: Path | None = None


def check_options(command: Command) -> Command:
    """Add the argument and the options of a check to a click command."""
    for decorate in reversed(
        [
            click.argument("profile"),
            click.option(
                "--pairs",
                type=click.IntRange(min=4, max=100),
                default=PAIRS,
                show_default=True,
                metavar="N",
                help="Interleaved pairs of launches; twice as many where these do not decide.",
            ),
            click.option("--force", is_flag=True, help="Measure on GPUs that others use."),
            click.option("--quiet", is_flag=True, help="No progress."),
            click.option(
                "--json",
                "as_json",
                is_flag=True,
                help="Print one JSON document on stdout, nothing else.",
            ),
            click.option(
                "--json-file",
                type=click.Path(path_type=Path, dir_okay=False),
                metavar="FILE",
                help="Write the JSON document into FILE.",
            ),
        ]
    ):
        command = decorate(command)
    return command


@click.command(
    name="collbench.check",
    epilog="Example: torchrun --standalone --nproc-per-node 2 -m collbench.check current",
)
@check_options
def _command(**given: Any) -> Arguments:
    """Measure a profile again, beside the default, against its record."""
    return Arguments(**given)


def parse(arguments: Sequence[str]) -> Arguments | None:
    """Return the parsed command line, or None where it only asked for help.

    Raises:
        click.ClickException: a wrong argument.
    """
    found = _command.main(args=list(arguments), standalone_mode=False)
    return found if isinstance(found, Arguments) else None
