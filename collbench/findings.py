"""Findings: what is wrong, where it shows, how sure that is, and what to do next.

One table of codes, in the order of their weight: the first code of a report is the one to act on
first. Every code has a page of its own under ``docs/findings``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Confidence = Literal["high", "medium", "low"]
"""``high``: the evidence says it itself. ``medium``: it follows unless something else is also
unusual. ``low``: it fits, and other causes would look the same."""

CODES: dict[str, str] = {
    "data.wrong_results": "wrong elements were counted",
    "p2p.grant_hang": "peer access is granted, but the first transfer never ends",
    "shm.too_small": "a shared-memory segment cannot be made or extended",
    "nccl.algo_unavailable": "no algorithm is left for a collective",
    "env.quotes_kept": "quotes become part of the value in at least one reader",
    "nccl.invalid_value": "NCCL refuses or misreads a value",
    "nccl.call_failed": "NCCL gave up: a call to CUDA or to the system failed",
    "nccl.graph_search_collapse": "a path search failed and fell back to a very slow graph",
    "env.overridden_by_server": "the server itself replaces a profile value",
    "env.image_conflict": "image or entrypoint sets another value",
    "env.lost_in_launcher": "a launcher drops the environment",
    "env.unit_without_file": "the systemd unit loads no environment file in the end",
    "env.not_listed_in_compose": "the compose service does not pass the variable on",
    "env.sourced_semicolon": "a value with ';' is cut when a shell sources the file",
    "env.profile_absent": "no variable of the profile arrives",
    "env.partial_ranks": "some ranks have the profile, and at least one does not",
    "env.crlf": "carriage returns end up in values",
    "env.value_differs": "a variable arrives with another value",
    "env.value_absent": "a variable of the profile does not arrive, others do",
    "env.file_missing": "a file that a setting names is not there for the worker",
    "env.shadowed_by_conf": "an nccl.conf sets a variable that the environment does not show",
    "path.nccl_not_used": "small all-reduces do not go through NCCL",
    "stack.two_libnccl": "one process uses two NCCL libraries",
    "stack.nccl_version_changed": "NCCL is not the version of the stored profile",
    "stack.driver_changed": "the driver is not the one of the stored profile",
    "topo.gpu_set_changed": "other GPUs than in the stored profile",
    "topo.truncated": "rows or the end of a row are missing",
    "topo.unparseable": "nothing is missing, but header and rows do not agree",
    "link.width_reduced": "a GPU link has fewer lanes than both ends allow",
    "link.gen_low_under_load": "a GPU link stays at a low generation while it works",
    "link.upstream_narrower": "a link above the GPU is slower than the GPU's own",
    "p2p.acs_redirect": "ports send peer traffic through the root complex",
    "p2p.iommu_translation": "IOMMU translation is on without pass-through",
    "transport.net_socket": "ranks of one machine talk over a socket",
    "nccl.ll128_forced": "LL128 is forced on cards without NVLink",
    "verify.not_captured": "the step runs outside the captured graphs",
    "verify.payload_crosses_threshold": "the message grew past a change of protocol",
    "verify.skew_not_transfer": "ranks wait for a late one; the transfer is as fast as before",
    "verify.comm_regression": "the step is slower because the collectives are",
    "verify.beyond_comm": "the step is slower by more than the collectives explain",
    "verify.acceptance_not_comm": "fewer tokens accepted per step, step time unchanged",
    "topo.numa_misbinding": "a worker runs on the CPUs of another node than its GPU",
    "p2p.disabled": "no direct peer access between at least one pair",
    "transport.shm": "ranks talk through shared memory",
    "bench.truncated_table": "a table ends in an incomplete row",
    "bench.unparseable_layout": "a table without a header, or of an unknown layout",
    "record.sum_of_parts": "an all-reduce takes longer than reduce-scatter and all-gather together",
    "record.not_monotone": "a larger message is clearly faster than a smaller one",
    "record.switch_jump": "latency jumps at a change of protocol",
    "record.near_pair_slower": "a pair on one node is slower than a pair across nodes",
    "env.not_portable": "another line that readers take differently",
    "verify.baseline_not_reproduced": "the old settings, measured again, miss the old number",
    "noise.too_noisy": "the scatter is too wide for any statement",
    "verify.time_unknown": "a throughput alone cannot tell acceptance from time",
    "verify.no_change": "before and after agree within the scatter",
    "verify.faster": "the step is faster than before",
    "log.not_this_run": "the log is of another run than the processes",
    "env.conflict": "a variable of the profile is already set to another value",
    "env.profile_edited": "the profile's settings or scope are not those its id was made of",
    "env.baseline_differs": "a variable differs from what the profile was measured with",
    "env.not_measured": "a tuning variable is set that was not set while measuring",
    "env.unknown_variable": "a name is not in the registry",
    "nccl.unknown_variable": "this NCCL does not have the variable",
    "env.invalid_value": "a library other than NCCL refuses or misreads a value",
    "env.needs_other": "a setting does nothing without another one",
    "nccl.min_over_max": "a minimum is above its maximum",
    "hazard.p2p": "direct peer access is allowed where NCCL would avoid it",
    "hazard.graph_mixing": "NCCL's support for mixing graphs and eager calls is off",
    "hazard.loads_code": "a setting names a library or a file that decides for NCCL",
    "topo.placement_changed": "the GPUs are the same, their NUMA nodes or links are not",
    "stack.nccl_unknown": "the version of the NCCL to be loaded cannot be told before the launch",
    "env.equals_default": "a line sets what the library does without it",
    "workers.guessed": "nothing below the process given looks like a worker",
    "env.unknown": "the evidence does not decide it for at least one rank or variable",
}
"""Code -> meaning, weightiest first."""
_WEIGHT = {code: weight for weight, code in enumerate(CODES)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is wrong, or that decides what is not."""

    code: str
    evidence: str
    """What shows it: a line of the file, a figure, or both; printable."""
    next: str
    """The command or edit that comes next."""
    confidence: Confidence = "high"
    line: int | None = None
    """Line of the file, from 1."""
    expected_ms: float | None = None
    """What it costs per step, where records allow to compute it (count x latency difference)."""
    source: str | None = None
    """The file, where a report is of several."""

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"{self.code!r} is not a known code")

    def plain(self, *, with_cost: bool = False) -> dict[str, Any]:
        """Return the finding as JSON documents have it."""
        found: dict[str, Any] = {
            "code": self.code,
            "line": self.line,
            "confidence": self.confidence,
            "evidence": self.evidence,
            "next": self.next,
        }
        if with_cost:
            found |= {"expected_ms": self.expected_ms, "source": self.source}
        return found


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by weight, one per code: the first that was given."""
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(finding.code, finding)
    return sorted(first.values(), key=lambda finding: _WEIGHT[finding.code])
