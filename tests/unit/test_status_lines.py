"""What `status` says of GPUs and servers, from plain values."""

from pathlib import Path
from typing import Any

import pytest

from collbench.cli.status import _lines
from collbench.live.gpus import GpuState
from collbench.live.processes import Process
from collbench.live.server_log import LogState, of_file
from collbench.live.status import Server, Status, document, link_note


def gpu(**fields: Any) -> GpuState:
    known = {"index": 0, "name": "GPU A", "uuid": "GPU-1", "pci": "0000:c1:00.0"}
    return GpuState(**{**known, **fields})


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({"link_gen": 1, "link_gen_max": 5, "busy_pct": 0}, "low link speed saves power"),
        ({"link_gen": 1, "link_gen_max": 5, "busy_pct": 95}, "below its speed under load"),
        ({"link_gen": 1, "link_gen_max": 5, "busy_pct": 3}, ""),
        ({"link_gen": 1, "link_gen_max": 5, "busy_pct": None}, ""),
        ({"link_gen": 5, "link_gen_max": 5, "busy_pct": 95}, ""),
        ({"link_width": 8, "link_width_max": 16, "busy_pct": 0}, "narrower"),
        ({"link_width": 16, "link_width_max": 16}, ""),
        ({}, ""),
    ],
)
def test_a_low_speed_counts_only_under_load_and_a_width_always(
    fields: dict[str, Any], note: str
) -> None:
    said = link_note(gpu(**fields))
    assert said.startswith(note)
    assert bool(said) is bool(note)


def test_gpus_and_servers_are_shown_in_words() -> None:
    process = Process(7, 1, 0, 0, "vllm", ("vllm", "serve", "m", "--api-key", "abcdefgh"))
    server = Server(process, log=LogState("ready", "Application startup complete."))
    state = gpu(
        memory_used=3 << 30, memory_total=96 << 30, busy_pct=0, link_gen=1, link_gen_max=5,
        link_width=16, link_width_max=16,
    )  # fmt: skip
    text = "\n".join(_lines(document(Status([state, gpu(index=1)], "580.1", "", [server], None))))
    assert "GPU 0 GPU A: 3.0 of 96.0 GiB, busy 0 %, link Gen1 x16 of Gen5 x16 (low link" in text
    assert "GPU 1 GPU A: memory ?, busy ?, link ?" in text
    assert "vllm serve m --api-key ***" in text
    assert "log: ready: Application startup complete." in text
    assert "abcdefgh" not in text


def test_without_gpus_and_servers_it_says_so() -> None:
    text = "\n".join(_lines(document(Status([], None, "no NVIDIA driver here", [], None))))
    assert text == "GPUs: no NVIDIA driver here\ncurrent profile: none\nservers: none found"


def test_a_log_that_is_no_file_is_not_opened(tmp_path: Path) -> None:
    assert of_file(Path("/dev/zero")).text == "not a regular file"
    assert of_file(tmp_path / "missing").text.startswith("cannot be read")
