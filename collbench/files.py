"""Write a file whole or not at all. Imports only `errors`."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from collbench.errors import CollbenchError, Exit


def write_atomic(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write `content` to `path` through a temporary file, fsync and rename.

    A pipe or device, such as ``/dev/stdout`` and ``/dev/null``, is written to and stays what it is.

    Raises:
        CollbenchError: the folder cannot be made or written to; an old file is left as it was.
    """
    data = content if isinstance(content, bytes) else content.encode("utf-8")
    temporary = ""
    try:
        if _is_stream(path):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as stream:
                stream.write(data)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        raise CollbenchError(
            f"{path}: cannot be written: {error.strerror or error}",
            fix="choose another folder with --out, or free space and permissions there",
            code=Exit.USAGE,
        ) from error


def refuse_inputs(out: Path | None, inputs: Iterable[Path], *, where: str) -> None:
    """Refuse to write over what has just been read.

    Raises:
        CollbenchError: `out` is one of the inputs, under whatever name.
    """
    if out is None:
        return
    for path in inputs:
        try:
            same = out.samefile(path)
        except OSError:  # one of them is not there: they differ
            continue
        if same and not _is_stream(out):
            raise CollbenchError(
                f"{where} {out}: is one of the files that are read", fix="name another file"
            )


def _is_stream(path: Path) -> bool:
    """Return whether `path` is no regular file, or stands for an open one (``/dev/stdout``)."""
    if path.absolute().is_relative_to("/dev/fd") or str(path.absolute()) in (
        "/dev/stdin",
        "/dev/stdout",
        "/dev/stderr",
    ):
        return True
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISCHR(kind)
