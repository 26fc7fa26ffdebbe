"""Reports written from real results: every chapter is there, and says what the numbers say."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from collbench.cli import call
from collbench.cli.report import report
from collbench.errors import CollbenchError
from collbench.report import write
from collbench.report.sources import read

Make = Callable[..., Path]
ROOT = Path(__file__).parent.parent.parent


def data_of(text: str) -> dict[str, list[object]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    data = json.loads(found[1])
    assert isinstance(data, dict)
    return data


def test_a_report_of_a_profile_holds_every_chapter(make_profile: Make, tmp_path: Path) -> None:
    out, profile = tmp_path / "report.html", make_profile()
    write([profile], out)
    text = out.read_text()
    for chapter in [
        "overview",
        "files",
        "step",
        "sizes",
        "mattered",
        "skew",
        "links",
        "choices",
        "machine",
    ]:
        assert f'<section id="{chapter}"' in text
    assert "Faster: 4.338 ms with the default, 4.021 ms with the profile" in text
    files = data_of(text)["files"]
    assert files[0] == (profile / "profile.env").read_text()
    marks = ["docker run", "env_file:", "EnvironmentFile=", "ConfigMap", "srun", "export "]
    assert [m for m, file in zip(marks, files[1:], strict=True) if m not in str(file)] == []
    assert all("/etc/collbench/current" in str(file) for file in files[1:4])
    assert len(text) < 6_000_000


def test_a_study_shows_every_launch_and_what_mattered(make_study: Make, tmp_path: Path) -> None:
    out, study = tmp_path / "report.html", make_study(60)
    before = study.read_bytes()
    write([study], out)
    text = out.read_text()
    assert "Every launch, in the order measured (60)" in text
    assert "Importance of the searched settings" in text
    assert "60 launches: 58 ok, 2 hung" in text
    assert study.read_bytes() == before, "the study file is only read"


@pytest.mark.slow
def test_500_launches_take_under_5_s_500_mb_and_6_mb_of_page(make_study: Make) -> None:
    command = [sys.executable, "-m", "benchmarks.report_speed", str(make_study(500))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    assert figures["cpu_seconds"] < 5
    assert figures["peak_mb"] < 500
    assert figures["page_mb"] < 6


def test_help_imports_neither_plotly_nor_pandas_nor_optuna() -> None:
    code = (
        "import sys; from collbench.cli import call; call(['report', '--help']); "
        "heavy = {'plotly', 'pandas', 'optuna', 'scipy', 'pydantic', 'torch'} & set(sys.modules); "
        "sys.exit(' '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_another_sqlite_file_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "firefox.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE places (url TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(CollbenchError, match="but not a study"):
        read(path)
    assert path.read_bytes() == before


def test_a_machine_folder_becomes_a_history(make_profile: Make, tmp_path: Path) -> None:
    first = make_profile("2026-01-02T00:00:00Z")
    make_profile("2026-02-02T00:00:00Z", settings={"NCCL_MIN_NCHANNELS": "8"})
    out = tmp_path / "report.html"
    write([first.parent], out)
    text = out.read_text()
    assert "2 results; the newest: Faster" in text
    assert text.index("2026-01-02T00:00:00Z") < text.index("2026-02-02T00:00:00Z")


def test_a_hostile_record_is_shown_as_text(make_record: Make, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    plain = json.loads(make_record().read_text())
    plain["machine"]["host"] = evil
    plain["machine"]["gpus"][0]["name"] = evil
    plain["warnings"] = [f"\x1b[31m{evil}"]
    plain["launches"][0] |= {"outcome": "died", "reason": evil, "cases": [], "step": None}
    plain["settings"] = {"NCCL_ALGO": evil}
    path, out = tmp_path / "evil.json", tmp_path / "report.html"
    path.write_text(json.dumps(plain))
    write([path], out, title=evil)
    text = out.read_text()
    assert "<img src=x" not in text
    assert "\x1b" not in text.split("<script>")[0]
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") >= 4


def test_the_command_writes_the_file_and_says_where(make_record: Make, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "report.html"
    result = CliRunner().invoke(report, [str(make_record()), "-o", str(out)], standalone_mode=False)
    assert result.return_value == 0
    assert result.stdout == ""
    assert result.stderr.startswith(f"wrote {out} (")
    assert out.stat().st_size > 1_000_000


def test_a_wrong_path_exits_2_and_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert call(["report", str(tmp_path / "nothing.json"), "-o", str(out)]) == 2
    assert "nothing.json: No such file" in capsys.readouterr().err
    assert not out.exists()


def test_an_unwritable_place_exits_2(
    make_record: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "report.html"
    assert call(["report", str(make_record()), "-o", str(out)]) == 2
    assert "cannot be written" in capsys.readouterr().err
