"""The ends of a front: what is best for servers that only decode, and that only prefill.

After the knee, each end is decided as a study of its own objective would, from the launches that
the search has made already: shortlist, ablation, confirmation against the default, proof. Its
gate guards the sizes of its own side only; what it gives up on the other is measured and said.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from collbench.confirm.noise import floor_of
from collbench.confirm.objective import PREFILL, STEP
from collbench.confirm.statistics import pairs_for
from collbench.search.budget import rest_of_sweep
from collbench.search.finish import SERVES, Finish, beyond
from collbench.search.history import History, Score, Seen
from collbench.search.model import Additive
from collbench.search.result import StudyResult, searched
from collbench.search.shortlist import pick
from collbench.space.axes import WIDE, Key, key

Side = Literal["decode", "prefill"]
SIDES: tuple[Side, ...] = ("decode", "prefill")
CASES = {"decode": STEP, "prefill": PREFILL}
"""Side -> its objective among the guarded cases of the knee."""
SEEN, PROMISED = 2, 2
"""Candidates of an end that get new launches: measured ones, and combinations of them."""


def with_ends(knee: Finish, result: StudyResult) -> StudyResult:
    """Return the knee's result with both ends in ``ends``, adopted or not, each with its reasons.

    Args:
        knee: What decided on the knee; its lab holds the launches.
        result: Its result: a profile, or the default.
    """
    ends = tuple(_end(knee, result, side) for side in SIDES)
    ledger = knee.lab.ledger
    return replace(
        result,
        ends=ends,
        trials=len(ledger.runs),
        trials_reused=ledger.reused,
        outcomes=dict(ledger.outcomes),
        seconds=knee.account.seconds(),
        runs=ends[-1].runs,
    )


def _end(knee: Finish, result: StudyResult, side: Side) -> StudyResult:
    finish = _finish(knee, result, side)
    # A second profile is worth its confirmation, and its keeping, where it gains on the first.
    enough = _ratio(result, side) * (1 - finish.account.limits.gain)
    finish.chosen = _candidates(finish)
    if not any(score.log < math.log(enough) for score in finish.chosen):
        return finish.keep_default(SERVES if result.settings else "nothing was faster there either")
    if not _in_time(finish):
        return finish.keep_default("the time budget ended before it could be confirmed")
    knee.progress.default(finish.floor.default_us, finish.floor.sd * 100)
    found = finish.run()
    if not found.settings:
        return found
    assert found.ratio is not None
    if found.ratio > enough:
        return finish.keep_default(SERVES, confirmation=found.confirmation)
    return replace(found, must_hold=(_must_hold(found, side),))


def _candidates(finish: Finish) -> list[Score]:
    """Return what gets new launches: the best of the search, and what it promises together.

    The search turned its back on what costs the other side, so that combinations which are good
    for this side alone were not launched.
    """
    space, history = finish.space, finish.history
    best = pick(history, SEEN)
    names: list[Key] = space.head
    if len(names) > WIDE:
        names = [key(s) for score in best for s in space.neighbours(dict(score.key))]
    scores, condemned = history.scores(), history.condemned()
    new = [name for name in names if name and name not in scores and not condemned & set(name)]
    promised = Additive(space, history).predict(new)
    # Fewest settings first among those that promise as much within the noise.
    tied = min((one.log for one in promised), default=0.0) + 2 * history.error(1)
    promised.sort(key=lambda one: (one.log > tied, len(one.key), one.log, one.key))
    return best + [
        Score(key=one.key, log=one.log, count=0, guard=0.0) for one in promised[:PROMISED]
    ]


def _finish(knee: Finish, result: StudyResult, side: Side) -> Finish:
    """Return what decides on one end, on the launches of the search read for that side alone."""
    options = replace(knee.account.options, objective=side)
    setup = replace(knee.setup, objective=side, alone=True)
    runs = knee.lab.ledger.runs
    floor = floor_of(
        [found for s in runs if s.phase == "aa" and (found := setup.read(s.run)) is not None],
        beside=options.beside,
        seconds_per_launch=knee.floor.seconds_per_launch,
    )
    history = History.after(floor, beside=options.beside, slower=options.slower)
    for stored in runs:
        if stored.phase == "search":
            run, name = stored.run, key(beyond(stored.asked, knee.reference))
            seen = Seen(key=name, outcome=run.outcome, sample=setup.read(run), reason=run.reason)
            history.add(seen)
    least, most = options.pairs
    account = replace(
        knee.account,
        options=options,
        floor=floor,
        limits=replace(knee.account.limits, sd=floor.sd),
        pairs=pairs_for(floor.sd, options.wanted_gain, floor=least, cap=most),
        searched=searched(history),
        search_winner={},
        search_log=None,
        shortlist=(),
        ablation=(),
        confirmed_on=(),
        warnings=[],
        prefix=f"{side} ",
    )
    return replace(
        knee,
        setup=setup,
        history=history,
        account=account,
        confirmations=1,
        told=lambda settings, confirmation: None,
        spared=result.settings,
    )


def _ratio(result: StudyResult, side: Side) -> float:
    """Return the knee's ratio on one side, on its confirming launches; 1 for the default."""
    if not result.settings or result.confirmation is None:
        return 1.0
    return next(g.ratio for g in result.confirmation.guards if g.case == CASES[side])


def _in_time(finish: Finish) -> bool:
    """Return whether an end can be confirmed in what is left of a time budget."""
    total = finish.account.options.budget.seconds
    each = finish.lab.ledger.seconds_each() or finish.floor.seconds_per_launch
    needed = rest_of_sweep(finish.account.pairs) * each
    return total is None or finish.account.seconds() + needed <= total


def _must_hold(found: StudyResult, side: Side) -> str:
    other = found.confirmation.other_ratio if found.confirmation is not None else None
    if side == "decode":
        return f"the server only decodes: calls from 1 MiB up take {other:.2f} times the default's"
    return f"the server only prefills: its decode step takes {other:.2f} times the default's"
