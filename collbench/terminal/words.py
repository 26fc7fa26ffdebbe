"""Numbers, durations and untrusted text as one line of plain words. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping

from collbench.units import format_ms

WIDTH = 80
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")


def clean(value: object, limit: int = 200) -> str:
    r"""Return a value as one line without control, escape or direction characters.

    >>> clean("node\x1b[31m7\nrm -rf")
    'node?[31m7?rm -rf'
    """
    text = _UNSAFE.sub("?", str(value))
    return text if len(text) <= limit else text[: limit - 3] + "..."


def time_text(time_us: float) -> str:
    """Return a time in the unit people use at its size.

    >>> time_text(4338.2), time_text(45.72), time_text(310.4)
    ('4.338 ms', '45.7 us', '310 us')
    """
    if time_us >= 1000:
        return format_ms(time_us)
    return f"{time_us:.0f} us" if time_us >= 100 else f"{time_us:.1f} us"


def duration_text(seconds: float) -> str:
    """Return a duration in whole seconds, minutes and hours.

    >>> duration_text(4.2), duration_text(67), duration_text(3700)
    ('4 s', '1 min 7 s', '1 h 1 min')
    """
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def percent_text(ratio: float) -> str:
    """Return how a ratio (candidate / default) reads against the default.

    >>> percent_text(0.927), percent_text(1.031), percent_text(1.0)
    ('7.3 % less', '3.1 % more', 'the same')
    """
    percent = (ratio - 1) * 100
    if abs(percent) < 0.05:
        return "the same"
    return f"{abs(percent):.1f} % {'less' if percent < 0 else 'more'}"


def settings_text(settings: Mapping[str, str]) -> str:
    """Return settings on one line, ``default`` where there is none.

    >>> settings_text({"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"})
    'NCCL_PROTO=LL NCCL_ALGO=Ring'
    """
    return " ".join(f"{clean(k)}={clean(v)}" for k, v in settings.items()) or "default"


def outcomes_text(outcomes: Mapping[str, int]) -> str:
    """Return outcomes with their counts, ``ok`` first, then the most frequent.

    >>> outcomes_text({"hung": 1, "ok": 24, "died": 0})
    '24 ok, 1 hung'
    """
    order = sorted(outcomes.items(), key=lambda item: (item[0] != "ok", -item[1], item[0]))
    return ", ".join(f"{count} {clean(name)}" for name, count in order if count) or "none"


def wrap(text: str, *, first: str = "", rest: str | None = None, width: int = WIDTH) -> str:
    """Wrap a paragraph; words longer than the line (paths, settings) are never cut."""
    return textwrap.fill(
        text,
        width=width,
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
