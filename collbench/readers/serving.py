"""What servers themselves say of their speed, and what each of it can and cannot tell.

SGLang's decode lines, the JSON of vLLM's and SGLang's serving benchmarks, saved ``/metrics``
pages, and traces of torch's profiler.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from collbench.readers import Reading, UnreadableError
from collbench.readers.text import Section, lines_of

_DECODE = re.compile(r"Decode batch[.,]")
_PAIR = re.compile(r"(#?[a-z][\w ()/-]{1,40}): ([\w.]{1,24})")
_METRIC = re.compile(
    r"((?:vllm|sglang)[:_]\w{1,80})(?:\{[^}]{0,2000}\})? ([-+0-9.eE]{1,32}|NaN|[+-]Inf)$"
)
_NCCL_KERNEL = re.compile(r"nccl(?:Dev)?Kernel_([A-Za-z]+)|ncclKernel_([A-Za-z]+)")
MAX_EVENTS = 2_000_000


@dataclass(slots=True)
class Speed:
    """Speed of one run as its server gives it."""

    source: str
    n: int = 0
    step_ms: float | None = None
    derived: bool = False
    """Whether the step time was computed from throughput and acceptance."""
    accept_len: float | None = None
    tok_s: float | None = None
    graph_share: float | None = None
    """Share of the steps that replayed a captured graph."""
    comm_ms: float | None = None
    """Time in kernels of NCCL per step, waiting included."""
    tells: list[str] = field(default_factory=list)
    cannot_tell: list[str] = field(default_factory=list)
    steps_ms: list[float] = field(default_factory=list)
    """Single samples, where there are some."""
    accepts: list[float] = field(default_factory=list)
    """Accept lengths of the same samples."""


def looks_served(text: str) -> bool:
    """Return whether a text is one of these."""
    head = text[:65536]
    return bool(
        (_DECODE.search(text) and "throughput" in text)
        or re.search(r"^(?:# (?:HELP|TYPE) )?(?:vllm|sglang)[:_]\w+", head, re.MULTILINE)
        or '"traceEvents"' in head
        or re.search(r'"(?:median|mean)_(?:itl|tpot)_ms"', text)
    )


def serving_reading(section: Section) -> Reading:
    """Return the speed that a server's own output shows.

    Raises:
        UnreadableError: it is cut, or holds no speed.
    """
    speed = read_speed(section)
    facts = {
        "source": speed.source,
        "n": speed.n,
        "step_ms": _rounded(speed.step_ms),
        "step_derived": speed.derived,
        "accept_len": _rounded(speed.accept_len),
        "tok_s": _rounded(speed.tok_s),
        "graph_share": _rounded(speed.graph_share),
        "comm_ms": _rounded(speed.comm_ms),
        "tells": speed.tells,
        "cannot_tell": speed.cannot_tell,
    }
    return Reading(kind="serving", facts=facts, signs={"speed": speed})


def read_speed(section: Section) -> Speed:
    """Read one run's speed.

    Raises:
        UnreadableError: as for `serving_reading`.
    """
    text = section.text.lstrip("\ufeff \t\r\n")
    if text.startswith("{") or '"traceEvents"' in text[:4096] or text.startswith("[{"):
        return _json(text)
    return _decode_lines(section) if _DECODE.search(text) else _metrics(section)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _decode_lines(section: Section) -> Speed:
    steps, accepts, rates, graphs = [], [], [], []
    for line in lines_of(section):
        if not _DECODE.search(line.text) or not line.whole:
            continue
        said = {key.strip("# "): value for key, value in _PAIR.findall(line.text)}
        rate = _number(said.get("gen throughput (token/s)"))
        running = _number(said.get("running-req"))
        accept = _number(said.get("accept len"))
        if not rate or not running:
            continue
        rates.append(rate)
        if accept is not None:
            accepts.append(accept)
        steps.append(1000 * running * (accept or 1.0) / rate)
        if "cuda graph" in said:
            graphs.append(said["cuda graph"] == "True")
    if not rates:
        raise UnreadableError("decode lines without a throughput")
    return Speed(
        "sglang decode log",
        len(rates),
        median(steps),
        True,
        median(accepts) if accepts else None,
        median(rates),
        sum(graphs) / len(graphs) if graphs else None,
        tells=[
            "throughput",
            *(["acceptance"] if accepts else []),
            *(["captured or not"] if graphs else []),
            "step time, from the throughput"
            + (" and acceptance" if accepts else "")
            + ", averaged",
        ],
        cannot_tell=["single steps", "communication", "which rank is late"],
        steps_ms=steps,
        accepts=accepts,
    )


def _json(text: str) -> Speed:
    try:
        plain: Any = json.loads(text)
    except RecursionError as error:
        raise UnreadableError("JSON: nested too deeply") from error
    except ValueError as error:
        # SGLang appends one object per run to its output file; the last one counts.
        lines = [line for line in text.split("\n") if line.strip()]
        try:
            plain = json.loads(lines[-1]) if len(lines) > 1 else None
        except (ValueError, RecursionError):
            plain = None
        if not isinstance(plain, Mapping):
            raise UnreadableError(f"JSON: {str(error)[:80]}") from error
    if isinstance(plain, Mapping) and isinstance(plain.get("traceEvents"), list):
        return _trace(plain["traceEvents"])
    if isinstance(plain, list) and plain and isinstance(plain[-1], Mapping):
        plain = plain[-1]
    if not isinstance(plain, Mapping):
        raise UnreadableError("JSON: no object")
    return _benchmark(plain)


def _benchmark(plain: Mapping[str, Any]) -> Speed:
    itl = _number(plain.get("median_itl_ms"))
    tpot = _number(plain.get("median_tpot_ms"))
    accept = _number(plain.get("accept_length"))
    if accept is None:
        accept = _number(plain.get("spec_decode_acceptance_length"))
    rate = _number(plain.get("output_throughput"))
    if itl is None and tpot is None and rate is None:
        raise UnreadableError("serving benchmark without median_itl_ms or output_throughput")
    singles = plain.get("itls")
    samples: list[float] = []
    for request in singles if isinstance(singles, list) else ():
        for value in request if isinstance(request, list) else ():
            number = _number(value)
            if number is not None and len(samples) < MAX_EVENTS:
                samples.append(number * 1000)
    completed = _number(plain.get("completed"))
    return Speed(
        "bench_serving",
        len(samples) or int(completed or 0),
        itl if itl is not None else (tpot * accept if tpot and accept else tpot),
        itl is None,
        accept,
        rate,
        tells=["time between chunks (one step each, while no prefill cuts in)", "throughput"]
        + (["acceptance"] if accept is not None else []),
        cannot_tell=["communication", "captured or not", "which rank is late"]
        + (["acceptance: a throughput alone mixes it with time"] if accept is None else []),
        steps_ms=samples,
    )


def _metrics(section: Section) -> Speed:
    found: dict[str, float] = {}
    for line in lines_of(section):
        match = _METRIC.match(line.text.strip())
        number = _number(match[2]) if match else None
        if match and number is not None:
            name = match[1].replace("_", ":", 1) if ":" not in match[1] else match[1]
            found[name] = found.get(name, 0.0) + number
    if not found:
        raise UnreadableError("no metric of vLLM or SGLang in it")

    def mean(*names: str) -> tuple[float, int] | None:
        for name in names:
            for server in ("vllm", "sglang"):
                total = found.get(f"{server}:{name}_sum")
                count = found.get(f"{server}:{name}_count")
                if total is not None and count:
                    return 1000 * total / count, int(count)
        return None

    between = mean("inter_token_latency_seconds", "time_per_output_token_seconds",
                   "request_time_per_output_token_seconds")  # fmt: skip
    drafts = found.get("vllm:spec_decode_num_drafts_total")
    accepted = found.get("vllm:spec_decode_num_accepted_tokens_total")
    accept = found.get("sglang:spec_accept_length")
    if accept is None and drafts and accepted is not None:
        accept = 1 + accepted / drafts
    if between is None and "sglang:gen_throughput" not in found:
        raise UnreadableError("metrics without a time per token or a throughput")
    return Speed(
        "metrics page",
        between[1] if between else 0,
        between[0] if between else None,
        False,
        accept or None,
        found.get("sglang:gen_throughput"),
        tells=["mean time per token since the start of the server" if between else "throughput"]
        + (["acceptance"] if accept else []),
        cannot_tell=["single steps, and the last minutes alone", "communication",
                     "which rank is late"],
    )  # fmt: skip


def _trace(events: list[Any]) -> Speed:
    """Return step and communication time of a profiler trace of one rank."""
    steps: list[float] = []
    comm = 0.0
    kernels = launches = 0
    for event in events[:MAX_EVENTS]:
        if not isinstance(event, Mapping) or event.get("ph") != "X":
            continue
        name = event.get("name")
        duration = _number(event.get("dur"))
        if not isinstance(name, str) or duration is None:
            continue
        if name.startswith("ProfilerStep#") and event.get("cat") != "gpu_user_annotation":
            steps.append(duration / 1000)
        elif event.get("cat") == "kernel" and _NCCL_KERNEL.match(name):
            comm += duration / 1000
            kernels += 1
        elif name == "cudaGraphLaunch":
            launches += 1
    if not steps and not kernels:
        raise UnreadableError("trace without steps and without kernels of NCCL")
    count = len(steps) or launches or 1
    return Speed(
        "torch profiler trace",
        len(steps),
        median(steps) if steps else None,
        False,
        graph_share=min(1.0, launches / count) if steps else None,
        comm_ms=comm / count if kernels else None,
        tells=["step time under the profiler", "time in NCCL's kernels, waiting included"],
        cannot_tell=["algorithm and protocol: kernel names do not show them",
                     "wait or transfer, from one rank alone", "acceptance"],
        steps_ms=steps,
    )  # fmt: skip
