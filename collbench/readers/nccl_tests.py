"""Tables of nccl-tests, in every layout that has size and count columns.

The layout is decided by the header, never by the number of columns of a row. NCCL's own log
lines between the rows are read as a log.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collbench.readers import Reading, UnreadableError
from collbench.readers.nccl_log import NcclLog
from collbench.readers.nccl_ranks import find_ranks, log_reading
from collbench.readers.text import Line, Section, lines_of

HEADER = re.compile(r"#?\s+size\s+count\s+type\b")
FIRST_GENERATION = re.compile(r"#?\s*N\s+type\s+(?:op|root)\s+time\s+algbw\s+busbw")
_GRAPH = re.compile(r"#.* graph: (\d+)")
_LIBRARY = re.compile(r"# nccl-tests version .*nccl-library=(\d{3,6})")
_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d+)")
_FOOTER = re.compile(r"#\s*(?:Out of bounds values|Avg bus bandwidth)")
_PROGRAM = re.compile(r"# Collective test starting: (\w+?)_perf|\b(\w+)_perf\b")
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w+\s")
_CUT_ROW = re.compile(r"\s*\d+(?:\s+\d+(?:\s+[a-z]\w*)?)?\s*$")
_STAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
_WRAPPED_HEADER = re.compile(r"(.{1,80}?)#\s+size\s+count\s+type\b")
_TEXT = ("type", "redop")
_WHOLE = ("size", "count", "root")


@dataclass(slots=True)
class Table:
    """One table: its columns, and the rows that are complete."""

    columns: list[str]
    header: int
    end: int
    """Column of the text at which a complete row ends."""
    rows: list[list[Any]] = field(default_factory=list)
    dropped: int = 0
    last_dropped: int | None = None
    """Line of an incomplete row after which no complete one came."""
    wrong_line: int | None = None


def nccl_tests_reading(section: Section) -> Reading:
    """Return the facts of a table.

    Raises:
        UnreadableError: it has no header, or one of an unknown layout.
    """
    lines = _unwrapped(list(lines_of(section)))
    log = NcclLog()
    tables: list[Table] = []
    said: dict[str, Any] = {}
    lined: dict[str, int] = {}
    for line in lines:
        log.feed(line.number, line.text.encode(), line.whole)
        if HEADER.match(line.text):
            tables.append(_header(line))
        elif line.text.startswith("#"):
            _comment(line, said, lined)
            if tables and _FOOTER.match(line.text):
                tables[-1].end = -1
        elif tables and tables[-1].end >= 0:
            _row(line, tables[-1])
    if not tables:
        raise _no_header(lines)
    table = _merged(tables)
    layout = _layout(table.columns)
    facts: dict[str, Any] = {
        "layout": layout,
        "nccl_version": _version(log, said),
        "nranks": _nranks(log, table, said),
        "graph": said.get("graph"),
        "columns": table.columns,
        "rows": table.rows,
        "dropped_rows": table.dropped,
        "out_of_bounds": said.get("out_of_bounds"),
    }
    facts |= _log_facts(log)
    lined["header"] = table.header
    for name, at in (("cut", table.last_dropped), ("wrong", table.wrong_line)):
        if at is not None:
            lined[name] = at
    signs = {"log": log, "ranks": find_ranks(log), "device_names": log.device_names}
    return Reading(kind="nccl_tests", facts=facts, signs=signs, lines=lined)


def _unwrapped(lines: list[Line]) -> list[Line]:
    """Return the lines without what a launcher, a logger or a paste put in front of each.

    What stands in front of the header is taken for the shape of it: numbers may differ from line
    to line (time stamps, labels of ranks), everything else is the same.
    """
    wrapped = next((m for line in lines if (m := _WRAPPED_HEADER.match(line.text))), None)
    if wrapped is None:
        return lines
    front, shape = wrapped[1], []
    for part in re.split(r"(\d+| +)", front):
        shape.append(r"\d+" if part.isdigit() else " *" if part.isspace() else re.escape(part))
    if front.isspace():
        shape = [rf"\s{{0,{len(front)}}}"]
    elif front.endswith(" "):
        # The blanks of the table itself begin behind the last one.
        shape = [*shape[:-2], " "]
    prefix = re.compile("".join(shape))
    return [line._replace(text=prefix.sub("", line.text, count=1)) for line in lines]


def _header(line: Line) -> Table:
    """Return an empty table with the columns that the header names."""
    columns: list[str] = []
    side = ""
    for word in line.text.lstrip("#").split():
        name = word.strip("#%")
        if name in ("time", "cputime"):
            side = "ip_" if side else "oop_"
        if name != "timestamp":
            columns.append(side + name)
    plain = {name.replace("cpu", "").replace("error", "wrong") for name in columns}
    sides = ("oop", "ip") if side == "ip_" else ("oop",)
    # A header that was cut names too few columns for its rows.
    wanted = {f"{one}_{name}" for one in sides for name in ("time", "algbw", "busbw", "wrong")}
    if len(set(columns)) != len(columns) or not wanted <= plain:
        raise UnreadableError(
            "unknown layout: columns of the header do not pair up",
            code="bench.unparseable_layout",
            line=line.number,
        )
    return Table(columns, line.number, len(line.text.rstrip()))


def _comment(line: Line, said: dict[str, Any], lined: dict[str, int]) -> None:
    if match := _GRAPH.match(line.text):
        said.setdefault("graph", int(match[1]))
    if match := _LIBRARY.match(line.text):
        code = int(match[1])
        major, minor = (
            (code // 10000, code // 100 % 100)
            if code >= 10000
            else (
                code // 1000,
                code // 100 % 10,
            )
        )
        said.setdefault("library", f"{major}.{minor}.{code % 100}")
    if match := _BOUNDS.match(line.text):
        said["out_of_bounds"] = said.get("out_of_bounds", 0) + int(match[1])
        lined.setdefault("out_of_bounds", line.number)
    if match := _PROGRAM.search(line.text):
        said.setdefault("program", match[1] or match[2])


def _row(line: Line, table: Table) -> None:
    text = _STAMP.sub("", line.text.rstrip())
    if not _ROW.match(text + " "):
        if _CUT_ROW.match(text) and text.strip():
            table.dropped += 1
            table.last_dropped = line.number
        return
    words = text.split()
    values = [_value(name, word) for name, word in zip(table.columns, words, strict=False)]
    # Without its line end the last field of a row may lack digits: it must reach the header's end.
    reaches = line.whole or len(text) >= table.end
    if len(words) != len(table.columns) or not reaches or ... in values:
        table.dropped += 1
        table.last_dropped = line.number
        return
    table.last_dropped = None
    table.rows.append(values)
    counts = [v for n, v in zip(table.columns, values, strict=True) if n.endswith("_wrong")]
    if table.wrong_line is None and any(counts):
        table.wrong_line = line.number


def _value(name: str, word: str) -> Any:
    """Return a field as number, text or None (N/A); Ellipsis where it is none of these."""
    if name in _TEXT:
        return word
    if word in ("N/A", "n/a", "-"):
        return None
    try:
        number = float(word)
    except ValueError:
        return ...
    if not math.isfinite(number):
        return None
    whole = name in _WHOLE or (name.endswith("_wrong") and number.is_integer())
    return int(number) if whole else number


def _layout(columns: list[str]) -> str:
    if any(name.startswith(("oop_i_", "ip_i_")) for name in columns):
        return "per_iter"
    return "error" if "oop_error" in columns else "wrong"


def _merged(tables: list[Table]) -> Table:
    """Return the rows of several runs of one layout as one table."""
    first = tables[0]
    for other in tables[1:]:
        if other.columns != first.columns:
            raise UnreadableError(
                "unknown layout: two tables with different columns",
                code="bench.unparseable_layout",
                line=other.header,
            )
        first.rows += other.rows
        first.dropped += other.dropped
        first.last_dropped = other.last_dropped or first.last_dropped
        first.wrong_line = first.wrong_line or other.wrong_line
    return first


def _no_header(lines: list[Line]) -> UnreadableError:
    old = next((line for line in lines if FIRST_GENERATION.match(line.text)), None)
    reason = "unknown layout: no size and count columns" if old else "no header line names columns"
    line = old.number if old else lines[0].number
    return UnreadableError(reason, code="bench.unparseable_layout", line=line)


def _version(log: NcclLog, said: Mapping[str, Any]) -> str | None:
    if len(log.versions) == 1:
        return next(iter(log.versions))
    library = said.get("library")
    return str(library) if library and not log.versions else None


def _nranks(log: NcclLog, table: Table, said: Mapping[str, Any]) -> int | None:
    """Return the ranks: from the device list, the log, or the ratio of busbw to algbw."""
    ranks = find_ranks(log)
    if ranks.nranks:
        return ranks.nranks
    program = said.get("program")
    if program not in (None, "all_reduce"):
        return None
    pair = ("oop_algbw", "oop_busbw")
    if not set(pair) <= set(table.columns):
        return None
    at = [table.columns.index(name) for name in pair]
    best = max((row for row in table.rows if row[at[0]]), key=lambda row: row[at[0]], default=None)
    if best is None or best[at[0]] < 1 or not best[at[1]]:
        return None
    ratio = best[at[1]] / best[at[0]]
    if ratio < (0.99 if program else 1.01) or ratio >= 1.99:
        return None
    nranks = round(2 / (2 - ratio))
    return nranks if abs(2 * (nranks - 1) / nranks - ratio) < 0.01 else None


def _log_facts(log: NcclLog) -> dict[str, Any]:
    """Return the keys of a log where its lines say more than a stray remark."""
    found = log_reading(log).facts
    printed = found["env"] and all(found["env"].values())
    if not (found["transports"] or found["choices"] or log.inits or printed):
        return {}
    keys = {key: found[key] for key in ("env", "transports", "choices") if found[key]}
    if log.inits:
        keys |= {key: found[key] for key in ("ranks_started", "ranks_complete")}
    other = set(found) - {
        "nccl_version", "cuda", "nranks", "env", "transports", "choices", "ranks_started",
        "ranks_complete",
    }  # fmt: skip
    return keys | {key: found[key] for key in sorted(other) if found[key] != []}
