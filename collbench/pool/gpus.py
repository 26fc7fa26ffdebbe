"""GPUs as NVML sees them: which are visible, who uses them. Never initialises CUDA."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from collbench.numa import visible


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuUse:
    """One visible GPU and the processes on it."""

    index: int
    """NVML's index."""
    uuid: str
    name: str
    pids: tuple[int, ...]
    utilization_pct: int | None
    pids_known: bool = True
    """False where NVML does not tell who uses it; `pids` is empty then."""


@contextmanager
def nvml() -> Iterator[Any]:
    """Yield pynvml initialised, or None on a machine without an NVIDIA driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def visible_gpus() -> list[GpuUse]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; empty without a driver."""
    with nvml() as lib:
        if lib is None:
            return []
        found = [_use(lib, index) for index in range(lib.nvmlDeviceGetCount())]
    known = {str(gpu.index): gpu for gpu in found}
    named = [(gpu.uuid, key) for key, gpu in known.items()]
    return [known[key] for key in visible(named, os.environ.get("CUDA_VISIBLE_DEVICES"))]


def _use(lib: Any, index: int) -> GpuUse:
    handle = lib.nvmlDeviceGetHandleByIndex(index)
    pids_known = True
    try:
        pids = tuple(p.pid for p in lib.nvmlDeviceGetComputeRunningProcesses(handle))
    except lib.NVMLError:
        pids, pids_known = (), False
    try:
        busy = int(lib.nvmlDeviceGetUtilizationRates(handle).gpu)
    except lib.NVMLError:
        busy = None
    return GpuUse(
        index=index,
        uuid=_text(lib.nvmlDeviceGetUUID(handle)),
        name=_text(lib.nvmlDeviceGetName(handle)),
        pids=pids,
        utilization_pct=busy,
        pids_known=pids_known,
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def wait_until_idle(timeout_s: float) -> list[GpuUse]:
    """Wait until no visible GPU holds a process or computes; return those that still do.

    Args:
        timeout_s: How long a killed process may take to leave the driver.
    """
    end = time.monotonic() + timeout_s
    while True:
        busy = [gpu for gpu in visible_gpus() if gpu.pids or (gpu.utilization_pct or 0) >= 95]
        if not busy or time.monotonic() > end:
            return busy
        time.sleep(0.25)
