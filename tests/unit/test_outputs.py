"""What a command writes never goes over what it has just read, nor is a lost output silent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collbench.cli import call
from collbench.errors import CollbenchError
from collbench.files import refuse_inputs

STEPS = '{"label": "before", "verify_ms": [10.0, 10.1, 9.9]}\n'


def test_a_link_to_an_input_is_that_input(tmp_path: Path) -> None:
    source, link = tmp_path / "a", tmp_path / "b"
    source.write_text("a")
    link.symlink_to(source)
    with pytest.raises(CollbenchError, match="is one of the files that are read"):
        refuse_inputs(link, [tmp_path / "none", source], where="-o")
    refuse_inputs(tmp_path / "new", [source], where="-o")
    refuse_inputs(None, [source], where="-o")
    refuse_inputs(Path(os.devnull), [Path(os.devnull)], where="-o")


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "F", "--json-file", "F"),
        ("diagnose", "--no-processes", "--steps", "F", "--steps", "F", "--prom", "F"),
        ("diagnose", "--no-processes", "--steps", "F", "--steps", "F", "--json-file", "F"),
        ("report", "F", "-o", "F"),
    ],
)
def test_an_input_is_left_as_it_was(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = tmp_path / "steps.json"
    path.write_text(STEPS)
    assert call([str(path) if word == "F" else word for word in words]) == 2
    assert path.read_text() == STEPS


@pytest.mark.parametrize("value", ["0", "-5.0"])
def test_a_step_that_took_no_time_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(STEPS)
    after.write_text(f'{{"label": "after", "verify_ms": [10.0, {value}]}}')
    words = ["--no-processes", "--fail-on", "regression", "--steps", str(before), "--steps"]
    assert call(["diagnose", *words, str(after)]) == 2
    assert "cannot have been measured" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [("--help",), ("workload", "show", "61x7168")])
def test_a_full_disk_behind_stdout_is_one_line(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "collbench", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "collbench: the output cannot be written: No space left on device\n"
