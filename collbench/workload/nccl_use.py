"""Whether a server does its all_reduces with NCCL at all, for this many ranks and bytes.

Order of the implementations as read in SGLang 0.5.23 (``distributed/parallel_state.py:673-790``)
and vLLM 0.33.0 (``distributed/device_communicators/cuda_communicator.py:364-455``). Both ask for
full NVLink beyond two GPUs before they use a kernel of their own; the all_gather of the logits is
NCCL's in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from collbench.units import format_size
from collbench.workload.buckets import Server
from collbench.workload.server_args import ServerArgs

Links = Literal["pcie", "nvlink"]
CUSTOM_BYTES = 8 << 20
"""Largest message of both servers' own all_reduce (``custom_all_reduce.py``)."""
CUSTOM_RANKS = (2, 4, 6, 8)
IPC_RANKS = (2, 4, 8)


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclUse:
    """The answer, with its reason."""

    used: Literal["yes", "no", "depends"]
    reason: str


NONE = ServerArgs(flags={}, env={})


def nccl_use(
    server: Server,
    *,
    nranks: int,
    size_bytes: int,
    dtype: str = "bfloat16",
    links: Links = "pcie",
    args: ServerArgs = NONE,
    backends: tuple[str, ...] = (),
) -> NcclUse:
    """Return whether the all_reduces of one size go through NCCL.

    Args:
        server: Which server.
        nranks: Ranks of its tensor-parallel group.
        size_bytes: Bytes of the all_reduce.
        dtype: Element type.
        links: How the GPUs are joined; ``nvlink`` means all with all.
        args: Its command line, where known.
        backends: What vLLM's log says it tries, in order: that decides.
    """
    if nranks < 2:
        return NcclUse(used="no", reason="one rank has nothing to communicate")
    if backends:
        return _said(backends, size_bytes)
    chosen = _chosen_otherwise(server, nranks, dtype, args)
    if chosen:
        return NcclUse(used="no", reason=chosen)
    if server == "vllm" and args.env.get("VLLM_DISABLE_PYNCCL", "0") not in ("", "0"):
        return NcclUse(
            used="yes", reason="VLLM_DISABLE_PYNCCL: through torch's NCCL, not vLLM's own library"
        )
    if "--disable-custom-all-reduce" in args.flags:
        return NcclUse(used="yes", reason="--disable-custom-all-reduce leaves NCCL")
    return _custom(nranks, size_bytes, links)


def _said(backends: tuple[str, ...], size_bytes: int) -> NcclUse:
    named = ", ".join(backends)
    if backends[0] == "PYNCCL":
        return NcclUse(used="yes", reason=f"the server's log: all-reduce backends {named}")
    if "PYNCCL" not in backends:
        return NcclUse(used="no", reason=f"the server's log: all-reduce backends {named}")
    return NcclUse(
        used="depends",
        reason=f"the server's log: {backends[0]} comes before PYNCCL; "
        f"whether it takes {format_size(size_bytes)} the log does not say",
    )


def _chosen_otherwise(server: Server, nranks: int, dtype: str, args: ServerArgs) -> str:
    """Return what the user chose in NCCL's place; empty for nothing."""

    def on(name: str) -> bool:
        return args.env.get(name, "0").lower() not in ("", "0", "false")

    if server == "sglang":
        if "--enable-mscclpp" in args.flags:
            return "--enable-mscclpp: mscclpp comes first"
        if "--enable-symm-mem" in args.flags:
            return (
                "--enable-symm-mem: NCCL's symmetric kernels, which NCCL_ALGO and NCCL_PROTO do "
                "not steer"
            )
        ipc = on("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE")
        if ipc and nranks in IPC_RANKS and dtype == "bfloat16":
            return "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE: its own kernel over PCIe"
        return ""
    if on("VLLM_USE_NCCL_SYMM_MEM"):
        return (
            "VLLM_USE_NCCL_SYMM_MEM: NCCL's symmetric kernels, which NCCL_ALGO and NCCL_PROTO do "
            "not steer"
        )
    if on("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC"):
        return "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC: FlashInfer's kernel over PCIe"
    return ""


def _custom(nranks: int, size_bytes: int, links: Links) -> NcclUse:
    if size_bytes > CUSTOM_BYTES:
        return NcclUse(used="yes", reason="above 8 MiB, where the server's own kernel ends")
    if nranks not in CUSTOM_RANKS:
        return NcclUse(
            used="yes", reason=f"the server's own kernel knows 2, 4, 6 and 8, not {nranks}"
        )
    if links == "nvlink":
        return NcclUse(used="no", reason="all GPUs on NVLink: the server's own kernel up to 8 MiB")
    if nranks == 2:
        return NcclUse(
            used="depends",
            reason="with 2 GPUs the server's own kernel runs where peer access works, else NCCL; "
            "--disable-custom-all-reduce leaves NCCL",
        )
    return NcclUse(
        used="yes", reason=f"{nranks} GPUs without full NVLink: the server's own kernel is off"
    )
