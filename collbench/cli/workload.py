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
@click.option("--tp", type=int, help="Ranks of the server's tensor-parallel group.")
@click.option("--batch", type=int, help="Live sequences (1).")
@click.option(
    "--draft-tokens",
    type=int,
    help="Tokens the target verifies per sequence; 1 is plain decode. SGLang's num-draft-tokens, "
    "vLLM's num_speculative_tokens + 1.",
)
@click.option("--server", type=click.Choice(["sglang", "vllm"]), help="Whose graphs hold it.")
@click.option("--dtype", help="Element type, instead of the source's own.")
@click.option("--draft-config", help="config.json of the draft model; mtp: the target's own layer.")
@click.option("--max-graph", type=int, help="Largest captured batch (sglang) or tokens (vllm).")
@click.option("--config", help="For a log: the model, to put its compute between the calls.")
@click.option(
    "--server-args",
    default="",
    help="The server's command line in quotes, with variables in front; read, never run.",
)
@click.option("--links", type=click.Choice(["pcie", "nvlink"]), default="pcie", show_default=True)
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
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
      collbench workload show 61x7168 --tp 8 --draft-tokens 4 --record results/run.json
      collbench workload show nccl.log --config config.json --batch 4
      collbench workload show config.json --server-args "vllm serve M -tp 4 --enforce-eager"
    """
    from collbench.workload import describe

    as_json, json_file = options.pop("as_json"), options.pop("json_file")
    document = _document(source, **options)
    return deliver(document, describe.text(document), as_json=as_json, json_file=json_file)


def _document(
    source: str,
    *,
    tp: int | None,
    batch: int | None,
    draft_tokens: int | None,
    server: Any,
    dtype: str | None,
    draft_config: str | None,
    max_graph: int | None,
    config: str | None,
    server_args: str,
    links: Any,
    record: Path | None,
) -> dict[str, Any]:
    import dataclasses

    from collbench.workload import describe, load, predict
    from collbench.workload.nccl_use import nccl_use
    from collbench.workload.server_args import LARGEST, TP, parse_server_args
    from collbench.workload.sources import is_model, read_draft

    args = parse_server_args(server_args)
    curves, backend, record_ranks, notes = _curves(record)
    tp = _first(tp, args.number(TP))
    if is_model(source):
        if tp is None and record_ranks is None:
            notes.append("--tp is not given: 2 ranks; the bytes of all_reduce do not depend on it")
        tp = _first(tp, record_ranks, 2)
        server = server or args.server
        draft_tokens = _first(draft_tokens, args.draft_tokens)
        max_graph = _first(max_graph, args.number(LARGEST))
    made = load(
        source,
        tp=tp,
        batch=batch,
        draft_tokens=draft_tokens,
        server=server,
        dtype=dtype,
        draft=draft_config,
        largest_graph=max_graph,
        config=config,
    )
    if args.eager:
        made = dataclasses.replace(made, eager=True)
        notes.append("the server's command line switches CUDA graphs off: every step is eager")
    _same_ranks(made.nranks, record_ranks, record)
    made = dataclasses.replace(made, notes=(*made.notes, *notes))
    rows = []
    if made.kind == "model" and made.model is not None:
        rows = predict.draft_table(
            made.model,
            curves,
            tp=made.nranks or 2,
            batch=made.batch or 1,
            server=made.server or "sglang",
            dtype=dtype,
            draft=read_draft(draft_config, made.model),
            largest_graph=max_graph,
        )
    use = None
    first = next((row for row in made.totals() if row[0] == "all_reduce"), None)
    ranks = _first(made.nranks, tp, record_ranks)
    if first is not None and ranks is not None and made.kind != "log" and backend == "nccl":
        use = nccl_use(
            made.server or server or "sglang",
            nranks=ranks,
            size_bytes=first[1],
            dtype=first[2],
            links=links,
            args=args,
        )
    elif first is not None and made.kind == "log":
        from collbench.workload.nccl_use import NcclUse

        said = f"; all-reduce backends {', '.join(made.backends)}" if made.backends else ""
        use = NcclUse(used="yes", reason=f"NCCL printed these calls itself{said}")
    return describe.document(
        made, curves, rows, predict.jumps(curves.get("all_reduce", ())), use, _shown(record)
    )


def _first(*values: int | None) -> int | None:
    """Return the first value that was given; 0 is given, and wrong."""
    return next((value for value in values if value is not None), None)


def _shown(record: Path | None) -> str | None:
    return None if record is None else str(record)


def _curves(record: Path | None) -> tuple[dict[str, Any], str, int | None, list[str]]:
    """Return the latencies of a record, its backend and ranks, and what to know of it."""
    if record is None:
        return {}, "nccl", None, []
    from collbench.errors import CollbenchError
    from collbench.record import RunRecord, load
    from collbench.results import curves, results

    run = load(record, RunRecord)
    found = results(run)
    mode = "graph" if run.backend == "nccl" else "eager"
    measured = curves(found, mode)
    if not measured:
        raise CollbenchError(
            f"--record {record}: has no case timed in {mode} mode with right data",
            fix=f"collbench bench --mode {mode} --sizes 8K,16K,...",
        )
    dtypes = sorted({r.case.dtype for r in found.cases if r.case.mode == mode})
    said = f"{run.backend}, {mode} mode, {run.nranks} ranks, {', '.join(dtypes)}"
    notes = [f"latencies of {record}: {said}"]
    return dict(measured), run.backend, run.nranks, notes


def _same_ranks(nranks: int | None, measured: int | None, record: Path | None) -> None:
    """Refuse latencies of another number of ranks.

    Raises:
        CollbenchError: they differ.
    """
    if nranks is not None and measured is not None and nranks != measured:
        from collbench.errors import CollbenchError

        raise CollbenchError(
            f"--record {record}: measured with {measured} ranks, the step has {nranks}",
            fix=f"measure with {nranks} ranks, or add --tp {measured}",
        )
