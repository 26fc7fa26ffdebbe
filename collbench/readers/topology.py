"""Matrices of `nvidia-smi topo`: links between GPUs (-m) and peer access (-p2p).

Columns are told apart by tabs where the paste still has them, so that an empty field stays one;
else by two blanks and by position. A matrix that is cut or whose rows do not fit its header is
refused: a shifted column would be worse than none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from collbench.readers import Reading, UnreadableError
from collbench.readers.text import Line, Section, lines_of
from collbench.readers.topo_columns import end_of_word, placed_values

_LINK = re.compile(r"X|SYS|SOC|NODE|PHB|PXB|PSB|PIX|NV\d{1,2}|NVL|NVB|C2C|N/A")
_PEER = re.compile(r"X|OK|CNS|GNS|TNS|NS|DR|U|NI|NA")
_GPU = re.compile(r"GPU\d{1,3}")
_LABEL = re.compile(r"GPU\d{1,3}|(?:NIC|mlx\d_|hfi1_|bnxt_re|irdma|roce|ib|rdma|efa_)\w{1,20}")
_COLUMNS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_COMMAND = re.compile(r"topo\s+(?:-p2p|--p2pstatus)[ =]([rwnap])")
_NIC_NAME = re.compile(r"\s*(NIC\d{1,3})\s*:\s*(\S{1,64})\s*$")


@dataclass(slots=True)
class Matrix:
    """One matrix as it was printed."""

    labels: list[str]
    """Columns of the matrix proper: GPUs and network cards."""
    extra: list[str]
    """Columns behind it."""
    header: int
    """Line of the header."""
    rows: dict[str, tuple[list[str], list[str | None]]] = field(default_factory=dict)
    """Label -> cells and values of the extra columns."""

    @property
    def gpus(self) -> list[str]:
        """GPU columns."""
        return [label for label in self.labels if _GPU.fullmatch(label)]


def topo_m_reading(section: Section) -> Reading:
    """Return the facts of ``nvidia-smi topo -m``.

    Raises:
        UnreadableError: the matrix is cut, or header and rows do not agree.
    """
    lines = list(lines_of(section))
    matrix = read_matrix(lines, _LINK)
    cells = square(matrix)
    facts = {
        "gpus": len(matrix.gpus),
        "matrix": cells,
        "numa": [_number(value) for value in _column(matrix, "NUMA Affinity")]
        if "NUMA Affinity" in matrix.extra
        else None,
        "cpu_affinity": _column(matrix, "CPU Affinity") if "CPU Affinity" in matrix.extra else None,
        "nics": [label for label in matrix.labels if not _GPU.fullmatch(label)],
        "islands": islands(cells),
    }
    names = {m[1]: m[2] for line in lines if (m := _NIC_NAME.match(line.text))}
    if names:
        facts["nic_names"] = names
    return Reading(kind="topo_m", facts=facts, lines={"matrix": matrix.header})


def topo_p2p_reading(section: Section) -> Reading:
    """Return the facts of ``nvidia-smi topo -p2p``.

    Raises:
        UnreadableError: the matrix is cut, or header and rows do not agree.
    """
    lines = list(lines_of(section))
    matrix = read_matrix(lines, _PEER)
    cells = square(matrix, mirrored=False)
    command = _COMMAND.search(section.text)
    count = len(cells)
    facts = {
        "op": command[1] if command else None,
        "gpus": count,
        "matrix": cells,
        "denied_pairs": [
            [i, j]
            for i in range(count)
            for j in range(i + 1, count)
            if (cells[i][j], cells[j][i]) != ("OK", "OK")
        ],
    }
    return Reading(kind="topo_p2p", facts=facts, lines={"matrix": matrix.header})


def read_matrix(lines: list[Line], token: re.Pattern[str]) -> Matrix:
    """Read the first matrix of the lines; `token` is what a cell may hold.

    Raises:
        UnreadableError: as for the readings.
    """
    at = next((i for i, line in enumerate(lines) if _is_header(line.text)), None)
    if at is None:
        raise UnreadableError("truncated: no header line names the GPUs", code="topo.truncated")
    matrix = _header(lines[at])
    strange: Line | None = None
    last = lines[at]
    for line in lines[at + 1 :]:
        text = line.text
        if not text.strip(" \t|-:+"):
            if matrix.rows:
                break
            continue
        label = re.match(r"[\s|]*([\w/]+)", text)
        if re.match(r"\s*(?:NIC )?Legend", text) or _is_header(text):
            break
        if not label or label[1] not in matrix.labels:
            if strange is None and all(gpu in matrix.rows for gpu in matrix.gpus):
                break
            if not text.lstrip().startswith("MIG"):
                strange = line
            continue
        values = _row(text, matrix, lines[at].text)
        if values is None or not all(token.fullmatch(cell) for cell in values[0]):
            words = text.replace("|", " ").split()[1 : 1 + len(matrix.labels)]
            glued = not all(map(token.fullmatch, words if line.whole else words[:-1]))
            many = values is None and len(words) == len(matrix.labels)
            if glued or many or strange or _goes_on(lines, line, matrix):
                raise _disagree(line.number)
            raise _cut(matrix, line.number)
        matrix.rows[label[1]] = values
        last = line
    if strange is not None:
        raise _disagree(strange.number)
    missing = [gpu for gpu in matrix.gpus if gpu not in matrix.rows]
    if missing or _end_missing(matrix, last, lines):
        raise _cut(matrix, last.number)
    return matrix


def _is_header(text: str) -> bool:
    words = text.replace("|", " ").split()
    return bool(words) and words[0] == "GPU0" and (len(words) == 1 or words[1] != "X")


def _goes_on(lines: list[Line], short: Line, matrix: Matrix) -> bool:
    """Return whether what a short row lacks stands in the line below: broken, not cut."""
    below = next((line for line in lines if line > short), None)
    words = below.text.replace("|", " ").split(None, 1) if below else []
    return bool(words) and words[0] not in matrix.labels and _more_rows(lines, short, matrix)


def _more_rows(lines: list[Line], above: Line, matrix: Matrix) -> bool:
    words = (line.text.replace("|", " ").split(None, 1) for line in lines if line > above)
    return any(word and word[0] in matrix.labels for word in words)


def _header(line: Line) -> Matrix:
    found = _fields(line.text)
    names = [name for name in found if name]
    labels = [name for name in names if _LABEL.fullmatch(name)]
    extra = [name for name in names if name in _COLUMNS]
    glued = [name for name in names if name not in labels and name not in extra]
    if glued or len(set(labels)) != len(labels) or names[: len(labels)] != labels:
        raise _disagree(line.number)
    gpus = [name for name in labels if _GPU.fullmatch(name)]
    if gpus != [f"GPU{i}" for i in range(len(gpus))]:
        raise _disagree(line.number)
    return Matrix(labels, extra, line.number)


def _fields(text: str) -> list[str]:
    """Split a header at tabs, at the bars of a Markdown table, or into words and known names."""
    if text.count("|") > 1:
        return [cell.strip() for cell in text.strip().strip("|").split("|")]
    if "\t" in text:
        return [cell.strip() for cell in text.split("\t")]
    return re.findall("|".join((*_COLUMNS, r"\S+")), text)


def _row(text: str, matrix: Matrix, header: str) -> tuple[list[str], list[str | None]] | None:
    """Return cells and extra values of a row, or None where it has too few or too many."""
    width = len(matrix.labels)
    if "\t" in text or text.count("|") > 1:
        fields = _fields(text)
        cells, rest = fields[1 : 1 + width], fields[1 + width :]
        # "NUMA Affinity" is followed by an extra tab in the tool's own output.
        spare = len(rest) - len(matrix.extra)
        values = rest
        if spare > 0 and "GPU NUMA ID" in matrix.extra and not any(rest[-1 - spare : -1]):
            values = [*rest[: len(matrix.extra) - 1], rest[-1]]
        while len(values) > len(matrix.extra) and not values[-1]:
            values = values[:-1]
        if len(cells) < width or len(values) > len(matrix.extra):
            return None
        padded: list[str | None] = [value or None for value in values]
        return cells, padded + [None] * (len(matrix.extra) - len(padded))
    words = text.split()
    if len(words) < 1 + width:
        return None
    starts = [match.start() for match in re.finditer(r"\S+", text)]
    rest_at = starts[1 + width] if len(starts) > 1 + width else len(text)
    tail = [(rest_at + m.start(), m[0]) for m in re.finditer(r"\S+", text[rest_at:])]
    if len(tail) > len(matrix.extra):
        return None
    placed = placed_values(tail, matrix.extra, header, end_of_word(text, starts[width]))
    return None if placed is None else (words[1 : 1 + width], placed)


def _end_missing(matrix: Matrix, last: Line, lines: list[Line]) -> bool:
    """Return whether the paste stops before the end of its last row."""
    if not matrix.extra or lines[-1] is not last or last.whole:
        return False
    rows = [matrix.rows[gpu][1] for gpu in matrix.gpus]
    return any(
        rows[-1][i] is None and all(row[i] is not None for row in rows[:-1])
        for i in range(len(matrix.extra))
    )


def square(matrix: Matrix, *, mirrored: bool = True) -> list[list[str]]:
    """Return the GPU part of a matrix.

    Args:
        matrix: A whole matrix.
        mirrored: Whether both directions of a pair must say the same: a path is one, but a peer
            grant may be given in one direction alone.

    Raises:
        UnreadableError: no X on its diagonal, or not symmetric.
    """
    columns = [i for i, label in enumerate(matrix.labels) if _GPU.fullmatch(label)]
    cells = [[matrix.rows[gpu][0][i] for i in columns] for gpu in matrix.gpus]
    for i, row in enumerate(cells):
        twisted = mirrored and any(row[j] != cells[j][i] for j in range(len(cells)))
        if row[i] != "X" or twisted or row.count("X") != 1:
            raise _disagree(matrix.header)
    return cells


def islands(cells: list[list[str]]) -> list[list[int]]:
    """Return the groups of GPUs that reach each other without crossing sockets.

    >>> islands([["X", "PIX", "SYS"], ["PIX", "X", "SYS"], ["SYS", "SYS", "X"]])
    [[0, 1], [2]]
    """
    left = set(range(len(cells)))
    found: list[list[int]] = []
    while left:
        group, new = set(), {min(left)}
        while new:
            group |= new
            new = {
                j for i in new for j in left if j not in group and cells[i][j] not in ("SYS", "SOC")
            }
        left -= group
        found.append(sorted(group))
    return found


def _column(matrix: Matrix, name: str) -> list[str | None]:
    at = matrix.extra.index(name)
    values = [matrix.rows[gpu][1][at] for gpu in matrix.gpus]
    return [None if value in (None, "N/A") else value for value in values]


def _number(value: str | None) -> int | str | None:
    return int(value) if value is not None and value.isdigit() else value


def _disagree(line: int) -> UnreadableError:
    return UnreadableError(
        "unparseable: columns of header and rows do not match", code="topo.unparseable", line=line
    )


def _cut(matrix: Matrix, line: int) -> UnreadableError:
    whole = sum(gpu in matrix.rows for gpu in matrix.gpus)
    return UnreadableError(
        f"truncated: header names {len(matrix.gpus)} GPUs, {whole} complete rows",
        code="topo.truncated",
        line=line,
    )
