"""The true exit code of a module under torchrun, and who says what went wrong."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from collbench.errors import CollbenchError
from collbench.front import TORCHRUN, VARIABLE, _exit_code, _wait, run_module


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("collbench.front.rank_of", lambda _: 0)
    monkeypatch.setattr("collbench.front.under_launcher", lambda _: False)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def ends_with(code: int) -> object:
    return lambda _: code


def refuses(code: int) -> object:
    def main(_: Sequence[str]) -> int:
        raise CollbenchError("no such sweep", fix="name another", code=code)

    return main


def interrupted(_: Sequence[str]) -> int:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("main", "code"),
    [(ends_with(0), 0), (ends_with(3), 3), (refuses(2), 2), (refuses(1), 1), (interrupted, 130)],
)
def test_rank_0_leaves_its_code_for_the_front_door_and_0_for_torchrun(
    folder: Path, main: object, code: int
) -> None:
    assert run_module(main, []) == 0  # type: ignore[arg-type]
    assert _exit_code(folder, 0) == code
    assert (folder / "pid").read_text().isdigit()


@pytest.mark.parametrize("code", [0, 2, 3])
def test_without_a_front_door_the_code_is_the_module_s_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.delenv(VARIABLE)
    assert run_module(ends_with(code), []) == code  # type: ignore[arg-type]
    assert list(folder.iterdir()) == []


def test_rank_0_speaks_for_what_all_see_and_a_rank_for_what_only_it_sees(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("collbench.front._SPEAK_S", 0.0)
    run_module(refuses(2), [])  # type: ignore[arg-type]
    assert capsys.readouterr().err == "collbench: no such sweep\n  fix: name another\n"
    monkeypatch.setattr("collbench.front.rank_of", lambda _: 3)
    (folder / "exit_code").unlink()
    assert run_module(refuses(2), []) == 0  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""
    assert run_module(refuses(1), []) == 1  # type: ignore[arg-type]
    assert capsys.readouterr().err == "collbench: rank 3: no such sweep\n"
    assert not (folder / "exit_code").exists()


@pytest.mark.parametrize(
    ("status", "code"), [(0, 1), (1, 1), (130, 130), (-signal.SIGTERM, 130), (-signal.SIGINT, 130)]
)
def test_a_module_that_left_no_code_failed_or_was_interrupted(
    tmp_path: Path, status: int, code: int
) -> None:
    assert _exit_code(tmp_path, status) == code
    (tmp_path / "exit_code").write_text("")
    assert _exit_code(tmp_path, status) == code


class Torchrun:
    """A launcher's process that is interrupted so many times before it ends."""

    def __init__(self, interrupts: int) -> None:
        self.interrupts = interrupts
        self.terminated = 0

    def wait(self, timeout: float | None) -> int:
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        return -signal.SIGTERM if self.terminated else 0

    def terminate(self) -> None:
        self.terminated += 1


@pytest.mark.parametrize(
    ("left", "interrupts", "terminated"),
    [
        ((), 1, 1),  # nobody to pass it to
        (("exit_code",), 1, 0),  # done: only torchrun has not left yet
        (("exit_code",), 2, 1),
        (("pid",), 1, 0),
        (("pid",), 2, 1),
    ],
)
def test_torchrun_is_ended_only_where_nobody_ends_by_himself(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    left: Sequence[str],
    interrupts: int,
    terminated: int,
) -> None:
    passed: list[int] = []

    def kill(pid: int, number: int) -> None:
        assert (pid, number) == (4711, signal.SIGINT)
        passed.append(pid)

    monkeypatch.setattr("collbench.front.os.kill", kill)
    for name in left:
        (tmp_path / name).write_text("4711" if name == "pid" else "0")
    process = Torchrun(interrupts)
    _wait(process, tmp_path)  # type: ignore[arg-type]
    assert process.terminated == terminated
    assert len(passed) == (1 if "pid" in left else 0)


def test_ranks_that_wait_for_one_that_left_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collbench.front._LEAVE_S", 0.0)

    class Waiting(Torchrun):
        def wait(self, timeout: float | None) -> int:
            if self.interrupts or self.terminated:
                return super().wait(timeout)
            assert timeout is not None, "nobody looks after an interrupt"
            raise subprocess.TimeoutExpired("torchrun", timeout)

    (tmp_path / "exit_code").write_text("130")
    process = Waiting(1)
    _wait(process, tmp_path)  # type: ignore[arg-type]
    assert process.terminated == 1


def test_a_rank_that_comes_up_after_its_torchrun_has_gone_leaves(folder: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    code = (
        "import sys; from collbench.front import run_module; sys.exit(run_module(lambda _: 7, []))"
    )
    environ = {**os.environ, VARIABLE: str(folder), "RANK": "3", "WORLD_SIZE": "4"}
    environ |= {"LOCAL_RANK": "3", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    environ["TORCHELASTIC_RUN_ID"] = "x"
    for parent, left in ((gone.pid, 1), (os.getpid(), 0)):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**environ, TORCHRUN: str(parent)}, check=False
        )
        assert done.returncode == left
    assert not (folder / "pid").exists()
