"""Find out what a source is and load it."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from collbench.collectives import itemsize
from collbench.errors import CollbenchError
from collbench.readers import UnreadableError
from collbench.readers.text import read_whole
from collbench.workload.buckets import SERVERS, Server
from collbench.workload.log import workload_of_log
from collbench.workload.model import Model, presets, read_model
from collbench.workload.step import Workload, step_of_model
from collbench.workload.table import from_table

MODEL_FIELDS = frozenset({"model", "batch", "draft_tokens", "server", "draft", "largest_graph"})
"""Fields of a [workload] table that names a model instead of calls."""


@functools.cache
def fixed() -> Mapping[str, Mapping[str, Any]]:
    """Return the steps of fixed sizes by name, as tables."""
    text = resources.files("collbench.workload").joinpath("fixed.toml").read_text("utf-8")
    return tomllib.loads(text)


def names() -> list[str]:
    """Return every name that `load` knows without a file."""
    return [*fixed(), *presets()]


def is_model(source: str) -> bool:
    """Say whether a source is a model, which needs its number of ranks, by its name alone."""
    path = Path(source)
    if source in presets():
        return True
    return (
        source not in fixed()
        and path.suffix != ".toml"
        and (path.suffix == ".json" or not path.is_file())
    )


def load(
    source: str,
    *,
    tp: int | None = None,
    batch: int | None = None,
    draft_tokens: int | None = None,
    server: Server | None = None,
    dtype: str | None = None,
    draft: str | None = None,
    largest_graph: int | None = None,
    config: str | None = None,
) -> Workload:
    """Return the workload of a source.

    Args:
        source: A name of `names`, a ``config.json`` or its folder, an NCCL log of the server, or a
            ``.toml`` file with a ``[workload]`` table.
        tp: Ranks. Needed for a model; for a log only where it does not say.
        batch: Live sequences (1).
        draft_tokens: Tokens the target verifies per sequence (1: plain decode).
        server: Whose CUDA-graph buckets hold the batch (sglang).
        dtype: Element type, instead of the source's own.
        draft: ``config.json`` or preset of the draft model; ``mtp``: the target's own layer.
        largest_graph: Largest captured size: sequences (sglang), tokens (vllm).
        config: For a log: the model, to put its compute between the calls.

    Raises:
        CollbenchError: the source cannot be read, or an argument does not apply to it.
    """
    if server is not None and server not in SERVERS:
        raise CollbenchError(f"--server: {server!r} is not one of {', '.join(SERVERS)}")
    if dtype is not None:
        itemsize(dtype, where="--dtype")
    for_models = {
        "--batch": batch,
        "--draft-tokens": draft_tokens,
        "--server": server,
        "--draft-config": draft,
        "--max-graph": largest_graph,
    }
    if source in fixed():
        not_for(for_models | {"--config": config}, f"{source} has fixed sizes")
        made = from_table(fixed()[source], name=source, where=source)
        return _typed(dataclasses.replace(made, kind="fixed", source=source), dtype)
    path = Path(source)
    if path.suffix == ".toml" and source not in presets():
        not_for({"--config": config}, f"{source} is not a log")
        arguments = {k.removeprefix("--").replace("-", "_"): v for k, v in for_models.items()}
        return of_toml(path, tp=tp, dtype=dtype, given=arguments)
    if is_model(source):
        not_for({"--config": config}, f"{source} is not a log")
        if tp is None:
            raise CollbenchError("--tp: a model needs its number of ranks", fix="add --tp N")
        model = read_model(source)
        return step_of_model(
            model,
            source=source,
            tp=tp,
            batch=1 if batch is None else batch,
            draft_tokens=1 if draft_tokens is None else draft_tokens,
            server=server or "sglang",
            dtype=dtype,
            draft=read_draft(draft, model),
            largest_graph=largest_graph,
        )
    not_for(
        {"--server": server, "--draft-config": draft, "--max-graph": largest_graph},
        "a log says itself what was captured",
    )
    return workload_of_log(
        path,
        tp=tp,
        batch=1 if batch is None else batch,
        draft_tokens=draft_tokens,
        dtype=dtype,
        model=None if config is None else read_model(config, where="--config"),
    )


def of_toml(path: Path, *, tp: int | None, dtype: str | None, given: Mapping[str, Any]) -> Workload:
    """Return the workload in the ``[workload]`` table of a TOML file.

    Raises:
        CollbenchError: unreadable, or the table is missing or wrong.
    """
    try:
        tables = tomllib.loads(read_whole(path).decode("utf-8"))
    except UnreadableError as error:
        raise CollbenchError(f"{path}: {error}", fix="check the path") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise CollbenchError(f"{path}: not TOML: {str(error)[:120]}") from error
    table = tables.get("workload")
    if not isinstance(table, dict):
        raise CollbenchError(
            f"{path}: no [workload] table",
            fix='add [workload] with [[workload.calls]], or with model = "61x7168"',
        )
    return load_table(table, where=f"{path}: workload", tp=tp, dtype=dtype, given=given)


def load_table(
    table: Mapping[str, Any],
    *,
    where: str,
    tp: int | None = None,
    dtype: str | None = None,
    given: Mapping[str, Any] | None = None,
) -> Workload:
    """Return the workload of a ``[workload]`` table: its calls, or a source and its batch.

    Args:
        table: ``calls`` as in `from_table`, or ``model`` (any source of `load`) with ``batch``,
            ``draft_tokens``, ``server``, ``draft``, ``largest_graph``, ``dtype``.
        where: File and table, for errors; a relative path in the table starts at the file's
            folder.
        tp: Ranks.
        dtype: Element type, instead of the table's own.
        given: Arguments of the command line, which win over the table.

    Raises:
        CollbenchError: a field is missing, unknown or wrong.
    """
    given = {name: value for name, value in (given or {}).items() if value is not None}
    if "model" not in table:
        not_for({f"--{n.replace('_', '-')}": v for n, v in given.items()}, f"{where} has calls")
        return _typed(from_table(table, name=Path(where.split(":")[0]).stem, where=where), dtype)
    unknown = sorted(set(table) - MODEL_FIELDS - {"dtype"})
    if unknown:
        raise CollbenchError(
            f"{where}: unknown field {unknown[0]!r}",
            fix=f"beside model use {', '.join(sorted(MODEL_FIELDS | {'dtype'}))}",
        )
    for name, kind in (("batch", int), ("draft_tokens", int), ("largest_graph", int)):
        value = table.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            raise CollbenchError(f"{where}: {name}: {str(value)[:40]!r} is not an integer")
    for name in ("model", "server", "draft", "dtype"):
        if not isinstance(table.get(name, ""), str):
            raise CollbenchError(f"{where}: {name}: {str(table[name])[:40]!r} is not a text")
    if str(table["model"]).endswith(".toml"):
        raise CollbenchError(
            f"{where}: model: {table['model'][:80]!r} is a table as well, not a model",
            fix="name a config.json, an NCCL log or a preset, or give that file itself",
        )
    folder = Path(where.split(":")[0]).parent
    arguments = {**{n: table[n] for n in MODEL_FIELDS & set(table)}, **given}
    return load(
        _near(arguments["model"], folder),
        tp=tp,
        batch=arguments.get("batch"),
        draft_tokens=arguments.get("draft_tokens"),
        server=arguments.get("server"),
        dtype=dtype or table.get("dtype"),
        draft=arguments.get("draft_config") or _near(arguments.get("draft"), folder),
        largest_graph=arguments.get("max_graph", arguments.get("largest_graph")),
    )


def _near(source: Any, folder: Path) -> Any:
    """Return `source`, or the file of that name beside the table's own file."""
    if source is None or source in names() or Path(source).is_absolute():
        return source
    beside = folder / source
    return str(beside) if beside.exists() else source


def read_draft(draft: str | None, target: Model) -> Model | None:
    """Return the draft model; ``mtp`` is one layer of the target with its own head.

    Raises:
        CollbenchError: unreadable, or the target has no such layer.
    """
    if draft != "mtp":
        return None if draft is None else read_model(draft, where="--draft-config")
    if not target.nextn:
        raise CollbenchError(
            f"--draft-config: {target.name} has no multi-token prediction layer",
            fix="give the draft model's config.json",
        )
    return dataclasses.replace(target, name=f"{target.name}-mtp", layers=1, dense_layers=0)


def not_for(arguments: Mapping[str, Any], why: str) -> None:
    """Refuse arguments that would have no effect.

    Raises:
        CollbenchError: one was given.
    """
    for name, value in arguments.items():
        if value is not None:
            raise CollbenchError(f"{name}: {why}", fix=f"leave {name} out")


def _typed(workload: Workload, dtype: str | None) -> Workload:
    return workload if dtype is None else workload.as_dtype(dtype)
