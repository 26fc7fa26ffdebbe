"""A rank takes only jobs that its rank 0 could have sent."""

from typing import Any

import pytest

from collbench.errors import CollbenchError
from collbench.job import Job
from collbench.pool.supervised import check_arrival


def job(**fields: Any) -> Job:
    return Job(**{"job_id": "1", "backend": "nccl", "nranks": 2, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"settings": {"NCCL_PROTO": "LL"}, "baseline": {"NCCL_CUMEM_ENABLE": "0"}},
        {"communicators": ({"NCCL_MIN_CTAS": "8"},)},
        {"nccl_lib": "/opt/nccl/lib/libnccl.so.2.29.2"},
    ],
)
def test_what_rank_0_sends_is_taken(fields: dict[str, Any]) -> None:
    check_arrival(job(**fields), "nccl")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"settings": {"LD_PRELOAD": "/tmp/x.so"}}, "variable 'LD_PRELOAD'"),
        ({"baseline": {"PATH": "/tmp"}}, "variable 'PATH'"),
        ({"communicators": ({}, {"PYTHONPATH": "/tmp"})}, "variable 'PYTHONPATH'"),
        ({"backend": "os:system"}, "backend 'os:system', not 'nccl'"),
        ({"nccl_lib": "/tmp/evil.so"}, "library file '/tmp/evil.so'"),
    ],
)
def test_anything_else_is_refused_and_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CollbenchError, match="control store: refused") as caught:
        check_arrival(job(**fields), "nccl")
    assert words in caught.value.what
    assert caught.value.code == 1


def test_a_backend_of_one_s_own_has_settings_of_its_own() -> None:
    check_arrival(job(backend="a.b:make", settings={"FAULT": "hang"}), "a.b:make")
