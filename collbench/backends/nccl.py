"""NCCL through torch, one process per GPU."""

from __future__ import annotations

import ctypes
import re
import time
from typing import Any, Literal

import torch
import torch.distributed as dist

from collbench.backends import SUPPORTED_DTYPES, Refused, Unsupported, mapped_library
from collbench.backends.torch_group import TorchGroup
from collbench.job import Job, Place

# What NCCL answers when the settings, not the machine, are at fault. A system error counts only
# with the sentence that says so, since a broken driver reports the same code.
_REFUSALS = ("ncclInvalidUsage", "ncclInvalidArgument")
_NO_ALGORITHM = re.compile(r"no algorithm/protocol", re.IGNORECASE)


class Nccl(TorchGroup):
    """One rank of an NCCL group: CUDA device `local_rank`."""

    name = "nccl"
    clock: Literal["device", "host"] = "device"
    dtypes = SUPPORTED_DTYPES["nccl"]

    def __init__(self, job: Job, place: Place) -> None:
        if not torch.cuda.is_available():
            raise Unsupported("nccl: no CUDA device is visible to this process")
        started = time.perf_counter()
        try:
            torch.cuda.set_device(place.local_rank)
        except RuntimeError as error:
            # Counted only now: torch asks NVML, which takes a thirtieth of a second.
            seen = torch.cuda.device_count()
            if place.local_rank < seen:
                raise
            raise Unsupported(
                f"nccl: local rank {place.local_rank} has no GPU: {seen} seen"
            ) from error
        super().__init__(job, place, torch.device("cuda", place.local_rank))
        torch.cuda.synchronize()
        properties = torch.cuda.get_device_properties(place.local_rank)
        self.device = properties.name
        self.pci = _pci_address(properties)
        self._free_before = self._outside_torch()
        opened = time.perf_counter()
        self.open_group()
        self.seconds["context"] = opened - started

    def init_group(self, store: Any) -> None:
        """Create the group with its communicator, now: time and errors belong here."""
        dist.init_process_group(
            "nccl",
            store=store,
            rank=self.rank,
            world_size=self.nranks,
            timeout=self._timeout,
            device_id=self.torch_device,
        )

    def drain(self) -> None:
        """Wait until nothing is enqueued on the device."""
        torch.cuda.synchronize()

    def align(self) -> None:
        """Enqueue a tiny collective, after which all ranks' streams go on together."""
        dist.all_reduce(self._tiny)

    def library(self) -> tuple[str, str | None]:
        """Return ``NCCL 2.28.9`` as the mapped file itself says, and that file."""
        path = mapped_library("libnccl.so")
        version = _loaded_version(path) if path else None
        if version is None:
            # Linked into torch: there is no file of its own to ask.
            version = ".".join(str(part) for part in torch.cuda.nccl.version())
        return f"NCCL {version}", path

    def _outside_torch(self) -> int:
        """Return the device's free bytes plus what torch's allocator holds of the rest."""
        free, _ = torch.cuda.mem_get_info(self.torch_device)
        return int(free) + int(torch.cuda.memory_reserved(self.torch_device))

    def memory_used(self) -> int | None:
        """Return the bytes the communicator took: context and torch's own buffers left out."""
        return max(0, self._free_before - self._outside_torch())

    def explain(self, error: Exception) -> Exception:
        """Return `Refused` with NCCL's own line where it rejected the settings, else `error`."""
        text = str(error)
        if isinstance(error, RuntimeError) and (
            any(word in text for word in _REFUSALS) or _NO_ALGORITHM.search(text)
        ):
            return Refused(last_error_line(text))
        return super().explain(error)


def last_error_line(text: str) -> str:
    r"""Return what NCCL said last in torch's report of an NCCL error, on one line.

    >>> last_error_line("NCCL error in: x.cpp:1\nLast error:\nError : no algorithm")
    'Error : no algorithm'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for index, line in enumerate(lines[:-1]):
        if line.startswith("Last error:"):
            return lines[index + 1]
    return lines[0] if lines else "NCCL error without a text"


def _loaded_version(path: str) -> str | None:
    version = ctypes.c_int()
    try:
        library = ctypes.CDLL(path)
        if library.ncclGetVersion(ctypes.byref(version)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return version_text(version.value)


def version_text(code: int) -> str:
    """Return NCCL's version code as text.

    >>> version_text(22809), version_text(2708)
    ('2.28.9', '2.7.8')
    """
    # The code got two more digits with 2.9: NCCL_VERSION in nccl.h.
    if code < 10000:
        return f"{code // 1000}.{code % 1000 // 100}.{code % 100}"
    return f"{code // 10000}.{code % 10000 // 100}.{code % 100}"


def _pci_address(properties: Any) -> str | None:
    bus = getattr(properties, "pci_bus_id", None)
    if bus is None:
        return None
    domain = getattr(properties, "pci_domain_id", 0)
    device = getattr(properties, "pci_device_id", 0)
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"
