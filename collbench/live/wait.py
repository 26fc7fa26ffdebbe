"""Look again until a server is up and live, for start scripts."""

from __future__ import annotations

import time

from collbench.errors import CollbenchError, Exit
from collbench.live.verify import Result, Wanted, verify

POLL_S = 0.5
MOST_POLL_S = 2.0


def until_live(wanted: Wanted, seconds: float | None) -> tuple[Result, bool]:
    """Look once, or until two looks in a row find the same workers live, or time is up.

    Args:
        wanted: What to look for. Its `nranks` is how many workers have to be up; without it
            processes that show no sign of being workers do not count, because a launcher that
            has not started its workers yet looks like that.
        seconds: How long to look; None: once.

    Returns:
        The last result, and whether the time ran out.

    Raises:
        CollbenchError: a wrong pattern, or (without `seconds`) a pid or log that is not there.
    """
    if seconds is None:
        return verify(wanted), False
    deadline = time.monotonic() + seconds
    pause = POLL_S
    before: list[int] | None = None
    while True:
        result = _look(wanted)
        pids = [worker.seen.process.pid for worker in result.workers]
        up = result.verdict == "live" and (wanted.nranks > 0 or not result.guessed)
        if up and pids == before:
            return result, False
        before = pids if up else None
        left = deadline - time.monotonic()
        if left <= 0:
            return result, True
        time.sleep(min(pause, left))
        pause = MOST_POLL_S if before is None else POLL_S


def _look(wanted: Wanted) -> Result:
    """Look once; what is not there yet may still come."""
    if wanted.log is not None and not wanted.log.exists():
        return Result([], None, [])
    try:
        return verify(wanted)
    except CollbenchError as error:
        if error.code != Exit.FAILED:
            raise
        return Result([], None, [])
