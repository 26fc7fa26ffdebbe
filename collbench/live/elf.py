"""Where a symbol lies in an ELF file. Input is untrusted: every offset is checked.

Only 64-bit little-endian files, which is every machine that GPUs are put into.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_BYTES = 1 << 30
_MAX_SYMBOLS = 1 << 21
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_PT_LOAD = 1
_ET_EXEC, _ET_DYN = 2, 3
_PAGE = 4096
_read_before: dict[tuple[object, ...], Symbols] = {}
"""Workers of one server share their files."""


class NotReadableError(Exception):
    """The file is no ELF file of the supported kind, or is damaged."""


@dataclass(frozen=True, slots=True)
class Symbols:
    """What an ELF file says of the symbols asked for."""

    fixed: bool
    """The addresses are absolute (an executable that is not position-independent)."""
    first_load: int
    """Address of the first loaded segment, rounded down to a page."""
    addresses: dict[str, int]
    """Symbol -> address as linked; only symbols that the file itself defines."""

    def address_in(self, base: int, name: str) -> int:
        """Return where a symbol lies in a process that mapped the file at `base`."""
        linked = self.addresses[name]
        return linked if self.fixed else linked - self.first_load + base


def symbols(path: Path, names: Sequence[str]) -> Symbols:
    """Look symbols up in the symbol tables of an ELF file; a file is read once.

    Raises:
        NotReadableError: not such a file.
        OSError: it cannot be opened.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or not 64 <= info.st_size <= MAX_FILE_BYTES:
            raise NotReadableError("not a regular file of a sensible size")
        key = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, tuple(names))
        if key not in _read_before:
            with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as data:
                _read_before[key] = _read(data, names)
        return _read_before[key]
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise NotReadableError(f"damaged: {error}") from error
    finally:
        os.close(handle)


def _read(data: mmap.mmap, names: Sequence[str]) -> Symbols:
    if data[:6] != b"\x7fELF\x02\x01":
        raise NotReadableError("no 64-bit little-endian ELF file")
    (kind,) = struct.unpack_from("<H", data, 16)
    if kind not in (_ET_EXEC, _ET_DYN):
        raise NotReadableError("neither an executable nor a library")
    program_offset, section_offset = struct.unpack_from("<QQ", data, 0x20)
    program_size, program_count, section_size, section_count = struct.unpack_from(
        "<HHHH", data, 0x36
    )
    loads = []
    for index in range(program_count):
        segment = struct.unpack_from("<IIQQ", data, program_offset + index * program_size)
        if segment[0] == _PT_LOAD:
            loads.append(segment[3])
    if not loads:
        raise NotReadableError("nothing to load")
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", data, section_offset + index * section_size)
        for index in range(section_count)
    ]
    found: dict[str, int] = {}
    for wanted in (_SHT_DYNSYM, _SHT_SYMTAB):
        for section in sections:
            if section[1] == wanted and section[6] < len(sections):
                for name, address in _defined(data, section, sections[section[6]], names):
                    found.setdefault(name, address)
        if found:
            break
    return Symbols(kind == _ET_EXEC, min(loads) // _PAGE * _PAGE, found)


def _defined(
    data: mmap.mmap, table: tuple[int, ...], strings: tuple[int, ...], names: Sequence[str]
) -> Iterator[tuple[str, int]]:
    offset, size = table[4], table[5]
    text_offset, text_size = strings[4], strings[5]
    if offset + size > len(data) or text_offset + text_size > len(data):
        raise NotReadableError("a symbol table reaches past the end")
    if size // 24 > _MAX_SYMBOLS:
        raise NotReadableError("too many symbols")
    text = data[text_offset : text_offset + text_size]
    starts = {position for name in names for position in _positions(text, name.encode())}
    for entry in struct.iter_unpack("<IBBHQQ", data[offset : offset + size // 24 * 24]):
        if entry[0] in starts and entry[3] != 0 and entry[4]:
            end = text.index(b"\0", entry[0])
            name = text[entry[0] : end].decode("utf-8", "replace")
            if name in names:
                yield name, entry[4]


def _positions(text: bytes, name: bytes) -> Iterator[int]:
    """Yield where `name` stands in a string table, alone or as the end of a longer name."""
    position = text.find(name + b"\0")
    while position >= 0:
        yield position
        position = text.find(name + b"\0", position + 1)
