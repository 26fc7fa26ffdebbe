"""Raw times leave as a long table and come back the same."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from collbench.errors import CollbenchError
from collbench.exports import Row, to_csv, write_times
from collbench.record import RunRecord

Maker = Callable[..., RunRecord]
KEY = "all_gather/8192/bfloat16/graph"


@pytest.fixture
def record(make_record: Maker) -> RunRecord:
    return make_record({KEY: [10.1, 10.2, 10.3]}, step=[4000.5, 4001.5], nocomm=2000.25, windows=5)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_every_time_is_in_the_table(tmp_path: Path, record: RunRecord, suffix: str) -> None:
    path = tmp_path / f"times{suffix}"
    write_times(record, path)
    frame = pd.read_parquet(path) if suffix == ".parquet" else pd.read_csv(path)
    assert list(frame.columns) == list(Row._fields)
    assert len(frame) == 3 * 2 * 5 + 2 * 2 * 5 * 2
    cases = frame[frame.case == KEY]
    assert cases.groupby("launch").time_us.median().to_list() == [10.1, 10.2, 10.3]
    assert set(cases.size_bytes) == {8192}
    assert set(cases["rank"]) == {0, 1}
    step = frame[frame.case == "step"].time_us.median()
    bare = frame[frame.case == "step_nocomm"].time_us.median()
    assert step - bare == pytest.approx(2000.75)
    assert frame[frame.case == "step"].size_bytes.isna().all()


def test_parquet_says_what_was_measured(tmp_path: Path, record: RunRecord) -> None:
    import pyarrow.parquet as pq

    write_times(record, tmp_path / "t.parquet")
    metadata = pq.read_schema(tmp_path / "t.parquet").metadata
    assert metadata[b"collbench.nranks"] == b"2"
    assert metadata[b"collbench.backend"] == b"nccl"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_record_without_times_gives_an_empty_table(
    tmp_path: Path, make_record: Maker, suffix: str
) -> None:
    path = tmp_path / f"t{suffix}"
    write_times(make_record({}), path)
    frame = pd.read_parquet(path) if suffix == ".parquet" else pd.read_csv(path)
    assert len(frame) == 0
    assert "time_us" in frame


def test_csv_keeps_the_whole_number(make_record: Maker) -> None:
    time_us = 10.123456789012345
    lines = csv.DictReader(io.StringIO(to_csv(make_record({KEY: [time_us]}))))
    assert {float(line["time_us"]) for line in lines} == {time_us}


def test_another_suffix_is_refused_and_nothing_is_written(
    tmp_path: Path, record: RunRecord
) -> None:
    with pytest.raises(CollbenchError, match=r"cannot tell the format from .\.xlsx"):
        write_times(record, tmp_path / "t.xlsx")
    assert list(tmp_path.iterdir()) == []
