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
    pooled: float
    """Both together, by launches: what the order goes by. The confirmation sees neither."""
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
    setup: Setup, scores: Sequence[Score], *, sd: float, reference: Settings, limit: Limit
) -> list[Short]:
    """Measure the shortlist in interleaved blocks and return it, best first.

    Among those within noise of the best, fewer settings come first, then fewer channels.
    """
    arms = {f"candidate {i + 1}": dict(reference) | dict(s.key) for i, s in enumerate(scores)}
    blocks = Blocks(setup=setup, arms=arms, reference=reference, purpose="shortlist")
    seen = dict(zip(arms, scores, strict=True))
    alive = list(arms)
    for most, count in ROUNDS:
        if len(alive) > most or not alive:
            alive = sorted(alive, key=lambda name: _pooled(blocks, name, seen[name], limit))[:most]
            alive = [name for name in alive if not broken(blocks, name, limit)]
        if not alive:
            break
        for _ in range(count):
            blocks.block([name for name in alive if not broken(blocks, name, limit)])
        if len(scores) == 1:
            break
    found = [
        Short(
            settings=dict(arms[name]),
            search_log=score.log,
            log=_log(blocks, name),
            pooled=_pooled(blocks, name, score, limit),
            launches=len(blocks.values(name)),
            reason=fault(blocks, name, limit),
            functions=_functions(blocks, name),
        )
        for name, score in zip(arms, scores, strict=True)
    ]
    best = min(s.pooled for s in found)
    most = max(s.launches for s in found)
    band = 0.5 * sd * math.sqrt(2 / max(most, 1))
    return sorted(found, key=lambda s: _order(s, best + band))


def _order(short: Short, tied: float) -> tuple[float, ...]:
    if short.pooled <= tied:
        return (0, len(short.settings), channels(short.settings), short.pooled)
    return (1, short.pooled)


def channels(settings: Mapping[str, str]) -> int:
    """Return the channels that settings ask for: each costs GPU memory and processors."""
    counts = [v for n, v in settings.items() if n.endswith(("NCHANNELS", "CTAS")) and v.isdigit()]
    return max((int(v) for v in counts), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """How much slower a guarded case may be, and the noise."""

    slower: float
    sd: float
    case_sd: Mapping[str, float]


def broken(blocks: Blocks, name: str, limit: Limit) -> bool:
    """Return whether an arm failed, breaks a function, or is sure to fail the guard."""
    return bool(fault(blocks, name, limit))


def fault(blocks: Blocks, name: str, limit: Limit) -> str:
    """Return what went wrong with an arm, or ''."""
    failed: Sequence[Run] = blocks.failures.get(name, ())
    if failed:
        return f"{failed[0].outcome}: {failed[0].reason}"
    bad = [f"{f}: {said}" for f, said in _functions(blocks, name).items() if said != "ok"]
    if bad:
        return "; ".join(bad[:3])
    for case in sorted({c for found in blocks.base for c in found.cases}):
        logs = blocks.logs(name, case)
        if len(logs) < 3:
            continue
        # Several cases, arms and looks: four standard errors, the gate has the last word.
        over = median_log(logs) - math.log1p(limit.slower)
        if over > 4 * limit.case_sd.get(case, limit.sd) * math.sqrt(2 / len(logs)):
            return f"{case} is {math.expm1(median_log(logs)) * 100:.0f} % slower"
    return ""


def _functions(blocks: Blocks, name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for run in blocks.runs.get(name, ()):
        for function, said in run.functions.items():
            if said != "ok" or function not in found:
                found[function] = said
    return found


def _log(blocks: Blocks, name: str) -> float:
    logs = blocks.logs(name)
    return median_log(logs) if logs and not blocks.failures.get(name) else math.inf


def _pooled(blocks: Blocks, name: str, score: Score, limit: Limit) -> float:
    """Return the log ratio over the search's and the shortlist's launches; inf where broken."""
    if broken(blocks, name, limit):
        return math.inf
    count = len(blocks.logs(name))
    if not count:
        return score.log
    return (score.count * score.log + count * _log(blocks, name)) / (score.count + count)


def label(name: Key) -> str:
    """Return settings as ``NAME=VALUE ...``."""
    return " ".join(f"{n}={v}" for n, v in name) or "default"
