"""The search: every trial with the default's drift, outcomes by type, and the best so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from collbench.report import plots
from collbench.report.parts import Cell, Figure, Part, Section, Table
from collbench.report.story import Story, Trial
from collbench.report.values import is_time


def section(story: Story) -> Section:
    """Return the chapter on the search; empty where there are no trials."""
    if not story.trials:
        return Section(name="search", title="The search")
    parts: list[Part] = [_history(story.trials)]
    failed = Counter(t.outcome for t in story.trials if t.outcome != "ok")
    if failed:
        parts.append(
            Table(
                caption="Launches that did not end well",
                columns=["launch", "outcome", "settings", "reason"],
                rows=[
                    [t.number, t.outcome, named(t.settings), t.reason]
                    for t in story.trials
                    if t.outcome != "ok"
                ],
                note="Settings that hang, die or answer wrongly never reach a profile.",
            )
        )
    return Section(name="search", title="The search", parts=parts)


def named(settings: Mapping[str, str]) -> str:
    """Return settings as one line; ``default`` where there is none."""
    return " ".join(f"{name}={value}" for name, value in settings.items()) or "default"


def _history(trials: list[Trial]) -> Figure:
    good = [t for t in trials if is_time(t.value_us) and t.outcome == "ok"]
    candidates = [t for t in good if t.settings]
    defaults = [t for t in good if not t.settings]
    unit, scale = _unit(good)
    data = [
        _points("candidate", candidates, 1, "circle", scale, unit),
        _line("default near it", *_drift(trials, scale), 0, "dot"),
    ]
    if defaults:
        data.append(_points("default", defaults, 0, "square-open", scale, unit))
    values = [t.value_us / scale for t in good if t.value_us]
    wide = bool(values) and max(values) > 5 * min(values)
    failed = [t for t in trials if t.outcome != "ok"]
    for index, outcome in enumerate(sorted({t.outcome for t in failed})):
        some = [t for t in failed if t.outcome == outcome]
        data.append(_failures(outcome, some, max(values, default=1.0) * 1.05, index))
    best = _best(candidates)
    layout: dict[str, Any] = {
        "xaxis": plots.axis("launch", domain=[0, 1], anchor="y2" if best else "y"),
        "yaxis": plots.axis(f"objective, {unit}"),
    }
    if wide:
        layout["yaxis"] = plots.log_axis(f"objective, {unit}", values)
    if best:
        ratios = [t for t in candidates if t.ratio is not None]
        data.append(_ratios(ratios))
        data.append(_best_line(best, max(t.number for t in good)))
        layout["yaxis"]["domain"] = [0.5, 1]
        layout["yaxis2"] = plots.axis("ratio", domain=[0, 0.42], anchor="x")
        layout["shapes"] = [{**plots.level(1.0, 0), "yref": "y2"}]
    return Figure(
        name="search-history",
        caption=f"Every launch, in the order measured ({len(trials)})",
        data=data,
        layout=layout,
        says=_says(trials, best),
        table=Table(
            caption="Every launch",
            columns=["launch", "stage", "settings", "outcome", f"objective {unit}", "ratio"],
            rows=[_row(t, scale) for t in trials],
            folded=True,
            note="Ratio: to the default measured near it, which is what the search decides by.",
        ),
        height_px=560 if best else 400,
    )


def _unit(trials: list[Trial]) -> tuple[str, float]:
    big = any((t.value_us or 0) >= 1000 for t in trials)
    return ("ms", 1000.0) if big else ("us", 1.0)


def _row(trial: Trial, scale: float) -> list[Cell]:
    value = trial.value_us / scale if trial.value_us is not None else None
    settings = named(trial.settings)
    return [trial.number, trial.stage, settings, trial.outcome, value, trial.ratio]


def _points(
    name: str, trials: list[Trial], index: int, symbol: str, scale: float, unit: str
) -> dict[str, Any]:
    texts = []
    for t in trials:
        against = f" ({t.ratio:.3f} x the default near it)" if t.ratio and t.settings else ""
        value = (t.value_us or 0) / scale
        listed = named(t.settings).replace(" ", "\n")
        texts.append(f"launch {t.number}: {value:.4g} {unit}{against}\n{listed}")
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [t.number for t in trials],
        "y": [(t.value_us or 0) / scale for t in trials],
        "text": texts,
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": plots.colour(index), "symbol": symbol, "size": 7},
    }


def _line(name: str, x: list[int], y: list[float], index: int, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "hoverinfo": "skip",
        "line": {"color": plots.colour(index), "dash": dash, "width": 2},
    }


def _ratios(trials: list[Trial]) -> dict[str, Any]:
    lower = [t.ratio for t in trials if t.ratio is not None]
    # One candidate ten times slower must not flatten the rest: it stays in the upper panel.
    top = max(1.3, 2 * min(lower))
    shown = [t for t in trials if t.ratio is not None and t.ratio <= top]
    trace = _points("candidate", shown, 1, "circle", 1.0, "us")
    return {**trace, "y": [t.ratio for t in shown], "yaxis": "y2", "showlegend": False}


def _best_line(best: list[Trial], last: int) -> dict[str, Any]:
    x, y = [t.number for t in best], [t.ratio or 1.0 for t in best]
    line = _line("best so far", [*x, last], [*y, y[-1]], 3, "solid")
    return {**line, "line": {**line["line"], "shape": "hv"}, "yaxis": "y2"}


def _failures(outcome: str, trials: list[Trial], height: float, index: int) -> dict[str, Any]:
    symbols = ("x", "triangle-down", "star-diamond", "hash-open", "bowtie")
    return {
        "type": "scatter",
        "mode": "markers",
        "name": outcome,
        "x": [t.number for t in trials],
        "y": [height] * len(trials),
        "text": [
            f"launch {t.number}: {outcome}\n{named(t.settings)}\n{t.reason}".strip() for t in trials
        ],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": plots.colour(2), "symbol": symbols[index % 5], "size": 10},
    }


def _drift(trials: list[Trial], scale: float) -> tuple[list[int], list[float]]:
    """Return where the default stood at each launch, by the default each was scored against."""
    points = [(t.number, t.default_us / scale) for t in trials if t.default_us is not None]
    return [number for number, _ in points], [value for _, value in points]


def _best(candidates: list[Trial]) -> list[Trial]:
    """Return the candidates of the search that were its best, by ratio, when they were measured.

    Later stages launch the same few candidates again; those are not finds.
    """
    best: list[Trial] = []
    for trial in candidates:
        searching = trial.stage in ("search", "")
        if searching and trial.ratio is not None and (not best or trial.ratio < _score(best[-1])):
            best.append(trial)
    return best


def _score(trial: Trial) -> float:
    return trial.ratio if trial.ratio is not None else float("inf")


def _says(trials: list[Trial], best: list[Trial]) -> str:
    counts = Counter(t.outcome for t in trials)
    ends = ", ".join(f"{n} {name}" for name, n in counts.most_common())
    text = f"{len(trials)} launches: {ends}."
    if not best:
        return f"{text} No candidate of the search gave a time."
    winner = best[-1]
    return (
        f"{text} Best of the search: launch {winner.number}, {winner.ratio:.3f} x the default, "
        f"{named(winner.settings)}. A search's best is lucky; only a confirmed value is published. "
        "Above the times, with the default as it drifts; below the ratios, with the best so far."
    )
