"""Something wrong with a setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from collbench.knobs import Knob


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Something wrong with a setting."""

    code: str
    """``area.name``, as findings have it."""
    level: Literal["invalid", "hazard", "notice"]
    """``invalid``: refused, misread or ignored. ``hazard``: works, but is dangerous.
    ``notice``: works, and is not worth having.
    """
    name: str
    message: str
    next: str
    """The edit that comes next."""
    effective: str | None = None
    """What the library makes of the value, where it makes something else of it."""


def invalid(entry: Knob, message: str, fix: str, effective: str | None = None) -> Fault:
    """Return the fault of a value that the library refuses, misreads or ignores."""
    code = "nccl.invalid_value" if entry.library == "nccl" else "env.invalid_value"
    return Fault(
        code=code, level="invalid", name=entry.name, message=message, next=fix, effective=effective
    )
