"""What a cause costs per step, from run records: the sum of count x latency difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.profiles.store import Reference
from collbench.readers.e2e import PAIR
from collbench.readers.steps import StepFile
from collbench.record import RunRecord, load
from collbench.results import CaseResult, Results, results


@dataclass(frozen=True, slots=True)
class Arms:
    """Records of a profile's confirmation: without it and with it."""

    default: Results | None
    profile: Results | None
    record: RunRecord | None
    """The record of the profile's arm."""
    default_us: float | None
    winner_us: float | None

    @property
    def step_gain_ms(self) -> float | None:
        """What the whole step gains from the profile, as confirmed."""
        if self.default_us is None or self.winner_us is None:
            return None
        return (self.default_us - self.winner_us) / 1000


def arms_of(reference: Reference) -> Arms:
    """Return what a profile's own records say; all None for a bare env file.

    Raises:
        CollbenchError: a record is named and cannot be read.
    """
    profile = reference.profile
    if profile is None:
        return Arms(None, None, None, None, None)
    found: dict[str, RunRecord] = {}
    for path in _record_paths(reference):
        record = load(path, RunRecord)
        if record.settings == profile.settings:
            found["profile"] = record
        elif not set(record.settings) & set(profile.settings):
            found["default"] = record
    us = [profile.evidence.get(name) for name in ("default_us", "winner_us")]
    return Arms(
        results(found["default"]) if "default" in found else None,
        results(found["profile"]) if "profile" in found else None,
        found.get("profile"),
        *(float(value) if isinstance(value, int | float) else None for value in us),
    )


def _record_paths(reference: Reference) -> list[Path]:
    profile = reference.profile
    named = [reference.path / name for name in profile.records] if profile else []
    folder = reference.path / "records"
    return named or (sorted(folder.glob("*.json")) if folder.is_dir() else [])


def latency_us(found: Results, collective: str, size_bytes: int) -> float | None:
    """Return a latency by collective and size, between two measured sizes by interpolation.

    Captured calls are preferred to eager ones: that is how servers make them.
    """
    of: dict[str, dict[int, float]] = {}
    for case in found.cases:
        if case.case.collective == collective:
            of.setdefault(case.case.mode, {})[case.case.size_bytes] = case.p50_us
    for mode in ("graph", "eager", "entry"):
        table = of.get(mode)
        if table:
            return _between(table, size_bytes)
    return None


def _between(table: Mapping[int, float], size_bytes: int) -> float | None:
    if size_bytes in table:
        return table[size_bytes]
    below = max((size for size in table if size < size_bytes), default=None)
    above = min((size for size in table if size > size_bytes), default=None)
    if below is None or above is None:
        return None
    share = (size_bytes - below) / (above - below)
    return table[below] + share * (table[above] - table[below])


def cost_of_absence_ms(arms: Arms, steps: StepFile | None) -> tuple[float, str] | None:
    """Return what a server without the profile pays per step, and how that was computed.

    The server's own count and size are used where its timings give them, else the calls of the
    confirmed step, else the step as a whole.
    """
    if arms.default is not None and arms.profile is not None:
        count = steps.get("after", "count") if steps else None
        size = steps.get("after", "bytes") if steps else None
        if count is not None and size is not None:
            pair = [latency_us(r, "all_reduce", int(size)) for r in (arms.default, arms.profile)]
            if pair[0] is not None and pair[1] is not None:
                delta = count * (pair[0] - pair[1]) / 1000
                return delta, f"{count} x ({pair[0]:.1f} - {pair[1]:.1f}) us at {int(size)} bytes"
        summed = _sum_of_calls(arms)
        if summed is not None:
            return summed, "count x latency difference over the calls of the confirmed step"
    if arms.step_gain_ms is not None:
        return arms.step_gain_ms, "the confirmed step without and with the profile"
    return None


def _sum_of_calls(arms: Arms) -> float | None:
    step = arms.record.job.step if arms.record else None
    if step is None or arms.default is None or arms.profile is None:
        return None
    total = 0.0
    for call in step.calls:
        pair = [
            latency_us(found, call.collective, call.size_bytes)
            for found in (arms.default, arms.profile)
        ]
        if pair[0] is None or pair[1] is None:
            return None
        total += call.count * (pair[0] - pair[1])
    return total / 1000


@dataclass(frozen=True, slots=True)
class Remeasured:
    """A fresh bench against a record of the same settings."""

    delta_ms: float | None
    """Change of the step; negative: faster than recorded. None without a step in both."""
    noise_ms: float
    compared: int
    """Cases that both have."""
    worst: CaseResult | None = None
    """The case that became slower by most."""
    worst_was_us: float | None = None
    worst_share: float = 0.0
    """By how much, as a share of what it was."""
    worst_spread: float = 0.0
    """Spread of its launches, as a share, in the wider of the two records."""


def remeasured(now: Results, then: Results) -> Remeasured:
    """Compare a fresh record with the stored one, by launches where there are several."""
    delta, noise = None, 0.0
    if now.step is not None and then.step is not None:
        delta = (now.step.total_us - then.step.total_us) / 1000
        noise = max(max(s.values_us) - min(s.values_us) for s in (now.step, then.step)) / 1000
    was = {case.case.key: case for case in then.cases}
    both = [(case, was[case.case.key]) for case in now.cases if case.case.key in was]
    if not both:
        return Remeasured(delta, noise, 0)
    case, old = max(both, key=lambda pair: pair[0].p50_us / pair[1].p50_us)
    share = case.p50_us / old.p50_us - 1
    spread = max((max(c.values_us) - min(c.values_us)) / c.p50_us for c in (case, old))
    if share <= 0:
        return Remeasured(delta, noise, len(both))
    return Remeasured(delta, noise, len(both), case, old.p50_us, share, spread)


def measured_change_ms(now: Results, then: Results, steps: StepFile | None) -> float | None:
    """Return count x (latency now - latency then) at the server's own size, in ms."""
    if steps is None or any(label not in steps.runs for label in PAIR):
        return None
    count, size = steps.get("after", "count"), steps.get("after", "bytes")
    if count is None or size is None:
        return None
    pair = [latency_us(found, "all_reduce", int(size)) for found in (now, then)]
    if pair[0] is None or pair[1] is None:
        return None
    return float(count * (pair[0] - pair[1]) / 1000)


def load_record(path: Path) -> RunRecord:
    """Read a run record of a bench.

    Raises:
        CollbenchError: it is none.
    """
    record = load(path, RunRecord)
    if not record.launches:
        raise CollbenchError(f"{path}: holds no launch", fix="run collbench bench again")
    return record
