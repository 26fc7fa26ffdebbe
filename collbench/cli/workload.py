"""`collbench workload`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from collbench.cli.document import deliver, json_options

HELP = {"help_option_names": ["-h", "--help"]}


@click.group(context_settings=HELP)
def workload() -> None:
    r"""Show the collectives of a model's step.

    \b
    Example:
      collbench workload show 61x7168 --tp 8 --draft-tokens 4
    """


@workload.command(context_settings=HELP)
@click.argument("source")
@click.option("--tp", type=int, metavar="N", help="Ranks of the server's tensor-parallel group.")
@click.option("--batch", type=int, metavar="B", help="Live sequences. Default: 1.")
@click.option(
    "--draft-tokens",
    type=int,
    metavar="D",
    help="Tokens the target verifies per sequence; 1 is plain decode. SGLang's num-draft-tokens, "
    "vLLM's num_speculative_tokens + 1.",
)
@click.option("--server", type=click.Choice(["sglang", "vllm"]), help="Whose graphs hold it.")
@click.option("--dtype", metavar="D", help="Element type, instead of the source's own.")
@click.option(
    "--draft-config",
    metavar="FILE",
    help="config.json of the draft model; mtp: the target's own layer.",
)
@click.option(
    "--max-graph",
    type=int,
    metavar="N",
    help="Largest captured batch (sglang) or tokens (vllm).",
)
@click.option(
    "--config",
    metavar="FILE",
    help="For a log: the model, to put its compute between the calls.",
)
@click.option(
    "--server-args",
    default="",
    metavar="TEXT",
    help="The server's command line in quotes, with variables in front; read, never run.",
)
@click.option(
    "--links",
    type=click.Choice(["pcie", "nvlink"]),
    default="pcie",
    show_default=True,
    help="What joins the GPUs: whether the server's own all_reduce can run.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Run record whose latencies predict the communication.",
)
@json_options
def show(source: str, **options: Any) -> int:
    r"""Show calls, bytes and shares of one decode or verify step.

    SOURCE is a Hugging Face config.json (or its folder), an NCCL log of the server (the best
    source: exact calls), a .toml file with a [workload] table, or a name: verify-61x7168 (fixed),
    61x7168, 61x7168-e384, 64x5120, 80x8192.

    \b
    Example:
      collbench workload show 61x7168 --tp 8 --draft-tokens 4
      collbench workload show 61x7168 --record results/node1/bench-1.json
      collbench workload show nccl.log --config config.json --batch 4
      collbench workload show config.json --server-args "vllm serve M -tp 4"
    """
    from collbench.stepcost import explain
    from collbench.workload import describe

    as_json, json_file = options.pop("as_json"), options.pop("json_file")
    document = explain(source, **options)
    return deliver(document, describe.text(document), as_json=as_json, json_file=json_file)
