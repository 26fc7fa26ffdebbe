"""Start and end a child by exec: watched by pidfd, killed with all it started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

from collbench.parent_death import die_with_parent
from collbench.pool.forkserver import Ended

_GONE_S = 10.0


class Child:
    """A process group started by exec; it dies with this process."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        parent = os.getpid()
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                list(command),
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(parent),
            )
        self.pid = self._process.pid
        self._watch = os.pidfd_open(self.pid)
        self._killed = False
        self._ended: Ended | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Kill what still runs, whatever happened."""
        if self._ended is None:
            self.kill()
            self.wait(_GONE_S)

    def wait(self, timeout_s: float) -> Ended | None:
        """Return how the process ended, or None if it still runs after `timeout_s`."""
        if self._ended is None and select.select([self._watch], [], [], max(0.0, timeout_s))[0]:
            code = self._process.wait()
            os.close(self._watch)
            self._ended = Ended(
                exit_code=code, signal=-code if code < 0 else None, killed=self._killed
            )
        return self._ended

    def kill(self) -> None:
        """Kill the process and every descendant, wherever it moved itself."""
        self._killed = True
        family = []
        with contextlib.suppress(psutil.Error):
            family = psutil.Process(self.pid).children(recursive=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for process in family:
            # psutil compares the start time, so that a reused pid is never hit
            with contextlib.suppress(psutil.Error):
                process.kill()
