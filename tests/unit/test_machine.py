"""The fingerprint of machines that are described by files, and of this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collbench.machine import Fingerprint, Gpu, fingerprint
from collbench.machine.probe import (
    cmdline_words,
    cpu_model,
    gpu_warnings,
    nccl_conf_digests,
    shm_bytes,
)


def test_the_fingerprint_of_this_machine_is_whole_and_survives_json() -> None:
    here = fingerprint(library="NCCL 2.28.9", library_path="/x/libnccl.so.2")
    assert here.host
    assert here.cpu
    assert here.cpus >= 1
    assert here.python
    assert (here.library, here.library_path) == ("NCCL 2.28.9", "/x/libnccl.so.2")
    assert Fingerprint.model_validate_json(here.model_dump_json()) == here


def test_the_plain_facts_import_neither_torch_nor_pydantic() -> None:
    code = (
        "import sys; from collbench.machine.probe import read_machine; read_machine();"
        "print([m for m in ('torch', 'pydantic', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_only_words_of_the_kernel_command_line_that_matter_are_kept(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_text(
        "BOOT_IMAGE=/vmlinuz root=UUID=1 iommu=pt amd_iommu=on pci=realloc quiet token=secret\n"
    )
    assert cmdline_words(tmp_path) == "iommu=pt amd_iommu=on pci=realloc"
    assert cmdline_words(tmp_path / "nowhere") is None


def test_the_cpu_is_named_on_x86_and_arm(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    cpuinfo = tmp_path / "proc/cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: AMD EPYC 9575F\n\nprocessor\t: 1\n")
    assert cpu_model(tmp_path) == "AMD EPYC 9575F"
    cpuinfo.write_text("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n")
    assert cpu_model(tmp_path) == "0xd4f"


def test_missing_shared_memory_is_none(tmp_path: Path) -> None:
    assert shm_bytes(tmp_path) is None


def test_configuration_files_of_nccl_are_digested(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    conf = tmp_path / "nccl.conf"
    conf.write_text("NCCL_PROTO=LL\n")
    monkeypatch.setenv("NCCL_CONF_FILE", str(conf))
    first = nccl_conf_digests()
    assert set(first) >= {str(conf)}
    conf.write_text("NCCL_PROTO=Simple\n")
    assert nccl_conf_digests()[str(conf)] != first[str(conf)]


def test_fields_of_a_newer_writer_are_kept() -> None:
    gpu = Gpu.model_validate({"index": 0, "name": "x", "serial": "1"})
    assert gpu.model_dump()["serial"] == "1"


class Nvml:
    """One GPU that says what it is told to; what it is not told it does not support."""

    class NVMLError(Exception):
        pass

    def __init__(self, **answers: Any) -> None:
        self.answers = {"Count": 1, "HandleByIndex": 0, **answers}

    def __getattr__(self, name: str) -> Any:
        if name in ("nvmlInit", "nvmlShutdown"):
            return lambda: None
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def answer(*_: Any) -> Any:
            short = name.removeprefix("nvmlDeviceGet")
            if short not in self.answers:
                raise self.NVMLError(name)
            return self.answers[short]

        return answer


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, []),
        ({"CurrentClocksEventReasons": 0x1, "TotalEccErrors": 0}, []),
        (
            {"CurrentClocksEventReasons": 0x40 | 0x4},
            ["GPU 0: clocks are held down: power cap, hardware thermal slowdown"],
        ),
        (
            {"CurrentClocksThrottleReasons": 0x20},
            ["GPU 0: clocks are held down: software thermal slowdown"],
        ),
        ({"CurrPcieLinkWidth": 8, "MaxPcieLinkWidth": 16}, ["GPU 0: PCIe link x8 of x16"]),
        ({"CurrPcieLinkWidth": 16, "MaxPcieLinkWidth": 16}, []),
        (
            {"TotalEccErrors": 3},
            ["GPU 0: 3 uncorrected ECC errors since the driver was loaded"],
        ),
    ],
)
def test_what_makes_a_gpu_slow_or_untrue_is_said(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], said: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(**answers))
    assert gpu_warnings() == said
