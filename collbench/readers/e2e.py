"""Before and after: medians, and what the collectives alone would have changed."""

from __future__ import annotations

from statistics import median
from typing import Any

from collbench.readers import Reading, UnreadableError
from collbench.readers.steps import LABELS, TIMED, UNITS, StepFile, numbers, parse_steps
from collbench.readers.text import Section

PAIR = ("before", "after")


def e2e_reading(section: Section) -> Reading:
    """Return the facts of a file that holds both runs.

    Raises:
        UnreadableError: it cannot be read, or lacks one of the runs.
    """
    return compare_runs(parse_steps(section))


def compare_runs(found: StepFile) -> Reading:
    """Return the facts of two runs.

    Raises:
        UnreadableError: one of the runs is missing or has no step time.
    """
    missing = [label for label in PAIR if label not in found.runs]
    if missing:
        raise UnreadableError(f"no run called {' or '.join(missing)} (or old and new)")
    runs = {label: found.runs[label] for label in PAIR}
    empty = [label for label, run in runs.items() if not run.verify_ms]
    if empty:
        raise UnreadableError(f"no step times (verify_ms) in run {' and '.join(empty)}")
    verify = {label: median(run.verify_ms) for label, run in runs.items()}
    rounded = {label: round(value, 3) for label, value in verify.items()}
    facts: dict[str, Any] = {
        "n": {label: len(run.verify_ms) for label, run in runs.items()},
        "median_verify_ms": rounded,
        "median_accept_len": {label: _median(run.accept_len) for label, run in runs.items()},
        "median_tok_s": {label: _median(run.tok_s) for label, run in runs.items()},
        "delta_verify_ms": round(rounded["after"] - rounded["before"], 3),
    }
    facts |= _collectives(found) | _ranks(found)
    graphs = {label: found.get(label, "graph") for label in PAIR}
    if None not in graphs.values() and not all(graphs.values()):
        facts["graph"] = graphs
    noted = claim(found)
    if noted is not None:
        facts["claimed_verify_ms"] = noted[1]
    return Reading(kind="e2e", facts=facts, signs={"steps": found})


def _median(values: list[float]) -> float | None:
    return round(median(values), 3) if values else None


def claim(found: StepFile) -> tuple[str, float] | None:
    """Return the run that a note speaks of, and the step time it names in ms."""
    noted = [(found.known, "before"), *((found.runs[label].known, label) for label in PAIR)]
    for known, label in noted:
        note = known.get("claimed", {})
        said = LABELS.get(str(note.get("label", label)).strip().lower(), label)
        for key, value in note.items():
            timed = TIMED.fullmatch(str(key).lower())
            read = numbers([value], UNITS[timed[2]]) if timed else []
            if timed and timed[1] in ("verify", "step") and read:
                return said, read[0]
    return None


def captured(found: StepFile, label: str) -> bool | None:
    """Return whether the steps of a run were replayed from a graph; None where nothing tells.

    Where the file does not say it, a batch beyond the largest captured one does.
    """
    said = found.get(label, "graph")
    largest, batch = found.get(label, "largest_graph_batch"), found.get(label, "batch")
    if said is None and None not in (largest, batch):
        return bool(batch <= largest)
    return said if said is None else bool(said)


def latency_us(found: StepFile, label: str) -> float | None:
    """Return the latency of one collective of a run, at the run's message size."""
    direct = found.get(label, "latency_us")
    if direct is not None:
        return float(direct)
    table, size = found.get(label, "table_us"), found.get(label, "bytes")
    if not table or size is None:
        return None
    if size in table:
        return float(table[size])
    below = max((s for s in table if s < size), default=None)
    above = min((s for s in table if s > size), default=None)
    if below is None or above is None:
        return None
    share = (size - below) / (above - below)
    return float(table[below] + share * (table[above] - table[below]))


def protocol(found: StepFile, label: str) -> str | None:
    """Return the protocol of a run, at the run's message size."""
    named = found.get(label, "protocol")
    if named:
        return str(named)
    table, size = found.get(label, "protocols"), found.get(label, "bytes")
    if not table or size is None:
        return None
    at = max((s for s in table if s <= size), default=None)
    return str(table[at]) if at is not None else None


def predicted_ms(found: StepFile) -> float | None:
    """Return count x difference of latency, in ms: what the collectives alone would change."""
    cost = []
    for label in PAIR:
        count, latency = found.get(label, "count"), latency_us(found, label)
        if count is None or latency is None:
            return None
        cost.append(count * latency)
    return float(cost[1] - cost[0]) / 1000


def _collectives(found: StepFile) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    predicted = predicted_ms(found)
    if predicted is not None:
        facts["predicted_delta_ms"] = round(predicted, 3) + 0.0
    protocols = {label: protocol(found, label) for label in PAIR}
    if all(protocols.values()):
        facts["protocol"] = protocols
        sizes = {label: found.get(label, "bytes") for label in PAIR}
        if None not in sizes.values():
            facts["bytes"] = sizes
    return facts


def _ranks(found: StepFile) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    late = late_rank(found)
    if late is not None:
        facts["late_rank"] = late
    gpus = {label: found.get(label, "gpu_numa") for label in PAIR}
    cpus = {label: found.get(label, "cpu_numa") for label in PAIR}
    if any(cpus[label] and gpus[label] for label in PAIR):
        facts["misbound_ranks"] = {
            label: [
                rank
                for rank, (gpu, cpu) in enumerate(
                    zip(gpus[label] or (), cpus[label] or (), strict=False)
                )
                if None not in (gpu, cpu) and gpu != cpu
            ]
            for label in PAIR
        }
    return facts


def late_rank(found: StepFile) -> int | None:
    """Return the rank that the others wait for in the later run, or None.

    The last one in waits least. Only a wait that grew counts, and only if the others wait clearly
    longer than the late one.
    """
    after = found.get("after", "rank_wait_ms")
    before = found.get("before", "rank_wait_ms")
    if not after or len(after) < 2:
        return None
    late = min(range(len(after)), key=after.__getitem__)
    others = median(value for rank, value in enumerate(after) if rank != late)
    grown = others - (median(before) if before else 0.0)
    # A wait that is lost in the transfer itself is the ordinary jitter between ranks.
    moved = found.get("after", "rank_transfer_ms")
    least = 0.1 * median(moved) if moved else 0.0
    clear = others > 2 * after[late] and grown > max(0.1, 0.25 * others, least)
    return late if clear else None
