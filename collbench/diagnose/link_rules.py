"""Links of GPUs and above them, as `lspci -vv` lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collbench.findings import Finding
from collbench.readers import Reading

_Device = Mapping[str, Any]
_MAX_DEPTH = 32


def narrow_link(evidence: str, line: int | None) -> Finding:
    """Return the finding on a GPU's link that lost lanes."""
    return Finding(
        code="link.width_reduced",
        line=line,
        evidence=evidence,
        next="reseat card and riser, clean the contacts, check bifurcation in the BIOS; "
        "`lspci -vv` shows both ends",
    )


def slow_link(evidence: str, line: int | None) -> Finding:
    """Return the finding on a GPU's link that stays slow while it works."""
    return Finding(
        code="link.gen_low_under_load",
        line=line,
        evidence=f"{evidence}, at work",
        next="check BIOS link speed and riser; count replays under load with "
        "`nvidia-smi -q | grep -i replay`",
    )


def narrow_uplink(evidence: str, line: int | None) -> Finding:
    """Return the finding on a link above a GPU that is slower than the GPU's own."""
    return Finding(
        code="link.upstream_narrower",
        line=line,
        evidence=evidence,
        next="check cable, slot and bifurcation of the switch's uplink",
    )


def judge_links(reading: Reading) -> list[Finding]:
    """Return lost lanes of GPUs, lost speed while they work, and slower links above them."""
    devices: Sequence[_Device] = reading.facts["devices"]
    signs: Mapping[str, Mapping[str, Any]] = reading.signs.get("devices", {})
    loaded = reading.signs.get("loaded", False)
    found: dict[str, Finding] = {}
    for index, gpu in enumerate(devices):
        if not _is_gpu(signs.get(gpu["bdf"], {})):
            continue
        chain = [gpu, *_above(devices, signs, index)]
        width, speed = (_least(chain[:2], f"cap_{name}") for name in ("width", "speed"))
        line = reading.line(f"dev:{gpu['bdf']}")
        if gpu["sta_width"] and width and gpu["sta_width"] < width:
            evidence = f"{gpu['bdf']} x{gpu['sta_width']} of x{width}"
            found.setdefault("narrow", narrow_link(evidence, line))
        if loaded and gpu["sta_speed"] and speed and gpu["sta_speed"] < speed:
            evidence = f"{gpu['bdf']} {gpu['sta_speed']} of {speed} GT/s"
            found.setdefault("slow", slow_link(evidence, line))
        # A port and what is plugged into it make a link; the two ports of a switch do not.
        for at in range(2, len(chain), 2):
            lower = chain[at]
            lanes, rate = (_least(chain[at : at + 2], f"sta_{n}") for n in ("width", "speed"))
            fewer = lanes and gpu["sta_width"] and lanes < gpu["sta_width"]
            slower = loaded and rate and gpu["sta_speed"] and rate < gpu["sta_speed"]
            if fewer or slower:
                evidence = (
                    f"link to {lower['bdf']} above {gpu['bdf']} runs {rate} GT/s x{lanes}, "
                    f"the GPU itself {gpu['sta_speed']} GT/s x{gpu['sta_width']}"
                )
                where = reading.line(f"dev:{lower['bdf']}")
                found.setdefault("uplink", narrow_uplink(evidence, where))
    return list(found.values())


def _is_gpu(sign: Mapping[str, Any]) -> bool:
    name = str(sign.get("name", ""))
    other = sign.get("bridge") or "Audio" in name or "USB" in name
    return "NVIDIA" in name.upper() and not other


def _least(ends: Sequence[_Device], key: str) -> Any:
    return min((end[key] for end in ends if end[key]), default=None)


def _above(
    devices: Sequence[_Device], signs: Mapping[str, Mapping[str, Any]], index: int
) -> list[_Device]:
    """Return the ports above a device, up to the root port, as far as they are listed."""
    found: list[_Device] = []
    while len(found) < _MAX_DEPTH:
        parent = _parent(devices[:index], signs, devices[index]["bdf"])
        if parent is None:
            break
        found.append(parent)
        index = devices.index(parent)
    return found


def _parent(
    before: Sequence[_Device], signs: Mapping[str, Mapping[str, Any]], bdf: str
) -> _Device | None:
    """Return the bridge whose secondary bus a device is on; without bus lines the nearest."""
    bus = int(bdf.rsplit(":", 2)[-2], 16)
    bridges = [d for d in before if signs.get(d["bdf"], {}).get("bridge")]
    told = [d for d in bridges if "buses" in signs[d["bdf"]]]
    for device in told:
        if signs[device["bdf"]]["buses"][1] == bus:
            return device
    if told or not bridges:
        return None
    return bridges[-1] if int(bridges[-1]["bdf"].rsplit(":", 2)[-2], 16) < bus else None
