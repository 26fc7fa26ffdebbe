"""Machines of one class against each other: what differs, and what regressed. Pure.

The class is the hardware: GPUs, CPU, NUMA nodes. Inside it a machine is compared with the others:
with the value most of them have, and with the median of their measurements. Nothing is judged
where there is nobody to compare with.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from collbench.fleet.collect import Machine
from collbench.profiles import machine_class

SLOW_LINK = 0.7
"""A pair below this share of the bandwidth the other machines see between the same ranks."""
SLOW_LATENCY = 1.5
SLOW_DEFAULT = 1.10
"""A default this much slower than that of the other machines, for the same workload."""
GOOD_FROM = 2
_SAME = ("library", "driver", "cuda", "torch", "kernel", "cmdline", "nccl_conf", "shm_bytes")
_BAD_CHECKS = ("regressed", "no_longer_helps")


@dataclass(frozen=True, kw_only=True, slots=True)
class Deviation:
    """One way in which a machine is not as it should be."""

    code: str
    """``regressed``, ``differs.FIELD``, ``settings``, ``slow_link`` or ``slow_default``."""
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineClass:
    """Machines with the same hardware."""

    id: str
    title: str
    machines: tuple[Machine, ...]
    settings: dict[str, str] | None
    """What most of its profiles set; None without a profile."""
    good: bool
    """Those settings are confirmed on at least two machines."""


def classes(machines: Sequence[Machine]) -> list[MachineClass]:
    """Return the classes, the largest first; machines that left no fingerprint stand alone."""
    groups: dict[str, list[Machine]] = {}
    for machine in machines:
        if machine.facts:
            text = json.dumps(machine_class(machine.facts), sort_keys=True)
            key = hashlib.sha256(text.encode()).hexdigest()[:8]
        else:
            key = f"unknown-{machine.name}"
        groups.setdefault(key, []).append(machine)
    found = []
    for key, members in groups.items():
        # a copy of a machine's results confirms nothing a second time
        confirmed = {
            (one.host or one.name, _settings(one)) for one in members if one.profile is not None
        }
        votes = Counter(settings for _, settings in confirmed)
        best = votes.most_common(1)
        found.append(
            MachineClass(
                id=key,
                title=_title(members[0]),
                machines=tuple(members),
                settings=dict(best[0][0]) if best else None,
                good=bool(best) and best[0][1] >= GOOD_FROM,
            )
        )
    return sorted(found, key=lambda one: (-len(one.machines), one.id))


def _title(machine: Machine) -> str:
    gpus = machine.facts.get("gpus") or []
    if gpus:
        return f"{len(gpus)}x {gpus[0].get('name') or 'GPU'}"
    return str(machine.facts.get("cpu") or "unknown")


def _settings(machine: Machine) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(machine.profile.settings.items())) if machine.profile else ()


def deviations(machine: Machine, of: MachineClass) -> list[Deviation]:
    """Return what is wrong with a machine: by its own records, and against its class."""
    found = []
    check = machine.last_check
    if check is not None and check.verdict in _BAD_CHECKS:
        ratio = f" (ratio {check.ratio:.3f})" if check.ratio is not None else ""
        found.append(
            Deviation(
                code="regressed", text=f"last check: {check.verdict.replace('_', ' ')}{ratio}"
            )
        )
    others = [one for one in of.machines if one is not machine]
    if not others:
        return found
    for name in _SAME:
        found += _differs(machine, others, name)
    if of.settings is not None and machine.profile is not None:
        mine = dict(_settings(machine))
        if mine != of.settings and of.good:
            found.append(Deviation(code="settings", text="its profile is not that of the class"))
    return [*found, *_slow_links(machine, others), *_slow_default(machine, others)]


def _differs(machine: Machine, others: Sequence[Machine], name: str) -> list[Deviation]:
    """Compare a fact with the one most others have; a tie between two machines names both."""
    known = [one.facts[name] for one in others if one.facts.get(name) is not None]
    mine = machine.facts.get(name)
    if mine is None or not known:
        return []
    votes = Counter(json.dumps(value, sort_keys=True) for value in known)
    text, count = votes.most_common(1)[0]
    own = json.dumps(mine, sort_keys=True)
    if own == text or votes[own] >= count:
        return []
    return [
        Deviation(
            code=f"differs.{name}",
            text=f"{name} {_short(mine)}, elsewhere {_short(json.loads(text))}",
        )
    ]


def _slow_links(machine: Machine, others: Sequence[Machine]) -> list[Deviation]:
    found = []
    for pair, mine in sorted(machine.pairs.items()):
        there = [one.pairs[pair] for one in others if pair in one.pairs]
        if not there:
            continue
        bandwidth = median(one.bandwidth_gbs for one in there)
        latency = median(one.latency_us for one in there)
        if mine.bandwidth_gbs < SLOW_LINK * bandwidth:
            found.append(
                _link(pair, f"{mine.bandwidth_gbs:.3g} GB/s, elsewhere {bandwidth:.3g} GB/s")
            )
        elif mine.latency_us > SLOW_LATENCY * latency and bandwidth > 0:
            found.append(_link(pair, f"{mine.latency_us:.3g} us, elsewhere {latency:.3g} us"))
    return found


def _link(pair: tuple[int, int], text: str) -> Deviation:
    return Deviation(code="slow_link", text=f"slow link {pair[0]} -> {pair[1]}: {text}")


def _slow_default(machine: Machine, others: Sequence[Machine]) -> list[Deviation]:
    def default_of(one: Machine) -> float | None:
        value = one.profile.evidence.get("default_us") if one.profile else None
        return float(value) if isinstance(value, int | float) and value > 0 else None

    same: Callable[[Machine], Any] = lambda one: one.profile.scope if one.profile else None  # noqa: E731
    mine = default_of(machine)
    there = [
        value
        for one in others
        if same(one) == same(machine) and (value := default_of(one)) is not None
    ]
    if mine is None or not there or mine <= SLOW_DEFAULT * median(there):
        return []
    return [
        Deviation(
            code="slow_default",
            text=f"its default takes {mine / 1000:.3f} ms, elsewhere {median(there) / 1000:.3f} ms",
        )
    ]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= 60 else text[:57] + "..."
