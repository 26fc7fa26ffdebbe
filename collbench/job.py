"""The job and the run: all that the measuring and the deciding side share.

Plain dataclasses and JSON, standard library only: an MPI rank of a trial starts in a tenth of a
second because nothing heavier is imported here. The deciding side validates what arrives with
`collbench.record`.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

JOB_SCHEMA = 1

Settings = Mapping[str, str]
"""Variable name -> value, as it stands in an environment. ``{}`` is the default."""

Outcome = Literal["ok", "hung", "died", "wrong", "refused", "unsupported"]
"""How a launch ended.

``ok``: timed, data right. ``hung``: the deadline passed. ``died``: a process ended by a signal or
without a result. ``wrong``: a collective returned wrong data. ``refused``: the library rejected
the settings. ``unsupported``: the backend cannot do what was asked (dtype, collective).
"""

Mode = Literal["graph", "eager", "entry"]
"""How a single case is timed; the step is not a case."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One point to time; hashable, and the join key of every comparison."""

    collective: str
    """all_reduce, all_gather, reduce_scatter, broadcast, reduce or send_recv."""
    size_bytes: int
    """The larger of the send and receive buffer on one rank (``size`` of nccl-tests)."""
    dtype: str
    mode: Mode

    @property
    def key(self) -> str:
        """``collective/size_bytes/dtype/mode``."""
        return f"{self.collective}/{self.size_bytes}/{self.dtype}/{self.mode}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCall:
    """One collective of a step, with the compute in front of each of its calls."""

    collective: str
    size_bytes: int
    """As in `Case`."""
    dtype: str
    count: int
    """Calls in a row."""
    compute: tuple[tuple[int, int, int], ...] = ()
    """Matrix products before each call, as (m, k, n) for ``[m, k] @ [k, n]``, in the dtype."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """The whole sequence of collectives of one decode or verify step, in order."""

    name: str
    calls: tuple[StepCall, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How much is timed. The defaults are those that agree with nccl-tests."""

    pool_bytes: int = 1 << 20
    """Rotating buffer pool, in bytes; at least one message."""
    chain: int | None = None
    """Calls in one captured graph; None: 100 up to 64 KiB, 50 to 1 MiB, 20 to 8 MiB, 5 above."""
    replays: int = 20
    """Timed windows per case (replays of the chain; batches on a CPU)."""
    step_replays: int = 20
    warmup_replays: int = 5
    entry_samples: int = 200
    batch_us: float = 4000.0
    """CPU backends: length of one timed batch of calls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Skew:
    """One rank made late on purpose, to calibrate the attribution of waiting."""

    rank: int
    delay_us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What one launch has to do; the same JSON goes to every rank."""

    job_id: str
    backend: str
    """nccl, gloo, mpi, or ``package.module:factory`` of a backend of your own."""
    nranks: int
    settings: dict[str, str] = field(default_factory=dict)
    """The candidate, on top of the baseline; ``{}`` is the default."""
    baseline: dict[str, str] = field(default_factory=dict)
    """Set under default and candidates alike (``--like``, pins)."""
    cases: tuple[Case, ...] = ()
    step: Step | None = None
    plan: Plan = Plan()
    functions: bool = False
    """Smoke: every function a server calls, 4 B to 1 KiB, int64 and float32."""
    proof_log: str | None = None
    """Path pattern for NCCL_DEBUG_FILE: a proof run. Its times are never published."""
    nccl_lib: str | None = None
    skew: Skew | None = None
    bind: bool = True
    """Bind each rank to its GPU's NUMA node before anything wakes."""
    pairs: bool = False
    """Also time every pair of ranks."""
    communicators: tuple[dict[str, str], ...] = ()
    """Settings read per communicator to try one after the other in these processes."""
    deadline_s: float = 30.0
    schema: int = JOB_SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseTimes:
    """Raw times of one case in one launch."""

    case: Case
    times_us: list[list[float]]
    """``[rank][window]``, microseconds per call."""
    enqueue_us: list[float] | None = None
    """Per rank: host time to enqueue one call (eager)."""
    wrong: list[int] = field(default_factory=list)
    """Wrong elements per rank, before plus after the timing."""
    chain: int = 1
    """Calls per window."""
    error: str | None = None
    """Why there are no times, where there are none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """Raw times of the step in one launch, microseconds, ``[rank][replay]``."""

    total_us: list[list[float]]
    nocomm_us: list[list[float]]
    """The same without its collectives; empty on backends that have no compute."""
    wrong: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class PairTimes:
    """Latency (small) and bandwidth (large) between two ranks, one direction at a time."""

    src: int
    dst: int
    latency_us: float
    bandwidth_gbs: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """What one rank was and had."""

    rank: int
    pid: int
    host: str
    device: str
    """GPU name or ``cpu``."""
    pci: str | None = None
    numa_node: int | None = None
    """NUMA node of the rank's GPU; None where the machine does not tell."""
    cpus: str = ""
    """CPUs the rank may run on, as a list (``0-15``)."""
    bound: str = "unknown"
    """What was bound: cpus, cpus+memory, inherited, not_asked, unknown, or refused: REASON."""
    memory_bytes: int | None = None
    """GPU memory in use by this process after the communicator is up."""
    library: str = ""
    """Communication library as loaded, with its version."""
    library_path: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    """Where the time went: fork, context, communicator, first_collective, timing, total."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What NCCL said it chose for one (function, bytes), from a proof run."""

    collective: str | None
    size_bytes: int
    algorithm: str
    protocol: str
    channels: str
    count: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One launch: what was asked, how it ended, and the raw times of every rank."""

    job_id: str
    settings: dict[str, str]
    outcome: Outcome
    reason: str = ""
    """For every outcome but ok: what happened, in one line."""
    failed_rank: int | None = None
    cases: tuple[CaseTimes, ...] = ()
    step: StepTimes | None = None
    functions: dict[str, str] = field(default_factory=dict)
    """``collective/dtype/size_bytes`` -> ``ok`` or what was wrong (smoke)."""
    pairs: tuple[PairTimes, ...] = ()
    ranks: tuple[RankFacts, ...] = ()
    choices: tuple[Choice, ...] = ()
    transports: dict[str, int] = field(default_factory=dict)
    """Transport -> connections, from a proof run."""
    env_seen: dict[str, str] = field(default_factory=dict)
    """Variables the library itself said it read (proof run), else those of the allow-list."""
    warnings: tuple[str, ...] = ()
    started: str = ""
    """UTC, ISO 8601."""
    seconds: float = 0.0
    """Wall time of the whole launch as the deciding side saw it."""
    log_path: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where one rank of a launch stands, and where its group meets."""

    rank: int
    nranks: int
    local_rank: int
    local_world_size: int
    result_path: str
    """The rank's own file; rewritten whole after every case, so that a death loses one case."""
    store_host: str = ""
    store_port: int = 0
    store_prefix: str = ""
    """Prefix of this launch's keys in the control store (torch backends); unique per launch."""
    timeout_s: float = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCase:
    """One rank's share of `CaseTimes`."""

    case: Case
    times_us: list[float] = field(default_factory=list)
    enqueue_us: float | None = None
    wrong: int = 0
    chain: int = 1
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RankResult:
    """One rank's share of `Run`: its worker writes ``{"parts": [...]}`` of it to `result_path`.

    One part per entry of `Job.communicators`, or one part where there is none.
    """

    rank: int
    outcome: Outcome
    """``hung`` until the rank has finished: what stands in the file of a rank that was killed."""
    reason: str = ""
    facts: RankFacts | None = None
    cases: tuple[RankCase, ...] = ()
    step_total_us: list[float] = field(default_factory=list)
    step_nocomm_us: list[float] = field(default_factory=list)
    step_wrong: int = 0
    functions: dict[str, str] = field(default_factory=dict)
    pairs: tuple[PairTimes, ...] = ()
    env_seen: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


T = TypeVar("T")


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind))


def to_plain(value: Any) -> Any:
    """Return dataclasses as dictionaries and tuples as lists, ready for ``json.dumps``."""
    if isinstance(value, str | int | float) or value is None:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_plain(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(cls: type[T], value: Any) -> T:
    """Build the dataclass `cls` from what `to_plain` made.

    Trusts its input: it is for the measuring side, which gets its job from the deciding side.

    Raises:
        TypeError: a field is missing or unknown.
    """
    return typing.cast("T", _build(cls, value))


def _build(kind: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _build(hints[name], item) for name, item in value.items()})
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        inner = [arg for arg in args if arg is not type(None)]
        return None if value is None else _build(inner[0], value)
    if origin is tuple:
        kinds = [args[0]] * len(value) if args[-1] is Ellipsis else args
        return tuple(_build(k, item) for k, item in zip(kinds, value, strict=True))
    if origin is list:
        return [_build(args[0], item) for item in value]
    return value
