"""Sizes, times and bandwidths: the only conversions in the package. Imports only `errors`."""

from __future__ import annotations

import re

from collbench.errors import CollbenchError

_SUFFIX = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"([0-9]+)\s*([KMG]?)(?:iB|B)?", re.IGNORECASE)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h)", re.IGNORECASE)
MAX_SIZE_BYTES = 1 << 34
"""Largest message size accepted, 16 GiB: beyond it a typing error is likelier than a wish."""


def parse_size(text: str, *, where: str = "size") -> int:
    """Return the bytes of ``8K``, ``64KiB``, ``1M`` or ``4096``; suffixes are binary.

    >>> parse_size("8K"), parse_size("1 MiB"), parse_size("57344")
    (8192, 1048576, 57344)
    """
    match = _SIZE.fullmatch(text.strip())
    value = int(match[1]) * _SUFFIX[match[2].upper()] if match else 0
    if not 0 < value <= MAX_SIZE_BYTES:
        raise CollbenchError(
            f"{where}: {text!r} is not a size from 1 byte to 16 GiB",
            fix="write bytes or a binary suffix, for example 8192, 8K, 1M",
        )
    return value


def parse_sizes(text: str, *, where: str = "--sizes") -> list[int]:
    """Return the sizes of a comma-separated list, in the order given."""
    return [parse_size(part, where=where) for part in text.split(",")]


def format_size(size_bytes: int) -> str:
    """Return a size as people write it.

    >>> format_size(8192), format_size(57344), format_size(1310720), format_size(100)
    ('8 KiB', '56 KiB', '1.25 MiB', '100 B')
    """
    for name, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {name}"
    return f"{size_bytes} B"


def format_ms(time_us: float) -> str:
    """Return microseconds as milliseconds with three decimals.

    >>> format_ms(4338.2)
    '4.338 ms'
    """
    return f"{time_us / 1000:.3f} ms"


def parse_duration(text: str, *, where: str = "duration") -> float:
    """Return the seconds of ``90s``, ``5m`` or ``1h``.

    >>> parse_duration("5m")
    300.0
    """
    match = _DURATION.fullmatch(text.strip())
    if not match or float(match[1]) == 0:
        raise CollbenchError(
            f"{where}: {text!r} is not a duration", fix="write for example 90s, 5m or 1h"
        )
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2].lower()]
