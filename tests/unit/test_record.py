"""What may stand in a record, and what a record may be."""

import json
from pathlib import Path

import pytest

from collbench.errors import CollbenchError
from collbench.job import Job
from collbench.machine import Fingerprint
from collbench.record import RunRecord, allowed_env, load, save


def test_only_known_variables_are_recorded_and_never_a_secret() -> None:
    environ = {
        "NCCL_PROTO": "LL",
        "OMPI_MCA_btl": "self,sm",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "HF_TOKEN": "hf_x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "HOME": "/root",
        "NCCL_NET_PLUGIN_TOKEN": "x",
        "UCX_AUTH_PASSWORD": "x",
        "TORCH_NCCL_private_key": "x",
        "DATABASE_URL": "postgresql://me:pw@db/x",
    }
    assert list(allowed_env(environ)) == ["CUDA_VISIBLE_DEVICES", "NCCL_PROTO", "OMPI_MCA_btl"]


def record() -> RunRecord:
    return RunRecord(
        created="2026-01-02T03:04:05Z",
        backend="mpi",
        nranks=2,
        machine=Fingerprint(host="node"),
        job=Job(job_id="0", backend="mpi", nranks=2),
        launches=[],
    )


def test_a_record_of_a_newer_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    save(path, record())
    plain = json.loads(path.read_text())
    for schema, words in ((2, "schema 2 is newer"), (None, "no 'schema' field")):
        path.write_text(json.dumps({**plain, "schema": schema}))
        with pytest.raises(CollbenchError, match=words) as caught:
            load(path, RunRecord)
        assert caught.value.fix


def test_a_field_that_a_newer_writer_added_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    save(path, record())
    plain = json.loads(path.read_text())
    path.write_text(json.dumps({**plain, "weather": "rain"}))
    again = load(path, RunRecord)
    save(path, again)
    assert json.loads(path.read_text())["weather"] == "rain"


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff", "[" * 5000])
def test_a_file_that_is_no_record_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text, encoding="latin-1")
    with pytest.raises(CollbenchError, match=r"r\.json"):
        load(tmp_path / "r.json", RunRecord)


def test_the_document_of_bench_is_told_from_its_record(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text('{"schema": 1, "command": "bench", "exit_code": 0, "record": "results/r.json"}')
    with pytest.raises(CollbenchError, match="the document of a command, not a record") as raised:
        load(path, RunRecord)
    assert raised.value.fix == "give results/r.json"
    assert raised.value.code == 2


def test_a_file_without_an_end_is_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collbench.record.MAX_BYTES", 1 << 20)
    with pytest.raises(CollbenchError, match="/dev/zero: over 1 MiB"):
        load(Path("/dev/zero"), RunRecord)
