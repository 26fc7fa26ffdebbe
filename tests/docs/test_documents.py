"""What the commands really print with --json is what their published schemas say."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from collbench.cli import call

ROOT = Path(__file__).parent.parent.parent
CASES = ROOT / "tests" / "data" / "cases"
HAZARD = "NCCL_PROTO=^LL\nNCCL_BUFFSIZE=4M\n"


def printed(schema: str, *arguments: str) -> dict[str, Any]:
    """Run a command, check its document against the schema and its exit code, and return it."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = call([*arguments, "--json"])
    document = json.loads(out.getvalue())
    plain = json.loads((ROOT / "docs" / "schema" / f"{schema}.json").read_text())
    Draft202012Validator(plain).validate(document)
    assert document["exit_code"] == code
    assert isinstance(document, dict)
    return document


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    path = tmp_path / "some.env"
    path.write_text(HAZARD)
    return path


@pytest.mark.parametrize(
    "kind", sorted(path.name for path in CASES.iterdir() if path.is_dir()) if CASES.is_dir() else []
)
def test_inspect(kind: str) -> None:
    files = [p for p in sorted((CASES / kind).iterdir()) if not p.name.endswith(".expect.json")]
    document = printed("inspect", "inspect", *map(str, files[:6]))
    assert len(document["files"]) == min(6, len(files))


def test_inspect_of_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    document = printed("inspect", "inspect", str(tmp_path / "missing"))
    assert document["exit_code"] == 2
    assert document["files"][0]["facts"] == {"error": document["files"][0]["error"]}


def test_diagnose() -> None:
    steps = CASES / "e2e" / "slower_collective.json"
    document = printed("diagnose", "diagnose", "--steps", str(steps), "--no-processes")
    assert document["verdict"] == "regression"


def test_profile_lint(env_file: Path) -> None:
    document = printed("profile-lint", "profile", "lint", str(env_file))
    assert document["findings"]


def test_profile_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from collbench.profiles import Profile
    from collbench.profiles.store import publish

    publish(tmp_path, "machine", Profile(settings={"NCCL_MIN_NCHANNELS": "16"}))
    monkeypatch.setenv("COLLBENCH_RESULTS", str(tmp_path))
    document = printed("profile-list", "profile", "list")
    assert document["profiles"][0]["settings"] == {"NCCL_MIN_NCHANNELS": "16"}


@pytest.mark.dist
def test_status() -> None:
    printed("status", "status")


@pytest.mark.dist
def test_verify(env_file: Path) -> None:
    values = dict(line.split("=") for line in HAZARD.split())
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(
        command, env={**os.environ, **values}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        document = printed("verify", "verify", str(env_file), "--pid", str(process.pid))
        process.communicate(b"\n")
    assert document["verdict"] == "live"
    assert document["workers"][0]["settings"]["NCCL_PROTO"]["have"] == "^LL"
