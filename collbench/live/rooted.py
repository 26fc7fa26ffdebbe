"""Files as another process sees them, opened without leaving its root.

``/proc/PID/root/...`` alone follows a container's own symbolic links into the host. openat2 with
RESOLVE_IN_ROOT keeps every link inside (Linux 5.6). Only regular files are read, never blocking,
never more than a cap.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from typing import Literal

_OPENAT2 = 437
"""The system call has one number on all architectures."""
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_IN_ROOT = 0x10
MAX_BYTES = 1 << 20

State = Literal["file", "missing", "not_regular", "no_permission", "unsupported"]


class NotOpenedError(Exception):
    """The file was not opened; `state` says why."""

    def __init__(self, state: State, text: str) -> None:
        super().__init__(text)
        self.state: State = state


def open_in_root(pid: int, path: str) -> int:
    """Return a descriptor of a regular file in the root of a process.

    Raises:
        NotOpenedError: missing, not a regular file, no permission, or no such system call.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _reason(error.errno or 0, path) from error
    try:
        how = struct.pack("<QQQ", flags, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
        # O_PATH first: opening a device or a pipe can act on it.
        probe = struct.pack(
            "<QQQ",
            os.O_PATH | os.O_CLOEXEC,
            0,
            _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS,
        )
        looked = _openat2(root, path, probe)
        try:
            if not stat.S_ISREG(os.fstat(looked).st_mode):
                raise NotOpenedError("not_regular", f"{path}: not a regular file")
        finally:
            os.close(looked)
        handle = _openat2(root, path, how)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise NotOpenedError("not_regular", f"{path}: not a regular file")
        return handle
    finally:
        os.close(root)


def read_in_root(pid: int, path: str, limit: int = MAX_BYTES) -> bytes:
    """Return the first `limit` bytes of a regular file in the root of a process.

    Raises:
        NotOpenedError: see `open_in_root`.
    """
    handle = open_in_root(pid, path)
    with os.fdopen(handle, "rb") as file:
        return file.read(limit)


def state_in_root(pid: int, path: str) -> State:
    """Return what a path is in the root of a process."""
    try:
        os.close(open_in_root(pid, path))
    except NotOpenedError as error:
        return error.state
    return "file"


def _openat2(directory: int, path: str, how: bytes) -> int:
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError as error:
        raise NotOpenedError("missing", f"{path!r}: not a path") from error
    if b"\0" in name:
        raise NotOpenedError("missing", f"{path!r}: not a path")
    library = ctypes.CDLL(None, use_errno=True)
    handle = library.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(directory),
        ctypes.c_char_p(name),
        ctypes.create_string_buffer(how, len(how)),
        ctypes.c_size_t(len(how)),
    )
    if handle < 0:
        raise _reason(ctypes.get_errno(), path)
    return int(handle)


def _reason(number: int, path: str) -> NotOpenedError:
    if number in (errno.EACCES, errno.EPERM):
        return NotOpenedError("no_permission", f"{path}: no permission")
    if number == errno.ENOSYS:
        return NotOpenedError("unsupported", "openat2 needs Linux 5.6")
    if number in (errno.ENXIO, errno.EISDIR):
        return NotOpenedError("not_regular", f"{path}: not a regular file")
    return NotOpenedError("missing", f"{path}: {os.strerror(number)}")
