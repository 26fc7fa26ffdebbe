"""The search: every trial with the default's drift, outcomes by type, and the best so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from collbench.report import plots
from collbench.report.parts import Cell, Figure, Part, Section, Table
from collbench.report.story import Story, Trial


def section(story: Story) -> Section:
    """Return the chapter on the search; empty where there are no trials."""
    if not story.trials:
        return Section(name="search", title="The search")
    parts: list[Part] = [_history(story.trials)]
    failed = Counter(t.outcome for t in story.trials if t.outcome != "ok")
    if failed:
        parts.append(
            Table(
                caption="Trials that did not end well",
                columns=["trial", "outcome", "settings", "reason"],
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
    good = [t for t in trials if t.value_us is not None and t.outcome == "ok"]
    candidates = [t for t in good if t.settings]
    defaults = [t for t in good if not t.settings]
    unit, scale = _unit(good)
    data = [
        _points("candidate", candidates, 1, "circle", scale, unit),
        _line("default, as it drifts", *_drift(trials), 0, "dot", scale),
    ]
    if defaults:
        data.append(_points("default launch", defaults, 0, "square-open", scale, unit))
    best = _best(candidates, defaults)
    data.append(
        _line(
            "best so far",
            [t.number for t in best],
            [t.value_us or 0 for t in best],
            3,
            "solid",
            scale,
            hv=True,
        )
    )
    top = max((t.value_us or 0 for t in good), default=1.0) * 1.05
    failed = [t for t in trials if t.outcome != "ok"]
    for index, outcome in enumerate(sorted({t.outcome for t in failed})):
        some = [t for t in failed if t.outcome == outcome]
        data.append(_failures(outcome, some, top / scale, index))
    return Figure(
        name="search-history",
        caption=f"Every trial, in the order measured ({len(trials)})",
        data=data,
        layout={"xaxis": plots.axis("trial"), "yaxis": plots.axis(f"objective, {unit}")},
        says=_says(trials, best),
        table=Table(
            caption="Every trial",
            columns=["trial", "stage", "settings", "outcome", f"objective {unit}", "ratio"],
            rows=[_row(t, scale) for t in trials],
            folded=True,
            note="Ratio: against the default measured near it.",
        ),
        height_px=440,
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
        texts.append(f"trial {t.number}: {value:.4g} {unit}{against}\n{listed}")
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


def _line(
    name: str, x: list[int], y: list[float], index: int, dash: str, scale: float, hv: bool = False
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": [value / scale for value in y],
        "hoverinfo": "skip",
        "line": {
            "color": plots.colour(index),
            "dash": dash,
            "width": 2,
            "shape": "hv" if hv else "linear",
        },
    }


def _failures(outcome: str, trials: list[Trial], height: float, index: int) -> dict[str, Any]:
    symbols = ("x", "triangle-down", "star-diamond", "hash-open", "bowtie")
    return {
        "type": "scatter",
        "mode": "markers",
        "name": outcome,
        "x": [t.number for t in trials],
        "y": [height] * len(trials),
        "text": [
            f"trial {t.number}: {outcome}\n{named(t.settings)}\n{t.reason}".strip() for t in trials
        ],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": plots.colour(2), "symbol": symbols[index % 5], "size": 10},
    }


def _drift(trials: list[Trial]) -> tuple[list[int], list[float]]:
    """Return where the default stood at each trial, by the default each was scored against."""
    points = [(t.number, t.default_us) for t in trials if t.default_us is not None]
    return [number for number, _ in points], [value for _, value in points]


def _best(candidates: list[Trial], defaults: list[Trial]) -> list[Trial]:
    """Return the trials that were the best when they were measured, and the last one reached.

    Best by ratio to the default near it, which is what the search decides by; without such a
    default, by value.
    """
    best: list[Trial] = []
    for trial in candidates:
        if not best or _score(trial) < _score(best[-1]):
            best.append(trial)
    last = max((t.number for t in [*candidates, *defaults]), default=0)
    if best and best[-1].number < last:
        final = best[-1]
        best.append(
            Trial(
                number=last,
                stage=final.stage,
                settings=final.settings,
                outcome="ok",
                value_us=final.value_us,
                default_us=final.default_us,
            )
        )
    return best


def _score(trial: Trial) -> float:
    return trial.ratio if trial.ratio is not None else (trial.value_us or float("inf"))


def _says(trials: list[Trial], best: list[Trial]) -> str:
    counts = Counter(t.outcome for t in trials)
    ends = ", ".join(f"{n} {name}" for name, n in counts.most_common())
    if not best:
        return f"{len(trials)} trials: {ends}. None gave a time."
    winner = best[0] if len(best) == 1 else min(best, key=lambda t: (_score(t), t.number))
    ratio = f"{winner.ratio:.3f} x the default" if winner.ratio is not None else "the lowest value"
    return (
        f"{len(trials)} trials: {ends}. Best of the search: trial {winner.number}, {ratio}, "
        f"{named(winner.settings)}. A search's best is lucky; only a confirmed value is published."
    )
