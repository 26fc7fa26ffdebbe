"""What NCCL and Gloo share: a group over a store of torch.distributed, and its collectives."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist

from collbench.backends import ROOT, Call, Refused, Span, Unsupported
from collbench.backends.pattern import ITEM_BYTES
from collbench.job import Job, Place

DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
}
# torch 2.13 deprecates the old names with a warning on every call, and 2.11 has only those.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class TorchGroup:
    """One rank of a default process group; base of `Nccl` and `Gloo`."""

    name = ""
    clock: Literal["device", "host"] = "host"
    dtypes: frozenset[str] = frozenset()
    reduce_scatter_at: Literal["own", "front"] = "own"
    device = "cpu"
    pci: str | None = None

    def __init__(self, job: Job, place: Place, torch_device: torch.device) -> None:
        self.rank, self.nranks = place.rank, place.nranks
        self.torch_device = torch_device
        self.seconds: dict[str, float] = {}
        self._place = place
        self._timeout = timedelta(seconds=place.timeout_s)
        # A client of its own: one inherited through a fork would share its socket with the parent.
        self._store = dist.TCPStore(
            place.store_host, place.store_port, is_master=False, timeout=self._timeout
        )
        self._tiny = torch.zeros(1, dtype=torch.float32, device=torch_device)

    def open_group(self, generation: int = 0) -> None:
        """Join the group of this launch (and generation) and run a first collective.

        Raises:
            Refused: the library rejected the settings.
        """
        prefix = f"{self._place.store_prefix}/group{generation}"
        store = dist.PrefixStore(prefix, self._store)
        started = time.perf_counter()
        try:
            self.init_group(store)
            opened = time.perf_counter()
            dist.all_reduce(self._tiny)
            self.drain()
        except Exception as error:
            raise self.explain(error) from error
        self.seconds["communicator"] = opened - started
        self.seconds["first_collective"] = time.perf_counter() - opened
        self._numbers = dist.PrefixStore(f"{prefix}/agree", self._store)
        self._agreed = 0

    def init_group(self, store: Any) -> None:
        """Create the default process group."""
        dist.init_process_group(
            self.name, store=store, rank=self.rank, world_size=self.nranks, timeout=self._timeout
        )

    def drain(self) -> None:
        """Wait until nothing is enqueued on the device."""

    def library(self) -> tuple[str, str | None]:
        """Return the library's name and version, and its file."""
        raise NotImplementedError

    def allocate(self, nbytes: int) -> Any:
        """Return zeroed memory on the device."""
        return torch.zeros(nbytes, dtype=torch.uint8, device=self.torch_device)

    def write(self, memory: Any, data: bytes | bytearray) -> None:
        """Copy `data` to the start of `memory` and wait for it."""
        # torch warns of a buffer that cannot be written, which it would not do
        buffer = data if isinstance(data, bytearray) else bytearray(data)
        memory[: len(data)].copy_(torch.frombuffer(buffer, dtype=torch.uint8))
        self.drain()

    def clear(self, memory: Any) -> None:
        """Write zeros to all of `memory` and wait for it."""
        memory.zero_()
        self.drain()

    def read(self, memory: Any, nbytes: int) -> memoryview:
        """Return the first `nbytes` of `memory`, after everything enqueued is done."""
        self.drain()
        return memoryview(memory[:nbytes].cpu().numpy())

    def message(self, dtype: str, span: Span) -> Any:
        """Return the tensor of a span."""
        nbytes = span.count * ITEM_BYTES[dtype]
        return span.memory[span.offset : span.offset + nbytes].view(DTYPES[dtype])

    def prepare(self, collective: str, dtype: str, send: Span, recv: Span) -> Call:
        """Return one call; see `collbench.backends.Backend.prepare`."""
        out = self.message(dtype, recv)
        if collective == "all_reduce":
            return partial(dist.all_reduce, out)
        if collective == "all_gather":
            return partial(_all_gather, out, self.message(dtype, send))
        if collective == "reduce_scatter":
            return partial(_reduce_scatter, out, self.message(dtype, send))
        if collective == "broadcast":
            return partial(dist.broadcast, out, ROOT)
        if collective == "reduce":
            return partial(dist.reduce, out, ROOT)
        if collective == "send_recv":
            return self._send_recv(self.message(dtype, send), out)
        raise Unsupported(f"{self.name}: no collective {collective!r}")

    def _send_recv(self, send: Any, recv: Any) -> Call:
        pair = [
            dist.P2POp(dist.isend, send, (self.rank + 1) % self.nranks),
            dist.P2POp(dist.irecv, recv, (self.rank - 1) % self.nranks),
        ]
        return partial(_run_batch, pair)

    def prepare_send(self, dtype: str, span: Span, peer: int) -> Call:
        """Return a send to `peer` on the group's own communicator."""
        return partial(_run_batch, [dist.P2POp(dist.isend, self.message(dtype, span), peer)])

    def prepare_recv(self, dtype: str, span: Span, peer: int) -> Call:
        """Return a receive from `peer` on the group's own communicator."""
        return partial(_run_batch, [dist.P2POp(dist.irecv, self.message(dtype, span), peer)])

    def barrier(self) -> None:
        """Wait on the host until every rank is here and has nothing enqueued."""
        self.drain()
        dist.all_reduce(self._tiny)
        self.drain()

    def agree(self, value: float) -> float:
        """Return rank 0's `value` on every rank, through the store."""
        key = str(self._agreed)
        self._agreed += 1
        if self.rank == 0:
            self._numbers.set(key, repr(float(value)))
            return float(value)
        return float(self._numbers.get(key).decode())

    def explain(self, error: Exception) -> Exception:
        """Return `Unsupported` where torch says it has no such thing, else `error`."""
        text = str(error)
        if isinstance(error, Refused | Unsupported):
            return error
        if isinstance(error, RuntimeError | TypeError | ValueError) and (
            "not support" in text or "nsupported" in text or "Invalid scalar type" in text
        ):
            return Unsupported(f"{self.name}: {text.splitlines()[0]}")
        return error

    def memory_used(self) -> int | None:
        """Return None: no GPU memory."""
        return None

    def reopen(self, generation: int) -> None:
        """Replace the communicator by a fresh one."""
        self.drain()
        dist.destroy_process_group()
        self.open_group(generation)

    def close(self) -> None:
        """Leave without the farewell: the process ends by ``_exit``, which no peer waits for."""


def _run_batch(operations: list[Any]) -> None:
    for work in dist.batch_isend_irecv(operations):
        work.wait()
