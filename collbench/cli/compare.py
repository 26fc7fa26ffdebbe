"""`collbench compare`."""

from __future__ import annotations

from pathlib import Path

import click

from collbench.cli.document import deliver, json_options


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("a", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("b", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--margin",
    type=float,
    default=0.01,
    show_default=True,
    metavar="FRACTION",
    help="Differences below this fraction are called none.",
)
@click.option(
    "--across",
    multiple=True,
    metavar="KEY",
    help="Compare although KEY differs (library, machine, driver, ...); repeatable. "
    "'cases': only those that both have.",
)
@json_options
def compare(
    a: Path,
    b: Path,
    margin: float,
    across: tuple[str, ...],
    as_json: bool,
    json_file: Path | None,
) -> int:
    r"""Compare two run records, per case and for the step.

    Prints B / A with a 95 % interval over launches and a verdict: faster, slower, no difference,
    too few launches, not comparable.

    Exit code: 0 same or faster, 3 slower, 4 too few launches, 5 not comparable (5 wins over 3, 3
    over 4).

    \b
    Example:
      collbench compare before.json after.json
      collbench compare nccl-2.28.json nccl-2.29.json --across library
    """
    from collbench import compare as comparing
    from collbench.record import RunRecord, load

    found = comparing.compare(load(a, RunRecord), load(b, RunRecord), margin=margin, across=across)
    return deliver(
        comparing.document(found, str(a), str(b)),
        comparing.text(found, str(a), str(b)),
        as_json=as_json,
        json_file=json_file,
    )
