"""A workload beside a run record: what a step calls, what it costs, whether NCCL does it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collbench.errors import CollbenchError
from collbench.workload import Workload, describe, load, predict
from collbench.workload.buckets import Server
from collbench.workload.nccl_use import Links, NcclUse, nccl_use
from collbench.workload.predict import Curve
from collbench.workload.server_args import LARGEST, TP, ServerArgs, parse_server_args
from collbench.workload.sources import is_model


@dataclass(frozen=True, kw_only=True, slots=True)
class Latencies:
    """Measured latencies by collective, and where they are from."""

    curves: dict[str, Curve] = field(default_factory=dict)
    backend: str = "nccl"
    nranks: int | None = None
    record: str | None = None
    notes: tuple[str, ...] = ()


def read_latencies(record: Path | None) -> Latencies:
    """Return the latencies of a run record: of its graph cases, on a CPU of its eager ones.

    Raises:
        CollbenchError: the record cannot be read, or has no such case with right data.
    """
    if record is None:
        return Latencies()
    # pydantic and numpy: only where there is a record to read.
    from collbench.record import RunRecord
    from collbench.record import load as load_record
    from collbench.results import curves, results

    run = load_record(record, RunRecord)
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
    return Latencies(
        curves=dict(measured),
        backend=run.backend,
        nranks=run.nranks,
        record=str(record),
        notes=(f"latencies of {record}: {said}",),
    )


def first_given(*values: int | None) -> int | None:
    """Return the first value that is not None; 0 is given, and may be wrong."""
    return next((value for value in values if value is not None), None)


def explain(
    source: str,
    *,
    tp: int | None = None,
    batch: int | None = None,
    draft_tokens: int | None = None,
    server: Server | None = None,
    dtype: str | None = None,
    draft_config: str | None = None,
    max_graph: int | None = None,
    config: str | None = None,
    server_args: str = "",
    links: Links = "pcie",
    record: Path | None = None,
) -> dict[str, Any]:
    """Return the document of ``workload show``.

    Args:
        source: As in `collbench.workload.load`; so are the others down to `config`.
        tp: Where it is left out for a model, the server's command line or the record says.
        batch: Live sequences; None: 1.
        draft_tokens: Tokens verified per sequence; None: what `server_args` says, else 1.
        server: Whose graph buckets hold the batch.
        dtype: Element type, instead of the source's own.
        draft_config: config.json of the draft model, or ``mtp``.
        max_graph: Largest captured batch (sglang, in sequences) or step (vllm, in tokens).
        config: For a log: the model whose compute stands between the calls.
        server_args: Command line of the server, read and never run.
        links: How the GPUs are joined.
        record: Run record whose latencies predict the communication.

    Raises:
        CollbenchError: an argument is wrong, or the record is of another number of ranks.
    """
    args = parse_server_args(server_args)
    measured = read_latencies(record)
    tp = first_given(tp, args.number(TP))
    notes = list(measured.notes)
    if is_model(source):
        if tp is None and measured.nranks is None:
            notes.append("--tp is not given: 2 ranks; the bytes of all_reduce do not depend on it")
        tp = first_given(tp, measured.nranks, 2)
        server = server or args.server
        draft_tokens = first_given(draft_tokens, args.draft_tokens)
        max_graph = first_given(max_graph, args.number(LARGEST))
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
        notes.append("the server's command line switches CUDA graphs off: every step is eager")
    same_ranks(made, measured)
    made = dataclasses.replace(made, eager=made.eager or args.eager, notes=(*made.notes, *notes))
    ranks = first_given(made.nranks, tp, measured.nranks)
    return describe.document(
        made,
        measured.curves,
        predict.draft_table(made, measured.curves) if made.kind == "model" else [],
        predict.jumps(measured.curves.get("all_reduce", ())),
        use_of(made, ranks, links, args) if measured.backend == "nccl" else None,
        measured.record,
    )


def same_ranks(made: Workload, measured: Latencies) -> None:
    """Refuse latencies of another number of ranks.

    Raises:
        CollbenchError: they differ.
    """
    if None not in (made.nranks, measured.nranks) and made.nranks != measured.nranks:
        raise CollbenchError(
            f"--record {measured.record}: measured with {measured.nranks} ranks, the step has "
            f"{made.nranks}",
            fix=f"measure with {made.nranks} ranks, or add --tp {measured.nranks}",
        )


def use_of(made: Workload, nranks: int | None, links: Links, args: ServerArgs) -> NcclUse | None:
    """Return whether the step's all_reduces go through NCCL; None where that cannot be asked."""
    first = next((row for row in made.totals() if row[0] == "all_reduce"), None)
    if first is None:
        return None
    if made.kind == "log":
        said = f"; all-reduce backends {', '.join(made.backends)}" if made.backends else ""
        return NcclUse(used="yes", reason=f"NCCL printed these calls itself{said}")
    if nranks is None:
        return None
    return nccl_use(
        made.server or args.server or "sglang",
        nranks=nranks,
        size_bytes=first[1],
        dtype=first[2],
        links=links,
        args=args,
    )
