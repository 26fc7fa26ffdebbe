"""The calls of one captured step, from the NCCL log of a server.

While a server captures its CUDA graphs NCCL's rank 0 prints one line per call. The same pass
comes several times (warm-up, capture) and for several batch sizes, between calls of other
communicators and of the draft model: this module tells the passes apart and takes one.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from collbench.collectives import COLLECTIVES
from collbench.errors import CollbenchError
from collbench.job import Step, StepCall
from collbench.workload.model import Model
from collbench.workload.step import Workload, forward, in_rows

FIX = (
    "start the server once with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING "
    "NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log and give rank 0's file"
)
NAMES = {row.nccl: row.name for row in COLLECTIVES.values()}
PREFIX = re.compile(r"(\S+?):(\d+):\d+ \[\d+\] NCCL INFO ")
CHOICE = re.compile(
    r"(?:(\w+): )?(\d+) Bytes -> Algo \w+ proto \w+ "
    r"(?:(channel)\{Lo\.\.Hi\}=\{\d+\.\.\d+\}|time [\d.]+)\s*$"
)
"""2.20 to 2.22 without the function; from 2.24 with channels, and bytes of one rank's share."""
INIT = re.compile(r"rank \d+ nranks (\d+) .*- Init (?:START|COMPLETE)")
DATATYPE = re.compile(r"opCount \w+ .*datatype (\d+) ")
DATATYPES = {6: "float16", 7: "float32", 8: "float64", 9: "bfloat16"}
MAX_CALLS = 5_000_000

Call = tuple[str, int]
"""(collective, bytes as printed)."""


@dataclass(slots=True)
class Process:
    """What one process printed."""

    calls: list[tuple[str | None, int]] = field(default_factory=list)
    shares: bool = False
    """Bytes of all_gather and reduce_scatter are those of one rank's share (2.24 and later)."""
    nranks: set[int] = field(default_factory=set)
    datatypes: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass as printed."""

    calls: tuple[Call, ...]

    @property
    def payload(self) -> int:
        """Bytes of the all_reduce that it repeats."""
        return Counter(size for name, size in self.calls if name == "all_reduce").most_common(1)[0][
            0
        ]

    @property
    def reduces(self) -> int:
        """Number of its all_reduces of that size."""
        return self.calls.count(("all_reduce", self.payload))

    @property
    def ratio(self) -> float:
        """Logits gathered over bytes reduced: smaller in a prefill, which needs few logits."""
        gathered = sum(size for name, size in self.calls if name == "all_gather")
        return gathered / self.payload


def read_processes(lines: Iterable[str]) -> dict[str, Process]:
    """Return what each process printed, by ``host:pid``."""
    found: dict[str, Process] = {}
    total = 0
    for line in lines:
        prefix = PREFIX.search(line)
        if prefix is None:
            continue
        process = found.setdefault(f"{prefix[1]}:{prefix[2]}", Process())
        message = line[prefix.end() :]
        if choice := CHOICE.match(message):
            total += 1
            if total > MAX_CALLS:
                raise CollbenchError(
                    f"the log has more than {MAX_CALLS} calls", fix="cut it after the graph capture"
                )
            name = NAMES.get(choice[1] or "")
            if name or not choice[1]:
                process.calls.append((name, int(choice[2])))
            process.shares |= choice[3] is not None
        elif init := INIT.search(message):
            process.nranks.add(int(init[1]))
        elif datatype := DATATYPE.search(message):
            process.datatypes[int(datatype[1])] += 1
    return found


def passes(calls: list[Call], per_pass: int | None) -> Iterator[Pass]:
    """Split the calls of a process into forward passes.

    Args:
        calls: In the order printed.
        per_pass: all_reduces of one pass, where the model is known.
    """
    begin = 0
    for i, (name, _) in enumerate(calls):
        if name == "all_gather":
            yield from _trimmed(calls[begin : i + 1], per_pass)
            begin = i + 1
    for _, run in itertools.groupby(calls[begin:]):
        yield from _trimmed(list(run), per_pass)


def _trimmed(calls: list[Call], per_pass: int | None) -> Iterator[Pass]:
    """Yield the pass at the end of `calls`, without what other communicators did before it.

    Where the model is known, a run of several passes without a gather between is cut into them.
    """
    sizes = Counter(size for name, size in calls if name == "all_reduce")
    if not sizes:
        return
    payload, count = sizes.most_common(1)[0]
    gathers = [call for call in calls[-1:] if call[0] == "all_gather"]
    start = calls.index(("all_reduce", payload))
    end = len(calls) - calls[::-1].index(("all_reduce", payload))
    body = calls[start:end]
    if per_pass and count > per_pass and count % per_pass == 0 and len(body) == count:
        for _ in range(count // per_pass - 1):
            yield Pass(tuple(body[:per_pass]))
        body = body[:per_pass]
    yield Pass((*body, *gathers))


def named(calls: list[tuple[str | None, int]]) -> list[Call]:
    """Name the calls of versions that do not: repeated sizes are all_reduce, single ones gather."""
    out: list[Call] = []
    i = 0
    while i < len(calls):
        j = i
        while j < len(calls) and calls[j] == calls[i]:
            j += 1
        name = calls[i][0] or ("all_reduce" if j - i > 2 else "all_gather")
        out += [(name, calls[i][1])] * (j - i)
        i = j
    return out


def choose(found: list[Pass], batch: int, where: str) -> tuple[Pass, list[str]]:
    """Return the captured pass that a batch runs in, and what was assumed.

    Raises:
        CollbenchError: no pass holds the batch.
    """
    counts = Counter(p.reduces for p in found)
    often = {count for count, times in counts.items() if times > 1} or set(counts)
    target = [p for p in found if p.reduces == max(often)]
    ratio = max(p.ratio for p in target)
    captured = {p.payload: p for p in target if p.ratio >= 0.99 * ratio}
    smallest = min(captured)
    held = next((size for size in sorted(captured) if size >= batch * smallest), None)
    if held is None:
        largest = max(captured) // smallest
        raise CollbenchError(
            f"{where}: --batch {batch}: the largest captured step holds {largest} sequences: the "
            "server runs this batch without a graph",
            fix=f"use --batch 1 to {largest}",
        )
    notes = [
        f"{len(captured)} batch sizes captured; the smallest ({smallest} bytes) is taken as one "
        "sequence"
    ]
    others = Counter(p.reduces for p in found if p.reduces < max(often) and p.reduces > 2)
    if others:
        shown = ", ".join(f"{n}x {count} all_reduces" for count, n in sorted(others.items())[:4])
        notes.append(f"smaller passes left out (a draft model's?): {shown}")
    return captured[held], notes


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
        with path.open(encoding="utf-8", errors="replace") as lines:
            processes = read_processes(lines)
    except OSError as error:
        raise CollbenchError(f"{where}: {error.strerror}", fix="check the path") from error
    process = max(processes.values(), key=lambda p: len(p.calls), default=Process())
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
        raise CollbenchError(
            f"{where}: the log does not say how many ranks gathered", fix="add --tp N"
        )
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
        tokens, rest = divmod(chosen.payload, model.hidden * 2)
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
