"""torchrun as the front door starts it: the same program without its forty lines.

Of a worker that failed torchrun prints a banner, and of a stop that was asked for a traceback of
its own. Here the first is one line, where the worker cannot have said it itself, and the second
is none: what the ranks print stands alone.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence

from collbench.errors import Exit

_STOPPED = (Exit.INTERRUPTED, -signal.SIGINT, -signal.SIGTERM)
_SPEAKERS = ("agent.server.api", "multiprocessing.api")
"""What warns of every worker that it ends."""


def main(arguments: Sequence[str]) -> int:
    """Run torchrun with its own command line; return 0, 1, or 130 where it was stopped."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    for name in _SPEAKERS:
        logging.getLogger(f"torch.distributed.elastic.{name}").setLevel(logging.CRITICAL)
    os.environ["COLLBENCH_TORCHRUN"] = str(os.getpid())  # a late rank looks for it: front.py
    try:
        torchrun(list(arguments))
    except (SignalException, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code = int(failure.exitcode)
        if code in _STOPPED:
            return Exit.INTERRUPTED
        if code != Exit.FAILED:
            print(f"collbench: rank {rank} {ended(code)}", file=sys.stderr, flush=True)
        return Exit.FAILED
    return Exit.OK


def ended(code: int) -> str:
    """Return how a process ended that leaves `code`; below zero: the signal.

    >>> ended(-11), ended(3)
    ('was ended by SIGSEGV', 'left with exit code 3')
    """
    if code >= 0:
        return f"left with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
