"""What `bench` prints and exports: the table with its legend, the JSON document, CSV."""

from __future__ import annotations

import csv
import io
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from collbench.errors import Exit
from collbench.job import Choice, StepTimes
from collbench.record import RunRecord
from collbench.results import CaseResult, Results, results
from collbench.stats import most_confidence, reduction
from collbench.terminal.words import clean
from collbench.units import format_ms, format_size

_LEGEND = (
    "us per call: p50 = median over launches of their medians, +- = half of the 95 %",
    "interval over launches, p95 and p99 over all windows. GB/s = 10^9 bytes/s; busbw",
    "as in nccl-tests. skew = slowest - fastest rank. wrong = wrong elements.",
)


def exit_code(record: RunRecord) -> int:
    """Return 4 where data were wrong, 1 where a launch did not end well, else 0."""
    outcomes = {run.outcome for run in record.launches}
    if "wrong" in outcomes:
        return Exit.UNDECIDED
    return Exit.FAILED if outcomes - {"ok"} else Exit.OK


def document(record: RunRecord, path: str | None) -> dict[str, Any]:
    """Return the JSON document of `bench`."""
    found = results(record)
    return {
        "schema": 1,
        "command": "bench",
        "exit_code": int(exit_code(record)),
        "backend": record.backend,
        "nranks": record.nranks,
        "library": record.machine.library,
        "settings": record.settings,
        "cases": [_plain_case(case) for case in found.cases],
        "step": _plain_step(record, found),
        "pairs": [
            {
                "src": pair.src,
                "dst": pair.dst,
                "latency_us": pair.latency_us,
                "bandwidth_gbs": pair.bandwidth_gbs,
            }
            for pair in record.launches[0].pairs
        ],
        "failed": [{"what": what, "why": why} for what, why in found.failed],
        "record": path,
        "warnings": record.warnings,
    }


def _plain_case(case: CaseResult) -> dict[str, Any]:
    return {
        "collective": case.case.collective,
        "size_bytes": case.case.size_bytes,
        "dtype": case.case.dtype,
        "mode": case.case.mode,
        "nranks": case.nranks,
        "launches": case.launches,
        "p50_us": case.p50_us,
        "p95_us": case.p95_us,
        "p99_us": case.p99_us,
        "ci_us": list(case.ci_us) if case.ci_us else None,
        "algbw_gbs": case.algbw_gbs,
        "busbw_gbs": case.busbw_gbs,
        "skew_us": case.skew_us,
        "wrong": case.wrong,
        "enqueue_us": case.enqueue_us,
        "host_bound": case.host_bound,
    }


def _plain_step(record: RunRecord, found: Results) -> dict[str, Any] | None:
    if found.step is None:
        return None
    transfer, waiting = attribution([run.step for run in record.launches if run.step])
    return {
        "name": found.step.name,
        "total_us": found.step.total_us,
        "nocomm_us": found.step.nocomm_us,
        "exposed_us": found.step.exposed_us,
        "ci_us": list(found.step.ci_us) if found.step.ci_us else None,
        "launches": found.step.launches,
        "transfer_us": transfer,
        "waiting_us": waiting,
        "wrong": found.step.wrong,
    }


def attribution(steps: list[StepTimes]) -> tuple[float | None, float | None]:
    """Return the exposed time of the rank that waits least, and how much more another one has.

    The rank that comes last to every collective waits for nobody: what it spends there is the
    transfer. What others spend beyond that is waiting for it. Medians over launches, microseconds;
    None where the step without collectives was not timed.
    """
    transfers, waits = [], []
    for step in steps:
        if not step.nocomm_us or not all(step.nocomm_us) or not all(step.total_us):
            continue
        exposed = [
            median(total) - median(bare)
            for total, bare in zip(step.total_us, step.nocomm_us, strict=True)
        ]
        transfers.append(min(exposed))
        waits.append(max(exposed) - min(exposed))
    if not transfers:
        return None, None
    return float(median(transfers)), float(median(waits))


def to_csv(record: RunRecord) -> str:
    """Return the table's cases as CSV, one header line, numbers unrounded."""
    rows = [_plain_case(case) for case in results(record).cases]
    for row in rows:
        low, high = row.pop("ci_us") or (None, None)
        row["ci_low_us"], row["ci_high_us"] = low, high
    out = io.StringIO()
    names = list(rows[0]) if rows else ["collective", "size_bytes", "dtype", "mode"]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def print_report(record: RunRecord, path: str | None, console: Console) -> None:
    """Print the table, the step, the pairs, what NCCL chose, failures and warnings."""
    found = results(record)
    say = _plain_printer(console)
    say(
        f"{record.machine.library or record.backend}, {record.nranks} ranks,"
        f" {len(record.launches)} launch{'es' if len(record.launches) != 1 else ''}"
    )
    if record.settings:
        say("settings: " + " ".join(f"{k}={v}" for k, v in record.settings.items()))
    if found.cases:
        for table in _tables(found.cases):
            console.print(table)
        for line in _LEGEND:
            say(line)
        few = _few_launches(max(case.launches for case in found.cases))
        if few:
            say(few)
        if reduction(record.backend) == "max":
            say("a window ends with its slowest rank")
        if any(case.host_bound for case in found.cases):
            say("* host-bound: the launch on the host was timed, not the transfer")
    if found.step is not None:
        _print_step(record, found, say)
    _print_pairs(record, console)
    _print_memory(record, say)
    _print_choices(record.launches[0].choices, say)
    for what, why in found.failed:
        say(f"failed: {what}: {why}")
    for text in record.warnings:
        say(f"warning: {text}")
    if path:
        say(f"record: {path}")


def _plain_printer(console: Console) -> Any:
    def say(text: str) -> None:
        console.print(clean(text, 2000), markup=False, highlight=False, soft_wrap=True)

    return say


def _tables(cases: tuple[CaseResult, ...]) -> list[Table]:
    """Return one table for each collective, dtype and mode, in the order of the cases."""
    tables: dict[tuple[str, str, str], Table] = {}
    for case in cases:
        key = (case.case.collective, case.case.dtype, case.case.mode)
        if key not in tables:
            tables[key] = _empty_table(", ".join(key))
        tables[key].add_row(
            format_size(case.case.size_bytes) + ("*" if case.host_bound else ""),
            _us(case.p50_us),
            _us((case.ci_us[1] - case.ci_us[0]) / 2) if case.ci_us else "",
            _us(case.p95_us),
            _us(case.p99_us) if case.p99_us is not None else "",
            _gbs(case.algbw_gbs),
            _gbs(case.busbw_gbs),
            _us(case.skew_us),
            str(case.wrong),
        )
    return list(tables.values())


def _empty_table(title: str) -> Table:
    table = Table(box=None, title=title, title_justify="left", padding=(0, 2, 0, 0))
    for name in ("size", "p50", "+-", "p95", "p99", "algbw", "busbw", "skew", "wrong"):
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _few_launches(launches: int) -> str:
    """Return how sure an interval of so few launches is at best; empty where it can be 95 %."""
    sure = most_confidence(launches)
    if launches < 2 or sure >= 0.95:
        return ""
    enough = next(n for n in range(launches, 100) if most_confidence(n) >= 0.95)
    return f"{launches} launches: the interval is a {sure:.0%} one at best; {enough} make it 95 %"


def _us(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _gbs(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _print_step(record: RunRecord, found: Results, say: Any) -> None:
    step = found.step
    assert step is not None
    line = f"step {step.name}: {format_ms(step.total_us)}"
    if step.ci_us:
        line += f" [{format_ms(step.ci_us[0])}, {format_ms(step.ci_us[1])}]"
    if step.nocomm_us is not None and step.exposed_us is not None:
        line += f", without collectives {format_ms(step.nocomm_us)}"
        line += f", exposed communication {format_ms(step.exposed_us)}"
    say(line)
    transfer, waiting = attribution([run.step for run in record.launches if run.step])
    if record.job.skew is not None and transfer is not None and waiting is not None:
        say(
            f"  of it transfer {format_ms(transfer)}, waiting for the latest rank",
        )
        say(f"  {format_ms(waiting)} (rank {record.job.skew.rank} was made late)")
    if step.wrong:
        say(f"  {step.wrong} wrong elements in the step")


def _print_pairs(record: RunRecord, console: Console) -> None:
    pairs = {(pair.src, pair.dst): pair for run in record.launches[:1] for pair in run.pairs}
    if not pairs:
        return
    for title, pick in (
        ("latency, us (half a round trip of 8 bytes)", "latency_us"),
        ("bandwidth, GB/s (one direction)", "bandwidth_gbs"),
    ):
        table = Table(box=None, title=title, title_justify="left", padding=(0, 2, 0, 0))
        table.add_column("from \\ to")
        for dst in range(record.nranks):
            table.add_column(str(dst), justify="right")
        for src in range(record.nranks):
            row = [pairs.get((src, dst)) for dst in range(record.nranks)]
            table.add_row(str(src), *[_us(getattr(p, pick)) if p else "-" for p in row])
        console.print(table)


def _print_memory(record: RunRecord, say: Any) -> None:
    from collbench.bench.launches import memory_bytes

    used = memory_bytes(record.launches[0])
    if used is None:
        return
    line = f"GPU memory of the communicator: {used / 2**20:.0f} MiB a rank"
    if record.memory_default_bytes is not None:
        line += f", {record.memory_default_bytes / 2**20:.0f} MiB under the default"
    say(line)


def _print_choices(choices: tuple[Choice, ...], say: Any) -> None:
    for choice in choices:
        channels = f" channels {choice.channels}" if choice.channels else ""
        say(
            f"NCCL chose {choice.algorithm}/{choice.protocol}{channels} for"
            f" {choice.collective or 'a collective of'} {format_size(choice.size_bytes)}"
        )
