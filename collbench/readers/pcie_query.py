"""Links of the GPUs as `nvidia-smi -q` or its CSV query prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from collbench.readers import Reading, UnreadableError
from collbench.readers.text import Line, Section, csv_fields, lines_of

_FIELD = re.compile(r"( *)([A-Za-z][^:]{0,60}?) *: (.*)")
_HEAD = re.compile(r"( *)([A-Za-z][\w .()/-]{0,60})\s*$")
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_ATTACHED = re.compile(r"^Attached GPUs +: (\d{1,3})", re.MULTILINE)
"""Of the machine, also where only some of them are listed (``-i``)."""
_FIRST_INT = re.compile(r"\s*(\d+)")
FIELDS = ("bus", "gen_current", "gen_max", "width_current", "width_max", "pstate", "util")
_LINK = "pci/gpu link info"
_PATHS = {
    f"{_LINK}/pcie generation/current": "gen_current",
    f"{_LINK}/pcie generation/max": "gen_max",
    f"{_LINK}/pcie generation/device max": "device_max",
    f"{_LINK}/pcie generation/host max": "host_max",
    f"{_LINK}/link width/current": "width_current",
    f"{_LINK}/link width/max": "width_max",
    "pci/tx throughput": "tx",
    "pci/rx throughput": "rx",
    "utilization/gpu": "util",
}
_QUERIED = {
    "pci.bus_id": "bus",
    "gpu_bus_id": "bus",
    "pcie.link.gen.current": "gen_current",
    "pcie.link.gen.gpucurrent": "gen_current",
    "pcie.link.gen.max": "gen_max",
    "pcie.link.gen.gpumax": "device_max",
    "pcie.link.gen.hostmax": "host_max",
    "pcie.link.width.current": "width_current",
    "pcie.link.width.max": "width_max",
    "pstate": "pstate",
    "utilization.gpu": "util",
    "driver_version": "driver",
}
LOADED_PERCENT = 10
"""From this utilization on, or from 100 MB/s on the link, a card is at work."""


def query_reading(section: Section) -> Reading:
    """Return driver, links and state of every GPU, and those with a fault.

    Raises:
        UnreadableError: no GPU is described, or the last one is cut off.
    """
    lines = list(lines_of(section))
    driver, gpus = _csv(lines) if "pcie.link" in section.text[:2000] else _listing(lines)
    attached = _ATTACHED.search(section.text)
    if not gpus:
        raise UnreadableError("no GPU is described")
    whole = [gpu for gpu in gpus if "gen_current" in gpu and "width_current" in gpu]
    ended = all("util" in gpu for gpu in gpus[:-1])
    if not whole:
        raise UnreadableError("no link is described")
    if gpus[-1] not in whole or (len(gpus) > 1 and ended and "util" not in gpus[-1]):
        raise UnreadableError(
            f"truncated: the block of GPU {gpus[-1].get('bus')} is incomplete",
            code="topo.truncated",
            line=gpus[-1]["line"],
        )
    facts = {
        "driver": driver,
        "gpus": [{name: gpu.get(name) for name in FIELDS} for gpu in gpus],
        "affected": [gpu["bus"] for gpu in gpus if faults(gpu)],
    }
    where = {f"gpu:{gpu['bus']}": gpu["line"] for gpu in gpus}
    drivers = [line.number for line in lines if line.text.startswith("Driver Version")]
    if drivers:
        where["driver"] = drivers[0]
    signs = {"gpus": gpus, "attached": max(len(gpus), int(attached[1]) if attached else 0)}
    return Reading(kind="pcie_query", facts=facts, signs=signs, lines=where)


def faults(gpu: Mapping[str, Any]) -> list[str]:
    """Return ``width`` and ``generation``, where they are below what both ends allow.

    A width counts always; a generation only while the card works, since idle links slow down to
    save power.
    """
    found = []
    width, width_max = gpu.get("width_current"), gpu.get("width_max")
    if width and width_max and width < width_max:
        found.append("width")
    allowed = [gpu[name] for name in ("gen_max", "device_max", "host_max") if gpu.get(name)]
    generation = gpu.get("gen_current")
    if generation and allowed and generation < min(allowed) and loaded(gpu):
        found.append("generation")
    return found


def loaded(gpu: Mapping[str, Any]) -> bool:
    """Return whether the card was at work when it was asked."""
    traffic = (gpu.get("tx") or 0) + (gpu.get("rx") or 0)
    return (gpu.get("util") or 0) >= LOADED_PERCENT or traffic >= 100_000


def _listing(lines: list[Line]) -> tuple[str | None, list[dict[str, Any]]]:
    driver: str | None = None
    gpus: list[dict[str, Any]] = []
    for line, path, value in _walk(lines):
        if path == "" and (match := _GPU.match(line.text)):
            gpus.append({"bus": match[1], "line": line.number})
        elif path == "driver version":
            driver = value or None
        elif gpus and path == "performance state":
            gpus[-1]["pstate"] = None if value == "N/A" else value
        elif gpus and path in _PATHS and _PATHS[path] not in gpus[-1]:
            number = _FIRST_INT.match(value)
            gpus[-1][_PATHS[path]] = int(number[1]) if number else None
    return driver, gpus


def _walk(lines: list[Line]) -> Iterator[tuple[Line, str, str]]:
    """Yield (line, path below the GPU in lower case, value) by indentation."""
    stack: list[tuple[int, str]] = []
    for line in lines:
        if _GPU.match(line.text):
            stack = []
            yield line, "", ""
            continue
        field = _FIELD.fullmatch(line.text.rstrip())
        head = None if field else _HEAD.fullmatch(line.text)
        match = field or head
        if match is None:
            continue
        indent = len(match[1])
        while stack and stack[-1][0] >= indent:
            stack.pop()
        name = match[2].strip().lower()
        if field:
            yield line, "/".join([*(part for _, part in stack), name]), field[3].strip()
        else:
            stack.append((indent, name))


def _csv(lines: list[Line]) -> tuple[str | None, list[dict[str, Any]]]:
    start = next(i for i, line in enumerate(lines) if "pcie.link" in line.text)
    names = [re.sub(r"\s*\[.*", "", name.strip()) for name in lines[start].text.split(",")]
    driver: str | None = None
    gpus: list[dict[str, Any]] = []
    for line in lines[start + 1 :]:
        cells = [cell.strip() for cell in csv_fields(line.text)]
        if len(cells) != len(names):
            if cells and not line.whole:
                gpus.append({"bus": cells[0], "line": line.number})
            continue
        gpu: dict[str, Any] = {"line": line.number}
        for name, cell in zip(names, cells, strict=True):
            key = _QUERIED.get(name)
            number = _FIRST_INT.match(cell)
            if key == "driver":
                driver = cell.strip()
            elif key in ("bus", "pstate"):
                gpu[key] = cell.strip()
            elif key:
                gpu[key] = int(number[1]) if number else None
        gpu.setdefault("bus", f"GPU {len(gpus)}")
        gpus.append(gpu)
    return driver, gpus
