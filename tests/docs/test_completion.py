"""Shell completion, as the documentation says to switch it on."""

import os
import subprocess
import sys

import pytest


def completed(**environment: str) -> str:
    code = "import sys; sys.argv = ['collbench']; from collbench.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion_script(shell: str) -> None:
    assert "_COLLBENCH_COMPLETE" in completed(_COLLBENCH_COMPLETE=f"{shell}_source")


def test_commands_are_completed() -> None:
    text = completed(_COLLBENCH_COMPLETE="bash_complete", COMP_WORDS="collbench re", COMP_CWORD="1")
    assert text.splitlines() == ["plain,report"]
