"""The command line of a sweep; the same behind ``collbench sweep`` and ``-m collbench.sweep``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """What was asked on the command line; None: not said."""

    spec: str | None = None
    backend: str = "auto"
    like: str = "none"
    objective: str | None = None
    strategy: str | None = None
    budget: str | None = None
    allow: tuple[str, ...] = ()
    keep_order: bool = False
    storage: str | None = None
    resume: bool = False
    seed: int = 0
    force: bool = False
    out: Path | None = None
    quiet: bool = False
    as_json: bool = False
    json_file: Path | None = None


def sweep_options(command: Command) -> Command:
    """Add the argument and the options of a sweep to a click command."""
    for decorate in reversed(
        [
            click.argument("spec", required=False),
            click.option(
                "--backend",
                type=click.Choice(["auto", "nccl", "mpi", "gloo"]),
                default="auto",
                show_default=True,
                help="auto: NCCL where CUDA devices are seen, else MPI.",
            ),
            click.option(
                "--like",
                type=click.Choice(["none", "sglang", "vllm"]),
                default="none",
                show_default=True,
                help="Measure under the variables that this server writes itself.",
            ),
            click.option(
                "--objective",
                type=click.Choice(["decode", "prefill", "pareto"]),
                help="What is minimised; pareto: both, with a profile for either alone. "
                "Default: the sweep file's.",
            ),
            click.option(
                "--strategy",
                metavar="S",
                help="auto, exhaustive, coordinate, tpe or random. Default: auto.",
            ),
            click.option(
                "--budget", metavar="N|TIME", help="Search launches (40) or whole time (5m)."
            ),
            click.option(
                "--allow",
                multiple=True,
                metavar="HAZARD",
                help="Search a hazard too, in a second study with a profile of its own.",
            ),
            click.option("--keep-order", is_flag=True, help="Keep the order of summation."),
            click.option(
                "--storage", metavar="URL", help="Optuna storage. Default: SQLite in --out."
            ),
            click.option("--resume", is_flag=True, help="Go on where a stopped sweep ended."),
            click.option(
                "--seed",
                type=click.IntRange(0, 2**32 - 1),
                default=0,
                show_default=True,
                metavar="N",
                help="Seed of the search.",
            ),
            click.option("--force", is_flag=True, help="Measure on GPUs that others use."),
            click.option(
                "--out",
                type=click.Path(path_type=Path, file_okay=False),
                metavar="DIR",
                help="Folder of results. Default: $COLLBENCH_RESULTS, else ./results.",
            ),
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
    name="collbench.sweep",
    epilog="Example: torchrun --standalone --nproc-per-node 4 -m collbench.sweep "
    "sweeps/quickstart.toml",
)
@sweep_options
def _command(**given: Any) -> Arguments:
    """Search the settings of the collectives, confirm the winner, publish a profile."""
    return Arguments(**given)


def parse(arguments: Sequence[str]) -> Arguments | None:
    """Return the parsed command line, or None where it only asked for help.

    Raises:
        click.ClickException: a wrong argument.
    """
    found = _command.main(args=list(arguments), standalone_mode=False)
    return found if isinstance(found, Arguments) else None
