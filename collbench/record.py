"""Result files: pydantic models over the job and the run, schema versions, strict loading.

Raw times are stored; every bandwidth and statistic is derived on reading. A record of an older
schema loads for ever; one of a newer schema is refused with what to do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from collbench.errors import CollbenchError
from collbench.files import write_atomic
from collbench.job import Job, Run
from collbench.machine import Fingerprint

SCHEMA = 1
METHOD = 1
"""Version of the measuring method; raised whenever a change can move a measured number."""

ENV_ALLOWED = ("NCCL_", "OMPI_MCA_", "PRTE_MCA_", "MPIR_CVAR_", "UCX_", "TORCH_NCCL_", "GLOO_")
ENV_ALLOWED_NAMES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_MODULE_LOADING",
        "OMP_NUM_THREADS",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST",
        "NVSHMEM_DISABLE_NVLS",
        "COLLBENCH_PROFILE",
        "SPT_NOENV",
    }
)
_SECRET = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "PRIVATE")


def allowed_env(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that may be stored or printed, sorted by name."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if (name in ENV_ALLOWED_NAMES or name.startswith(ENV_ALLOWED))
        and not any(word in name.upper() for word in _SECRET)
    }


def now_utc() -> str:
    """Return the current time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Model(BaseModel):
    """Base of every stored model: frozen, and unknown fields of newer writers are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")


class RunRecord(Model):
    """What `bench` writes: one environment, one or more launches of one job."""

    schema_: Literal[1] = 1
    kind: Literal["run"] = "run"
    method: int = METHOD
    collbench: str = ""
    created: str
    command: list[str] = []
    backend: str
    nranks: int
    workload: str | None = None
    machine: Fingerprint
    settings: dict[str, str] = {}
    """On top of the baseline; what ``--env FILE`` gave."""
    baseline: dict[str, str] = {}
    pinned: dict[str, str] = {}
    """Registry variables found in the inherited environment (allow-listed)."""
    job: Job
    launches: list[Run]
    interleaved: str | None = None
    """Shared by records whose launches alternated in time: launch k of one pairs with launch k."""
    memory_default_bytes: int | None = None
    """GPU memory of the communicator under the default, where `settings` are not the default."""
    warnings: list[str] = []

    model_config = ConfigDict(
        frozen=True, extra="allow", populate_by_name=True, alias_generator=None
    )


def dump(model: BaseModel) -> str:
    """Return the JSON text of a stored model; ``schema_`` is spelled ``schema``."""
    plain = model.model_dump(mode="json")
    if "schema_" in plain:
        plain = {"schema": plain.pop("schema_"), **plain}
    return json.dumps(plain, indent=None, separators=(",", ":"), allow_nan=False) + "\n"


def save(path: Path, model: BaseModel) -> None:
    """Write a record, whole or not at all.

    Raises:
        CollbenchError: `path` cannot be written.
    """
    write_atomic(path, dump(model))


M = TypeVar("M", bound=BaseModel)


def load(path: Path, model: type[M]) -> M:
    """Read a record of any schema version up to this one.

    Raises:
        CollbenchError: missing, not JSON, of a newer schema, or a field is wrong (named).
    """
    plain = read_json(path)
    if "exit_code" in plain and "kind" not in plain:
        record = plain.get("record")
        raise CollbenchError(
            f"{path}: the document of a command, not a record",
            fix=f"give {record[:200]}" if isinstance(record, str) else "give the run record",
        )
    schema = plain.pop("schema", None)
    if not isinstance(schema, int):
        raise CollbenchError(
            f"{path}: no 'schema' field: not a collbench record",
            fix="give a file that bench, sweep or check wrote",
        )
    if schema > SCHEMA:
        raise CollbenchError(
            f"{path}: schema {schema} is newer than this collbench reads (up to {SCHEMA})",
            fix="pip install --upgrade collbench",
        )
    return validate(model, {"schema_": schema, **plain}, where=str(path))


MAX_BYTES = 256 << 20
"""Largest file taken for a record; ``/dev/zero`` has no end."""


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`.

    Raises:
        CollbenchError: missing, unreadable, or not a JSON object.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise CollbenchError(f"{path}: over {MAX_BYTES >> 20} MiB: not a record")
        plain = json.loads(data.decode("utf-8"))
    except OSError as error:
        raise CollbenchError(f"{path}: {error.strerror}", fix="check the path") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise CollbenchError(
            f"{path}: not a JSON record: {str(error)[:200]}",
            fix="give a file that bench, sweep or check wrote; a cut file cannot be used",
        ) from error
    if not isinstance(plain, dict):
        raise CollbenchError(f"{path}: holds {type(plain).__name__}, not a JSON object")
    return plain


def validate(model: type[M], plain: Any, *, where: str) -> M:
    """Validate `plain` as `model`, naming the first wrong field in the error.

    Raises:
        CollbenchError: a field is missing, unknown or of the wrong type.
    """
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        raise CollbenchError(f"{where}: {first_fault(error)}") from error


def first_fault(error: ValidationError) -> str:
    """Return ``field: what is wrong (got value)`` for the first fault of a validation."""
    fault = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in fault["loc"]) or "document"
    shown = repr(fault.get("input"))
    return f"{field}: {fault['msg']} (got {shown if len(shown) < 80 else shown[:77] + '...'})"


_RUN = TypeAdapter(Run)


def validate_run(plain: Any, *, where: str) -> Run:
    """Validate a run that came from a worker.

    Raises:
        CollbenchError: a field is missing, unknown or of the wrong type.
    """
    try:
        return _RUN.validate_python(plain)
    except ValidationError as error:
        raise CollbenchError(f"{where}: {first_fault(error)}") from error
