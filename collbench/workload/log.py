"""The calls of one captured step, from the NCCL log of a server.

While a server captures its CUDA graphs NCCL's rank 0 prints one line per call. The same pass
comes several times (warm-up, capture) and for several batch sizes, between calls of other
communicators and of the draft model: this module tells the passes apart and takes one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from collbench.collectives import COLLECTIVES, itemsize
from collbench.errors import CollbenchError
from collbench.job import Step, StepCall
from collbench.readers import UnreadableError, nccl_lines
from collbench.readers.text import open_regular, stream
from collbench.workload.model import Model
from collbench.workload.passes import Pass, choose, named, passes
from collbench.workload.step import Workload, forward, in_rows

FIX = (
    "start the server once with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING "
    "NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log and give rank 0's file"
)
NAMES = {row.nccl: row.name for row in COLLECTIVES.values()}
TELLING = (b" Bytes -> ", b"- Init ", b" datatype ", b"all-reduce backends")
DATATYPE = re.compile(r"\w+: opCount \w+ .{0,200}datatype (\d+) ")
DATATYPES = {6: "float16", 7: "float32", 8: "float64", 9: "bfloat16"}
MAX_CALLS = 5_000_000
MAX_KNOWN = 1 << 14
"""Most different lines remembered."""
FEWEST = 5
"""all_reduces of the smallest model one would serve over several GPUs: two layers."""


@dataclass(slots=True)
class Process:
    """What one process printed."""

    calls: list[tuple[str | None, int]] = field(default_factory=list)
    shares: bool = False
    """Bytes of all_gather and reduce_scatter are those of one rank's share (2.24 and later)."""
    nranks: set[int] = field(default_factory=set)
    datatypes: Counter[int] = field(default_factory=Counter)
    others: int = 0
    """Calls of NCCL's symmetric or copy engine kernels."""


@dataclass(slots=True)
class Log:
    """What a log says of the calls."""

    processes: dict[nccl_lines.Source, Process] = field(default_factory=dict)
    backends: tuple[str, ...] = ()
    """all_reduce backends in the order a vLLM server tries them, of its tensor-parallel group."""

    def busiest(self) -> Process:
        """Return the process that printed the most calls: rank 0 of the largest group."""
        return max(self.processes.values(), key=lambda p: len(p.calls), default=Process())


def read_calls(lines: Iterable[tuple[int, bytes, bool]]) -> Log:
    """Return what each process printed, from raw numbered lines.

    Raises:
        CollbenchError: more calls than a server captures.
    """
    log = Log()
    total = 0
    known: dict[bytes, tuple[Process, tuple[str | None, int]]] = {}
    for _, raw, whole in lines:
        if total > MAX_CALLS:
            raise CollbenchError(
                f"the log has more than {MAX_CALLS} calls", fix="cut it after the graph capture"
            )
        if whole and raw in known:  # a layer's calls print the same line again and again
            process, call = known[raw]
            process.calls.append(call)
            total += 1
            continue
        if not any(word in raw for word in TELLING):
            continue
        text = nccl_lines.clean(raw)
        message = nccl_lines.split(text, whole)
        if message is None or message.source.pid < 0:
            named = nccl_lines.BACKENDS.search(text)
            if named and named[2].startswith("tp"):
                log.backends = tuple(name.strip(" '\"") for name in named[1].split(","))
            continue
        process = log.processes.setdefault(message.source, Process())
        if found := _call(message, process):
            total += 1
            process.calls.append(found)
            if whole and not process.others and len(known) < MAX_KNOWN:
                known[raw] = (process, found)
        elif init := nccl_lines.INIT.search(message.text):
            process.nranks.add(int(init[4]))
        elif datatype := DATATYPE.match(message.text):
            process.datatypes[int(datatype[1])] += 1
    return log


def _call(message: nccl_lines.Message, process: Process) -> tuple[str | None, int] | None:
    """Return the call that a message tells of, and note how the process prints its bytes."""
    if choice := nccl_lines.CHOICE.match(message.text):
        if choice[5] is None and not message.ended:
            return None
        process.shares |= choice[5] is not None
        name = NAMES.get(choice[1] or "")
        return (name, int(choice[2])) if name or not choice[1] else None
    if other := nccl_lines.OTHER_PATH.match(message.text):
        process.shares = True
        process.others += 1
        return (NAMES[other[1]], int(other[3])) if other[1] in NAMES else None
    return None


def workload_of_log(
    path: Path,
    *,
    tp: int | None,
    batch: int,
    draft_tokens: int | None,
    dtype: str | None,
    model: Model | None,
) -> Workload:
    """Return the step that a server captured for a batch.

    Args:
        path: The log, of NCCL or of the server.
        tp: Ranks, needed only where the log does not say.
        batch: Live sequences.
        draft_tokens: As the server was started; only named, the log has the sizes.
        dtype: Element type; None: as logged, else bfloat16.
        model: Puts the compute of its layers in front of the calls.

    Raises:
        CollbenchError: unreadable, no calls in it, or no pass holds the batch.
    """
    where = str(path)
    if batch < 1:
        raise CollbenchError(f"--batch: {batch} is not 1 or more")
    try:
        with open_regular(path) as file:
            log = read_calls(stream(file))
    except UnreadableError as error:
        raise CollbenchError(f"{where}: {error}", fix="check the path") from error
    process = log.busiest()
    if not process.calls:
        raise CollbenchError(
            f"{where}: no 'Bytes -> Algo' line of NCCL in it: it has no calls", fix=FIX
        )
    notes = []
    if any(name is None for name, _ in process.calls):
        notes.append("this NCCL does not name the calls: repeated sizes are taken as all_reduce")
    found = list(passes(named(process.calls), 2 * model.layers + 1 if model else None))
    if not any(p.calls[-1][0] == "all_gather" for p in found) and model is None:
        raise CollbenchError(
            f"{where}: no all_gather between the passes: they cannot be told apart",
            fix="add --config with the model's config.json",
        )
    chosen, more = choose(found, batch, where)
    nranks = agreed_ranks(process, tp, where, needed=process.shares)
    logged = [DATATYPES[d] for d, _ in process.datatypes.most_common() if d in DATATYPES]
    element = dtype or (logged[0] if logged else "bfloat16")
    if not dtype and not logged:
        notes.append("the log does not say the dtype: bfloat16 is taken")
    calls = with_compute(chosen, process.shares, nranks or 1, element, model)
    if model is None:
        notes.append("no compute between the calls: add --config with the model's config.json")
    if chosen.reduces < FEWEST:
        notes.append(f"only {chosen.reduces} all_reduces in a pass: the log may be cut")
    if process.others:
        notes.append(
            f"{process.others} calls ran NCCL's symmetric or copy engine kernels, which NCCL_ALGO "
            "and NCCL_PROTO do not steer"
        )
    repeats = sum(p == chosen for p in found)
    notes.append(f"this pass stands {repeats} times in the log; its calls are counted once")
    return Workload(
        step=Step(name=f"log-{path.stem[:60]}-b{batch}", calls=calls),
        kind="log",
        source=where,
        nranks=nranks,
        batch=batch,
        draft_tokens=draft_tokens,
        model=model,
        backends=log.backends,
        notes=(*notes, *more),
    )


def agreed_ranks(process: Process, tp: int | None, where: str, *, needed: bool) -> int | None:
    """Return the number of ranks: the log's if it says one, which must be that of ``--tp``.

    Raises:
        CollbenchError: they differ, or it is needed and neither says.
    """
    said = max(process.nranks, default=None) if len(process.nranks) == 1 else None
    if tp is not None and process.nranks and tp not in process.nranks:
        shown = ", ".join(str(n) for n in sorted(process.nranks))
        raise CollbenchError(
            f"{where}: the server ran with {shown} ranks, not {tp}: its step is other work there",
            fix=f"use {shown} ranks, or a model's config.json with --tp {tp}",
        )
    if tp is None and said is None and needed:
        shown = " and ".join(str(n) for n in sorted(process.nranks))
        why = f"has communicators of {shown} ranks" if shown else "does not say how many ranks"
        raise CollbenchError(f"{where}: the log {why}: which gathered?", fix="add --tp N")
    return tp or said


def with_compute(
    chosen: Pass, shares: bool, nranks: int, dtype: str, model: Model | None
) -> tuple[StepCall, ...]:
    """Return the calls of a pass in order, with the model's compute where it fits.

    Raises:
        CollbenchError: the model's calls are not those of the log.
    """
    sizes = [
        size * nranks if shares and name in ("all_gather", "reduce_scatter") else size
        for name, size in chosen.calls
    ]
    products: list[tuple[tuple[int, int, int], ...]] = [()] * len(sizes)
    if model is not None:
        tokens, rest = divmod(chosen.payload, model.hidden * itemsize(dtype))
        expected = list(forward(model, tokens=max(1, tokens), tp=nranks, dtype=dtype))
        names = [name for name, _ in chosen.calls]
        if rest or names not in (
            [c.collective for c in expected],
            ["all_reduce"] * (len(expected) - 1),
        ):
            raise CollbenchError(
                f"--config: {model.name} would make {len(expected)} calls of {model.hidden} "
                f"elements a token, the log has {len(sizes)} of {chosen.payload} bytes",
                fix="give the config.json of the model that the server ran, or leave --config out",
            )
        products = [call.compute for call in expected]
    rows = (
        StepCall(collective=name, size_bytes=size, dtype=dtype, count=1, compute=product)
        for (name, _), size, product in zip(chosen.calls, sizes, products, strict=False)
    )
    return in_rows(rows)
