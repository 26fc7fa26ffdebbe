"""Whether the all-reduces of decode go through NCCL at all, and so whether settings matter.

vLLM prints its choice ("Using [...] all-reduce backends"); SGLang shows it by options, variables
and warnings only. Without either the answer is not known, and said so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collbench.readers.nccl_log import NcclLog


NCCL_BACKENDS = frozenset({"PYNCCL", "NCCL", "TORCH", "TORCH_DISTRIBUTED"})
"""Names of vLLM's backends in which NCCL_ALGO and NCCL_PROTO decide."""
_BYPASS_OPTIONS = {
    "--enable-mscclpp": "mscclpp takes small all-reduces",
    "--enable-torch-symm-mem": "torch's symmetric memory takes all-reduces",
    "--enable-symm-mem": "NCCL's symmetric kernels take all-reduces: algorithm and protocol do "
    "not apply",
    "--enable-flashinfer-allreduce-fusion": "FlashInfer takes small all-reduces",
}
_BYPASS_VARIABLES = {
    "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "SGLang's PCIe IPC kernel takes small all-reduces",
    "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC": "FlashInfer's PCIe IPC kernel takes them",
    "VLLM_USE_NCCL_SYMM_MEM": "NCCL's symmetric kernels take all-reduces",
}
_WARNINGS = (
    (b"custom allreduce is disabled", "the server's own all-reduce kernel is disabled"),
    (b"falling back from auto to nccl", "all-reduces fall back from AUTO to NCCL"),
)
"""Lower-case parts of log lines (SGLang, vLLM, TensorRT-LLM)."""
_CUSTOM_OFF = ("--disable-custom-all-reduce",)


@dataclass(frozen=True, slots=True)
class DecodePath:
    """Whether decode uses NCCL."""

    nccl: bool | None
    evidence: str
    line: int | None = None
    """Line of the log, where that is the evidence."""


def from_log(log: NcclLog) -> DecodePath | None:
    """Return what a server's log says, if it says it."""
    if log.backends is None:
        return None
    names, line = log.backends
    first = names[0].upper() if names else ""
    shown = ", ".join(names)
    if first in NCCL_BACKENDS:
        return DecodePath(True, f"the log names {shown} for the tensor-parallel group", line)
    return DecodePath(False, f"the log names {shown}: {first} comes before NCCL", line)


def from_warnings(path: Path) -> DecodePath | None:
    """Return what a server's warnings say: that its own all-reduce kernel is off.

    Printed on every machine with more than two PCIe GPUs; no fault.

    Raises:
        UnreadableError: the file cannot be read.
    """
    from collbench.readers.text import open_regular, stream

    with open_regular(path) as file:
        for number, raw, _ in stream(file):
            for sign, what in _WARNINGS:
                if sign in raw.lower():
                    return DecodePath(True, f"the log says: {what}", number)
    return None


def from_process(
    arguments: Iterable[str], environ: Mapping[str, str], nranks: int | None
) -> DecodePath:
    """Return what the options and variables of a server say.

    Args:
        arguments: The server's command line.
        environ: A worker's environment; {} where it cannot be read.
        nranks: Ranks of the tensor-parallel group, where known.
    """
    given = [argument.split("=")[0] for argument in arguments]
    for option, what in _BYPASS_OPTIONS.items():
        if option in given:
            return DecodePath(False, f"{option}: {what}")
    for name, what in _BYPASS_VARIABLES.items():
        if environ.get(name, "").lower() in ("1", "true", "yes"):
            return DecodePath(False, f"{name}={environ[name]}: {what}")
    if any(option in given for option in _CUSTOM_OFF):
        return DecodePath(True, "--disable-custom-all-reduce: all-reduces go to NCCL")
    if nranks == 1:
        return DecodePath(False, "one rank: there are no all-reduces")
    if nranks == 2:
        return DecodePath(
            None,
            "two ranks: the server's own all-reduce kernel is used where the GPUs have peer access",
        )
    return DecodePath(None, "give --log: the server's log tells which all-reduce it uses")


def option_value(arguments: Sequence[str], *names: str) -> int | None:
    """Return the number given to an option, as ``--tp 4`` or ``--tp=4``."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            text = value if equals else arguments[index + 1] if index + 1 < len(arguments) else ""
            return int(text) if text.isdigit() and len(text) < 6 else None
    return None


def tensor_parallel(arguments: Sequence[str]) -> int | None:
    """Return the size of the tensor-parallel group a server was started with."""
    return option_value(arguments, "--tp", "--tp-size", "--tensor-parallel-size", "-tp")
