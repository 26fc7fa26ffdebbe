"""The collectives, as one table: buffers, element counts and bandwidth factors.

Standard library only; imports only `errors`. Derivations of the factors:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from collbench.errors import CollbenchError

Part = Literal["all", "share"]
"""How much of ``size_bytes`` one rank's buffer holds: all of it, or 1/nranks."""

DTYPE_BYTES = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int8": 1,
    "uint8": 1,
}
"""Bytes of one element, by torch's name of the dtype."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """One row of the table."""

    name: str
    """torch.distributed's spelling."""
    nccl: str
    """NCCL's spelling in its log."""
    send: Part
    recv: Part
    reduces: bool
    factor: Literal["2(n-1)/n", "(n-1)/n", "1"]
    """Bus bandwidth over algorithm bandwidth."""

    def busbw_factor(self, nranks: int) -> float:
        """Return busbw / algbw for `nranks` ranks.

        >>> COLLECTIVES["all_reduce"].busbw_factor(4), COLLECTIVES["broadcast"].busbw_factor(4)
        (1.5, 1.0)

        Raises:
            ValueError: `nranks` is below 1.
        """
        if nranks < 1:
            raise ValueError(f"nranks must be at least 1, got {nranks}")
        if self.factor == "1":
            return 1.0
        return (2.0 if self.factor == "2(n-1)/n" else 1.0) * (nranks - 1) / nranks

    def counts(self, size_bytes: int, dtype: str, nranks: int) -> tuple[int, int]:
        """Return the elements one rank sends and receives in one call.

        Args:
            size_bytes: Larger of the send and receive buffers on one rank, in bytes (the ``size``
                of nccl-tests): the gathered buffer of all_gather, the input of reduce_scatter.
            dtype: A name in ``DTYPE_BYTES``.
            nranks: Ranks in the communicator.

        Raises:
            CollbenchError: the size is not a whole number of elements on every rank.

        >>> COLLECTIVES["all_gather"].counts(8192, "bfloat16", 4)
        (1024, 4096)
        """
        ranks = nranks if "share" in (self.send, self.recv) else 1
        quantum = itemsize(dtype) * ranks
        if size_bytes < quantum or size_bytes % quantum:
            per_rank = f" on each of {nranks} ranks" if ranks > 1 else ""
            raise CollbenchError(
                f"{self.name}: {size_bytes} bytes is not a whole number of {dtype} elements"
                f"{per_rank}: multiples of {quantum} are",
                fix=f"use {max(1, round(size_bytes / quantum)) * quantum} bytes",
            )
        whole = size_bytes // itemsize(dtype)
        part = {"all": whole, "share": whole // nranks}
        return part[self.send], part[self.recv]


COLLECTIVES = {
    row.name: row
    for row in (
        Collective(
            name="all_reduce",
            nccl="AllReduce",
            send="all",
            recv="all",
            reduces=True,
            factor="2(n-1)/n",
        ),
        Collective(
            name="all_gather",
            nccl="AllGather",
            send="share",
            recv="all",
            reduces=False,
            factor="(n-1)/n",
        ),
        Collective(
            name="reduce_scatter",
            nccl="ReduceScatter",
            send="all",
            recv="share",
            reduces=True,
            factor="(n-1)/n",
        ),
        Collective(
            name="broadcast",
            nccl="Broadcast",
            send="all",
            recv="all",
            reduces=False,
            factor="1",
        ),
        Collective(
            name="reduce",
            nccl="Reduce",
            send="all",
            recv="all",
            reduces=True,
            factor="1",
        ),
        Collective(
            name="send_recv",
            nccl="SendRecv",
            send="all",
            recv="all",
            reduces=False,
            factor="1",
        ),
    )
}


def collective(name: str, *, where: str = "collective") -> Collective:
    """Return the row of `name`.

    Raises:
        CollbenchError: there is none; the known names are given.
    """
    row = COLLECTIVES.get(name)
    if row is None:
        raise CollbenchError(
            f"{where}: unknown collective {name!r}", fix=f"use one of {', '.join(COLLECTIVES)}"
        )
    return row


def itemsize(dtype: str, *, where: str = "dtype") -> int:
    """Return the bytes of one element.

    Raises:
        CollbenchError: the dtype is not in the table.
    """
    size = DTYPE_BYTES.get(dtype)
    if size is None:
        raise CollbenchError(
            f"{where}: unknown dtype {dtype!r}", fix=f"use one of {', '.join(DTYPE_BYTES)}"
        )
    return size


def algbw(size_bytes: int, time_us: float) -> float:
    """Return the algorithm bandwidth of one call, in GB/s (10**9 bytes/s).

    Args:
        size_bytes: As in `Collective.counts`.
        time_us: Reduced time of one call, in microseconds. Times are reduced first and converted
            once: a mean of bandwidths is not the bandwidth of the mean time.

    Raises:
        ValueError: the time is not positive.
    """
    if time_us <= 0:
        raise ValueError(f"time_us must be positive, got {time_us}")
    return size_bytes / (time_us * 1000.0)


def busbw(row: Collective, size_bytes: int, time_us: float, nranks: int) -> float:
    """Return the bus bandwidth of one call, in GB/s (10**9 bytes/s).

    It scales the algorithm bandwidth so that it can be held against the peak of the hardware
    whatever the number of ranks; 0 for one rank, where nothing moves.

    Args:
        row: Row of ``COLLECTIVES``.
        size_bytes: As in `Collective.counts`.
        time_us: As in `algbw`.
        nranks: Ranks in the communicator that was timed.

    Raises:
        ValueError: the time is not positive, or `nranks` is below 1.

    >>> round(busbw(COLLECTIVES["all_reduce"], 8_589_934_592, 63_896.0, 8), 2)
    235.26
    """
    return algbw(size_bytes, time_us) * row.busbw_factor(nranks)
