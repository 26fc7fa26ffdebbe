"""What NCCL makes of a value: numbers by strtoll, everything else as it stands."""

from __future__ import annotations

import re

_STRTOLL = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)?")


def as_number(text: str) -> int:
    """Return what ``strtoll(text, 0)`` returns: junk behind a number is dropped, no number is 0.

    >>> as_number("0x10"), as_number("010"), as_number("4M"), as_number('"8"'), as_number("-2")
    (16, 8, 4, 0, -2)
    """
    match = _STRTOLL.match(text)
    digits = (match[2] or "0") if match else "0"
    if digits[:2] in ("0x", "0X"):
        value = int(digits, 16)
    else:
        value = int(digits, 8 if digits.startswith("0") else 10)
    return -value if match and match[1] == "-" else value


def same_value(want: str, printed: str, *, numeric: bool) -> bool:
    """Return whether NCCL printed the wanted value; numbers count by what they mean."""
    if want == printed:
        return True
    whole = re.fullmatch(r"[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]+)", want)
    return bool(numeric and whole and str(as_number(want)) == printed)
