"""``collbench bench``: validates, starts torchrun, returns the document's exit code."""

from __future__ import annotations

from typing import Any

import click

from collbench.bench.options import bench_options


@click.command()
@click.option("--nproc-per-node", type=int, metavar="N", help="Ranks. Default: GPUs seen, else 2.")
@bench_options
@click.pass_context
def bench(context: click.Context, /, nproc_per_node: int | None, **given: Any) -> int:
    r"""Time collectives and a server's step; print a table, write a run record.

    Starts fresh processes for each launch, so that every figure is one that a server's start could
    give.

    Exit code: 0; 1 a launch hung or died; 4 a collective returned wrong data.

    \b
    Example:
      collbench bench --launches 6
      collbench bench --sizes 8K,64K,1M --collective all_reduce,all_gather
    """
    from collbench import front
    from collbench.bench.request import Request, ask
    from collbench.bench.run import folder_of, writable
    from collbench.preflight import choose_backend, machine_gpus

    request = Request(**given)
    nranks = front.default_nproc() if nproc_per_node is None else nproc_per_node
    gpus = machine_gpus("nccl") if request.backend in ("auto", "nccl") else []
    chosen = choose_backend(request.backend, nranks, gpus)
    ask(request, backend=chosen.backend, nranks=nranks)
    writable(folder_of(request))
    arguments = front.arguments_of(context, without=("nproc_per_node",))
    return front.start("bench", arguments, nproc_per_node=nranks)
