"""A file is written whole or not at all, and what is no file stays what it is."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from collbench.errors import CollbenchError
from collbench.files import write_atomic


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_file_is_replaced_whole_with_the_mode_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_atomic(path, "one")
    write_atomic(path, b"two", mode=0o640)
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert names(path.parent) == ["a.json"]


def test_an_old_file_is_left_as_it_was_where_the_disk_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CollbenchError, match="No space left on device"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.json"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_atomic(pipe, "document")
    reader.join(10)
    assert read == ["document"]
    assert pipe.is_fifo()


def test_a_link_to_a_device_stays_one(tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    write_atomic(link, "document")
    assert link.is_symlink()


def test_a_link_to_a_file_is_replaced_and_what_it_named_is_kept(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "planted").symlink_to(other)
    write_atomic(tmp_path / "planted", "document")
    assert other.read_text() == "mine"
    assert (tmp_path / "planted").read_text() == "document"


def test_stdout_is_a_place_for_a_document(tmp_path: Path) -> None:
    code = "from pathlib import Path; from collbench.files import write_atomic as w; "
    code += "print('before', flush=True); w(Path('/dev/fd/1'), 'document')"
    with (tmp_path / "out").open("wb") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True, timeout=60)
    assert (tmp_path / "out").read_text() == "before\ndocument"
