"""What a user can act on: the error type and the exit codes. Imports nothing of the package."""

from __future__ import annotations

import re
from enum import IntEnum

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""What moves the cursor, colours, reorders or hides text on a terminal; tab and newline stay."""


class Exit(IntEnum):
    """Exit codes of the commands; `run` adds those of env(1)."""

    OK = 0
    FAILED = 1
    """The tool, a launch or a process failed."""
    USAGE = 2
    """A wrong argument or file; nothing was done."""
    FINDINGS = 3
    """Slower, different, regressed, or a finding."""
    UNDECIDED = 4
    """Wrong data (bench), unknown (verify), too few launches (compare), undecided (diagnose)."""
    NOT_COMPARABLE = 5
    TIMED_OUT = 124
    REFUSED = 125
    INTERRUPTED = 130


class CollbenchError(Exception):
    """A problem the user can act on, printed as one line plus the next step.

    File names and values in it come from others: what a terminal would obey becomes ``?``.

    Args:
        what: What was wrong: the file, field and offending value, and what is allowed.
        fix: The command or edit that comes next.
        code: Exit code of the command that raised it.
    """

    def __init__(self, what: str, *, fix: str = "", code: int = Exit.USAGE) -> None:
        self.what = _CONTROL.sub("?", what)
        self.fix = _CONTROL.sub("?", fix)
        super().__init__(self.what)
        self.code = int(code)

    def __str__(self) -> str:
        return f"{self.what}\n  fix: {self.fix}" if self.fix else self.what
