"""``collbench check``: validates, starts torchrun, returns the document's exit code."""

from __future__ import annotations

from typing import Any

import click

from collbench.check.arguments import check_options


@click.command()
@click.option(
    "--nproc-per-node",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ranks. Default: the record's.",
)
@check_options
@click.pass_context
def check(context: click.Context, /, nproc_per_node: int | None, **given: Any) -> int:
    r"""Measure a profile again, beside the default, against its record.

    PROFILE is a profile's directory, its id, or `current`.

    Exit code: 0 as recorded; 3 regressed or no longer helps; 5 not the machine or the libraries
    of the record.

    \b
    Example:
      collbench check current --json-file check.json
    """
    from collbench import front
    from collbench.check.main import subject_of
    from collbench.preflight import choose_backend, machine_gpus

    subject = subject_of(given["profile"])
    count = nproc_per_node or subject.profile.scope.nranks
    choose_backend(subject.profile.backend, count, machine_gpus(subject.profile.backend))
    arguments = front.arguments_of(context, without=("nproc_per_node",))
    return front.start("check", arguments, nproc_per_node=count)
