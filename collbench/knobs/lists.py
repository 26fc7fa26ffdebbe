"""The list syntax of NCCL_ALGO and NCCL_PROTO.

Since NCCL 2.24: ``[function:]list[;function:list...]`` (graph/tuning.cc, ``parseList``). Only the
first entry may lack a function; it then holds for all of them, and later entries overwrite it. A
list that starts with ``^`` switches everything on that it does not name. Before 2.24 there is one
flat list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: the function it is for (None: all), and what it names."""

    function: str | None
    negated: bool
    names: tuple[str, ...]

    def on(self, elements: Sequence[str]) -> set[str]:
        """Return those of `elements` that the entry switches on, spelled as in `elements`."""
        named = {name.lower() for name in self.names}
        return {e for e in elements if (e.lower() in named) is not self.negated}


def parse(value: str) -> list[Entry]:
    """Split a value into its entries, unchecked; empty ones are skipped, as strtok does."""
    entries = []
    for part in [part for part in value.split(";") if part] or [""]:
        function, colon, names = part.rpartition(":")
        names = names.strip()
        negated = names.startswith("^")
        split = names.removeprefix("^").split(",")
        found = tuple(name.strip() for name in split if name) or ("",)
        entries.append(Entry(function.strip() if colon else None, negated, found))
    return entries


def enabled(value: str, elements: Sequence[str]) -> set[str]:
    """Return the elements that any entry switches on, by name or by not excluding them."""
    return set().union(*(entry.on(elements) for entry in parse(value)))


def per_function(value: str, elements: Sequence[str]) -> dict[str, set[str]]:
    """Return function -> elements switched on, only for functions that the value decides."""
    result: dict[str, set[str]] = {}
    for entry in parse(value):
        for function in FUNCTIONS:
            if entry.function is None or entry.function.lower() == function.lower():
                result[function] = entry.on(elements)
    return result
