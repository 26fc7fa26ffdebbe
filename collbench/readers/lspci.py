"""Links and access control of PCI devices as `lspci -vv` prints them, and the kernel's words."""

from __future__ import annotations

import re
from typing import Any

from collbench.readers import Reading, UnreadableError
from collbench.readers.sysfs_links import at_work
from collbench.readers.text import Section, lines_of

DEVICE = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (\S.*)")
_SPEED = re.compile(r"Speed ([\d.]+)GT/s")
_WIDTH = re.compile(r"Width x(\d+)")
_ACS = re.compile(r"(\w+)([+-])")
_BUSES = re.compile(
    r"Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})"
)
_KERNEL_WORD = re.compile(r"(?:intel_iommu|amd_iommu|iommu(?:\.\w+)?)(?:=\S*)?")


def lspci_reading(section: Section, cmdline: Section | None = None) -> Reading:
    """Return link and access control of every device that has either.

    Raises:
        UnreadableError: no device with a link is listed.
    """
    devices: list[dict[str, Any]] = []
    signs: dict[str, dict[str, Any]] = {}
    lines: dict[str, int] = {}
    remarks: list[str] = []
    for line in lines_of(section):
        if match := DEVICE.match(line.text):
            devices.append(_empty(match[1]))
            signs[match[1]] = {"name": match[2], "bridge": "bridge" in match[2].lower()}
            lines[f"dev:{match[1]}"] = line.number
            continue
        text = line.text.strip()
        if text.startswith("#"):
            remarks.append(text)
        elif text.startswith("BOOT_IMAGE=") and cmdline is None:
            cmdline = Section("", text, line.number)
        if not devices or not line.text[:1].isspace():
            continue
        device = devices[-1]
        if text.startswith("LnkCap:"):
            device["cap_speed"], device["cap_width"] = _link(text)
        elif text.startswith("LnkSta:"):
            device["sta_speed"], device["sta_width"] = _link(text)
        elif text.startswith("ACSCtl:"):
            device["acs_on"] = [name for name, sign in _ACS.findall(text[7:]) if sign == "+"]
            lines[f"acs:{device['bdf']}"] = line.number
        elif match := _BUSES.match(text):
            signs[device["bdf"]]["buses"] = tuple(int(number, 16) for number in match.groups())
    kept = [
        device
        for device in devices
        if device["cap_width"] is not None
        or device["sta_width"] is not None
        or device["acs_on"] is not None
    ]
    if not kept:
        raise UnreadableError("no device with a link is listed (was it lspci -vv, as root?)")
    facts = {
        "devices": kept,
        "redirecting": [device["bdf"] for device in kept if redirects(device, signs)],
        "cmdline": kernel_words(cmdline.text) if cmdline else None,
    }
    if cmdline:
        lines["cmdline"] = cmdline.start
    found = {"devices": signs, "loaded": at_work(remarks)}
    return Reading(kind="pcie_lspci", facts=facts, signs=found, lines=lines)


def redirects(device: dict[str, Any], signs: dict[str, dict[str, Any]]) -> bool:
    """Return whether a port sends peer traffic through the root complex; the control line says."""
    on = device["acs_on"] or ()
    return signs[device["bdf"]]["bridge"] and ("ReqRedir" in on or "CmpltRedir" in on)


def kernel_words(text: str) -> dict[str, str]:
    """Return the IOMMU words of a kernel command line; a word without a value is ``""``.

    >>> kernel_words("ro quiet amd_iommu=on iommu=pt")
    {'amd_iommu': 'on', 'iommu': 'pt'}
    """
    words = (word for word in text.split() if _KERNEL_WORD.fullmatch(word))
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def translates(words: dict[str, str]) -> bool:
    """Return whether the words turn address translation on, without pass-through.

    >>> translates({"intel_iommu": "on"}), translates({"intel_iommu": "on", "iommu": "pt"})
    (True, False)
    """
    if words.get("iommu") in ("pt", "off") or words.get("iommu.passthrough") in ("1", "on", "y"):
        return False
    on = any(
        part in ("on", "force_enable", "force_isolation")
        for name in ("intel_iommu", "amd_iommu")
        for part in words.get(name, "").split(",")
    )
    return on or words.get("iommu") in ("force", "nopt") or words.get("iommu.passthrough") == "0"


def _empty(bdf: str) -> dict[str, Any]:
    keys = ("cap_speed", "cap_width", "sta_speed", "sta_width", "acs_on")
    return {"bdf": bdf, **dict.fromkeys(keys)}


def _link(text: str) -> tuple[float | int | None, int | None]:
    speed, width = _SPEED.search(text), _WIDTH.search(text)
    number = float(speed[1]) if speed else None
    return (
        int(number) if number is not None and number.is_integer() else number,
        int(width[1]) if width else None,
    )
