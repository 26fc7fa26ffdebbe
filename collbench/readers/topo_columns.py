"""Columns behind a matrix of `nvidia-smi topo` whose tabs a paste has lost."""

from __future__ import annotations

from itertools import combinations


def end_of_word(text: str, start: int) -> int:
    """Return where the word that begins at `start` ends, with the blank the tool pads an X with."""
    end = start + len(text[start:].split(None, 1)[0])
    return end + 1 if text[start:end] == "X" else end


def placed_values(
    tail: list[tuple[int, str]], extra: list[str], header: str, end: int
) -> list[str | None] | None:
    """Return the values behind the matrix by column, or None where that is not certain.

    Some are empty: then a value stands below the name of its column, or where the tabs of the
    tool's own line put it, eight columns each, when a terminal wrote them out as blanks.
    """
    if len(tail) == len(extra):
        return [value for _, value in tail]
    found = []
    for chosen in combinations(range(len(extra)), len(tail)):
        values = dict(zip(chosen, tail, strict=True))
        below = all(abs(start - header.find(extra[i])) <= 1 for i, (start, _) in values.items())
        if below or _tab_stops(values, extra, end):
            found.append([values[i][1] if i in values else None for i in range(len(extra))])
    return found[0] if len(found) == 1 else None


def _tab_stops(values: dict[int, tuple[int, str]], extra: list[str], end: int) -> bool:
    at = end
    for i, name in enumerate(extra):
        # "NUMA Affinity" is followed by an extra tab in the tool's own output.
        at = (at // 8 + 1 + (name == "GPU NUMA ID")) * 8
        if i in values:
            if values[i][0] != at:
                return False
            at += len(values[i][1])
    return True
