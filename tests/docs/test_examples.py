"""What the pages show as output is what the commands print today."""

import re
from pathlib import Path

import pytest

from collbench.cli import call

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "tests" / "data" / "records"
DEFAULT = str(RECORDS / "run-v1-h200x2-default.json")
CHANNELS = str(RECORDS / "run-v1-h200x2-channels16.json")


def shown(page: str, first: str) -> list[str]:
    """Return the indented block of a page that begins with a line, without lines of dots."""
    text = (ROOT / "docs" / page).read_text()
    block = re.search(rf"^    {re.escape(first)}.*?(?=^\S)", text, re.M | re.S)
    assert block, f"{page}: no block that begins with {first!r}"
    lines = [line[4:] for line in block[0].rstrip().splitlines()]
    return [line for line in lines if line.strip() not in ("", "...")]


@pytest.mark.parametrize(
    ("page", "first", "command", "code"),
    [
        ("compare.md", "case  ", ["compare", DEFAULT, CHANNELS], 0),
        (
            *("workloads.md", "verify-61x7168-b1-d4"),
            *(["workload", "show", "61x7168", "--tp", "8", "--draft-tokens", "4"], 0),
        ),
        (
            *("workloads.md", "draft tokens   tokens"),
            *(["workload", "show", "61x7168", "--record", DEFAULT], 0),
        ),
    ],
)
def test_every_line_that_a_page_shows_is_printed(
    page: str, first: str, command: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(command) == code
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in shown(page, first) if line not in printed] == []


def test_latencies_of_another_number_of_ranks_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["workload", "show", "61x7168", "--tp", "8", "--record", DEFAULT]) == 2
    told = capsys.readouterr().err
    assert "measured with 2 ranks, the step has 8" in told
    assert "--tp 2" in told


def test_the_sum_over_the_calls_that_a_page_names_is_the_tool_s(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (ROOT / "docs" / "workloads.md").read_text()
    said = re.search(r"the sum for `verify-61x7168` is ([\d.]+) ms", text)
    assert said
    assert call(["workload", "show", "verify-61x7168", "--record", DEFAULT]) == 0
    found = re.search(r"calls back to back: ([\d.]+) ms", capsys.readouterr().out)
    assert found
    assert f"{float(found[1]):.2f}" == said[1]
