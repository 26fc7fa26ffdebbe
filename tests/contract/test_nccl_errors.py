"""How NCCL's errors and version codes are read; needs torch, no GPU."""

import pytest

pytestmark = pytest.mark.dist

TREE = """NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, invalid usage, \
NCCL version 2.28.9
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Error : no algorithm/protocol available for function AllGather with datatype ncclInt8.
"""
BROKEN = """NCCL error in: x.cpp:94, unhandled cuda error
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 'out of memory'
"""


def explain(error: Exception) -> Exception:
    from collbench.backends.nccl import Nccl

    return Nccl.explain(object.__new__(Nccl), error)


def test_rejected_settings_are_refused_in_the_librarys_words() -> None:
    from collbench.backends import Refused

    found = explain(RuntimeError(TREE))
    assert isinstance(found, Refused)
    assert str(found).startswith("Error : no algorithm/protocol available for function AllGather")


def test_a_broken_device_is_not_blamed_on_the_settings() -> None:
    error = RuntimeError(BROKEN)
    assert explain(error) is error


@pytest.mark.parametrize(
    ("code", "text"), [(2708, "2.7.8"), (21805, "2.18.5"), (22809, "2.28.9"), (23101, "2.31.1")]
)
def test_version_codes_are_read_as_nccl_makes_them(code: int, text: str) -> None:
    from collbench.backends.nccl import version_text

    assert version_text(code) == text
