"""The options of `bench`, for its front door and for the module under torchrun alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--backend",
        default="auto",
        show_default=True,
        metavar="NAME",
        help="auto, nccl, mpi, gloo, or package.module:factory.",
    ),
    click.option(
        "--workload",
        metavar="W",
        help="Name, config.json, NCCL log or TOML of a step (collbench workload show W).",
    ),
    click.option(
        "--collective",
        "collectives",
        metavar="C,...",
        help="Collectives of the cases. Default: those of the workload, else all_reduce.",
    ),
    click.option("--sizes", metavar="SIZE,...", help="Message sizes: 8K,64K,1M."),
    click.option(
        "--mode",
        "modes",
        metavar="M,...",
        help="step, graph, eager, entry. Default: step and graph; on a CPU step and eager.",
    ),
    click.option("--dtype", "dtypes", metavar="D,...", help="Default: bfloat16; on a CPU float32."),
    click.option("--batch", type=int, metavar="B", help="Live sequences (model workloads)."),
    click.option(
        "--draft-tokens", type=int, metavar="D", help="Tokens verified per sequence; 1: decode."
    ),
    click.option("--server", metavar="S", help="Whose graph buckets: sglang or vllm."),
    click.option("--pairs", is_flag=True, help="Latency and bandwidth of every pair of ranks."),
    click.option(
        "--env", "env", metavar="PROFILE", help="Time under these settings: profile or env file."
    ),
    click.option(
        "--launches",
        type=click.IntRange(1, 1000),
        default=1,
        show_default=True,
        metavar="N",
        help="Sets of fresh processes; an interval needs two or more.",
    ),
    click.option("--pool", metavar="BYTES", help="Rotating buffer pool. Default: 1M."),
    click.option(
        "--chain",
        type=click.IntRange(1, 10000),
        metavar="N",
        help="Calls in one graph. Default: 100 up to 64 KiB, 50 to 1 MiB, 20 to 8 MiB, 5 above.",
    ),
    click.option(
        "--replays",
        type=click.IntRange(1, 100000),
        metavar="N",
        help="Timed windows per case and launch. Default: 20; entry has 200 at any rate.",
    ),
    click.option("--nccl-lib", metavar="PATH", help="The libnccl.so.2 to time instead of torch's."),
    click.option(
        "--skew", metavar="RANK:US", help="Make one rank late before each collective of the step."
    ),
    click.option(
        "--proof/--no-proof",
        default=True,
        show_default=True,
        help="One more launch, not timed, in which NCCL logs what it chose.",
    ),
    click.option(
        "--out",
        metavar="DIR",
        help="Folder of results. Default: $COLLBENCH_RESULTS, else ./results.",
    ),
    click.option("--force", is_flag=True, help="Measure on GPUs that others use."),
    click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document on stdout, nothing else."
    ),
    click.option("--json-file", metavar="FILE", help="Write the JSON document into FILE."),
    click.option("--csv-file", metavar="FILE", help="Write the table's cases as CSV."),
    click.option(
        "--times-file",
        metavar="FILE",
        help="Write every raw time, one a row: FILE.csv or FILE.parquet.",
    ),
)


def bench_options(function: F) -> F:
    """Decorate a click command with the options of `bench`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
