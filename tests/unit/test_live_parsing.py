"""What is read from other processes is untrusted: no bytes make a parser stumble or leak."""

import shutil
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collbench.live import conf_files, decode_path, elf, environ_block, server_log
from collbench.live.text import REDACTED, is_secret_name, printable, safe_arguments, shown_value

NAMES = ("environ", "__environ", "_environ")
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@QUICK
@given(st.lists(st.tuples(st.integers(0, 4096), st.integers(0, 255)), max_size=12), st.data())
def test_a_damaged_elf_file_is_refused_or_read(
    tmp_path: Path, changes: list[tuple[int, int]], data: st.DataObject
) -> None:
    program = bytearray(Path(shutil.which("env") or "/usr/bin/env").read_bytes())
    for position, value in changes:
        # The headers at the front, and the section table at the end.
        at = position if data.draw(st.booleans()) else len(program) - 1 - position
        program[at % len(program)] = value
    path = tmp_path / "program"
    path.write_bytes(program[: data.draw(st.integers(1, len(program)))])
    try:
        found = elf.symbols(path, NAMES)
    except elf.NotReadableError:
        return
    assert set(found.addresses) <= set(NAMES)


def test_no_regular_elf_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("#!/bin/sh\n" * 100)
    for path in (Path("/dev/zero"), tmp_path / "text", Path("/proc/self/maps")):
        with pytest.raises(elf.NotReadableError):
            elf.symbols(path, NAMES)


@pytest.mark.parametrize(
    ("data", "whole", "leading", "values"),
    [
        (b"A=1\0B=2\0", True, 0, {"A": "1", "B": "2"}),
        (b"\0" * 40, False, 40, {}),
        (b"\0" * 9 + b"B=2\0", False, 9, {"B": "2"}),
        (b"TP0\0\0\0\0B=2\0", False, 0, {"B": "2"}),
        (b"A=1\0\0B=2\0", False, 0, {"A": "1", "B": "2"}),
        (b"A=1\0B=2", False, 0, {"A": "1", "B": "2"}),
        (b"A=1\0A=2\0", True, 0, {"A": "1"}),
        (b"", False, 0, {}),
        (b"A=\xff\0", True, 0, {"A": "\udcff"}),
    ],
)
def test_a_block_that_was_written_over_is_recognised(
    data: bytes, whole: bool, leading: int, values: dict[str, str]
) -> None:
    block = environ_block.parse(data)
    assert (block.whole, block.leading_nul, block.values) == (whole, leading, values)


@given(st.text())
def test_printable_text_has_no_control_and_no_direction_characters(text: str) -> None:
    clean = printable(text)
    assert len(clean) <= 400
    clean.encode()
    for character in clean:
        category = unicodedata.category(character)
        assert category not in ("Cc", "Cs") or character == "\t", repr(character)
        assert unicodedata.bidirectional(character) not in ("LRO", "RLO", "LRE", "RLE", "PDF")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1;2qDATA\x1b\\x", "x"),
        ("\x9b2Jx", "x"),
        ("a\r\nb", "ab"),
        ("x\u202eevil", "xevil"),
    ],
)
def test_escape_sequences_are_taken_out_whole(text: str, clean: str) -> None:
    assert printable(text) == clean


SECRETS = ["--api-key", "--hf-token", "--ssl-keyfile-password", "--auth-token", "--client-secret"]
SECRETS += ["--pwd", "--passphrase", "--signature", "--db-pass"]
SAFE = ["--max-tokens", "--tokenizer", "--tokenizer-path", "--tp", "--model-path", "--keep"]
SAFE += ["--bypass", "--pass-through", "--pwd-file", "basic training-of-the-model", "--config"]


@given(st.sampled_from(SECRETS), st.from_regex(r"\A[A-Za-z0-9+/_.]{6,40}\Z"), st.booleans())
def test_the_value_of_a_secret_option_never_shows(name: str, value: str, joined: bool) -> None:
    arguments = ["serve", *([f"{name}={value}"] if joined else [name, value]), "--tp", "2"]
    for given_as in (arguments, [" ".join(arguments)]):
        shown = " ".join(safe_arguments(given_as))
        assert value not in shown.replace(name, "")
        assert shown.endswith("--tp 2")


@pytest.mark.parametrize("name", SAFE)
def test_the_value_of_another_option_does(name: str) -> None:
    assert safe_arguments([name, "value", f"{name}=value"]) == [name, "value", f"{name}=value"]
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "argument",
    [
        "mysql://user:pw123456@host/db",
        "hf_abcdefghij1234567890",
        "sk-abcdefghij1234567890",
        "Authorization: Bearer abcdefgh",
        "HF_TOKEN=abcdefgh",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
        "mysql+pymysql://user:pw@pw123456@host/db",
        "Bearer abcdefgh",
        "proxy -H 'Bearer abcdefgh'",
        "Basic ABCDEFGHIJKLMNOP==",
        "https://h/x?X-Amz-Signature=abcdefgh&y=2",
        "https://h/x?sig=abcdefgh",
        "DB_PASS=abcdefgh",
        "--pwd=abcdefgh",
        "AIzaSyABCDEFGHIJ0123456789abcdefgh0123456",
    ],
)
def test_known_forms_of_secrets_are_hidden_wherever_they_stand(argument: str) -> None:
    (shown,) = safe_arguments([argument])
    assert REDACTED in shown
    for part in ("pw123456", "abcdefgh", "ABCDEFGHIJ", "eyJz"):
        assert part not in shown


def test_a_secret_in_an_env_file_is_not_shown() -> None:
    assert shown_value("HF_TOKEN", "x") == REDACTED
    assert shown_value("NCCL_PROTO", "LL") == "LL"
    assert shown_value("NCCL_PROTO", None) is None
    assert shown_value("COLLBENCH_PROFILE", "0123456789ab") == "0123456789ab"


def test_conf_files_are_read_as_nccl_reads_them() -> None:
    text = "# c\nNCCL_PROTO=LL \nNCCL_PROTO=Simple\nbad name=1\nNCCL_ALGO\nNCCL_X='1'\n"
    found = conf_files.parse(text, "/etc/nccl.conf")
    assert {n: (v.value, v.line) for n, v in found.items()} == {
        "NCCL_PROTO": ("LL ", 2),
        "NCCL_X": ("'1'", 6),
    }
    assert conf_files.paths({"HOME": "/root"}) == ["/root/.nccl.conf", "/etc/nccl.conf"]
    assert conf_files.paths({"NCCL_CONF_FILE": "/x", "HOME": "/root"}) == ["/x", "/etc/nccl.conf"]


@given(st.text())
def test_no_log_line_makes_the_state_stumble(text: str) -> None:
    state, line = server_log.last_sign(text)
    assert state in ("loading", "ready", "benchmark", "error", "none")
    assert "\x1b" not in line


@pytest.mark.parametrize(
    ("words", "size"),
    [
        (["--tp", "4"], 4),
        (["--tp-size=8"], 8),
        (["--tensor-parallel-size", "2"], 2),
        (["--tp"], None),
        (["--tp", "x"], None),
        (["--other", "4"], None),
    ],
)
def test_the_size_of_the_group_is_read_from_options(words: list[str], size: int | None) -> None:
    assert decode_path.tensor_parallel(words) == size


def test_a_value_with_control_characters_is_written_out_and_cannot_pass_for_the_plain_one() -> None:
    assert shown_value("NCCL_PROTO", "LL\x1b[31m") == "LL\\x1b[31m"
    assert shown_value("NCCL_PROTO", "16\n17") == "16\\n17"
    assert shown_value("NCCL_PROTO", "L\udcffL") == "L\\udcffL"
