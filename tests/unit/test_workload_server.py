"""What a server's command line says: ranks, graphs, families not modelled, NCCL or not."""

import pytest

from collbench.errors import CollbenchError
from collbench.workload.nccl_use import Links, nccl_use
from collbench.workload.server_args import LARGEST, TP, parse_server_args


def test_values_are_found_in_every_spelling() -> None:
    for text in (
        "--tp 4",
        "--tp=4",
        "-tp 4",
        "--tensor-parallel-size 4",
        "--tensor_parallel_size=4",
    ):
        assert parse_server_args(f"vllm serve m {text}").number(TP) == 4
    args = parse_server_args(
        "python -m sglang.launch_server --tp 8 --speculative-num-draft-tokens 4 "
        "--cuda-graph-max-bs 32 --disable-cuda-graph"
    )
    assert (args.server, args.draft_tokens, args.number(LARGEST)) == ("sglang", 4, 32)
    assert args.eager


def test_vllms_drafts_plus_one_are_verified() -> None:
    args = parse_server_args(
        """vllm serve m --speculative-config '{"num_speculative_tokens": 3}'"""
    )
    assert (args.server, args.draft_tokens, args.eager) == ("vllm", 4, False)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("--speculative-num-steps 3 --speculative-eagle-topk 1", 4),
        (
            "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 9",
            4,
        ),
        (
            "--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 9",
            9,
        ),
        ("--speculative-num-steps 3", None),
    ],
)
def test_a_chain_of_sglangs_drafts_has_one_token_more_than_steps(
    text: str, tokens: int | None
) -> None:
    args = parse_server_args(f"python -m sglang.launch_server {text}")
    assert args.draft_tokens == tokens


@pytest.mark.parametrize("text", ["{", "[]", "{}", "3", "[" * 100_000])
def test_a_speculative_config_that_cannot_be_read_says_nothing(text: str) -> None:
    assert parse_server_args(f"vllm serve m --speculative-config '{text}'").draft_tokens is None


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("--enable-dp-attention", "DP attention"),
        ("--moe-a2a-backend deepep", "expert all-to-all"),
        ("--enable-deepep-moe", "DeepEP"),
        ("--all2all-backend=naive", "expert all-to-all"),
        ("--pp-size 2", "pipeline parallelism"),
        ("--pipeline-parallel-size=2", "pipeline parallelism"),
        ("--dcp-size 2", "decode context parallelism"),
        ("--enable-sequence-parallel", "sequence parallelism"),
        ("--enable-expert-parallel --data-parallel-size 2", "expert all-to-all"),
        ("--enable-two-batch-overlap", "two-batch overlap"),
        ("-pp 2", "pipeline parallelism"),
        ("-pp=2", "pipeline parallelism"),
        ("-dcp 4", "decode context parallelism"),
        ("""-O '{"pass_config": {"enable_sp": true}}'""", "sequence parallelism"),
        ("""-O3 --compilation-config='{"pass_config":{"enable_sp":true}}'""", "sequence parallel"),
        (
            """-cc '{"pass_config": {"enable_sequence_parallelism": true}}'""",
            "sequence parallelism",
        ),
        ("-O.pass_config.enable_sp=true", "sequence parallelism"),
        ("--compilation-config.pass_config.enable_sequence_parallelism true", "sequence parallel"),
    ],
)
def test_families_that_are_not_modelled_are_refused_by_name(text: str, family: str) -> None:
    with pytest.raises(CollbenchError, match=family) as raised:
        parse_server_args(f"server {text}")
    assert "NCCL log" in raised.value.fix


@pytest.mark.parametrize(
    "text",
    [
        "--pp-size 1",
        "-pp 1",
        "--moe-a2a-backend none",
        "--enable-expert-parallel",
        "--dp 2",
        """-O '{"pass_config": {"enable_sp": false, "fuse_norm_quant": true}}'""",
        "-O.pass_config.enable_sp=false",
        "-O3",
        "",
    ],
)
def test_what_changes_no_collective_is_accepted(text: str) -> None:
    parse_server_args(f"server {text}")


@pytest.mark.parametrize("text", ["--tp four", "--tp -4x", "--tp 99999999999999"])
def test_a_value_that_is_no_number_is_named(text: str) -> None:
    with pytest.raises(CollbenchError, match="is not a number"):
        parse_server_args(text).number(TP)


def test_open_quotes_are_one_line() -> None:
    with pytest.raises(CollbenchError, match="--server-args"):
        parse_server_args("vllm serve 'm")


@pytest.mark.parametrize(
    ("server", "nranks", "size", "links", "text", "used"),
    [
        ("sglang", 8, 57344, "pcie", "", "yes"),
        ("vllm", 4, 57344, "pcie", "", "yes"),
        ("vllm", 4, 57344, "nvlink", "", "no"),
        ("vllm", 4, 9 << 20, "nvlink", "", "yes"),
        ("sglang", 3, 57344, "nvlink", "", "yes"),
        ("vllm", 2, 57344, "pcie", "", "depends"),
        ("vllm", 2, 57344, "pcie", "x --disable-custom-all-reduce", "yes"),
        ("sglang", 1, 57344, "pcie", "", "no"),
        ("sglang", 8, 57344, "pcie", "x --enable-mscclpp", "no"),
        ("sglang", 8, 57344, "pcie", "x --enable-symm-mem", "no"),
        ("vllm", 8, 57344, "pcie", "x --enable-symm-mem", "yes"),
        ("sglang", 8, 57344, "pcie", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1 x", "no"),
        ("sglang", 6, 57344, "pcie", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1 x", "yes"),
        ("sglang", 8, 57344, "pcie", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=0 x", "yes"),
        ("vllm", 8, 57344, "pcie", "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC=1 x", "no"),
        ("vllm", 8, 57344, "pcie", "VLLM_USE_NCCL_SYMM_MEM=1 x", "no"),
        ("vllm", 8, 57344, "pcie", "VLLM_DISABLE_PYNCCL=1 x", "yes"),
    ],
)
def test_nccl_or_not(
    server: str, nranks: int, size: int, links: Links, text: str, used: str
) -> None:
    found = nccl_use(
        server,  # type: ignore[arg-type]
        nranks=nranks,
        size_bytes=size,
        links=links,
        args=parse_server_args(text),
    )
    assert found.used == used
    assert found.reason


@pytest.mark.parametrize(
    ("backends", "used"),
    [
        (("PYNCCL",), "yes"),
        (("CUSTOM", "PYNCCL"), "depends"),
        (("FLASHINFER_PCIE_IPC",), "no"),
    ],
)
def test_the_servers_own_list_decides(backends: tuple[str, ...], used: str) -> None:
    assert nccl_use("vllm", nranks=2, size_bytes=8192, backends=backends).used == used
