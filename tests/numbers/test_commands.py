"""`collbench compare` and `collbench workload show` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from collbench.cli import call
from collbench.record import RunRecord, load, save
from collbench.results import results

Maker = Callable[..., RunRecord]
DATA = Path(__file__).parent.parent / "data" / "records"
DEFAULT = DATA / "run-v1-h200x2-default.json"
CHANNELS = DATA / "run-v1-h200x2-channels16.json"
KEY = "all_reduce/8192/bfloat16/graph"


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = call([*arguments, "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out)


def test_a_record_of_schema_1_loads_and_gives_its_numbers() -> None:
    found = results(load(DEFAULT, RunRecord))
    assert len(found.cases) == 9
    assert {case.launches for case in found.cases} == {6}
    step = found.step
    assert step is not None
    assert step.total_us == pytest.approx(4334.0, abs=0.1)
    assert step.exposed_us == pytest.approx(2068, abs=5)
    case = next(c for c in found.cases if c.case.key == "all_reduce/57344/bfloat16/graph")
    assert case.p50_us == pytest.approx(14.96, abs=0.01)
    assert case.p99_us is None
    assert case.busbw_gbs == pytest.approx(57344 / 14.96 / 1000, rel=0.001)  # factor 1 of 2 ranks


def test_compare_finds_what_sixteen_channels_do(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys, "compare", str(DEFAULT), str(CHANNELS))
    assert (code, found["exit_code"], found["command"], found["schema"]) == (0, 0, "compare", 1)
    verdicts = {case["key"]: case["verdict"] for case in found["cases"]}
    assert verdicts["step"] == "faster"
    assert verdicts["all_reduce/262144/bfloat16/graph"] == "faster"
    assert verdicts["all_reduce/1048576/bfloat16/graph"] == "no_difference"
    assert found["differs"] == []
    assert found["settings"] == [{"key": "NCCL_MIN_NCHANNELS", "a": "unset", "b": "16"}]
    assert set(found["cases"][0]) >= {"key", "ratio", "interval", "verdict"}


def test_compare_the_other_way_is_slower_and_exits_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["compare", str(CHANNELS), str(DEFAULT)]) == 3
    shown = capsys.readouterr().out
    assert "SLOWER" in shown
    assert "9 cases tested together" in shown


def test_compare_writes_the_document_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert call(["compare", str(DEFAULT), str(CHANNELS), "--json-file", str(path)]) == 0
    assert json.loads(path.read_text())["exit_code"] == 0


def test_exit_codes_4_and_5(tmp_path: Path, make_record: Maker) -> None:
    save(tmp_path / "a.json", make_record({KEY: [10.0, 10.1]}))
    save(tmp_path / "b.json", make_record({KEY: [10.0, 10.1]}, machine={"host": "node-b"}))
    a, b = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    assert call(["compare", a, a]) == 4
    assert call(["compare", a, b]) == 5
    assert call(["compare", a, b, "--across", "machine"]) == 4


def changed(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    plain = json.loads(DEFAULT.read_text())
    change(plain)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(plain))
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: p.update(schema=99), "schema 99 is newer"),
        (lambda p: p.pop("schema"), "no 'schema' field"),
        (lambda p: p.pop("launches"), "launches: Field required"),
        (lambda p: p.update(nranks="many"), "nranks"),
        (lambda p: p.update(kind="profile"), "kind"),
        (
            lambda p: p["launches"][0]["cases"][0].update(times_us="x"),
            "launches.0.cases.0.times_us",
        ),
    ],
)
def test_a_wrong_record_is_one_line_and_exit_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[dict[str, Any]], object],
    said: str,
) -> None:
    path = changed(tmp_path, change)
    assert call(["compare", str(DEFAULT), str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00\x01", DEFAULT.read_text()[:1000]])
def test_what_is_no_record_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    assert call(["compare", str(path), str(DEFAULT)]) == 2
    assert call(["workload", "show", "61x7168", "--record", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_fields_of_a_newer_writer_are_kept_and_do_not_disturb(tmp_path: Path) -> None:
    path = changed(tmp_path, lambda p: p.update(future={"x": 1}))
    assert call(["compare", str(DEFAULT), str(path)]) == 0


def test_workload_show_prints_calls_shares_and_the_draft_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, found = document(
        capsys, "workload", "show", "61x7168", "--draft-tokens", "4", "--record", str(DEFAULT)
    )
    assert (code, found["exit_code"], found["command"]) == (0, 0, "workload")
    assert found["nranks"] == 2
    assert sum(call["share_pct"] for call in found["calls"]) == pytest.approx(100.0)
    assert sum(call["time_pct"] for call in found["calls"]) == pytest.approx(100.0)
    assert found["comm_us"] == pytest.approx(1882, abs=2)
    assert [row["draft_tokens"] for row in found["draft_table"] if row["crossed"]] == [5]
    assert found["nccl"]["used"] == "depends"


@pytest.mark.parametrize(
    "arguments",
    [
        ["61x7168", "--draft-tokens", "4", "--record", str(DEFAULT)],
        ["61x7168", "--tp", "8"],
        ["verify-61x7168"],
    ],
)
def test_the_document_is_what_its_schema_says(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    schema = json.loads((DATA.parents[2] / "docs" / "schema" / "workload.json").read_text())
    _, found = document(capsys, "workload", "show", *arguments)
    Draft202012Validator(schema).validate(found)


def test_a_record_of_a_cpu_backend_predicts_from_its_eager_cases(
    tmp_path: Path, make_record: Maker, capsys: pytest.CaptureFixture[str]
) -> None:
    eager = {"all_reduce/57344/float32/eager": [20.0], "all_gather/1310720/float32/eager": [300.0]}
    save(tmp_path / "cpu.json", make_record(eager, backend="mpi"))
    _, found = document(
        capsys, "workload", "show", "verify-61x7168", "--record", str(tmp_path / "cpu.json")
    )
    assert found["comm_us"] == 122 * 20.0 + 300.0
    save(tmp_path / "gpu.json", make_record(eager))
    assert call(["workload", "show", "61x7168", "--record", str(tmp_path / "gpu.json")]) == 2
    assert "no case timed in graph mode" in capsys.readouterr().err


def test_the_prediction_is_near_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = document(capsys, "workload", "show", "verify-61x7168", "--record", str(DEFAULT))
    measured = results(load(DEFAULT, RunRecord)).step
    assert measured is not None
    # Back to back against beside compute: the real step pays some more.
    assert found["comm_us"] == pytest.approx(measured.exposed_us, rel=0.12)
    assert found["comm_us"] < measured.exposed_us


def test_workload_show_text_fits_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    call(["workload", "show", "61x7168", "--tp", "8", "--draft-tokens", "4"])
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "all_reduce" in shown
    assert "8 GPUs without full NVLink" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "No such file"),
        (["61x7168", "--tp", "8", "--record", str(DEFAULT)], "measured with 2 ranks"),
        (["61x7168", "--tp", "0"], "--tp: 0"),
        (["61x7168", "--tp", "8", "--batch", "-1"], "--batch: -1"),
        (["61x7168", "--tp", "8", "--server", "tgi"], "tgi"),
        (["verify-61x7168", "--batch", "2"], "fixed sizes"),
        (["61x7168", "--server-args", "x --enable-dp-attention"], "DP attention"),
        (["61x7168", "--tp", "8", "--max-graph", "-5"], "--max-graph"),
    ],
)
def test_bad_arguments_exit_2_with_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert call(["workload", "show", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert "Traceback" not in captured.err


def test_the_servers_command_line_fills_in(capsys: pytest.CaptureFixture[str]) -> None:
    line = "VLLM_USE_NCCL_SYMM_MEM=1 vllm serve m -tp 4 --enforce-eager --speculative-config "
    line += """'{"num_speculative_tokens": 2}'"""
    _, found = document(capsys, "workload", "show", "80x8192", "--server-args", line)
    assert (found["nranks"], found["draft_tokens"], found["server"]) == (4, 3, "vllm")
    assert found["eager"]
    assert found["nccl"]["used"] == "no"


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", str(DEFAULT), str(CHANNELS)],
        ["workload", "show", "61x7168", "--tp", "8", "--record", str(DEFAULT)],
    ],
)
def test_commands_start_without_heavy_libraries(arguments: list[str]) -> None:
    code = (
        "import sys; from collbench.cli import call; call(sys.argv[1:]); "
        "heavy = {'torch', 'optuna', 'scipy', 'pandas', 'plotly'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 10  # a busy machine; the goal of 1.5 s is for a quiet one


@pytest.mark.parametrize("arguments", [["compare", "--help"], ["workload", "show", "--help"]])
def test_help_has_an_example(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert call(arguments) == 0
    assert "Example:" in capsys.readouterr().out
