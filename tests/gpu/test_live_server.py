"""A server with NCCL in CUDA graphs: verify tells launches apart, and NCCL's lines confirm it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu(2)
ROOT = Path(__file__).parents[2]


def test_nccls_own_lines_confirm_the_profile(tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.live_server", "--backend", "nccl", "--out", str(out)],
        cwd=ROOT, capture_output=True, text=True, timeout=500, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    launches = json.loads(out.read_text())["launches"]
    assert launches["with_the_profile"]["with_the_log"]["evidence"] == ["log"]
    assert launches["with_the_profile"]["by_pid"]["evidence"] == ["memory"]
    assert launches["with_the_profile"]["by_pid"]["libnccl"]
    assert launches["by_hand_without"]["with_the_log"]["verdict"] == "different"
    assert launches["overwritten_in_process"]["with_the_log"]["verdict"] == "different"
