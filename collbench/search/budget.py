"""Budgets: search launches, or a time for the whole sweep; and what is too small to confirm."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from collbench.errors import CollbenchError
from collbench.units import parse_duration

LEAST = 4
"""Search launches under which nothing is compared with anything."""
LEAST_S = 10.0
"""No launch is so short that noise floor, search and confirmation fit in less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """One of the two is given."""

    launches: int | None = 60
    """Search launches, interleaved defaults included."""
    seconds: float | None = None
    """For the whole sweep, A/A to proof."""


def parse_budget(text: str, *, where: str = "--budget") -> Budget:
    """Return the budget of ``60`` (search launches) or ``5m`` (time of the whole sweep).

    Raises:
        CollbenchError: neither a number nor a duration, or too small.
    """
    if re.fullmatch(r"[0-9]+", text.strip()):
        launches = int(text)
        if launches < LEAST:
            raise CollbenchError(
                f"{where}: {launches} search launches are too few to confirm anything",
                fix=f"give at least {LEAST}, or a time such as 5m",
            )
        return Budget(launches=launches)
    seconds = parse_duration(text, where=where)
    if seconds < LEAST_S:
        raise CollbenchError(
            f"{where}: in {seconds:g} s nothing can be searched and confirmed",
            fix="give 2m or more, or a number of search launches",
        )
    return Budget(launches=None, seconds=seconds)


def rest_of_sweep(pairs: int) -> int:
    """Return the launches that shortlist, ablation, confirmation and proof need as a rule."""
    return 33 + 20 + 2 * pairs + 5


def search_share(rest: float, ends: float) -> float:
    """Return how much of what is left the search gets.

    Args:
        rest: What is left beside the confirmation, in launches or seconds.
        ends: What confirming the ends of a front takes: they come last, and never cost the search
            more than half.
    """
    return max(rest / 2, rest - ends)


def search_seconds(
    budget: Budget, seconds_per_launch: float, elapsed: float, pairs: int, *, ends: int = 0
) -> float:
    """Return the seconds that the search may take; infinite under a budget of launches."""
    if budget.seconds is None:
        return math.inf
    confirming = rest_of_sweep(pairs) * seconds_per_launch
    return search_share(budget.seconds - elapsed - confirming, ends * confirming)


def plan_launches(
    budget: Budget,
    seconds_per_launch: float,
    elapsed: float,
    pairs: int,
    *,
    beside: bool,
    ends: int = 0,
) -> int:
    """Return the search launches that the budget allows.

    Args:
        budget: Launches, or a time.
        seconds_per_launch: As measured so far.
        elapsed: Seconds gone.
        pairs: Pairs of a confirmation.
        beside: Every candidate has a default of its own.
        ends: Ends of a front that are to be confirmed as well.

    Raises:
        CollbenchError: a time budget that leaves too little to search and confirm.
    """
    if budget.seconds is None:
        assert budget.launches is not None
        return budget.launches
    each = max(seconds_per_launch, 1e-3)
    rest = int((budget.seconds - elapsed) / each) - rest_of_sweep(pairs)
    launches = int(search_share(rest, ends * rest_of_sweep(pairs)))
    least = 2 * LEAST if beside else LEAST
    if launches < least:
        needed = elapsed + (rest_of_sweep(pairs) + least) * each
        raise CollbenchError(
            f"a budget of {budget.seconds:.0f} s is too small to confirm anything: a launch takes "
            f"{each:.2f} s here, and {pairs} pairs have to be confirmed",
            fix=f"give --budget {int(needed / 60) + 1}m or more, or a number of search launches",
        )
    return launches
