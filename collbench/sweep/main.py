"""A sweep from preflight to summary, as every rank of the launcher runs it."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collbench.errors import CollbenchError, Exit
from collbench.files import write_atomic
from collbench.pool import Pool, open_pool
from collbench.preflight import MachineLock, check_gpus, check_shm
from collbench.ranks import detect, host_name
from collbench.sweep.arguments import Arguments, parse
from collbench.sweep.setup import (
    Setup,
    command_line,
    like_baseline,
    pinned_variables,
    prepare,
    storage_of,
)

if TYPE_CHECKING:
    from collbench.search.shared import Node


def main(arguments: Sequence[str]) -> int:
    """Run one rank of a sweep and return the exit code.

    Raises:
        CollbenchError: what was asked cannot be done.
        KeyboardInterrupt: interrupted; rank 0 has said how to go on.
    """
    try:
        given = parse(arguments)
    except click.ClickException as error:
        if int(os.environ.get("RANK", "0")) == 0:
            error.show()
        return Exit.USAGE
    if given is None:
        return Exit.OK
    where = detect()
    setup = prepare(given, local_ranks=where.local_world_size, nranks=where.world_size)
    warnings: list[str] = []
    if where.local_rank == 0:
        warnings += check_gpus(setup.gpus, force=given.force)
        warnings += check_shm()
    pool = open_pool(where, setup.chosen.backend)
    # after the fork server, which would inherit the lock and keep it
    lock = MachineLock(setup.gpus) if where.local_rank == 0 else None
    try:
        if where.rank != 0:
            pool.serve()
            return Exit.OK
        try:
            return _lead(given, setup, pool, warnings, arguments)
        finally:
            pool.close()
    finally:
        if lock is not None:
            lock.release()


def _lead(
    given: Arguments, setup: Setup, pool: Pool, warnings: list[str], arguments: Sequence[str]
) -> int:
    """Do rank 0's part."""
    from collbench import knobs, profiles
    from collbench.machine import fingerprint
    from collbench.search.backings import is_shared
    from collbench.search.sweeps import options, run_sweep
    from collbench.space.build import plan
    from collbench.sweep.lab import PoolLab
    from collbench.sweep.publish import Context, publish_all
    from collbench.terminal.progress import SweepProgress
    from collbench.terminal.summary import sweep_summary

    spec, backend = setup.spec, setup.chosen.backend
    progress = SweepProgress(sys.stderr, quiet=given.quiet)
    progress.say(f"{pool.nranks} ranks, backend {backend}: {setup.chosen.why}")
    for warning in warnings:
        progress.say(f"warning: {warning}")
    hello = pool.hello()
    library = hello.ranks[0].library
    machine = fingerprint(library=library, library_path=hello.ranks[0].library_path)
    baseline = like_baseline(given.like, os.environ)
    pinned = {n: v for n, v in pinned_variables(os.environ).items() if n not in baseline}
    built = plan(
        spec,
        version=knobs.parse_version(library.split(" ")[-1]),
        environ={**pinned, **baseline},
        allow=given.allow,
        keep_order=given.keep_order,
        nodes=len(set(pool.hosts)),
    )
    baseline |= built.baseline
    for note in built.notes:
        progress.say(note)
    command = command_line(arguments, pool.hosts, pool.nranks)
    slug = profiles.machine_slug(machine.model_dump(mode="json"))
    storage, stem = storage_of(given, spec, setup.results / slug)
    asked = options(
        spec,
        built,
        nranks=pool.nranks,
        objective=given.objective,
        strategy=given.strategy,
        budget=given.budget,
        seed=given.seed,
        resume=given.resume,
        allow=given.allow,
        command=command,
        last_profiles=_last_profiles(setup.results / slug),
        # nodes that share a study are compared by their class instead
        surroundings={}
        if is_shared(storage)
        else {"library": library, "like": given.like, "baseline": {**pinned, **baseline}},
    )
    asked = replace(asked, node=_node(library, machine.model_dump(mode="json")))
    lab = PoolLab(
        pool=pool,
        step=spec.step(pool.nranks),
        guard=spec.guard(),
        search_guard=spec.search_guard(given.objective),
        baseline=baseline,
    )
    context = Context(
        spec=spec.name,
        backend=backend,
        nranks=pool.nranks,
        step=spec.step(pool.nranks),
        machine=machine,
        baseline=baseline,
        pinned=pinned,
        like=given.like,
        command=command,
        job=lab.job({}, "confirm"),
    )
    drafts = _Drafts(stem)
    try:
        with progress:
            result = run_sweep(lab, built, asked, storage, progress, draft=drafts.write)
    except KeyboardInterrupt:
        _say_resume(command, "stopped")
        raise
    except CollbenchError as error:
        if error.code == Exit.FAILED:
            _say_resume(command, "what was measured is kept")
        raise
    finally:
        drafts.remove()
    documents = publish_all(result, context, setup.results, warnings=warnings)
    whole: dict[str, Any] = documents[0]
    if len(documents) > 1:
        whole["hazard"] = documents[1]
    own = stem.with_suffix(".json")
    write_atomic(own, json.dumps(whole, indent=2) + "\n")
    report = _report(own, whole["profile"])
    if report is not None:
        whole["report"] = str(report)
        write_atomic(own, json.dumps(whole, indent=2) + "\n")
    if given.json_file is not None:
        write_atomic(given.json_file, json.dumps(whole, indent=2) + "\n")
    if given.as_json:
        print(json.dumps(whole, indent=2), flush=True)
    else:
        print("\n\n".join(sweep_summary(part) for part in documents), flush=True)
    return Exit.OK


def _node(library: str, machine: dict[str, Any]) -> Node:
    """Return this node as others that search the same study see it."""
    from collbench.profiles import machine_class
    from collbench.search.shared import Node

    return Node(name=host_name(os.environ), machine={**machine_class(machine), "library": library})


def _last_profiles(machine_folder: Path) -> list[dict[str, str]]:
    """Return the settings of this machine's profiles, the newest first, as seeds of the search."""
    from collbench.profiles.store import read_profile

    found = sorted(machine_folder.glob("*/profile.json"), key=lambda path: path.stat().st_mtime)
    settings = []
    for path in reversed(found):
        # a seed only: what is wrong with a profile is for `profile show` to say
        with suppress(CollbenchError):
            settings.append(dict(read_profile(path.parent).settings))
    return settings


def _say_resume(command: Sequence[str], why: str) -> None:
    words = [*command] if "--resume" in command else [*command, "--resume"]
    print(f"collbench: {why}; go on with: {shlex.join(words)}", file=sys.stderr)


def _report(own: Path, profile: str | None) -> Path | None:
    """Write the page of a sweep, where the extra `report` is installed; say why where it fails."""
    from collbench.report import write_sweep

    try:
        return write_sweep(own, Path(profile) if profile is not None else None)
    except CollbenchError as error:
        print(f"collbench: no report: {error.what}", file=sys.stderr)
        return None


class _Drafts:
    """Env files of candidates under confirmation, one file at a time."""

    def __init__(self, stem: Path) -> None:
        self._path = stem.with_suffix(".draft.env")

    def write(self, settings: Any) -> Path:
        """Write the env file of `settings` and return its path."""
        from collbench.profiles.env_file import settings_text

        write_atomic(self._path, settings_text(settings))
        return self._path

    def remove(self) -> None:
        """Remove the file: only a confirmed profile stays."""
        self._path.unlink(missing_ok=True)
