"""Reads a machine's facts as plain values: NVML, sysfs, procfs, installed packages.

Neither CUDA nor torch is touched, so a process that forks ranks later may call it. Files are read
below a root path, so that other machines can be described in tests.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from collbench.numa import device_node, online_nodes, visible

_CMDLINE_WORDS = ("iommu", "intel_iommu", "amd_iommu", "pci", "pcie_", "numa", "nvidia")
# Bits of nvmlClocksEventReasons: nvml.h.
_SLOWDOWNS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


def read_machine(root: Path = Path("/")) -> dict[str, Any]:
    """Return the fields of a `Fingerprint`, None where the machine does not tell."""
    library, library_path = installed_nccl()
    gpus, driver, cuda = read_gpus(root)
    return {
        "host": os.uname().nodename,
        "gpus": gpus,
        "driver": driver,
        "cuda": cuda,
        "torch": _version("torch"),
        "library": library,
        "library_path": library_path,
        "python": platform.python_version(),
        "cpu": cpu_model(root),
        "cpus": os.cpu_count() or 0,
        "numa_nodes": len(online_nodes(str(root))) or None,
        "kernel": os.uname().release,
        "cmdline": cmdline_words(root),
        "shm_bytes": shm_bytes(root),
        "nccl_conf": nccl_conf_digests(),
    }


@contextmanager
def _nvml() -> Iterator[Any]:
    """Yield pynvml with the driver open, or None where there is no driver or no package."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """Return what an NVML function says; None where this GPU or driver has no answer."""
    try:
        value = getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None
    return value.decode() if isinstance(value, bytes) else value


def read_gpus(root: Path = Path("/")) -> tuple[list[dict[str, Any]], str | None, str | None]:
    """Return the GPUs that CUDA will see, the driver's version and the CUDA it supports."""
    with _nvml() as nvml:
        if nvml is None:
            return [], None, None
        gpus = []
        for index in range(_ask(nvml, "nvmlDeviceGetCount") or 0):
            handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                gpus.append(_gpu(nvml, index, handle, root))
        known = [(gpu["uuid"] or "", gpu["pci"] or "") for gpu in gpus]
        shown = visible(known, os.environ.get("CUDA_VISIBLE_DEVICES"))
        code = _ask(nvml, "nvmlSystemGetCudaDriverVersion")
        cuda = f"{code // 1000}.{code % 1000 // 10}" if isinstance(code, int) else None
        return (
            [gpu for gpu in gpus if (gpu["pci"] or "") in shown],
            _ask(nvml, "nvmlSystemGetDriverVersion"),
            cuda,
        )


def _gpu(nvml: Any, index: int, handle: Any, root: Path) -> dict[str, Any]:
    info = _ask(nvml, "nvmlDeviceGetPciInfo", handle)
    pci = f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0" if info else None
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    return {
        "index": index,
        "name": _ask(nvml, "nvmlDeviceGetName", handle) or "unknown GPU",
        "uuid": _ask(nvml, "nvmlDeviceGetUUID", handle),
        "pci": pci,
        "numa_node": device_node(pci, str(root)) if pci else None,
        "memory_bytes": int(memory.total) if memory else None,
        "link_gen_max": _ask(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "link_width_max": _ask(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle),
    }


def gpu_warnings() -> list[str]:
    """Return what now makes a GPU of this machine slower or less trustworthy than it could be."""
    with _nvml() as nvml:
        if nvml is None:
            return []
        found: list[str] = []
        for index in range(_ask(nvml, "nvmlDeviceGetCount") or 0):
            handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                found += [f"GPU {index}: {text}" for text in _warnings_of(nvml, handle)]
        return found


def _warnings_of(nvml: Any, handle: Any) -> list[str]:
    found = []
    reasons = _ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:
        reasons = _ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    slow = [name for bit, name in _SLOWDOWNS.items() if isinstance(reasons, int) and reasons & bit]
    if slow:
        found.append(f"clocks are held down: {', '.join(slow)}")
    width = _ask(nvml, "nvmlDeviceGetCurrPcieLinkWidth", handle)
    widest = _ask(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle)
    if width and widest and width < widest:
        # Width does not change with load, as the generation does.
        found.append(f"PCIe link x{width} of x{widest}")
    uncorrected = _ask(
        nvml,
        "nvmlDeviceGetTotalEccErrors",
        handle,
        getattr(nvml, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", 1),
        getattr(nvml, "NVML_VOLATILE_ECC", 0),
    )
    if uncorrected:
        found.append(f"{uncorrected} uncorrected ECC errors since the driver was loaded")
    return found


def installed_nccl() -> tuple[str | None, str | None]:
    """Return the NCCL that is installed as a package beside torch, and its file."""
    for suffix in ("cu13", "cu12", "cu11"):
        try:
            package = metadata.distribution(f"nvidia-nccl-{suffix}")
        except metadata.PackageNotFoundError:
            continue
        files = [file for file in package.files or [] if file.name.startswith("libnccl.so")]
        path = str(files[0].locate()) if files else None
        return f"NCCL {package.version}", path
    return None, None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cpu_model(root: Path = Path("/")) -> str:
    """Return the CPU's name, as /proc/cpuinfo has it."""
    text = _read(root / "proc/cpuinfo") or ""
    fields = [line.partition(":") for line in text.splitlines()]
    for wanted in ("model name", "Model", "CPU part"):
        for name, _, value in fields:
            if name.strip() == wanted:
                return value.strip()
    return platform.machine()


def cmdline_words(root: Path = Path("/")) -> str | None:
    """Return the words of the kernel command line about IOMMU, PCI, NUMA and the driver."""
    text = _read(root / "proc/cmdline")
    if text is None:
        return None
    return " ".join(word for word in text.split() if word.startswith(_CMDLINE_WORDS))


def shm_bytes(root: Path = Path("/")) -> int | None:
    """Return the size of /dev/shm in bytes."""
    try:
        state = os.statvfs(root / "dev/shm")
    except OSError:
        return None
    return state.f_blocks * state.f_frsize


def nccl_conf_digests() -> dict[str, str]:
    """Return the nccl.conf files that NCCL would read here, with the SHA-256 of each."""
    named = os.environ.get("NCCL_CONF_FILE")
    own = Path(named) if named else Path("~/.nccl.conf").expanduser()
    found = {}
    for path in (own, Path("/etc/nccl.conf")):
        try:
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            continue
    return found


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
