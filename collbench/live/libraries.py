"""Which NCCL a process maps, or a command is going to load, and of which version it is."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from collbench.live.memory import Mapping as FileMapping
from collbench.live.processes import LIBRARY

_IN_NAME = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)$")
_IN_WHEEL = re.compile(r"nvidia_nccl_\w+-(\d+\.\d+\.\d+)[\w.]*\.dist-info$")
_IN_FILE = re.compile(rb"NCCL version (\d+\.\d+\.\d+)\+cuda")
_PACKAGE = Path("nvidia/nccl/lib/libnccl.so.2")
_SYSTEM = (
    "/usr/local/lib/libnccl.so.2",
    "/usr/lib/x86_64-linux-gnu/libnccl.so.2",
    "/usr/lib/aarch64-linux-gnu/libnccl.so.2",
    "/usr/lib64/libnccl.so.2",
    "/usr/local/cuda/lib64/libnccl.so.2",
)


def nccl_paths(maps: Iterable[FileMapping]) -> list[str]:
    """Return the different libnccl files among mapped files, in the order of the map."""
    found: dict[tuple[int, str], str] = {}
    for mapping in maps:
        if LIBRARY.search(mapping.executable_name):
            found.setdefault((mapping.inode, mapping.executable_name), mapping.path)
    return list(dict.fromkeys(found.values()))


def version_by_name(path: Path, *, follow: bool = True) -> str | None:
    """Return the version of a libnccl from its file name or the wheel it lies in.

    Nothing of the library is read, so this takes microseconds. Without `follow` symbolic links
    stay as they are: the path is another process's, and free of them already.
    """
    try:
        match = _IN_NAME.search(path.resolve().name if follow else path.name)
        if match:
            return match[1]
        if len(path.parents) > 3 and path.parent.parent.name == "nccl":
            for entry in path.parents[3].iterdir():
                wheel = _IN_WHEEL.fullmatch(entry.name)
                if wheel:
                    return wheel[1]
    except OSError:
        return None
    return None


def version_of(path: Path) -> str | None:
    """Return the version of a libnccl: from its name or wheel, else from the text inside it.

    The library is not loaded. Reading it takes a tenth of a second or more.
    """
    named = version_by_name(path)
    if named:
        return named
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            match = _IN_FILE.search(data)
            return match[1].decode() if match else None
    except (OSError, ValueError):
        return None


def will_load(command: str, environ: Mapping[str, str]) -> Path | None:
    """Return the libnccl that a command is going to load, so far as can be told without it.

    In the order in which it is found in practice: the path a server was given, LD_LIBRARY_PATH,
    the wheel beside the command's Python, the system's folders.

    Args:
        command: First word of the command line.
        environ: The environment it will have.
    """
    for name in ("SGLANG_NCCL_SO_PATH", "VLLM_NCCL_SO_PATH"):
        if environ.get(name) and Path(environ[name]).is_file():
            return Path(environ[name])
    for folder in environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder and (Path(folder) / "libnccl.so.2").is_file():
            return Path(folder) / "libnccl.so.2"
    for prefix in _prefixes(command, environ):
        for packages in sorted(prefix.glob("lib*/python3*/*-packages")):
            if (packages / _PACKAGE).is_file():
                return packages / _PACKAGE
    return next((Path(path) for path in _SYSTEM if Path(path).is_file()), None)


def _prefixes(command: str, environ: Mapping[str, str]) -> list[Path]:
    """Return the installation folders of the Python behind a command, nearest first."""
    import shutil

    found = shutil.which(command, path=environ.get("PATH", os.defpath))
    if found is None:
        return []
    program = Path(found)
    try:
        with program.open("rb") as file:
            first = file.readline(256)
    except OSError:
        first = b""
    words = first[2:].split() if first.startswith(b"#!") else []
    if words:
        named = os.fsdecode(words[-1] if words[0].endswith(b"/env") else words[0])
        program = Path(shutil.which(named, path=environ.get("PATH", os.defpath)) or named)
    prefixes = [program.parent.parent]
    for folder in (environ.get("VIRTUAL_ENV"), environ.get("CONDA_PREFIX")):
        if folder:
            prefixes.append(Path(folder))
    prefixes.append(program.resolve().parent.parent)
    # Where pip puts packages of a system's Python: /usr/local, or the user's own folder.
    prefixes += [prefix / "local" for prefix in prefixes]
    if environ.get("HOME"):
        prefixes.append(Path(environ["HOME"]) / ".local")
    return list(dict.fromkeys(prefixes))
