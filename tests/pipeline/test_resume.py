"""Kill a study at any moment: what was complete is never measured again."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

KILLS = int(os.environ.get("COLLBENCH_KILLS", "3"))
"""Random moments; the benchmark lane sets 20."""
CHILD = Path(__file__).parent / "resume_child.py"


def start(folder: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(CHILD), str(folder / "study.db"), str(folder / "log"), *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def launches_in(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def stored_in(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        query = "select count(*) from study_user_attributes where key like 'launch/%'"
        return int(connection.execute(query).fetchone()[0])


def kill_after(folder: Path, launches: int, delay_s: float, *flags: str) -> None:
    """Start the study and kill it some time after a number of launches of this part."""
    before = launches_in(folder / "log")
    child = start(folder, *flags)
    deadline = time.monotonic() + 60
    while launches_in(folder / "log") < before + launches and child.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(delay_s)
    child.send_signal(signal.SIGKILL)
    child.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(KILLS))
def test_a_killed_study_goes_on_and_measures_nothing_twice(tmp_path: Path, moment: int) -> None:
    rng = random.Random(moment)
    kill_after(tmp_path, rng.randint(3, 70), rng.uniform(0, 0.02))
    stored = stored_in(tmp_path / "study.db")
    measured = launches_in(tmp_path / "log")
    assert measured - 1 <= stored <= measured  # at most the launch that was being stored is lost

    child = start(tmp_path, "--resume")
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    result = json.loads(out)
    again = launches_in(tmp_path / "log") - measured
    assert result["reused"] == stored
    assert result["trials"] == stored + again
    assert result["verdict"] == "profile"
    assert result["settings"] == {"NCCL_MIN_NCHANNELS": "16"}
    with closing(sqlite3.connect(tmp_path / "study.db")) as connection:
        left = connection.execute("select count(*) from trials where state = 'RUNNING'").fetchone()
    assert left[0] == 0
