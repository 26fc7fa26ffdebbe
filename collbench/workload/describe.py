"""A workload as a document and as text."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from collbench.readers.text import printable
from collbench.units import format_ms, format_size
from collbench.workload.nccl_use import NcclUse
from collbench.workload.predict import Curve, DraftRow, Jump, latency
from collbench.workload.step import Workload

LEGEND = "size: larger of the send and receive buffer on one rank; 1 KiB = 1024 bytes"
WIDTH = 80


def document(
    workload: Workload,
    curves: Mapping[str, Curve],
    rows: Sequence[DraftRow],
    steps: Sequence[Jump],
    use: NcclUse | None,
    record: str | None,
) -> dict[str, Any]:
    """Return what ``workload show --json`` prints."""
    totals = workload.totals()
    step_bytes = sum(size * count for _, size, _, count in totals)
    times = [latency(curves.get(name, ()), size) for name, size, _, _ in totals]
    known = [t * n[3] for t, n in zip(times, totals, strict=True) if t is not None]
    comm = sum(known) if len(known) == len(totals) else None
    calls = [
        {
            "collective": name,
            "size_bytes": size,
            "dtype": dtype,
            "count": count,
            "step_bytes": size * count,
            "share_pct": 100 * size * count / step_bytes,
            "time_us": time,
            "time_pct": None if comm is None or time is None else 100 * time * count / comm,
        }
        for (name, size, dtype, count), time in zip(totals, times, strict=True)
    ]
    return {
        "schema": 1,
        "command": "workload",
        "exit_code": 0,
        "name": workload.step.name,
        "kind": workload.kind,
        "source": workload.source,
        "nranks": workload.nranks,
        "batch": workload.batch,
        "draft_tokens": workload.draft_tokens,
        "tokens": workload.tokens,
        "server": workload.server,
        "eager": workload.eager,
        "calls": calls,
        "step_bytes": step_bytes,
        "comm_us": comm,
        "record": record,
        "nccl": None if use is None else dataclasses.asdict(use),
        "draft_table": [dataclasses.asdict(row) for row in rows],
        "jumps": [dataclasses.asdict(jump) for jump in steps],
        "notes": list(workload.notes),
    }


def text(doc: Mapping[str, Any]) -> str:
    """Return the document as people read it, at most 80 columns."""
    facts = [f"{doc['nranks']} ranks" if doc["nranks"] else "any number of ranks"]
    facts += [f"batch {doc['batch']}"] if doc["batch"] else []
    facts += [f"{doc['draft_tokens']} draft tokens"] if (doc["draft_tokens"] or 1) > 1 else []
    tokens = doc["tokens"]
    facts += [f"{tokens} token{'s' if tokens != 1 else ''} a step"] if tokens else []
    facts += [f"as {doc['server']} runs it"] if doc["server"] else []
    out = [*_wrapped(f"{doc['name']}: {', '.join(facts)}"), "", *_calls(doc)]
    if doc["comm_us"] is not None:
        out.append(f"predicted communication, calls back to back: {format_ms(doc['comm_us'])}")
    out.append(LEGEND)
    if doc["nccl"]:
        words = {"yes": "yes", "no": "NO", "depends": "it depends"}[doc["nccl"]["used"]]
        out += ["", *_wrapped(f"all_reduce through NCCL: {words}: {doc['nccl']['reason']}")]
        if doc["nccl"]["used"] == "no":
            out.append("  NCCL settings then reach the logits' all_gather and larger sizes only")
    if doc["draft_table"]:
        out += ["", *_drafts(doc)]
    if doc["notes"]:
        out += ["", *(line for note in doc["notes"] for line in _wrapped(f"note: {note}"))]
    return "\n".join(out) + "\n"


def _wrapped(words: str) -> list[str]:
    return textwrap.wrap(printable(words, 600), WIDTH, subsequent_indent="  ")


def _calls(doc: Mapping[str, Any]) -> list[str]:
    timed = any(call["time_us"] is not None for call in doc["calls"])
    head = f"{'collective':<15}{'size':>11}{'dtype':>10}{'calls':>7}{'a step':>11}{'share':>7}"
    out = [head + (f"{'us':>9}{'of time':>9}" if timed else "")]
    for call in doc["calls"]:
        line = (
            f"{call['collective']:<15}{format_size(call['size_bytes']):>11}{call['dtype']:>10}"
            f"{call['count']:>7}{format_size(call['step_bytes']):>11}{call['share_pct']:>6.0f}%"
        )
        if timed:
            time, share = call["time_us"], call["time_pct"]
            line += f"{time:>9.1f}" if time is not None else f"{'-':>9}"
            line += f"{share:>8.0f}%" if share is not None else f"{'-':>9}"
        out.append(line)
    if timed and doc["comm_us"] is None:
        out.append("-: outside of the sizes that the record measured")
    return out


def _drafts(doc: Mapping[str, Any]) -> list[str]:
    rows = doc["draft_table"]
    timed = any(row["comm_us"] is not None for row in rows)
    head = f"{'draft tokens':<14}{'tokens':>7}{'all_reduce':>12}"
    out = [head + (f"{'communication':>15}{'per token':>11}" if doc["record"] else "")]
    crossed: list[str] = []
    for row in rows:
        line = f"{row['draft_tokens']:<14}{row['tokens']:>7}{format_size(row['payload_bytes']):>12}"
        if doc["record"]:
            comm, each, least = row["comm_us"], row["per_token_us"], row["at_least_us"]
            shown = f"> {format_ms(least)}" if least else "not measured"
            line += f"{format_ms(comm) if comm is not None else shown:>15}"
            line += f"{format_ms(each) if each is not None else '-':>11}"
        if row["eager"]:
            line += "  eager: above the largest graph"
        if row["crossed"]:
            jump = row["crossed"]
            crossed.append(
                f"jump of latency from {row['draft_tokens']} draft tokens on: "
                f"{jump['low_us']:.1f} us at {format_size(jump['low_bytes'])}, "
                f"{jump['high_us']:.1f} us at {format_size(jump['high_bytes'])}"
                + (" (the larger is faster)" if jump["kind"] == "larger_is_faster" else "")
            )
            line += "  <- jump"
        out.append(line)
    out += [line for words in crossed for line in _wrapped(words)]
    missing = sorted({tuple(call) for row in rows for call in row["not_measured"]})
    if doc["record"] and missing:
        out += _wrapped(
            ">: some sizes lie outside of what the record measured; measure them exactly with"
        )
        for name in dict.fromkeys(name for name, _ in missing):
            sizes = ",".join(str(size) for other, size in missing if other == name)
            out.append(f"  collbench bench --mode graph --collective {name} --sizes {sizes}")
    elif not doc["record"]:
        out.append("give --record RUN.json for the time of each, and for jumps of latency")
    elif timed:
        out.append("communication: count x latency, calls back to back; compute is not in it")
    return out
