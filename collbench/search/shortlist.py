"""The shortlist: the best of the search on new launches, halved as the launches come in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.confirm.arms import Blocks, Setup
from collbench.confirm.statistics import median_log
from collbench.job import Run, Settings
from collbench.search.history import History, Score
from collbench.space.axes import Key

KEEP = 5
ROUNDS = ((5, 3), (3, 2), (2, 2))
"""(most arms alive, blocks): three blocks before the first arm goes, since one launch in twenty
may be an outlier; some thirty launches in all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Short:
    """One candidate on the shortlist."""

    settings: dict[str, str]
    search_log: float
    log: float
    """Median log ratio on the shortlist's own launches; inf where it failed."""
    launches: int
    reason: str = ""
    functions: dict[str, str]
    """What the smoke of every function said."""


def pick(history: History, keep: int = KEEP) -> list[Score]:
    """Return the best of the search, and simpler ones within the noise of the best.

    Candidates that look slower than the default by more than the noise stay out.
    """
    ranking = history.ranking()
    if not ranking:
        return []
    hopeful = [s for s in ranking if s.log < history.error(s.count)]
    chosen = hopeful[:keep]
    best = ranking[0]
    for score in hopeful[keep:]:
        simpler = all(len(score.key) < len(c.key) for c in chosen[:2])
        if simpler and score.log - best.log < history.error(score.count):
            chosen[-1] = score
            break
    return chosen


def shorten(
    setup: Setup, scores: Sequence[Score], *, sd: float, reference: Settings
) -> tuple[list[Short], Blocks]:
    """Measure the shortlist in interleaved blocks and return it, best first.

    Among those within noise of the best, fewer settings come first, then fewer channels.
    """
    arms = {f"candidate {i + 1}": dict(reference) | dict(s.key) for i, s in enumerate(scores)}
    blocks = Blocks(setup=setup, arms=arms, reference=reference, purpose="shortlist")
    alive = list(arms)
    for most, count in ROUNDS:
        if len(alive) > most or not alive:
            alive = _best(blocks, alive)[:most]
        if not alive:
            break
        for _ in range(count):
            blocks.block([name for name in alive if not broken(blocks, name)])
        if len(scores) == 1:
            break
    found = [
        Short(
            settings=dict(arms[name]),
            search_log=score.log,
            log=_log(blocks, name),
            launches=len(blocks.values(name)),
            reason=fault(blocks, name),
            functions=_functions(blocks, name),
        )
        for name, score in zip(arms, scores, strict=True)
    ]
    good = [s for s in found if math.isfinite(s.log)]
    if not good:
        return sorted(found, key=lambda s: s.search_log), blocks
    best = min(s.log for s in good if s.launches == max(g.launches for g in good))
    band = sd * math.sqrt(2 / max(s.launches for s in good))
    order = sorted(found, key=lambda s: (s.log > best + band, _simple(s, best, band)))
    return order, blocks


def _simple(short: Short, best: float, band: float) -> tuple[float, ...]:
    if short.log <= best + band:
        return (len(short.settings), channels(short.settings), short.log)
    return (short.log,)


def channels(settings: Mapping[str, str]) -> int:
    """Return the channels that settings ask for: each costs GPU memory and processors."""
    counts = [v for n, v in settings.items() if n.endswith(("NCHANNELS", "CTAS")) and v.isdigit()]
    return max((int(v) for v in counts), default=0)


def broken(blocks: Blocks, name: str) -> bool:
    """Return whether an arm failed or its smoke found a function that does not work."""
    return bool(fault(blocks, name))


def fault(blocks: Blocks, name: str) -> str:
    """Return what went wrong with an arm, or ''."""
    failed: Sequence[Run] = blocks.failures.get(name, ())
    if failed:
        return f"{failed[0].outcome}: {failed[0].reason}"
    bad = [f"{f}: {said}" for f, said in _functions(blocks, name).items() if said != "ok"]
    return "; ".join(bad[:3])


def _functions(blocks: Blocks, name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for run in blocks.runs.get(name, ()):
        for function, said in run.functions.items():
            if said != "ok" or function not in found:
                found[function] = said
    return found


def _log(blocks: Blocks, name: str) -> float:
    logs = blocks.logs(name)
    return median_log(logs) if logs and not broken(blocks, name) else math.inf


def _best(blocks: Blocks, alive: Sequence[str]) -> list[str]:
    return sorted(
        (name for name in alive if not broken(blocks, name)), key=lambda n: _log(blocks, n)
    )


def label(name: Key) -> str:
    """Return settings as ``NAME=VALUE ...``."""
    return " ".join(f"{n}={v}" for n, v in name) or "default"
