"""Plotly traces and axes in the page's one style. Colours are the theme's; shapes differ too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from collbench.report.values import Value
from collbench.units import format_size

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star", "cross")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")


def colour(index: int) -> str:
    """Return a series colour: 0 is the default's grey, 1 the profile's blue."""
    return f"--c{index % 8}"


def line(
    x: Sequence[float],
    values: Sequence[Value],
    name: str,
    index: int,
    *,
    hover: Sequence[str],
    scale: float = 1.0,
) -> dict[str, Any]:
    """Return a line with markers and 95 % error bars where there are two launches or more."""
    bars = any(value.has_interval for value in values)
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(x),
        "y": [value.mid / scale for value in values],
        "text": list(hover),
        "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": colour(index), "dash": DASHES[index % 7], "width": 2},
        "marker": {"color": colour(index), "symbol": SYMBOLS[index % 7], "size": 8},
    }
    if bars:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [(value.high - value.mid) / scale for value in values],
            "arrayminus": [(value.mid - value.low) / scale for value in values],
            "color": colour(index),
            "thickness": 1.5,
            "width": 4,
        }
    return trace


def size_axis(sizes: Sequence[int]) -> dict[str, Any]:
    """Return a logarithmic axis of message sizes with people's units, at most nine labels."""
    ticks = sorted(set(sizes))
    while len(ticks) > 9:
        ticks = ticks[:-1:2] + ticks[-1:] if len(ticks) > 10 else ticks[::2]
    return {
        "type": "log",
        "title": {"text": "message size"},
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [format_size(size) for size in ticks],
    }


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return a linear axis with a title."""
    return {"title": {"text": title}, **more}


def log_axis(title: str, values: Sequence[float], *, fine: bool = False) -> dict[str, Any]:
    """Return a logarithmic axis with whole numbers at 1, 2 and 5 of each decade in sight.

    Plotly's own labels leave the decade out ("2" for 20), which people misread.

    Args:
        title: What is on the axis.
        values: What is drawn.
        fine: Label closer, for ratios that lie around 1.
    """
    positive = [value for value in values if 1e-12 < value < 1e12]
    low, high = min(positive, default=1.0), max(positive, default=10.0)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    factors = (1, 1.1, 1.25, 1.5, 2, 3, 5, 7, 8, 9, 9.5) if fine else (1, 2, 5)
    ticks = [factor * 10.0**decade for decade in decades for factor in factors]
    around = 1.1 if fine else 2
    ticks = [tick for tick in ticks if low / around <= tick <= high * around]
    if fine and len(ticks) > 8:
        return log_axis(title, values)
    if len(ticks) > 8:
        ticks = [tick for tick in ticks if f"{tick:e}".startswith("1")]
    labels = [f"{tick:g}" for tick in ticks]
    return axis(title, type="log", tickmode="array", tickvals=ticks, ticktext=labels)


def upright(x: float, index: int) -> dict[str, Any]:
    """Return a vertical line across the plot, at a value of the data also on a log axis."""
    return {
        "type": "line",
        "yref": "paper",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "line": {"color": colour(index), "dash": "dot", "width": 1.5},
    }


def level(y: float, index: int, dash: str = "dot") -> dict[str, Any]:
    """Return a horizontal line across the plot."""
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": y,
        "y1": y,
        "line": {"color": colour(index), "dash": dash, "width": 1.5},
    }
