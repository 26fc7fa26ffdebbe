"""GPU tests need devices: skipped without them, failed where they were promised."""

import functools
import os
import subprocess
import sys

import pytest


@functools.cache
def gpus() -> int:
    """Devices as a child sees them, so that this process never wakes CUDA."""
    code = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    return int(done.stdout.strip() or 0) if done.returncode == 0 else 0


def pytest_runtest_setup(item: pytest.Item) -> None:
    mark = item.get_closest_marker("gpu")
    if mark is None or int(os.environ.get("COLLBENCH_EXPECT_GPUS", "0")) >= mark.args[0]:
        return
    if gpus() < mark.args[0]:
        pytest.skip(f"needs {mark.args[0]} GPUs, {gpus()} seen")
