"""``collbench sweep``: validates, starts torchrun, returns the document's exit code."""

from __future__ import annotations

from typing import Any

import click

from collbench.sweep.arguments import Arguments, sweep_options


@click.command()
@click.option(
    "--nproc-per-node",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ranks. Default: GPUs, else 2.",
)
@sweep_options
@click.pass_context
def sweep(context: click.Context, /, nproc_per_node: int | None, **given: Any) -> int:
    r"""Search the settings of the collectives, confirm the winner, publish a profile.

    SPEC is a sweep file or the name of a shipped one; left out: `decode` where GPUs are seen, else
    `quickstart`. Keeping the default is a result too. A stopped sweep goes on with --resume.

    Exit code: 0 a profile, or "keep the default"; 1 nothing could be measured.

    \b
    Example:
      collbench sweep
      collbench sweep decode --like sglang --budget 10m
      collbench sweep quickstart --nproc-per-node 4
    """
    from collbench import front
    from collbench.sweep.setup import prepare

    count = nproc_per_node or front.default_nproc()
    prepare(Arguments(**given), local_ranks=count, nranks=count)
    arguments = front.arguments_of(context, without=("nproc_per_node",))
    return front.start("sweep", arguments, nproc_per_node=count)
