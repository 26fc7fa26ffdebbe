"""``torchrun -m collbench.bench``: the same arguments as ``collbench bench``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from collbench.bench.options import bench_options
from collbench.errors import Exit
from collbench.front import run_module


@click.command("bench")
@bench_options
def command(**given: Any) -> int:
    """Time collectives and the step, as one rank under torchrun, mpirun or srun."""
    from collbench.bench.request import Request
    from collbench.bench.run import run_rank

    return run_rank(Request(**given), ["collbench", "bench", *sys.argv[1:]])


def main(arguments: Sequence[str]) -> int:
    """Run with a command line and return the exit code.

    Raises:
        CollbenchError: the request is wrong, or nothing can be measured here.
    """
    try:
        result = command.main(
            args=list(arguments), prog_name="collbench bench", standalone_mode=False
        )
    except click.ClickException as error:
        error.show()
        return Exit.USAGE
    return int(result) if isinstance(result, int) else Exit.OK


if __name__ == "__main__":
    sys.exit(run_module(main, sys.argv[1:]))
