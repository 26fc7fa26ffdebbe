"""An option that is a number of seconds."""

from __future__ import annotations

import math
from typing import Any

import click


class Seconds(click.FloatRange):
    """Finite seconds from a least value on: a clock never reaches nan, and inf cannot be slept."""

    def __init__(self, least: float = 0.0) -> None:
        super().__init__(min=least)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds, or tell what is wrong with them."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return found
