"""`collbench slurm submit` refuses before the queue what the sweep would refuse after it."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from collbench.cli.slurm import slurm
from collbench.errors import CollbenchError


def submit(*words: str, out: Path) -> Result:
    return CliRunner().invoke(slurm, ["submit", "--dry-run", "--out", str(out), *words])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("nosuch",), "no sweep 'nosuch'"),
        (("decode", "--", "--budgt", "5m"), "--budgt"),
        (("decode", "--", "--budget", "3"), "--budget: 3"),
        (("decode", "--", "--budget", "1s"), "--budget: in 1 s"),
        (("decode", "--", "--objective", "fastest"), "fastest"),
        (("decode", "--", "--out", "/elsewhere"), "--out"),
        (("decode", "--array", "4", "--at-once", "9"), "--at-once 9"),
    ],
)
def test_a_wrong_sweep_never_reaches_the_queue(
    tmp_path: Path, words: tuple[str, ...], named: str
) -> None:
    done = submit(*words, out=tmp_path)
    assert isinstance(done.exception, CollbenchError)
    assert named in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_a_right_one_is_shown_as_it_would_be_submitted(tmp_path: Path) -> None:
    done = submit("decode", "--", "--budget", "5m", out=tmp_path)
    assert done.exit_code == 0, done.output
    assert f"{sys.executable} -m collbench sweep" in done.output
    assert "--budget 5m" in done.output
