"""A profile as what a reader is given: wanted variables, and the machine they were made on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from collbench.profiles.store import Reference, load
from collbench.readers import Given


def given_of_profile(reference: str | Path) -> Given:
    """Return what a profile makes known.

    Raises:
        CollbenchError: it is not found or not readable.
    """
    return given_of_reference(load(reference))


def given_of_reference(found: Reference) -> Given:
    """Return what a loaded profile, or a bare env file, makes known."""
    machine = found.profile.machine if found.profile else {}
    stored: dict[str, Any] = {}
    gpus = machine.get("gpus")
    if isinstance(gpus, list) and gpus:
        stored["gpus"] = len(gpus)
        nodes = [gpu.get("numa_node") for gpu in gpus if isinstance(gpu, dict)]
        if None not in nodes:
            stored["numa"] = nodes
    library = re.search(r"NCCL (\d+\.\d+\.\d+)", str(machine.get("library") or ""))
    if library:
        stored["nccl_version"] = library[1]
    if machine.get("driver"):
        stored["driver"] = str(machine["driver"])
    return Given(
        profile=found.settings, stored=stored, nccl_version=library[1] if library else None
    )
