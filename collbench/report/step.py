"""The step: default against profile, split into compute and exposed communication."""

from __future__ import annotations

from typing import Any

from collbench.report import plots
from collbench.report.parts import Cell, Figure, Part, Section, Table
from collbench.report.story import Arm, Story
from collbench.report.values import StepValue, Value, step_value

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
