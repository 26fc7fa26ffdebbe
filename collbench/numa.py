"""NUMA: where a GPU's memory and CPUs are, and binding a rank to them. Standard library only.

Everything is read below a root path, so that other machines can be described in tests.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

_MPOL_PREFERRED = 1
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}


@dataclass(frozen=True, slots=True)
class Binding:
    """What was bound, and what is odd about it."""

    bound: str
    """cpus, cpus+memory, inherited, not_asked, unknown, or ``refused: REASON``."""
    pci: str | None = None
    numa_node: int | None = None
    warnings: tuple[str, ...] = ()


def parse_cpus(text: str) -> set[int]:
    """Return the CPUs of a kernel list.

    >>> sorted(parse_cpus("0-2,8"))
    [0, 1, 2, 8]
    """
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            low, _, high = part.partition("-")
            cpus.update(range(int(low), int(high or low) + 1))
    return cpus


def format_cpus(cpus: Iterable[int]) -> str:
    """Return CPUs as the kernel lists them.

    >>> format_cpus({0, 1, 2, 8})
    '0-2,8'
    """
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _read(root: str, path: str) -> str | None:
    try:
        with open(os.path.join(root, path), encoding="ascii", errors="replace") as file:  # noqa: PTH118, PTH123
            return file.read().strip()
    except OSError:
        return None


def online_nodes(root: str = "/") -> set[int]:
    """Return the NUMA nodes of the machine; empty where the kernel does not tell."""
    text = _read(root, "sys/devices/system/node/online")
    return parse_cpus(text) if text else set()


def node_cpus(node: int, root: str = "/") -> set[int]:
    """Return the CPUs of a NUMA node."""
    return parse_cpus(_read(root, f"sys/devices/system/node/node{node}/cpulist") or "")


def device_node(pci: str, root: str = "/") -> int | None:
    """Return the NUMA node of a PCI device; None where the firmware does not tell (-1)."""
    text = _read(root, f"sys/bus/pci/devices/{pci.lower()}/numa_node")
    try:
        node = int(text) if text is not None else -1
    except ValueError:
        return None
    return node if node >= 0 else None


def available_cpus(root: str = "/") -> set[int]:
    """Return the CPUs this container or job was given: its cpuset, else all that are online."""
    own = _read(root, "proc/self/cgroup") or ""
    groups = [line.partition("::")[2] for line in own.splitlines() if line.startswith("0::")]
    for group in [*groups, "/"]:
        folder = f"sys/fs/cgroup/{group.strip('/')}".rstrip("/")
        text = _read(root, f"{folder}/cpuset.cpus.effective")
        if text:
            return parse_cpus(text)
    return parse_cpus(_read(root, "sys/devices/system/cpu/online") or "")


@lru_cache(maxsize=1)
def gpu_addresses() -> tuple[str, ...]:
    """Return the PCI addresses of the GPUs CUDA will number from 0, without waking CUDA.

    Follows CUDA_VISIBLE_DEVICES. Kept, so that ranks forked afterwards need not ask again. Empty
    where there is no driver, or a device was named in a way that cannot be resolved.
    """
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append((_text(pynvml.nvmlDeviceGetUUID(handle)), _pci(pynvml, handle)))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()
    return tuple(visible(found, os.environ.get("CUDA_VISIBLE_DEVICES")))


def visible(gpus: list[tuple[str, str]], wanted: str | None) -> list[str]:
    """Return the addresses of ``[(uuid, address)]`` that CUDA_VISIBLE_DEVICES leaves, in its order.

    As CUDA does, the list ends at the first entry that names nothing.

    >>> visible([("GPU-aa", "0000:01:00.0"), ("GPU-bb", "0000:02:00.0")], "1,GPU-aa,7,0")
    ['0000:02:00.0', '0000:01:00.0']
    """
    if wanted is None:
        return [address for _, address in gpus]
    chosen = []
    for entry in wanted.split(","):
        name = entry.strip()
        if name.isdigit() and int(name) < len(gpus):
            chosen.append(gpus[int(name)][1])
            continue
        matching = [address for uuid, address in gpus if name and uuid.startswith(name)]
        if len(matching) != 1:
            break
        chosen.append(matching[0])
    return chosen


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _pci(pynvml: object, handle: object) -> str:
    info = pynvml.nvmlDeviceGetPciInfo(handle)  # type: ignore[attr-defined]
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def bind_to_gpu(local_rank: int, *, root: str = "/") -> Binding:
    """Bind this process to the CPUs and the memory of its GPU's NUMA node.

    Call it before any thread starts: affinity and memory policy are a thread's own.
    """
    addresses = gpu_addresses()
    if local_rank >= len(addresses):
        return Binding(bound="unknown")
    return bind_to_device(addresses[local_rank], root=root)


def bind_to_device(pci: str, *, root: str = "/") -> Binding:
    """Bind this process to the CPUs and the memory of a PCI device's NUMA node.

    An affinity that somebody narrowed already (``torchrun --numa-binding``, ``numactl``) is left
    alone. The memory policy is `preferred`: a full node then costs speed and not the launch.
    """
    node = device_node(pci, root)
    allowed = os.sched_getaffinity(0)
    if node is None:
        return Binding(bound="unknown", pci=pci)
    wanted = node_cpus(node, root)
    if not wanted:
        return Binding(bound="unknown", pci=pci, numa_node=node)
    if allowed < available_cpus(root):
        return Binding(
            bound="inherited", pci=pci, numa_node=node, warnings=_mismatch(allowed, wanted, pci)
        )
    if not wanted & allowed:
        reason = "none of the node's CPUs is allowed here"
        return Binding(
            bound=f"refused: {reason}",
            pci=pci,
            numa_node=node,
            warnings=_mismatch(allowed, wanted, pci),
        )
    try:
        os.sched_setaffinity(0, wanted & allowed)
    except OSError as error:
        return _refused("sched_setaffinity", error.errno, pci, node)
    code = _prefer_memory(node)
    if code:
        text = f"GPU {pci}: memory of node {node} could not be preferred: {os.strerror(code)}"
        return Binding(bound="cpus", pci=pci, numa_node=node, warnings=(text,))
    return Binding(bound="cpus+memory", pci=pci, numa_node=node)


def _refused(what: str, code: int | None, pci: str, node: int) -> Binding:
    text = f"{what}: {os.strerror(code or 0)}"
    return Binding(
        bound=f"refused: {text}", pci=pci, numa_node=node, warnings=(f"GPU {pci}: {text}",)
    )


def _mismatch(allowed: set[int], wanted: set[int], pci: str) -> tuple[str, ...]:
    """Return the warning of a rank that runs beside its GPU's node."""
    if allowed <= wanted:
        return ()
    return (
        f"GPU {pci} belongs to CPUs {format_cpus(wanted)}, its rank may run on"
        f" {format_cpus(allowed)}",
    )


def _prefer_memory(node: int) -> int:
    """Prefer a node's memory for this thread and its children; return 0 or an errno."""
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        return 38  # ENOSYS
    words = node // 64 + 1
    mask = (ctypes.c_ulong * words)()
    mask[node // 64] = 1 << (node % 64)
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel reads one bit less than it is told.
    if libc.syscall(number, _MPOL_PREFERRED, ctypes.byref(mask), words * 64 + 1) != 0:
        return ctypes.get_errno()
    return 0
