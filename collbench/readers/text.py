"""From bytes to lines: encodings, escapes, endless lines, and several inputs in one file."""

from __future__ import annotations

import csv
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from collbench.readers import UnreadableError

MAX_WHOLE_BYTES = 32 << 20
"""Largest file read as a whole; logs are streamed and may be larger."""
MAX_LINE_BYTES = 1 << 16
"""A longer line is no message of any tool read here: it is cut, and counts as torn."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SECTION = re.compile(r"==> (.{1,255}) <==")


class Line(NamedTuple):
    """One line without its end."""

    number: int
    text: str
    whole: bool
    """False where the line has no end (the last one of a file) or was cut for its length."""


@dataclass(frozen=True, slots=True)
class Section:
    """One of several inputs in a file, or the whole file (then `name` is empty)."""

    name: str
    text: str
    start: int
    """Line of the file on which the text begins, from 1."""

    @property
    def base(self) -> str:
        """Last part of the name."""
        return self.name.rsplit("/", 1)[-1]


def printable(text: str, limit: int = 200) -> str:
    """Return text that is safe on a terminal: one line, no control characters, cut."""
    clean = _CONTROL.sub("?", strip_escapes(text).replace("\t", " ").replace("\n", " "))
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def strip_escapes(text: str) -> str:
    """Remove terminal escapes: colours, underlines, titles."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading; pipes, devices and folders are refused.

    Raises:
        UnreadableError: it is none, or may not be read.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableError("is a folder, not a file")
        if not stat.S_ISREG(mode):
            raise UnreadableError("is not a regular file")
        return path.open("rb")
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}") from error


def read_whole(path: Path) -> bytes:
    """Return the bytes of a file of at most `MAX_WHOLE_BYTES`.

    Raises:
        UnreadableError: no regular file, too large, or the disk failed.
    """
    with open_regular(path) as file:
        try:
            data = file.read(MAX_WHOLE_BYTES + 1)
        except OSError as error:
            raise UnreadableError(f"cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_WHOLE_BYTES:
        raise UnreadableError(
            f"larger than {MAX_WHOLE_BYTES >> 20} MiB: only NCCL logs may be that large"
        )
    return data


def decode(data: bytes) -> str:
    """Return text of UTF-8 bytes; a log may hold some stray bytes, junk is refused.

    Raises:
        UnreadableError: empty, UTF-16, or binary.
    """
    if not data.strip():
        raise UnreadableError("empty")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UnreadableError("UTF-16: save it as UTF-8")
    probe = data[:MAX_LINE_BYTES]
    nuls = probe.count(0)
    if nuls:
        wide = nuls > len(probe) // 3
        raise UnreadableError("UTF-16: save it as UTF-8" if wide else "binary: holds NUL bytes")
    text = data.decode("utf-8", "replace")
    control = sum(1 for char in text[:MAX_LINE_BYTES] if char < " " and char not in "\t\n\r\x1b\f")
    strange = text.count("\ufffd", 0, MAX_LINE_BYTES) + control
    if strange > 8 and strange > min(len(text), MAX_LINE_BYTES) // 50:
        raise UnreadableError("binary: not text")
    return text


def without_marks(text: str) -> str:
    r"""Return text without the ``>`` with which mail programs mark every line of a quotation.

    >>> without_marks("> GPU0\n> GPU1\n"), without_marks("a > b\n> c\n")
    ('GPU0\nGPU1\n', 'a > b\n> c\n')
    """
    if not text.startswith(">"):
        return text
    lines = text.split("\n")
    if any(line.strip() and not line.startswith(">") for line in lines):
        return text
    return "\n".join(line[2:] if line.startswith("> ") else line[1:] for line in lines)


def sections(text: str) -> list[Section]:
    r"""Split text at the lines ``==> name <==`` that `tail -n +1 FILE...` prints.

    >>> [(s.name, s.text, s.start) for s in sections("==> a <==\nx\n\n==> b <==\ny\n")]
    [('a', 'x\n', 2), ('b', 'y\n', 5)]
    """
    found: list[Section] = []
    name, start, held = "", 1, []
    for number, line in enumerate(re.findall(r"[^\n]*\n|[^\n]+", text), 1):
        match = _SECTION.fullmatch(line.strip()) if line.startswith("==> ") else None
        if match is None:
            held.append(line)
            continue
        if name or any(part.strip() for part in held):
            found.append(_section(name, held, start, last=False))
        name, start, held = match[1], number + 1, []
    found.append(_section(name, held, start, last=True))
    return found


def _section(name: str, held: list[str], start: int, *, last: bool) -> Section:
    # The empty line in front of the next header is tail's, not the file's.
    if held and not held[-1].strip() and (name or not last):
        held = held[:-1]
    return Section(name, "".join(held), start)


def lines_of(section: Section, *, keep_returns: bool = False) -> Iterator[Line]:
    """Yield the lines of a section with their numbers in the file, escapes removed."""
    pieces = section.text.split("\n")
    for number, piece in enumerate(pieces, section.start):
        whole = number - section.start < len(pieces) - 1
        if len(piece) > MAX_LINE_BYTES:
            piece, whole = piece[:MAX_LINE_BYTES], False
        if piece or whole:
            text = piece if keep_returns else piece.rstrip("\r")
            yield Line(number, strip_escapes(text), whole)


def csv_fields(line: str, delimiter: str = ",") -> list[str]:
    """Return the fields of one line of a CSV; a field does not go on in the next line.

    Raises:
        UnreadableError: a field is longer than any that a tool writes.
    """
    try:
        return next(csv.reader([line.replace("\r", " ")], delimiter=delimiter), [])
    except csv.Error as error:
        raise UnreadableError(f"CSV: {error}") from error


def stream(file: IO[bytes]) -> Iterator[tuple[int, bytes, bool]]:
    """Yield (number, line, whole) of a binary file in bounded memory."""
    number = 0
    while raw := file.readline(MAX_LINE_BYTES):
        number += 1
        whole = raw.endswith(b"\n")
        yield number, raw.rstrip(b"\r\n"), whole
        while not whole and (rest := file.readline(MAX_LINE_BYTES)):
            whole = rest.endswith(b"\n")
