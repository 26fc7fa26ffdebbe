"""Ablation: drop every setting whose removal changes nothing, on new interleaved launches."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collbench.confirm.arms import Blocks, Setup
from collbench.confirm.statistics import median_log
from collbench.job import Settings
from collbench.space.axes import Space, key

LOSS = 0.005
"""A removal that costs less than this (log) changes nothing; half the noise where that is more."""
BLOCKS = 3
MOST_BLOCKS = 5
NOISY_BLOCKS = 12
"""Blocks at most, on a calm and on a noisy machine. Calm: an ablation of two settings ends in
some twenty launches; what it cannot tell apart by then differs by less than the noise of a
launch, and the smaller set is taken."""
LAUNCHES = 60
"""Of one ablation: a noisy machine gets more blocks only as far as they last."""
NOISY = 0.01
"""Launch sd from which a machine is noisy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """One candidate for removal."""

    dropped: dict[str, str]
    left: dict[str, str]
    ratio: float
    """Time without / time with."""
    pairs: int
    kept: bool
    """Whether the setting was kept."""
    reason: str = ""


def ablate(
    setup: Setup, space: Space, settings: Settings, *, sd: float, base: Settings
) -> tuple[dict[str, str], list[Removal]]:
    """Return the settings that matter, and the table of what was tried.

    One round launches every reduction the space allows beside the whole; the one that costs
    least is taken if it costs nothing, and the next round starts from there.

    Args:
        setup: The lab and how its launches are read.
        space: Says which reductions may be launched.
        settings: The winner, `base` included.
        sd: Noise floor.
        base: Settings of the reference, never dropped.
    """
    kept = {n: v for n, v in settings.items() if base.get(n) != v}
    table: list[Removal] = []
    left = LAUNCHES
    while kept:
        smaller = [r for r in space.reductions(kept) if r]
        if not smaller:
            break
        measured, used = _round(setup, kept, smaller, sd=sd, base=base, launches=left)
        left -= used
        free = [r for r in measured if not r.kept]
        # Fewest settings first, then the fastest.
        free.sort(key=lambda r: (len(r.left), r.ratio))
        chosen = free[0] if free else None
        table += [r if r is chosen or r.kept else _also_free(r) for r in measured]
        if chosen is None:
            break
        kept = chosen.left
    return dict(base) | kept, table


def _also_free(removal: Removal) -> Removal:
    return Removal(
        dropped=removal.dropped,
        left=removal.left,
        ratio=removal.ratio,
        pairs=removal.pairs,
        kept=removal.kept,
        reason="another removal was taken first",
    )


def _round(
    setup: Setup,
    kept: dict[str, str],
    smaller: list[dict[str, str]],
    *,
    sd: float,
    base: Settings,
    launches: int,
) -> tuple[list[Removal], int]:
    arms = {f"without {i}": dict(base) | left for i, left in enumerate(smaller)}
    blocks = Blocks(setup=setup, arms=arms, reference=dict(base) | kept, purpose="search")
    limit = max(LOSS, 0.5 * sd)
    alive = list(arms)
    most = NOISY_BLOCKS if sd > NOISY else MOST_BLOCKS
    used = 0
    while alive and len(blocks.base) < most and (used < launches or len(blocks.base) < BLOCKS):
        blocks.block(alive)
        used += 1 + len(alive)
        if len(blocks.base) >= BLOCKS:
            alive = [n for n in alive if _open(blocks, n, limit, sd)]
    found = []
    for name, left in zip(arms, smaller, strict=True):
        logs = blocks.logs(name)
        failed = blocks.failures.get(name)
        loss = median_log(logs) if logs and not failed else math.inf
        found.append(
            Removal(
                dropped={n: v for n, v in kept.items() if n not in left},
                left=left,
                ratio=math.exp(loss) if math.isfinite(loss) else math.inf,
                pairs=len(logs),
                kept=loss > limit,
                reason=f"{failed[0].outcome}: {failed[0].reason}" if failed else "",
            )
        )
    return found, used


def _open(blocks: Blocks, name: str, limit: float, sd: float) -> bool:
    """Return whether more blocks could still change the answer for an arm."""
    if blocks.failures.get(name):
        return False
    logs = blocks.logs(name)
    error = 1.25 * math.sqrt(2) * sd / math.sqrt(max(len(logs), 1))
    return abs(median_log(logs) - limit) < 2.2 * error


def same(first: Settings, second: Settings) -> bool:
    """Return whether two sets of settings are equal."""
    return key(first) == key(second)
