"""A folder in shared memory for each MPI launch, which never outlives its owner for long.

The owner holds a lock on the folder while it uses it. Whoever can take the lock of another folder
knows that its owner is gone, whatever became of the process id: containers that share /dev/shm
number their processes each for itself.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from pathlib import Path

ROOTS = (Path("/dev/shm"), Path("/var/tmp"))
_PREFIX = "collbench-launch-"
_YOUNG_S = 60.0
"""A folder without a lock may be one that is just being made."""


class LaunchFolder:
    """Makes, locks and removes the folder of one launch."""

    def __init__(self, number: int) -> None:
        root = next((r for r in ROOTS if os.access(r, os.W_OK | os.X_OK)), ROOTS[-1])
        self._path = root / f"{_PREFIX}{os.getpid()}-{number}-{time.monotonic_ns():x}"
        self._lock = -1

    def __enter__(self) -> Path:
        self._path.mkdir(mode=0o700)
        self._lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self._path

    def __exit__(self, *exc: object) -> None:
        """Remove the folder with all that MPI left in it."""
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock)


def sweep_leftovers(roots: tuple[Path, ...] = ROOTS) -> None:
    """Remove the folders of launches whose owner was killed; only our user's can be removed."""
    for root in roots:
        for folder in root.glob(f"{_PREFIX}*"):
            try:
                handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except OSError:
                continue  # gone in the meantime, or another user's
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(handle).st_mtime > _YOUNG_S:
                    shutil.rmtree(folder, ignore_errors=True)
            except BlockingIOError:
                continue  # in use
            finally:
                os.close(handle)
