"""Die with the parent: no process of ours outlives the one that started it. Linux only.

PR_SET_PDEATHSIG fires when the *thread* that forked ends, so fork from the main thread. It is
cleared by a set-user-id exec and, for a child that was forked in between, not inherited: every
process of the chain (supervisor, fork server, worker, MPI rank) calls this itself.
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int | None = None, signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to send `signum` to this process when its parent dies.

    Args:
        parent_pid: The parent as it was known before the fork. If it has died in between, this
            process leaves at once; None skips that check.
        signum: The signal; SIGKILL unless the process has something to end first.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)
