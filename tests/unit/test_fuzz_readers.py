"""Damaged inputs of every kind: no crash, no hang, only facts or one error."""

# ruff: noqa: E501
import json
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collbench.diagnose.inspection import Inspection, inspect_file
from collbench.findings import CODES
from collbench.readers import Given
from collbench.readers.env_files import READERS, Refused, read_with
from collbench.readers.recognise import KINDS
from collbench.readers.shell import ShellError, commands

CASES = Path(__file__).parent.parent / "data" / "cases"
SEEDS = [
    path.read_bytes()
    for path in sorted(CASES.glob("*/*"))
    if not path.name.endswith(".expect.json")
]
KNOWN = Given(
    profile={"NCCL_PROTO": "LL", "NCCL_ALGO": "allreduce:ring;allgather:ring"},
    stored={"gpus": 8, "numa": [0, 1], "nccl_version": "2.28.9", "driver": "575"},
    nccl_version="2.28.9",
)
PIECES = st.sampled_from(
    [b"\0", b"\n", b"\r\n", b"\t", b'"', b"'", b"${", b"$(", b"[", b"{", b"==> x <==\n", b"\xff",
     b"\x1b[4m", b"-1", b"1e309", b"9" * 400, b"NaN", b"GPU0\t", b" NCCL INFO ", b"&a", b"*a", b"<<",
     b"\\", b";", b",", b"=", b"#", b"rank 99999999 nranks 99999999"]
)  # fmt: skip
EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.floats(0, 0.3), st.one_of(PIECES, st.binary(max_size=8))),
    max_size=6,
)
LIMIT_S = 5.0


def damaged(seed: bytes, edits: list[tuple[float, float, bytes]], cut: float) -> bytes:
    data = seed
    for at, length, piece in edits:
        start = int(at * len(data))
        data = data[:start] + piece + data[start + int(length * len(data)) :]
    return data[: int(cut * len(data)) + 1]


def check(path: Path, data: bytes, kind: str | None = None) -> Inspection:
    path.write_bytes(data)
    begun = time.process_time()
    found = inspect_file(path, KNOWN, kind)
    assert time.process_time() - begun < LIMIT_S
    json.dumps(found.plain())
    if found.error is not None:
        assert found.facts == {"error": found.error}
        assert "\n" not in found.error
    assert all(finding.code in CODES for finding in found.findings)
    return found


MUTATED = given(
    seed=st.sampled_from(SEEDS),
    edits=EDITS,
    cut=st.floats(0, 1),
    kind=st.one_of(st.none(), st.none(), st.sampled_from(KINDS)),
)
QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@settings(max_examples=80, deadline=None, suppress_health_check=QUIET)
@MUTATED
def test_damaged_cases_are_read_or_refused(
    tmp_path: Path,
    seed: bytes,
    edits: list[tuple[float, float, bytes]],
    cut: float,
    kind: str | None,
) -> None:
    check(tmp_path / "pasted", damaged(seed, edits, cut), kind)


@pytest.mark.slow
@settings(max_examples=6000, deadline=None, suppress_health_check=QUIET)
@MUTATED
def test_many_damaged_cases_are_read_or_refused(
    tmp_path: Path,
    seed: bytes,
    edits: list[tuple[float, float, bytes]],
    cut: float,
    kind: str | None,
) -> None:
    check(tmp_path / "pasted", damaged(seed, edits, cut), kind)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="AB_=\"'\\ \t\n\r#;$`~{}()|&<>\ufeff:x1", max_size=60))
def test_every_env_reader_returns_valid_names_or_refuses(text: str) -> None:
    for reader in READERS:
        found = read_with(reader, text)
        if not isinstance(found, Refused):
            assert all(name.isidentifier() for name in found)


NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,12}", fullmatch=True)
VALUES = st.from_regex(r"[A-Za-z0-9_.,:/+@%^][A-Za-z0-9_.,:/+@%^-]{0,20}", fullmatch=True)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=6))
def test_the_portable_form_reads_alike_everywhere(values: dict[str, str]) -> None:
    text = "# a profile\n" + "".join(f"{name}={value}\n" for name, value in values.items())
    for reader in READERS:
        assert read_with(reader, text, (2, 28, 9)) == values, reader


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab=\"'\\ \n#;$`{}()|&<>!-", max_size=80))
def test_shell_lexer_ends_and_keeps_lines_in_order(text: str) -> None:
    try:
        found = commands(text)
    except ShellError:
        return
    numbers = [command.line for command in found]
    assert numbers == sorted(numbers)
    assert all(1 <= number <= text.count("\n") + 1 for number in numbers)


@pytest.mark.parametrize(
    "data",
    [
        b"GPU0 " * 200_000,
        b"\tGPU0\tGPU1\n" + b"GPU0\tX\t" * 100_000,
        b"n:1:1 [0] NCCL INFO " * 50_000,
        b"a:" * 400_000 + b"1:1 [0] NCCL INFO x\n",
        b"A=$" * 40_000,
        b"A=" + b'"' * 60_001,
        b"run,verify_ms\n" + b"before,1\n" * 15_000,
        b"#       size         count      type\n" + b" 1 " * 300_000,
        b"==> a <==\n" * 50_000,
        b'{"verify_ms": ' + b"[" * 100_000,
        b"services:\n" + b" a:\n" * 5_000,
        b"Using ['" * 40_000,
        b'Unrecognized element token "' * 40_000 + b" NCCL INFO ",
        b"Decode batch. #running-req: 1, gen throughput (token/s): 3" * 5_000,
        b"# Rank " * 100_000,
        b"0000:" * 200_000 + b"/current_link_speed=1",
    ],
    ids=range(16),
)
def test_repetitive_input_takes_linear_time(tmp_path: Path, data: bytes) -> None:
    check(tmp_path / "pasted", data)
