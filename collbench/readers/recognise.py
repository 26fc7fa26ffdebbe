"""Tell by its content what a file is, and read it.

A file may hold several inputs. They are put together where they belong together: a matrix with
the workers of a server, a log with what the machine said after a hang, the files of a launch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collbench.readers import Given, Reading, UnreadableError
from collbench.readers.text import (
    MAX_WHOLE_BYTES,
    Section,
    decode,
    open_regular,
    read_whole,
    sections,
    without_marks,
)

KINDS = (
    "topo_m",
    "topo_p2p",
    "topo_affinity",
    "nccl_log",
    "nccl_tests",
    "env_file",
    "launch",
    "proc_environ",
    "pcie_query",
    "pcie_lspci",
    "pcie_sysfs",
    "e2e",
    "serving",
)

_LOG = re.compile(
    r"\[\d+\](?: [^\s]{1,120}){0,3} NCCL (?:INFO|WARN) |^NCCL (?:INFO|WARN) |NCCL version \d"
    r"|is using nccl==\d|Watchdog caught collective",
    re.MULTILINE,
)
_MATRIX = re.compile(r"^[ \t|]*(?:\x1b\[\d*m)*GPU0[ \t|].*$", re.MULTILINE)
_MATRIX_ROW = re.compile(r"^[ \t|]*GPU\d+[ \t|]+(?:X|[A-Z0-9/]{1,6})[ \t|]", re.MULTILINE)
_PEER_ROW = re.compile(r"^[ \t|]*GPU\d+[ \t|].*\b(?:OK|CNS|GNS|TNS|NS|U)\b", re.MULTILINE)
_TABLE = re.compile(
    r"\bsize\s+count\s+type\b|^\s*#?\s*N\s+type\s+(?:op|root)\s+time\b", re.MULTILINE
)
_TABLE_ROW = re.compile(
    r"^\s+\d+\s+\d+\s+[a-z]\w+\s+\w+\s+(?:-?\d+\s+)?[\d.]+\s+[\d.]+", re.MULTILINE
)
_TITLES = re.compile(r"sglang::|VLLM::|PID\s+(?:COMMAND|CMD)|COMMAND")
_AFFINITY = re.compile(r"current affinity (?:list|mask):|Cpus_allowed_list:")
_LSPCI = re.compile(r"^\s+(?:LnkCap|LnkSta|ACSCtl):", re.MULTILINE)
_SYSFS = re.compile(r"/(?:current|max)_link_(?:speed|width)\s*[=:]")
_QUERY = re.compile(r"GPU Link Info|pcie\.link\.(?:gen|width)")
_CMDLINE = re.compile(
    r"BOOT_IMAGE=|\b(?:intel_iommu|amd_iommu|iommu)=|\bro (?:quiet|splash)\b|^root="
)
_STEPS = re.compile(r"(?:verify|step)(?:_\w+)?_(?:ns|us|ms|s)\b|\b(?:tok_s|accept_len)\b")
_UTIL = re.compile(r"utilization\.gpu")
_APPS = re.compile(r"^\s*pid\s*,\s*process_name", re.MULTILINE)


def sort_of(section: Section) -> str | None:
    """Return what one section is, or None: a kind, ``ps``, ``cpus``, ``cmdline``, ``util``, ..."""
    from collbench.readers.launch.reading import part_of
    from collbench.readers.serving import looks_served

    text = section.text
    head = text[: 1 << 20]
    part = part_of(section)
    checks: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("launch:" + (part or ""), lambda: part in ("compose", "k8s", "unit", "inspect", "image")),
        ("nccl_tests", lambda: _TABLE.search(head)),
        ("pcie_query", lambda: _QUERY.search(head)),
        ("pcie_lspci", lambda: _LSPCI.search(head)),
        ("pcie_sysfs", lambda: _SYSFS.search(head)),
        ("topo_p2p", lambda: _matrix(head) and _PEER_ROW.search(head) and not _linked(head)),
        ("topo_m", lambda: _matrix(head)),
        ("cpus", lambda: _AFFINITY.search(head)),
        ("ps", lambda: _TITLES.search(head[:4096]) and re.search(r"^\s*\S*\s*\d+\s", head, re.M)),
        ("serving", lambda: "NCCL INFO " not in text and looks_served(text)),
        ("nccl_log", lambda: _LOG.search(text)),
        ("util", lambda: _UTIL.search(head)),
        ("apps", lambda: _APPS.search(head)),
        ("cmdline", lambda: text.count("\n") <= 3 and _CMDLINE.search(head)),
        ("e2e", lambda: _is_steps(head)),
        ("nccl_tests", lambda: not text.startswith("#!") and _TABLE_ROW.search(head)),
        ("launch:" + (part or ""), lambda: part is not None),
        ("launch:env", lambda: _mostly_assignments(head)),
    )
    return next((name for name, holds in checks if holds()), None)


def _matrix(text: str) -> bool:
    return _MATRIX.search(text) is not None and _MATRIX_ROW.search(text) is not None


def _linked(text: str) -> bool:
    return re.search(r"^[ \t|]*GPU\d+.*\b(?:SYS|NODE|PHB|PXB|PIX|NV\d+)\b", text, re.M) is not None


def _mostly_assignments(text: str) -> bool:
    """Return whether most lines are assignments, though some readers will refuse the others."""
    lines = [line for line in text.split("\n") if line.strip() and line.lstrip()[0] not in "#;"]
    good = sum(re.match(r"\s*(?:export\s+)?[A-Z_][A-Z0-9_]*=", line) is not None for line in lines)
    return good * 2 > len(lines)


def _is_steps(text: str) -> bool:
    stripped = text.lstrip("\ufeff \t\r\n")
    first = next((line for line in stripped.split("\n") if line.strip() and line[0] != "#"), "")
    if stripped.startswith(("{", "[")):
        return _STEPS.search(text) is not None
    return re.search(r"[,;]", first) is not None and _STEPS.search(first) is not None


def read_file(
    path: Path,
    given: Given | None = None,
    kind: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Reading:
    """Read one file of any kind.

    Args:
        path: A regular file.
        given: What is known from elsewhere.
        kind: One of `KINDS`, where the content is not to decide.
        progress: For logs too large to be read whole: called with the bytes read so far.

    Raises:
        UnreadableError: it cannot be read safely, or is of no known kind.
    """
    from collbench.readers.proc_environ import environ_reading, looks_like

    known = given or Given()
    with open_regular(path) as file:
        head = file.read(1 << 16)
        file.seek(0, 2)
        size = file.tell()
    if size > MAX_WHOLE_BYTES:
        return _large_log(path, head, progress)
    data = read_whole(path)
    if kind == "proc_environ" or (kind is None and looks_like(data)):
        return environ_reading(data, known)
    return read_sections(sections(without_marks(decode(data))), known, kind)


def _large_log(path: Path, head: bytes, progress: Callable[[int], None] | None) -> Reading:
    from collbench.readers.nccl_log import read_log
    from collbench.readers.nccl_ranks import log_reading

    decode(head)
    log = read_log(path, progress)
    if not log.messages and not log.versions:
        raise UnreadableError(
            f"larger than {MAX_WHOLE_BYTES >> 20} MiB and without a line of NCCL: "
            "only NCCL logs may be that large"
        )
    return log_reading(log)


def read_sections(parts: list[Section], given: Given, kind: str | None = None) -> Reading:
    """Read one file's sections as what they are together.

    Raises:
        UnreadableError: as for `read_file`.
    """
    from collbench.readers import combine
    from collbench.readers.beside import beside
    from collbench.readers.sysfs_links import attributes_of_files

    sorts: dict[str, list[Section]] = {}
    if len(parts) > 2 and _SYSFS.search("".join(f"{part.name}=" for part in parts)):
        joined = attributes_of_files(parts)
        parts = parts if joined is None else [joined]
    for section in parts:
        if section.text.strip():
            sorts.setdefault(sort_of(section) or "other", []).append(section)
    if not sorts:
        raise UnreadableError("empty")
    if kind is None:
        kind = combine.kind_of(sorts)
    reading = combine.READINGS[kind](parts, sorts, given)
    reading.signs["beside"] = beside(kind, sorts)
    return reading
