"""GPU tests need devices: skipped without them, failed where they were promised."""

import os
import subprocess
import sys

import pytest


def gpus() -> int:
    """Devices as a child sees them, so that this process never wakes CUDA."""
    code = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    return int(done.stdout.strip() or 0) if done.returncode == 0 else 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needed = [(item, mark.args[0]) for item in items if (mark := item.get_closest_marker("gpu"))]
    if not needed:
        return
    have = gpus()
    promised = int(os.environ.get("COLLBENCH_EXPECT_GPUS", "0"))
    for item, count in needed:
        if have < count and promised < count:
            item.add_marker(pytest.mark.skip(reason=f"needs {count} GPUs, {have} seen"))
