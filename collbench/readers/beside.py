"""Inputs of a file that its reading did not use: `tail -n +1 *` joins all there is."""

from __future__ import annotations

from collections.abc import Mapping

from collbench.readers.text import Section

_ALL = 1 << 30
_USED: dict[str, dict[str, int]] = {
    "topo_m": {"topo_m": 1},
    "topo_p2p": {"topo_p2p": _ALL},
    "topo_affinity": {"topo_m": 1},
    "nccl_log": {"nccl_log": _ALL, "topo_p2p": 1},
    "nccl_tests": {"nccl_tests": 1},
    "pcie_query": {"pcie_query": 1},
    "pcie_lspci": {"pcie_lspci": 1, "cmdline": 1},
    "pcie_sysfs": {"pcie_sysfs": 1},
}
"""Kind -> how many sections of a sort its reading puts together."""
_ALONE = ("topo_m", "topo_p2p", "nccl_tests", "pcie_query", "pcie_lspci", "pcie_sysfs", "cmdline")
"""Sorts that say something each by itself; files of a launch, say, only do so together."""


def beside(kind: str, sorts: Mapping[str, list[Section]]) -> list[list[Section]]:
    """Return the sections that a reading of `kind` left out, in groups to be read together."""
    used = _USED.get(kind, {})
    left = {sort: sections[used.get(sort, 0) :] for sort, sections in sorts.items()}
    groups = [[section] for sort in _ALONE for section in left.get(sort, ())]
    return groups + ([left["nccl_log"]] if left.get("nccl_log") else [])
