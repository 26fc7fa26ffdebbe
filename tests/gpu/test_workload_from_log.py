"""What NCCL really prints at graph capture is read as the step that was captured."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collbench.workload import load

SCRIPT = Path(__file__).with_name("capture_passes.py")
LAYERS, HIDDEN, VOCAB = 4, 512, 4096


@pytest.mark.gpu(2)
def test_the_captured_calls_come_back_from_the_log(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING",
        "NCCL_DEBUG_FILE": str(tmp_path / "nccl.%h.%p.log"),
    }
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    done = subprocess.run(
        [sys.executable, *command],
        env=env,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert "captured" in done.stdout, done.stderr[-3000:]
    logs = [p for p in sorted(tmp_path.glob("*.log")) if " Bytes -> Algo" in p.read_text("utf-8")]
    assert len(logs) == 1, f"rank 0 alone tells what it chose, {len(logs)} files did"
    for batch, held in ((1, 1), (3, 4), (8, 8)):
        made = load(str(logs[0]), batch=batch)
        assert made.nranks == 2
        assert made.totals() == [
            ("all_reduce", held * HIDDEN * 2, "bfloat16", 2 * LAYERS + 1),
            ("all_gather", held * VOCAB * 2, "bfloat16", 1),
        ]
