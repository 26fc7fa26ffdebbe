"""Write a file whole or not at all. Imports only `errors`."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from collbench.errors import CollbenchError, Exit


def write_atomic(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Write `content` to `path` through a temporary file, fsync and rename.

    Raises:
        CollbenchError: the folder cannot be made or written to; an old file is left as it was.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
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
