"""Links on the path of every GPU to its root port, from a listing of sysfs.

A line is ``BDF/attribute=value`` or what ``grep . /sys/.../BDF/attribute`` prints. A link joins a
port (a root port, or a switch's lower port) and the device below it; a switch's upper and lower
port are joined inside the switch, which is no link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from collbench.readers import Reading, UnreadableError
from collbench.readers.text import Section, lines_of

_BDF = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
ATTRIBUTE = re.compile(rf"((?:/?[\w.:-]+/)*)({_BDF})/(\w{{1,40}})\s*[=:]\s*(.{{0,200}})$")
_ANCESTOR = re.compile(_BDF)
_SPEED = re.compile(r"([\d.]+) ?GT/s")
_LOADED = re.compile(
    r"under load|(?:while|during)\b.{0,60}\b(?:run|load|test|bench|serv|work)|is busy", re.I
)
_IDLE = re.compile(r"\bidle\b", re.I)
_MAX_DEPTH = 32


@dataclass(slots=True)
class Device:
    """One PCI device of the listing."""

    bdf: str
    line: int
    attributes: dict[str, str] = field(default_factory=dict)
    parent: str | None = None

    def number(self, name: str) -> float | None:
        """Return a speed in GT/s, a width, or a node; None where it is unknown."""
        text = self.attributes.get(name, "")
        match = _SPEED.match(text) or re.fullmatch(r"(-?\d+)", text)
        return float(match[1]) if match else None

    @property
    def link(self) -> tuple[float, int] | None:
        """Current (GT/s, lanes) as this end reports it."""
        speed, width = self.number("current_link_speed"), self.number("current_link_width")
        return (speed, int(width)) if speed and width else None

    @property
    def best(self) -> tuple[float, int] | None:
        """Largest (GT/s, lanes) of this end."""
        speed, width = self.number("max_link_speed"), self.number("max_link_width")
        return (speed, int(width)) if speed and width else None

    @property
    def is_gpu(self) -> bool:
        """Whether the class is that of a display or 3D controller."""
        return self.attributes.get("class", "").lower().startswith(("0x0300", "0x0302"))


def capacity(link: tuple[float, int]) -> float:
    """Return what a link carries in Gbit/s; up to generation 2 a fifth is coding."""
    speed, width = link
    return speed * width * (0.8 if speed <= 5 else 128 / 130)


def sysfs_reading(section: Section) -> Reading:
    """Return own and effective link of every GPU.

    Raises:
        UnreadableError: no GPU with a link is listed.
    """
    devices, remarks = _devices(section)
    gpus = {bdf: device for bdf, device in devices.items() if device.is_gpu and device.link}
    if not gpus:
        raise UnreadableError("no GPU with a link is listed")
    facts: dict[str, Any] = {"gpus": {}}
    for bdf, device in gpus.items():
        facts["gpus"][bdf] = _path(device, devices)
    loaded = at_work(remarks)
    return Reading(
        kind="pcie_sysfs",
        facts=facts,
        signs={"devices": devices, "loaded": loaded},
        lines={f"dev:{bdf}": device.line for bdf, device in devices.items()},
    )


def at_work(remarks: Iterable[str]) -> bool:
    """Return whether a remark says that the machine was at work when it was looked at."""
    return any(_LOADED.search(text) and not _IDLE.search(text) for text in remarks)


def attributes_of_files(parts: Sequence[Section]) -> Section | None:
    """Return sections that are attribute files of sysfs (``tail -n +1``) as one listing."""
    lines = [f"{part.name}={part.text.strip()}" for part in parts if part.text.strip()]
    good = sum("/" in line and ATTRIBUTE.match(line) is not None for line in lines)
    if not good or good * 2 < len(lines):
        return None
    return Section("", "\n".join(lines) + "\n", parts[0].start)


def _devices(section: Section) -> tuple[dict[str, Device], list[str]]:
    devices: dict[str, Device] = {}
    remarks: list[str] = []
    for line in lines_of(section):
        match = ATTRIBUTE.match(line.text)
        if not match:
            if line.text.startswith("#"):
                remarks.append(line.text)
            continue
        device = devices.setdefault(match[2], Device(match[2], line.number))
        if match[3] == "parent":
            device.parent = match[4].strip()
        else:
            device.attributes[match[3]] = match[4].strip()
        above = _ANCESTOR.findall(match[1])
        if above:
            device.parent = above[-1]
    return devices, remarks


def _path(gpu: Device, devices: dict[str, Device]) -> dict[str, Any]:
    own = gpu.link or (0.0, 0)
    effective, narrowest = own, None
    for upper, lower in links_above(gpu, devices):
        ends = [end.link for end in (upper, lower) if end and end.link]
        if not ends:
            continue
        link = min(ends, key=capacity)
        if capacity(link) < capacity(effective):
            effective = link
            narrowest = None if lower is gpu else [upper.bdf if upper else None, lower.bdf]
    numa = gpu.number("numa_node")
    return {
        "own": list(own),
        "effective": list(effective),
        "narrowest_link": narrowest,
        "numa": int(numa) if numa is not None else None,
    }


def links_above(gpu: Device, devices: dict[str, Device]) -> list[tuple[Device | None, Device]]:
    """Return the links (upper end, lower end) from a GPU up to its root port."""
    chain = [gpu]
    while len(chain) < _MAX_DEPTH and (parent := devices.get(chain[-1].parent or "")):
        if parent in chain:
            break
        chain.append(parent)
    return [
        (chain[i + 1] if i + 1 < len(chain) else None, chain[i]) for i in range(0, len(chain), 2)
    ]
