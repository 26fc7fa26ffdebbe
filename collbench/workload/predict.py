"""Communication of a step from measured latencies, and where a payload crosses a jump of them.

Between measured sizes latencies are interpolated on logarithmic scales; outside of them nothing
is said.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.workload.step import Workload, step_of_model

Curve = Sequence[tuple[int, float]]
"""(size_bytes, microseconds a call), ascending in size, each size once."""

DRAFTS = range(1, 10)
STEEP = math.log2(1.4)
"""Power of the size from which growth can be a jump: 1.4 times per doubling."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Jump:
    """Two neighbouring measured sizes between which the latency does not follow the size."""

    low_bytes: int
    high_bytes: int
    low_us: float
    high_us: float
    kind: str
    """``steeper``: grows suddenly. ``larger_is_faster``: the smaller size is slower."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftRow:
    """One number of draft tokens."""

    draft_tokens: int
    tokens: int
    payload_bytes: int
    eager: bool
    comm_us: float | None
    """Predicted communication of one step, calls back to back; None: a size is not measured."""
    at_least_us: float | None
    """The same of the measured sizes only."""
    per_token_us: float | None
    """The same per verified token of one sequence: falls as long as verifying more pays."""
    not_measured: tuple[tuple[str, int], ...]
    """(collective, size_bytes) outside of what the record measured."""
    crossed: Jump | None
    """Jump between the payload of one draft token less and this one."""


def latency(curve: Curve, size_bytes: int) -> float | None:
    """Return the latency of a size, interpolated on logarithmic scales; None outside the curve.

    >>> round(latency([(1024, 10.0), (4096, 40.0)], 2048), 9)
    20.0
    >>> latency([(1024, 10.0), (4096, 40.0)], 8192) is None
    True
    """
    sizes = [size for size, _ in curve]
    at = bisect_left(sizes, size_bytes)
    if at < len(sizes) and sizes[at] == size_bytes:
        return curve[at][1]
    if at in (0, len(sizes)):
        return None
    (low, low_us), (high, high_us) = curve[at - 1], curve[at]
    share = math.log(size_bytes / low) / math.log(high / low)
    return math.exp(math.log(low_us) + share * (math.log(high_us) - math.log(low_us)))


def growth(low: tuple[int, float], high: tuple[int, float]) -> float:
    """Return the power of the size with which the latency grows between two points.

    >>> growth((1024, 10.0), (4096, 20.0))
    0.5
    """
    return math.log2(high[1] / low[1]) / math.log2(high[0] / low[0])


def jumps(curve: Curve) -> list[Jump]:
    """Return where the latency jumps.

    A jump is where it grows 1.4 times or more per doubling of the size and at least twice as fast
    (on logarithmic scales) as just below; or where the larger size is 3 % faster or more. Both are
    the mark of a switch of protocol or algorithm at the wrong size.

    >>> [(j.low_bytes, j.kind) for j in jumps([(1, 10.0), (2, 10.5), (4, 20.0), (8, 30.0)])]
    [(2, 'steeper')]
    """
    found = []
    below = 0.0
    for low, high in itertools.pairwise(curve):
        power = growth(low, high)
        kind = ""
        if power >= STEEP and power >= 2 * below:
            kind = "steeper"
        elif high[1] < 0.97 * low[1]:
            kind = "larger_is_faster"
        if kind:
            found.append(
                Jump(
                    low_bytes=low[0], high_bytes=high[0], low_us=low[1], high_us=high[1], kind=kind
                )
            )
        below = max(power, 0.0)
    return found


def communication(
    workload: Workload, curves: Mapping[str, Curve]
) -> tuple[float, list[tuple[str, int]]]:
    """Return the sum of count x latency over a step's measured sizes, and those not measured.

    With any size not measured the sum is a lower bound only.
    """
    total = 0.0
    missing = []
    for collective, size_bytes, _, count in workload.totals():
        time_us = latency(curves.get(collective, ()), size_bytes)
        if time_us is None:
            missing.append((collective, size_bytes))
        else:
            total += count * time_us
    return total, missing


def draft_table(workload: Workload, curves: Mapping[str, Curve]) -> list[DraftRow]:
    """Return one row for each number of draft tokens from 1 to 9.

    Args:
        workload: Made from a model; everything but its draft tokens is kept.
        curves: Latencies by collective; without any, the rows have payloads only.
    """
    model, nranks, server = workload.model, workload.nranks, workload.server
    if model is None or nranks is None or server is None:
        raise ValueError("a draft table needs a workload that was made from a model")
    rows: list[DraftRow] = []
    steps = jumps(curves.get("all_reduce", ()))
    before = 0
    for draft_tokens in DRAFTS:
        made = step_of_model(
            model,
            source=workload.source,
            tp=nranks,
            batch=workload.batch or 1,
            draft_tokens=draft_tokens,
            server=server,
            dtype=workload.step.calls[0].dtype,
            draft=workload.draft,
            largest_graph=workload.largest_graph,
        )
        payload = made.step.calls[0].size_bytes
        measured, missing = communication(made, curves) if curves else (0.0, [])
        comm = measured if curves and not missing else None
        rows.append(
            DraftRow(
                draft_tokens=draft_tokens,
                tokens=made.tokens or 0,
                payload_bytes=payload,
                eager=made.eager,
                comm_us=comm,
                at_least_us=measured or None,
                per_token_us=None if comm is None else comm / draft_tokens,
                not_measured=tuple(missing),
                crossed=_crossed(steps, before, payload) if before else None,
            )
        )
        before = payload
    return rows


def _crossed(steps: Sequence[Jump], before: int, payload: int) -> Jump | None:
    """Return the jump at whose lower end the larger of two payloads has left the smaller."""
    return next((jump for jump in steps if before <= jump.low_bytes < payload), None)
