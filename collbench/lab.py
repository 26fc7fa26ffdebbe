"""What the deciding side asks for: one launch, of one set of settings, for one purpose.

The sweep's lab builds a `Job` and hands it to the trial pool; the tests' and the replay
benchmark's labs answer from a recorded landscape. Search, ablation, confirmation and gate see
nothing but this.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from collbench.errors import CollbenchError, Exit
from collbench.job import Run, Settings

Purpose = Literal["search", "shortlist", "confirm", "guard", "proof"]
"""What a launch is for; it decides what is timed.

``search``: the objective only. ``shortlist``: the objective and the smoke of every function a
server calls. ``confirm``: the objective and the guarded sizes. ``guard``: the guarded sizes only.
``proof``: NCCL_DEBUG on, times not used.
"""


class StuckError(CollbenchError):
    """No further launch can succeed, after one that ended badly.

    Args:
        what: What is in the way.
        fix: What to do before the study goes on.
        run: How the last launch ended. It is kept, so that a resumed study does not ask for the
            same again.
    """

    def __init__(self, what: str, *, fix: str, run: Run) -> None:
        super().__init__(what, fix=fix, code=Exit.FAILED)
        self.run = run


class Lab(Protocol):
    """Starts launches, one after the other."""

    def launch(self, settings: Settings, purpose: Purpose, *, env_file: Path | None = None) -> Run:
        """Start one launch in fresh processes and wait for its end.

        Args:
            settings: The candidate, on top of the baseline; ``{}`` is the default.
            purpose: What the launch is for.
            env_file: Start by exec from this env file, the way a server starts; its settings are
                `settings` again.

        Returns:
            The run; a launch that hung, died or answered wrongly is an outcome, not an exception.

        Raises:
            StuckError: GPUs stay busy after a launch that was killed.
            CollbenchError: no further launch can succeed (the pool is gone).
        """
        ...

    def launch_communicators(
        self, shared: Settings, each: Sequence[Settings], purpose: Purpose
    ) -> list[Run]:
        """Try several sets of communicator-level settings in one set of processes.

        Only variables whose `read_at` is ``communicator`` may stand in `each`. Never used for a
        confirmation. A hang costs the whole process: runs that were not reached are ``hung``.
        """
        ...
