"""`collbench fleet`: many machines at a glance."""

from __future__ import annotations

from pathlib import Path

import click

from collbench.cli.document import deliver, json_options


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def fleet() -> None:
    r"""Look at many machines' profiles.

    \b
    Example:
      collbench fleet show results
    """


@fleet.command(
    short_help="Show each machine's profile, age and last check.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@json_options
def show(folder: Path, as_json: bool, json_file: Path | None) -> int:
    r"""Show each machine's profile, age, last check and regressions, from records alone.

    Machines of the same hardware form a class; one whose library, driver, settings, links or
    default differ from the rest deviates.

    Exit code: 0; 3 where some machine deviates.

    \b
    Example:
      collbench fleet show /shared/results --json-file fleet.json
    """
    from collbench.fleet.collect import collect
    from collbench.fleet.table import document, text

    plain = document(collect(folder))
    return deliver(plain, text(plain), as_json=as_json, json_file=json_file)
