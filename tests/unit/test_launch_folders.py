"""A launch's folder goes with its owner, and never under an owner that lives."""

import os
import time
from pathlib import Path

import pytest

from collbench.pool import folders
from collbench.pool.folders import LaunchFolder, sweep_leftovers


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folders, "ROOTS", (tmp_path,))
    return tmp_path


def aged(folder: Path) -> Path:
    old = time.time() - 3600
    os.utime(folder, (old, old))
    return folder


def test_a_folder_in_use_is_never_swept_however_old(root: Path) -> None:
    with LaunchFolder(0) as folder:
        sweep_leftovers((root,))
        aged(folder)
        sweep_leftovers((root,))
        assert folder.is_dir()
    assert not folder.exists()


def test_the_folder_of_a_killed_owner_is_swept(root: Path) -> None:
    left = root / "collbench-launch-1-0-ff"
    (left / "session").mkdir(parents=True)
    aged(left)
    sweep_leftovers((root,))
    assert not left.exists()


def test_a_folder_that_is_just_being_made_is_left_alone(root: Path) -> None:
    young = root / "collbench-launch-1-0-ff"
    young.mkdir()
    sweep_leftovers((root,))
    assert young.is_dir()


def test_other_folders_are_left_alone(root: Path) -> None:
    other = aged_dir = root / "somebody-else"
    aged_dir.mkdir()
    aged(other)
    sweep_leftovers((root,))
    assert other.is_dir()
