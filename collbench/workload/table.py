"""A workload as a TOML table: the calls themselves, or the name of a model and its batch.

Used by ``.toml`` files and by the ``[workload]`` table of a sweep.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from collbench.collectives import collective, itemsize
from collbench.errors import CollbenchError
from collbench.job import Step, StepCall
from collbench.units import MAX_SIZE_BYTES, parse_size
from collbench.workload.step import Workload

TABLE_FIELDS = frozenset({"name", "dtype", "calls"})
CALL_FIELDS = frozenset({"collective", "size", "count", "dtype", "compute"})
MAX_COUNT = 100_000
MAX_CALLS = 10_000
MAX_DIM = 1 << 24
MAX_ELEMENTS = 1 << 33
"""Of one matrix of the compute: 16 GiB in bfloat16."""


def from_table(table: Mapping[str, Any], *, name: str, where: str) -> Workload:
    """Return the workload of a table with ``[[calls]]``.

    Args:
        table: ``dtype``, optional ``name``, and ``calls``: tables of ``collective``, ``size``
            (bytes or ``"56K"``; as in `collbench.job.Case`), ``count`` (1), ``dtype`` (the
            table's), ``compute`` (products before each call, ``[m, k, n]``).
        name: Name of the step where the table has none.
        where: File and table, for errors.

    Raises:
        CollbenchError: a field is missing, unknown or out of range.
    """
    _known(table, TABLE_FIELDS, where)
    calls = table.get("calls")
    if not isinstance(calls, list) or not 1 <= len(calls) <= MAX_CALLS:
        raise CollbenchError(
            f"{where}: calls: needs 1 to {MAX_CALLS} [[calls]] tables",
            fix='write for example: [[workload.calls]] collective = "all_reduce" size = "56K" '
            "count = 122",
        )
    dtype = table.get("dtype", "bfloat16")
    step = Step(
        name=_text(table.get("name", name), f"{where}: name"),
        calls=tuple(_call(call, dtype, f"{where}: calls[{i}]") for i, call in enumerate(calls)),
    )
    return Workload(step=step, kind="toml", source=where)


def _call(entry: Any, dtype: Any, where: str) -> StepCall:
    if not isinstance(entry, Mapping):
        raise CollbenchError(f"{where}: {entry!r} is not a table")
    _known(entry, CALL_FIELDS, where)
    for needed in ("collective", "size"):
        if needed not in entry:
            raise CollbenchError(f"{where}: {needed}: missing", fix=f"add {needed} to the call")
    dtype = _text(entry.get("dtype", dtype), f"{where}: dtype")
    size = _size(entry["size"], f"{where}: size")
    if size % itemsize(dtype, where=f"{where}: dtype"):
        raise CollbenchError(
            f"{where}: size: {size} bytes is not a whole number of {dtype} elements",
            fix=f"use a multiple of {itemsize(dtype)}",
        )
    name = _text(entry["collective"], f"{where}: collective")
    return StepCall(
        collective=collective(name, where=f"{where}: collective").name,
        size_bytes=size,
        dtype=dtype,
        count=_number(entry.get("count", 1), MAX_COUNT, f"{where}: count"),
        compute=_products(entry.get("compute", []), f"{where}: compute"),
    )


def _products(value: Any, where: str) -> tuple[tuple[int, int, int], ...]:
    if not isinstance(value, list) or not all(isinstance(p, list) and len(p) == 3 for p in value):
        raise CollbenchError(
            f"{where}: {str(value)[:60]} is not a list of [m, k, n]",
            fix="write for example [[4, 7168, 1792], [4, 1792, 7168]]",
        )
    products = [tuple(_number(dim, MAX_DIM, where) for dim in p) for p in value]
    made = tuple((m, k, n) for m, k, n in products)
    rows = {m for m, _, _ in made}
    parted = next(((a, b) for a, b in itertools.pairwise(made) if a[2] != b[1]), None)
    if parted or len(rows) > 1:
        what = f"{list(parted[0])} does not feed {list(parted[1])}" if parted else "rows differ"
        raise CollbenchError(
            f"{where}: {what}: products in a row have one m, and each k is the n before it",
            fix="write for example [[4, 7168, 1792], [4, 1792, 7168]]",
        )
    if any(max(k * n, m * k, m * n) > MAX_ELEMENTS for m, k, n in made):
        raise CollbenchError(
            f"{where}: a matrix of more than {MAX_ELEMENTS} elements", fix="correct the value"
        )
    return made


def _known(table: Mapping[str, Any], fields: frozenset[str], where: str) -> None:
    unknown = sorted(set(table) - fields)
    if unknown:
        raise CollbenchError(
            f"{where}: unknown field {unknown[0]!r}", fix=f"use {', '.join(sorted(fields))}"
        )


def _size(value: Any, where: str) -> int:
    return (
        parse_size(value, where=where)
        if isinstance(value, str)
        else _number(value, MAX_SIZE_BYTES, where)
    )


def _number(value: Any, largest: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        raise CollbenchError(
            f"{where}: {str(value)[:40]!r} is not an integer from 1 to {largest}",
            fix="correct the value",
        )
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= 100:
        raise CollbenchError(f"{where}: {str(value)[:60]!r} is not a short text")
    return value
