"""The only place of the collectives: NCCL and Gloo through torch, MPI through mpi4py.

A backend hands out prepared calls; timing and checking are not its business. Everything here is
called by every rank of the group alike unless said.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from collbench.job import Job, Place

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "send_recv")
ROOT = 0
"""Root rank of broadcast and reduce."""

_EVERYWHERE = frozenset({"float32", "float64", "int8", "uint8", "int32", "int64"})
SUPPORTED_DTYPES = {
    "nccl": _EVERYWHERE | {"bfloat16", "float16"},
    "gloo": _EVERYWHERE | {"float16"},
    "mpi": _EVERYWHERE,
}
"""Backend -> the dtypes it reduces."""

Call = Callable[[], object]
"""One prepared collective: it enqueues or performs the call and does nothing else."""


class Unsupported(Exception):  # noqa: N818 - an outcome by that name, not a fault
    """The backend cannot do what was asked: dtype, collective, size. Raised on every rank alike."""


class Refused(Exception):  # noqa: N818 - an outcome by that name, not a fault
    """The library rejected the settings; the text is its own line."""


@dataclass(frozen=True, slots=True)
class Span:
    """A message: `count` elements from byte `offset` of memory that `Backend.allocate` made."""

    memory: Any
    offset: int
    count: int


class Backend(Protocol):
    """One rank of an open group."""

    name: str
    clock: Literal["device", "host"]
    """``device``: calls are enqueued on a CUDA stream. ``host``: a call returns when it is done."""
    rank: int
    nranks: int
    dtypes: frozenset[str]
    reduce_scatter_at: Literal["own", "front"]
    """Where an in-place reduce_scatter leaves its result in the send buffer."""
    device: str
    """GPU name or ``cpu``."""
    pci: str | None
    seconds: dict[str, float]
    """Where the time of opening went: context, communicator, first_collective."""

    def library(self) -> tuple[str, str | None]:
        """Return the communication library as loaded, with version, and the file's path."""
        ...

    def allocate(self, nbytes: int) -> Any:
        """Return zeroed memory that messages can lie in."""
        ...

    def write(self, memory: Any, data: bytes | bytearray) -> None:
        """Copy `data` to the start of `memory` and wait for it."""
        ...

    def clear(self, memory: Any) -> None:
        """Write zeros to all of `memory` and wait for it."""
        ...

    def read(self, memory: Any, nbytes: int) -> bytes | memoryview:
        """Return the first `nbytes` of `memory`, after everything enqueued is done.

        What is returned may be the memory itself: look at it before the next call.
        """
        ...

    def prepare(self, collective: str, dtype: str, send: Span, recv: Span) -> Call:
        """Return one call. In place where `send` lies in the memory of `recv`.

        send_recv sends to the next rank and receives from the one before, as ``sendrecv_perf``.

        Raises:
            Unsupported: the backend has no such collective.
        """
        ...

    def prepare_send(self, dtype: str, span: Span, peer: int) -> Call:
        """Return a send to `peer`; only the two ranks of the pair call it."""
        ...

    def prepare_recv(self, dtype: str, span: Span, peer: int) -> Call:
        """Return a receive from `peer`; only the two ranks of the pair call it."""
        ...

    def barrier(self) -> None:
        """Wait on the host until every rank is here and has nothing enqueued."""
        ...

    def agree(self, value: float) -> float:
        """Return rank 0's `value` on every rank."""
        ...

    def explain(self, error: Exception) -> Exception:
        """Return `Refused` or `Unsupported` where the library's error means that, else `error`."""
        ...

    def memory_used(self) -> int | None:
        """Return the GPU memory the communicators of this process hold, in bytes."""
        ...

    def reopen(self, generation: int) -> None:
        """Replace the communicator by a fresh one, which reads its settings again."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


class DeviceBackend(Backend, Protocol):
    """A backend whose calls are enqueued on the current CUDA stream."""

    torch_device: Any

    def drain(self) -> None:
        """Wait on the host until nothing is enqueued on the device."""
        ...

    def align(self) -> None:
        """Enqueue a tiny collective, after which all ranks' streams go on together."""
        ...


def mapped_library(prefix: str) -> str | None:
    """Return the path of the first file this process maps whose name starts with `prefix`."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if path.rpartition("/")[2].startswith(prefix):
                return "/" + path
    return None


_BUILT_IN = {
    "nccl": "collbench.backends.nccl:Nccl",
    "gloo": "collbench.backends.gloo:Gloo",
    "mpi": "collbench.backends.mpi:Mpi",
}


def open_backend(name: str, job: Job, place: Place) -> Backend:
    """Open this rank's backend; every rank calls it, and it returns when the group is up.

    Args:
        name: nccl, gloo, mpi, or ``package.module:factory``; a factory is called with `job` and
            `place` and returns a `Backend`.
        job: What is to be measured.
        place: Where this rank stands.

    Raises:
        Unsupported: no such backend here.
        Refused: the library rejected the settings.
    """
    target = _BUILT_IN.get(name, name)
    module, _, attribute = target.partition(":")
    if not attribute:
        raise Unsupported(f"no backend {name!r}: nccl, gloo, mpi or package.module:factory")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise Unsupported(f"backend {name}: {error}") from error
    backend: Backend = factory(job, place)
    return backend
