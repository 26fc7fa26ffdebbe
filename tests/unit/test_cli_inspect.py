"""``collbench inspect``: bad input, exit codes, documents, start-up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from collbench.cli.inspect import inspect

CASES = Path(__file__).parent.parent / "data" / "cases"
GOOD = str(CASES / "topo" / "m_interleaved_sockets.txt")
FAULTY = str(CASES / "pcie" / "busy_x8.txt")


def run(*arguments: str) -> tuple[int, Result]:
    result = CliRunner().invoke(inspect, arguments, standalone_mode=False)
    return int(result.return_value if result.exception is None else 99), result


BAD = {
    "empty": b"",
    "blank": b" \n\n",
    "junk": bytes(range(256)) * 40,
    "utf16": "GPU0\tGPU1\n".encode("utf-16"),
    "utf16_bare": ("GPU0 X SYS\n" * 9).encode("utf-16-le"),
    "prose": b"hello, my server is slow\n",
    "long_line": b"x" * (1 << 20),
    "cut_json": b'{"runs": [{"label": "before", "verify_ms": [1.0, 2',
    "torn_multibyte": "€".encode()[:2] * 5000,
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_the_other_files_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(BAD[name])
    code, result = run(str(path), GOOD)
    assert code == 2
    lines = result.output.splitlines()
    assert lines[0].startswith(str(path))
    assert lines[1] == f"{GOOD}: topo_m"


def test_folder_pipe_missing_and_unreadable_are_one_line_each(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code, result = run(str(tmp_path), str(pipe), str(tmp_path / "none"), "/dev/zero", GOOD)
    assert code == 2
    assert [line for line in result.output.splitlines() if line.startswith("/")][:4] == [
        f"{tmp_path}: is a folder, not a file",
        f"{pipe}: is not a regular file",
        f"{tmp_path / 'none'}: cannot be read: No such file or directory",
        "/dev/zero: is not a regular file",
    ]


@pytest.mark.parametrize(
    ("files", "code"), [([GOOD], 0), ([GOOD, FAULTY], 3), ([FAULTY, "/none"], 2)]
)
def test_exit_code_and_document_agree(files: list[str], code: int) -> None:
    returned, result = run("--json", *files)
    document = json.loads(result.output)
    assert returned == document["exit_code"] == code
    assert document["command"] == "inspect"
    assert [entry["path"] for entry in document["files"]] == files
    assert set(document["files"][0]) == {"path", "kind", "facts", "findings", "error"}


def test_a_failed_file_has_the_error_as_its_only_fact() -> None:
    _, result = run("--json", str(CASES / "topo" / "m_cut_off.txt"))
    entry = json.loads(result.output)["files"][0]
    assert entry["facts"] == {"error": entry["error"]}
    assert entry["findings"][0]["code"] == "topo.truncated"
    assert set(entry["findings"][0]) == {"code", "line", "confidence", "evidence", "next"}


def test_given_supplies_the_profile(tmp_path: Path) -> None:
    log = str(CASES / "nccl_log" / "218_four_ranks.log")
    given = tmp_path / "given.json"
    given.write_text('{"profile": {"NCCL_PROTO": "Simple"}}')
    assert run(log)[0] == 0
    assert run(log, "--given", str(given))[0] == 3


@pytest.mark.parametrize(
    "text", ["[]", '{"profile": 3}', '{"who": 1}', "{", '{"rank_gpu": {"0": "x"}}']
)
def test_wrong_given_is_an_error_of_the_user(tmp_path: Path, text: str) -> None:
    from collbench.errors import CollbenchError

    given = tmp_path / "given.json"
    given.write_text(text)
    _, result = run(GOOD, "--given", str(given))
    assert isinstance(result.exception, CollbenchError)


def test_output_fits_80_columns_and_holds_no_control_characters(tmp_path: Path) -> None:
    evil = tmp_path / "log"
    value = b"\x1b]0;x\x07\x07LL\x08128"
    evil.write_bytes(b"n:1:1 [0] NCCL INFO NCCL_PROTO set by environment to " + value + b"\n")
    files = [str(p) for p in CASES.glob("*/*") if not p.name.endswith(".expect.json")]
    _, result = run(*files, str(evil))
    for line in result.output.splitlines():
        assert all(char.isprintable() for char in line), repr(line)
        assert len(line) <= 80 or line.startswith("/"), line


def test_inspect_imports_nothing_heavy() -> None:
    code = (
        "import sys; from collbench.cli import call; call(['inspect', sys.argv[1]]);"
        "heavy = {'pydantic', 'numpy', 'torch', 'scipy', 'pandas', 'optuna', 'yaml', 'rich'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, GOOD], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_dash_is_standard_input() -> None:
    data = Path(FAULTY).read_bytes()
    result = CliRunner().invoke(inspect, ["--json", "-", GOOD], input=data, standalone_mode=False)
    entries = json.loads(result.output)["files"]
    _, named = run("--json", FAULTY, GOOD)
    wanted = json.loads(named.output)["files"]
    assert [entry["path"] for entry in entries] == ["-", GOOD]
    assert entries[0] == {**wanted[0], "path": "-"}
    assert int(result.return_value) == 3


def test_empty_standard_input_and_a_second_dash_are_told() -> None:
    result = CliRunner().invoke(inspect, ["-"], input=b"", standalone_mode=False)
    assert int(result.return_value) == 2
    assert result.output.splitlines()[0] == "-: empty"
    assert "read once" in str(run("-", "-")[1].exception)
