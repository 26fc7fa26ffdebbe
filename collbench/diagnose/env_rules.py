"""Which variables of a profile arrived, rank by rank, as NCCL's own log shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from collbench.findings import Finding
from collbench.readers.nccl_log import NcclLog
from collbench.readers.nccl_ranks import Member, Ranks
from collbench.readers.nccl_seen import EnvSeen
from collbench.readers.nccl_values import same_value
from collbench.readers.text import printable

NEXT_ABSENT = (
    "start the server with `collbench run PROFILE -- CMD`, then `collbench verify PROFILE`"
)
_SILENT = ("NCCL_DEBUG", "NCCL_CONF_FILE", "NCCL_TOPO_DUMP", "NCCL_GRAPH_DUMP", "NCCL_NO_CACHE")
"""Variables that NCCL never prints as read."""


@dataclass(slots=True)
class RankVerdict:
    """What one rank's lines say of the wanted variables."""

    rank: int
    live: set[str] = field(default_factory=set)
    lacking: set[str] = field(default_factory=set)
    differing: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Name -> (value, line)."""
    unknown: set[str] = field(default_factory=set)


def loggable(profile: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a profile that NCCL prints when it reads them."""
    return {
        name: value
        for name, value in profile.items()
        if name.startswith("NCCL_") and not name.startswith(_SILENT)
    }


def judge_profile(log: NcclLog, ranks: Ranks, profile: Mapping[str, str]) -> list[Finding]:
    """Return findings on a profile from the log lines of all ranks.

    A rank that logged its start but not a variable lacks it; one without lines is unknown.
    """
    wanted = loggable(profile)
    if not wanted:
        return []
    if not ranks.nranks:
        return [_unknown("no line names a rank, so none shows what it has")]
    shared = _one_process(log, ranks)
    verdicts = [
        _verdict(member, wanted, ranks, shared.get((member.source.host, member.source.pid), {}))
        for member in ranks.members
        if member.started
    ]
    found: list[Finding] = []
    silent = sorted(set(range(ranks.nranks)) - set(ranks.started))
    arrived = any(v.live or v.differing for v in verdicts)
    unsure = sorted({v.rank for v in verdicts if v.unknown})
    if verdicts and not arrived and not unsure:
        found.append(_absent(ranks, wanted, verdicts))
    found += _differing(verdicts, wanted)
    found += _partial(verdicts, wanted) if arrived else []
    if silent or unsure or not verdicts:
        named = ", ".join(map(str, (silent or unsure)[:16]))
        found.append(
            _unknown(
                f"no line tells what rank {named} has"
                if silent
                else f"variables of rank {named} cannot be told apart or are torn"
            )
        )
    return found


def _unknown(evidence: str) -> Finding:
    return Finding(
        code="env.unknown",
        confidence="high",
        evidence=evidence,
        next="log every rank: NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log; "
        "or `collbench verify PROFILE`",
    )


def _one_process(log: NcclLog, ranks: Ranks) -> dict[tuple[str, int], dict[str, EnvSeen]]:
    """Return what processes with several ranks printed: once for all of their ranks.

    Only where the log shows that they are one process: with all pids alike, ranks may as well be
    in containers of their own.
    """
    proven = (
        bool(log.device_names)
        or "P2P/direct pointer" in log.transports
        or any(init.function == "ncclCommInitAll" for init in log.inits)
    )
    found: dict[tuple[str, int], dict[str, EnvSeen]] = {}
    for member in ranks.members if proven else ():
        held = found.setdefault((member.source.host, member.source.pid), {})
        for name, seen in member.env.items():
            held.setdefault(name, seen)
    return found


def _verdict(
    member: Member, wanted: Mapping[str, str], ranks: Ranks, shared: Mapping[str, EnvSeen]
) -> RankVerdict:
    verdict = RankVerdict(member.rank)
    for name, want in wanted.items():
        seen = member.env.get(name) or shared.get(name)
        if seen is None:
            unsure = name in ranks.unattributed or name in member.torn
            (verdict.unknown if unsure else verdict.lacking).add(name)
        elif all(same_value(want, v, numeric=seen.per_process) for v in (seen.value, *seen.others)):
            verdict.live.add(name)
        else:
            verdict.differing[name] = (seen.value, seen.line)
    return verdict


def _absent(ranks: Ranks, wanted: Mapping[str, str], verdicts: list[RankVerdict]) -> Finding:
    return Finding(
        code="env.profile_absent",
        line=ranks.line,
        evidence=f"{len(verdicts)} of {ranks.nranks} ranks logged their start, none of them "
        f"{', '.join(sorted(wanted))}",
        next=NEXT_ABSENT,
    )


def _differing(verdicts: list[RankVerdict], wanted: Mapping[str, str]) -> list[Finding]:
    names: dict[str, tuple[str, int, list[int]]] = {}
    for verdict in verdicts:
        for name, (value, line) in verdict.differing.items():
            names.setdefault(name, (value, line, []))[2].append(verdict.rank)
    if not names:
        return []
    said = [
        f"{name}={printable(value, 60)} in rank {', '.join(map(str, sorted(of)[:16]))}, "
        f"wanted {printable(wanted[name], 60)}"
        for name, (value, _, of) in sorted(names.items())
    ]
    return [
        Finding(
            code="env.value_differs",
            line=min(line for _, line, _ in names.values()),
            evidence="; ".join(said),
            next="find who sets it: the shell, the image, the server's options; "
            "`collbench verify PROFILE` shows each worker",
        )
    ]


def _partial(verdicts: list[RankVerdict], wanted: Mapping[str, str]) -> list[Finding]:
    """Find ranks that lack what others have, and variables that nobody has."""
    had = {name for v in verdicts for name in (*v.live, *v.differing)}
    behind = {v.rank: sorted(v.lacking & had) for v in verdicts if v.lacking & had}
    found = []
    if behind:
        ranks = sorted(behind)
        found.append(
            Finding(
                code="env.partial_ranks",
                evidence=f"rank {', '.join(map(str, ranks[:16]))} logged its start but not "
                f"{', '.join(behind[ranks[0]])}, which others have",
                next="give every worker the same environment (on Ray: before `ray start` on each "
                "node); ranks that disagree may hang",
            )
        )
    nobody = sorted({n for v in verdicts for n in v.lacking} - had)
    if nobody:
        found.append(
            Finding(
                code="env.value_absent",
                confidence="medium",
                evidence=f"no rank printed {', '.join(nobody)}; NCCL prints some variables only "
                "at first use",
                next="`collbench verify PROFILE` reads the workers' memory",
            )
        )
    return found
