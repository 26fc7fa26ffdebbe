"""Workloads in TOML: the calls themselves, or a model and its batch."""

from pathlib import Path

import pytest

from collbench.errors import CollbenchError
from collbench.job import StepCall
from collbench.workload import load

GOOD = """
[workload]
name = "mine"
dtype = "float16"
[[workload.calls]]
collective = "all_reduce"
size = "8K"
count = 3
compute = [[1, 64, 32], [1, 32, 64]]
[[workload.calls]]
collective = "all_gather"
size = 4096
dtype = "float32"
"""


def write(folder: Path, text: str) -> str:
    path = folder / "w.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_calls_are_read_in_order(tmp_path: Path) -> None:
    made = load(write(tmp_path, GOOD))
    assert made.step.name == "mine"
    assert made.step.calls == (
        StepCall(
            collective="all_reduce",
            size_bytes=8192,
            dtype="float16",
            count=3,
            compute=((1, 64, 32), (1, 32, 64)),
        ),
        StepCall(collective="all_gather", size_bytes=4096, dtype="float32", count=1),
    )


def test_a_model_table_is_the_model_and_the_command_line_wins(tmp_path: Path) -> None:
    path = write(tmp_path, '[workload]\nmodel = "61x7168"\nbatch = 2\ndraft_tokens = 4\n')
    assert load(path, tp=8).totals() == load("61x7168", tp=8, batch=2, draft_tokens=4).totals()
    assert load(path, tp=8, batch=1).tokens == 4


def test_a_relative_model_starts_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"num_hidden_layers": 1, "hidden_size": 64, "vocab_size": 64}', encoding="utf-8"
    )
    made = load(write(tmp_path, '[workload]\nmodel = "config.json"\n'), tp=2)
    assert made.totals()[0] == ("all_reduce", 128, "bfloat16", 3)
    assert any("compute is incomplete" in note for note in made.notes)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (GOOD, "[sweep]\nbudget = 3\n", "no .workload. table"),
        ('"8K"', "0", "size: '0' is not an integer from 1"),
        ('"8K"', "-8", "size: '-8'"),
        ('"8K"', '"8X"', "'8X' is not a size"),
        ('"8K"', "true", "size: 'True'"),
        ('"8K"', "99999999999999", "size: '99999999999999'"),
        ('"8K"', "8191", "not a whole number of float16 elements"),
        ("count = 3", "count = 0", "count: '0'"),
        ("count = 3", "cuont = 3", "unknown field 'cuont'"),
        ('"all_reduce"', '"alltoall"', "unknown collective 'alltoall'"),
        ('"float16"', '"fp16"', "unknown dtype 'fp16'"),
        ("[1, 64, 32]", "[1, 64]", "compute"),
        ("[1, 64, 32]", "[1, 64, 0]", "compute: '0'"),
        ("[1, 64, 32]", "[1, 64, 48]", r"does not feed \[1, 32, 64\]"),
        ("[1, 64, 32]", "[2, 64, 32]", "rows differ"),
        ("[[1, 64, 32]", "[[1, 1048576, 16384], [1, 16384, 32]", "8589934592 elements"),
        ('name = "mine"', 'name = "a\\u001b[31m"', "is not a short text"),
        ("size = 4096", "", "size: missing"),
        ("[workload]", "[workload", "not TOML"),
    ],
)
def test_a_fault_is_named_with_file_and_field(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in GOOD
    with pytest.raises(CollbenchError, match=said) as raised:
        load(write(tmp_path, GOOD.replace(old, new, 1)))
    assert "w.toml" in raised.value.what


def test_a_table_that_names_a_table_is_refused_and_does_not_turn_in_circles(tmp_path: Path) -> None:
    source = write(tmp_path, '[workload]\nmodel = "w.toml"\n')
    with pytest.raises(CollbenchError, match=r"w\.toml' is a table as well"):
        load(source, tp=2)


def test_arguments_of_a_model_do_not_apply_to_calls(tmp_path: Path) -> None:
    with pytest.raises(CollbenchError, match=r"--draft-tokens: .* has calls"):
        load(write(tmp_path, GOOD), draft_tokens=4)


@pytest.mark.parametrize(
    "line", ["batch = true", 'batch = "2"', "server = 3", "colour = 1", "batch = 0"]
)
def test_wrong_fields_beside_model_are_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(CollbenchError, match=line.split()[0]):
        load(write(tmp_path, f'[workload]\nmodel = "80x8192"\n{line}\n'), tp=2)
