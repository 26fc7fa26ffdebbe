"""What a user reads when something is wrong."""

from pathlib import Path

import pytest

from collbench.cli import call
from collbench.errors import CollbenchError


def test_an_error_hands_no_control_character_of_a_file_name_to_the_terminal() -> None:
    error = CollbenchError("a\x1b[31m\u202eb\rc: cut\nline 2", fix="open a\x07\x9b2J", code=5)
    assert str(error) == "a?[31m?b?c: cut\nline 2\n  fix: open a??2J"
    assert error.args == (error.what,)
    assert error.code == 5


def test_letters_of_every_language_stay_as_they_are() -> None:
    assert (
        CollbenchError("Gr\u00f6\u00dfe \u65e5\u672c\t1").what == "Gr\u00f6\u00dfe \u65e5\u672c\t1"
    )


@pytest.mark.parametrize("command", ["compare X X", "report X -o y.html", "fleet show X"])
def test_no_command_repeats_an_escape_sequence_of_its_arguments(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_, **__: False)  # as on a terminal
    hostile = str(tmp_path / "a\x1b[31mb")
    assert call([hostile if word == "X" else word for word in command.split()]) == 2
    told = capsys.readouterr().err
    assert "a?[31mb" in told
    assert "\x1b" not in told


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
@pytest.mark.parametrize(
    "command", [["status", "--every"], ["verify", "profile.env", "--match", "none", "--wait"]]
)
def test_a_time_that_no_clock_reaches_is_refused(
    command: list[str], seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([*command, seconds]) == 2
    assert command[-1] in capsys.readouterr().err
