"""GPUs as NVML shows them, without initialising CUDA. No GPU is an answer, not an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_DEVICES = ("/dev/nvidiactl", "/dev/dxg")
"""One of them exists wherever NVML can answer; looking is quicker than importing NVML."""


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU now; None where NVML does not tell."""

    index: int
    name: str
    uuid: str
    pci: str
    memory_used: int | None = None
    memory_total: int | None = None
    busy_pct: int | None = None
    link_gen: int | None = None
    link_gen_max: int | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    pids: list[int] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether it does nothing: then a low link generation saves power."""
        return self.busy_pct == 0


def states() -> tuple[list[GpuState], str | None, str]:
    """Return the GPUs, the driver's version, and why there are none (empty if there are)."""
    if not any(Path(device).exists() for device in _DEVICES):
        return [], None, "no NVIDIA driver here"
    try:
        import pynvml
    except ImportError:
        return [], None, "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [], None, f"no GPU seen: {error}"
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        count = pynvml.nvmlDeviceGetCount()
        return [_state(pynvml, index) for index in range(count)], driver, ""
    except pynvml.NVMLError as error:
        return [], None, f"NVML: {error}"
    finally:
        pynvml.nvmlShutdown()


def _state(nvml: Any, index: int) -> GpuState:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(handle, *arguments)
        except nvml.NVMLError:
            return None

    memory = ask(nvml.nvmlDeviceGetMemoryInfo)
    use = ask(nvml.nvmlDeviceGetUtilizationRates)
    pci = ask(nvml.nvmlDeviceGetPciInfo)
    running = ask(nvml.nvmlDeviceGetComputeRunningProcesses) or []
    return GpuState(
        index=index,
        name=_text(ask(nvml.nvmlDeviceGetName)),
        uuid=_text(ask(nvml.nvmlDeviceGetUUID)),
        pci=_text(pci.busId).lower() if pci else "",
        memory_used=memory.used if memory else None,
        memory_total=memory.total if memory else None,
        busy_pct=use.gpu if use else None,
        link_gen=ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration),
        link_gen_max=ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration),
        link_width=ask(nvml.nvmlDeviceGetCurrPcieLinkWidth),
        link_width_max=ask(nvml.nvmlDeviceGetMaxPcieLinkWidth),
        pids=[process.pid for process in running],
    )


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
