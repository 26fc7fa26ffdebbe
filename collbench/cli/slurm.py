"""`collbench slurm`: submit sweeps to a cluster, follow them, gather what they found."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collbench.cli.document import deliver, json_options

if TYPE_CHECKING:
    from collbench.slurm.gather import Task

_POLL_S = 2.0
_QUIET_S = 30.0
"""A follower says at least this often that it is alive."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def slurm() -> None:
    r"""Submit sweeps to Slurm and gather them.

    \b
    Example:
      collbench slurm submit decode --gpus-per-node 8 --dry-run
      collbench slurm submit decode --gpus-per-node 8 --array 16 --follow
      collbench slurm gather 4711
    """


@slurm.command(
    short_help="Submit a sweep, once or as an array.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("spec")
@click.argument("sweep_arguments", nargs=-1, metavar="[-- SWEEP OPTIONS]")
@click.option(
    "--nodes", metavar="N", type=int, default=1, show_default=True, help="Nodes of one sweep."
)
@click.option(
    "--array",
    metavar="N",
    type=int,
    default=1,
    show_default=True,
    help="Sweeps, each on nodes of its own.",
)
@click.option(
    "--at-once", metavar="N", type=int, help="Most sweeps of the array that run at a time."
)
@click.option(
    "--nproc-per-node", metavar="N", type=int, help="Ranks on each node; default: one per GPU."
)
@click.option("--gpus-per-node", metavar="N", type=int, help="GPUs to ask for on each node.")
@click.option(
    "--launcher",
    type=click.Choice(["torchrun", "srun"]),
    default="torchrun",
    show_default=True,
    help="What starts the ranks where a sweep spans nodes.",
)
@click.option("--partition", metavar="NAME", help="Partition of the job.")
@click.option("--account", metavar="NAME", help="Account that is charged.")
@click.option("--qos", metavar="NAME", help="Quality of service of the job.")
@click.option("--time", "limit", metavar="T", help="Time limit: minutes, H:M:S or D-H:M:S.")
@click.option("--constraint", metavar="FEATURES", help="Node features: one class of nodes.")
@click.option("--nodelist", metavar="NODES", help="Nodes to use.")
@click.option("--exclude", metavar="NODES", help="Nodes to leave out.")
@click.option("--share", is_flag=True, help="Do not ask for whole nodes (numbers suffer).")
@click.option(
    "--name", metavar="NAME", default="collbench", show_default=True, help="Name of the job."
)
@click.option(
    "--storage", metavar="URL", help="Study shared by all tasks: journal:PATH or a database URL."
)
@click.option(
    "--profile",
    type=click.Path(path_type=Path),
    metavar="PROFILE",
    help="Profile to source: it becomes part of the baseline.",
)
@click.option(
    "--sbatch",
    "options",
    metavar="OPTION",
    multiple=True,
    help="Further option of sbatch, --opt=value.",
)
@click.option(
    "--python",
    metavar="PATH",
    default=sys.executable,
    show_default="this one",
    help="Interpreter on the nodes.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    default=Path("results"),
    show_default=True,
    help="Folder that every node sees.",
)
@click.option("--dry-run", is_flag=True, help="Print the job script; submit nothing.")
@click.option("--follow", is_flag=True, help="Wait for the end, then gather.")
@json_options
def submit(
    spec: str,
    sweep_arguments: tuple[str, ...],
    limit: str | None,
    share: bool,
    profile: Path | None,
    out: Path,
    dry_run: bool,
    follow: bool,
    as_json: bool,
    json_file: Path | None,
    **words: Any,
) -> int:
    r"""Submit a sweep of SPEC, on one or several nodes, once or as an array.

    Options of the sweep itself follow after --. Each task leaves its document and log under
    OUT/slurm; a task that is started again goes on where it stopped.

    \b
    Example:
      collbench slurm submit decode --gpus-per-node 8 --follow -- --budget 20m
      collbench slurm submit decode --nodes 2 --gpus-per-node 8 --dry-run
    """
    from collbench.slurm.control import submit as hand_over
    from collbench.slurm.request import Request
    from collbench.slurm.script import render

    request = Request(
        spec=str(Path(spec).resolve()) if Path(spec).is_file() else spec,
        arguments=sweep_arguments,
        out=out.resolve(),
        time=limit,
        exclusive=not share,
        profile=_env_file(profile),
        **words,
    )
    _check_sweep(request.spec, sweep_arguments)
    script = render(request)
    document: dict[str, Any] = {
        "schema": 1,
        "command": "slurm",
        "exit_code": 0,
        "job": None,
        "tasks_asked": request.array,
        "out": str(request.out),
        "script": script,
    }
    if dry_run:
        return deliver(document, script, as_json=as_json, json_file=json_file)
    from collbench.files import write_atomic

    request.folder.mkdir(parents=True, exist_ok=True)
    document["job"] = job = hand_over(script)
    write_atomic(request.folder / job / "job.sh", script)
    if follow:
        click.echo(f"submitted job {job}", err=True)
        return _follow(
            job, request.folder, tasks=request.array, as_json=as_json, json_file=json_file
        )
    text = f"submitted job {job}\nNext: collbench slurm gather {job} --out {out} --follow\n"
    return deliver(document, text, as_json=as_json, json_file=json_file)


@slurm.command(
    short_help="Gather what the tasks of a job found.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("job")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    default=Path("results"),
    show_default=True,
    help="As given to submit.",
)
@click.option("--follow", is_flag=True, help="Wait until every task has ended.")
@json_options
def gather(job: str, out: Path, follow: bool, as_json: bool, json_file: Path | None) -> int:
    r"""Gather what the tasks of a job found, also of one that was cancelled.

    Exit code: 0 every task delivered and all agree; 3 they differ; 1 some did not deliver.

    \b
    Example:
      collbench slurm gather 4711 --follow --json-file fleet.json
    """
    from collbench.slurm.control import checked_job

    folder = out.resolve() / "slurm"
    if follow:
        return _follow(checked_job(job), folder, tasks=0, as_json=as_json, json_file=json_file)
    return _deliver(checked_job(job), _tasks(job, folder, 0), as_json, json_file)


def _check_sweep(spec: str, arguments: tuple[str, ...]) -> None:
    """Refuse before the queue what the sweep would refuse after it.

    Raises:
        CollbenchError: an option of the sweep, its file or its budget is wrong.
    """
    from collbench.errors import CollbenchError
    from collbench.search.budget import parse_budget
    from collbench.space.spec import load_spec
    from collbench.sweep.arguments import parse

    try:
        given = parse([*arguments, "--", spec])
    except click.ClickException as error:
        raise CollbenchError(
            f"sweep options: {error.format_message()}", fix="see collbench sweep --help"
        ) from error
    load_spec(spec)
    if given is not None and (given.out is not None or given.json_file is not None):
        raise CollbenchError(
            "sweep options: --out and --json-file are set by the job script itself",
            fix="give --out to `collbench slurm submit`",
        )
    if given is not None and given.budget is not None:
        parse_budget(given.budget)


def _env_file(profile: Path | None) -> Path | None:
    if profile is None:
        return None
    from collbench.profiles.store import load

    path = load(profile).env_path
    return path.resolve()


def _tasks(job: str, folder: Path, count: int) -> list[Task]:
    from collbench.errors import CollbenchError
    from collbench.slurm.control import states
    from collbench.slurm.gather import gather as collect

    try:
        known = states(job)
    except CollbenchError:
        # files say enough where Slurm is gone; without them `collect` raises
        known = {}
    return collect(folder, job, known, tasks=count)


def _deliver(job: str, tasks: list[Task], as_json: bool, json_file: Path | None) -> int:
    from collbench.slurm.gather import document
    from collbench.slurm.table import task_table

    return deliver(document(job, tasks), task_table(tasks), as_json=as_json, json_file=json_file)


def _follow(job: str, folder: Path, *, tasks: int, as_json: bool, json_file: Path | None) -> int:
    """Print a line whenever something changes, until no task is left to run; then gather."""
    from collbench.slurm.control import states
    from collbench.slurm.gather import gather as collect
    from collbench.slurm.table import progress_line

    said, said_at = "", 0.0
    try:
        while True:
            known = states(job)
            found = collect(folder, job, known, tasks=tasks)
            line = progress_line(found)
            if line != said or time.monotonic() > said_at + _QUIET_S:
                click.echo(f"job {job}: {line}", err=True)
                said, said_at = line, time.monotonic()
            if all(state.ended for state in known.values()):
                return _deliver(job, found, as_json, json_file)
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        click.echo(
            f"job {job} goes on; follow it with `collbench slurm gather {job} --follow`, "
            f"end it with `scancel {job}`",
            err=True,
        )
        raise click.exceptions.Abort from None
