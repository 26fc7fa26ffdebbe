"""What this machine is: GPUs, links, NUMA, CPUs, driver and libraries, as a stored fingerprint.

The models need pydantic, which light commands have no time to import; `collbench.machine.probe`
reads the same facts as plain values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collbench.machine.models import Fingerprint, Gpu, fingerprint

__all__ = ["Fingerprint", "Gpu", "fingerprint"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from collbench.machine import models

        return getattr(models, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
