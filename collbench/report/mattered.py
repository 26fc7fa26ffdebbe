"""What mattered: importance of the searched settings, the ablation, and the front of two goals."""

from __future__ import annotations

from statistics import median

from collbench.report import plots
from collbench.report.parts import Cell, Figure, Part, Section, Table
from collbench.report.story import Story
from collbench.report.trials import named


def section(story: Story) -> Section:
    """Return the chapter on what mattered: importance of parameters, and the ablation."""
    parts: list[Part] = []
    values = _values(story)
    if values:
        parts.append(values)
    if story.importance:
        parts.append(_importance(story))
    if story.ablation:
        parts.append(_ablation(story))
    if story.guards:
        parts.append(_guards(story))
    return Section(name="mattered", title="What mattered", parts=parts)


def _values(story: Story) -> Figure | None:
    """Return the ratios of the search by the values that each candidate had."""
    seen: dict[str, list[float]] = {}
    for trial in story.trials:
        if trial.stage == "search" and trial.settings and trial.ratio is not None:
            for name, value in trial.settings.items():
                seen.setdefault(f"{name}={value}", []).append(trial.ratio)
    if len(seen) < 2:
        return None
    names = sorted(seen)
    middle = {name: median(seen[name]) for name in names}
    best = min(names, key=lambda name: middle[name])
    points = [(ratio, name) for name in names for ratio in seen[name]]
    return Figure(
        name="values",
        caption="Ratio of the candidates that had a value, in the search",
        data=[
            {
                "type": "scatter",
                "mode": "markers",
                "name": "candidate",
                "x": [ratio for ratio, _ in points],
                "y": [name for _, name in points],
                "hovertemplate": "%{y}: %{x:.3f}<extra></extra>",
                "marker": {"color": plots.colour(1), "symbol": "circle-open", "size": 8},
            },
            {
                "type": "scatter",
                "mode": "markers",
                "name": "median",
                "x": [middle[name] for name in names],
                "y": names,
                "hovertemplate": "%{y}: median %{x:.3f}<extra></extra>",
                "marker": {"color": plots.colour(2), "symbol": "line-ns-open", "size": 16},
            },
        ],
        layout={
            "xaxis": plots.log_axis(
                "time / time of the default near it", [ratio for ratio, _ in points], fine=True
            ),
            "yaxis": {"type": "category", "automargin": True, "autorange": "reversed"},
            "shapes": [plots.upright(1.0, 0)],
        },
        says=f"Lowest median: {best}, {middle[best]:.3f} over {len(seen[best])} launches. Other "
        "settings vary within a row; a row far to the right is a value that hurts.",
        table=Table(
            caption="Ratio by value",
            columns=["value", "median ratio", "lowest", "highest", "launches"],
            rows=[[n, middle[n], min(seen[n]), max(seen[n]), len(seen[n])] for n in names],
            folded=True,
        ),
        height_px=130 + 26 * len(names),
    )


def _guards(story: Story) -> Table:
    rows: list[list[Cell]] = [[g.case, g.ratio, g.verdict, g.pairs] for g in story.guards]
    return Table(
        caption="Guarded sizes: none may get slower by 3 %",
        columns=["case", "ratio", "verdict", "pairs"],
        rows=rows,
        note="p95: the 95th percentile of the objective's windows. unsure: slower by the estimate, "
        "but not beyond the noise.",
    )


def _importance(story: Story) -> Figure:
    items = sorted(story.importance.items(), key=lambda item: item[1])
    return Figure(
        name="importance",
        caption="Importance of the searched settings",
        data=[
            {
                "type": "bar",
                "orientation": "h",
                "x": [value for _, value in items],
                "y": [name for name, _ in items],
                "text": [f"{value:.0%}" for _, value in items],
                "textposition": "auto",
                "hovertemplate": "%{y}: %{text}<extra></extra>",
                "marker": {"color": plots.colour(1)},
            }
        ],
        layout={
            "xaxis": plots.axis("share", tickformat=".0%", rangemode="tozero"),
            "yaxis": {"type": "category", "automargin": True},
        },
        says=f"Most: {items[-1][0]}, {items[-1][1]:.0%}. {story.importance_method} It weighs the "
        "search's own trials; the ablation, on fresh launches, decides.",
        table=Table(
            caption="Importance",
            columns=["setting", "share"],
            rows=[[name, value] for name, value in reversed(items)],
            folded=True,
        ),
        height_px=120 + 34 * len(items),
    )


def _ablation(story: Story) -> Part:
    rows: list[list[Cell]] = [
        [
            item.setting,
            item.ratio,
            item.interval[0] if item.interval else None,
            item.interval[1] if item.interval else None,
            "kept" if item.kept else "dropped",
            item.note,
        ]
        for item in story.ablation
    ]
    table = Table(
        caption="Ablation: the winner without one setting, on fresh launches",
        columns=["setting", "time without it / with it", "low", "high", "decision", "note"],
        rows=rows,
        folded=True,
    )
    measured = [item for item in story.ablation if item.ratio is not None]
    if not measured:
        return Table(caption=table.caption, columns=table.columns, rows=rows)
    ratios = [item.ratio or 1.0 for item in measured]
    spans = [item.interval or (r, r) for item, r in zip(measured, ratios, strict=True)]
    kept = [item.setting for item in story.ablation if item.kept]
    return Figure(
        name="ablation",
        caption=table.caption,
        data=[
            {
                "type": "scatter",
                "mode": "markers",
                "x": ratios,
                "y": [item.setting for item in measured],
                "text": [f"{i.setting}: {'kept' if i.kept else 'dropped'}" for i in measured],
                "hovertemplate": "%{text}, %{x:.3f}<extra></extra>",
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [s[1] - r for s, r in zip(spans, ratios, strict=True)],
                    "arrayminus": [r - s[0] for s, r in zip(spans, ratios, strict=True)],
                    "color": plots.colour(1),
                },
                "marker": {
                    "color": plots.colour(1),
                    "size": 10,
                    "symbol": ["circle" if i.kept else "circle-open" for i in measured],
                },
            }
        ],
        layout={
            "xaxis": plots.axis("time without the setting / with it"),
            "yaxis": {"type": "category", "automargin": True},
            "shapes": [plots.upright(1.0, 0)],
        },
        says=f"Kept: {', '.join(kept) or 'none'}. Right of 1 the setting helps; hollow marks were "
        "dropped because removing them changed nothing that can be seen.",
        table=table,
        height_px=140 + 40 * len(measured),
    )


def front_section(story: Story) -> Section:
    """Return the chapter on the trade between decode and prefill; empty with one objective."""
    if not story.front:
        return Section(name="front", title="Decode against prefill")
    data = []
    kinds = (("dominated", False, False), ("front", True, False), ("recommended", True, True))
    for index, (name, on_front, knee) in enumerate(kinds):
        points = [p for p in story.front if p.on_front == on_front and p.knee == knee]
        points.sort(key=lambda p: p.decode_ratio)
        if points:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [p.decode_ratio for p in points],
                    "y": [p.prefill_ratio for p in points],
                    "text": [named(p.settings).replace(" ", "\n") for p in points],
                    "hovertemplate": "%{text}<br>decode %{x:.3f}, prefill %{y:.3f}<extra></extra>",
                    "marker": {
                        "color": plots.colour(index),
                        "symbol": plots.SYMBOLS[index] if index < 2 else "star",
                        "size": 9 if index < 2 else 15,
                    },
                }
            )
    best = next((p for p in story.front if p.knee), None)
    count = sum(p.on_front for p in story.front)
    figure = Figure(
        name="front",
        caption="Decode step against prefill time",
        data=data,
        layout={
            "xaxis": plots.axis("decode: time / default"),
            "yaxis": plots.axis("prefill: time / default"),
        },
        says=f"{count} settings are on the front: none is better in both."
        + (f" Recommended: {named(best.settings)}." if best else ""),
        table=Table(
            caption="The front",
            columns=["settings", "decode ratio", "prefill ratio", "recommended"],
            rows=[
                [
                    named(p.settings),
                    p.decode_ratio,
                    p.prefill_ratio,
                    "yes" if p.knee else "",
                ]
                for p in sorted(story.front, key=lambda p: p.decode_ratio)
                if p.on_front
            ],
            folded=True,
        ),
    )
    return Section(name="front", title="Decode against prefill", parts=[figure])
