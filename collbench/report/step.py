"""The step: default against profile, split into compute and exposed communication; rank skew."""

from __future__ import annotations

import dataclasses
from statistics import median
from typing import Any

from collbench.report import plots
from collbench.report.parts import Cell, Figure, Part, Section, Table
from collbench.report.story import Arm, Story
from collbench.report.values import StepValue, Value, step_value, timed
from collbench.units import format_size

CEILING = 0.02
"""Below this share of the step, exposed communication is not worth a search."""


def section(story: Story) -> Section:
    """Return the chapter on the step; empty where no step was timed."""
    steps = [(arm, step) for arm in story.arms if (step := step_value(arm, story.backend))]
    parts: list[Part] = []
    if steps:
        parts.append(_split(steps))
    return Section(name="step", title="The step", parts=parts)


def _split(steps: list[tuple[Arm, StepValue]]) -> Figure:
    names = [arm.name for arm, _ in steps]
    split = all(step.nocomm is not None for _, step in steps)
    data: list[dict[str, Any]] = []
    if split:
        data.append(_bars("compute", names, [s.nocomm for _, s in steps if s.nocomm], 0))
        data.append(
            _bars("exposed communication", names, [s.exposed for _, s in steps if s.exposed], 2)
        )
    else:
        data.append(_bars("step", names, [step.total for _, step in steps], 1))
    rows: list[list[Cell]] = []
    for arm, step in steps:
        total, exposed = step.total, step.exposed
        rows.append(
            [
                arm.name,
                total.mid / 1000,
                total.low / 1000 if total.has_interval else None,
                total.high / 1000 if total.has_interval else None,
                step.nocomm.mid / 1000 if step.nocomm else None,
                exposed.mid / 1000 if exposed else None,
                100 * exposed.mid / total.mid if exposed else None,
                total.launches,
            ]
        )
    return Figure(
        name="step-split",
        caption="Compute and exposed communication of one step"
        if split
        else "Time of one step (this backend has no compute in it)",
        data=data,
        layout={
            "barmode": "stack",
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
            "xaxis": plots.axis("milliseconds", rangemode="tozero"),
            "yaxis": {"autorange": "reversed", "automargin": True},
            "bargap": 0.45,
        },
        says=_says(steps),
        table=Table(
            caption="The step",
            columns=[
                *("arm", "step ms", "low", "high"),
                *("compute ms", "exposed ms", "exposed %", "launches"),
            ],
            rows=rows,
            note="Exposed communication is the step minus the same step without its collectives. "
            "Intervals are 95 % over launches.",
        ),
        height_px=130 + 60 * len(steps),
    )


def _bars(name: str, arms: list[str], values: list[Value], index: int) -> Any:
    trace: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": arms,
        "x": [value.mid / 1000 for value in values],
        "text": [f"{value.mid / 1000:.3f} ms" for value in values],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "hovertemplate": "%{y}<br>%{fullData.name}: %{text}<extra></extra>",
        "insidetextfont": {"color": "--paper"},
        "marker": {"color": plots.colour(index)},
    }
    return trace


def _says(steps: list[tuple[Arm, StepValue]]) -> str:
    parts = []
    for arm, step in steps:
        text = f"{arm.name} {step.total.mid / 1000:.3f} ms"
        if step.exposed:
            share = 100 * step.exposed.mid / step.total.mid
            text += f", of it {step.exposed.mid / 1000:.3f} ms ({share:.0f} %) exposed"
        parts.append(text)
    return "; ".join(parts) + "."


def skew_section(story: Story) -> Section:
    """Return the chapter on per-rank skew: how much later than the first each rank is."""
    rows: list[list[Cell]] = []
    data: list[dict[str, Any]] = []
    for index, arm in enumerate(story.arms):
        late = _lateness(arm)
        for label, ranks in late.items():
            rows += [[arm.name, label, rank, value] for rank, value in sorted(ranks.items())]
        points = [(label, rank, v) for label, ranks in late.items() for rank, v in ranks.items()]
        if points:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": arm.name,
                    "x": [label for label, _, _ in points],
                    "y": [value for _, _, value in points],
                    "text": [f"{arm.name}\n{la}, rank {r}: +{v:.3g} us" for la, r, v in points],
                    "hovertemplate": "%{text}<extra></extra>",
                    "marker": {
                        "color": plots.colour(index),
                        "symbol": plots.SYMBOLS[index % 7] + "-open",
                        "size": 9,
                        "line": {"width": 2},
                    },
                }
            )
    numbers = [row[3] for row in rows if isinstance(row[3], float)]
    if not numbers or not any(isinstance(row[2], int) and row[2] > 0 for row in rows):
        return Section(name="skew", title="Skew across ranks")
    top = max(rows, key=lambda row: row[3] if isinstance(row[3], float) else 0.0)
    table = Table(
        caption="Skew of every rank",
        columns=["arm", "case", "rank", "us above the quickest"],
        rows=rows,
        folded=True,
    )
    if len({row[1] for row in rows}) == 1:
        plain = dataclasses.replace(table, folded=False)
        return Section(name="skew", title="Skew across ranks", parts=[plain])
    figure = Figure(
        name="rank-skew",
        caption="How much longer each rank takes than the quickest rank",
        data=data,
        layout={
            "xaxis": {"type": "category", "tickangle": -35, "automargin": True},
            "yaxis": plots.axis("us above the quickest rank", rangemode="tozero"),
        },
        says=f"Largest: rank {top[2]}, {top[3]:.3g} us at {top[1]} ({top[0]}). A rank that leads "
        "everywhere waits for the others; transfer alone is the same for all.",
        table=table,
    )
    return Section(name="skew", title="Skew across ranks", parts=[figure])


def _lateness(arm: Arm) -> dict[str, dict[int, float]]:
    """Return, per case, each rank's median over launches above the quickest rank's, in us."""
    by_case: dict[str, list[list[float]]] = {}
    for run in arm.runs:
        if run.outcome == "ok" and run.step and all(run.step.total_us) and run.step.total_us:
            by_case.setdefault("step", []).append([median(r) for r in run.step.total_us])
        for times in timed(run):
            if all(times.times_us):
                label = f"{times.case.collective} {format_size(times.case.size_bytes)}"
                if times.case.mode != "graph":
                    label += f" {times.case.mode}"
                by_case.setdefault(label, []).append([median(r) for r in times.times_us])
    found: dict[str, dict[int, float]] = {}
    for label, launches in by_case.items():
        late: dict[int, list[float]] = {}
        for ranks in launches:
            for rank, value in enumerate(ranks):
                late.setdefault(rank, []).append(value - min(ranks))
        found[label] = {rank: float(median(values)) for rank, values in late.items()}
    return found
