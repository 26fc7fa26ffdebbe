"""From the command line of `bench` to a job; every wrong value is named before anything starts."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from collbench.backends import SUPPORTED_DTYPES
from collbench.collectives import collective, itemsize
from collbench.errors import CollbenchError
from collbench.job import Case, Job, Mode, Plan, Skew, Step
from collbench.units import parse_size, parse_sizes

MODES = ("step", "graph", "eager", "entry")
_DEFAULT_WORKLOAD = "verify-61x7168"
_DEFAULT_SIZES = "1K,4K,16K,64K,256K,1M"
_CPU = ("mpi", "gloo")
_PLURAL = ("collectives", "modes", "dtypes")
"""Fields whose option is named in the singular."""
_START_S = 60.0
_CASE_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the user asked `bench` for, as typed."""

    backend: str = "auto"
    workload: str | None = None
    collectives: str | None = None
    sizes: str | None = None
    modes: str | None = None
    dtypes: str | None = None
    batch: int | None = None
    draft_tokens: int | None = None
    server: str | None = None
    pairs: bool = False
    env: str | None = None
    launches: int = 1
    pool: str | None = None
    chain: int | None = None
    replays: int | None = None
    nccl_lib: str | None = None
    skew: str | None = None
    proof: bool = True
    out: str | None = None
    force: bool = False
    as_json: bool = False
    json_file: str | None = None
    csv_file: str | None = None
    times_file: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A valid request: the job of each launch, and where it came from."""

    job: Job
    launches: int
    workload: str | None = None
    notes: tuple[str, ...] = ()
    """What was assumed; to be printed."""
    pinned: dict[str, str] = field(default_factory=dict)
    proof: bool = False


def ask(request: Request, *, backend: str, nranks: int) -> Asked:
    """Return the job that a request means on this backend and number of ranks.

    Raises:
        CollbenchError: a value is wrong, or does not go with another; it is named.
    """
    for one in fields(request):
        if getattr(request, one.name) == "":
            option = one.name.removesuffix("s") if one.name in _PLURAL else one.name
            raise CollbenchError(
                f"--{option.replace('_', '-')}: empty", fix="give a value, or leave it out"
            )
    modes = _modes(request, backend)
    dtypes = _dtypes(request, backend)
    step, workload, notes, workload_cases = _workload(request, backend, nranks, modes, dtypes)
    cases = _cases(request, modes, dtypes, nranks, workload_cases)
    if request.pairs and not (request.sizes or request.workload or request.modes):
        step, cases = None, ()
    elif not cases and step is None:
        raise CollbenchError(
            "nothing to time", fix="give --sizes, --workload or --pairs, or another --mode"
        )
    settings = _settings(request.env)
    job = Job(
        job_id="bench",
        backend=backend,
        nranks=nranks,
        settings=settings,
        cases=cases,
        step=step,
        plan=_plan(request, cases),
        nccl_lib=_library(request, backend),
        skew=_skew(request.skew, nranks, step),
        pairs=request.pairs,
        deadline_s=_START_S
        + _CASE_S * _length(request) * (len(cases) + (3 if step else 0))
        + (nranks * nranks if request.pairs else 0),
    )
    return Asked(
        job=job,
        launches=request.launches,
        workload=workload,
        notes=notes,
        pinned=_pinned(settings),
        proof=request.proof and backend == "nccl" and bool(cases or step),
    )


def _length(request: Request) -> float:
    """Return how often the time of a usual case one may take: a long one must not pass for hung."""
    return max(1.0, (request.replays or 0) / 200) * max(1.0, (request.chain or 0) / 1000)


def _modes(request: Request, backend: str) -> tuple[str, ...]:
    if request.modes is None:
        return ("step", "eager" if backend in _CPU else "graph")
    modes = tuple(dict.fromkeys(part.strip() for part in request.modes.split(",")))
    for mode in modes:
        if mode not in MODES:
            raise CollbenchError(f"--mode: {mode!r} is not one of {', '.join(MODES)}")
        if mode == "graph" and backend in _CPU:
            raise CollbenchError(
                f"--mode graph: {backend} runs on CPUs, which have no CUDA graphs",
                fix="use --mode eager, which times calls back to back",
            )
    return modes


def _dtypes(request: Request, backend: str) -> tuple[str, ...]:
    if request.dtypes is None:
        return ("float32",) if backend in _CPU else ("bfloat16",)
    dtypes = tuple(dict.fromkeys(part.strip() for part in request.dtypes.split(",")))
    known = SUPPORTED_DTYPES.get(backend)
    for dtype in dtypes:
        itemsize(dtype, where="--dtype")
        if known is not None and dtype not in known:
            raise CollbenchError(
                f"--dtype: backend {backend} has no {dtype}",
                fix=f"use one of {', '.join(sorted(known))}",
            )
    return dtypes


def _workload(
    request: Request,
    backend: str,
    nranks: int,
    modes: tuple[str, ...],
    dtypes: tuple[str, ...],
) -> tuple[Step | None, str | None, tuple[str, ...], tuple[Case, ...]]:
    """Return the step, its name, what was assumed, and the cases a workload brings."""
    wanted = request.workload
    only_cases = request.sizes is not None or request.collectives is not None
    if wanted is None:
        for name, value in (
            ("--batch", request.batch),
            ("--draft-tokens", request.draft_tokens),
            ("--server", request.server),
        ):
            if value is not None:
                raise CollbenchError(f"{name} needs --workload")
        if request.modes is None and (only_cases or request.pairs or backend in _CPU):
            return None, None, (), ()
        if "step" not in modes:
            return None, None, (), ()
        wanted = _DEFAULT_WORKLOAD
    from collbench.workload import load

    made = load(
        wanted,
        tp=nranks,
        batch=request.batch,
        draft_tokens=request.draft_tokens,
        server=cast("Any", request.server),
    )
    notes = made.notes
    if backend in _CPU:
        made = made.as_dtype(dtypes[0])
        notes = (*notes, f"{backend}: payloads as {dtypes[0]}, no compute between the calls")
    cases = tuple(
        case
        for mode in modes
        if mode != "step" and not only_cases
        for case in made.cases(cast("Mode", mode))
    )
    return made.step if "step" in modes else None, made.step.name, notes, cases


def _cases(
    request: Request,
    modes: tuple[str, ...],
    dtypes: tuple[str, ...],
    nranks: int,
    workload_cases: tuple[Case, ...],
) -> tuple[Case, ...]:
    if workload_cases or (request.workload and not (request.sizes or request.collectives)):
        return workload_cases
    names = [name.strip() for name in (request.collectives or "all_reduce").split(",")]
    rows = [collective(name, where="--collective") for name in dict.fromkeys(names)]
    sizes = parse_sizes(request.sizes or _DEFAULT_SIZES)
    cases = []
    for row in rows:
        for dtype in dtypes:
            for size in dict.fromkeys(sizes):
                row.counts(size, dtype, nranks)
                cases += [
                    Case(
                        collective=row.name,
                        size_bytes=size,
                        dtype=dtype,
                        mode=cast("Mode", mode),
                    )
                    for mode in modes
                    if mode != "step"
                ]
    return tuple(cases)


def _plan(request: Request, cases: tuple[Case, ...]) -> Plan:
    plan = Plan(chain=request.chain)
    if request.pool is not None:
        plan = replace(plan, pool_bytes=parse_size(request.pool, where="--pool"))
    if request.replays is not None:
        plan = replace(plan, replays=request.replays, step_replays=request.replays)
    return plan


def _settings(env: str | None) -> dict[str, str]:
    if env is None:
        return {}
    from collbench.profiles import check_names
    from collbench.profiles.env_file import without_markers
    from collbench.profiles.store import load

    values = without_markers(load(env).values)
    check_names(values, where=f"--env {env}")
    return values


def _library(request: Request, backend: str) -> str | None:
    if request.nccl_lib is None:
        return None
    if backend != "nccl":
        raise CollbenchError(f"--nccl-lib: the backend is {backend}, which maps no libnccl")
    path = Path(request.nccl_lib)
    if not path.is_file():
        raise CollbenchError(f"--nccl-lib: {path} is not a file", fix="name the libnccl.so.2")
    return str(path.resolve())


def _skew(text: str | None, nranks: int, step: Step | None) -> Skew | None:
    if text is None:
        return None
    rank, colon, delay = text.partition(":")
    try:
        skew = Skew(rank=int(rank), delay_us=float(delay))
    except ValueError:
        skew = None
    if skew is None or not colon or not 0 <= skew.rank < nranks or not 0 <= skew.delay_us <= 1e6:
        raise CollbenchError(
            f"--skew: {text!r} is not RANK:US with a rank below {nranks} and at most 1000000 us",
            fix="write for example 1:250",
        )
    if step is None:
        raise CollbenchError("--skew acts on the step", fix="add --mode step or --workload")
    return skew


def _pinned(settings: dict[str, str]) -> dict[str, str]:
    """Return registered variables that the environment already has and the settings leave."""
    from collbench.knobs import registry

    return {
        name: os.environ[name]
        for name in sorted(registry())
        if name in os.environ and name not in settings
    }
