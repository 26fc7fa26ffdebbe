"""Tell the forward passes of a captured log apart, and take the one of a batch."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from collbench.errors import CollbenchError

Call = tuple[str, int]
"""(collective, bytes as printed)."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass as printed."""

    calls: tuple[Call, ...]

    @property
    def payload(self) -> int:
        """Bytes of the all_reduce that it repeats."""
        return Counter(size for name, size in self.calls if name == "all_reduce").most_common(1)[0][
            0
        ]

    @property
    def reduces(self) -> int:
        """Number of its all_reduces of that size."""
        return self.calls.count(("all_reduce", self.payload))

    @property
    def ratio(self) -> float:
        """Logits gathered over bytes reduced: smaller in a prefill, which needs few logits."""
        gathered = sum(size for name, size in self.calls if name == "all_gather")
        return gathered / self.payload


def passes(calls: list[Call], per_pass: int | None) -> Iterator[Pass]:
    """Split the calls of a process into forward passes.

    Args:
        calls: In the order printed.
        per_pass: all_reduces of one pass, where the model is known.
    """
    begin = 0
    for i, (name, _) in enumerate(calls):
        if name == "all_gather":
            yield from _trimmed(calls[begin : i + 1], per_pass)
            begin = i + 1
    for _, run in itertools.groupby(calls[begin:]):
        yield from _trimmed(list(run), per_pass)


def _trimmed(calls: list[Call], per_pass: int | None) -> Iterator[Pass]:
    """Yield the pass at the end of `calls`, without what other communicators did before it.

    Where the model is known, a run of several passes without a gather between is cut into them.
    """
    sizes = Counter(size for name, size in calls if name == "all_reduce")
    if not sizes:
        return
    payload, count = sizes.most_common(1)[0]
    gathers = [call for call in calls[-1:] if call[0] == "all_gather"]
    start = calls.index(("all_reduce", payload))
    end = len(calls) - calls[::-1].index(("all_reduce", payload))
    body = calls[start:end]
    if per_pass and count > per_pass and count % per_pass == 0 and len(body) == count:
        for _ in range(count // per_pass - 1):
            yield Pass(tuple(body[:per_pass]))
        body = body[:per_pass]
    yield Pass((*body, *gathers))


def named(calls: list[tuple[str | None, int]]) -> list[Call]:
    """Name the calls of versions that do not: repeated sizes are all_reduce, single ones gather."""
    out: list[Call] = []
    i = 0
    while i < len(calls):
        j = i
        while j < len(calls) and calls[j] == calls[i]:
            j += 1
        name = calls[i][0] or ("all_reduce" if j - i > 2 else "all_gather")
        out += [(name, calls[i][1])] * (j - i)
        i = j
    return out


def choose(found: list[Pass], batch: int, where: str) -> tuple[Pass, list[str]]:
    """Return the captured pass that a batch runs in, and what was assumed.

    Raises:
        CollbenchError: no pass holds the batch.
    """
    counts = Counter(p.reduces for p in found)
    often = {count for count, times in counts.items() if times > 1} or set(counts)
    target = [p for p in found if p.reduces == max(often)]
    ratio = max(p.ratio for p in target)
    captured = {p.payload: p for p in target if p.ratio >= 0.99 * ratio}
    smallest = min(captured)
    held = next((size for size in sorted(captured) if size >= batch * smallest), None)
    if held is None:
        largest = max(captured) // smallest
        raise CollbenchError(
            f"{where}: --batch {batch}: the largest captured step holds {largest} sequences: the "
            "server runs this batch without a graph",
            fix=f"use --batch 1 to {largest}",
        )
    notes = [
        f"{len(captured)} batch sizes captured; the smallest ({smallest} bytes) is taken as one "
        "sequence"
    ]
    others = Counter(p.reduces for p in found if p.reduces < max(often) and p.reduces > 2)
    if others:
        shown = ", ".join(f"{n}x {count} all_reduces" for count, n in sorted(others.items())[:4])
        notes.append(f"smaller passes left out (a draft model's?): {shown}")
    return captured[held], notes
