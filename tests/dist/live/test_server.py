"""A torch server with Gloo: launched with a profile, by hand without, and overwriting a value."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.dist, pytest.mark.slow]
ROOT = Path(__file__).parents[3]


def test_verify_tells_the_launches_apart(tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.live_server", "--backend", "gloo", "--out", str(out)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(out.read_text())
    verdicts = {name: launch["by_pid"]["verdict"] for name, launch in record["launches"].items()}
    assert verdicts == {
        "with_the_profile": "live",
        "by_hand_without": "different",
        "overwritten_in_process": "different",
    }
    overwritten = record["launches"]["overwritten_in_process"]["by_pid"]
    assert overwritten["workers"]["0"]["NCCL_MIN_NCHANNELS"] == "live"
    assert overwritten["workers"]["1"]["NCCL_MIN_NCHANNELS"] == "differs"
    assert "env.partial_ranks" in overwritten["findings"]
