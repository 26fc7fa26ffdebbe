"""Links: the matrix of GPU pairs, and a drawing with NUMA islands and link widths."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape
from statistics import median
from typing import Any

from collbench.job import PairTimes, RankFacts
from collbench.machine import Fingerprint, Gpu
from collbench.report.parts import Cell, Drawing, Figure, Part, Section, Table
from collbench.report.story import Story
from collbench.report.values import is_time

BOX_W, BOX_H, GAP, MARGIN, ROOT_W = 132, 58, 18, 32, 180


def section(story: Story) -> Section:
    """Return the chapter on links; empty without GPUs and without timed pairs."""
    parts: list[Part] = []
    drawing = topology(story.machine)
    if drawing:
        parts.append(drawing)
    runs = [run for arm in story.arms for run in arm.runs if run.pairs]
    if runs:
        pairs = [pair for run in runs for pair in run.pairs]
        names = _names(runs[0].ranks, _ranks(pairs))
        for field, title, unit, low_is_good in (
            ("latency_us", "Latency between pairs", "us", True),
            ("bandwidth_gbs", "Bandwidth between pairs", "GB/s", False),
        ):
            figure = _matrix(pairs, names, field, title, unit, low_is_good)
            if figure:
                parts.append(figure)
    return Section(name="links", title="Links", parts=parts)


def _ranks(pairs: Sequence[PairTimes]) -> list[int]:
    return sorted({pair.src for pair in pairs} | {pair.dst for pair in pairs})


def _names(facts: Sequence[RankFacts], ranks: list[int]) -> list[str]:
    known = {fact.rank: fact for fact in facts}
    names = []
    for rank in ranks:
        fact = known.get(rank)
        island = f", NUMA {fact.numa_node}" if fact and fact.numa_node is not None else ""
        names.append(f"rank {rank}{island}")
    return names


def _matrix(
    pairs: Sequence[PairTimes],
    names: list[str],
    field: str,
    title: str,
    unit: str,
    low_is_good: bool,
) -> Figure | None:
    ranks = _ranks(pairs)
    grid: list[list[float | None]] = []
    for src in ranks:
        row: list[float | None] = []
        for dst in ranks:
            found = [getattr(p, field) for p in pairs if p.src == src and p.dst == dst]
            found = [value for value in found if is_time(value)]
            row.append(float(median(found)) if found else None)
        grid.append(row)
    flat = [value for row in grid for value in row if value is not None]
    if not flat:
        return None
    worst = max(flat) if low_is_good else min(flat)
    where = next((r, c) for r, row in enumerate(grid) for c, v in enumerate(row) if v == worst)
    spread = f"{min(flat):.3g} to {max(flat):.3g} {unit}"
    rows: list[list[Cell]] = [[names[i], *row] for i, row in enumerate(grid)]
    # A scale of at least a fifth: pairs that differ by their noise must not look like islands.
    low = min(flat) if low_is_good else min(min(flat), 0.8 * max(flat))
    high = max(max(flat), 1.25 * min(flat)) if low_is_good else max(flat)
    trace: dict[str, Any] = {
        "type": "heatmap",
        "zmin": low,
        "zmax": high,
        "z": grid,
        "x": names,
        "y": names,
        "text": [["" if v is None else f"{v:.3g}" for v in row] for row in grid],
        "texttemplate": "%{text}",
        "hovertemplate": f"%{{y}} to %{{x}}: %{{z:.4g}} {unit}<extra></extra>",
        "colorscale": "Cividis",
        "reversescale": low_is_good,
        "colorbar": {"title": {"text": unit}, "thickness": 12},
        "xgap": 2,
        "ygap": 2,
    }
    return Figure(
        name="pairs-" + field.split("_")[0],
        caption=f"{title}, one direction at a time",
        data=[trace],
        layout={
            "xaxis": {"title": {"text": "to"}, "side": "bottom"},
            "yaxis": {"title": {"text": "from"}, "autorange": "reversed"},
        },
        says=f"{spread}; worst from {names[where[0]]} to {names[where[1]]}. Blocks of alike values "
        "are islands; one odd row is a slow link.",
        table=Table(
            caption=f"{title}, {unit} (rows: from, columns: to)",
            columns=["from", *names],
            rows=rows,
            folded=True,
        ),
        height_px=160 + 44 * len(names),
    )


def topology(machine: Fingerprint | None) -> Drawing | None:
    """Return a drawing of GPUs in their NUMA islands with the link of each; None without GPUs."""
    if machine is None or not machine.gpus:
        return None
    islands: dict[int | None, list[Gpu]] = {}
    for gpu in machine.gpus:
        islands.setdefault(gpu.numa_node, []).append(gpu)
    order = sorted(islands, key=lambda node: (node is None, node or 0))
    columns = max(2, min(4, max(len(gpus) for gpus in islands.values())))
    width = columns * (BOX_W + GAP) + 2 * MARGIN
    shapes: list[str] = []
    top = 8
    roots: list[tuple[float, float]] = []
    for node in order:
        height, drawn, root = _island(node, islands[node], top, width, columns)
        shapes += drawn
        roots.append(root)
        top += height + 34
    for above, below in itertools.pairwise(roots):
        shapes.append(
            f'<path class="between" stroke-width="3" d="M{above[0] - ROOT_W / 2} {above[1]} '
            f'H{4} V{below[1]} H{below[0] - ROOT_W / 2}"/>'
        )
    total = top - 26
    kind = ' class="wide"' if columns > 2 else ""
    svg = (
        f'<svg{kind} viewBox="0 0 {width} {total}" width="{width}" height="{total}" '
        f'xmlns="http://www.w3.org/2000/svg" aria-hidden="true">{"".join(shapes)}</svg>'
    )
    return Drawing(
        caption="Topology: NUMA islands and the link of every GPU", svg=svg, says=_says(machine)
    )


def _island(
    node: int | None, gpus: list[Gpu], top: int, width: int, columns: int
) -> tuple[int, list[str], tuple[float, float]]:
    lines = -(-len(gpus) // columns)
    height = 68 + lines * (BOX_H + 46)
    label = f"NUMA node {node}" if node is not None else "NUMA node not known"
    x0, middle = 14, 3 + width / 2
    shapes = [
        f'<rect class="island" x="{x0}" y="{top}" width="{width - 22}" height="{height}" rx="10"/>',
        f'<rect class="root" x="{middle - ROOT_W / 2}" y="{top + 14}" width="{ROOT_W}" '
        'height="40" rx="6"/>',
        f'<text x="{middle}" y="{top + 39}" text-anchor="middle" font-size="13">{label}</text>',
    ]
    for index, gpu in enumerate(gpus):
        row, column = divmod(index, columns)
        in_row = min(columns, len(gpus) - row * columns)
        left = middle - (in_row * (BOX_W + GAP) - GAP) / 2 + column * (BOX_W + GAP)
        y = top + 100 + row * (BOX_H + 46)
        centre = left + BOX_W / 2
        wide = 1 + (gpu.link_width_max or 1) / 3
        shapes.append(
            f'<path class="link" stroke-width="{wide:.1f}" d="M{middle} {top + 54} V{y - 34} '
            f'H{centre} V{y}"/>'
        )
        shapes.append(
            f'<rect class="box" x="{left}" y="{y}" width="{BOX_W}" height="{BOX_H}" rx="6"/>'
            f'<text x="{centre}" y="{y + 18}" text-anchor="middle" font-size="13">GPU {gpu.index}'
            f'</text><text class="soft" x="{centre}" y="{y + 34}" text-anchor="middle" '
            f'font-size="11">{_svg_text(gpu.name.removeprefix("NVIDIA "), 20)}</text>'
            f'<text class="soft" x="{centre}" y="{y + 50}" text-anchor="middle" font-size="11">'
            f"{_svg_text(gpu.pci or 'address not known', 20)}</text>"
            f'<text x="{centre + 8}" y="{y - 8}" font-size="11">{escape(link_text(gpu))}</text>'
        )
    return height, shapes, (middle, top + 34)


def link_text(gpu: Gpu) -> str:
    """Return a GPU's link as people write it; idle links slow down, so this is the maximum."""
    if gpu.link_gen_max is None and gpu.link_width_max is None:
        return "link not known"
    gen = f"Gen{gpu.link_gen_max}" if gpu.link_gen_max is not None else "Gen?"
    return f"{gen} x{gpu.link_width_max}" if gpu.link_width_max is not None else gen


def _svg_text(text: str, limit: int) -> str:
    shown = "".join(char if char.isprintable() else "\ufffd" for char in text)
    return escape(shown if len(shown) <= limit else shown[: limit - 1] + "\u2026")


def _says(machine: Fingerprint) -> str:
    parts = []
    for gpu in machine.gpus:
        node = f"NUMA node {gpu.numa_node}" if gpu.numa_node is not None else "NUMA node not known"
        parts.append(f"GPU {gpu.index} ({gpu.name}) in {node}, {link_text(gpu)}")
    return "; ".join(parts) + "."
