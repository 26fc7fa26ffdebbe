"""Default against profile over message sizes: time, bus bandwidth and ratio, with intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from collbench.collectives import COLLECTIVES
from collbench.job import Case
from collbench.report import plots
from collbench.report.parts import Cell, Figure, Part, Section, Table
from collbench.report.story import Arm, Story
from collbench.report.values import (
    Value,
    busbw_gbs,
    case_launches,
    host_bound,
    ratio_of,
    value_of,
)
from collbench.units import format_size

GUARD_BYTES = (64 << 10, 64 << 20)
GUARD_RATIO = 1.03
"""No guarded size of an adopted profile may be slower than this."""
MODES = ("graph", "eager", "entry")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One arm in one mode over the sizes of one collective and dtype."""

    arm: Arm
    mode: str
    label: str
    index: int
    """Colour: of the arm, or of the mode where there is one arm."""
    launches: dict[Case, list[float]]
    """Case -> one value a launch, in the order of sizes."""


def section(story: Story) -> Section:
    """Return the chapter on sizes; empty where no case was timed."""
    arms = [(arm, case_launches(arm, story.backend)) for arm in story.arms]
    order = list(COLLECTIVES)
    groups = sorted(
        {(case.collective, case.dtype) for _, found in arms for case in found},
        key=lambda group: (order.index(group[0]) if group[0] in order else len(order), *group),
    )
    parts: list[Part] = []
    for collective, dtype in groups:
        curves = _curves(arms, collective, dtype)
        parts += _group(story, curves, f"{collective}, {dtype}")
    return Section(name="sizes", title="Over message sizes", parts=parts)


def _curves(
    arms: list[tuple[Arm, dict[Case, list[float]]]], collective: str, dtype: str
) -> list[Curve]:
    modes = {case.mode for _, found in arms for case in found if case.collective == collective}
    curves = []
    for position, (arm, found) in enumerate(arms):
        for mode in [mode for mode in MODES if mode in modes]:
            cases = sorted(
                (c for c in found if (c.collective, c.dtype, c.mode) == (collective, dtype, mode)),
                key=lambda case: case.size_bytes,
            )
            words = [arm.name] if len(arms) > 1 else []
            words += [mode] if len(modes) > 1 else []
            index = position if len(arms) > 1 else MODES.index(mode) + (len(modes) > 1)
            if cases:
                curves.append(
                    Curve(
                        arm=arm,
                        mode=mode,
                        label=" ".join(words) or arm.name,
                        index=index,
                        launches={case: found[case] for case in cases},
                    )
                )
    return curves


def _sizes(curves: list[Curve]) -> list[int]:
    return sorted({case.size_bytes for curve in curves for case in curve.launches})


def _group(story: Story, curves: list[Curve], words: str) -> list[Part]:
    name = words.replace(", ", "-").replace("_", "-")
    table = _table(story, curves, words)
    figures: list[Part] = []
    if len(_sizes(curves)) > 1:
        figures.append(_times(name, words, curves, table))
        bandwidth = _bandwidth(story, name, words, curves)
        figures += [bandwidth] if bandwidth else []
    ratio = _ratio(story, name, words, curves)
    figures += [ratio] if ratio else []
    return figures or [replace(table, folded=False)]


def _hover(label: str, case: Case, value: Value, unit: str) -> str:
    text = f"{label}\n{format_size(case.size_bytes)}: {value.mid:.4g} {unit}"
    if value.has_interval:
        text += f"\n95 % interval {value.low:.4g} to {value.high:.4g}, {value.launches} launches"
    return text


def _line(curve: Curve, values: dict[Case, Value], unit: str) -> dict[str, Any]:
    """Return a curve as a line; arms differ in colour and dash, modes in their marks."""
    hover = [_hover(curve.label, case, value, unit) for case, value in values.items()]
    sizes = [case.size_bytes for case in values]
    trace = plots.line(sizes, list(values.values()), curve.label, curve.index, hover=hover)
    trace["marker"]["symbol"] = plots.SYMBOLS[MODES.index(curve.mode) * 2 + curve.index % 2]
    return trace


def _times(name: str, words: str, curves: list[Curve], table: Table) -> Figure:
    data = [
        _line(curve, {c: value_of(v) for c, v in curve.launches.items()}, "us") for curve in curves
    ]
    return Figure(
        name=f"{name}-us",
        caption=f"Time of one call: {words}",
        data=data,
        layout={
            "xaxis": plots.size_axis(_sizes(curves)),
            "yaxis": plots.log_axis("microseconds a call", [y for d in data for y in d["y"]]),
        },
        says=_says(curves),
        table=table,
    )


def _says(curves: list[Curve]) -> str:
    sizes = _sizes(curves)
    parts = []
    for size in (sizes[0], sizes[-1]):
        found = [
            f"{curve.label} {value_of(values).mid:.4g} us"
            for curve in curves
            for case, values in curve.launches.items()
            if case.size_bytes == size
        ]
        parts.append(f"{format_size(size)}: {', '.join(found)}")
    return "; ".join(parts) + ". Lower is better; bars are 95 % intervals over launches."


def _bandwidth(story: Story, name: str, words: str, curves: list[Curve]) -> Figure | None:
    """Return the bus bandwidth of the chains; of other modes only where there are no chains."""
    shown = [curve for curve in curves if curve.mode == "graph"] or curves
    data: list[dict[str, Any]] = []
    best = 0.0
    for curve in shown:
        rates: dict[Case, Value] = {}
        for case, launches in curve.launches.items():
            time = value_of(launches)
            mid, low, high = (
                busbw_gbs(case, t, story.nranks) for t in (time.mid, time.high, time.low)
            )
            if mid is None or low is None or high is None:
                return None
            rates[case] = Value(mid=mid, low=low, high=high, launches=time.launches)
            best = max(best, mid)
        data.append(_line(curve, rates, "GB/s busbw"))
    return Figure(
        name=f"{name}-busbw",
        caption=f"Bus bandwidth: {words}",
        data=data,
        layout={
            "xaxis": plots.size_axis(_sizes(curves)),
            "yaxis": plots.log_axis("busbw, GB/s", [y for d in data for y in d["y"]]),
            "showlegend": True,
        },
        says=f"Highest {best:.4g} GB/s (10^9 bytes a second). Higher is better; bars are 95 % "
        "intervals over launches.",
        table=None,
    )


def _ratio(story: Story, name: str, words: str, curves: list[Curve]) -> Figure | None:
    base_curves = [curve for curve in curves if curve.arm is story.arms[0]]
    reference = {case: v for curve in base_curves for case, v in curve.launches.items()}
    data: list[dict[str, Any]] = []
    rows: list[list[Cell]] = []
    worst, best = (1.0, ""), (1.0, "")
    for curve in curves:
        if curve.arm is story.arms[0]:
            continue
        values = {
            case: ratio_of(launches, reference[case], paired=story.paired)
            for case, launches in curve.launches.items()
            if case in reference
        }
        if not values:
            continue
        data.append(_line(curve, values, "x default"))
        for case, value in values.items():
            size = format_size(case.size_bytes)
            rows.append([curve.label, size, value.mid, value.low, value.high, value.launches])
            worst = max(worst, (value.mid, size))
            best = min(best, (value.mid, size))
    if not data:
        return None
    guarded = any(GUARD_BYTES[0] <= size <= GUARD_BYTES[1] for size in _sizes(curves))
    shapes = [plots.level(1.0, 0), *([plots.level(GUARD_RATIO, 2, "dash")] if guarded else [])]
    says = f"Best {best[0]:.3f} at {best[1]}" if best[1] else "Nowhere below 1"
    says += f", worst {worst[0]:.3f} at {worst[1]}." if worst[1] else ", nowhere above 1."
    base = story.arms[0].name
    guard = (
        f" The dashed line at {GUARD_RATIO} is the guard for 64 KiB to 64 MiB." if guarded else ""
    )
    return Figure(
        name=f"{name}-ratio",
        caption=f"Ratio to {base}: {words}",
        data=data,
        layout={
            "xaxis": plots.size_axis(_sizes(curves)),
            "yaxis": plots.axis(f"time / time of {base}"),
            "shapes": shapes,
            "showlegend": True,
        },
        says=f"{says} Below 1 is faster.{guard}",
        table=Table(
            caption=f"Ratio to {base}: {words}",
            columns=["arm", "size", "ratio", "low", "high", "launches"],
            rows=rows,
            folded=True,
        ),
        height_px=320,
    )


def _table(story: Story, curves: list[Curve], words: str) -> Table:
    rows: list[list[Cell]] = []
    for curve in curves:
        for case, launches in curve.launches.items():
            value = value_of(launches)
            rows.append(
                [
                    curve.label,
                    format_size(case.size_bytes),
                    value.mid,
                    value.low if value.has_interval else None,
                    value.high if value.has_interval else None,
                    busbw_gbs(case, value.mid, story.nranks),
                    value.launches,
                    "host bound" if host_bound(curve.arm, case, value.mid) else "",
                ]
            )
    return Table(
        caption=f"Time and bandwidth: {words}",
        columns=["arm", "size", "us a call", "low", "high", "busbw GB/s", "launches", "note"],
        rows=rows,
        folded=True,
        note="host bound: the launch of the call was timed, not its transfer."
        if any(row[-1] for row in rows)
        else "",
    )
