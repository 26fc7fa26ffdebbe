"""The main job with real MPI processes: a document, a kill, an interrupt, a resume."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.dist

SPEC = Path(__file__).parent.parent / "data" / "sweeps" / "tiny.toml"
DOCUMENT = {
    "schema",
    "command",
    "exit_code",
    "verdict",
    "profile",
    "settings",
    "baseline",
    "default_us",
    "winner_us",
    "default_exposed_us",
    "winner_exposed_us",
    "ratio",
    "interval",
    "search_value_us",
    "noise_pct",
    "trials",
    "trials_reused",
    "outcomes",
    "not_searched",
    "backend",
    "seconds",
}


def start(out: Path, *extra: str) -> subprocess.Popen[str]:
    """Start a sweep in a session of its own, as a shell with job control would."""
    (out / "tmp").mkdir(exist_ok=True)  # the machine's lock lies there: other tests have theirs
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "collbench", "sweep", str(SPEC), "--nproc-per-node", "2"),
            *("--out", str(out), "--json-file", str(out / "out.json"), *extra),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=out,
        env={**os.environ, "TMPDIR": str(out / "tmp")},
    )


def finish(process: subprocess.Popen[str], timeout_s: float = 240) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out, err


def launches(out: Path) -> int:
    """Launches that are complete in the study's file."""
    import sqlite3

    for path in out.glob("*/studies/*.db"):
        try:
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1) as connection:
                row = connection.execute(
                    "select count(*) from study_user_attributes where key like 'launch/%'"
                ).fetchone()
        except sqlite3.Error:
            return 0
        return int(row[0])
    return 0


def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The process and everything below it, wherever it moved itself."""
    root = psutil.Process(process.pid)
    return [root, *root.children(recursive=True)]


def read(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "out.json").read_text())
    return found


def test_a_sweep_leaves_the_document_and_only_a_confirmed_profile(tmp_path: Path) -> None:
    code, text, err = finish(start(tmp_path))
    assert code == 0, err
    document = read(tmp_path)
    assert document.keys() >= DOCUMENT
    assert document["command"] == "sweep"
    assert document["backend"] == "mpi"
    assert document["trials"] == sum(document["outcomes"].values())
    assert document["default_exposed_us"] is None
    if document["verdict"] == "profile":
        env = (Path(document["profile"]) / "profile.env").read_text()
        for name, value in document["settings"].items():
            assert f"\n{name}={value}\n" in env
        assert (Path(document["profile"]) / "records" / "default.json").is_file()
    else:
        assert document["verdict"] == "keep_default"
        assert document["reason"]
        assert not list(tmp_path.glob("*/*/profile.env"))
    assert "Next" in text
    assert not list(tmp_path.rglob("*.draft.env"))


def test_kill_9_of_everything_leaves_no_process_and_resume_measures_nothing_again(
    tmp_path: Path,
) -> None:
    process = start(tmp_path)
    assert until(lambda: launches(tmp_path) >= 6, 120)
    everything = family(process)
    torchrun = next(p for p in everything if "collbench.ranks.torchrun" in " ".join(p.cmdline()))
    os.killpg(torchrun.pid, signal.SIGKILL)
    process.kill()
    finish(process)
    assert until(lambda: not any(p.is_running() for p in everything), 3.0), everything
    kept = launches(tmp_path)

    code, _, err = finish(start(tmp_path, "--resume"))
    assert code == 0, err
    document = read(tmp_path)
    assert document["trials_reused"] == kept
    assert document["trials"] > kept
    assert launches(tmp_path) == document["trials"]


def test_an_interrupt_ends_in_order_and_says_how_to_go_on(tmp_path: Path) -> None:
    process = start(tmp_path)
    assert until(lambda: launches(tmp_path) >= 3, 120)
    everything = family(process)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process, 60)
    assert code == 130
    assert "Traceback" not in err
    assert err.count("--resume") == 1
    assert until(lambda: not any(p.is_running() for p in everything), 2.0)
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("after_s", [1.0, 3.0, 6.0])
def test_an_interrupt_while_the_ranks_start_is_quiet(tmp_path: Path, after_s: float) -> None:
    process = start(tmp_path)
    time.sleep(after_s)
    everything = family(process)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process, 60)
    assert code == 130
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 6, err
    assert until(lambda: not any(p.is_running() for p in everything), 5.0)
