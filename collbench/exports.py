"""Raw times of a run record as one long table, CSV or parquet, for pandas and friends.

One row is one window of one rank of one launch. The record itself stays the truth.
"""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from collbench.errors import CollbenchError
from collbench.files import write_atomic
from collbench.job import Case
from collbench.record import RunRecord

SUFFIXES = (".csv", ".parquet")
NO_PYARROW = "parquet: pyarrow is not installed"
INSTALL = "pip install 'collbench[report]', or use .csv"


class Row(NamedTuple):
    """One window of one rank."""

    launch: int
    """Place of the launch in the record, from 0."""
    case: str
    """Key of the case; ``step`` or ``step_nocomm`` (the step without its collectives)."""
    collective: str | None
    size_bytes: int | None
    dtype: str | None
    mode: str
    rank: int
    window: int
    time_us: float
    """Microseconds a call; of the whole step for the step."""


def rows(record: RunRecord) -> Iterator[Row]:
    """Yield every time in a record, launch by launch, case by case, rank by rank."""
    for launch, run in enumerate(record.launches):
        for times in run.cases:
            yield from _of(launch, times.case.key, times.case, times.case.mode, times.times_us)
        if run.step is not None:
            yield from _of(launch, "step", None, "step", run.step.total_us)
            yield from _of(launch, "step_nocomm", None, "step", run.step.nocomm_us)


def _of(
    launch: int, key: str, case: Case | None, mode: str, times: list[list[float]]
) -> Iterator[Row]:
    for rank, windows in enumerate(times):
        for window, time_us in enumerate(windows):
            yield Row(
                launch=launch,
                case=key,
                collective=case.collective if case else None,
                size_bytes=case.size_bytes if case else None,
                dtype=case.dtype if case else None,
                mode=mode,
                rank=rank,
                window=window,
                time_us=time_us,
            )


def to_csv(record: RunRecord) -> str:
    """Return the long table as CSV, one header line, numbers unrounded."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(rows(record))
    return out.getvalue()


def to_parquet(record: RunRecord) -> bytes:
    """Return the long table as a parquet file; ranks, backend and library are in its metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds: dict[str, Any] = {
        "launch": pa.int32(),
        "case": pa.dictionary(pa.int32(), pa.string()),
        "collective": pa.dictionary(pa.int32(), pa.string()),
        "size_bytes": pa.int64(),
        "dtype": pa.dictionary(pa.int32(), pa.string()),
        "mode": pa.dictionary(pa.int32(), pa.string()),
        "rank": pa.int32(),
        "window": pa.int32(),
        "time_us": pa.float64(),
    }
    facts = {
        "collbench.nranks": str(record.nranks),
        "collbench.backend": record.backend,
        "collbench.library": record.machine.library or "",
        "collbench.created": record.created,
        "collbench.method": str(record.method),
    }
    columns = list(zip(*rows(record), strict=True)) or [()] * len(kinds)
    arrays = [
        pa.array(column, type=kind) for column, kind in zip(columns, kinds.values(), strict=True)
    ]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(kinds.items(), metadata=facts))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def check_suffix(path: Path) -> None:
    """Raise unless the format can be told and written, before anything is measured for it.

    Raises:
        CollbenchError: another suffix than .csv and .parquet, or pyarrow is missing.
    """
    if path.suffix not in SUFFIXES:
        raise CollbenchError(
            f"{path}: cannot tell the format from {path.suffix or 'no suffix'!r}",
            fix=f"end the name in {' or '.join(SUFFIXES)}",
        )
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise CollbenchError(NO_PYARROW, fix=INSTALL)


def write_times(record: RunRecord, path: Path) -> None:
    """Write the long table to `path`, whole or not at all; its suffix says how.

    Raises:
        CollbenchError: another suffix, pyarrow is missing, or `path` cannot be written.
    """
    check_suffix(path)
    write_atomic(path, to_parquet(record) if path.suffix == ".parquet" else to_csv(record))
