"""What an NCCL log shows to be wrong."""

from __future__ import annotations

from collbench.diagnose.env_rules import judge_profile
from collbench.diagnose.machine_rules import judge_peers
from collbench.diagnose.value_rules import judge_values
from collbench.findings import Finding
from collbench.readers import Given, Reading
from collbench.readers.nccl_lines import NO_PEER
from collbench.readers.nccl_log import NcclLog
from collbench.readers.nccl_ranks import Ranks
from collbench.readers.text import printable

SLOW_GRAPH_GBS = 0.11
"""Bandwidth of the graph that NCCL falls back to when its search fails is 0.1 GB/s."""
FIRST_CALLS = 2
_SAYS_WHY = ("shm.too_small", "nccl.algo_unavailable", "nccl.invalid_value", "p2p.grant_hang")
"""Findings that name what made NCCL give up."""
_SHM = ("SHM", "direct shared memory")
_NCCL_BACKENDS = frozenset(("PYNCCL", "NCCL", "NCCL_SYMM_MEM", "TORCH"))


def judge_log(reading: Reading, given: Given) -> list[Finding]:
    """Return the findings of a log, alone or between the rows of a table."""
    log: NcclLog = reading.signs["log"]
    ranks: Ranks = reading.signs["ranks"]
    found = _start(reading, log) + judge_values(reading, log, ranks, given)
    found += _transports(reading, log, ranks) + _stack(log, given)
    if given.profile is not None:
        found += judge_profile(log, ranks, given.profile)
    found += _other_path(reading, log, given, found) + hang(reading, log, ranks)
    if not any(finding.code in _SAYS_WHY for finding in found):
        found += _call_failed(log, ranks)
    return found


def _start(reading: Reading, log: NcclLog) -> list[Finding]:
    found = []
    if log.shm_extend or log.shm_create or log.shm_space:
        size = reading.facts.get("shm_failed_bytes")
        what = f"a segment of {size} bytes" if size else "a segment"
        found.append(
            Finding(
                code="shm.too_small",
                line=reading.line("shm"),
                evidence=f"{what} in /dev/shm could not be made or extended",
                next="docker: --ipc=host or --shm-size=16g; k8s: an emptyDir of medium Memory "
                "on /dev/shm; look with `df /dev/shm` in the container",
            )
        )
    if log.no_algorithm:
        said = log.no_algorithm[0]
        found.append(
            Finding(
                code="nccl.algo_unavailable",
                line=log.no_algorithm[1],
                evidence=f"no algorithm for {said['collective'] or 'a collective'}"
                f" (NCCL_ALGO={printable(said['NCCL_ALGO'] or 'unset', 60)})",
                next="name the function: NCCL_ALGO=allreduce:tree; Tree alone leaves AllGather, "
                "ReduceScatter and Broadcast without one",
            )
        )
    # A graph without channels is of an algorithm that this machine does not have.
    collapsed = [key for key in log.graphs if key[1] > 0 and key[2] <= SLOW_GRAPH_GBS]
    if log.fallbacks or collapsed:
        lines = [*log.fallbacks.values(), *(log.graphs[key] for key in collapsed)]
        found.append(
            Finding(
                code="nccl.graph_search_collapse",
                line=min(lines),
                evidence=f"search failed for pattern {', '.join(map(str, sorted(log.fallbacks)))}"
                if log.fallbacks
                else f"graph of {collapsed[0][2]} GB/s",
                next="try NCCL_P2P_LEVEL=SYS, a newer NCCL, or NCCL_GRAPH_FILE; "
                "`collbench sweep --allow p2p` measures it",
            )
        )
    return found


def _call_failed(log: NcclLog, ranks: Ranks) -> list[Finding]:
    """Find a run that ended because CUDA or the system refused NCCL something."""
    said = log.cuda_failure or log.gave_up
    if not said:
        return []
    started = ranks.nranks > 0 and len(ranks.complete) == ranks.nranks
    memory = "out of memory" in said[0]
    return [
        Finding(
            code="nccl.call_failed",
            confidence="high" if log.gave_up else "low" if started else "medium",
            line=said[1],
            evidence=printable(said[0], 120)
            + ("" if started else f"; {len(ranks.complete)} of {ranks.nranks} ranks started up"),
            next="leave NCCL memory: a lower --gpu-memory-utilization or --mem-fraction-static, "
            "fewer channels, smaller buffers"
            if memory
            else "the first error of any rank counts, later ones follow from it: read its log "
            "with NCCL_DEBUG=INFO, and dmesg for Xid",
        )
    ]


def _transports(reading: Reading, log: NcclLog, ranks: Ranks) -> list[Finding]:
    found = []
    shm = [(key, line) for key, line in log.links.items() if key[2].startswith(_SHM)]
    if shm:
        found.append(
            Finding(
                code="transport.shm",
                line=min(line for _, line in shm),
                evidence=f"{sum(n for t, n in log.transports.items() if t.startswith(_SHM))} "
                "connections go through shared memory",
                next="`nvidia-smi topo -p2p r` shows whether peer access is granted; "
                "`collbench sweep --allow p2p` measures both ways",
            )
        )
    inside = [
        (key, line)
        for key, line in log.links.items()
        if key[2].startswith("NET/Socket") and _same_host(ranks, key[0], key[1])
    ]
    if inside:
        found.append(
            Finding(
                code="transport.net_socket",
                line=min(line for _, line in inside),
                evidence=f"rank {inside[0][0][0]} and {inside[0][0][1]} of one machine talk over "
                "a socket",
                next="remove NCCL_P2P_DISABLE and NCCL_SHM_DISABLE, share /dev/shm and the "
                "devices between the containers",
            )
        )
    return found + _peer_access(reading, log, ranks)


def _same_host(ranks: Ranks, one: int, other: int) -> bool:
    first, second = ranks.host_of(one), ranks.host_of(other)
    if first is None or second is None:
        return len({member.source.host for member in ranks.members}) == 1
    return first == second


def _peer_access(reading: Reading, log: NcclLog, ranks: Ranks) -> list[Finding]:
    line, evidence = None, ""
    if log.p2p_off:
        pair = min(log.p2p_off)
        line = min(log.p2p_off.values())
        evidence = (
            f"P2P is disabled between {len(log.p2p_off)} pairs, first {pair[0]} and {pair[1]}"
        )
    else:
        for member in ranks.members:
            off = member.env.get("NCCL_P2P_DISABLE")
            level = member.env.get("NCCL_P2P_LEVEL")
            if off and off.value not in ("0", ""):
                line, evidence = off.line, f"NCCL_P2P_DISABLE={off.value} in rank {member.rank}"
            elif level and level.value in ("LOC", "0"):
                line, evidence = level.line, f"NCCL_P2P_LEVEL={level.value} in rank {member.rank}"
            if evidence:
                break
    if not evidence and log.cuda_failure and NO_PEER in log.cuda_failure[0]:
        evidence, line = printable(log.cuda_failure[0], 120), log.cuda_failure[1]
    if not evidence:
        return judge_peers(reading.signs["peers"], Given()) if "peers" in reading.signs else []
    return [
        Finding(
            code="p2p.disabled",
            line=line,
            evidence=evidence,
            next="`nvidia-smi topo -p2p r`; then driver, BIOS and container settings, "
            "or the variable itself",
        )
    ]


def _stack(log: NcclLog, given: Given) -> list[Finding]:
    found = []
    double = next(((k, v) for k, v in log.versions_of.items() if len(v) > 1), None)
    server = log.server_version
    if double:
        versions = sorted(double[1])
        found.append(
            Finding(
                code="stack.two_libnccl",
                line=max(double[1].values()),
                evidence=f"process {double[0][1]} on {printable(double[0][0], 60)} uses NCCL "
                f"{' and '.join(versions)}",
                next="point both at one file (VLLM_NCCL_SO_PATH, SGLANG_NCCL_SO_PATH, "
                "LD_LIBRARY_PATH); `collbench verify` lists what each worker maps",
            )
        )
    elif server and log.versions and server[0] not in log.versions:
        found.append(
            Finding(
                code="stack.two_libnccl",
                confidence="medium",
                line=server[1],
                evidence=f"the server names NCCL {server[0]}, NCCL itself prints "
                f"{', '.join(sorted(log.versions))}",
                next="`collbench verify` lists the libraries that each worker maps",
            )
        )
    stored = given.stored.get("nccl_version")
    if stored and log.versions and str(stored) not in log.versions:
        found.append(version_changed(str(stored), sorted(log.versions), min(log.versions.values())))
    return found


def version_changed(stored: str, seen: list[str], line: int | None) -> Finding:
    """Return the finding that NCCL is another one than the profile's."""
    return Finding(
        code="stack.nccl_version_changed",
        line=line,
        evidence=f"NCCL {', '.join(seen)}; the profile was made with {printable(stored, 40)}",
        next="`collbench check PROFILE`, and tune again if it no longer helps",
    )


def _other_path(
    reading: Reading, log: NcclLog, given: Given, found: list[Finding]
) -> list[Finding]:
    """Find a server that sends its small all-reduces elsewhere before NCCL."""
    backends = reading.facts.get("allreduce_backends") or []
    before: list[str] = []
    for name in backends:
        if name in _NCCL_BACKENDS:
            break
        before.append(name)
    tuned = given.profile is not None and not any(f.code == "env.profile_absent" for f in found)
    printed = any(member.env for member in reading.signs["ranks"].members)
    if not before or not (tuned or (given.profile is None and printed)):
        return []
    return [
        Finding(
            code="path.nccl_not_used",
            line=log.backends[1] if log.backends else None,
            evidence=f"all-reduces try {', '.join(before)} before NCCL",
            next="small all-reduces ignore the profile: compare both paths with the server's own "
            "benchmark, or switch the other path off",
        )
    ]


def hang(reading: Reading, log: NcclLog, ranks: Ranks) -> list[Finding]:
    """Find a peer grant that does not carry data: started, connected, first call never ends."""
    peer = any(name.startswith("P2P/") for name in log.transports)
    if not log.timeout or log.timeout[0]["seq"] > FIRST_CALLS or not peer:
        return []
    facts = reading.facts
    started = bool(ranks.complete) and len(ranks.complete) == ranks.nranks
    if not started or facts.get("p2p_all_ok") is False:
        return []
    busy = [util for util in facts.get("gpu_util_after", ()) if util >= 90]
    stuck = bool(busy) and facts.get("processes_after") == 0
    sure = stuck or facts.get("p2p_all_ok") is True
    return [
        Finding(
            code="p2p.grant_hang",
            confidence="high" if stuck and facts.get("p2p_all_ok") else "medium" if sure else "low",
            line=log.timeout[1],
            evidence=f"all {ranks.nranks} ranks started and connected over P2P, "
            f"{log.timeout[0]['op']} {log.timeout[0]['seq']} never ended"
            + (f"; {len(busy)} GPUs stay busy without a process" if stuck else ""),
            next="stop measuring: reset the GPUs, then check ACS (`lspci -vvv | grep ACSCtl`) and "
            "IOMMU; NCCL_P2P_DISABLE=1 works around it",
        )
    ]
