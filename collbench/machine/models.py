"""The stored models of a machine, and the fingerprint of this one."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from collbench.machine.probe import read_machine


class Gpu(BaseModel):
    """One GPU as NVML and sysfs tell it; None where they do not."""

    model_config = ConfigDict(frozen=True, extra="allow")

    index: int
    name: str
    uuid: str | None = None
    pci: str | None = None
    """Bus address, lower case, ``0000:c1:00.0``."""
    numa_node: int | None = None
    memory_bytes: int | None = None
    link_gen_max: int | None = None
    link_width_max: int | None = None


class Fingerprint(BaseModel):
    """Machine and libraries a number or a profile belongs to."""

    model_config = ConfigDict(frozen=True, extra="allow")

    host: str = ""
    gpus: list[Gpu] = []
    driver: str | None = None
    cuda: str | None = None
    torch: str | None = None
    library: str | None = None
    """Communication library as loaded, for example ``NCCL 2.28.9`` or ``Open MPI 5.0.11``."""
    library_path: str | None = None
    python: str = ""
    cpu: str = ""
    cpus: int = 0
    numa_nodes: int | None = None
    kernel: str = ""
    cmdline: str | None = None
    """Kernel command line, IOMMU and PCI words only."""
    shm_bytes: int | None = None
    nccl_conf: dict[str, str] = {}
    """nccl.conf files that exist -> SHA-256 of their text."""


def fingerprint(*, library: str | None = None, library_path: str | None = None) -> Fingerprint:
    """Return the fingerprint of this machine; neither wakes CUDA nor imports torch.

    Args:
        library: The communication library as a launch found it loaded; without it, what is
            installed beside torch stands in.
        library_path: Its file.
    """
    facts = read_machine()
    if library:
        facts["library"], facts["library_path"] = library, library_path
    return Fingerprint.model_validate(facts)
