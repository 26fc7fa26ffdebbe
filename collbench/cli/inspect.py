"""``collbench inspect``: what a pasted text says, and what is wrong in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli.document import deliver, json_options
from collbench.errors import CollbenchError, Exit

if TYPE_CHECKING:
    from collbench.diagnose.inspection import Inspection
    from collbench.readers import Given


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."
)
@click.option(
    "--kind", metavar="KIND", help="What the files are, where their content is not to decide."
)
@click.option(
    "--given",
    "given_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSON file with what is known: profile, stored, rank_gpu, nccl_version.",
)
@click.option("--profile", metavar="PROFILE", help="Profile whose variables the files should show.")
@json_options
def inspect(
    files: tuple[Path, ...],
    kind: str | None,
    given_path: Path | None,
    profile: str | None,
    as_json: bool,
    json_file: Path | None,
) -> int:
    r"""Say what pasted texts say, and what is wrong in them. Needs no GPU.

    Reads topology matrices, NCCL logs, nccl-tests tables, environment files, launch snippets,
    copies of /proc/PID/environ, link states and step timings; tells them apart by content.
    A FILE that is called - is standard input.

    \b
    Example:
      nvidia-smi topo -m > topo.txt
      collbench inspect topo.txt server.log --profile current
      docker logs engine 2>&1 | collbench inspect -

    Exit code: 0; 3 with findings; 2 if a file could not be read (wins).
    """
    from collbench.files import refuse_inputs
    from collbench.readers.recognise import KINDS

    if files.count(Path("-")) > 1:
        raise click.BadParameter("- stands there twice: standard input is read once")
    if kind is not None and kind not in KINDS:
        raise click.BadParameter(f"{kind!r} is none of {', '.join(KINDS)}", param_hint="--kind")
    refuse_inputs(json_file, files, where="--json-file")
    given = _given(given_path, profile)
    entries = []
    for path in files:
        progress = _progress(path)
        entries.append(_inspected(path, given, kind, progress))
        if progress is not None:
            click.echo("\r" + " " * 60 + "\r", nl=False, err=True)
    code = Exit.OK
    if any(entry.error is not None for entry in entries):
        code = Exit.USAGE
    elif any(entry.findings for entry in entries):
        code = Exit.FINDINGS
    document = {
        "schema": 1,
        "command": "inspect",
        "exit_code": int(code),
        "files": [entry.plain() for entry in entries],
    }
    text = "\n".join(line for entry in entries for line in _lines(entry)) + "\n"
    return deliver(document, text, as_json=as_json, json_file=json_file)


def _inspected(
    path: Path, given: Given, kind: str | None, progress: Callable[[int], None] | None
) -> Inspection:
    from dataclasses import replace

    from collbench.diagnose.inspection import inspect_file

    if path != Path("-"):
        return inspect_file(path, given, kind, progress)
    with _standard_input() as copy:
        return replace(inspect_file(copy, given, kind, progress), path="-")


@contextmanager
def _standard_input() -> Iterator[Path]:
    """Give a file that holds standard input: readers go back and forth in what they read."""
    import shutil
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="collbench-") as file:
        try:
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.flush()
        except OSError as error:
            raise CollbenchError(
                f"standard input: cannot be kept in {file.name}: {error.strerror or error}",
                fix="write it into a file, and name that",
            ) from error
        yield Path(file.name)


def _given(path: Path | None, profile: str | None) -> Given:
    """Return what is known; what a file says wins over what a profile says."""
    from dataclasses import fields, replace

    from collbench.readers import Given

    known = Given()
    if profile is not None:
        from collbench.diagnose.wanted import given_of_profile

        known = given_of_profile(profile)
    if path is not None:
        from collbench.diagnose.inspection import load_given

        said = load_given(path)
        known = replace(known, **{f.name: v for f in fields(said) if (v := getattr(said, f.name))})
    return known


def _progress(path: Path) -> Callable[[int], None] | None:
    """Return a callback that shows how much of a large log is read, on a terminal only."""
    if not sys.stderr.isatty():
        return None
    name = path.name[:40]

    def show(done: int) -> None:
        click.echo(f"\r{name}: {done >> 20} MiB read", nl=False, err=True)

    return show


def _lines(entry: Inspection) -> list[str]:
    """Return one file's entry, 80 columns wide."""
    from collbench.diagnose.wording import fact_lines, finding_lines

    if entry.error is not None:
        lines = [f"{entry.path}: {entry.error}"]
    else:
        lines = [f"{entry.path}: {entry.kind}", *fact_lines(entry.facts)]
        if not entry.findings:
            lines.append("  nothing wrong found")
    return lines + [line for finding in entry.findings for line in finding_lines(finding)]
