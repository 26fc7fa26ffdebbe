"""``collbench diagnose``: the ranked causes of a slower step."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli.document import deliver, json_options
from collbench.cli.seconds import Seconds
from collbench.errors import Exit

if TYPE_CHECKING:
    from collbench.diagnose.session import Session

FILE = click.Path(path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--profile", metavar="PROFILE", help="The profile the server should run with.")
@click.option(
    "--steps",
    type=FILE,
    metavar="FILE",
    multiple=True,
    help="Step timings: one file with both runs, or twice: before, then after.",
)
@click.option("--log", "logs", type=FILE, metavar="FILE", multiple=True, help="NCCL or server log.")
@click.option(
    "--topo",
    "machine",
    type=FILE,
    metavar="FILE",
    multiple=True,
    help="Topology, links, launch snippet: any file that inspect reads.",
)
@click.option("--measure", is_flag=True, help="Start a bench now and read its record.")
@click.option(
    "--record", type=FILE, metavar="FILE", help="Check this run record instead of measuring."
)
@click.option("--against", metavar="PROFILE", help="Watch: --profile PROFILE --measure.")
@click.option(
    "--pid", "pids", type=int, metavar="PID", multiple=True, help="Worker, or what started it."
)
@click.option("--match", metavar="REGEX", help="Regular expression on command lines of workers.")
@click.option("--no-processes", is_flag=True, help="Do not look at running processes.")
@click.option(
    "--fail-on",
    type=click.Choice(["regression"]),
    help="Exit 3 on a regression, 4 where it cannot be decided.",
)
@click.option("--prom", type=FILE, metavar="FILE", help="Write a Prometheus text file.")
@click.option(
    "--timeout",
    type=Seconds(1.0),
    metavar="SECONDS",
    default=900.0,
    show_default=True,
    help="How long a bench may take.",
)
@json_options
def diagnose(
    profile: str | None,
    steps: tuple[Path, ...],
    logs: tuple[Path, ...],
    machine: tuple[Path, ...],
    measure: bool,
    record: Path | None,
    against: str | None,
    pids: tuple[int, ...],
    match: str | None,
    no_processes: bool,
    fail_on: str | None,
    prom: Path | None,
    timeout: float,
    as_json: bool,
    json_file: Path | None,
) -> int:
    r"""Rank the causes of a slower decode or verify step.

    Puts together what there is: the profile and its records, running workers, logs, topology,
    links, a server's step timings before and after, and a bench made now. Each cause comes with
    its evidence, the expected cost per step, and the next command.

    \b
    Example:
      collbench diagnose --profile current --steps before.json --steps after.json
      collbench diagnose --against current --fail-on regression --prom FILE

    Exit code: 0; with --fail-on regression 3 for a regression, 4 for undecided.
    """
    from collbench.diagnose import prom as prometheus
    from collbench.diagnose.session import Asked, run
    from collbench.errors import CollbenchError
    from collbench.files import refuse_inputs

    if profile is not None and against is not None and profile != against:
        raise CollbenchError(
            "--against: names another profile than --profile", fix="give one of the two"
        )
    wanted = against or profile
    if not (wanted or steps or logs or machine or measure or record):
        raise CollbenchError(
            "diagnose: nothing to look at",
            fix="give for example --profile current, or --steps BEFORE --steps AFTER",
        )
    read = [*steps, *logs, *machine, *([record] if record else [])]
    refuse_inputs(prom, read, where="--prom")
    refuse_inputs(json_file, read, where="--json-file")
    watch = against is not None and not steps
    asked = Asked(
        profile=wanted,
        steps=steps,
        logs=logs,
        machine=machine,
        measure=measure or (watch and record is None),
        watch=watch,
        record=record,
        pids=pids,
        match=match,
        look=not no_processes,
        timeout_s=timeout,
    )
    session = run(asked, lambda text: click.echo(text, err=True))
    code = Exit.OK
    if fail_on is not None:
        verdict = session.diagnosis.verdict
        code = {"regression": Exit.FINDINGS, "undecided": Exit.UNDECIDED}.get(verdict, Exit.OK)
    if prom is not None:
        content = prometheus.text(
            session.diagnosis, session.evidence, session.reference, session.measured
        )
        prometheus.write(prom, content)
    document = session.document(int(code))
    text = _summary(session) if against is not None else _text(session)
    return deliver(document, text, as_json=as_json, json_file=json_file)


def _summary(session: Session) -> str:
    from collbench.readers.text import printable

    return printable(session.diagnosis.summary, 400) + "\n"


def _text(session: Session) -> str:
    from collbench.diagnose.causes import SAID
    from collbench.diagnose.wording import WIDTH, finding_lines
    from collbench.readers.text import printable

    diagnosis = session.diagnosis
    lines = [f"verdict: {SAID[diagnosis.verdict]}"]
    if diagnosis.delta_ms is not None:
        lines[0] += f" ({diagnosis.delta_ms:+.3f} ms per step)"
    if session.reference is not None:
        looked = "no running worker found" if session.asked.look else "workers were not looked at"
        seen = session.evidence.live or looked
        named = printable(str(session.reference.id or session.reference.path), 400)
        lines += textwrap.wrap(f"profile {named}: {seen}", WIDTH, subsequent_indent="  ")
    for finding in diagnosis.findings:
        lines += finding_lines(finding)
    if not diagnosis.findings:
        lines.append("  no cause found in what was given")
    if session.cannot_tell:
        lines.append("these timings cannot tell:")
        lines += [f"  - {text}" for text in session.cannot_tell]
    return "\n".join(lines) + "\n"
