"""Optuna Dashboard opens the study file as it is."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.dist

Make = Callable[..., Path]


def fetch(url: str, process: "subprocess.Popen[bytes]") -> bytes:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return bytes(response.read())
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, "optuna-dashboard ended"
            assert time.monotonic() < deadline, f"{url} never answered"
            time.sleep(0.2)


def test_the_dashboard_shows_the_study(make_study: Make, tmp_path: Path) -> None:
    if importlib.util.find_spec("optuna_dashboard") is None:
        if os.environ.get("COLLBENCH_EXPECT_BROWSER") == "1":
            pytest.fail("no optuna-dashboard, and COLLBENCH_EXPECT_BROWSER=1")
        pytest.skip("no optuna-dashboard: pip install '.[browser]'")
    study = make_study(30)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-c", "from optuna_dashboard._cli import main; main()"),
        *(f"sqlite:///{study}", "--host", "127.0.0.1", "--port", str(port)),
    ]
    log = (tmp_path / "dashboard.log").open("wb")
    with log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            base = f"http://127.0.0.1:{port}"
            studies = json.loads(fetch(f"{base}/api/studies", process))
            assert [s["study_name"] for s in studies["study_summaries"]] == ["decode"]
            found = json.loads(fetch(f"{base}/api/studies/1?after=0", process))
            assert len(found["trials"]) == 29, "30 launches, one of them hung"
            assert b"<html" in fetch(f"{base}/dashboard/studies/1", process)
        finally:
            process.terminate()
            process.wait(timeout=20)
