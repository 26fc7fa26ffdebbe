"""Progress of a sweep: one live line on a terminal, one plain line an event elsewhere.

No thread refreshes the line: nothing of ours may run beside ranks that are being timed, so the
line changes only when an event arrives.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Self

from collbench.terminal.words import (
    WIDTH,
    clean,
    duration_text,
    outcomes_text,
    percent_text,
    settings_text,
    time_text,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live


@dataclass
class SweepState:
    """What is known of a running sweep; every field may still be unknown."""

    stage: str = "starting"
    trial: int = 0
    """Launches done in this stage."""
    trials: int | None = None
    """Launches planned in this stage; None where the budget is a time."""
    default_us: float | None = None
    noise_pct: float | None = None
    best_ratio: float | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    left_s: float | None = None


def status_line(state: SweepState, elapsed_s: float, width: int = WIDTH) -> str:
    """Return the live line: stage and trial, best against default, outcomes, time left.

    What does not fit is left out from the right; the trial and the best are kept longest.
    """
    count = f" {state.trial}" + (f"/{state.trials}" if state.trials else "") if state.trial else ""
    parts = [f"{state.stage}{count}", best_text(state)]
    bad = {name: n for name, n in state.outcomes.items() if name != "ok"}
    if bad:
        parts.append(outcomes_text(bad))
    parts.append(
        f"{duration_text(state.left_s)} left"
        if state.left_s is not None
        else duration_text(elapsed_s)
    )
    while len(parts) > 1 and len(" | ".join(parts)) >= width:
        parts.pop(2 if len(parts) > 2 else -1)
    return " | ".join(parts)[: width - 1]


def best_text(state: SweepState) -> str:
    """Return the best so far against the default with the noise, or what is known instead."""
    noise = f" (noise {state.noise_pct:.1f} %)" if state.noise_pct is not None else ""
    if state.best_ratio is not None and state.best_ratio < 1:
        return f"best {percent_text(state.best_ratio)} time{noise}"
    if state.default_us is not None:
        return f"default {time_text(state.default_us)}{noise}"
    return "measuring the default"


def trial_line(
    state: SweepState, settings: Mapping[str, str], outcome: str, ratio: float | None, reason: str
) -> str:
    """Return one trial as one line of a log."""
    of = f"/{state.trials}" if state.trials else ""
    if not settings and outcome == "ok":
        return f"{state.stage} {state.trial}{of}: default"
    result = clean(outcome) if ratio is None else f"{ratio:.3f}x default"
    text = f"{state.stage} {state.trial}{of}: {result}: {settings_text(settings)}"
    return text + (f": {clean(reason)}" if reason else "")


class SweepProgress:
    """Shows a sweep's progress on one stream; the text is the same with and without colour.

    Args:
        stream: Where to write, normally stderr.
        quiet: Show nothing at all.
        clock: Monotonic seconds.
    """

    def __init__(
        self, stream: IO[str], *, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.state = SweepState()
        self._clock = clock
        self._start = clock()
        self._stream = stream
        self._quiet = quiet
        self._console: Console | None = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        """Start the live line where the stream is a terminal."""
        if not self._quiet and self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._console = Console(file=self._stream, highlight=False, soft_wrap=True)
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Remove the live line; what was said above it stays."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def stage(self, name: str, trials: int | None = None, left_s: float | None = None) -> None:
        """Begin a stage of the sweep."""
        self.state.stage, self.state.trial, self.state.trials = clean(name, 30), 0, trials
        self.state.left_s = left_s
        self.say(self.state.stage + (f": {trials} launches" if trials else ""))

    def default(self, default_us: float, noise_pct: float | None = None) -> None:
        """Tell what the default takes, and the noise floor once it is known.

        A default of another scale (the safe profile under hazards, one end of a front) begins
        anew: the best so far was against another one.
        """
        self.state.default_us = default_us
        self.state.best_ratio = None
        if noise_pct is not None:
            self.state.noise_pct = noise_pct
        noise = f", noise floor {noise_pct:.1f} %" if noise_pct is not None else ""
        self.say(f"default {time_text(default_us)}{noise}")

    def trial(
        self,
        settings: Mapping[str, str],
        outcome: str,
        ratio: float | None = None,
        *,
        reason: str = "",
        left_s: float | None = None,
    ) -> None:
        """Count one launch of the present stage.

        Args:
            settings: What was measured; empty for the default.
            outcome: ``ok`` or another outcome of a run.
            ratio: Its time / the default's near it; None where there is no time.
            reason: For every outcome but ok, what happened.
            left_s: Estimated seconds to the end of the sweep.
        """
        state = self.state
        state.trial += 1
        state.outcomes[outcome] += 1
        state.left_s = left_s
        better = (
            ratio is not None
            and bool(settings)
            and ratio < (state.best_ratio if state.best_ratio is not None else 1.0)
        )
        if better and ratio is not None:
            state.best_ratio = ratio
        if self._live is None or better or outcome != "ok":
            self.say(trial_line(state, settings, outcome, ratio, reason))
        else:
            self._refresh()

    def say(self, text: str) -> None:
        """Write one line that stays: above the live line, or into the log with its time."""
        if self._quiet:
            return
        if self._live is not None and self._console is not None:
            from rich.text import Text

            self._console.print(Text(clean(text, 400)))
            self._refresh()
        else:
            elapsed = self._clock() - self._start
            self._stream.write(f"[{elapsed:7.1f} s] {clean(text, 400)}\n")
            self._stream.flush()

    def _refresh(self) -> None:
        if self._live is not None and self._console is not None:
            from rich.text import Text

            line = status_line(self.state, self._clock() - self._start, self._console.width)
            self._live.update(Text(line, no_wrap=True), refresh=True)
