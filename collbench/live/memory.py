"""The environment a process has now, from its memory.

``/proc/PID/environ`` shows the block of the exec: it misses what the process changed since, and a
process title is written over it. The C library's variable ``environ`` points at the present
values. It lies in the executable itself where that was linked against a fixed address (copy
relocation), otherwise in the C library.

The process is not stopped. It is read twice, and only two equal readings count.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from collbench.live import elf

MAX_VARIABLES = 1 << 14
MAX_VALUE_BYTES = 1 << 17
"""The kernel's limit for one string at exec; longer ones are cut."""
_PAGE = 4096
_NAMES = ("environ", "__environ", "_environ")
_MAP = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ (\d+)\s*(.*)")
_C_LIBRARY = re.compile(r"/(?:libc[.-][^/]*so[^/]*|ld-musl-[^/]*\.so[^/]*|libc\.musl-[^/]*)$")

Why = Literal["no_permission", "gone", "changing", "not_ready", "unsupported"]


class UnreadableError(Exception):
    """The environment cannot be read; `why` says of what kind the reason is."""

    def __init__(self, why: Why, text: str) -> None:
        super().__init__(text)
        self.why: Why = why


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of ``/proc/PID/maps`` that belongs to a file."""

    start: int
    end: int
    offset: int
    inode: int
    path: str

    @property
    def executable_name(self) -> str:
        """The path without the kernel's remark that the file is gone."""
        return self.path.removesuffix(" (deleted)")


def mappings(pid: int) -> list[Mapping]:
    """Return the files that a process maps.

    Raises:
        UnreadableError: no permission, or the process is gone.
    """
    try:
        text = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _reason(error, pid) from error
    found = []
    for line in text.split("\n"):
        match = _MAP.fullmatch(line)
        if match and match[6].startswith("/"):
            found.append(
                Mapping(
                    int(match[1], 16), int(match[2], 16), int(match[4], 16), int(match[5]), match[6]
                )
            )
    return found


def read_environ(pid: int, maps: list[Mapping] | None = None) -> dict[str, str]:
    """Return the environment that a process has now.

    Args:
        pid: The process.
        maps: Its `mappings`, where they are at hand.

    Raises:
        UnreadableError: no permission, gone, changing all the time, not ready, or unsupported.
    """
    before = identity(pid)
    address = _address_of_environ(pid, mappings(pid) if maps is None else maps)
    previous: list[bytes] | None = None
    for _ in range(4):
        current = _read_once(pid, address)
        now = identity(pid)
        if now != before:  # it has become another program: start again
            before, previous = now, None
            address = _address_of_environ(pid, mappings(pid))
        elif current == previous:
            return _as_dict(current)
        else:
            previous = current
    raise UnreadableError("changing", "the environment changed while it was read")


def identity(pid: int) -> tuple[str, int, int]:
    """Return what tells two programs under one pid apart: start time and executable.

    Raises:
        UnreadableError: no permission, or the process is gone.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        info = Path(f"/proc/{pid}/exe").stat()
    except OSError as error:
        raise _reason(error, pid) from error
    return text.rpartition(")")[2].split()[19], info.st_dev, info.st_ino


def _read_once(pid: int, address: int) -> list[bytes]:
    try:
        handle = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _reason(error, pid) from error
    try:
        memory = _Memory(handle)
        pointer = memory.word(address)
        if pointer == 0:
            raise UnreadableError("not_ready", "the process has no environment yet")
        return _strings(memory, pointer)
    except OSError as error:
        if error.errno in (5, 14):  # EIO, EFAULT: the memory moved while it was read
            raise UnreadableError("changing", "its memory changed while it was read") from error
        raise _reason(error, pid) from error
    finally:
        os.close(handle)


def _address_of_environ(pid: int, maps: list[Mapping]) -> int:
    """Return the address of the variable, in the executable or in the C library."""
    try:
        program = Path(f"/proc/{pid}/exe").readlink()
        tables = [(Path(f"/proc/{pid}/exe"), _base(maps, str(program)))]
    except OSError as error:
        raise _reason(error, pid) from error
    for mapping in maps:
        if mapping.offset == 0 and _C_LIBRARY.search(mapping.executable_name):
            mapped = Path(f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}")
            tables += [
                (mapped, mapping.start),
                (Path(f"/proc/{pid}/root{mapping.executable_name}"), mapping.start),
            ]
    reasons = []
    for path, base in tables:
        if base is None:
            continue
        try:
            table = elf.symbols(path, _NAMES)
        except (OSError, elf.NotReadableError) as error:
            reasons.append(f"{path.name}: {error}")
            continue
        for name in _NAMES:
            if name in table.addresses:
                return table.address_in(base, name)
    raise UnreadableError(
        "unsupported", f"no symbol 'environ' found{': ' if reasons else ''}{'; '.join(reasons)}"
    )


def _base(maps: list[Mapping], path: str) -> int | None:
    return next((m.start for m in maps if m.path == path and m.offset == 0), None)


class _Memory:
    """Another process's memory, in pages that are read once."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.pages: dict[int, bytes] = {}

    def page(self, number: int) -> bytes:
        if number not in self.pages:
            self.pages[number] = os.pread(self.handle, _PAGE, number * _PAGE)
        return self.pages[number]

    def read(self, address: int, size: int) -> bytes:
        parts = []
        while size > 0:
            start = address % _PAGE
            part = self.page(address // _PAGE)[start : start + size]
            if not part:
                raise OSError(14, "nothing mapped there")
            parts.append(part)
            address, size = address + len(part), size - len(part)
        return b"".join(parts)

    def word(self, address: int) -> int:
        (value,) = struct.unpack("<Q", self.read(address, 8))
        return int(value)

    def string(self, address: int) -> bytes:
        parts = []
        for _ in range(MAX_VALUE_BYTES // _PAGE + 2):
            start = address % _PAGE
            part = self.page(address // _PAGE)[start:]
            if not part:
                raise OSError(14, "nothing mapped there")
            end = part.find(b"\0")
            if end >= 0:
                parts.append(part[:end])
                return b"".join(parts)
            parts.append(part)
            address += len(part)
        return b"".join(parts)


def _strings(memory: _Memory, pointer: int) -> list[bytes]:
    found: list[bytes] = []
    for index in range(MAX_VARIABLES):
        address = memory.word(pointer + 8 * index)
        if address == 0:
            return found
        found.append(memory.string(address))
    raise UnreadableError("changing", "the list of variables has no end")


def _as_dict(strings: list[bytes]) -> dict[str, str]:
    """Return name -> value; of a name that occurs twice the first counts, as for getenv."""
    values: dict[str, str] = {}
    for string in strings:
        name, equals, value = string.partition(b"=")
        if equals and name:
            values.setdefault(
                name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")
            )
    return values


def _reason(error: OSError, pid: int) -> UnreadableError:
    if isinstance(error, PermissionError):
        return UnreadableError("no_permission", f"no permission to read process {pid}")
    if isinstance(error, FileNotFoundError | ProcessLookupError):
        return UnreadableError("gone", f"process {pid} is gone, or is not a program")
    return UnreadableError("gone", f"process {pid}: {error.strerror or error}")
