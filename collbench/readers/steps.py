"""Step timings of a server, in any of their encodings, as one model.

One JSON object, JSON lines (the first object may hold what belongs to the whole file), or CSV
with ``,`` or ``;`` and comment lines. Columns and runs come in any order. A name carries its
unit: ``verify_ms``, ``verify_us``. Runs are called before and after, or old and new.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from collbench.readers import UnreadableError
from collbench.readers.text import Section, csv_fields

LABELS = {
    "before": "before",
    "old": "before",
    "baseline": "before",
    "base": "before",
    "after": "after",
    "new": "after",
    "current": "after",
    "now": "after",
}
UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
"""Unit of a name -> milliseconds."""
TIMED = re.compile(r"(.+)_(ns|us|ms|s)")
_SIZED = re.compile(r"(?:message_|allreduce_)?(bytes|kib|mib)")
_STEP = frozenset(("verify", "verify_step", "verify_time", "step", "step_time"))
_ACCEPT = frozenset(("accept_len", "accept_length", "acceptance_len", "mean_accept_len"))
_TOKENS = frozenset(("tok_s", "tok_per_s", "tokens_per_s", "tokens_s", "tps"))
_RUN = ("run", "label", "phase")
_REMARK = re.compile(r"#+\s*([A-Za-z][\w.]{0,40})\s*[:=]\s*(.+?)\s*$")
_PAIR = re.compile(r"(\w+)=(\[[^\]]*\]|\S+?)[,;]?(?=\s|$)")
MAX_SAMPLES = 1_000_000


@dataclass(slots=True)
class Run:
    """One run: its samples, repeats pooled, and what is known of it."""

    label: str
    verify_ms: list[float] = field(default_factory=list)
    accept_len: list[float] = field(default_factory=list)
    tok_s: list[float] = field(default_factory=list)
    repeats: list[list[float]] = field(default_factory=list)
    """Step times of each repeat, where the file tells repeats apart."""
    rows: dict[str, int] = field(default_factory=dict)
    """Name of a repeat -> its place in `repeats`, in files of one step a row."""
    known: dict[str, Any] = field(default_factory=dict)
    """batch, draft_tokens, graph, count, bytes, latency_us, table_us, protocol, protocols, ..."""


@dataclass(slots=True)
class StepFile:
    """A file of timings: its runs by label, and what belongs to all of them."""

    runs: dict[str, Run] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)

    def run(self, label: str) -> Run:
        """Return the run of a label, made if need be."""
        return self.runs.setdefault(label, Run(label))

    def get(self, label: str, name: str) -> Any:
        """Return what is known of a run, else of the whole file, else None."""
        found = self.runs[label].known.get(name) if label in self.runs else None
        return self.known.get(name) if found is None else found


def parse_steps(section: Section) -> StepFile:
    """Read a file of step timings.

    Raises:
        UnreadableError: it is cut, no JSON or CSV, or holds no step time at all.
    """
    text = section.text.lstrip("\ufeff").strip()
    found = StepFile()
    if text.startswith(("{", "[")):
        for item in _objects(text):
            _object(found, item)
    else:
        _csv(found, section)
    if not any(run.verify_ms or run.tok_s for run in found.runs.values()):
        raise UnreadableError("no step times: a column or field such as verify_ms is needed")
    return found


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a JSON document or of JSON lines."""
    try:
        whole = json.loads(text)
    except RecursionError as error:
        raise UnreadableError("JSON: nested too deeply") from error
    except ValueError as error:
        yield from _json_lines(text, error)
        return
    for item in whole if isinstance(whole, list) else [whole]:
        if not isinstance(item, Mapping):
            raise UnreadableError("JSON: holds something else than objects")
        yield item


def _json_lines(text: str, error: ValueError) -> Iterator[Mapping[str, Any]]:
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    if len(lines) < 2 or not lines[0].rstrip().endswith("}"):
        raise UnreadableError(f"JSON: {str(error)[:80]}") from error
    for number, line in enumerate(lines, 1):
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as bad:
            raise UnreadableError(f"JSON lines: object {number} is cut or damaged") from bad
        if not isinstance(item, Mapping):
            raise UnreadableError(f"JSON lines: line {number} is no object")
        yield item


def _object(found: StepFile, item: Mapping[str, Any]) -> None:
    label = _label(item)
    runs = item.get("runs")
    if isinstance(runs, list):
        for run in runs:
            if isinstance(run, Mapping):
                _object(found, run)
    named = runs if isinstance(runs, Mapping) else item
    for key, value in named.items():
        if str(key).lower() in LABELS and isinstance(value, Mapping):
            _object(found, {"label": key, **value})
    if label is not None:
        _samples(found.run(label), item)
    elif runs is None and _has_samples(item):
        # A file of one run without a name: `diagnose` names it by its place.
        _samples(found.run(""), item)
    target = found.known if label is None else found.run(label).known
    for key, value in item.items():
        if key != "runs" and str(key).lower() not in LABELS:
            absorb(target, str(key), value)


def _label(item: Mapping[str, Any]) -> str | None:
    for key in _RUN:
        value = item.get(key)
        if isinstance(value, str) and value.strip().lower() in LABELS:
            return LABELS[value.strip().lower()]
    return None


def _has_samples(item: Mapping[str, Any]) -> bool:
    return any(_sample_kind(str(key)) for key in item)


def _sample_kind(key: str) -> tuple[str, float] | None:
    """Return (list of the run, factor) for the name of a sampled quantity."""
    name = key.strip().lower().replace(".", "_")
    if name in _ACCEPT:
        return "accept_len", 1.0
    if name in _TOKENS:
        return "tok_s", 1.0
    timed = TIMED.fullmatch(name)
    if timed and timed[1] in _STEP:
        return "verify_ms", UNITS[timed[2]]
    return None


def _samples(run: Run, item: Mapping[str, Any]) -> None:
    steps = item.get("steps")
    for step in steps if isinstance(steps, list) else ():
        if isinstance(step, Mapping):
            _samples(run, step)
    for key, value in item.items():
        kind = _sample_kind(str(key))
        if kind is None:
            continue
        values = numbers(value if isinstance(value, list) else [value], kind[1])
        if values and min(values) <= 0:
            raise UnreadableError(f"{key!s:.40}: {min(values):g} cannot have been measured")
        held = getattr(run, kind[0])
        if len(held) + len(values) > MAX_SAMPLES:
            raise UnreadableError(f"more than {MAX_SAMPLES} samples")
        held += values
        if kind[0] == "verify_ms" and len(values) > 1:
            run.repeats.append(values)
        elif kind[0] == "verify_ms" and item.get("repeat") not in (None, ""):
            # One step a row: the rows of a repeat belong together.
            at = run.rows.setdefault(str(item["repeat"]), len(run.repeats))
            if at == len(run.repeats):
                run.repeats.append([])
            run.repeats[at] += values


def numbers(values: Iterable[Any], factor: float = 1.0) -> list[float]:
    """Return the finite numbers of a list, times `factor`; empty fields are left out."""
    found = []
    for value in values:
        if isinstance(value, bool) or value is None:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(number):
            # 15 digits: 20570.0 us is 20.57 ms, not 20.570000000000004.
            found.append(float(f"{number * factor:.15g}"))
    return found


def absorb(known: dict[str, Any], key: str, value: Any) -> None:
    """Keep one field that describes a run or the whole file; unknown names are left out."""
    name = key.strip().lower().replace(".", "_")
    if isinstance(value, Mapping) and name in ("allreduce", "all_reduce"):
        for inner, item in value.items():
            absorb(known, f"allreduce_{inner}", item)
        return
    timed = TIMED.fullmatch(name)
    sized = _SIZED.fullmatch(name)
    if name in ("allreduce_count", "count"):
        _number(known, "count", value)
    elif sized:
        scale = {"bytes": 1, "kib": 1 << 10, "mib": 1 << 20}[sized[1]]
        _number(known, "bytes", value, scale)
    elif timed and timed[1] in ("allreduce_idle", "idle", "allreduce"):
        if isinstance(value, Mapping):
            known["table_us"] = _table(value, UNITS[timed[2]] * 1e3)
        else:
            _number(known, "latency_us", value, UNITS[timed[2]] * 1e3)
    elif timed and timed[1] in ("rank_wait", "rank_transfer") and isinstance(value, list):
        known[f"{timed[1]}_ms"] = numbers(value, UNITS[timed[2]])
    elif name in ("gpu_numa", "cpu_numa") and isinstance(value, list):
        known[name] = value
    elif name in ("protocol", "allreduce_protocol"):
        if isinstance(value, Mapping):
            known["protocols"] = {int(k): str(v) for k, v in value.items() if str(k).isdigit()}
        elif isinstance(value, str):
            known["protocol"] = value.strip().lower()
    elif name == "graph":
        truth = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        known[name] = truth.get(str(value).strip().lower(), known.get(name))
    elif name in ("batch", "draft_tokens", "largest_graph_batch", "tp"):
        _number(known, name, value)
    elif name == "claimed" and isinstance(value, Mapping):
        known[name] = value
    elif name.startswith("claimed_") and value not in (None, ""):
        known["claimed"] = {**known.get("claimed", {}), name[8:]: value}


def _number(known: dict[str, Any], name: str, value: Any, factor: float = 1.0) -> None:
    found = numbers([value], factor)
    if found:
        known[name] = int(found[0]) if found[0].is_integer() else found[0]


def _table(value: Mapping[Any, Any], factor: float) -> dict[int, float]:
    pairs = ((str(size), numbers([latency], factor)) for size, latency in value.items())
    return {int(size): found[0] for size, found in pairs if size.isdigit() and found}


def _csv(found: StepFile, section: Section) -> None:
    rows = []
    for line in section.text.lstrip("\ufeff").split("\n"):
        text = line.rstrip("\r")
        if text.lstrip().startswith("#"):
            if remark := _REMARK.match(text.strip()):
                _remark(found, remark[1], remark[2])
        elif text.strip():
            rows.append(text)
    if not rows:
        raise UnreadableError("no header line")
    separator = ";" if rows[0].count(";") > rows[0].count(",") else ","
    header = [name.strip().strip('"') for name in csv_fields(rows[0], separator)]
    run_at = next((i for i, name in enumerate(header) if name.lower() in _RUN), None)
    for number, cells in enumerate(csv_fields(row, separator) for row in rows[1:]):
        if len(cells) != len(header):
            raise UnreadableError(f"CSV: row {number + 1} has {len(cells)} of {len(header)} fields")
        label = "" if run_at is None else LABELS.get(cells[run_at].strip().lower(), "")
        if run_at is not None and not label:
            continue
        decimals = (c.strip().replace(",", ".") if separator == ";" else c.strip() for c in cells)
        item = dict(zip(header, decimals, strict=True))
        run = found.run(label)
        _samples(run, item)
        for key, value in item.items():
            absorb(run.known, key, value)


def _remark(found: StepFile, key: str, text: str) -> None:
    """Keep ``# key: value`` of a CSV, or ``# before: key=value key=value`` of one run or note."""
    label = LABELS.get(key.lower())
    part = "claimed_" if key.lower() == "claimed" and "{" not in text else ""
    known = found.run(label).known if label else found.known
    for name, value in _PAIR.findall(text) if label or part else [(key, text)]:
        try:
            absorb(known, part + name, json.loads(value))
        except (ValueError, RecursionError):
            absorb(known, part + name, value)
