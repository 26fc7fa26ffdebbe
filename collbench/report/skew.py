"""Skew across ranks: who computes, who waits, and how much later each rank is."""

from __future__ import annotations

import dataclasses
from statistics import median
from typing import Any

from collbench.report import plots
from collbench.report.parts import Cell, Figure, Part, Section, Table
from collbench.report.story import Arm, Story
from collbench.report.values import timed
from collbench.units import format_size


def section(story: Story) -> Section:
    """Return the chapter on per-rank skew: how much later than the first each rank is."""
    rows: list[list[Cell]] = []
    data: list[dict[str, Any]] = []
    before = _per_rank(story)
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
                    "cliponaxis": False,
                    "name": arm.name,
                    "x": [value for _, _, value in points],
                    "y": [label for label, _, _ in points],
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
        return Section(name="skew", title="Skew across ranks", parts=before)
    top = max(rows, key=lambda row: row[3] if isinstance(row[3], float) else 0.0)
    table = Table(
        caption="Skew of every rank",
        columns=["arm", "case", "rank", "us above the quickest"],
        rows=rows,
        folded=True,
    )
    if len({row[1] for row in rows}) == 1:
        plain = dataclasses.replace(table, folded=False)
        return Section(
            name="skew", title="Skew across ranks", parts=[*before, *([] if before else [plain])]
        )
    figure = Figure(
        name="rank-skew",
        caption="How much longer each rank takes than the quickest rank",
        data=data,
        layout={
            "xaxis": plots.axis("us above the quickest rank", rangemode="tozero"),
            "yaxis": {"type": "category", "automargin": True, "autorange": "reversed"},
        },
        says=f"Largest: rank {top[2]}, {top[3]:.3g} us at {top[1]} ({top[0]}). A rank that leads "
        "everywhere waits for the others; transfer alone is the same for all.",
        table=table,
        height_px=130 + 24 * len({row[1] for row in rows}),
    )
    return Section(name="skew", title="Skew across ranks", parts=[*before, figure])


def _per_rank(story: Story) -> list[Part]:
    """Return the step of every rank: who computes, who waits.

    The rank with the least exposed time is the last one at the collectives: it waits for nobody,
    so what it spends there is the transfer; what others spend beyond that is waiting for it.
    """
    rows: list[list[Cell]] = []
    for arm in story.arms:
        ranks: dict[int, list[tuple[float, float]]] = {}
        for run in arm.runs:
            step = run.step
            if run.outcome != "ok" or step is None or len(step.nocomm_us) != len(step.total_us):
                continue
            if all(step.total_us) and all(step.nocomm_us):
                for rank, (total, bare) in enumerate(
                    zip(step.total_us, step.nocomm_us, strict=True)
                ):
                    ranks.setdefault(rank, []).append((median(total), median(bare)))
        exposed = {r: median([t - b for t, b in values]) for r, values in ranks.items()}
        for rank, values in ranks.items():
            waiting = exposed[rank] - min(exposed.values())
            step_ms = median([total for total, _ in values]) / 1000
            compute_ms = median([bare for _, bare in values]) / 1000
            times: list[Cell] = [step_ms, compute_ms, exposed[rank] / 1000, waiting / 1000]
            rows.append([arm.name, rank, *times])
    if not rows:
        return []
    table = Table(
        caption="The step of every rank",
        columns=["arm", "rank", "step ms", "compute ms", "exposed ms", "of it waiting ms"],
        rows=rows,
        note="The rank that comes last waits for nobody: its exposed time is the transfer. What "
        "another rank spends beyond that is waiting, and no setting of the library removes it.",
    )
    return [table]


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
