"""What is kept of an NCCL log: one record per different thing that was said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from collbench.readers.nccl_lines import Source

COLLECTIVES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "SendRecv": "send_recv",
}
"""NCCL's name of a collective -> the name used in records."""


class Init(NamedTuple):
    """One line ``rank R nranks N ... - Init START`` or ``COMPLETE``."""

    source: Source
    tid: int
    comm: str
    """Communicator id where the version prints one, else the pointer."""
    rank: int
    nranks: int
    complete: bool
    function: str
    line: int


@dataclass(slots=True)
class ChoiceSeen:
    """One different (collective, bytes, algorithm, protocol), and how often it was said."""

    collective: str | None
    size_bytes: int
    algorithm: str
    protocol: str
    channels: str
    """``0..3``, empty where the version does not print it."""
    line: int
    count: int = 1


@dataclass(slots=True)
class EnvSeen:
    """One variable as one process printed it."""

    value: str
    line: int
    tid: int
    per_process: bool
    """Printed once per process (number with NCCL's full stop), not once per communicator."""
    others: set[str] = field(default_factory=set)
    """Further values printed by the same source, for another communicator."""
