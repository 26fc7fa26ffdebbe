"""Which rank said what: sources of a log's messages mapped to ranks of its main communicator."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from collbench.readers import Reading
from collbench.readers.nccl_lines import Source
from collbench.readers.nccl_log import NcclLog
from collbench.readers.nccl_seen import EnvSeen


@dataclass(slots=True)
class Member:
    """One process and device as one rank of one group of the main size."""

    rank: int
    source: Source
    comm: str
    env: dict[str, EnvSeen] = field(default_factory=dict)
    torn: set[str] = field(default_factory=set)
    """Variables of which this member has only a torn line."""
    started: bool = True
    complete: bool = False


@dataclass(slots=True)
class Ranks:
    """The members of the main communicator, the one with most ranks."""

    nranks: int
    members: list[Member]
    line: int | None = None
    """Where `nranks` stands."""
    unattributed: dict[str, EnvSeen] = field(default_factory=dict)
    """Variables printed by a source that no line ties to one rank."""

    @property
    def started(self) -> list[int]:
        """Ranks that logged their start."""
        return sorted({member.rank for member in self.members if member.started})

    @property
    def complete(self) -> list[int]:
        """Ranks that logged the end of their start."""
        return sorted({member.rank for member in self.members if member.complete})

    def env(self) -> dict[int, dict[str, str]]:
        """Return rank -> variables as printed, for the ranks that started."""
        found: dict[int, dict[str, str]] = {rank: {} for rank in self.started}
        for member in self.members:
            for name, seen in member.env.items():
                found.setdefault(member.rank, {}).setdefault(name, seen.value)
        return found

    def host_of(self, rank: int) -> str | None:
        """Return the host of a rank, or None where it is unknown or not one."""
        hosts = {member.source.host for member in self.members if member.rank == rank}
        return hosts.pop() if len(hosts) == 1 else None


def find_ranks(log: NcclLog) -> Ranks:
    """Map sources to ranks through the lines that name a rank."""
    real = [init for init in log.inits if init.function != "named"]
    pool = real or list(log.inits)
    listed = max(log.named.values(), default=-1) + 1
    if not pool:
        members = [Member(rank, source, "") for source, rank in log.named.items()]
        ranks = Ranks(listed, members)
        _attribute(log, ranks, {})
        return ranks
    nranks = max(init.nranks for init in pool)
    found: dict[tuple[Source, int, str], Member] = {}
    tids: dict[tuple[Source, int], set[int]] = defaultdict(set)
    for init in pool:
        if init.nranks != nranks:
            continue
        key = (init.source, init.rank, init.comm)
        member = found.setdefault(key, Member(init.rank, init.source, init.comm))
        member.complete = member.complete or init.complete
        tids[(init.source, init.rank)].add(init.tid)
    # A process has one entry per (source, rank), however many communicators it made.
    merged: dict[tuple[Source, int], Member] = {}
    for (source, rank, _), member in found.items():
        held = merged.setdefault((source, rank), member)
        held.complete = held.complete or member.complete
    ranks = Ranks(
        nranks, list(merged.values()), min(init.line for init in pool if init.nranks == nranks)
    )
    _attribute(log, ranks, tids)
    return ranks


def _attribute(log: NcclLog, ranks: Ranks, tids: dict[tuple[Source, int], set[int]]) -> None:
    """Hand every variable to the rank whose source printed it."""
    by_source: dict[Source, list[Member]] = defaultdict(list)
    for member in ranks.members:
        by_source[member.source].append(member)
    dotted = {n for env in log.env_of.values() for n, seen in env.items() if seen.per_process}
    for source, env in log.env_of.items():
        owners = by_source.get(source) or _glued(source, by_source)
        for name, seen in env.items():
            if name in dotted and not seen.per_process:
                # The full stop is missing, so the number before it may be cut as well.
                log.torn_env.setdefault(source, set()).add(name)
                continue
            if len(owners) > 1:
                # Several containers whose processes have one host name, pid and device.
                mine = [m for m in owners if seen.tid in tids.get((m.source, m.rank), ())]
            else:
                mine = owners
            if len(mine) == 1:
                mine[0].env.setdefault(name, seen)
            else:
                ranks.unattributed.setdefault(name, seen)
    for source, names in log.torn_env.items():
        for member in by_source.get(source) or _glued(source, by_source):
            member.torn |= names


def _glued(source: Source, by_source: dict[Source, list[Member]]) -> list[Member]:
    """Find the owner of a source whose host has a torn piece in front (``envirnode-a``)."""
    found = [
        members
        for known, members in by_source.items()
        if known.pid == source.pid
        and known.device == source.device
        and known.host
        and source.host.endswith(known.host)
    ]
    return found[0] if len(found) == 1 else []


def log_reading(log: NcclLog) -> Reading:
    """Return the facts of a log as `inspect` publishes them."""
    ranks = find_ranks(log)
    versions = sorted(log.versions, key=lambda text: tuple(map(int, text.split("."))))
    facts: dict[str, Any] = {
        "nccl_version": versions[0] if len(versions) == 1 else None,
        "cuda": next(iter(log.cudas)) if len(versions) == 1 and len(log.cudas) == 1 else None,
        "nranks": ranks.nranks,
        "ranks_started": ranks.started,
        "ranks_complete": ranks.complete,
        "env": {str(rank): env for rank, env in sorted(ranks.env().items())},
        "transports": dict(log.transports),
        "choices": choices(log),
    }
    if len(versions) != 1:
        facts["nccl_versions"] = versions
    if log.server_version:
        facts["pynccl_version"] = log.server_version[0]
    if log.coll_channels is not None:
        facts["coll_channels"] = log.coll_channels
    facts |= _graphs(log) | _failures(log)
    if log.backends:
        facts["allreduce_backends"] = log.backends[0]
    if log.timeout:
        facts["timeout"] = log.timeout[0]
    return Reading(
        kind="nccl_log", facts=facts, signs={"log": log, "ranks": ranks}, lines=_where(log, ranks)
    )


def choices(log: NcclLog) -> list[list[Any]]:
    """Return each different [collective, bytes, algorithm, protocol] once, in order."""
    return [
        [seen.collective, seen.size_bytes, seen.algorithm, seen.protocol]
        for seen in log.choices.values()
    ]


def _graphs(log: NcclLog) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if log.graphs:
        facts["graphs"] = [
            {"pattern": pattern, "nchannels": nchannels, "bw_intra": bw, "type_intra": kind}
            for pattern, nchannels, bw, kind in log.graphs
        ]
    if log.fallbacks:
        facts["fallback_patterns"] = sorted(log.fallbacks)
    return facts


def _failures(log: NcclLog) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if log.p2p_off:
        facts["p2p_disabled_pairs"] = [list(pair) for pair in sorted(log.p2p_off)]
    if log.shm_extend or log.shm_create:
        facts["shm_failed_bytes"] = (log.shm_extend or log.shm_create or (0, 0))[0]
    if log.no_algorithm:
        facts["no_algorithm"] = log.no_algorithm[0]
    if log.rejected:
        facts["rejected"] = log.rejected[0]
    return facts


def _where(log: NcclLog, ranks: Ranks) -> dict[str, int]:
    """Return the line each fact is first seen on."""
    pairs: list[tuple[str, int | None]] = [
        ("nccl_version", min(log.versions.values(), default=None)),
        ("nranks", ranks.line),
        ("choices", min((seen.line for seen in log.choices.values()), default=None)),
        ("fallback_patterns", min(log.fallbacks.values(), default=None)),
        ("graphs", min(log.graphs.values(), default=None)),
        ("p2p_disabled_pairs", min(log.p2p_off.values(), default=None)),
        ("shm", (log.shm_extend or log.shm_create or (0, log.shm_space))[1]),
    ]
    for name in ("no_algorithm", "rejected", "backends", "timeout", "server_version"):
        value = getattr(log, name)
        pairs.append((name, value[1] if value else None))
    return {name: line for name, line in pairs if line is not None}
