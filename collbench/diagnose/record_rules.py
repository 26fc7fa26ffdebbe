"""Guidelines that latencies of one machine keep; where they do not, something is wrong or set.

Monotone in size, an all-reduce no slower than reduce-scatter and all-gather one after the other
(Traff's performance guidelines), no jump at a change of protocol, near pairs no slower than far
ones. A violation names the suspect.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from collbench.findings import Finding
from collbench.record import RunRecord
from collbench.results import CaseResult, results

TOLERANCE = 0.10
"""Share by which a guideline has to be missed, beyond the spread between launches."""
SMALL_CALLS = 1024
"""Below, latencies are constant and their order is chance."""
JUMP = 1.6
"""Latency over what its neighbours let expect, from which on a size is a jump."""


def judge_record(record: RunRecord) -> list[Finding]:
    """Return the guidelines that a run record misses."""
    found: list[Finding] = []
    curves: dict[tuple[str, str, str], list[CaseResult]] = {}
    for case in results(record).cases:
        key = (case.case.collective, case.case.dtype, case.case.mode)
        curves.setdefault(key, []).append(case)
    for curve in curves.values():
        curve.sort(key=lambda case: case.case.size_bytes)
        found += _monotone(curve) + _jumps(curve)
    found += _parts(curves) + _pairs(record) + _data(curves.values())
    return found


def _spread(case: CaseResult) -> float:
    if len(case.values_us) < 2:
        return 0.0
    return (max(case.values_us) - min(case.values_us)) / case.p50_us


def _data(curves: Iterable[list[CaseResult]]) -> list[Finding]:
    wrong = [case for curve in curves for case in curve if case.wrong]
    if not wrong:
        return []
    return [
        Finding(
            code="data.wrong_results",
            evidence=f"{sum(case.wrong for case in wrong)} wrong elements, first in "
            f"{wrong[0].case.key}",
            next="use none of these times; remove forced settings (LL128 first), then check peer "
            "access and memory",
        )
    ]


def _monotone(curve: list[CaseResult]) -> list[Finding]:
    for small, large in pairwise(curve):
        margin = max(TOLERANCE, _spread(small), _spread(large))
        if small.case.size_bytes < SMALL_CALLS or large.p50_us >= small.p50_us * (1 - margin):
            continue
        return [
            Finding(
                code="record.not_monotone",
                confidence="medium" if min(small.launches, large.launches) > 1 else "low",
                evidence=f"{small.case.collective} takes {small.p50_us:.1f} us for "
                f"{small.case.size_bytes} bytes and {large.p50_us:.1f} us for "
                f"{large.case.size_bytes}",
                next=f"suspect the choice at {small.case.size_bytes} bytes: sweep algorithm and "
                "protocol there, or measure it again if it was one launch",
            )
        ]
    return []


def _jumps(curve: list[CaseResult]) -> list[Finding]:
    """Find a size that is far above the line between its neighbours."""
    for before, case, after in zip(curve, curve[1:], curve[2:], strict=False):
        share = (case.case.size_bytes - before.case.size_bytes) / (
            after.case.size_bytes - before.case.size_bytes
        )
        line = before.p50_us + share * (after.p50_us - before.p50_us)
        if case.p50_us > JUMP * max(line, before.p50_us) * (1 + _spread(case)):
            return [
                Finding(
                    code="record.switch_jump",
                    confidence="medium" if case.launches > 1 else "low",
                    evidence=f"{case.case.collective} of {case.case.size_bytes} bytes takes "
                    f"{case.p50_us:.1f} us, its neighbours {before.p50_us:.1f} and "
                    f"{after.p50_us:.1f}",
                    next="a change of protocol or algorithm lies here: `collbench sweep` with this "
                    "size in the workload",
                )
            ]
    return []


def _parts(curves: dict[tuple[str, str, str], list[CaseResult]]) -> list[Finding]:
    """Compare an all-reduce with reduce-scatter plus all-gather of the same buffer."""
    for (collective, dtype, mode), curve in curves.items():
        if collective != "all_reduce":
            continue
        parts = [
            {case.case.size_bytes: case for case in curves.get((name, dtype, mode), ())}
            for name in ("reduce_scatter", "all_gather")
        ]
        for case in curve:
            size = case.case.size_bytes
            if size not in parts[0] or size not in parts[1]:
                continue
            together = parts[0][size].p50_us + parts[1][size].p50_us
            if case.p50_us > together * (1 + max(TOLERANCE, _spread(case))):
                return [
                    Finding(
                        code="record.sum_of_parts",
                        confidence="medium",
                        evidence=f"all_reduce of {size} bytes takes {case.p50_us:.1f} us, "
                        f"reduce_scatter and all_gather together {together:.1f}",
                        next="the algorithm chosen for all_reduce is the suspect: sweep NCCL_ALGO "
                        "or the MPI's all-reduce algorithm",
                    )
                ]
    return []


def _pairs(record: RunRecord) -> list[Finding]:
    """Compare pairs within a NUMA node or host with pairs across."""
    for run in record.launches:
        where = {facts.rank: (facts.host, facts.numa_node) for facts in run.ranks}
        near = [p for p in run.pairs if _near(where, p.src, p.dst) is True]
        far = [p for p in run.pairs if _near(where, p.src, p.dst) is False]
        if not near or not far:
            continue
        worst = max(near, key=lambda pair: pair.latency_us)
        best = min(far, key=lambda pair: pair.latency_us)
        if worst.latency_us > best.latency_us * (1 + TOLERANCE):
            return [
                Finding(
                    code="record.near_pair_slower",
                    confidence="medium",
                    evidence=f"ranks {worst.src} and {worst.dst} of one node take "
                    f"{worst.latency_us:.1f} us, {best.src} and {best.dst} of two nodes "
                    f"{best.latency_us:.1f}",
                    next=f"the link of GPU {worst.src} or {worst.dst} is the suspect: `nvidia-smi "
                    "-q` under load, `lspci -vv`, ACS on the ports above",
                )
            ]
    return []


def _near(where: dict[int, tuple[str, int | None]], one: int, other: int) -> bool | None:
    if one not in where or other not in where:
        return None
    (host, node), (host2, node2) = where[one], where[other]
    if host != host2:
        return False
    return None if node is None or node2 is None else node == node2
