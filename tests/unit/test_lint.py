"""Lint finds what readers, NCCL, servers and conf files make of a file."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.cli.profile import lint as lint_command
from collbench.knobs import Version
from collbench.live.conf_files import parse
from collbench.profiles.lint import lint_text


def codes(text: str, **options: object) -> list[tuple[str, int | None]]:
    return [(f.code, f.line) for f in lint_text(text, **options)]  # type: ignore[arg-type]


def test_a_good_file_has_no_findings() -> None:
    text = "# mine\nNCCL_MIN_NCHANNELS=16\nNCCL_PROTO=LL,Simple\nSPT_NOENV=1\n"
    assert codes(text, like="sglang", version=(2, 28, 9)) == []


@pytest.mark.parametrize(
    ("line", "version", "code"),
    [
        ("NCCL_PROTO=^LL", (), "nccl.ll128_forced"),
        ("NCCL_BUFFSIZE=4M", (), "nccl.invalid_value"),
        ("NCCL_MIN_NCHANNELS=016", (), "nccl.invalid_value"),
        ("NCCL_BUFFSIZE=4194304", (), "env.equals_default"),
        ("NCCL_ALGO=Tree", (2, 28, 9), "nccl.algo_unavailable"),
        ("NCCL_P2P_LEVEL=2", (), "nccl.invalid_value"),
        ("NCCL_SHM_MEMCPY_MODE=2", (2, 30, 7), "nccl.unknown_variable"),
        ("NCCL_RUNTIME_CONNECT=0", (2, 21, 5), "nccl.unknown_variable"),
        ("NCCL_MIN_CHANNELS=4", (), "env.unknown_variable"),
        ('NCCL_PROTO="LL"', (), "env.quotes_kept"),
        ("NCCL_PROTO=LL\r", (), "env.crlf"),
        ("export NCCL_PROTO=LL", (), "env.not_portable"),
        ("NCCL_PROTO=LL # note", (), "env.not_portable"),
        ("NCCL_PROTO=LL ", (), "env.not_portable"),
        ("NCCL_DEBUG_FILE=/x/$USER.log", (), "env.not_portable"),
        ("\ufeffNCCL_PROTO=LL", (), "env.not_portable"),
        ("NCCL_PROTO", (), "env.not_portable"),
        ("rm -rf x", (), "env.not_portable"),
        ("A-B=1", (), "env.not_portable"),
        ("# comment \\", (), "env.not_portable"),
        ("NCCL_PROTO=LL;allreduce:Simple", (), "env.sourced_semicolon"),
        ("NCCL_P2P_LEVEL=SYS", (), "hazard.p2p"),
        ("NCCL_TUNER_PLUGIN=/x.so", (), "hazard.loads_code"),
        ("LD_PRELOAD=/x.so", (), "env.unknown_variable"),
    ],
)
def test_each_fault_is_found_at_its_line(line: str, version: Version, code: str) -> None:
    assert codes(f"# head\n{line}\nNCCL_MAX_CTAS=8\n", version=version) == [(code, 2)]


def test_duplicates_and_a_minimum_above_its_maximum() -> None:
    assert codes("NCCL_PROTO=LL\nNCCL_PROTO=Simple\n") == [("env.not_portable", 2)]
    text = "NCCL_MIN_CTAS=8\nNCCL_MAX_CTAS=4\n"
    assert codes(text) == [("nccl.min_over_max", 1)]


def test_a_server_that_overwrites_a_value_is_known() -> None:
    # SGLang sets NCCL_CUMEM_ENABLE=0 only where nobody set it: the user's value stays
    text = "CUDA_DEVICE_MAX_CONNECTIONS=4\nNCCL_CUMEM_ENABLE=1\n"
    assert codes(text) == []
    assert codes(text, like="sglang") == [("env.overridden_by_server", 1)]
    assert codes(text, like="vllm") == []
    assert codes("CUDA_DEVICE_MAX_CONNECTIONS=8\n", like="sglang") == [("env.equals_default", 1)]


def test_conf_files_that_shadow_it_are_shown() -> None:
    conf = parse("# x\nNCCL_PROTO=Simple\nNCCL_MIN_CTAS=2\nFOO=1\n", "/etc/nccl.conf")
    found = lint_text("NCCL_PROTO=LL\n", conf=conf)
    assert [(f.code, f.line) for f in found] == [
        ("env.shadowed_by_conf", 1),
        ("env.shadowed_by_conf", None),
    ]
    assert "/etc/nccl.conf:2" in found[0].evidence


def test_allowed_hazards_and_pins_are_no_findings() -> None:
    assert codes("NCCL_PROTO=LL128\n", hazards=["ll128"]) == []
    assert codes("NCCL_P2P_LEVEL=SYS\n", hazards=["p2p"]) == []
    assert codes("NCCL_P2P_DISABLE=0\n", pinned=["NCCL_P2P_DISABLE"]) == []


@settings(max_examples=40)
@given(st.text())
def test_no_text_makes_lint_stumble(text: str) -> None:
    lint_text(text, like="sglang")
    lint_text("NCCL_ALGO=" + text, like="vllm", version=(2, 23))


def test_the_command_exits_3_with_a_document_of_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "x.env"
    path.write_text("NCCL_PROTO=^LL\n")
    done = CliRunner().invoke(lint_command, [str(path), "--json"], standalone_mode=False)
    document = json.loads(done.stdout)
    assert (done.return_value, document["exit_code"]) == (3, 3)
    assert document["findings"][0]["code"] == "nccl.ll128_forced"
    path.write_text("NCCL_PROTO=LL\n")
    done = CliRunner().invoke(lint_command, [str(path)], standalone_mode=False)
    assert done.return_value == 0
