"""A proof run's log becomes the choices, transports and variables of the run."""

from collbench.job import Choice
from collbench.readers.nccl_proof import proof_of

LOG = """\
node:11:11 [0] NCCL INFO NCCL version 2.28.9+cuda12.9
node:11:11 [0] NCCL INFO NCCL_PROTO set by environment to LL
node:12:12 [1] NCCL INFO NCCL_PROTO set by environment to Simple
node:11:15 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
node:12:16 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct
node:11:11 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}
node:12:12 [1] NCCL INFO AllReduce: 8192 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}
node:11:11 [0] NCCL INFO AllGather: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}
"""


def test_choices_carry_names_of_records_and_how_often_they_were_said() -> None:
    ring = Choice(
        collective="all_reduce",
        size_bytes=8192,
        algorithm="ring",
        protocol="ll",
        channels="0..3",
        count=2,
    )
    gather = Choice(
        collective="all_gather",
        size_bytes=1048576,
        algorithm="ring",
        protocol="simple",
        channels="0..1",
    )
    assert proof_of(LOG).choices == (ring, gather)


def test_connections_are_counted_by_transport() -> None:
    assert sum(proof_of(LOG).transports.values()) == 2
    assert all(name.startswith("SHM") for name in proof_of(LOG).transports)


def test_ranks_that_read_different_values_show_both() -> None:
    assert proof_of(LOG).env_seen == {"NCCL_PROTO": "LL|Simple"}


def test_a_log_that_says_nothing_proves_nothing() -> None:
    proof = proof_of("")
    assert (proof.choices, proof.transports, proof.env_seen) == ((), {}, {})
