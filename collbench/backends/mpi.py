"""MPI through mpi4py. Start-up matters (a trial is a fresh mpirun): no numpy here.

Reduces in float32, float64 and integers; MPI has no bfloat16 (a server's payload of the same bytes
is timed as float32).
"""

from __future__ import annotations

import contextlib
import mmap
import sys
import time
from functools import partial
from typing import Any, Literal

from collbench.backends import (
    ROOT,
    SUPPORTED_DTYPES,
    Call,
    Refused,
    Span,
    Unsupported,
    mapped_library,
)
from collbench.backends.pattern import ITEM_BYTES
from collbench.job import Job, Place

_TYPES = {
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "int8": "INT8_T",
    "uint8": "UINT8_T",
    "int32": "INT32_T",
    "int64": "INT64_T",
}


class Mpi:
    """One rank of ``COMM_WORLD``; the process was started by mpirun, srun or its like."""

    name = "mpi"
    clock: Literal["device", "host"] = "host"
    dtypes = SUPPORTED_DTYPES["mpi"]
    reduce_scatter_at: Literal["own", "front"] = "front"
    device = "cpu"
    pci: str | None = None

    def __init__(self, job: Job, place: Place) -> None:
        started = time.perf_counter()
        try:
            from mpi4py import MPI
        except ImportError as error:
            raise Unsupported(f"mpi4py is not usable: {error}") from error
        self._mpi = MPI
        self._world = MPI.COMM_WORLD
        self._comm = self._world
        self.rank = self._comm.Get_rank()
        self.nranks = self._comm.Get_size()
        if self.nranks != job.nranks:
            raise Unsupported(
                f"the launcher started {self.nranks} ranks of one world, {job.nranks} were asked:"
                " mpirun and mpi4py belong to different MPI libraries"
            )
        opened = time.perf_counter()
        self.barrier()
        self.seconds = {
            "communicator": opened - started,
            "first_collective": time.perf_counter() - opened,
        }

    def library(self) -> tuple[str, str | None]:
        """Return ``Open MPI v5.0.11`` or its like, and the libmpi this process maps."""
        text = self._mpi.Get_library_version().rstrip("\0")
        version = text.splitlines()[0].split(",")[0].strip()
        return " ".join(version.split()), mapped_library("libmpi")

    def allocate(self, nbytes: int) -> Any:
        """Return page-aligned zeroed memory."""
        return mmap.mmap(-1, nbytes)

    def write(self, memory: Any, data: bytes | bytearray) -> None:
        """Copy `data` to the start of `memory`."""
        memory[: len(data)] = data

    def clear(self, memory: Any) -> None:
        """Write zeros to all of `memory`."""
        memory[:] = bytes(len(memory))

    def read(self, memory: Any, nbytes: int) -> bytes:
        """Return the first `nbytes` of `memory`."""
        return bytes(memory[:nbytes])

    def _message(self, dtype: str, span: Span) -> list[Any]:
        nbytes = span.count * ITEM_BYTES[dtype]
        view = memoryview(span.memory)[span.offset : span.offset + nbytes]
        return [view, getattr(self._mpi, _TYPES[dtype])]

    def prepare(self, collective: str, dtype: str, send: Span, recv: Span) -> Call:
        """Return one call, in place; see `collbench.backends.Backend.prepare`."""
        comm, mpi = self._comm, self._mpi
        out = self._message(dtype, recv)
        if collective == "all_reduce":
            return partial(comm.Allreduce, mpi.IN_PLACE, out)
        if collective == "all_gather":
            return partial(comm.Allgather, mpi.IN_PLACE, out)
        if collective == "reduce_scatter":
            whole = self._message(dtype, send)
            return partial(comm.Reduce_scatter_block, mpi.IN_PLACE, whole)
        if collective == "broadcast":
            return partial(comm.Bcast, out, ROOT)
        if collective == "reduce":
            if self.rank == ROOT:
                return partial(comm.Reduce, mpi.IN_PLACE, out, mpi.SUM, ROOT)
            return partial(comm.Reduce, out, None, mpi.SUM, ROOT)
        if collective == "send_recv":
            after, before = (self.rank + 1) % self.nranks, (self.rank - 1) % self.nranks
            return partial(comm.Sendrecv, self._message(dtype, send), after, 0, out, before, 0)
        raise Unsupported(f"mpi: no collective {collective!r}")

    def prepare_send(self, dtype: str, span: Span, peer: int) -> Call:
        """Return a blocking send to `peer`."""
        return partial(self._comm.Send, self._message(dtype, span), peer, 1)

    def prepare_recv(self, dtype: str, span: Span, peer: int) -> Call:
        """Return a blocking receive from `peer`."""
        return partial(self._comm.Recv, self._message(dtype, span), peer, 1)

    def barrier(self) -> None:
        """Wait for every rank."""
        self._comm.Barrier()

    def agree(self, value: float) -> float:
        """Return rank 0's `value` on every rank."""
        return float(self._comm.bcast(value, ROOT))

    def explain(self, error: Exception) -> Exception:
        """Return `Refused` for an error that MPI itself reports, else `error`."""
        if isinstance(error, self._mpi.Exception):
            return Refused(" ".join(str(error).split()))
        return error

    def memory_used(self) -> int | None:
        """Return None: no GPU memory."""
        return None

    def reopen(self, generation: int) -> None:
        """Duplicate the world; settings read with the library are not read again."""
        self._comm = self._world.Dup()

    def close(self) -> None:
        """Finalize now, so that a fault in there ends this process and no later one."""
        finalize()


def finalize() -> None:
    """Finalize MPI where it was initialized and still is; every rank must call it."""
    if "mpi4py.MPI" not in sys.modules:
        return
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized():
        with contextlib.suppress(MPI.Exception):
            MPI.Finalize()
