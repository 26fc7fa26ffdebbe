"""Default against profile over message sizes: time, bus bandwidth and ratio, with intervals."""

from __future__ import annotations

import dataclasses
from typing import Any

from collbench.job import Case
from collbench.report import plots
from collbench.report.parts import Figure, Part, Section, Table
from collbench.report.story import Arm, Story
from collbench.report.values import Value, busbw_gbs, case_launches, ratio_of, value_of
from collbench.units import format_size

GUARD_BYTES = (64 << 10, 64 << 20)
GUARD_RATIO = 1.03
"""No guarded size of an adopted profile may be slower than this."""

Group = tuple[str, str, str]
"""Collective, dtype, mode."""


def section(story: Story) -> Section:
    """Return the chapter on sizes; empty where no case was timed."""
    arms = [(arm, case_launches(arm, story.backend)) for arm in story.arms]
    groups: dict[Group, set[int]] = {}
    for _, launches in arms:
        for case in launches:
            key = (case.collective, case.dtype, case.mode)
            groups.setdefault(key, set()).add(case.size_bytes)
    parts: list[Part] = []
    for group in sorted(groups):
        parts += _group(story, arms, group, sorted(groups[group]))
    return Section(name="sizes", title="Over message sizes", parts=parts)


def _group(
    story: Story, arms: list[tuple[Arm, dict[Case, list[float]]]], group: Group, sizes: list[int]
) -> list[Part]:
    collective, dtype, mode = group
    name = f"{collective}-{dtype}-{mode}".replace("_", "-")
    words = f"{collective}, {dtype}, {mode} mode"
    cases = [
        Case(collective=collective, size_bytes=s, dtype=dtype, mode=_mode(mode)) for s in sizes
    ]
    table = _table(story, arms, cases, words)
    figures: list[Part] = []
    if len(sizes) > 1:
        figures.append(_times(name, words, arms, cases, table))
        bandwidth = _bandwidth(story, name, words, arms, cases)
        figures += [bandwidth] if bandwidth else []
    ratio = _ratio(story, name, words, arms, cases)
    return [
        *figures,
        *([ratio] if ratio else []),
        *([] if figures or ratio else [dataclasses.replace(table, folded=False)]),
    ]


def _mode(mode: str) -> Any:
    return mode


def _hover(arm: str, case: Case, value: Value, unit: str) -> str:
    text = f"{arm}\n{format_size(case.size_bytes)}: {value.mid:.4g} {unit}"
    if value.has_interval:
        text += f"\n95 % interval {value.low:.4g} to {value.high:.4g}, {value.launches} launches"
    return text


def _times(
    name: str,
    words: str,
    arms: list[tuple[Arm, dict[Case, list[float]]]],
    cases: list[Case],
    table: Table,
) -> Figure:
    data = []
    for index, (arm, launches) in enumerate(arms):
        have = [case for case in cases if case in launches]
        values = [value_of(launches[case]) for case in have]
        hover = [_hover(arm.name, c, v, "us") for c, v in zip(have, values, strict=True)]
        sizes = [case.size_bytes for case in have]
        data.append(plots.line(sizes, values, arm.name, index, hover=hover))
    return Figure(
        name=f"{name}-us",
        caption=f"Time of one call: {words}",
        data=data,
        layout={
            "xaxis": plots.size_axis([case.size_bytes for case in cases]),
            "yaxis": plots.log_axis("microseconds a call", [y for d in data for y in d["y"]]),
        },
        says=_says(arms, cases),
        table=table,
    )


def _says(arms: list[tuple[Arm, dict[Case, list[float]]]], cases: list[Case]) -> str:
    parts = []
    for case in (cases[0], cases[-1]):
        found = [f"{a.name} {value_of(r[case]).mid:.4g} us" for a, r in arms if case in r]
        parts.append(f"{format_size(case.size_bytes)}: {', '.join(found)}")
    return "; ".join(parts) + ". Lower is better; bars are 95 % intervals over launches."


def _bandwidth(
    story: Story,
    name: str,
    words: str,
    arms: list[tuple[Arm, dict[Case, list[float]]]],
    cases: list[Case],
) -> Figure | None:
    data: list[dict[str, Any]] = []
    best = 0.0
    for index, (arm, launches) in enumerate(arms):
        have = [case for case in cases if case in launches]
        values = []
        for case in have:
            time = value_of(launches[case])
            rates = [busbw_gbs(case, t, story.nranks) for t in (time.mid, time.high, time.low)]
            if rates[0] is None or rates[1] is None or rates[2] is None:
                return None
            values.append(Value(mid=rates[0], low=rates[1], high=rates[2], launches=time.launches))
        best = max([best, *(value.mid for value in values)])
        hover = [_hover(arm.name, c, v, "GB/s busbw") for c, v in zip(have, values, strict=True)]
        sizes = [case.size_bytes for case in have]
        data.append(plots.line(sizes, values, arm.name, index, hover=hover))
    return Figure(
        name=f"{name}-busbw",
        caption=f"Bus bandwidth: {words}",
        data=data,
        layout={
            "xaxis": plots.size_axis([case.size_bytes for case in cases]),
            "yaxis": plots.log_axis("busbw, GB/s", [y for d in data for y in d["y"]]),
        },
        says=f"Highest {best:.4g} GB/s (10^9 bytes a second). Higher is better; bars are 95 % "
        "intervals over launches.",
        table=None,
    )


def _ratio(
    story: Story,
    name: str,
    words: str,
    arms: list[tuple[Arm, dict[Case, list[float]]]],
    cases: list[Case],
) -> Figure | None:
    default = arms[0][1]
    data: list[dict[str, Any]] = []
    rows: list[list[str | float]] = []
    worst, best = (1.0, ""), (1.0, "")
    for index, (arm, launches) in enumerate(arms[1:], start=1):
        have = [case for case in cases if case in launches and case in default]
        values = [ratio_of(launches[case], default[case], paired=story.paired) for case in have]
        if not have:
            continue
        hover = [_hover(arm.name, c, v, "x default") for c, v in zip(have, values, strict=True)]
        data.append(
            plots.line([case.size_bytes for case in have], values, arm.name, index, hover=hover)
        )
        for case, value in zip(have, values, strict=True):
            size = format_size(case.size_bytes)
            rows.append([arm.name, size, value.mid, value.low, value.high, value.launches])
            worst = max(worst, (value.mid, size))
            best = min(best, (value.mid, size))
    if not data:
        return None
    sizes = [case.size_bytes for case in cases]
    shapes = [plots.level(1.0, 0)]
    guarded = any(GUARD_BYTES[0] <= size <= GUARD_BYTES[1] for size in sizes)
    if guarded:
        shapes.append(plots.level(GUARD_RATIO, 2, "dash"))
    says = f"Best {best[0]:.3f} at {best[1]}" if best[1] else "Nowhere below 1"
    says += f", worst {worst[0]:.3f} at {worst[1]}." if worst[1] else ", nowhere above 1."
    guard = (
        f" The dashed line at {GUARD_RATIO} is the guard for 64 KiB to 64 MiB." if guarded else ""
    )
    return Figure(
        name=f"{name}-ratio",
        caption=f"Ratio to the default: {words}",
        data=data,
        layout={
            "xaxis": plots.size_axis(sizes),
            "yaxis": plots.axis("time / time of the default"),
            "shapes": shapes,
        },
        says=f"{says} Below 1 is faster.{guard}",
        table=Table(
            caption=f"Ratio to the default: {words}",
            columns=["arm", "size", "ratio", "low", "high", "launches"],
            rows=rows,
            folded=True,
        ),
        height_px=300,
    )


def _table(
    story: Story, arms: list[tuple[Arm, dict[Case, list[float]]]], cases: list[Case], words: str
) -> Table:
    rows: list[list[str | int | float | None]] = []
    for arm, launches in arms:
        for case in cases:
            if case not in launches:
                continue
            value = value_of(launches[case])
            rows.append(
                [
                    arm.name,
                    format_size(case.size_bytes),
                    value.mid,
                    value.low if value.has_interval else None,
                    value.high if value.has_interval else None,
                    busbw_gbs(case, value.mid, story.nranks),
                    value.launches,
                ]
            )
    return Table(
        caption=f"Time and bandwidth: {words}",
        columns=["arm", "size", "us a call", "low", "high", "busbw GB/s", "launches"],
        rows=rows,
        folded=True,
    )
