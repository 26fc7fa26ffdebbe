"""What the search tells while it runs. The library prints nothing; the terminal listens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Progress(Protocol):
    """Listens to a sweep; `collbench.terminal.progress.SweepProgress` is one."""

    def stage(self, name: str, trials: int | None = None, left_s: float | None = None) -> None:
        """Begin a stage of at most `trials` launches; None where the budget is a time."""

    def default(self, default_us: float, noise_pct: float | None = None) -> None:
        """Tell the default's time and, once known, the noise floor."""

    def trial(
        self,
        settings: Mapping[str, str],
        outcome: str,
        ratio: float | None = None,
        *,
        reason: str = "",
        left_s: float | None = None,
    ) -> None:
        """Tell one launch; `ratio` is to the default near it, None where there is no time."""

    def say(self, text: str) -> None:
        """Tell one sentence that should stay on the screen."""


class Silent:
    """Listens and does nothing."""

    def stage(self, name: str, trials: int | None = None, left_s: float | None = None) -> None:
        """Do nothing."""

    def default(self, default_us: float, noise_pct: float | None = None) -> None:
        """Do nothing."""

    def trial(
        self,
        settings: Mapping[str, str],
        outcome: str,
        ratio: float | None = None,
        *,
        reason: str = "",
        left_s: float | None = None,
    ) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""
